r"""Residue classes: x \equiv 1, 3 \pmod 4 and n = 4k + 1
and \{4k+1 : k \in \mathbb{Z}\} as sets of whole numbers.

A line a + bk is a class only beside something that says so: a congruence, or a letter that runs
through the integers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import TypeAlias

from rlvr.verifiers.math.arithmetic import NotArithmetic, UndefinedNumber, value_of
from rlvr.verifiers.math.forms import Family, Form, Items, Named, Quantity
from rlvr.verifiers.math.latex import Node
from rlvr.verifiers.math.latex.tree import free_symbols, num, replace_part, sym
from rlvr.verifiers.math.quantity import built
from rlvr.verifiers.math.statement import tree_or_none

__all__ = ["Classes", "remainder", "same_classes"]

Classes: TypeAlias = tuple[str, int, frozenset[int]]
"""The letter that lies in them, "" if none was said; the modulus; the residues."""

_MOST = 100_000  # residues of a common modulus
_SAID = re.compile(r"\\equiv|\\p?b?mod(?![a-zA-Z])")  # only then is a tree asked for


def same_classes(a: Form, b: Form) -> bool | None:
    """Whether both are the same classes; None where one is none, or nothing says that they are
    meant.

    Args:
        a, b: the forms of both sides.
    """
    if not any(map(_says_so, (a, b))):
        return None
    if any(isinstance(form, Family) and form.domain not in ("", "Z") for form in (a, b)):
        return False  # n = 4k + 1 for natural k
    left, right = _read(a), _read(b)
    if left is None or right is None:
        return None
    if left[0] and right[0] and left[0] != right[0]:
        return False
    modulus = math.lcm(left[1], right[1])
    if modulus > _MOST:
        return None
    return _lift_classes(left, modulus) == _lift_classes(right, modulus)


def remainder(form: Form) -> Quantity | None:
    r"""The 2 of `2 \pmod 7` and `n \equiv 2 \pmod 7`, which is a remainder of 7; None for anything
    else.

    Args:
        form: of an answer beside a number.
    """
    if isinstance(form, Family) and form.text[:1] == "[" and (classes := _read(form.body)):
        return built(num(min(classes[2])))  # [2]_7
    tree = tree_or_none(form) if "mod" in form.text else None
    if tree is None or tree.op not in ("congruent", "mod"):
        return None
    value, modulus = tree.args
    value = value.args[-1] if value.op == "rel" else value
    # A remainder is smaller than what it is a remainder of.
    is_least = value.op == modulus.op == "num" and value.value < modulus.value
    return built(value) if is_least else None


def _says_so(form: Form) -> bool:
    body = form.body if isinstance(form, Named) else form
    return bool(_SAID.search(form.text)) or (isinstance(body, Family) and body.domain == "Z")


def _lift_classes(classes: Classes, modulus: int) -> frozenset[int]:
    _, step, residues = classes
    return frozenset(r + step * n for r in residues for n in range(modulus // step))


def _read(form: Form) -> Classes | None:
    if isinstance(form, Family):
        return _read(form.body)
    if isinstance(form, Named) and isinstance(form.body, Family):  # n \in 2 + 3\mathbb{Z}
        classes = _read(form.body)
        return classes and (form.name, *classes[1:])
    tree = tree_or_none(form) if isinstance(form, Quantity | Named | Items) else None
    try:
        return _classes(tree) if tree else None
    except (NotArithmetic, UndefinedNumber):
        return None


def _classes(node: Node) -> Classes | None:
    if node.op == "list":  # x ≡ 1, 3 (mod 4): the last one says the modulus
        *parts, last = node.args
        if last.op == "congruent":
            parts = [
                part if part.op == "congruent" else Node("congruent", (part, *last.args[1:]))
                for part in parts
            ]
        return _join_classes(map(_classes, (*parts, last)))
    if node.op in ("congruent", "mod"):
        left, step = node.args
        name, value = ("", left)
        if left.op == "rel" and left.value == ("equiv",) and left.args[0].op == "sym":
            name, value = left.args[0].value, left.args[1]
        return _class(name, value_of(value), value_of(step))
    if node.op == "rel" and node.value == ("=",) and node.args[0].op == "sym":
        residue = _line(node.args[1])
        return residue and (node.args[0].value, *residue[1:])
    return _line(node)


def _line(node: Node) -> Classes | None:
    """a + bk for a letter k."""
    letters = free_symbols(node)
    if len(letters) != 1:
        return None
    start, second, third = (
        value_of(replace_part(node, sym(min(letters)), num(n))) for n in (0, 1, 2)
    )
    # Two equal steps: a line; a square has others.
    return _class("", start, second - start) if third - second == second - start else None


def _class(name: str, residue: Fraction, step: Fraction) -> Classes | None:
    # 4.5k + 1 is no class of whole numbers, nor is a line that does not move.
    if residue.denominator != 1 or step.denominator != 1 or not 0 < abs(step) <= _MOST:
        return None
    modulus = abs(int(step))
    return name, modulus, frozenset((int(residue) % modulus,))


def _join_classes(found: Iterable[Classes | None]) -> Classes | None:
    parts = list(found)
    classes = [part for part in parts if part]
    modulus = math.lcm(*(step for _, step, _ in classes))
    names = {name for name, _, _ in classes} - {""}
    if len(classes) < len(parts) or modulus > _MOST or len(names) > 1:
        return None
    every = frozenset().union(*(_lift_classes(part, modulus) for part in classes))
    return "".join(names), modulus, every
