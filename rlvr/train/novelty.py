"""A punishment of answers that a group repeats, so that it covers more of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rlvr.collect.groups import Groups
from rlvr.train.part import LearnerPart
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.types import Group, Rollout, Score

__all__ = ["AnswerNovelty"]


class AnswerNovelty(LearnerPart):
    """Subtracts from each score c / G times the number of others with the same answer.

    Batch exploration (arXiv:2509.06941).  It is a part of the score, called novelty; completions
    without an answer keep their score.
    """

    wants = "novelty"

    def extend(self, sampled: RolloutBatch, step: int, by: Groups) -> RolloutBatch:
        weight = self.learner.algorithm.novelty
        return replace(sampled, groups=[_punish_repeats(group, weight) for group in sampled.groups])


def _punish_repeats(group: Group, weight: float) -> Group:
    # An empty answer is none.
    counts = Counter(answer for rollout in group.rollouts if (answer := _answer(rollout)))
    share = weight / len(group.rollouts)
    rollouts = []
    for rollout in group.rollouts:
        # An empty answer is not counted: without `max` it would get -1.
        same_answers = max(0, counts[_answer(rollout)] - 1)
        score = _lower(rollout.score, share * same_answers)
        branches = [replace(branch, score=score) for branch in rollout.branches]
        rollouts.append(replace(rollout, score=score, branches=branches))
    return replace(group, rollouts=rollouts)


def _answer(rollout: Rollout) -> str:
    """The extracted answer as text; empty where there is none."""
    answer = None if rollout.score is None else rollout.score.verdict.answer
    return "" if answer is None else str(answer)


def _lower(score: Score | None, by: float) -> Score | None:
    if score is None or score.total is None:
        return score
    return replace(score, total=score.total - by, parts={**score.parts, "novelty": -by})
