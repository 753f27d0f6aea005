r"""The part of the symbolic engine that runs in the worker process: are two expressions equal?

It reads no text: the caller sends forms.  `normal.py` compares lists, names, units and numbers, and
calls this module, as its `leaf`, for pairs of expressions.

    form ─ latex ─▶ tree ─ equality ─▶ equal | different
"""

from __future__ import annotations

import logging
from fractions import Fraction
from functools import lru_cache, partial

from rlvr.errors import foreign_code
from rlvr.verifiers.math import equality
from rlvr.verifiers.math.forms import Choice, Family, Flawed, Form, Quantity, Word, parts
from rlvr.verifiers.math.latex import Node, TooLarge, Unreadable
from rlvr.verifiers.math.latex.budget import PairTooLarge, one_pair
from rlvr.verifiers.math.latex.compile import carry_out_reference, is_zero, proportional
from rlvr.verifiers.math.latex.indexed import resolve_indices
from rlvr.verifiers.math.latex.numeric import Evaluation, constant
from rlvr.verifiers.math.latex.roles import settle_roles
from rlvr.verifiers.math.latex.tree import (
    INFINITY,
    MINUS_INFINITY,
    PI,
    calls,
    free_symbols,
    has,
    minus,
    num,
    walk,
)
from rlvr.verifiers.math.latex.values import Undefined, as_number, decided, sign_of
from rlvr.verifiers.math.normal import decide_forms
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.rounding import bounds
from rlvr.verifiers.math.statement import tree_of, tree_or_none

__all__ = ["Reply", "Request", "are_operations", "handle", "start"]

Request = tuple[Form | None, Form, MathPolicy | None, bool]
"""Answer, reference, policy, and whether to try a proof;
without an answer only the reference is checked, without a policy only its terms are compared."""

Reply = tuple[bool | None, str]
"""Equal and the reason; None where the reference cannot be read, with what is wrong with it."""

_WARMING = (
    (r"\frac{1}{2}x", r"0.5x+\sqrt{3}"),
    (r"\lim_{x\to0}\frac{\sin x}{x}", r"\int_0^1 2x\,dx"),
    (r"2^{500}\sqrt{2}", r"\sqrt{2^{1001}}"),
)


def start() -> None:
    """Set up one worker: load everything, silence it, and compare once, so that no item pays for
    warming up."""
    logging.disable(logging.CRITICAL)  # a library's warning could quote hostile text
    for pair in _WARMING:
        answer, reference = map(read, pair)
        handle((answer, reference, MathPolicy(), False))


def handle(request: Request) -> Reply:
    """Decide one pair.  The answer's faults are replies; only memory running out ends the
    worker."""
    answer, reference, policy, prove = request
    opinions: list[bool | None] = []
    # before a look for the reference's value, which may take all the time there is
    if answer is not None and not prove and _is_same_operation(answer, reference):
        return True, "symbolic-equal"
    if policy is None:
        return None, "it has no value"
    wrong = ""
    with foreign_code() as errors:  # a fault of ours must not make right answers wrong
        wrong = _reference_fault(reference)
    for error in errors:
        if isinstance(error, MemoryError):
            raise error
        wrong = f"the engine fails at it: {type(error).__name__}"
    if wrong or answer is None:
        # Without an answer the reference was to be checked alone.
        return (None, wrong) if wrong else (True, "readable")
    try:
        leaf = partial(_confirm, policy, opinions) if prove else partial(_equal, policy)
        with one_pair():
            decision = decide_forms(answer, reference, policy, leaf)
    except Unreadable as unreadable:
        return False, f"unreadable: {unreadable}"
    except (TooLarge, PairTooLarge) as beyond:
        return False, f"limit: {beyond}"
    except Undefined:
        return False, "undefined"
    except MemoryError:
        raise
    # Ours, but no answer may go unscored by finding it.
    except (Exception, RecursionError) as error:  # noqa: BLE001
        return False, f"engine-error: {type(error).__name__}"
    certainty = f": {_certainty(opinions)}" if prove else ""
    return bool(decision.equal), decision.reason + certainty


