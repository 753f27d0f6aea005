"""Distillation: what the policy samples comes nearer to a teacher, without any reward."""

import pytest

from rlvr.errors import UsageError
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from tests.train.bandit import CHARSET, Bandit, policy, trainer


class Blank(Bandit):
    """Nothing is ever right, so that only the teacher teaches."""

    def verify(self, task, completion):
        return super().verify(task, "x")


def teacher(folder, charset=CHARSET) -> str:
    """One that is sure of what it says."""
    model, tokenizer = tiny(charset, hidden=16, heads=2, layers=1, seed=5, tied=False)
    model.get_output_embeddings().weight.data.mul_(60)
    Policy(model, tokenizer).save(folder)
    return str(folder)


def test_the_policy_comes_near_its_teacher(tmp_path):
    """The reverse KL of sampled tokens falls to less than half, though every score is 0."""
    settings = {"algorithm": "distill", "teacher": teacher(tmp_path / "teacher"), "prompts": 16}
    with trainer(tmp_path / "run", env=Blank(), steps=30, lr=3e-2, **settings) as made:
        made.run()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    first, last = (sum(row["teacher_kl"] for row in part) / 5 for part in (rows[:5], rows[-5:]))
    assert 0 < last < first / 2
    assert {row["reward"] for row in rows} == {0.0}


def test_a_teacher_with_other_tokens_is_refused(tmp_path):
    """With the first token that differs."""
    other = teacher(tmp_path / "other", charset="0123456789ba= ")
    with pytest.raises(
        UsageError, match=r"token 14 is 'b' for the teacher .* and 'a' for the model"
    ):
        trainer(tmp_path / "run", algorithm="distill", teacher=other)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"algorithm": "distill"}, "distill learns from a teacher; give --teacher"),
        (
            {"algorithm": "grpo", "teacher": "x"},
            "teacher is str 'x', and nothing reads it with grpo",
        ),
        ({"algorithm": "distill", "teacher": "no/such/folder"}, "no/such/folder"),
    ],
)
def test_a_teacher_that_is_not_there_is_one_line(tmp_path, settings, said: str):
    """Before anything is sampled."""
    with pytest.raises(UsageError, match=said):
        trainer(tmp_path / "run", made=policy(), **settings)
