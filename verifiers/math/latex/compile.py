r"""Tree → SymPy, for what needs algebra: limits, endless sums, antiderivatives, and proofs.

SymPy is imported when first needed.  Its objects are built by constructors, never from text, and
only from trees within the limits below, since merely building `(9^9)!` would take too long.  What
SymPy does with them is bounded by calls of what it spends its time in, each with its weight, so
that slow and fast machines give up at the same point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from flint import acb, arb, ctx

from rlvr.verifiers.math.latex.budget import (
    MOST_STEPS,
    PairTooLarge,
    charge,
    left_of_pair,
    spend_all_of_pair,
)
from rlvr.verifiers.math.latex.quadrature import is_smooth
from rlvr.verifiers.math.latex.tree import (
    BINDERS,
    INFINITY,
    Node,
    TooLarge,
    Unreadable,
    free_symbols,
    walk,
)
from rlvr.verifiers.math.latex.values import Number, Undefined, is_exact
from rlvr.verifiers.math.words import pairs

if TYPE_CHECKING:
    import sympy

__all__ = [
    "ball",
    "carry_out_reference",
    "compile_node",
    "is_proved_zero",
    "is_zero",
    "proportional",
    "value_at",
    "was_stopped",
]

_MOST_NODES = 120
_MOST_DIGITS = 200  # of a literal
# SymPy works out a power of numbers as soon as it is built; 2^5000 has 1,506 digits.
_MOST_EXPONENT = 5000
# About 1 s, at 4 µs a step.
_MOST_STEPS_FOR_A_PROOF = 250_000
_MOST_STEPS_OF_REFERENCE = 36_000  # 0.15 s, once
_MOST_REFERENCES = 4096


def compile_node(node: Node) -> sympy.Expr:
    """The SymPy expression, its limits and integrals not yet carried out.

    Raises:
        TooLarge: more than SymPy can be trusted with.
        Unreadable: it has no SymPy counterpart here.
    """
    _check(node)
    return _expression(node)


_closed_references: dict[Node, Any] = {}
"""Closed forms of parts of references, oldest first; None where none was found."""


def carry_out_reference(reference: Node) -> None:
    """Find the closed forms of a reference's limits, sums without end and integrals, once.

    Their steps are no pair's.  What takes too many is not tried again.

    Args:
        reference: its tree.
    """
    with suppress(TooLarge, Unreadable), _bounded(_MOST_STEPS_OF_REFERENCE, of_pair=False):
        for node in walk(reference):
            if (
                _needs_algebra(node)
                and len(node.args) > 1  # antiderivatives are compared by their derivatives
                and node not in _closed_references
                and not _has_quadrature(node)
            ):
                if len(_closed_references) >= _MOST_REFERENCES:
                    del _closed_references[next(iter(_closed_references))]
                _closed_references[node] = None
                _closed_references[node] = _close(node)


def _has_quadrature(node: Node) -> bool:
    return node.op == "int" and len(node.args) > 1 and is_smooth(node)


def _needs_algebra(node: Node) -> bool:
    endless = node.op in ("sum", "prod") and node.args[2:] == (INFINITY,)
    return endless or node.op in ("int", "lim")


def _carry_out(node: Node) -> Any:
    """Carried out; the free variables are real and in no other way special."""
    value, beyond = _closed_references.get(node), "more steps of algebra than are left"
    if node not in _closed_references:
        value, beyond = _attempt_closed(node)
    if value is None:
        raise TooLarge(beyond)
    return value


@lru_cache(maxsize=256)
def _attempt_closed(node: Node) -> tuple[Any, str]:
    """The same once for all points: what is beyond a limit is not tried again at the next.

    Raises:
        PairTooLarge: its pair has too few steps left; another pair may have more.
    """
    try:
        with _bounded():
            return _close(node), ""
    except TooLarge as beyond:
        return None, str(beyond)


def _close(node: Node) -> Any:
    import sympy

    value = compile_node(node).doit()
    if value.has(sympy.Limit, sympy.Sum, sympy.Product, sympy.Integral, sympy.AccumBounds):
        raise TooLarge("no closed form was found")
    return value


def value_at(node: Node, point: Mapping[str, Number]) -> Number:
    """The value of a limit, an endless sum or an antiderivative at a point, with all the digits
    that SymPy vouches for."""
    import sympy

    values = {
        sympy.Symbol(name, real=True): _sympy_number(point[name]) for name in free_symbols(node)
    }
    with _bounded():
        # 5 digits more than are asked for, against the rounding of the last ones.
        value = _carry_out(node).subs(values).evalf(ctx.dps + 5)
    if not value.is_number or not value.is_finite:
        raise Undefined
    real, imaginary = map(ball, value.as_real_imag())
    return real if imaginary == 0 else acb(real, imaginary)


def ball(value: sympy.Expr) -> Number:
    """A real number of SymPy's, with the digits that its `evalf` vouches for."""

    middle = arb(str(value.evalf(ctx.dps + 5)))
    # One unit in the last binary digit at the working precision, as a bound of the error.
    return middle + arb(0, abs(middle) / arb(2) ** ctx.prec)


