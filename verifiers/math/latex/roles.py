r"""Is a letter before brackets a function or a factor?  It has one role in a pair of expressions.

    f(a+b), E(X^2), \Phi(-x), P(A)      customary names are functions of which nothing is known
    x(x+1), n(n+1)/2, a(b+c)            any other letter is a factor
    u(x+1) against u(x)+u(1)            unless it stands only before brackets, around one sign,
                                        and around others on the other side

The parser leaves the question open: `apply` holds the letter and what stands in the brackets.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from rlvr.verifiers.math.latex.tree import BINDERS, Node, call, free_symbols, has, sym, walk

__all__ = ["free_letters", "may_apply", "settle_roles"]

# × is the cross product, which the parser makes an application of.
_ALWAYS = frozenset("× f Phi Gamma zeta Var Cov Pr".split())
_MOSTLY = frozenset("F g G P E".split())
"""Functions, unless the same letter also stands alone and all brackets behind it hold sums:
P(1+r) and P + Pr."""
_OFTEN = frozenset("h H mu sigma tau phi psi Psi".split())
"""Functions, unless all brackets behind it hold sums: h(a+b)/2 is an area."""
# Capital letters in their brackets are events: P(A) is no product although P may stand alone.
_OF_EVENTS = frozenset("PE")
_SQUARE = frozenset(("E", "P", "Pr", "Var", "Cov"))
"""E[X]."""
_INTERPRETED = {"Gamma": "gamma"}


def may_apply(head: Node, bracket: str) -> bool:
    r"""True if brackets behind this may hold its argument: f, f', u_1, f^{-1}, f + g in
    brackets."""
    if bracket == "[":
        # E[X]; other square brackets hold a factor.
        return head.op == "sym" and _letter(head) in _SQUARE
    if bracket != "(":
        return False
    if head.op == "sym":
        # … (x) is a gap in a sum and no function.
        return bool(head.value != "…")
    return head.op in ("pow", "add", "mul", "div", "compose") and _of_functions(head)


def _of_functions(head: Node) -> bool:
    if head.op == "pow":
        # f^{-1}(x) and f^2(x); x^2(x-16) is a product.
        return head.args[0].op == "sym" and _letter(head.args[0]) in _ALWAYS | _MOSTLY | _OFTEN
    names = free_symbols(head)
    return (
        bool(names) and names <= {"f", "g", "h", "F", "G"} and not has(head, "pow", "apply", "call")
    )


def settle_roles(a: Node, b: Node) -> tuple[Node, Node]:
    """Both trees with one role for each letter."""
    if not (has(a, "apply") or has(b, "apply")):
        return a, b
    functions = _functions(a, b)
    return _with_roles(a, functions), _with_roles(b, functions)


def _functions(a: Node, b: Node) -> frozenset[str]:
    nodes = [*walk(a), *walk(b)]
    # The index of a sum is a number, and k(k+1) in it a product.
    bound = {
        n.value[0] if n.op in ("lim", "diff") else n.value
        for n in nodes
        if n.op in BINDERS or n.op == "diff"
    }
    # n(n+1) and n: a letter that also stands alone is a factor, but for the customary functions.
    alone = [frozenset(free_letters(side)) for side in (a, b)]
    arguments = [_arguments(side) for side in (a, b)]
    functions = set()
    for name in (arguments[0].keys() | arguments[1].keys()) - bound:
        mine, others = brackets = [inside.get(name, frozenset()) for inside in arguments]
        # k(7) is no 7k: a letter that stands before numbers and nowhere else on its side.
        at_numbers = any(
            inside and name not in letters and all(inner.op == "num" for inner in inside)
            for inside, letters in zip(brackets, alone, strict=True)
        )
        is_alone = any(name in letters for letters in alone)
        if at_numbers or _is_function(name, mine | others, is_alone, mine != others):
            functions.add(name)
    return frozenset(functions)


def _arguments(tree: Node) -> dict[str, frozenset[Node]]:
    """What stands in brackets behind each letter."""
    inside: dict[str, frozenset[Node]] = {}
    for node in walk(tree):
        for name in free_symbols(node.args[0]) if node.op == "apply" else ():
            inside[name] = inside.get(name, frozenset()) | {node.args[1]}
    return inside


def _is_function(name: str, brackets: frozenset[Node], alone: bool, differ: bool) -> bool:
    letter, sums = _letter(sym(name)), all(map(_is_sum, brackets))
    if letter in _ALWAYS:
        return True
    if letter in _MOSTLY:
        # P(A + B) has an event inside, though it is a sum.
        events = letter in _OF_EVENTS and any(
            s[:1].isupper() for inner in brackets for s in free_symbols(inner)
        )
        return events or not (alone and sums)
    if letter in _OFTEN:
        return not sums
    # u(x+1) against u(x)+u(1): different brackets on the two sides cannot be the same product.
    return differ and not alone and any(map(_is_one_sign, brackets))


def _is_sum(node: Node) -> bool:
    return node.op in ("add", "pm")


def _is_one_sign(node: Node) -> bool:
    return node.op in ("num", "sym", "const", "tuple", "apply") or (
        node.op == "neg" and _is_one_sign(node.args[0])
    )


def free_letters(node: Node) -> Iterable[str]:
    """The letters that stand elsewhere than before brackets.

    Args:
        node: the tree.
    """
    if node.op == "sym":
        yield node.value
    for arg in node.args[1:] if node.op == "apply" else node.args:
        yield from free_letters(arg)


def _letter(head: Node) -> str:
    r"""f of f', f_1."""
    return str(head.value).partition("_")[0].rstrip("'^")


# -------------------------------------------------------------------------------------------- trees


def _with_roles(node: Node, functions: frozenset[str]) -> Node:
    if node.op == "apply" and free_symbols(node.args[0]) <= functions:
        return _apply_head(node.args[0], _with_roles(node.args[1], functions))
    if node.op in ("pow", "fact", "fact2", "deg") and node.args[0].op == "apply":
        head, inner = node.args[0].args
        if not free_symbols(head) <= functions:  # k(x+1)^2 is a square of x+1
            raised = Node(node.op, (inner, *node.args[1:]), node.value)
            return Node("mul", (head, _with_roles(raised, functions)))
    args = tuple(_with_roles(arg, functions) for arg in node.args)
    if node.op == "mul":  # one flat product, as the parser makes it
        split = (
            new.args if new.op == "mul" != old.op else (new,)
            for old, new in zip(node.args, args, strict=True)
        )
        args = tuple(chain.from_iterable(split))
    return Node("mul", args) if node.op == "apply" else Node(node.op, args, node.value)


def _apply_head(head: Node, inner: Node) -> Node:
    """(f + g)(x) is f(x) + g(x), and (f \\circ g)(x) is f(g(x)); f^{-1} and f' are functions of
    their own."""
    # f^{-1}(x) stays an application: its head is compared as a whole.
    if head.op == "sym" or head.op == "pow":
        name = _INTERPRETED.get(str(head.value))
        # \Gamma(5) is 24; of two arguments it is something else.
        return call(name, inner) if name and inner.op != "tuple" else Node("apply", (head, inner))
    if head.op == "compose":
        return _apply_head(head.args[0], _apply_head(head.args[1], inner))
    if head.op == "num":
        return head
    return Node(head.op, tuple(_apply_head(arg, inner) for arg in head.args), head.value)
