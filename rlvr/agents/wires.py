"""Three forms of one request: Chat Completions, Responses and Anthropic's Messages.

A wire reads its own form into a `ChatRequest` and writes the answer in its own form, whole or as
events.  What the policy is asked is the same on each, so that a conversation that changes its wire
stays one row of tokens.  https://platform.openai.com/docs/api-reference/responses,
https://docs.claude.com/en/api/messages
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from rlvr.agents.messages import ChatRequest, bad_request, chat_response, chunks, read_request
from rlvr.errors import brief
from rlvr.http.responses import json_bytes
from rlvr.types import JsonDict, Message

__all__ = ["ChatWire", "MessagesWire", "ResponsesWire", "Wire"]

_Object = Mapping[str, Any]


class Wire(Protocol):
    """A form of requests and answers.

    Attributes:
        request: as it was read.
    """

    request: ChatRequest

    def whole(self, head: _Object, choices: Sequence[_Object], usage: Mapping[str, int]) -> _Object:
        """The answer as one object; `head` has its id, time and model."""

    def events(
        self, head: _Object, choices: Sequence[_Object], usage: Mapping[str, int]
    ) -> Iterator[bytes]:
        """The answer as server-sent events."""


class ChatWire:
    """Chat Completions.

    Args:
        asked: the JSON object of the body.

    Raises:
        Refused: it cannot be answered as it asks.
    """

    def __init__(self, asked: _Object) -> None:
        self.request = read_request(asked)

    def whole(self, head: _Object, choices: Sequence[_Object], usage: Mapping[str, int]) -> _Object:
        return chat_response(head, choices, usage)

    def events(
        self, head: _Object, choices: Sequence[_Object], usage: Mapping[str, int]
    ) -> Iterator[bytes]:
        for piece in chunks(head, choices, usage if self.request.usage else None):
            yield b"data: %s\n\n" % json_bytes(piece)
        yield b"data: [DONE]\n\n"


def _event(kind: str, value: _Object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), json_bytes({"type": kind, **value}))


def _one_of(name: str, value: object, kinds: Mapping[str, object] | Sequence[str]) -> str:
    if not isinstance(value, str) or value not in kinds:
        raise bad_request(name, f"is {brief(value)}; served are {', '.join(kinds)}")
    return value


def _objects(name: str, value: object) -> list[_Object]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise bad_request(name, f"is {brief(value)}; it must be a list of objects")
    return value


def _mapping(name: str, value: object) -> _Object:
    if value is not None and not isinstance(value, Mapping):
        raise bad_request(name, f"is {brief(value)}; it must be an object")
    return value or {}


def _text_of(name: str, value: object, kinds: Sequence[str]) -> str:
    """A text, or the texts of a list of parts of these types."""
    if value is None or isinstance(value, str):
        return value or ""
    parts = _objects(name, value)
    for part in parts:
        _one_of(f"a part of {name}", part.get("type"), kinds)
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _call(id: object, name: object, arguments: object) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"id": id, "type": "function", "function": function}


class _Told:
    """Chat messages that are being read; calls go to the assistant's message before them."""

    def __init__(self) -> None:
        self.messages: list[JsonDict] = []
        self._takes_calls = False

    def say(self, role: str, content: str) -> None:
        self.messages.append({"role": role, "content": content})
        self._takes_calls = role == "assistant"

    def call(self, call: dict[str, object]) -> None:
        if not self._takes_calls:
            self.say("assistant", "")
        self.messages[-1].setdefault("tool_calls", []).append(call)

    def reply(self, id: object, content: str) -> None:
        self.messages.append({"role": "tool", "tool_call_id": id, "content": content})
        self._takes_calls = False


# ---------------------------------------------------------------------------------------- Responses

_SPOKEN: Final = ("text", "input_text", "output_text", "refusal")
_WISHES: Final = ("reasoning", "text", "tool_choice")  # of a form, that nothing enforces


