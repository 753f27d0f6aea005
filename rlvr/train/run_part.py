"""The seam of the loop: what a run does beside learning is a part, and the loop
calls all parts in order.

see (the step's rollouts) ─▶ the update, sync ─▶ evaluate ─▶ end_step
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rlvr.train.rollout_batch import RolloutBatch

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.loop import Trainer

__all__ = ["RunPart"]


class RunPart:
    """One thing of a run, such as its evaluations or an alarm; every method
    does nothing by default.

    Args:
        run: whose part it is.

    Attributes:
        name: of its state in a checkpoint.
        ends_run: whether the run ends after this step, which is saved.
    """

    name: ClassVar[str] = ""
    ends_run = False

    def __init__(self, run: Trainer) -> None:
        self.run = run

    @classmethod
    def is_wanted(cls, run: Trainer) -> bool:
        """Whether a run's settings ask for the part.

        Args:
            run: before its model is loaded, with settings, environments and ranks.
        """
        return True

    def begin_at(self, step: int) -> None:
        """Know where a run begins, or continues; its model is there.

        Args:
            step: steps done.
        """

    def see(self, sampled: RolloutBatch) -> Mapping[str, float]:
        """See what was sampled for a step, before it is trained on; only on the rank that collects.

        Args:
            sampled: the rollouts.

        Returns:
            What is logged.
        """
        return {}

    def evaluate(self, first: bool) -> Mapping[str, float]:
        """See the policy after a step, which the sampler has; returns what is logged.

        Args:
            first: whether this is before the first step.
        """
        return {}

    def end_step(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        """See the end of a step; returns what is logged beside that.

        Args:
            numbers: what the step logs so far; on ranks but the first not all of it.
        """
        return {}

    def finish(self) -> None:
        """See the end of a run whose last step is saved."""

    def state(self) -> Any:
        """What the next step depends on: a tree of tensors and numbers; None for nothing."""
        return None

    def load(self, state: Any) -> None:
        """Continue from what `state` returned.

        Args:
            state: what it returned; None where the run had no such part.
        """
