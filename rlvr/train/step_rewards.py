"""Rewards of the steps of a completion: from a process reward model, or from a rule of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any

from rlvr.algo.papers import module_at
from rlvr.collect.prefixes import step_boundaries
from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import Sampler
from rlvr.train.reward_model import RewardModel
from rlvr.types import Group, Outcome, Rollout, Score, Task, Turn, Verdict

__all__ = ["StepRewards", "StepRule"]

StepRule = Callable[[Task, list[str]], Sequence[float]]
"""From a task and the steps of a completion to a reward of each step."""


class StepRewards:
    """Splits completions into steps and rewards each of them, as turns of the rollout.

    A rule that raises, or gives too few numbers or one that is not finite, fails by our fault: the completion becomes
    UNSCORED, and is not trained on.

    Args:
        source: RUN/model of a process reward model; or FILE.py:FUNCTION of a rule `function(task, steps)`, which
            returns a number for each step.
        delimiter: text that ends a step.
        device: of the model.

    Raises:
        UsageError: there is no such model or function.
    """

    def __init__(self, source: str, delimiter: str, device: str = "cpu") -> None:
        self.delimiter, self._source = delimiter, source
        self._rule = _rule_of(source, device)

    def __call__(self, groups: Sequence[Group], sampler: Sampler) -> list[Group]:
        """The groups with a turn for each step, and its reward.

        Args:
            groups: of completions of one turn.
            sampler: decodes their tokens.

        Raises:
            UsageError: none of them got rewards.
        """
        found = [
            replace(group, rollouts=[self._rewarded(one, sampler) for one in group.rollouts])
            for group in groups
        ]
        rollouts = [one for group in found for one in group.rollouts]
        if rollouts and not any(one.turns for one in rollouts):
            why = rollouts[0].score.verdict.why if rollouts[0].score else "not scored"
            raise UsageError(
                f"step_reward {self._source} gave no completion of {len(rollouts)} a reward; the first: {why}"
            )
        return found

    def _rewarded(self, rollout: Rollout, sampler: Sampler) -> Rollout:
        if not rollout.completion_ids or not any(rollout.completion_mask):
            return rollout
        if rollout.turns:
            raise UsageError(
                f"task {rollout.task.id!r} has several turns, which are its steps; leave step_reward out"
            )
        ends = step_boundaries(rollout, sampler, self.delimiter)
        spans = list(pairwise(ends))
        steps = [sampler.decode(rollout.completion_ids[start:stop]) for start, stop in spans]
        try:
            rewards = _checked(self._rule(rollout.task, steps), len(steps))
        except Exception as error:  # noqa: BLE001  of the rule: our fault, and not the completion's
            return _unscored(rollout, f"step rewards: {type(error).__name__}: {error}")
        turns = [Turn(*span, reward) for span, reward in zip(spans, rewards, strict=True)]
        return replace(rollout, turns=turns)


def _rule_of(source: str, device: str) -> StepRule:
    if Path(source).is_dir():
        model = RewardModel.load(source, reads="steps", device=device)
        return lambda task, steps: model.step_scores(task.prompt, steps)
    if ":" not in source:
        raise UsageError(
            f"step_reward is {source!r}; it must be RUN/model of a process reward model, or FILE.py:FUNCTION"
        )
    place, _, name = source.rpartition(":")
    found: Any = getattr(module_at(place, f"--step-reward {source}"), name, None)
    if not callable(found):
        raise UsageError(f"step_reward is {source!r}, and {place} has no function {name!r}")
    rule: StepRule = found
    return rule


def _checked(rewards: Any, count: int) -> list[float]:
    numbers = list(rewards)
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} numbers for {count} steps")
    for number in numbers:
        if not isinstance(number, Real) or not math.isfinite(number):
            raise ValueError(f"{brief(number)} is no finite number")
    return [float(number) for number in numbers]


def _unscored(rollout: Rollout, why: str) -> Rollout:
    verdict = Verdict(Outcome.UNSCORED, why=why)
    masked = [False] * len(rollout.completion_ids)
    return replace(rollout, score=Score(None, {}, verdict), completion_mask=masked)
