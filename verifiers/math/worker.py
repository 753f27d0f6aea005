"""What runs in the pool's worker: the symbolic engine behind a fork server,
so that a pair costs no more than a child.

A pair that uses up its time or memory, or crashes, ends only the child it ran in; the worker itself
goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from rlvr.verifiers.math import engine
from rlvr.verifiers.math.forms import Form
from rlvr.verifiers.math.latex.compile import was_stopped
from rlvr.workers.fork_server import OWN_FAULT, ChildLost, ForkServer

__all__ = ["PairReply", "PairRequest", "start_worker"]

PairRequest = tuple[engine.Request, float, float]
"""A request with its CPU and wall seconds."""

PairReply = tuple[str, bool | None, str]
"""`reply`, equal and the reason; or `lost`, None and the reason of `ChildLost`."""


def start_worker() -> Callable[[PairRequest], PairReply]:
    """Load the engine; returns the handler."""
    engine.start()
    return _Worker().handle


_MOST_UNREADABLE = 4096


class _Worker:
    def __init__(self) -> None:
        self._server = ForkServer(engine.handle, was_stopped)
        # References that are no mathematics, and why.  A child that was stopped at one is replaced,
        # and the next would spend the same time on it.
        self._unreadable: dict[Form, str] = {}

    def handle(self, item: PairRequest) -> PairReply:
        """Time, memory and crashes are the pair's own; a child that was killed or hardly ran is
        asked once more."""
        request, cpu_s, wall_s = item
        answer, reference, *_ = request
        if (why := self._unreadable.get(reference)) is not None:
            if answer is None or not engine.are_operations(answer, reference):
                return "reply", None, why
            request = (answer, reference, None, False)
        lost = ""
        for _ in range(2):
            try:
                equal, reason = self._server.ask(request, cpu_s=cpu_s, wall_s=wall_s)
            except ChildLost as loss:
                lost = loss.reason
                if lost in OWN_FAULT:
                    break
            else:
                if equal is None:
                    self._remember(reference, why or reason)
                return "reply", equal, reason
        return "lost", None, lost

    def _remember(self, reference: Form, why: str) -> None:
        if len(self._unreadable) >= _MOST_UNREADABLE:
            del self._unreadable[next(iter(self._unreadable))]
        self._unreadable[reference] = why
