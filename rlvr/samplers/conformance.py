"""What a sampler promises, tried: for a test of one's own engine, before a run depends on it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic

import numpy as np

from rlvr.errors import SamplingFailed
from rlvr.samplers.protocol import (
    Request,
    Sample,
    Sampler,
    Sampling,
    TokenIds,
    beginning_of,
    rollout_seed,
)
from rlvr.types import Prompt

__all__ = ["sampler_faults"]

_ROWS = 4


def sampler_faults(
    sampler: Sampler,
    prompt: Prompt = "2 + 3 = ",
    *,
    max_tokens: int = 8,
    tolerance: float = 1e-3,
    wall_s: float = 60.0,
) -> list[str]:
    """What a sampler does otherwise than `Sampler` says, a sentence each; empty if nothing.

    Tries limits, texts, log-probabilities, seeds, stop texts, temperature 0 and `abort`.  New
    weights are not tried; the trainer's canary compares them after each `sync`.

    Args:
        sampler: with nothing unfinished.
        prompt: what it continues.
        max_tokens: most tokens of a completion.
        tolerance: how far log-probabilities of `Sample` and `logprobs` may differ: 1e-3 is more
            than rounding in float32, and less than another temperature or another token.
        wall_s: seconds after which a request that `poll` has not returned counts as lost.
    """
    context = tuple(sampler.encode(prompt))
    if not context:
        return ["encode(prompt) gives no token"]
    trial = _Trial(sampler, context, Sampling(max_tokens=max_tokens), wall_s)
    samples = trial.samples("first", range(_ROWS))
    if len(samples) == _ROWS:
        rows = list(samples.values())
        for sample in rows:
            trial.check_sample(sample)
        trial.check_logprobs(rows, tolerance)
        trial.check_seeds(rows)
        trial.check_limit()
        trial.check_stop(rows)
        trial.check_greedy()
        trial.check_abort()
    return list(dict.fromkeys(trial.faults))


class _Trial:
    """Requests to one sampler, and what was wrong with its samples."""

    def __init__(
        self, sampler: Sampler, context: TokenIds, sampling: Sampling, wall_s: float
    ) -> None:
        self.sampler, self.context, self.sampling, self.wall_s = sampler, context, sampling, wall_s
        self.faults: list[str] = []

    def samples(
        self, name: str, seeds: Sequence[int], sampling: Sampling | None = None, limit: int = 0
    ) -> Mapping[Hashable, Sample]:
        """The completions of some seeds, by seed; of those that came."""
        sampling = sampling or self.sampling
        ids: dict[Hashable, int] = {(name, seed): seed for seed in seeds}
        for request_id, seed in ids.items():
            self.sampler.submit(
                Request(
                    request_id,
                    self.context,
                    sampling,
                    rollout_seed("conformance", seed),
                    limit or sampling.max_tokens,
                )
            )
        return {ids[request_id]: sample for request_id, sample in self._polled(set(ids))}

    def _polled(self, waiting: set[Hashable]) -> Iterator[tuple[Hashable, Sample]]:
        """What `poll` returns until nothing is waiting."""
        end = monotonic() + self.wall_s
        while waiting:
            if monotonic() > end:
                self.faults.append(f"poll() did not return {len(waiting)} of the requests")
                self.sampler.abort(waiting)
                return
            for request_id, sample in self.sampler.poll():
                if request_id not in waiting:
                    self.faults.append(
                        f"poll() returned {request_id!r}, which was not submitted, was returned "
                        "before, or was aborted"
                    )
                    continue
                waiting.remove(request_id)
                if isinstance(sample, SamplingFailed):
                    self.faults.append(f"a request failed: {sample}")
                elif not isinstance(sample, Sample):
                    self.faults.append(f"poll() gave a {type(sample).__name__}, not a Sample")
                else:
                    yield request_id, sample

    def check_sample(self, sample: Sample, limit: int = 0) -> None:
        """One completion by itself."""
        limit = limit or self.sampling.max_tokens
        count = len(sample.completion_ids)
        if tuple(sample.prompt_ids) != self.context:
            self.faults.append("prompt_ids are not the request's context")
        if count > limit:
            self.faults.append(f"{count} tokens came where the request's limit was {limit}")
        if sample.truncated and count < limit:
            self.faults.append(f"truncated is True after {count} of {limit} tokens")
        if sample.weights_version != self.sampler.version:
            self.faults.append(
                f"weights_version is {sample.weights_version}, and the sampler's version "
                f"{self.sampler.version}"
            )
        # A little above 0 is rounding.
        if not all(math.isfinite(value) and value < 1e-6 for value in sample.logprobs):
            self.faults.append("a log-probability is above 0 or not finite")
        text = beginning_of(self.sampler, self.context) + self.sampler.decode(sample.completion_ids)
        if not self.sampling.stop and text != sample.text:
            self.faults.append(f"the text is {sample.text!r}, and decode() of its tokens {text!r}")

    def check_logprobs(self, rows: Sequence[Sample], tolerance: float) -> None:
        """What `logprobs` says of tokens that were sampled at temperature 1."""
        again = self.sampler.logprobs(rows)
        if [len(row) for row in again] != [len(row.completion_ids) for row in rows]:
            self.faults.append("logprobs(rows) has not one number per token of each completion")
            return
        distances = [
            abs(one - other)
            for row, values in zip(rows, again, strict=True)
            for one, other in zip(row.behaviour_logprobs(self.sampling), values, strict=True)
        ]
        apart = float(np.max(distances))  # NaN if any is, unlike Python's `max`
        if not apart <= tolerance:
            self.faults.append(
                f"log-probabilities of a Sample and of logprobs(rows) differ by {apart:.3g}, more "
                f"than {tolerance:g}"
            )

    def check_seeds(self, rows: Sequence[Sample]) -> None:
        """The same seeds in another order."""
        again = self.samples("again", range(_ROWS)[::-1])
        # All rows, as one may round to another token.
        if len(again) == _ROWS and all(
            list(again[seed].completion_ids) != list(row.completion_ids)
            for seed, row in enumerate(rows)
        ):
            self.faults.append("the same seeds gave other tokens the second time")

    def check_limit(self) -> None:
        """The limit of a request replaces that of its sampling."""
        for sample in self.samples("one token", [0], limit=1).values():
            self.check_sample(sample, limit=1)

    def check_stop(self, rows: Sequence[Sample]) -> None:
        """A text that did come ends the same completion."""
        # A character from the middle of a text that came: the same seed must reach it again.
        seed, text = next(((n, row.text) for n, row in enumerate(rows) if row.text), (0, ""))
        if not text:
            return
        stop = text[len(text) // 2]
        stopping = replace(self.sampling, stop=(stop,))
        for sample in self.samples("stop", [seed], stopping).values():
            if stop in sample.text:
                self.faults.append(f"the text {sample.text!r} has the stop text {stop!r}")
            elif sample.text == text[: text.index(stop)] and sample.truncated:
                self.faults.append("truncated is True where a stop text ended the completion")

    def check_greedy(self) -> None:
        """Temperature 0 draws nothing."""
        greedy = replace(self.sampling, temperature=0)
        samples = self.samples("greedy", [0, 1], greedy).values()
        if len({tuple(sample.completion_ids) for sample in samples}) > 1:
            self.faults.append("at temperature 0 two seeds gave other tokens")

    def check_abort(self) -> None:
        """What was dropped is never returned, and other ids are ignored."""
        dropped = Request("dropped", self.context, self.sampling, 0, self.sampling.max_tokens)
        self.sampler.submit(dropped)
        self.sampler.abort(["dropped", "unknown"])
        self.samples("after abort", [0])
