r"""Equality of what the parser reads: expressions, equations, inequalities, sets of real numbers,
tuples.

Answer and reference may change places, but for two things: an answer has a value wherever its
reference has one, and it has to be solved: x = 2, 3 answers x^2 - 5x + 6 = 0, and not the other way
round.

    expressions      by their values                                               probing.py
    equations        x + y = 3 is 2x + 2y = 6: up to a factor that is a number other than 0
    inequalities     the same, and a negative factor turns the sign; chains side by side
    sets             as unions of intervals and points                             realsets.py
    tuples, lists    item by item, lists and sets in any order
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce

from rlvr.verifiers.math import boolean, probing, realsets
from rlvr.verifiers.math.latex.indexed import resolve_indices
from rlvr.verifiers.math.latex.roles import settle_roles
from rlvr.verifiers.math.latex.tree import (
    IMAGINARY,
    INFINITY,
    PI,
    TURNED,
    Node,
    TooLarge,
    Unreadable,
    call,
    free_symbols,
    has,
    minus,
    neg,
    num,
    operands,
    replace_part,
    sym,
    unsigned,
    walk,
)
from rlvr.verifiers.math.latex.values import Undefined

__all__ = ["OF_TERMS", "same", "same_operation"]

# Letters that customarily count: k\pi and n\pi are then the same family.
_PARAMETERS = frozenset("k n m l j ell".split())
# C, c, C_1: constants of integration of a reference.  An answer may choose more letters for its
# own.
_ARBITRARY = re.compile(r"[Cc](?:_\{[0-9]\})?")
_ARBITRARY_IN_ANSWER = re.compile(r"[ABCDKRabck]|[CKck](?:_\{[0-9]\})|phi|delta|alpha")
_BESIDE_C = frozenset("ABDK")
_MOST_PAIRS = 2500


def same(a: Node, b: Node) -> bool:
    """Hold one tree against another, the answer's first.

    Raises:
        Undefined: a side has no value.
        TooLarge, Unreadable: see `latex.tree`.
    """
    return _same(*_with_matrices(*settle_roles(a, b)))


def _with_matrices(a: Node, b: Node) -> tuple[Node, Node]:
    r"""(AB)^T and B^TA^T, (AB)^{-1}: capital letters as matrices, since such products have an
    order.

    Two expressions that agree for matrices of numbers out of a hash agree for all, but for a chance
    as of other points.
    """
    nodes = [*walk(a), *walk(b)]
    names = {node.value for node in nodes if node.op == "sym"}
    # Capital letters are matrices only where one is transposed, or inverted beside another one.
    turned = any(node.op == "transpose" and free_symbols(node) for node in nodes)
    inverse = any(node.op == "pow" and node.args[1] in _MINUS_ONE for node in nodes)
    divided = any(node.op == "div" for node in nodes)
    if not (turned or (inverse and not divided and len(names) > 1 and names <= _MATRICES)):
        return a, b
    for name in names:
        if name[0].isupper():
            digest = hashlib.sha256(name.encode("utf-8", "replace")).digest()
            # 2 × 2 is the smallest size at which products do not commute.
            cells = [
                num(Fraction(digest[at] * 256 + digest[at + 1] + 1, 64)) for at in range(0, 8, 2)
            ]
            # I is the identity, whatever its hash.
            matrix = Node("matrix", tuple(cells if name != "I" else map(num, (1, 0, 0, 1))), (2, 2))
            a, b = _put(a, name, matrix), _put(b, name, matrix)
    return a, b


_MINUS_ONE = (num(-1), neg(num(1)))
_MATRICES = frozenset("ABCDMPQXI")


def _same(a: Node, b: Node) -> bool:
    a, b = map(resolve_indices, (a, b))
    a, b = _in_units(a, b), _in_units(b, a)
    if a.op == b.op == "rel":
        return _relations(a, b)
    if boolean.is_boolean(a) or boolean.is_boolean(b):
        return boolean.same_truth(*(boolean.as_logic(side) or side for side in (a, b)))
    if a.op == b.op == "congruent":
        return _congruences(a, b)
    if realsets.is_set(a) or realsets.is_set(b):
        return _sets(a, b)
    if "tuple" in (a.op, b.op) and {a.op, b.op} <= {"tuple", "matrix"}:
        return _in_order(a, b)
    if {a.op, b.op} <= {"list", "set"}:
        return _in_any_order(a.args, b.args)
    # A list, a set or a plain tuple beside a number is another kind of thing.
    return not any(
        side.op in ("list", "set", "congruent")
        # 2(1, 3) is (2, 6), but no tuple is a number.
        or (side.op == "tuple" and not has(opposite, "tuple", "matrix"))
        for side, opposite in ((a, b), (b, a))
    ) and _expressions(a, b)


_UNIT_VECTORS = (sym("i^"), sym("j^"), sym("k^"))
_PLAIN_UNIT_VECTORS = (IMAGINARY, sym("j"), sym("k"))


def _in_units(vector: Node, other: Node) -> Node:
    r"""\mathbf{i} + 2\mathbf{j} as (1, 0) + 2(0, 1) where the other side is a tuple or a column."""
    # Only beside a vector of 2 or 3 entries: elsewhere i and j are numbers or letters.
    if has(vector, "tuple", "matrix") or not _is_vector(other) or len(other.args) not in (2, 3):
        return vector
    inside = set(walk(vector))
    for units, telling in ((_UNIT_VECTORS, _UNIT_VECTORS), (_PLAIN_UNIT_VECTORS, (sym("j"),))):
        if not inside.isdisjoint(telling):  # 3 + 4i is a number
            for at, unit in enumerate(units[: len(other.args)]):
                cells = tuple(num(int(at == place)) for place in range(len(other.args)))
                vector = replace_part(vector, unit, Node("tuple", cells, "()"))
            return vector
    return vector


def _is_vector(node: Node) -> bool:
    return (node.op == "tuple" and node.value == "()") or (
        node.op == "matrix" and node.value[1] == 1
    )


# -------------------------------------------------------------------------------------- expressions


def same_operation(a: Node, b: Node) -> bool:
    r"""Whether both are one endless sum or product, or one integral between ends, of terms that are
    equal at each index: \sum_{n\ge1} x^n/n and \sum_{k\ge0} x^{k+1}/(k+1).

    It needs no value of them.  A factor in front counts as one of each term.
    """
    a, b = _with_factor_inside(a), _with_factor_inside(b)
    if a.op != b.op or a.op not in OF_TERMS or not len(a.args) == len(b.args) == 3:
        return False
    (body, *ends), (other, *other_ends) = a.args, b.args
    index = sym(a.value)
    if a.op != "int":
        if not ends[1] == other_ends[1] == INFINITY or not ends[0].op == other_ends[0].op == "num":
            return False
        # the terms of both are counted from the same start
        index = Node("add", (index, num(other_ends[0].value - ends[0].value)))
        ends = other_ends
    if a.value != b.value and a.value in free_symbols(other):
        return False
    try:
        same_ends = all(map(probing.equal, ends, other_ends))
        return same_ends and probing.equal(body, _put(other, b.value, index))
    except (Undefined, TooLarge):
        return False


OF_TERMS = frozenset(("sum", "prod", "int"))
"""What may be compared term by term."""


def _with_factor_inside(node: Node) -> Node:
    r"""2\int f as \int 2f."""
    inner = [arg for arg in node.args if arg.op in ("sum", "int")] if node.op == "mul" else []
    if len(inner) != 1:
        return node
    [operation] = inner
    body, *ends = operation.args
    outside = Node("mul", tuple(arg for arg in node.args if arg is not operation))
    if operation.value in free_symbols(outside):
        return node
    product = Node("mul", (*outside.args, body))
    return Node(operation.op, (product, *ends), operation.value)


def _expressions(a: Node, b: Node) -> bool:
    if same_operation(a, b):
        return True
    for name in {node.value for node in (*walk(a), *walk(b)) if _is_primitive(node)}:
        rate, other_rate = _derivative(a, name), _derivative(b, name)
        if rate and other_rate:
            # x^2 + y has the derivative of x^2 + C.
            others = free_symbols(a) ^ free_symbols(b)
            return (
                all(map(_ARBITRARY_IN_ANSWER.fullmatch, others))
                and _has_same_constant(a, b)
                and probing.equal(rate, other_rate)
            )
    # By values first: what follows is for letters that may be renamed.
    if probing.equal(a, b):
        return True
    renamed = _rename_variable(a, b)
    if renamed is not None and _multiples(a, b, *renamed):
        return True
    if _with_other_constants(a, b):
        return True
    left, right = _without_constant(a), _without_constant(b)
    # C is dropped on both sides; what is left must differ by a constant.
    return bool(left and right and "C" in (left[0], right[0]) and probing.shift(left[1], right[1]))


def _is_primitive(node: Node) -> bool:
    return node.op == "int" and len(node.args) == 1


def _has_same_constant(a: Node, b: Node) -> bool:
    """x^2 + 7 is neither x^2 + C nor x^2, to which C may be added."""
    constants = _without_constant(a), _without_constant(b)
    if None not in constants:
        return True
    return constants[1] is None and probing.equal(*map(_constant_terms, (a, b)))


def _constant_terms(node: Node) -> Node:
    terms = node.args if node.op == "add" else ()
    return Node("add", (num(0), *(term for term in terms if not free_symbols(term))))


def _derivative(node: Node, name: str) -> Node | None:
    """Without the integral sign where that stands before a term; None where it stands elsewhere."""
    node = _with_factor_inside(node)
    if _is_primitive(node) and node.value == name:
        return node.args[0]
    if not any(map(_is_primitive, walk(node))):
        return Node("diff", (node,), (name, 1))
    terms = [_derivative(arg, name) for arg in node.args] if node.op in ("add", "neg") else []
    rates = tuple(filter(None, terms))
    return Node(node.op, rates) if len(rates) == len(node.args) else None


def _rename_variable(a: Node, b: Node) -> tuple[str, str] | None:
    r"""k\pi and n\pi: the one variable that only the left side has, and the one that only the right
    side has."""
    left, right = free_symbols(a) - free_symbols(b), free_symbols(b) - free_symbols(a)
    if not left and not right:
        # One shared counting letter may run through the same numbers from another start.
        shared = [name for name in free_symbols(a) if name in _PARAMETERS]
        return (shared[0], shared[0]) if len(shared) == 1 else None
    if len(left) == len(right) == 1 and left | right <= _PARAMETERS:
        return min(left), min(right)
    return None


def _multiples(a: Node, b: Node, left: str, right: str) -> bool:
    r"""True if both run through the same numbers start + step k for whole k, and that is plainly
    what is meant.

    It is where the step is a multiple of pi or of degrees and nothing else varies: \pi/4 + k\pi is
    -3\pi/4 + n\pi. But n\pi could be a formula, and then (n+1)\pi is another: only k, or a start of
    its own, tells of a family.
    """
    if free_symbols(a) != {left} or free_symbols(b) != {right}:
        return False
    mine, others = _progression(a, left), _progression(b, right)
    if mine is None or others is None:
        return False
    (start_a, step_a), (start_b, step_b) = mine, others
    # The step may run backwards: k runs through all whole numbers.
    if not (probing.equal(step_a, step_b) or probing.equal(step_a, neg(step_b))):
        return False
    turns = Node("div", (minus(start_a, start_b), step_a))
    if probing.equal(turns, num(0)):
        return True
    family = "k" in (left, right) or (a.op == b.op == "add")
    return family and probing.equal(turns, call("floor", Node("add", (turns, num(Fraction(1, 2))))))


def _progression(node: Node, name: str) -> tuple[Node, Node] | None:
    """Start and step of what is linear in the variable, with pi or degrees in the expression."""
    if not has(node, "deg") and PI not in walk(node):
        return None
    # At 0, 1, 2 and 5: a line through the first two must meet the others.
    start, *at = [_put(node, name, num(integer)) for integer in (0, 1, 2, 5)]
    step = minus(at[0], start)
    linear = [Node("add", (start, Node("mul", (num(integer), step)))) for integer in (0, 2, 5)]
    moves, *on_it = map(probing.equal, linear, (at[0], *at[1:]))
    return (start, step) if all(on_it) and not moves else None


def _with_other_constants(a: Node, b: Node) -> bool:
    r"""A e^x + B e^{-x} for C_1\cosh x + C_2\sinh x: both run through the same functions."""
    reference_constants = sorted(name for name in free_symbols(b) if _ARBITRARY.fullmatch(name))
    if reference_constants:  # beside a C, other capital letters are constants too
        reference_constants = sorted({*reference_constants, *(free_symbols(b) & _BESIDE_C)})
    variables = sorted(free_symbols(b) - {*reference_constants})
    own_letters = free_symbols(a).difference(variables)
    mine = sorted(name for name in own_letters if _ARBITRARY_IN_ANSWER.fullmatch(name))
    if (
        # Three at most: the determinant has a factorial of terms.
        not 1 <= len(reference_constants) == len(mine) <= 3
        or (reference_constants == mine and len(mine) == 1)
        or {*mine, *variables} != free_symbols(a)
    ):
        return False
    if not _are_factors(b, reference_constants):
        return False
    other_start, *basis = _basis(b, reference_constants)
    if wave := _wave(a, mine):
        # Whatever its phase is, it is one of the reference's, and two of them are independent.
        own_basis = [_put(wave[0], wave[1], sym(f"phase {n}")) for n in (1, 2)]
        within = all(_are_dependent((vector, *basis), variables) for vector in own_basis)
        return within and not _are_dependent(own_basis, variables)
    if not _are_factors(a, mine):
        return False
    start, *own_basis = _basis(a, mine)
    gap = minus(start, other_start)
    # Each function of the answer is one of the reference's, and so is the difference at constants
    # 0.
    within = all(_are_dependent((vector, *basis), variables) for vector in (gap, *own_basis))
    # Its own functions must be independent, or C_1 x + C_2 x would answer C_1 x + C_2 x^2.
    return within and not _are_dependent(own_basis, variables)


def _wave(node: Node, names: Sequence[str]) -> tuple[Node, str] | None:
    """`cos(2x + B)` and B, of `A cos(2x + B)`; None of anything else."""
    factors = node.args if node.op == "mul" and len(names) == 2 else ()
    waves = [f for f in factors if f.op == "call" and f.value in ("sin", "cos")]
    if len(factors) != 2 or len(waves) != 1 or waves[0].args[0].op != "add":
        return None
    amplitude = next(factor for factor in factors if factor is not waves[0])
    terms = map(unsigned, waves[0].args[0].args)
    phases = [term.value for term in terms if term.op == "sym" and term.value in names]
    is_wave = len(phases) == 1 and {amplitude, sym(phases[0])} == {*map(sym, names)}
    return (waves[0], phases[0]) if is_wave else None


def _basis(node: Node, constants: Sequence[str]) -> list[Node]:
    """What is left where all constants are 0, and what each of them is a factor of."""
    start = reduce(lambda tree, name: _put(tree, name, num(0)), constants, node)
    alone = [
        reduce(lambda tree, name: _put(tree, name, num(int(name == chosen))), constants, node)
        for chosen in constants
    ]
    return [start, *(minus(tree, start) for tree in alone)]


def _are_dependent(functions: Sequence[Node], variables: Sequence[str]) -> bool:
    """Their determinant at as many points is 0, wherever these are; written out, for the sizes of
    its terms count."""
    size = range(len(functions))
    places = [
        [
            reduce(lambda tree, name: _put(tree, name, sym(f"{name} {at}")), variables, function)
            for function in functions
        ]
        for at in size
    ]
    sides = [num(0)], [num(0)]
    for order in itertools.permutations(size):
        odd = sum(order[i] > order[j] for i, j in itertools.combinations(size, 2)) % 2
        # Leibniz's formula: even permutations on one side, odd ones on the other.
        sides[odd].append(Node("mul", tuple(places[at][order[at]] for at in size)))
    return probing.equal(*(Node("add", tuple(terms)) for terms in sides))


def _are_factors(node: Node, names: Sequence[str]) -> bool:
    """Each name stands once, as a factor of a term that has a variable too; a sum may have one as a
    term."""
    factors_found: list[str] = []
    for term in operands(node, "add"):
        factors = _factors(unsigned(term))
        own_factors = [
            factor.value for factor in factors if factor.op == "sym" and factor.value in names
        ]
        everywhere = [below for below in walk(term) if below.op == "sym" and below.value in names]
        if len(own_factors) > 1 or len(everywhere) != len(own_factors):
            return False
        factors_found += own_factors
    return sorted(factors_found) == sorted(names) and len(free_symbols(node)) > len(names)


def _without_constant(node: Node) -> tuple[str, Node] | None:
    r"""x^2 for x^2 + C and \ln x for \ln Cx, where C stands nowhere else; some write c or K."""
    for term in map(unsigned, operands(node, "add")):
        inside = _logarithm(term)
        neutral = num(0) if inside is None else num(1)
        for part in (term,) if inside is None else _factors(inside)[:1]:
            if part.op == "sym" and part.value in ("C", "c", "K"):
                once = sum(below == part for below in walk(node)) == 1
                return (part.value, _put(node, part.value, neutral)) if once else None
    return None


def _logarithm(term: Node) -> Node | None:
    """What a logarithm is of, that stands alone or behind a number."""
    log = term.args[-1] if term.op == "mul" and not free_symbols(term.args[0]) else term
    if log.op != "call" or log.value not in ("ln", "log") or len(term.args) > 2:
        return None
    inside = log.args[0]
    return inside.args[0] if inside.op == "call" and inside.value == "abs" else inside


def _factors(node: Node) -> Sequence[Node]:
    above = node.args[0] if node.op == "div" else node
    return operands(above, "mul")


# ---------------------------------------------------------------------------------------- relations


def _relations(a: Node, b: Node) -> bool:
    if "in" in a.value + b.value:
        return a.value == b.value == ("in",) and all(map(_same, a.args, b.args))
    if not set(a.value) | set(b.value) <= TURNED.keys():
        raise Unreadable("relations other than of size")
    if len(a.value) != len(b.value):
        return False
    if len(a.value) > 1:
        return _chains(a, b)
    # Both gaps are multiples of each other: the factor's sign says whether < turns.
    sign = probing.ratio(_gap(a), _gap(b))
    [left], [right] = a.value, b.value
    if sign:
        return bool(left == (right if sign > 0 or right in ("=", "ne") else TURNED[right]))
    # An answer may be solved where the reference is a condition, and not the other way round.
    if (
        realsets.is_condition(b)
        and not realsets.is_condition(a)
        and free_symbols(a) == free_symbols(b)
    ):
        return realsets.same_set(a, b)
    return left == right == "=" and _agree_cleared(a, b)


def _agree_cleared(a: Node, b: Node) -> bool:
    """xy = 1 and y = 1/x: the same numerators, and where a denominator vanishes neither equation
    has a solution."""
    (above_a, below_a), (above_b, below_b) = (_over_one(_gap(side)) for side in (a, b))
    if below_a == below_b or not probing.ratio(above_a, above_b):
        return False
    return all(
        _never_zero(above, factor) for above in (above_a, above_b) for factor in below_a + below_b
    )


def _never_zero(above: Node, factor: Node) -> bool:
    """Where this variable is 0 the numerator is one and the same number, and another one."""
    if factor.op == "pow" and not free_symbols(factor.args[1]):
        factor = factor.args[0]
    if factor.op != "sym":
        return not free_symbols(factor)
    at_zero = _put(above, factor.value, num(0))
    return probing.ratio(at_zero, num(1)) != 0


def _over_one(node: Node) -> tuple[Node, tuple[Node, ...]]:
    """One fraction: its numerator, and the factors of its denominator that are no numbers."""
    if node.op == "div":
        (above, factors), (below, under) = map(_over_one, node.args)
        if under:
            return node, ()
        return above, (*factors, *operands(below, "mul"))
    if node.op == "neg":
        above, factors = _over_one(node.args[0])
        return neg(above), factors
    if node.op not in ("add", "mul"):
        return node, ()
    parts = list(map(_over_one, node.args))
    factors = tuple(factor for _, below in parts for factor in below)
    if node.op == "mul":
        return Node("mul", tuple(above for above, _ in parts)), factors
    terms = (
        Node("mul", (above, *(f for _, below in parts[:at] + parts[at + 1 :] for f in below)))
        for at, (above, _) in enumerate(parts)
    )
    return Node("add", tuple(terms)), factors


def _gap(relation: Node) -> Node:
    return minus(*relation.args)


def _chains(a: Node, b: Node) -> bool:
    # 3 > x > 1 as 1 < x < 3.
    if a.value != b.value:
        b = Node("rel", b.args[::-1], tuple(TURNED[sign] for sign in b.value[::-1]))
    return a.value == b.value and all(map(_same, a.args, b.args))


def _congruences(a: Node, b: Node) -> bool:
    """The same modulus and residue, of which one has letters; `residues.py` has the others."""
    if not _same(a.args[1], b.args[1]):
        return False
    sides = a.args[0], b.args[0]
    relations = [side for side in sides if side.op == "rel"]
    if len({relation.args[0] for relation in relations}) > 1:
        return False
    if any(relation.value != ("equiv",) for relation in relations):
        return False
    residues = [side.args[1] if side.op == "rel" else side for side in sides]
    return any(map(free_symbols, residues)) and probing.equal(*residues)


def _solves_to(equation: Node, value: Node) -> bool:
    r"""\rho\sin\theta = \sqrt3 against \sqrt3\csc\theta: the equation says no more than \rho =
    \sqrt3\csc\theta.

    So it is where it is linear in the one variable that the value does not have.
    """
    [name, *other_names] = free_symbols(equation) - free_symbols(value) or [""]
    if equation.value != ("=",) or other_names or not name or not free_symbols(value):
        return False
    gap = _gap(equation)
    moved = [_put(gap, name, Node("add", (value, num(by)))) for by in (0, 1, -1)]
    linear = probing.equal(Node("add", (moved[1], moved[2])), num(0))
    # Zero at the value, and not zero beside it: the equation says what the letter is.
    return linear and probing.equal(moved[0], num(0)) and not probing.equal(moved[1], num(0))


def _put(node: Node, name: str, value: Node) -> Node:
    return replace_part(node, sym(name), value)


# ------------------------------------------------------------------------------- sets and sequences


def _sets(a: Node, b: Node) -> bool:
    for region, value in ((a, b), (b, a)):
        # A single number beside a set: the set may be an equation that says it.
        if not realsets.is_set(value) and value.op not in ("tuple", "set", "list"):
            return region.op == "rel" and _solves_to(region, value)
    return realsets.same_set(a, b)


def _in_order(a: Node, b: Node) -> bool:
    if len(a.args) != len(b.args) or (a.op == b.op == "matrix" and a.value != b.value):
        return False
    # (1, 2] and [1, 2) have the same ends and are other intervals.
    if a.op == b.op == "tuple" and a.value != b.value and len(a.args) == 2:
        return False
    if any(side.op == "matrix" and 1 not in side.value for side in (a, b)):
        return False
    return all(map(_same, a.args, b.args))


def _in_any_order(a: Sequence[Node], b: Sequence[Node]) -> bool:
    """Each item has its like; equality is transitive, so the first like will do."""
    if len(a) * len(b) > _MOST_PAIRS:
        raise Unreadable("a list that is too long to compare in any order")
    # Both ways: {1, 1, 2} and {1, 2, 3} would pass one of them.
    return all(any(_same(x, y) for y in b) for x in a) and all(
        any(_same(x, y) for x in a) for y in b
    )
