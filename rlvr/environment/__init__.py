"""Environments: the base class, episodes, options, and the registry of ids."""

from rlvr.environment.base import Environment, RowsEnv, require_environment, require_one_reply
from rlvr.environment.episode import Episode, EpisodeFailed, EpisodeLimits
from rlvr.environment.mixture import Curriculum, Mixture, Share
from rlvr.environment.registry import environment_ids, load, make, register
from rlvr.environment.seeds import seeded
from rlvr.environment.tools import Tool, tool

__all__ = [
    "Curriculum",
    "Environment",
    "Episode",
    "EpisodeFailed",
    "EpisodeLimits",
    "Mixture",
    "RowsEnv",
    "Share",
    "Tool",
    "environment_ids",
    "load",
    "make",
    "register",
    "require_environment",
    "require_one_reply",
    "seeded",
    "tool",
]
