"""Rubrics: criteria with weights, each judged on its own, as a part of a reward."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlvr.errors import Unscored, UsageError, brief
from rlvr.rewards.composition import Bounds, Part
from rlvr.text import after_thinking, prompt_text
from rlvr.types import Completion, Outcome, Task, Verdict
from rlvr.validate import is_number

__all__ = ["Rubric"]


@dataclass(frozen=True)
class Rubric(Part):
    """The weighted share of criteria that a completion meets, in [0, 1]; gate it by a
    rule where there is one.

        reward = Correct(rule) + 0.2 * Rubric(judge, [("names its source", 2), ("has at most 100
        words", 1)])

    A task's own criteria, `Task.meta["rubric"]` as a list of (criterion, weight), come before those
    given here.

    Args:
        judge: an object with `async judged(question, criterion, answer) -> Verdict`, such as
            `rlvr.verifiers.judge.Judge` with a prompt in which {reference} is a criterion.
        criteria: (criterion, weight) each; weights are above 0.
        name: of the part in `Score.parts`.

    Raises:
        UsageError: a criterion is empty, or a weight is not above 0.
    """

    judge: Any
    criteria: Sequence[tuple[str, float]] = ()
    name: str = "rubric"
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def __post_init__(self) -> None:
        # A frozen dataclass refuses plain assignment, even here.
        object.__setattr__(self, "criteria", _check_criteria(self.criteria, "Rubric"))
        if not callable(getattr(self.judge, "judged", None)):
            raise UsageError(
                f"Rubric: {brief(self.judge)} has no method judged(question, criterion, answer)"
            )

    async def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
        """See `Part.value`.

        Args:
            task, completion, verdict: see there.

        Raises:
            Unscored: the judge could not judge a criterion.
            UsageError: the task has no criteria, and none were given.
        """
        task_rubric = task.meta.get("rubric")
        criteria = (
            self.criteria
            if task_rubric is None
            else _check_criteria(task_rubric, f"task {task.id!r}: meta['rubric']")
        )
        if not criteria:
            raise UsageError(
                f"task {task.id!r} has no criteria in meta['rubric'], and the Rubric has none of "
                f"its own"
            )
        begin = after_thinking(completion.text)
        # The thinking never ended, so there is no answer to judge; that is
        # the policy's fault and not the judge's, hence 0 and not UNSCORED.
        if begin is None:
            return 0.0
        last = task.prompt if isinstance(task.prompt, str) else task.prompt[-1:]
        question = prompt_text(last)
        answer = completion.text[begin:].strip()
        verdicts = await asyncio.gather(
            *(self.judge.judged(question, text, answer) for text, _ in criteria)
        )
        # One criterion without a judgement leaves no share of
        # the whole: neither 0 nor 1 in its place would be right.
        if lost := [
            verdict_of_criterion
            for verdict_of_criterion in verdicts
            if verdict_of_criterion.outcome is Outcome.UNSCORED
        ]:
            raise Unscored(f"part {self.name!r} of task {task.id!r}: {lost[0].why}")
        met = sum(
            weight
            for (_, weight), verdict_of_criterion in zip(criteria, verdicts, strict=True)
            if verdict_of_criterion.correct
        )
        return min(1.0, float(met / sum(weight for _, weight in criteria)))


def _check_criteria(criteria: object, where: str) -> tuple[tuple[str, float], ...]:
    if isinstance(criteria, str) or not isinstance(criteria, Sequence):
        raise UsageError(f"{where} is {brief(criteria)}; it must be a list of (criterion, weight)")
    pairs = []
    for criterion in criteria:
        pair = tuple(criterion) if isinstance(criterion, (list, tuple)) else (criterion, 1.0)
        if len(pair) != 2 or not isinstance(pair[0], str) or not pair[0].strip():
            raise UsageError(f"{where} holds {brief(criterion)}; give (criterion, weight)")
        if not is_number(pair[1]) or pair[1] <= 0:
            raise UsageError(
                f"{where}: the weight of {pair[0]!r} is {brief(pair[1])}; it must be above 0"
            )
        pairs.append((pair[0], float(pair[1])))
    return tuple(pairs)
