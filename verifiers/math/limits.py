"""Static limits, checked on the text before anything is parsed:
the same text gives the same verdict anywhere.

What a short text may name, such as `9^{9^{9}}`, is bounded where its tree is evaluated.
"""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from functools import lru_cache

from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.latex.tree import TooLarge

__all__ = ["LIMITS", "TextLimits", "fold_within"]


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


@lru_cache(maxsize=64)  # a wrong answer is read again without its remarks
def fold_within(text: str) -> str:
    """The folded text; the length is looked at before anything else.

    Args:
        text: an answer or reference.

    Raises:
        TooLarge: it breaks a limit, which the message names.
    """
    if len(text) > LIMITS.chars:
        raise TooLarge(f"{len(text)} characters, over {LIMITS.chars}")
    folded = fold(text)
    # After folding, as ½ becomes \frac{1}{2} and has more signs.
    if len(folded) > _FEW and (limit := _exceeded(folded)):
        raise TooLarge(limit)
    return folded


def _exceeded(text: str) -> str:
    if (depth := _depth(text)) > LIMITS.depth:
        return f"brackets {depth} deep, over {LIMITS.depth}"
    if _DIGITS.search(text):
        return f"more than {LIMITS.digits} digits in a row"
    if (cells := len(_CELLS.findall(text))) > LIMITS.cells:
        return f"{cells} separators, over {LIMITS.cells}"
    if (terms := len(_TERMS.findall(text))) > LIMITS.terms:
        return f"{terms} signs, over {LIMITS.terms}"
    return ""


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        depth += -1 if match["close"] else 1
        deepest = max(deepest, depth)
    return deepest
