"""How work runs beside the caller: processes that can be killed at any moment, and daemon threads.

pool, process   `WorkerPool` and the loop of its worker processes
fork_server     inside of a worker: a forked child for each request that may have to be killed
threads         daemon threads that run calls in order
framing, clock  messages on a pipe; the CPU clock of another process
"""

from rlvr.workers.pool import Handler, WorkerPool, shipped, usable_cores
from rlvr.workers.threads import Threads

__all__ = ["Handler", "Threads", "WorkerPool", "shipped", "usable_cores"]
