"""The interface between collector and sampler: requests in, completions with token ids
and log-probabilities out.

submit(request) ─▶ poll() ─▶ (id, sample) of each finished request, in any order

A sampler does not depend on environments and rewards, and the collector does not depend on models.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from rlvr.environment import seeded
from rlvr.errors import SamplingFailed, UsageError, brief
from rlvr.types import Prompt, Rollout
from rlvr.validate import require_number, require_whole

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Begun",
    "EndpointReply",
    "MAX_TOKENS_IN_FLIGHT",
    "Probe",
    "Request",
    "Sample",
    "Sampler",
    "Sampling",
    "TextToken",
    "TokenIds",
    "TokenRow",
    "Tokenized",
    "beginning_of",
    "cut_at_stop",
    "replies",
    "rollout_seed",
]

MAX_TOKENS_IN_FLIGHT: Final = 2**18
"""Tokens of keys and values that a sampler in this process keeps: 256 rows of 1024, or 7 GiB for a
model of 1.5 billion parameters with grouped heads in bfloat16."""

TokenIds: TypeAlias = tuple[int, ...]
"""Token ids of a prompt, or of a prompt with an unfinished completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How completions are sampled.

    Attributes:
        max_tokens: most tokens of the policy in one rollout, its end token included.
        temperature: logits are divided by it; 0 takes the most likely token (only for evaluation).
        top_p: keep the smallest set of most likely tokens whose probabilities sum to at least this;
            1 keeps all.
        top_k: keep this many most likely tokens; 0 keeps all.
        min_p: keep tokens that are at least this share as likely as the most likely one; 0 keeps
            all.
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
        require_number(
            "top_p", self.top_p, above=0, most=1, hint="and temperature=0 for the most likely token"
        )
        require_number("min_p", self.min_p, 0, 1)
        if isinstance(self.stop, str) or not all(
            isinstance(text, str) and text for text in self.stop
        ):
            raise UsageError(
                f"stop is {brief(self.stop)}; it must be a tuple of texts, none of them empty"
            )
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
class Begun:
    """The first tokens of a completion, as far as it was sampled when it was taken back.  T
    = number of these tokens.

    Attributes:
        completion_ids, logprobs: as in `Sample`, shape [T].
        model_logprobs: as in `Sample`, shape [T]; None if the sampler does not know them.
        versions: version of the weights that sampled each token, shape [T].
    """

    completion_ids: Sequence[int]
    logprobs: Sequence[float]
    model_logprobs: Sequence[float] | None
    versions: Sequence[int]


