"""The kind of a form, and its other readings, one of which may fit the other side."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from rlvr.verifiers.math.cut import cut, separator
from rlvr.verifiers.math.forms import Form, Named, Quantity, Sequence
from rlvr.verifiers.math.intervals import pieces
from rlvr.verifiers.math.matching import Decision
from rlvr.verifiers.math.quantity import compound
from rlvr.verifiers.math.reading import as_list, read

__all__ = [
    "in_proportion", "is_number", "is_region", "is_relation", "labels_bind", "may_be_several", "read_again",
    "renamed_function", "same_region", "spread", "times", "vector",
]  # fmt: skip

_RELATIONS = ("=", "<", ">", r"\le", r"\ge", r"\ne")
_FUNCTION = re.compile(r"(.+?)(?:\(|_\{?)([a-z](?:,[a-z])*)[)}]?")
_LETTER = re.compile(r"\\[a-zA-Z]+|[a-zA-Z]")
_COMMAS = separator("[,;]")
_INTERVALS = frozenset(("()", "(]", "[)", "[]", "union", "meet", "minus"))


def is_number(form: Form) -> bool:
    """It has an exact value."""
    return isinstance(form, Quantity) and form.value is not None


def is_relation(form: Form) -> bool:
    """An equation or inequality that names no single thing."""
    return isinstance(form, Quantity) and form.value is None and any(sign in form.core for sign in _RELATIONS)


def is_region(form: Form) -> bool:
    """`x < 2` states a set, and does not give x a value."""
    return isinstance(form, Named) and isinstance(form.body, Sequence) and form.body.kind in _INTERVALS


def may_be_several(form: Form) -> bool:
    r"""The symbolic engine may read it as more than one thing: `\{2k : k < 3\}`, `\pm a \pm b \pm c`."""
    return form.text.startswith(r"\{") or r"\pm" in form.text or r"\mathbb" in form.text


def labels_bind(sequence: Sequence) -> bool:
    """Letters keep the order of their values, "y=10, x=1" is not "1, 10"; words such as "Minimum" have no order."""
    return any(isinstance(item, Named) and not (len(item.name) > 2 and item.name.isalpha()) for item in sequence.items)


def vector(matrix: Sequence) -> tuple[Form, ...]:
    """The cells of a single row or column; of a larger matrix the rows, which equal no tuple of numbers."""
    rows = [row.items for row in matrix.items if isinstance(row, Sequence)]
    if len(rows) == 1:
        return rows[0]
    return tuple(row[0] for row in rows) if all(len(row) == 1 for row in rows) else matrix.items


def in_proportion(a: Sequence, b: Sequence) -> Decision:
    """2:4:6 is 1:2:3."""
    x, y = ([Fraction(item.value or 0) for item in s.items if isinstance(item, Quantity)] for s in (a, b))
    same = (
        len(x) == len(y)
        and any(x)
        and any(y)
        and all(p * q == r * s for p, s in zip(x, y, strict=True) for r, q in zip(x, y, strict=True))
    )
    return Decision(True, "same-items") if same else Decision(False, "different-items")


def same_region(a: Form, b: Form) -> Decision | None:
    """Decided where all ends are exact numbers."""
    mine, other = pieces(a), pieces(b)
    if mine is None or other is None:
        return None
    return Decision(True, "same-set") if mine == other else Decision(False, "different-set")


def times(number: Quantity, size: Fraction, unit: str) -> Quantity:
    """An expression in another unit."""
    core = rf"\frac{{{size.numerator}}}{{{size.denominator}}}\cdot({number.core})"
    return replace(number, text=core, core=core, unit=unit)


def read_again(sequence: Sequence, other: Form) -> tuple[Form, Form] | None:
    """A list against a single thing: 1,234 may be two numbers, 1 hour and 30 minutes one, and {5} is 5."""
    if sequence.kind not in ("list", "set"):
        return None
    if "," in other.text and is_number(other):
        return sequence, as_list(other.text)
    if len(sequence.items) == 1:
        return sequence.items[0], other
    parts = [item for item in sequence.items if isinstance(item, Quantity)]
    whole = len(parts) == len(sequence.items) and isinstance(other, Quantity) and other.unit
    total = compound(sequence.text, parts) if whole else None
    return (total, other) if total else None


def spread(form: Form, other: Form) -> Sequence | None:
    """`(x, y) = (1, 2)` as `x = 1, y = 2`, and `x = 1, 2` as `x = 1, x = 2`, where the other side has such names."""
    if not isinstance(form, Named) or not isinstance(form.body, Sequence):
        return None
    if not isinstance(other, Sequence) or not any(isinstance(item, Named) for item in other.items):
        return None
    if form.body.kind == "list":
        names = [form.name] * len(form.body.items)
    else:
        names = [name.strip() for name in cut(form.name[1:-1], _COMMAS)] if form.name[:1] == "(" else []
    if len(names) != len(form.body.items):
        return None
    return Sequence(
        form.text, "list", tuple(Named(item.text, n, item) for n, item in zip(names, form.body.items, strict=True))
    )


def renamed_function(form: Named, name: str) -> Named | None:
    """`f(m) = 2m` as `f(n) = 2n`; None if the names differ in more than the bound variable, or n is taken."""
    if {form.name, name} == {"y", "f(x)"}:
        return form  # the graph of f
    mine, other = _FUNCTION.fullmatch(form.name), _FUNCTION.fullmatch(name)
    if not mine or not other or mine[1] != other[1]:
        return None
    old, new = mine[2].split(","), other[2].split(",")
    if len(old) != len(new) or ({*new} - {*old}) & {*_LETTER.findall(form.body.text)}:
        return None
    letters = dict(zip(old, new, strict=True))
    return Named(form.text, name, read(_LETTER.sub(lambda m: letters.get(m[0], m[0]), form.body.text)))
