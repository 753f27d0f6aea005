"""From groups of scored rollouts to a batch with an advantage for each trained token.

Axes: P groups of G rollouts, B = P · G rows, T tokens of the longest completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlvr.algo.advantages import batch_mean
from rlvr.algo.kl import penalised
from rlvr.algo.presets import Algorithm
from rlvr.algo.returns import whiten
from rlvr.collect.prefixes import PrefixValues
from rlvr.errors import UsageError
from rlvr.types import Group, Outcome, Rollout, Score, Verdict

__all__ = ["Batch", "collate", "credit", "laid_out", "minibatches", "save_batch"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with all inputs of an update.  Its tensors are on the CPU; micro-batches are moved to the device.

    Attributes:
        rows: rollouts, group after group.
        completion_mask: True for tokens that are trained on.
        behaviour_logprobs: log-probabilities under the policy that sampled.
        advantages: one per token; 0 until `credit` has computed them.
        old_logprobs: log-probabilities that the trainer computes with the weights before the step; None unless the
            algorithm has a correction, which compares them with `behaviour_logprobs`.
        ref_logprobs: log-probabilities under the reference policy; None without a KL penalty.
    """

    rows: Sequence[Rollout]
    completion_mask: Bool[Tensor, "B T"]
    behaviour_logprobs: Float[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    old_logprobs: Float[Tensor, "B T"] | None = None
    ref_logprobs: Float[Tensor, "B T"] | None = None

    def part(self, indices: Sequence[int]) -> Batch:
        """A batch of some of the rows, as wide as the longest of them.

        Args:
            indices: of the rows.
        """
        rows = [self.rows[i] for i in indices]
        width = max((len(row.completion_ids) for row in rows), default=0)

        def cut(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[indices, :width]

        mask, behaviour, advantages = (
            values[indices, :width] for values in (self.completion_mask, self.behaviour_logprobs, self.advantages)
        )
        return Batch(rows, mask, behaviour, advantages, cut(self.old_logprobs), cut(self.ref_logprobs))


def collate(groups: Sequence[Group]) -> Batch:
    """The rollouts of all groups as one padded batch, with advantages 0.

    Args:
        groups: at least one.
    """
    rows = list(chain.from_iterable(group.rollouts for group in groups))
    width = max(len(row.completion_ids) for row in rows)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    behaviour = torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        mask[i, : len(row.completion_ids)] = torch.tensor(list(row.completion_mask), dtype=torch.bool)
        behaviour[i, : len(row.completion_ids)] = torch.tensor(list(row.behaviour_logprobs))
    return Batch(rows, mask, behaviour, torch.zeros(len(rows), width))


laid_out = collate  # documented name until 0.1


def credit(
    groups: Sequence[Group],
    batch: Batch,
    algorithm: Algorithm,
    *,
    minibatch_of: Sequence[int] | None = None,
    values: Sequence[PrefixValues] | None = None,
) -> Float[Tensor, "B T"]:
    """The advantage of every trained token, shape [B, T]; 0 for other tokens.

    Args:
        groups: scored rollouts.
        batch: made of these groups, with `ref_logprobs` if the algorithm has a KL penalty in the reward.
        algorithm: says which advantages.
        minibatch_of: the number of each row's mini-batch, shape [B], for Magistral's normalisation; None for one.
        values: prefix values of each row, for VinePPO.

    Raises:
        UsageError: the algorithm needs rewards of steps, and no rollout has them.
    """
    if len({len(group.rollouts) for group in groups}) > 1:
        return _credit_of_sizes(groups, batch, algorithm, minibatch_of, values)
    entry = algorithm.pieces["advantage"]
    inputs = _Inputs(groups, batch, algorithm, minibatch_of, values)
    found: Tensor = entry.bound(algorithm)(**entry.given(inputs))
    mask = inputs.credited
    if found.shape == inputs.scores.shape:  # one per completion
        return torch.where(mask, found.reshape(-1, 1), 0.0)
    found = found.reshape(mask.shape)
    return torch.where(mask, whiten(found, mask) if algorithm.whiten and mask.any() else found, 0.0)


def _credit_of_sizes(
    groups: Sequence[Group],
    batch: Batch,
    algorithm: Algorithm,
    minibatch_of: Sequence[int] | None,
    values: Sequence[PrefixValues] | None,
) -> Float[Tensor, "B T"]:
    """`credit` for groups of different sizes: smaller ones are filled up by UNSCORED rows, which no mean counts."""
    G = max(len(group.rollouts) for group in groups)
    own: list[int] = []
    filled: list[Group] = []
    for group in groups:
        own += range(len(filled) * G, len(filled) * G + len(group.rollouts))
        absent = replace(
            group.rollouts[0],
            text="",
            completion_ids=(),
            completion_mask=(),
            behaviour_logprobs=(),
            turns=(),
            score=Score(None, {}, Verdict(Outcome.UNSCORED, why="absent")),
        )
        filled.append(Group(group.task, [*group.rollouts, *[absent] * (G - len(group.rollouts))]))
    wide = collate(filled)
    for name in ("old_logprobs", "ref_logprobs"):
        if (known := getattr(batch, name)) is not None:
            column = torch.zeros(len(wide.rows), known.shape[1])
            column[own] = known
            wide = replace(wide, **{name: column})
    numbers: list[int] | None = None
    if minibatch_of is not None:
        numbers = [0] * len(wide.rows)
        for row, number in zip(own, minibatch_of, strict=True):
            numbers[row] = number
    prefixes: list[PrefixValues] | None = None
    if values is not None:
        prefixes = [PrefixValues((0,), (None,), (0,))] * len(wide.rows)
        for row, value in zip(own, values, strict=True):
            prefixes[row] = value
    return credit(filled, wide, algorithm, minibatch_of=numbers, values=prefixes)[own]


class _Inputs:
    """The inputs of advantages, by the names that `rlvr.algo.registry` has for them; each is computed if it is read.

    Args:
        groups, batch, algorithm, minibatch_of, values: as in `credit`.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        batch: Batch,
        algorithm: Algorithm,
        minibatch_of: Sequence[int] | None,
        values: Sequence[PrefixValues] | None,
    ) -> None:
        self._batch, self._algorithm, self._minibatch_of, self._values = batch, algorithm, minibatch_of, values
        self.completion_mask = batch.completion_mask
        self._totals, self.scored = _scores(groups)

    @cached_property
    def scores(self) -> Float[Tensor, "P G"]:
        """Totals, minus the KL penalties of each completion's tokens."""
        penalties = _penalised(torch.zeros(self.completion_mask.shape), self._batch, self._algorithm)
        return self._totals + penalties.sum(dim=1).view_as(self._totals)

    @property
    def rewards(self) -> Float[Tensor, "B T"]:
        """The total on the last trained token of each row, minus each token's KL penalty."""
        return _penalised(_at_the_end(self._totals, self.completion_mask), self._batch, self._algorithm)

    @property
    def baseline(self) -> float:
        """The mean score of the batch."""
        return batch_mean(self.scores, self.scored)

    @property
    def lengths_tokens(self) -> Int[Tensor, "P G"]:
        """Trained tokens of each completion."""
        return self.completion_mask.sum(dim=1).view_as(self._totals)

    @property
    def minibatch(self) -> Int[Tensor, "P G"] | None:
        """The number of the mini-batch in which each rollout is trained; None for one."""
        return None if self._minibatch_of is None else torch.tensor(list(self._minibatch_of)).view_as(self._totals)

    @cached_property
    def _step_rewards(self) -> tuple[Tensor, Tensor]:
        rewards, ends = _steps(self._batch.rows, self.completion_mask)
        shape = (*self._totals.shape, self.completion_mask.shape[1])
        return rewards.view(shape), ends.view(shape)

    @property
    def step_rewards(self) -> Float[Tensor, "P G T"]:
        """The reward of each turn on its last token."""
        return self._step_rewards[0]

    @property
    def step_ends(self) -> Bool[Tensor, "P G T"]:
        """True on these tokens."""
        return self._step_rewards[1]

    @cached_property
    def _prefixes(self) -> tuple[Tensor, Tensor, Tensor]:
        assert self._values is not None
        return _boundaries(self._values)

    @property
    def prefix_values(self) -> Float[Tensor, "B N"]:
        """Values at step boundaries."""
        return self._prefixes[0]

    @property
    def boundaries(self) -> Int[Tensor, "B N"]:
        """Where these boundaries are, in tokens."""
        return self._prefixes[1]

    @property
    def credited(self) -> Bool[Tensor, "B T"]:
        """True for trained tokens; with prefix values, only of rows whose ends have one."""
        if self._values is None:
            return self.completion_mask
        return self.completion_mask & self._prefixes[2][:, None]


def _scores(groups: Sequence[Group]) -> tuple[Float[Tensor, "P G"], Bool[Tensor, "P G"]]:
    """Totals, 0 for UNSCORED rollouts; and True for scored ones."""
    totals = [[None if r.score is None else r.score.total for r in group.rollouts] for group in groups]
    scored = torch.tensor([[total is not None for total in row] for row in totals])
    return torch.tensor([[float(total or 0.0) for total in row] for row in totals]), scored


def _at_the_end(scores: Tensor, mask: Tensor) -> Float[Tensor, "B T"]:
    """The score on the last trained token of each row."""
    rewards = torch.zeros(mask.shape)
    last = mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)
    rewards[torch.arange(len(mask)), last] = scores.reshape(-1)
    return torch.where(mask, rewards, 0.0)


def _penalised(rewards: Tensor, batch: Batch, algorithm: Algorithm) -> Tensor:
    """Rewards minus the KL penalty of the policy that sampled, if the penalty is in the reward."""
    kl = algorithm.kl
    if kl is None or kl.place != "reward":
        return rewards
    assert batch.ref_logprobs is not None
    return penalised(
        rewards,
        batch.behaviour_logprobs,
        batch.ref_logprobs,
        batch.completion_mask,
        coefficient=kl.coefficient,
        estimator=kl.estimator,
    )


def _steps(rows: Sequence[Rollout], mask: Tensor) -> tuple[Tensor, Tensor]:
    """The reward of each turn on its last token; and True on these tokens."""
    rewards, ends = torch.zeros(mask.shape), torch.zeros_like(mask)
    for i, row in enumerate(rows):
        for turn in row.turns:
            if turn.reward is not None:
                rewards[i, turn.stop - 1], ends[i, turn.stop - 1] = turn.reward, True
    if not ends.any():
        raise UsageError(
            "process_advantages needs rewards of steps, and no rollout has a turn with a reward of its own; use an "
            "environment with several turns, or group_advantages"
        )
    return rewards, ends


def _boundaries(values: Sequence[PrefixValues]) -> tuple[Tensor, Tensor, Tensor]:
    """Values and boundaries [B, N], each row padded by its last one; and [B] True for rows to be trained on.

    A boundary without a value is left out.  A row without a value at its first or last boundary is not trained on.
    """
    rows, complete = [], []
    for one in values:
        known = [(b, float(v)) for b, v in zip(one.boundaries, one.values, strict=True) if v is not None]
        ends = {one.boundaries[0], one.boundaries[-1]}
        whole = len(known) > 1 and {known[0][0], known[-1][0]} == ends
        rows.append(known if whole else [(b, 0.0) for b in sorted(ends)])
        complete.append(whole)
    N = max(map(len, rows))
    padded = [row + [row[-1]] * (N - len(row)) for row in rows]
    at, boundaries = ([[point[i] for point in row] for row in padded] for i in (1, 0))
    return torch.tensor(at), torch.tensor(boundaries), torch.tensor(complete)


def minibatches(count: int, size: int | None, generator: torch.Generator) -> list[list[int]]:
    """Indices of the rows of each mini-batch, in random order.

    Args:
        count: rows of the batch.
        size: rows of a mini-batch; None for all rows in one, in their order.
        generator: draws the order.
    """
    if size is None or size >= count:
        return [list(range(count))]
    order = torch.randperm(count, generator=generator).tolist()
    return [order[start : start + size] for start in range(0, count, size)]


def save_batch(path: Path, batch: Batch) -> None:
    """Write a batch for inspection: `torch.load` gives its tensors, and `rows` as (prompt_ids, completion_ids).

    Args:
        path: the file; its folder is made.
        batch: what to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch) if f.name != "rows"}
    torch.save({"rows": [(list(row.prompt_ids), list(row.completion_ids)) for row in batch.rows], **tensors}, path)
