"""Answers as texts: are two the same, does a text contain one, and which answers are wrong.

False alarms make authors switch a check off.  In doubt, two answers therefore count as the same, and accepting a
completion that may be right is no finding.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from rlvr.errors import RlvrError

__all__ = [
    "answer_in",
    "disguised",
    "mentions",
    "near_misses",
    "permuted",
    "plain_answer",
    "same",
    "wrong_answers",
]

_LONGEST = 200  # characters of a short answer; a hedge between two longer texts would be no hedge
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|/\d+)?", re.ASCII)
_PLAIN_WORDS = re.compile(r"[a-zA-Z]+(?:[ -][a-zA-Z]+)*")
_NUMBERS = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?", re.ASCII)
# Pairs that look alike and stay different characters even after NFKC: Latin and Cyrillic, digits and letters.
_LATIN = "aceopxyiABCEHKMOPTX"
_CYRILLIC = (
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0410\u0412\u0421"
    "\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425"
)
_TWINS = str.maketrans(_LATIN + "01358", _CYRILLIC + "OlESB")


def plain_answer(value: Any) -> str | None:
    """A reference or an answer as a short text; None if it is long, nested or has several lines.

    Args:
        value: a reference or an answer.
    """
    if isinstance(value, (str, int, float, Fraction, Decimal)):
        text = str(value).strip()
        if text and len(text) <= _LONGEST and "\n" not in text:
            return text
    return None


def answer_in(example: str, taken: Any, reference: Any) -> str | None:
    """The answer in an example: what the verifier read, else the reference, else the whole example; None if long.

    Args:
        example: a completion that is right.
        taken: the answer that the verifier read from it.
        reference: the task's reference.
    """
    read = plain_answer(taken)
    if read is not None and read in example:
        return read
    return plain_answer(reference) or plain_answer(example)


@lru_cache(maxsize=8192)
def same(one: str, other: str) -> bool:
    """True if two answers may be the same.

    Args:
        one, other: the answers.
    """
    if _folded(one) == _folded(other):
        return True
    a, b = _number(one), _number(other)
    if a is not None and b is not None:
        return abs(a - b) <= abs(a) / 10**6
    from rlvr.verifiers.math import MathPolicy, MathVerifier

    exact = MathVerifier(policy=MathPolicy(symbolic=False))  # starts no engine
    try:
        return exact.compare(one, other).correct or exact.compare(other, one).correct
    except RlvrError:  # no mathematics, so that it is no reference
        return False


def mentions(text: str, answer: str) -> bool:
    """True if a text contains an answer, as words or as a number of its own.

    Args:
        text: any text.
        answer: the answer.
    """
    folded = _folded(answer)
    if not folded or re.search(rf"(?<!\w){re.escape(folded)}(?!\w)", _folded(text)):
        return True
    number = _number(answer)
    return number is not None and abs(number) in _sizes(text[:100_000])


def wrong_answers(answer: str, others: Iterable[str], count: int, rng: random.Random) -> list[str]:
    """Wrong answers of the same kind: first those of other tasks, then made-up ones.

    Args:
        answer: the right answer.
        others: answers of other tasks.
        count: greatest number of answers.
        rng: draws the made-up ones.
    """
    found: list[str] = []
    for other in (*others, *_made_up(answer, rng)):
        if (
            not any(same(other, known) for known in (answer, *found))
            and answer not in other
            and other not in answer
        ):
            found.append(other)
        if len(found) == count:
            break
    return found


def near_misses(answer: str) -> list[str]:
    """Answers that are near this one and clearly wrong: numbers that differ by more than 1 %, beyond any rounding.

    Args:
        answer: the right answer.
    """
    number = _number(answer)
    if number is None:
        return [text for text in _other_character(answer) if not same(text, answer)]
    found = [-number, 10 * number]
    if number.denominator == 1:
        step = max(1, -(-abs(number) // 50))
        found += [number + step, number - step]
    texts = [str(it) if it.denominator == 1 or "/" in answer else str(float(it)) for it in found]
    digits = [i for i, char in enumerate(answer) if char.isascii() and char.isdigit()]
    texts += [_other_digit(answer, at) for at in digits[:2]]
    read = ((text, _number(text)) for text in dict.fromkeys(texts))
    return [
        text
        for text, value in read
        if value is not None and abs(value - number) > abs(number) / 100
    ]


def permuted(answer: str) -> list[str]:
    """The answer with its digits in other orders: reversed, sorted, and with the first two that differ exchanged.

    Args:
        answer: the right answer.
    """
    places = [i for i, char in enumerate(answer) if char.isascii() and char.isdigit()]
    digits = [answer[i] for i in places]
    at = next((i for i in range(len(digits) - 1) if digits[i] != digits[i + 1]), None)
    if at is None:
        return []
    swapped = [*digits[:at], digits[at + 1], digits[at], *digits[at + 2 :]]
    found = []
    for order in (digits[::-1], sorted(digits, reverse=True), swapped):
        text = list(answer)
        for place, digit in zip(places, order, strict=True):
            text[place] = digit
        made = "".join(text)
        if made not in found and not same(made, answer) and not _near(made, answer):
            found.append(made)
    return found


def _near(one: str, other: str) -> bool:
    """True if the first numbers differ by 1 % at most, which a tolerance may allow, and nothing else differs."""
    a, b = _NUMBERS.search(one), _NUMBERS.search(other)
    if a is None or b is None or one[a.end() :] != other[b.end() :]:
        return False
    x, y = _number(a[0]), _number(b[0])
    return x is not None and y is not None and abs(x - y) <= abs(y) / 100


def disguised(answer: str) -> str | None:
    """The answer in other characters that look the same; None if it has none that can be replaced.

    Args:
        answer: the right answer.
    """
    twin = answer.translate(_TWINS)
    return (
        None
        if unicodedata.normalize("NFKC", twin) == unicodedata.normalize("NFKC", answer)
        else twin
    )


def _other_character(answer: str) -> Iterator[str]:
    """With one digit or letter changed; not in names such as x_1 or in markup, which a verifier may ignore."""
    digit = next((i for i, char in enumerate(answer) if char.isascii() and char.isdigit()), None)
    if digit is not None and "_" not in answer:
        yield _other_digit(answer, digit)
    elif _PLAIN_WORDS.fullmatch(answer):
        at = len(answer) // 2 if answer[len(answer) // 2].isalpha() else 0
        last = answer[at] in "zZ"
        yield answer[:at] + chr(ord(answer[at]) + (-1 if last else 1)) + answer[at + 1 :]


def _other_digit(answer: str, at: int) -> str:
    return answer[:at] + str(int(answer[at]) % 9 + 1) + answer[at + 1 :]


def _made_up(answer: str, rng: random.Random) -> Sequence[str]:
    number = _number(answer)
    if number is None:
        return [
            f"{word}{rng.randrange(100)}"
            for word in ("quartz", "willow", "ember", "falcon", "sierra", "anchor")
        ]
    return [str(int(number) + step) for step in rng.sample(range(2, 100), 40)]


@lru_cache(maxsize=8192)
def _folded(text: str) -> str:
    digits = "".join(
        char if char.isascii() else str(unicodedata.decimal(char, char)) for char in text[:100_000]
    )
    folded = " ".join(unicodedata.normalize("NFKC", digits).casefold().split())
    return folded.strip(".,;:!?'\"`*$ ")


@lru_cache(maxsize=1024)
def _sizes(text: str) -> frozenset[Fraction]:
    """The numbers in a text, without their signs."""
    return frozenset(
        abs(number) for found in _NUMBERS.findall(text) if (number := _number(found)) is not None
    )


def _number(text: str) -> Fraction | None:
    bare = text.strip().strip("$€£% ").replace(" ", "")
    if not any(char.isdigit() for char in bare) or not _NUMBER.fullmatch(bare):
        return None
    try:
        return Fraction(bare.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None
