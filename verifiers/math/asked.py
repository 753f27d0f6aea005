"""The forms that a prompt asks for by name; an answer must have them where the reference has
them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rlvr.verifiers.math.canonical import factors_of, linear, written_value
from rlvr.verifiers.math.finished import is_written_out
from rlvr.verifiers.math.forms import Form, Quantity
from rlvr.verifiers.math.given import asked_for
from rlvr.verifiers.math.latex.roles import settle_roles
from rlvr.verifiers.math.latex.tree import (
    EULER,
    IMAGINARY,
    PI,
    Node,
    calls,
    free_symbols,
    has,
    unsigned,
    walk,
)
from rlvr.verifiers.math.remarks import question
from rlvr.verifiers.math.shapes import is_relation
from rlvr.verifiers.math.statement import as_tree, in_degrees, inside_of, leaves, tree_or_none
from rlvr.verifiers.math.units import canonical, measure

__all__ = ["FORMS", "NamedForm", "named_units", "names_another", "not_as_asked"]

_LARGEST_PRIME = 10**9
# What a question has that a sign around its number answers: 12%, 12 times, 5:14, 45°.
_SIGNS = {
    # 15% of 240 asks for no percentage
    "percent": re.compile(r"(?i)(?<!\d)(?<!\d[ \\])(?:per ?cent|\\?%|\bpct\b)"),
    "time": re.compile(r"(?i)\btimes?\b|\boften\b"),
    "ratio": re.compile(r"(?i)\bratio|\bodds|proportion|\bscale|\d ?: ?\d"),
    "degree": re.compile(
        r"(?is)\A(?!.*(?:\\int|\\sum|\\lim|∫|integral|series|limit|\b(?:area|volume|length)\b))",
    ),
}
_SOLVED_FOR = re.compile(
    r"\b[Ss]olve\b[^.?]{0,60}? for \$?\\?([A-Za-z]\w{0,6})\b|\b([a-zA-Z])\$? in terms of"
)
_OF_FUNCTION = re.compile(r"'|\^ ?\{? ?-1|[a-zA-Z] ?\( ?[a-zA-Z] ?\(|\\circ")
_TERM = re.compile(r"\b(\d{1,9})(?:st|nd|rd|th) term\b|\bfirst (\d{1,9}) terms\b")
_NEXT = re.compile(r"\bnext (?:term|number) [^$]{0,40}\$([^$]{1,200}?), ?\\l?dots")
_NAMED = re.compile(r"_ ?\{?\"? ?(?:[a-z]{2}|\\)")  # f_{avg}
_INDEX = re.compile(r"[a-zA-Z]_\{?(\d{1,9})\}?")
# \det A, "Var" (X), Perimeter: what an equation names, and how a prompt calls it
_HEAD = re.compile(r'[\\"]?([A-Za-z]+)"?( ?\^)?')
_CALLED = {
    noun: noun
    for noun in (
        "determinant trace variance deviation median area perimeter circumference volume radius "
        "diameter amplitude period"
    ).split()
} | {
    "det": "determinant",
    "tr": "trace",
    "var": "variance",
    "sigma^": "variance",
    "s^": "variance",
    "sigma": "deviation",
    "d": r"diam|dist|diff|digit|\bd\b",
    "mean": "mean|average|expect",
    "average": "mean|average|expect",
}
_NOUNS = frozenset(_CALLED.values()) - {_CALLED["d"]}
_ASKED_LENGTH = re.compile(
    r"(?i)\b(?:find|compute|determine|calculate|what is) (?:the|its|their) (?:exact )?"
    r"(?:radius|diameter|distance|perimeter|circumference|height|length|width)\b",
)
_ASKED_CHANGE = re.compile(
    r"(?i)\b(?:find|compute|determine|calculate|what is) (?:the|its) (?:derivative|velocity|"
    r"acceleration)\b",
)
_FUNCTION = re.compile(r"([a-zA-Z]) ?(?:\( ?[\da-z.]{1,9} ?\))?")
_ROOTS = re.compile(r"[a-z]_\{?1\}? ?(?P<plus>\+)? ?(?:\\cdot ?)?[a-z]_\{?2\}?")
_PRIMES = re.compile(r"(?<![a-zA-Z])[a-zA-Z]('{1,3})(?!\w)")
_HOW_MANY = re.compile(
    r"(?i)\bhow many ((?!(?:does|is|was|has)\b)[a-z]+(?:s|people|children|men|women)\b[^?]*)"
)
_AMONG = re.compile(r"\b(?:among|from|if|when|occur|with|for)\b")
_MONEY = frozenset(("cent", "dollar", "euro"))
_DIMENSIONS = {
    "unit^2": ("area|surface", "volume|perimeter|circumference"),
    "unit^3": ("volume|space", "area|perimeter|circumference"),
}
_PARTS_OF_YEAR = frozenset(("month", "week", "day"))
_IN_UNIT = re.compile(
    r"\b(?:in|to|into|as|many|of)\s+((?:square |cubic )?[A-Za-z]+(?:(?:/| per )[A-Za-z]+)?)"
)


@dataclass(frozen=True, slots=True)
class NamedForm:
    """One form that a prompt may ask for.

    Attributes:
        name: what a verdict says was asked for.
        asks: what the prompt says, in any case.
        holds: whether a tree has the form.
        has, has_not: examples, of which the documentation and the tests are made.
    """

    name: str
    asks: str
    holds: Callable[[Node], bool]
    has: str
    has_not: str
    count: Callable[[Node], int] = lambda tree: 0
    """Of what the answer has as many as the reference, at least."""


def not_as_asked(answer: Node, reference: Node, prompt: str) -> str:
    """The form that the prompt asks for, the reference has and a right answer has not; "" if there
    is none.

    Args:
        answer, reference: as `statement.as_tree` makes them.
        prompt: the text of the prompt.
    """
    if _is_for_another(answer, reference, prompt):
        return "another letter"
    bare = (inside_of(tree, "named", "family") for tree in (answer, reference))
    answer, reference = settle_roles(*bare)
    for form in _named_forms(prompt):
        is_due = form.holds(reference)
        if is_due and not (form.holds(answer) and form.count(answer) >= form.count(reference)):
            return form.name
    if (sign := _sign_around(answer, reference)) and not _SIGNS[sign].search(question(prompt)):
        return "a plain number"
    if _counts_another(answer, prompt) or not _is_in_unit(answer, reference, prompt):
        return "another unit"
    return ""


def _sign_around(answer: Node, reference: Node) -> str:
    """`percent` for 12% beside 12, and so on; "" where the reference has the sign too."""
    sign = str(answer.value) if answer.op == "unit" else answer.op
    if sign not in _SIGNS or reference.op in ("unit", "percent", "ratio"):
        return ""
    number = written_value(reference)
    is_other = {
        "percent": written_value(answer.args[0]) == number,  # 50% beside one half is that
        "ratio": number is not None and number.denominator == 1,  # 5:36 is 5/36
        "degree": PI in walk(reference),
    }
    return sign if is_other.get(sign, True) else ""


def _is_for_another(answer: Node, reference: Node, prompt: str) -> bool:
    """x = 4 - 2y for y = 2 - x/2, where the prompt asks for y."""
    if reference.op != "named" or answer.op not in ("named", "rel") or not free_symbols(reference):
        return False
    due = {name for pair in _SOLVED_FOR.findall(prompt) for name in pair}
    return reference.value in due and answer.value != reference.value


def names_another(answer: Form, reference: Form, prompt: str, same: Callable[..., bool]) -> bool:
    """Whether an answer is an equation for something else than the prompt asks for by a formula:
    `x + y = 5`, where $xy$ is asked for, and a_4 beside the 5th term.

    Args:
        answer, reference: their forms.
        prompt: the text of the prompt.
        same: whether two trees have one value.
    """
    if not isinstance(reference, Quantity) or is_relation(reference) or "=" not in answer.text:
        return False
    text = answer.text.partition("=")[0].strip()
    if _is_called_otherwise(text, prompt):
        return True
    whole = tree_or_none(answer)
    if whole is None or whole.op != "rel" or whole.value != ("=",):
        return False
    side = whole.args[0]
    terms = {int(first or second) for first, second in _TERM.findall(prompt)}
    terms |= {listed.count(",") + 2 for listed in _NEXT.findall(prompt)}
    if terms and (index := _INDEX.fullmatch(text)):
        return int(index[1]) not in terms and not ("_0" in prompt and int(index[1]) + 1 in terms)
    asked, names = asked_for(prompt), _heads(side)
    if not asked or not names or side in asked or r"\angle" in text or _NAMED.search(text):
        return False
    side = side.args[0] if side.value == "abs" else side  # |AC| = 13
    has_letters = free_symbols(as_tree(reference)) and not _OF_FUNCTION.search(text)
    if has_letters or side in asked:
        return False
    if side.op == "sym" and all(part.op == "sym" for part in asked):
        heads = {part.value.partition("_")[0] for part in asked}
        if side.value[:1] in heads:  # x_1 is one of the x that are asked for, and no a_4 is a_5
            return "_" in side.value and all("_" in part.value for part in asked)
        return re.search(rf"(?<![\w\\]){re.escape(side.value)}(?!\w)", prompt) is not None
    return all(names <= _heads(part) or _is_segment(side, part) for part in asked) and not any(
        same(side, part) for part in asked
    )


def _is_called_otherwise(name: str, prompt: str) -> bool:
    """\\sigma where the variance is asked for, x_1x_2 beside a sum, f' beside f''."""
    if primes := _PRIMES.match(name):
        asked = {*_PRIMES.findall(prompt), *["''"] * ("second deriv" in prompt)}
        return bool(asked) and primes[1] not in asked
    if roots := _ROOTS.fullmatch(name):
        both = ("product", "sum") if roots["plus"] else ("sum", "product")
        return both[0] in prompt and both[1] not in prompt
    if (
        (given := _FUNCTION.fullmatch(name))
        and _ASKED_CHANGE.search(prompt)
        and given[1] not in "va"
    ):
        return re.search(rf"\$ ?{given[1]} ?(?:\( ?[a-z] ?\))? ?=", prompt) is not None
    head = _HEAD.match(name)
    called = _CALLED.get(head[1].casefold() + (head[2] or "").strip(), "") if head else ""
    if not called or re.search(called, prompt, re.IGNORECASE):
        return False
    due = question(prompt)
    return any(re.search(rf"\b(?:{other})", due, re.IGNORECASE) for other in _NOUNS)


