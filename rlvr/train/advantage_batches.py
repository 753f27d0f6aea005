"""What a step of rollouts trains on: rows with advantages, on every rank.

collate ─▶ broadcast ─▶ before (each part, each rank its rows)
  ─▶ advantages, choose (first rank) ─▶ broadcast
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from rlvr.samplers.protocol import TokenRow, rollout_seed
from rlvr.train.credit import Batch, collate, credit, update_rows
from rlvr.train.part import LearnerPart, StepRows
from rlvr.train.rollout_batch import RolloutBatch

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["AdvantageBatches"]


class AdvantageBatches(LearnerPart):
    """Collates the groups of a step, and gives each trained token its advantage."""

    makes_batch = True

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return learner.algorithm.examples is None

    @property
    def needs_entropy(self) -> bool:
        return "entropies" in self.learner.algorithm.reads

    @property
    def regularises(self) -> bool:
        return self.learner.algorithm.regularised

    def make_batch(self, sampled: RolloutBatch | None, step: int) -> StepRows:
        learner, ranks = self.learner, self.learner.ranks
        collated = collate(sampled.groups) if sampled is not None and sampled.groups else None
        # Other ranks get token ids and columns only: texts, tasks
        # and verdicts cost more to send than they are worth there.
        thin = collated if collated is None or ranks.world == 1 else _thin(collated)
        shared: Batch | None = ranks.from_first(thin)
        if shared is None:
            return StepRows(None, why="no group is left to train on")
        if not shared.completion_mask.any():
            return StepRows(None, why="no completion has a token that is trained on")
        # The first rank's rows have tasks and turns.
        batch = learner.prepared(collated or shared)
        # Seeded by the step, not carried from step to step: a resumed run draws the same updates.
        draw = torch.Generator().manual_seed(rollout_seed("minibatches", learner.config.seed, step))
        assert batch.group is not None
        groups, algorithm = batch.group.tolist(), learner.algorithm
        epochs = [
            update_rows(groups, learner.config.updates, draw) for _ in range(algorithm.epochs)
        ]
        if "minibatch" in algorithm.reads:  # advantages are of an update: all epochs have the same
            epochs = epochs[:1] * algorithm.epochs
        if sampled is not None:
            batch = self._credit(sampled, batch, epochs[0], draw)
        names = "advantages", "returns", "completion_mask"
        # The first rank alone computes advantages, so that float rounding cannot make ranks differ.
        batch = replace(batch, **ranks.from_first({name: getattr(batch, name) for name in names}))
        return StepRows(batch, [rows for epoch in epochs for rows in epoch])

    def _credit(
        self,
        sampled: RolloutBatch,
        batch: Batch,
        updates: list[list[int]],
        draw: torch.Generator,
    ) -> Batch:
        """The batch with advantages, and with the rows masked that are not trained on."""
        parts = self.learner.parts
        # Row → its update in the first epoch, for statistics over a mini-batch.
        update_of = {row: number for number, rows in enumerate(updates) for row in rows}
        credited = credit(
            sampled.groups,
            batch,
            self.learner.algorithm,
            minibatch_of=[update_of[row] for row in range(len(batch.rows))],
            values=sampled.values,
            average=next((part.average for part in parts if part.average is not None), None),
        )
        # All parts see the whole batch first; only then may one of them leave rows out of it.
        for part in parts:
            part.observe(sampled.groups)
        batch = replace(batch, advantages=credited.advantages, returns=credited.returns)
        for part in parts:
            batch = part.choose(sampled.groups, batch, draw)
        return batch

    def after(self, batch: Batch) -> dict[str, float]:
        """Estimated entropy of the policy that sampled, in nats per token: the mean of -logprob of
        its own tokens."""
        return {"entropy": float(-batch.behaviour_logprobs[batch.completion_mask].mean())}


def _thin(batch: Batch) -> Batch:
    """The batch with what an update needs of its rows, for the other ranks."""
    rows: Any = [TokenRow(row.prompt_ids, row.completion_ids, row.truncated) for row in batch.rows]
    return replace(batch, rows=rows)
