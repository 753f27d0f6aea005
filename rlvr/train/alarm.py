"""Stops a run after `bad_steps` steps in which every rollout was UNSCORED."""

from __future__ import annotations

from rlvr.collect.stats import unscored_reasons
from rlvr.errors import RlvrError
from rlvr.train.rollout_batch import RolloutBatch

__all__ = ["NothingScored", "ScoringAlarm"]


class NothingScored(RlvrError):
    """No rollout could be scored in several steps in a row, so the run would learn nothing."""


class ScoringAlarm:
    """Counts consecutive steps in which no rollout was scored.

    Args:
        steps: the number of them that ends the run.
    """

    def __init__(self, steps: int) -> None:
        self.steps, self._without_score = steps, 0

    def check(self, batch: RolloutBatch) -> None:
        """Count a step.

        Args:
            batch: what the step has collected.

        Raises:
            NothingScored: this was one unscored step too many.
        """
        unscored = int(batch.stats["unscored"])
        self._without_score = steps = self._without_score + 1 if unscored == batch.stats["rollouts"] else 0
        if steps >= self.steps:
            if not unscored:
                raise NothingScored(
                    f"every prompt of the last {steps} steps, with max_tokens behind it, is longer than the model's "
                    "positions; lower max_tokens, or choose a model with more"
                )
            why, count = unscored_reasons(batch.dropped).most_common(1)[0]
            raise NothingScored(
                f"none of the {unscored} rollouts of this step could be scored, nor any of the last {steps} steps; "
                f"{count} of them because of {why[:200]!r}. `rlvr doctor` looks for what is missing here; the same "
                "command continues from the last checkpoint"
            )