def _is_segment(*trees: Node) -> bool:
    """AB and AC."""
    return all(
        tree.op == "mul" and len(tree.args) == 2 and str(arg.value).isupper()
        for tree in trees
        for arg in tree.args or (tree,)
    )


def _heads(tree: Node) -> set[str]:
    return {name.partition("_")[0].rstrip("'") for name in free_symbols(tree)}


@lru_cache(maxsize=512)
def _named_forms(prompt: str) -> tuple[NamedForm, ...]:
    return tuple(form for form in FORMS if re.search(form.asks, prompt, re.IGNORECASE))


@lru_cache(maxsize=512)
def named_units(prompt: str) -> frozenset[str | None]:
    """The canonical names of the units that a prompt asks for.

    Args:
        prompt: its text.
    """
    named = frozenset(map(canonical, _IN_UNIT.findall(prompt)))
    return named | {"year"} if "ow old" in prompt and named.isdisjoint(_PARTS_OF_YEAR) else named


def _counts_another(answer: Node, prompt: str) -> bool:
    """25 boys, where the prompt speaks of boys and asks how many girls there are; cubic units of an
    area."""
    unit = str(answer.value) if answer.op == "unit" else ""
    size = measure(unit) if unit else None
    if size and [base for base, _ in size[1]] == ["m"]:
        unit = f"unit^{size[1][0][1]}"
    if unit in _DIMENSIONS:
        if _ASKED_LENGTH.search(prompt):
            return True
        own, other = _DIMENSIONS[unit]
        is_other = re.search(rf"\b(?:{other})\b", question(prompt))
        return is_other is not None and not re.search(own, prompt)
    if not unit or (asked := _HOW_MANY.search(question(prompt))) is None:
        return False
    if measure(unit) and measure(canonical(asked[1].split()[0]) or ""):
        return False
    counted = re.compile(rf"(?i)\b{re.escape(unit)}(?:s|es)?\b")
    return bool(counted.search(prompt)) and not counted.search(_AMONG.split(asked[1])[0])


