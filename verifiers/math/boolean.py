r"""Formulas of logic and of sets that only have names, by their truth tables.

\neg(p \land q) is \neg p \lor \neg q, and (A \cup B)^c is A^c \cap B^c.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from rlvr.verifiers.math.latex.tree import Node, has, sym, walk

__all__ = ["as_logic", "connective", "is_boolean", "is_reducible", "same_truth"]

_MOST_LETTERS = 8
_SETS = {"union": "or", "intersection": "and", "minus": "minus"}
_ALGEBRA = {"add": "or", "mul": "and"}
_EXPONENTS = (sym("c"), sym("C"), sym("complement"))


def connective(node: Node) -> tuple[str, tuple[Node, ...]]:
    r"""The connective and what it joins; "" for a letter.  A^c, A' and \overline{A} are
    complements."""
    if node.op == "logic":
        return str(node.value), node.args
    if node.op in _SETS:
        return _SETS[node.op], node.args
    if node.op == "pow" and node.args[1] in _EXPONENTS:
        return "not", node.args[:1]
    if node.op == "sym" and node.value.endswith("'"):
        return "not", (sym(node.value[:-1]),)
    if node.op == "sym" and node.value.startswith("bar "):
        return "not", (sym(node.value[4:]),)
    return "", ()


def is_boolean(node: Node) -> bool:
    """True for connectives, and for operations on sets of which only the names are known.

    Args:
        node: the tree.
    """
    is_named = connective(node)[0] != "" and all(map(_is_set_name, _letters(node)))
    return is_named or has(node, "logic")


def as_logic(node: Node) -> Node | None:
    r"""`\bar p + \bar q` as \neg p \lor \neg q; None of a formula without a negation.

    Args:
        node: the tree of a sum or product.
    """
    nodes = list(walk(node))
    is_algebra = node.op in _ALGEBRA and all(below.op in (*_ALGEBRA, "sym") for below in nodes)
    has_negation = any(connective(below)[0] == "not" for below in nodes)
    return _join(node) if is_algebra and has_negation else None


def _join(node: Node) -> Node:
    kind = _ALGEBRA.get(node.op)
    return Node("logic", tuple(map(_join, node.args)), kind) if kind else node


def same_truth(a: Node, b: Node) -> bool:
    """Whether two formulas have the same letters and agree whatever these stand for.

    Args:
        a, b: two trees of which one is boolean.
    """
    names = sorted(_letters(a), key=repr)
    if {*names} != _letters(b) or len(names) > _MOST_LETTERS:
        return False
    return all(_value(a, at) is _value(b, at) for at in _worlds(names))


def is_reducible(node: Node) -> bool:
    """True for a formula whose value does not depend on all its letters, or depends on one that
    stands there twice.

    Args:
        node: the tree of an operation.
    """
    if not is_boolean(node):
        return False
    names = sorted(_letters(node), key=repr)
    if len(names) > _MOST_LETTERS or (len(names) == 1 and len(connective(node)[1]) > 1):
        return True
    return not all(
        any(_value(node, at) is not _value(node, {**at, name: True}) for at in _worlds(names))
        for name in names
    )


def _worlds(names: list[Node]) -> list[dict[Node, bool]]:
    values = itertools.product((False, True), repeat=len(names))
    return [dict(zip(names, row, strict=True)) for row in values]


def _letters(node: Node) -> set[Node]:
    kind, parts = connective(node)
    return set().union(*map(_letters, parts)) if kind else {node}


def _is_set_name(node: Node) -> bool:
    return node.op == "sym" and node.value[0].isupper()


def _value(node: Node, at: Mapping[Node, bool]) -> bool:
    kind, parts = connective(node)
    if not kind:
        return at[node]
    values = [_value(part, at) for part in parts]
    match kind:
        case "not":
            return not values[0]
        case "and":
            return all(values)
        case "or":
            return any(values)
        case "minus":
            return values[0] and not values[1]
        case "xor":
            return values[0] is not values[1]
    return values[0] is values[1] if kind == "iff" else not values[0] or values[1]
