r"""What counts as an answer: one table of rules for what may not be left open.

An operation that could still be carried out counts against the answer unless the reference has one
of the same kind: `3^5` is no answer to 243, and `4^5` is one to `2^{10}`.  Where the reference is a
number that is written out, nothing but a numeral, a fraction or mixed number, or scientific
notation is finished.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rlvr.verifiers.math.boolean import connective, is_boolean, is_reducible
from rlvr.verifiers.math.canonical import factors_of, linear, spelling, written_value
from rlvr.verifiers.math.latex.roles import settle_roles
from rlvr.verifiers.math.latex.tree import (
    EULER,
    IMAGINARY,
    INFINITY,
    MINUS_INFINITY,
    PI,
    Node,
    Written,
    free_symbols,
    num,
    operands,
    unsigned,
    walk,
)
from rlvr.verifiers.math.policy import MathPolicy
from rlvr.verifiers.math.rounding import is_rounded
from rlvr.verifiers.math.statement import in_degrees, inside_of, leaves

__all__ = ["RULES", "Rule", "is_written_out", "open_kinds", "unfinished"]

# What may stand around a number and leaves it written out.
_MEASURES = frozenset(("unit", "percent"))
_INVERSES = frozenset("arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh arctanh".split())
_COUNTED = frozenset(("binom", "perm"))
_CHOOSING = frozenset(("max", "min", "gcd", "lcm"))
_ORDERED = frozenset(("tuple", "matrix"))
_SEVERAL = frozenset(("matrix", "tuple", "set", "list"))
_WORKED_OUT = frozenset(("product", "power", "factorial"))
# By trial division up to here; what is left is tested as a whole power.
_LEAST_PRIMES = 500
# log_2 2^{64} at most, and no power of more than 5,000 bits.
_MOST_POWER, _MOST_BITS = 64, 5_000  # tried where a logarithm may be a whole number
_CIRCULAR = frozenset("sin cos tan cot sec csc".split())
# The sines and cosines of π/5 and π/10 are short because of the golden section.
_SMALL_ANGLES = frozenset((1, 2, 3, 4, 5, 6, 8, 10, 12))
"""Parts of a half turn whose sines and cosines have short values."""
_DIRECT = _CIRCULAR | frozenset("sinh cosh tanh".split())


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of operation that may not be left open.

    Attributes:
        kind: its name; the reference may have it, and then the answer may.
        says: the reason that a verdict gives.
        is_open: for each kind of node, whether it could still be worked out.
        finished, unfinished: examples, of which the documentation and the tests are made.
    """

    kind: str
    says: str
    is_open: dict[str, Callable[[Node], bool]]
    finished: str
    unfinished: str


def unfinished(answer: Node, reference: Node, policy: MathPolicy) -> str:
    """What could still be worked out in an answer that is right; "" if it is finished.

    Args:
        answer, reference: as `statement.as_tree` makes them.
        policy: says whether a decimal reference may have been rounded.
    """
    if reference.op == "choice" and answer.op == "choice":
        return ""
    if left := open_kinds(answer) - _allowed_operations(reference, policy):
        # The first by the table's order, so that a verdict repeats.
        return next(rule.says for rule in RULES if rule.kind in left)
    return "" if _is_written(answer, reference, policy) else "the number can still be written out"


@lru_cache(maxsize=4096)
def open_kinds(tree: Node) -> frozenset[str]:
    """The kinds of operations that could still be carried out.

    Args:
        tree: from `statement.as_tree`, or of an expression.
    """
    return frozenset(_open(settle_roles(tree, tree)[0], equation=False))


def is_written_out(node: Node) -> bool:
    r"""True for a numeral, a fraction or mixed number of numerals, and scientific notation, with a
    sign or none.

    Args:
        node: the tree.
    """
    if node.op == "neg" or node.op in _MEASURES:
        return is_written_out(node.args[0])
    if node.op == "add":
        return bool(node.value == "mixed")
    if node.op == "div":
        above, below = node.args
        is_fraction = _is_numeral(above) and (_is_numeral(below) or _is_power_of_ten(below))
        return is_fraction and node.value is None
    return node.op in ("num", "spoken") or _is_power_of_ten(node) or _is_scientific(node)


