"""Environments: the base classes, their options, and the registry of ids."""

from rlvr.environment.base import (
    Environment,
    MultiTurnEnv,
    RowsEnv,
    SingleTurnEnv,
    TasksEnv,
    seeded,
)
from rlvr.environment.mixture import Curriculum, Mixture, Share
from rlvr.environment.registry import environment_ids, load, make, register
from rlvr.environment.tool_env import ToolEnv
from rlvr.environment.tool_episode import EpisodeFailed, RunningEpisode
from rlvr.environment.tools import Tool, tool

__all__ = [
    "Curriculum",
    "Environment",
    "EpisodeFailed",
    "Mixture",
    "MultiTurnEnv",
    "RowsEnv",
    "RunningEpisode",
    "Share",
    "SingleTurnEnv",
    "TasksEnv",
    "Tool",
    "ToolEnv",
    "environment_ids",
    "load",
    "make",
    "register",
    "seeded",
    "tool",
]
