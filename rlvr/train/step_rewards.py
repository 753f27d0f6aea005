"""Rewards of the steps of a completion: from a process reward model, a rule, or completions of its prefixes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, Final, Self

from rlvr.algo.papers import module_at
from rlvr.collect.groups import Groups
from rlvr.collect.prefixes import PrefixValues, prefix_values_and_costs, step_boundaries
from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import Sampler
from rlvr.train.config import ResolvedConfig
from rlvr.train.reward_model import RewardModel
from rlvr.types import Group, Outcome, Rollout, Score, Task, Turn, Verdict

__all__ = ["FORKS", "StepRewards", "StepRule"]

StepRule = Callable[[Task, list[str]], Sequence[float]]
"""From a task and the steps of a completion to a reward of each step."""


FORKS: Final = "forks"
"""The source that asks how much likelier a right answer is after a step than before it."""


class StepRewards:
    """Splits completions into steps and rewards each of them, as turns of the rollout.

    What a model or a rule gives is added to the completion's total, as the part "steps" of its score; with "forks" the
    steps share out the total itself.  A rule that raises, or gives too few numbers or one that is not finite, fails by
    our fault: the completion becomes UNSCORED, and is not trained on.

    Args:
        source: RUN/model of a process reward model; FILE.py:FUNCTION of a rule `function(task, steps)`, which
            returns a number for each step; or "forks": the mean score of new completions from the step's end, minus
            that from its beginning (VinePPO's values, arXiv:2410.01679, sec. 4).
        delimiter: text that ends a step.
        device: of the model.
        k: new completions from each step's end, with "forks".

    Raises:
        UsageError: there is no such model or function.
    """

    def __init__(self, source: str, delimiter: str, device: str = "cpu", k: int = 9) -> None:
        self.delimiter, self._source, self._k = delimiter, source, k
        self._rule = None if source == FORKS else _rule_of(source, device)

    @classmethod
    def of(cls, config: ResolvedConfig, device: str) -> Self | None:
        """Those of a run; None for one without, or whose steps are the environment's turns.

        Args:
            config: of the run.
            device: of a process reward model.
        """
        source = config.step_reward
        if source in (None, "turns"):
            return None
        assert source is not None
        return cls(source, config.step_delimiter, device, config.vine_k)

    def __call__(self, groups: Sequence[Group], by: Groups) -> tuple[list[Group], dict[str, float]]:
        """The groups with a turn for each step, and its reward; and the costs as metrics.

        Args:
            groups: of completions of one turn.
            by: what sampled them.

        Raises:
            UsageError: none of them got rewards.
        """
        rollouts = [one for group in groups for one in group.rollouts]
        costs: dict[str, float] = {}
        if self._rule is None:
            values, costs = prefix_values_and_costs(by, rollouts, k=self._k, steps=self.delimiter)
            rewarded = [_shared_out(*both) for both in zip(rollouts, values, strict=True)]
        else:
            rewarded = [self._rewarded(self._rule, one, by.sampler) for one in rollouts]
        if rewarded and not any(one.turns for one in rewarded):
            why = rewarded[0].score.verdict.why if rewarded[0].score else "not scored"
            raise UsageError(
                f"step_reward {self._source} gave no completion of {len(rewarded)} a reward; the first: {why}"
            )
        costs["steps_unscored"] = float(sum(map(_lost, rollouts, rewarded)))
        each = iter(rewarded)
        return [replace(g, rollouts=[next(each) for _ in g.rollouts]) for g in groups], costs

    def _rewarded(self, rule: StepRule, rollout: Rollout, sampler: Sampler) -> Rollout:
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
            rewards = _checked(rule(rollout.task, steps), len(steps))
        except Exception as error:  # noqa: BLE001  of the rule: our fault, and not the completion's
            return _unscored(rollout, f"step rewards: {type(error).__name__}: {error}")
        turns = [Turn(*span, reward) for span, reward in zip(spans, rewards, strict=True)]
        return replace(rollout, turns=turns, score=_raised(rollout.score, sum(rewards)))


def _shared_out(rollout: Rollout, values: PrefixValues) -> Rollout:
    """A rollout whose steps get what the value has risen by; UNSCORED where a value is missing."""
    if rollout.score is None or rollout.score.total is None or len(values.values) < 2:
        return rollout
    known = [value for value in values.values if value is not None]
    if len(known) < len(values.values):
        return _unscored(rollout, "step rewards: no completion from one of its prefixes was scored")
    spans = pairwise(values.boundaries)
    rises = [after - before for before, after in pairwise(known)]
    turns = [Turn(*span, rise) for span, rise in zip(spans, rises, strict=True)]
    return replace(rollout, turns=turns)


def _raised(score: Score | None, rewards: float) -> Score | None:
    """The score with the rewards of steps, which are one part of it."""
    if score is None or score.total is None:
        return score
    parts = {**score.parts, "steps": score.parts.get("steps", 0.0) + rewards}
    return replace(score, total=score.total + rewards, parts=parts)


def _lost(before: Rollout, after: Rollout) -> bool:
    """Whether a rollout became UNSCORED."""
    was, now = before.score, after.score
    return was is not None and was.total is not None and (now is None or now.total is None)


def _rule_of(source: str, device: str) -> StepRule:
    if Path(source).is_dir():
        model = RewardModel.load(source, reads="steps", device=device)
        return lambda task, steps: model.step_scores(task.prompt, steps)
    if ":" not in source:
        raise UsageError(
            f"step_reward is {source!r}; it must be RUN/model of a process reward model, FILE.py:FUNCTION, "
            f"'{FORKS}' or 'turns'"
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