# `equation`: within an equation with letters, where squares such as 5^2 may stay.
def _open(node: Node, *, equation: bool) -> Iterator[str]:
    if node.op == "rel":
        equation = bool(free_symbols(node))
    if not (equation and _is_square(node)):  # circles are written with 5^2
        for kind, is_open in _BY_OP.get(node.op, ()):
            if is_open(node):
                yield kind
    # Within 4.5·10^3 or 3/4 there is nothing to look for; a sign, a mixed number or a unit has
    # parts.
    if not is_written_out(node) or node.op in ("neg", "add", *_MEASURES):
        for arg in node.args:
            yield from _open(arg, equation=equation)


@lru_cache(maxsize=4096)
def _allowed_operations(reference: Node, policy: MathPolicy) -> frozenset[str]:
    """The kinds of operations in the reference; a product of powers may be written with factorials
    too."""
    kinds = open_kinds(reference)
    # A rounded reference is met by functions: 0.693 by \ln 2.
    if any(_may_be_rounded(leaf, policy) for leaf in leaves(reference)):
        kinds |= {"function"}
    for node in walk(reference):
        if node.op == "log":
            kinds |= {"function"}  # \log_2 x may be written by natural logarithms
        elif _is_power_of(node, EULER):
            kinds |= {"function", "value"}  # re^{it} as r(\cos t + i\sin t), \sinh 1 by e
        elif node.op == "logic" and node.value in ("xor", "iff"):
            kinds |= {"negation"}
    return kinds | _WORKED_OUT if kinds & _WORKED_OUT else kinds


# ------------------------------------------------------------------------------ numbers written out


def _is_written(answer: Node, reference: Node, policy: MathPolicy) -> bool:
    """Where the reference has a number, the answer has one too, and no x/x or sin²x + cos²x."""
    mine, reference_leaves = list(leaves(answer)), list(leaves(reference))
    if answer.op == reference.op == "named" and answer.value != reference.value:
        return True  # y = 4/x for xy = 4
    bounded = [leaf for leaf in reference_leaves if not _is_infinite(leaf)]
    if bounded and all(_is_exact(leaf, policy) for leaf in bounded):
        return all(map(_is_finished_number, mine))
    # Place by place where both are tuples or matrices; in lists the order may differ.
    if len(mine) == len(reference_leaves) and answer.op in _ORDERED and reference.op in _ORDERED:
        pairs = zip(mine, reference_leaves, strict=True)
        return all(_is_finished_number(a) for a, b in pairs if _is_exact(b, policy))
    return True


def _is_exact(leaf: Node, policy: MathPolicy) -> bool:
    """A number that the answer must be too: no angle, which may be given in radians, and nothing
    rounded."""
    return is_written_out(leaf) and not in_degrees(leaf) and not _may_be_rounded(leaf, policy)


def _may_be_rounded(leaf: Node, policy: MathPolicy) -> bool:
    value = inside_of(leaf, "neg", *_MEASURES).value
    if policy.rounding == "exact" or not isinstance(value, Written):
        return False
    return bool(value.places) and (
        policy.rounding == "reference" or in_degrees(leaf) or is_rounded(value, value.places)
    )


def _is_finished_number(leaf: Node) -> bool:
    """Operations that the reference has are settled already."""
    # Whatever is open in it is judged by the other rules, which the reference may allow.
    if is_written_out(leaf) or _is_infinite(leaf) or open_kinds(leaf):
        return True
    if leaf.op in ("ratio", "clock", "word", "choice"):
        return True
    if leaf.op == "rel":  # 5 = x, |x| < 3
        bare = [
            arg.args[0] if arg.op == "call" and arg.value == "abs" else arg for arg in leaf.args
        ]
        return all(arg.op in ("sym", "term") or is_written_out(arg) for arg in bare)
    if leaf.op == "builder":  # {x | x < 2 or x > 3}
        sides = [side for node in walk(leaf) if node.op == "rel" for side in node.args]
        return all(side.op in ("sym", "const") or is_written_out(side) for side in sides)
    if leaf.op == "mul" and len(leaf.args) == 2 and is_written_out(leaf.args[0]):
        leaf = leaf.args[1]  # \frac12 times a matrix; 5 m, where the reference has the unit
        if leaf.op == "sym":
            return True
    return leaf.op in _SEVERAL and all(map(is_written_out, leaf.args))


