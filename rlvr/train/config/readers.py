"""What reads settings of several objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rlvr.algo.papers.base import Algorithm
from rlvr.train.config.setting import Reader

if TYPE_CHECKING:  # it has the settings
    from rlvr.train.config.run import Config

__all__ = ["PLAYS", "SAMPLES", "evaluates", "given", "plays"]


def evaluates(config: Config, algorithm: Algorithm) -> bool:
    """Whether a run has evaluations.

    Args:
        config: its settings.
        algorithm: of the run.
    """
    return config.eval_every is not None or bool(config.eval_env)


def plays(config: Config, algorithm: Algorithm) -> bool:
    """Whether a run plays tasks, to train or to evaluate.

    Args:
        config: its settings.
        algorithm: of the run.
    """
    # With `pairs` nothing is sampled to train on, and only evaluations play tasks.
    return config.pairs is None or (evaluates(config, algorithm) and bool(config.env))


def given(name: str, who: str) -> Reader:
    """A reader that is there where another setting is not None.

    Args:
        name: of that setting.
        who: see `Reader`.
    """
    return Reader(who, lambda config, _: getattr(config, name) is not None)


SAMPLES: Final = Reader("runs that sample", lambda config, _: config.pairs is None)
PLAYS: Final = Reader("runs that sample or evaluate", plays)
