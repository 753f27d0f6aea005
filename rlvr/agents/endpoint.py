"""An OpenAI-compatible endpoint in front of a sampler, in this process,
with a key for each episode.

    with AgentEndpoint(sampler) as endpoint:
        with endpoint.open(sampling=Sampling(max_tokens=1024)) as episode:
            run_agent(base_url=episode.base_url, api_key=episode.api_key)
        rollout = episode.rollout(task, score)

Served are `POST /v1/chat/completions`, `/v1/responses` and `/v1/messages`, in one piece or
streamed, `GET /v1/models`, and the environment's tools at `/v1/mcp`.  The server, its limits and
its way of refusing are those of `rlvr serve`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from rlvr.agents.conversations import Asking, Conversations
from rlvr.agents.messages import ChatRequest, assistant_message, choice_of
from rlvr.agents.sampling import SamplerThread
from rlvr.agents.tools import EpisodeTools
from rlvr.agents.wires import ChatWire, MessagesWire, ResponsesWire, Wire
from rlvr.environment.call_formats import read_turn_of
from rlvr.episode import Ask, PolicyTurn
from rlvr.errors import RlvrError, SamplingFailed, UsageError
from rlvr.http.application import Application, HttpState, Route
from rlvr.http.keys import given_key
from rlvr.http.limits import HttpLimits
from rlvr.http.refused import Refused
from rlvr.http.request import HttpRequest
from rlvr.http.responses import (
    PieceWriter,
    Response,
    WholeResponse,
    json_bytes,
    json_response,
    openai_error,
    while_connected,
)
from rlvr.http.server import ServerThread, listen, url_of
from rlvr.samplers.protocol import (
    Request,
    Sample,
    Sampler,
    Sampling,
    TokenIds,
    beginning_of,
    rollout_seed,
)
from rlvr.types import JsonDict, Message, Rollout, Score, Task
from rlvr.validate import require_whole
from rlvr.workers.closing import Closing

__all__ = ["AgentEndpoint", "AgentEpisode", "as_message"]

_STILL_S: Final = 10.0  # between two signs of life in a stream that has nothing to send yet
_NOT_KEPT: Final = (b"cache-control", b"no-store")
# requests beyond the budget, after which the agent is taken for one that never ends
_MOST_REFUSED: Final = 20


class AgentEpisode(Closing):
    """What one agent asks for and gets, behind a key of its own.  Close it, or use
    it as a context manager.

    Made by `AgentEndpoint.open`.

    Attributes:
        base_url: where the agent finds the API.
        api_key: the agent's key; it holds until `close`.
        requests: completions that were begun.
        tokens: of all finished completions.
        ignored: how often a setting was sent that has no effect, such as a temperature.
        truncated: whether a limit on tokens, requests or positions has refused a request or cut a
            completion.
        failed: why the last request could not be sampled; None if it could.
        tools: of the environment, for the protocol MCP; None for none.
        responses: the conversations of responses by their ids, on the wire that goes on from them.
    """

    def __init__(
        self,
        endpoint: AgentEndpoint,
        sampling: Sampling,
        *,
        max_requests: int,
        request_tokens: int | None,
        seed_key: Sequence[str | int],
    ) -> None:
        self._endpoint, self.sampling, self._seed_key = endpoint, sampling, tuple(seed_key)
        self.max_requests, self.request_tokens = max_requests, request_tokens or sampling.max_tokens
        # 192 bits, so that it cannot be guessed.
        self.base_url, self.api_key = endpoint.base_url, secrets.token_urlsafe(24)
        self.requests = self.tokens = self.refused = 0
        self.ignored: Counter[str] = Counter()
        self.truncated = False
        self.failed: SamplingFailed | None = None
        self.tools: EpisodeTools | None = None
        self.responses: dict[str, list[Message]] = {}
        self.closed = False
        self._conversations = Conversations()
        self._reserved = 0  # tokens that requests under way may still take
        self._asked: Counter[bytes] = Counter()
        self._under_way, self._since, self._spent_s = 0, time.monotonic(), 0.0
        self._lock = threading.Lock()  # over `closed` and the conversations
        self._answer = ""
        self.pending: set[Future[object]] = set()

    @property
    def answer(self) -> str:
        """The text of the completion that was finished last; "" before the first."""
        return self._answer

    @property
    def completions(self) -> int:
        """Number of finished completions."""
        return len(self._conversations.exchanges)

    @property
    def own_s(self) -> float:
        """Wall seconds of the agent's own since its last completion, or since `start`; 0 while it
        waits for one."""
        return 0.0 if self._under_way else time.monotonic() - self._since

    @property
    def never_ends(self) -> bool:
        """True once the agent has sent many requests beyond its budget."""
        return self.refused > _MOST_REFUSED

    def rollout(self, task: Task, score: Score | None) -> Rollout:
        """The episode's tokens, with a score; `rollout.branches` has the rows beyond the first.

        Args:
            task: what the agent worked on.
            score: of the episode; None if it has none yet.

        Raises:
            UsageError: the episode is not closed yet.
        """
        if not self.closed:
            raise UsageError(
                "this episode is still open, and its agent may ask again; close it first"
            )
        version = self._endpoint.sampler.version
        return self._conversations.rollout(task, score, version, truncated=self.truncated)

    def close(self) -> None:
        """Refuse the key from now on, and abort what is under way.  Idempotent."""
        self._endpoint.forget(self)

    def end(self) -> None:
        """Take no further completion; `close` calls this."""
        with self._lock:
            # Closed under the lock; futures are cancelled outside, as they call back.
            self.closed = True
        for future in list(self.pending):
            future.cancel()

    def start(self) -> None:
        """The agent's own time begins now."""
        self._since = time.monotonic()

    @contextmanager
    def asking(self, *, renews: bool = True) -> Iterator[None]:
        """The time inside is not the agent's own.

        Args:
            renews: whether the agent's own time begins anew, if the inside does not raise.
        """
        if not self._under_way:
            # Only the first of parallel requests stops the clock.
            self._spent_s = time.monotonic() - self._since
        self._under_way += 1
        try:
            yield
            self._spent_s = 0.0 if renews else self._spent_s
        finally:
            self._under_way -= 1
            self._since = time.monotonic() - self._spent_s

    def orders(self, request: ChatRequest) -> list[_Order]:
        """One order for each completion of a request.

        Args:
            request: the request.

        Raises:
            Refused: the budget of requests is used up.
        """
        if self.requests + request.choices > self.max_requests:
            raise self._beyond(
                "budget",
                f"this episode has asked for {self.requests} of its {self.max_requests} "
                f"completions; end it",
            )
        self.requests += request.choices
        self.ignored.update(request.ignored)
        return [_Order(self, request) for _ in range(request.choices)]

    def _beyond(self, limit: str, what: str) -> Refused:
        self.refused += 1
        self.truncated = True
        return Refused(400, limit, what)

    # ---------------------------------------------------------------------- in the sampler's thread

    def limit_of(self, asking: Asking, most: int | None) -> int:
        """Most tokens of a completion; they are reserved.  0: it has to wait for one that is under
        way.

        Args:
            asking: the request.
            most: what was asked for; None for any number.

        Raises:
            Refused: no token is left, or the conversation is as long as the model has positions.
        """
        positions: int | None = getattr(self._endpoint.sampler, "positions", None)
        room = self.sampling.max_tokens if positions is None else positions - len(asking.context)
        if room < 1:
            raise self._beyond(
                "context_length_exceeded",
                f"the conversation has {len(asking.context)} tokens and the model {positions} "
                f"positions; shorten it",
            )
        left = self.sampling.max_tokens - self.tokens
        if left < 1:
            raise self._beyond(
                "budget", f"this episode has used its {self.sampling.max_tokens} tokens; end it"
            )
        # Parallel requests share the budget: what others may take is not free.
        free = left - self._reserved
        if free < 1:
            return 0
        limit = min(free, room, self.request_tokens, most or free)
        self._reserved += limit
        return limit

    def release(self, reserved: int) -> None:
        """Return what was reserved.

        Args:
            reserved: tokens.
        """
        self._reserved -= reserved

    def seed(self, context: TokenIds, given: int | None) -> int:
        """A seed that does not depend on the order in which parallel requests arrive.

        Args:
            context: the request's tokens.
            given: the agent's own seed.
        """
        digest = blake2b(repr((tuple(map(int, context)), given)).encode(), digest_size=16).digest()
        # The count makes equal requests draw different numbers.
        self._asked[digest] += 1
        return rollout_seed(*self._seed_key, digest.hex(), self._asked[digest])

    def begin(self, sampler: Sampler, request: ChatRequest) -> Asking:
        """The tokens of a request.

        Args:
            sampler: encodes them.
            request: the request.
        """
        return self._conversations.begin(sampler, request.messages, request.tools)

    def take(self, asking: Asking, reply: Message, sample: Sample, sampling: Sampling) -> None:
        """Record a completion.

        Args:
            asking: the request.
            reply: the message that the agent gets.
            sample: the completion.
            sampling: the settings that it was sampled with.
        """
        with self._lock:
            # Closed meanwhile: its agent will not read it.
            if self.closed:
                return
            self._conversations.add(asking, assistant_message(reply), sample, sampling)
            self.tokens += len(sample.completion_ids)
            self.failed = None
            self._answer = sample.text
            self.truncated = self.truncated or self.tokens >= self.sampling.max_tokens