def _is_infinite(leaf: Node) -> bool:
    return leaf in (INFINITY, MINUS_INFINITY)


# -------------------------------------------------------------------------------- sums and products


def _is_open_sum(node: Node) -> bool:
    """Two terms that consist of the same, numbers among them; a term of 0, but in a + bi."""
    if node.value == "mixed" or _has_dots(node.args):
        return False
    earlier: set[object] = set()
    for arg in node.args:
        terms = linear(arg)
        # 0 + 2i is a + bi
        is_zero = not any(terms.values()) and (IMAGINARY not in walk(node) or free_symbols(node))
        if is_zero or not earlier.isdisjoint(terms):
            return True
        earlier |= terms.keys()
    # x(x - 5) + 2(x - 5) could be (x + 2)(x - 5).
    shared = [base for arg in node.args for base in _polynomial_factors(arg)]
    return len(shared) > len(set(shared))


def _polynomial_factors(term: Node) -> frozenset[object]:
    """The sums in a term that is a product of these, of numbers and of letters: x(x - 5) + 2(x - 5)
    shares one."""
    args = unsigned(term).args if unsigned(term).op == "mul" else ()
    if not all(arg.op in ("num", "sym", "add") for arg in args):
        return frozenset()
    return frozenset(spelling(arg) for arg in args if arg.op == "add" and free_symbols(arg))


def _is_open_product(node: Node) -> bool:
    if _is_scientific(node):
        return False
    factors = list(_flat(node))
    if _has_dots(factors):
        return False
    numbers = [arg for arg in factors if _is_number(arg)]
    constant = not free_symbols(node)
    return (
        # 6·7: two numbers.
        len(numbers) > 1
        # 1·\sqrt3, 0·\pi; but 1i and 0i belong to a + bi.
        or (constant and IMAGINARY not in factors and any(arg.value in (0, 1) for arg in numbers))
        # y·y^4: one base twice.
        or _is_repeated([base for arg in factors if not _is_number(arg) for base in _bases(arg)])
        # (2+\sqrt3)(2-\sqrt5): two sums of constants can be multiplied out.
        or sum(arg.op == "add" and not free_symbols(arg) for arg in factors) > 1
        # \sqrt3\sqrt7: two roots of the same degree.
        or _is_repeated([arg.args[1] for arg in factors if _is_root(arg)])
        or (
            # \frac{\pi}{3}·2: a number beside a fraction with a coefficient.
            constant
            and len(numbers) + sum(arg.op == "div" and _has_number(arg) for arg in factors) > 1
        )
    )


def _is_product_of_arrays(node: Node) -> bool:
    """A fraction often stands before one."""
    factors = list(_flat(node))
    arrays = sum(arg.op in ("matrix", "tuple") for arg in factors)
    has_integer = any(arg.op == "num" and arg.value.denominator == 1 for arg in factors)
    return arrays > 1 or (arrays == 1 and has_integer)


def _has_dots(nodes: Sequence[Node]) -> bool:
    return any(node.op == "sym" and node.value == "…" for node in nodes)


def _flat(node: Node) -> Iterator[Node]:
    """The factors of a product and of products in it, without signs."""
    for arg in node.args:
        inner = unsigned(arg)
        if inner.op == "mul":
            yield from _flat(inner)
        else:
            yield inner


def _has_number(quotient: Node) -> bool:
    r"""\frac{2\pi}{3} has a coefficient, which another number could be multiplied with."""
    return written_value(quotient) is None and abs(factors_of(quotient)[0]) != 1


