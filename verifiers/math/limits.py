"""Static limits, checked on the text before anything is parsed: the same text gives the same verdict anywhere.

What a short text may name, such as `9^{9^{9}}`, is bounded where its tree is evaluated.
"""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass

__all__ = ["LIMITS", "TextLimits", "exceeded", "too_long"]


@dataclass(frozen=True, slots=True)
class TextLimits:
    """What an answer may hold.

    Attributes:
        chars: characters in all.
        depth: brackets inside brackets.
        digits: digits in a row; Python itself refuses to read more than 4,300.
        cells: separators of lists and matrices.
        terms: plus and minus signs.
    """

    chars: int = 4096
    depth: int = 40
    digits: int = 1000
    cells: int = 1000
    terms: int = 400


LIMITS = TextLimits()
_FEW = min(astuple(LIMITS))  # characters: a text so short has no more of any
_DIGITS = re.compile(rf"\d{{{LIMITS.digits + 1}}}")
_CELLS, _TERMS = re.compile(r"[,;&]|\\\\"), re.compile(r"[+-]|\\pm")
_BRACKETS = re.compile(r"[(\[{]|(?P<close>[)\]}])")


def too_long(text: str) -> str | None:
    """The one limit that comes even before folding."""
    return f"{len(text)} characters, over {LIMITS.chars}" if len(text) > LIMITS.chars else None


def exceeded(text: str) -> str | None:
    """Which limit a folded text breaks, in words; None if it breaks none.

    Args:
        text: a folded text.
    """
    if len(text) <= _FEW:
        return None
    if (depth := _depth(text)) > LIMITS.depth:
        return f"brackets {depth} deep, over {LIMITS.depth}"
    if _DIGITS.search(text):
        return f"more than {LIMITS.digits} digits in a row"
    if (cells := len(_CELLS.findall(text))) > LIMITS.cells:
        return f"{cells} separators, over {LIMITS.cells}"
    if (terms := len(_TERMS.findall(text))) > LIMITS.terms:
        return f"{terms} signs, over {LIMITS.terms}"
    return None


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        depth += -1 if match["close"] else 1
        deepest = max(deepest, depth)
    return deepest
