r"""Variables with an index that varies, such as a_i in a sum, and the terms that dots stand for.

    \sum_{i=1}^n a_{i+1}  →  sum over #0 of the terms a_{#0+1} from 1 to n
    a_k + a_{k-1} + … + a_0  →  sum over #0 of the terms a_{k-#0} from 0 to k

Dots are read only between terms whose numbers or indices grow by equal steps; the terms of 1, 2, 4,
…, 64 are not guessed.
"""

from __future__ import annotations

from flint import fmpq

from rlvr.verifiers.math.latex.lexer import Token, tokens
from rlvr.verifiers.math.latex.numeric import Evaluation
from rlvr.verifiers.math.latex.parser import Parser
from rlvr.verifiers.math.latex.tree import (
    Node,
    TooLarge,
    Unreadable,
    free_symbols,
    minus,
    num,
    sym,
)
from rlvr.verifiers.math.latex.values import Number, Undefined, is_exact

__all__ = ["resolve_indices"]

_DOTS = sym("…")
_LISTS = frozenset(("list", "set", "tuple"))
_MOST_MEMBERS = 50
_SERIES = {"add": "sum", "mul": "prod"}
_POINTS = (
    fmpq(17),
    fmpq(31),
)  # where two formulas for an index are compared; whole, as indices are


def resolve_indices(node: Node, depth: int = 0) -> Node:
    """The tree with terms in its sums for variables with their index, and sums for its dots.

    Raises:
        Unreadable: dots between what does not go on by equal steps.
    """
    if node == _DOTS:
        raise Unreadable("dots")
    series = node.op in ("sum", "prod")
    if series:
        # `#0` cannot be written by an answer, so that \sum_i a_i and \sum_k a_k are one.
        index = f"#{depth}"
        body = _with_index(node.args[0], node.value, sym(index))
        node = Node(node.op, (body, *node.args[1:]), index)
    if node.op in _SERIES and node.args.count(_DOTS) == 1:
        node = _without_dots(node, f"#{depth}")
        series = True
    elif node.op in _LISTS and node.args.count(_DOTS) == 1:
        node = _written_out(node)
    return node.map(lambda part: resolve_indices(part, depth + series))


# -------------------------------------------------------------------------------------------- terms


def _with_index(node: Node, name: str, index: Node) -> Node:
    """The body of a sum with its index renamed, also where that stands in a subscript."""
    if node == sym(name):
        return index
    subscripts = _subscripts(node) if node.op == "sym" else ()
    if any(name in free_symbols(subscript) for subscript in subscripts):
        return Node("term", tuple(_with_index(s, name, index) for s in subscripts), _base(node))
    return node.map(lambda part: _with_index(part, name, index))


def _base(node: Node) -> str:
    return str(node.value).partition("_{")[0]


def _subscripts(node: Node) -> tuple[Node, ...]:
    """a_{i+1} has one, a_{ij} and a_{i,j} have two."""
    text = str(node.value).partition("_{")[2][:-1]
    token_list = tokens(text)[:-1]
    try:
        if any(token.text in ("+", "-", "*") for token in token_list):
            return (_read(token_list),)
        return tuple(_read([token]) for token in token_list if token.text != ",")
    except Unreadable:
        return ()


def _read(found: list[Token]) -> Node:
    parser = Parser([])
    parser.bound = ["i", "e"]  # indices, and no constants
    return parser.inner(found)


# --------------------------------------------------------------------------------------------- dots


def _without_dots(node: Node, index: str) -> Node:
    """Two terms before the dots and one behind them, or one on each side, as the ends of a sum."""
    at = node.args.index(_DOTS)
    before, after = node.args[:at], node.args[at + 1 :]
    if not before or not after:
        raise Unreadable("dots without an end")
    # 1 + 2 + … + n: the step is known from two terms.  a_1 + … + a_n has one, which counts by ones.
    for count in (2, 1):
        if len(before) >= count and (run := _run(before[-count:], after[0], index)):
            start = at - count
            # Terms before the pair that fit the same run belong to it: 1 + 2 + 3 + … + n.
            while start and (longer := _run(before[start - 1 : start + 1], after[0], index)):
                run = longer
                start -= 1
            series = Node(_SERIES[node.op], run, index)
            return Node(node.op, (*before[:start], series, *after[1:]))
    raise Unreadable("dots between what does not go on by equal steps")