# ---------------------------------------------------------------------------------------- fractions


def _is_unreduced(node: Node) -> bool:
    r"""\frac{6x}{9}, \frac{4}{1}, \frac{2+2\sqrt5}{4}, \frac x4\cdot8: a whole number can still be
    divided out."""
    if _is_scientific(node):
        return False
    above, below = _contents(node)
    over_one = node.op == "div" and node.args[1] == num(1)
    return over_one or math.gcd(above, below) > 1


def _contents(node: Node) -> tuple[int, int]:
    """The whole numbers that divide what stands above and below the line."""
    if node.op == "neg":
        return _contents(node.args[0])
    if node.op == "num":
        return (abs(int(node.value)), 1) if node.value.denominator == 1 else (1, 1)
    if node.op == "div":
        (a, b), (c, d) = map(_contents, node.args)
        return a * d, b * c
    if node.op == "mul":
        contents = list(map(_contents, node.args))
        return math.prod(above for above, _ in contents), math.prod(below for _, below in contents)
    if node.op in ("add", "pm") and node.value != "mixed":
        # 2 + 2\sqrt5 has the 2; 2 + \sqrt5 has none.
        return math.gcd(*(_whole_content(arg) for arg in node.args)), 1
    if _is_power_of_ten(node):
        # 10^3 has a 10, 10^{-3} none above the line.
        exponent = written_value(node.args[1])
        return (10 if exponent is not None and exponent > 0 else 1), 1
    return 1, 1


def _whole_content(term: Node) -> int:
    above, below = _contents(term)
    return above if below == 1 else 1


def _is_fraction_of_decimals(node: Node) -> bool:
    return any(arg.op == "num" and arg.value.denominator > 1 for arg in map(unsigned, node.args))


def _is_open_quotient(node: Node) -> bool:
    above, below = map(unsigned, node.args)
    # \frac{0.5}{3} and 486 ÷ 7 say what to do, and not how much it is.
    if node.value == "÷" or _is_fraction_of_decimals(node):
        return True
    if is_written_out(node):
        return False
    parts = (*operands(above, "mul"), *operands(below, "mul"))
    return (
        # A fraction of constants within a fraction; \frac{1/x}{2} may stand.
        any(arg.op == "div" and not free_symbols(arg) for arg in (above, below))
        # A number's fraction as a factor above or below: \frac{\frac12 x}{3}.
        or any(arg.op == "div" and is_written_out(arg) for arg in parts)
        or _share(above, below)
        or _is_zero(above)
        or (not free_symbols(below) and IMAGINARY in walk(below))
    )


def _share(above: Node, below: Node) -> bool:
    r"""\frac{\pi}{\pi}, \frac{x^2}{x}, \frac{\sqrt6}{\sqrt2}."""
    sides = [operands(above, "mul"), operands(below, "mul")]
    bases, others = (
        {base for arg in side if not _is_number(arg) for base in _bases(arg)} for side in sides
    )
    mine, roots = ([written_value(arg.args[0]) for arg in side if _is_root(arg)] for side in sides)
    return not bases.isdisjoint(others) or any(
        a and b and math.gcd(a.numerator, b.numerator) > 1 for a in mine for b in roots
    )


def _bases(node: Node) -> Iterator[object]:
    """What the factors are powers of, constants and letters alone: (x-1)(x-1) is as good as
    (x-1)^2."""
    for base, exponent in factors_of(node)[1]:
        # Of numbers only whole powers are compared; roots of them are counted by their degree.
        if isinstance(exponent, Fraction) and (exponent.denominator == 1 or base[0] != "num"):
            yield base, exponent.denominator  # x√x stands for one power


def _is_repeated(bases: Sequence[object]) -> bool:
    plain = [
        base
        for base in bases
        # (x+1)(x+1) may stand as a factored form, and n!·n! too.
        if "'sym'" not in (text := repr(base)) or not ("'terms'" in text or "'fact'" in text)
    ]
    return len(plain) > len(set(plain))


