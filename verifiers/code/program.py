"""The program in a completion: what the shared extraction finds, and what of
the prompt belongs to it.

    thinking part away → continuation of the prompt → <answer> → last fenced block → bare code

If the task asks for a name, the last block that defines it counts, since models often add one with
an example call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rlvr.sandbox.languages import LANGUAGES
from rlvr.text import after_thinking
from rlvr.types import Verdict
from rlvr.verifiers.answers import Answer, Form, find_answer
from rlvr.verifiers.code.continuation import continue_prompt, cut_at_top_level, precede

__all__ = ["find_program"]

_PYTHON: Final = "python"


def find_program(
    text: str,
    language: str | Sequence[str] = _PYTHON,
    *,
    prompt: str | None = None,
    entry_point: str | None = None,
) -> Answer | None:
    """The program in a completion; None if there is none.

    Args:
        text: a completion.
        language: a key of `rlvr.sandbox.languages.LANGUAGES`, or several: the fence then says which
            it is.
        prompt: Python code that the completion may continue, as in HumanEval; None if there is
            none.
        entry_point: name that the program has to define; None if there is none.

    Returns:
        The program with its language; the method is that of `find_answer`, or "continuation".
    """
    languages = (language,) if isinstance(language, str) else tuple(language)
    begin = after_thinking(text)
    if begin is None:
        return None
    text = text[begin:].replace("\r\n", "\n")
    if prompt is not None:
        prompt = prompt.replace("\r\n", "\n")
        if (code := _continuation(text, prompt)) is not None:
            return Answer(code, prompt, "continuation", _PYTHON)
    answer = find_answer(text, _form(languages, entry_point))
    if isinstance(answer, Verdict):
        return None
    named = _by_fence(languages).get(answer.language)
    begun = next((name for name in languages if _begins(name, answer.text)), None)
    if answer.method == "bare" and begun is None:
        return None
    answer = answer._replace(language=named or begun or languages[0])
    return answer if prompt is None else _complete_program(answer, prompt, entry_point)


def _continuation(text: str, prompt: str) -> str | None:
    """The prompt and the code that continues it; None if the text is no continuation."""
    head, full_text = prompt.strip(), text.lstrip()
    if head and full_text.startswith(head):  # some samplers return prompt and completion, stripped
        return head + cut_at_top_level(full_text[len(head) :])
    if _starts_indented(text) and _begins(_PYTHON, text):
        return continue_prompt(prompt, cut_at_top_level(text))
    return None


def _form(languages: tuple[str, ...], entry_point: str | None) -> Form:
    return Form(
        fences=frozenset(_by_fence(languages)),
        program=True,
        prefers=_definition(entry_point) if entry_point else None,
    )


def _by_fence(languages: tuple[str, ...]) -> dict[str, str]:
    """The language of each name of a fence."""
    return {
        fence: name for name in reversed(languages) for fence in (*LANGUAGES[name].fences, name)
    }


def _begins(language: str, text: str) -> bool:
    """Whether a text without any mark begins like code of the language."""
    opens = LANGUAGES[language].opens
    return opens is not None and opens.match(text) is not None


def _complete_program(found: Answer, prompt: str, entry_point: str | None) -> Answer:
    """With what it needs of the prompt: a whole function its imports and helpers, a body the
    function's head too."""
    if entry_point and _definition(entry_point).search(found.text):
        head = _definition(entry_point).search(prompt)
        return found._replace(text=precede(prompt[: head.start()] if head else "", found.text))
    return found._replace(text=continue_prompt(prompt, found.text))


def _starts_indented(text: str) -> bool:
    """True if the first line is indented by two spaces or more: some models begin their prose with
    one."""
    blank = text[: len(text) - len(text.lstrip())].rpartition("\n")[2]
    return len(blank) >= 2 or "\t" in blank


@lru_cache(maxsize=4096)
def _definition(name: str) -> re.Pattern[str]:
    word = re.escape(name)
    return re.compile(
        rf"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+{word}\b|^{word}[ \t]*[:=]", re.MULTILINE
    )
