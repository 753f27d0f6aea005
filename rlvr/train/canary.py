"""Checks after every sync that the sampler has the trainer's weights.

Sampler and trainer compute the log-probabilities of the same few tokens.  Detects another kernel or precision; missed
syncs are smaller than rounding for hundreds of steps at published learning rates, so weights are compared too where
the sampler keeps a copy of them in this process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import torch
from torch import Tensor

from rlvr.collect import Groups
from rlvr.collect.cursor import Cursor
from rlvr.errors import RlvrError
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.protocol import Tokenized, TokenRow
from rlvr.train.policy import Policy

__all__ = ["Canary", "CanaryFailed"]

_ROWS: Final = 4
_TOKENS: Final = 8  # the sampler computes them one by one, so their number is the cost of a check


class CanaryFailed(RlvrError):
    """Sampler and trainer disagree on the same tokens, so the sampler does not draw from the trained policy."""


class _Scoring(Protocol):
    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The sampler's own log-probabilities of given completions, one list per row."""


class Canary:
    """Compares sampler and trainer on fixed rows: the second halves of the first tasks' prompts, given the first.

    Args:
        groups: of the run's environment and sampler.
        tolerance: largest difference of log-probabilities that is allowed, in nats.
    """

    def __init__(self, groups: Groups, tolerance: float) -> None:
        first = Cursor(groups.env, seed=0, shuffle=False)  # starts again if there are fewer tasks
        most: int | None = getattr(groups.sampler, "positions", None)
        prompts = [list(groups.sampler.encode(groups.task(first.index(p)).prompt))[:most] for p in range(_ROWS)]
        prompts = [ids if len(ids) > 1 else ids * 2 for ids in prompts]  # a prompt of one token has no halves
        half = [(len(ids) + 1) // 2 for ids in prompts]
        self.rows = [TokenRow(ids[:at], ids[at : at + _TOKENS]) for ids, at in zip(prompts, half, strict=True)]
        self.tolerance = tolerance

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def check(
        self, policy: Policy, sampler: _Scoring, version: int, weights: Mapping[str, Tensor] | None = None
    ) -> float:
        """The largest difference of log-probabilities, in nats.

        Args:
            policy: has the trainer's weights.
            sampler: what is checked.
            version: of the weights, for the message.
            weights: what the sampler was given; None for the policy's own.

        Raises:
            CanaryFailed: the difference is above the tolerance or NaN, or the sampler's copy of the weights differs.
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
                "differently; look at its sync, or raise canary if its precision is lower on purpose"
            )
        if isinstance(sampler, LocalSampler) and (differing := _differing(policy.model, sampler.model, weights)):
            raise CanaryFailed(
                f"after the sync to version {version} the sampler's own weights are not the trainer's: {differing} "
                "differs, though too little to change the logprobs; look at its sync"
            )
        return _distance((mine, other))


def _differing(ours: torch.nn.Module, theirs: torch.nn.Module, weights: Mapping[str, Tensor] | None) -> str:
    """The name of the first parameter that differs; empty if there is none."""
    if ours is theirs:
        return ""
    given = dict(ours.named_parameters()) if weights is None else weights
    same = ((name, torch.equal(twin, given[name].to(twin))) for name, twin in theirs.named_parameters())
    return next((name for name, equal in same if not equal), "")


def _distance(pair: tuple[float, float]) -> float:
    difference = abs(pair[0] - pair[1])
    return math.inf if math.isnan(difference) else difference