class ResponsesWire:
    """OpenAI's Responses.

    Args:
        asked: the JSON object of the body.
        known: the conversations of the episode's earlier responses, by their ids; this one's is
            added.

    Raises:
        Refused: it cannot be answered as it asks, or it goes on from a response that this episode
            does not have.
    """

    def __init__(self, asked: _Object, known: dict[str, list[Message]]) -> None:
        self._known, self._asked = known, asked
        transcript, instructions = _Told(), asked.get("instructions")
        before = asked.get("previous_response_id")
        if before is not None and (not isinstance(before, str) or before not in known):
            raise bad_request(
                "previous_response_id", f"is {brief(before)}; this episode has no such response"
            )
        raw_input = asked.get("input")
        items = (
            [{"role": "user", "content": raw_input}] if isinstance(raw_input, str) else raw_input
        )
        for item in _objects("input", items):
            self._read(item, transcript)
        self._said: list[Message] = [*(known[before] if before else ()), *transcript.messages]
        system = [{"role": "system", "content": instructions}] if instructions else []
        form = _mapping("text", asked.get("text")).get("format")
        kind = _mapping("text.format", form).get("type", "text")
        request = {
            "messages": [*system, *self._said],
            "tools": [_function(tool) for tool in _objects("tools", asked.get("tools") or [])],
            "tool_choice": asked.get("tool_choice"),
            "response_format": None if kind == "text" else form,
            "max_completion_tokens": asked.get("max_output_tokens"),
            **{name: asked.get(name) for name in ("temperature", "top_p", "stream", "model")},
        }
        self.request = read_request(request)

    @staticmethod
    def _read(item: _Object, told: _Told) -> None:
        kinds = ("message", "function_call", "function_call_output", "reasoning")
        match _one_of("the type of an item of input", item.get("type", "message"), kinds):
            case "message":
                text = _text_of("content", item.get("content"), _SPOKEN)
                told.say(str(item.get("role")), text)
            case "function_call":
                told.call(_call(item.get("call_id"), item.get("name"), item.get("arguments")))
            case "function_call_output":
                told.reply(item.get("call_id"), _text_of("output", item.get("output"), _SPOKEN))

    def whole(self, head: _Object, choices: Sequence[_Object], usage: Mapping[str, int]) -> _Object:
        message, cut = choices[0]["message"], choices[0]["finish_reason"] == "length"
        name = f"resp_{head['id']}"
        self._known[name] = [*self._said, message]
        request = self._asked
        return {
            "id": name,
            "object": "response",
            "created_at": head["created"],
            "model": head["model"],
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "output": _items(name, message),
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            "instructions": request.get("instructions"),
            "previous_response_id": request.get("previous_response_id"),
            "tools": request.get("tools") or [],
            "tool_choice": request.get("tool_choice") or "auto",
            "parallel_tool_calls": True,
            "temperature": request.get("temperature"),
            "top_p": request.get("top_p"),
            "max_output_tokens": request.get("max_output_tokens"),
            "metadata": request.get("metadata") or {},
            "text": {"format": {"type": "text"}},
        }

    def events(
        self, head: _Object, choices: Sequence[_Object], usage: Mapping[str, int]
    ) -> Iterator[bytes]:
        done = self.whole(head, choices, usage)
        begun = {**done, "status": "in_progress", "output": [], "usage": None}
        pieces: list[tuple[str, _Object]] = [("response.created", {"response": begun})]
        for number, item in enumerate(done["output"]):
            pieces += _pieces(number, item)
        pieces.append((f"response.{done['status']}", {"response": done}))
        for number, (kind, value) in enumerate(pieces):
            yield _event(kind, {**value, "sequence_number": number})


def _function(tool: _Object) -> dict[str, object]:
    """A tool of the policy's own side; those that OpenAI hosts are not served."""
    if tool.get("type") != "function":
        raise bad_request("tools", f"has {brief(dict(tool))}; only functions are served")
    function = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    return {"type": "function", "function": function}


