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
from rlvr.verifiers.math.fold import squeeze
from rlvr.verifiers.math.forms import (
    Choice,
    Clock,
    Family,
    Form,
    Items,
    Named,
    Quantity,
    Word,
    parts,
)
from rlvr.verifiers.math.latex import Node, TooLarge, Unreadable, parse, parse_or_none
from rlvr.verifiers.math.latex.tree import Written, has, operands

__all__ = [
    "as_tree",
    "in_degrees",
    "inside_of",
    "leaves",
    "name_tree",
    "significant_digits",
    "tree_of",
    "tree_or_none",
]

_BOUNDS = re.compile(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])")
_SIGNS = "$£€¥₹% "  # of money, which the unit says, and of percent
_EXPONENT = re.compile(r"(?<=[\d.])[eE][+-]?\d+")
_KINDS = {"either": "list", ":": "ratio", "meet": "intersection"} | {
    kind: kind for kind in ("set", "list", "range", "union", "minus")
}
_HOLDERS = frozenset(
    "list set tuple matrix union intersection minus range named bounds family".split()
)


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
            op = _KINDS.get(form.kind)
            said = {"list": "and", "either": "or"}.get(form.kind)
            return Node(op, items, said) if op else Node("tuple", items, form.kind)
        case Named():
            bounded = isinstance(form.body, Items) and _BOUNDS.search(form.text)
            if bounded and "|" in form.text and (tree := tree_or_none(form)):
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
    if tree.op in _HOLDERS or (tree.op == "choice" and tree.args):
        for arg in tree.args:
            yield from leaves(arg)
    else:
        yield tree


def in_degrees(node: Node) -> bool:
    """Whether it is an angle, or a temperature, in degrees.

    Args:
        node: from `as_tree`.
    """
    return node.op == "unit" and str(node.value).startswith("degree")


def inside_of(tree: Node, *ops: str) -> Node:
    """What stands in nodes of these kinds: without unit, sign or name.

    Args:
        tree: from `as_tree`.
        ops: the kinds to look into.
    """
    while tree.op in ops:
        tree = tree.args[0]
    return tree


def tree_of(form: Form) -> Node:
    """The tree of a formula, as the parser makes it: without unit and percent sign.

    Args:
        form: of anything.

    Raises:
        Unreadable, TooLarge: see `latex/tree.py`.
    """
    match form:
        case Quantity():
            return form.tree or parse(form.core)
        # A letter may have been read as an option: those are letters in the whole.
        case Items() if all(isinstance(part, Quantity | Items) for part in parts(form)):
            tree = as_tree(form)
            return parse(form.text) if has(tree, "text") else tree
    return parse(form.text)


def tree_or_none(form: Form) -> Node | None:
    """The same; None of what cannot be read.

    Args:
        form: see `tree_of`.
    """
    try:
        return tree_of(form)
    except (Unreadable, TooLarge, RecursionError):
        return None


def name_tree(form: Named) -> Node:
    """The tree of what stands before `=`: an application for `f(x)`.

    Args:
        form: an equation that names something.
    """
    return parse_or_none(form.name) or Node("word", value=form.name)


def _measured_tree(form: Quantity) -> Node:
    tree = _expression(form)
    if form.unit == ":":
        return Node("ratio", operands(tree, "div"))
    tree = Node("unit", (tree,), form.unit) if form.unit else tree
    return Node("percent", (tree,)) if form.percent else tree


def _expression(form: Quantity) -> Node:
    if form.value is None:
        return tree_or_none(form) or Node("text", value=squeeze(form.text))
    tree = form.tree or number_tree(form.core.strip(_SIGNS))
    # 243 = 3^5, whose sides have been found equal
    tree = next((side for side in map(as_tree, form.sides) if side.op == "num"), tree)
    if tree is None or _is_worth_another(tree, Fraction(form.value)):
        return Node("spoken", value=Fraction(form.value))
    return tree


def significant_digits(form: Form, *, trailing: bool) -> int:
    """Of the first number that was written in it; 0 where none was.

    Args:
        form: of an answer or a reference.
        trailing: whether the zeros at the end of a whole number count: those of 1200.
    """
    if isinstance(form, Quantity):
        tree = form.tree or number_tree(_EXPONENT.sub("", form.core.strip(_SIGNS)))
    else:
        tree = as_tree(form)
    number = next(_written_numbers(tree), None) if tree else None
    if number is None:
        return 0
    digits = str(int(abs(number) * 10**number.places))
    return len(digits if trailing or number.places else digits.rstrip("0")) or 1


def _written_numbers(tree: Node) -> Iterator[Written]:
    """From left to right."""
    if isinstance(tree.value, Written):
        yield tree.value
    for arg in tree.args:
        yield from _written_numbers(arg)


def _is_worth_another(tree: Node, value: Fraction) -> bool:
    """1.2 million, 0.1(6), 6e-34 and one half are no 1.2, no product, no Euler's number and no
    letters."""
    try:
        return value_of(tree) != value
    except (NotArithmetic, UndefinedNumber):
        return has(tree, "sym", "const")
