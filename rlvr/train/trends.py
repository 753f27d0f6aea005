"""Alarms on what only a row of steps shows: each trend reads the metrics of a step
and keeps what it has to.

What is kept follows from `RUN/metrics.jsonl` alone, so a resumed run reads that again and needs no
state of its own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean, median, variance
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

__all__ = [
    "GradientNorm",
    "LengthTrend",
    "MemoryTrend",
    "Mismatch",
    "Trend",
    "Validation",
    "WeakTasks",
    "WindowTrend",
    "trends",
]

_Numbers: TypeAlias = Mapping[str, float | None]
_Kept = TypeVar("_Kept")

_SHARP: Final = 10.0
"""A gradient so many times the usual one: batches of one task differ by two or three."""
_RECENT: Final = 50
"""Steps of which the usual gradient is the median."""
_EARLY: Final = 20
"""Steps at the beginning with which later mismatches are compared, and before
which no gradient is unusual."""
_APART: Final = 0.02
"""Nats per token between sampler and trainer that need no alarm: bfloat16 alone makes 0.004."""
# Times the median of the first steps: what these show is the precision's or the kernel's, and stays
# about the same.
_APART_TIMES: Final = 5.0
_WINDOW: Final = 20
"""Steps over which length and accuracy are averaged."""
# 1.5 times as long, while accuracy does not rise: a model that learns to reason writes more, too.
_LONGER: Final = 1.5
# Steps; the least of a window is compared, as what a step needs comes and goes within it.
_MEMORY_WINDOW: Final = 50
_LEAK: Final = 0.02
"""Growth of the least memory of a window over that of the window before;
without a leak there is none."""


_GAP_WINDOW: Final = 40
"""Steps over which the rewards at weak and strong tasks are compared: a hack is
seen within two windows."""
# The least rise that is told, however certain it is: with many rows tiny ones are certain too.
_GAP: Final = 0.1
_GAP_ERRORS: Final = 3.2
"""Standard errors: a normal value beyond them comes once in 1,500, and
1,000 steps have 24 windows."""


class Trend:
    """One trend of a run.

    Attributes:
        name: of the alarm.
        in_a_row: steps in a row in which it has to be there; None for as many as other alarms need.
    """

    name: ClassVar[str]
    in_a_row: ClassVar[int | None] = 1

    def check(self, numbers: _Numbers) -> str | None:
        """What is wrong as of this step, with the remedy; None if nothing is.

        Args:
            numbers: metrics of the step.
        """
        raise NotImplementedError


class WindowTrend(Trend, Generic[_Kept]):
    """A trend from window to window of steps.

    Attributes:
        steps: of a window that have the metrics.
    """

    steps: ClassVar[int]

    def __init__(self) -> None:
        self._window: list[_Kept] = []
        self._line: str | None = None

    def check(self, numbers: _Numbers) -> str | None:
        if (value := self.read(numbers)) is not None:
            self._window.append(value)
        if len(self._window) == self.steps:
            self._line = self.judge(self._window)
            self._window = []
        return self._line

    def read(self, numbers: _Numbers) -> _Kept | None:
        """What is kept of a step; None where it lacks the metrics.

        Args:
            numbers: metrics of the step.
        """
        raise NotImplementedError

    def judge(self, window: list[_Kept]) -> str | None:
        """What is wrong as of a window, with the remedy; None if nothing is.

        Args:
            window: what was kept of its steps.
        """
        raise NotImplementedError


class GradientNorm(Trend):
    """The gradient is many times longer than in the steps before."""

    name, in_a_row = "gradient norm", None

    def __init__(self) -> None:
        self._before: deque[float] = deque(maxlen=_RECENT)

    def check(self, numbers: _Numbers) -> str | None:
        norm = _finite(numbers, "grad_norm")
        if norm is None:
            return None
        # From the steps before: this one must not raise
        # its own measure. Infinity: too few are known.
        usual = median(self._before) if len(self._before) >= _EARLY else math.inf
        self._before.append(norm)
        # `0 <`: after gradients of 0 any norm is large, and no alarm is given.
        if not 0 < usual * _SHARP < norm:
            return None
        return (
            f"the gradient's norm was more than {_SHARP:g} times as long as usual ({norm:.3g}; the "
            f"median of {len(self._before) - 1} steps before is {usual:.3g}). Lower lr or "
            "grad_clip; a step file shows the rollouts behind it (--step-files 1)"
        )


class Mismatch(Trend):
    """Sampler and trainer compute ever more different probabilities of the same tokens."""

    name, in_a_row = "mismatch", None

    def __init__(self) -> None:
        self._first: list[float] = []

    def check(self, numbers: _Numbers) -> str | None:
        apart = _finite(numbers, "mismatch")
        if apart is None:
            return None
        # The first steps are the measure, and give no alarm themselves.
        if len(self._first) < _EARLY:
            self._first.append(apart)
            return None
        at_first = median(self._first)
        if apart <= max(_APART, _APART_TIMES * at_first):
            return None
        return (
            f"sampler and trainer differed by {apart:.2g} nats per token, and by {at_first:.2g} in "
            f"the first {_EARLY} steps: what is trained on is ever less what the policy would have "
            "sampled. Lower max_staleness or lr, choose a stricter correction, or have both "
            "compute in one precision"
        )


class LengthTrend(WindowTrend[tuple[float, float]]):
    """Completions become longer without becoming better."""

    name, steps = "length", _WINDOW

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0
        self._best: tuple[float, float, int] | None = None  # accuracy, length, step

    def read(self, numbers: _Numbers) -> tuple[float, float] | None:
        self._steps += 1
        accuracy, length = _finite(numbers, "accuracy"), _finite(numbers, "length")
        return None if accuracy is None or length is None else (accuracy, length)

    def judge(self, window: list[tuple[float, float]]) -> str | None:
        accuracy, length = map(fmean, zip(*window, strict=True))
        # A better window is the new measure, however long its completions are.
        if self._best is None or accuracy > self._best[0]:
            self._best = accuracy, length, self._steps
            return None
        best, best_length, step = self._best
        if length <= _LONGER * best_length:
            return None
        return (
            f"in {_WINDOW} steps completions had {length:.0f} tokens on average and accuracy "
            f"{accuracy:.2f}; {self._steps - step} steps before they had {best_length:.0f} and "
            f"{best:.2f}: they grow without getting better. Punish long ones (--overlong soft), "
            "lower max_tokens, or choose a loss that does not favour length, such as dr_grpo; "
            "`rlvr view` shows what they are filled with"
        )


class Validation(Trend):
    """The reward rises while tasks that are held out are solved less often."""

    name = "validation"

    def __init__(self) -> None:
        self._rewards: list[float] = []
        self._best: tuple[float, float] | None = None  # score, reward of the steps before it
        self._worse = 0
        self._line: str | None = None

    def check(self, numbers: _Numbers) -> str | None:
        if (reward := _finite(numbers, "reward")) is not None:
            self._rewards.append(reward)
        name = next((key for key in numbers if _is_score(key)), None)
        score = None if name is None else _finite(numbers, name)
        if score is not None and self._rewards:
            high = _finite(numbers, f"{name}/high")
            self._line = self._judge(score, score if high is None else high)
            self._rewards.clear()
        return self._line

    def _judge(self, score: float, high: float) -> str | None:
        reward = fmean(self._rewards)
        if self._best is None or score > self._best[0]:
            self._best, self._worse = (score, reward), 0
            return None
        best, best_reward = self._best
        # Below the interval of the best, and paid better: both at once, twice in a row.
        self._worse = self._worse + 1 if high < best and reward > best_reward else 0
        if self._worse < 2:
            return None
        return (
            f"the reward rose from {best_reward:.3g} to {reward:.3g} while tasks that are held out "
            f"fell from {best:.2f} to {score:.2f}, below their 95 % interval twice: the policy "
            "learns what the verifier pays for, or the training tasks by heart. Read some rollouts "
            "(`rlvr view`), look for holes (`rlvr check`), take more tasks, or stop: RUN/best has "
            "the best policy"
        )


class MemoryTrend(WindowTrend[float]):
    """What is in memory between two steps grows from window to window."""

    name, steps = "memory", _MEMORY_WINDOW

    def __init__(self) -> None:
        super().__init__()
        self._least: deque[float] = deque(maxlen=4)

    def read(self, numbers: _Numbers) -> float | None:
        return _finite(numbers, "held_mib")

    def judge(self, window: list[float]) -> str | None:
        self._least.append(min(window))
        lowest = list(self._least)
        pairs = list(pairwise(lowest))
        # Three rises in a row, each above 2 %.
        if len(pairs) < 3 or any(after <= (1 + _LEAK) * before for before, after in pairs):
            return None
        growth = (lowest[-1] - lowest[0]) / len(pairs)
        return (
            f"memory between steps grew by {growth:.0f} MiB in each {_MEMORY_WINDOW} steps, to "
            f"{lowest[-1]:.0f} MiB: something is kept that should not be, such as in an "
            "environment, a verifier or a second opinion of your own. Until it is found, stop the "
            "run (Ctrl-C) and give the same command again: it goes on from its checkpoint with "
            "fresh memory"
        )


class WeakTasks(WindowTrend[float]):
    """The reward rises faster at tasks that pay wrong work than at those that do
    not (`Config.strength`).

    The gap between the two in a window of steps is compared with that of the first window.  Each
    step draws tasks of its own, so its gap is one sample, and the error of a window's mean is that
    of its samples.
    """

    name, steps = "weak tasks", _GAP_WINDOW

    def __init__(self) -> None:
        super().__init__()
        self._first: list[float] = []

    def read(self, numbers: _Numbers) -> float | None:
        weak, strong = _finite(numbers, "reward_at/weak"), _finite(numbers, "reward_at/strong")
        return None if weak is None or strong is None else weak - strong

    def judge(self, window: list[float]) -> str | None:
        if not self._first:
            self._first = window
            return None
        before, after = fmean(self._first), fmean(window)
        # Standard error of a difference of two means of as many samples each.
        error = math.sqrt((variance(self._first) + variance(window)) / _GAP_WINDOW)
        if after - before <= max(_GAP, _GAP_ERRORS * error):
            return None
        return (
            f"in {_GAP_WINDOW} steps the reward at weak tasks, compared with that at strong ones, "
            f"rose by {after - before:.2f}: the policy may learn what weak tests pay. Read "
            "rollouts of weak tasks (`rlvr view`), train on tasks with more tests (`rlvr strength "
            "--strengthen`), or without the weak ones (`rlvr filter --strength`)"
        )


def trends() -> list[Trend]:
    """All of them, as of the first step."""
    return [GradientNorm(), Mismatch(), LengthTrend(), Validation(), WeakTasks(), MemoryTrend()]


def _is_score(name: str) -> bool:
    # Not its bounds, which have one part more in their names.
    return name.startswith("validation/avg@") and name.count("/") == 1


def _finite(numbers: _Numbers, name: str) -> float | None:
    """A metric; None where a step has none, or one that is no number (null in metrics.jsonl)."""
    value = numbers.get(name)
    return float(value) if value is not None and math.isfinite(value) else None
