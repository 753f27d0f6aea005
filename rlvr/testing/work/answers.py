"""Work for tasks with a short answer: numbers, quantities, formulas, words, lettered options.

Wrong answers are near the right one: another digit, sign, size, function, bracket, unit or letter.
A witness is a digit, a point at which two formulas differ (by SymPy, not by our mathematics), or
the letter of another option.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Final

from rlvr.errors import foreign_code
from rlvr.testing.answers import may_be_same, number_in
from rlvr.testing.work.maker import Maker, Untested, Witness, Work, serves
from rlvr.types import Task
from rlvr.verifiers.chemistry import ChemistryVerifier
from rlvr.verifiers.choices import LETTERS, ChoiceVerifier
from rlvr.verifiers.math import MathVerifier
from rlvr.verifiers.math.latex.tree import TooLarge
from rlvr.verifiers.math.limits import fold_within
from rlvr.verifiers.qa import QAVerifier
from rlvr.verifiers.science import ScienceVerifier

__all__ = ["AnswersWork", "ChoicesWork", "near_misses", "permuted", "wrong_answers"]

_INSIDE: Final = re.compile(
    r"\A(.*\\boxed\{|.*<answer>\s*|)(.*?)(\}[^}]*|\s*</answer>.*|)\Z", re.DOTALL
)
_PLAIN_WORDS: Final = re.compile(r"[a-zA-Z]+(?:[ -][a-zA-Z]+)*")
_NUMBERS: Final = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?", re.ASCII)
_QUANTITY: Final = re.compile(r"([-+]?\d[\d,]*(?:\.\d+)?)(\D.*)?", re.DOTALL)
_SLIPS: Final[tuple[tuple[str, str, str], ...]] = (
    ("sign", r"(?<=[\w})]) ?\+ ?", " - "),
    ("sign", r"(?<=[\w})]) ?- ?", " + "),
    ("branch", r"\\pm ?", ""),
    ("function", r"\\sin\b", r"\\cos"),
    ("function", r"\\cos\b", r"\\sin"),
    ("function", r"\\sqrt", r"2\\sqrt"),
    ("constant", r"\\pi\b", "3"),
    ("bracket", r"\(", "["),
    ("bracket", r"\[", "("),
    ("bracket", r"\)", "]"),
    ("bracket", r"\]", ")"),
    ("end", r"\\infty", "100"),
)
"""Operator, what is changed, and to what."""
_UNITS: Final = ("m", "s", "g", "V", "A", "J", "N", "W", "Pa", "Hz", "K", "mol")
_POINTS: Final = 3
_FAR: Final = 1e-6
_LONGEST: Final = 200  # characters of a formula that SymPy reads
_MOST_BITS: Final = 20_000  # of a number that SymPy computes
_BITS_OF_A_POINT: Final = 5  # of what stands for a letter, a constant or an end
_TAME: Final = frozenset(
    "Abs ceiling floor log sin cos tan cot sec csc asin acos atan re im sign".split()
)
"""Functions whose values are no longer than what they are of."""


class _Answers(Maker):
    """Puts another answer in the place of the example's."""

    def split(self, task: Task) -> tuple[str, str, str]:
        """What stands before the answer of the example, the answer, and what stands behind it."""
        match = _INSIDE.match(self.example(task))
        if match is None or not match[2].strip() or len(match[2]) > _LONGEST:
            raise Untested("its example holds no short answer")
        return match[1], match[2], match[3]

    def answer_of(self, task: Task, work: Work) -> str | None:
        """The answer in work of the example's form; None if it has another."""
        before, _, after = self.split(task)
        text = work.text
        if not (text.startswith(before) and text.endswith(after)):
            return None
        return text[len(before) : len(text) - len(after)]


