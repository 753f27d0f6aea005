"""Checks after every sync that the sampler has the trainer's weights.

Sampler and trainer compute the log-probabilities of the same few tokens.  Detects another kernel or
precision; missed syncs are smaller than rounding for hundreds of steps at published learning rates,
so weights are compared too where the sampler keeps a copy of them in this process.

An engine keeps its weights to itself.  There are four probes of each one, since none alone is
enough:

names      that it took are those of its own checkpoint format: a part of the weights is taken
           without an error
version    is the one that was sent
logprobs   of fixed rows, computed anew: detects weights that did not arrive, such as a stale copy
           of a tied head
cache      a token after a long prompt, sampled as completions are.  The engine has read that prompt
           just before the sync; keys and values of the old weights that are still in its cache
           would be used here, while the log-probabilities of given rows do not go through that
           cache

Checksums of the engine's weights are no probe: on a CPU they do not cover the packed copies that it
computes with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from rlvr.collect import Groups
from rlvr.collect.cursor import Cursor
from rlvr.errors import RlvrError
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.protocol import Probe, Sampler, TokenRow
from rlvr.train.policy import Policy

__all__ = ["Canary", "CanaryFailed", "Observed"]

# Few, since every sync waits for the check.
_ROWS: Final = 4
_TOKENS: Final = 8  # the sampler computes them one by one, so their number is the cost of a check
# tokens of the prompt that has to be in an engine's cache: two blocks of 128, and more
_LONG: Final = 288


class CanaryFailed(RlvrError):
    """Sampler and trainer disagree on the same tokens, so the sampler does not draw
    from the trained policy."""


class Canary:
    """Compares sampler and trainer on fixed rows: the second halves of the first tasks'
    prompts, given the first.

    Args:
        groups: of the run's environment and sampler.
        tolerance: largest difference of log-probabilities that is allowed, in nats.
    """

    def __init__(self, groups: Groups, tolerance: float) -> None:
        first = Cursor(groups.env, seed=0, shuffle=False)  # starts again if there are fewer tasks
        # An engine may be able to read fewer tokens than the model.
        position_limit: int | None = getattr(groups.sampler, "positions", None)
        prompts = [
            list(groups.sampler.encode(groups.task(first.index(p)).prompt))[:position_limit]
            for p in range(_ROWS)
        ]
        # a prompt of one token has no halves
        prompts = [ids if len(ids) > 1 else ids * 2 for ids in prompts]
        half = [(len(ids) + 1) // 2 for ids in prompts]
        self.rows = [
            TokenRow(ids[:at], ids[at : at + _TOKENS])
            for ids, at in zip(prompts, half, strict=True)
        ]
        # `- 1`: one more token is sampled after it.
        self.prompt_ids = _long_prompt(
            prompts, _LONG if position_limit is None else min(_LONG, position_limit - 1)
        )
        self.tolerance, self._differing = tolerance, ""

    def prepare(self, sampler: Sampler) -> None:
        """Let engines read the long prompt, right before a sync, so that it is in their caches.

        Args:
            sampler: is about to be synced.
        """
        # Version -1: it has no weights yet, so its cache cannot hold old ones.
        if (
            (probe := getattr(sampler, "probe", None)) is not None
            and sampler.version >= 0
            and not getattr(sampler, "asleep", False)
        ):
            probe([], self.prompt_ids)

    def watch(
        self, weights: Iterator[Mapping[str, Tensor]], sampler: Sampler
    ) -> Iterator[Mapping[str, Tensor]]:
        """The buckets of a sync; each is compared with the weights of a local sampler when the next
        is asked for.

        Args:
            weights: of the policy.
            sampler: what is given them.
        """
        self._differing = ""
        for bucket in weights:
            yield bucket
            # A local sampler is in this process; after the `yield` it has copied the bucket.
            if isinstance(sampler, LocalSampler):
                self._differing = self._differing or _differing(bucket, sampler.model)

    def observe(self, sampler: Sampler) -> Observed:
        """What the sampler says of its weights.

        Args:
            sampler: what is checked.
        """
        if (probe := getattr(sampler, "probe", None)) is None:
            return Observed(self.rows, [sampler.logprobs(self.rows)])
        probes: Sequence[Probe] = probe(self.rows, self.prompt_ids)
        sampled = [TokenRow(self.prompt_ids, [probe.token]) for probe in probes]
        return Observed([*self.rows, *sampled], [probe.logprobs for probe in probes], probes)

    # Or the policy's forward pass would build a graph.
    @torch.no_grad()  # type: ignore[untyped-decorator]
    def check(
        self,
        policy: Policy,
        observed: Observed,
        version: int,
    ) -> float:
        """The largest difference of log-probabilities, in nats.

        Args:
            policy: has the trainer's weights.
            observed: what the sampler said, of `observe`.
            version: of the weights, for the message.

        Raises:
            CanaryFailed: the difference is above the tolerance or NaN, the sampler's copy of the
                weights differed as they were given (see `watch`), or an engine took a part of the
                weights or has another version.
        """
        own_logprobs = policy.logprobs(observed.rows).tolist()
        after = f"after the sync to version {version}"
        rows, sampled = own_logprobs[: len(self.rows)], own_logprobs[len(self.rows) :]
        for probe in observed.probes:
            _require_whole_update(probe, version)
        worst = 0.0
        for number, sampler_logprobs in enumerate(observed.logprobs):
            name = observed.probes[number].engine if observed.probes else "the sampler"
            worst = max(
                worst, self._require_same(f"{after} {name}", rows, sampler_logprobs, _DIFFERS)
            )
        for probe, row in zip(observed.probes, sampled, strict=True):
            worst = max(
                worst,
                # One sampled token, whose log-probability went
                # through the engine's cache of keys and values.
                self._require_same(f"{after} {probe.engine}", [row], [[probe.logprob]], _STALE),
            )
        if self._differing:
            raise CanaryFailed(
                f"{after} the sampler's own weights are not the trainer's: {self._differing} "
                "differs, though too little to change the logprobs; look at its sync"
            )
        return worst

    def _require_same(
        self,
        where: str,
        ours: Sequence[Sequence[float]],
        theirs: Sequence[Sequence[float]],
        meaning: str,
    ) -> float:
        """The largest difference on these rows.

        Raises:
            CanaryFailed: it is above the tolerance or NaN.
        """
        pairs = [
            (mine, sampler_value)
            for left, right in zip(ours, theirs, strict=True)
            for mine, sampler_value in zip(left, right, strict=False)  # ours are padded
        ]
        mine, reported = max(pairs, key=_distance, default=(0.0, 0.0))
        if not _distance((mine, reported)) <= self.tolerance:
            raise CanaryFailed(
                f"{where} gives a token the logprob {reported:.6f}, the trainer {mine:.6f}, more "
                f"than {self.tolerance:g} apart: {meaning}"
            )
        return _distance((mine, reported))


_DIFFERS: Final = (
    "it does not have the trainer's weights, or computes differently; look at its sync, or raise "
    "canary if its precision is lower on purpose"
)
_STALE: Final = (
    "for a prompt that it has read before it uses keys and values of other weights, though a new "
    "prompt is computed right; its prefix cache was not reset"
)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a sampler said of its weights.

    Attributes:
        rows: for which the trainer has to say the same: the canary's, then one for each engine,
            with the token that it sampled after the long prompt.
        logprobs: of the canary's rows, for each engine.
        probes: of each engine; empty for a sampler that has none.
    """

    rows: Sequence[TokenRow]
    logprobs: Sequence[Sequence[Sequence[float]]]
    probes: Sequence[Probe] = ()


