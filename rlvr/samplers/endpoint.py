"""Samples completions from a model behind an OpenAI-compatible HTTP endpoint; for evaluation.

    with EndpointSampler("https://host/v1", "some-model", key_env="HOST_KEY") as sampler:
        report = evaluate(env, sampler, sampling=Sampling(max_tokens=1024), limit=100)

An endpoint takes texts and gives texts.  So a "token" here is a number that carries its whole text:
a prompt is one for each message, and a completion one, followed by zeros up to the number of tokens
that the endpoint counted.  There are no log-probabilities, and nothing can be trained on.

The `openai` package keeps the connections, and sends again what was limited (429, after the time
that the endpoint asks for), what failed (408, 409, 5xx), what was cut off and what took too long.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal, NoReturn
from urllib.parse import parse_qsl, urlsplit

import openai

from rlvr.errors import SamplingFailed, ServiceFailed, UsageError, brief
from rlvr.samplers.protocol import (
    EndpointReply,
    Request,
    Sample,
    Sampling,
    TextToken,
    TokenIds,
    Tokenized,
)
from rlvr.types import JsonDict, Prompt
from rlvr.validate import is_whole, read_key, require_number, require_one_of, require_whole
from rlvr.workers import BoundedCalls
from rlvr.workers.closing import Closing
from rlvr.workers.loops import loop_thread, take_ready

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EndpointSampler"]

# For which a look waits for the first result, so that the caller's loop costs no core.
_POLL_S: Final = 0.05
_CUT: Final = ("length", "max_tokens", "content_filter")  # ways to end before the end
_LONGEST_PAUSE_S: Final = 120.0  # the longest that the client waits before it sends a request again
# A completion may take minutes, but a host that is there takes a connection at once.
_CONNECT_S: Final = 10.0
_MISSHAPEN: Final = 3  # attempts at an answer of another shape, which a proxy may have made or cut
_HOPELESS: Final = 8  # failed requests after which an endpoint that has never answered is given up
_OUTAGE: Final = 16  # the same for one that has answered; at least twice as many as are in flight


_TOOLS: Final = (
    "You may call these functions:\n{}\nA call is a JSON object in tags of its own: "
    '<tool_call>{{"name": NAME, "arguments": OBJECT}}</tool_call>. '
    "A message without a call is your answer."
)


def _as_spoken(message: Mapping[str, object]) -> dict[str, object]:
    """A message; a reply of a tool as one of the user."""
    if message["role"] != "tool":
        return dict(message)
    return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}


class EndpointSampler(Closing):
    """A `Sampler` for evaluation, see above.  Close it, or use it as a context manager.

    A request that fails for good gives a `SamplingFailed` in place of a sample, so that its rollout
    is UNSCORED and the others go on.  What concerns all requests is raised: a key or a name that is
    refused, an endpoint that cannot be reached or has stopped to answer.  The key is in no error.

    Args:
        url: where the API begins, such as https://api.openai.com/v1.
        model: its name there.
        key_env: name of the environment variable with the key; None for an endpoint without keys.
        api: "chat" sends messages, a text prompt as one of the user; "completions" sends texts to
            be continued.
        in_flight: most requests at a time, at most 1000.
        retries: how often a request is sent again.
        timeout_s: seconds without a byte of an answer after which a request is sent again.
        body: further parameters of every request; a value of None leaves the parameter of this name
            out.

    Raises:
        UsageError: a value cannot work, or there is no such environment variable.
    """

    version = 0

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_env: str | None = None,
        api: Literal["chat", "completions"] = "chat",
        in_flight: int = 32,
        retries: int = 6,
        timeout_s: float = 600.0,
        body: Mapping[str, object] | None = None,
    ) -> None:
        require_one_of("api", api, ("chat", "completions"))
        self.in_flight = require_whole("in_flight", in_flight, 1, 1000)
        self.retries = require_whole("retries", retries, 0)
        self.timeout_s = require_number("timeout_s", timeout_s, 0.001)
        if not (isinstance(model, str) and model):
            raise UsageError(
                f"model is {brief(model)}; give the name that the endpoint knows it by"
            )
        self.model, self.api, self.body = model, api, dict(body or {})
        self.url, query = _place(url)
        self._key_env, self._key = key_env, read_key(key_env)
        self._client = openai.AsyncOpenAI(
            base_url=self.url,
            api_key=self._key or "none",
            max_retries=self.retries,
            timeout=openai.Timeout(self.timeout_s, connect=min(_CONNECT_S, self.timeout_s)),
            default_query=query,
        )
        # `openai` reads OPENAI_ORG_ID and such by itself, which may belong to another endpoint.
        self._client.organization = self._client.project = None
        self._limit_name = "max_tokens"
        # answers so far; requests that failed since the last of them
        self._answers = self._failures = 0
        self._fatal: Exception | None = None
        self._asked: dict[Hashable, Future[Sample | SamplingFailed]] = {}
        self._done: SimpleQueue[tuple[Hashable, Future[Sample | SamplingFailed]]] = SimpleQueue()
        self._calls = BoundedCalls(self.in_flight, "sampler")

    def submit(self, request: Request) -> None:
        """See `Sampler.submit`.

        Args:
            request: what is asked for.

        Raises:
            UsageError: its context is not of this sampler's `encode`.
        """
        # 31 bits fit into a signed number of 32 bits.
        body = self._body_of(request.context, request.sampling) | {
            "seed": request.seed & 0x7FFFFFFF
        }
        future = self._calls.submit(self._sample_reply, request, body)
        self._asked[request.id] = future
        future.add_done_callback(lambda done: self._done.put((request.id, done)))

    def poll(self) -> list[tuple[Hashable, Sample | SamplingFailed]]:
        """See `Sampler.poll`.  Waits 50 ms at most.

        Raises:
            UsageError: the endpoint refuses the key or the model, or has no such address.
            ServiceFailed: it cannot be reached, or many requests failed, one after the other.
        """
        results: list[tuple[Hashable, Sample | SamplingFailed]] = []
        for name, future in take_ready(self._done, _POLL_S):
            if self._asked.get(name) is future:  # else it was dropped
                del self._asked[name]
                results.append((name, future.result()))
        if self._fatal is not None:
            raise self._fatal
        return results

    def abort(self, ids: Iterable[Hashable]) -> None:
        """See `Sampler.abort`.

        Args:
            ids: of requests.
        """
        for dropped in ids:
            if (future := self._asked.pop(dropped, None)) is not None:
                # An answer that still comes is ignored.
                future.cancel()

    def encode(
        self,
        prompt: Prompt,
        after: Sequence[int] = (),
        *,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> list[int]:
        """See `Sampler.encode`.  A text is a message of the user, or with the completions API a
        text.

        Tools stand in a message of the system, calls in <tool_call> tags, and replies in messages
        of the user: that works with every endpoint, also those that read no calls.

        Args:
            prompt: a text or chat messages.
            after: makes no difference.
            tools: schemas of the tools.

        Raises:
            UsageError: chat messages or tools for the completions API.
        """
        if isinstance(prompt, str) and not tools:
            return [TextToken({"role": "user", "content": prompt})]
        if self.api == "completions":
            raise UsageError(
                "the prompt is chat messages or has tools, and the completions API takes texts; "
                "use the chat API"
            )
        messages = (
            [{"role": "user", "content": prompt}]
            if isinstance(prompt, str)
            else [dict(message) for message in prompt]
        )
        if tools:
            tools_text = "\n".join(
                json.dumps(tool["function"], ensure_ascii=False) for tool in tools
            )
            messages = [{"role": "system", "content": _TOOLS.format(tools_text)}, *messages]
        return [TextToken(_as_spoken(message)) for message in messages]

    def decode(self, completion_ids: Sequence[int]) -> str:
        """See `Sampler.decode`.

        Args:
            completion_ids: the tokens.
        """
        return "".join(
            str(token.message["content"])
            for token in completion_ids
            if isinstance(token, TextToken)
        )

    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> NoReturn:
        """An endpoint cannot be trained.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self.url} cannot be given weights; train with a sampler of your own model"
        )

    def logprobs(self, rows: Sequence[Tokenized]) -> NoReturn:
        """An endpoint gives texts alone.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self.url} gives no log-probabilities of given tokens; use a sampler of your own "
            f"model"
        )

    def close(self) -> None:
        """Drop all requests and connections.  Idempotent."""
        self.abort(list(self._asked))
        if not self._client.is_closed():
            loop_thread("calls").call(self._disconnect)
        self._calls.close()

    async def _disconnect(self) -> None:
        await asyncio.sleep(0)  # what was dropped ends first
        await self._client.close()

    def _body_of(self, context: TokenIds, sampling: Sampling) -> dict[str, object]:
        parts = [token.message for token in context if isinstance(token, TextToken)]
        if not parts:
            raise UsageError(f"the context is {brief(context)}; make it with this sampler's encode")
        body: JsonDict = {"messages": parts}
        if self.api == "completions":
            body = {"prompt": "".join(str(part["content"]) for part in parts)}
        body |= {"model": self.model, "temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        # Not among OpenAI's parameters, but of vLLM and others; endpoints that do not know them
        # refuse the request.
        return body | {
            name: value for name in ("top_k", "min_p") if (value := getattr(sampling, name))
        }

    async def _sample_reply(
        self, request: Request, body: Mapping[str, object]
    ) -> Sample | SamplingFailed:
        """A sample, or why there is none."""
        if self._fatal is not None:
            return SamplingFailed("the endpoint was given up")
        try:
            reply = await self._reply(dict(body), request.limit)
        except SamplingFailed as error:
            self._failures += 1
            # While others are answered a failure is this request's own.
            limit = max(_OUTAGE, 2 * self.in_flight) if self._answers else _HOPELESS
            if self._failures >= limit:
                self._give_up(
                    ServiceFailed(
                        f"{self.url}: {self._failures} requests in a row failed, the last: {error}"
                    )
                )
            return error
        except (ServiceFailed, UsageError) as error:
            self._give_up(error)
            return SamplingFailed(str(error))
        self._answers, self._failures = self._answers + 1, 0
        # Four characters to a token are a guess.
        counted = (
            len(reply.text) // 4 if reply.completion_tokens is None else reply.completion_tokens
        )
        # At least one token, as a sample has; at most the limit, whatever was counted.
        length = max(1, min(counted, request.limit))
        return Sample(
            text=reply.text,
            prompt_ids=request.context,
            completion_ids=[
                TextToken({"role": "assistant", "content": reply.text}, reply),
                *[0] * (length - 1),
            ],
            logprobs=[float("nan")] * length,
            truncated=reply.finish in _CUT,
            weights_version=self.version,
        )

    def _give_up(self, error: Exception) -> None:
        self._fatal = self._fatal or error

    async def _reply(self, body: dict[str, object], limit: int) -> EndpointReply:
        """Ask until there is an answer that can be read.

        Raises:
            SamplingFailed: there will be none for this request.
            UsageError, ServiceFailed: there will be none for any.
        """
        attempt, misshapen = 0, 0
        while True:
            attempt, before = attempt + 1, self._answers
            # A URL with a slip in it should not take the time of all retries.
            client = (
                self._client
                if attempt > 1 or before
                else self._client.with_options(max_retries=min(1, self.retries))
            )
            # `body` of the user's wins, and None leaves a parameter out.
            fields = {self._limit_name: limit} | body | self.body
            fields = {name: value for name, value in fields.items() if value is not None}
            path = "/chat/completions" if self.api == "chat" else "/completions"
            try:
                async with asyncio.timeout(
                    (self.retries + 1) * (self.timeout_s + _LONGEST_PAUSE_S)
                ):
                    return _read(await client.post(path, body=fields, cast_to=object), self.api)
            except (openai.APITimeoutError, TimeoutError):
                raise SamplingFailed(
                    f"{self.url}: no answer within {self.timeout_s:g} s, each time it was asked"
                ) from None
            except openai.APIConnectionError as error:
                why = f"{self.url} cannot be reached: {self._safe(repr(error.__cause__ or error))}"
                if attempt == 1 and not self._answers:
                    raise ServiceFailed(f"{why}; is the URL right, and the service up?") from None
                raise SamplingFailed(why) from None
            except openai.APIStatusError as error:
                if not await self._may_ask_again(error, attempt, before):
                    raise self._refusal_of(error) from None
            except (_MisshapenError, ValueError, openai.APIError) as error:
                misshapen += 1
                if misshapen == min(_MISSHAPEN, self.retries + 1):
                    why = self._safe(str(error)) or type(error).__name__
                    raise SamplingFailed(f"{self.url}: an answer of another shape: {why}") from None
                await asyncio.sleep(0.5 * misshapen)

    async def _may_ask_again(self, error: openai.APIStatusError, attempt: int, before: int) -> bool:
        """Whether to ask once more after what the client has given up."""
        text = str(error)
        if error.status_code == 400 and "max_completion_tokens" in text and self.api == "chat":
            renamed, self._limit_name = self._limit_name == "max_tokens", "max_completion_tokens"
            # OpenAI's newer models want the other name; another request may have set it already.
            return renamed or attempt == 1
        if error.status_code == 429:
            pause = error.response.headers.get("retry-after", "")
            # Longer than the client would wait: given up.
            if pause.isdecimal() and float(pause) > _LONGEST_PAUSE_S:
                return False
            await asyncio.sleep(1)
            # Worth a try while other requests are answered.
            return self._answers > before or (attempt == 1 and not before and self.retries > 1)
        # The first attempt had one retry only.
        return error.status_code >= 500 and attempt == 1 and not before and self.retries > 1

    def _refusal_of(self, error: openai.APIStatusError) -> Exception:
        """What a status means that no retry has mended."""
        message = error.body.get("message") if isinstance(error.body, Mapping) else None
        why = (
            f"{self.url}: status {error.status_code}: "
            f"{self._safe(str(message or error.response.text or error))}"
        )
        # Only before the first answer: later a 404 may be a server that restarts.
        if error.status_code in (401, 403, 404) and not self._answers:
            key = (
                f"the variable {self._key_env} holds its key"
                if self._key_env
                else "no --key-env was given"
            )
            return UsageError(
                f"{why}. Asked for model {self.model!r}; {key}; the URL often ends in /v1"
            )
        if error.status_code in (400, 422):
            why += ". A parameter that the endpoint does not take is left out by --body NAME=null"
        return SamplingFailed(why)

    def _safe(self, text: str) -> str:
        """A text of the endpoint on one line, bounded, without the key."""
        # A key of a few letters may be a word of the message.
        text = text.replace(self._key, "[key]") if len(self._key) > 3 else text
        text = " ".join(text.split())
        return text if len(text) <= 400 else f"{text[:400]}…"


def _place(url: str) -> tuple[str, dict[str, str]]:
    """(where the API begins, parameters of the query)."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(
            f"the endpoint is {brief(url)}; write where its API begins, such as "
            f"http://127.0.0.1:8000/v1"
        )
    if parts.username or parts.password:
        raise UsageError(
            f"the endpoint on {host} is given with a password; keep it in a variable, for key_env"
        )
    # Addresses are often copied with the call behind them.
    path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/chat")
    return f"{parts.scheme}://{parts.netloc}{path}", dict(parse_qsl(parts.query))


class _MisshapenError(Exception):
    """An answer that is none of this API's."""


def _read(answer: object, api: str) -> EndpointReply:
    """What an answer says."""
    problem = partial(_MisshapenError, f"it is {brief(answer)}")
    if not isinstance(answer, Mapping):
        raise problem()
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, Mapping):
        raise _MisshapenError(f"it has no choices: {brief(answer.get('error') or dict(answer))}")
    message = choice.get("message") if api == "chat" else choice
    if not isinstance(message, Mapping):
        raise problem()
    text = message.get("content" if api == "chat" else "text")
    if isinstance(text, list):  # parts of texts, and of other things
        text = "".join(str(part.get("text", "")) for part in text if isinstance(part, Mapping))
    if text is None and api == "chat":
        # "" where all tokens went into the reasoning, or into a call of a tool.
        text = message.get("refusal") or ""
    if not isinstance(text, str):
        raise problem()
    usage, finish = answer.get("usage"), choice.get("finish_reason")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return EndpointReply(
        text,
        finish if isinstance(finish, str) else None,
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
        reasoning if isinstance(reasoning, str) else None,
    )


def _count(usage: object, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, Mapping) else None
    return int(count) if is_whole(count) and count >= 0 else None
