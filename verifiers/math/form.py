r"""Whether a right answer is finished: an answer that still has to be worked out is refused.

    reference 243     \frac{486}{2}, 243.0, 2.43\times10^2 are finished     3^5, 243\cdot1, \sqrt9\cdot81 are not
    reference 2^{10}  1024, 2^{10}, 4^5, 2\cdot2^9 have its form            \int_0^{1024}dx has not

An operation that could still be carried out counts against the answer unless the reference has one of the same kind.
Where the reference is a number, nothing but a numeral, a fraction or mixed number, or scientific notation is finished.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from rlvr.verifiers.math.forms import Choice, Family, Form, Items, Named, Quantity
from rlvr.verifiers.math.latex import Node, TooLarge, Unreadable, parse
from rlvr.verifiers.math.latex.tree import free_symbols, has, walk
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.verifiers.math.quantity import measured
from rlvr.verifiers.math.unfinished import has_value, is_written_out, operations

__all__ = ["is_numeral", "leaves", "tree_of", "unfinished"]

_NUMERAL = re.compile(
    r"[+-]? ?[$£€]? ?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?: ?%)?"
    r"|[+-]? ?(?:\\frac\{-?\d+\}\{\d+\}|\d+/\d+|\{?\d+ ?\\over ?\d+\}?)"
)
_WORDS = re.compile(r'[A-Za-z" -]+')
_MIXED = re.compile(
    r"[+-]? ?(?:\d+ \d+/\d+|\d*\.\d*(?: ?\\dots|\(\d+\)))"
)  # and decimals without end
# What no tree can be made of: an operation between two numbers, or behind one.
_OPERATION = re.compile(r"\d[\d)}.]* ?(?:(?:[+*^-]|\\cdot|\\times|\\div)[ ({]*[\d.\\]|!)")
_WORKED_OUT = frozenset(("product", "power", "factorial"))
_ORDERED = frozenset(("()", "[]", "(]", "[)", "matrix", "row"))
_INFINITY = re.compile(r"[+-]? ?\\infty")
_DECIMAL = re.compile(r"\d\.\d|^\.\d")
_E, _I = Node("const", value="e"), Node("const", value="i")
_SEVERAL = frozenset(("matrix", "tuple", "set", "list"))
_PHRASES = {
    "sum": "like terms can still be added",
    "product": "factors can still be multiplied",
    "quotient": "a quotient can still be worked out",
    "power": "a power can still be worked out",
    "root": "a root can still be taken",
    "factorial": "a factorial or a number of choices can still be worked out",
    "function": "a function has a simpler value",
    "integral": "an integral can still be worked out",
    "limit": "a limit can still be worked out",
    "series": "a sum or product of many terms can still be worked out",
    "derivative": "a derivative can still be worked out",
    "matrix": "matrices can still be worked out",
}


def unfinished(answer: Form, reference: Form, policy: MathPolicy) -> str:
    """What could still be worked out in an answer that is right; "" if it is finished.

    Args:
        answer, reference: as `reading.read` makes them.
        policy: says whether a decimal reference may have been rounded.
    """
    if isinstance(answer, Quantity) and (is_numeral(answer) or _says_a_numeral(answer)):
        return ""
    left = _kinds(answer, isinstance(reference, Choice)) - _allowed(reference)
    if left:
        return _PHRASES[min(left, key=list(_PHRASES).index)]
    return (
        ""
        if _numbers_are_written(answer, reference, policy)
        else "the number can still be written out"
    )


def is_numeral(form: Form) -> bool:
    """True for a number that is written out, such as 243, -1.5, 3/4, 2 1/3 and one half.

    Args:
        form: as `reading.read` makes it.
    """
    if not isinstance(form, Quantity):
        return False
    if _is_literal(form):
        return True
    tree = tree_of(form)
    if r"\div" in form.core:
        return False  # a sign of division is no fraction's line
    return (
        is_written_out(tree)
        if tree
        else form.value is not None and not _OPERATION.search(form.core)
    )


def _is_literal(form: Quantity) -> bool:
    """Digits, a mixed number, or a number in words: three is no product of five letters."""
    if _NUMERAL.fullmatch(form.core):
        return True
    return form.value is not None and bool(
        _MIXED.fullmatch(form.core) or _WORDS.fullmatch(form.core)
    )


def leaves(form: Form) -> Iterator[Form]:
    """The single things in a form.

    Args:
        form: as `reading.read` makes it.
    """
    if isinstance(form, Items):
        for item in form.items:
            yield from leaves(item)
    elif isinstance(form, Named | Family):
        yield from leaves(form.body)
    else:
        yield form


def tree_of(form: Quantity) -> Node | None:
    """The tree of an expression without its unit; None where our parser cannot read it.

    Args:
        form: a number or an expression.
    """
    try:
        tree = parse(form.core)  # of \sin 30^\circ the degrees are no unit
        return parse(form.text) if form.unit == "degree" and has(tree, "call") else tree
    except (Unreadable, TooLarge, RecursionError):
        return None


def _says_a_numeral(form: Quantity) -> bool:
    """243 = 3^5, whose sides have been found equal when it was read."""
    return form.value is not None and any(
        _NUMERAL.fullmatch(side.strip()) for side in form.text.split("=")[:-1]
    )


def _allowed(reference: Form) -> frozenset[str]:
    """The kinds of operations in the reference; a product of powers may be written with factorials too."""
    kinds = _kinds(reference)
    if any(isinstance(leaf, Quantity) and _is_polar(leaf) for leaf in leaves(reference)):
        kinds |= {"function"}  # re^{it} may be written as r(\cos t + i\sin t)
    return kinds | _WORKED_OUT if kinds & _WORKED_OUT else kinds


@lru_cache(maxsize=4096)
def _is_polar(form: Quantity) -> bool:
    tree = tree_of(form) if "e" in form.core and "i" in form.core else None
    powers = [node for node in walk(tree) if node.op == "pow"] if tree is not None else []
    return any(node.args[0] == _E and _I in walk(node.args[1]) for node in powers)


@lru_cache(maxsize=4096)
def _kinds(form: Form, is_choice: bool = False) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for leaf in leaves(form):
        if isinstance(leaf, Choice):
            found |= _kinds(leaf.rest) if leaf.rest is not None and not is_choice else frozenset()
        elif isinstance(leaf, Quantity) and not _is_literal(leaf):
            tree = tree_of(leaf)
            if r"\div" in leaf.core:
                found |= {"quotient"}
            if tree is not None:
                found |= operations(tree)
            elif _OPERATION.search(leaf.core):
                found |= {"product"}
    return found


def _numbers_are_written(answer: Form, reference: Form, policy: MathPolicy) -> bool:
    """Where the reference has a number, the answer has one too, and no x/x or sin²x + cos²x."""
    mine, theirs = list(leaves(answer)), list(leaves(reference))
    if isinstance(answer, Named) and isinstance(reference, Named) and answer.name != reference.name:
        return True  # y = 4/x for xy = 4
    bounded = [leaf for leaf in theirs if not _is_infinite(leaf)]
    if bounded and all(_is_exact_number(leaf, policy) for leaf in bounded):
        return all(map(_is_finished_number, mine))
    if len(mine) == len(bounded) == 1 and not _may_be_rounded(mine[0], bounded[0]):
        return _is_finished_number(mine[0])
    if len(mine) == len(theirs) and _is_ordered(answer) and _is_ordered(reference):
        return all(
            _is_finished_number(a)
            for a, b in zip(mine, theirs, strict=True)
            if _is_exact_number(b, policy)
        )
    return all(
        _is_finished_number(leaf)
        for leaf in mine
        if isinstance(leaf, Quantity) and leaf.value is not None
    )


def _may_be_rounded(answer: Form, reference: Form) -> bool:
    """True unless the reference is a decimal and the answer exactly that, or has letters."""
    if (
        not isinstance(reference, Quantity)
        or not isinstance(answer, Quantity)
        or reference.value is None
    ):
        return True
    tree = None if reference.unit.startswith("degree") else tree_of(answer)
    if tree is None or not is_numeral(reference):
        return True
    return not free_symbols(tree) and not has_value(tree, float(reference.value))


def _is_exact_number(form: Form, policy: MathPolicy) -> bool:
    """A number that the answer must be too: no angle, which may be given in radians, no decimal of an irrational."""
    if (
        not isinstance(form, Quantity)
        or form.value is None
        or form.unit.startswith("degree")
        or not is_numeral(form)
    ):
        return False
    return policy.rounding == "exact" or not _DECIMAL.search(form.core)


def _is_finished_number(form: Form) -> bool:
    """Operations that the reference has are settled already."""
    if not isinstance(form, Quantity) or is_numeral(form) or _is_infinite(form) or _kinds(form):
        return True
    if measured(form.text) is not None:
        return True  # 5 m, where the reference has the unit
    tree = tree_of(form)
    if tree is None:
        return False
    if tree.op == "rel":  # 5 = x
        return all(arg.op in ("sym", "term") or is_written_out(arg) for arg in tree.args)
    if tree.op == "builder":  # {x | x < 2 or x > 3}
        sides = [side for node in walk(tree) if node.op == "rel" for side in node.args]
        return all(side.op in ("sym", "const") or is_written_out(side) for side in sides)
    if (
        tree.op == "mul" and len(tree.args) == 2 and is_written_out(tree.args[0])
    ):  # \frac12 times a matrix
        tree = tree.args[1]
    return tree.op in _SEVERAL and all(map(is_written_out, tree.args))


def _is_infinite(form: Form) -> bool:
    return isinstance(form, Quantity) and _INFINITY.fullmatch(form.core) is not None


def _is_ordered(form: Form) -> bool:
    return isinstance(form, Items) and form.kind in _ORDERED
