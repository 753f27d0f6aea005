r"""The forms in which an answer can be read.

    5 cm, 12.5\%, \frac12, x^2 + 1 → Quantity      (1, 2], \{1, 2\}, 1 and 2, a matrix → Items
    x = 5 → Named      k\pi, k \in \mathbb{Z} → Family      (B) → Choice
    odd, July 4 → Word      3:30 pm → Clock      0 = 0 → Flawed

An expression that only the symbolic engine can read is a Quantity without a value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from rlvr.verifiers.math.latex import Node
from rlvr.verifiers.math.latex import tree as trees

__all__ = [
    "Choice",
    "Clock",
    "Family",
    "Flawed",
    "Form",
    "INFINITY",
    "Items",
    "MINUS_INFINITY",
    "Named",
    "Quantity",
    "THOUSANDS",
    "Word",
    "flat",
    "form_kind",
    "members",
    "pair",
    "parts",
    "worth",
]

THOUSANDS = "K"
r"""The unit of `5\text{K}`, without a space: thousands, or kelvins beside another temperature."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number or an expression.

    Attributes:
        text: all of it, folded.
        core: without unit, percent sign and currency.
        value: exact; None if only the symbolic engine can tell.
        unit: canonical name, "" if none; `base 8` for 52_8, `:` for 5:8.
        percent: it carries a percent sign, which `value` does not account for.
        places: digits after the point of a decimal literal.
        pis: how many times π it is, if it is a rational multiple; `value` is then None.
        sides: of an equation, as they were read.
        tree: of one that was built, and is printed nowhere to be read again.
    """

    text: str
    core: str
    value: Fraction | int | None = None
    unit: str = ""
    percent: bool = False
    places: int | None = None
    pis: Fraction | None = None
    sides: tuple[Form, ...] = ()
    tree: Node | None = None

    def __hash__(self) -> int:
        # Hardly two have the same text, and of a fraction or a tree a hash takes long.
        return hash(self.text or self.tree)


@dataclass(frozen=True, slots=True)
class Items:
    """Several things.

    `kind` is `list` (no brackets), `either` (words joined by `or`), `set`, `matrix`, `row`, `:` (a
    ratio), two brackets such as `(]`, or of sets `union`, `meet` (what all allow) and `minus`;
    `range` is 5–6 with an en dash.
    """

    text: str
    kind: str
    items: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """`x = 5`, `f(x) = x + 1`, `x \\in (0, 1)`, `Maximum: 5`."""

    text: str
    name: str
    body: Form


@dataclass(frozen=True, slots=True)
class Choice:
    """One letter of a multiple choice, lower case, and what was said beside it.

    `marked` says that it was written as an option, `(B)` or `\\text{B}`, which a lone `B` is not.
    """

    text: str
    letter: str
    rest: Form | None = None
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """Prose, a name, a date: equal only if it reads the same.
    `plain` has neither case nor quotes."""

    text: str
    plain: str


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day in seconds since midnight; `half` if am or pm was said, and the `ratio` that it
    may be instead."""

    text: str
    seconds: int
    half: bool
    ratio: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Family:
    r"""One answer for every value of a letter: `k\pi, k \in \mathbb{Z}`, or `x + 3, x \ne 3`.
    `domain` is what was said of it, `letter` empty where no other letter may stand for it."""

    text: str
    letter: str
    domain: str
    body: Form


@dataclass(frozen=True, slots=True)
class Flawed:
    """What can be no answer to anything: `chain` (1 = 2 = 3), `tautology` (x = x),
    `undefined` (0/0)."""

    text: str
    reason: str


INFINITY = Quantity(r"\infty", r"\infty", tree=trees.INFINITY)
MINUS_INFINITY = Quantity(r"-\infty", r"-\infty", tree=trees.MINUS_INFINITY)
_MAX_SIGNS = 16  # how many readings an answer with several ± may stand for
Form: TypeAlias = Quantity | Items | Named | Choice | Word | Clock | Family | Flawed


def parts(form: Form) -> Iterator[Form]:
    """The form, and all that it lists or names."""
    yield form
    for part in form.items if isinstance(form, Items) else ():
        yield from parts(part)
    if isinstance(form, Named | Family):
        yield from parts(form.body)


def form_kind(form: Form) -> str:
    """That of several things; "" of a single one."""
    return form.kind if isinstance(form, Items) else ""


def members(form: Form) -> tuple[Form, ...]:
    """The items of a list; the form itself of anything else."""
    return form.items if isinstance(form, Items) and form.kind == "list" else (form,)


def worth(form: Form) -> Fraction | None:
    """The exact value of a number, of 5 % a twentieth; None of anything else."""
    if not isinstance(form, Quantity) or form.value is None:
        return None
    return Fraction(form.value) / (100 if form.percent else 1)


def flat(forms: Iterable[Form]) -> tuple[Form, ...]:
    r"""The members of each: what `\pm` splits in two joins the others."""
    return tuple(itertools.chain.from_iterable(map(members, forms)))


def pair(brackets: str, *items: Form, text: str = "") -> Items:
    r"""A tuple or an interval; (\pm 1, \pm 2) lists four points."""
    if not text and all(item.text for item in items):
        text = f"{brackets[0]}{' , '.join(item.text for item in items)}{brackets[1]}"
    # One more than allowed, to see that there are too many.
    choices = itertools.product(*map(members, items))
    tuples = list(itertools.islice(choices, _MAX_SIGNS + 1))
    if len(tuples) == 1 or len(tuples) > _MAX_SIGNS:
        return Items(text, brackets, items)
    return Items(text, "list", tuple(pair(brackets, *each) for each in tuples))
