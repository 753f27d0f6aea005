r"""Commands: fractions, roots, functions, logarithms, sums, integrals, limits, binomials."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlvr.verifiers.math.latex import atoms, brackets
from rlvr.verifiers.math.latex.names import ARITIES, BOLD, DECORATIONS, FUNCTIONS, INVERSES, SYMBOLS
from rlvr.verifiers.math.latex.tree import EULER, IMAGINARY, Node, Unreadable, call, neg, num, sym

if TYPE_CHECKING:
    from rlvr.verifiers.math.latex.parser import Parser

__all__ = ["command"]

# \sin x \cos y is a product of two functions, so the argument of the first ends at the second.
_ENDS_ARGUMENT = frozenset(("log", "lg", "sum", "prod", "int", "lim", "det", *FUNCTIONS))
_JOINING = frozenset((r"\cup", r"\cap", r"\setminus", r"\vee", r"\wedge"))
_NUMBERS = frozenset("RZNQC")


def command(parser: Parser, text: str) -> Node:
    """What stands for one value and begins with this command."""
    name = text.lstrip("\\")
    if reader := _READERS.get(name):
        return reader(parser)
    if name in SYMBOLS:
        return atoms.variable(parser, SYMBOLS[name])
    if name in FUNCTIONS:
        return _function(parser, FUNCTIONS[name])
    if name in DECORATIONS:
        return _read_decorated(parser, name)
    raise Unreadable(f"the command {text}")


# --------------------------------------------------------------------------------- fractions, roots


def _fraction(parser: Parser) -> Node:
    """Two groups; d/dx and dy/dx where they say so."""
    # In an integral the d above belongs to its dx: \int \frac{dx}{x}.
    is_derivative = parser.peek.text == "{" and parser.ahead().text in ("d", r"\partial")
    if is_derivative and not parser.integrals:
        return _derivative(parser)
    return Node("div", (_argument(parser), _argument(parser)))


def _argument(parser: Parser) -> Node:
    """A group; the `dx` of an integral may stand in it."""
    # The dx of \int \frac{dx}{x} is found in here; one that was found before is kept.
    differential, parser.differential = parser.differential, ""
    # \frac12 takes one digit each, as TeX does.
    value = parser.digit() or parser.atom()
    parser.differential = parser.differential or differential
    return value


def _derivative(parser: Parser) -> Node:
    r"""\frac{d}{dx} f, \frac{d^2}{dx^2} f, dy/dx as a variable; else a fraction of what begins with
    d."""
    above, below = atoms.raw_group(parser), atoms.raw_group(parser)
    top, bottom = (
        "".join(t.text.lstrip("\\") for t in side).replace("partial", "d")
        for side in (above, below)
    )
    variable = below[1].text.lstrip("\\") if len(below) > 1 else ""
    # The order as it is written above, d^2; beyond 5 it is read as a fraction.
    power = f"^{top[2]}" if top[1:2] == "^" and top[2:3] in tuple("2345") else ""
    # Both orders must agree, d^2/dx^2; else it is a fraction of letters, such as \frac{d}{dx+1}.
    if bottom != f"d{variable}{power}" or not variable.isalpha():
        return Node("div", (parser.inner(above), parser.inner(below)))
    if top == f"d{power}":
        with parser.binding(variable):
            # The body ends at the next sign: in \frac{d}{dx} x^2 + 1 the 1 is no part of it.
            return Node("diff", (parser.implicit(),), (variable, int(power[1:] or 1)))
    return sym(f"{top}/{bottom}")


def _root(parser: Parser) -> Node:
    index = num(2)
    if parser.peek.text == "[":
        parser.take()
        index = parser.sum()
        parser.expect("]")
    return Node("root", (parser.digit() or parser.atom(), index))


def _plain_root(parser: Parser) -> Node:
    """√12, √(a+b): of the whole number or bracket, while LaTeX's would take one sign."""
    return _root(parser) if parser.peek.text == "[" else Node("root", (parser.atom(), num(2)))


# ---------------------------------------------------------------------------------------- functions


def _function(parser: Parser, name: str) -> Node:
    r"""\sin x, \sin^2 x, \sin^{-1} x, \sin(x), \gcd(a, b)."""
    power = None
    # \max\{a, b\}: the braces hold its arguments, and are no set.
    if name in ("max", "min") and parser.peek.text == r"\{":
        parser.take()
        return call(name, *brackets.braces(parser).args)
    if parser.accept("^"):
        power = parser.script()
        if power in (num(-1), neg(num(1))) and name in INVERSES:
            name, power = INVERSES[name], None
    arguments = _arguments(parser)
    fewest, largest = ARITIES.get(name, (1, 1))
    if not fewest <= len(arguments) <= largest:
        raise Unreadable(f"{name} of {len(arguments)} things")
    value = call(name, *arguments)
    return value if power is None else Node("pow", (value, power))


