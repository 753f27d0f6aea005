r"""Answers with a unit, over `rlvr.verifiers.math`: 9.8 m/s^2 is 981 cm/s^2, within a tolerance.

The mathematics reads letters behind a number as a product of variables, since `5 m` may be one.
Here they are a unit; `MathVerifier` decides on what was read so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal

from rlvr.errors import DataError, UsageError, brief
from rlvr.types import Outcome, Verdict
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.answers import Answer, Form
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.math import MathPolicy, MathVerifier, forms, parse
from rlvr.verifiers.math.fold import fold, with_plain_commas
from rlvr.verifiers.math.forms import Flawed, Quantity
from rlvr.verifiers.math.latex import TooLarge
from rlvr.verifiers.math.limits import fold_within
from rlvr.verifiers.math.quantity import literal, read_measured
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.shapes import as_stated
from rlvr.verifiers.math.statement import significant_digits
from rlvr.verifiers.math.units import TEMPERATURES, canonical, measure, plain_unit

__all__ = ["ScienceVerifier", "Trusted", "in_base_units"]

# a number with its unit is short; longer texts are derivations
_LONGEST: Final = 300  # characters of an answer that is looked at
# "the speed of the ball is ", "v_0 = ", "\approx ", "about "
_NAME: Final = re.compile(
    r"(?:(?i:the|its) [A-Za-z][A-Za-z\d ]{1,60}? (?i:is|are|was|equals) )?"
    r"(?:\|?[A-Za-z\\][A-Za-z_\\{}\d |]{0,20}(?:=|(?=\\approx|≈)))?\s*"
    r"(?:\\approx|\\sim|≈|~|(?i:approximately|about|roughly|approx\.?)(?= ))?\s*"
)
_WAY: Final = re.compile(  # a reference says no direction, so an answer may
    r",?\s*(?P<text>\\text\{\s*)?\(?(?:(?:directed|pointing|acting|vertically|horizontally|due) )*"
    r"(?:(?:down|up|in|out|for|back)wards?|"
    r"to the (?:right|left|north|south|east|west)|(?:north|south|east|west)(?:wards?)?)\)?"
    r"(?(text)\})\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Trusted:
    """A quantity as `MathVerifier` takes it."""

    form: forms.Form


@dataclass(frozen=True, slots=True)
class ScienceVerifier(BaseVerifier[Answer, Trusted]):
    r"""Verifies a quantity: a number with its unit.

        >>> ScienceVerifier().verify(r"So a = \boxed{981 cm/s^2}", "9.8 m/s^2").why
        'same-number'
        >>> ScienceVerifier().verify(r"So a = \boxed{9.8}", "9.8 m/s^2").why
        'unit-omitted'

    The reference is a text such as `9.8 m/s^2`, `3.0e8 m/s` or `0.25`.  The answer is looked for as
    `MathVerifier` does, and its reasons are used; two more are WRONG: `too-few-digits` and
    `too-long`; `unreadable` is UNPARSED.

    Attributes:
        tolerance: an answer within this part of the reference is right; 0.01 is 1 %.
        digits: significant digits that an answer needs that is right only within the tolerance; as
            many as the reference has, if it has fewer.  1 allows 3e8 m/s for 2.998e8 m/s; 10 is
            right within 1 % of 9.95 with 2.
        units: "required": 5 for 5 m is wrong.  "optional": a unit may be left out, but another one
            is wrong.

    Raises:
        UsageError: a value is out of range.
    """

    tolerance: float = 0.01
    digits: int = 2
    units: Literal["required", "optional"] = "required"
    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(longest=_LONGEST)
    reference_form: ClassVar[str] = "a number with its unit, as a text, or a number"
    reference_example: ClassVar[str] = "9.8 m/s^2"

    def __post_init__(self) -> None:
        require_whole("digits", self.digits, 1, 15)
        require_one_of("units", self.units, ("required", "optional"))
        # a tolerance of a fifth already takes 8 for 10
        if isinstance(self.tolerance, bool) or not 0 <= self.tolerance <= 0.2:
            raise UsageError(
                f"tolerance is {self.tolerance!r}; it must be from 0 to 0.2, a part of the "
                f"reference"
            )

    def read(self, reference: object) -> Trusted:
        """The quantity.

        Args:
            reference: a text, or a number without a unit.

        Raises:
            DataError: it is no number with a known unit.
        """
        if isinstance(reference, int | float) and not isinstance(reference, bool):
            reference = str(reference)
        if not isinstance(reference, str):
            raise DataError(
                f"the reference is {brief(reference)}; it must be a text such as '9.8 m/s^2'"
            )
        if len(reference) > self.form.longest:
            raise DataError(f"the reference {brief(reference)} is longer than an answer may be")
        form = _read(reference)
        if not _is_measured(form):
            raise DataError(
                f"the reference {brief(reference)} is no number with a known unit: it is "
                f"{parse(reference).reading}"
            )
        return Trusted(form)

    def judge(self, answer: Answer, reference: Trusted) -> Verdict:
        """The verdict on an answer; with a prompt, an expression of it is no answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        form, right = _read(answer.text), reference.form
        verdict = self._math().judge_form(form, right, answer.text, answer.prompt)
        if not verdict.correct:
            # without a digit there is no number that could be wrong: a word, or a symbol
            if verdict.reason in _UNREADABLE and not any(map(str.isdigit, answer.text)):
                why = f"unreadable: {answer.text[:80]!r}"
                return Verdict(Outcome.UNPARSED, why=why, answer=answer.text)
            return verdict
        # what is equal without any tolerance needs no digits: 2 m for 2.00 m
        if _EXACT.judge_form(form, right, answer.text).correct:
            return verdict
        needed = min(self.digits, significant_digits(right, trailing=False))
        # "3" for 3.14, within a wide tolerance, would pay a guess of the size alone
        if (count := significant_digits(as_stated(form, right), trailing=True)) < needed:
            why = f"too-few-digits: {count}, of {needed} needed where the number is not exact"
            return Verdict(Outcome.WRONG, why=why, answer=answer.text)
        return verdict

    def example(self, reference: object) -> str:
        return f"\\boxed{{{reference}}}"

    def _math(self) -> MathVerifier:
        return _math(self.tolerance, self.units)


