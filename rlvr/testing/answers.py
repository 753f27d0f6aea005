"""Answers as texts: are two the same, and does a text contain one.

False alarms make authors switch a check off.  In doubt, two answers therefore count as the same,
and accepting a completion that may be right is no finding.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from rlvr.errors import RlvrError

__all__ = ["answer_in", "disguise", "may_be_same", "mentions", "number_in", "plain_answer"]

_LONGEST = 200  # characters of a short answer; a hedge between two longer texts would be no hedge
# -1,234.5, 3/4, .5
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|/\d+)?", re.ASCII)
# The numbers in prose; a slash or an exponent there is not read.
_NUMBERS = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?", re.ASCII)
# Pairs that look alike and stay different characters even after NFKC: Latin and Cyrillic, digits
# and letters.
_LATIN = "aceopxyiABCEHKMOPTX"
_CYRILLIC = (
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0410\u0412\u0421"
    "\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425"
)
_TWINS = str.maketrans(_LATIN + "01358", _CYRILLIC + "OlESB")


def plain_answer(value: object) -> str | None:
    """A reference or an answer as a short text; None if it is long, nested or has several lines.

    Args:
        value: a reference or an answer.
    """
    if isinstance(value, (str, int, float, Fraction, Decimal)):
        text = str(value).strip()
        if text and len(text) <= _LONGEST and "\n" not in text:
            return text
    return None


def answer_in(example: str, taken: object, reference: object) -> str | None:
    """The answer in an example: what the verifier read, else the reference, else the whole example;
    None if long.

    Args:
        example: a completion that is right.
        taken: the answer that the verifier read from it.
        reference: the task's reference.
    """
    read = plain_answer(taken)
    # A verifier may give its answer in a form of its own, which no example holds.
    if read is not None and read in example:
        return read
    return plain_answer(reference) or plain_answer(example)


@lru_cache(maxsize=8192)
def may_be_same(one: str, other: str) -> bool:
    """True if two answers may be the same.

    Args:
        one, other: the answers.
    """
    if _fold_answer(one) == _fold_answer(other):
        return True
    a, b = number_in(one), number_in(other)
    if a is not None and b is not None:
        # Relative: answers that differ by less may be the same to a verifier.
        return abs(a - b) <= abs(a) / 10**6
    from rlvr.verifiers.math import MathPolicy, MathVerifier

    exact = MathVerifier(policy=MathPolicy(symbolic=False))  # starts no engine
    try:
        # Both ways, as a comparison may treat the reference more kindly.
        return exact.compare(one, other).correct or exact.compare(other, one).correct
    except RlvrError:  # no mathematics, so that it is no reference
        return False


def mentions(text: str, answer: str) -> bool:
    """True if a text contains an answer, as words or as a number of its own.

    Args:
        text: any text.
        answer: the answer.
    """
    folded = _fold_answer(answer)
    if not folded or re.search(rf"(?<!\w){re.escape(folded)}(?!\w)", _fold_answer(text)):
        return True
    number = number_in(answer)
    # Of a long text only the beginning.
    return number is not None and abs(number) in _sizes(text[:100_000])


def disguise(answer: str) -> str | None:
    """The answer in other characters that look the same; None if it has none that can be replaced.

    Args:
        answer: the right answer.
    """
    twin = answer.translate(_TWINS)
    return (
        None
        # What NFKC makes equal again is no disguise, as verifiers fold by it.
        if unicodedata.normalize("NFKC", twin) == unicodedata.normalize("NFKC", answer)
        else twin
    )


@lru_cache(maxsize=8192)
def _fold_answer(text: str) -> str:
    digits = "".join(
        # Digits of other scripts become ASCII digits, as NFKC leaves them as they are.
        char if char.isascii() else str(unicodedata.decimal(char, char))
        for char in text[:100_000]
    )
    folded = " ".join(unicodedata.normalize("NFKC", digits).casefold().split())
    return folded.strip(".,;:!?'\"`*$ ")


@lru_cache(maxsize=1024)
def _sizes(text: str) -> frozenset[Fraction]:
    """The numbers in a text, without their signs."""
    return frozenset(
        abs(number)
        for digits in _NUMBERS.findall(text)
        if (number := number_in(digits)) is not None
    )


def number_in(text: str) -> Fraction | None:
    """The number that a text is, with its sign, commas, percent or currency; None if it is
    something else.

    Args:
        text: any text.
    """
    bare = text.strip().strip("$€£% ").replace(" ", "")
    if not any(char.isdigit() for char in bare) or not _NUMBER.fullmatch(bare):
        return None
    try:
        return Fraction(bare.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None
