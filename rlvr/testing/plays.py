"""Episodes that are played from a list of turns, without a policy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlvr.environment import Environment
from rlvr.environment.episode import TurnLike
from rlvr.episode import EpisodeRecord, PolicyTurn
from rlvr.errors import Unscored
from rlvr.types import Completion, Outcome, Score, Task, Verdict

__all__ = ["Played", "play", "score_plays", "score_turns"]


class Played(NamedTuple):
    """An episode, and a copy of its state at the end; None where that is no plain data."""

    record: EpisodeRecord
    state: Any


def play(env: Environment, task: Task, turns: Sequence[TurnLike]) -> Played:
    """Play an episode to the end of these turns, or its own.

    Args:
        env: the environment.
        task: of the episode.
        turns: of the policy.

    Raises:
        Unscored: the environment failed.
    """
    with env.open(task) as running:
        for turn in turns:
            if running.reply(PolicyTurn(turn) if isinstance(turn, str) else turn) is None:
                break
        if not running.end:
            running.finish("turns")
        state = getattr(running, "_state", None)
        # A copy, as the state is closed with the episode; an object of another kind may not allow
        # one.
        state = copy.deepcopy(state) if isinstance(state, Mapping) else None
    return Played(running.record, state)


def score_turns(env: Environment, task: Task, turns: Sequence[TurnLike]) -> Score:
    """The score of such an episode; UNSCORED where the environment failed.

    Args:
        env, task, turns: see `play`.
    """
    return score_plays(env, task, [turns], env.score_group)[0]


def score_plays(
    env: Environment,
    task: Task,
    plays: Iterable[Sequence[TurnLike]],
    score_group: Callable[[Task, list[Completion]], Sequence[Score]],
) -> list[Score]:
    """The scores of episodes of one task; UNSCORED where the environment failed.

    Args:
        env, task: see `play`.
        plays: the turns of each episode.
        score_group: of the environment, or of a scorer of it.
    """
    scores: list[Score | None] = []
    ended: list[Completion] = []
    for turns in plays:
        try:
            ended.append(env.completion_of(play(env, task, turns).record, 1))
            scores.append(None)
        except Unscored as error:
            why = f"{error.reason}: {error}"
            scores.append(Score(None, {}, Verdict(Outcome.UNSCORED, why=why)))
    judged = iter(score_group(task, ended))
    # In the order of the plays, with those that failed in their places.
    return [next(judged) if score is None else score for score in scores]
