"""verl's agent loop: the same episodes, with tokens, mask and total as verl takes them.  The server is scripted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rlvr
from rlvr.errors import UsageError
from rlvr.interop.verl_episodes import VerlEpisodes, to_verl_episodes
from rlvr.rows import read_rows
from tests.collect.collecting import Count
from tests.environments import Desk
from tests.interop.episodes import EPISODES, Seen, ours, seen
from tests.samplers.test_tool_templates import tokenization


@dataclass
class Tokens:
    """verl's `TokenOutput`, as far as it matters."""

    token_ids: list[int]
    log_probs: list[float] | None = None
    stop_reason: str | None = "completed"
    extra_fields: dict = field(default_factory=dict)


class Script:
    """verl's server, which writes given turns; each must continue the tokens that it saw before."""

    def __init__(self, tokenizer, turns):
        self.tokenizer, self.turns, self.seen = tokenizer, list(turns), []

    async def __call__(self, context, limit):
        if self.seen:
            assert context[: len(self.seen)] == self.seen, "a token was encoded again"
        ids = self.tokenizer(self.turns.pop(0) + "<|im_end|>", add_special_tokens=False)[
            "input_ids"
        ][:limit]
        self.seen = [*context, *ids]
        return Tokens(ids, [-0.5] * len(ids))


@pytest.fixture(scope="module")
def made():
    return tokenization("qwen3")


def episodes(env, made, **more):
    settings = {"prompt_length": 2000, "response_length": 6000, "workers": 0} | more
    return VerlEpisodes(env, made.tokenizer, list(made.end_ids), **settings)


