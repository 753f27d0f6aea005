"""What a tokenizer's chat template writes around messages, found by rendering known ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from rlvr.data.tokens import PromptFrame
from rlvr.errors import UsageError, brief, foreign_code
from rlvr.types import JsonDict, Message
from rlvr.validate import nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["TURN", "Template", "common_prefix"]

TURN: Final = "8f14e45fceea167a"
"""Stands for a turn in a template, which does not trim or change it."""

_OPENED: Final = re.compile(r"<[^<>\s]*$")  # a token's text that was cut within
_TAG: Final = re.compile(r"\s*<\w+>")  # as of a thought
_RESERVED: Final = frozenset(
    "messages tools documents add_generation_prompt continue_final_message tokenize".split()
)


class Template:
    """The chat template of a tokenizer, with the system prompt and the options that it is given.

    Args:
        tokenizer: of transformers, with a chat template.
        system: text of a system message before prompts that have none; None for no such message.
        options: variables of the template, such as {"enable_thinking": False}.

    Raises:
        UsageError: the template has no such option, or refuses or leaves out system messages.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        system: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self._tokenizer, self.system, self.options = tokenizer, system, dict(options or {})
        for name in self.options:
            self._require_option(name)
        if system is not None:
            self._require_system(system)

    @cached_property
    def source(self) -> str:
        """The template itself, in Jinja; of several, the one that is used without tools."""
        return str(self._tokenizer.get_chat_template())

    @cached_property
    def digest(self) -> str:
        """The first 16 digits of the template's SHA-256."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    def render(
        self,
        messages: Sequence[Message | Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] = (),
        *,
        prompt: bool = True,
    ) -> str:
        """What the template writes for these messages, special tokens included.

        Args:
            messages: in order.
            tools: schemas of the tools that are shown.
            prompt: begin a turn of the assistant behind them.
        """
        options: JsonDict = {"tools": [dict(tool) for tool in tools]} if tools else {}
        return str(
            self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=prompt,
                **options,
                **self.options,
            )
        )

    def first_messages(self, messages: Sequence[Message]) -> list[Message]:
        """The messages of a first prompt, with the system message where they have none.

        Args:
            messages: of the prompt.
        """
        if self.system is None or messages[0]["role"] == "system":
            return list(messages)
        return [{"role": "system", "content": self.system}, *messages]

    def ids(self, text: str) -> list[int]:
        """The tokens of a rendered text; the template has written its special tokens itself.

        Args:
            text: as the template wrote it.
        """
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def beginning(self) -> str:
        r"""The text with which the template begins every reply, such as "<think>\n"; "" for none.

        A template opens the assistant's turn with its header.  What it adds behind that is part of
        the reply, which the model did not sample.  The header is what stands before a turn of the
        assistant that is given: of a turn with another one behind it too, since some templates put
        an empty thought into the last turn.
        """
        conversation = self.render(_ASK, prompt=False)
        opening = self._opening_text
        tried = [self._try_render([*_ASK, _SAID]), self._try_render([*_ASK, _SAID, *_ASK])]
        # What stands between the question and the turn: the header of the assistant.
        heads = [
            text[common_prefix(text, conversation) :].partition(TURN)[0]
            for text in tried
            if text is not None and TURN in text
        ]
        if not heads:
            return ""
        # The least that any given turn has in common with the opening is the header.
        cut = min(common_prefix(opening, head) for head in heads)
        if cut == 0 and not _TAG.match(opening):
            return ""  # turns have no header but this one, such as ":"
        opened = _OPENED.search(opening[:cut])
        # A header may end within a tag that the reply's beginning shares, such as "<".
        ending = opening[cut if opened is None else opened.start() :]
        return self._plain(ending) if ending.strip() else ""

    @cached_property
    def opening_ids(self) -> list[int]:
        """The tokens with which the template opens a turn of the assistant, `beginning`
        included."""
        closed = self.ids(self.render(_ASK, prompt=False))
        opened = self.ids(self.render(_ASK))
        # What the opened conversation has beyond the closed one.
        return opened[common_prefix(opened, closed) :]

    @cached_property
    def end_text(self) -> str:
        """The special token that ends a turn of the assistant; "" where the template writes
        none."""
        text = self._try_render([*_ASK, _SAID]) or ""
        # Only white space may stand between the turn and the token.
        ending = text.rpartition(TURN)[2].lstrip()
        return next((token for token in self._special_texts if ending.startswith(token)), "")

    @cached_property
    def starts(self) -> tuple[str, ...]:
        """What a text that was put into the template before begins with, such as "<|im_start|>"."""
        starts = set[str]()
        for role in ("user", "system"):
            message = [{"role": role, "content": TURN}, *(_ASK if role == "system" else ())]
            head, marker, _ = (self._try_render(message) or "").partition(TURN)
            # Trimmed, changed or refused: nothing can be told of its header.
            if not marker:
                continue
            bos = self._tokenizer.bos_token
            if bos and head.startswith(bos):  # of SmolLM2 it is the token that opens a turn
                head = head.removeprefix(bos)
                starts.add(bos)
            token = next(
                (special for special in self._special_texts if head.startswith(special)), None
            )
            if token is not None:
                starts.add(token)
            elif (mark := head.strip())[:1] and not mark[0].isalnum():  # words may begin any text
                starts.add(mark)
        return tuple(sorted(start for start in starts if len(start) > 1))

    @cached_property
    def added_system(self) -> str:
        """The system prompt that the template adds to a prompt without one; "" for none."""
        head = (self._try_render([_TURN_OF_USER]) or "").partition(TURN)[0]
        head = head.removeprefix(self._tokenizer.bos_token or "")
        later = self._try_render([*_ASK, _SAID, _TURN_OF_USER]) or ""
        between = later.partition(TURN)[2].rpartition(TURN)[0]  # ends as the user's header does
        # From the right: the user's header is the same in both.
        shared = common_prefix(head[::-1], between[::-1])
        text = self._plain(head[: len(head) - shared]).strip()
        return text.removeprefix("system").strip()

    @cached_property
    def frame(self) -> PromptFrame:
        """What is written around a text prompt."""
        messages = self.first_messages([_TURN_OF_USER])
        # The last place: a system prompt of the user may hold the text as well.
        before, _, after = self.render(messages).rpartition(TURN)
        return PromptFrame(before, after, self.starts)

    @cached_property
    def begins_with_bos(self) -> bool:
        """Whether the template writes the token that begins a text."""
        bos = self._tokenizer.bos_token
        return bool(bos) and self.render(_ASK).startswith(bos)

    @cached_property
    def _opening_text(self) -> str:
        conversation, opened = self.render(_ASK, prompt=False), self.render(_ASK)
        return opened[common_prefix(opened, conversation) :]

    @cached_property
    def _special_texts(self) -> list[str]:
        """Texts that become one token of their own, the longest first."""
        tokenizer = self._tokenizer
        texts = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens}
        return sorted((text for text in texts if text.strip()), key=len, reverse=True)

    def _plain(self, text: str) -> str:
        """A rendered text as completions are decoded: without special tokens."""
        return str(
            self._tokenizer.decode(
                self.ids(text), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def _try_render(self, messages: Sequence[Mapping[str, object]]) -> str | None:
        """A rendered conversation without system prompt; None where the template refuses it."""
        with foreign_code():  # the template's, or jinja's
            return self.render(messages, prompt=False)
        return None

    def _require_option(self, name: str) -> None:
        if name in _RESERVED:
            raise UsageError(f"template option {name}: it is set by rlvr; leave it out")
        # As a word of the template's source: Jinja says
        # nothing of a variable that it does not read.
        if not re.search(rf"\b{re.escape(name)}\b", self.source):
            option_names = sorted(set(re.findall(r"\b[a-z]+_[a-z_]+\b", self.source)) - _RESERVED)
            raise UsageError(
                f"template option {name}: this tokenizer's chat template does not read it"
                f"{nearest(name, option_names)}; leave it out"
            )

    def _require_system(self, system: str) -> None:
        try:
            text = self.render([{"role": "system", "content": system}, *_ASK])
        except Exception as error:
            raise UsageError(
                f"system is {brief(system)}, and this tokenizer's chat template refuses system "
                f"messages ({error}); leave it out, or put the text into the prompts"
            ) from error
        # Some templates drop system messages without an error.
        if system.strip() not in text:
            raise UsageError(
                f"system is {brief(system)}, and this tokenizer's chat template leaves out system "
                "messages; leave it out, or put the text into the prompts"
            )


_ASK: Final = ({"role": "user", "content": "?"},)
_SAID: Final = {"role": "assistant", "content": TURN}
_TURN_OF_USER: Final = {"role": "user", "content": TURN}


def common_prefix(first: Sequence[object], second: Iterable[object]) -> int:
    """The length of what both begin with.

    Args:
        first, second: texts, or lists of tokens.
    """
    length = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        length += 1
    return length
