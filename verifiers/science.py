r"""Answers with a unit, over `rlvr.verifiers.math`: 9.8 m/s^2 is 981 cm/s^2, within a tolerance.

The mathematics reads letters behind a number as a product of variables, since `5 m` may be one.  Here they are a unit:
a number followed by known units is rewritten, and `MathVerifier` decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal

from rlvr.errors import DataError, UsageError, brief
from rlvr.types import Outcome, Task, Verdict
from rlvr.validate import require_one_of, require_whole
from rlvr.verifiers.math import MathPolicy, MathVerifier, extract, parse
from rlvr.verifiers.math.units import TEMPERATURES, canonical, measure

__all__ = ["ScienceVerifier", "in_base_units"]

_LONGEST: Final = 300  # characters of an answer that is looked at
_TIMES: Final = r"(?:\\times|\\cdot|×|·|\*|x)"
_TEN: Final = rf"\s*{_TIMES}\s*10\s*\^\s*(?:\{{\s*[+\-−]?\d{{1,3}}\s*\}}|[+\-−]?\d{{1,3}})"
_NUMBER: Final = (
    rf"[+\-−]?\s*(?:\d{{1,3}}(?:,\d{{3}})+|\d+)?(?:\.\d+)?(?:{_TEN}|[eE][+\-−]?\d{{1,3}})?"
)
_NAME: Final = r"(?:[A-Za-z\\][A-Za-z_\\{}\d ]{0,20}=\s*)?(?:\\approx|\\sim|≈|~)?\s*"
_QUANTITY: Final = re.compile(rf"{_NAME}(?P<number>{_NUMBER})(?P<unit>(?:1\s*/|[^\d.,])[^,;=]*)?")
_MARKUP: Final = re.compile(
    r"\\(?:text|mathrm|textrm|operatorname|mathbf|rm|unit|si)(?![A-Za-z])|\\[,;:! ]|~|\$"
)
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{([^{}]{1,40})\}\s*\{([^{}]{1,40})\}")
_POWER: Final = re.compile(r"\^\s*\{?\s*\(?([+\-−]?\d)\)?\s*\}?")
_RAISED: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")
_RAISED_RUN: Final = re.compile("[⁻−]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_SIGNIFICANT: Final = re.compile(r"\d[\d,]*(?:\.\d*)?|\.\d+")


@dataclass(frozen=True, slots=True)
class ScienceVerifier:
    r"""Verifies a quantity: a number with its unit.

        >>> ScienceVerifier().verify(r"So a = \boxed{981 cm/s^2}", "9.8 m/s^2").why
        'same-number'
        >>> ScienceVerifier().verify(r"So a = \boxed{9.8}", "9.8 m/s^2").why
        'unit-omitted'

    The reference is a text such as `9.8 m/s^2`, `3.0e8 m/s` or `0.25`.  The answer is looked for as `MathVerifier`
    does, and its reasons are used; two more are WRONG: `too-few-digits` and `limit`.

    Attributes:
        tolerance: an answer within this part of the reference is right; 0.01 is 1 %.
        digits: significant digits that an answer needs that is right only within the tolerance; as many as the
            reference has, if it has fewer.  1 allows 3e8 m/s for 2.998e8 m/s; 10 is right within 1 % of 9.95 with 2.
        units: "required": 5 for 5 m is wrong.  "optional": a unit may be left out, but another one is wrong.

    Raises:
        UsageError: a value is out of range.
    """

    tolerance: float = 0.01
    digits: int = 2
    units: Literal["required", "optional"] = "required"
    id: ClassVar[str] = "science-verifier-v1"

    def __post_init__(self) -> None:
        require_whole("digits", self.digits, 1, 15)
        require_one_of("units", self.units, ("required", "optional"))
        if isinstance(self.tolerance, bool) or not 0 <= self.tolerance <= 0.2:
            raise UsageError(
                f"tolerance is {self.tolerance!r}; it must be from 0 to 0.2, a part of the reference"
            )

    def verify(self, completion: str, reference: str, task: Task | None = None) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: the model's text.
            reference: the quantity.
            task: what the completion answers; with it, an expression of the prompt is no answer.

        Raises:
            DataError: the reference is no number with a known unit.
        """
        trusted = _reference(reference)
        found = extract(completion)
        if found is None:
            return Verdict(Outcome.UNPARSED, why="no-answer")
        if found.flaw or len(found.answer) > _LONGEST:
            why = "limit: an answer of more than 300 characters"
            return (
                Verdict(Outcome.WRONG, why=why)
                if not found.flaw
                else self._math().verify(completion, trusted)
            )
        said = _with_unit(found.answer)
        verdict = self._math().verify(f"\\boxed{{{said}}}", trusted, task)
        if (
            not verdict.correct
            or MathVerifier(MathPolicy(tolerance=0, units="optional"))
            .compare(said, trusted)
            .correct
        ):
            return verdict
        needed = min(self.digits, _significant(reference, trailing=False))
        if (count := _significant(found.answer, trailing=True)) < needed:
            why = f"too-few-digits: {count}, of {needed} needed where the number is not exact"
            return Verdict(Outcome.WRONG, why=why, answer=found.answer)
        return verdict

    def check(self, reference: Any) -> None:
        """Refuse a reference that cannot be used.

        Args:
            reference: see `verify`.

        Raises:
            DataError: see `verify`.
        """
        _reference(reference)

    def _math(self) -> MathVerifier:
        return _math(self.tolerance, self.units)