@lru_cache(maxsize=64)
def _math(tolerance: float, units: Literal["required", "optional"]) -> MathVerifier:
    return MathVerifier(MathPolicy(units=units, tolerance=tolerance, symbolic=False))


# unit and value exactly: only then may digits be missing
_EXACT: Final = MathVerifier(MathPolicy(tolerance=0, units="optional"))
_UNREADABLE: Final = frozenset(("different-kind", "unreadable", "unknown-words"))


def in_base_units(value: Any, unit: str) -> Any:
    """A number of a unit in SI base units, exact for exact numbers.

    Args:
        value: the number.
        unit: such as "km/h".

    Raises:
        DataError: the unit is not known.
    """
    size = measure(canonical(plain_unit(fold(unit))) or "?")
    if size is None:
        raise DataError(f"the unit {unit!r} is not known")
    return value * size[0]


def _is_measured(form: forms.Form) -> bool:
    if not isinstance(form, Quantity) or form.value is None:
        return False
    return not form.unit or form.unit in TEMPERATURES or measure(form.unit) is not None


def _read(text: str) -> forms.Form:
    r"""One number with a known unit, without its name and direction; else the text as mathematics
    reads it."""
    try:
        plain = fold_within(_WAY.sub("", text.strip().strip("$")).rstrip(". "))
        name = _NAME.match(plain)
        plain = with_plain_commas(plain[name.end() if name else 0 :])
        return read_measured(plain) or literal(plain) or read(text)
    except TooLarge as limit:
        return Flawed(text, f"limit: {limit}")
