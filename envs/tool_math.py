"""Mathematics with a Python session: problems whose numbers are too large
to be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Final

import rlvr
from rlvr.environment.ready_tools import python, sandbox
from rlvr.sandbox import Limits
from rlvr.validate import require_one_of
from rlvr.verifiers.math import MathVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["PythonToolMath"]

_LIMITS: Final = Limits(cpu_s=2.0, memory_mib=256)
_FORM: Final = "\n\nYou can run Python. Put the final answer in \\boxed{}."


def _power(rng: Random) -> tuple[str, int]:
    base, exponent, modulus = (
        rng.randint(2, 999),
        rng.randint(100, 9999),
        rng.randint(10_000, 99_999),
    )
    # Three arguments: the power is never written out.
    return f"What is the remainder of {base}^{exponent} divided by {modulus}?", pow(
        base, exponent, modulus
    )


def _digits(rng: Random) -> tuple[str, int]:
    base, exponent = rng.randint(3, 99), rng.randint(200, 900)
    return f"What is the sum of the digits of {base}^{exponent}?", sum(
        map(int, str(base**exponent))
    )


def _primes(rng: Random) -> tuple[str, int]:
    low = rng.randint(1000, 50_000)
    high = low + rng.randint(500, 3000)
    count = sum(all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(low, high + 1))
    return f"How many primes p are there with {low} ≤ p ≤ {high}?", count


def _multiples(rng: Random) -> tuple[str, int]:
    a, b, limit = rng.randint(3, 40), rng.randint(3, 40), rng.randint(5000, 99_999)
    total = sum(n for n in range(1, limit + 1) if n % a == 0 or n % b == 0)
    return f"What is the sum of the integers from 1 to {limit} that {a} or {b} divides?", total


def _sequence(rng: Random) -> tuple[str, int]:
    p, q, modulus, n = (
        rng.randint(2, 9),
        rng.randint(2, 9),
        rng.randint(1000, 99_999),
        rng.randint(100, 2000),
    )
    a, b = 1, rng.randint(1, 9)
    question = (
        f"Let a_0 = 1, a_1 = {b} and a_(k+2) = {p}·a_(k+1) + {q}·a_k. What is the remainder of "
        f"a_{n} divided by "
        f"{modulus}?"
    )
    for _ in range(n):
        a, b = b, (p * b + q * a) % modulus
    return question, a % modulus


_KINDS: Final[tuple[Callable[[Random], tuple[str, int]], ...]] = (
    _power,
    _digits,
    _primes,
    _multiples,
    _sequence,
)
_SPLITS: Final = ("train", "validation", "test")


@rlvr.register("python-tool-math-v4")
class PythonToolMath(rlvr.Environment):
    r"""Problems with whole numbers as answers, and a Python session; the answer of the
    last turn goes in \boxed{}.

    What the tool prints is no answer.

    Options:
        data: rows with the columns `question` and `answer`, a number or formula: a file or a hub
            id.  Without it, problems of number theory made from a seed.
        sandbox: "namespaces", or "restricted" for a host without them; see
            docs/reference/sandbox.md.
    """

    domain = "tools"
    reward = rlvr.Correct(MathVerifier())
    turns: int = 6
    calls: int = 8
    call_seconds: float = 30.0
    data: str = ""
    sandbox: str = "namespaces"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data:
            require_one_of("split", self.split, _SPLITS)

    def tasks(self) -> Iterable[rlvr.Task]:
        return self.tasks_in(self.data, make=_row_task) if self.data else super().tasks()

    def task(self, index: int) -> rlvr.Task:
        if self.data:
            return super().task(index)
        rng = rlvr.seeded(self.id, self.split, index)
        question, answer = rng.choice(_KINDS)(rng)
        return rlvr.Task(f"{self.id}/{self.split}/{index}", question + _FORM, answer)

    @property
    def size(self) -> int | None:
        return len(self._tasks) if self.data else None

    def setup(self, task: rlvr.Task) -> Any:
        return sandbox(_LIMITS, level=self.sandbox).session("python", total_cpu_s=20.0)

    def tools(self, state: Any) -> list[rlvr.Tool]:
        return [python(state)]

    def example_episode(self, task: rlvr.Task) -> list[str | rlvr.Ask]:
        return [
            rlvr.Ask("python", {"code": f"print({task.reference})"}),
            f"\\boxed{{{task.reference}}}",
        ]


def _row_task(row: Row, id: str) -> rlvr.Task:
    if not isinstance(row.get("question"), str) or "answer" not in row:
        raise rlvr.DataError(f"no 'question' or no 'answer' in the row; it has {list(row)}")
    return rlvr.Task(id, row["question"] + _FORM, str(row["answer"]))
