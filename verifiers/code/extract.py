"""Finds the program in a completion, in linear time and without running or parsing it.

    thinking part away → continuation of the prompt → <answer> → last fenced block → bare code

Of several blocks the last one of the right language counts; if the task asks for a name, the last one that defines it,
since models often add a block with an example call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from rlvr.text import ANSWER_TAGS, FencedBlock, after_thinking, fenced_blocks
from rlvr.verifiers.code.continuation import continued, cut_at_top_level, preceded

__all__ = ["CodeExtraction", "CodeExtractionMethod", "extract"]

CodeExtractionMethod = Literal["fence", "open-fence", "tag", "continuation", "bare"]

_TAG, _TAG_END = ANSWER_TAGS
_NAMES: Final = {
    "python": frozenset(("python", "python3", "py", "py3")),
    "cpp": frozenset(("cpp", "c++", "cc", "cxx")),
    "javascript": frozenset(("javascript", "js", "node", "mjs")),
    "bash": frozenset(("bash", "sh", "shell")),
}
# Is the first line of a text without any mark code?  Prose begins with two words in a row.
_OPENS: Final = {
    "python": re.compile(
        r"""\s*(?: (?:assert|async|class|def|del|for|from|global|if|import|nonlocal|pass|raise|return|try|while|with
        | yield)\b
        | [@\#] | \"\"\" | ''' | [(\[][^()\[\]\n]++[)\]]\s*+=
        | \*?[A-Za-z_][\w.]*+\s*+(?:[(\[=]|[-+*/%|&^]=|(?:,\s*+\*?\w++\s*+)++=|:\s*+[\w.]++(?:\[[^\n=]*+)?\s*+=) )""",
        re.VERBOSE,
    ),
    "cpp": re.compile(
        r"\s*(?:#\s*(?:include|define|pragma)|//|/\*|(?:auto|bool|char|class|const"
        r"|constexpr|double|inline|int|long|namespace|static|struct|template|typedef|unsigned|using|void)\b)"
    ),
    "javascript": re.compile(
        r"""\s*(?: ['"]use\ strict | (?:const|let|var|function|class|async|import)\b | // | /\* | require\( | console\.
        | process\. )""",
        re.VERBOSE,
    ),
    "bash": re.compile(
        r"\s*(?:#|(?:awk|cat|echo|for|if|printf|read|sed|set|sort|while)\b|[A-Za-z_]\w*+=)"
    ),
}


@dataclass(frozen=True, slots=True)
class CodeExtraction:
    """A program found in a completion.

    Attributes:
        code: the program.
        method: how it was marked; "open-fence" has no closing fence, as where a completion was cut off.
    """

    code: str
    method: CodeExtractionMethod


def extract(
    text: str,
    language: str = "python",
    *,
    prompt: str | None = None,
    entry_point: str | None = None,
) -> CodeExtraction | None:
    """The program in a completion; None if there is none.

    Args:
        text: a completion.
        language: "python", "cpp", "javascript" or "bash".
        prompt: Python code that the completion may continue, as in HumanEval; None if there is none.
        entry_point: name that the program has to define; None if there is none.
    """
    begin = after_thinking(text)
    if begin is None:
        return None
    text = text[begin:].replace("\r\n", "\n")
    if prompt is not None:
        prompt = prompt.replace("\r\n", "\n")
        head, both = prompt.strip(), text.lstrip()
        if head and both.startswith(head):  # some samplers return prompt and completion, stripped
            return CodeExtraction(head + cut_at_top_level(both[len(head) :]), "continuation")
        if _starts_indented(text) and _OPENS["python"].match(text):
            return CodeExtraction(continued(prompt, cut_at_top_level(text)), "continuation")
    found = _marked(text, language, entry_point)
    if found is None:
        if not _OPENS[language].match(text):
            return None
        found = CodeExtraction(text, "bare")
    if not found.code.strip():
        return None
    return found if prompt is None else _completed(found, prompt, entry_point)


def _marked(text: str, language: str, entry_point: str | None) -> CodeExtraction | None:
    """The program in the last <answer>, or else in the block that counts."""
    blocks = list(fenced_blocks(text))
    tag = text.rfind(_TAG)
    inside = [block for block in blocks if block.start < tag < block.end]
    if tag >= 0 and not inside:  # inside of a block it is part of the program
        end = text.find(_TAG_END, tag)
        answer = text[tag + len(_TAG) : end if end >= 0 else len(text)]
        return _chosen(list(fenced_blocks(answer)), language, entry_point) or CodeExtraction(
            answer.strip("\n"), "tag"
        )
    return _chosen(blocks, language, entry_point)


def _chosen(
    blocks: list[FencedBlock], language: str, entry_point: str | None
) -> CodeExtraction | None:
    named = [block for block in blocks if block.language in _NAMES[language]]
    bare = [block for block in blocks if not block.language]
    for some in (named, bare):
        for block in reversed(some):
            if entry_point and _defines(block.code, entry_point):
                return CodeExtraction(block.code, "fence" if block.closed else "open-fence")
    for block in (named or bare)[-1:]:
        return CodeExtraction(block.code, "fence" if block.closed else "open-fence")
    return None


def _completed(found: CodeExtraction, prompt: str, entry_point: str | None) -> CodeExtraction:
    """With what it needs of the prompt: a whole function its imports and helpers, a body the function's head too."""
    code = found.code
    if entry_point and _defines(code, entry_point):
        head = _definition(entry_point).search(prompt)
        before = prompt[: head.start()] if head else ""
        return CodeExtraction(preceded(before, code), found.method)
    return CodeExtraction(continued(prompt, code), found.method)


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
