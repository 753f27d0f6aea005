"""Labels of steps: counts of continuations, in TRL's columns, read back by the trainer."""

import json
from pathlib import Path

import pytest

import rlvr
from rlvr.collect import Groups, Sampling
from rlvr.collect.process_labels import process_labels
from rlvr.data.pairs import read_steps
from rlvr.errors import UsageError
from rlvr.scoring import Scorer
from tests.json_lines import write_json_lines
from tests.train.bandit import Bandit, policy


def labels(env: rlvr.Environment, max_rows: int = 256, **options) -> list[dict]:
    sampling = Sampling(max_tokens=6, temperature=1.0)
    with (
        Scorer(env, workers=0) as scorer,
        Groups(
            env,
            policy().sampler(max_rows=max_rows),
            group_size=4,
            sampling=sampling,
            scorer=scorer,
            key=("t",),
        ) as groups,
    ):
        return list(process_labels(groups, [(i, i) for i in range(4)], delimiter="a", **options))


def test_steps_have_the_counts_of_their_continuations(tmp_path: Path):
    """The first character decides, so all continuations of a step agree with the completion's own verdict."""
    rows = labels(Bandit(), k=3, every=True)
    assert len(rows) > 8
    for row in rows:
        right = row["outcome"] == "correct"
        assert row["scored"] == [3] * (len(row["completions"]) - 1) + [1]
        assert row["right"] == [count * right for count in row["scored"]]
        assert row["labels"] == [right] * len(row["completions"])
        assert all(step.rstrip("a").count("a") == 0 for step in row["completions"])
    assert any(len(row["completions"]) > 1 for row in rows)
    path = write_json_lines(tmp_path / "steps.jsonl", rows)
    assert [list(one.steps) for one in read_steps(path)] == [row["completions"] for row in rows]
    assert len(labels(Bandit(), k=1)) <= len(rows)


def test_a_sampler_with_few_rows_gives_the_same_labels():
    """Completions that wait for room are not taken for continuations of those that have ended."""
    few, many = (labels(Bandit(), rows, k=2, every=True) for rows in (3, 256))
    assert sorted(map(json.dumps, few)) == sorted(map(json.dumps, many))


def test_rewards_that_are_no_shares_are_refused():
    """A count of right continuations cannot be negative."""
    env = Bandit().with_reward(rlvr.Correct() - 1)
    with pytest.raises(UsageError, match=r"lies in \[-1, 0\]"):
        labels(env, k=1)
