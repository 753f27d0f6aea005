"""What an agent asks for as rows of tokens: a request that extends a former one reuses its tokens.

    user, tool …  │ completion │ tool reply │ completion    one row: each request extends the one
                  │                                         before
                  └ completion of another branch            a second row, which shares the tokens
                                                            before it

A row is a path through this tree.  Each completion is trained on in one row only, the first that
has it; where a later row repeats it, it is context.  So nothing is tokenised twice, and no token is
trained on twice.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from rlvr.errors import UsageError
from rlvr.samplers.protocol import Sample, Sampler, Sampling, TokenIds
from rlvr.types import JsonDict, Message, Rollout, Score, Task, Turn

__all__ = ["Asking", "Conversations", "Exchange"]


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A request and the completion that answered it.

    Attributes:
        parent: the exchange that it extends; None for the first of a conversation.
        added_ids: the tokens between the parent's completion and this one; the whole prompt without
            a parent.
        added: the messages that they stand for.
        sample: the completion with its token ids and log-probabilities.
        sampling: the settings that it was sampled with.
        number: in the order in which completions were finished, from 0.
    """

    parent: Exchange | None
    added_ids: TokenIds
    added: Sequence[Message]
    sample: Sample
    sampling: Sampling
    number: int

    @property
    def ids(self) -> list[int]:
        """All tokens up to the end of the completion."""
        return [
            token
            for exchange in self.path
            for token in (*exchange.added_ids, *exchange.sample.completion_ids)
        ]

    @property
    def path(self) -> list[Exchange]:
        """The exchanges from the first of the conversation to this one."""
        exchanges: list[Exchange] = []
        at: Exchange | None = self
        while at is not None:
            exchanges.append(at)
            at = at.parent
        return exchanges[::-1]


@dataclass(frozen=True, slots=True)
class Asking:
    """A request, with the tokens that its completion continues.

    Attributes:
        parent: see `Exchange`.
        added_ids, added: see `Exchange`.
        context: all tokens before the completion.
        digest: of the conversation so far, by which later requests find it.
    """

    parent: Exchange | None
    added_ids: TokenIds
    added: Sequence[Message]
    context: TokenIds
    digest: bytes


@dataclass(slots=True)
class Conversations:
    """The exchanges of one episode.  Used in one thread.

    Attributes:
        exchanges: in the order in which their completions were finished.
    """

    exchanges: list[Exchange] = field(default_factory=list)
    # by the digest of what was said up to the completion
    _known: dict[bytes, Exchange] = field(default_factory=dict)

    def begin(
        self, sampler: Sampler, messages: Sequence[Message], tools: Sequence[Mapping[str, object]]
    ) -> Asking:
        """The tokens of a request: those of the longest conversation that it extends, and what it
        adds to them.

        Args:
            sampler: encodes messages.
            messages: all of the request, the last one not the assistant's.
            tools: schemas that the chat template shows to the model; part of the conversation's
                beginning.

        Raises:
            UsageError: the sampler cannot encode the messages.
        """
        digests = _digests(messages, tools)
        at, parent = 0, None
        # From the longest on: the conversation that shares most.
        for end in range(len(messages) - 1, 0, -1):
            if (parent := self._known.get(digests[end])) is not None:
                at = end
                break
        context = tuple(parent.ids) if parent is not None else ()
        added = messages[at:]
        # Tools stand at the beginning of a conversation only.
        template_options = {"tools": tools} if tools and parent is None else {}
        ids = tuple(sampler.encode(added, context, **template_options))
        if not ids:
            raise UsageError("the request has no tokens; send a message with a text")
        return Asking(parent, ids, added, (*context, *ids), digests[-1])

    def add(self, asking: Asking, reply: Message, sample: Sample, sampling: Sampling) -> Exchange:
        """Record a completion.

        Args:
            asking: the request.
            reply: the message that the agent gets, by which a request that extends this one is
                known.
            sample: the completion.
            sampling: the settings that it was sampled with.
        """
        exchange = Exchange(
            asking.parent,
            asking.added_ids,
            asking.added,
            sample,
            sampling,
            number=len(self.exchanges),
        )
        self.exchanges.append(exchange)
        # The next request begins with these messages and so finds this exchange.
        self._known[_extend_digest(asking.digest, reply)] = exchange
        return exchange

    def rollout(self, task: Task, score: Score | None, version: int, *, truncated: bool) -> Rollout:
        """The episode as a rollout: the first row, and the others as its branches.

        Args:
            task: what the agent worked on.
            score: of the episode; None if it has none yet.
            version: of the weights, for an episode without any completion.
            truncated: whether a limit ended it.
        """
        parents = {id(exchange.parent) for exchange in self.exchanges}
        # Exchanges that no other extends: each is the end of a row.
        leaves = [exchange for exchange in self.exchanges if id(exchange) not in parents]
        if not leaves:
            return Rollout(task, "", (), (), (), (), version, truncated=truncated, score=score)
        trained: set[int] = set()
        # The oldest weights: the row is as stale as its oldest part.
        version = min(exchange.sample.weights_version for exchange in self.exchanges)
        first, *branch_rows = [
            _row(leaf, trained, task, score, version, truncated) for leaf in leaves
        ]
        return Rollout(**{**first, "branches": tuple(Rollout(**branch) for branch in branch_rows)})


