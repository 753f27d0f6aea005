r"""The symbolic engine, from the caller's side:
a killable worker that is started when first needed.

A limit reached in the worker is the answer's fault and a verdict: a model must not be able to go
unscored by writing what cannot be evaluated.  A reference that the engine cannot read is notation,
such as `p \to q`: it is equal to its own text alone, whatever the answer, so that no answer can
choose to go unscored.  A worker that cannot start, is killed from outside twice, or gets no CPU
time from the machine, says nothing about the answer and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlvr.errors import Unscored, WorkerDied, WorkerTimeout
from rlvr.verifiers.math.forms import Form
from rlvr.verifiers.math.matching import Decision
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.workers import WorkerPool, once_per_process
from rlvr.workers.fork_server import OWN_FAULT

if TYPE_CHECKING:
    from rlvr.verifiers.math.engine import Request
    from rlvr.verifiers.math.worker import PairReply

__all__ = [
    "CPU_S",
    "MEMORY_MIB",
    "NOTATION",
    "WALL_S",
    "check_reference",
    "decide",
    "decide_many",
    "prove",
    "warm",
]

CPU_S = 0.75
"""CPU seconds for one pair; the clock that decides,
since it does not depend on what else the machine does."""
WALL_S = 10.0
"""Wall seconds for one pair: only a backstop."""
MEMORY_MIB = 512
"""Of the worker and of each child it forks."""
NOTATION = "different-text: the reference is notation and is compared as text"
"""The decision on every other text where the engine cannot read the reference."""
# For a reference alone: it is trusted, and a slow machine must not make it look unreadable.
_OUR_S = 20.0
_PROOF_S = 8.0  # by hand, and not while a model is scored
_POOL_S = (
    60.0  # the worker keeps the limits above itself, in its child; this is for a worker that hangs
)


def decide(answer: Form, reference: Form, policy: MathPolicy) -> Decision:
    """Compare an answer that the normal form left undecided with its reference.

    Args:
        answer, reference: their forms.
        policy: what counts as equal.

    Raises:
        Unscored: no worker can be started, or it was killed from outside more than once.
    """
    return _decision(_call((answer, reference, policy, False), CPU_S, WALL_S), reference)


def prove(answer: Form, reference: Form, policy: MathPolicy) -> Decision:
    """`decide`, and what SymPy makes of it behind the reason: `symbolic-equal: proved`, `evidence`
    or `refuted`.

    Args:
        answer, reference, policy: see `decide`.

    Raises:
        Unscored: see `decide`.
    """
    kind, equal, reason = _call((answer, reference, policy, True), _PROOF_S, _OUR_S)
    if kind == "reply" and equal is not None:
        return Decision(equal, reason)
    decision = decide(answer, reference, policy)
    evidence = "" if ":" in decision.reason else ": evidence"
    return Decision(decision.equal, decision.reason + evidence)


def decide_many(pairs: Sequence[tuple[Form, Form, MathPolicy]]) -> list[Decision]:
    """`decide` for many pairs, with one call to the workers.

    Args:
        pairs: answer, reference and policy of each.

    Raises:
        Unscored: see `decide`.
    """
    if not pairs:
        return []
    outcomes = _workers().run([((*pair, False), CPU_S, WALL_S) for pair in pairs], wall_s=_POOL_S)
    return [
        _decision(outcome, pair[1])
        if _is_final(outcome)
        else decide(*pair)  # which asks a fresh worker
        for outcome, pair in zip(outcomes, pairs, strict=True)
    ]


def _decision(outcome: PairReply, reference: Form) -> Decision:
    kind, equal, reason = outcome
    # A pair that was lost may be the reference's fault, which is looked at alone, and with more
    # time.
    if kind == "lost" and check_reference(reference) is None:
        return Decision(False, f"too-hard: {reason}")
    return Decision(False, NOTATION) if equal is None else Decision(equal, reason)


def _is_final(outcome: Any) -> bool:
    """An answer, or what the request itself is to blame for."""
    return not isinstance(outcome, Unscored) and (outcome[0] == "reply" or outcome[2] in OWN_FAULT)


@lru_cache(maxsize=4096)
def check_reference(reference: Form) -> str | None:
    """None if the symbolic engine can read the reference; else why it is only compared as text.

    Args:
        reference: its form.

    Raises:
        Unscored: no worker can be started.
    """
    kind, equal, reason = _call((None, reference, MathPolicy(), False), _OUR_S, _OUR_S)
    if kind == "lost":
        return f"it takes the symbolic engine too much: {reason}"
    return reason if equal is None else None


def warm() -> None:
    """Start the worker now, so that the first answer does not wait for it (about a second)."""
    _workers().warm()


def _call(request: Request, cpu_s: float, wall_s: float) -> PairReply:
    """What became of the request; `lost` to CPU time, memory or a crash, which are its own fault.

    Raises:
        WorkerDied, WorkerTimeout: killed from outside, or starved by the machine, twice.
    """
    failure: Unscored = WorkerDied("the engine was not asked")
    # Once more, as a machine that is too busy says nothing about the pair.
    for _ in range(2):
        [outcome] = _workers().run([(request, cpu_s, wall_s)], wall_s=_POOL_S)
        if isinstance(outcome, Unscored):
            failure = outcome
        elif _is_final(outcome):
            return outcome[0], outcome[1], outcome[2]
        else:
            failure = _FAILURES[outcome[2]](f"the symbolic engine's child was lost: {outcome[2]}")
    raise failure


_FAILURES = {"wall": WorkerTimeout, "died": WorkerDied}


def _start() -> Callable[[Any], Any]:
    # In the worker: the caller's process never loads the engine.
    from rlvr.verifiers.math.worker import start_worker

    return start_worker()


@once_per_process
def _workers() -> WorkerPool:
    # One worker, and one that is ready when it is lost.
    return WorkerPool(_start, workers=1, spares=1, memory_mib=MEMORY_MIB, quiet=True)
