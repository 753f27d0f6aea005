"""The rows of agents are trained on, and the policy changes by them."""

import http.client
import json
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import torch
from rich.console import Console

from rlvr.agents import AgentEnv
from rlvr.algo.papers import load_algorithm
from rlvr.collect.serialization import group_as_dict, group_from_dict
from rlvr.errors import UsageError
from rlvr.train.config import Config
from rlvr.train.credit import collate, credit
from rlvr.train.loop import Trainer
from rlvr.train.preferences import examples_of_groups
from rlvr.types import Group, Outcome, Rollout, Score, Task, Turn, Verdict
from tests.json_lines import read_json_lines
from tests.train.bandit import Bandit, policy

TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% if m['role'] == "
    "'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)


def asks_three_times(call):
    """One request, one that extends it, and one of another conversation; the last completion is the answer."""
    where = urlsplit(call.base_url)
    connection = http.client.HTTPConnection(where.hostname, where.port)

    def ask(messages):
        head = {"authorization": f"Bearer {call.api_key}", "content-type": "application/json"}
        body = json.dumps({"messages": messages, "max_tokens": 2})
        connection.request("POST", f"{where.path}/chat/completions", body, head)
        return json.load(connection.getresponse())["choices"][0]["message"]

    messages = [{"role": "user", "content": call.prompt}]
    messages += [ask(messages), {"role": "user", "content": "="}]
    ask(messages)
    ask([{"role": "user", "content": "b="}])
    connection.close()


def trainer(run, **settings):
    made = policy()
    made.tokenizer.chat_template = TEMPLATE
    settings = {
        "env": "agent", "model": "tiny", "algorithm": "grpo", "steps": 2, "prompts": 2, "group_size": 8,
        "max_tokens": 8, "lr": 1e-2, "workers": 0, "eval_every": None, "rollouts_every": 0, "checkpoint_every": 100,
    } | settings  # fmt: skip
    env = AgentEnv(env=Bandit(), program=asks_three_times)
    return Trainer(Config(run=run, **settings), policy=made, env=env, console=Console(quiet=True))


def test_training_on_an_agents_requests_changes_the_policy(tmp_path):
    """Every row reaches the update with the sampler's own log-probabilities, so the first ratios are 1."""
    with trainer(tmp_path / "run", steps=3) as made:
        before = {name: value.clone() for name, value in made.policy.model.state_dict().items()}
        made.run()
        after = made.policy.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    rows = read_json_lines(made.config.run / "metrics.jsonl")
    assert all(row["ratio_max"] == pytest.approx(1, abs=1e-4) for row in rows if "ratio_max" in row)
    assert all(row["unscored"] == 0 and row["length"] > 3 for row in rows)


def rollout(total, *texts):
    """A rollout with one row for each text."""
    score = Score(
        total,
        {"correct": total},
        Verdict(Outcome.CORRECT if total else Outcome.WRONG, why="by hand"),
    )

    def row(text, branches=()):
        T = len(text)
        return Rollout(
            Task("t", "p"),
            text,
            [1],
            list(range(T)),
            [True] * T,
            [-1.0] * T,
            0,
            False,
            score,
            [Turn(0, T)],
            branches,
        )

    first, *others = texts
    return row(first, tuple(map(row, others)))


GROUP = Group(
    Task("t", "p"), [rollout(1.0, "ab", "c", "def"), rollout(0.0, "a"), rollout(0.0, "abcd")]
)


def test_branches_have_the_advantage_of_their_episode():
    """Three episodes, five rows: the mean is 1/3 over episodes, not 3/5 over rows; std sqrt(2)/3."""
    batch = collate([GROUP])
    assert [row.text for row in batch.rows] == ["ab", "a", "abcd", "c", "def"]
    found = credit([GROUP], batch, load_algorithm("grpo")).advantages
    up, down = 2 / 2**0.5, -1 / 2**0.5
    wanted = [[up, up, 0, 0], [down, 0, 0, 0], [down] * 4, [up, 0, 0, 0], [up, up, up, 0]]
    torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-5, rtol=0)


def test_branches_survive_a_checkpoint():
    back = group_from_dict(json.loads(json.dumps(group_as_dict(GROUP))), GROUP.task)
    assert [[one.text for one in (r, *r.branches)] for r in back.rollouts] == [
        ["ab", "c", "def"],
        ["a"],
        ["abcd"],
    ]
    assert back.rollouts[0].branches[1].turns == (Turn(0, 3),)


def test_what_cannot_credit_several_rows_says_so():
    batch = collate([GROUP])
    other = Group(GROUP.task, [rollout(0.0, "abc"), rollout(1.0, "b"), rollout(0.0, "c")])
    with pytest.raises(UsageError, match="several rows"):
        examples_of_groups([other, GROUP], load_algorithm("dpo"), 0, 1)
    zeros = torch.zeros(batch.completion_mask.shape)
    with pytest.raises(UsageError, match="several rows"):
        credit(
            [GROUP],
            replace(batch, values=zeros, ref_logprobs=zeros, bootstrap=torch.zeros(5)),
            load_algorithm("ppo"),
        )


def test_the_environment_of_a_run_is_described(tmp_path):
    with trainer(tmp_path / "run", steps=1) as made:
        assert made.source.env.id == "agent/Bandit"
        assert made.source.env.size is None
