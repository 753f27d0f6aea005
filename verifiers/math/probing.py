r"""Are two expressions equal?  Decided by their values: exactly, or to more digits than could agree by chance.

Expressions with variables are compared at random points and at those where one of them could change
its mind (`points.py`).  One point at which the values differ decides.

A point at which the reference, or both, have no real value says nothing.  Where the reference has
one and the answer has none, the answer is taken as a complex number: \ln x + \ln y is \ln(xy) up to
the branch of the logarithm, but e^{\ln x} is x and not |x|.  A hole, such as that of x^2/x at 0,
says nothing; a stretch without a value is a difference.  Notation for whole numbers, such as (-1)^n
and n!, says nothing where it has no value.

Evidence is what agrees at POINTS random points to within 10^-45 (for rational expressions: exactly,
and then Schwartz and Zippel bound the chance of an error by degree/10^5 for each point), and at all
others; three times as many where steps such as floor or cases occur.  Constants have but one point,
so they must agree to 105 digits and be short; a constant that mixes very large and very small
numbers could be close to another on purpose, and needs a proof by SymPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

from mpmath import mp

from rlvr.verifiers.math.latex.budget import Budget
from rlvr.verifiers.math.latex.compile import vanishes
from rlvr.verifiers.math.latex.matrices import Grid
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.tree import (
    IMAGINARY,
    Node,
    TooLarge,
    Unreadable,
    free_symbols,
    has,
    minus,
    size,
    walk,
)
from rlvr.verifiers.math.latex.values import (
    NoCase,
    NotMeant,
    Number,
    Undefined,
    approximate,
    divide,
    magnitude,
)
from rlvr.verifiers.math.points import (
    OTHER,
    ROOT,
    Point,
    has_steps,
    nudge,
    random_points,
    special_points,
)

__all__ = ["POINTS", "Pair", "equal", "ratio", "shift"]

POINTS = 8
"""Random points at which expressions with variables must agree."""
_MOST_BEYOND = 4
"""Points that may be too costly: a^b is, where both happen to be large."""
_DIGITS, _CONSTANT_DIGITS = 60, 120
_LONGEST_CONSTANT = 120  # nodes; more could spell out a number digit by digit
_MOST_SPREAD = (
    130  # bits between the largest and the smallest number of a constant that needs no proof
)
_MOST_DIGITS = 2000
_LEAST_SPREAD = 100  # bits; 45 digits take 150
_SLACK_BITS = 50
_BITS_A_DIGIT = 3.32
_ROOT_DIGITS, _ROOT_SLACK_BITS = (
    95,
    180,
)  # near a root, where sqrt{1 - cos^2 x} loses half of the digits
_SPECIAL_STEPS = 20_000
"""Nodes visited at all special points; those of a pair without steps end at a quarter."""
_MOST_SPECIAL_STEPS = 1_500
"""At one special point: a sum to a million is left out."""
_MOST_SPECIAL_DIGITS = 500
# Of negative and complex numbers these have several values.
_LOGARITHMS = frozenset(
    "log ln arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh arctanh".split()
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both values at a point, log2 of the largest number met on the way, and the decimal digits they were taken to.

    `slack`: how many bits may have been lost to rounding.
    """

    x: Number | Grid
    y: Number | Grid
    top: int
    digits: int
    slack: int = _SLACK_BITS

    def differ(self) -> bool:
        """Farther apart than rounding can be, even where a root has halved the digits."""
        return not replace(self, slack=int(self.digits * _BITS_A_DIGIT / 2) + _SLACK_BITS).agree()

    def agree(self) -> bool:
        """Equal within rounding."""
        if isinstance(self.x, Grid) is not isinstance(self.y, Grid):
            return False
        if isinstance(self.x, Grid) and self.x.shape != self.y.shape:
            return False
        return all(self.close(x, y) for x, y in zip(_cells(self.x), _cells(self.y), strict=True))

    def close(self, x: Number, y: Number) -> bool:
        """The same for two numbers that were met on the way."""
        if isinstance(x, Fraction) and isinstance(y, Fraction):
            return x == y
        with mp.workdps(self.digits):
            gap = approximate(x) - approximate(y)
            return bool(gap == 0 or magnitude(gap) < self.top + self.slack - mp.prec)


