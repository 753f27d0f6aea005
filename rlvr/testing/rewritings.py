"""Rewritings of a right answer that must keep its verdict, by name:
`BaseVerifier.rewritings` declares which do.

A rewriting is a function of the bare answer.  It gives the completion to try, or None where the
answer cannot be written so: several lines after a marker, a bold answer with stars in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["REWRITINGS", "both_answers"]

# From ASCII digits to those of full width.
_WIDE: Final = {code: code + 0xFEE0 for code in range(ord("0"), ord("9") + 1)}
# A sentence ends with a stop and white space, perhaps behind a bracket or a star.
_SENTENCE_END: Final = re.compile(r"[.!?][$)*\]]{0,4}\s")


def _box(answer: str) -> str | None:
    depth = 0
    for char in answer:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth < 0:
            return None
    # Braces that do not match, or commands, would change what the box holds.
    return None if depth or "\\" in answer else f"\\boxed{{{answer}}}"


def _tag(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def _marker(answer: str) -> str | None:
    return None if "\n" in answer else f"I went through it twice.\n\nAnswer: {answer}"


def _phrase(answer: str) -> str | None:
    if "\n" in answer or _SENTENCE_END.search(answer):
        return None  # a phrase ends with its sentence
    return f"I went through it twice. The answer is {answer}"


def _bold(answer: str) -> str | None:
    return None if "*" in answer or "\n" in answer else _tag(f"**{answer}**")


def _dollars(answer: str) -> str | None:
    return None if "$" in answer or "\n" in answer else _tag(f"${answer}$")


def _thinking(answer: str) -> str:
    return f"<think>\nIs it zzz? No.\n</think>\n{_tag(answer)}"


def _correct_itself(answer: str) -> str:
    return f"{_tag('zzz')}\n\nWait, that is not right. Let me do it again.\n\n{_tag(answer)}"


def _spaces(answer: str) -> str:
    return _tag(f"\n  {answer} \n")


def _capitals(answer: str) -> str:
    return _tag(answer.upper())


def _full_stop(answer: str) -> str | None:
    # Behind a sign a stop might be read as a part of it.
    return None if not answer[-1:].isalnum() else _tag(f"{answer}.")


def _wide_digits(answer: str) -> str:
    return _tag(answer.translate(_WIDE))


REWRITINGS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "box": _box,
    "tag": _tag,
    "marker": _marker,
    "phrase": _phrase,
    "bold": _bold,
    "dollars": _dollars,
    "thinking": _thinking,
    "corrected": _correct_itself,
    "spaces": _spaces,
    "capitals": _capitals,
    "full stop": _full_stop,
    "wide digits": _wide_digits,
}
"""From the bare answer to a completion that says the same; None where it cannot be written so."""


def both_answers(right: str, wrong: str) -> list[str]:
    """Completions that give two answers at once, which no verifier may pay.

    Args:
        right: the answer.
        wrong: another one.
    """
    if "\n" in right or "\n" in wrong:
        return []
    pairs = (f"{right} or {wrong}", f"{wrong} or {right}", f"{right}, maybe {wrong}")
    return [_tag(text) for text in (*pairs, f"either {wrong} or {right}")]
