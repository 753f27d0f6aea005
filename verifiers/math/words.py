"""Words with an exact meaning: numbers up to 999, ordinals, simple fractions, and fixed phrases.

They count only if they are the whole answer.  All other words are compared letter by letter.
"""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["EMPTY", "REALS", "number", "plain"]

EMPTY = frozenset(
    "no solution|no solutions|no real solution|no real solutions|empty set|the empty set|there are no solutions|"
    "there is no solution|no such number exists".split("|")
)
"""Said of a set of solutions that has none."""

REALS = frozenset("all real numbers|all reals|the real numbers|any real number|all real x|real numbers".split("|"))
"""Said of the whole line."""

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBERS = {word: value for value, word in enumerate(_ONES)}
_NUMBERS |= {word: 10 * value for value, word in enumerate(_TENS, 2)}
_NUMBERS |= {f"{tens} {ones}": 10 * t + o for t, tens in enumerate(_TENS, 2) for o, ones in enumerate(_ONES[1:10], 1)}
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
_ORDINAL = {word: value for value, word in enumerate(_ORDINALS, 1)}
_PARTS = {"half": 2, "quarter": 4, "halves": 2} | {word: value for word, value in _ORDINAL.items() if value > 2}
_HYPHEN = re.compile(r"(?<=[^\W\d_]{3})-(?=[^\W\d_]{3})")  # twenty-one; between single letters it is a minus
_ARTICLES = ("a ", "an ", "the ")
_SAME = {
    "dne": "does not exist",
    "undef": "undefined",
    "infinitely many solutions": "infinitely many",
    "there are infinitely many solutions": "infinitely many",
}


def plain(text: str) -> str:
    """Prose without case, quotes, hyphens, a leading article and a full stop."""
    words = " ".join(_HYPHEN.sub(" ", text.replace('"', " ")).split()).casefold().rstrip(" .!")
    for article in _ARTICLES:
        if words.startswith(article) and len(words) > len(article) + 1:
            words = words[len(article) :]
            break
    return _SAME.get(words, words)


def number(words: str) -> int | Fraction | None:
    """The number that plain words name; None if they name none: `twenty one`, `third`, `two thirds`."""
    if (value := _NUMBERS.get(words, _ORDINAL.get(words))) is not None:
        return value
    head, _, last = words.rpartition(" ")
    if part := _PARTS.get(last, _PARTS.get(last.removesuffix("s"))):
        above = 1 if head in ("", "a") else _NUMBERS.get(head)
        return Fraction(above, part) if above else None
    hundreds, found, rest = words.partition(" hundred")
    if not found or not 1 <= _NUMBERS.get(hundreds or "one", 0) <= 9:
        return 100 if words == "hundred" else None
    rest = rest.strip().removeprefix("and ")
    return None if rest and rest not in _NUMBERS else 100 * _NUMBERS[hundreds] + _NUMBERS.get(rest, 0)
