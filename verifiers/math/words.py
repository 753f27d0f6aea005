"""Words with an exact meaning: numbers, ordinals, simple fractions, and fixed phrases.

They count only if they are the whole answer.  All other words are compared letter by letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

__all__ = [
    "PHRASES",
    "elements",
    "formula",
    "number",
    "number_words",
    "pairs",
    "plain",
    "unquoted",
]


def pairs(table: str) -> dict[str, str]:
    """A table of data, in which each first word stands for the second.

    Args:
        table: words with white space between them.
    """
    words = table.split()
    return dict(zip(words[::2], words[1::2], strict=True))


PHRASES = {
    phrase: meant
    for meant, phrases in {
        r"\emptyset": "no solution|no solutions|no real solution|no real solutions|empty set|"
        "the empty set|there are no solutions|there is no solution|no such number exists|"
        "equation has no solution|equation has no solutions|it has no solution|"
        "it has no solutions|system has no solution|"
        "no solutions exist|no solution exists|no real roots|none",
        r"\mathbb{R}": "all real numbers|all reals|the real numbers|any real number|all real x|"
        "real numbers",
        r"\mathbb{R} \setminus \{0\}": "nonzero reals|nonzero real numbers|all nonzero reals|"
        "all nonzero real numbers",
    }.items()
    for phrase in phrases.split("|")
}
"""Sets as they are said, and as formulas."""

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBERS = {word: value for value, word in enumerate(_ONES)}
_NUMBERS |= {word: 10 * value for value, word in enumerate(_TENS, 2)}
_NUMBERS |= {
    f"{tens} {ones}": 10 * t + o
    for t, tens in enumerate(_TENS, 2)
    for o, ones in enumerate(_ONES[1:10], 1)
}
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
_ORDINAL = {word: value for value, word in enumerate(_ORDINALS, 1)}
_PARTS = {
    "hundredth": 100,
    "thousandth": 1000,
    "millionth": 10**6,
    "half": 2,
    "quarter": 4,
    "halves": 2,
} | {word: value for word, value in _ORDINAL.items() if value > 2}
_ZEROS = {"trillion": 12, "billion": 9, "million": 6, "thousand": 3}
_LARGE = (
    *((name, 10**zeros, 1000) for name, zeros in _ZEROS.items()),
    ("hundred", 100, 10),
)
"""A scale, its size, and what is too many of it."""
# two hundred and five, twenty-one: two words and more.
_SPOKEN_WORD = f"(?:{'|'.join((*_ONES, *_TENS, *(name for name, _, _ in _LARGE)))})"
_SPOKEN = re.compile(rf"(?i)\b{_SPOKEN_WORD}(?:(?:\s|-|\sand\s){_SPOKEN_WORD}){{1,12}}\b")
_CHINESE_DIGITS = dict(zip("零一二三四五六七八九〇两兩", (*range(10), 0, 2, 2), strict=True))
_CHINESE_TENS = {"十": 10, "百": 100, "千": 1000}
_CHINESE_SECTIONS = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_LONGEST_CHINESE = 20
_HYPHEN = re.compile(
    r"(?<=[^\W\d_]{3})-(?=[^\W\d_]{3})"
)  # twenty-one; between single letters it is a minus
_MINUS = ("minus", "negative")
_ARTICLES = ("a ", "an ", "the ")
_SAME = {
    "dne": "does not exist",
    "doesn't exist": "does not exist",
    "undef": "undefined",
    "infinitely many solutions": "infinitely many",
    "there are infinitely many solutions": "infinitely many",
}


_ELEMENTS = frozenset(
    (
        "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As "
        "Se Br Kr Rb Sr Y Zr "
        "Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb "
        "Lu Hf Ta W Re Os Ir "
        "Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr "
    ).split()
)
_SYMBOL = re.compile(r"[A-Z][a-z]?")
# 2H_2O, Ca(OH)_2, SO_4^2-, Fe^3+
_FORMULA = re.compile(
    r"(?:\d{0,3}\(?[A-Z][a-z]?\)?(?:_?\d{1,3})?\)?(?:_?\d{1,3})?)+(?:\^?\d{0,2}[+-])?"
)
_CHARGED = re.compile(r"[_^\d]")


def formula(text: str) -> str | None:
    """A chemical formula with numbers or a charge, in one spelling: `Fe^3+`, `H_2O`; None for
    anything else.

    Args:
        text: folded text with words in quotes.
    """
    letters = "".join(sign for sign in text if sign not in '"{} ')
    if not 2 <= len(letters) <= 40 or letters[0].isdecimal() or not _CHARGED.search(letters):
        return None
    is_formula = _FORMULA.fullmatch(letters) and elements("".join(filter(str.isalpha, letters)))
    return letters.replace("_", "") if is_formula else None


def elements(letters: str) -> tuple[str, ...] | None:
    """The chemical elements that letters name, read from the left; None where they name none: C, O
    for `CO`."""
    symbols = _SYMBOL.findall(letters)
    return tuple(symbols) if "".join(symbols) == letters and _ELEMENTS.issuperset(symbols) else None


def unquoted(text: str) -> str:
    """Words without their quotes, one space between them.

    Args:
        text: a folded text.
    """
    return " ".join(text.replace('"', " ").split())


def plain(text: str) -> str:
    """Prose without case, quotes, hyphens, a leading article and a full stop."""
    words = _HYPHEN.sub(" ", unquoted(text)).casefold().rstrip(" .!")
    # `a` alone is a letter and no article.
    for article in _ARTICLES:
        if words.startswith(article) and len(words) > len(article) + 1:
            words = words[len(article) :]
            break
    return _SAME.get(words, words)


def number(words: str) -> int | Fraction | None:
    """The number that plain words name; None if they name none.

    `twenty one`, `third`, `two thirds`, `two and a half`, `three thousand two hundred`, `minus
    five`, 十二.
    """
    if (value := _NUMBERS.get(words, _ORDINAL.get(words))) is not None:
        return value
    if not words.isascii():
        return _chinese(words)
    first, _, after = words.partition(" ")
    if first in _MINUS:
        size = number(after) if after and after.partition(" ")[0] not in _MINUS else None
        return None if size is None else -size
    head, _, part = words.rpartition(" and ")
    if (fraction := _fraction(part)) and (value := _cardinal(head)) is not None:
        return value + fraction
    return _fraction(words) or _cardinal(words)


def number_words(prose: str) -> Iterator[str]:
    """The numbers that prose says in two words or more: twenty-one, three hundred and five.

    Args:
        prose: any text.
    """
    for match in _SPOKEN.finditer(prose):
        yield " ".join(match[0].casefold().replace("-", " ").split())


def _fraction(words: str) -> Fraction | None:
    """`half`, `a half`, `two thirds`."""
    head, _, last = words.rpartition(" ")
    # thirds is third with an s; halves has a form of its own.
    part = _PARTS.get(last, _PARTS.get(last.removesuffix("s")))
    above = 1 if head in ("", "a", "one") else _NUMBERS.get(head)
    return Fraction(above, part) if part and above else None


def _cardinal(words: str) -> int | None:
    """Up to the trillions: each scale word once, the largest first, and none has to stand behind a
    number."""
    for name, size, most in _LARGE:
        head, scale, tail = f" {words} ".partition(f" {name} ")
        if scale and f" {name} " in f" {tail}":
            return None
        if scale:
            count = 1 if head in ("", " a") else _cardinal(head.strip())
            rest = tail.strip().removeprefix("and ")
            below = _cardinal(rest) if rest else 0
            fits = count and count < most and below is not None and below < size
            return (count or 0) * size + (below or 0) if fits else None
    return _NUMBERS.get(words)


def _chinese(words: str) -> int | Fraction | None:
    """十二, 一千二百三十四, 二分之一."""
    if len(words) > _LONGEST_CHINESE:
        return None
    if "分之" in words:
        # Denominator first: 二分之一 is one half.
        below, above = (_chinese(part) for part in words.split("分之", 1))
        return Fraction(above) / Fraction(below) if above is not None and below else None
    if words[:1] == "负":
        value = _chinese(words[1:]) if words[1:2] != "负" else None
        return None if value is None else -value
    total = section = digit = 0
    for sign in words:
        if sign in _CHINESE_DIGITS:
            digit = _CHINESE_DIGITS[sign]
        elif sign in _CHINESE_TENS:
            # 十 alone is ten: the digit before it may be missing.
            section += (digit or 1) * _CHINESE_TENS[sign]
            digit = 0
        elif sign in _CHINESE_SECTIONS and (section or digit):
            # All so far counts in this section: 一万二千亿.
            total = (total + section + digit) * _CHINESE_SECTIONS[sign]
            section = digit = 0
        else:
            return None
    return total + section + digit if words else None