@serves(MathVerifier, ScienceVerifier, ChemistryVerifier, QAVerifier)
class AnswersWork(_Answers):
    """Another number, formula, unit or word."""

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        before, answer, after = self.split(task)
        slips = [*_slips(answer)]
        rng.shuffle(slips)
        for operator, changed in slips:
            yield Work(before + changed + after, operator)

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        example = self.example(task)
        yield Work(example, "example")
        if "\\boxed{" in example:
            yield Work(f"So the answer is ${example}$.", "in a sentence")
            yield Work(example.replace("\\frac", "\\dfrac"), "fraction")

    def witness(self, task: Task, work: Work) -> Witness | None:
        answer, _, right = self.answer_of(task, work), *self.split(task)[:2]
        if answer is None or answer == right:
            return None
        # Digits: beyond any rounding, 1 %.
        right_number, answer_number = number_in(right), number_in(answer)
        if right_number is not None and answer_number is not None:
            is_far = abs(right_number - answer_number) > abs(right_number) / 100
            return Witness("its digits", right, answer) if is_far else None
        # Units and formulas of chemistry are told apart by their letters.
        if not isinstance(self.verifier, MathVerifier):
            difference = _differing_quantity(right, answer)
            if difference is not None:
                return Witness(difference, right, answer)
        if _PLAIN_WORDS.fullmatch(right):
            accepted = task.reference if isinstance(task.reference, list) else [right]
            # Of several accepted texts the work must equal none.
            is_other = all(_letters(answer) != _letters(str(text)) for text in accepted)
            return Witness("its letters", right, answer) if is_other else None
        if isinstance(self.verifier, MathVerifier) and (
            difference := _differing_point(right, answer)
        ):
            return Witness(difference, right, answer)
        return None


@serves(ChoiceVerifier)
class ChoicesWork(_Answers):
    """The letters and texts of the other options."""

    def _options(self, task: Task) -> tuple[list[str], str]:
        reference = task.reference
        options = list(map(str, reference["options"]))
        answer = str(reference["answer"])
        # By letter or by text, as data sets have either.
        right = options.index(answer) if answer in options else LETTERS.index(answer)
        return options, options[right]

    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        before, _, after = self.split(task)
        options, right = self._options(task)
        for at, option in enumerate(options):
            if option != right:
                yield Work(before + LETTERS[at] + after, "letter")
                yield Work(before + option + after, "text")

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        before, answer, after = self.split(task)
        yield Work(self.example(task), "example")
        yield Work(f"{before}({answer}){after}", "brackets")

    def witness(self, task: Task, work: Work) -> Witness | None:
        options, right = self._options(task)
        answer = self.answer_of(task, work)
        if answer is None:
            return None
        letter = answer.strip("()")
        chosen = options[LETTERS.index(letter)] if letter in LETTERS[: len(options)] else answer
        # Two options may say the same.
        if chosen not in options or may_be_same(chosen, right):
            return None
        return Witness("another option", right, chosen)


# ------------------------------------------------------------------------------------ slips


def _slips(answer: str) -> Iterator[tuple[str, str]]:
    """Answers with one place changed, each with the operator."""
    if number_in(answer) is not None:
        yield from (("number", text) for text in near_misses(answer))
        yield from (("digits exchanged", text) for text in permuted(answer))
        return
    # Numbers within a formula, without their sign: that belongs to the formula.
    for match in _NUMBERS.finditer(answer):
        for changed in near_misses(match[0].lstrip("-")):
            if not changed.startswith("-"):
                bare = match[0].lstrip("-")
                at = match.end() - len(bare)
                yield "number", answer[:at] + changed + answer[match.end() :]
    for operator, pattern, new in _SLIPS:
        for match in list(re.finditer(pattern, answer))[:3]:
            yield operator, answer[: match.start()] + match.expand(new) + answer[match.end() :]
    quantity = _QUANTITY.fullmatch(answer)
    if quantity and quantity[2]:
        unit = quantity[2].strip()
        if unit in _UNITS:
            yield "unit", f"{quantity[1]} k{unit}"
            yield "unit", f"{quantity[1]} {_UNITS[(_UNITS.index(unit) + 1) % len(_UNITS)]}"
    # A list without brackets: its last solution is dropped.
    if "," in answer and not answer.startswith(("(", "[", "\\")):
        yield "dropped solution", answer.rpartition(",")[0]
    yield from (("letter", text) for text in _other_character(answer))


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text).casefold()


def _differing_quantity(right: str, answer: str) -> str | None:
    """What two quantities or chemical formulas differ in: one number of theirs, or the unit behind
    the same digits."""
    numbers, answer_numbers = _NUMBERS.findall(right), _NUMBERS.findall(answer)
    # The same but for its numbers.
    if _NUMBERS.sub("#", right) == _NUMBERS.sub("#", answer) and len(numbers) > 0:
        pairs = zip(numbers, answer_numbers, strict=True)
        changed = [
            (at, digits, other_digits)
            for at, (digits, other_digits) in enumerate(pairs)
            if digits != other_digits
        ]
        # One slip changes one number.
        if len(changed) != 1:
            return None
        at, number, other_number = changed[0][0], number_in(changed[0][1]), number_in(changed[0][2])
        if (
            number is None
            or other_number is None
            or abs(number - other_number) <= abs(number) * (not at) / 20
        ):
            return None  # the first number may be rounded
        return "its digits"
    one, two = _QUANTITY.fullmatch(right), _QUANTITY.fullmatch(answer)
    if not (one and two and one[2] and two[2]) or one[1] != two[1]:
        return None
    unit, other_unit = one[2].strip(), two[2].strip()
    is_unit = unit in _UNITS and other_unit in (*_UNITS, f"k{unit}")
    return "its unit" if is_unit and number_in(one[1]) else None


