"""The wire format of chat completions: what a request may ask for, and what it is answered with.

What would change the distribution that tokens are drawn from is not the agent's to choose, since
training needs to know it: `temperature` and its like are ignored, and so are wishes for a form of
the answer, which nothing enforces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlvr.errors import brief
from rlvr.http.refused import Refused
from rlvr.samplers.protocol import Sample
from rlvr.types import JsonDict, JsonObject, Message
from rlvr.validate import is_whole

__all__ = [
    "ChatRequest",
    "assistant_message",
    "bad_request",
    "chat_response",
    "choice_of",
    "chunks",
    "read_request",
]

_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_IGNORED: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
)
_FORMS: Final = (
    "functions",
    "function_call",
    "prediction",
    "audio",
    "guided_json",
    "guided_regex",
    "guided_choice",
)
# One request may not fill the sampler for all others; OpenAI's limit is 128.
_MOST_CHOICES: Final = 64
# OpenAI takes 4; each is looked for after every token.
_MOST_STOPS: Final = 16


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request, checked.

    Attributes:
        messages: for the chat template: arguments of calls are objects, replies of tools carry the
            tool's name.
        tools: schemas, as they were sent; empty if the model is not to call any.
        stop: texts that end a completion.
        most: most tokens of a completion; None for what the episode has left.
        choices: number of completions.
        seed: of the agent; None if it gave none.
        stream: whether the answer comes in pieces.
        usage: whether these end with the counts of tokens.
        logprobs: whether the log-probabilities are wanted.
        model: the name that was asked for; any will do.
        ignored: names of settings that were sent and have no effect.
    """

    messages: Sequence[Message]
    tools: Sequence[JsonObject]
    stop: tuple[str, ...]
    most: int | None
    choices: int
    seed: int | None
    stream: bool
    usage: bool
    logprobs: bool
    model: str
    ignored: tuple[str, ...]


def read_request(asked: Mapping[str, object]) -> ChatRequest:
    """A request from the JSON object of its body.

    Args:
        asked: the object.

    Raises:
        Refused: it cannot be answered as it asks.
    """
    for name in _FORMS:
        if asked.get(name) is not None:
            raise bad_request(
                name, "is not served: nothing here makes the model keep to it; leave it out"
            )
    tools = asked.get("tools") or []
    if not (isinstance(tools, list) and all(map(_is_tool, tools))):
        raise bad_request(
            "tools", "must be a list of {'type': 'function', 'function': {'name': …}}"
        )
    choice = asked.get("tool_choice")
    if asked.get("top_logprobs"):
        raise bad_request(
            "top_logprobs", "is not served; the log-probabilities of the sampled tokens are"
        )
    limit = asked.get("max_completion_tokens")
    options = asked.get("stream_options")
    return ChatRequest(
        messages=_messages(asked.get("messages")),
        tools=() if choice == "none" else tools,
        stop=_stop(asked.get("stop")),
        most=_whole("max_tokens", asked.get("max_tokens") if limit is None else limit, 1),
        choices=_whole("n", asked.get("n"), 1, _MOST_CHOICES) or 1,
        seed=_whole("seed", asked.get("seed"), -(2**63), 2**64),
        stream=asked.get("stream") is True,
        usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        logprobs=asked.get("logprobs") is True,
        model=str(asked.get("model") or "policy")[:200],
        ignored=_ignored_settings(asked),
    )


def _ignored_settings(asked: Mapping[str, object]) -> tuple[str, ...]:
    """Settings without effect, and wishes for a form of the answer, which nothing enforces."""
    names = [name for name in _IGNORED if asked.get(name) is not None]
    form = asked.get("response_format")
    if form is not None and form != {"type": "text"}:
        names.append("response_format")
    if asked.get("tool_choice") not in (None, "auto", "none"):
        names.append("tool_choice")
    return tuple(names)


def bad_request(name: str, what: str) -> Refused:
    """The refusal of a request.

    Args:
        name: of its field.
        what: is wrong with it.
    """
    return Refused(400, name.replace(" ", "-"), f"{name} {what}")


def _is_tool(tool: object) -> bool:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        return False
    function = tool.get("function")
    return isinstance(function, Mapping) and isinstance(function.get("name"), str)


def _whole(name: str, value: object, least: int, most: int = 2**31) -> int | None:
    if value is None:
        return None
    if not is_whole(value) or not least <= value <= most:
        raise bad_request(
            name, f"is {brief(value)}; it must be a whole number from {least} to {most}"
        )
    return int(value)


