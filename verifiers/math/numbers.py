"""Compares one exact number with another: units, percent signs, rounding, multiples of π,
infinities."""

from __future__ import annotations

import math
from fractions import Fraction

from rlvr.verifiers.math.forms import THOUSANDS, Quantity
from rlvr.verifiers.math.latex.tree import INFINITY, MINUS_INFINITY, Node
from rlvr.verifiers.math.matching import UNDECIDED, Decision, judged
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.verifiers.math.rounding import bounds, within
from rlvr.verifiers.math.statement import tree_or_none
from rlvr.verifiers.math.units import AMBIGUOUS, TEMPERATURES, UNKNOWN, is_counted, measure

__all__ = ["numbers", "quantities", "units"]

_SAME_UNIT = judged(True, "unit")
_OMITTED = Decision(True, "unit-omitted")
_NO_UNIT = Decision(False, "unknown-words")
_DIFFERENT_UNIT = judged(False, "unit")
_DIFFERENT, _SAME = judged(False, "number"), judged(True, "number")
_ANGLES = {"degree", "radian"}
_HALF_TURN = 180  # degrees in π
_PI = Fraction(3141592653589793238462643383279, 10**30)  # for a tolerance
_INFINITE: dict[Node | None, int] = {INFINITY: 1, MINUS_INFINITY: -1}


def numbers(a: Quantity, b: Quantity, policy: MathPolicy) -> Decision:
    """Two exact numbers, the answer's first."""
    assert a.value is not None
    if a.unit == b.unit:
        return _SAME if _same_number(a.value, a, b, policy) else _DIFFERENT
    if a.unit in TEMPERATURES and b.unit in TEMPERATURES and policy.units != "ignore":
        return _temperatures(a, b, policy)
    if {a.unit, b.unit} == _ANGLES:  # no rational number of degrees is one of radians
        turned = _PI / _HALF_TURN if a.unit == "degree" else _HALF_TURN / _PI
        near = policy.convert_units and policy.tolerance and within(a.value * turned, a, b, policy)
        return _SAME if near or a.value == b.value == 0 else _DIFFERENT_UNIT
    unit, size = units(a, b, policy)
    # The number first: a wrong number in a wrong unit is reported as a number.
    if not _same_number(a.value if size is None else a.value * size, a, b, policy):
        return _DIFFERENT
    return _SAME if unit.equal else unit


def _temperatures(a: Quantity, b: Quantity, policy: MathPolicy) -> Decision:
    """212 °F is 100 °C: the scales begin at different temperatures, so no factor will do."""
    (degree, zero), (other_degree, other_zero) = TEMPERATURES[a.unit], TEMPERATURES[b.unit]
    if not policy.convert_units and degree != other_degree:
        return _DIFFERENT_UNIT
    x = (Fraction(a.value or 0) * degree + zero - other_zero) / other_degree
    return _SAME if x == b.value or within(x, a, b, policy) else _DIFFERENT


def _same_number(x: Fraction | int, a: Quantity, b: Quantity, policy: MathPolicy) -> bool:
    # x is the answer's value in the reference's unit.
    y = b.value
    if a.percent == b.percent or policy.percent == "ignore":
        return x == y or within(x, a, b, policy)
    scaled = x / Fraction(100) if a.percent else x * 100
    if scaled == y or within(scaled, a, b, policy):
        return True
    # 25 may answer "what percent", but 0.5 beside 0.5% is itself
    plain = abs(Fraction((b.value if a.percent else a.value) or 0))
    # Beside 1\%, 1 answers "what percent"; but 1\% beside a reference of 1 may be said of a certain
    # event.
    meant = plain > 1 or (plain == 1 and b.percent)
    return policy.percent == "either" and meant and (x == y or within(x, a, b, policy))