def _arguments(parser: Parser) -> tuple[Node, ...]:
    """In brackets, which then end it; else what stands side by side up to the next function."""
    if (opening := parser.peek.text) in ("(", "[", "{"):
        inside = parser.atom()
        if inside.op == "tuple":
            return inside.args
        grouped = opening == "{" and parser.accept("^")  # \sin{x}^2 is printed as \sin x^2
        return (Node("pow", (inside, parser.script())) if grouped else inside,)
    with parser.deeper():
        factors = [parser.power()]
        while not _ends_argument(parser) and parser.starts_factor(parser.peek):
            factors.append(parser.power())
    return (factors[0] if len(factors) == 1 else Node("mul", tuple(factors)),)


def _ends_argument(parser: Parser) -> bool:
    return parser.peek.kind == "command" and parser.peek.text.lstrip("\\") in _ENDS_ARGUMENT


def _logarithm(parser: Parser) -> Node:
    r"""\log_2 8; without a base it is 10 or e, which `equality.py` has to try."""
    base, power = _scripts(parser)
    arguments = _arguments(parser)
    if len(arguments) != 1:
        raise Unreadable("a logarithm of two things")
    value = Node("log", (arguments[0], base)) if base else call("log", arguments[0])
    return value if power is None else Node("pow", (value, power))


def _common_logarithm(parser: Parser) -> Node:
    return Node("log", (_arguments(parser)[0], num(10)))


def _binomial(parser: Parser) -> Node:
    if parser.peek.text == "(":  # binom(n, k), in plain text
        inside = parser.atom()
        if inside.op != "tuple" or len(inside.args) != 2:
            raise Unreadable("a binomial of other than two things")
        return call("binom", *inside.args)
    return call("binom", parser.digit() or parser.atom(), parser.digit() or parser.atom())


def _determinant(parser: Parser) -> Node:
    return Node("det", (_arguments(parser)[0],))


def _on_circle(parser: Parser) -> Node:
    r"""\operatorname{cis} t, and the \angle t of r\angle t: e^{it}."""
    turn = Node("mul", (IMAGINARY, _arguments(parser)[0]))
    return Node("pow", (EULER, turn))


def _negation(parser: Parser) -> Node:
    return Node("logic", (parser.power(),), "not")


def _complement(parser: Parser) -> Node:
    r"""\complement A; in an exponent alone, as A^\complement."""
    return _negation(parser) if parser.starts_factor(parser.peek) else sym("complement")


def _exponential(parser: Parser) -> Node:
    return Node("pow", (EULER, _arguments(parser)[0]))


# -------------------------------------------------------------------------- sums, integrals, limits


def _scripts(parser: Parser) -> tuple[Node | None, Node | None]:
    """What stands below and above, in either order."""
    below = above = None
    while parser.peek.text in ("_", "^"):
        if parser.take().text == "_":
            below = parser.subscript()
        else:
            above = parser.script()
    return below, above


def _series(op: str) -> Callable[[Parser], Node]:
    def read(parser: Parser) -> Node:
        below, above = _scripts(parser)
        if below is None or above is None or below.value != ("=",):
            raise Unreadable("a sum without limits")
        index, start = below.args
        if index.op not in ("sym", "const"):
            raise Unreadable("a sum without limits")
        with parser.binding(index.value):
            # A product, so that \sum_{k=1}^n k + 1 is the sum, and 1.
            body = parser.product()
        return Node(op, (body, start, above), index.value)

    return read


def _integral(parser: Parser) -> Node:
    """Up to the dx, wherever it stands."""
    below, above = _scripts(parser)
    # While an integral is open, a d before a letter is its dx.
    parser.integrals += 1
    body = parser.sum()
    # Cleared, so that an integral around this one finds its own dx.
    variable, parser.differential = parser.differential, ""
    parser.integrals -= 1
    # \int x is no answer, and one limit alone names no number.
    if not variable or (below is None) != (above is None):
        raise Unreadable("an integral without its variable or one of its limits")
    ends = filter(None, (below, above))
    return Node("int", (body, *ends), variable)


