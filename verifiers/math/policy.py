"""What counts as equal where public sources disagree: named settings, each with an example.

The presets at the end are data; make your own with `dataclasses.replace(COMPETITION, rounding="reference")`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

from rlvr.errors import UsageError

__all__ = ["COMPETITION", "GSM8K", "MathPolicy"]


@dataclass(frozen=True, slots=True)
class MathPolicy:
    r"""How strictly an answer is held against the reference.

    Attributes:
        percent: `"fraction"`: 50\% is 1/2 and nothing else.  `"either"`: it is 1/2, and also 50 where the other
            side has no sign ("what percent …?" has references of both kinds).  `"ignore"`: the sign is dropped.
        units: `"optional"`: 5 cm is 5, for a unit may be left out, but it is neither 5 m nor \$5.
            `"ignore"`: whatever follows or precedes the number as a unit or currency is dropped.
        rounding: `"exact"`: 0.33 is not 1/3, since 33/100 is not.  `"reference"`: 1/3 is right where the reference
            says 0.33, because it rounds to it (half up); a shorter 0.3 is still wrong.  Constants only.
        ordered_lists: False: `1, 2` is `2, 1`.  True: a list without brackets has an order too.  Tuples always
            have one, sets never.
        equation_as_value: True: `x = 5` is 5, whichever side says it.  False: both sides must name x.
        several_boxes: `"hedge"`: `\boxed{11} or \boxed{12}` in one statement is no answer.  `"last"`: it is 12.
        unboxed: True: "The answer is 5." counts when there is no box.  False: only a box, an `<answer>` tag or a
            declared marker does.
        symbolic: True: what the exact normal form cannot decide goes to the symbolic engine.  False: it is
            wrong, and no engine is ever started.
    """

    percent: Literal["either", "fraction", "ignore"] = "either"
    units: Literal["optional", "ignore"] = "optional"
    rounding: Literal["exact", "reference"] = "exact"
    ordered_lists: bool = False
    equation_as_value: bool = True
    several_boxes: Literal["hedge", "last"] = "hedge"
    unboxed: bool = True
    symbolic: bool = True

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for setting in fields(self):
            value, allowed = getattr(self, setting.name), get_args(hints[setting.name]) or (True, False)
            if not any(value is choice or (isinstance(value, str) and value == choice) for choice in allowed):
                raise UsageError(
                    f"MathPolicy.{setting.name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}"
                )


COMPETITION = MathPolicy()
"""MATH, AIME and the like: exact values, forgiving about notation."""

GSM8K = MathPolicy(percent="ignore", units="ignore", symbolic=False)
"""Word problems whose answer is one number: `$1,080`, `1080 dollars` and `1080.00` are the same."""
