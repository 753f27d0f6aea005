r"""What was read, as one tree: the outer forms (units, names, lists, times)
as nodes around the expressions.

    5\text{ km}  →  unit(num 5): kilometre        x = 2\sqrt3  →  named(mul …): x
    12:18  →  ratio(num 12, num 18)

Beside the nodes of `latex/tree.py` there are

    unit (x)  value: its canonical name      percent (x)
    named (body)  value: the name
    bounds (region)  value: the name, of 1 < x < 3
    ratio (a, b, …)    range (a, b)          family (body)  value: the letter
    spoken  value: a number said in words or another notation that no formula has
    word, clock, choice, text  value: what tells it from others
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from rlvr.verifiers.math.arithmetic import NotArithmetic, UndefinedNumber, number_tree, value_of
from rlvr.verifiers.math.cut import cut, separator
from rlvr.verifiers.math.fold import squeeze
from rlvr.verifiers.math.forms import Choice, Clock, Family, Form, Items, Named, Quantity, Word
from rlvr.verifiers.math.latex import Node, parse_or_none
from rlvr.verifiers.math.latex.tree import has, takes_angle

__all__ = ["as_tree", "equation_of", "leaves"]

_BOUNDS = re.compile(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])")
_EQUALS = separator("=")
_SIGNS = "$£€¥₹% "  # of money, which the unit says, and of percent
# 6e-34, 1.5E3; not e0 and e1, whose powers of ten could be worked out.
_SCIENTIFIC = re.compile(r"^([+-]?\d+(?:\.\d+)?)[eE]\+?(-\d+|[2-9]|\d{2,})$")
_GROUPS = {"set": "set", "either": "list", "list": "list", ":": "ratio", "range": "range"}
_REGIONS = {"union": "union", "meet": "intersection", "minus": "minus"}
_HOLDERS = frozenset(("list", "set", "tuple", "matrix", "union", "intersection", "minus", "range"))
_AROUND = frozenset(("named", "bounds", "family"))


@lru_cache(maxsize=4096)
def as_tree(form: Form) -> Node:
    """The tree of all that a form says.

    Args:
        form: as `reading.read` makes it.
    """
    match form:
        case Quantity():
            return _measured_tree(form)
        case Items(kind="matrix"):
            rows = [row.items for row in form.items if isinstance(row, Items)]
            cells = tuple(as_tree(cell) for row in rows for cell in row)
            return Node("matrix", cells, (len(rows), len(rows[0]) if rows else 0))
        case Items():
            items = tuple(map(as_tree, form.items))
            op = _GROUPS.get(form.kind) or _REGIONS.get(form.kind)
            return Node(op, items) if op else Node("tuple", items, form.kind)
        case Named():
            bounded = isinstance(form.body, Items) and _BOUNDS.search(form.text)
            if bounded and "|" in form.text and (tree := parse_or_none(form.text)):
                return tree  # |t| < 3 is still to be solved
            return Node("bounds" if bounded else "named", (as_tree(form.body),), form.name)
        case Family():
            return Node("family", (as_tree(form.body),), form.letter)
        case Choice():
            return Node("choice", () if form.rest is None else (as_tree(form.rest),), form.letter)
        case Clock():
            return Node("clock", value=(form.seconds, form.half))
        case Word():
            return Node("word", value=form.plain)
    return Node("text", value=squeeze(form.text))


def leaves(tree: Node) -> Iterator[Node]:
    """The single things in it: the items of lists and the like, what stands behind a name, an
    option's text.

    Args:
        tree: from `as_tree`.
    """
    if tree.op in _HOLDERS or tree.op in _AROUND or (tree.op == "choice" and tree.args):
        for arg in tree.args:
            yield from leaves(arg)
    else:
        yield tree


def equation_of(text: str) -> Node | None:
    """The equation that a folded text is, with both its sides; None for anything else.

    Args:
        text: a folded text that names a value.
    """
    tree = parse_or_none(text)
    return tree if tree is not None and tree.op == "rel" else None


def _measured_tree(form: Quantity) -> Node:
    tree = _expression(form)
    if form.unit == ":":
        return Node("ratio", tree.args if tree.op == "div" else (tree,))
    # Degrees of a sine stand within it.
    if form.unit and not (form.unit == "degree" and takes_angle(tree)):
        tree = Node("unit", (tree,), form.unit)
    return Node("percent", (tree,)) if form.percent else tree


def _expression(form: Quantity) -> Node:
    """Without unit and percent sign; of \\sin 30^\\circ the degrees are no unit."""
    if form.tree is not None:
        return form.tree
    core = form.core.strip(_SIGNS)
    core = _SCIENTIFIC.sub(r"\1\\cdot 10^{\2}", core) if form.value is not None else core
    tree = parse_or_none(core) if form.value is None else number_tree(core)
    if tree is not None and form.unit == "degree" and takes_angle(tree):
        tree = parse_or_none(form.text)
    if "=" in form.text and "=" not in form.core:  # 243 = 3^5, whose sides have been found equal
        sides = map(parse_or_none, cut(form.text, _EQUALS))
        tree = next((side for side in sides if side is not None and side.op == "num"), tree)
    if form.value is None:
        return tree if tree is not None else Node("text", value=squeeze(form.text))
    if tree is None or _is_worth_another(tree, Fraction(form.value)):
        return Node("spoken", value=Fraction(form.value))
    return tree


def _is_worth_another(tree: Node, value: Fraction) -> bool:
    """1.2 million, 0.1(6), 6e-34 and one half are no 1.2, no product, no Euler's number and no
    letters."""
    try:
        return value_of(tree) != value
    except (NotArithmetic, UndefinedNumber):
        return has(tree, "sym", "const")
