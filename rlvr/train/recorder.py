"""When a step is written to a file of RUN/steps, and when it is judged as it is made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from numpy.typing import NDArray

from rlvr.data.step_files import StepFile, write_step
from rlvr.train.part import LearnerPart
from rlvr.train.self_check import departures

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["RowArrays", "StepWriter", "add_rows"]

_K = TypeVar("_K")
RowArrays: TypeAlias = dict[str, NDArray[Any]]
"""Of one row of an update: logprobs, weights and what else is known of it."""


def add_rows(rows: dict[_K, RowArrays], more: Mapping[_K, RowArrays]) -> None:
    """Add rows; of one that is there (a rank's filler, whose gradient is 0, or its original) the
    slopes add.

    Args:
        rows: of an update.
        more: other rows of it.
    """
    for key, arrays in more.items():
        for name in arrays:
            # Weights of a loss add up: a filler's is 0.
            if name.endswith("weights") and key in rows:
                arrays[name] = arrays[name] + rows[key][name]
        rows[key] = arrays


class StepWriter(LearnerPart):
    """Writes every `step_files`-th step, and every update whose loss or gradient is
    not finite, to RUN/steps.

    Every `verify_every`-th step is judged as it is made, and written if a number departs: a metric
    `departs/QUANTITY`, over what rounding allows, which is an alarm.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._step = 0

    def begin_at(self, step: int) -> None:
        self._step = step

    def end_step(self, step: int) -> None:
        self._step = step

    @property
    def is_written(self) -> bool:
        """Whether this step gets a file."""
        every = self.learner.config.step_files
        # Steps done before it: the run's first step is written.
        return bool(every) and self._step % every == 0

    @property
    def _is_judged(self) -> bool:
        every = self.learner.config.verify_every
        return bool(every) and (self._step + 1) % every == 0

    @property
    def _is_due(self) -> bool:
        return self.is_written or self._is_judged

    @property
    def _head(self) -> dict[str, object]:
        """What every file says of the run and of the step."""
        config = self.learner.config
        return {
            "step": self._step + 1,
            "trainer": f"rlvr {version('rlvr')}",
            "ranks": self.learner.ranks.world,
            "precision": config.precision,
            "temperature": self.learner.temperature,
            "lr": self.learner.lr,
            "seed": config.seed,
            "updates_wanted": config.updates_per_batch,
        }

    def _save(self, step: StepFile, suffix: str = "") -> None:
        name = f"step-{self._step + 1:08d}{suffix}.safetensors"
        write_step(self.learner.config.run / "steps" / name, step)

    def _judge(self, step: StepFile | None, **others: float) -> dict[str, float]:
        """Write a step that is due, or that departs; what departs is logged by every rank.

        Args:
            step: None on ranks but the first.
            others: by how much other quantities of the step depart.
        """
        departs = dict[str, float]()
        if step is not None and self._is_judged:
            ratios = {**departures(step), **others}
            departs = {f"departs/{name}": by for name, by in ratios.items()}
        if step is not None and (self.is_written or departs):
            self._save(step)
        # All ranks make this call, or none: whether a step is judged depends on its number.
        return self.learner.ranks.from_first(departs) if self._is_judged else {}
