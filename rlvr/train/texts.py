"""Completions of a file beside those of the policy, in the same batch (GKD,
arXiv:2306.13649, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rlvr.collect.groups import Groups
from rlvr.data.pairs import read_labelled
from rlvr.environment import seeded
from rlvr.errors import DataError
from rlvr.train.credit import Batch
from rlvr.train.part import LearnerPart
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.train.trained_rows import tokenized
from rlvr.types import Group, Rollout, Task

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["FileTexts"]


class FileTexts(LearnerPart):
    """Draws texts for each step, as many as make the policy's own
    completions `student_share` of all.

    Their behaviour policy is the trained one, as it is before the step: nothing corrects them.

    Raises:
        DataError: the file has no completion of at most `max_tokens`.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._rows = _read(learner) if learner.ranks.first else []

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return learner.algorithm.texts is not None

    def extend(self, sampled: RolloutBatch, step: int, by: Groups) -> RolloutBatch:
        share, config = self.learner.algorithm.student_share, self.learner.config
        # n texts beside s completions, so that s / (s + n) is the student's share.
        count = round(len(sampled.rollouts) * (1 - share) / share)
        # With replacement: a step may want more than the file has.
        sampled_rows = seeded("texts", config.seed, step).choices(self._rows, k=count)
        # As if the weights of this step had sampled them: no staleness.
        rows = [replace(row, weights_version=step) for row in sampled_rows]
        size = config.group_size
        # In groups as large as the run's, so that updates of whole groups stay even.
        parts = [rows[begin : begin + size] for begin in range(0, count, size)]
        groups = [*sampled.groups, *(Group(part[0].task, part) for part in parts)]
        return replace(sampled, groups=groups).with_costs({"texts": float(count)})

    def before(self, batch: Batch) -> Batch:
        texts = _rows_without_logprobs(batch)
        if not texts:
            return batch
        behaviour, learner = batch.behaviour_logprobs.clone(), self.learner
        logprobs = learner.logprobs(batch.part(texts).rows, learner.policy)
        behaviour[texts, : logprobs.shape[1]] = logprobs
        return replace(batch, behaviour_logprobs=behaviour)


def _rows_without_logprobs(batch: Batch) -> Sequence[int]:
    """The texts: no sampler has given their tokens a probability."""
    # Texts come with zeros.  A sampled row in which all round to 0 is computed again, without harm.
    has_logprob = (batch.behaviour_logprobs != 0) & batch.completion_mask
    rows: list[int] = (
        (batch.completion_mask.any(dim=1) & ~has_logprob.any(dim=1)).nonzero().flatten().tolist()
    )
    return rows


def _read(learner: Learner) -> list[Rollout]:
    """The file's completions as rollouts that no verifier has seen."""
    path, limit = Path(learner.algorithm.texts or ""), learner.config.max_tokens
    task, rollouts = Task(path.name, "of many"), []  # one group has texts of many prompts
    for labelled in read_labelled(path, needs_both=False):
        [row] = tokenized(
            learner.policy.tokenization,
            labelled.prompt,
            [(labelled.completion, labelled.truncated)],
        )
        ids = row.completion_ids
        if labelled.label and 0 < len(ids) <= limit:
            # Unknown: `before` computes them.
            logprobs = torch.zeros(len(ids)).tolist()
            rollouts.append(
                Rollout(
                    task, labelled.completion, row.prompt_ids, ids, row.completion_mask, logprobs, 0
                )
            )
    if not rollouts:
        raise DataError(
            f"{path} has no completion of at most max_tokens={limit} tokens to train on"
        )
    return rollouts
