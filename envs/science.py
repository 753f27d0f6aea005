"""Quantities with units: word problems of physics and chemistry, procedural or from rows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Literal

import rlvr
from rlvr.envs.puzzles import Made, Puzzle
from rlvr.envs.science_problems import PROBLEMS, draw_question
from rlvr.verifiers.science import ScienceVerifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Science"]

_HOW = "Put the number with its unit in \\boxed{}, to three significant digits."


@rlvr.register("science-v4")
class Science(Puzzle):
    r"""Compute a quantity; the answer is a number with a unit of the right
    dimension, within a tolerance.

    Options:
        data: rows with `question` (or `problem`) and `answer`, such as "9.8 m/s^2": a file or a hub
            id.  Without it, problems of one formula each, whose data come in other units than the
            SI's.
        tolerance, digits, units: see `ScienceVerifier`.
    """

    domain = "science"
    data: str = ""
    tolerance: float = 0.01
    digits: int = 2
    units: Literal["required", "optional"] = "required"

    def __post_init__(self) -> None:
        super().__post_init__()
        verifier = ScienceVerifier(self.tolerance, self.digits, self.units)
        # an instance may shadow its class's reward
        self.reward = rlvr.Correct(verifier)  # type: ignore[misc]

    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        question, answer = draw_question(rng, rng.choice(PROBLEMS))
        return Made(f"{question} {_HOW}", answer, answer) if mine(question) else None

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        question = row.get("question", row.get("problem"))
        if not isinstance(question, str) or "answer" not in row:
            raise rlvr.DataError(
                f"{id}: needs 'question' and 'answer'; it has {', '.join(map(repr, row))}"
            )
        try:
            reference = self.reference_of(row["answer"])
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None
        return rlvr.Task(id, f"{question}\n\n{_HOW}", reference, {"solution": reference})

    def reference_of(self, value: object) -> str:
        """The quantity as a text; a number has no unit.

        Args:
            value: a text or a number.

        Raises:
            DataError: it is no number with a known unit.
        """
        return str(super().reference_of(value))

    def example(self, task: rlvr.Task) -> str:
        return f"\\boxed{{{task.reference}}}"
