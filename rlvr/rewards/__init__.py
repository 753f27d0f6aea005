"""Rewards that compose by arithmetic, and ready-made parts."""

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
