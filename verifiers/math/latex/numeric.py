r"""The value of a tree at a point, which decides nearly every comparison.

A tree is evaluated exactly where possible, and else to the precision of `mpmath.mp`.  With `real`,
the root of a negative number is undefined, as at school, so that a point at which an identity
leaves the real numbers is skipped.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce

from mpmath import mp

from rlvr.verifiers.math.latex import functions
from rlvr.verifiers.math.latex.budget import Budget
from rlvr.verifiers.math.latex.conditions import holds
from rlvr.verifiers.math.latex.matrices import Grid, determinant, length, raise_power
from rlvr.verifiers.math.latex.tree import (
    INFINITY,
    Node,
    TooLarge,
    Unreadable,
    free_symbols,
)
from rlvr.verifiers.math.latex.unknown import is_notation, stand_in, unknown
from rlvr.verifiers.math.latex.values import (
    MOST_BITS,
    MOST_MAGNITUDE,
    NoCase,
    NotMeant,
    Number,
    Undefined,
    Underflow,
    approximate,
    divide,
    is_integer,
    magnitude,
    nearly_zero,
    power_of,
    root_of,
)

__all__ = ["Evaluation"]

_ROUGH_DIGITS = 10
_SATURATED = frozenset(("tanh", "coth", "arctan", "arccot", "arcsec", "arccsc"))
_SATURATION = 20
_BITS_A_STEP = 2_000_000  # squared: reducing a fraction takes the product of its lengths
_COSTS = {
    "fact": 20,
    "int": 100,
    "lim": 100,
    "diff": 20,
    "apply": 5,
}  # in units of an addition, about 5 µs


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
        self.budget.spend(_COSTS.get(node.op, 1) + mp.dps // 300)
        rule = _RULES.get(node.op)
        if rule is None:
            raise Unreadable(f"{node.op} in an expression")
        value = rule(self, node)
        return value if isinstance(value, Grid) else self._check_number(value)

    def number(self, node: Node) -> Number:
        """The same, where a matrix will not do."""
        value = self.value(node)
        if isinstance(value, Grid):
            raise Undefined
        return value

    def _check_number(self, value: Number) -> Number:
        if isinstance(value, mp.mpc):
            if value.imag == 0 or nearly_zero(value.imag):
                value = value.real
            elif self.real:
                raise Undefined
        if isinstance(value, Fraction):
            above, below = value.numerator.bit_length(), value.denominator.bit_length()
            if above + below > 2 * MOST_BITS:
                raise TooLarge("an exact number with too many digits")
            self.budget.spend(above * below // _BITS_A_STEP)
        elif not mp.isfinite(value):
            raise Undefined
        if value:
            size = magnitude(value)
            if abs(size) > MOST_MAGNITUDE:
                raise TooLarge(f"a number of more than {MOST_MAGNITUDE} binary digits")
            self.top, self.bottom = max(self.top, size), min(self.bottom, size)
        return value

    # -------------------------------------------------------------------------------------------------- arithmetic

    def _literal(self, node: Node) -> Number:
        """A long literal is as good as a small difference: its digits count as sizes."""
        self.top = max(self.top, node.value.numerator.bit_length())
        self.bottom = min(self.bottom, -node.value.denominator.bit_length())
        return node.value

    def _symbol(self, node: Node) -> Number:
        return self.point[node.value]

    def _term(self, node: Node) -> Number:
        """a_i at i = 3: the variable a_3 if there is one, else a number of its own."""
        indices = list(map(self.number, node.args))
        if not all(map(is_integer, indices)):
            raise NotMeant
        name = f"{node.value}_{{{''.join(map(str, indices))}}}"
        digest = hashlib.sha256(name.encode()).digest()
        return self.point.get(name, Fraction(int.from_bytes(digest[:2]) + 1, 257))

    def _constant(self, node: Node) -> Number:
        if node.value == "inf" or (node.value == "i" and self.real):
            raise Undefined
        return {"pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1)}[node.value]

    def _sum(self, node: Node) -> Number | Grid:
        return reduce(_plus, map(self.value, node.args))

    def _product(self, node: Node) -> Number | Grid:
        return reduce(_times, map(self.value, node.args))

    def _negative(self, node: Node) -> Number | Grid:
        return -self.value(node.args[0])

    def _quotient(self, node: Node) -> Number | Grid:
        above, below = self.value(node.args[0]), self.number(node.args[1])
        return (
            above * divide(Fraction(1), below) if isinstance(above, Grid) else divide(above, below)
        )

    def _power(self, node: Node) -> Number | Grid:
        base, exponent = self.value(node.args[0]), self.number(node.args[1])
        if isinstance(base, Grid):
            return raise_power(base, exponent)
        is_defined = is_integer(exponent) or not (self.real and free_symbols(node.args[1]))
        if not is_defined and not isinstance(base, mp.mpc) and base < 0:
            raise NotMeant  # (-2)^x; (-8)^{1/3} is another thing
        return power_of(base, exponent, real=self.real)

    def _root(self, node: Node) -> Number:
        value, index = self.number(node.args[0]), self.number(node.args[1])
        if is_integer(index) and 2 <= index < 1000:
            return root_of(value, int(index), real=self.real)
        return power_of(value, divide(Fraction(1), index), real=self.real)

    def _call(self, node: Node) -> Number:
        if node.value == "log":
            return functions.logarithm(
                self.number(node.args[0]), Fraction(10) if self.log_base else mp.e
            )
        if node.value == "abs" and isinstance(vector := self.value(node.args[0]), Grid):
            return length(vector, real=self.real)
        arguments = [self.number(arg) for arg in node.args]
        if node.value in _SATURATED and arguments:
            self._saturate(node.value, arguments[0])
        try:
            return functions.FUNCTIONS[node.value](*arguments)
        except TypeError:
            raise Unreadable(f"{node.value} of {len(node.args)} arguments") from None

    def _saturate(self, name: str, x: Number) -> None:
        r"""What \tanh 10^9 lacks to 1 is as good as a small number met: more digits are needed to
        see it."""
        if isinstance(x, mp.mpc) or abs(x) < _SATURATION:
            return
        gap = magnitude(x) if name.startswith("arc") else int(3 * min(abs(x), MOST_MAGNITUDE))
        if gap > MOST_MAGNITUDE:
            raise TooLarge(f"a number of more than {MOST_MAGNITUDE} binary digits")
        self.bottom = min(self.bottom, -gap)

    def _logarithm(self, node: Node) -> Number:
        return functions.logarithm(self.number(node.args[0]), self.number(node.args[1]))

    def _degrees(self, node: Node) -> Number:
        return approximate(self.number(node.args[0])) * mp.pi / 180

    def _application(self, node: Node) -> Number:
        r"""f(x) of a function of which nothing is known; which one it is, the value of the letter f
        says."""
        head, inner = node.args
        inside = inner.args if inner.op == "tuple" else (inner,)
        values = [stand_in(arg) if is_notation(arg) else self.number(arg) for arg in inside]
        if head.op == "compose":
            return self._application(
                Node("apply", (head.args[0], Node("apply", (head.args[1], inner))))
            )
        return unknown(self.number(head), _alike(values))

    def _composition(self, node: Node) -> Number:
        return unknown(self.number(node.args[0]), [self.number(node.args[1])])

    def _cases(self, node: Node) -> Number | Grid:
        for value, condition in zip(node.args[::2], node.args[1::2], strict=True):
            if holds(condition, self):
                return self.value(value)
        raise NoCase

    # ---------------------------------------------------------------------------------------------------- matrices

    def _matrix(self, node: Node) -> Grid:
        rows, columns = node.value
        cells = tuple(map(self.number, node.args))
        return Grid(tuple(cells[r * columns : (r + 1) * columns] for r in range(rows)))

    def _vector(self, node: Node) -> Grid:
        if node.value not in ("()", "[]"):
            raise Unreadable("an interval in an expression")
        return Grid(tuple((cell,) for cell in map(self.number, node.args)))

    def _grid(self, node: Node) -> Grid:
        value = self.value(node.args[0])
        if not isinstance(value, Grid):
            raise Undefined
        return value

    # ---------------------------------------------------------------------------------------------------- calculus

    def _series(self, node: Node) -> Number:
        """Term by term; a sum without end is for `compile.py`."""
        if node.args[2] == INFINITY:
            return self._symbolic(node)
        first, last = self.number(node.args[1]), self.number(node.args[2])
        if (
            not (is_integer(first) and is_integer(last)) or last < first - 1
        ):  # formulas hold for the empty sum at most
            raise NotMeant
        total: Number = Fraction(int(node.op == "prod"))
        combine = operator.mul if node.op == "prod" else _plus
        for index in range(int(first), int(last) + 1):
            total = self._check_number(
                combine(total, self._with(node.value, Fraction(index), node.args[0]))
            )
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
        value = self._symbolic(node)
        if len(node.args) > 1 and not self.checking:
            check = Evaluation(
                self.point, real=self.real, log_base=self.log_base, budget=self.budget
            )
            check.checking = True
            ends = [_end(check, end) for end in node.args[1:]]
            with mp.workdps(_ROUGH_DIGITS):
                rough = mp.quad(lambda t: check._integrand(node, t), ends)
                if abs(rough - value) > (abs(value) + 1) / 10**5:
                    raise Undefined
        return value

    def _integrand(self, node: Node, t: Number) -> Number:
        try:
            return approximate(self._with(node.value, t, node.args[0]))
        except Underflow:
            return mp.zero

    def _derivative(self, node: Node) -> Number:
        name, order = node.value
        body = node.args[0]
        return mp.diff(
            lambda t: approximate(self._with(name, t, body)), approximate(self.point[name]), order
        )

    def _symbolic(self, node: Node) -> Number:
        from rlvr.verifiers.math.latex.compile import value_at

        return value_at(node, self.point)


def _plus(a: Number | Grid, b: Number | Grid) -> Number | Grid:
    if isinstance(a, Grid) is not isinstance(b, Grid):
        raise Undefined
    return a + b if isinstance(a, Grid) or _are_exact(a, b) else approximate(a) + approximate(b)


def _times(a: Number | Grid, b: Number | Grid) -> Number | Grid:
    if isinstance(a, Grid) or isinstance(b, Grid) or _are_exact(a, b):
        return a * b
    return approximate(a) * approximate(b)


def _are_exact(a: Number, b: Number) -> bool:
    """Two fractions, or two that are none; together not so long that they would take time."""
    exact = isinstance(a, Fraction)
    if exact is not isinstance(b, Fraction):
        return False
    parts = (a.numerator, a.denominator, b.numerator, b.denominator) if exact else ()
    return sum(map(int.bit_length, parts)) <= 2 * MOST_BITS


def _alike(values: list[Number]) -> list[Number]:
    """All fractions, or all approximate: mpmath and fractions do not mix."""
    return (
        values
        if all(isinstance(value, Fraction) for value in values)
        else list(map(approximate, values))
    )


def _end(evaluation: Evaluation, node: Node) -> Number:
    infinite = {
        INFINITY: mp.inf,
        Node("neg", (INFINITY,)): -mp.inf,
    }
    return infinite[node] if node in infinite else approximate(evaluation.number(node))


_RULES: dict[str, Callable[[Evaluation, Node], Number | Grid]] = {
    "num": Evaluation._literal,
    "sym": Evaluation._symbol,
    "const": Evaluation._constant,
    "add": Evaluation._sum,
    "mul": Evaluation._product,
    "neg": Evaluation._negative,
    "div": Evaluation._quotient,
    "pow": Evaluation._power,
    "root": Evaluation._root,
    "call": Evaluation._call,
    "log": Evaluation._logarithm,
    "deg": Evaluation._degrees,
    "fact": lambda at, node: functions.factorial(at.number(node.args[0])),
    "fact2": lambda at, node: functions.double_factorial(at.number(node.args[0])),
    "mod": lambda at, node: functions.remainder(at.number(node.args[0]), at.number(node.args[1])),
    "term": Evaluation._term,
    "conj": lambda at, node: (
        mp.conj(at.number(node.args[0])) if not at.real else at.number(node.args[0])
    ),
    "cases": Evaluation._cases,
    "apply": Evaluation._application,
    "compose": Evaluation._composition,
    "matrix": Evaluation._matrix,
    "tuple": Evaluation._vector,
    "det": lambda at, node: determinant(at._grid(node)),
    "transpose": lambda at, node: at._grid(node).transposed(),
    "sum": Evaluation._series,
    "prod": Evaluation._series,
    "int": Evaluation._integral,
    "diff": Evaluation._derivative,
    "lim": Evaluation._symbolic,
}
