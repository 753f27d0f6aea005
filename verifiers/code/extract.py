"""Finds the program in a completion, in linear time and without running or parsing it.

    thinking part away → continuation of the prompt → <answer> → last fenced block → bare code

Of several blocks the last one of the right language counts; if the task asks for a name, the last one that defines it,
since models often add a block with an example call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from rlvr.sandbox.languages import LANGUAGES
from rlvr.text import ANSWER_TAGS, FencedBlock, after_thinking, fenced_blocks
from rlvr.verifiers.code.continuation import continued, cut_at_top_level, preceded

__all__ = ["CodeExtraction", "CodeExtractionMethod", "extract"]

CodeExtractionMethod = Literal["fence", "open-fence", "tag", "continuation", "bare"]

_TAG, _TAG_END = ANSWER_TAGS
_PYTHON: Final = "python"


@dataclass(frozen=True, slots=True)
class CodeExtraction:
    """A program found in a completion.

    Attributes:
        code: the program.
        method: how it was marked; "open-fence" has no closing fence, as where a completion was cut off.
        language: its language, by the fence; the first of those asked for where no fence says it.
    """

    code: str
    method: CodeExtractionMethod
    language: str = _PYTHON


def extract(
    text: str,
    language: str | Sequence[str] = _PYTHON,
    *,
    prompt: str | None = None,
    entry_point: str | None = None,
) -> CodeExtraction | None:
    """The program in a completion; None if there is none.

    Args:
        text: a completion.
        language: a key of `rlvr.sandbox.languages.LANGUAGES`, or several: the fence then says which it is.
        prompt: Python code that the completion may continue, as in HumanEval; None if there is none.
        entry_point: name that the program has to define; None if there is none.
    """
    languages = (language,) if isinstance(language, str) else tuple(language)
    begin = after_thinking(text)
    if begin is None:
        return None
    text = text[begin:].replace("\r\n", "\n")
    if prompt is not None:
        prompt = prompt.replace("\r\n", "\n")
        head, both = prompt.strip(), text.lstrip()
        if head and both.startswith(head):  # some samplers return prompt and completion, stripped
            return CodeExtraction(head + cut_at_top_level(both[len(head) :]), "continuation")
        if _starts_indented(text) and _opens(_PYTHON, text):
            return CodeExtraction(continued(prompt, cut_at_top_level(text)), "continuation")
    found = _marked(text, languages, entry_point)
    if found is None:
        known = [name for name in languages if _opens(name, text)]
        if not known:
            return None
        found = CodeExtraction(text, "bare", known[0])
    if not found.code.strip():
        return None
    return found if prompt is None else _completed(found, prompt, entry_point)


def _opens(language: str, text: str) -> bool:
    """Whether a text without any mark begins like code of the language."""
    opens = LANGUAGES[language].opens
    return opens is not None and opens.match(text) is not None


def _marked(
    text: str, languages: tuple[str, ...], entry_point: str | None
) -> CodeExtraction | None:
    """The program in the last <answer>, or else in the block that counts."""
    blocks = list(fenced_blocks(text))
    tag = text.rfind(_TAG)
    inside = [block for block in blocks if block.start < tag < block.end]
    if tag >= 0 and not inside:  # inside of a block it is part of the program
        end = text.find(_TAG_END, tag)
        answer = text[tag + len(_TAG) : end if end >= 0 else len(text)]
        return _chosen(list(fenced_blocks(answer)), languages, entry_point) or CodeExtraction(
            answer.strip("\n"), "tag", _guessed(answer, languages)
        )
    return _chosen(blocks, languages, entry_point)


def _chosen(
    blocks: list[FencedBlock], languages: tuple[str, ...], entry_point: str | None
) -> CodeExtraction | None:
    of = {fence: name for name in reversed(languages) for fence in (*LANGUAGES[name].fences, name)}
    named = [block for block in blocks if block.language in of]
    bare = [block for block in blocks if not block.language]
    chosen = (named or bare)[-1:]
    if entry_point:
        defining = [
            block for some in (bare, named) for block in some if _defines(block.code, entry_point)
        ]
        chosen = defining[-1:] or chosen
    for block in chosen:
        language = of.get(block.language) or _guessed(block.code, languages)
        method: CodeExtractionMethod = "fence" if block.closed else "open-fence"
        return CodeExtraction(block.code, method, language)
    return None


def _guessed(code: str, languages: tuple[str, ...]) -> str:
    """The language of code that no fence names: the first one that it begins like."""
    return next((name for name in languages if _opens(name, code)), languages[0])


def _completed(found: CodeExtraction, prompt: str, entry_point: str | None) -> CodeExtraction:
    """With what it needs of the prompt: a whole function its imports and helpers, a body the function's head too."""
    code = found.code
    if entry_point and _defines(code, entry_point):
        head = _definition(entry_point).search(prompt)
        before = prompt[: head.start()] if head else ""
        return replace(found, code=preceded(before, code))
    return replace(found, code=continued(prompt, code))


def _starts_indented(text: str) -> bool:
    """True if the first line is indented by two spaces or more: some models begin their prose with one."""
    blank = text[: len(text) - len(text.lstrip())].rpartition("\n")[2]
    return len(blank) >= 2 or "\t" in blank


def _defines(code: str, name: str) -> bool:
    return _definition(name).search(code) is not None


@lru_cache(maxsize=4096)
def _definition(name: str) -> re.Pattern[str]:
    word = re.escape(name)
    return re.compile(
        rf"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+{word}\b|^{word}[ \t]*[:=]", re.MULTILINE
    )
