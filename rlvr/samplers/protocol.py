"""The interface between collector and sampler: prompts in, completions with token ids and log-probabilities out.

A sampler does not depend on environments and rewards, and the collector does not depend on models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeGuard, runtime_checkable

from rlvr.environment import seeded
from rlvr.errors import UsageError, brief
from rlvr.types import Prompt
from rlvr.validate import require_number, require_whole

__all__ = [
    "Context",
    "Sample",
    "Sampler",
    "Sampling",
    "TokenIds",
    "TokenRow",
    "Tokenized",
    "cut_at_stop",
    "generate_checked",
    "is_token_ids",
    "rollout_seed",
]

TokenIds: TypeAlias = tuple[int, ...]
"""A prompt given as token ids, such as an unfinished completion; nothing is added to it."""

Context: TypeAlias = Prompt | TokenIds
"""What a sampler continues."""


def is_token_ids(context: Context) -> TypeGuard[TokenIds]:
    """True for token ids, False for a text or chat messages.

    Args:
        context: what a sampler is to continue.
    """
    return isinstance(context, tuple) and len(context) > 0 and isinstance(context[0], Integral)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How completions are sampled.

    Attributes:
        max_tokens: most tokens of the policy in one rollout, its end token included.
        temperature: logits are divided by it; 0 takes the most likely token (only for evaluation).
        top_p: keep the smallest set of most likely tokens whose probabilities sum to at least this; 1 keeps all.
        top_k: keep this many most likely tokens; 0 keeps all.
        min_p: keep tokens that are at least this share as likely as the most likely one; 0 keeps all.
        stop: texts that end a completion.

    Raises:
        UsageError: a value is out of its range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_whole("max_tokens", self.max_tokens, 1)
        require_whole("top_k", self.top_k, 0)
        require_number("temperature", self.temperature, 0)
        require_number("top_p", self.top_p, above=0, most=1, hint="and temperature=0 for the most likely token")
        require_number("min_p", self.min_p, 0, 1)
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise UsageError(f"stop is {brief(self.stop)}; it must be a tuple of texts, none of them empty")
        object.__setattr__(self, "stop", tuple(self.stop))

    @property
    def truncates(self) -> bool:
        """True if top_p, top_k or min_p excludes tokens."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    @property
    def plain(self) -> bool:
        """True if tokens are sampled from the model's own distribution."""
        return self.temperature == 1 and not self.truncates


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a sampler.  T = number of its tokens, at least 1.

    Attributes:
        text: the completion without prompt, end token and stop text.
        prompt_ids: the tokens before it, those of the chat template included.
        completion_ids: its tokens, the end token included, shape [T].
        logprobs: natural log-probabilities of its tokens under the distribution they were sampled from, after
            temperature, top-p, top-k and min-p, shape [T].
        model_logprobs: the same under the model itself, at temperature 1 and without top-p, top-k, min-p; shape [T].
        truncated: True if it hit the token limit; False if it ended with an end token or a stop text.
        weights_version: version of the weights that sampled it; the oldest if they changed meanwhile.
    """

    text: str
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    logprobs: Sequence[float]
    model_logprobs: Sequence[float]
    truncated: bool
    weights_version: int

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("completion_ids", "logprobs", "model_logprobs")}
        if len(set(lengths.values())) != 1 or not self.completion_ids:
            raise ValueError(f"a sample's lengths must agree and be at least 1, and they are {lengths}")

    def behaviour_logprobs(self, sampling: Sampling) -> Sequence[float]:
        """The log-probabilities that a rollout keeps, shape [T].

        The model's own for plain sampling, otherwise those of the distribution that the tokens were sampled from.  The
        trainer computes its side at the same temperature, but without top-p, top-k and min-p: with these, ratios begin
        below 1, by the probability that was excluded.

        Args:
            sampling: the settings that this completion was sampled with.
        """
        return self.model_logprobs if sampling.plain else self.logprobs


@runtime_checkable
class Sampler(Protocol):
    """Samples completions from the current weights.

    A sampler may also have an attribute `positions`, the most tokens of prompt and completion together: then prompts
    that are too long are left out and counted, and an episode of several turns that reaches it ends truncated.

    Attributes:
        version: of the current weights.
    """

    version: int

    def generate(
        self,
        prompts: Sequence[Context],
        n: int,
        sampling: Sampling,
        seeds: Sequence[Sequence[int]],
        *,
        limits: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, int, Sample]]:
        """Sample `n` completions of each prompt.

        Yields (prompt index, rollout index, sample) as soon as each is finished, in any order and each pair once, so
        that the caller can score them meanwhile.

        Args:
            prompts: texts, chat messages, or token ids (`TokenIds`) to continue.
            n: completions of each prompt.
            sampling: how tokens are sampled.
            seeds: whole numbers in [0, 2**63), shape [prompts, n].  `seeds[p][g]` alone determines that rollout's
                random numbers, whatever else is in the batch.
            limits: most tokens of a completion of each prompt, if less than `sampling.max_tokens`; None for that.
        """
        ...

    def encode(self, prompt: Prompt, after: Sequence[int] = ()) -> Sequence[int]:
        """The tokens of a prompt, or those that an environment's reply adds to a conversation.

        Args:
            prompt: a text or chat messages.
            after: nothing, for the `prompt_ids` that `generate` uses.  Or the tokens of the conversation so far: then
                the result continues them up to the policy's next turn, and for chat messages it includes the
                template's tokens that end the open turn and begin the next.  A text is then taken as it is.
        """
        ...

    def decode(self, completion_ids: Sequence[int]) -> str:
        """The text of a completion's tokens, or of its first ones, as in `Sample.text`.

        Args:
            completion_ids: the tokens.
        """
        ...

    def sync(self, state: Any, version: int) -> None:
        """Use new weights.

        Args:
            state: the weights, in a form that the sampler defines.
            version: of the new weights.
        """
        ...


def rollout_seed(*key: str | int) -> int:
    """A seed in [0, 2**63) from a hash of the key: with sums, different keys would give the same seed.

    Args:
        key: whatever identifies the rollout.
    """
    return seeded("rollout", *key).getrandbits(63)


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """A completion's text up to its first stop text.

    Args:
        text: of the completion.
        stop: the stop texts.
    """
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


def generate_checked(
    sampler: Sampler,
    prompts: Sequence[Context],
    n: int,
    sampling: Sampling,
    seeds: Sequence[Sequence[int]],
    limits: Sequence[int] | None = None,
) -> Iterator[tuple[int, int, Sample]]:
    """Call `sampler.generate` with the other arguments, and check that each rollout comes exactly once.

    Args:
        sampler: what is called.
        prompts, n, sampling, seeds, limits: as in `Sampler.generate`.

    Raises:
        UsageError: the sampler gave a rollout twice, one that was not requested, or not all of them.
    """
    if not prompts:
        return
    missing = {(p, g) for p in range(len(prompts)) for g in range(n)}
    extra: dict[str, Any] = {} if limits is None else {"limits": limits}
    for p, g, sample in sampler.generate(prompts, n, sampling, seeds, **extra):
        if (p, g) not in missing:
            raise UsageError(f"{type(sampler).__name__} gave rollout {g} of prompt {p} twice, or it was not requested")
        missing.remove((p, g))
        yield p, g, sample
    if missing:
        p, g = min(missing)
        raise UsageError(f"{type(sampler).__name__} left out {len(missing)} rollouts, the first {g} of prompt {p}")


@runtime_checkable
class Tokenized(Protocol):
    """A row of tokens: `Rollout`, `Sample` and `TokenRow` are such."""

    @property
    def prompt_ids(self) -> Sequence[int]:
        """At least one token, since a completion's first token is predicted from the prompt."""

    @property
    def completion_ids(self) -> Sequence[int]:
        """May be empty."""


class TokenRow(NamedTuple):
    """A row of tokens without anything else.

    Attributes:
        prompt_ids: tokens of the prompt.
        completion_ids: tokens of the completion; may be empty.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
