r"""Which operations of an expression could still be carried out.

    3+2√2, 2√3, 2π/3, 1+2i, (1+√5)/2, 2^{1/3}, 10^{-5}, 1/√3, \ln 2, x^2 - x      none
    100+143, 2√3+√3, 3x-x     sum          3^5, (1+√2)^2, i^2      power       5!, \binom{5}{2}   factorial
    2·3, √2√3, x·x^2          product      √12, 8^{1/3}            root        \int_0^1 x dx      integral
    \cos 0, \ln e^2, |-3|     function     1/(1/3), π/π            quotient    \sum_{k=1}^5 k     series

Only what is written is looked at; no operation is carried out here but for the value of a function in floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from rlvr.verifiers.math.canonical import canonical, factors_of, linear
from rlvr.verifiers.math.latex.roles import settled
from rlvr.verifiers.math.latex.tree import Node, free_symbols, walk

__all__ = ["has_value", "is_written_out", "notation", "operations"]

_E, _I = Node("const", value="e"), Node("const", value="i")
_INVERSES = frozenset("arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh arctanh".split())
_CIRCULAR = frozenset("sin cos tan cot sec csc".split())
_DIRECT = _CIRCULAR | frozenset("sinh cosh tanh".split())
_COUNTED = frozenset(("binom", "perm"))
_SMALL_ANGLES = frozenset(
    (1, 2, 3, 4, 5, 6, 8, 10, 12)
)  # of \pi: sine and cosine have short values
_SMALL_DENOMINATOR = 12
_CLOSE = 1e-11
_LEAST_PRIMES = 500


def operations(node: Node) -> frozenset[str]:
    """The kinds of operations that could still be carried out; see the table above.

    Args:
        node: the tree, see `latex/tree.py`.
    """
    return frozenset(_operations(settled(node, node)[0], equation=False))


def is_written_out(node: Node) -> bool:
    r"""True for a numeral, a fraction or mixed number of numerals, and scientific notation, with a sign or none.

    Args:
        node: the tree.
    """
    if node.op == "neg":
        node = node.args[0]
    if node.op == "add":
        return bool(node.value == "mixed")
    if node.op == "div":
        return _is_numeral(node.args[0]) and (
            _is_numeral(node.args[1]) or _is_power_of_ten(node.args[1])
        )
    return node.op == "num" or _is_power_of_ten(node) or _is_scientific(node)


def has_value(node: Node, value: float) -> bool:
    """True if a constant has this value, to the precision of a float.

    Args:
        node: the tree.
        value: the value.
    """
    found = _float(node)
    return found is not None and _is_close(found, value)


def notation(node: Node) -> tuple[str, Fraction | int, int] | None:
    r"""How a number is written out: the kind of notation, and what it is written with; None if it is not.

    Args:
        node: the tree.
    """
    sign, node = (-1, node.args[0]) if node.op == "neg" else (1, node)
    if node.op == "num":
        return ("whole" if node.value.denominator == 1 else "decimal"), sign * node.value, 1
    if not is_written_out(node):
        return None
    value = _rational(node)
    if value is None:
        return "scientific", Fraction(sign), 1
    if node.op == "add":
        return "mixed", sign * value, 1
    above, below = (_rational(arg) or Fraction(1) for arg in node.args)
    return "fraction", sign * above, int(below) if below.denominator == 1 else 1


def _operations(node: Node, *, equation: bool) -> Iterator[str]:
    if node.op == "rel":
        equation = bool(free_symbols(node))
    rule = _RULES.get(node.op)
    if rule is not None and not (equation and _is_square(node)) and (kind := rule(node)):
        yield kind
    if not is_written_out(node):
        for arg in node.args:
            yield from _operations(arg, equation=equation)


# ------------------------------------------------------------------------------------------------- sums and products


def _sum(node: Node) -> str:
    """Two terms that consist of the same, numbers among them; a term of 0, but in a + bi."""
    if node.value == "mixed":
        return ""
    if _has_dots(node.args):
        return "series"
    if any(arg.op == "matrix" for arg in node.args) and not free_symbols(node):
        return "matrix"  # with letters it is a line
    seen: set[object] = set()
    for arg in node.args:
        terms = linear(arg)
        if not seen.isdisjoint(terms) or (
            terms.get((), 1) == 0 and _I not in walk(node)
        ):  # 0 + 2i is a + bi
            return "sum"
        seen |= terms.keys()
    shared = [base for arg in node.args for base in _polynomial_factors(arg)]
    return "sum" if len(shared) > len(set(shared)) else ""


def _polynomial_factors(term: Node) -> frozenset[object]:
    """The sums in a term that is a product of these, of numbers and of letters: x(x - 5) + 2(x - 5) shares one."""
    term = term.args[0] if term.op == "neg" else term
    if term.op != "mul" or not all(arg.op in ("num", "sym", "add") for arg in term.args):
        return frozenset()
    return frozenset(canonical(arg) for arg in term.args if arg.op == "add" and free_symbols(arg))


def _product(node: Node) -> str:
    if _is_scientific(node):
        return ""
    factors = list(_flat(node))
    if _has_dots(factors):
        return "series"
    numbers = [arg for arg in factors if _is_number(arg)]
    arrays = sum(arg.op in ("matrix", "tuple") for arg in factors)
    if arrays > 1 or (
        arrays and any(arg.op == "num" and arg.value.denominator == 1 for arg in numbers)
    ):
        return "matrix"  # a fraction often stands before one
    constant = not free_symbols(node)
    unfinished = (
        len(numbers) > 1
        or (constant and any(arg.op == "num" and arg.value in (0, 1) for arg in numbers))
        or _is_repeated([base for arg in factors if not _is_number(arg) for base in _bases(arg)])
        or sum(arg.op == "add" and not free_symbols(arg) for arg in factors) > 1
        or _is_repeated([arg.args[1] for arg in factors if _is_root(arg)])
        or (
            constant
            and len(numbers) + sum(arg.op == "div" and _has_number(arg) for arg in factors) > 1
        )
    )
    return "product" if unfinished else ""


def _has_dots(nodes: Sequence[Node]) -> bool:
    return any(node.op == "sym" and node.value == "…" for node in nodes)


def _flat(node: Node) -> Iterator[Node]:
    """The factors of a product and of products in it, without signs."""
    for arg in node.args:
        inner = arg.args[0] if arg.op == "neg" else arg
        if inner.op == "mul":
            yield from _flat(inner)
        else:
            yield inner


def _has_number(quotient: Node) -> bool:
    r"""\frac{2\pi}{3} has a coefficient, which another number could be multiplied with."""
    return _rational(quotient) is None and abs(factors_of(quotient)[0]) != 1


def _quotient(node: Node) -> str:
    """A fraction of numbers is governed by another rule, since 2/4 may be an answer; but not one of fractions."""
    above, below = (arg.args[0] if arg.op == "neg" else arg for arg in node.args)
    if is_written_out(node):
        return ""
    parts = (*_parts(above), *_parts(below))
    unfinished = (
        any(arg.op == "div" and not free_symbols(arg) for arg in (above, below))
        or any(arg.op == "div" and is_written_out(arg) for arg in parts)
        or _share(above, below)
        or _is_zero(above)
        or (not free_symbols(below) and _I in walk(below))
    )
    return "quotient" if unfinished else ""


def _parts(node: Node) -> Sequence[Node]:
    return node.args if node.op == "mul" else (node,)


def _share(above: Node, below: Node) -> bool:
    r"""\frac{\pi}{\pi}, \frac{x^2}{x}, \frac{\sqrt6}{\sqrt2}."""
    bases = {base for arg in _parts(above) if not _is_number(arg) for base in _bases(arg)}
    if not bases.isdisjoint(
        base for arg in _parts(below) if not _is_number(arg) for base in _bases(arg)
    ):
        return True
    roots = [
        [_rational(arg.args[0]) for arg in _parts(side) if _is_root(arg)] for side in (above, below)
    ]
    return any(
        a and b and math.gcd(a.numerator, b.numerator) > 1 for a in roots[0] for b in roots[1]
    )


def _bases(node: Node) -> Iterator[object]:
    """What the factors are powers of, constants and letters alone: (x-1)(x-1) is as good as (x-1)^2."""
    for base, exponent in factors_of(node)[1]:
        if isinstance(exponent, Fraction) and (exponent.denominator == 1 or base[0] != "num"):
            yield base, exponent.denominator  # x√x stands for one power


def _is_repeated(bases: Sequence[object]) -> bool:
    written = [(base, repr(base)) for base in bases]
    plain = [
        base
        for base, text in written
        if "'sym'" not in text or not ("'sum'" in text or "'fact'" in text)
    ]
    return len(plain) > len(set(plain))


# ------------------------------------------------------------------------------------------------- powers and roots


def _power(node: Node) -> str:
    base, exponent = node.args
    power, number = _rational(exponent), _rational(base)
    if power in (0, 1):
        return "power"
    if base == _E:
        return "function" if _is_simple_exponential(exponent) else ""
    if power is None:
        return ""
    if base.op in ("pow", "root") and _rational(base.args[1]) is not None:
        return "power"
    if power.denominator > 1:
        return "root" if number is not None and _has_power(number, power.denominator) else ""
    if number is not None:
        return "" if number == 10 and base.op == "num" else "power"
    algebraic = base.op in ("add", "root", "mul", "div") and not free_symbols(base)
    return "power" if algebraic or base == _I or base.op == "matrix" else ""


def _is_simple_exponential(exponent: Node) -> bool:
    r"""e^{\ln 5}, e^{3\ln 2}, e^{i\pi}."""
    if any(
        part.op == "log" or (part.op == "call" and part.value in ("ln", "log"))
        for part in _parts(exponent)
    ):
        return True
    parts = _parts(exponent.args[0] if exponent.op in ("neg", "div") else exponent)
    turn = _float_without_i(exponent) if _I in parts else None
    return turn is not None and _is_close(2 * turn / math.pi, round(2 * turn / math.pi))


def _float_without_i(node: Node) -> float | None:
    return _float(_put_one(node))


def _put_one(node: Node) -> Node:
    if node == _I:
        return Node("num", value=Fraction(1))
    return Node(node.op, tuple(map(_put_one, node.args)), node.value)


def _root(node: Node) -> str:
    r"""\sqrt{12}, \sqrt{\frac49}, \sqrt{4x}, \sqrt{x^2}."""
    radicand, index = node.args
    degree = _rational(index)
    if degree is None or degree.denominator != 1 or degree < 2:
        return ""
    coefficient, factors = factors_of(radicand)
    unfinished = (
        (not factors and coefficient in (-1, 0, 1))
        or _has_power(coefficient, int(degree))
        or any(isinstance(power, Fraction) and abs(power) >= degree for _, power in factors)
    )
    return "root" if unfinished else ""


def _has_power(number: Fraction, degree: int) -> bool:
    """True if its n-th root can be taken in part: √12 is 2√3.  Of large numbers only small factors are tried."""
    return any(_power_in(abs(part), degree) for part in (number.numerator, number.denominator))


def _power_in(number: int, degree: int) -> bool:
    if number < 2 or degree > number.bit_length():
        return False
    for prime in range(2, _LEAST_PRIMES):
        if number < prime:
            break
        if number % prime**degree == 0:
            return True
        while number % prime == 0:
            number //= prime
    root = _whole_root(number, degree)
    return number > 1 and root**degree == number


def _whole_root(number: int, degree: int) -> int:
    """The largest integer whose power is not above the number."""
    if degree == 2:
        return math.isqrt(number)
    low, high = 1, 1 << (number.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle - 1)
    return low


# --------------------------------------------------------------------------------------------------------- functions


def _function(node: Node) -> str:
    name, constant = node.value, not free_symbols(node)
    if name in _COUNTED:
        return "factorial" if constant else ""
    simple = (
        (name in _DIRECT and node.args[0].op == "call" and node.args[0].value in _INVERSES)
        or (name in ("ln", "log") and _is_exponential(node.args[0], _E))
        or (constant and (name not in _FLOATS or _is_simple(node)))
    )
    return "function" if simple else ""


def _logarithm(node: Node) -> str:
    value, base = node.args
    simple = _is_exponential(value, base) or (not free_symbols(node) and _is_simple(node))
    return "function" if simple else ""


def _is_exponential(node: Node, base: Node) -> bool:
    r"""\ln e^x, \log_2 2^x."""
    return node.op == "pow" and node.args[0] == base


def _is_simple(node: Node) -> bool:
    """A function of a constant whose value is a small fraction, or that has one at a simple part of a turn."""
    value = _float(node)
    if value is None:
        return False
    angle = _float(node.args[0]) if node.value in _CIRCULAR else None
    if angle is not None and any(
        _is_close(angle / math.pi * n, round(angle / math.pi * n)) for n in _SMALL_ANGLES
    ):
        return True
    if node.value in _INVERSES and _is_small_fraction(value / math.pi):
        return True
    return _is_small_fraction(value)


def _is_small_fraction(value: float) -> bool:
    return any(_is_close(value * n, round(value * n)) for n in range(1, _SMALL_DENOMINATOR + 1))


def _is_close(value: float, other: float) -> bool:
    return abs(value - other) <= _CLOSE * max(1.0, abs(value))


def _of_constants(kind: str) -> Callable[[Node], str]:
    return lambda node: "" if free_symbols(node) else kind


def _sign(node: Node) -> str:
    """-(-3), -0."""
    return "sum" if node.args[0].op == "neg" or _is_zero(node.args[0]) else ""


def _plus_minus(node: Node) -> str:
    r"""3 \pm 2 is 5 and 1."""
    return "" if _is_zero(node.args[0]) else _sum(node)


def _float(node: Node) -> float | None:
    """About the value of a constant; None where it is no real number, or its functions are not known here."""
    try:
        value = _value(node)
    except (ArithmeticError, ValueError, KeyError, TypeError, IndexError):
        return None
    return value if math.isfinite(value) else None


def _value(node: Node) -> float:
    args = [_value(arg) for arg in node.args]
    return _VALUES[node.op](node, args)


def _call(node: Node, args: list[float]) -> float:
    return _FLOATS[node.value](args[0])


_FLOATS: dict[str, Callable[[float], float]] = {
    "sin": math.sin, "cos": math.cos, "tan": lambda x: math.sin(x) / math.cos(x), "cot": lambda x: 1 / math.tan(x),
    "sec": lambda x: 1 / math.cos(x), "csc": lambda x: 1 / math.sin(x), "arcsin": math.asin, "arccos": math.acos,
    "arctan": math.atan, "arccot": lambda x: math.pi / 2 - math.atan(x), "arcsec": lambda x: math.acos(1 / x),
    "arccsc": lambda x: math.asin(1 / x), "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh,
    "coth": lambda x: 1 / math.tanh(x), "sech": lambda x: 1 / math.cosh(x), "csch": lambda x: 1 / math.sinh(x),
    "arcsinh": math.asinh, "arccosh": math.acosh, "arctanh": math.atanh, "ln": math.log, "log": math.log10,
}  # fmt: skip
_VALUES: dict[str, Callable[[Node, list[float]], float]] = {
    "num": lambda node, args: float(node.value),
    "const": lambda node, args: {"pi": math.pi, "e": math.e}[node.value],
    "neg": lambda node, args: -args[0],
    "add": lambda node, args: sum(args),
    "mul": lambda node, args: math.prod(args),
    "div": lambda node, args: args[0] / args[1],
    "pow": lambda node, args: math.pow(*args),
    "root": lambda node, args: math.pow(args[0], 1 / args[1]),
    "deg": lambda node, args: args[0] * math.pi / 180,
    "log": lambda node, args: math.log(args[0]) / math.log(args[1]),
    "call": _call,
}


# ---------------------------------------------------------------------------------------------------- single factors


def _is_numeral(node: Node) -> bool:
    return node.op == "num" or (node.op == "neg" and node.args[0].op == "num")


def _is_zero(node: Node) -> bool:
    return node.op == "num" and node.value == 0


def _is_number(node: Node) -> bool:
    """A factor that another such factor can be multiplied with."""
    if node.op == "pow":
        return _is_numeral(node.args[1]) and _rational(node.args[0]) is not None
    return _rational(node) is not None or (node.op == "fact" and not free_symbols(node))


def _rational(node: Node) -> Fraction | None:
    """The value of what is written out, but for scientific notation."""
    if node.op == "num":
        return Fraction(node.value)
    if node.op == "neg":
        inner = _rational(node.args[0])
        return None if inner is None else -inner
    if node.op == "div":
        above, below = (_rational(arg) for arg in node.args)
        return above / below if above is not None and below else None
    if node.op == "add" and node.value == "mixed":
        return sum((_rational(arg) or Fraction(0) for arg in node.args), Fraction(0))
    return None


def _is_root(node: Node) -> bool:
    return node.op == "root" and _rational(node.args[0]) is not None


def _is_power_of_ten(node: Node) -> bool:
    if node.op != "pow" or node.args[0] != Node("num", value=Fraction(10)):
        return False
    exponent = _rational(node.args[1])
    return (
        exponent is not None
        and exponent.denominator == 1
        and exponent not in (0, 1)
        and _is_numeral(node.args[1])
    )


def _is_scientific(node: Node) -> bool:
    if node.op != "mul" or len(node.args) != 2 or not _is_power_of_ten(node.args[1]):
        return False
    return _is_numeral(node.args[0]) and _rational(node.args[0]) != 10


def _is_square(node: Node) -> bool:
    """5^2, which equations of circles and ellipses are written with."""
    return (
        node.op == "pow"
        and node.args[0].op == "num"
        and node.args[1] == Node("num", value=Fraction(2))
    )


_RULES: dict[str, Callable[[Node], str]] = {
    "add": _sum,
    "mul": _product,
    "div": _quotient,
    "pow": _power,
    "root": _root,
    "call": _function,
    "log": _logarithm,
    "neg": _sign,
    "pm": _plus_minus,
    "conj": _of_constants("function"),
    "mod": _of_constants("function"),
    "fact": _of_constants("factorial"),
    "fact2": _of_constants("factorial"),
    "int": lambda node: "integral",
    "lim": lambda node: "limit",
    "sum": lambda node: "series",
    "prod": lambda node: "series",
    "diff": lambda node: "derivative",
    "det": lambda node: "matrix",
    "transpose": lambda node: "matrix",
}
