r"""Equations and inequalities.

    x = 2 + 3 = 5  →  x: 5
    1 < x \le 3  →  x: (1, 3]
    x < 1 \text{ or } x > 3  →  x: a union

The caller decides how the parts are read: each function here takes that as `read`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from rlvr.verifiers.math.cut import brackets, cut, cuts, separator
from rlvr.verifiers.math.fold import squeeze
from rlvr.verifiers.math.forms import (
    INFINITY,
    MINUS_INFINITY,
    Flawed,
    Form,
    Items,
    Named,
    Quantity,
    flat,
    form_kind,
    pair,
    worth,
)
from rlvr.verifiers.math.intervals import pieces
from rlvr.verifiers.math.latex.roles import free_letters
from rlvr.verifiers.math.latex.tree import TURNED, free_symbols
from rlvr.verifiers.math.quantity import negated, read_measured, word
from rlvr.verifiers.math.statement import tree_or_none

__all__ = [
    "Reader",
    "equation",
    "inequality",
    "is_name",
    "together",
]

Reader: TypeAlias = Callable[[str], Form]

_COMMAS = separator("[,;]")
# = but not <=, :=, ==
_EQUALS = separator(r"(?<![<>!:])=(?!=)|\\in(?![a-zA-Z])")
_ABOUT = separator(r"\\approx")
_RELATION = separator(r"\\(?:le|ge|ne)(?![a-zA-Z])|<|>")
_RANKED = re.compile(r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{?\w\}?)?")
_ABSOLUTE = re.compile(r"\| ?([a-zA-Z]) ?\|")
_CLOSED = frozenset(("le", "ge"))
# of degrees, without functions
_ARITHMETIC = re.compile(r"(?:\\(?:circ|cdot|times|frac)(?![a-zA-Z])|[^\\a-zA-Z\"])*")
_SIGNS = ("<", ">", r"\le", r"\ge", r"\ne")

# (x), (x, y), (\alpha)
_ARGUMENTS = r"\( ?(?:[a-zA-Z]|\\[a-zA-Z]+)(?: ?, ?(?:[a-zA-Z]|\\[a-zA-Z]+))* ?\)"
# \overrightarrow{AB}, \vec v
_ARROW = (
    r"\\(?:overrightarrow|vec|hat|bar|overline|mathbf|boldsymbol) ?"
    r"(?:\{ ?[A-Za-z]{1,3} ?\}|[A-Za-z])"
)
# x, x_1, f(x), f^{-1}(x), (f \circ g)(x), \sigma^2, C_5^2, \vec a \cdot \vec b, \int … dx: what may
# stand before =.
_NAME = re.compile(
    r"(?:\"?[A-Za-z]{1,20}\"?"
    rf"|{_ARROW}"
    r"|\\[a-zA-Z]+) ?(?:\^\{? ?-1 ?\}? ?)?"
    rf"(?:_ ?(?:\w|\{{ ?\w{{1,8}}(?: ?[,/] ?\d)? ?\}}|\{{? ?\"\w{{1,8}}\" ?\}}?))?'{{0,3}} ?"
    rf"(?:{_ARGUMENTS})?|{_ARGUMENTS}"
    r"|[A-Za-z]'? ?\( ?-?\d{1,9} ?\)"  # f(2) = 5 names a value as f(x) = 5 does
    r"|[fgh] ?\( ?[fgh] ?\( ?[a-z] ?\) ?\)"
    r"|\( ?[fgh] ?(?:\\circ|\+|-|\\cdot)? ?[fgh] ?\) ?\( ?[a-z] ?\)"
    r"|[A-Z] ?\( ?[A-Z] ?(?:[<>=]|\\[lg]e) ?-?[\d.]{1,9} ?\)"  # P(X > 2)
    r"|(?:\\sigma|s) ?\^ ?(?:2|\{ ?2 ?\})"
    r"|(?:\{ ?\} ?)?\^ ?\{? ?\d{1,4} ?\}? ?[CP] ?_ ?\{? ?\d{1,4} ?\}?"
    rf"|{_ARROW} ?(?:\\cdot|\\times) ?{_ARROW}"
    r'|[A-Za-z] ?\( ?(?:\d{1,3} ?)?"[^"()=]{1,60}" ?\)'  # P("both red")
    r'|"[A-Za-z]{1,20}" ?(?:[\[(](?:[^()=\[\]]|\([^()=\[\]]{1,40}\)){1,60}[\])]|[A-Z])'
    r'|"[A-Za-z]{1,20}[- ][A-Za-z]{1,20}"|[A-Za-z]{3,20} [a-z]{3,20}'
    r"|\\int(?![a-zA-Z])[^=]{1,200}?d ?[a-z]"
)
_AT = re.compile(r"[\w)}] (?:at|when|if|where) [a-zA-Z]\Z")
_ALSO_NAMES = frozenset(("i", "e"))
# A constant has a value already, so that π = 3 names nothing.
_CONSTANTS = frozenset((r"\pi", r"\infty", r"\emptyset", "e", "i"))


def is_name(text: str) -> bool:
    """`x`, `x_1`, `f(x)`, `\\alpha`, `(x, y)`, `(f(n), g(n))`, `"Area"`."""
    if _NAME.fullmatch(text):
        return text not in _CONSTANTS
    return brackets(text) == ("(", ")") and all(map(_NAME.fullmatch, cut(text[1:-1], _COMMAS)))


# ---------------------------------------------------------------------------------------- equations


def equation(text: str, read: Reader) -> Form | None:
    """What stands behind the last name, if every step before it is arithmetic that holds."""
    if r"\approx" in text and len(approximation := cut(text, _ABOUT)) == 2:
        # x ≈ 1.41 states 1.41; √2 ≈ 1.41 states √2
        if is_name(approximation[0]):
            return Named(text, _call_name(approximation[0]), read(approximation[1]))
        if flawed := _tautology(text, *approximation):
            return flawed
        # 5 ≈ 6 is a chain that does not hold.
        exact, rounded = map(read, approximation)
        return Flawed(text, "chain") if _is_far(exact, rounded) else read(approximation[0])
    if "=" not in text and r"\in" not in text:
        return None
    parts, _ = cuts(text, _EQUALS)
    if len(parts) < 2:
        return None
    if not all(parts):
        return Quantity(text, text)  # x = 5 =
    if _AT.search(parts[0]):
        return word(text)  # 3 at x = 6
    # `takewhile`: the names in front; behind the first value no name counts.
    names = list(itertools.takewhile(is_name, parts[:-1]))
    if len(parts) == 2:
        left, right = parts
        if left in _ALSO_NAMES and _is_closed(read(right)):
            names = [left]  # i = 3, e = 1/2
        if not names and is_name(right) and "=" in text and _is_closed(value := read(left)):
            return Named(text, _call_name(right), value)  # 5 = x
        if names and len(left) == 1 and left in right:
            sides = tuple(map(read, parts))
            if (tree := tree_or_none(sides[1])) and left in free_letters(tree):
                # x = 2x - 3 is to be solved, and x = x + 1 is false
                return _tautology(text, *parts) or Quantity(text, text, sides=sides)
    name = "=".join(map(_call_name, names)) or None  # x = y = z = 1 names three things at once
    if len(names) < len(parts) - 1:
        return _chain(text, name, parts[len(names) :], read)
    *_, last = parts
    if len(names) > 1 and all(len(n) == 1 and n.isalpha() for n in names):
        body = read(last)
        return Items(text, "list", tuple(Named(f"{n}={last}", n, body) for n in names))
    return _tautology(text, *parts[-2:]) or Named(text, name or "", read(last))


def _is_far(exact: Form, rounded: Form) -> bool:
    """5 ≈ 6: two numbers that differ by one unit of the last place that the second is written with,
    or by more."""
    if not isinstance(exact, Quantity) or not isinstance(rounded, Quantity):
        return False
    if exact.value is None and rounded.value is None:  # 50 g ≈ 10 g
        exact = read_measured(exact.text) or exact
        rounded = read_measured(rounded.text) or rounded
    is_measured_alike = (exact.unit, exact.percent) == (rounded.unit, rounded.percent)
    if exact.value is None or rounded.value is None or not is_measured_alike:
        return False  # 1.5 m ≈ 4.9 ft
    gap, digits = abs(Fraction(exact.value) - Fraction(rounded.value)), rounded.core
    # A whole number that ends in zeros may be rounded at the first of them.
    if digits.isdecimal() and digits.endswith("0"):  # 1234 ≈ 1200
        return gap > Fraction(10) ** (len(digits) - len(digits.rstrip("0"))) / 2
    # 1.234 ≈ 1.23 differs by less than a unit of the last place.
    return gap >= Fraction(10) ** -(rounded.places or 0)


def _is_closed(form: Form) -> bool:
    """No variable stands in it."""
    tree = tree_or_none(form)
    return tree is not None and not free_symbols(tree)


def _have_same_letters(forms: Sequence[Form]) -> bool:
    letters = {tree and free_symbols(tree) for tree in map(tree_or_none, forms)}
    return len(letters) == 1 and None not in letters


def _call_name(name: str) -> str:
    words = name.replace('"', "").strip()
    return words.casefold() if len(words) > 1 and words.isalpha() else squeeze(name)


def _tautology(text: str, left: str, right: str) -> Flawed | None:
    return Flawed(text, "tautology") if squeeze(left) == squeeze(right) else None


def _chain(text: str, name: str | None, sides: list[str], read: Reader) -> Form:
    """x = 2 + 3 = 5 is 5 because arithmetic says so; a longer chain that it cannot vouch for is
    flawed."""
    if any('"' in side for side in sides[:-1]):
        return word(text)  # x = 3 "if" y = 1
    for left, right in itertools.pairwise(sides):
        if flawed := _tautology(text, left, right):
            return flawed
    if sides[-1].endswith(r"^\circ") and _ARITHMETIC.fullmatch("=".join(sides)):
        sides = [side.replace(r"^\circ", "") for side in sides[:-1]] + sides[-1:]
    forms = tuple(map(read, sides))
    values = list(map(worth, forms))
    last = forms[-1]
    if not isinstance(last, Quantity) and '"' in text:
        return word(text)
    distinct = set(values) - {None}
    if isinstance(last, Quantity) and len(distinct) == 1 and None not in values:
        return replace(last, text=text, sides=forms) if name is None else Named(text, name, last)
    if name is None and None in values:
        if len(sides) == 2:
            return Quantity(text, text, sides=forms)  # an equation such as x + y = 3
        if values[0] is None and values.count(values[-1]) == len(values) - 1:
            short = f"{sides[0]}={sides[-1]}"  # m + n = 5 + 7 = 12
            return Quantity(short, short, sides=(forms[0], last))
        if values[0] is None and len(distinct) < 2:
            return Quantity(text, text, sides=forms)
    if name is not None and len(distinct) < 2 and None in values and _have_same_letters(forms):
        # AB = \sqrt{20} = 2\sqrt5, f(x) = 3(x - 1) + 4 = 3x + 1
        equation = "=".join(sides)
        return Named(text, name, Quantity(equation, equation, sides=forms))
    return Flawed(text, "chain")


# ------------------------------------------------------------------------------------- inequalities


def inequality(text: str, read: Reader) -> Form | None:
    r"""`x < 2` and `1 < x \le 3` as intervals of x, `b < a < c` with its sides; None where no side
    is a single name, or two are."""
    if not any(sign in text for sign in _SIGNS):
        return None
    sides, separators = cuts(text, _RELATION)
    signs = [sign.lstrip("\\") for sign in separators]
    if len(sides) > 2 and {*signs} in ({"<"}, {">"}):
        forms = tuple(map(read, sides))
        if all(map(_RANKED.fullmatch, sides)) or _are_sorted(forms, signs):
            return Quantity(text, text, sides=forms)
    if not all(sides) or len(sides) not in (2, 3):
        return None
    if len(sides) == 2:
        ways = (sides[0], signs[0], sides[1]), (sides[1], TURNED[signs[0]], sides[0])
        sizes = [
            (size[1], sign, end) for side, sign, end in ways if (size := _ABSOLUTE.fullmatch(side))
        ]
        if len(sizes) == 1:
            return _absolute(text, *sizes[0], read)
        named = [way for way in ways if is_name(way[0])]
        if len(named) != 1:
            return None
        [(name, sign, end)] = named
        return Named(text, _call_name(name), _ray(sign, read(end)))
    # 1 < x > 3 bounds x from one side twice.
    if list(map(is_name, sides)) != [False, True, False]:
        return None
    between = _between(_ray(TURNED[signs[0]], read(sides[0])), _ray(signs[1], read(sides[2])))
    return between and Named(text, _call_name(sides[1]), between)


def _are_sorted(forms: Sequence[Form], signs: Sequence[str]) -> bool:
    """Numbers that stand in the order which the signs between them say."""
    numbers = [value for value in map(worth, forms) if value is not None]
    return len(numbers) == len(forms) and numbers == sorted(numbers, reverse=signs[0] == ">")


def _absolute(text: str, name: str, sign: str, size: str, read: Reader) -> Form | None:
    r"""|x| < 2 is (-2, 2), and |x| \ge 2 what is left."""
    # |x| < a - b has no sign that can be put before it.
    if sign == "ne" or any(mark in size for mark in "+-"):
        return None
    high = read(size)
    if not isinstance(high, Quantity):
        return None
    low = negated(high)
    rays = _ray(TURNED[sign], low), _ray(sign, high)
    joined = _between(*rays) if sign in ("<", "le") else None
    return Named(text, name, joined or _either(rays))


def _ray(sign: str, end: Form) -> Items:
    if sign == "ne":  # without one number the line is two rays
        return _either((_ray("<", end), _ray(">", end)))
    closed = sign in _CLOSED
    if sign in ("<", "le"):
        return pair("(]" if closed else "()", MINUS_INFINITY, end)
    return pair("[)" if closed else "()", end, INFINITY)


def _either(items: tuple[Items, ...]) -> Items:
    return Items(r" \cup ".join(item.text for item in items), "union", items)


def _between(*rays: Items) -> Items | None:
    """x > 1 and x < 3 are cut to (1, 3)."""
    low = [ray for ray in rays if ray.items[1:] == (INFINITY,)]
    high = [ray for ray in rays if ray.items[:1] == (MINUS_INFINITY,)]
    if not len(low) == len(high) == len(rays) - 1 == 1 or low == high:
        return None
    return pair(low[0].kind[0] + high[0].kind[1], low[0].items[0], high[0].items[1])


# ------------------------------------------------------------------- several statements of one name


def together(text: str, forms: Sequence[Form], signs: Sequence[str]) -> Form | None:
    """Several statements of one name as one: x = 1, x = 2 and x = 1, 2 list values; x < 1 or x > 3
    is a union.

    Args:
        text: all of it.
        forms: the parts between commas, read.
        signs: the separators; a semicolon is what `or` was folded to.
    """
    first = forms[0]
    if not isinstance(first, Named) or isinstance(first.body, Flawed):
        return None
    if not any(isinstance(form, Named) for form in forms[1:]):
        # Area = 5, 6: a word names one thing, and what follows is another.
        if (len(first.name) > 2 and first.name.isalpha()) or form_kind(first.body) == "set":
            return None
        return Named(text, first.name, _list([first.body, *forms[1:]]))
    bodies = [form.body for form in forms if isinstance(form, Named) and form.name == first.name]
    if len(bodies) < len(forms):
        return None
    regions = [form_kind(body) in ("()", "(]", "[)", "[]", "union") for body in bodies]
    # (x, y) = (1, 2), (3, 4) lists points, though each body looks like an interval.
    if not any(regions) or first.name.startswith("("):
        return Named(text, first.name, _list(bodies))
    return Named(text, first.name, _region(bodies, signs))


def _list(items: Sequence[Form]) -> Items:
    return Items(" , ".join(item.text for item in items), "list", flat(items))


def _region(bodies: list[Form], signs: Sequence[str]) -> Items:
    """A union if it was said with `or`, or with commas and nothing satisfies all; else what all
    allow."""
    items = tuple(
        body if isinstance(body, Items) else Items(rf"\{{{body.text}\}}", "set", (body,))
        for body in bodies
    )
    # Only exact ends can show it: with others nothing is taken for impossible.
    impossible = pieces(Items("", "meet", items)) == []
    if ";" in signs or (impossible and r"\also" not in signs):  # x < 1, x > 2
        return _either(items)
    if impossible:
        return Items(r"\emptyset", "set", ())
    return _between(*items) or Items(r" \cap ".join(item.text for item in items), "meet", items)
