"""From groups of scored rollouts to a batch with an advantage for each trained token.

Axes: P groups of G rollouts, B = P · G rows, T tokens of the longest completion.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlvr.algo.advantages import batch_mean
from rlvr.algo.kl import penalise
from rlvr.algo.papers.base import Algorithm, Inputs
from rlvr.algo.returns import AdvantageEstimate
from rlvr.collect.prefixes import PrefixValues
from rlvr.errors import UsageError
from rlvr.train.update_sizes import LEAST_GROUPS, LEAST_ROWS
from rlvr.types import Group, Outcome, Rollout, Score, Verdict

__all__ = [
    "Batch",
    "Credit",
    "GroupInputs",
    "collate",
    "credit",
    "group_numbers",
    "laid_out",
    "owners_of",
    "rows_of",
    "totals",
    "update_rows",
]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with all inputs of an update.  Its tensors are on the CPU; micro-batches
    are moved to the device.

    Attributes:
        rows: rollouts, group after group, and then the branches of these.
        completion_mask: True for tokens that are trained on.
        behaviour_logprobs: log-probabilities under the policy that sampled.
        advantages: one per token; 0 until `credit` has computed them.
        old_logprobs: log-probabilities that the trainer computes with the weights before the step;
            None unless the algorithm has a correction, which compares them with
            `behaviour_logprobs`.
        ref_logprobs: log-probabilities under the reference policy; None without a KL penalty.
        teacher_logprobs: log-probabilities under the teacher; None without one.
        implicit_rewards: those of tokens by an implicit reward model; None without one.
        outcomes: the credit of each row's verdict, in [0, 1]; 0 for UNSCORED rows.
        values: the critic's, before each token; None without a critic.
        bootstrap: what follows a row's last token, by the critic; 0 where its score is all that it
            gets.  None without a critic.
        returns: targets of the critic; None without a critic, and until `credit` has computed them.
        kept: True for tokens that the policy's loss is computed on; None for all trained tokens.
        selected: tokens that the algorithm treats apart, see
            `rlvr.algo.papers.base.PolicyGradient.select`; None for none.
        group: the number of each row's group, by which rows become updates; None where all are one.
    """

    rows: Sequence[Rollout]
    completion_mask: Bool[Tensor, "B T"]
    behaviour_logprobs: Float[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    old_logprobs: Float[Tensor, "B T"] | None = None
    ref_logprobs: Float[Tensor, "B T"] | None = None
    teacher_logprobs: Float[Tensor, "B T"] | None = None
    implicit_rewards: Float[Tensor, "B T"] | None = None
    outcomes: Float[Tensor, " B"] | None = None
    values: Float[Tensor, "B T"] | None = None
    bootstrap: Float[Tensor, " B"] | None = None
    returns: Float[Tensor, "B T"] | None = None
    kept: Bool[Tensor, "B T"] | None = None
    selected: Bool[Tensor, "B T"] | None = None
    group: Int[Tensor, " B"] | None = None

    @property
    def ratio_logprobs(self) -> Float[Tensor, "B T"]:
        """What ratios compare with: the trainer's before the step where these are computed, or the
        sampler's."""
        return self.behaviour_logprobs if self.old_logprobs is None else self.old_logprobs

    def part(self, indices: Sequence[int]) -> Batch:
        """A batch of some of the rows, as wide as the longest of them.

        Args:
            indices: of the rows.
        """
        rows = [self.rows[i] for i in indices]
        width = max((len(row.completion_ids) for row in rows), default=0)

        # A width of the part's own: most micro-batches
        # are of short rows, and padding is computed too.
        def cut(values: Tensor) -> Tensor:
            return values[indices, :width] if values.dim() == 2 else values[indices]

        return replace(
            self, rows=rows, **{name: cut(values) for name, values in self.tensors().items()}
        )

    def on(self, device: torch.device) -> Batch:
        """The batch with its tensors on a device.

        Args:
            device: of the model that reads it.
        """
        return replace(self, **{name: of.to(device) for name, of in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that there are, by name."""
        by_name = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rows"}
        return {name: values for name, values in by_name.items() if values is not None}


def collate(groups: Sequence[Group]) -> Batch:
    """The rollouts of all groups as one padded batch, with advantages 0.

    Args:
        groups: at least one.
    """
    rows = rows_of(groups)
    width = max(len(row.completion_ids) for row in rows)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    behaviour = torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        mask[i, : len(row.completion_ids)] = torch.tensor(
            list(row.completion_mask), dtype=torch.bool
        )
        behaviour[i, : len(row.completion_ids)] = torch.tensor(list(row.behaviour_logprobs))
    group = torch.tensor(group_numbers(groups))
    outcomes = torch.tensor([0.0 if row.score is None else row.score.verdict.value for row in rows])
    return Batch(
        rows, mask, behaviour, torch.zeros(len(rows), width), outcomes=outcomes, group=group
    )


def group_numbers(groups: Sequence[Group]) -> list[int]:
    """The number of each row's group; branches have their rollout's.

    Args:
        groups: of the batch.
    """
    numbers_of_rollouts = [number for number, group in enumerate(groups) for _ in group.rollouts]
    # Branches lie behind all rollouts, so that the first P · G rows stay a rectangle.
    return [*numbers_of_rollouts, *(numbers_of_rollouts[i] for i in owners_of(groups))]


def rows_of(groups: Sequence[Group]) -> list[Rollout]:
    """The rows of a batch: the rollouts of all groups, and behind them all their branches.

    Args:
        groups: of the batch.
    """
    rollouts = list(chain.from_iterable(group.rollouts for group in groups))
    return [*rollouts, *chain.from_iterable(rollout.branches for rollout in rollouts)]


def owners_of(groups: Sequence[Group]) -> list[int]:
    """For each branch, the index of its rollout.

    Args:
        groups: of the batch.
    """
    rollouts = list(chain.from_iterable(group.rollouts for group in groups))
    return [i for i, rollout in enumerate(rollouts) for _ in rollout.branches]


laid_out = collate  # documented name until 0.1


class Credit(NamedTuple):
    """What `credit` returns.

    Attributes:
        advantages: for the policy, 0 for tokens that are not trained on.
        returns: for the critic; None without one.
    """

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"] | None = None


def credit(
    groups: Sequence[Group],
    batch: Batch,
    algorithm: Algorithm,
    *,
    minibatch_of: Sequence[int] | None = None,
    values: Sequence[PrefixValues] | None = None,
    average: float | None = None,
) -> Credit:
    """The advantage of every trained token, and with a critic its target.

    Args:
        groups: scored rollouts.
        batch: made of these groups, with `ref_logprobs` if the algorithm has a KL penalty in the
            reward, and with `values` and `bootstrap` if it has a critic.
        algorithm: says which advantages.
        minibatch_of: the number of each row's mini-batch, shape [B], for Magistral's normalisation;
            None for one.
        values: prefix values of each row, for VinePPO.
        average: the moving average of earlier scores, for a baseline of this kind; None before the
            first batch.

    The branches of an episode have its advantage.  An episode counts once in a group's mean,
    whatever its rows.

    Raises:
        UsageError: the algorithm needs rewards of steps, and no rollout has them; or it gives each
            token an advantage of its own, and an episode has branches.
    """
    return _credit(GroupInputs(groups, batch, algorithm, minibatch_of, values, average))


def _credit(given: GroupInputs) -> Credit:
    # Branches first: they are no members of their group, and without them its rows are G again.
    # Then sizes, so that what follows has the rectangle [P, G] that papers write.
    if owners := owners_of(given.groups):
        return _credit_of_branches(given, owners)
    if len({len(group.rollouts) for group in given.groups}) > 1:
        return _credit_of_sizes(given)
    algorithm, mask = given.algorithm, given.credited
    estimated = algorithm.advantages(Inputs(algorithm, given.by_name()))
    advantages, returns = (
        estimated if isinstance(estimated, AdvantageEstimate) else (estimated, None)
    )
    # One number per completion, or one per token: which of the two is seen by their count.
    sizes = given.scores.numel(), mask.numel()
    if not isinstance(advantages, Tensor) or advantages.numel() not in sizes:
        shape = (
            list(advantages.shape) if isinstance(advantages, Tensor) else type(estimated).__name__
        )
        raise UsageError(
            f"the advantages of {algorithm.label} are {shape}; there must be one per completion, "
            f"{list(given.scores.shape)}, or one per token, {list(mask.shape)}"
        )
    is_whole = advantages.shape == given.scores.shape  # one per completion
    advantages = advantages.reshape((-1, 1) if is_whole else mask.shape)
    # `where` and no product, as a masked token's advantage may be NaN and 0 · NaN is NaN.
    # Detached: an advantage weighs the gradient and is not differentiated.
    return Credit(torch.where(mask, advantages.detach(), 0.0), returns)


def _credit_of_branches(given: GroupInputs, owners: Sequence[int]) -> Credit:
    """Credit of the rollouts alone, whose advantages their branches take over."""
    batch, numbers = given.batch, given.minibatch_of
    count = len(batch.rows) - len(owners)
    alone = [
        replace(group, rollouts=[replace(rollout, branches=()) for rollout in group.rollouts])
        for group in given.groups
    ]
    numbers = None if numbers is None else numbers[:count]
    part = batch.part(range(count))
    advantages, returns = _credit(replace(given, groups=alone, batch=part, minibatch_of=numbers))
    mask = batch.completion_mask[:count, : advantages.shape[1]]
    # argmax of zeros and ones is the first one; of a row without any it is 0, where the advantage
    # is 0 as well.
    first_trained = mask.int().argmax(dim=1, keepdim=True)
    of_row = advantages.gather(1, first_trained).squeeze(1)
    # One advantage per completion is the same on all
    # trained tokens; only that can be given to another row.
    varies = bool(torch.where(mask, advantages != of_row[:, None], False).any())
    if returns is not None or given.prefixes is not None or varies:
        raise UsageError(
            f"{given.algorithm.label} gives each token an advantage of its own, and an episode has "
            "several rows, because its agent's requests did not all extend one another; use an "
            "algorithm with one advantage for each completion, such as grpo without a KL penalty "
            "in the reward"
        )
    with_branches = torch.cat([of_row, of_row[list(owners)]])
    return Credit(torch.where(batch.completion_mask, with_branches[:, None], 0.0))


def _credit_of_sizes(given: GroupInputs) -> Credit:
    """Credit of groups of different sizes: smaller ones are filled up by UNSCORED rows, which no
    mean counts."""
    G = max(len(group.rollouts) for group in given.groups)
    # Places of the batch's rows among those with the absent ones.
    real_rows: list[int] = []
    filled: list[Group] = []
    for group in given.groups:
        real_rows += range(len(filled) * G, len(filled) * G + len(group.rollouts))
        # Any rollout's fields do, as an UNSCORED row without tokens is read by nothing.
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
    for name, column_values in given.batch.tensors().items():
        column = column_values.new_zeros(len(wide.rows), *column_values.shape[1:])
        column[real_rows] = column_values
        wide = replace(wide, **{name: column})

    def spread(of_rows: Sequence[_T] | None, absent: _T) -> list[_T] | None:
        # `strict` only where there are numbers: None gives an empty mapping, and so None again.
        by_row = dict(zip(real_rows, of_rows or (), strict=of_rows is not None))
        return [by_row.get(i, absent) for i in range(len(wide.rows))] if by_row else None

    numbers = spread(given.minibatch_of, 0)
    prefixes = spread(given.prefixes, PrefixValues((0,), (None,), (0,)))
    advantages, returns = _credit(
        replace(given, groups=filled, batch=wide, minibatch_of=numbers, prefixes=prefixes)
    )
    return Credit(advantages[real_rows], None if returns is None else returns[real_rows])


@dataclass(frozen=True)
class GroupInputs:
    """The inputs of advantages, see `rlvr.algo.papers.base.Inputs`; each is computed if it is read.

    Attributes:
        groups, batch, algorithm, minibatch_of, average: as in `credit`.
        prefixes: its `values`.
    """

    groups: Sequence[Group]
    batch: Batch
    algorithm: Algorithm
    minibatch_of: Sequence[int] | None = None
    prefixes: Sequence[PrefixValues] | None = None
    average: float | None = None

    @cached_property
    def _totals(self) -> tuple[Tensor, Tensor]:
        return totals(self.groups)

    @property
    def scored(self) -> Bool[Tensor, "P G"]:
        """True for completions that count in means."""
        scored = self._totals[1]
        if self.algorithm.masked_vote:
            return scored
        # A completion without a trained token, such as a truncated one that
        # is masked, has no vote in a mean unless the algorithm says so.
        return scored & self.batch.completion_mask.any(dim=1).view_as(scored)

    def by_name(self) -> dict[str, Any]:
        """Each input, or the function that computes it."""
        computed = (
            "scored scores score_parts rewards baseline lengths_tokens minibatch step_rewards "
            "step_ends prefix_values boundaries credited"
        ).split()
        of_batch = "behaviour_logprobs teacher_logprobs implicit_rewards values bootstrap".split()
        return {
            "mask": self.batch.completion_mask,
            **{name: getattr(self.batch, name) for name in of_batch},
            **{name: partial(getattr, self, name) for name in computed},
        }

    @cached_property
    def scores(self) -> Float[Tensor, "P G"]:
        """Totals, minus the KL penalties of each completion's tokens."""
        penalties = _penalise(
            torch.zeros(self.batch.completion_mask.shape), self.batch, self.algorithm
        )
        # The penalty of a completion: a sum over its tokens, as a score is of the whole completion.
        return self._totals[0] + penalties.sum(dim=1).view_as(self.scored)

    @property
    def score_parts(self) -> Float[Tensor, "P G K"]:
        """What each part of the reward added to a score, by name; 0 for a part that another
        environment has."""
        parts = [
            [{} if r.score is None else r.score.parts for r in group.rollouts]
            for group in self.groups
        ]
        # Sorted: columns must not depend on which environment's rollout came first.
        names = sorted(
            {name for row in parts for parts_of_rollout in row for name in parts_of_rollout}
        )
        if not names:
            raise UsageError(
                f"{self.algorithm.label} compares the parts of a reward, and the scores have "
                "none; use an environment with a composed reward, or grpo"
            )
        return torch.tensor(
            [
                [[parts_of_rollout.get(name, 0.0) for name in names] for parts_of_rollout in row]
                for row in parts
            ]
        )

    @property
    def rewards(self) -> Float[Tensor, "B T"]:
        """Rewards of turns and the rest of the total, see `_placed`, minus each token's KL
        penalty."""
        placed = _place_rewards(self.batch.rows, self._totals[0], self.batch.completion_mask)
        return _penalise(placed, self.batch, self.algorithm)

    @property
    def baseline(self) -> float:
        """What the algorithm subtracts from scores."""
        if self.algorithm.baseline == "none":
            return 0.0
        if self.algorithm.baseline == "moving_average" and self.average is not None:
            return self.average
        # Over scored completions of all groups; the first batch has no moving average yet.
        return batch_mean(self.scores, self.scored)

    @property
    def lengths_tokens(self) -> Int[Tensor, "P G"]:
        """Trained tokens of each completion."""
        return self.batch.completion_mask.sum(dim=1).view_as(self.scored)

    @property
    def minibatch(self) -> Int[Tensor, "P G"] | None:
        """The number of the mini-batch in which each rollout is trained; None for one."""
        return (
            None
            if self.minibatch_of is None
            else torch.tensor(list(self.minibatch_of)).view_as(self.scored)
        )

    @cached_property
    def _step_rewards(self) -> tuple[Tensor, Tensor]:
        rewards, ends = _steps(self.batch.rows, self.batch.completion_mask)
        shape = (*self.scored.shape, self.batch.completion_mask.shape[1])
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
        assert self.prefixes is not None
        return _boundaries(self.prefixes)

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
        if self.prefixes is None:
            return self.batch.completion_mask
        return self.batch.completion_mask & self._prefixes[2][:, None]


def totals(groups: Sequence[Group]) -> tuple[Float[Tensor, "P G"], Bool[Tensor, "P G"]]:
    """Totals, 0 for UNSCORED rollouts and for those that smaller groups lack; and True for scored
    ones.

    Args:
        groups: whose rollouts are one row each.
    """
    G = max(len(group.rollouts) for group in groups)
    rows = [
        [None if r.score is None else r.score.total for r in group.rollouts] for group in groups
    ]
    rows = [row + [None] * (G - len(row)) for row in rows]
    scored = torch.tensor([[total is not None for total in row] for row in rows])
    return torch.tensor([[float(total or 0.0) for total in row] for row in rows]), scored


def _place_rewards(rows: Sequence[Rollout], scores: Tensor, mask: Tensor) -> Float[Tensor, "B T"]:
    """The reward of each turn on the last trained token up to its end, and what the total has
    beyond them on the last.

    So rewards always sum to the total and stand on trained tokens, whatever is masked: a reward on
    a masked token, such as one of an environment's reply, would be lost.  A turn before any trained
    token gives its reward to the first.
    """
    rewards = torch.zeros(mask.shape)
    for i, (row, total) in enumerate(zip(rows, scores.flatten().tolist(), strict=True)):
        trained = mask[i].nonzero().flatten().tolist()
        if not trained:
            continue
        remainder = total
        for turn in row.turns:
            if turn.reward is not None:
                # The last trained token before the turn's end;
                # -1 where the turn ends before the first one.
                place = bisect.bisect_left(trained, turn.stop) - 1
                rewards[i, trained[max(place, 0)]] += turn.reward
                remainder -= turn.reward
        # What is left when all turns are paid, so that rewards of a row sum to its total.
        rewards[i, trained[-1]] += remainder if row.turns else total
    return rewards


def _penalise(rewards: Tensor, batch: Batch, algorithm: Algorithm) -> Tensor:
    """Rewards minus the KL penalty of the policy that sampled, if the penalty is in the reward."""
    kl = algorithm.kl
    if kl is None or kl.place != "reward":
        return rewards
    assert batch.ref_logprobs is not None
    return penalise(
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
            "grpo_process needs rewards of steps, and no rollout has a turn with a reward of its "
            "own; give --step-reward, use an environment with several turns, or use grpo"
        )
    return rewards, ends


def _boundaries(values: Sequence[PrefixValues]) -> tuple[Tensor, Tensor, Tensor]:
    """Values and boundaries [B, N], each row padded by its last one; and [B] True for rows to be
    trained on.

    A boundary without a value is left out.  A row without a value at its first or last boundary is
    not trained on.
    """
    rows, complete = [], []
    for prefixes in values:
        finite = [
            (b, float(v))
            for b, v in zip(prefixes.boundaries, prefixes.values, strict=True)
            if v is not None
        ]
        ends = {prefixes.boundaries[0], prefixes.boundaries[-1]}
        # Differences of values telescope from the first boundary to
        # the last; without both ends their sum is not the score.
        has_both_ends = len(finite) > 1 and {finite[0][0], finite[-1][0]} == ends
        rows.append(finite if has_both_ends else [(b, 0.0) for b in sorted(ends)])
        complete.append(has_both_ends)
    N = max(map(len, rows))
    # Padding repeats the last boundary, whose steps have length 0 and so no tokens.
    padded = [row + [row[-1]] * (N - len(row)) for row in rows]
    at, boundaries = ([[point[i] for point in row] for row in padded] for i in (1, 0))
    return torch.tensor(at), torch.tensor(boundaries), torch.tensor(complete)


def update_rows(group: Sequence[int], updates: int, generator: torch.Generator) -> list[list[int]]:
    """The rows of each update: equal parts of whole groups, in random order; all rows in their
    order for one update.

    An update has at least `LEAST_GROUPS` groups and `LEAST_ROWS` rows: a smaller batch makes fewer
    updates.

    Args:
        group: the number of each row's group.
        updates: how many are wanted, at least 1.
        generator: draws the order of the groups.
    """
    # A dict keeps the order of first appearance, which all ranks have in common.
    members: dict[int, list[int]] = {}
    for row, number in enumerate(group):
        members.setdefault(number, []).append(row)
    all_rows = [list(range(len(group)))]
    if updates == 1:
        return all_rows
    order = torch.randperm(len(members), generator=generator).tolist()
    ordered = [list(members.values())[i] for i in order]
    for count in range(min(updates, len(members) // LEAST_GROUPS), 1, -1):
        ends = [len(ordered) * (i + 1) // count for i in range(count)]
        parts = [
            [row for rows in ordered[start:stop] for row in rows]
            for start, stop in zip([0, *ends], ends, strict=False)
        ]
        if min(map(len, parts)) >= LEAST_ROWS:
            return parts
    return all_rows