def equal(a: Node, b: Node) -> bool:
    """Hold two expressions against each other.

    Raises:
        Undefined: one of two constants has no value, or no point was found at which both have one.
        TooLarge, Unreadable: see `latex.tree`.
    """
    if a == b and not has(a, "cases"):
        return True
    bases = (
        (10, None)
        if any(n.op == "call" and n.value == "log" for t in (a, b) for n in walk(t))
        else (None,)
    )
    return any(_equal(a, b, base) for base in bases)


def _equal(a: Node, b: Node, log_base: int | None) -> bool:
    names = sorted(free_symbols(a) | free_symbols(b))
    if not names:
        return _equal_constants(a, b, log_base)
    judge = _Judge(a, b, log_base, _spread(a, b))
    steps = has_steps(a, b)
    points_due = POINTS * (3 if steps else 1)
    agreed = beyond = 0
    budget = Budget()
    for point in random_points(names, a, b):
        try:
            agrees = judge.agrees(point, budget)
        except _TooFine:
            if steps:
                raise
            continue
        except TooLarge:
            if (beyond := beyond + 1) > _MOST_BEYOND:
                raise
            continue
        if agrees is False:
            return False
        agreed += agrees is True
        if agreed == points_due:
            break
    if agreed == 0:
        raise Undefined
    special = _special(names, steps, a, b)
    return agreed >= POINTS and not any(judge.agrees_there(*place) is False for place in special)


def _spread(*trees: Node) -> int:
    """Bits of the largest constant in them, and of the smallest: so many digits of pi can stand in
    the text.

    0 where they are too few to matter.
    """
    spread = 0
    for tree in trees:
        if free_symbols(tree):
            spread = max(spread, _spread(*tree.args))
        elif tree.op not in ("rel", "list", "set"):
            evaluation = Evaluation({}, real=False, budget=Budget(_MOST_SPECIAL_STEPS))
            with suppress(Undefined, TooLarge, Unreadable, KeyError), mp.workdps(_DIGITS):
                evaluation.value(tree)
            spread = max(spread, evaluation.top - evaluation.bottom)
    return spread if spread > _LEAST_SPREAD else 0


def _special(
    names: Sequence[str], steps: bool, *seeds: Node
) -> Iterator[tuple[Point, Budget, bool]]:
    """The special points, what may be spent there, and whether they have to be looked at.

    Raises:
        TooLarge: not all turning points could be looked at.
    """
    left = _SPECIAL_STEPS if steps else _SPECIAL_STEPS // 4
    for point, kind in special_points(names, *seeds):
        if left <= 0:
            if kind != OTHER:
                raise TooLarge("more steps than can be looked at")
            return
        budget = Budget(_MOST_SPECIAL_STEPS)
        yield point, budget, kind == ROOT
        left -= _MOST_SPECIAL_STEPS - max(budget.left, 0)