def is_proved_zero(difference: Node) -> bool:
    """A proof that a constant is zero; False where none is found."""
    import sympy

    try:
        with _bounded():
            expression = compile_node(difference)
            return bool(sympy.expand(expression) == 0 or sympy.simplify(expression) == 0)
    except (TooLarge, Unreadable):
        return False


def is_zero(difference: Node, *, positive: bool = False) -> bool | None:
    """SymPy's own opinion: True with a proof, False with a point or a proof, else None.

    Args:
        difference: an expression.
        positive: whether its variables stand for positive numbers only.

    Raises:
        TooLarge, Unreadable: see `compiled`.
    """
    import sympy

    with _bounded(_MOST_STEPS_FOR_A_PROOF, of_pair=False):
        expression = compile_node(difference).doit()
        if positive:
            expression = expression.subs(
                {x: sympy.Symbol(f"{x}+", positive=True) for x in expression.free_symbols}
            )
        if sympy.expand(expression) == 0 or sympy.simplify(expression) == 0:
            return True
        is_equal_zero = sympy.simplify(expression.rewrite(sympy.exp)).equals(0)
    return None if is_equal_zero is None else bool(is_equal_zero)


def proportional(a: Node, b: Node) -> bool:
    """A proof that a / b is one number other than 0; False where none is found.

    Raises:
        TooLarge, Unreadable: see `compiled`.
    """
    import sympy

    with _bounded(_MOST_STEPS_FOR_A_PROOF, of_pair=False):
        ratio = sympy.simplify(compile_node(a) / compile_node(b))
    return bool(ratio.is_number and ratio.is_finite and ratio != 0)


# --------------------------------------------------------------------------------- bounded by steps


class _Stopped(BaseException):
    """No Exception, since SymPy catches those."""


class _Count:
    left: float = math.inf
    was_stopped = False


def was_stopped() -> bool:
    """Whether SymPy was ever stopped in this process.

    What it was about to find out of an expression then stays unknown in its caches: of the same
    integral between two limits it found the one without.
    """
    return _Count.was_stopped


@contextmanager
def _bounded(steps: int = MOST_STEPS, *, of_pair: bool = True) -> Iterator[None]:
    """Stop SymPy after so many steps, and when its pair has none left.

    Args:
        steps: how many.
        of_pair: whether they are taken from the pair's; a proof and a reference have their own.

    Raises:
        TooLarge: there were more, or SymPy raised, as it does at what it has not learnt yet.
        PairTooLarge: the pair had fewer left.
    """
    # Counting begins before the limit is set, as it loads parts of SymPy that no pair should pay
    # for.
    _count_steps()
    # Within another `_bounded`, whichever has less left decides.
    outer = _Count.left
    _Count.left = min(steps, outer, max(left_of_pair(), 0) if of_pair else math.inf)
    started = _Count.left
    try:
        yield
    except _Stopped:
        _Count.was_stopped = True
        if of_pair and started < steps:  # no fault of the expression, which may be tried again
            spend_all_of_pair()
        raise TooLarge("more steps of algebra than are left") from None
    except (TooLarge, PairTooLarge, Unreadable, Undefined, MemoryError):
        raise
    except Exception as error:  # another library's: it raises anything
        raise TooLarge(f"SymPy gives up: {type(error).__name__}") from error
    finally:
        spent = started - _Count.left
        # The outermost charges the pair, so that nothing is charged twice.
        if outer == math.inf and of_pair:
            charge(int(spent))
        _Count.left = outer - spent


