"""Rewards of steps: from a rule or a process reward model, and what goes wrong with them is no completion's fault."""

import json
import math

import pytest
import torch

from rlvr.errors import UsageError
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.reward_model import RewardModel
from rlvr.train.trained_rows import step_row
from tests.processes import in_turn
from tests.serve.serving import answering
from tests.train.bandit import Bandit, policy, run_to_end

RULES = """
def letters(task, steps):
    return [float(step.count("a")) for step in steps]

def fails_on_b(task, steps):
    if any("b" in step for step in steps):
        raise ValueError("a b")
    return [1.0] * len(steps)

def too_few(task, steps):
    return [0.5] * (len(steps) - 1)

def nan(task, steps):
    return [float("nan")] * len(steps)

number = 3
"""


class Wrong(Bandit):
    """No score tells completions apart, so that only their steps do."""

    def verify(self, task, completion):
        return super().verify(task, "x")


@pytest.fixture
def rules(tmp_path):
    file = tmp_path / "rules.py"
    file.write_text(RULES)
    return file


def run(folder, rules, name, **settings):
    given = {"algorithm": "grpo_process", "step_delimiter": "b", "step_reward": f"{rules}:{name}"}
    given |= {"env": Wrong(), "prompts": 16, "max_tokens": 6}
    run_to_end(folder, **given | settings)
    return read_metrics(folder / "metrics.jsonl")


@pytest.mark.parametrize("algorithm", in_turn(["grpo_process", "reinforce_pp", "ppo", "a2c"], 2))
def test_steps_teach_where_no_score_does(tmp_path, rules, algorithm):
    """A rule that likes the letter a: completions become full of it, though every verdict is WRONG."""
    settings = {"algorithm": algorithm, "group_size": 4}
    rows = run(tmp_path / "run", rules, "letters", steps=12, lr=6e-2, **settings)
    assert {row["reward"] for row in rows} == {0.0}
    assert rows[-1]["entropy"] < rows[0]["entropy"] / 2


def test_forks_reward_steps(tmp_path, rules):
    """Two completions from each prompt at least, and no completion is lost by it."""
    settings = {"step_reward": "forks", "step_delimiter": "=", "vine_k": 2, "rollouts_every": 1}
    [row] = run(tmp_path / "run", rules, "", steps=1, env=Bandit(), **settings)
    assert row["forks"] >= 2 * 16
    assert row["updates"] == 1.0
    assert row["steps_unscored"] == 0.0


def test_a_service_rewards_steps(tmp_path, rules):
    """By the letter a, as the rule above does; while it fails completions are UNSCORED, and the others learn."""
    with answering() as (url, state):
        state.reads = "steps"
        settings = {"step_reward": url, "max_tokens": 3}
        rows = run(tmp_path / "run", rules, "", steps=2, prompts=4, **settings)
    assert [row["steps_unscored"] for row in rows] == [0.0, 0.0]
    assert sum(state.asked) == 2 * 4 * 4


def test_a_policy_trained_by_preferences_rewards_completions_and_steps(tmp_path, rules):
    """β Σ log π / π_ref, here of a model against itself after a change of one weight; both kinds of reward take it."""
    start, trained = tmp_path / "start", tmp_path / "dpo" / "model"
    made = policy()
    made.save(start)
    with torch.no_grad():
        made.model.get_output_embeddings().weight.mul_(1.5)
    made.save(trained)
    about = {"model": str(start), "algorithm": {"name": "dpo", "beta": 0.5}}
    (tmp_path / "dpo" / "config.json").write_text(json.dumps({"settings": about}))
    source = f"implicit:{tmp_path / 'dpo'}"
    model = RewardModel.load(source, reads="steps")
    row, _ = step_row(made.tokenization, "1=", ["ab", "2"])
    with torch.no_grad():
        apart = 0.5 * (made.logprobs([row]) - Policy.load(start).logprobs([row]))[0]
    wanted = [float(apart[:2].sum()), float(apart[2])]
    assert model.step_scores("1=", ["ab", "2"]) == pytest.approx(wanted, abs=1e-6)
    whole = float(apart.sum())  # with the end token
    assert model.scores(["1="], ["ab2"]) == pytest.approx([1 / (1 + math.exp(-whole))], abs=1e-6)
    settings = {"step_reward": source, "reward_model": source, "max_tokens": 3, "algorithm": "ppo"}
    [row] = run(tmp_path / "run", rules, "", steps=1, prompts=4, group_size=4, **settings)
    assert row["reward/learned"] > 0
    assert row["steps_unscored"] == 0.0
    (trained / "model.safetensors").unlink()
    for folder in ("dpo", "start"):
        with pytest.raises(UsageError, match="is no finished run of dpo, ipo, slic, kto"):
            RewardModel.load(f"implicit:{tmp_path / folder}")


def test_turns_are_the_steps_by_default(tmp_path, rules):
    """Said explicitly they are the same as without, which needs an environment of several turns."""
    settings = {"step_reward": "turns", "step_delimiter": None}
    with pytest.raises(UsageError, match="needs rewards of steps, and a completion of"):
        run(tmp_path / "run", rules, "", steps=1, **settings)


@pytest.mark.parametrize("name", ["too_few", "nan"])
def test_a_rule_that_fails_makes_completions_unscored(tmp_path, rules, name):
    """Never 0; where it fails for all, the run ends with its reason."""
    with pytest.raises(
        UsageError, match=r"gave no completion of 64 a reward; the first: step rewards: Val"
    ):
        run(tmp_path / "run", rules, name, steps=1)


def test_a_rule_that_fails_for_some_costs_the_others_nothing(tmp_path, rules):
    """Completions with a b are left out of the update."""
    [row] = run(tmp_path / "run", rules, "fails_on_b", steps=1, step_delimiter="=")
    assert row["updates"] == 1.0
    assert 0 < row["steps_unscored"] < 64


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"step_reward": "nothing"}, "step_reward is 'nothing'; it must be RUN/model of a"),
        ({"step_delimiter": ""}, "step_delimiter is an empty text"),
        ({"algorithm": "grpo"}, "step_reward is str .* nothing reads it with grpo"),
        ({"step_reward": None}, "step_delimiter is str 'b', and nothing reads it"),
    ],
)
def test_what_cannot_reward_steps_is_one_line(tmp_path, rules, settings, said):
    """Before anything is sampled."""
    with pytest.raises(UsageError, match=said):
        run(tmp_path / "run", rules, "letters", steps=1, **settings)


def test_a_number_is_no_rule(tmp_path, rules):
    """Nor is a name that is not there, or a file."""
    for name in ("number", "nothing"):
        with pytest.raises(UsageError, match=f"has no function '{name}'"):
            run(tmp_path / "run", rules, name, steps=1)
    with pytest.raises(UsageError, match=r"there is no file .*other\.py, which --step-reward"):
        run(tmp_path / "run", tmp_path / "other.py", "letters", steps=1)
