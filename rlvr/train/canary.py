"""Does the sampler have the weights it says it has?  Asked after every sync.

A few tokens of the first tasks get the same logprobs from sampler and trainer.  That sees whoever computes otherwise;
weights that were never synced differ by less than rounding, at the rates that are published, for hundreds of steps.
So where the sampler is in this process with weights of its own, these are compared number by number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import torch

from rlvr.collect import Groups
from rlvr.collect.cursor import Cursor
from rlvr.errors import RlvrError
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.protocol import Tokenized, TokenRow
from rlvr.train.policy import Policy

__all__ = ["Canary", "CanaryFailed"]

_ROWS: Final = 4
_TOKENS: Final = 8  # a sampler takes them one by one: this is what a sync costs


class CanaryFailed(RlvrError):
    """Sampler and trainer disagree on the same tokens: what is sampled would not be from the policy that is trained."""


class _Scoring(Protocol):
    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The sampler's own logprobs of given completions."""


class Canary:
    """A fixed batch: how the first tasks' prompts go on after their first half; a prompt of one token, by itself again.

    Args:
        groups: of the run's environment and sampler.
        tolerance: how far apart logprobs may be.
    """

    def __init__(self, groups: Groups, tolerance: float) -> None:
        first = Cursor(groups.env, seed=0, shuffle=False)  # goes round where there are fewer
        most: int | None = getattr(groups.sampler, "positions", None)
        prompts = [list(groups.sampler.encode(groups.task(first.index(p)).prompt))[:most] for p in range(_ROWS)]
        prompts = [ids if len(ids) > 1 else ids * 2 for ids in prompts]
        half = [(len(ids) + 1) // 2 for ids in prompts]
        self.rows = [TokenRow(ids[:at], ids[at : at + _TOKENS]) for ids, at in zip(prompts, half, strict=True)]
        self.tolerance = tolerance

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def check(self, policy: Policy, sampler: _Scoring, version: int) -> float:
        """The largest difference of logprobs.

        Raises:
            CanaryFailed: it is above the tolerance, or not a number; or the sampler's own weights are others.
        """
        ours, theirs = policy.logprobs(self.rows).tolist(), sampler.logprobs(self.rows)
        pairs = [
            (mine, other)
            for left, right in zip(ours, theirs, strict=True)
            for mine, other in zip(left, right, strict=False)  # ours are padded
        ]
        mine, other = max(pairs, key=_distance, default=(0.0, 0.0))
        if not _distance((mine, other)) <= self.tolerance:
            raise CanaryFailed(
                f"after the sync to version {version} the sampler gives a token the logprob {other:.6f}, the trainer "
                f"{mine:.6f}, more than {self.tolerance:g} apart: it does not have the trainer's weights, or computes "
                "otherwise; look at its sync, or raise canary if its precision is lower on purpose"
            )
        if isinstance(sampler, LocalSampler) and (differing := _differing(policy.model, sampler.model)):
            raise CanaryFailed(
                f"after the sync to version {version} the sampler's own weights are not the trainer's: {differing} "
                "differs, if by too little to show in logprobs; look at its sync"
            )
        return _distance((mine, other))


def _differing(ours: torch.nn.Module, theirs: torch.nn.Module) -> str:
    """The first parameter that is not the same; empty if there is none."""
    if ours is theirs:
        return ""
    twins = dict(theirs.named_parameters())
    same = (torch.equal(twins[name], value.to(twins[name])) for name, value in ours.named_parameters())
    return next((name for name, equal in zip(twins, same, strict=True) if not equal), "")


def _distance(pair: tuple[float, float]) -> float:
    difference = abs(pair[0] - pair[1])
    return math.inf if math.isnan(difference) else difference