def _written_out(node: Node) -> Node:
    r"""\{1, 2, \ldots, 10\} with all its members."""
    at = node.args.index(_DOTS)
    before, after = node.args[:at], node.args[at + 1 :]
    run = _run(before[-2:], after[0], "#") if len(before) > 1 and after else None
    count = _values(run[2]) if run else None
    # The count must be the same at all points; else the list ends at a letter.
    if run is None or count is None or len(set(count)) > 1 or not 0 < count[0] <= _MOST_MEMBERS:
        raise Unreadable("dots in a list without an end")
    # From 2 on, as the two that were shown are members already.
    members = [_with_index(run[0], "#", num(index)) for index in range(2, int(count[0]))]
    return Node(node.op, (*before, *members, *after), node.value)


def _run(shown: tuple[Node, ...], last: Node, index: str) -> tuple[Node, Node, Node] | None:
    """The general term and the range of its index."""
    holes: list[tuple[Node, ...]] = []
    _merge_terms((*shown, last), holes, index, [])
    # Each place where the terms differ has a step of its own; all must count to the same end.
    steps = [_step(hole) for hole in holes]
    if not holes or not all(steps):
        return None
    counts = [
        Node("div", (minus(hole[-1], hole[0]), num(step)))
        for hole, step in zip(holes, steps, strict=True)
    ]
    ends = set(map(_values, counts))
    if len(ends) > 1 or None in ends:
        return None
    return _merge_terms((*shown, last), [], index, steps), num(0), counts[0]


def _step(hole: tuple[Node, ...]) -> int:
    """How far the index goes from one term to the next; 0 if that cannot be told."""
    if len(hole) == 2:  # a_1 + … + a_n goes up, a_n + … + a_1 down
        first, last = (free_symbols(end) for end in hole)
        return 1 if last and not first else -1 if first and not last else 0
    # A step that is the same at both points is a number, and no formula with letters.
    differences = set(_values(minus(hole[1], hole[0])) or ())
    step = differences.pop() if len(differences) == 1 else fmpq(0)
    # Indices go on by whole steps: with 1/2 the n-th term would lie between them.
    return int(step) if step.denominator == 1 else 0


def _values(node: Node) -> tuple[Number, ...] | None:
    points = (dict.fromkeys(free_symbols(node), point) for point in _POINTS)
    try:
        values = tuple(Evaluation(point, real=True).number(node) for point in points)
    except (Undefined, TooLarge, Unreadable):
        return None
    return values if all(map(is_exact, values)) else None


def _merge_terms(
    terms: tuple[Node, ...], holes: list[tuple[Node, ...]], index: str, steps: list[int]
) -> Node:
    """What the terms have in common; where they differ is a hole, filled with the n-th step if the
    steps are known."""
    first = terms[0]
    if all(term == first for term in terms):
        return first
    if all(term.op == "sym" for term in terms) and len(set(map(_base, terms))) == 1:
        subscripts = list(map(_subscripts, terms))
        if all(subscripts) and len(set(map(len, subscripts))) == 1:
            columns = zip(*subscripts, strict=True)
            parts = tuple(_merge_terms(part, holes, index, steps) for part in columns)
            return Node("term", parts, _base(first))
    terms = _as_powers(terms)
    if len({(term.op, str(term.value), len(term.args)) for term in terms}) == 1 and terms[0].args:
        columns = zip(*(term.args for term in terms), strict=True)
        args = tuple(_merge_terms(part, holes, index, steps) for part in columns)
        return Node(terms[0].op, args, terms[0].value)
    holes.append(terms)
    step = num(steps[len(holes) - 1]) if steps else num(0)
    return Node("add", (terms[0], Node("mul", (step, sym(index)))))


def _as_powers(terms: tuple[Node, ...]) -> tuple[Node, ...]:
    """x, x^2, …, x^n: the first is x^1."""
    bases = {term.args[0] for term in terms if term.op == "pow"}
    if len(bases) != 1 or not all(term.op == "pow" or term in bases for term in terms):
        return terms
    return tuple(term if term.op == "pow" else Node("pow", (term, num(1))) for term in terms)