def _limit(parser: Parser) -> Node:
    r"""\lim_{x \to 0^+}."""
    parser.expect("_")
    # Unread, since the arrow and the sign of the side are no parts of an expression.
    group = atoms.raw_group(parser)
    if len(group) < 3 or group[1].text not in (r"\to", r"\rightarrow"):
        raise Unreadable("a limit without a point")
    variable, _, *point = group
    signs = "".join(token.text for token in point[-4:])
    side = next((s for s in "+-" if signs.endswith((f"^{s}", f"^{{{s}}}"))), "")
    if side:
        # Four tokens for ^{+}, two for ^+.
        point = point[: -4 if signs.endswith("}") else -2]
    name = variable.text.lstrip("\\")
    with parser.binding(name):
        body = parser.product()
    return Node("lim", (body, parser.inner(point)), (name, side))


# --------------------------------------------------------------------------------------------- rest


def _read_decorated(parser: Parser, name: str) -> Node:
    r"""\vec{a}, \mathbf{i}: a letter that is another variable than the plain one; bold numbers are
    numbers."""
    group = atoms.raw_group(parser)
    if len(group) == 1 and group[0].kind in ("letter", "command"):
        # `^` cannot occur in a name that was written, so \vec{a} never meets a.
        mark = "^^" if name == "ddot" else "^"
        return atoms.variable(parser, group[0].text.lstrip("\\") + mark)
    are_points = 1 < len(group) <= 3 and all(token.kind == "letter" for token in group)
    if name in ("vec", "overrightarrow") and are_points:
        return atoms.variable(parser, "".join(token.text for token in group) + "^")  # from A to B
    # \hat{\mathbf{i}} is what its inner sign makes of the letter.
    if name not in BOLD and (not group or group[0].text.lstrip("\\") not in DECORATIONS):
        raise Unreadable(f"\\{name} of more than a letter")
    return parser.inner(group)


def _conjugate(parser: Parser) -> Node:
    r"""\overline{2+3i}; of letters it is a name: \bar{x} is a mean, and \overline{AB} a segment."""
    group = atoms.raw_group(parser)
    # \overline{A \cup B} is a complement, and so is \overline{p \wedge q}.
    if len(group) > 2 and any(token.text in _JOINING for token in group):
        return Node("logic", (parser.inner(group),), "not")
    # With a letter it is a name: \bar{x}, \overline{AB}.  `bar ` keeps it apart from x and AB.
    if any(token.kind == "letter" and token.text not in "ei" for token in group):
        return atoms.variable(parser, f"bar {''.join(token.text for token in group)}")
    # \overline{6} alone could be a repeating digit without its point.
    if not any(token.text == "i" for token in group):
        raise Unreadable("a line over a number")
    return Node("conj", (parser.inner(group),))


def _blackboard(parser: Parser) -> Node:
    name = "".join(token.text for token in atoms.raw_group(parser))
    if name in ("E", "P"):  # of a random variable, of an event
        return atoms.variable(parser, name)
    if name not in _NUMBERS:
        raise Unreadable(f"the set {name!r}")
    return Node("numbers", value=name)


def _constant(name: str) -> Callable[[Parser], Node]:
    return lambda parser: Node("const", value=name)


_READERS: dict[str, Callable[[Parser], Node]] = {
    "frac": _fraction,
    "sfrac": _fraction,
    "nicefrac": _fraction,
    "sqrt": _root,
    "cbrt": lambda parser: Node("root", (parser.atom(), num(3))),
    "surd": _plain_root,
    "log": _logarithm,
    "lg": _common_logarithm,
    "exp": _exponential,
    "neg": _negation,
    "lnot": _negation,
    "sim": _negation,
    "complement": _complement,
    "cis": _on_circle,
    "angle": _on_circle,
    "det": _determinant,
    "binom": _binomial,
    "sum": _series("sum"),
    "prod": _series("prod"),
    "int": _integral,
    "lim": _limit,
    "overline": _conjugate,
    "bar": _conjugate,
    "mathbb": _blackboard,
    "pi": _constant("pi"),
    "infty": _constant("inf"),
    "infinity": _constant("inf"),
    "emptyset": lambda parser: Node("numbers", value="empty"),
    "begin": brackets.environment,
    # `\{` without its backslash.
    "{": brackets.braces,
    "|": lambda parser: brackets.absolute(parser, r"\|"),
    "langle": brackets.tuple_of,
    "lfloor": lambda parser: brackets.floor_or_ceiling(parser, "floor"),
    "lceil": lambda parser: brackets.floor_or_ceiling(parser, "ceil"),
}