@lru_cache(maxsize=1)
def _count_steps() -> None:
    """Have SymPy count, in this process, the calls of what most of its time is spent in.

    Outside of `_bounded` nothing is limited.
    """
    import sympy
    from sympy.core.basic import Basic
    from sympy.core.expr import Expr
    from sympy.core.facts import FactKB

    # What SymPy loads with its first series (its physics, 0.3 CPU s) is no pair's work.
    n, x = sympy.Symbol("n", integer=True), sympy.Symbol("x", real=True)
    sympy.Sum(x**n / sympy.factorial(n), (n, 0, sympy.oo)).doit()

    # The weights were fitted to the times of 85 limits, series and integrals; a step is 4 µs.
    for owner, name, steps in (
        (sympy.Add, "flatten", 10),
        (sympy.Mul, "flatten", 10),
        (Basic, "__eq__", 2),
        (Basic, "xreplace", 1),
        (Basic, "compare", 1),
        (Basic, "has", 9),
        (FactKB, "deduce_all_facts", 40),
        (Expr, "as_numer_denom", 120),
        (sympy.Poly, "_from_expr", 100),
    ):
        # From the class's own dictionary: `getattr` would bind a classmethod to the class.
        method = vars(owner)[name]
        if isinstance(method, classmethod):
            setattr(owner, name, classmethod(_counting(method.__func__, steps)))
        else:
            setattr(owner, name, _counting(method, steps))


def _counting(function: Callable[..., Any], steps: int) -> Callable[..., Any]:
    @wraps(function)
    def counted(*args: Any, **options: Any) -> Any:
        _Count.left -= steps
        if _Count.left < 0:
            raise _Stopped
        return function(*args, **options)

    return counted


def _integral(node: Node) -> Any:
    """SymPy's schoolbook integrator: it gives up early where `integrate` would search for
    minutes."""
    import sympy
    from sympy.integrals.manualintegrate import manualintegrate

    variable = _symbol(node.value)
    primitive = manualintegrate(_expression(node.args[0]), variable)
    # There are no limits to put in, or the integrator has left an integral in it.
    if len(node.args) == 1 or primitive.has(sympy.Integral):
        return primitive
    below, above = map(_expression, node.args[1:])
    return _at_end(primitive, variable, above, "-") - _at_end(primitive, variable, below, "+")


def _at_end(primitive: Any, variable: Any, end: Any, side: str) -> Any:
    value = primitive.subs(variable, end)
    # at infinity, or at a pole that may cancel
    return _sympy().limit(primitive, variable, end, side) if _is_undefined(value) else value


def _is_undefined(value: Any) -> bool:
    return bool(value.is_number and not value.is_finite)


def _check(node: Node) -> None:
    for count, below in enumerate(walk(node)):
        if count > _MOST_NODES:
            raise TooLarge(f"more than {_MOST_NODES} parts for symbolic algebra")
        if below.op == "num" and max(map(abs, below.value.as_integer_ratio())) > 10**_MOST_DIGITS:
            raise TooLarge("a number with too many digits for symbolic algebra")
        # SymPy would multiply x^{10^9} out at once, and so a factorial.
        if below.op in ("pow", "fact", "fact2") and _largest(below.args[-1]) > _MOST_EXPONENT:
            raise TooLarge("a power or factorial too large for symbolic algebra")


