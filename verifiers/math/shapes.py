"""The kind of a form, and its other readings, one of which may fit the other side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from rlvr.verifiers.math.forms import Clock, Form, Items, Named, Quantity, Word, form_kind, pair
from rlvr.verifiers.math.intervals import pieces
from rlvr.verifiers.math.latex import Node
from rlvr.verifiers.math.latex.tree import (
    BINDERS,
    EULER,
    IMAGINARY,
    INFINITY,
    PI,
    free_symbols,
    has,
    neg,
    num,
    operands,
    sym,
    walk,
)
from rlvr.verifiers.math.matching import Decision, judged
from rlvr.verifiers.math.quantity import (
    built,
    compound,
    literal,
    negated,
    quantity,
    read_measured,
    scaled,
)
from rlvr.verifiers.math.residues import remainder
from rlvr.verifiers.math.statement import as_tree, name_tree, tree_of, tree_or_none

__all__ = [
    "are_parallel",
    "as_stated",
    "components",
    "has_exact_value",
    "imaginary_j",
    "in_alphabet",
    "in_coordinates",
    "in_proportion",
    "is_region",
    "is_relation",
    "is_unsolved",
    "labels_bind",
    "letters",
    "may_be_several",
    "ranking",
    "read_again",
    "rename",
    "renamed_function",
    "renamed_inverse",
    "same_region",
    "spread",
    "stated_value",
    "times",
    "vector",
    "without_indices",
    "worked_out",
]

_AXES = "ijk"
_COMMA_OR_AND = re.compile(', ?| "and" ')  # 3 and 1/7
_WORDS = re.compile("[A-Za-z]+")
_VARIABLE = re.compile(r"\\[a-zA-Z]+|[ei]|([a-zA-Z])")
_CONSTANTS = {str(node.value): node for node in (EULER, IMAGINARY, PI, INFINITY)}
_FUNCTIONS = frozenset("fghpqFGHPQST")
_NO_TREE = Node("text")
_VECTORS = frozenset(("()", "matrix", "[]"))
_RELATION = re.compile(r"[=<>]|\\(?:le|ge|ne|equiv)(?![a-zA-Z])")
_INDEXED = re.compile(r"(.+)_\{([a-z](?:,[a-z])*)\}")
_MINUS_ONE = neg(num(1))
_INTERVALS = frozenset("() (] [) [] union meet minus".split())


def has_exact_value(form: Form) -> bool:
    """It has an exact value."""
    return isinstance(form, Quantity) and form.value is not None


def is_relation(form: Form) -> bool:
    """An equation or inequality that names no single thing."""
    if not isinstance(form, Quantity) or form.value is not None or form.pis is not None:
        return False
    if form.sides:
        return True
    may_be = form.tree is not None or _RELATION.search(form.core) is not None
    return may_be and _tree(form).op in ("rel", "congruent")


def stated_value(relation: Form, other: Form, *, trusted: bool) -> Form | None:
    """What an equation says of a quantity, where the other side is one plain value; None if it says
    no value.

    Args:
        relation: an equation that names no single thing.
        other: the other side.
        trusted: it is the reference, of which only what measures something is taken for a value.
    """
    if not isinstance(relation, Quantity) or not isinstance(other, Quantity | Items):
        return None
    if is_relation(other) or len(relation.sides) != 2 or "=" not in relation.text:
        return None
    left, right = relation.sides
    side, stated = tree_or_none(left) or _unread(left), tree_or_none(right)
    if stated is None or free_symbols(stated) or IMAGINARY in walk(stated):
        return None
    if side.op == "rel" or "," in left.text:
        return None
    # Of the reference only a quantity may state a value: x^2 = 4 must not be answered by 4.
    # Two letters at least, as m + n = 5 or a_1 + a_2 = 7; 2x = 10 is to be solved, and so is what
    # is 0.
    names = max(free_symbols(side), _letters(side), key=len)
    solve = trusted or stated == num(0) or len(names) < 2
    if solve and not _measures(side):
        return None
    # AB:CD = 7:32 states no time
    return right.ratio or right if isinstance(right, Clock) and ":" in left.text else right


def as_stated(answer: Form, reference: Form) -> Form:
    r"""What an answer that is right states, in the form of the reference, for a look at how it is
    written.

    `m + n = 5` states 5 beside a number, `\mathbf i + 2\mathbf j` the pair (1, 2) beside a pair,
    `5-6` the range 5–6.

    Args:
        answer: an answer that is equal to the reference.
        reference: the reference's form.
    """
    if isinstance(answer, Named) and is_relation(answer.body):  # AB = \sqrt{20} = 2\sqrt5
        return as_stated(answer.body, reference.body if isinstance(reference, Named) else reference)
    if isinstance(reference, Named):
        return answer  # it was compared with the whole equation
    if isinstance(reference, Word) and " " not in answer.text:
        return reference  # letters that were compared as a word
    if isinstance(reference, Items):
        if isinstance(answer, Items) and answer.kind == "set" and reference.kind == "()":
            return answer.items[0]
        if is_relation(answer):  # A \cap B = \{2, 3\}
            return _stated(answer, reference)
        if reference.kind == "range":
            return reference
        return in_coordinates(answer, reference) or answer
    if least := remainder(answer):
        return least
    if isinstance(answer, Clock) and isinstance(reference, Quantity):
        return answer if reference.unit else answer.ratio or answer
    if isinstance(answer, Quantity) and isinstance(reference, Quantity):
        answer = scaled(answer, reference) or answer
        if reference.unit and not answer.unit:
            answer = read_measured(answer.text) or answer
    is_due = is_relation(answer) and not is_relation(reference)
    return _stated(answer, reference) if is_due else answer


def _stated(equation: Form, reference: Form) -> Form:
    """Its value, or its last side; the equation itself if it states none."""
    worked = worked_out(equation, reference) or (equation,)
    return stated_value(equation, reference, trusted=False) or worked[-1]


def _unread(form: Form) -> Node:
    """In the place of a tree that cannot be read: the letters of the text."""
    return Node("text", tuple(map(sym, filter(None, _VARIABLE.findall(form.text)))), form.text)


def letters(form: Form) -> set[str]:
    """The letters that could be parameters.

    Args:
        form: of anything.
    """
    return {letter for letter in _letters(as_tree(form)) if len(letter) == 1}


def _letters(side: Node) -> set[str]:
    return {letter for name in free_symbols(side) for letter in _WORDS.findall(name)} - {"d"}


def _measures(side: Node) -> bool:
    r"""A side that is a quantity of its own, and no equation's: `|AB|`, `\angle A`, `P(X = 1)`,
    `\frac{NO}{BO}`.

    `\sin A` and `\sin\theta` are quantities, while `\sin x` and `|x - 2|` belong to equations for
    x.
    """
    first = side
    while first.op in ("add", "mul", "div", "neg"):
        # m\angle A
        first = first.args[first.op == "mul" and first.args[0] == sym("m")]
    head = first.args[0] if first.op == "apply" else first
    name = str(head.value)
    inside = free_symbols(Node("list", first.args[first.op == "apply" :]))
    at_number = first is side and not inside
    # n(A), but not n(n + 1)
    counts = name in ("P", "n") and name not in inside
    if (
        first.op in ("lim", "int", "sum", "prod", "det")
        or name.startswith(("\\dim", "\\deg", "\\lim", "\\sum", "\\prod", "\\int"))
        or name == "arg"
        or (name in ("binom", "perm") and not inside)
        or (first.op == "apply" and (counts or (at_number and name[0] in _FUNCTIONS)))
        or (first.op == "pow" and first.args[0] == EULER and IMAGINARY in walk(first))  # \angle A
    ):
        return True
    names = _letters(side) - {"bar"}
    points = bool(names) and all(x[0].isupper() or len(x) > 1 for x in names)
    if first.op in ("call", "log", "apply") or name[-1:] == "^" or name.startswith(("bar ", "|")):
        return points
    plain = all(node.op in ("add", "mul", "div", "neg", "sym") for node in walk(side))
    return points and plain and len("".join(names)) > 1


def worked_out(equation: Form, other: Form) -> tuple[Form, ...] | None:
    """The sides of `(x + 2)(x - 5) = x^2 - 3x - 10` beside an expression; None if it is no such
    equation.

    It states its last side if all sides are the same, which the caller finds out.  No side may have
    a letter that the other form has not, unless that has none: such an equation is to be solved for
    that letter.

    Args:
        equation: a relation.
        other: the form beside it.
    """
    if not isinstance(equation, Quantity):
        return None
    if not isinstance(other, Quantity):  # -6 \pm 2 = 2(-3 \pm 1)
        are_lists = all(isinstance(side, Items) for side in (*equation.sides, other))
        return (equation.sides or None) if are_lists and "=" in equation.text else None
    tree = _tree(equation)
    if tree.op != "rel" or set(tree.value) != {"="}:
        return None
    others = free_symbols(_tree(other))
    is_solvable = others and not free_symbols(tree) <= others
    return None if is_solvable else equation.sides or None


def _tree(form: Form) -> Node:
    """The tree of a formula; of anything else one that says nothing."""
    return tree_or_none(form) or _NO_TREE


def ranking(form: Form) -> tuple[Form, ...] | None:
    """The names in `b < a < c`, in order; None for any other relation."""
    sides, tree = form.sides if isinstance(form, Quantity) else (), _tree(form)
    return sides if sides and tree.op == "rel" and {*tree.value} in ({"<"}, {">"}) else None


def in_coordinates(form: Form, other: Items) -> Items | None:
    """A point or a sum of unit vectors as coordinates, beside coordinates; None of anything
    else."""
    if other.kind not in _VECTORS:
        return None
    point = _point(form) if other.kind == "()" else None
    return point or components(form, len(vector(other)))


def _point(form: Form) -> Items | None:
    """`P(1, 2)` as the pair, which it is beside a pair."""
    if form.text[-1:] != ")" or form.text[1:].lstrip()[:1] != "(" or not form.text[0].isupper():
        return None
    tree = _tree(form)
    inside = tree.args[-1] if tree.op == "apply" else tree  # P(1, 2) and C(1, 2) are numbers too
    plain = inside.op in ("tuple", "call") and len(inside.args) > 1
    return pair("()", *map(built, inside.args)) if plain else None


def is_unsolved(form: Form) -> bool:
    """An inequality in one variable that has to be solved, such as `x^2 < 4`; the symbolic engine
    does it."""
    tree = _tree(form) if is_relation(form) else _NO_TREE
    return tree.op == "rel" and "=" not in tree.value and len(free_symbols(tree)) == 1


def components(form: Form, size: int) -> Items | None:
    r"""`\mathbf i + 2 \mathbf j` as the tuple (1, 2) of so many coordinates; None if it is no sum
    of unit vectors."""
    if not 2 <= size <= len(_AXES) or not isinstance(form, Quantity) or form.value is not None:
        return None
    tree = _tree(form)
    parts: dict[str, Quantity] = {}
    marks: set[bool] = set()
    for term in operands(tree, "add"):
        sign, product = (-1, term.args[0]) if term.op == "neg" else (1, term)
        *factors, axis = operands(product, "mul")
        name = str(axis.value)
        if axis.op not in ("sym", "const") or name[0] not in _AXES[:size] or name[0] in parts:
            return None
        if name[1:] not in ("", "^") or any(factor.op == "add" for factor in factors):
            return None
        marks.add(name[1:] == "^")
        number = built(Node("mul", tuple(factors)) if factors[1:] else [*factors, num(1)][0])
        parts[name[0]] = number if sign > 0 else negated(number)
    # 3 + 4i is a number; with a j it is a vector.  Two notations are none.
    if len(marks) != 1 or (marks == {False} and "j" not in parts):
        return None
    return pair("()", *(parts.get(axis, built(num(0))) for axis in _AXES[:size]))


def rename(form: Form, names: Mapping[str, str]) -> Form:
    """The form with other letters, all through but in words.

    Args:
        form: the form.
        names: the new letter of each.
    """
    match form:
        case Quantity(value=None) if tree := tree_or_none(form):
            sides = tuple(rename(side, names) for side in form.sides)
            return replace(form, text="", core="", sides=sides, tree=_rename(tree, names))
        case Items():
            return replace(form, text="", items=tuple(rename(item, names) for item in form.items))
        case Named():
            return Named("", _rename_words(form.name, names), rename(form.body, names))
    return form


def _rename_words(text: str, names: Mapping[str, str]) -> str:
    return _WORDS.sub(lambda word: names.get(word[0], word[0]), text)


def _rename(node: Node, names: Mapping[str, str]) -> Node:
    value = node.value
    if isinstance(value, str) and (node.op in ("sym", "const", "term") or node.op in BINDERS):
        value = _rename_words(value, names)
        if node.op in ("sym", "const"):
            return _CONSTANTS.get(value) or Node("sym", value=value)
    elif node.op in ("lim", "diff"):
        value = (names.get(value[0], value[0]), value[1])
    return Node(node.op, node.args, value).map(lambda part: _rename(part, names))


def imaginary_j(answer: Quantity, reference: Quantity) -> Form | None:
    """`3 + 4j` as `3 + 4i` beside a reference with i and no j; None if it is anything else."""
    mine, other = _tree(answer), _tree(reference)
    if free_symbols(mine) != {"j"} or "j" in free_symbols(other):
        return None
    only_there = IMAGINARY in walk(other) and IMAGINARY not in walk(mine)
    return rename(answer, {"j": "i"}) if only_there else None


def is_region(form: Form) -> bool:
    """`x < 2` states a set, and does not give x a value; nor is `\\vec n = (1, 2)` one."""
    if not isinstance(form, Named) or form.name.startswith(("\\vec", "\\overrightarrow")):
        return False
    return form_kind(form.body) in _INTERVALS


def may_be_several(form: Form) -> bool:
    r"""The symbolic engine may read it as more than one thing: `\{x : x < 3\}`."""
    return has(_tree(form), "builder", "set", "numbers")


def labels_bind(sequence: Items) -> bool:
    """Letters keep the order of their values, "y=10, x=1" is not "1, 10"; words such as "Minimum"
    have no order."""
    return any(
        isinstance(item, Named) and not (len(item.name) > 2 and item.name.isalpha())
        for item in sequence.items
    )


def in_alphabet(sequence: Items) -> Items:
    """`y = 2, x = 3` as `x = 3, y = 2`, which is its order as a pair."""
    names = [item.name if isinstance(item, Named) else "" for item in sequence.items]
    letters = "".join(sorted(names))
    # Only single letters that follow each other in the alphabet, such as x, y, z.
    if len(letters) != len(names) or letters not in "abcdefghijklmnopqrstuvwxyz":
        return sequence
    ordered = sorted(sequence.items, key=lambda item: item.name if isinstance(item, Named) else "")
    return replace(sequence, items=tuple(ordered))


def vector(matrix: Items) -> tuple[Form, ...]:
    """The cells of a single row or column; of a larger matrix the rows, which equal no tuple of
    numbers; the items of anything else."""
    if matrix.kind != "matrix":
        return matrix.items
    rows = [row.items for row in matrix.items if isinstance(row, Items)]
    if len(rows) == 1:
        return rows[0]
    return tuple(row[0] for row in rows) if all(len(row) == 1 for row in rows) else matrix.items


def in_proportion(a: Items, b: Items) -> Decision:
    """2:4:6 is 1:2:3."""
    x, y = (
        [Fraction(item.value or 0) for item in s.items if isinstance(item, Quantity)]
        for s in (a, b)
    )
    return judged(len(x) == len(y) and any(x) and are_parallel(x, y), "items")


def are_parallel(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
    """Whether the first is a multiple of the second, which is not 0: all cross products are
    compared, which needs no division by 0.

    Args:
        a, b: as many numbers each.
    """
    return any(b) and all(
        x * v == y * u for x, u in zip(a, b, strict=True) for y, v in zip(a, b, strict=True)
    )


def same_region(a: Form, b: Form) -> Decision | None:
    """Decided where all ends are exact numbers."""
    mine, reference_pieces = pieces(a), pieces(b)
    is_exact = mine is not None and reference_pieces is not None
    return judged(mine == reference_pieces, "set") if is_exact else None


def times(number: Quantity, size: Fraction, unit: str) -> Quantity:
    """An expression in another unit."""
    return replace(built(Node("mul", (num(size), tree_of(number)))), unit=unit)


def read_again(sequence: Items, other: Form) -> tuple[Form, Form] | None:
    """A list against a single thing: 1,234 may be two numbers, 1 hour and 30 minutes one, and {5}
    is 5."""
    if sequence.kind not in ("list", "set"):
        return None
    parts = [item for item in sequence.items if isinstance(item, Quantity)]
    is_whole = len(parts) == len(sequence.items) and isinstance(other, Quantity) and other.unit
    total = compound(sequence.text, parts) if is_whole else None
    if total:
        return total, other
    parts_of_other = _COMMA_OR_AND.split(other.text)
    starts_with_zero = any(len(part) > 1 and part[0] == "0" for part in parts_of_other)
    if len(parts_of_other) > 1 and has_exact_value(other) and not starts_with_zero:
        items = tuple(literal(part) or quantity(part) for part in parts_of_other)
        return sequence, Items(other.text, "list", items)
    return (sequence.items[0], other) if len(sequence.items) == 1 else None


def spread(form: Form, other: Form) -> Items | None:
    """`(x, y) = (1, 2)` as `x = 1, y = 2`, and `x = 1, 2` as `x = 1, x = 2`, where the other side
    has such names."""
    if not isinstance(form, Named) or not isinstance(form.body, Items):
        return None
    if not isinstance(other, Items) or not any(isinstance(item, Named) for item in other.items):
        return None
    names = form.name[1:-1].split(",") if form.name[:1] == "(" else []
    if form.body.kind == "list":
        names = [form.name] * len(form.body.items)
    if len(names) != len(form.body.items):
        return None
    named = (Named(item.text, n, item) for n, item in zip(names, form.body.items, strict=True))
    return Items(form.text, "list", tuple(named))


def without_indices(form: Form, other: Form) -> Items | None:
    """`x_1 = 2, x_2 = 3` as `2, 3` beside the values of x, or beside values without a name."""
    if not isinstance(form, Items) or form.kind != "list":
        return None
    named = [item for item in form.items if isinstance(item, Named)]
    if not named or len(named) < len(form.items):
        return None
    letter = other.name if isinstance(other, Named) else named[0].name.partition("_")[0]
    is_indexed = all(item.name.startswith(f"{letter}_") for item in named)
    return Items(form.text, "list", tuple(item.body for item in named)) if is_indexed else None


def renamed_inverse(form: Named, other: Form) -> Form | None:
    """The body of `f^{-1}(y) = y - 1` in the one letter of an expression; None for another name."""
    head, variables = _head(name_tree(form))
    if head.op != "pow" or head.args[1] != _MINUS_ONE or not isinstance(other, Quantity):
        return None
    mine, names = (free_symbols(_tree(side)) for side in (form.body, other))
    if not len(names) == len(variables) == 1 or mine != {*variables} or mine == names:
        return None
    return rename(form.body, dict(zip(variables, names, strict=True)))


def renamed_function(form: Named, other: Named) -> Named | None:
    """`f(m) = 2m` as `f(n) = 2n`; None if the names differ in more than the bound variable, or n is
    taken."""
    names = name_tree(form), name_tree(other)
    (mine, old), (head, new) = map(_head, names)
    graph = any(arg in names for name in names for arg in name.args[:-1])
    is_graph = "y" in (form.name, other.name) and any(
        name.endswith("(x)") for name in (form.name, other.name)
    )
    if is_graph or (graph and mine == head):
        return form  # the graph of f, and y(x) for y
    if not old or mine != head or len(old) != len(new):
        return None
    if {*new}.difference(old) & letters(form.body):
        return None
    return Named("", other.name, rename(form.body, dict(zip(old, new, strict=True))))


def _head(name: Node) -> tuple[Node, list[str]]:
    """f and the letters of `f(m, n)`, a and the index of `a_n`; else the name, and no letters."""
    if indexed := _INDEXED.fullmatch(str(name.value)):
        return sym(indexed[1]), indexed[2].split(",")
    if name.op == "apply" or (name.op == "mul" and name.args[0].args[1:] == (_MINUS_ONE,)):
        head, inside = name.args
        variables = inside.args or (inside,)
        if all(variable.op == "sym" for variable in variables):
            return head, [variable.value for variable in variables]
    return name, []