@lru_cache(maxsize=64)
def _math(tolerance: float, units: Literal["required", "optional"]) -> MathVerifier:
    return MathVerifier(
        MathPolicy(units=units, tolerance=tolerance, symbolic=False, several_boxes="hedge")
    )


@lru_cache(maxsize=4096)
def _reference(reference: Any) -> str:
    if not isinstance(reference, str):
        raise DataError(
            f"the reference is {brief(reference)}; it must be a text such as '9.8 m/s^2'"
        )
    said = _with_unit(reference)
    read = parse(said)
    if read.value is None or (
        read.unit and measure(read.unit) is None and read.unit not in TEMPERATURES
    ):
        raise DataError(
            f"the reference {brief(reference)} is no number with a known unit: it is {read.reading}"
        )
    return said


def in_base_units(value: Any, unit: str) -> Any:
    """A number of a unit in SI base units, exact for exact numbers.

    Args:
        value: the number.
        unit: such as "km/h".

    Raises:
        DataError: the unit is not known.
    """
    size = measure(canonical(_plain_unit(unit)) or "?")
    if size is None:
        raise DataError(f"the unit {unit!r} is not known")
    return value * size[0]


def _with_unit(answer: str) -> str:
    r"""The answer with its unit in \text{}, if it is one number with a known unit; else as it is."""
    found = _QUANTITY.fullmatch(answer.strip().strip("$").rstrip(". "))
    if found is None or not any(map(str.isdigit, found["number"])):
        return answer
    number = re.sub(
        rf"\s*{_TIMES}\s*10\s*\^\s*\{{?\s*([+\-−]?\d+)\s*\}}?", r" \\times 10^{\1}", found["number"]
    )
    unit = _plain_unit(found["unit"] or "")
    if not unit:
        return number.replace("−", "-").strip() if not (found["unit"] or "").strip() else answer
    name = canonical(unit)
    if name is None or (measure(name) is None and name not in TEMPERATURES):
        return answer
    return f"{number.replace('−', '-').strip()} \\text{{ {name}}}"


def _plain_unit(text: str) -> str:
    """A unit as plain words: `\\frac{\\text{m}}{\\text{s}^2}` is `m/s^2`."""
    text = _MARKUP.sub(" ", text)
    text = _RAISED_RUN.sub(lambda run: f"^{run[0].translate(_RAISED)}", text)
    text = (
        text.replace("\\cdot", " ")
        .replace("·", " ")
        .replace("⋅", " ")
        .replace("*", " ")
        .replace("\\Omega", "Ω")
    )
    text = (
        text.replace("\\mu", "µ")
        .replace("\\%", "%")
        .replace("^\\circ", "°")
        .replace("\\degree", "°")
    )
    text = _POWER.sub(lambda power: f"^{power[1].replace('−', '-')}", text)
    text = re.sub(
        r"\{\s*([^{}]*?)\s*\}",
        r"\1",
        _FRACTION.sub(r"\1/\2", re.sub(r"\{\s*([A-Za-zµΩ]+)\s*\}", r"\1", text)),
    )
    text = re.sub(r"(?:°|degrees?)\s*([CF])(?![A-Za-z])", _degrees, " ".join(text.split()))
    text = re.sub(r"(?<![A-Za-zµ])([mµn]?)M(?![A-Za-z])", r"\1mol/L", text)  # molar
    return text.removeprefix("1") if text.startswith(("1/", "1 /")) else text  # 1/s


def _degrees(found: re.Match[str]) -> str:
    return "celsius" if found[1] == "C" else "fahrenheit"


def _significant(text: str, *, trailing: bool) -> int:
    """Significant digits of the first number; zeros at the end of a whole number count only with `trailing`."""
    found = _SIGNIFICANT.search(text)
    if found is None:
        return 0
    digits = found[0].replace(",", "")
    if "." not in digits and not trailing:
        digits = digits.rstrip("0")
    return max(1, len(digits.replace(".", "").lstrip("0")))