def _largest(node: Node) -> Fraction:
    """Bounds what an exponent can be made of: the product of its literals; towers are too large at
    once."""
    product = Fraction(1)
    for below in walk(node):
        if below.op == "num":
            product *= max(abs(below.value), 1)
        # 9^{9^9} has small literals and a huge value, so towers are refused without looking.
        if below.op in ("pow", "fact", "fact2") and not free_symbols(below):
            return Fraction(_MOST_EXPONENT + 1)
    return product


def _sympy_number(value: Number) -> Any:
    import sympy

    if is_exact(value):
        return sympy.Rational(int(value.numerator), int(value.denominator))
    # The middle of our ball, as SymPy's floats carry no bound.
    return sympy.Float(value.mid().str(ctx.dps, radius=False), ctx.dps)


def _symbol(name: str) -> Any:
    import sympy

    return sympy.Symbol(name, real=True)


def _expression(node: Node) -> Any:
    import sympy

    if node.op == "num":
        return sympy.Rational(node.value.numerator, node.value.denominator)
    if node.op == "sym":
        return _symbol(node.value)
    if node.op == "const":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}[node.value]
    if node.op in BINDERS or node.op == "diff":
        return _bound(node)
    if node.op == "call":
        name = _NAMES.get(node.value)
        if name is None:
            raise Unreadable(f"no symbolic algebra of {node.value}")
        return getattr(sympy, name)(*map(_expression, node.args))
    build = _BUILDERS.get(node.op)
    if build is None:
        raise Unreadable(f"no symbolic algebra of {node.op}")
    return build(*map(_expression, node.args))


def _bound(node: Node) -> Any:
    import sympy

    body = _expression(node.args[0])
    if node.op == "diff":
        return sympy.diff(body, _symbol(node.value[0]), node.value[1])
    if node.op == "int":
        return _integral(node)
    arguments = [_expression(arg) for arg in node.args[1:]]
    if node.op == "lim":
        # Without a side SymPy takes the limit from the right alone; `+-` demands both to agree.
        return sympy.Limit(body, _symbol(node.value[0]), *arguments, dir=node.value[1] or "+-")
    if node.op not in ("sum", "prod"):
        raise Unreadable(f"no symbolic algebra of {node.op}")
    index = sympy.Symbol(
        node.value, integer=True
    )  # SymPy sums better over what it knows to be whole
    body = body.subs(_symbol(node.value), index)
    return (sympy.Sum if node.op == "sum" else sympy.Product)(body, (index, *arguments))


_BUILDERS: dict[str, Callable[..., Any]] = {
    "add": lambda *terms: _sympy().Add(*terms),
    "mul": lambda *factors: _sympy().Mul(*factors),
    "neg": lambda x: -x,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    # `n.is_odd` is None for a symbol, so only a known odd index takes the real root of a negative
    # number.
    "root": lambda x, n: _sympy().real_root(x, n) if n.is_odd else x ** (1 / n),
    "log": lambda x, base: _sympy().log(x, base),
    "deg": lambda x: x * _sympy().pi / 180,
    "fact": lambda n: _sympy().factorial(n),
    "fact2": lambda n: _sympy().factorial2(n),
    "apply": lambda head, inner: _sympy().Function(str(head))(inner),
    "mod": lambda a, b: _sympy().Mod(a, b),
    "conj": lambda z: _sympy().conjugate(z),
}

_NAMES = pairs(
    "sin sin cos cos tan tan cot cot sec sec csc csc sinh sinh cosh cosh tanh tanh coth coth sech "
    "sech csch csch arcsin asin arccos acos arctan atan arccot acot arcsec asec arccsc acsc "
    "arcsinh asinh arccosh acosh arctanh atanh gcd gcd lcm lcm floor floor ceil ceiling arg arg ln "
    "log log log abs Abs sgn sign Re re Im im max Max min Min binom binomial gamma gamma"
)


def _sympy() -> Any:
    import sympy

    return sympy
