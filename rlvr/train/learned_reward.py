"""A trained reward model as a part of a reward.  Needs no torch until it is asked:
workers are sent the part too."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlvr.rewards import Bounds, GroupPart
from rlvr.train.reward_head import require_reads, version_of
from rlvr.types import Completion, Task, Verdict

if TYPE_CHECKING:
    from rlvr.train.reward_model import RewardModel

__all__ = ["LearnedReward"]


@dataclass(frozen=True)
class LearnedReward(GroupPart):
    """What a trained reward model says of completions, in [0, 1]: a part of a
    reward, never a verdict.

        env = env.with_reward(env.reward + 0.2 * LearnedReward("runs/rm/model"))

    The completions of a task are scored together, in the process that puts scores together: the
    trainer, or the one that calls `rlvr.score`.  Workers and remote scorers never load it.

    Args:
        folder: RUN/model of a run with the algorithm `reward_model`.
        device: where the model computes.
        name: of the part in `Score.parts`.

    Attributes:
        version: the beginning of a digest of its head, by which a run notices that it was trained
            again.

    Raises:
        UsageError: the folder holds no reward model.
    """

    folder: str | Path
    device: str = "cpu"
    name: str = "learned"
    version: str = field(init=False)
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", version_of(self.folder))
        require_reads(self.folder, "completions")

    def __str__(self) -> str:
        """The name and the version: the same model in another folder, on another device or machine
        scores the same."""
        return f"{self.name}(version={self.version!r})"

    def load(self) -> RewardModel:
        """The model, which all copies of this part in a process have in common.

        Raises:
            UsageError: it cannot be loaded.
        """
        # One thread loads, others wait: `cache` alone would load the model twice.
        with _LOADING:
            return _load_model(str(self.folder), self.device, self.version)

    def values(
        self,
        completions: Sequence[Completion],
        verdicts: Sequence[Verdict],
        task: Task | None = None,
    ) -> list[float]:
        assert task is not None
        scores: list[float] = self.load().scores(
            [task.prompt] * len(completions), [completion.text for completion in completions]
        )
        return scores


_LOADING = threading.Lock()


@cache
def _load_model(folder: str, device: str, version: str) -> RewardModel:
    """One model for all copies of a part in this process; `version` keeps those that were trained
    again apart."""
    from rlvr.train.reward_model import RewardModel

    return RewardModel.load(folder, device=device)
