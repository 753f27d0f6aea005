"""Environments: the base classes, their options, and the registry of ids."""

from rlvr.environment.base import Environment, MultiTurnEnv, RowsEnv, SingleTurnEnv, seeded
from rlvr.environment.mixture import Curriculum, Mixture, Share
from rlvr.environment.registry import environment_ids, load, make, register

__all__ = [
    "Curriculum",
    "Environment",
    "Mixture",
    "MultiTurnEnv",
    "RowsEnv",
    "Share",
    "SingleTurnEnv",
    "environment_ids",
    "load",
    "make",
    "register",
    "seeded",
]
