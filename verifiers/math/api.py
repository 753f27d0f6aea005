r"""`parse`, `compare` and `value`: the parts of the verifier for a notebook or a report.

    >>> print(parse(r"\frac{2}{4}\text{ cm}"))
    the number 1/2, in centimetre
    >>> compare("1 < x \\le 3", "(1, 3]").why
    'same-set'
    >>> value("50\\%")
    Fraction(1, 2)

`MathVerifier.verify` is what scores a completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rlvr.errors import DataError, UsageError
from rlvr.types import Verdict
from rlvr.verifiers.answers import bare, extract
from rlvr.verifiers.math import forms
from rlvr.verifiers.math.fold import with_points
from rlvr.verifiers.math.forms import Choice, Clock, Family, Flawed, Form, Named, Quantity, Word
from rlvr.verifiers.math.latex.tree import TooLarge
from rlvr.verifiers.math.policy import COMPETITION, MathPolicy
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.shapes import is_relation
from rlvr.verifiers.math.units import UNKNOWN
from rlvr.verifiers.math.verifier import MathVerifier, Reference

__all__ = ["ReadAnswer", "compare", "parse", "value"]

_LONGEST = 80  # characters of a number or text that are printed
_BOXES = ("\\boxed", "\\fbox", "\\framebox")


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What a text was read as; `print` shows `reading`.

    Attributes:
        text: the text that was read, without a box around it.
        kind: `number`, `expression`, `relation`, `named`, `list`, `set`, `tuple`, `interval`,
            `union`, `matrix`, `ratio`, `range`, `choice`, `words`, `time`, `family`, or `flawed`
            for what can be no answer: `x = x`.
        reading: the same in words, for people.
        value: the exact value of a number, a percent sign taken into account; None for anything
            else.
        unit: the canonical name of its unit; "" where there is none.
    """

    text: str
    kind: str
    reading: str
    value: Fraction | None = None
    unit: str = ""

    def __str__(self) -> str:
        return self.reading


def parse(text: str, policy: MathPolicy = COMPETITION) -> ReadAnswer:
    r"""What the verifier reads in an answer: to see why two answers are not equal, or to check a
    data set.

        >>> parse("(1, 3]").reading
        'the interval (1, 3] from the number 1 to the number 3'

    Args:
        text: an answer alone, perhaps in a box.
        policy: of which only `decimal` matters here.

    Raises:
        UsageError: the text is no string.
        DataError: it is empty or beyond a limit.
    """
    if not isinstance(text, str):
        raise UsageError(f"the text is a {type(text).__name__}; it must be a string")
    extraction = extract(text) if any(box in text for box in _BOXES) else None
    answer = extraction.answer if extraction else bare(text)
    try:
        form = read(with_points(answer) if policy.decimal == "comma" else answer)
    except TooLarge as limit:
        raise DataError(f"the answer {answer[:80]!r} is beyond a limit: {limit}") from None
    if not form.text:
        raise DataError(f"the answer {text[:80]!r} is empty")
    exact = forms.worth(form)
    unit = form.unit if isinstance(form, Quantity) and exact is not None else ""
    return ReadAnswer(answer, _kind(form), _reading(form), exact, unit)


def compare(
    answer: str | ReadAnswer,
    reference: Reference | ReadAnswer | Sequence[Reference],
    policy: MathPolicy = COMPETITION,
    *,
    prove: bool = False,
) -> Verdict:
    """The verdict on an answer alone; `MathVerifier(policy).compare` for many.

    Args:
        answer: a text, or what `parse` made of one.
        reference: the right answer, or a list of right answers of which any will do.
        policy: what counts as equal.
        prove: see `MathVerifier.compare`.

    Raises:
        DataError: the reference cannot be read; the message names it.
        Unscored: no symbolic worker can be started here.
    """
    text = answer.text if isinstance(answer, ReadAnswer) else answer
    trusted = reference.text if isinstance(reference, ReadAnswer) else reference
    return MathVerifier(policy).compare(text, trusted, prove=prove)


