"""Groups that are trained on again: which, how old, how often, and what is counted."""

import dataclasses
from types import SimpleNamespace

import pytest

from rlvr.algo.papers import load_algorithm
from rlvr.algo.parts import Replay
from rlvr.errors import UsageError
from rlvr.train.replay import ReplayBuffer
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.types import Group, Outcome, Rollout, Score, Task, Verdict
from tests.json_lines import read_json_lines
from tests.train.bandit import trainer


def group(index: int, version: int) -> Group:
    task = Task(f"t{index}", "?")
    score = Score(1.0, {"correct": 1.0}, Verdict(Outcome.CORRECT))
    return Group(task, [Rollout(task, "a", [1], [2], [True], [-1.0], version, score=score)] * 2)


def buffer_of(replay: Replay, seed: int) -> ReplayBuffer:
    algorithm = SimpleNamespace(replay=replay)
    return ReplayBuffer(SimpleNamespace(algorithm=algorithm, config=SimpleNamespace(seed=seed)))


def batch(*groups: Group) -> RolloutBatch:
    return RolloutBatch(
        groups, None, {}, {one.task.id: int(one.task.id[1:]) for one in groups}, 0.0
    )


def test_a_step_gets_groups_of_earlier_steps_and_none_that_is_too_old():
    """Step s brings group s, of weights s; two versions back may be replayed, all that there are at first."""
    buffer = buffer_of(Replay(groups=2, max_versions=2), seed=0)
    trained = [buffer.extend(batch(group(step, step)), step, None) for step in range(6)]
    assert [[one.task.id for one in each.groups] for each in trained] == [
        ["t0"], ["t1", "t0"], ["t2", "t0", "t1"], ["t3", "t1", "t2"], ["t4", "t2", "t3"], ["t5", "t3", "t4"],
    ]  # fmt: skip
    assert [each.staleness(step)["staleness"] for step, each in enumerate(trained)] == [
        0,
        1,
        2,
        2,
        2,
        2,
    ]


def test_draws_differ_from_step_to_step_and_repeat_with_the_seed():
    """One of nine groups each time; a step without groups of its own replays none."""
    found = []
    for seed in (0, 0, 1):
        buffer = buffer_of(Replay(groups=1, max_versions=99), seed)
        buffer.extend(batch(*(group(i, 0) for i in range(9))), 0, None)
        found.append(
            [
                buffer.extend(batch(group(9, 0)), step, None).groups[-1].task.id
                for step in range(1, 12)
            ]
        )
        assert buffer.extend(batch(), 12, None).groups == []
    assert found[0] == found[1] != found[2]
    assert len(set(found[0])) > 3


def test_replayed_groups_reach_the_update_with_a_correction(tmp_path):
    """4 groups of a step and 3 of those before: rows, metrics, and truncated importance sampling unless it has some."""
    algorithm = dataclasses.replace(
        load_algorithm("dr_grpo"), correction=(), replay=Replay(groups=3, max_versions=1)
    )
    seen = []
    with trainer(tmp_path / "run", algorithm=algorithm, steps=3) as made:
        assert made.learner.algorithm.correction is not None
        update = made.learner.update
        made.learner.update = lambda batch, *rest: (
            seen.append(len(batch.rows)) or update(batch, *rest)
        )
        made.run()
    rows = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert seen == [16, 28, 28]
    assert [(row["replayed"], row["groups"], row["staleness"]) for row in rows] == [
        (0, 4, 0),
        (3, 4, 1),
        (3, 4, 1),
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("reinforce", "replay_groups is no number of reinforce"),
        ("vineppo", "which has values of its own rollouts alone"),
        ("dpo", "replay_groups is no number of dpo"),
    ],
)
def test_what_cannot_be_replayed_is_refused(name, said):
    """Before anything is sampled."""
    with pytest.raises(UsageError, match=said):
        load_algorithm(name, replay_groups=1)
