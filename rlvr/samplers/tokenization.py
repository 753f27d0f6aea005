"""Prompts to tokens, and completions to text; the same for the policy and its samplers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from rlvr.environment.call_formats import FORMATS, read_arguments, read_turn_of
from rlvr.episode import Ask, PolicyTurn, read_turn
from rlvr.errors import UsageError, brief, foreign_code
from rlvr.samplers.chat import ChatFormat, ChatMode, ChatSettings
from rlvr.samplers.template import TURN, Template, common_prefix
from rlvr.types import JsonDict, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["HERMES_TEMPLATE", "TokenSampler", "Tokenization", "end_token_ids"]

_PROBE: Final = {"text": 'a "b"', "number": 7, "items": [1, "x"], "yes": True}
_PROBE_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "number": {"type": "integer"},
                "items": {"type": "array", "items": {}},
                "yes": {"type": "boolean"},
            },
            "required": [],
        },
    },
}

HERMES_TEMPLATE: Final = """
{{- bos_token or '' }}
{%- if tools %}system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}You may call these functions:
{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}A call is <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>{{ eos_token }}
{% endif %}
{%- for message in messages %}
{%- if message.role != 'system' or not (tools and loop.first) %}{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\
</tool_call>
{%- endfor %}{{ eos_token }}
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}assistant
{% endif %}"""
"""A chat template with tools, in the manner of Hermes, for tokenizers that have none: set
`tokenizer.chat_template`."""


class Tokenization:
    """A tokenizer, the chat template and the end tokens of a policy.

    Args:
        tokenizer: of transformers.
        end_ids: tokens that end a completion; where prompts go through the chat template, the token
            with which it ends a turn is added.
        chat: how text prompts are sent.  "on" makes one user message of the chat template of each;
            one that begins with the template's own tokens is taken as it is.  "off" takes all as
            they are, with the special tokens that the tokenizer puts around them.  "auto": on if
            the tokenizer has a template.  Chat messages always use the template.

    Attributes:
        format: how prompts are sent.

    Raises:
        UsageError: `chat` asks for what the tokenizer does not have.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: Iterable[int],
        *,
        chat: ChatSettings | ChatMode | bool = "auto",
    ) -> None:
        self.tokenizer, self.end_ids = tokenizer, frozenset(end_ids)
        settings = ChatSettings.of(chat)
        self._asked = settings
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if not has_template and settings.mode == "on":
            raise UsageError(
                "chat is on, and this tokenizer has no chat template; set one, or say chat off"
            )
        if not has_template or settings.mode == "off":
            if settings.system is not None or settings.options:
                what = "system" if settings.system is not None else "a template option"
                raise UsageError(
                    f"{what} is given, and this tokenizer has no chat template; leave it out"
                )
            why = settings.why or ("" if has_template else "the tokenizer has no chat template")
            self.format = ChatFormat("raw", end_tokens=tuple(self._end_texts), why=why)
            return
        template = self.template
        self.end_ids |= self._template_end_ids
        self.format = ChatFormat(
            "template",
            template=template.digest,
            system=settings.system,
            options=dict(settings.options),
            added_system=template.added_system,
            beginning=template.beginning,
            end_tokens=tuple(self._end_texts),
            why=settings.why,
        )

    @cached_property
    def template(self) -> Template:
        """The tokenizer's chat template.

        Raises:
            UsageError: it has none.
        """
        if not getattr(self.tokenizer, "chat_template", None):
            raise UsageError(
                "the prompt is chat messages and this tokenizer has no chat template; use text "
                "prompts"
            )
        settings = self._asked
        return Template(self.tokenizer, system=settings.system, options=settings.options)

    @property
    def chat(self) -> bool:
        """Whether text prompts go through the chat template."""
        return self.format.sent == "template"

    @property
    def closing_id(self) -> int:
        """The token that ends a completion which was not sampled.

        Raises:
            UsageError: there is no end token.
        """
        if self.chat and self._template_end_ids:
            # The template's, as the policy sees turns end.
            return min(self._template_end_ids)
        eos = self.tokenizer.eos_token_id
        if eos is None and not self.end_ids:
            raise UsageError(
                "the model has no end token, so that no completion can end; set eos_token in its "
                "tokenizer"
            )
        return int(min(self.end_ids) if eos is None else eos)

    def goes_as_it_is(self, prompt: Prompt) -> bool:
        """Whether a text begins with the chat template's own tokens, and so is not put into it.

        Args:
            prompt: a text or chat messages.
        """
        return self.chat and isinstance(prompt, str) and prompt.startswith(self.template.starts)

    def encode(
        self,
        prompt: Prompt,
        after: Sequence[int] = (),
        *,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> list[int]:
        """The tokens of a prompt, or those that an environment's reply adds to a conversation.

        Args:
            prompt: a text or chat messages.
            after: the tokens of the conversation so far; empty for a first prompt.  After
                something, chat messages come with the template's tokens that end the open turn
                (unless `after` has its end token already) and begin the next.  A text is then taken
                as it is, and so is a user's message without a chat template.
            tools: schemas of the tools that the policy may call.  The template shows them with the
                first prompt, whose text is then one user message.

        Raises:
            UsageError: chat messages without a chat template, a prompt without any token, or a chat
                template that does not show tools.
        """
        if after:
            return self._encode_after(prompt, after)
        if isinstance(prompt, str) and not tools and self.goes_as_it_is(prompt):
            ids = self._ids(prompt, special=False)
            bos = self.tokenizer.bos_token_id
            # Some tokenizers add it by themselves.
            if self.template.begins_with_bos and ids[:1] != [bos]:
                ids = [bos, *ids]  # as before the template's own prompts, and not twice
        elif isinstance(prompt, str) and not tools and not self.chat:
            ids = self._ids(prompt, special=True)
        else:
            if tools:
                self._require_tools()
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            messages = self.template.first_messages(messages)
            ids = self.template.ids(self.template.render(messages, tools))
        if not ids:
            raise UsageError(
                f"the prompt {brief(prompt)} has no tokens; give a text, or a tokenizer that "
                f"begins with one"
            )
        return ids

    def _encode_after(self, prompt: Prompt, after: Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            return self._ids(prompt, special=False)
        if not self.chat and [message["role"] for message in prompt] == ["user"]:
            return self._ids(str(prompt[0]["content"]), special=False)
        ids = self._ids(self._rendered_after(prompt), special=False)
        # Llama ends a turn with calls by another token than its template; that of the policy stays
        # alone.
        replies = prompt[0]["role"] == "tool"
        # The policy has written its end token already: the template's is not written again.
        ended = bool(ids) and (ids[0] == after[-1] or (replies and after[-1] in self.end_ids))
        return ids[1:] if ended and ids[0] in self.end_ids else ids

    def encode_reply(self, text: str, prompt_ids: Sequence[int]) -> list[int]:
        """The tokens of a reply that was not sampled, without what the template began it with.

        Args:
            text: the reply, with or without `beginning`.
            prompt_ids: the tokens before it.
        """
        return self._ids(text.removeprefix(self.beginning(prompt_ids)), special=False)

    def beginning(self, context: Sequence[int]) -> str:
        r"""The text with which the template began the reply after these tokens, such as
        "<think>\n".

        It is a part of the reply that the policy did not sample; "" for none.

        Args:
            context: all tokens before those that were sampled.
        """
        if not getattr(self.tokenizer, "chat_template", None) or not self.template.beginning:
            return ""
        opening = self.template.opening_ids
        # Only if these tokens end with the template's opening: a context may be raw.
        opened = list(context[-len(opening) :]) == opening
        return self.template.beginning if opened else ""

    def parse(
        self, completion_ids: Sequence[int], tools: Sequence[Mapping[str, object]]
    ) -> PolicyTurn:
        """A turn of the policy with its calls, as the chat template writes them.

        Args:
            completion_ids: its tokens.
            tools: schemas of the tools.

        Raises:
            UsageError: no format is known in which this template writes calls.
        """
        # End tokens are no part of the text; other special tokens may be of a call.
        content_ids = [token for token in completion_ids if token not in self.end_ids]
        text = str(
            self.tokenizer.decode(
                content_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )
        if self._call_format:
            turn = read_turn_of(self._call_format, text, tools)
            return turn if turn.calls else PolicyTurn(self._answer(turn.text, completion_ids))
        message = self.tokenizer.parse_response(list(completion_ids), prefix="", tools=list(tools))
        return read_turn(message, read_arguments)

    def _answer(self, text: str, completion_ids: Sequence[int]) -> str:
        """The text of a turn without calls: of formats with channels the last one, else all but
        special tokens."""
        if self._call_format == "gemma" and "<channel|>" in text:
            text = text.rpartition("<channel|>")[2]
            return self.decode(self._ids(text, special=False))
        return text if self._call_format == "harmony" else self.decode(completion_ids)

    @cached_property
    def _call_format(self) -> str:
        """The name of the format in which the chat template writes calls; "" where its response
        template reads them.

        It is the first whose reader gives back the call that the template wrote.
        """
        conversation = [{"role": "user", "content": "?"}, _calling([Ask("probe", _PROBE)])]
        written = self.template.render(conversation, [_PROBE_TOOL], prompt=False)
        begun = self.template.render(conversation[:1], [_PROBE_TOOL])
        # Some templates write an earlier turn in another way than the open one.
        turn = (
            written.removeprefix(begun)
            if written.startswith(begun)
            else written[common_prefix(written, begun) :]
        )
        for name in FORMATS:
            for text in (turn, turn.partition(">assistant")[2]):
                read_back = read_turn_of(name, self._without_end(text), [_PROBE_TOOL])
                if [(call.name, dict(call.arguments), call.fault) for call in read_back.calls] == [
                    ("probe", _PROBE, "")
                ]:
                    return name
        if getattr(self.tokenizer, "response_template", None) is not None:
            return ""
        raise UsageError(
            "this tokenizer's chat template writes calls of tools in a format that is not known, "
            "for example "
            f"{brief(turn)}; set tokenizer.response_template, or chat_template = "
            f"rlvr.samplers.HERMES_TEMPLATE"
        )

    def _without_end(self, text: str) -> str:
        """A rendered turn up to its end token."""
        places = [text.find(end) for end in self._end_texts]
        return text[: min((at for at in places if at >= 0), default=len(text))]

    @cached_property
    def _template_end_ids(self) -> frozenset[int]:
        """The token with which the chat template ends a turn of the policy, if it is one token."""
        text = self.template.end_text
        ids = self._ids(text, special=False) if text else []
        # More than one token ends a turn by text, which sampling does not look for.
        return frozenset(ids if len(ids) == 1 else ())

    @property
    def _end_texts(self) -> list[str]:
        texts = [
            self.tokenizer.decode([token], skip_special_tokens=False)
            for token in sorted(self.end_ids)
        ]
        return [text for text in texts if text]

    def _require_tools(self) -> None:
        if not getattr(self.tokenizer, "chat_template", None):
            raise UsageError(
                "the environment has tools, and this tokenizer has no chat template; set "
                "tokenizer.chat_template = rlvr.samplers.HERMES_TEMPLATE, or use a model that was "
                "trained for tools"
            )
        if not self._shows_tools:
            raise UsageError(
                "the environment has tools, and this tokenizer's chat template does not show them; "
                "set tokenizer.chat_template = rlvr.samplers.HERMES_TEMPLATE, or use a model that "
                "was trained for tools"
            )

    @cached_property
    def _shows_tools(self) -> bool:
        # The probe's name is in no template of its own.
        return "probe" in self.template.render([{"role": "user", "content": "?"}], [_PROBE_TOOL])

    def decode(self, completion_ids: Sequence[int]) -> str:
        """The text of a completion's tokens, or of its first ones, without end tokens and other
        special tokens.

        Args:
            completion_ids: the tokens.
        """
        content_ids = [token for token in completion_ids if token not in self.end_ids]
        return str(
            self.tokenizer.decode(
                content_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def end_ids_with(self, stop: Iterable[str]) -> frozenset[int]:
        """Tokens that end a completion: the end tokens, and the stop texts that are special tokens.

        Args:
            stop: stop texts.  Decoded text has no special tokens, so these are recognised by their
                ids.
        """
        added = self.tokenizer.get_added_vocab()
        return self.end_ids | {added[text] for text in stop if text in added}

    def _ids(self, text: str, *, special: bool) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def _rendered_after(self, messages: Sequence[Any]) -> str:
        """What the template writes after the policy's turn, found by rendering a conversation with
        a known turn."""
        if messages[0]["role"] == "tool":
            messages = [self._harmless(message) for message in messages]
            if self._writes_calls:
                return self._rendered_after_calls(messages)
        earlier = [{"role": "user", "content": "?"}, {"role": "assistant", "content": TURN}]
        # The last place at which it stands is the turn itself.
        _, marker, ending = self.template.render([*earlier, *messages]).rpartition(TURN)
        if not marker:
            raise UsageError(
                "the chat template leaves out earlier turns of the assistant; it cannot continue a "
                "chat"
            )
        return ending

    @cached_property
    def _writes_calls(self) -> bool:
        """Whether the template shows calls of earlier turns; else a reply follows a turn as any
        message does."""
        conversation = [{"role": "user", "content": "?"}, _calling([Ask("probe", {"x": TURN})])]
        return TURN in self.template.render(conversation, prompt=False)

    def _rendered_after_calls(self, messages: Sequence[Mapping[str, object]]) -> str:
        """The same after a turn with calls: what follows the end token of a known turn with calls
        of these tools."""
        calls = [
            Ask(
                str(message.get("name") or "tool"),
                {"x": TURN},
                id=str(message.get("tool_call_id") or ""),
            )
            for message in messages
        ]
        rendered = ""
        for calls_tried in (calls, calls[-1:]):  # some templates take one call in a turn
            with foreign_code() as errors:  # the template's, or jinja's
                rendered = self.template.render(
                    [{"role": "user", "content": "?"}, _calling(calls_tried), *messages]
                )
                break
        for error in errors:
            # Both ways failed: the template takes no replies of tools.
            raise UsageError(f"the chat template refuses replies of tools: {error}") from error
        rendered = rendered.rpartition(TURN)[2]
        ends = [(at, text) for text in self._end_texts if (at := rendered.find(text)) >= 0]
        if not ends:
            raise UsageError(
                "the chat template does not end a turn with calls by an end token of the policy "
                f"({', '.join(map(repr, self._end_texts))}); add the token that does to the "
                "generation config's eos_token_id"
            )
        return rendered[min(ends)[0] :]

    def _harmless(self, message: Mapping[str, object]) -> dict[str, object]:
        """A reply of a tool in which no text is a special token, so that it cannot end its own
        message."""
        content = str(message["content"])
        for text in self._special_texts:
            if text in content:
                # A space behind its first sign: what the reply says can still be read.
                content = content.replace(text, f"{text[0]} {text[1:]}")
        return {**message, "content": content}

    @cached_property
    def _special_texts(self) -> list[str]:
        """Texts that become one token of their own, the longest first."""
        return sorted(
            (text for text in self.tokenizer.get_added_vocab() if len(text) > 2),
            key=len,
            reverse=True,
        )


class TokenSampler:
    """What samplers that send and get tokens have in common: texts are made
    here, by one tokenization.

    Attributes:
        tokenization: prompts to tokens, and back.
    """

    tokenization: Tokenization

    def encode(
        self, prompt: Prompt, after: Sequence[int] = (), *, tools: Sequence[Any] = ()
    ) -> list[int]:
        """See `Tokenization.encode`."""
        return self.tokenization.encode(prompt, after, tools=tools)

    def parse(self, completion_ids: Sequence[int], tools: Sequence[Any]) -> PolicyTurn:
        """See `Tokenization.parse`."""
        return self.tokenization.parse(completion_ids, tools)

    def beginning(self, context: Sequence[int]) -> str:
        """See `Tokenization.beginning`."""
        return self.tokenization.beginning(context)

    def decode(self, completion_ids: Sequence[int]) -> str:
        """See `Tokenization.decode`."""
        return self.tokenization.decode(completion_ids)


def _calling(calls: Sequence[Ask]) -> JsonDict:
    """A turn of the assistant with calls."""
    tool_calls = [
        {
            # Nine signs, as Mistral's template asks for.
            "id": call.id or "c00000000",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]
    return {"role": "assistant", "content": "", "tool_calls": tool_calls}


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens that end a completion: those of the model's generation config, and the tokenizer's.

    Args:
        model: of transformers.
        tokenizer: of transformers.
    """
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = {
        tokenizer.eos_token_id,
        *(configured if isinstance(configured, Iterable) else [configured]),
    }
    return sorted(token for token in ids if token is not None)