def units(a: Quantity, b: Quantity, policy: MathPolicy) -> tuple[Decision, Fraction | None]:
    """Do the units go together, and what is a's in b's; a percent sign goes with no unit: 5% is not
    5 cm."""
    pair = a.unit, b.unit
    # K stands for thousands or kelvins, which the other side decides.
    if THOUSANDS in pair and a.unit != b.unit:
        return _thousands(a, b)
    if a.unit == b.unit or policy.units == "ignore":
        return _SAME_UNIT, None
    if {*pair} == _ANGLES:
        return _SAME_UNIT, None  # for who knows about π
    if ":" in pair:
        plain = policy.ratios == "fraction" and "" in pair
        return (_OMITTED if plain else judged(False, "kind")), None
    if any(unit.startswith("base ") for unit in pair):
        by_value = policy.bases == "value" and all(
            not unit or unit.startswith("base ") for unit in pair
        )
        return (_OMITTED if by_value else judged(False, "base")), None
    if (a.percent and b.unit) or (b.percent and a.unit):
        return _DIFFERENT_UNIT, None
    if a.unit.startswith(UNKNOWN) and not b.unit:
        return _NO_UNIT, None  # words that no table has may say anything: "12 baker's dozens"
    if not a.unit or not b.unit:
        return (_OMITTED if policy.units == "optional" else Decision(False, "unit-omitted")), None
    return _convert_units(a.unit, b.unit, policy)


def _thousands(a: Quantity, b: Quantity) -> tuple[Decision, Fraction | None]:
    r"""`5\text{K}` is 5000, or 5 kelvin beside a temperature."""
    if "kelvin" in (a.unit, b.unit):
        return _SAME_UNIT, None
    if a.unit and b.unit:
        return _DIFFERENT_UNIT, None
    return _SAME_UNIT, Fraction(1000) if a.unit else Fraction(1, 1000)


def _convert_units(a: str, b: str, policy: MathPolicy) -> tuple[Decision, Fraction | None]:
    is_ambiguous = b in AMBIGUOUS.get(a, ()) or a in AMBIGUOUS.get(b, ())
    if is_ambiguous or ("degree" in (a, b) and not TEMPERATURES.keys().isdisjoint((a, b))):
        return _SAME_UNIT, None  # 25 degrees
    mine, reference_measure = measure(a), measure(b)
    if mine and reference_measure:
        if mine == reference_measure or (policy.convert_units and mine[1] == reference_measure[1]):
            return _SAME_UNIT, mine[0] / reference_measure[0]
        return _DIFFERENT_UNIT, None
    long, short = (a, b) if len(a) > len(b) else (b, a)
    stuff = long.removeprefix(f"{short} ")
    # A litre of water is one.
    is_of_stuff = stuff != long and is_counted(stuff) and (mine or reference_measure)
    # 12 apples are 12 green apples.
    is_described = a.rpartition(" ")[2] == b.rpartition(" ")[2] and (" " not in a or " " not in b)
    if is_of_stuff or is_described:
        return _SAME_UNIT, None
    # Other words may mean the same.
    words = UNKNOWN in (a[0], b[0]) or is_counted(a) or is_counted(b)
    return Decision(None if words else False, "different-unit"), None


def quantities(a: Quantity, b: Quantity, policy: MathPolicy) -> tuple[Decision, Fraction | None]:
    """Two of which at least one has no exact value; `UNDECIDED` with a's unit in b's is for the
    symbolic engine."""
    unit, size = units(a, b, policy)
    if not unit.equal:
        return unit, None
    if (ends := _infinities(a, b)) is not None:
        return ends, None
    x, y = _in_pis(a), _in_pis(b)
    if x is None or y is None:
        return UNDECIDED, size
    if x * (1 if size is None else size) == y:
        return _SAME, None
    # Multiples of π differ for certain, unless something rounded may stand between.
    return (UNDECIDED if policy.tolerance or bounds(a, b, policy) else _DIFFERENT), size


def _in_pis(number: Quantity) -> Fraction | float | None:
    """How many π; NaN, which equals nothing, for a rational number that is no angle in degrees."""
    in_degrees = number.unit == "degree"
    if number.percent or (number.pis is not None and in_degrees):
        return None
    if number.value is None or number.pis is not None:
        return number.pis
    if in_degrees:
        return Fraction(number.value, _HALF_TURN)
    return Fraction(0) if number.value == 0 else math.nan


def _infinities(a: Quantity, b: Quantity) -> Decision | None:
    x, y = (_INFINITE.get(tree_or_none(side)) for side in (a, b))
    if x is None and y is None:
        return None
    if x is not None and y is not None:
        return judged(True, "text") if x == y else _DIFFERENT
    # Beside an infinity only what is not known to be finite is left open.
    finite = b if x is not None else a
    return _DIFFERENT if finite.value is not None or finite.pis is not None else None