def _items(name: str, message: Message) -> list[dict[str, object]]:
    """The output of a response: its text, then its calls."""
    items: list[JsonDict] = []
    calls = message.get("tool_calls") or ()
    if message["content"] or not calls:
        part: dict[str, object] = {
            "type": "output_text",
            "text": message["content"] or "",
            "annotations": [],
        }
        message_item = {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        items.append({"id": name.replace("resp", "msg", 1), **message_item})
    for number, call in enumerate(calls):
        call_item = {"call_id": call["id"], "status": "completed", **call["function"]}
        items.append({"id": f"fc_{number}_{name}", "type": "function_call", **call_item})
    return items


def _pieces(number: int, item: _Object) -> list[tuple[str, dict[str, object]]]:
    """The events of an item of the output."""
    extra: dict[str, object] = {}
    events: list[tuple[str, dict[str, object]]]
    place = {"item_id": item["id"], "output_index": number}
    if item["type"] == "function_call":
        begun, content = {**item, "arguments": "", "status": "in_progress"}, item["arguments"]
        kind = "function_call_arguments"
        last = {"arguments": content, "name": item["name"]}
    else:
        part, place = item["content"][0], {**place, "content_index": 0}
        begun, content = {**item, "content": [], "status": "in_progress"}, part["text"]
        kind, extra, last = "output_text", {"logprobs": []}, {"text": content, "logprobs": []}
    events = [("response.output_item.added", {"output_index": number, "item": begun})]
    if item["type"] == "message":
        empty = {**item["content"][0], "text": ""}
        events.append(("response.content_part.added", {**place, "part": empty}))
    events.append((f"response.{kind}.delta", {**place, "delta": content, **extra}))
    events.append((f"response.{kind}.done", {**place, **last}))
    if item["type"] == "message":
        events.append(("response.content_part.done", {**place, "part": item["content"][0]}))
    return [*events, ("response.output_item.done", {"output_index": number, "item": dict(item)})]


# ----------------------------------------------------------------------------------------- Messages

_ENDS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessagesWire:
    """Anthropic's Messages.

    Args:
        asked: the JSON object of the body.

    Raises:
        Refused: it cannot be answered as it asks.
    """

    def __init__(self, asked: _Object) -> None:
        transcript = _Told()
        if system := _text_of("system", asked.get("system"), ("text",)):
            transcript.say("system", system)
        for message in _objects("messages", asked.get("messages")):
            self._read(message, transcript)
        kind = _mapping("tool_choice", asked.get("tool_choice")).get("type")
        request = {
            "messages": transcript.messages,
            "tools": [_own_tool(tool) for tool in _objects("tools", asked.get("tools") or [])],
            "tool_choice": kind if kind in ("auto", "none") else kind and "required",
            "stop": asked.get("stop_sequences"),
            **{name: asked.get(name) for name in ("temperature", "top_p", "top_k", "stream")},
            **{name: asked.get(name) for name in ("max_tokens", "model")},
        }
        read = read_request(request)
        wishes = ("thinking",) if asked.get("thinking") else ()
        self.request = replace(read, ignored=(*read.ignored, *wishes))

    @staticmethod
    def _read(message: _Object, told: _Told) -> None:
        role, content = message.get("role"), message.get("content")
        _one_of("the role of a message", role, ("user", "assistant", "system"))
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kinds = ("text", "tool_use", "tool_result", "thinking", "redacted_thinking")
        texts, blocks = [], _objects("content", blocks)
        for block in blocks:
            match _one_of("the type of a block", block.get("type"), kinds):
                case "text":
                    texts.append(str(block.get("text") or ""))
                case "tool_result":
                    text = _text_of("tool_result", block.get("content"), ("text",))
                    told.reply(block.get("tool_use_id"), text)
        if texts or role != "user":
            told.say(str(role), "".join(texts))
        for block in blocks:
            if block["type"] == "tool_use":
                arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
                told.call(_call(block.get("id"), block.get("name"), arguments))

    def whole(self, head: _Object, choices: Sequence[_Object], usage: Mapping[str, int]) -> _Object:
        message, reason = choices[0]["message"], choices[0]["finish_reason"]
        calls = message.get("tool_calls") or ()
        content = [{"type": "text", "text": message["content"]}] if message["content"] else []
        return {
            "id": f"msg_{head['id']}",
            "type": "message",
            "role": "assistant",
            "model": head["model"],
            "content": [*content, *map(_tool_use, calls)],
            "stop_reason": _ENDS[reason],
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
            },
        }

    def events(
        self, head: _Object, choices: Sequence[_Object], usage: Mapping[str, int]
    ) -> Iterator[bytes]:
        done = self.whole(head, choices, usage)
        begun = {**done, "content": [], "stop_reason": None}
        yield _event("message_start", {"message": begun})
        for number, block in enumerate(done["content"]):
            empty: dict[str, object] = {"text": ""}
            if block["type"] == "text":
                delta = {"type": "text_delta", "text": block["text"]}
            else:
                text = json.dumps(block["input"], ensure_ascii=False)
                empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": text}
            start = {"index": number, "content_block": {**block, **empty}}
            yield _event("content_block_start", start)
            yield _event("content_block_delta", {"index": number, "delta": delta})
            yield _event("content_block_stop", {"index": number})
        ended = {"stop_reason": done["stop_reason"], "stop_sequence": None}
        yield _event("message_delta", {"delta": ended, "usage": done["usage"]})
        yield _event("message_stop", {})


def _own_tool(tool: _Object) -> dict[str, object]:
    """A tool of the agent's own; those that Anthropic hosts are not served."""
    if tool.get("type", "custom") != "custom" or "input_schema" not in tool:
        raise bad_request("tools", f"has {brief(dict(tool))}; only tools of your own are served")
    function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
    described = {"description": tool["description"]} if "description" in tool else {}
    return {"type": "function", "function": {**function, **described}}


def _tool_use(call: _Object) -> dict[str, object]:
    function = call["function"]
    arguments = json.loads(function["arguments"])
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}
