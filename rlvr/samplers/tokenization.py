"""Prompts to tokens, and completions to text; the same for the policy and its samplers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rlvr.errors import UsageError, brief
from rlvr.types import Prompt

__all__ = ["Tokenization", "end_token_ids"]

_TURN: Final = "8f14e45fceea167a"  # stands for the policy's turn in a template, which does not trim or change it


class Tokenization:
    """A tokenizer, the chat template and the end tokens of a policy.

    Args:
        tokenizer: of transformers.
        end_ids: tokens that end a completion.
        chat: True turns a text prompt into one user message of the chat template.  False takes it as it is, with the
            special tokens that the tokenizer puts around it.  Chat messages always use the template.

    Raises:
        UsageError: `chat` is True and the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any, end_ids: Iterable[int], *, chat: bool = False) -> None:
        self.tokenizer, self.end_ids, self.chat = tokenizer, frozenset(end_ids), chat
        if chat and not getattr(tokenizer, "chat_template", None):
            raise UsageError("chat is True, and this tokenizer has no chat template; set one, or leave chat at False")

    def encode(self, prompt: Prompt, after: Sequence[int] = ()) -> list[int]:
        """The tokens of a prompt, or those that an environment's reply adds to a conversation.

        Args:
            prompt: a text or chat messages.
            after: the tokens of the conversation so far; empty for a first prompt.  After something, chat messages
                come with the template's tokens that end the open turn (unless `after` has its end token already) and
                begin the next.  A text is then taken as it is.

        Raises:
            UsageError: chat messages without a chat template, or a prompt without any token.
        """
        if isinstance(prompt, str) and not (self.chat and not after):
            ids = self._ids(prompt, special=not after)
        elif after:
            ids = self._ids(self._rendered_after(prompt), special=False)
            ids = ids[1:] if ids and ids[0] == after[-1] and ids[0] in self.end_ids else ids
        else:
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            ids = self._ids(self._rendered(messages), special=False)  # the template has written its special tokens
        if not ids and not after:
            raise UsageError(
                f"the prompt {brief(prompt)} has no tokens; give a text, or a tokenizer that begins with one"
            )
        return ids

    def decode(self, completion_ids: Sequence[int]) -> str:
        """The text of a completion's tokens, or of its first ones, without end tokens and other special tokens.

        Args:
            completion_ids: the tokens.
        """
        kept = [token for token in completion_ids if token not in self.end_ids]
        return str(self.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def end_ids_with(self, stop: Iterable[str]) -> frozenset[int]:
        """Tokens that end a completion: the end tokens, and the stop texts that are special tokens.

        Args:
            stop: stop texts.  Decoded text has no special tokens, so these are recognised by their ids.
        """
        added = self.tokenizer.get_added_vocab()
        return self.end_ids | {added[text] for text in stop if text in added}

    def _ids(self, text: str, *, special: bool) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def _rendered(self, messages: Sequence[Any]) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            raise UsageError("the prompt is chat messages and this tokenizer has no chat template; use text prompts")
        messages = [dict(message) for message in messages]
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _rendered_after(self, messages: Sequence[Any]) -> str:
        """What the template writes after the policy's turn, found by rendering a conversation with a known turn."""
        earlier = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _TURN}]
        _, found, rest = self._rendered([*earlier, *messages]).rpartition(_TURN)
        if not found:
            raise UsageError("the chat template leaves out earlier turns of the assistant; it cannot continue a chat")
        return rest


def end_token_ids(model: Any, tokenizer: Any) -> list[int]:
    """Tokens that end a completion: those of the model's generation config, and the tokenizer's.

    Args:
        model: of transformers.
        tokenizer: of transformers.
    """
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = {tokenizer.eos_token_id, *(configured if isinstance(configured, Iterable) else [configured])}
    return sorted(token for token in found if token is not None)
