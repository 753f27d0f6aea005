r"""Are two expressions equal?  Decided by their values: exactly, or to more digits than could agree by chance.

Expressions with variables are compared at points from a generator that the pair itself seeds, so that a verdict
repeats and a model cannot know the points.  A point at which one side has no real value is skipped: ln(xy) and
ln x + ln y are equal, sqrt(x^2) and x are not.  One point at which the values differ decides.

Evidence is what agrees at POINTS points to within 10^-45 of the largest number met on the way (for rational
expressions: exactly, and then Schwartz and Zippel bound the chance of an error by degree/10^3 for each point); three
times as many where steps such as floor or cases occur.  Constants have but one point, so they must agree to 105
digits and be short; a constant that mixes very large and very small numbers could be close to another on purpose, and
needs a proof by SymPy.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mpmath import mp

from rlvr.verifiers.math.latex.budget import Budget
from rlvr.verifiers.math.latex.compile import vanishes
from rlvr.verifiers.math.latex.matrices import Grid
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.tree import Node, TooLarge, free_symbols, has, size, walk
from rlvr.verifiers.math.latex.values import Number, Undefined, approximate, divided, magnitude

__all__ = ["POINTS", "Pair", "Point", "equal", "points", "ratio", "shift"]

POINTS = 8
"""Points at which expressions with variables must agree."""
_TRIES = 120
"""Points that are looked at for so many that both sides have a value at."""
_MOST_BEYOND = 4
"""Points that may be too costly: a^b is, where both happen to be large."""
_DIGITS, _CONSTANT_DIGITS = 60, 120
_LONGEST_CONSTANT = 120  # nodes; more could spell out a number digit by digit
_MOST_SPREAD = 130  # bits between the largest and the smallest number of a constant that needs no proof
_MOST_DIGITS = 2000
_SLACK_BITS = 50
_STEPPED = frozenset(("abs", "floor", "ceil", "sgn", "max", "min"))
_MOST_THRESHOLDS = 20

Point = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Pair:
    """Both values at a point, log2 of the largest number met on the way, and the decimal digits they were taken to."""

    x: Number | Grid
    y: Number | Grid
    top: int
    digits: int

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
            return bool(gap == 0 or magnitude(gap) < self.top + _SLACK_BITS - mp.prec)


def equal(a: Node, b: Node) -> bool:
    """Hold two expressions against each other.

    Raises:
        Undefined: one of two constants has no value, or no point was found at which both have one.
        TooLarge, Unreadable: see `latex.tree`.
    """
    if a == b and not has(a, "cases"):
        return True
    bases = (10, None) if any(n.op == "call" and n.value == "log" for t in (a, b) for n in walk(t)) else (None,)
    return any(_equal(a, b, base) for base in bases)


def _equal(a: Node, b: Node, log_base: int | None) -> bool:
    names = sorted(free_symbols(a) | free_symbols(b))
    if not names:
        return _equal_constants(a, b, log_base)
    agreed = beyond = 0
    budget = Budget()
    wanted = POINTS * (3 if _has_steps(a) or _has_steps(b) else 1)
    for point in points(names, a, b):
        try:
            pair = _values(a, b, point, budget, log_base)
        except Undefined:
            continue
        except TooLarge:
            if (beyond := beyond + 1) > _MOST_BEYOND:
                raise
            continue
        if not pair.agree():
            return False
        agreed += 1
        if agreed == wanted:
            return True
    if agreed == 0:
        raise Undefined
    return agreed >= POINTS


def _has_steps(node: Node) -> bool:
    """Not analytic: what agrees on one stretch may differ on the next."""
    return any(n.op in ("cases", "mod") or (n.op == "call" and n.value in _STEPPED) for n in walk(node))


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
    return _agree_closely(a, b, spread, log_base) and vanishes(Node("add", (a, Node("neg", (b,)))))


def _agree_closely(a: Node, b: Node, spread: int, log_base: int | None) -> bool:
    digits = _CONSTANT_DIGITS + spread * 6 // 10  # twice the spread in decimal digits
    if digits > _MOST_DIGITS:
        raise TooLarge(f"a comparison to {digits} digits")
    with mp.workdps(digits):
        left, right = (Evaluation({}, real=False, log_base=log_base) for _ in range(2))
        return Pair(left.value(a), right.value(b), max(left.top, right.top), digits).agree()


def _values(a: Node, b: Node, point: Point, budget: Budget, log_base: int | None = None) -> Pair:
    """Both values, to so many digits that what is small beside the largest number met still shows."""
    real = not any(n == Node("const", value="i") for t in (a, b) for n in walk(t))
    digits = _DIGITS
    while True:
        with mp.workdps(digits):
            left, right = (Evaluation(point, real=real, log_base=log_base, budget=budget) for _ in range(2))
            pair = Pair(left.value(a), right.value(b), max(left.top, right.top), digits)
        enough = _DIGITS + (pair.top - min(left.bottom, right.bottom)) * 3 // 10
        if digits >= enough or (_exact(pair.x) and _exact(pair.y)) or not pair.agree():
            return pair
        if enough > _MOST_DIGITS:
            raise TooLarge(f"a comparison to {enough} digits")
        digits = enough


def _exact(value: Number | Grid) -> bool:
    return all(isinstance(x, Fraction) for x in _cells(value))


def _cells(value: Number | Grid) -> Sequence[Number]:
    return [x for row in value.rows for x in row] if isinstance(value, Grid) else [value]


def ratio(a: Node, b: Node) -> int:
    """The sign of a / b if that is the same number other than 0 wherever both have values; else 0."""
    names = sorted(free_symbols(a) | free_symbols(b))
    seen: list[Number] = []
    budget = Budget()
    for point in points(names, a, b):
        try:
            seen.append(_quotient(_values(a, b, point, budget)))
        except Undefined:
            continue
        if len(seen) > 1 and not (seen[-1] and _same(seen[-1], seen[0])):
            return 0
        if len(seen) == POINTS:
            return 0 if isinstance(seen[0], mp.mpc) or not seen[0] else 1 if seen[0] > 0 else -1
    return 0


def _quotient(pair: Pair) -> Number:
    """x / y, 0 for what is no ratio; a point at which both vanish says nothing."""
    if isinstance(pair.x, Grid) or isinstance(pair.y, Grid):
        return Fraction(0)
    gone = [pair.close(value, Fraction(0)) for value in (pair.x, pair.y)]
    if all(gone):
        raise Undefined
    with mp.workdps(pair.digits):
        return Fraction(0) if any(gone) else divided(pair.x, pair.y)


def _same(x: Number, y: Number) -> bool:
    return Pair(x, y, magnitude(y), _DIGITS).agree()


def shift(a: Node, b: Node) -> bool:
    """True if a - b is one and the same number wherever both have values, as for two antiderivatives."""
    names = sorted(free_symbols(a) | free_symbols(b))
    first: Number = None
    budget = Budget()
    agreed = 0
    for point in points(names, a, b):
        try:
            pair = _values(a, b, point, budget)
        except Undefined:
            continue
        if isinstance(pair.x, Grid) or isinstance(pair.y, Grid):
            return False
        with mp.workdps(pair.digits):
            gap = pair.x - pair.y if _exact(pair.x) and _exact(pair.y) else approximate(pair.x) - approximate(pair.y)
        first = gap if first is None else first
        if not pair.close(gap, first):
            return False
        agreed += 1
        if agreed == POINTS:
            return True
    return False


# ------------------------------------------------------------------------------------------------------------ points


def points(names: Sequence[str], *seeds: Node) -> Iterator[Point]:
    """Points for these variables, of all signs and several sizes; at whole ones (-1)^n and n! have values."""
    digest = hashlib.sha256("\0".join(sorted(map(repr, seeds))).encode("utf-8", "replace")).digest()
    rng = random.Random(digest)  # it must repeat, and keeps no secret
    turn = 0
    for value in _thresholds(seeds):
        yield dict.fromkeys(names, value)
    for number in range(_TRIES):
        size, signed = _DRAWS[number % len(_DRAWS)]
        turn += signed
        yield {name: size(rng) * (_sign(rng, turn, i) if signed else 1) for i, name in enumerate(names)}


def _thresholds(seeds: Sequence[Node]) -> list[Fraction]:
    """The numbers in the conditions of cases, for just there x > 0 and x >= 0 differ."""
    conditions = [part for seed in seeds for n in walk(seed) if n.op == "cases" for part in n.args[1::2]]
    found = {n.value * sign for part in conditions for n in walk(part) if n.op == "num" for sign in (1, -1)}
    return sorted(found)[:_MOST_THRESHOLDS]


def _sign(rng: random.Random, turn: int, variable: int) -> int:
    """Four turns take the first two variables through all their signs; |x + y| is |x| + |y| in half of them."""
    return -1 if (turn >> variable & 1 if variable < 2 else rng.getrandbits(1)) else 1


def _middling(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(1, 997), rng.choice((89, 97, 101, 103)))


def _small(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(1, 400), 401)


def _large(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(1000, 9000), 83)


def _whole(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(1, 40))


# Eight that are defined everywhere will do, so all kinds are among the first eight.
_DRAWS: tuple[tuple[Callable[[random.Random], Fraction], bool], ...] = (
    (_middling, True), (_middling, True), (_small, True), (_whole, False), (_middling, True), (_small, True),
    (_large, True), (_middling, False), (_whole, False), (_small, False), (_whole, False), (_large, False),
)  # fmt: skip
