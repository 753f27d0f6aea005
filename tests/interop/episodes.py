"""The episodes that every neighbour plays: the same actions have to make the same calls and earn the same totals."""

from __future__ import annotations

from tests.environments import Desk

EPISODES = [  # (calls, answer) of task 3: say 4
    ([("add", {"x": 3, "y": 1})], "4"),
    ([("add", {"x": 3, "y": 1})], "5"),
    (
        [("add", {"x": -1}), ("add", {"x": "3"}), ("add", {"z": 1}), ("add", {})],
        "4",
    ),  # each has a fault
    ([("add", {"x": i}) for i in range(20)], "4"),  # more calls than there are
    ([], "4"),
    ([], ""),
]


def seen(episode):
    """The calls of a record, without what differs: seconds and ids."""
    return [(call.name, dict(call.arguments), call.reply, call.error) for call in episode.calls]


def ours(calls, answer, env):
    with env.open(env.task(3)) as running:
        for name, arguments in calls:
            running.call(name, arguments)
        running.reply(answer)
    score = env.score(env.task(3), env.completion_of(running.record))
    return seen(running.record), score.total, score.verdict.outcome


class Seen(Desk):
    """Shows a test what is verified."""

    turns: int = 32

    def verify(self, task, episode):
        self.__dict__.get("seen", lambda episode: None)(episode)
        return super().verify(task, episode)