def value(text: str) -> Fraction | None:
    r"""The exact value of a text that is one number; None for anything else.

        >>> value(r"1\frac{1}{2}"), value("2.5e3"), value("x + 1"), value(r"\pi")
        (Fraction(3, 2), Fraction(2500, 1), None, None)

    A unit is left out (`parse` tells it) and a percent sign divides by 100.

    Args:
        text: an answer alone, perhaps in a box.

    Raises:
        UsageError, DataError: see `parse`.
    """
    return parse(text).value


# ----------------------------------------------------------------------------------------- in words

_KINDS = {
    "list": "list",
    "either": "list",
    "set": "set",
    "matrix": "matrix",
    "row": "list",
    ":": "ratio",
    "range": "range",
}
_REGIONS = {"union": "union", "meet": "intersection", "minus": "difference"}
_SINGLE_KINDS = {
    Named: "named",
    Choice: "choice",
    Word: "words",
    Clock: "time",
    Family: "family",
    Flawed: "flawed",
}


def _kind(form: Form) -> str:
    match form:
        case Quantity(value=None, pis=None):
            return "relation" if is_relation(form) else "expression"
        case Quantity():
            return "number"
        case forms.Items():
            if form.kind in _REGIONS:
                return "union"
            if form.kind in ("()", "[]", "(]", "[)"):
                return "tuple" if form.kind == "()" or len(form.items) != 2 else "interval"
            return _KINDS[form.kind]
    return _SINGLE_KINDS[type(form)]


def _reading(form: Form) -> str:
    match form:
        case Quantity():
            return _number(form)
        case forms.Items():
            return _several(form)
        case Named():
            return f"{form.name} as {_reading(form.body)}"
        case Choice():
            rest_text = f", which is {_reading(form.rest)}" if form.rest else ""
            return f"the choice {form.letter.upper()}{rest_text}"
        case Word():
            return f"the words {_short(form.plain)!r}"
        case Clock():
            minutes = form.seconds // 60
            unsaid = "" if form.half else ", am or pm not said"
            return f"the time {minutes // 60}:{minutes % 60:02}{unsaid}"
        case Family():
            domain = f" in {form.domain}" if form.domain else ""
            return f"for every {form.letter}{domain}: {_reading(form.body)}"
        case Flawed():
            return f"no answer: {form.reason}"


def _number(form: Quantity) -> str:
    unit = f", in {form.unit.removeprefix(UNKNOWN)}" if form.unit and form.unit != ":" else ""
    if form.value is not None:
        percent = " percent" if form.percent else ""
        return f"the number {_short(_digits(Fraction(form.value)))}{percent}{unit}"
    if form.pis is not None:
        return f"the number {_short(_digits(form.pis))} π{unit}"
    return f"the {_kind(form)} {_short(form.core)}{unit}"


def _digits(number: Fraction) -> str:
    large = max(number.numerator.bit_length(), number.denominator.bit_length()) > 4 * 3000
    return f"of {number.numerator.bit_length()} binary digits" if large else str(number)


def _several(form: forms.Items) -> str:
    if r"\pm" in form.text:
        return f"the values of {_short(form.text)}"
    items = "; ".join(map(_reading, form.items))
    if _kind(form) in ("tuple", "interval") and len(form.items) == 2:
        low, high = map(_reading, form.items)
        pair = f"{form.kind[0]}{_plain(form.items[0])}, {_plain(form.items[1])}{form.kind[1]}"
        is_pair = _kind(form) == "tuple"
        return (
            f"the pair {pair}: {items}" if is_pair else f"the interval {pair} from {low} to {high}"
        )
    if not form.items:
        return "the empty set"
    name = _REGIONS.get(form.kind) or _kind(form)
    return f"the {name} of {items}"


def _plain(form: Form) -> str:
    return (
        str(form.value)
        if isinstance(form, Quantity) and isinstance(form.value, int)
        else _short(form.text)
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
