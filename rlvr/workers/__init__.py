"""Processes that can be killed, and threads that call them."""

from rlvr.workers.pool import Handler, WorkerPool, shipped, usable_cores
from rlvr.workers.threads import Threads

__all__ = ["Handler", "Threads", "WorkerPool", "shipped", "usable_cores"]