@dataclass(slots=True, eq=False)
class _Answer:
    """A completion as the agent is told of it."""

    message: Message
    sample: Sample
    logprobs: list[JsonDict] | None


class _Order:
    """One completion of an agent's request, see `rlvr.agents.sampling.Order`."""

    def __init__(self, episode: AgentEpisode, request: ChatRequest) -> None:
        self._episode, self._request = episode, request
        self._asking: Asking | None = None
        self._reserved = 0
        self._sampling = replace(episode.sampling, stop=(*episode.sampling.stop, *request.stop))

    def request(self, id: int) -> Request | None:
        episode, sampler = self._episode, self._episode._endpoint.sampler
        if episode.closed:
            raise _gone()
        if self._asking is None:
            self._asking = episode.begin(sampler, self._request)
        self._reserved = episode.limit_of(self._asking, self._request.most)
        if not self._reserved:
            return None
        context = self._asking.context
        return Request(
            id, context, self._sampling, episode.seed(context, self._request.seed), self._reserved
        )

    def finished(self, sample: Sample) -> _Answer:
        assert self._asking is not None
        episode, sampler = self._episode, self._episode._endpoint.sampler
        self.dropped()
        message = as_message(sampler, sample, self._request.tools, episode.completions)
        episode.take(self._asking, message, sample, self._sampling)
        logprobs = None
        if self._request.logprobs:
            texts = [sampler.decode([token]) for token in sample.completion_ids]
            logprobs = [
                {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
                for text, value in zip(texts, map(float, sample.logprobs), strict=True)
            ]
        return _Answer(message, sample, logprobs)

    def dropped(self) -> None:
        self._episode.release(self._reserved)
        self._reserved = 0


def as_message(
    sampler: Sampler, sample: Sample, tools: Sequence[Mapping[str, object]], number: int
) -> dict[str, object]:
    """A completion as a message of the assistant.

    Args:
        sampler: that sampled it.
        sample: the completion.
        tools: that the model may call; without any, its text is taken as it is.
        number: of the completion in its episode, for ids of calls.
    """
    if not tools:
        return {"role": "assistant", "content": sample.text}
    parse = getattr(sampler, "parse", None)
    if parse is None:
        policy_turn: PolicyTurn = read_turn_of("hermes", sample.text)
    else:
        policy_turn = parse(sample.completion_ids, tools)
        policy_turn = replace(
            policy_turn, text=beginning_of(sampler, sample.prompt_ids) + policy_turn.text
        )
    # the agent sees what the policy wrote, and makes of it what it will
    # A call that cannot be read stays text.
    if any(call.fault for call in policy_turn.calls):
        return {"role": "assistant", "content": sample.text}
    message: dict[str, object] = {"role": "assistant", "content": policy_turn.text}
    if policy_turn.calls:
        message |= {
            "content": policy_turn.text or None,
            "tool_calls": [
                _call_as_json(call, number, i) for i, call in enumerate(policy_turn.calls)
            ],
        }
    return message


def _call_as_json(call: Ask, number: int, index: int) -> dict[str, object]:
    """A call as the API has it.  Some templates want ids of nine letters and digits."""
    function = {
        "name": call.name,
        # The API has the arguments as JSON in a text.
        "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
    }
    return {"id": call.id or f"c{number:04d}{index:04d}", "type": "function", "function": function}


def _gone() -> Refused:
    return Refused(401, "unauthorized", "this episode is over, or there was none with this key")


class AgentEndpoint(Closing):
    """The endpoint, see above.  Close it, or use it as a context manager.

    Args:
        sampler: makes the completions, in a thread of this object.  Before it is synced or used
            elsewhere, close all episodes and call `settle`.
        host: address to listen on.  The default can be reached from this machine alone; agents in
            containers or on other machines need another one.
        port: 0 for any that is free.
        name: of the model, for agents that ask.
        limits: sizes and times that requests must keep to.

    Attributes:
        base_url: where the API begins, such as http://127.0.0.1:41234/v1.

    Raises:
        UsageError: the address cannot be listened on.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        name: str = "policy",
        limits: HttpLimits | None = None,
    ) -> None:
        self.sampler, self.name = sampler, name
        self.limits = limits or HttpLimits()
        self._episodes: dict[bytes, AgentEpisode] = {}
        self._numbers = itertools.count(1)
        # Each request needs a key that cannot be guessed.
        listening = listen(host, port, beyond_this_machine=True)
        self.base_url = f"{url_of(listening)}/v1"
        self._http = HttpState(self.limits, _EpisodeKeys(self._episodes))
        routes = [
            Route("POST", "/v1/chat/completions", self._chat),
            Route("POST", "/v1/responses", self._responses),
            Route("POST", "/v1/messages", self._messages),
            Route("POST", "/v1/mcp", self._tools),
            Route("GET", "/v1/models", self._models),
            Route("GET", "/v1/models/{name}", self._model),
        ]
        app = Application(self._http, routes, errors=_error, refusal_of=_refusal_of)
        self._server = ServerThread(app, listening, "agents-http")
        self._samples = SamplerThread(sampler)

    def open(
        self,
        *,
        sampling: Sampling,
        max_requests: int = 64,
        request_tokens: int | None = None,
        seed_key: Sequence[str | int] = (),
    ) -> AgentEpisode:
        """Begin an episode.

        Args:
            sampling: how completions are sampled, whatever the agent asks for; `max_tokens` is for
                all of them together.  An agent may add stop texts, and ask for fewer tokens.
            max_requests: most completions.
            request_tokens: most tokens of one completion; None for what the episode has left.
                Until it is finished, a request holds all tokens that it may take, so parallel ones
                wait for each other without this.
            seed_key: with a request's tokens, it seeds each completion.

        Raises:
            UsageError: a number is out of range, or the endpoint is closed.
        """
        require_whole("max_requests", max_requests, 1)
        if request_tokens is not None:
            require_whole("request_tokens", request_tokens, 1)
        if self._samples.error is not None:
            raise self._samples.error
        episode = AgentEpisode(
            self,
            sampling,
            max_requests=max_requests,
            request_tokens=request_tokens,
            seed_key=seed_key,
        )
        self._episodes[episode.api_key.encode()] = episode
        return episode

    @property
    def error(self) -> BaseException | None:
        """What the sampler failed with, so that nothing can be sampled any more; None while it
        works."""
        return self._samples.error

    def settle(self) -> None:
        """Wait until the requests of closed episodes are aborted."""
        self._samples.settle()

    def ask(self, order: _Order) -> Future[Any]:
        """Have a completion sampled.

        Args:
            order: of an episode.
        """
        return self._samples.ask(order)

    def forget(self, episode: AgentEpisode) -> None:
        """Refuse the key of an episode from now on, see `AgentEpisode.close`.

        Args:
            episode: of this endpoint.
        """
        self._episodes.pop(episode.api_key.encode(), None)
        episode.end()

    def close(self) -> None:
        """End all episodes, the server and the sampler's thread; the sampler is free again.
        Idempotent."""
        for episode in list(self._episodes.values()):
            episode.close()
        self._samples.close()
        self._server.close()
        self._http.close()

    # ------------------------------------------------------------------------------------- requests

    async def _models(self, request: HttpRequest) -> Response:
        return json_response({"object": "list", "data": [self._describe()]})

    async def _model(self, request: HttpRequest) -> Response:
        if request.path["name"] != self.name:
            message = f"there is no model {request.path['name'][:100]!r}; this is {self.name!r}"
            raise Refused(404, "model_not_found", message)
        return json_response(self._describe())

    def _describe(self) -> dict[str, object]:
        return {"id": self.name, "object": "model", "created": 0, "owned_by": "rlvr"}

    async def _chat(self, request: HttpRequest) -> Response:
        body = await self._http.bodies.read(request)
        return _Completion(self, request.caller, ChatWire(body.asked))

    async def _responses(self, request: HttpRequest) -> Response:
        body, episode = await self._http.bodies.read(request), request.caller
        return _Completion(self, episode, ResponsesWire(body.asked, episode.responses))

    async def _messages(self, request: HttpRequest) -> Response:
        body = await self._http.bodies.read(request)
        return _Completion(self, request.caller, MessagesWire(body.asked))

    async def _tools(self, request: HttpRequest) -> Response:
        """The environment's tools, by MCP."""
        body, episode = await self._http.bodies.read(request), request.caller
        if episode.tools is None:
            raise Refused(404, "no-tools", "this episode has no tools of an environment")
        with episode.asking(renews=False):
            answer = await asyncio.to_thread(episode.tools.answer, body.asked)
        return WholeResponse(b"", 202) if answer is None else json_response(answer)

    def head(self, request: ChatRequest) -> JsonDict:
        """The beginning of an answer.

        Args:
            request: that is answered.
        """
        return {
            "id": f"chatcmpl-{next(self._numbers)}",
            "created": int(time.time()),
            "model": request.model,
        }


class _EpisodeKeys:
    """The keys of open episodes, see `rlvr.http.keys.KeyCheck`."""

    any, challenge = True, "Bearer"
    refusal = "this episode is over, or there was none with this key"

    def __init__(self, episodes: Mapping[bytes, AgentEpisode]) -> None:
        self._episodes = episodes

    def caller(self, authorization: str) -> AgentEpisode | None:
        return self._episodes.get(given_key(authorization) or b"")


class _Completion:
    """Samples what an agent asks for, and sends it in one piece or as server-sent events."""

    def __init__(self, endpoint: AgentEndpoint, episode: AgentEpisode, wire: Wire) -> None:
        self._endpoint, self._episode = endpoint, episode
        self._wire, self._request = wire, wire.request
        self.status = 499

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = PieceWriter(scope, send, self._endpoint.limits.stall_s)
        try:
            with self._episode.asking():
                await self._complete(receive, writer)
        except (Refused, RlvrError) as error:
            # Never the refusal as a local here: see `Application._refusal`.
            body = _body_of(error) if writer.began else None
            if body is None:
                raise
            # The status is sent already: the error is the last event.
            await writer.write(b"event: error\ndata: %s\n\n" % body, more=False)
        finally:
            if writer.began:
                self.status = 200

    async def _complete(self, receive: Receive, writer: PieceWriter) -> None:
        episode = self._episode
        pending = [self._endpoint.ask(order) for order in episode.orders(self._request)]
        episode.pending.update(pending)
        answers = asyncio.gather(*map(asyncio.wrap_future, pending))
        try:
            async with while_connected(receive):
                if self._request.stream:
                    await self._send_stream(answers, writer)
                else:
                    await self._send_whole(await answers, writer)
        except SamplingFailed as error:
            episode.failed = error
            raise
        except asyncio.CancelledError:
            if episode.closed:
                raise _gone() from None
            raise
        finally:
            answers.cancel()  # which reaches the sampler; what is done stays as it is
            episode.pending.difference_update(pending)

    async def _send_whole(self, answers: Sequence[_Answer], writer: PieceWriter) -> None:
        head = self._endpoint.head(self._request)
        body = json_bytes(self._wire.whole(head, _choices(answers), _usage(answers)))
        length = (b"content-length", b"%d" % len(body))
        await writer.begin((b"content-type", b"application/json"), length, _NOT_KEPT)
        await writer.write(body, more=False)

    async def _send_stream(self, asked: asyncio.Future[list[_Answer]], writer: PieceWriter) -> None:
        """The answer as events; what is refused within the first seconds has a status of its
        own."""
        await asyncio.wait([asked], timeout=_STILL_S)
        if asked.done():
            asked.result()  # raises before anything is sent
        await writer.begin((b"content-type", b"text/event-stream"), _NOT_KEPT)
        while not asked.done():
            await writer.write(b": sampling\n\n")
            await asyncio.wait([asked], timeout=_STILL_S)
        answers = asked.result()
        head = self._endpoint.head(self._request)
        for event in self._wire.events(head, _choices(answers), _usage(answers)):
            await writer.write(event)
        await writer.write(b"", more=False)


def _error(refused: Refused) -> WholeResponse:
    """An error in one form that clients of all wires read."""
    body = json.loads(openai_error(refused).body)
    return json_response({"type": "error", **body}, refused.status)


def _body_of(error: Refused | RlvrError) -> bytes | None:
    """What a caller is sent of an exception, None if it is a bug."""
    refused = error if isinstance(error, Refused) else _refusal_of(error)
    return None if refused is None else _error(refused).body


def _choices(answers: Sequence[_Answer]) -> list[dict[str, object]]:
    return [
        choice_of(index, answer.message, answer.sample, logprobs=answer.logprobs)
        for index, answer in enumerate(answers)
    ]


def _usage(answers: Sequence[_Answer]) -> dict[str, int]:
    prompt, completion_tokens = (
        len(answers[0].sample.prompt_ids),
        sum(len(answer.sample.completion_ids) for answer in answers),
    )
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt + completion_tokens,
    }


def _refusal_of(error: Exception) -> Refused | None:
    """An exception as an answer: what the request asks for cannot be done, or the sampler failed;
    None for a bug."""
    if isinstance(error, UsageError):
        return Refused(400, "bad-request", str(error))
    if isinstance(error, SamplingFailed):
        return Refused(502, "sampling-failed", str(error))
    return None
