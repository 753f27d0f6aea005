r"""Definite integrals by python-flint's quadrature, whose balls hold the value for certain.

It takes milliseconds where an antiderivative takes a quarter of a second, and asks of the integrand
that it is analytic around the path, which is looked at in each ball: powers with whole exponents,
square roots, logarithms, exponentials, trigonometric and hyperbolic functions and their inverses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, reduce

from flint import acb, arb, ctx, fmpq

from rlvr.verifiers.math.latex.budget import Budget, PairTooLarge
from rlvr.verifiers.math.latex.termwise import Unsuited, integral_of_terms
from rlvr.verifiers.math.latex.tree import EULER, Node, TooLarge, free_symbols, num, size, unsigned
from rlvr.verifiers.math.latex.values import Number, Undefined, as_number

__all__ = ["integral", "is_smooth"]

_MOST_BALLS = 1_000  # at which an integrand is looked at; smooth ones take some 200
_NODES_A_STEP = 2
_MOST_TRIED = 8_000  # steps
_I, _NOTHING = acb(0, 1), acb(float("nan"))


@lru_cache(maxsize=256)
def is_smooth(node: Node) -> bool:
    """Whether the value of a definite integral is found without an antiderivative.

    Tried once, since what is not smooth takes all the balls at each point.

    Args:
        node: an integral between two ends.

    Raises:
        PairTooLarge: its pair has too few steps left.
    """
    somewhere = dict.fromkeys(free_symbols(node), fmpq(7, 5))
    try:
        return integral(node, somewhere, Budget(_MOST_TRIED)) is not None
    except TooLarge:
        return False
    except Undefined:
        return True


def integral(node: Node, point: Mapping[str, Number], budget: Budget) -> Number | None:
    """Its value; None where it is not found with enough digits.

    Args:
        node: an integral between two ends.
        point: the values of its other letters.
        budget: pays for the balls looked at.

    Raises:
        TooLarge, PairTooLarge: the budget does not suffice.
        Undefined: it diverges.
    """
    with suppress(Unsuited, KeyError):
        value = _certain(integral_of_terms(node, _Ball(point, False, budget).value, budget))
        if value is not None:
            return value
    body, *ends = node.args
    steps = 1 + size(body) // _NODES_A_STEP
    beyond: list[Exception] = []

    def integrand(z: acb, analytic: bool) -> acb:
        if beyond:
            return _NOTHING
        try:
            budget.spend(steps)
            return _Ball({**point, node.value: z}, analytic, budget).value(body)
        except Undefined:  # an inner integral that diverges at this ball
            return _NOTHING
        except (TooLarge, PairTooLarge, Unsuited, KeyError) as error:  # flint would go on
            beyond.append(error)
            return _NOTHING

    tolerance = arb(2) ** -(ctx.prec // 2)
    try:
        low, high = (_Ball(point, False, budget).value(end) for end in ends)
    except (Unsuited, KeyError):
        return None
    value = acb.integral(
        integrand, low, high, rel_tol=tolerance, abs_tol=tolerance, eval_limit=_MOST_BALLS
    )
    for error in beyond:
        if isinstance(error, Unsuited | KeyError):
            return None
        raise error
    return _certain(value)


def _certain(value: acb) -> Number | None:
    # As many digits as a ball must have to be taken for 0.
    if not value.is_finite() or value.rel_one_accuracy_bits() < ctx.prec // 3 + 8:
        return None
    return value.real if value.imag.contains(0) else None


class _Ball:
    """An integrand on a ball; what is not analytic there is no number."""

    def __init__(self, point: Mapping[str, Number], analytic: bool, budget: Budget) -> None:
        self.point, self.analytic, self.budget = point, analytic, budget

    def value(self, node: Node) -> acb:
        rule = _RULES.get(node.op)
        if rule is None:
            raise Unsuited
        return rule(self, node)

    def _values(self, node: Node) -> list[acb]:
        return [self.value(arg) for arg in node.args]

    def _power(self, node: Node) -> acb:
        base, exponent = node.args
        if base == EULER:
            return self.value(exponent).exp()
        below, whole = self.value(base), unsigned(exponent)
        if whole.op == "num" and whole.value.denominator == 1:
            return below ** int(whole.value if whole is exponent else -whole.value)
        if free_symbols(base) and not free_symbols(exponent):
            raise Unsuited  # an odd root is real of negative numbers
        return (self.value(exponent) * self.log(below)).exp()

    def _root(self, node: Node) -> acb:
        if node.args[1] != num(2):
            raise Unsuited
        return self.sqrt(self.value(node.args[0]))

    def _call(self, node: Node) -> acb:
        rule = _FUNCTIONS.get(node.value)
        if rule is None or len(node.args) != 1:
            raise Unsuited
        return rule(self, self.value(node.args[0]))

    def log(self, z: acb) -> acb:
        return z.log(analytic=self.analytic)

    def sqrt(self, z: acb) -> acb:
        return z.sqrt(analytic=self.analytic)

    def _arctan(self, z: acb) -> acb:
        return (self.log(1 - _I * z) - self.log(1 + _I * z)) * _I / 2

    def _arcsin(self, z: acb) -> acb:
        return -_I * self.log(_I * z + self.sqrt(1 - z * z))


def _constant(name: str) -> acb:
    if name not in ("pi", "e"):
        raise Unsuited
    return acb(arb.pi() if name == "pi" else arb.const_e())


def _of_flint(name: str) -> Callable[[_Ball, acb], acb]:
    return lambda ball, z: getattr(z, name)()


_RULES: dict[str, Callable[[_Ball, Node], acb]] = {
    "num": lambda ball, node: acb(as_number(node.value)),
    "sym": lambda ball, node: acb(ball.point[node.value]),
    "const": lambda ball, node: _constant(node.value),
    "add": lambda ball, node: sum(ball._values(node), acb(0)),
    "mul": lambda ball, node: reduce(acb.__mul__, ball._values(node)),
    "neg": lambda ball, node: -ball.value(node.args[0]),
    "div": lambda ball, node: ball.value(node.args[0]) / ball.value(node.args[1]),
    "pow": _Ball._power,
    "root": _Ball._root,
    "call": _Ball._call,
    "int": lambda ball, node: integral_of_terms(node, ball.value, ball.budget),
}

_FUNCTIONS: dict[str, Callable[[_Ball, acb], acb]] = {
    **{name: _of_flint(name) for name in "sin cos tan cot sec csc sinh cosh tanh".split()},
    "ln": _Ball.log,
    "arctan": _Ball._arctan,
    "arcsin": _Ball._arcsin,
    "arccos": lambda ball, z: acb.pi() / 2 - ball._arcsin(z),
}