# --------------------------------------------------------------------------------- powers and roots


def _is_open_power(node: Node) -> bool:
    base, exponent = node.args
    power, number = written_value(exponent), written_value(base)
    # x^0 and x^1 need no exponent.
    if power in (0, 1):
        return True
    # e^3 is a number of its own, and 2^n has a letter.
    if base == EULER or power is None:
        return False
    # (y^2)^5 is y^{10}.
    if base.op in ("pow", "root") and written_value(base.args[1]) is not None:
        return True
    # 27^{1/3} is judged as a root.
    if power.denominator > 1:
        return False
    if number is not None:
        # 10^9 stays: scientific notation is made of it.
        return not (number == 10 and base.op == "num")
    algebraic = base.op in ("add", "root", "mul", "div") and not free_symbols(base)
    return algebraic or base == IMAGINARY or base.op == "matrix"


def _is_root_of_power(node: Node) -> bool:
    """8^{1/3}."""
    number, power = map(written_value, node.args)
    if number is None or power is None or power.denominator == 1:
        return False
    return _has_power(number, power.denominator)


def _is_open_root(node: Node) -> bool:
    r"""\sqrt{12}, \sqrt{\frac49}, \sqrt{4x}, \sqrt{x^2}."""
    radicand, index = node.args
    degree = written_value(index)
    if degree is None or degree.denominator != 1 or degree < 2:
        return False
    coefficient, factors = factors_of(radicand)
    return (
        # \sqrt{1}, \sqrt0 and \sqrt{-1} have names.
        (not factors and coefficient in (-1, 0, 1))
        or _has_power(coefficient, int(degree))
        or any(isinstance(power, Fraction) and abs(power) >= degree for _, power in factors)
    )


def _has_power(number: Fraction, degree: int) -> bool:
    """True if its n-th root can be taken in part: √12 is 2√3.  Of large numbers only small factors
    are tried."""
    return any(_power_in(abs(part), degree) for part in (number.numerator, number.denominator))


def _power_in(number: int, degree: int) -> bool:
    # 2^degree is larger than the number, so no prime has that power in it.
    if number < 2 or degree > number.bit_length():
        return False
    for prime in range(2, _LEAST_PRIMES):
        if number < prime:
            break
        if number % prime**degree == 0:
            return True
        while number % prime == 0:
            number //= prime
    root = _whole_root(number, degree)
    return number > 1 and root**degree == number


def _whole_root(number: int, degree: int) -> int:
    """The largest integer whose power is not above the number."""
    if degree == 2:
        return math.isqrt(number)
    low, high = 1, 1 << (number.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle - 1)
    return low


# ---------------------------------------------------------------------------------------- functions


def _is_open_function(node: Node) -> bool:
    """A function of constants, of its own inverse, or of e^x."""
    name = node.value
    if name in _COUNTED:
        return False
    inside = node.args[0]
    inverse = inside.op == "call" and inside.value in _INVERSES
    exponential = name in ("ln", "log") and _is_power_of(inside, EULER)
    return not free_symbols(node) or (name in _DIRECT and inverse) or exponential


def _has_short_value(node: Node) -> bool:
    r"""\cos\frac{\pi}{12}, \ln 1, \arctan 1, \lfloor 3.7\rfloor: even where the reference has
    another function."""
    name, numbers = node.value, [written_value(arg) for arg in node.args]
    if name in _CIRCULAR:
        turn = _turn(node.args[0])
        return turn is not None and turn.denominator in _SMALL_ANGLES
    if name in _INVERSES:
        # \arcsin and the like at 0, ±1 and ±1/2 are simple angles or 0.
        return numbers[0] in (0, 1, -1, Fraction(1, 2), Fraction(-1, 2))
    if name in ("ln", "log"):
        return numbers[0] == 1 or node.args[0] == EULER
    # Of numbers \lfloor 3.7\rfloor and \gcd(12,18) are numbers; \sinh and the like only of 0.
    return name not in _COUNTED and None not in numbers and (name not in _DIRECT or numbers == [0])


