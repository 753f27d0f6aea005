r"""Are two expressions equal?  Decided by their values: exactly,
or by balls that hold them for certain.

Expressions with variables are compared at random points and at those where one of them could change
its mind (`points.py`).  One point at which the values differ decides.

A point at which the reference, or both, have no real value says nothing.  Where the reference has
one and the answer has none, the answer is taken as a complex number: \ln x + \ln y is \ln(xy) up to
the branch of the logarithm, but e^{\ln x} is x and not |x|.  A hole, such as that of x^2/x at 0,
says nothing; a stretch without a value is a difference.  Notation for whole numbers, such as (-1)^n
and n!, says nothing where it has no value.

Values differ where their balls are apart.  They are the same where their difference is taken for
zero (`values.vanishes`): its ball holds 0 and nothing beyond the third part of the digits, which
are 145, and six times as many as those of the smallest number met, if these are more.

Evidence is what agrees at POINTS random points (for rational expressions: exactly, and then
Schwartz and Zippel bound the chance of an error by degree/10^5 for each point), and at all others;
three times as many where steps such as floor or cases occur.  Constants have but one point, so they
must agree to 105 digits and be short; a constant that mixes very large and very small numbers could
be close to another on purpose, and needs a proof by SymPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from flint import acb, ctx

from rlvr.verifiers.math.latex.budget import Budget, spend_of_pair
from rlvr.verifiers.math.latex.compile import is_proved_zero
from rlvr.verifiers.math.latex.matrices import Grid, is_grid
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.tree import (
    IMAGINARY,
    Node,
    TooLarge,
    Unreadable,
    calls,
    free_symbols,
    has,
    minus,
    size,
    walk,
)
from rlvr.verifiers.math.latex.values import (
    MOST_PRECISION,
    PRECISION,
    NoCase,
    NotMeant,
    Number,
    Rough,
    Undefined,
    decided,
    is_exact,
    sign_of,
    vanishes,
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

__all__ = ["POINTS", "agree", "equal", "ratio", "shift"]

_T = TypeVar("_T")

POINTS = 8
"""Random points at which expressions with variables must agree."""
_MOST_BEYOND = 4
"""Points that may be too costly: a^b is, where both happen to be large."""
_CONSTANT_PRECISION = 1_050  # bits; two agree to the third part, 105 digits
_LONGEST_CONSTANT = 120  # nodes; more could spell out a number digit by digit
_STEPS_OF_A_START, _STEPS_A_NODE = 25, 4  # hashing, walking and settling before any point
_MOST_SPREAD = (
    130  # bits between the largest and the smallest number of a constant that needs no proof
)
_LEAST_SPREAD = 100  # bits; 48 digits take 160
_FOR_SMALL = 6  # bits of precision for each bit of the smallest number
_SPECIAL_STEPS = 20_000
"""Nodes visited at all special points; those of a pair without steps end at a quarter."""
_MOST_SPECIAL_STEPS = 1_500
"""At one special point: a sum to a million is left out."""
_MOST_SPECIAL_PRECISION = 3_400
# Of negative and complex numbers these have several values.
_LOGARITHMS = frozenset(
    "log ln arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh arctanh".split()
)


def agree(x: Number | Grid, y: Number | Grid) -> bool:
    """Are two values the same, or taken for it?

    Raises:
        Rough: the precision does not show it.
    """
    if is_grid(x) is not is_grid(y):
        return False
    try:
        return all(map(vanishes, _cells(x - y)))
    except ValueError:  # matrices of other sizes
        return False


def equal(a: Node, b: Node) -> bool:
    """Hold two expressions against each other.

    Raises:
        Undefined: one of two constants has no value, or no point was found at which both have one.
        TooLarge, Unreadable: see `latex.tree`.
    """
    # The same tree is equal, except cases of which none may hold.
    if a == b and not has(a, "cases"):
        return True
    # A log without a base is tried as the common and as the natural one; one of them suffices.
    bases = (10, None) if calls(a, "log") or calls(b, "log") else (None,)
    return any(_equal(a, b, base) for base in bases)


def _equal(a: Node, b: Node, log_base: int | None) -> bool:
    spend_of_pair(_STEPS_OF_A_START + _STEPS_A_NODE * (size(a) + size(b)))
    names = sorted(free_symbols(a) | free_symbols(b))
    if not names:
        return _equal_constants(a, b, log_base)
    judge = _Judge(a, b, _is_real(a, b), log_base)
    steps = has_steps(a, b)
    points_due = POINTS * (3 if steps else 1)
    agreed = beyond = 0
    budget = Budget()
    for point in random_points(names, a, b):
        spend_of_pair(len(names))
        try:
            agrees = judge.agrees(point, budget)
        except Rough:
            # Where steps turn, a point that cannot be decided may be the one that differs.
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
    # Fewer than 8 points are too little evidence, whatever the special ones say.
    return agreed >= POINTS and not any(judge.agrees_there(*place) is False for place in special)


@lru_cache(maxsize=64)
def _spread(*trees: Node) -> int:
    """Bits of the largest constant in them, and of the smallest: so many digits of pi can stand in
    the text.

    0 where they are too few to matter.
    """
    spread = 0
    for tree in trees:
        # A part without letters is a constant, which may hide a long number.
        if free_symbols(tree):
            spread = max(spread, _spread(*tree.args))
        elif tree.op not in ("rel", "list", "set"):
            evaluation = Evaluation({}, real=False, budget=Budget(_MOST_SPECIAL_STEPS))
            with suppress(Undefined, TooLarge, Unreadable, KeyError), ctx.workprec(PRECISION):
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
        # Far points may be left out; where something turns, none.
        if left <= 0:
            if kind != OTHER:
                raise TooLarge("more steps than can be looked at")
            return
        spend_of_pair(2 * len(names))
        budget = Budget(_MOST_SPECIAL_STEPS)
        yield point, budget, kind == ROOT
        left -= _MOST_SPECIAL_STEPS - max(budget.left, 0)


@dataclass(frozen=True, slots=True)
class _Judge:
    """An answer and a reference, held against each other at one point."""

    answer: Node
    reference: Node
    is_real: bool
    log_base: int | None = None

    def agrees(self, point: Point, budget: Budget) -> bool | None:
        """At a random point; None where it says nothing."""
        try:
            return self._agree(point, budget)
        except _Missing as missing:
            # The answer alone has no real value: a branch of a logarithm may explain it, nothing
            # else.
            return None if missing.unmeant else self._beyond(point, budget) or False
        except Undefined:
            return None

    def agrees_there(self, point: Point, budget: Budget, turning: bool) -> bool | None:
        """At a special point, where what is missing may be a hole.

        Raises:
            TooLarge: one of them turns here, and it cannot be seen how.
        """
        try:
            return self._agree(
                point, budget, MOST_PRECISION if turning else _MOST_SPECIAL_PRECISION
            )
        except _Missing as missing:
            if missing.unmeant:
                return None
            # A case that is missing in the answer is a difference, where the reference has a value.
            if missing.no_case:
                return False
        except Undefined:
            return None
        except TooLarge as beyond_limits:
            rough = isinstance(beyond_limits, Rough) and not all(map(is_exact, point.values()))
            if turning and not rough:  # a root beside a pole is a ball: those on both sides decide
                raise
            return None
        try:
            beyond = self._beyond(point, budget)
            # No complex value either: a hole is judged beside it.
            return self.agrees(nudge(point), budget) if beyond is None else beyond
        except TooLarge:
            return None

    def _agree(self, point: Point, budget: Budget, most: int = MOST_PRECISION) -> bool:
        return self.measure(agree, point, budget, most, _spread)

    def measure(
        self,
        measure: Callable[[Number | Grid, Number | Grid], _T],
        point: Point,
        budget: Budget,
        most: int = MOST_PRECISION,
        spread: Callable[[Node, Node], int] = lambda a, b: 0,
    ) -> _T:
        """What a measure says of both values, to so many bits that what is small beside the
        largest number met still shows: cos 10^{-100} differs from 1 by 10^{-200}."""

        def compare() -> tuple[_T, int]:
            left, right = (
                Evaluation(point, real=self.is_real, log_base=self.log_base, budget=budget)
                for _ in range(2)
            )
            # The reference first: a point at which it has no value says nothing of the answer.
            y = right.value(self.reference)
            try:
                x = left.value(self.answer)
            except Undefined as undefined:
                raise _Missing(undefined) from None
            measured = measure(x, y)
            # A difference needs no more digits, nor do exact numbers; of a root that was searched
            # for no more shows.
            needs_more = measured is not None and measured is not False and not _are_exact(x, y)
            if not needs_more or not all(map(is_exact, point.values())):
                return measured, PRECISION
            # Six: a square doubles the digits, and only a third of them is vouched for.
            bits = spread(self.answer, self.reference) - min(left.bottom, right.bottom)
            return measured, PRECISION + _FOR_SMALL * bits

        measured, enough = decided(compare)
        if enough > most:
            raise Rough
        return measured if enough == PRECISION else decided(compare, enough)[0]

    def _beyond(self, point: Point, budget: Budget) -> bool | None:
        """The answer has no real value here.  Its complex one will do, of a logarithm's the real
        part.

        None if it has no complex value either.
        """
        if _has_absolute_logarithm(self.reference):
            return None
        several = _has_branches(self.answer)

        def compare() -> bool:
            x, y = (
                Evaluation(point, real=real, log_base=self.log_base, budget=budget).value(side)
                for side, real in ((self.answer, False), (self.reference, True))
            )
            return agree(x.real if several and isinstance(x, acb) else x, y)

        try:
            return decided(compare)
        except Undefined:
            return None


def _is_real(*trees: Node) -> bool:
    return not any(IMAGINARY in walk(tree) for tree in trees)


def _has_branches(node: Node) -> bool:
    return has(node, "log") or calls(node, *_LOGARITHMS)


def _has_absolute_logarithm(node: Node) -> bool:
    return any(
        (n.op == "log" or (n.op == "call" and n.value in ("ln", "log"))) and calls(n.args[0], "abs")
        for n in walk(node)
    )


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
    def compare() -> tuple[bool, bool, int]:
        left, right = (Evaluation({}, real=False, log_base=log_base) for _ in range(2))
        x, y = left.value(a), right.value(b)
        spread = max(left.top, right.top) - min(left.bottom, right.bottom)
        return agree(x, y), _are_exact(x, y), spread

    same, exact, spread = decided(compare, _CONSTANT_PRECISION)
    # A difference is certain, and so are two exact numbers.
    if not same or exact:
        return same
    # Short and without very large or small numbers: 105 digits cannot agree by design.
    if spread <= _MOST_SPREAD and size(a) + size(b) <= _LONGEST_CONSTANT:
        return True
    bits = _CONSTANT_PRECISION + _FOR_SMALL * spread
    if bits > MOST_PRECISION:
        raise Rough
    return decided(compare, bits)[0] and is_proved_zero(minus(a, b))


def _are_exact(*values: Number | Grid) -> bool:
    return all(is_exact(x) for value in values for x in _cells(value))


def _cells(value: Number | Grid) -> Sequence[Number]:
    return value.entries() if is_grid(value) else [value]


def ratio(a: Node, b: Node) -> int:
    """The sign of a / b if that is the same number other than 0 wherever both have values; else
    0."""
    # Relative, so that small and large factors are judged alike.
    quotient = _constant(a, b, _quotient, lambda x, y: vanishes(x / y - 1))
    return 0 if quotient is None or isinstance(quotient, acb) else sign_of(quotient)


def shift(a: Node, b: Node) -> bool:
    """True if a - b is one and the same number wherever both have values, as for two
    antiderivatives."""
    return _constant(a, b, _gap, agree) is not None


def _constant(
    a: Node,
    b: Node,
    measure: Callable[[Number | Grid, Number | Grid], Number | None],
    alike: Callable[[Number, Number], bool],
) -> Number | None:
    """What is measured of both values, if it is the same at all points.

    Args:
        a, b: the expressions, the answer's first.
        measure: gives the number; None where there is none.
        alike: whether two such numbers are the same.
    """
    spend_of_pair(_STEPS_OF_A_START + _STEPS_A_NODE * (size(a) + size(b)))
    names = sorted(free_symbols(a) | free_symbols(b))
    first: Number | None = None
    number = 0
    budget, judge = Budget(), _Judge(a, b, _is_real(a, b))

    def goes_on(x: Number | Grid, y: Number | Grid) -> Number | None:
        found = measure(x, y)
        with ctx.workprec(PRECISION):  # which the first number has
            return found if found is None or first is None or alike(found, first) else None

    for point in random_points(names, a, b):
        spend_of_pair(len(names))
        try:
            found = judge.measure(goes_on, point, budget)
        except _Missing as missing:
            # The answer has no value where the reference has one: no ratio.  But a logarithm of
            # the answer stands for its other branch, unless the reference took care: \ln|x|.
            may_be = missing.unmeant or (_has_branches(a) and not _has_absolute_logarithm(b))
            if not may_be:
                return None
            continue
        except Undefined:
            continue
        if found is None:
            return None
        first = found if first is None else first
        if (number := number + 1) == POINTS:
            break
    if number < POINTS:
        return None
    for point, little, _ in _special(names, has_steps(a, b), a, b):
        with suppress(Undefined, TooLarge):
            if judge.measure(goes_on, point, little) is None:
                return None
    return first


def _quotient(x: Number | Grid, y: Number | Grid) -> Number | None:
    """x / y; a point at which both vanish says nothing."""
    if is_grid(x) or is_grid(y):
        return None
    gone = vanishes(x), vanishes(y)
    if all(gone):
        raise Undefined
    return None if any(gone) else x / y


def _gap(x: Number | Grid, y: Number | Grid) -> Number | None:
    """x - y; None of matrices."""
    return None if is_grid(x) or is_grid(y) else x - y
