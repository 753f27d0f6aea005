"""Bounds are computed through the expression, and every score keeps them: by hand, by brute force, by chance."""

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr import Reward
from tests.rewards.parts import A, B, C, Given, scored

EXPRESSIONS = {
    "a + b": (A + B, (0, 2)),
    "a - b": (A - B, (-1, 1)),
    "2 - c": (2 - C, (-1, 4)),
    "-c": (-C, (-3, 2)),
    "-2 * c + a": (-2 * C + A, (-6, 5)),
    "0 * c": (0 * C, (0, 0)),
    "c.gate(by=a)": (C.gate(by=A), (-2, 3)),
    "(c - 3).gate(by=a)": ((C - 3).gate(by=A), (-5, 0)),
    "c.gate(by=0.5 * a)": (C.gate(by=0.5 * A), (-1, 1.5)),
    "c.gate(by=0.5 * a + 0.5)": (C.gate(by=0.5 * A + 0.5), (-2, 3)),
    "c.clip(-1, 1)": (C.clip(-1, 1), (-1, 1)),
    "c.clip(5, 6)": (C.clip(5, 6), (5, 5)),
    "c.clip(-9, -8)": (C.clip(-9, -8), (-8, -8)),
    "c.clip(0, 0)": (C.clip(0, 0), (0, 0)),
    "(3 * a - b).clip(0, 2) * -0.5": ((3 * A - B).clip(0, 2) * -0.5, (-1, 0)),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_bounds_by_hand_and_by_brute_force(name: str):
    """Each part occurs once, so the extremes are reached at corners of the box, and nothing inside leaves them."""
    reward, bounds = EXPRESSIONS[name]
    assert reward.bounds == bounds
    grids = [np.linspace(*leaf.bounds, 5).tolist() for leaf in reward.leaves]
    totals = [
        scored(reward, dict(zip([leaf.name for leaf in reward.leaves], point, strict=True))).total
        for point in itertools.product(*grids)
    ]
    assert (min(totals), max(totals)) == bounds


@st.composite
def expressions(draw: st.DrawFn, *, reuse: bool) -> Reward:
    """Up to four parts, up to six operations on them; with `reuse`, a part may be its own gate."""
    numbers = st.integers(-3000, 3000).map(lambda n: n / 1000)
    names = iter("abcdefghijklmnop")
    sums: list[Reward] = []
    for _ in range(draw(st.integers(1, 4))):
        low, high = sorted((draw(numbers), draw(numbers)))
        sums.append(Given(next(names), low, high))
    for _ in range(draw(st.integers(0, 6))):
        top = sums.pop()
        kind = draw(st.sampled_from(["+", "-", "*", "constant", "gate", "clip"]))
        if kind in "+-" and sums:
            other = sums.pop()
            top = other + top if kind == "+" else other - top
        elif kind == "*":
            top = draw(numbers) * top
        elif kind == "constant":
            top = draw(numbers) - top
        elif kind == "gate":
            by = (
                draw(st.sampled_from(top.leaves)).clip(0, 1)
                if reuse and top.leaves
                else Given(next(names))
            )
            if f"gate:{'+'.join(by.names)}" not in top.names:
                top = top.gate(by=by)
        elif kind == "clip":
            low, high = sorted((draw(numbers), draw(numbers)))
            if not any(name.startswith("clip:") for name in top.names):
                top = top.clip(low, high)
        sums.append(top)
    return sum(sums)


def points(reward: Reward, draw: Callable[[st.SearchStrategy], Any]) -> list[dict[str, float]]:
    """Every corner of the box of the parts' bounds, and one point inside."""
    boxes = {leaf.name: leaf.bounds for leaf in reward.leaves}
    corners = [
        dict(zip(boxes, corner, strict=True)) for corner in itertools.product(*boxes.values())
    ]
    return [*corners, {name: draw(st.floats(low, high)) for name, (low, high) in boxes.items()}]


EXHAUSTIVE = settings(suppress_health_check=list(HealthCheck))


@settings(EXHAUSTIVE)
@given(st.data())
def test_every_expression_keeps_its_promises(data: st.DataObject):
    """Totals inside the bounds, one entry per name, entries that sum to the total."""
    reward = data.draw(expressions(reuse=True))
    low, high = reward.bounds
    for values in points(reward, data.draw):
        score = scored(reward, values)
        assert low <= score.total <= high
        assert tuple(score.parts) == reward.names
        assert sum(score.parts.values()) == pytest.approx(score.total, abs=1e-9)


@settings(EXHAUSTIVE)
@given(st.data())
def test_bounds_are_reached_where_each_part_occurs_once(data: st.DataObject):
    """Wider bounds than need be would let a broken part through; the same operations round the same way."""
    reward = data.draw(expressions(reuse=False))
    totals = [scored(reward, values).total for values in points(reward, data.draw)]
    assert (min(totals), max(totals)) == reward.bounds


@settings(EXHAUSTIVE)
@given(expressions(reuse=True))
def test_every_expression_can_be_shipped(reward: Reward):
    """To a worker and back, the plan that was made on the way included."""
    assert reward.needs_length is False  # makes the plan
    again = pickle.loads(pickle.dumps(reward))
    assert (again, str(again), again.bounds) == (reward, str(reward), reward.bounds)