def _is_in_unit(answer: Node, reference: Node, prompt: str) -> bool:
    """Who asks for meters is not answered in kilometers."""
    if answer.op != "unit" or reference.op not in ("unit", "num"):
        return True
    named = named_units(prompt)
    measurable = {name for name in named if name and measure(name)}
    due = {reference.value} if reference.op == "unit" else measurable
    if not measurable or not due <= named:
        return True
    unit = str(answer.value)
    # cents per ounce
    is_price = unit in _MONEY and any(f"{unit} / " in name for name in named if name)
    is_same = measure(unit) in set(map(measure, due)) - {None}  # kph is km/h
    is_due = not due.isdisjoint((unit, unit.partition(" ")[0]))  # cups of sugar are cups
    return is_price or is_same or is_due


def _is_whole(node: Node) -> bool:
    return node.op == "num" and Fraction(node.value).denominator == 1


def _each(holds: Callable[[Node], bool]) -> Callable[[Node], bool]:
    """All numbers are written so; whole ones may be, but one is not."""

    def hold(tree: Node) -> bool:
        numbers = [inside_of(leaf, "neg", "percent", "unit") for leaf in leaves(tree)]
        return all(holds(n) or _is_whole(n) for n in numbers) and any(map(holds, numbers))

    return hold


def _is_quotient(node: Node) -> bool:
    return node.op == "div" and is_written_out(node)


