"""Work beside the caller: processes, programs, threads and event loops, started here alone.

pool, process              `WorkerPool` and the loop of its worker processes
fork_server                inside of a worker: a forked child for each request that may be killed
async_pool, async_process  `AsyncPool`, whose processes each await many items at once
program                    `StartedProgram`, in a group of its own; `Lifeline`, `ForkedChild`
threads, thread            `Threads` runs calls in order; `DaemonThread` runs one function
loops                      event loops of this process, with a bound on how many calls run at once
alive                      the table of all of them: `rlvr doctor -v` and SIGUSR1 print it
framing, clock             messages on a pipe; the CPU clock of another process
closing, per_process       what a `with` block closes; what a process makes once

Contract: an object owns what it started, and its `close` ends it.
Started: programs by `subprocess`, never by a fork of the caller; threads as daemons, at first need.
Asked: a handler, sent by cloudpickle, gets an item and answers in JSON, with the number of the
  request; a thread gets a call and settles its future.  A full pipe blocks nobody: requests wait
  for room within the item's time, replies have at most 64 MiB.
Limited: CPU seconds where a limit decides a verdict, wall seconds against hanging, memory by
  RLIMIT_DATA.  A process is killed at its limit with its group; a thread cannot be, so what may
  hang gets a process, or a thread that is left behind.
Restarted: a lost worker by its pool at the next item, three times in a row at most.
Errors: the asker's, through the future or reply; what a `DaemonThread` lets through is printed.
Ctrl-C is the caller's alone: programs have sessions of their own.  SIGTERM that is not handled ends
  this process as SIGKILL does: a pipe ends, and the kernel kills each program with its group, each
  fork, each worker (Linux; elsewhere workers alone notice, within a second).  Three tidy up first
  and notice by themselves (`ends_itself`): the sandbox's keeper, a vLLM server, a folder's remover.
Exit: pools kill what is left, daemon threads just stop; nothing waits for a slow call.
Fork: the child has no thread and owns no process of its parent; pools, `Threads`, loops begin anew.
Sees the ground alone; every room above sees it.
Goes wrong: a child that outlives its owner, a reply to another's question, a fork while a thread
holds a lock, a number waited for twice, and a wall clock where CPU time should decide.
"""

from rlvr.workers.alive import Alive, alive
from rlvr.workers.async_pool import AsyncPool
from rlvr.workers.loops import BoundedCalls
from rlvr.workers.per_process import once_per_process
from rlvr.workers.pool import Handler, WorkerPool, ship, usable_cores
from rlvr.workers.program import ForkedChild, Lifeline, StartedProgram, run_program
from rlvr.workers.thread import DaemonThread
from rlvr.workers.threads import Threads

__all__ = [
    "Alive",
    "AsyncPool",
    "BoundedCalls",
    "DaemonThread",
    "ForkedChild",
    "Handler",
    "Lifeline",
    "StartedProgram",
    "Threads",
    "WorkerPool",
    "alive",
    "once_per_process",
    "run_program",
    "ship",
    "usable_cores",
]