def _stop(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value or []
    if (
        not isinstance(texts, list)
        or len(texts) > _MOST_STOPS
        or not all(isinstance(t, str) and t for t in texts)
    ):
        raise bad_request(
            "stop",
            f"is {brief(value)}; it must be a text, or a list of at most {_MOST_STOPS} texts",
        )
    return tuple(texts)


def _messages(value: object) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise bad_request(
            "messages", f"is {brief(value)}; it must be a list of messages, at least one"
        )
    names: dict[str, str] = {}  # of the tools that were called, by the id of the call
    messages = [_message(number, message, names) for number, message in enumerate(value)]
    if messages[-1]["role"] == "assistant":
        raise bad_request(
            "messages", "end with one of the assistant; end them with one of the user or of a tool"
        )
    return messages


def _message(number: int, message: object, names: dict[str, str]) -> Message:
    where = f"messages[{number}]"
    if (
        not isinstance(message, Mapping)
        or not isinstance(message.get("role"), str)
        or message["role"] not in _ROLES
    ):
        raise bad_request(
            where, f"is {brief(message)}; it needs a role, one of {', '.join(_ROLES)}"
        )
    role = _ROLES[message["role"]]
    result: dict[str, object] = {"role": role, "content": _content(where, message.get("content"))}
    if role == "assistant" and message.get("tool_calls"):
        result["tool_calls"] = [_call(where, call, names) for call in message["tool_calls"]]
    if role == "tool":
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise bad_request(
                where,
                f"has the tool_call_id {brief(call_id)}; it must be that of the call that it "
                f"answers",
            )
        result["tool_call_id"] = call_id
        name = names.get(call_id, message.get("name"))
        if isinstance(name, str):
            result["name"] = name
    return result


def assistant_message(message: Message) -> Message:
    """The assistant's message of an answer as it is read when the agent sends it back.

    Args:
        message: of a choice.
    """
    return _message(0, message, {})


def _content(where: str, content: object) -> str:
    """Text, or the texts of a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise bad_request(
            where,
            f"has the content {brief(content)}; it must be a text, or a list of parts with texts",
        )
    for part in content:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            raise bad_request(where, f"has the part {brief(part)}; only texts are served")
    return "".join(part["text"] for part in content)


def _call(where: str, call: Any, names: dict[str, str]) -> dict[str, object]:
    """A call of the assistant; templates write arguments from an object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise bad_request(where, f"has the call {brief(call)}; it needs a function with a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except (ValueError, RecursionError):
            read = arguments  # as the model wrote it
        arguments = read if isinstance(read, dict) else arguments
    call_id = call.get("id")
    if isinstance(call_id, str):
        names[call_id] = function["name"]
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


# ------------------------------------------------------------------------------------------ answers


def chat_response(
    head: Mapping[str, object], choices: Sequence[Mapping[str, object]], usage: Mapping[str, int]
) -> dict[str, object]:
    """The answer as one object.

    Args:
        head: its id, time and model.
        choices: as `choice_of` makes them.
        usage: counts of tokens.
    """
    return {**head, "object": "chat.completion", "choices": list(choices), "usage": dict(usage)}


def chunks(
    head: Mapping[str, object],
    choices: Sequence[JsonObject],
    usage: Mapping[str, int] | None,
) -> list[JsonDict]:
    """The answer in pieces: for each choice its role, its content, its calls, and why it ended;
    then the counts.

    Args:
        head: see `chat_response`.
        choices: see `chat_response`.
        usage: None if they are not wanted.
    """
    head = {**head, "object": "chat.completion.chunk"}
    choices_of_chunks = []
    for choice in choices:
        message, index = choice["message"], choice["index"]
        deltas: list[JsonDict] = [{"role": "assistant", "content": message["content"] or ""}]
        for number, call in enumerate(message.get("tool_calls") or ()):
            deltas.append({"tool_calls": [{"index": number, **call}]})
        choices_of_chunks += [
            {"index": index, "delta": delta, "finish_reason": None} for delta in deltas
        ]
        choices_of_chunks[-len(deltas)]["logprobs"] = choice["logprobs"]
        choices_of_chunks.append(
            {"index": index, "delta": {}, "finish_reason": choice["finish_reason"]}
        )
    pieces = [{**head, "choices": [choice_chunk]} for choice_chunk in choices_of_chunks]
    return pieces if usage is None else [*pieces, {**head, "choices": [], "usage": dict(usage)}]


def choice_of(
    index: int, message: Message, sample: Sample, *, logprobs: Sequence[Mapping[str, object]] | None
) -> dict[str, object]:
    """A choice of an answer.

    Args:
        index: its number.
        message: of the assistant.
        sample: the completion that it is made of.
        logprobs: of its tokens; None if they are not wanted.
    """
    reason = "length" if sample.truncated else "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "index": index,
        "message": message,
        "finish_reason": reason,
        "logprobs": None if logprobs is None else {"content": list(logprobs), "refusal": None},
    }