def _is_mixed(node: Node) -> bool:
    return node.op == "add" and node.value == "mixed"


def _is_scientific(node: Node) -> bool:
    """One digit stands before the point."""
    if node.op == "mul" and is_written_out(node):
        return 1 <= abs(written_value(node.args[0]) or Fraction(0)) < 10
    return node.op == "pow" and is_written_out(node)


def _is_percent(tree: Node) -> bool:
    """The number before the sign may stand alone."""
    return tree.op == "percent" or (tree.op == "num" and abs(Fraction(tree.value)) > 1)


def _is_product(tree: Node) -> bool:
    """Factors with letters, none of which has a whole number that could stand before it."""
    factors = _factors_with_letters(tree)
    product = unsigned(tree).op in ("mul", "pow")
    return product and bool(factors) and all(_content(factor) == 1 for factor in factors)


def _letters_apart(tree: Node) -> int:
    return len(_factors_with_letters(tree))


def _factors_with_letters(tree: Node) -> list[Node]:
    if tree.op == "neg":
        return _factors_with_letters(tree.args[0])
    if tree.op == "mul":
        return [factor for arg in tree.args for factor in _factors_with_letters(arg)]
    if tree.op == "pow" and _is_whole(tree.args[1]) and 0 < tree.args[1].value < 100:
        return _factors_with_letters(tree.args[0]) * int(tree.args[1].value)
    return [tree] if free_symbols(tree) else []


def _content(factor: Node) -> int:
    if factor.op != "add":
        return 1
    if any(node.op == "div" and free_symbols(node.args[1]) for node in walk(factor)):
        return 0  # x(1 + 2/x)
    values = [abs(value) for value in linear(factor).values()]
    return math.gcd(*map(int, values)) if all(v.denominator == 1 for v in values) else 1


def _is_expanded(tree: Node) -> bool:
    """No product with a sum, such as x(x+1), and no power of one."""
    return tree.op in ("add", "neg", "mul", "pow", "sym", "num") and not any(
        any(factor.op == "add" for factor in node.args)
        if node.op in ("mul", "apply")
        else _is_sum_power(node)
        for node in walk(tree)
    )