def are_operations(answer: Form, reference: Form) -> bool:
    """Whether both have an integral or a series, whose terms may be the same.

    Args:
        answer, reference: their forms.
    """
    if not isinstance(answer, Quantity) or not isinstance(reference, Quantity):
        return False
    mine, others = map(tree_or_none, (answer, reference))
    if (answer.unit, answer.percent) != (reference.unit, reference.percent):
        return False
    return any(mine and others and has(mine, op) and has(others, op) for op in equality.OF_TERMS)


def _is_same_operation(answer: Form, reference: Form) -> bool:
    if not are_operations(answer, reference):
        return False
    try:
        with one_pair():
            return equality.same_operation(*settle_roles(_tree(answer), _tree(reference)))
    except (Unreadable, TooLarge, PairTooLarge):
        return False


def _certainty(opinions: list[bool | None]) -> str:
    """What SymPy's opinions of our decisions on the parts come to."""
    return "refuted" if False in opinions else "evidence" if None in opinions else "proved"


@lru_cache(maxsize=4096)
def _reference_fault(reference: Form) -> str:
    """What is wrong with it, or nothing."""
    try:
        for part in parts(reference):
            if isinstance(part, Quantity) and part.value is None:
                _check(part)
    except (Unreadable, TooLarge) as wrong:
        return str(wrong)
    except Undefined:
        return "it has no value"
    return ""


def _check(form: Form) -> None:
    """A constant must have a value; anything else must be readable."""
    # Settled against itself, as there is no answer yet.
    tree = resolve_indices(settle_roles(_tree(form), _tree(form))[0])
    carry_out_reference(tree)
    if not free_symbols(tree) and not has(tree, *_NO_VALUE) and tree not in _INFINITIES:
        decided(lambda: Evaluation({}, real=False).value(tree))


_NO_VALUE = tuple(
    "rel list set tuple builder numbers union intersection minus pm congruent logic".split()
)
_NO_UNIT = (*_NO_VALUE, "matrix")
_INFINITIES = (INFINITY, MINUS_INFINITY)


# ----------------------------------------------------------------------------------------- the leaf


def _equal(policy: MathPolicy, answer: Form, reference: Form) -> bool:
    """Are two expressions equal, as far as the policy is concerned?"""
    a, b = _in_one_measure(answer, reference)
    if isinstance(answer, Quantity) and isinstance(reference, Quantity):
        # A tolerance, and what a rounded reference may stand for, come before exact values.
        if _within(a, answer, reference, policy) or (policy.tolerance and _near(a, b, policy)):
            return True
        # 40 answers 40%: "either" takes the number before the sign as well.
        is_bare = reference.percent and not answer.percent and policy.percent == "either"
        if is_bare and equality.same(a, b):
            return True
        # From here on 40% is 0.4, on both sides alike.
        if policy.percent != "ignore":
            a, b = _hundredth(a, answer), _hundredth(b, reference)
    return equality.same(a, b)


def _confirm(
    policy: MathPolicy, opinions: list[bool | None], answer: Form, reference: Form
) -> bool:
    """The same, and SymPy's opinion of it: True where it confirms the decision, False where it
    contradicts."""
    equal = _equal(policy, answer, reference)
    opinions.append(_opinion(policy, answer, reference, equal))
    return equal


