"""The kinds of environments of before 0.2.0, for files that have them:
all are `Environment` now."""

from __future__ import annotations

from typing import ClassVar

from rlvr.environment.base import Environment
from rlvr.environment.episode import Episode
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.errors import UsageError

__all__ = ["MultiTurnEnv", "SingleTurnEnv", "ToolEnv"]


class SingleTurnEnv(Environment):
    """`Environment`, by its name of before."""


class ToolEnv(Environment):
    """`Environment`, by the name that those with tools had before."""

    plays: ClassVar[type[Episode]] = ToolEpisode

    def __init_subclass__(cls, **kwargs: object) -> None:
        if "open" in cls.__dict__:
            raise UsageError(
                f"{cls.__name__}.open gives a state; name it setup, since open gives the episode "
                f"now"
            )
        super().__init_subclass__(**kwargs)


class MultiTurnEnv(Environment):
    """Gone: an environment that was written as Gymnasium's `reset` and `step`,
    which the base class has now."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        raise UsageError(
            f"{cls.__name__}: rlvr.MultiTurnEnv is gone; derive from rlvr.Environment, make the "
            "prompt in task(index), answer a turn in user(task, transcript), and judge the record "
            "in verify(task, episode)"
        )