def _turn(angle: Node) -> Fraction | None:
    """How many half turns; None for any other angle."""
    if angle.op == "deg":
        degrees = written_value(angle.args[0])
        return None if degrees is None else degrees / 180
    if written_value(angle) == 0:
        return Fraction(0)
    turn, factors = factors_of(angle)
    return turn if factors == ((spelling(PI), Fraction(1)),) else None


def _is_logarithm_of_power(node: Node) -> bool:
    r"""\log_2 8, \log_9 3, \log_2\frac14."""
    value, base = map(written_value, node.args)
    if value is None or base is None or value == 1:
        return value == 1
    bits = max(value.numerator, value.denominator, base.numerator, base.denominator).bit_length()
    powers = range(1, min(_MOST_POWER, _MOST_BITS // bits) + 1)
    return any(value == base**k or base == value**k or value * base**k == 1 for k in powers)


def _is_power_of(node: Node, base: Node) -> bool:
    r"""\ln e^x, \log_2 2^x."""
    return node.op == "pow" and node.args[0] == base


def _is_open_exponential(node: Node) -> bool:
    r"""e^{\ln 5}, e^{3\ln 2}, e^{i\pi}."""
    base, exponent = node.args
    logarithm = any(
        part.op == "log" or (part.op == "call" and part.value in ("ln", "log"))
        for part in operands(exponent, "mul")
    )
    return base == EULER and (logarithm or _is_quarter_turn(exponent))


def _is_quarter_turn(exponent: Node) -> bool:
    r"""i\pi and 3i\pi/2; other turns are a polar form."""
    if not {IMAGINARY, PI} <= set(walk(exponent)):
        return False
    turn, factors = factors_of(exponent)
    return (2 * turn).denominator == 1 and len(factors) == 2


def _is_of_constants(node: Node) -> bool:
    return not free_symbols(node)


def _is_of_one(node: Node) -> bool:
    r"""\max(E, E), \gcd(E), \binom E1: it gives back what it is of."""
    if node.value in _COUNTED:
        return written_value(node.args[-1]) in (0, 1)
    return node.value in _CHOOSING and len({spelling(arg) for arg in node.args}) == 1


def _holds_one_expression(node: Node) -> bool:
    return len(node.args) == 1 and not is_written_out(node.args[0]) and node.args[0].op != "text"


def _is_open_region(node: Node) -> bool:
    """Two sets whose members are written out; two intervals of which what both hold is asked
    for."""
    # A formula of logic or sets whose value does not depend on all its letters.
    if is_reducible(node):
        return True
    listed = [arg.op == "set" and not free_symbols(arg) for arg in node.args]
    intervals = [arg.op == "tuple" and not free_symbols(arg) for arg in node.args]
    # A union of two intervals may stand; what two have in common is asked for.
    return sum(listed) > 1 or (node.op == "intersection" and sum(listed) + sum(intervals) > 1)


def _is_open_negation(node: Node) -> bool:
    kind, parts = connective(node)
    return kind == "not" and is_boolean(parts[0])


def _joins_one_set(node: Node) -> bool:
    return len(set(map(spelling, node.args))) < len(node.args)


def _is_open_plus_minus(node: Node) -> bool:
    r"""3 \pm 2 is 5 and 1."""
    return not _is_zero(node.args[0]) and _is_open_sum(node)


def _always(node: Node) -> bool:
    return True


# ----------------------------------------------------------------------------------- single factors


def _is_numeral(node: Node) -> bool:
    return unsigned(node).op == "num"


def _is_zero(node: Node) -> bool:
    return node.op == "num" and node.value == 0


def _is_number(node: Node) -> bool:
    """A factor that another such factor can be multiplied with."""
    if node.op == "pow":
        return _is_numeral(node.args[1]) and written_value(node.args[0]) is not None
    return written_value(node) is not None or (node.op == "fact" and not free_symbols(node))


def _is_root(node: Node) -> bool:
    return node.op == "root" and written_value(node.args[0]) is not None


def _is_power_of_ten(node: Node) -> bool:
    if node.op != "pow" or node.args[0] != num(10):
        return False
    exponent = written_value(node.args[1]) or Fraction(0)
    return exponent.denominator == 1 and exponent not in (0, 1) and _is_numeral(node.args[1])


def _is_scientific(node: Node) -> bool:
    if node.op != "mul" or len(node.args) != 2 or not _is_power_of_ten(node.args[1]):
        return False
    # 10·10^3 is 10^4.
    return _is_numeral(node.args[0]) and written_value(node.args[0]) != 10


def _is_square(node: Node) -> bool:
    """5^2, which equations of circles and ellipses are written with."""
    return node.op == "pow" and node.args[0].op == "num" and node.args[1] == num(2)


RULES = (
    Rule(
        "sum",
        "like terms can still be added",
        {
            "add": _is_open_sum,
            "pm": _is_open_plus_minus,
            "neg": lambda node: node.args[0].op == "neg",  # -(-3)
        },
        r"5+3\sqrt2 | 3-4i | x^3-x | 5\frac{2}{7} | \frac{1}{x}+\frac{1}{x+2} | \pm 4",
        r"81+19 | 4\sqrt7+\sqrt7 | 6y-y | 1+\frac13 | x+0 | 8\pm3 | -(-6)",
    ),
    Rule(
        "product",
        "factors can still be multiplied",
        {"mul": _is_open_product},
        r"4\sqrt7 | \frac{5\pi}{6} | 5\cdot2^n | (x+3)(x-4) | 3(x+2)+1 | \frac23\pi r^3",
        r"6\cdot7 | \sqrt3\sqrt7 | y\cdot y^4 | 81\cdot1 | (2+\sqrt3)(2-\sqrt5)",
    ),
    Rule(
        "fraction",
        "a fraction is not in lowest terms",
        {"div": _is_unreduced, "mul": _is_unreduced},
        r"\frac{3}{4} | \frac{-3}{4} | \frac{2x}{3} | \frac{1+\sqrt5}{2} | \frac58x^3",
        (
            r"\frac{6}{8} | \frac{486}{2} | \frac{4}{1} | \frac{6x}{9} | \frac{2+2\sqrt5}{4} |"
            r" \frac x4\cdot 8"
        ),
    ),
    Rule(
        "quotient",
        "a quotient can still be worked out",
        {"div": _is_open_quotient},
        r"\frac{1}{\sqrt5} | \frac{\sqrt7}{3} | \frac{x}{x+1} | 10^{-4}",
        (
            r"\frac{\frac13}{5} | 1/(1/9) | 486\div 7 | \frac{0.5}{3} | \frac{\pi}{\pi} |"
            r" \frac{y^3}{y}"
        ),
    ),
    Rule(
        "power",
        "a power can still be worked out",
        {"pow": _is_open_power},
        r"3^{1/4} | 2^n | e^3 | \pi^2 | x^{-2} | 4.1\times10^{9}",
        r"7^2 | 2^{-3} | (2+\sqrt3)^2 | i^3 | 9^1 | (y^2)^5",
    ),
    Rule(
        "root",
        "a root can still be taken",
        {"root": _is_open_root, "pow": _is_root_of_power},
        r"\sqrt5 | \sqrt[3]{4} | \sqrt{\frac{2}{5}} | \sqrt{x^2+9} | x\sqrt{x}",
        r"\sqrt{18} | \sqrt{49} | 27^{1/3} | \sqrt{9y} | \sqrt{y^2}",
    ),
    Rule(
        "factorial",
        "a factorial or a number of choices can still be worked out",
        {
            "fact": _is_of_constants,
            "fact2": _is_of_constants,
            "call": lambda node: node.value in _COUNTED and _is_of_constants(node),
        },
        r"n! | \binom{n}{k}",
        r"6! | 7!! | \binom{7}{2} | C(7,2)",
    ),
    Rule(
        "function",
        "a function of constants can still be worked out",
        {
            "call": _is_open_function,
            "log": lambda node: not free_symbols(node) or _is_power_of(*node.args),
            "conj": _is_of_constants,
            "mod": _is_of_constants,
            "pow": _is_open_exponential,
        },
        r"\sin t | \ln x | |t-2| | \lfloor t\rfloor | e^{-t^2} | 3\sin t\cos t",
        (
            r"\cos 0 | \ln 5 | \arctan 1 | \ln e^x | e^{\ln 6} | e^{i\pi} | |-8| | \gcd(12,18) |"
            r" 17\bmod 5"
        ),
    ),
    Rule(
        "value",
        "a function has a short value",
        {"call": _has_short_value, "log": _is_logarithm_of_power},
        r"\cos t | \ln x | \log_2 x",
        r"\cos 0 | \sin\frac{\pi}{4} | \ln 1 | \log_2 8 | \lfloor 3.7\rfloor | \gcd(12,18)",
    ),
    Rule(
        "member",
        "it only stands around what is to be said",
        {
            "call": _is_of_one,
            "set": _holds_one_expression,
            "matrix": _holds_one_expression,
            "union": _joins_one_set,
            "intersection": _joins_one_set,
        },
        r"\max(a,b) | \{5\} | \{x,y\}",
        r"\max(x^2,x^2) | \gcd(ab,ab) | \binom{x+1}{1} | \{x+1\} | A\cup A",
    ),
    Rule(
        "set",
        "sets can still be joined or cut",
        dict.fromkeys(("union", "intersection", "minus", "logic"), _is_open_region),
        r"(-\infty,0)\cup(0,\infty) | \{1\}\cup[2,3] | \mathbb{R}\setminus\{0\} | A\cap B",
        r"\{1,2\}\cup\{3\} | [0,5]\cap[3,8] | \{1,2\}\setminus\{2\} | p\lor q\land\neg q",
    ),
    Rule(
        "negation",
        "a negation can still be carried out",
        {"logic": _is_open_negation, "pow": _is_open_negation},
        r"\neg p\lor\neg q | A^c\cap B^c",
        r"\neg(p\land q) | (A\cup B)^c",
    ),
    Rule(
        "integral",
        "an integral can still be worked out",
        {"int": _always},
        r"\frac{x^2}{2}+C",
        r"\int_0^3 x\,dx | \int x\,dx",
    ),
    Rule(
        "limit",
        "a limit can still be worked out",
        {"lim": _always},
        r"\infty",
        r"\lim_{x\to0}\frac{\sin x}{x}",
    ),
    Rule(
        "series",
        "a sum or product of many terms can still be worked out",
        {
            "sum": _always,
            "prod": _always,
            "add": lambda node: _has_dots(node.args),
            "mul": lambda node: _has_dots(list(_flat(node))),
        },
        r"\frac{m(m+1)}{2}",
        r"\sum_{k=1}^{9}k | \prod_{k=1}^{4}k | 1+2+\dots+50",
    ),
    Rule(
        "derivative",
        "a derivative can still be worked out",
        {"diff": _always},
        r"4x^3",
        r"\frac{d}{dx}x^4",
    ),
    Rule(
        "matrix",
        "matrices can still be worked out",
        {
            "det": _always,
            "transpose": _always,
            "mul": _is_product_of_arrays,
            # With letters it is a line.
            "add": lambda node: (
                any(arg.op == "matrix" for arg in node.args) and _is_of_constants(node)
            ),
        },
        r"\frac{1}{5}\begin{pmatrix}2&1\\0&3\end{pmatrix}",
        (
            r"\begin{vmatrix}2&1\\0&3\end{vmatrix} |"
            r" \begin{pmatrix}1\\2\end{pmatrix}+\begin{pmatrix}3\\4\end{pmatrix}"
        ),
    ),
)
"""In the order in which a verdict names them."""

_BY_OP: dict[str, list[tuple[str, Callable[[Node], bool]]]] = {}
for _rule in RULES:
    for _op, _is_open in _rule.is_open.items():
        _BY_OP.setdefault(_op, []).append((_rule.kind, _is_open))