def _opinion(policy: MathPolicy, answer: Form, reference: Form, equal: bool) -> bool | None:
    """None where it has none, or where a convention decided and not algebra."""
    with foreign_code() as errors:  # SymPy raises anything
        a, b = map(resolve_indices, _in_one_measure(answer, reference))
        if a == b:
            return equal
        # Equations are the same up to a factor, which is no difference of sides.
        if equal and a.op == b.op == "rel" and a.value == b.value == ("=",):
            return proportional(minus(*a.args), minus(*b.args)) or None
        mine, reference_names = free_symbols(a), free_symbols(b)
        is_renamed = mine - reference_names and reference_names - mine
        is_several = has(a, *_NO_UNIT) or has(b, *_NO_UNIT)
        if is_several or is_renamed or "C" in mine | reference_names:
            return None  # k\pi and n\pi, constants of integration
        gap = minus(a, b)
        zero = is_zero(gap)
        if zero is False and equal and _holds_by_convention(policy, answer, reference, gap):
            return None
    for error in errors:
        if isinstance(error, MemoryError):
            raise error
        return None
    return None if zero is None else zero is equal


def _holds_by_convention(policy: MathPolicy, answer: Form, reference: Form, gap: Node) -> bool:
    """A rounded reference, a percent sign, a logarithm to the base 10, or an identity of positive
    numbers."""
    sides = [form for form in (answer, reference) if isinstance(form, Quantity)]
    return (
        (len(sides) == 2 and bounds(sides[0], sides[1], policy) is not None)
        or any(side.percent for side in sides)
        or calls(gap, "log")
        or is_zero(gap, positive=True) is not False
    )


def _hundredth(tree: Node, form: Quantity) -> Node:
    return Node("div", (tree, num(100))) if form.percent else tree


def _within(tree: Node, answer: Quantity, reference: Quantity, policy: MathPolicy) -> bool:
    """A constant that lies within what the policy lets a rounded reference stand for."""
    allowed = bounds(answer, reference, policy)
    if allowed is None or free_symbols(tree):
        return False
    # 50% is written 50 in its bounds.
    if reference.percent and not answer.percent:
        tree = Node("mul", (tree, num(100)))
    low, high = map(as_number, allowed)

    def is_within() -> bool:
        value = constant(tree)
        return sign_of(value - low) >= 0 <= sign_of(high - value)

    return decided(is_within)


def _near(a: Node, b: Node, policy: MathPolicy) -> bool:
    """Two constants that differ by no more than the policy's tolerance."""
    if any(free_symbols(side) or has(side, *_NO_UNIT) for side in (a, b)):
        return False
    # From the digits of the setting: a float's 0.1 is not a tenth.
    tolerance = as_number(Fraction(str(policy.tolerance)))

    def is_near() -> bool:
        x, y = map(constant, (a, b))
        room = tolerance * (abs(y) if policy.tolerance_is == "relative" else 1)
        return sign_of(room - abs(x - y)) >= 0

    return decided(is_near)


def _in_one_measure(answer: Form, reference: Form) -> tuple[Node, Node]:
    r"""Both trees; degrees become radians where the other side is written with \pi or is an arcsin
    and the like."""
    a, b = settle_roles(_tree(answer), _tree(reference))
    radians = any(_speaks_of_radians(node) for tree in (a, b) for node in walk(tree))
    # Without π or an arcsin on either side degrees stay as they are: 45° is then 45.
    return (_degrees(a, answer), _degrees(b, reference)) if radians else (a, b)


def _speaks_of_radians(node: Node) -> bool:
    angle = node.op == "call" and node.value.startswith("arc") and not node.value.endswith("h")
    return angle or node == PI


def _degrees(tree: Node, form: Form) -> Node:
    is_angle = isinstance(form, Quantity) and form.unit == "degree" and not has(tree, "deg")
    return Node("deg", (tree,)) if is_angle else tree


def _tree(form: Form) -> Node:
    """What the form says, without unit and percent sign."""
    if isinstance(form, Word | Choice | Flawed | Family):
        raise Unreadable(repr(form.text[:80]))
    if isinstance(form, Quantity) and form.value is not None:
        return num(Fraction(form.value))
    tree = tree_of(form)
    # A unit behind a list or an interval belongs to one of its items at most.
    if isinstance(form, Quantity) and (form.unit or form.percent) and tree.op in _NO_UNIT:
        raise Unreadable(f"a unit behind a {tree.op}")
    return tree
