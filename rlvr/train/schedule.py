"""Numbers over the steps of a run: learning rates over updates, coefficients
over steps.  Needs no torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from rlvr.errors import UsageError

__all__ = ["LrClock", "NumberSchedule", "scheduled_rate"]


@dataclass(frozen=True, slots=True)
class LrClock:
    """Since when the schedule of the learning rate runs, and until when.

    Attributes:
        begun: updates before it.
        share: of the schedule that had passed then, in [0, 1].
        warmed: updates of the warm-up before it.
        warmup: updates of the warm-up in all.
        left: updates from `begun` to the end of the run, if every batch is full.
    """

    left: int
    warmup: int = 0
    begun: int = 0
    share: float = 0.0
    warmed: int = 0

    def share_done(self, done: int) -> float:
        """The share of the schedule that has passed.

        Args:
            done: updates so far.
        """
        # Updates of the warm-up from here on: the schedule begins when it is over.
        warmup_left = self.warmup - self.warmed
        progress = (done - self.begun - warmup_left) / max(1, self.left - warmup_left)
        # The rest of the schedule over the rest of the updates,
        # so that it is continuous where a stage begins.
        return self.share + (1.0 - self.share) * min(1.0, max(0.0, progress))

    def begin_again(self, done: int, left: int, *, schedule: bool, warmup: int | None) -> LrClock:
        """The clock of a stage, in which batches may have another number of updates.

        Args:
            done: updates so far.
            left: updates from here to the end of the run.
            schedule: whether the schedule begins anew here.
            warmup: updates of a new warm-up; None to go on with the one that there was.
        """
        share = 0.0 if schedule else self.share_done(done)
        clock = replace(self, begun=done, left=left, share=share)
        if warmup is not None:
            return replace(clock, warmed=0, warmup=warmup)
        return replace(clock, warmed=min(self.warmup, self.warmed + done - self.begun))


def scheduled_rate(lr: float, schedule: str, clock: LrClock, done: int) -> float:
    """The learning rate of the next update: it rises over the warm-up, then follows the schedule.

    Args:
        lr: at its height.
        schedule: "constant", or falling to 0 at the last update: "linear", "cosine".
        clock: since when, and until when.
        done: updates so far.
    """
    warmed = clock.warmed + done - clock.begun
    if warmed < clock.warmup:
        # n + 1 over w + 1: the first update has a rate above
        # 0, and the one after the warm-up is the full one.
        return lr * (warmed + 1) / (clock.warmup + 1)
    match schedule:
        case "linear":
            return lr * (1.0 - clock.share_done(done))
        case "cosine":
            return lr * 0.5 * (1.0 + math.cos(math.pi * clock.share_done(done)))
        case _:
            return lr


_Shape = Literal["linear", "cosine", "towards"]
_CALL: Final = re.compile(r"\s*([a-z]+)\s*\((.*)\)\s*", re.DOTALL)
# The relative error that one step acts on: a single wild measurement moves the setting little.
_MOST_ERROR: Final = 0.2
# How far from its start the setting may drift, up or down, where it has no effect on what is
# measured.
_MOST_FACTOR: Final = 10.0


@dataclass(frozen=True, slots=True)
class NumberSchedule:
    """How a number moves from step to step.

    As a text it is linear(TO), linear(TO, STEPS), cosine(TO), cosine(TO, STEPS), towards(METRIC,
    TARGET) or towards(METRIC, TARGET, RATE).

    Attributes:
        shape: linear and cosine reach `to` after `steps`; towards follows a metric.
        to: the last value; with towards the metric's target.
        steps: until `to` is reached; None for the rest of the run.
        metric: of the run's log that is followed.
        rate: how much of the metric's relative error a step makes up for; below 0 where a larger
            number lowers the metric.
    """

    shape: _Shape
    to: float
    steps: int | None = None
    metric: str = ""
    rate: float = 0.5

    @classmethod
    def read(cls, text: object) -> NumberSchedule | None:
        """The schedule that a text says; None if it says none.

        Args:
            text: a value of a setting.

        Raises:
            UsageError: it is written as one, and is none.
        """
        match = _CALL.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            return None
        shape, words = match[1], [word.strip() for word in match[2].split(",")]
        try:
            if shape == "towards" and len(words) in (2, 3):
                metric, target, *rate = words
                schedule = cls("towards", float(target), metric=metric, rate=float(*rate or [0.5]))
            elif shape in ("linear", "cosine") and len(words) in (1, 2):
                schedule = cls(
                    shape,  # type: ignore[arg-type]
                    float(words[0]),
                    int(words[1]) if words[1:] else None,
                )
            else:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"{text!r} is no schedule; write linear(TO), linear(TO, STEPS), cosine(TO, STEPS) "
                "or towards(METRIC, TARGET, RATE), such as linear(0.6, 500) or towards(entropy, "
                "0.3)"
            ) from None
        schedule._require_sense(str(text))
        return schedule

    def _require_sense(self, text: str) -> None:
        if not math.isfinite(self.to) or not math.isfinite(self.rate):
            raise UsageError(f"{text!r}: its numbers must be finite")
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"{text!r}: it takes {self.steps} steps; give at least 1")
        if self.shape == "towards" and (self.to <= 0 or not 0 < abs(self.rate) <= 1):
            raise UsageError(
                f"{text!r}: the target must be above 0, and the rate in [-1, 1] and not 0; it is "
                "below 0 where a larger number lowers the metric"
            )

    def __str__(self) -> str:
        if self.shape == "towards":
            return f"towards({self.metric}, {self.to:g}, {self.rate:g})"
        return (
            f"{self.shape}({self.to:g})"
            if self.steps is None
            else (f"{self.shape}({self.to:g}, {self.steps})")
        )

    def value(self, start: float, passed: int, rest: int) -> float:
        """The number of the next step, of a linear or cosine schedule.

        Args:
            start: where it began.
            passed: steps since then.
            rest: steps from its beginning to the last one of the run.
        """
        # `rest` of 0: the schedule begins at the last step.
        share = min(1.0, passed / max(1, rest if self.steps is None else self.steps))
        if self.shape == "cosine":
            share = 0.5 * (1.0 - math.cos(math.pi * share))
        # Exactly `to`, and not what rounding makes of it.
        return self.to if share == 1.0 else start + share * (self.to - start)

    def follow(self, now: float, start: float, metrics: Mapping[str, float]) -> float:
        """The number of the next step, of a schedule towards a metric's target.

        It is Ziegler's controller (arXiv:1909.08593, sec. 2.2) with a rate per step, kept within a
        factor of 10 of where it began: x ← x (1 + rate · clip((target - metric) / target, ±0.2)).

        Args:
            now: of this step.
            start: where it began.
            metrics: of this step; without the metric the number stays.
        """
        measured = metrics.get(self.metric)
        if measured is None or not math.isfinite(measured):
            return now
        error = (self.to - measured) / self.to
        moved = now * (1.0 + self.rate * min(_MOST_ERROR, max(-_MOST_ERROR, error)))
        # A number that has no effect on its metric would otherwise run away.
        return min(_MOST_FACTOR * start, max(start / _MOST_FACTOR, moved))
