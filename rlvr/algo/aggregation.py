"""From losses per token to one number.  Axes: B rows of a micro-batch, T tokens.

Every denominator is the whole batch's, over micro-batches and ranks: the parts of a loss simply add up, and so do the
gradients, however the rows were split.  A row is never split.  (Where ranks average gradients instead of adding them,
the caller multiplies by their number.)
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.masks import zero_masked

__all__ = ["Denominators", "constant", "denominators", "sequence_mean", "token_mean"]


@dataclass(frozen=True, slots=True)
class Denominators:
    """Of a whole batch; `a + b` is that of both parts of one.

    Attributes:
        sequences: rows with at least one trained token; one masked as a whole (overlong, unscored) is none.
        tokens: trained tokens.
    """

    sequences: int
    tokens: int

    def __add__(self, other: Denominators) -> Denominators:
        return Denominators(self.sequences + other.sequences, self.tokens + other.tokens)


def denominators(completion_mask: Bool[Tensor, "B T"]) -> Denominators:
    """Count before any row is skipped: one whose advantages are all 0 has no gradient, and is still in the mean."""
    per_row = completion_mask.sum(dim=1)
    return Denominators(int((per_row > 0).sum()), int(per_row.sum()))


def sequence_mean(
    losses: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"], *, sequences: int
) -> Float[Tensor, ""]:
    """Mean over rows of the mean over a row's trained tokens (GRPO, arXiv:2402.03300, eq. 3; GSPO).

    A token of a long completion weighs less.

    Raises:
        ValueError: sequences < 1.
    """
    _require_some("sequences", sequences)
    per_row = zero_masked(losses, completion_mask).sum(dim=1) / completion_mask.sum(dim=1).clamp(min=1)
    return per_row.sum() / sequences


def token_mean(losses: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"], *, tokens: int) -> Float[Tensor, ""]:
    """Mean over all trained tokens of the batch (DAPO, arXiv:2503.14476, 3.3).

    The paper's eq. 12 divides by the tokens of a *group*, inside an expectation over prompts; verl's code, which the
    authors used, and this divide by those of the batch.

    Raises:
        ValueError: tokens < 1.
    """
    _require_some("tokens", tokens)
    return zero_masked(losses, completion_mask).sum() / tokens


def constant(
    losses: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"], *, sequences: int, length_tokens: int
) -> Float[Tensor, ""]:
    """Sum over a row's tokens divided by a constant length, mean over rows (Dr. GRPO, arXiv:2503.20783, 3.2).

    `length_tokens` is the longest completion allowed, the same in every step; 1 gives the plain sum, the
    log-probability of a whole completion as RLOO has it (arXiv:2402.14740, 2.3).

    Raises:
        ValueError: sequences < 1 or length_tokens < 1.
    """
    _require_some("sequences", sequences)
    _require_some("length_tokens", length_tokens)
    return zero_masked(losses, completion_mask).sum() / (sequences * length_tokens)


def _require_some(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(
            f"{name} is {value}; the whole batch's count must be at least 1, or there is nothing to train on"
        )