def _require_whole_update(probe: Probe, version: int) -> None:
    """Two probes of the four: the names that an engine took, and the version that it says it
    has."""
    missing = sorted(set(probe.expected) - set(probe.taken))
    if missing:
        raise CanaryFailed(
            f"in the sync to version {version} {probe.engine} took {len(set(probe.taken))} of its "
            f"{len(set(probe.expected))} weights, and not {missing[0]}: it goes on with the old "
            "ones; look at what is sent"
        )
    if probe.version != version:
        raise CanaryFailed(
            f"after the sync to version {version} {probe.engine} says that its weights are of "
            f"version {probe.version}: another program writes to it, or the sync did not reach it"
        )


def _long_prompt(prompts: Sequence[Sequence[int]], length: int) -> list[int]:
    """The prompts one after the other, again and again, up to this length."""
    joined = [token for ids in prompts for token in ids]
    # At least 1 token, as an engine refuses empty prompts.
    return (joined * (length // len(joined) + 1))[: max(1, length)]


def _differing(given: Mapping[str, Tensor], theirs: torch.nn.Module) -> str:
    """The name of the first tensor that is another one there; empty if there is none."""
    current = theirs.state_dict()
    pairs = ((name, value, current[name]) for name, value in given.items())
    differ = (
        name
        for name, value, twin in pairs
        # Tied tensors and those that the sampler shares with the policy are the same
        # memory. The trainer's value is cast to the copy's type first, as the sync did.
        if twin.data_ptr() != value.data_ptr() and not torch.equal(twin, value.to(twin))
    )
    return next(differ, "")


def _distance(pair: tuple[float, float]) -> float:
    difference = abs(pair[0] - pair[1])
    # `max` passes over a NaN that does not come first, but not over infinity.
    return math.inf if math.isnan(difference) else difference
