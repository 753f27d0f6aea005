"""Losses per token to one number.  Axes: B rows of a micro-batch, T tokens.

Every denominator is the whole batch's, over all micro-batches and ranks.  So losses and gradients
of micro-batches add up to those of the batch, however its rows were split.  A row is never split.
(If ranks average gradients instead of adding them, the caller multiplies by the number of ranks.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlvr.algo.masks import zero_masked

__all__ = [
    "Denominators",
    "aggregate",
    "constant",
    "denominators",
    "group_token_mean",
    "sequence_mean",
    "token_mean",
]


@dataclass(frozen=True, slots=True)
class Denominators:
    """The denominators of a whole batch.  `a + b` are those of two parts together.

    Attributes:
        sequences: number of rows with at least one trained token; wholly masked rows (overlong,
            unscored) do not count.
        tokens: number of trained tokens.
        of_groups: number of trained tokens of each group that has some.
    """

    sequences: int
    tokens: int
    of_groups: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: Denominators) -> Denominators:
        # Counters add by key: a group whose rows are on
        # several ranks gets the tokens of all of them.
        of_groups = dict(Counter(self.of_groups) + Counter(other.of_groups))
        return Denominators(self.sequences + other.sequences, self.tokens + other.tokens, of_groups)


def denominators(
    completion_mask: Bool[Tensor, "B T"], group: Int[Tensor, " B"] | None = None
) -> Denominators:
    """The denominators of a batch.  Count before rows are skipped: a row with advantages 0 is still
    in the mean.

    Args:
        completion_mask: True for trained tokens.
        group: the number of each row's group; None where all are one.
    """
    per_row = completion_mask.sum(dim=1)
    numbers = [0] * len(per_row) if group is None else group.tolist()
    of_groups = Counter[int]()
    for number, count in zip(numbers, per_row.tolist(), strict=True):
        of_groups[number] += count
    # `+` drops counts of 0: a group without a trained token is in no mean over groups.
    return Denominators(int((per_row > 0).sum()), int(per_row.sum()), dict(+of_groups))


def sequence_mean(
    losses: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"], *, sequences: int
) -> Float[Tensor, ""]:
    """Mean over rows of the mean over a row's trained tokens (GRPO, arXiv:2402.03300, eq. 3; GSPO).

    Tokens of long completions have less weight.

    Args:
        losses: per token.
        completion_mask: True for trained tokens.
        sequences: of the whole batch, see `Denominators`.

    Raises:
        ValueError: sequences < 1.
    """
    _require_some("sequences", sequences)
    # A wholly masked row is 0 / 1, not 0 / 0, and `sequences` does not count it.
    per_row = zero_masked(losses, completion_mask).sum(dim=1) / completion_mask.sum(dim=1).clamp(
        min=1
    )
    return per_row.sum() / sequences


def token_mean(
    losses: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"], *, tokens: int
) -> Float[Tensor, ""]:
    """Mean over all trained tokens of the batch (DAPO, arXiv:2503.14476, 3.3).

    verl's code, which the authors used, has it so; for the paper's eq. 8 see `group_token_mean`.

    Args:
        losses: per token.
        completion_mask: True for trained tokens.
        tokens: of the whole batch, see `Denominators`.

    Raises:
        ValueError: tokens < 1.
    """
    _require_some("tokens", tokens)
    return zero_masked(losses, completion_mask).sum() / tokens


def group_token_mean(
    losses: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    group: Int[Tensor, " B"] | None,
    of_groups: Mapping[int, int],
) -> Float[Tensor, ""]:
    """Mean over groups of the mean over a group's trained tokens (DAPO, arXiv:2503.14476, eq. 8).

    Args:
        losses: per token.
        completion_mask: True for trained tokens.
        group: the number of each row's group; None where all are one.
        of_groups: of the whole batch, see `Denominators`.

    Raises:
        ValueError: there is no group.
    """
    _require_some("groups", len(of_groups))
    numbers = [0] * len(losses) if group is None else group.tolist()
    # A group without a trained token is not in `of_groups`;
    # its rows' sums are 0, whatever they are divided by.
    tokens = losses.new_tensor([max(1, of_groups.get(number, 1)) for number in numbers])
    per_row = zero_masked(losses, completion_mask).sum(dim=1)
    return (per_row / tokens).sum() / len(of_groups)


def constant(
    losses: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    sequences: int,
    length_tokens: int,
) -> Float[Tensor, ""]:
    """Sum over a row's tokens divided by a constant length, mean over rows (Dr. GRPO,
    arXiv:2503.20783, 3.2).

    Args:
        losses: per token.
        completion_mask: True for trained tokens.
        sequences: of the whole batch, see `Denominators`.
        length_tokens: most tokens of a completion, the same in every step; 1 gives the sum over
            tokens, as RLOO has it (arXiv:2402.14740, 2.3).

    Raises:
        ValueError: sequences < 1 or length_tokens < 1.
    """
    _require_some("sequences", sequences)
    _require_some("length_tokens", length_tokens)
    return zero_masked(losses, completion_mask).sum() / (sequences * length_tokens)


def aggregate(
    losses: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    whole: Denominators,
    *,
    rule: str,
    length_tokens: int | None,
    max_tokens: int,
    group: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, ""]:
    """A micro-batch's share of the batch's loss, by the rule of an algorithm.

    Args:
        losses: per token.
        completion_mask: True for trained tokens.
        whole: of the whole batch.
        rule: token_mean, group_token_mean, sequence_mean or constant.
        length_tokens: of `constant`; None for `max_tokens`.
        max_tokens: most tokens of a completion.
        group: the number of each row's group; None where all are one.
    """
    if rule == "group_token_mean":
        return group_token_mean(losses, completion_mask, group=group, of_groups=whole.of_groups)
    if rule == "token_mean":
        return token_mean(losses, completion_mask, tokens=whole.tokens)
    if rule == "sequence_mean":
        return sequence_mean(losses, completion_mask, sequences=whole.sequences)
    length = length_tokens or max_tokens
    return constant(losses, completion_mask, sequences=whole.sequences, length_tokens=length)


def _require_some(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(
            f"{name} is {value}; the whole batch's count must be at least 1, or there is nothing "
            f"to train on"
        )
