"""Recorded episodes, graded again from their outputs, or played again call by call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlvr.environment import Environment
from rlvr.episode import Ask, EpisodeRecord, EpisodeTurn, PolicyTurn, ToolCall
from rlvr.errors import Unscored
from rlvr.types import Completion, Task

__all__ = ["grade_again", "play_again"]


def grade_again(env: Environment, task: Task, completion: Completion) -> Completion:
    """A completion whose record has what `grade` finds now in the outputs that it holds; others as
    they are.

    Args:
        env: the environment.
        task: of the episode.
        completion: with its record.

    Raises:
        Unscored: `grade` failed.
    """
    if completion.episode is None:
        return completion
    env, task = env.route(task)
    return replace(completion, episode=env.plays.regrade(env, task, completion.episode))


def play_again(
    env: Environment, task: Task, record: EpisodeRecord
) -> Iterator[tuple[str, object, object]]:
    """What comes out otherwise when the turns of a record are played again: (field, recorded, now).

    Args:
        env: the environment.
        task: of the episode.
        record: of the episode.
    """
    env, task = env.route(task)
    try:
        again = _play_again(env, task, record)
    except Unscored as error:
        yield "episode", record.end, f"{error.reason}: {error}"
        return
    for number, (turn, replayed) in enumerate(zip(record.turns, again.turns, strict=False)):
        for call, replayed_call in zip(turn.calls, replayed.calls, strict=False):
            if call.reply != replayed_call.reply:
                yield f"turn {number}, {call.name}", call.reply, replayed_call.reply
        if turn.user != replayed.user:
            yield f"turn {number}, user", turn.user, replayed.user
    for name in ("end", "final", "outputs", "fault"):
        before, now_is = getattr(record, name), getattr(again, name)
        if before != now_is:
            yield name, before, now_is
    if len(record.turns) != len(again.turns):
        yield "turns", len(record.turns), len(again.turns)


def _play_again(env: Environment, task: Task, record: EpisodeRecord) -> EpisodeRecord:
    with env.open(task) as episode:
        for number, turn in enumerate(record.turns, start=1):
            # Only what ended the recorded episode may end the replayed one.
            cut = record.end if number == len(record.turns) and record.end != "turns" else ""
            last = cut if cut in ("tokens", "positions") else ""
            if episode.reply(_turn(turn), last=last) is None:
                break
        # For an end that is no turn, such as a limit.
        episode.finish(record.end)
    return episode.record


def _turn(turn: EpisodeTurn) -> PolicyTurn:
    return PolicyTurn(turn.text, tuple(map(_ask, turn.calls)))


def _ask(call: ToolCall) -> Ask:
    """A call as it was written; one that could not be read is refused with the same words."""
    unread = call.error and not call.arguments and not call.seconds
    return Ask(
        call.name, call.arguments, call.reply.removeprefix("error: ") if unread else "", call.id
    )
