"""How work runs beside the caller: processes that can be killed at any moment, and daemon threads.

pool, process              `WorkerPool` and the loop of its worker processes
fork_server                inside of a worker: a forked child for each request that may be killed
async_pool, async_process  `AsyncPool`, whose processes each await many items at once
loops                      event loops of this process, with a bound on how many calls run at once
threads                    daemon threads that run calls in order
framing, clock             messages on a pipe; the CPU clock of another process
closing                    what a `with` block closes
per_process                things that a process makes once, at their first use

Contract: a handler, sent by cloudpickle, that gets an item and answers in JSON.
Sees the ground alone; every room above sees it.
Goes wrong: a child that outlives its owner (each watches its pipe), a reply to another's question,
a fork while a thread holds a lock, and a wall clock where CPU time should decide.
"""

from rlvr.workers.async_pool import AsyncPool
from rlvr.workers.loops import BoundedCalls
from rlvr.workers.per_process import once_per_process
from rlvr.workers.pool import Handler, WorkerPool, ship, usable_cores
from rlvr.workers.threads import Threads

__all__ = [
    "AsyncPool",
    "BoundedCalls",
    "Handler",
    "Threads",
    "WorkerPool",
    "once_per_process",
    "ship",
    "usable_cores",
]