def _row(
    leaf: Exchange,
    trained: set[int],
    task: Task,
    score: Score | None,
    version: int,
    truncated: bool,
) -> JsonDict:
    """The path to a leaf; completions that are in `trained` are context, and the others are added
    to it."""
    path = leaf.path
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    turns: list[Turn] = []
    texts: list[str] = []
    for exchange in path:
        if exchange.parent is not None:
            ids += exchange.added_ids
            mask += [False] * len(exchange.added_ids)
            logprobs += [0.0] * len(exchange.added_ids)
            texts += [f"\n{message['role']}: {message['content']}\n" for message in exchange.added]
        sample, start = exchange.sample, len(ids)
        ids += sample.completion_ids
        texts.append(sample.text)
        # Trained on in an earlier row: here it is context.
        if exchange.number in trained:
            mask += [False] * len(sample.completion_ids)
            logprobs += [0.0] * len(sample.completion_ids)
            continue
        trained.add(exchange.number)
        mask += [True] * len(sample.completion_ids)
        logprobs += sample.behaviour_logprobs(exchange.sampling)
        turns.append(Turn(start, len(ids)))
    return {
        "task": task,
        "text": "".join(texts),
        "prompt_ids": list(path[0].added_ids),
        "completion_ids": ids,
        "completion_mask": mask,
        "behaviour_logprobs": logprobs,
        "weights_version": version,
        "truncated": truncated or leaf.sample.truncated,
        "score": score,
        "turns": tuple(turns),
    }


def _digests(messages: Sequence[Message], tools: Sequence[Mapping[str, object]]) -> list[bytes]:
    """A digest of the tools and the first n messages, for each n from 0."""
    digests = [blake2b(_text(list(tools)).encode(), digest_size=16).digest()]
    for message in messages:
        digests.append(_extend_digest(digests[-1], message))
    return digests


def _extend_digest(digest: bytes, message: Message) -> bytes:
    return blake2b(digest + _text(_key_of_message(message)).encode(), digest_size=16).digest()


def _key_of_message(message: Message) -> Hashable | list[object]:
    """What tells messages apart.  Agents send replies back without their outer white space, or
    without ids of calls."""
    is_policy = message["role"] == "assistant"
    content = str(message.get("content") or "")
    calls = [
        [call["function"]["name"], call["function"]["arguments"]]
        for call in message.get("tool_calls") or ()
    ]
    return [
        message["role"],
        content.strip() if is_policy else content,
        calls,
        message.get("tool_call_id"),
    ]


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