# ------------------------------------------------------------------------------------ formulas


def _differing_point(right: str, answer: str) -> str | None:
    """A point at which two formulas differ, by SymPy; None where it cannot tell."""
    formula, other_formula = _formula(right), _formula(answer)
    if formula is None or other_formula is None:
        return None
    try:
        if max(_bits(formula), _bits(other_formula)) > _MOST_BITS:
            return None
        return _told_apart(formula, other_formula)
    except (TypeError, ValueError, ArithmeticError, AttributeError, NotImplementedError):
        return None


@lru_cache(maxsize=256)
def _formula(text: str) -> object:
    """A formula as SymPy reads it with math-verify's parser; None if it cannot, or if it is too
    large."""
    try:
        if len(text) > _LONGEST or not fold_within(text):
            return None
    except TooLarge:
        return None
    from latex2sympy2_extended import latex2sympy

    with foreign_code() as errors:  # what this parser cannot read proves nothing
        read = latex2sympy(text)
    if errors:
        return None
    # An equation's right side, as in x = 5.
    return read.rhs if getattr(read, "is_Equality", False) else read


def _bits(formula: Any) -> float:
    """A bound on the binary digits of the largest number on the way to a formula's value.

    SymPy has no limit of its own, and works in this process: 9^{9^{9^9}} would never end."""
    import sympy

    if formula.is_Rational:
        return max(int(formula.p).bit_length(), int(formula.q).bit_length())
    if not formula.args:
        return _BITS_OF_A_POINT
    parts = [_bits(part) for part in formula.args]
    largest = max(parts)
    if formula.is_Add:
        return largest + len(parts)
    if formula.is_Mul:
        return sum(parts)
    if formula.is_Pow:
        # A power has the bits of its base, times the value of its exponent.
        return parts[0] * math.exp2(min(parts[1], _MOST_BITS.bit_length() + 1))
    if isinstance(formula, sympy.Function) and type(formula).__name__ not in _TAME:
        return largest * math.exp2(min(largest, _MOST_BITS.bit_length() + 1))
    return largest


def _told_apart(one: object, other: object) -> str | None:
    import sympy

    if isinstance(one, sympy.FiniteSet) and isinstance(other, sympy.Expr):
        other = sympy.FiniteSet(other)
    if isinstance(one, sympy.Set) and isinstance(other, sympy.Set):
        return _told_apart_sets(one, other)
    if not (isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)):
        return None
    # Other letters are no evidence: they may be names of the same thing.
    if (letters := one.free_symbols) != other.free_symbols:
        return None
    order = sorted(letters, key=str)
    for number in range(_POINTS):
        point = {
            # Fractions beyond 1, another one for each letter.
            letter: sympy.Rational(7 + 5 * number + 3 * at, 6)
            for at, letter in enumerate(order)
        }
        values = [complex(formula.subs(point).evalf(30)) for formula in (one, other)]
        # Relative beyond 1, absolute below.
        if abs(values[0] - values[1]) > _FAR * (1 + abs(values[0])):
            where = ", ".join(f"{letter} = {value}" for letter, value in point.items())
            return f"its value at {where}" if where else "its value"
    return None


def _told_apart_sets(one: Any, other: Any) -> str | None:
    import sympy

    if isinstance(one, sympy.FiniteSet) and isinstance(other, sympy.FiniteSet):
        values = [sorted(float(value.evalf()) for value in solutions) for solutions in (one, other)]
        if len(values[0]) != len(values[1]):
            return "the number of its solutions"
        gaps = (abs(a - b) for a, b in zip(*values, strict=True))
        return "its solutions" if max(gaps, default=0) > _FAR else None
    ends = {end for solutions in (one, other) for end in solutions.boundary if end.is_finite}
    # Each end and half a unit beside it: open and closed ends differ at the end itself.
    points = {end + by for end in ends for by in (sympy.Rational(-1, 2), 0, sympy.Rational(1, 2))}
    for point in sorted(points):
        if one.contains(point) != other.contains(point):
            return f"whether it holds {point}"
    return None


