"""Is there anybody who scores?  A run whose every rollout is UNSCORED learns nothing, for as long as it is let."""

from __future__ import annotations

from rlvr.collect.stats import failures
from rlvr.errors import RlvrError
from rlvr.train.gather import Gathered

__all__ = ["NothingScored", "ScoringAlarm"]


class NothingScored(RlvrError):
    """Step after step without a single score: the run would end with the weights it began with."""


class ScoringAlarm:
    """Counts steps in a row of which no rollout was scored.

    Args:
        steps: how many end the run.
    """

    def __init__(self, steps: int) -> None:
        self.steps, self._silent = steps, 0

    def heard(self, gathered: Gathered) -> None:
        """A step was sampled.

        Raises:
            NothingScored: neither this one nor the ones before it have a score.
        """
        unscored = int(gathered.stats["unscored"])
        self._silent = self._silent + 1 if unscored == gathered.stats["rollouts"] else 0
        if self._silent >= self.steps:
            if not unscored:
                raise NothingScored(
                    f"every prompt of the last {self._silent} steps, with max_tokens behind it, is longer than the "
                    "model's positions; lower max_tokens, or choose a model with more"
                )
            why, count = failures(gathered.dropped).most_common(1)[0]
            raise NothingScored(
                f"none of the {unscored} rollouts of this step could be scored, nor any of the last {self._silent} "
                f"steps; {count} of them because of {why[:200]!r}. `rlvr doctor` looks for what is missing here; the "
                "same command goes on from the last checkpoint"
            )
