"""Which completions of a group, or tokens of an update, are treated apart;
advantages are computed before.

Axes: P prompts, G completions per prompt; B rows, T tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["covariances", "max_variance", "random_subset"]


def max_variance(
    scores: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"],
    *,
    size: int,
    generator: torch.Generator | None = None,
) -> Bool[Tensor, "P G"]:
    """The `size` completions of each group whose scores vary most (PODS, arXiv:2504.13818, 3.2).

    They are the k greatest and the size - k least scores for some k (theorem 1 there), so size + 1
    choices are tried. Of equal scores the earlier completion is taken; a group with fewer scored
    completions keeps all of these.

    Args:
        scores: one per completion.
        scored: False for completions that do not count; they are not chosen.
        size: completions to keep, at least 1.
        generator: not used; the choice is fixed by the scores.
    """
    chosen = torch.zeros_like(scored)
    for p in range(len(scores)):
        scored_rows = scored[p].nonzero().flatten()
        order = scored_rows[scores[p, scored_rows].sort(descending=True, stable=True).indices]
        n, m = len(order), min(size, len(order))
        # Not `order[k - m :]`, which for k = m would be all of them.
        candidates = [torch.cat([order[:k], order[n - (m - k) :]]) for k in range(m + 1)]
        if candidates:
            spreads = torch.stack(
                [
                    scores[p, indices].double().var(correction=0) if m else scores.new_zeros(())
                    for indices in candidates
                ]
            )
            chosen[p, candidates[int(spreads.argmax())]] = True
    return chosen


def random_subset(
    scores: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"],
    *,
    size: int,
    generator: torch.Generator | None = None,
) -> Bool[Tensor, "P G"]:
    """`size` scored completions of each group, drawn without replacement: PODS' baseline.

    Args:
        scores: one per completion; only their shape is used.
        scored: False for completions that do not count; they are not chosen.
        size: completions to keep, at least 1.
        generator: draws the choice; None for torch's own.
    """
    # Below every chance, so that what does not count is ranked last.
    chance = torch.rand(scores.shape, generator=generator).masked_fill(~scored, -1.0)
    # argsort of an argsort is the place of each entry in the order.
    rank = chance.argsort(dim=1, descending=True).argsort(dim=1)
    return scored & (rank < size)


def covariances(
    logprobs: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """(log π - mean log π) (A - mean A), means over trained tokens; -inf elsewhere
    (arXiv:2505.22617).

    Args:
        logprobs: log π, of a whole update.
        advantages: A, one per token.
        mask: True for trained tokens.
    """
    centred = [torch.where(mask, x, 0.0) - x[mask].mean() for x in (logprobs, advantages)]
    return torch.where(mask, centred[0] * centred[1], -torch.inf)
