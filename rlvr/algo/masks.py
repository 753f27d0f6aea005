"""Masked sums and means.  Masked entries do not change a result, even if they are inf or NaN."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["masked_mean", "require_finite", "standardise", "zero_masked"]


def zero_masked(
    x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"] | None
) -> Float[Tensor, "*shape"]:
    """`x`, and exactly 0 where the mask is False.  Not a product, since 0 · inf is NaN, and so is
    its gradient.

    Args:
        x: of any shape.
        mask: of the same shape; None keeps all.
    """
    return x if mask is None else torch.where(mask, x, 0.0)


def masked_mean(x: Float[Tensor, "*shape"], weights: Tensor, *, dim: int) -> Float[Tensor, "*rest"]:
    """Σ w·x / Σ w along `dim`, which is kept with length 1; 0 where the weights sum to 0.

    Args:
        x: of any shape.
        weights: w, of the same shape, 0 or above.
        dim: the dimension of the mean.
    """
    total = weights.sum(dim=dim, keepdim=True)
    # Weights below 1 may sum to less than 1, so a clamp at 1 would change their mean.
    return (weights * x).sum(dim=dim, keepdim=True) / torch.where(total > 0, total, 1).to(x.dtype)


def standardise(
    x: Float[Tensor, "rows n"], weights: Float[Tensor, "rows n"], *, scale: bool, eps: float
) -> Float[Tensor, "rows n"]:
    """Each row centred by its weighted mean and divided by its weighted population std + eps; 0
    where a weight is 0.

    A row whose counted entries are equal gives exactly 0, whatever eps: its largest entry is
    subtracted before the mean is taken.  Otherwise rounding (the mean of three times 0.1 is not
    0.1) would be divided by a tiny std.

    Args:
        x: the entries.
        weights: 0 for entries that do not count.
        scale: divide by the std; False only centres.
        eps: added to the std.
    """
    counted = weights > 0
    # -inf at entries that do not count: NaN there would be the
    # maximum.  Of a row without any the difference is not used.
    anchor = torch.where(counted, x, -torch.inf).amax(dim=1, keepdim=True)
    x = torch.where(counted, x - anchor, 0.0)
    centred = zero_masked(x - masked_mean(x, weights, dim=1), counted)
    if not scale:
        return centred
    std = masked_mean(centred.square(), weights, dim=1).sqrt()
    # With std 0 and eps 0 the quotient would be 0 / 0.
    return centred / torch.where(std > 0, std + eps, 1.0)


def require_finite(
    x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"] | None, what: str, *axes: str
) -> None:
    """Refuse a counted entry that is not finite.

    Args:
        x: of any shape.
        mask: True where an entry counts; None for everywhere.
        what: name of `x` in the message.
        axes: name of each axis in the message.

    Raises:
        ValueError: an entry is not finite; the message has the place and the value of the first
            one.
    """
    bad = ~zero_masked(x, mask).isfinite()
    if bad.any():
        where = bad.nonzero()[0].tolist()
        place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, where, strict=True))
        raise ValueError(f"{place}: {what} is {x[tuple(where)].item()}, and it must be finite")
