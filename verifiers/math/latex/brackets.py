r"""Brackets: groups, tuples, intervals, sets, absolute values, floors, and environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr.verifiers.math.latex.atoms import based_atom
from rlvr.verifiers.math.latex.tree import Node, TooLarge, Unreadable, call, num, operands

if TYPE_CHECKING:
    from rlvr.verifiers.math.latex.parser import Parser

__all__ = ["absolute", "braces", "bracket", "environment", "floor_or_ceiling", "tuple_of"]

_MOST_CELLS = 100
# A bracket may be closed by the other kind, since (1, 3] is an interval.
_CLOSING = {"(": (")", "]"), "[": ("]", ")")}
_MATRICES = frozenset("matrix pmatrix bmatrix Bmatrix vmatrix smallmatrix array".split())
_CONDITION_WORDS = frozenset("if|for|when|where|otherwise|else|if and only if|".split("|"))


def bracket(parser: Parser, sign: str) -> Node:
    """Whatever begins with this sign."""
    if sign == "|":
        return absolute(parser, "|")
    if sign == "{":
        return _group(parser)
    if sign == "_":
        return _read_choose(parser)
    if sign not in _CLOSING:
        raise Unreadable(f"{sign!r} where a value should begin")
    inside = _inside(parser)
    closing = parser.take().text
    if closing not in _CLOSING[sign]:
        raise Unreadable(f"{closing!r} closes {sign!r}")
    if inside.op == "list":
        return Node("tuple", inside.args, sign + closing)
    # (1011)_2: the base stands behind the bracket.
    if sign == "(" and inside.op == "num" and parser.peek.text == "_":
        return based_atom(parser, inside)
    # Brackets around one thing only group; (5] is neither a value nor an interval.
    if sign + closing in ("()", "[]"):
        return inside
    raise Unreadable(f"{sign}…{closing} around one thing")


def _group(parser: Parser) -> Node:
    """{x}, {}_nC_k."""
    if parser.accept("}"):
        parser.expect("_")
        return _read_choose(parser)
    inside = _inside(parser)
    parser.expect("}")
    return inside


def _read_choose(parser: Parser) -> Node:
    """_nC_k, from behind its first sign."""
    above = parser.subscript()
    name = parser.take().text
    # {}_nC_k and {}_nP_k; any other letter behind such a subscript has no agreed meaning.
    if name not in ("C", "P"):
        raise Unreadable("a subscript of nothing")
    parser.expect("_")
    return call("binom" if name == "C" else "perm", above, parser.subscript())


def _inside(parser: Parser) -> Node:
    """Within brackets bars are other bars, and ':' divides again."""
    bars, ratio, parser.bars, parser.ratio = parser.bars, parser.ratio, 0, True
    inside = parser.statement()
    parser.bars, parser.ratio = bars, ratio
    return inside


def tuple_of(parser: Parser) -> Node:
    r"""\langle 1, 2 \rangle."""
    inside = _inside(parser)
    parser.expect(r"\rangle")
    # \langle x \rangle is a vector of one component, while (x) is x.
    return Node("tuple", operands(inside, "list"), "()")


def absolute(parser: Parser, closing: str) -> Node:
    r"""|x| and, of a tuple, \|(3, 4)\|."""
    # While bars are open the next | closes them: |x|y| is no absolute value in another.
    parser.bars += 1
    inside = parser.statement()
    parser.bars -= 1
    parser.expect(closing)
    return call("abs", inside)


def floor_or_ceiling(parser: Parser, name: str) -> Node:
    r"""\lfloor x \rfloor, \lceil x \rceil."""
    inside = _inside(parser)
    parser.expect(rf"\r{name}")
    return call(name, inside)


def braces(parser: Parser) -> Node:
    r"""\{1, 2\} and \{x \in \mathbb{R} \mid x > 0\}."""
    if parser.accept(r"\}"):
        return Node("numbers", value="empty")
    bars, ratio, parser.bars, parser.ratio = parser.bars, parser.ratio, 0, False
    first = parser.statement()
    # In \{x \mid x > 0\} the bar and ':' say "such that"; as divisions they would read x/(x > 0).
    if parser.accept("|", ":"):
        first = _builder(first, parser.statement())
    else:
        first = Node("set", operands(first, "list"))
    parser.bars, parser.ratio = bars, ratio
    parser.expect(r"\}")
    return first


def _builder(head: Node, condition: Node) -> Node:
    if head.op == "rel" and head.value == ("in",):
        head, universe = head.args
        # Over \mathbb{Z} or \mathbb{N} the values are others than over \mathbb{R}.
        if universe != Node("numbers", value="R"):
            raise Unreadable("a set-builder over something other than the real numbers")
    if head.op != "sym":
        raise Unreadable("a set-builder whose elements are no plain variable")
    return Node("builder", (condition,), head.value)


# ------------------------------------------------------------------------------------- environments


def environment(parser: Parser) -> Node:
    r"""\begin{…} … \end{…}: a matrix or cases."""
    name = _name(parser)
    if name == "array":
        _name(parser, "an array without columns")
    if name == "cases":
        return _cases(parser)
    if name not in _MATRICES:
        raise Unreadable(f"the environment {name!r}")
    rows = [[parser.relation()]]
    while not parser.accept(r"\end"):
        if parser.accept("&"):
            rows[-1].append(parser.relation())
        else:
            parser.expect("\\\\")
            if parser.peek.text != r"\end":  # a line break after the last row
                rows.append([parser.relation()])
        if sum(map(len, rows)) > _MOST_CELLS:
            raise TooLarge(f"a matrix of more than {_MOST_CELLS} cells")
    # The name at \end must be that of \begin, or two environments would be read as one.
    if _name(parser) != name or len({len(row) for row in rows}) != 1:
        raise Unreadable("a matrix with rows of different length")
    matrix = Node("matrix", tuple(cell for row in rows for cell in row), (len(rows), len(rows[0])))
    # Bars around a matrix say its determinant, which is a number.
    return Node("det", (matrix,)) if name == "vmatrix" else matrix


def _name(parser: Parser, what: str = "an environment without a name") -> str:
    parser.expect("{")
    letters = []
    while not parser.accept("}"):
        token = parser.take()
        if token.kind == "end":
            raise Unreadable(what)
        letters.append(token.text.lstrip("\\"))
    return "".join(letters)


def _cases(parser: Parser) -> Node:
    parts: list[Node] = []
    while not parser.accept(r"\end"):
        parts.append(parser.expression())
        parser.accept(",")
        # `x & x > 0`; before words, as in `x \text{ if } x > 0`, authors leave the `&` out.
        parser.expect("&") if parser.peek.kind != "words" else parser.accept("&")
        parts.append(_condition(parser))
        parser.accept(",", ".", ";")
        if not parser.accept("\\\\") and parser.peek.text != r"\end":
            raise Unreadable("cases that do not end")
        # Each case is two parts: its value and its condition.
        if len(parts) > 20:
            raise TooLarge("more than 10 cases")
    if _name(parser) != "cases" or not parts:
        raise Unreadable("cases that do not end")
    return Node("cases", tuple(parts))


def _condition(parser: Parser) -> Node:
    """A relation, or `otherwise`, which always holds."""
    is_said = False
    while parser.peek.kind == "words":
        if parser.take().text.rstrip(".,:") not in _CONDITION_WORDS:
            raise Unreadable("a case whose condition is prose")
        is_said = True
    if is_said and parser.peek.text in ("\\\\", r"\end"):
        return Node("rel", (num(0), num(0)), ("=",))
    condition = parser.relation()
    if condition.op != "rel":
        raise Unreadable("a case without a condition")
    return condition
