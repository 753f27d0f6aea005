r"""The points at which two expressions are compared: at random,
and where one of them could change its mind.

    at random  fractions of both signs and several sizes, and whole numbers, from a hash of the pair
    special    0, 1/2, ±10^k, the numbers that the expressions are written with and their neighbours
    turning    where |u|, \lfloor u\rfloor, \max(u, v), u \bmod m, \sqrt{u^2} or a case turns: the
               roots of u, of u - v and of u - k for whole k, both sides of each, between them and
               beyond them

A root is exact where u is linear; else it is searched for between numbers at which u has different
signs, and where u has an extremum.  It is then a ball, so narrow that u is taken for zero on it.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, ctx, fmpq

from rlvr.verifiers.math.latex.budget import Budget
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.tree import (
    EULER,
    INFINITY,
    PI,
    Node,
    TooLarge,
    Unreadable,
    calls,
    free_symbols,
    has,
    minus,
    unsigned,
    walk,
)
from rlvr.verifiers.math.latex.values import (
    PRECISION,
    Number,
    Undefined,
    as_number,
    is_exact,
    is_integer,
)

__all__ = [
    "BESIDE",
    "OTHER",
    "Point",
    "ROOT",
    "has_steps",
    "is_analytic",
    "nudge",
    "random_points",
    "special_points",
]

Point = Mapping[str, Number]

_COUNTS = (40, 12, 100, 6)
"""Up to which whole numbers are drawn for a letter under a factorial:
fractions mean nothing there, and cost most."""
_TRIES = 120
"""Random points that are looked at for so many that both sides have a value at."""
_STEPPED = frozenset("abs floor ceil sgn max min".split())
_PERIODIC = frozenset("sin cos tan cot sec csc".split())
_OF_WHOLE_NUMBERS = frozenset(("binom", "perm", "gcd", "lcm"))
_CALCULUS = ("int", "lim", "diff")
# A ball counts as zero from 160 bits on, a third of 480: that of a root is far narrower.
_ROOT_BITS = 720  # of the ball of a root; the search works with a third more
_SEARCH_STEPS = 24_000  # nodes visited to find roots; about 0.08 s
_MOST_SWITCHES, _MOST_ROOTS, _MOST_NUMBERS = 8, 12, 10
_MOST_BITS = 2_000  # of a number that the expressions are written with
_MOST_FOR_CALCULUS = 6
_JOINT = 30  # points at which all variables have special values at once
_POWERS = (2, 3, 4, 6, 9, 12, 18, 30)
_FAR = (100, 1_000, 10_000)  # as exponents of ten: only looked at for a change of sign


# -------------------------------------------------------------------------------- what kind of pair


def has_steps(*trees: Node) -> bool:
    """Not analytic: what agrees on one stretch may differ on the next."""
    return any(_is_step(node) for tree in trees for node in walk(tree))


def _is_step(node: Node) -> bool:
    if node.op == "call":
        return node.value in _STEPPED
    return node.op in ("cases", "mod") or _root_of_power(node) is not None


def _root_of_power(node: Node) -> Node | None:
    r"""u of \sqrt{u^2} and (u^2)^{1/2}."""
    if node.op not in ("root", "pow") or node.args[0].op != "pow":
        return None
    (base, inner), outer = node.args[0].args, node.args[1]
    is_integral = node.op == "pow" and outer.op == "num" and outer.value.denominator == 1
    # (x^2)^3 is a polynomial, (x^2)^{1/2} is |x|.
    return None if is_integral or free_symbols(inner) or free_symbols(outer) else base


def is_analytic(node: Node) -> bool:
    """Quotients of polynomials, sines and powers of numbers: two of them differ nearly everywhere
    or nowhere."""
    if not free_symbols(node):
        return True
    if node.op == "pow":
        # A power other than a whole one is analytic only over a positive base.
        base, exponent = node.args[0], unsigned(node.args[1])
        is_whole = exponent.op == "num" and exponent.value.denominator == 1
        if not is_whole and base not in _POSITIVE and not (base.op == "num" and base.value > 0):
            return False
    elif (node.value not in _ENTIRE) if node.op == "call" else node.op not in _ANALYTIC:
        return False
    return all(map(is_analytic, node.args))


_ANALYTIC = frozenset("sym add mul neg div deg apply".split())
_ENTIRE = frozenset("sin cos tan cot sec csc sinh cosh tanh coth sech csch".split())
_POSITIVE = (EULER, PI)


# ------------------------------------------------------------------------------------------- random


def _seeded(seeds: Sequence[Node]) -> random.Random:
    # Sorted, so that answer and reference may change places and meet at the same points.
    digest = hashlib.sha256("\0".join(sorted(map(repr, seeds))).encode("utf-8", "replace")).digest()
    return random.Random(digest)  # it must repeat, and keeps no secret


def random_points(names: Sequence[str], *seeds: Node) -> Iterator[Point]:
    """Points for these variables, of all signs and several sizes; at whole ones (-1)^n and n! have
    values."""
    rng = _seeded(seeds)
    integral = _whole_variables(seeds)
    turn = 0
    for number in range(_TRIES):
        size, signed = _DRAWS[number % len(_DRAWS)]
        turn += signed
        yield {
            name: fmpq(rng.randint(1, _COUNTS[number % len(_COUNTS)]))
            if name in integral
            else size(rng) * (_sign(rng, turn, i) if signed else 1)
            for i, name in enumerate(names)
        }


def nudge(point: Point) -> Point:
    """A point close by, to tell a hole such as that of x^2/x at 0 from a whole stretch without a
    value."""
    return {
        name: _as_fraction(x) * fmpq(100_003, 100_000) + fmpq(7, 1_000_003)
        for name, x in point.items()
    }


def _sign(rng: random.Random, turn: int, variable: int) -> int:
    """Four turns take the first two variables through all their signs; |x + y| is |x| + |y| in half
    of them."""
    return -1 if (turn >> variable & 1 if variable < 2 else rng.getrandbits(1)) else 1


def _fraction(rng: random.Random, most: int) -> fmpq:
    """Any denominator of six digits: sin(n pi x) is zero at all fractions with a denominator that
    divides n."""
    below = rng.randrange(100_000, 1_000_000)
    return fmpq(rng.randint(1, most * below), below)


def _middling(rng: random.Random) -> fmpq:
    return _fraction(rng, 11)


def _small(rng: random.Random) -> fmpq:
    return _fraction(rng, 1)


def _large(rng: random.Random) -> fmpq:
    return 12 + _fraction(rng, 97)


def _whole(rng: random.Random) -> fmpq:
    return fmpq(rng.randint(1, 40))


# Eight that are defined everywhere will do, so all kinds are among the first eight.
_DRAWS: tuple[tuple[Callable[[random.Random], fmpq], bool], ...] = (
    (_middling, True), (_middling, True), (_small, True), (_whole, False),
    (_middling, True), (_small, True), (_large, True), (_middling, False),
    (_whole, False), (_small, False), (_whole, False), (_large, False),
)  # fmt: skip


# ------------------------------------------------------------------------------------------ special


ROOT, BESIDE, OTHER = 2, 1, 0
"""A special point at which something turns, one beside it, and any other."""


def special_points(names: Sequence[str], *seeds: Node) -> Iterator[tuple[Point, int]]:
    """Where one of the expressions could change its mind, and what kind of point it is.

    There is none for analytic expressions.

    Raises:
        TooLarge: the search for what turns would take too many steps.
    """
    if all(map(is_analytic, seeds)):
        return
    rng = _seeded(seeds)
    steps = has_steps(*seeds)
    known_numbers = _known_numbers(seeds)
    far_numbers = filter(_is_far, known_numbers)
    calculus = any(has(seed, *_CALCULUS) or INFINITY in walk(seed) for seed in seeds)
    if calculus:  # each point costs milliseconds
        # Far numbers alone: near ones are as good as random ones.
        plain = [*far_numbers, fmpq(1000), fmpq(-1000)][:_MOST_FOR_CALCULUS]
    else:
        some = (*_PLAIN_WITH_STEPS, *known_numbers) if steps else (*_PLAIN, *far_numbers)
        plain = list(dict.fromkeys(some))
    integral = _whole_variables(seeds)
    values: dict[str, list[Number]] = {}
    beside: list[tuple[Point, int]] = []
    budget = Budget(_SEARCH_STEPS)
    for name in names:
        fixed = _somewhere(names, rng)
        turning: tuple[list[Number], list[Number]] = [], []
        if steps and not calculus:
            turning = _turning_numbers(name, fixed, seeds, known_numbers, budget)
        roots, near = (_whole_only(points, name in integral) for points in turning)
        values[name] = [*roots, *near, *_whole_only(plain, name in integral)]
        # Roots first: the steps that may be spent may end before the others.
        yield from (({**fixed, name: x}, ROOT) for x in roots)
        beside += [({**fixed, name: x}, BESIDE) for x in near]
    yield from beside
    for at in range(max(map(len, values.values()))):
        # With steps each letter takes each of its values; else the letters take turns.
        for name in names if steps else (names[at % len(names)],):
            if at < len(values[name]):
                yield {**_somewhere(names, rng), name: values[name][at]}, OTHER
    if len(names) > 1:
        # All letters at the same number: there |x - y| and max turn.
        for x in _whole_only(plain[:6], bool(integral)):
            yield dict.fromkeys(names, x), OTHER
        written = known_numbers[:: len(_NEIGHBOURS)] if steps else ()
        for x, sign in itertools.product(written, (1, -1)):  # all beyond it
            yield {name: x + sign * rng.choice((1, 2, 300)) * _whole(rng) for name in names}, OTHER
        for _ in range(_JOINT if steps else 4):
            yield {name: rng.choice(values[name]) for name in names}, OTHER


def _somewhere(names: Sequence[str], rng: random.Random) -> dict[str, Number]:
    return {name: _middling(rng) * rng.choice((1, -1)) for name in names}


def _whole_only(numbers: Sequence[Number], whole: bool) -> list[Number]:
    """From 1 on, since a sum to -1 is hardly meant."""
    return [x for x in _each_once(numbers) if not whole or (is_integer(x) and x > 0)]


def _each_once(numbers: Iterable[Number]) -> Iterable[Number]:
    # By text where it is a ball, as balls do not hash.
    return {x if is_exact(x) else str(x): x for x in numbers}.values()


def _whole_variables(seeds: Sequence[Node]) -> frozenset[str]:
    """What n!, a sum to n, gcd and mod are taken of: halves mean nothing there."""
    names: set[str] = set()
    for node in itertools.chain.from_iterable(map(walk, seeds)):
        if node.op in ("fact", "fact2", "mod") or (
            node.op == "call" and node.value in _OF_WHOLE_NUMBERS
        ):
            names |= free_symbols(node)
        elif node.op in ("sum", "prod"):
            names |= free_symbols(node.args[1]) | free_symbols(node.args[2])
    return frozenset(names)


def _is_far(x: fmpq) -> bool:
    """Where random points do not come."""
    return not fmpq(1, 50) < abs(x) < 50


def _numbers(halves: Sequence[int], powers: Sequence[int], tiny: Sequence[int]) -> list[fmpq]:
    large = (fmpq(sign * 10**k) for k in powers for sign in (1, -1))
    small = (fmpq(sign, 10**k) for k in tiny for sign in (1, -1))
    return [*(fmpq(n, 2) for n in halves), *large, *small]


_PLAIN = _numbers((0, 1, 2, -2, -3), (2, 4, 9), (3,))
_PLAIN_WITH_STEPS = _numbers((0, 1, -1, 2, -2, 3, -3, 5, -5, 6, -6), _POWERS, (3, 12))


def _known_numbers(seeds: Sequence[Node]) -> list[fmpq]:
    """What the expressions are written with, which is where a far threshold has to be said; and its
    neighbours."""
    numbers: dict[fmpq, None] = {}
    for node in itertools.chain.from_iterable(map(walk, seeds)):
        if node.op in ("num", "pow", "mul", "div", "fact") and not free_symbols(node):
            with suppress(Undefined, TooLarge, Unreadable, KeyError):
                value = abs(Evaluation({}, real=True, budget=Budget(200)).number(node))
                if is_exact(value) and value.height_bits() <= _MOST_BITS and value not in (0, 1):
                    numbers[value] = None
    # A far threshold takes many digits to say, so the longest come first.
    largest = sorted(numbers, key=fmpq.height_bits, reverse=True)[:_MOST_NUMBERS]
    return [neighbour(c) for c in largest for neighbour in _NEIGHBOURS]


_NEIGHBOURS: tuple[Callable[[fmpq], fmpq], ...] = (
    lambda c: c,
    lambda c: -c,
    lambda c: c + 1,
    lambda c: c - 1,
    lambda c: 2 * c,
    lambda c: 1 / c,
    lambda c: -1 / c,
    lambda c: c / 2,
)


# ------------------------------------------------------------------------------------------ turning


def _turning_numbers(
    name: str, others: Point, seeds: Sequence[Node], known: Sequence[fmpq], budget: Budget
) -> tuple[list[Number], list[Number]]:
    """Values of one variable, the others being these: the roots; and both sides of them, between
    and beyond."""
    roots: list[Number] = []
    switches = _switches(name, list(others), seeds)
    with ctx.workprec(_ROOT_BITS * 4 // 3):
        # A root of an inner switch is where the search for those of an outer one begins.
        for switch, at_integers in sorted(switches, key=lambda item: has_steps(item[0])):
            search = _Search(switch, name, others, budget, known, list(roots))
            roots += [
                root
                for root in search.roots(at_integers)
                if not any(_near(root, root_before) for root_before in roots)
            ]
        roots.sort(key=_middle)
        if len(roots) > _MOST_ROOTS:
            roots = roots[:: -(-len(roots) // _MOST_ROOTS)] + roots[-1:]
        known_roots = list(map(_as_fraction, roots))
        angles = [arb.pi() * k / 12 for k in _ANGLES] if any(map(_is_periodic, seeds)) else []
    between = [(x + y) / 2 for x, y in itertools.pairwise(known_roots)]
    beside = [root + by for root in known_roots for by in _STEPS_ASIDE]
    around = [
        root + by * (1 + abs(root)) for root in known_roots[:1] + known_roots[-1:] for by in (-2, 2)
    ]
    return roots, [*between, *beside, *around, *angles]


def _as_fraction(x: Number) -> fmpq:
    if is_exact(x):
        return x
    mantissa, exponent = x.mid().man_exp()
    return fmpq((mantissa * fmpq(2) ** (int(exponent) + _PLACES)).floor(), 2**_PLACES)


def _middle(x: Number) -> Number:
    return x if is_exact(x) else x.mid()


def _is_periodic(node: Node) -> bool:
    return calls(node, *_PERIODIC)


_STEPS_ASIDE = tuple(fmpq(sign, by) for by in (3, 10**9, 10**25) for sign in (1, -1))
_ANGLES = (2, 3, 4, 6, 8, 12, 18, 24, -2, -3, -4, -6, -12, -18)


def _near(x: Number, y: Number) -> bool:
    # 10^-60 beside numbers that are known to 200 digits: the same root, found twice.
    return bool(abs(_middle(x) - _middle(y)) < (1 + abs(_middle(x))) / 10**60)


def _switches(name: str, names: Sequence[str], seeds: Sequence[Node]) -> list[tuple[Node, bool]]:
    """What decides which way a step goes, and whether it does so at every whole number or at 0."""
    switches: dict[tuple[Node, bool], None] = {}
    for node in itertools.chain.from_iterable(map(walk, seeds)):
        for switch, at_integers in _decides(node):
            inside = free_symbols(switch)
            if name in inside and inside <= set(names):
                switches[switch, at_integers] = None
    # The shortest switches first: outer ones hold them as parts.
    return sorted(switches, key=lambda item: sum(1 for _ in walk(item[0])))[:_MOST_SWITCHES]


def _decides(node: Node) -> Iterator[tuple[Node, bool]]:
    name = node.value if node.op == "call" else node.op
    if name in ("abs", "sgn", "floor", "ceil"):
        yield node.args[0], name in ("floor", "ceil")
    elif name in ("max", "min"):
        for a, b in itertools.combinations(node.args[:4], 2):
            yield minus(a, b), False
    elif name == "mod":
        # x mod m jumps where x/m is whole.
        yield Node("div", node.args), True
    elif name == "cases":
        for condition in node.args[1::2]:
            for relation in (n for n in walk(condition) if n.op == "rel"):
                for a, b in itertools.pairwise(relation.args):
                    yield minus(a, b), False
    elif (base := _root_of_power(node)) is not None:
        yield base, False


@dataclass(frozen=True, slots=True)
class _Search:
    """One switch as a function of one variable."""

    switch: Node
    name: str
    others: Point
    budget: Budget
    known: Sequence[Number]
    inner: Sequence[Number]
    """Roots of the switches in it."""

    def roots(self, whole: bool) -> list[Number]:
        """Where the switch is 0, or a whole number near 0."""
        line = self._line()
        if line is not None:
            start, slope = line
            return [(k - start) / slope for k in (_WHOLE if whole else (0,))] if slope != 0 else []
        samples = self._sample_switch()
        zeros: list[Number] = []
        # Five of them, as each takes a search.
        for target in _WHOLE[:5] if whole else (0,):
            zeros += itertools.islice(self._crossings(samples, target), _MOST_CROSSINGS)
        return [*zeros, *self._extrema(samples)]

    def _at(self, x: Number, target: int = 0) -> Number | None:
        try:
            point = {**self.others, self.name: x}
            value = Evaluation(point, real=True, budget=self.budget).number(self.switch)
        except (Undefined, Unreadable):
            return None
        except TooLarge:
            # Only a spent budget ends the search; a number that is too large is no sample.
            if self.budget.left < 0:
                raise
            return None
        return value - target

    def _line(self) -> tuple[fmpq, fmpq] | None:
        """Its value at 0 and its slope, if these say all."""
        # Four points without a pattern: where all lie on a line, the switch is taken for one.
        values = [value for value in map(self._at, _ON_A_LINE) if is_exact(value)]
        if len(values) < len(_ON_A_LINE):
            return None
        start, slope = values[0], values[1] - values[0]
        on_it = all(value == start + x * slope for x, value in zip(_ON_A_LINE, values, strict=True))
        return (start, slope) if on_it else None

    def _sample_switch(self) -> list[tuple[Number, Number]]:
        """Numbers from left to right with the switch's values there."""
        far = () if _is_periodic(self.switch) else _FAR  # sin 10^{1000} takes many digits of pi
        # Quarters near 0, then powers of ten, so that every change of sign between them is met.
        grid = {fmpq(n, 4) for n in range(-16, 17)} | {
            fmpq(s * 10**k) for k in _POWERS + far for s in (1, -1)
        }
        grid |= {fmpq(sign * n) for n in (7, 20, 50, 300) for sign in (1, -1)}
        grid |= {fmpq(sign, 10**k) for k in (2, 6, 15, 30) for sign in (1, -1)}
        # Beside the roots of inner switches, where an outer one may jump.
        beside = [_as_fraction(x) + by for x in self.inner for by in _ASIDE]
        with ctx.workprec(PRECISION):
            numbers = _each_once((*grid, *self.known, *self.inner, *beside))
            values = [(x, self._at(x)) for x in numbers]
        return sorted(
            ((x, y) for x, y in values if y is not None), key=lambda item: _middle(item[0])
        )

    def _crossings(self, seen: Sequence[tuple[Number, Number]], target: int) -> Iterator[Number]:
        """Those that are seen, the nearest to 0 first."""
        for (x, u), (y, v) in sorted(
            itertools.pairwise(seen), key=lambda pair: abs(_middle(pair[0][0]))
        ):
            below, above = u - target, v - target
            if below == 0:
                yield x
            elif below < 0 < above or above < 0 < below:
                zero = self._zero(lambda z: self._at(z, target), x, below, y, above)
                yield self._simplest(zero, target)

    def _zero(
        self, f: Callable[[Number], Number | None], x: Number, u: Number, y: Number, v: Number
    ) -> Number:
        """By false position (the Illinois rule), and by halves now and then, for what jumps."""
        x, u, y, v = (_middle(arb(number)) for number in (x, u, y, v))
        narrow = arb(2) ** -_ROOT_BITS
        for turn in range(_MOST_TURNS):
            z = _middle((x + y) / 2 if turn % 5 == 4 else x - u * (y - x) / (v - u))
            value = f(z)
            if value is None:
                break
            if arb(value).contains(0) or abs(_middle(y - x)) < narrow * (abs(x) + abs(y)):
                return z
            w = arb(value).mid()
            if (w < 0) is (v < 0):
                u /= 2
            else:
                x, u = y, v
            y, v = z, w
        return _middle((x + y) / 2)

    def _simplest(self, x: Number, target: int) -> Number:
        """The fraction that it is, if it is a short one."""
        near = _as_fraction(x)
        # A short fraction has a denominator of at most a million.
        plain = as_number(
            Fraction(int(near.numerator), int(near.denominator)).limit_denominator(10**6)
        )
        return plain if self._at(plain) == target else x + arb(0, abs(x) / arb(2) ** _ROOT_BITS)

    def _extrema(self, seen: Sequence[tuple[Number, Number]]) -> list[Number]:
        """Where it turns round: there it may touch a value that it does not cross."""
        turns: list[Number] = []
        for (x, u), (_, v), (y, w) in zip(seen, seen[1:], seen[2:], strict=False):
            if (u < v > w or u > v < w) and len(turns) < _MOST_EXTREMA:
                left, right = self._slope(x), self._slope(y)
                if left is not None and right is not None and left * right < 0:
                    top = self._zero(self._slope, x, left, y, right)
                    slope = self._slope(top)
                    if slope is not None and abs(slope) < 1:  # not so beside a pole
                        turns.append(top + arb(0, (1 + abs(top)) / arb(2) ** _ROOT_BITS))
        return turns

    def _slope(self, x: Number) -> Number | None:
        step = fmpq(1, 10**40)
        above, below = self._at(x + step), self._at(x - step)
        return None if above is None or below is None else _middle(arb(above - below) / (2 * step))


_WHOLE = (0, 1, -1, 2, -2, 3, 10, -10)
_ON_A_LINE = (fmpq(0), fmpq(1), fmpq(-3, 7), fmpq(1017, 4))
_ASIDE = (fmpq(1, 3), fmpq(-1, 3))
_MOST_TURNS = 90
_MOST_CROSSINGS = 4
_MOST_EXTREMA = 3
_PLACES = 128