def _is_in_primes(tree: Node) -> bool:
    """A product of powers of primes: 2^3\\cdot5, and no 40 or 8\\cdot5."""
    if tree.op == "mul":
        return all(map(_is_in_primes, tree.args))
    if tree.op == "pow":
        return _is_in_primes(tree.args[0]) and _is_whole(tree.args[1])
    return _is_whole(tree) and _is_prime(int(tree.value))


def _is_prime(number: int) -> bool:
    return 1 < number < _LARGEST_PRIME and all(
        number % factor for factor in range(2, math.isqrt(number) + 1)
    )


def _is_sum_power(node: Node) -> bool:
    return node.op == "pow" and node.args[0].op == "add" and factors_of(node)[1] != ()


def _is_rationalized(tree: Node) -> bool:
    return not any(
        (node.op == "div" and any(map(_is_radical, walk(node.args[1]))))
        or (node.op == "root" and has(node.args[0], "div"))
        for node in walk(tree)
    )


def _is_radical(node: Node) -> bool:
    return node.op == "root" or (node.op == "pow" and not _is_whole(node.args[1]))


def _is_interval(tree: Node) -> bool:
    return (tree.op == "tuple" and len(tree.args) == 2) or (
        tree.op == "union" and all(map(_is_interval, tree.args))
    )


def _is_polar(tree: Node) -> bool:
    """re^{it}, and r(\\cos t + i\\sin t)."""
    return (calls(tree, "cos") and calls(tree, "sin")) or any(
        node.op == "pow" and node.args[0] == EULER and IMAGINARY in walk(node)
        for node in walk(tree)
    )


def _is_rectangular(tree: Node) -> bool:
    return not _is_polar(tree) and not any(
        node.op == "call" or (IMAGINARY in node.args and any(arg.op == "add" for arg in node.args))
        for node in map(unsigned, walk(tree))
    )


