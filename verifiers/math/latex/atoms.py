r"""Numbers and letters, with their indices and the like."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from rlvr.verifiers.math.latex.names import SYMBOLS
from rlvr.verifiers.math.latex.tree import Node, Unreadable, Written, call, num, sym

if TYPE_CHECKING:
    from rlvr.verifiers.math.latex.lexer import Token
    from rlvr.verifiers.math.latex.parser import Parser

__all__ = ["based_atom", "letter", "modulus", "number_atom", "raw_group", "variable"]

_CONSTANTS = {"e": "e", "i": "i"}
_OPENING, _CLOSING = frozenset(("(", "[", "{", r"\{")), frozenset((")", "]", "}", r"\}"))
_REPEATS = (r"\overline", r"\bar", r"\dot", r"\overbar")
_THRICE = re.compile(r"(\d*?)((\d{1,6}?)\3{2})")


def number_atom(parser: Parser, text: str) -> Node:
    r"""A decimal; 0.1\overline{6}; 0.1666\dots, with its period thrice; 1011_2."""
    whole, point, places = text.partition(".")
    if point and parser.peek.text in _REPEATS:
        parser.take()
        return _repeating(whole, places, "".join(token.text for token in raw_group(parser)))
    goes_on = parser.peek.text == r"\dots" and parser.ahead().kind == "end"
    if goes_on and (match := _THRICE.fullmatch(places)):
        parser.take()
        return _repeating(whole, places, match[3])
    # Without a point it is no repeating decimal: 12\overline{3} is not guessed at.
    if parser.peek.text in _REPEATS:
        raise Unreadable("a period without a point")
    if parser.accept("_"):
        return _read_based(text, parser.subscript())
    return Node("num", value=Written(text))


def _repeating(whole: str, places: str, period: str) -> Node:
    # int() would also take a sign or `1_0`.
    if not period.isdecimal():
        raise Unreadable(f"a period of {period!r}")
    if not f"0{whole}{places}".isdecimal():
        raise Unreadable(f"digits of {whole + places!r} before a period")
    # 0.1\overline{6} = 1/10 + 6/(9·10): the period is divided by as many nines as it has digits.
    fixed = Fraction(int(f"0{whole}{places}"), 10 ** len(places))
    return num(fixed + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(places)))


def based_atom(parser: Parser, digits: Node) -> Node:
    """(1011)_2."""
    parser.expect("_")
    return _read_based(str(digits.value), parser.subscript())


def _read_based(digits: str, base: Node) -> Node:
    if base.op != "num" or not digits.isdecimal():
        raise Unreadable(f"a number with a subscript: {digits}_…")
    try:
        # int() refuses a base beyond 36, and a digit that the base has not, as in 129_8.
        return num(int(digits, int(base.value)))
    except ValueError:
        raise Unreadable(f"{digits} has digits that base {base.value} does not") from None


def letter(parser: Parser, name: str) -> Node:
    """A variable with its subscripts and primes, a constant, a differential, C(n, k)."""
    # The d of dx, once per integral; after it, and outside of integrals, d is a letter as any
    # other.
    if name == "d" and parser.integrals and _is_variable(parser.peek) and not parser.differential:
        # e and i are constants, unless a sum has bound the letter: no integral runs over them.
        if parser.peek.text.lstrip("\\") in _CONSTANTS and parser.peek.text not in parser.bound:
            raise Unreadable(f"an integral over the constant {parser.peek.text}")
        parser.differential = parser.take().text.lstrip("\\")
        return num(1)
    # Before variables: C(5,2) and P(5,2) are counts, while C(x) and C_1 remain names.
    if name in "CP" and (chosen := _read_choose(parser, name)):
        return chosen
    # e_1 and i' are names of variables, and no constants.
    if name in _CONSTANTS and name not in parser.bound and parser.peek.text not in ("_", "'"):
        return Node("const", value=_CONSTANTS[name])
    return variable(parser, name)


def variable(parser: Parser, name: str) -> Node:
    """The name so far, with what is attached to it: primes and one subscript."""
    subscripts = 0
    while parser.peek.text in ("_", "'") and parser.peek.kind == "sign":
        if parser.take().text == "'":
            name += "'"
            continue
        name += f"_{{{_subscript(parser)}}}"
        subscripts += 1
        if subscripts > 1:
            raise Unreadable("a variable with two subscripts")
    return sym(name)


def _is_variable(token: Token) -> bool:
    return token.kind == "letter" or token.text.lstrip("\\") in SYMBOLS


def _read_choose(parser: Parser, name: str) -> Node | None:
    r"""C(n, k), C_n^k, C_{n}^{k} and the same with P; {}_nC_k is read in `brackets.py`."""
    function = "binom" if name == "C" else "perm"
    if parser.peek.text == "(" and _holds_pair(parser):
        return call(function, *parser.atom().args)
    if parser.peek.text == "_" and _script_ends_before(parser, "^"):
        parser.take()
        below = parser.subscript()
        parser.expect("^")
        return call(function, below, parser.script())
    return None


def _holds_pair(parser: Parser) -> bool:
    """True if the bracket that comes next holds two things.  It looks ahead, and nothing is read
    twice."""
    level = commas = at = 0
    while (token := parser.ahead(at)).kind != "end":
        level += (token.text in _OPENING) - (token.text in _CLOSING)
        if level == 0:
            break
        commas += level == 1 and token.text == ","
        at += 1
    # C(n, k) has one comma at its own level; P(a, b, c) and C((1,2)) are something else.
    return commas == 1


def _script_ends_before(parser: Parser, sign: str) -> bool:
    """True if this sign follows the subscript: one token, or a short group."""
    if parser.ahead().text != "{":
        return parser.ahead(2).text == sign
    # Up to five tokens in the braces of the subscript, as in C_{n-1}^k.
    closing = next((n for n in range(2, 8) if parser.ahead(n).text == "}"), 0)
    # C_n^k, but not C_1 + x^2: the sign must follow the subscript at once.
    return closing > 0 and parser.ahead(closing + 1).text == sign


def _subscript(parser: Parser) -> str:
    """The subscript's own letters: it is a name and not computed with."""
    return "".join(token.text.lstrip("\\") for token in raw_group(parser))


def raw_group(parser: Parser) -> list[Token]:
    """The tokens of a group, unread, or the one that stands for it."""
    if not parser.accept("{"):
        return [parser.take()]
    inside, level = [], 1
    while level:
        token = parser.take()
        if token.kind == "end":
            raise Unreadable("'}' is missing at the end")
        level += (token.text == "{") - (token.text == "}")
        inside.append(token)
    return inside[:-1]


def modulus(parser: Parser) -> Node | None:
    r"""`\pmod 5`, `\pmod{5}`, `(\mod 5)` behind a relation."""
    if parser.accept(r"\pmod"):
        return parser.script()
    if parser.peek.text == "(" and parser.ahead().text in (r"\mod", r"\bmod"):
        parser.take()
        parser.take()
        value = parser.sum()
        parser.expect(")")
        return value
    return None