@dataclass(frozen=True, slots=True)
class _Judge:
    """An answer and a reference, held against each other at one point."""

    answer: Node
    reference: Node
    log_base: int | None
    spread: int = 0

    def agrees(self, point: Point, budget: Budget) -> bool | None:
        """At a random point; None where it says nothing."""
        try:
            return self._values(point, budget).agree()
        except _Missing as missing:
            return None if missing.unmeant else self._beyond(point, budget) or False
        except Undefined:
            return None

    def agrees_there(self, point: Point, budget: Budget, turning: bool) -> bool | None:
        """At a special point, where what is missing may be a hole.

        Raises:
            TooLarge: one of them turns here, and it cannot be seen how.
        """
        try:
            return self._values(
                point, budget, _MOST_DIGITS if turning else _MOST_SPECIAL_DIGITS
            ).agree()
        except _Missing as missing:
            if missing.unmeant:
                return None
            if missing.no_case:
                return False
        except Undefined:
            return None
        except TooLarge:
            if turning:
                raise
            return None
        try:
            beyond = self._beyond(point, budget)
            return self.agrees(nudge(point), budget) if beyond is None else beyond
        except TooLarge:
            return None

    def _values(self, point: Point, budget: Budget, most_digits: int = _MOST_DIGITS) -> Pair:
        return _values(
            self.answer, self.reference, point, budget, self.log_base, most_digits, self.spread
        )

    def _beyond(self, point: Point, budget: Budget) -> bool | None:
        """The answer has no real value here.  Its complex one will do, of a logarithm's the real
        part.

        None if it has no complex value either.
        """
        if _has_absolute_logarithm(self.reference):
            return None
        several = _has_branches(self.answer)
        with mp.workdps(_DIGITS):
            left, right = (
                Evaluation(point, real=real, log_base=self.log_base, budget=budget)
                for real in (False, True)
            )
            try:
                x, y = left.value(self.answer), right.value(self.reference)
            except Undefined:
                return None
            pair = Pair(
                x.real if several and isinstance(x, mp.mpc) else x,
                y,
                max(left.top, right.top),
                _DIGITS,
            )
            return pair.agree()


def _has_branches(node: Node) -> bool:
    return any(n.op == "log" or (n.op == "call" and n.value in _LOGARITHMS) for n in walk(node))


def _may_be_missing(answer: Node, reference: Node) -> bool:
    r"""A logarithm of the answer stands for its other branch, unless the reference took care:
    \ln|x| is not \ln x."""
    return _has_branches(answer) and not _has_absolute_logarithm(reference)


def _has_absolute_logarithm(node: Node) -> bool:
    return any(
        (n.op == "log" or (n.op == "call" and n.value in ("ln", "log")))
        and any(below.op == "call" and below.value == "abs" for below in walk(n.args[0]))
        for n in walk(node)
    )


class _TooFine(TooLarge):
    """It would take too many digits."""


class _Missing(Undefined):
    """Only the answer has no value.

    Attributes:
        unmeant: its notation is not for such a point.
        no_case: none of its cases holds.
    """

    def __init__(self, reason: Undefined) -> None:
        super().__init__()
        self.unmeant, self.no_case = isinstance(reason, NotMeant), isinstance(reason, NoCase)


def _equal_constants(a: Node, b: Node, log_base: int | None) -> bool:
    with mp.workdps(_CONSTANT_DIGITS):
        left, right = (Evaluation({}, real=False, log_base=log_base) for _ in range(2))
        pair = Pair(left.value(a), right.value(b), max(left.top, right.top), _CONSTANT_DIGITS)
        if not pair.agree():
            return False
        if _exact(pair.x) and _exact(pair.y):
            return True
        spread = max(left.top, right.top) - min(left.bottom, right.bottom)
    if spread <= _MOST_SPREAD and size(a) + size(b) <= _LONGEST_CONSTANT:
        return True
    return _agree_closely(a, b, spread, log_base) and vanishes(minus(a, b))


def _agree_closely(a: Node, b: Node, spread: int, log_base: int | None) -> bool:
    digits = _CONSTANT_DIGITS + spread * 6 // 10  # twice the spread in decimal digits
    if digits > _MOST_DIGITS:
        raise TooLarge(f"a comparison to {digits} digits")
    with mp.workdps(digits):
        left, right = (Evaluation({}, real=False, log_base=log_base) for _ in range(2))
        return Pair(left.value(a), right.value(b), max(left.top, right.top), digits).agree()


