r"""Clip-Cov: no gradient for a few tokens of high covariance (arXiv:2505.22617).

Cov_t = (log π_t - mean log π) (A_t - mean A), means over the tokens of the update J = mean ρ A over
the tokens, without a share r of them that is drawn from those with low < Cov < high
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.algo.parts import Range
from rlvr.errors import UsageError
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["ClipCov"]


@dataclass(frozen=True, kw_only=True)
class ClipCov(OfGroups):
    """A few of the tokens on which entropy collapses are left out of the update.

    Attributes:
        clip: the range in which the ratio is kept.
        share: r, of the tokens of an update that may be left out; at least one.
        low, high: ω: the covariances between which tokens are drawn.
    """

    name = "clip_cov"
    title = "Clip-Cov"
    paper = "arXiv:2505.22617"
    equations = "sec. 4, Clip-Cov"
    sources = (
        "sec. 4: r 2e-4, ω 1 and 5; the authors' script has a clip of 1 on both sides; verl draws "
        "per micro-batch, here it is over the whole update; the number of updates is ours"
    )
    reads = frozenset({"selected"})
    updates = 4

    clip: Range = Range(low=1.0, high=1.0)
    share: float = 2e-4
    low: float = 1.0
    high: float = 5.0

    def check(self) -> None:
        super().check()
        require_number("share", self.share, above=0, most=1)
        if not self.low < self.high:
            raise UsageError(f"low is {self.low} and high is {self.high}; low must be the lesser")

    def select(self, update: Inputs) -> Tensor:
        import torch

        from rlvr.algo.subsets import covariances

        cov = covariances(update.logprobs, update.advantages, update.mask)
        A, log_r = update.advantages, update.logprobs - update.old_logprobs
        clipped = ((A > 0) & (log_r.exp() > 1 + self.clip.high)) | (
            (A < 0) & (log_r.exp() < 1 - self.clip.low)
        )
        # Places (row, token), in order; a token that the
        # clip holds has no gradient that could be left out.
        between = (update.mask & (cov > self.low) & (cov < self.high) & ~clipped).nonzero()
        # The trainer seeds the generator by the number of
        # updates: a resumed run draws the same tokens.
        order = torch.randperm(len(between), generator=update.generator)
        sampled = between[order[: max(1, int(self.share * update.mask.sum()))]]
        chosen = torch.zeros_like(update.mask)
        chosen[sampled[:, 0], sampled[:, 1]] = True
        return chosen

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        result = clipped(*inputs.usual, **asdict(self.clip))
        # Left out of the numerator alone: the mean is still over all tokens.
        return result._replace(losses=result.losses * ~inputs.selected)
