"""Rewards that compose by arithmetic, and ready-made parts.

composition  `Part`, and the arithmetic by which parts make one total and say what each added
expression   rewards as text, read and never evaluated
parts        ready-made parts, each with its bounds and source
rubric       criteria with weights, each judged on its own
text         templates, words, sentences and their language

Contract: `Part.value(task, completion, verdict)` within `bounds`; `GroupPart.values` for a group.
Sees the ground and `workers`, not `data`; `environment` and above see it.
Goes wrong: bounds.  They are computed through the expression, and a value outside of them, NaN or
an infinity is an error of the part, not a score.
"""

from rlvr.rewards.composition import Bounds, Correct, GroupPart, Observation, Part, Reward
from rlvr.rewards.parts import (
    Format,
    Language,
    Length,
    Majority,
    Overlong,
    RelativeLength,
    Repetition,
)
from rlvr.rewards.rubric import Rubric

__all__ = [
    "Bounds",
    "Correct",
    "Format",
    "GroupPart",
    "Language",
    "Length",
    "Majority",
    "Observation",
    "Overlong",
    "Part",
    "RelativeLength",
    "Repetition",
    "Reward",
    "Rubric",
]
