"""Lengths of texts in tokens, by the tokenizer of a model."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.data.hub import at_once
from rlvr.errors import DataError, UsageError

__all__ = ["PromptFrame", "lengths", "load_fast_tokenizer"]


@functools.lru_cache(1)
def load_fast_tokenizer(name: str) -> Any:
    """A tokenizer of the package `tokenizers`, without truncation and padding.

    Args:
        name: a file `tokenizer.json`, the folder of a model, or a model's id on the hub.

    Raises:
        UsageError: the package is not installed.
        DataError: there is no such tokenizer.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError(
            "lengths in tokens need the package `tokenizers`, which the extra `train` installs; "
            "--max-characters needs none"
        ) from None
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        if not file.is_file():
            from huggingface_hub import hf_hub_download

            with at_once():
                file = Path(hf_hub_download(name, "tokenizer.json"))
        tokenizer = Tokenizer.from_file(str(file))
    except (
        Exception
    ) as error:  # the errors of the hub's library, and of a parser in Rust, share no root
        raise DataError(
            f"tokenizer {name!r}: {type(error).__name__}: {str(error)[:200]}; give a file "
            "tokenizer.json, a model's folder that has one, or its id on the hub"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """What a chat template writes around the text of a prompt.

    Attributes:
        before, after: the texts on both sides, special tokens included.
        starts: texts with which a prompt begins that has its frame already.
    """

    before: str
    after: str
    starts: tuple[str, ...]

    def framed(self, text: str) -> str:
        """The text as it is sent.

        Args:
            text: of a prompt.
        """
        return text if text.startswith(self.starts) else f"{self.before}{text}{self.after}"


def lengths(name: str, frame: PromptFrame | None, texts: Sequence[str]) -> list[int]:
    """Number of tokens of each text, without the special tokens that the tokenizer puts around it.

    Args:
        name: see `load_fast_tokenizer`.
        frame: what a chat template adds; None for nothing.
        texts: the texts.
    """
    tokenizer = load_fast_tokenizer(name)
    sent = texts if frame is None else [frame.framed(text) for text in texts]
    return [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in sent]
