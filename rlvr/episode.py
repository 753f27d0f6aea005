"""The record of an episode with tools: what the policy wrote, what it called, and what it was told.

A record is plain data that JSON can hold.  An environment's `verify` reads it and nothing else, so
that a recorded episode can be verified again without running a tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rlvr.errors import DataError, brief

__all__ = [
    "Ask",
    "EpisodeRecord",
    "EpisodeTurn",
    "PolicyTurn",
    "ToolCall",
    "read_turn",
    "reply_message",
]

_ENDS: Final = ("answer", "turns", "tokens", "positions")


@dataclass(frozen=True, slots=True)
class Ask:
    """A call as the policy wrote it, before it is made.

    Attributes:
        name: of the tool; "" if it could not be read.
        arguments: by name; empty if they could not be read.
        fault: why it cannot be read; "" if it can.
        id: that the policy gave the call; "" for none.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class PolicyTurn:
    """A turn of the policy, read.

    Attributes:
        text: what it wrote beside its calls.
        calls: in their order; none makes the turn an answer.
    """

    text: str
    calls: tuple[Ask, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, and its reply.

    Attributes:
        name: of the tool, as the policy wrote it.
        arguments: by name, as the policy wrote them; empty if they could not be read.
        reply: what the policy was told.
        error: True if the reply says what was wrong with the call; it then begins with "error: ".
        id: of the call within the episode.
        seconds: wall seconds that it took; 0 for a call that was refused.
    """

    name: str
    arguments: Mapping[str, Any]
    reply: str
    error: bool = False
    id: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EpisodeTurn:
    """A turn of the policy, and what followed it.

    Attributes:
        text: what the policy wrote beside its calls.
        calls: with their replies, in order.
        user: the simulated user's message after it; None for none.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    user: str | None = None


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """All that happened in an episode with tools.

    Attributes:
        turns: of the policy, in order.
        end: how it ended: "answer", a turn without a call; "turns", the last turn that is allowed
            made calls; "tokens", the policy used up its tokens; "positions", no room was left in
            the model's context.
        final: what the environment's `final` read from the state at the end, or its `grade` found;
            None by default.
        outputs: files that remain of the episode, by path; those that are no UTF-8 as "base64:…".
        fault: why there are no outputs, which is the policy's doing and makes the episode WRONG; ""
            otherwise.
    """

    turns: tuple[EpisodeTurn, ...]
    end: str = "answer"
    final: Any = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""

    @property
    def answer(self) -> str:
        """The text of the last turn; "" if that turn made a call, or there was none."""
        return self.turns[-1].text if self.turns and not self.turns[-1].calls else ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls, in order."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def messages(self) -> list[dict[str, object]]:
        """What followed the prompt, as chat messages in the form of OpenAI's API."""
        all_messages: list[dict[str, object]] = []
        for turn in self.turns:
            assistant: dict[str, object] = {"role": "assistant", "content": turn.text}
            if turn.calls:
                assistant["tool_calls"] = [_call_as_message(call) for call in turn.calls]
            all_messages += [assistant, *map(reply_message, turn.calls)]
            if turn.user is not None:
                all_messages.append({"role": "user", "content": turn.user})
        return all_messages

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return {
            "turns": [
                {
                    "text": turn.text,
                    "calls": [_call_as_dict(call) for call in turn.calls],
                    "user": turn.user,
                }
                for turn in self.turns
            ],
            "end": self.end,
            "final": self.final,
            **({"outputs": dict(self.outputs)} if self.outputs else {}),
            **({"fault": self.fault} if self.fault else {}),
        }

    @staticmethod
    def from_dict(data: Any) -> EpisodeRecord:
        """The record that `as_dict` described.

        Args:
            data: what `as_dict` returned, or JSON of it.

        Raises:
            DataError: it is something else.
        """
        try:
            turns = tuple(
                EpisodeTurn(
                    str(turn["text"]),
                    tuple(_call_from(call) for call in turn["calls"]),
                    turn["user"],
                )
                for turn in data["turns"]
            )
            end = data["end"]
            if end not in _ENDS:
                raise ValueError(f"end {brief(end)}")
            outputs, fault = data.get("outputs") or {}, data.get("fault") or ""
            return EpisodeRecord(turns, end, data.get("final"), dict(outputs), str(fault))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"the episode {brief(data)} is no record of one ({type(error).__name__}: {error}); "
                "give what EpisodeRecord.as_dict returned"
            ) from None


def _call_as_dict(call: ToolCall) -> dict[str, object]:
    return {name: getattr(call, name) for name in ToolCall.__slots__} | {
        "arguments": dict(call.arguments)
    }


def _call_from(data: Mapping[str, Any]) -> ToolCall:
    call = ToolCall(**data)
    if not (
        isinstance(call.name, str)
        and isinstance(call.reply, str)
        and isinstance(call.arguments, Mapping)
    ):
        raise ValueError(f"call {brief(data)}")
    return call


def _call_as_message(call: ToolCall) -> dict[str, object]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": dict(call.arguments)},
    }


def reply_message(call: ToolCall) -> dict[str, object]:
    """The chat message with the reply to a call.

    Args:
        call: that was made.
    """
    return {"role": "tool", "name": call.name, "content": call.reply, "tool_call_id": call.id}


def read_turn(message: Mapping[str, Any], read: Any) -> PolicyTurn:
    """A turn of the policy from a chat message, whose calls are in OpenAI's form.

    Args:
        message: of the assistant.
        read: reads arguments that are a text; gives (arguments, fault).
    """
    calls: list[Ask] = []
    raw_calls: Sequence[Any] = message.get("tool_calls") or ()
    for raw_call in raw_calls:
        function = raw_call.get("function", raw_call)
        arguments, fault = function.get("arguments") or {}, ""
        if not isinstance(arguments, Mapping):
            arguments, fault = read(arguments)
        calls.append(
            Ask(str(function.get("name") or ""), arguments, fault, str(raw_call.get("id") or ""))
        )
    return PolicyTurn(str(message.get("content") or ""), tuple(calls))
