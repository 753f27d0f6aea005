r"""Exact values of closed rational expressions: `3 \cdot 4`, `2^{100}+1`, `1\frac{4}{5}`,
`\frac12`, `100!`.

The parser's tree (`latex`) is worked out with `fractions.Fraction`; never a float.  A text that is
not rational arithmetic, or names a number of more than some 20,000 digits, raises `NotArithmetic`;
other modules read it, and compare such numbers without writing them out.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import reduce

from rlvr.verifiers.math.latex import Node, parse_or_none
from rlvr.verifiers.math.latex.tree import PI, walk

__all__ = ["NotArithmetic", "UndefinedNumber", "number_tree", "pi_multiple", "rational", "value_of"]


class NotArithmetic(Exception):
    """The text holds something other than rational arithmetic,
    or something that can be read in two ways."""


class UndefinedNumber(Exception):
    """The text is arithmetic and has no value: 0/0."""


_VOCABULARY = re.compile(
    r"(?:[\d\s+\-*/^!(){}.,]|\\frac(?![a-zA-Z])|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z])|\\div"
    r"|\\overline|\\bar|\\overbar|\\dots?(?![a-zA-Z]))+"
)
_GROUPED = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_MOST_BITS = 100_000  # of one power
_MOST_OF_FRACTION = 20_000**2  # bits above times bits below: to reduce one takes so many steps
_MOST_FACTORIAL = 5_000


def rational(text: str) -> Fraction:
    """The exact value.

    Raises:
        NotArithmetic: see there.
        Undefined: see there.
    """
    if not _VOCABULARY.fullmatch(text):
        raise NotArithmetic
    tree = number_tree(text)
    if tree is None:
        raise NotArithmetic
    return value_of(tree)


def pi_multiple(tree: Node) -> Fraction | None:
    r"""How many times π: 2/3 for `\frac{2\pi}{3}`; None if it is no rational multiple, or holds
    several π.

    One π in an arithmetic expression is a variable.  Of all such expressions only r·x is 0, r and
    2r at 0, 1 and 2.

    Args:
        tree: of any expression.
    """
    if sum(node == PI for node in walk(tree)) != 1:
        return None
    try:
        at = [value_of(tree, x) for x in (0, 1, 2)]
    except (NotArithmetic, UndefinedNumber):
        return None
    return at[1] if at[0] == 0 and at[2] == 2 * at[1] else None


def number_tree(text: str) -> Node | None:
    """The tree of a number; commas between thousands say nothing more.

    Args:
        text: a folded text.
    """
    plain = _GROUPED.sub(lambda found: found[0].replace(",", ""), text) if "," in text else text
    return parse_or_none(plain)


def value_of(node: Node, pi: int | None = None) -> Fraction:
    """What a tree of rational arithmetic comes to.

    Args:
        node: the tree.
        pi: a whole number to put in the place of π.

    Raises:
        NotArithmetic, Undefined: see there.
    """
    match node.op:
        case "num":
            return Fraction(node.value)
        case "const" if node.value == "pi" and pi is not None:
            return Fraction(pi)
        case "neg":
            return -value_of(node.args[0], pi)
        case "add":
            values = (value_of(arg, pi) for arg in node.args)
            return reduce(lambda total, value: _bound(total + value), values, Fraction(0))
        case "mul":
            product = Fraction(1)
            for arg in node.args:
                product = _times(product, value_of(arg, pi), 1)
            return product
        case "div":
            return _times(value_of(node.args[0], pi), value_of(node.args[1], pi), -1)
        case "pow":
            return _raise(value_of(node.args[0], pi), value_of(node.args[1], pi))
        case "fact" | "fact2":
            return _factorial(value_of(node.args[0], pi), 1 if node.op == "fact" else 2)
    raise NotArithmetic


def _times(value: Fraction, factor: Fraction, sign: int) -> Fraction:
    if sign < 0:
        if factor == 0:
            raise UndefinedNumber
        factor = 1 / factor
    return _bound(value * factor)


def _bound(value: Fraction) -> Fraction:
    above, below = value.numerator.bit_length(), value.denominator.bit_length()
    if above + below > 4 * _MOST_BITS or above * below > _MOST_OF_FRACTION:
        raise NotArithmetic
    return value


def _raise(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) * bits > _MOST_BITS:
        raise NotArithmetic
    if base == 0 and exponent <= 0:
        raise UndefinedNumber
    return Fraction(base ** int(exponent))


def _factorial(value: Fraction, step: int) -> Fraction:
    if value.denominator != 1 or not 0 <= value <= _MOST_FACTORIAL:
        raise NotArithmetic
    return Fraction(
        math.factorial(int(value)) if step == 1 else math.prod(range(int(value), 0, -2))
    )
