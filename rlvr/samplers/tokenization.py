"""Prompts to tokens and completions to text, as the policy and its samplers both do it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rlvr.errors import UsageError, brief
from rlvr.types import Prompt

__all__ = ["Codec", "end_ids"]

_TURN: Final = "8f14e45fceea167a"  # stands for the policy's turn in a template: no template trims or changes it


class Codec:
    """A tokenizer with what a policy needs of it.

    Args:
        tokenizer: of transformers.
        ends: tokens that end a completion.
        chat: a text prompt becomes one user message in the tokenizer's chat template; by default it is taken as it
            is, with the special tokens that the tokenizer puts around it.  Chat messages always go by the template.
    """

    def __init__(self, tokenizer: Any, ends: Iterable[int], *, chat: bool = False) -> None:
        self.tokenizer, self.ends, self.chat = tokenizer, frozenset(ends), chat
        if chat and not getattr(tokenizer, "chat_template", None):
            raise UsageError("chat=True, and this tokenizer has no chat template; set one, or leave chat at False")

    def encode(self, prompt: Prompt, after: Sequence[int] = ()) -> list[int]:
        """The tokens of a prompt, or what it adds after the tokens of an earlier part of the conversation.

        After something, messages come with the template's marks: the end of the turn that `after` leaves open (not
        twice, if `after` has its end token) and the beginning of the next.  A text is then taken as it is.

        Raises:
            UsageError: messages without a chat template, or a prompt without any token.
        """
        if isinstance(prompt, str) and not (self.chat and not after):
            ids = self._ids(prompt, special=not after)
        elif after:
            ids = self._ids(self._rendered_after(prompt), special=False)
            ids = ids[1:] if ids and ids[0] == after[-1] and ids[0] in self.ends else ids
        else:
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            ids = self._ids(self._rendered(messages), special=False)  # the template has written its special tokens
        if not ids and not after:
            raise UsageError(
                f"the prompt {brief(prompt)} has no tokens; give a text, or a tokenizer that begins with one"
            )
        return ids

    def decode(self, completion_ids: Sequence[int]) -> str:
        """The text of the first tokens of a completion, without end tokens and other special ones."""
        kept = [token for token in completion_ids if token not in self.ends]
        return str(self.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def ends_of(self, stop: Iterable[str]) -> frozenset[int]:
        """Tokens that end a completion under these stop texts; a special one is in no text, and is one of them."""
        added = self.tokenizer.get_added_vocab()
        return self.ends | {added[text] for text in stop if text in added}

    def _ids(self, text: str, *, special: bool) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def _rendered(self, messages: Sequence[Any]) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            raise UsageError("the prompt is chat messages and this tokenizer has no chat template; use text prompts")
        messages = [dict(message) for message in messages]
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _rendered_after(self, messages: Sequence[Any]) -> str:
        """What the template writes after the policy's turn: seen at a conversation in which that turn is known."""
        earlier = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _TURN}]
        _, found, rest = self._rendered([*earlier, *messages]).rpartition(_TURN)
        if not found:
            raise UsageError("the chat template leaves out earlier turns of the assistant; it cannot continue a chat")
        return rest


def end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Tokens that end a completion: those of the model's generation config, and the tokenizer's."""
    said = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = {tokenizer.eos_token_id, *(said if isinstance(said, Iterable) else [said])}
    return sorted(token for token in found if token is not None)
