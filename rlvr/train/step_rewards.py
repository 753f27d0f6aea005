"""Rewards of the steps of a completion: from a process reward model, a rule, or
completions of its prefixes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlvr.algo.papers import module_at
from rlvr.collect.groups import Groups
from rlvr.collect.prefixes import PrefixValues, prefix_values_and_costs, step_boundaries
from rlvr.errors import UsageError, brief, foreign_code
from rlvr.samplers.protocol import Sampler
from rlvr.scoring.engines import ServedSteps
from rlvr.train.part import LearnerPart
from rlvr.train.reward_head import IMPLICIT
from rlvr.train.reward_model import RewardModel
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.types import Outcome, Rollout, Score, Task, Turn, Verdict

if TYPE_CHECKING:  # it calls the parts
    from rlvr.environment import Environment
    from rlvr.train.config import ResolvedConfig
    from rlvr.train.learner import Learner

__all__ = ["FORKS", "StepRewards", "StepRule", "require_steps"]

StepRule = Callable[[Task, list[str]], Sequence[float]]
"""From a task and the steps of a completion to a reward of each step."""


FORKS: Final = "forks"
"""The source that asks how much likelier a right answer is after a step than before it."""
_OWN: Final = (None, "turns")  # the environment's turns are the steps


def require_steps(settings: ResolvedConfig, env: Environment) -> None:
    """Refuse an algorithm that stands on rewards of steps where nothing gives any.

    Args:
        settings: of the run.
        env: the environment that is trained on.

    Raises:
        UsageError: a completion of it is one turn, and `step_reward` names no source.
    """
    reads = settings.algorithm.reads
    if "step_rewards" in reads and settings.step_reward in _OWN and env.single_turn:
        raise UsageError(
            f"{settings.algorithm.label} needs rewards of steps, and a completion of {env.id} is "
            "one turn; give --step-reward, use an environment with several turns, or use grpo"
        )


class StepRewards(LearnerPart):
    """Splits completions into steps and rewards each of them, as turns of the rollout.

    What a model or a rule gives is added to the completion's total, as the part "steps" of its
    score; with "forks" the steps share out the total itself.  A rule that raises, or gives too few
    numbers or one that is not finite, fails by our fault: the completion becomes UNSCORED, and is
    not trained on.

    The setting `step_reward` is RUN/model of a process reward model, or http://HOST:PORT of `rlvr
    serve` that has one; implicit:RUN of a run of preferences, whose gain over its reference is the
    reward; FILE.py:FUNCTION of a rule `function(task, steps)`, which returns a number for each
    step; or "forks": the mean score of `vine_k` new completions from the step's end, minus that
    from its beginning (VinePPO's values, arXiv:2410.01679, sec. 4).

    Raises:
        UsageError: there is no such model or function.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        config = learner.config
        assert config.step_reward is not None
        self._source, self._delimiter, self._k = (
            config.step_reward,
            config.step_delimiter,
            config.vine_k,
        )
        # Loaded on the first rank alone, where rewards are given.
        is_forks = self._source == FORKS
        self._rule = None if is_forks else _rule_of(self._source, str(learner.policy.device))

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return learner.ranks.first and learner.config.step_reward not in _OWN

    def gather(self, sampled: RolloutBatch, by: Groups) -> RolloutBatch:
        """The rollouts with a turn for each step, and its reward.

        Args:
            sampled: completions of one turn.
            by: what sampled them.

        Raises:
            UsageError: none of them got rewards.
        """
        rollouts = sampled.rollouts
        costs: dict[str, float] = {}
        if self._rule is None:
            values, costs = prefix_values_and_costs(by, rollouts, k=self._k, steps=self._delimiter)
            rewarded = [_shared_out(*pair) for pair in zip(rollouts, values, strict=True)]
        else:
            rewarded = [
                self._reward_rollout(self._rule, rollout, by.sampler) for rollout in rollouts
            ]
        if not any(rollout.turns for rollout in rewarded):
            why = rewarded[0].score.verdict.why if rewarded[0].score else "not scored"
            raise UsageError(
                f"step_reward {self._source} gave no completion of {len(rewarded)} a reward; the "
                f"first: {why}"
            )
        costs["steps_unscored"] = float(sum(map(_lost, rollouts, rewarded)))
        rewarded_rollouts = iter(rewarded)
        groups = [
            replace(g, rollouts=[next(rewarded_rollouts) for _ in g.rollouts])
            for g in sampled.groups
        ]
        return sampled.with_costs(costs, groups=groups)

    def _reward_rollout(self, rule: StepRule, rollout: Rollout, sampler: Sampler) -> Rollout:
        if not rollout.completion_ids or not any(rollout.completion_mask):
            return rollout
        if rollout.turns:
            raise UsageError(
                f"task {rollout.task.id!r} has several turns, which are its steps; leave "
                f"step_reward out"
            )
        ends = step_boundaries(rollout, sampler, self._delimiter)
        spans = list(pairwise(ends))
        steps = [sampler.decode(rollout.completion_ids[start:stop]) for start, stop in spans]
        with foreign_code() as errors:  # of the rule: not the completion's fault
            rewards = _check_rewards(rule(rollout.task, steps), len(steps))
        for error in errors:
            return _as_unscored(rollout, f"step rewards: {type(error).__name__}: {error}")
        turns = [Turn(*span, reward) for span, reward in zip(spans, rewards, strict=True)]
        return replace(rollout, turns=turns, score=_raise_score(rollout.score, sum(rewards)))


def _shared_out(rollout: Rollout, values: PrefixValues) -> Rollout:
    """A rollout whose steps get what the value has risen by; UNSCORED where a value is missing."""
    if rollout.score is None or rollout.score.total is None or len(values.values) < 2:
        return rollout
    finite = [value for value in values.values if value is not None]
    if len(finite) < len(values.values):
        return _as_unscored(
            rollout, "step rewards: no completion from one of its prefixes was scored"
        )
    spans = pairwise(values.boundaries)
    # Differences: together they are the score less the value of the prompt.
    rises = [after - before for before, after in pairwise(finite)]
    turns = [Turn(*span, rise) for span, rise in zip(spans, rises, strict=True)]
    return replace(rollout, turns=turns)


def _raise_score(score: Score | None, rewards: float) -> Score | None:
    """The score with the rewards of steps, which are one part of it."""
    if score is None or score.total is None:
        return score
    parts = {**score.parts, "steps": score.parts.get("steps", 0.0) + rewards}
    return replace(score, total=score.total + rewards, parts=parts)


def _lost(before: Rollout, after: Rollout) -> bool:
    """Whether a rollout became UNSCORED."""
    was, current = before.score, after.score
    return was is not None and was.total is not None and (current is None or current.total is None)


def _rule_of(source: str, device: str) -> StepRule:
    if Path(source).is_dir() or source.startswith(IMPLICIT):
        model = RewardModel.load(source, reads="steps", device=device)
        return lambda task, steps: model.step_scores(task.prompt, steps)
    if source.startswith(("http://", "https://")):
        return ServedSteps(source)
    if ":" not in source:
        raise UsageError(
            f"step_reward is {source!r}; it must be RUN/model of a process reward model, "
            "http://HOST:PORT of rlvr serve, implicit:RUN of a run of dpo, FILE.py:FUNCTION, "
            f"'{FORKS}' or 'turns'"
        )
    # The last colon: a path may have one too.
    place, _, name = source.rpartition(":")
    function: Any = getattr(module_at(place, f"--step-reward {source}"), name, None)
    if not callable(function):
        raise UsageError(f"step_reward is {source!r}, and {place} has no function {name!r}")
    rule: StepRule = function
    return rule


def _check_rewards(rewards: Any, count: int) -> list[float]:
    numbers = list(rewards)
    if len(numbers) != count:
        raise ValueError(f"{len(numbers)} numbers for {count} steps")
    for number in numbers:
        if not isinstance(number, Real) or not math.isfinite(number):
            raise ValueError(f"{brief(number)} is no finite number")
    return [float(number) for number in numbers]


def _as_unscored(rollout: Rollout, why: str) -> Rollout:
    verdict = Verdict(Outcome.UNSCORED, why=why)
    # Masked as well: it is not trained on.
    masked = [False] * len(rollout.completion_ids)
    return replace(rollout, score=Score(None, {}, verdict), completion_mask=masked)
