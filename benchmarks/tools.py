"""Episodes with tools: calls a second of 64 episodes at once with Python sessions,
and the replay of 1,000 records.

    python -m benchmarks.tools [EPISODES]

A scripted sampler stands for the model, so that what is timed is the episodes: opening the
sessions, calls, records.  One episode of each group is hostile: its calls never end by themselves.
"""

from __future__ import annotations

import json
import sys
import time

import rlvr
from rlvr.collect.flight import sample_groups
from rlvr.collect.groups import Groups
from rlvr.collect.rollout_records import rollout_records
from rlvr.environment.ready_tools import python, sandbox
from rlvr.samplers import Sampling, ScriptedSampler
from rlvr.sandbox import Limits
from rlvr.scoring.records import provenance

CALLS = 20


class Sums(rlvr.Environment):
    """Add, with a Python session."""

    turns: int = CALLS + 1
    calls: int = CALLS
    call_seconds: float = 30.0

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(f"{self.id}/{self.split}/{index}", f"Add {index} and 1.", index + 1)

    def setup(self, task: rlvr.Task) -> object:
        return sandbox(Limits(cpu_s=1.0, memory_mib=256)).session("python")

    def tools(self, state: object) -> list[rlvr.Tool]:
        return [python(state)]

    def verify(self, task: rlvr.Task, episode: rlvr.EpisodeRecord) -> rlvr.Verdict:
        right = episode.answer == str(task.reference)
        return rlvr.Verdict("correct" if right else "wrong", why="compared", answer=episode.answer)


def script(context: str, rollout: int, seed: int) -> str:
    """`CALLS` calls, then the last reply; every sixteenth episode is hostile."""
    number = int(context.partition("Add ")[2].split(" ")[0])
    calls = context.count("\ntool: ")
    if calls == CALLS:
        return context.rpartition("\ntool: ")[2].split("\n")[0]
    code = "while True: pass" if number % 16 == 0 and calls == 3 else f"{number} + 1"
    return f"<tool_call>{json.dumps({'name': 'python', 'arguments': {'code': code}})}</tool_call>"


class Broken(Sums):
    """The same, without a tool: a replay must not need one."""

    def setup(self, task: rlvr.Task) -> object:
        raise AssertionError("a replay opened a session")


def main(episodes: int = 64) -> None:
    env = Sums()
    sandbox(Limits(cpu_s=1.0, memory_mib=256)).session(
        "python"
    ).close()  # its check takes half a second
    with Groups(
        env, ScriptedSampler(script), group_size=1, sampling=Sampling(max_tokens=10**6)
    ) as groups:
        groups.scorer.warm()
        began = time.monotonic()
        found = list(sample_groups(groups, [(i, i) for i in range(episodes)]))
        took_s = time.monotonic() - began
    rollouts = [rollout for _, group in found for rollout in group.rollouts]
    calls = sum(len(rollout.episode.calls) for rollout in rollouts)
    late = sum(
        "error: over" in call.reply for rollout in rollouts for call in rollout.episode.calls
    )
    right = sum(rollout.score.total == 1.0 for rollout in rollouts)
    print(f"{episodes} episodes, {calls} calls in {took_s:.2f} s: {calls / took_s:.0f} calls/s")
    print(
        f"hostile calls ended: {late}; episodes that were right all the same: {right} of {episodes}"
    )

    place = f"{__file__}:Broken"
    run = provenance(Broken(), place)
    records = [
        record for n, (_, group) in enumerate(found) for record in rollout_records(n, group, run)
    ]
    records = [{**records[i % len(records)], "id": str(i)} for i in range(1000)]
    began = time.monotonic()
    differ = sum(map(bool, rlvr.replay(records, workers=0, allow=[place])))
    print(
        f"replay of 1,000 records: {differ} differ, {time.monotonic() - began:.2f} s, no tool run"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
