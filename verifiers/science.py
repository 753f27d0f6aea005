r"""Answers with a unit, over `rlvr.verifiers.math`: 9.8 m/s^2 is 981 cm/s^2, within a tolerance.

The mathematics reads letters behind a number as a product of variables, since `5 m` may be one.
Here they are a unit: a number followed by known units is rewritten, and `MathVerifier` decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal

from rlvr.errors import DataError, UsageError, brief
from rlvr.types import Outcome, Task, Verdict
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.answers import Answer, Form
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.math import MathPolicy, MathVerifier, parse
from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.quantity import literal, read_measured
from rlvr.verifiers.math.units import TEMPERATURES, canonical, measure, plain_unit

__all__ = ["ScienceVerifier", "Trusted", "in_base_units"]

# a number with its unit is short; longer texts are derivations
_LONGEST: Final = 300  # characters of an answer that is looked at
# "the speed of the ball is ", "v_0 = ", "\approx ", "about "
_NAME: Final = re.compile(
    r"(?:(?i:the|its) [A-Za-z][A-Za-z\d ]{1,60}? (?i:is|are|was|equals) )?"
    r"(?:[A-Za-z\\][A-Za-z_\\{}\d ]{0,20}(?:=|(?=\\approx|≈)))?\s*"
    r"(?:\\approx|\\sim|≈|~|(?i:approximately|about|roughly|approx\.?)(?= ))?\s*"
)
_WAY: Final = re.compile(  # a reference says no direction, so an answer may
    r",?\s*\(?(?:(?:directed|pointing|acting|vertically|horizontally|due) )*"
    r"(?:(?:down|up|in|out|for|back)wards?|"
    r"to the (?:right|left|north|south|east|west)|(?:north|south|east|west)(?:wards?)?)\)?\Z",
    re.IGNORECASE,
)
# a decimal comma, "3,5 m"; before three digits it groups: "1,200 m"
_COMMA: Final = re.compile(r"(?<=\d),(?!\d{3}(?!\d))(?=\d)")
# `\SI{9.8}{m/s^2}` and `\qty{9.8}{…}`, as LaTeX's siunitx writes quantities
_SIUNITX: Final = re.compile(r"\\(?:SI|qty)\s*\{([^{}]{1,60})\}\s*\{")
# "newton-meter" is a unit of two words; the minus of "s^-1" stays
_HYPHEN: Final = re.compile(r"(?<=[A-Za-zΩ])-(?=[A-Za-zΩ])")
# "kilo-meter" is one word
_PREFIX: Final = re.compile(r"(?i)\b(kilo|mega|giga|milli|micro|nano|centi)-(?=[a-z])")
# "0.5 M", "5 mM" and "molar"; not the M of "MHz"
_MOLAR: Final = re.compile(r"(?<![A-Za-zµ])(?:([mµn]?)M|molar)(?![A-Za-z])")
# "1,200", "3.50" and ".5": the first run of digits that is a number
_SIGNIFICANT: Final = re.compile(r"\d[\d,]*(?:\.\d*)?|\.\d+")


@dataclass(frozen=True, slots=True)
class Trusted:
    """A quantity as `MathVerifier` takes it, and as it was written."""

    text: str
    written: str


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
        text = _with_unit(reference)
        parsed = parse(text)
        is_known_unit = (
            not parsed.unit or measure(parsed.unit) is not None or parsed.unit in TEMPERATURES
        )
        if parsed.value is None or not is_known_unit:
            raise DataError(
                f"the reference {brief(reference)} is no number with a known unit: it is "
                f"{parsed.reading}"
            )
        return Trusted(text, reference)

    def judge(self, answer: Answer, reference: Trusted) -> Verdict:
        """The verdict on an answer; with a prompt, an expression of it is no answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        text = _with_unit(answer.text)
        task = Task("row", answer.prompt) if answer.prompt else None
        # in a box, so that the rules of mathematics find the whole of it and nothing around it
        verdict = self._math().verify(f"\\boxed{{{text}}}", reference.text, task)
        if not verdict.correct:
            # without a digit there is no number that could be wrong: a word, or a symbol
            if verdict.reason in _UNREADABLE and not any(map(str.isdigit, answer.text)):
                why = f"unreadable: {answer.text[:80]!r}"
                return Verdict(Outcome.UNPARSED, why=why, answer=answer.text)
            return replace(verdict, answer=answer.text)
        # what is equal without any tolerance needs no digits: 2 m for 2.00 m
        if _EXACT.compare(text, reference.text).correct:
            return verdict
        needed = min(self.digits, _significant(reference.written, trailing=False))
        # "3" for 3.14, within a wide tolerance, would pay a guess of the size alone
        if (count := _significant(answer.text, trailing=True)) < needed:
            why = f"too-few-digits: {count}, of {needed} needed where the number is not exact"
            return Verdict(Outcome.WRONG, why=why, answer=answer.text)
        return verdict

    def example(self, reference: object) -> str:
        return f"\\boxed{{{reference}}}"

    def _math(self) -> MathVerifier:
        return _math(self.tolerance, self.units)


@lru_cache(maxsize=64)
def _math(tolerance: float, units: Literal["required", "optional"]) -> MathVerifier:
    return MathVerifier(
        MathPolicy(units=units, tolerance=tolerance, symbolic=False, several_boxes="hedge")
    )


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
    size = measure(canonical(plain_unit(_plain_words(fold(unit)))) or "?")
    if size is None:
        raise DataError(f"the unit {unit!r} is not known")
    return value * size[0]


def _with_unit(answer: str) -> str:
    r"""The answer with its unit in \text{}, if it is one number with a known unit; else as it
    is."""
    plain = _SIUNITX.sub(r"\1 {", answer.strip().strip("$"))
    plain = fold(_WAY.sub("", plain).rstrip(". "))
    name = _NAME.match(plain)
    plain = _COMMA.sub(".", plain[name.end() if name else 0 :])
    measured = read_measured(_plain_words(plain))
    if measured is None:
        return plain if literal(plain) else answer
    return f"{measured.core} \\text{{ {measured.unit}}}"


def _plain_words(text: str) -> str:
    """Units without hyphens and their letter for mol/L, which mathematics has not."""
    return _MOLAR.sub(r"\1mol/L", _HYPHEN.sub(" ", _PREFIX.sub(r"\1", text)))


def _significant(text: str, *, trailing: bool) -> int:
    """Significant digits of the first number; zeros at the end of a whole number count only with
    `trailing`."""
    match = _SIGNIFICANT.search(text)
    if match is None:
        return 0
    digits = match[0].replace(",", "")
    # the zeros of 1200 may count or not: those of an answer do, those of a reference do not
    if "." not in digits and not trailing:
        digits = digits.rstrip("0")
    return max(1, len(digits.replace(".", "").lstrip("0")))
