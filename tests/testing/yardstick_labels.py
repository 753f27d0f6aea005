r"""The labels of the mathematics yardstick a second time, from values that were typed beside the rows.

A row has `reference_value` and `answer_value`: what reference and answer mean, as SymPy reads it.  Nothing here reads
LaTeX or calls a verifier.  A row is right if both values are equal, unless its `rule` says otherwise.

Values with letters are compared at points, with 30 digits; a row may name the point at which they differ (`at`).
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from functools import lru_cache
from typing import Any

import sympy
from sympy import Basic, Expr, FiniteSet, Function, Rational, S, Set, Symbol, Tuple

__all__ = ["RULES", "second_label"]

Row = dict[str, Any]

RULES = {
    # The values are equal, and the answer is refused for how it is written.
    "unfinished": "operations can still be carried out",
    "unfinished-notation": "operations can still be carried out, in a notation that SymPy does not have",
    "restated": "the answer repeats an expression of the question",
    "dangling": "a connective announces or denies something",
    "base-written": "the value is right, and the base is another one",
    # The values differ, and the answer is accepted.
    "unit-left-out": "the number alone, without the unit of the reference",
    "degree-left-out": "the number alone, without the degree sign of the reference",
    "percent-either": "the number alone, without the percent sign of the reference",
    "rounds": "an exact value that rounds to the digits of the reference",
    # The answer is refused whatever its value.
    "hedge": "several values, or a value with a reservation",
    "no-answer": "no value is stated",
    "chain": "the sides of an equation differ",
    "tautology": "an equation that holds for every value",
    "undefined": "no value exists",
    "hostile": "written to stop or to fool a grader",
    "not-computed": "too large to compute, and another value by its size",
    "kind-differs": "another kind of object",
    "base-left-out": "digits without a base are decimal",
    "smaller-domain": "at some point only the answer has no real value",
}
"""Rules of convention: how a label follows where equality of values does not decide it."""

_EQUAL_AND_REFUSED = {"unfinished", "unfinished-notation", "restated", "dangling"}
_REFUSED = {
    "no-answer",
    "chain",
    "tautology",
    "undefined",
    "hostile",
    "not-computed",
    "kind-differs",
}

_REAL = {
    name: Symbol(name, real=True)
    for name in [*"abcdefghijklmnpqrstuvxyz", "rho", "phi_", "X_", "N_", "R_"]
}
_CONSTANTS = [Symbol(name, real=True) for name in ("f_", "g_", "Gamma_")]
_UNITS = {
    name: Symbol(name, positive=True)
    for name in ("m_", "kg_", "s_", "litre_", "dollar_", "euro_", "yen_")
}
_UNITS |= {name: Symbol(name, positive=True) for name in ("watt_", "kelvin_", "byte_")}
_OTHER_UNITS = {
    "cm_": _UNITS["m_"] / 100,
    "mm_": _UNITS["m_"] / 1000,
    "km_": _UNITS["m_"] * 1000,
    "inch_": _UNITS["m_"] * Rational(254, 10000),
    "g_": _UNITS["kg_"] / 1000,
    "lb_": _UNITS["kg_"] * Rational(45359237, 100000000),
    "minute_": _UNITS["s_"] * 60,
    "hour_": _UNITS["s_"] * 3600,
}
_POLYNOMIALS = {
    "f": lambda t: t**3 - 2 * t + 5,
    "g": lambda t: 3 * t**2 + t + 1,
    "finv_": lambda t: t**5 + 11,
    "E_": lambda t: 7 * t + 2,
    "Phi_": lambda t: t**3 + Rational(1, 3),
}
_HEADS = ("W", "CaseWord", "Equation", "Residues", "Ratio", "Family", "Multi")
_POINTS = [
    Rational(n)
    for n in ("2", "-3", "1/2", "7/3", "-5/7", "11", "0", "1", "-1", "3/2", "-19/4", "5/13", "-1/9")
]


def second_label(row: Row) -> bool:
    """The label of a row, computed from its values and its rule.

    Args:
        row: a row of the yardstick.

    Raises:
        AssertionError: the values are not what the rule of the row says of them.
    """
    rule = row.get("rule")
    assert rule is None or rule in RULES, f"{row['id']}: no rule {rule!r}"
    if rule in _REFUSED:
        return False
    reference, answer = _value(row["reference_value"]), _value(row["answer_value"])
    if rule in _EQUAL_AND_REFUSED:
        assert _same(reference, answer, row), (
            f"{row['id']}: the values differ, so the rule does not decide"
        )
        assert rule != "unfinished" or _changes(row["answer_value"]), (
            f"{row['id']}: SymPy has nothing to carry out"
        )
        assert rule != "restated" or _repeats(row), (
            f"{row['id']}: the answer is no expression of the question"
        )
        return False
    if rule == "base-written":
        assert reference[0] == answer[0]
        assert reference[1] != answer[1]
        return False
    if rule == "base-left-out":
        return False
    if rule == "hedge":
        several = isinstance(answer, FiniteSet) and len(answer) > 1
        assert several or _same(reference, answer, row), (
            f"{row['id']}: neither several values nor the right one"
        )
        return False
    if rule == "smaller-domain":
        point = {_REAL[name]: Rational(at) for name, at in row["at"].items()}
        assert reference.subs(point).is_real
        assert not answer.subs(point).doit().is_finite or not _real_on_the_way(
            row["answer_value"], point
        )
        return False
    if rule == "unit-left-out":
        number = sympy.sympify(
            row["reference_value"], locals=dict.fromkeys([*_UNITS, *_OTHER_UNITS], 1), rational=True
        )
        return bool(number == answer)
    if rule == "degree-left-out":
        return bool(reference == answer * sympy.pi / 180)
    if rule == "percent-either":
        return bool(reference * 100 == answer)
    if rule == "rounds":
        digits = len(row["reference"].partition(".")[2])
        return bool(abs(answer - reference) * 2 * 10**digits <= 1)
    return _same(reference, answer, row)


@lru_cache(maxsize=1)
def _names() -> dict[str, Any]:
    names = _REAL | {symbol.name: symbol for symbol in _CONSTANTS} | _UNITS | _OTHER_UNITS
    names |= {name: Function(name) for name in (*_POLYNOMIALS, "Y")}
    names |= {
        name: (lambda *args, name=name: Tuple(Symbol(f"{name}:"), *map(_plain, args)))
        for name in _HEADS
    }
    names |= {
        "E": sympy.E,
        "I": sympy.I,
        "pi": sympy.pi,
        "oo": sympy.oo,
        "Reals": S.Reals,
        "EmptySet": S.EmptySet,
    }
    return names | {"Tuple": Tuple, "Rational": Rational}


def _plain(value: Any) -> Basic:
    return Symbol(value) if isinstance(value, str) else sympy.sympify(value)


@lru_cache(maxsize=4096)
def _value(text: str) -> Any:
    """The value of an expression of ours; every decimal is a fraction."""
    value = sympy.sympify(text, locals=_names(), rational=True)
    return value.doit() if isinstance(value, Expr) else value


def _changes(text: str) -> bool:
    """Whether SymPy computes something in an expression, so that its numbers and names change; order does not count."""
    text = re.sub(
        r"(?<![\w.*/)])(\d+)/(\d+)(?![\w.*(])", r"Rational(\1,\2)", text
    )  # a fraction is a number
    with sympy.evaluate(False):
        written = sympy.sympify(text, locals=_names(), rational=True)

    def leaves(value: Any) -> Counter[Any]:
        return Counter(part for part in sympy.preorder_traversal(value) if not part.args)

    return leaves(written) != leaves(_value(text))


def _repeats(row: Row) -> bool:
    """Whether the answer has the signs of an expression of the task, apart from order, spaces, brackets, 0 and 1."""

    def signs(text: str) -> Counter[str]:
        for command in (r"\left", r"\right", r"\cdot", r"\,", r"\dbinom"):
            text = text.replace(command, r"\binom" if command == r"\dbinom" else "")
        return Counter(sign for sign in text if sign not in " (){}+01")

    formulas = row["task"].split("$")[1::2]
    return any(signs(formula) == signs(row["answer"]) for formula in formulas)


def _real_on_the_way(text: str, point: dict[Symbol, Rational]) -> bool:
    """Whether every part of an expression is real at a point: the sine of the arcsine of 2 is 2, by way of no real."""
    written = sympy.sympify(text, locals=_names(), rational=True, evaluate=False)
    with sympy.evaluate(False):
        parts = list(sympy.preorder_traversal(written))
    return all(bool(part.subs(point).is_real) for part in parts if isinstance(part, Expr))


def _same(reference: Any, answer: Any, row: Row) -> bool:
    if isinstance(reference, Tuple) or isinstance(answer, Tuple):
        return _same_tuples(reference, answer, row)
    if isinstance(reference, Set) or isinstance(answer, Set):
        return _same_sets(reference, answer, row)
    if isinstance(reference, sympy.MatrixBase) or isinstance(answer, sympy.MatrixBase):
        return bool(reference == answer)
    return _same_values(reference, answer, row)


def _same_tuples(reference: Any, answer: Any, row: Row) -> bool:
    if not (
        isinstance(reference, Tuple) and isinstance(answer, Tuple) and len(reference) == len(answer)
    ):
        return False
    head = str(reference[0]) if reference else ""
    if not head.endswith(":"):
        return all(_same(*pair, row) for pair in zip(reference, answer, strict=True))
    if reference[0] != answer[0]:
        return False
    if head == "Equation:":
        one, two = (sympy.expand(sympy.together(side[1] - side[2])) for side in (reference, answer))
        factor = sympy.simplify(_unknowns(one) / _unknowns(two))
        return bool(not factor.free_symbols and factor.is_finite and factor != 0)
    if head == "Residues:":
        return bool(reference[2] == answer[2] and (reference[1] - answer[1]) % reference[2] == 0)
    if head == "Ratio:":
        return all(
            a * answer[1] == b * reference[1]
            for a, b in zip(reference[1:], answer[1:], strict=True)
        )
    if head == "Multi:":
        return Counter(reference[1:]) == Counter(answer[1:])
    return all(_same_values(*pair, row) for pair in zip(reference[1:], answer[1:], strict=True))


def _same_sets(reference: Any, answer: Any, row: Row) -> bool:
    if isinstance(reference, FiniteSet) and isinstance(answer, Expr):
        answer = FiniteSet(answer)  # a list of one is its member
    if isinstance(answer, FiniteSet) and isinstance(reference, Expr):
        reference = FiniteSet(reference)
    if not (isinstance(reference, Set) and isinstance(answer, Set)):
        return False
    if isinstance(reference, FiniteSet) and isinstance(answer, FiniteSet):
        pairs = list(itertools.product(reference, answer))
        met = [(a, b) for a, b in pairs if _same(a, b, row)]
        return {a for a, _ in met} == set(reference) and {b for _, b in met} == set(answer)
    return bool(reference.is_subset(answer)) and bool(answer.is_subset(reference))


def _same_values(reference: Expr, answer: Expr, row: Row) -> bool:
    symbols = sorted((reference.free_symbols | answer.free_symbols) - set(_UNITS.values()), key=str)
    if not symbols:
        units = {unit: Rational(17 + i, 7) for i, unit in enumerate(_UNITS.values())}
        return _equal(reference.subs(units), answer.subs(units))
    named = {_REAL[name]: Rational(at) for name, at in row.get("at", {}).items()}
    if named:
        return _equal(reference.subs(named).doit(), answer.subs(named).doit())
    if reference == answer:
        return True
    rng, seen = random.Random(row["id"]), 0
    for i in range(60):
        # One letter takes the points in their order, and each once; the others take any.
        point = {symbol: rng.choice(_POINTS) for symbol in symbols} | {
            symbols[-1]: _POINTS[i % len(_POINTS)]
        }
        values = [_applied(side.subs(point)).doit() for side in (reference, answer)]
        if not all(
            value.is_finite and (value.is_real or reference.has(sympy.I)) for value in values
        ):
            continue
        if not _equal(*values):
            return False
        seen += 1
        if seen == 12:
            return True
    assert seen > 5, f"{row['id']}: too few points say anything"
    return True


def _applied(value: Expr) -> Expr:
    """With a polynomial for each function of which nothing is known: what holds for every function holds for these."""
    for name, polynomial in _POLYNOMIALS.items():
        value = value.replace(Function(name), polynomial)
    return value


def _unknowns(value: Expr) -> Expr:
    """With a letter for each value of an unknown function: f(3) and f(10) are two numbers of which nothing is known."""
    applied = [part for part in value.atoms(Function) if part.func.__name__ in _POLYNOMIALS]
    return value.subs({part: Symbol(str(part)) for part in applied})


def _equal(one: Any, other: Any) -> bool:
    """Whether two constants agree to 60 digits: those of the rows are equal, or differ by far more."""
    if one == other:
        return True
    if one.is_Rational and other.is_Rational:
        return False
    one, other = sympy.N(one, 70), sympy.N(other, 70)
    if one.atoms(Function) or other.atoms(Function) or not (one.is_finite and other.is_finite):
        return False
    return bool(abs(one - other) <= (1 + abs(one)) * Rational(1, 10**60))