FORMS = (
    NamedForm(
        "a product",
        r"\bfactori[sz]e\b|\bfactor(?:ed)?\b(?! of)|\bfactored form",
        _is_product,
        r"(x+3)(x-3) | 7(x+3)(x-3) | x^2(x-16)",
        r"x^2-9 | (7x+21)(x-3) | x(x+1)-2",
        _letters_apart,
    ),
    NamedForm(
        "no brackets",
        r"\bexpand|\bmultipl(?:y|ied) out|\bwithout (?:parentheses|brackets)",
        _is_expanded,
        r"x^2-9 | 2x+2",
        r"(x+3)(x-3) | 2(x+1) | (x+1)^2 | x(x+2)+1",
    ),
    NamedForm(
        "prime factors",
        (
            r"\bprime factori[sz]ation|\bproduct of (?:its )?primes?|\bprime factors|"
            r"\bfactori[sz]e\b"
        ),
        _is_in_primes,
        r"2^3\cdot3^2\cdot5 | 2\cdot3 | 7",
        r"360 | 8\cdot9\cdot5",
    ),
    NamedForm(
        "a completed square",
        r"\bvertex form|\bcomplet\w+ the square|\bstandard form of (?:the|a) circle",
        lambda tree: any(map(_is_sum_power, walk(tree))),  # behind `y =` too
        r"(x-1)^2+2 | -3(x+2)^2-1",
        r"x^2-2x+3",
    ),
    NamedForm(
        "a percentage",
        r"\b(?:as|to|into|in) (?:a |an )?percent",
        _is_percent,
        r"37.5\% | 37.5",
        r"\frac38 | 0.375",
    ),
    NamedForm(
        "a mixed number",
        r"\bmixed (?:number|fraction|numeral)",
        _each(_is_mixed),
        r"3\frac17",
        r"\frac{22}{7}",
    ),
    NamedForm(
        "an improper fraction",
        r"\bimproper fraction",
        _each(_is_quotient),
        r"\frac{17}{5}",
        r"3\frac25",
    ),
    NamedForm(
        "a fraction",
        (
            r"\b(?:as|to|into) (?:a |an )?(?:[a-z]+ ){0,3}fraction|\bcommon fraction"
            r"|\b(?:what|which) fraction|\b(?:lowest|simplest) (?:terms|form)"
        ),
        _each(lambda node: _is_quotient(node) or _is_mixed(node)),
        r"\frac{3}{8} | 1\frac12",
        r"0.375 | 37.5\%",
    ),
    NamedForm(
        "a decimal",
        (
            r"\b(?:as|to|into|in) (?:a |an )?(?:[a-z]+ ){0,2}decimal(?! place)"
            r"|\bdecimal (?:form|notation|expansion|number)"
        ),
        _each(lambda node: node.op == "num" and not _is_whole(node)),
        "0.35 | 0.350",
        r"\frac{7}{20} | 3.5\times10^{-1}",
    ),
    NamedForm(
        "scientific notation",
        r"\bscientific notation|\bstandard index form",
        _each(_is_scientific),
        r"4.5\times10^{-4}",
        r"0.00045 | 45\times10^{-5}",
    ),
    NamedForm(
        "digits",
        r"\b(?:in|using|with|as) (?:digits|numerals|figures)\b|\bstandard (?:notation|form)\b",
        lambda tree: tree.op == "num",
        "21",
        r"\text{twenty-one} | 2.1\times10^{1}",
    ),
    NamedForm(
        "no root in a denominator",
        r"\brationali[sz]e the denominator|\brational denominator|\b\w+ radical form",
        _is_rationalized,
        r"\frac{\sqrt5}{5} | 7\sqrt2",
        r"\frac{1}{\sqrt5} | \frac{14}{\sqrt2}",
    ),
    NamedForm(
        "radians",
        r"\b(?:in|to|into) radians?\b",
        lambda tree: not any(node.op == "deg" or in_degrees(node) for node in walk(tree)),
        r"\frac{\pi}{4}",
        r"45^\circ",
    ),
    NamedForm(
        "degrees",
        r"\b(?:in|to|into) degrees?\b",
        lambda tree: PI not in walk(tree),
        r"45^\circ",
        r"\frac{\pi}{4}",
    ),
    NamedForm(
        "an implication",
        r"\bcontrapositive|\bconverse",
        lambda tree: tree.op == "logic" and tree.value == "implies",
        r"\neg q\to\neg p",
        r"q\lor\neg p",
    ),
    NamedForm(
        "an interval",
        r"\binterval notation",
        _is_interval,
        r"(-1,3) | (-\infty,1]\cup[2,\infty)",
        "-1<x<3 | x<2",
    ),
    NamedForm(
        "a time with am or pm",
        r"\b12[- ]hour",
        lambda tree: tree.op == "clock" and bool(tree.value[1]),
        r"5:30\text{ PM}",
        "17:30",
    ),
    NamedForm(
        "a time of 24 hours",
        r"\b24[- ]hour (?:time|format|clock|notation)",
        lambda tree: tree.op == "clock" and not tree.value[1],
        "17:30",
        r"5:30\text{ PM}",
    ),
    NamedForm(
        "a function by cases",
        r"\bas a piecewise|\bpiecewise (?:function|form|definition)",
        lambda tree: tree.op == "cases",
        r"\begin{cases}x&x\ge0\\-x&x<0\end{cases}",
        "|x|",
    ),
    NamedForm(
        "slope and intercept",
        r"\bslope[- ]intercept form",
        lambda tree: tree.op != "rel",
        "y=2x-1",
        "2x-y=1 | y+1=2x",
    ),
    NamedForm(
        "one logarithm",
        r"\bsingle log",
        lambda tree: (
            sum(node.op == "log" or node.value in ("ln", "log") for node in walk(tree)) == 1
        ),
        r"\log_2\frac{x}{y}",
        r"\log_2x-\log_2y",
    ),
    NamedForm(
        "polar form",
        r"\b(?:polar|exponential) form",
        _is_polar,
        r"2e^{i\pi/3}",
        r"1+\sqrt3i",
    ),
    NamedForm(
        "rectangular form",
        r"\b(?:rectangular|cartesian) form|\bform a ?\+ ?bi",
        _is_rectangular,
        r"1+\sqrt3i",
        r"2e^{i\pi/3}",
    ),
)
