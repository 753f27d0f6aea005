"""`MathPolicy`: settings for what counts as equal where public sources disagree,
each with an example.

The presets at the end are data; make your own with `dataclasses.replace(COMPETITION,
rounding="exact")`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

from rlvr.errors import UsageError
from rlvr.validate import require_number, require_one_of

__all__ = ["COMPETITION", "GSM8K", "HENDRYCKS", "LENIENT_NUMERIC", "MathPolicy"]


@dataclass(frozen=True, slots=True)
class MathPolicy:
    r"""How strictly an answer is compared with the reference.

    Attributes:
        form: `"finished"`: an answer that still has to be worked out, such as 3^5 for 243, is wrong
            unless the reference has that form; and so is one that the prompt gives, or that has not
            the form that the prompt asks for, where the verifier gets the task.  `"any"`: the value
            decides alone.
        percent: `"fraction"`: 50\% is 1/2 and nothing else.  `"either"`: it is 1/2, and also 50
            where the other side has no sign ("what percent …?" has references of both kinds).
            `"ignore"`: the sign is dropped.
        units: `"optional"`: 5 cm is 5, for a unit may be left out, but it is neither 5 m nor \$5.
            `"required"`: a unit on one side must stand on the other.  `"ignore"`: whatever follows
            or precedes the number as a unit or currency is dropped.
        convert_units: True: 5 cm is 50 mm, and \$0.50 is 50 cents; exactly.  False: the same unit
            or another one.
        bases: `"written"`: a base on one side must stand on the other, so that a model that is
            asked for base 2 cannot repeat the question.  `"value"`: `1011_2` is 11.  Under both,
            `1011_2` is never 1011.
        ratios: `"fraction"`: 5:8 is 5/8.  `"distinct"`: it is equal to 10:16, but to no number.
        rounding: `"exact"`: 27/59 is not 0.458.  `"exact-answer"`: it is, where the reference is a
            decimal of at least three digits and the answer is exact and no decimal, since then only
            the reference can have been rounded (or cut off); but 0.4576 and 0.46 are wrong, and
            0.33 for 1/3 is always wrong.  `"reference"`: any answer that rounds to the reference,
            half up, is right; a shorter decimal is still wrong.
        tolerance: an answer within this distance of a numeric reference is right, as is one within
            `rounding`; 0 for none.  It is said of the reference's number without its percent sign,
            in the reference's unit.
        tolerance_is: `"relative"`: `tolerance` is a part of the reference's size, 0.01 for 1 %.
            `"absolute"`: it is a distance.
        ordered_lists: False: `1, 2` is `2, 1`.  True: a list without brackets has an order too.
            Tuples always have one, sets never.
        order: `"written"`: (1, 2) is not (2, 1).  `"any"`: tuples have no order, as for a reference
            that lists roots in round brackets.
        case: `"ignore"`: Paris is paris, since words are mostly words; a letter that is a symbol
            keeps its case anyway, and so do chemical formulas.  `"match"`: words are compared in
            their own case.
        references: `"mathematics"`: references are read as mathematics, and as words where they are
            words.  `"text"`: they are declared to be strings, compared letter by letter but for
            space at the ends and, by `case`, case.
        decimal: `"point"`: 1,234 is 1234 and 0,5 two numbers.  `"comma"`: 0,5 is 1/2 and 1.234,5 is
            1234.5, on both sides.  `"prompt"`: a point, unless the prompt or the other side shows
            that commas are meant.
        equation_as_value: True: `x = 5` is 5, whichever side says it.  False: both sides must name
            x.
        several_boxes: `"hedge"`: `\boxed{11} or \boxed{12}` in one statement is no answer, unless
            the reference itself has two parts.  `"last"`: it is 12.
        unboxed: True: "The answer is 5." counts when there is no box.  False: only a box, an
            `<answer>` tag or a declared marker does.
        prose: `"marked"`: a text without box, marker or phrase states no answer.
            `"last-expression"`: its last formula between dollar signs or `\( \)` counts, else its
            last number.
        symbolic: True: what the exact normal form cannot decide goes to the symbolic engine.
            False: it is wrong, and no engine is ever started.
    """

    form: Literal["finished", "any"] = "finished"
    percent: Literal["either", "fraction", "ignore"] = "either"
    units: Literal["optional", "required", "ignore"] = "optional"
    convert_units: bool = True
    bases: Literal["written", "value"] = "written"
    ratios: Literal["fraction", "distinct"] = "fraction"
    rounding: Literal["exact-answer", "exact", "reference"] = "exact-answer"
    tolerance: float = 0.0
    tolerance_is: Literal["relative", "absolute"] = "relative"
    ordered_lists: bool = False
    order: Literal["written", "any"] = "written"
    case: Literal["ignore", "match"] = "ignore"
    references: Literal["mathematics", "text"] = "mathematics"
    decimal: Literal["prompt", "point", "comma"] = "prompt"
    equation_as_value: bool = True
    several_boxes: Literal["hedge", "last"] = "hedge"
    unboxed: bool = True
    prose: Literal["marked", "last-expression"] = "marked"
    symbolic: bool = True

    def __post_init__(self) -> None:
        require_number("MathPolicy.tolerance", self.tolerance, 0)
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if hint is bool and not isinstance(value, bool):  # 1 is no True
                raise UsageError(f"MathPolicy.{name} is {value!r}; it must be one of True, False")
            if hint is not bool and hint is not float:
                require_one_of(f"MathPolicy.{name}", value, get_args(hint))


COMPETITION = MathPolicy()
"""MATH, AIME and the like: exact values, forgiving about notation."""

HENDRYCKS = MathPolicy(rounding="exact", convert_units=False, unboxed=False)
"""The convention of the MATH paper (arXiv:2103.03874, 4): the last box,
the form that was asked for, lowest terms."""

GSM8K = MathPolicy(
    percent="ignore",
    units="ignore",
    convert_units=False,
    rounding="exact",
    decimal="point",
    symbolic=False,
)
"""Word problems whose answer is one number: `$1,080`, `1080 dollars` and `1080.00` are equal."""

LENIENT_NUMERIC = MathPolicy(
    percent="either", units="ignore", convert_units=False, rounding="reference"
)
"""Science questions with decimal references: an answer that rounds to the reference is right,
whatever its unit."""