def said(name, arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def row_of(env, tmp_path, index=3):
    path = to_verl_episodes(env, tmp_path / "train.parquet", tasks=index + 1)
    return [line.row for line in read_rows(str(path))][index]


@pytest.mark.parametrize("number", range(len(EPISODES)))
def test_the_same_actions_make_the_same_calls_and_totals(number, made, tmp_path):
    calls, answer = EPISODES[number]
    env = Seen()
    row = row_of(env, tmp_path)
    assert (row["agent_name"], row["prompt"][0]["content"]) == ("rlvr", "Add 3 and 1.")
    script = Script(made.tokenizer, [*(said(*call) for call in calls), answer])
    player = episodes(env, made)
    rollout = asyncio.run(player.play(row["extra_info"], script))
    player.close()
    wanted = ours(calls, answer, Seen())
    assert (seen(rollout.episode), rollout.score.total, rollout.score.verdict.outcome) == wanted
    assert [*rollout.prompt_ids, *rollout.completion_ids] == script.seen
    own = [
        token
        for token, is_own in zip(rollout.completion_ids, rollout.completion_mask, strict=True)
        if is_own
    ]
    assert (
        own
        == made.tokenizer(
            "".join(f"{turn}<|im_end|>" for turn in [*(said(*call) for call in calls), answer]),
            add_special_tokens=False,
        )["input_ids"]
    )
    assert rollout.completion_mask[-1]  # verl drops a reward on a token that is masked


def test_a_failure_of_ours_stops_the_step_after_it_was_tried_again(made, tmp_path):
    """verl would make 0 of None; a tool that fails once is played again, one that always fails raises."""
    tries = []

    class Broken(Desk):
        heals: int = 1

        @rlvr.tool
        def add(self, state, x: int, y: int = 0) -> str:
            """Add."""
            tries.append(x)
            if len(tries) <= self.heals:
                raise RuntimeError("no disk")
            return str(x + y)

    row = row_of(Broken(), tmp_path)["extra_info"]
    turns = [said("add", {"x": 3, "y": 1}), "4"]
    for heals, total in ((1, 1.0), (99, None)):
        tries.clear()
        player = episodes(Broken(heals=heals), made, retries=1)
        script = Script(made.tokenizer, turns[:1] + turns)

        async def generate(context, limit, script=script):
            script.seen = []  # the second try begins again
            return await script(context, limit)

        if total is None:
            with pytest.raises(rlvr.Unscored, match=r"played 2 times.*no disk"):
                asyncio.run(player.play(row, generate))
        else:
            assert asyncio.run(player.play(row, generate)).score.total == total
        player.close()
        assert len(tries) == 2


def test_an_episode_fits_verl_s_tensors(made, tmp_path):
    """At most `response_length` tokens, replies included; one that reaches it is scored as it stands."""
    env = Seen()
    row = row_of(env, tmp_path)["extra_info"]
    player = episodes(env, made, response_length=60)
    rollout = asyncio.run(player.play(row, Script(made.tokenizer, [said("add", {"x": 3})] * 9)))
    assert len(rollout.completion_ids) <= 60
    assert rollout.truncated
    assert rollout.score.total == 0
    player.close()
    short = episodes(env, made, prompt_length=5)
    with pytest.raises(UsageError, match="prompt_length is 5"):
        asyncio.run(short.play(row, Script(made.tokenizer, ["4"])))
    short.close()


def test_an_environment_of_several_turns_is_played_too(made, tmp_path):
    """Without tools: begun by the index of the row, with the seed that rlvr's own trainer begins it with."""
    env = Count(chat=True)
    row = row_of(env, tmp_path, index=1)
    player = episodes(env, made)
    script = Script(made.tokenizer, ["1", "2", "3"])
    rollout = asyncio.run(player.play(row["extra_info"], script))
    player.close()
    goal = int(row["prompt"][0]["content"].strip("To ."))
    assert (rollout.score.total, len(rollout.turns)) == (1.0, goal)
    assert [*rollout.prompt_ids, *rollout.completion_ids] == script.seen


def test_an_environment_of_one_turn_is_played_too(made, tmp_path):
    """It is an episode of one reply."""
    env = rlvr.make("arithmetic-v1", difficulty=1)
    row = row_of(env, tmp_path)
    player = episodes(env, made)
    script = Script(made.tokenizer, [env.example(env.task(3))])
    rollout = asyncio.run(player.play(row["extra_info"], script))
    player.close()
    assert (rollout.score.total, rollout.turns) == (1.0, ())


@pytest.mark.filterwarnings("ignore")  # verl's own, and of the libraries below it
def test_verl_s_own_worker_class_runs_it(made, tmp_path):
    """The class that verl makes, with verl's base class and output; its trainer needs a GPU and is not run."""
    pytest.importorskip("verl", reason="verl is not installed")
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap

    from rlvr.interop.verl_agent import EpisodeLoop

    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {"prompt_length": 2000, "response_length": 2000}},
            "data": {},
        }
    )
    env = rlvr.make("guess-v1")
    row = row_of(env, tmp_path)
    turns = [f"[{n}]" for n in range(1, 8)]

    class Server:
        async def generate(self, request_id, *, prompt_ids, sampling_params):
            assert sampling_params["max_tokens"] <= 2000
            ids = made.tokenizer(turns.pop(0) + "<|im_end|>")["input_ids"]
            return Tokens(
                ids, [-0.5] * len(ids), extra_fields={"min_global_steps": 3, "max_global_steps": 3}
            )

    async def run():
        loop = EpisodeLoop(
            DictConfigWrap(config), Server(), made.tokenizer, None, None, DictConfigWrap(config.data), env="guess-v1",
            workers=0, end_texts=["<|im_end|>"],
        )  # fmt: skip
        return await loop.run(
            {"temperature": 1.0}, raw_prompt=row["prompt"], extra_info=row["extra_info"]
        )

    output = asyncio.run(run())
    found = output.as_dict()
    assert len(found["responses"]) == len(found["response_mask"]) == len(found["rollout_log_probs"])
    assert found["rm_scores"].sum() == output.reward_score
    assert found["response_mask"][-1] == 1
    assert output.extra_fields["max_global_steps"] == 3
    assert Path(tmp_path / "train.parquet").exists()
