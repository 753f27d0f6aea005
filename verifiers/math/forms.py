r"""What an answer can be, once read.

    5 cm, 12.5\%, \frac12, x^2 + 1 → Quantity      (1, 2], \{1, 2\}, 1 and 2, a matrix → Sequence
    x = 5 → Named      (B) → Choice      odd → Word      0 = 0 → Flawed

An expression that only the symbolic engine can read is a Quantity without a value: nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

__all__ = ["Choice", "Flawed", "Form", "Named", "Quantity", "Sequence", "Word"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number or an expression.

    Attributes:
        text: all of it, folded.
        core: without unit, percent sign and currency.
        value: exact; None if only the symbolic engine can tell.
        unit: canonical name, "" if none; `base 8` for 52_8.
        percent: it carries a percent sign, which `value` does not account for.
        places: digits after the point of a decimal literal.
    """

    text: str
    core: str
    value: Fraction | int | None = None
    unit: str = ""
    percent: bool = False
    places: int | None = None


@dataclass(frozen=True, slots=True)
class Sequence:
    """Several things.  `kind` is `list` (no brackets), `set`, `union`, `matrix`, or the two brackets, such as `(]`."""

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
    """One letter of a multiple choice, lower case, and what was said beside it."""

    text: str
    letter: str
    rest: Form | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """Prose, a name, a time of day: equal only if it reads the same.  `plain` has neither case nor quotes."""

    text: str
    plain: str


@dataclass(frozen=True, slots=True)
class Flawed:
    """What can be no answer to anything: `chain` (1 = 2 = 3), `tautology` (x = x), `undefined` (0/0)."""

    text: str
    reason: str


Form: TypeAlias = Quantity | Sequence | Named | Choice | Word | Flawed
