r"""The value of a tree at a point, which decides nearly every comparison.

A tree is evaluated exactly where possible, and else as a ball (`values.py`).  With `real`, the root
of a negative number is undefined, as at school, so that a point at which an identity leaves the
real numbers is skipped.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

from flint import acb, acb_mat, arb, ctx, fmpq

from rlvr.verifiers.math.latex import functions
from rlvr.verifiers.math.latex.budget import Budget
from rlvr.verifiers.math.latex.matrices import (
    Grid,
    determinant,
    grid,
    is_grid,
    length,
    raise_power,
)
from rlvr.verifiers.math.latex.quadrature import integral, is_smooth
from rlvr.verifiers.math.latex.tree import (
    INFINITY,
    MINUS_INFINITY,
    Node,
    TooLarge,
    Unreadable,
    free_symbols,
    operands,
)
from rlvr.verifiers.math.latex.unknown import is_notation, stand_in, unknown
from rlvr.verifiers.math.latex.values import (
    MOST_BITS,
    MOST_MAGNITUDE,
    PRECISION,
    NoCase,
    NotMeant,
    Number,
    Undefined,
    Underflow,
    as_number,
    divide,
    is_exact,
    is_integer,
    magnitude,
    power_of,
    root_of,
    sign_of,
    vanishes,
)

__all__ = ["Evaluation", "constant"]

# A first try, and a finer one for what it does not settle.
_ROUGH_STEPS = (70, 350)  # of a quadrature that shows five digits
_QUADRATURE_ENDS = fmpq(7, 2)  # e^-26 from those of the stretch
# Shorter fractions are not measured: 1,400² bits are less than a step.
_SHORT_BITS = 1_400
# They come so close to their limit that they seem to be it: tanh 30 = 1 - 2·10^-26.
_SATURATED = frozenset("tanh coth arctan arccot arcsec arccsc".split())
_SATURATED_AT = 4, 20  # magnitudes: from where on it counts, and where it is too large
_BITS_A_STEP = 2_000_000  # squared: reducing a fraction takes the product of its lengths
# In units of an addition, about 5 µs.
_COSTS = {"root": 2, "fact": 20, "int": 100, "lim": 100, "diff": 20, "apply": 5}
_BY_SERIES = frozenset("call pow root log deg fact apply".split())
_PRECISION_A_STEP = 1_000_000  # squared
_OF_GAMMA = frozenset(("gamma", "binom", "perm"))


class Evaluation:
    """One point, and what is learnt on the way about the sizes of the numbers met.

    Attributes:
        top, bottom: the largest and smallest magnitude (log2) of any number met but zero.
    """

    def __init__(
        self,
        point: Mapping[str, Number],
        *,
        real: bool,
        log_base: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.point = dict(point)
        self.real, self.log_base = real, log_base
        self.top = self.bottom = 0
        self.budget = budget or Budget()
        self.checking = False  # an integral within an integral is not checked again

    def value(self, node: Node) -> Number | Grid:
        """What the tree comes to here.

        Raises:
            Undefined: nothing.
            TooLarge: a limit.
            Unreadable: it is no expression.
        """
        cost = _COSTS.get(node.op, 1)
        # Arb's series take time by the square of the precision, beyond the first one.
        if ctx.prec > PRECISION and node.op in _BY_SERIES:
            cost *= 1 + ctx.prec**2 // _PRECISION_A_STEP
        self.budget.spend(cost)
        rule = _RULES.get(node.op)
        if rule is None:
            raise Unreadable(f"{node.op} in an expression")
        value = rule(self, node)
        return value if is_grid(value) else self._check_number(value)

    def number(self, node: Node) -> Number:
        """The same, where a matrix will not do."""
        value = self.value(node)
        if is_grid(value):
            raise Undefined
        return value

    def _check_number(self, value: Number) -> Number:
        if isinstance(value, fmpq):
            if value == 0:
                return value
            if value.height_bits() > _SHORT_BITS:
                above, below = (
                    int(value.numerator.bit_length()),
                    int(value.denominator.bit_length()),
                )
                # Twice, as numerator and denominator may each have so many.
                if above + below > 2 * MOST_BITS:
                    raise TooLarge("an exact number with too many digits")
                self.budget.spend(above * below // _BITS_A_STEP)
        else:
            if not value.is_finite():
                raise Undefined
            if isinstance(value, acb):
                if vanishes(value.imag):
                    # An imaginary part that is taken for 0 leaves the real number, with its ball.
                    value = value.real
                elif self.real:
                    raise Undefined
            if value.rel_accuracy_bits() <= 1:  # it may be 0, whose size says nothing
                return value
        size = magnitude(value)
        if abs(size) > MOST_MAGNITUDE:
            raise TooLarge(f"a number of more than {MOST_MAGNITUDE} binary digits")
        self.top, self.bottom = max(self.top, size), min(self.bottom, size)
        return value

    # ----------------------------------------------------------------------------------- arithmetic

    def _literal(self, node: Node) -> Number:
        """A long literal is as good as a small difference: its digits count as sizes."""
        self.top = max(self.top, node.value.numerator.bit_length())
        self.bottom = min(self.bottom, -node.value.denominator.bit_length())
        return as_number(node.value)

    def _term(self, node: Node) -> Number:
        """a_i at i = 3: the variable a_3 if there is one, else a number of its own."""
        indices = list(map(self.number, node.args))
        if not all(map(is_integer, indices)):
            raise NotMeant
        # The name as the parser writes it, so that a_3 in the text is the term at i = 3.
        name = f"{node.value}_{{{''.join(map(str, indices))}}}"
        digest = hashlib.sha256(name.encode()).digest()
        # Between 0 and 256 in 257ths; a number of its own that is the same on both sides.
        return self.point.get(name, fmpq(int.from_bytes(digest[:2]) + 1, 257))

    def _constant(self, node: Node) -> Number:
        if node.value == "inf" or (node.value == "i" and self.real):
            raise Undefined
        return arb.pi() if node.value == "pi" else arb.const_e() if node.value == "e" else acb(0, 1)

    def _quotient(self, node: Node) -> Number | Grid:
        above, below = self.value(node.args[0]), self.number(node.args[1])
        return _times(above, divide(fmpq(1), below)) if is_grid(above) else divide(above, below)

    def _power(self, node: Node) -> Number | Grid:
        base, exponent = self.value(node.args[0]), self.number(node.args[1])
        if is_grid(base):
            return raise_power(base, exponent)
        # An exponent with letters may come out as 1/3 by chance: (-2)^x is no school root there.
        is_defined = is_integer(exponent) or not (self.real and free_symbols(node.args[1]))
        if not is_defined and not isinstance(base, acb) and base < 0:
            raise NotMeant  # (-2)^x; (-8)^{1/3} is another thing
        return power_of(base, exponent, real=self.real)

    def _root(self, node: Node) -> Number:
        value, index = self.number(node.args[0]), self.number(node.args[1])
        # \sqrt[n]{x} for whole n has the real root of a negative number; any other index is a
        # power.
        if is_integer(index) and 2 <= index < 1000:
            return root_of(value, int(index), real=self.real)
        return power_of(value, divide(fmpq(1), index), real=self.real)

    def _call(self, node: Node) -> Number:
        if node.value == "log":
            return functions.logarithm(
                self.number(node.args[0]), fmpq(10) if self.log_base else arb.const_e()
            )
        if node.value == "abs" and is_grid(vector := self.value(node.args[0])):
            return length(vector, real=self.real)
        arguments = [self.number(arg) for arg in node.args]
        # Of whole numbers these are cheap factorials; others go by series, and cost by the
        # precision.
        if node.value in _OF_GAMMA and not all(map(is_integer, arguments)):
            self.budget.spend(len(arguments) * _COSTS["fact"] * ctx.prec**2 // _PRECISION_A_STEP)
        if node.value in _SATURATED and arguments:
            self._saturate(node.value, arguments[0])
        try:
            return functions.FUNCTIONS[node.value](*arguments)
        except TypeError:
            raise Unreadable(f"{node.value} of {len(node.args)} arguments") from None

    def _saturate(self, name: str, x: Number) -> None:
        r"""What \tanh 10^9 lacks to 1 is as good as a small number met: more digits are needed to
        see it."""
        size = magnitude(x)
        # tanh x lacks about e^-2|x| to 1, which is 3·2^size bits; an arc lacks 1/x, which is `size`
        # bits.
        gap = size if name.startswith("arc") else 3 << max(min(size, _SATURATED_AT[1]), 0)
        if gap > MOST_MAGNITUDE:
            raise TooLarge(f"a number of more than {MOST_MAGNITUDE} binary digits")
        if size > _SATURATED_AT[0]:
            self.bottom = min(self.bottom, -gap)

    def _application(self, node: Node) -> Number:
        r"""f(x) of a function of which nothing is known; which one it is, the value of the letter f
        says."""
        head, inner = node.args
        inside = operands(inner, "tuple")
        values = [stand_in(arg) if is_notation(arg) else self.number(arg) for arg in inside]
        if head.op == "compose":
            return self._application(
                Node("apply", (head.args[0], Node("apply", (head.args[1], inner))))
            )
        return unknown(self.number(head), values)

    def _cases(self, node: Node) -> Number | Grid:
        for value, condition in zip(node.args[::2], node.args[1::2], strict=True):
            if self._holds(condition):
                return self.value(value)
        raise NoCase

    def _holds(self, condition: Node) -> bool:
        """Is a relation true here?"""
        if condition.op == "list":
            return all(map(self._holds, condition.args))
        if condition.op != "rel" or not set(condition.value) <= _TESTS.keys():
            raise Unreadable("a condition that is no relation")
        sides = list(map(self.number, condition.args))
        # In a chain a < b < c each sign is between two neighbours, and all must hold.
        links = zip(sides, condition.value, sides[1:], strict=False)
        return all(_TESTS[sign](sign_of(left - right), 0) for left, sign, right in links)

    # ------------------------------------------------------------------------------------- matrices

    def _vector(self, node: Node) -> Grid:
        # A tuple in (1, 3] is an interval, which has no components to compute with.
        if node.value not in ("()", "[]"):
            raise Unreadable("an interval in an expression")
        return grid((len(node.args), 1), list(map(self.number, node.args)))

    def _grid(self, node: Node) -> Grid:
        value = self.value(node.args[0])
        if not is_grid(value):
            raise Undefined
        return value

    # ------------------------------------------------------------------------------------- calculus

    def _series(self, node: Node) -> Number:
        """Term by term; a sum without end is for `compile.py`."""
        if node.args[2] == INFINITY:
            return self._symbolic(node)
        first, last = self.number(node.args[1]), self.number(node.args[2])
        if not (is_integer(first) and is_integer(last)) or last < first - 1:
            raise NotMeant  # formulas hold for the empty sum at most
        total: Number = fmpq(int(node.op == "prod"))
        combine = operator.mul if node.op == "prod" else _plus
        # Every term is charged by the nodes that it evaluates, so a long sum ends at the budget.
        for index in range(int(first), int(last) + 1):
            term = self._with(node.value, fmpq(index), node.args[0])
            total = self._check_number(combine(total, term))
        return total

    def _with(self, name: str, value: Number, body: Node) -> Number:
        outer = self.point.get(name)
        self.point[name] = value
        try:
            return self.number(body)
        finally:
            self.point.pop(name) if outer is None else self.point.update({name: outer})

    def _integral(self, node: Node) -> Number:
        """By its antiderivative; a rough quadrature guards against one that jumps between the
        limits."""
        if len(node.args) > 1 and not self.checking and is_smooth(node):
            value = integral(node, self.point, self.budget)
            if value is not None:
                return value
        value = self._symbolic(node)
        if len(node.args) > 1 and not self.checking:
            check = Evaluation(
                self.point, real=self.real, log_base=self.log_base, budget=self.budget
            )
            check.checking = True
            integrand = partial(check._integrand, node)
            low, high = (_end(check, end) for end in node.args[1:])
            for steps in _ROUGH_STEPS:
                # Relative, plus 1 for values near 0: five digits.
                if abs(_quadrature(integrand, low, high, steps) - value) < (abs(value) + 1) / 10**5:
                    return value
            # A quadrature that disagrees twice means a jump between the limits, or an integral that
            # diverges.
            raise Undefined
        return value

    def _integrand(self, node: Node, t: Number) -> Number:
        try:
            return self._with(node.value, t, node.args[0])
        except Underflow:
            # e^{-x^2} far out: smaller than any number allowed, and 0 for the sum.
            return fmpq(0)

    def _derivative(self, node: Node) -> Number:
        """By differences of so small a step that what they leave out is beyond the precision."""
        (name, order), bits = node.value, ctx.prec
        # 2^-bits: the terms left out by central differences are of its square.
        step = fmpq(1, 2**bits)
        # Differences cancel `order` times so many bits, which the working precision must have on
        # top.
        with ctx.workprec((order + 3) * bits):
            terms = (
                (-1) ** k
                * math.comb(order, k)
                * self._with(name, self.point[name] + (order - 2 * k) * step / 2, node.args[0])
                for k in range(order + 1)
            )
            # The ball is widened by what the formula leaves out.
            return sum(terms, fmpq(0)) / step**order + arb(0, arb(2) ** -bits)

    def _symbolic(self, node: Node) -> Number:
        from rlvr.verifiers.math.latex.compile import value_at

        return value_at(node, self.point)


def constant(node: Node) -> Number:
    """The real number that a tree without letters comes to.

    Raises:
        Undefined, TooLarge, Unreadable: see `Evaluation.value`.
    """
    return Evaluation({}, real=True).number(node)


def _plus(a: Number | Grid, b: Number | Grid) -> Number | Grid:
    if is_grid(a) is not is_grid(b):
        raise Undefined
    return _combine(operator.add, a, b)


def _times(a: Number | Grid, b: Number | Grid) -> Number | Grid:
    return _combine(operator.mul, a, b)


def _combine(operation: Callable[[Any, Any], Any], a: Number | Grid, b: Number | Grid) -> Any:
    try:
        # Two long fractions as a ball, whose time depends on the precision alone.
        return operation(a if _are_short(a, b) else arb(a), b)
    except ValueError:  # two matrices whose sizes do not fit
        raise Undefined from None
    except TypeError:  # an exact matrix and a ball
        return operation(*(acb_mat(side) if is_grid(side) else side for side in (a, b)))


def _are_short(a: Number, b: Number) -> bool:
    """Not two fractions that are so long together that they would take time."""
    if not (is_exact(a) and is_exact(b)):
        return True
    return bool(a.height_bits() + b.height_bits() <= 2 * MOST_BITS)


def _end(evaluation: Evaluation, node: Node) -> Number:
    infinite = {INFINITY: arb.pos_inf(), MINUS_INFINITY: arb.neg_inf()}
    return infinite[node] if node in infinite else arb(evaluation.number(node))


def _quadrature(f: Callable[[Number], Number], low: Number, high: Number, steps: int) -> Number:
    """Roughly the integral, over tangents, since ends may be infinite, by the double-exponential
    rule of Takahasi and Mori."""
    # Over u = arctan x both ends are finite; the rule puts its points closer to the ends.
    start, half, width = low.atan(), (high.atan() - low.atan()) / 2, 2 * _QUADRATURE_ENDS / steps
    total = arb(0)
    for k in range(steps + 1):
        t = arb(k * width - _QUADRATURE_ENDS)
        s = arb.pi() / 2 * t.sinh()
        angle = start + half * (1 + s.tanh())
        # dx = du / cos² u.
        total += f(angle.tan()) * t.cosh() / (s.cosh() * angle.cos()) ** 2
    return total * half * width * arb.pi() / 2


def _conjugate(z: Number) -> Number:
    return z.conjugate() if isinstance(z, acb) else z


_TESTS: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "ne": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "le": operator.le,
    "ge": operator.ge,
}
_RULES: dict[str, Callable[[Evaluation, Node], Number | Grid]] = {
    "num": Evaluation._literal,
    "sym": lambda at, node: at.point[node.value],
    "const": Evaluation._constant,
    "add": lambda at, node: reduce(_plus, map(at.value, node.args)),
    "mul": lambda at, node: reduce(_times, map(at.value, node.args)),
    "neg": lambda at, node: -at.value(node.args[0]),
    "div": Evaluation._quotient,
    "pow": Evaluation._power,
    "root": Evaluation._root,
    "call": Evaluation._call,
    "log": lambda at, node: functions.logarithm(*map(at.number, node.args)),
    "deg": lambda at, node: at.number(node.args[0]) * arb.pi() / 180,
    "fact": lambda at, node: functions.factorial(at.number(node.args[0])),
    "fact2": lambda at, node: functions.double_factorial(at.number(node.args[0])),
    "mod": lambda at, node: functions.modulo(*map(at.number, node.args)),
    "term": Evaluation._term,
    "conj": lambda at, node: _conjugate(at.number(node.args[0])),
    "cases": Evaluation._cases,
    "apply": Evaluation._application,
    "compose": lambda at, node: unknown(at.number(node.args[0]), [at.number(node.args[1])]),
    "matrix": lambda at, node: grid(node.value, list(map(at.number, node.args))),
    "tuple": Evaluation._vector,
    "det": lambda at, node: determinant(at._grid(node)),
    "transpose": lambda at, node: at._grid(node).transpose(),
    "sum": Evaluation._series,
    "prod": Evaluation._series,
    "int": Evaluation._integral,
    "diff": Evaluation._derivative,
    "lim": Evaluation._symbolic,
}
