"""Distillation: what the policy samples comes nearer to a teacher, without any reward."""

import pytest
import torch

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.errors import UsageError
from rlvr.samplers.protocol import TokenRow
from rlvr.train.config import Config
from rlvr.train.credit import collate
from rlvr.train.learner import Learner
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from tests.json_lines import write_json_lines
from tests.processes import in_turn
from tests.train.bandit import CHARSET, Bandit, policy, run_to_end, trainer


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


@pytest.mark.parametrize("algorithm", in_turn(["gkd", "distill"], 2))
def test_the_policy_comes_near_its_teacher(tmp_path, algorithm):
    """The reverse KL of sampled tokens falls to less than half, though every score is 0."""
    settings = {"algorithm": algorithm, "teacher": teacher(tmp_path / "teacher"), "prompts": 16}
    run_to_end(tmp_path / "run", env=Blank(), steps=30, lr=3e-2, **settings)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    first, last = (sum(row["teacher_kl"] for row in part) / 5 for part in (rows[:5], rows[-5:]))
    assert 0 < last < first / 2
    assert {row["reward"] for row in rows} == {0.0}


def test_the_policy_is_its_own_teacher_where_it_is_shown_the_reference(tmp_path):
    """As a prompt in which both stand; a task without a reference is refused."""
    made = policy()
    algorithm = load_algorithm("sdft", shown="{prompt}b={reference}=")
    config = Config(env="x", model="x", run=tmp_path, algorithm=algorithm)
    learner = Learner(made, config)
    groups = [group("1=", "{prompt}2"), group("22=", "3")]
    found = learner.prepared(collate(groups)).teacher_logprobs
    for row, prompt in zip(found, ["1=b={prompt}2=", "22=b=3="], strict=True):
        seen = TokenRow(made.tokenization.encode(prompt), [6, 7, 2])
        with torch.no_grad():
            torch.testing.assert_close(row, made.logprobs([seen])[0])
    with pytest.raises(UsageError, match="task '1=' has no reference, which the teacher would be"):
        learner.prepared(collate([group("1=", None)]))


def group(prompt, reference):
    task = rlvr.Task(prompt, prompt, reference)
    ids = policy().tokenization.encode(prompt)
    return rlvr.Group(task, [rlvr.Rollout(task, "", ids, [6, 7, 2], [True] * 3, [-1.0] * 3, 0)])


def test_texts_of_a_file_are_beside_the_samples(tmp_path):
    """λ = ¼: three texts to each sample, whose ratios are 1 with a correction too; and they are learned from."""
    texts = tmp_path / "texts.jsonl"
    rows = [{"prompt": f"{i}=", "completion": "ab"} for i in range(7)]
    write_json_lines(texts, [*rows, {**rows[0], "label": False}])
    algorithm = load_algorithm(
        "gkd", student_share=0.25, texts=str(texts), correction="token:truncate:2"
    )
    seen = []
    settings = {"algorithm": algorithm, "teacher": teacher(tmp_path / "teacher"), "steps": 2}
    with trainer(tmp_path / "run", env=Blank(), **settings) as made:
        update = made.learner.update
        made.learner.update = lambda batch, *rest: seen.append(batch) or update(batch, *rest)
        made.run()
    for batch in seen:
        assert [row.text for row in batch.rows[16:]] == ["ab"] * 48
        assert torch.equal(batch.behaviour_logprobs[16:], batch.old_logprobs[16:])
        assert batch.completion_mask[16:, :3].all()
    numbers = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["texts"] for row in numbers] == [48.0, 48.0]
    assert {row["updates"] for row in numbers} == {1.0}


@pytest.mark.parametrize(
    "changes", [{"student_share": 0.5}, {"texts": "a.jsonl"}, {"student_share": 0}]
)
def test_texts_and_their_share_come_together(changes):
    """One without the other would do nothing; texts alone are fine-tuning."""
    with pytest.raises(UsageError, match="student_share is"):
        load_algorithm("gkd", **changes)


@pytest.mark.parametrize("changes", [{}, {"beta": 1.0}, {"top_k": 3}])
def test_the_divergence_is_that_of_whole_distributions(tmp_path, changes, monkeypatch):
    """In blocks of two tokens, with rows of several lengths: as from the full logits of both."""
    monkeypatch.setattr("rlvr.train.teacher._BLOCK", 2 * len(CHARSET))
    made, algorithm = policy(), load_algorithm("gkd", **changes)
    settings = {"algorithm": algorithm, "teacher": teacher(tmp_path / "t"), "temperature": 0.7}
    learner = Learner(made, Config(env="x", model="x", run=tmp_path / "run", **settings))
    batch = collate([group("1=", "2"), group("22=", "3"), group("1=", "4")])
    [part] = [one for one in learner.parts if one.makes_logprobs]
    logprobs, found = part.logprobs(batch)
    with torch.no_grad():
        torch.testing.assert_close(logprobs, made.logprobs(batch.rows, 0.7))
    for row, divergence in zip(batch.rows, found["divergence"], strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        at = slice(len(row.prompt_ids) - 1, -1)
        both = [(one.model(ids).logits[0, at] / 0.7).log_softmax(-1) for one in (made, part.policy)]
        torch.testing.assert_close(divergence, algorithm.divergence(*both))


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
        ({"algorithm": "gkd", "teacher": "http://a:1"}, "teachers behind servers are not there"),
    ],
)
def test_a_teacher_that_is_not_there_is_one_line(tmp_path, settings, said: str):
    """Before anything is sampled."""
    with pytest.raises(UsageError, match=said):
        trainer(tmp_path / "run", made=policy(), **settings)
