"""What the collector asks of whatever generates: prompts in, completions with ids and logprobs out.

A sampler knows nothing of environments and rewards; the collector knows nothing of models.
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
    "cut",
    "drawn",
    "is_token_ids",
    "rollout_seed",
]

TokenIds: TypeAlias = tuple[int, ...]
"""A prompt that is tokens already, such as a completion to be continued: taken as it is, nothing put before it."""

Context: TypeAlias = Prompt | TokenIds
"""What a sampler continues."""


def is_token_ids(context: Context) -> TypeGuard[TokenIds]:
    """Tokens, as opposed to a text or chat messages?"""
    return isinstance(context, tuple) and len(context) > 0 and isinstance(context[0], Integral)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How completions are drawn.

    Attributes:
        max_tokens: the most tokens the policy may produce in one rollout, its end token included.
        temperature: what logits are divided by; 0 takes the most likely token (for evaluation alone).
        top_p: keep the smallest set of tokens whose probabilities reach it; 1 keeps all.
        top_k: keep so many most likely tokens; 0 keeps all.
        min_p: keep tokens at least this share as likely as the most likely one; 0 keeps all.
        stop: texts that end a completion.

    Raises:
        UsageError: a value out of its range.
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
        require_number("top_p", self.top_p, 0, 1)
        require_number("min_p", self.min_p, 0, 1)
        if self.top_p == 0:
            raise UsageError("top_p is 0, which keeps no token; for the most likely one say temperature=0")
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise UsageError(f"stop is {brief(self.stop)}; it must be a tuple of texts, none of them empty")
        object.__setattr__(self, "stop", tuple(self.stop))

    @property
    def truncates(self) -> bool:
        """True if some tokens get no chance at all: top_p, top_k or min_p."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    @property
    def plain(self) -> bool:
        """True if tokens are drawn from the model's own distribution."""
        return self.temperature == 1 and not self.truncates


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion as the sampler made it.  T = number of tokens it drew, at least 1.

    Attributes:
        text: the completion alone: without prompt, end token and stop text.
        prompt_ids: what the model saw before it, the chat template's tokens included.
        completion_ids: the tokens drawn, the end token included, shape [T].
        logprobs: natural log-probabilities of these under the distribution they were drawn from, after
            temperature, top-p, top-k and min-p, shape [T].
        model_logprobs: the same under the model itself: temperature 1, nothing cut off, shape [T].
        truncated: it hit the token limit, as opposed to ending with an end token or a stop text.
        weights_version: which weights drew it; the oldest, if they changed on the way.
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
        """What a rollout keeps of its two kinds of logprobs.

        The model's own at temperature 1 with nothing cut off.  Else those of the distribution the tokens were drawn
        from; the trainer computes its side at the same temperature.  Where tokens are cut off (top-p, top-k, min-p)
        the two differ by the mass that was kept, since the trainer does not cut: ratios then begin below 1.
        """
        return self.model_logprobs if sampling.plain else self.logprobs


@runtime_checkable
class Sampler(Protocol):
    """Draws completions from the current weights.

    Attributes:
        version: of the weights it draws from now.

    A sampler may have `positions`, the most tokens that prompt and completion may have together: longer prompts are
    then left out and counted, and an episode of several turns ends truncated where it reaches them.
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
        """Draw `n` completions of each prompt.

        Yields (prompt index, rollout index, sample) as each is finished, in any order, each pair once: the caller
        scores them meanwhile.

        Args:
            prompts: texts, chat messages, or tokens (`TokenIds`) to go on from.
            seeds: [prompts, n] whole numbers in [0, 2**63).  `seeds[p][g]` alone fixes that rollout's randomness:
                what else is in the batch does not change it.
            limits: the most tokens for each prompt, where that is less than `sampling.max_tokens`.
        """
        ...

    def encode(self, prompt: Prompt, after: Sequence[int] = ()) -> Sequence[int]:
        """The tokens of a prompt.

        With nothing before it, exactly the `prompt_ids` that `generate` uses.  After the tokens of an earlier part of
        the conversation, what an environment's reply adds to them before the policy's next turn: of chat messages
        the template's marks too, the end of the turn that `after` leaves open and the beginning of the next; a text
        is taken as it is.
        """
        ...

    def decode(self, completion_ids: Sequence[int]) -> str:
        """The text of the first tokens of a completion, as `Sample.text` has it."""
        ...

    def sync(self, state: Any, version: int) -> None:
        """Take over new weights, which are `version` from now on."""
        ...


def rollout_seed(*key: str | int) -> int:
    """A seed in [0, 2**63) from a hash of the key; sums of neighbouring keys would meet."""
    return seeded("rollout", *key).getrandbits(63)


def cut(text: str, stop: Sequence[str]) -> str:
    """A completion's text up to its first stop text."""
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


def drawn(
    sampler: Sampler,
    prompts: Sequence[Context],
    n: int,
    sampling: Sampling,
    seeds: Sequence[Sequence[int]],
    limits: Sequence[int] | None = None,
) -> Iterator[tuple[int, int, Sample]]:
    """What `generate` yields, held to its promise.

    Raises:
        UsageError: the sampler gave a rollout twice, one that nobody asked for, or not all of them.
    """
    if not prompts:
        return
    missing = {(p, g) for p in range(len(prompts)) for g in range(n)}
    extra: dict[str, Any] = {} if limits is None else {"limits": limits}
    for p, g, sample in sampler.generate(prompts, n, sampling, seeds, **extra):
        if (p, g) not in missing:
            raise UsageError(f"{type(sampler).__name__} gave rollout {g} of prompt {p} twice, or nobody asked for it")
        missing.remove((p, g))
        yield p, g, sample
    if missing:
        p, g = min(missing)
        raise UsageError(f"{type(sampler).__name__} left out {len(missing)} rollouts, the first {g} of prompt {p}")


@runtime_checkable
class Tokenized(Protocol):
    """What is needed of a rollout: `Rollout`, `Sample` and `TokenRow` have it."""

    @property
    def prompt_ids(self) -> Sequence[int]:
        """At least one token: the first token of a completion is predicted from it."""

    @property
    def completion_ids(self) -> Sequence[int]:
        """May be empty."""


class TokenRow(NamedTuple):
    """A row and nothing else."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