# ------------------------------------------------------------------ numbers and words that are near


def wrong_answers(answer: str, others: Iterable[str], count: int, rng: Random) -> list[str]:
    """Wrong answers of the same kind: first those of other tasks, then made-up ones.

    Args:
        answer: the right answer.
        others: answers of other tasks.
        count: greatest number of answers.
        rng: draws the made-up ones.
    """
    chosen: list[str] = []
    for candidate in (*others, *_made_up(answer, rng)):
        if (
            not any(may_be_same(candidate, taken_answer) for taken_answer in (answer, *chosen))
            and answer not in candidate
            and candidate not in answer
        ):
            chosen.append(candidate)
        if len(chosen) == count:
            break
    return chosen


def near_misses(answer: str) -> list[str]:
    """Answers that are near this one and clearly wrong: numbers that differ by more than 1 %,
    beyond any rounding.

    Args:
        answer: the right answer.
    """
    number = number_in(answer)
    if number is None:
        return [text for text in _other_character(answer) if not may_be_same(text, answer)]
    numbers = [-number, 10 * number]
    if number.denominator == 1:
        # By 2 % at least, and by 1.
        step = max(1, -(-abs(number) // 50))
        numbers += [number + step, number - step]
    texts = [
        str(value) if value.denominator == 1 or "/" in answer else str(float(value))
        for value in numbers
    ]
    digits = [i for i, char in enumerate(answer) if char.isascii() and char.isdigit()]
    texts += [_other_digit(answer, at) for at in digits[:2]]
    read = ((text, number_in(text)) for text in dict.fromkeys(texts))
    return [
        text
        for text, value in read
        if value is not None and abs(value - number) > abs(number) / 100
    ]


def permuted(answer: str) -> list[str]:
    """The answer with its digits in other orders: reversed, sorted, and with the first two that
    differ exchanged.

    Args:
        answer: the right answer.
    """
    places = [i for i, char in enumerate(answer) if char.isascii() and char.isdigit()]
    digits = [answer[i] for i in places]
    at = next((i for i in range(len(digits) - 1) if digits[i] != digits[i + 1]), None)
    if at is None:
        return []
    swapped = [*digits[:at], digits[at + 1], digits[at], *digits[at + 2 :]]
    orders = []
    for order in (digits[::-1], sorted(digits, reverse=True), swapped):
        text = list(answer)
        for place, digit in zip(places, order, strict=True):
            text[place] = digit
        candidate = "".join(text)
        if (
            candidate not in orders
            and not may_be_same(candidate, answer)
            and not _near(candidate, answer)
        ):
            orders.append(candidate)
    return orders


def _near(one: str, other: str) -> bool:
    """True if the first numbers differ by 1 % at most, which a tolerance may allow, and nothing
    else differs."""
    a, b = _NUMBERS.search(one), _NUMBERS.search(other)
    if a is None or b is None or one[a.end() :] != other[b.end() :]:
        return False
    x, y = number_in(a[0]), number_in(b[0])
    return x is not None and y is not None and abs(x - y) <= abs(y) / 100


def _other_character(answer: str) -> Iterator[str]:
    """With one digit or letter changed; not in names such as x_1 or in markup, which a verifier may
    ignore."""
    digit = next((i for i, char in enumerate(answer) if char.isascii() and char.isdigit()), None)
    if digit is not None and "_" not in answer:
        yield _other_digit(answer, digit)
    elif _PLAIN_WORDS.fullmatch(answer):
        at = len(answer) // 2 if answer[len(answer) // 2].isalpha() else 0
        # The letter beside it in the alphabet; z has none behind it.
        last = answer[at] in "zZ"
        yield answer[:at] + chr(ord(answer[at]) + (-1 if last else 1)) + answer[at + 1 :]


def _other_digit(answer: str, at: int) -> str:
    # Another digit from 1 to 9, never the same.
    return answer[:at] + str(int(answer[at]) % 9 + 1) + answer[at + 1 :]


def _made_up(answer: str, rng: Random) -> Sequence[str]:
    number = number_in(answer)
    if number is None:
        return [
            f"{word}{rng.randrange(100)}"
            for word in ("quartz", "willow", "ember", "falcon", "sierra", "anchor")
        ]
    return [str(int(number) + step) for step in rng.sample(range(2, 100), 40)]