def _values(
    a: Node,
    b: Node,
    point: Point,
    budget: Budget,
    log_base: int | None = None,
    most_digits: int = _MOST_DIGITS,
    spread: int = 0,
) -> Pair:
    """Both values, to so many digits that what is small beside the largest number met still
    shows."""
    real = not any(n == IMAGINARY for t in (a, b) for n in walk(t))
    rounded = any(
        not isinstance(value, Fraction) for value in point.values()
    )  # a root that was searched for
    digits = _ROOT_DIGITS if rounded else _DIGITS
    while True:
        with mp.workdps(digits):
            left, right = (
                Evaluation(point, real=real, log_base=log_base, budget=budget) for _ in range(2)
            )
            y = right.value(b)
            try:
                x = left.value(a)
            except Undefined as undefined:
                raise _Missing(undefined) from None
            pair = Pair(x, y, max(left.top, right.top), digits)
        if rounded:
            return replace(pair, slack=_ROOT_SLACK_BITS)
        if (_exact(x) and _exact(y)) or pair.differ():
            return pair
        # Twice the digits of what is small, since cos 10^{-100} differs from 1 by 10^{-200}; and
        # what a root may lose.
        small = -min(left.bottom, right.bottom)
        enough = _DIGITS + (3 * pair.top + 9 * small + 6 * spread) // 10
        if digits >= enough:
            return replace(pair, slack=_SLACK_BITS + small)
        if enough > most_digits:
            raise _TooFine(f"a comparison to {enough} digits")
        digits = enough


def _exact(value: Number | Grid) -> bool:
    return all(isinstance(x, Fraction) for x in _cells(value))


def _cells(value: Number | Grid) -> Sequence[Number]:
    return [x for row in value.rows for x in row] if isinstance(value, Grid) else [value]


def ratio(a: Node, b: Node) -> int:
    """The sign of a / b if that is the same number other than 0 wherever both have values; else
    0."""
    quotient = _constant(a, b, _quotient)
    return 0 if not quotient or isinstance(quotient, mp.mpc) else 1 if quotient > 0 else -1


def shift(a: Node, b: Node) -> bool:
    """True if a - b is one and the same number wherever both have values, as for two
    antiderivatives."""
    return _constant(a, b, _gap) is not None


def _constant(a: Node, b: Node, measure: Callable[[Pair], Pair | None]) -> Number | None:
    """What is measured of both values, if it is the same at all points.

    Args:
        a, b: the expressions, the answer's first.
        measure: gives the number as `x`, with what says how exact it is; None where there is none.
    """
    names = sorted(free_symbols(a) | free_symbols(b))
    numbers: list[Number] = []
    budget = Budget()
    for point in random_points(names, a, b):
        try:
            pair = measure(_values(a, b, point, budget))
        except _Missing as missing:
            if not missing.unmeant and not _may_be_missing(a, b):
                return None
            continue
        except Undefined:
            continue
        if pair is None or (numbers and not pair.close(pair.x, numbers[0])):
            return None
        numbers.append(pair.x)
        if len(numbers) == POINTS:
            break
    if len(numbers) < POINTS:
        return None
    for point, little, _ in _special(names, has_steps(a, b), a, b):
        with suppress(Undefined, TooLarge):
            pair = measure(_values(a, b, point, little))
            if pair is None or not pair.close(pair.x, numbers[0]):
                return None
    return numbers[0]


def _quotient(pair: Pair) -> Pair | None:
    """x / y; a point at which both vanish says nothing."""
    if isinstance(pair.x, Grid) or isinstance(pair.y, Grid):
        return None
    gone = [pair.close(value, Fraction(0)) for value in (pair.x, pair.y)]
    if all(gone):
        raise Undefined
    if any(gone):
        return None
    with mp.workdps(pair.digits):
        quotient = divide(pair.x, pair.y)
    return Pair(quotient, quotient, magnitude(quotient), _DIGITS)


def _gap(pair: Pair) -> Pair | None:
    """x - y; None of matrices."""
    if isinstance(pair.x, Grid) or isinstance(pair.y, Grid):
        return None
    with mp.workdps(pair.digits):
        exact = _exact(pair.x) and _exact(pair.y)
        x, y = (pair.x, pair.y) if exact else map(approximate, (pair.x, pair.y))
        return replace(pair, x=x - y)