@dataclass(frozen=True, slots=True)
class Request:
    """One completion that a sampler is asked for.

    Attributes:
        id: names it among the unfinished requests.
        context: the tokens to continue, at least one; nothing is added to them.
        sampling: how tokens are sampled.
        seed: a whole number in [0, 2**63).  It alone determines the completion's random numbers,
            whatever else is sampled beside it.
        limit: most tokens of the completion, at least 1; it replaces `sampling.max_tokens`, which
            holds for a whole rollout.
        rollout: number among the requests of one prompt; engines need not look at it.
        begun: the completion goes on from these tokens, which count for `limit` and are in the
            sample.  Only a sampler with `take_back` is given any.
    """

    id: Hashable
    context: TokenIds
    sampling: Sampling
    seed: int
    limit: int
    rollout: int = 0
    begun: Begun | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of a sampler.  T = number of its tokens, at least 1.

    Attributes:
        text: the completion without prompt, end token and stop text; with the beginning that a
            chat template gave it, such as "<think>", see `beginning_of`.
        prompt_ids: the tokens before it, those of the chat template included.
        completion_ids: its tokens, the end token included, shape [T].
        logprobs: natural log-probabilities of its tokens under the distribution they were sampled
            from, after temperature, top-p, top-k and min-p, shape [T].
        truncated: True if it hit the token limit; False if it ended with an end token or a stop
            text.
        weights_version: version of the weights that sampled it; the oldest if they changed
            meanwhile.
        token_versions: version of the weights that sampled each token, shape [T].  None:
            `weights_version` for all, or the sampler does not know.
        model_logprobs: the same as `logprobs` under the model itself, at temperature 1 and without
            top-p, top-k, min-p; shape [T].  None if the sampler does not know them.
    """

    text: str
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    logprobs: Sequence[float]
    truncated: bool
    weights_version: int
    model_logprobs: Sequence[float] | None = field(default=None, kw_only=True)
    token_versions: Sequence[int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        optional = [
            name for name in ("model_logprobs", "token_versions") if getattr(self, name) is not None
        ]
        lengths = {
            name: len(getattr(self, name)) for name in ("completion_ids", "logprobs", *optional)
        }
        if len(set(lengths.values())) != 1 or not self.completion_ids:
            raise ValueError(
                f"a sample's lengths must agree and be at least 1, and they are {lengths}"
            )

    def behaviour_logprobs(self, sampling: Sampling) -> Sequence[float]:
        """The log-probabilities that a rollout keeps, shape [T].

        The model's own for plain sampling, if they are known; otherwise those of the distribution
        that the tokens were sampled from, which is the same one for plain sampling.  The trainer
        computes its side at the same temperature, but without top-p, top-k and min-p: with these,
        ratios begin below 1, by the probability that was excluded.

        Args:
            sampling: the settings that this completion was sampled with.
        """
        return (
            self.model_logprobs
            if sampling.plain and self.model_logprobs is not None
            else self.logprobs
        )


@runtime_checkable
class Sampler(Protocol):
    """Samples completions from the current weights.

    A sampler may also have these attributes:

    - `positions`: the most tokens of prompt and completion together.  Then prompts that are too
      long are left out and counted, and an episode of several turns that reaches it ends truncated.
    - `parse(completion_ids, tools)`: reads a turn with calls of tools, as the model's chat template
      writes them, and gives a `PolicyTurn`.  Without it, calls are read in <tool_call> tags.
    - `beginning(context)`: the text with which the chat template began the reply after these
      tokens; then `Sample.text` begins with it.
    - `steps`: the number of decode steps so far.  What is finished after how many steps has to
      depend on the requests alone, not on time.  Then the schedule "tokens" is possible, see
      `rlvr.collect.scheduler`.
    - `tokens`: the number of tokens sampled so far, for those who wait.
    - `probe(rows, prompt_ids)`: what each of its engines says of its weights, as `Probe`s.  The
      trainer's canary then checks every engine, and more than log-probabilities.
    - `take_back(ids) -> Mapping[Hashable, Begun]`: drop requests, as `abort` does, and return the
      tokens of those that have some.  A completion that is under way when the weights change is
      then submitted again with `Request.begun`, and goes on with the new weights; without this
      method it is sampled from its beginning again.

    Attributes:
        version: of the current weights.
    """

    version: int

    def submit(self, request: Request) -> None:
        """Begin a completion as soon as there is room for it.  Returns at once.

        Args:
            request: what is asked for.

        Raises:
            UsageError: it can never be sampled, for example because it is longer than the model's
                positions.
        """
        ...

    def poll(self) -> Sequence[tuple[Hashable, Sample | SamplingFailed]]:
        """Work for a moment, and return what has been finished: (id, sample) of each request, once.

        May return nothing: an engine in this process does some decode steps, another one waits for
        some milliseconds. A request for which there will be no sample comes with the error instead;
        its rollout becomes UNSCORED.
        """
        ...

    def abort(self, ids: Iterable[Hashable]) -> None:
        """Drop requests; they are never returned.

        Args:
            ids: of requests; those that are not unfinished are ignored.
        """
        ...

    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> None:
        """Use new weights.  They are given in every call, and nothing computed with the old ones
        may be used on.

        Args:
            weights: buckets, each name → tensor of some parameters, as in the trainer's
                `state_dict`; tied ones come once.  A bucket is made when it is asked for, and is
                not to be kept.
            version: of the new weights.
        """
        ...

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """The model's own log-probabilities of given completions, one list per row.  The trainer
        compares them.

        Args:
            rows: prompts and completions.
        """
        ...

    def encode(
        self,
        prompt: Prompt,
        after: Sequence[int] = (),
        *,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> Sequence[int]:
        """The tokens of a prompt, or those that an environment's reply adds to a conversation.

        Args:
            prompt: a text or chat messages.
            after: nothing for a first prompt.  Or the tokens of the conversation so far: then the
                result continues them up to the policy's next turn, and for chat messages it
                includes the template's tokens that end the open turn and begin the next.  A text is
                then taken as it is.
            tools: schemas of the tools that the policy may call; the first prompt shows them.
                Given only where an environment has some, so a sampler for others need not take it.
        """
        ...

    def decode(self, completion_ids: Sequence[int]) -> str:
        """The text of a completion's tokens, or of its first ones, as in `Sample.text`.

        Args:
            completion_ids: the tokens.
        """
        ...


@dataclass(frozen=True, slots=True)
class EndpointReply:
    """What an endpoint answered to one request.

    Attributes:
        text: the completion.
        finish: why it ended, such as "stop" or "length"; None if the endpoint does not say.
        prompt_tokens, completion_tokens: as the endpoint counted them; None if it does not say.
        reasoning: text of the model's reasoning where the endpoint gives it apart; it is not
            scored.
    """

    text: str
    finish: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning: str | None = None


class TextToken(int):
    """A "token" that stands for a whole message or text, for engines that take and give no tokens.

    Attributes:
        message: the text with its role.
        reply: what the endpoint answered, for a completion; None for a prompt.
    """

    message: Mapping[str, object]
    reply: EndpointReply | None

    def __new__(
        cls, message: Mapping[str, object], reply: EndpointReply | None = None
    ) -> TextToken:
        # The number means nothing: what counts is the text that it carries.
        part = super().__new__(cls, 1)
        part.message, part.reply = message, reply
        return part


def replies(rollout: Rollout) -> list[EndpointReply]:
    """What an endpoint answered in the turns of a rollout; empty if another sampler sampled it.

    Args:
        rollout: as `Groups` makes them.
    """
    return [
        token.reply
        for token in rollout.completion_ids
        if isinstance(token, TextToken) and token.reply is not None
    ]


def beginning_of(sampler: Sampler, context: Sequence[int]) -> str:
    """The text with which the chat template began the reply after some tokens; "" for none.

    It is a part of the reply, of `Sample.text` too, that the policy did not sample.

    Args:
        sampler: whose template.
        context: all tokens before those that were sampled.
    """
    read = getattr(sampler, "beginning", None)
    return "" if read is None else str(read(context))


def rollout_seed(*key: str | int) -> int:
    """A seed in [0, 2**63) from a hash of the key: with sums, different keys would give the same
    seed.

    Args:
        key: whatever identifies the rollout.
    """
    # 63 bits fit into a signed number of 64 bits.
    return seeded("rollout", *key).getrandbits(63)


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """A completion's text up to its first stop text.

    Args:
        text: of the completion.
        stop: the stop texts.
    """
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


@runtime_checkable
class Tokenized(Protocol):
    """A row of tokens: `Rollout`, `Sample` and `TokenRow` are such."""

    @property
    def prompt_ids(self) -> Sequence[int]:
        """At least one token, since a completion's first token is predicted from the prompt."""

    @property
    def completion_ids(self) -> Sequence[int]:
        """May be empty."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What one engine says of its weights, for the canary.

    Attributes:
        engine: its name for messages, such as "http://a:8000".
        version: of the weights that it says it has.
        expected: names of the weights of its own checkpoint format.
        taken: names of those that it took at the last sync.
        logprobs: its log-probabilities of given completions, one list per row, computed anew from
            the first token.
        token, logprob: a token that it samples after a long prompt at temperature 1, and the
            log-probability.  They come by the same way as completions: through its cache of keys
            and values of earlier prompts.
    """

    engine: str
    version: int
    expected: Collection[str]
    taken: Collection[str]
    logprobs: Sequence[Sequence[float]]
    token: int
    logprob: float


class TokenRow(NamedTuple):
    """A row of tokens without anything else.

    Attributes:
        prompt_ids: tokens of the prompt.
        completion_ids: tokens of the completion; may be empty.
        truncated: True if the completion hit the token limit.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    truncated: bool = False
