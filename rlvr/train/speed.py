"""How fast a model samples and learns here, measured in seconds, and what a
step of the run takes then.

A dry run has to answer soon on any machine, so nothing is done whole: the first completions are cut
at a time, sampling with all rows of a step is a few tokens long, and the update is that of a few
short rows.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from rlvr.errors import SamplingFailed
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.protocol import (
    Request,
    Sample,
    Sampler,
    Sampling,
    Tokenized,
    TokenRow,
    beginning_of,
)
from rlvr.train.config import ResolvedConfig
from rlvr.train.policy import Policy
from rlvr.types import Group, Prompt

__all__ = ["CutSampler", "Speed", "measure_speed"]

_PROMPT: Final = 64  # tokens of the rows that are measured
# Two short rows, so that measuring takes less time than a first step.
_COMPLETION: Final = 32
_ROWS: Final = 2
_DECODED: Final = 3  # tokens of each row with all rows of a step


class CutSampler:
    """Another sampler, whose completions are cut when the time is over.

    A completion that has tokens then is returned as a truncated one; one without tokens, and any
    request that comes later, fails, so that its rollout is UNSCORED.

    Args:
        sampler: samples.  One in this process then decodes a step per poll, as the time is looked
            at between polls.
        budget_s: seconds from the first request on.

    Attributes:
        cut: number of completions that were cut.
        version: of the weights.
    """

    def __init__(self, sampler: Sampler, budget_s: float) -> None:
        self._sampler, self._budget_s = sampler, budget_s
        self._open: dict[Hashable, Request] = {}
        self._began: float | None = None
        self.cut, self.version = 0, sampler.version
        if isinstance(sampler, LocalSampler):
            # The clock is looked at between polls, so each poll is one token long.
            sampler.poll_steps = 1
        # What other code asks a sampler for by `hasattr`
        # must be absent here where it is absent there.
        for name in ("steps", "positions", "parse", "beginning"):
            if hasattr(sampler, name):
                setattr(self, name, getattr(sampler, name))

    @property
    def tokens(self) -> int:
        """See `Sampler`."""
        return getattr(self._sampler, "tokens", 0)

    @property
    def spent_s(self) -> float:
        """Seconds since the first request."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def submit(self, request: Request) -> None:
        """See `Sampler.submit`."""
        if self._began is None:
            self._began = time.monotonic()
        self._open[request.id] = request
        # After the time a request is only noted, and fails at the next poll.
        if self.spent_s < self._budget_s:
            self._sampler.submit(request)

    def poll(self) -> Sequence[tuple[Hashable, Sample | SamplingFailed]]:
        """See `Sampler.poll`."""
        if self.spent_s >= self._budget_s:
            return self._cut_all()
        finished = self._sampler.poll()
        self._count_steps()
        for name, _ in finished:
            del self._open[name]
        return finished

    def _cut_all(self) -> list[tuple[Hashable, Sample | SamplingFailed]]:
        open_, self._open = self._open, {}
        begun: Mapping[Hashable, object] = {}
        # A sampler that can give back what it has begun makes truncated completions of it.
        if hasattr(self._sampler, "take_back"):
            begun = self._sampler.take_back(list(open_))
        else:
            self._sampler.abort(list(open_))
        self.cut += len(open_)
        failed = SamplingFailed("the time of the dry run was over")
        return [
            (name, self._sample(request, begun[name]) if name in begun else failed)
            for name, request in open_.items()
        ]

    def _sample(self, request: Request, begun: Any) -> Sample:
        return Sample(
            beginning_of(self._sampler, request.context) + self.decode(begun.completion_ids),
            list(request.context),
            list(begun.completion_ids),
            list(begun.logprobs),
            truncated=True,
            weights_version=min(begun.versions),
            model_logprobs=begun.model_logprobs,
        )

    def _count_steps(self) -> None:
        if hasattr(self, "steps"):
            self.steps: int = getattr(self._sampler, "steps", 0)

    def abort(self, ids: Iterable[Hashable]) -> None:
        """See `Sampler.abort`."""
        dropped = list(ids)
        for name in dropped:
            self._open.pop(name, None)
        self._sampler.abort(dropped)

    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> None:
        """See `Sampler.sync`."""
        self._sampler.sync(weights, version)
        self.version = version

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """See `Sampler.logprobs`."""
        return self._sampler.logprobs(rows)

    def encode(
        self, prompt: Prompt, after: Sequence[int] = (), *, tools: Sequence[Any] = ()
    ) -> Sequence[int]:
        """See `Sampler.encode`."""
        if tools:
            return self._sampler.encode(prompt, after, tools=tools)
        return self._sampler.encode(prompt, after)

    def decode(self, completion_ids: Sequence[int]) -> str:
        """See `Sampler.decode`."""
        return self._sampler.decode(completion_ids)


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured, and the forecast that follows from it.

    Attributes:
        rows: completions that were sampled side by side.
        row_tokens_per_s: tokens per second of all of them together.
        forward_tokens_per_s: of passes through the model without gradients.
        update_tokens_per_s: of passes with their gradients.
        sampled_tokens: of the completions of a step.
        sampled_is_limit: these are as long as they may be; else as long as those that were seen.
        prompt_tokens: of the prompts of a step, each read once.
        passed_tokens: that go through the model in the update of a step, padding included.
        passes: passes without gradients over these, for the reference and for old
            log-probabilities.
        epochs: passes with gradients.
    """

    rows: int
    row_tokens_per_s: float
    forward_tokens_per_s: float
    update_tokens_per_s: float
    sampled_tokens: float
    sampled_is_limit: bool
    prompt_tokens: int
    passed_tokens: float
    passes: int
    epochs: int

    @property
    def sampling_s(self) -> float:
        """Seconds of sampling in a step."""
        # Each prompt is read once for its group.
        reading = self.prompt_tokens / self.forward_tokens_per_s
        return self.sampled_tokens / self.row_tokens_per_s + reading

    @property
    def update_s(self) -> float:
        """Seconds of the update in a step, with the passes before it."""
        before = self.passes / self.forward_tokens_per_s
        return self.passed_tokens * (before + self.epochs / self.update_tokens_per_s)

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.sampling_s + self.update_s


def measure_speed(
    policy: Policy, sampler: Sampler, group: Group, seen_tokens_per_s: float, config: ResolvedConfig
) -> Speed:
    """Measure sampling with as many rows as a step has, and passes through the model.

    Gradients are dropped again; weights stay as they are.

    Args:
        policy: of the run.
        sampler: of the run, not cut, with nothing under way.
        group: the first group; its prompt is the one that is measured with.
        seen_tokens_per_s: at which the group was sampled; of a sampler that does not count its
            tokens, this is all there is.
        config: settings of the run.
    """
    rollouts = config.prompts * config.group_size
    rows = min(config.max_rows, rollouts)
    prompt = list(group.rollouts[0].prompt_ids) or [1]
    rate = seen_tokens_per_s
    # The group does not show the rate with all rows of a batch; only the local sampler is measured
    # again.
    if config.engine == "local" and rows > config.group_size:
        rate = _sampling_rate(sampler, prompt, rows, config)
    else:
        rows = config.group_size
    ended = [len(r.completion_ids) for r in group.rollouts if not r.truncated and r.completion_ids]
    # One that was cut says nothing of its length: then the limit is what a step may take.
    all_ended = len(ended) == len(group.rollouts)
    length = sum(ended) / len(ended) if all_ended else float(config.max_tokens)
    forward, update = _pass_rates(policy, prompt)
    algorithm = config.algorithm
    # A group of the mean length, for what padding and shared prompts make of it.
    step = [TokenRow(prompt, prompt[:1] * max(1, round(length)))] * config.group_size
    return Speed(
        rows=rows,
        row_tokens_per_s=rate,
        forward_tokens_per_s=forward,
        update_tokens_per_s=update,
        sampled_tokens=rollouts * length,
        sampled_is_limit=not all_ended,
        prompt_tokens=config.prompts * len(prompt),
        passed_tokens=float(config.prompts * _count_passed(policy, step)),
        # A pass for the reference, and one for old log-probabilities.
        passes=int(algorithm.has_reference) + int(bool(algorithm.correction)),
        epochs=algorithm.epochs,
    )


def _sampling_rate(
    sampler: Sampler, prompt: Sequence[int], rows: int, config: ResolvedConfig
) -> float:
    """Tokens per second of a few tokens of each row, the end of the prompt before them."""
    sampling = Sampling(max_tokens=_DECODED, temperature=config.temperature)
    context = tuple(prompt[-_PROMPT:])
    began, sampled, left = time.monotonic(), 0, rows
    for row in range(rows):
        sampler.submit(Request(("speed", row), context, sampling, row, _DECODED, rollout=row))
    while left:
        for _, sample in sampler.poll():
            left -= 1
            sampled += len(sample.completion_ids) if isinstance(sample, Sample) else 0
    return sampled / (time.monotonic() - began)


def _pass_rates(policy: Policy, prompt: Sequence[int]) -> tuple[float, float]:
    """Tokens per second of passes through the model: (without gradients, with them)."""
    head = list(prompt[-_PROMPT:])
    rows = [TokenRow(head, (head * _COMPLETION)[:_COMPLETION])] * _ROWS
    tokens = _count_passed(policy, rows)
    began = time.monotonic()
    with torch.no_grad():
        policy.logprobs(rows)
    between = time.monotonic()
    with torch.enable_grad():
        # Gradients of weights are made too, as in an update; they are dropped below.
        policy.logprobs(rows).sum().backward()
    ended = time.monotonic()
    for parameter in policy.model.parameters():
        parameter.grad = None
    return tokens / (between - began), tokens / (ended - between)


def _count_passed(policy: Policy, rows: Sequence[TokenRow]) -> int:
    """Tokens that go through the layers for these rows, padding included."""
    passed = 0
    for part in policy.micro_batches(rows):
        batch: Any = policy.micro_batch([rows[i] for i in part])
        shared = getattr(batch, "prompts", None)
        if shared is None:
            passed += batch.input_ids.numel()
        else:
            passed += shared.numel() + (0 if batch.inputs is None else batch.inputs.numel())
    return passed
