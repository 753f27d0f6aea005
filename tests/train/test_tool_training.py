"""Episodes with tools, trained on from beginning to end: calls, replies, masks, the record and the weights."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch
from rich.console import Console

import rlvr
from rlvr.train import advantage_batches
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from tests.json_lines import read_json_lines

CALL = '<tool_call>{"name": "coin", "arguments": {}}</tool_call>'
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}>{{ m.content }}{% else %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>{% endfor %}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% else %}{{ tools[0].function.name if tools else '' }}{% endif %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}:{% endif %}"
)


class Coin(rlvr.Environment):
    """Half a point for a call of the coin, and half for saying what it showed, 7."""

    turns: int = 3
    calls: int = 3

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(f"coin/{index}", f"{index % 5}=", reference=7)

    @rlvr.tool
    def coin(self, state) -> str:
        """Toss."""
        return "77"

    def verify(self, task: rlvr.Task, episode: rlvr.EpisodeRecord) -> rlvr.Verdict:
        called = any(not call.error for call in episode.calls)
        said = "7" in episode.answer
        if called and said:
            return rlvr.Verdict("correct", why="called and said")
        return rlvr.Verdict("wrong", value=0.5 * (called or said), why="not both")


def plain(text: str) -> str:
    """Without special tokens, which a random policy writes too, and which are no part of an answer."""
    return re.sub("<(pad|bos|eos|unk)>", "", text).strip()


def test_a_policy_is_trained_on_episodes_with_calls(tmp_path, monkeypatch):
    """A random policy, whose whole call is one token, calls now and then; two steps change its weights."""
    charset = "".join(
        sorted(set("0123456789=:>[]coin" + '{}"abdefghjklmnpqrstuvwxyz_<>/ ,' + "aegmnrstul"))
    )
    model, tokenizer = tiny(charset, words=[CALL], hidden=16, layers=1, heads=2)
    tokenizer.chat_template = TEMPLATE
    policy, trained = Policy(model, tokenizer), []

    def collate(groups):
        batch = real(groups)
        trained.append((groups, batch))
        return batch

    real = advantage_batches.collate
    monkeypatch.setattr(advantage_batches, "collate", collate)
    config = Config(
        env="coin", model="tiny", algorithm="grpo", steps=2, prompts=4, group_size=16, max_tokens=12, lr=1e-2,
        workers=0, eval_every=None, rollouts_every=1, checkpoint_every=100, run=tmp_path / "run",
    )  # fmt: skip
    with Trainer(config, policy=policy, env=Coin(), console=Console(quiet=True)) as made:
        before = {name: value.clone() for name, value in made.policy.model.state_dict().items()}
        made.run()
        after = made.policy.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)

    reply = tokenizer(">77:", add_special_tokens=False)["input_ids"]
    [call_id] = tokenizer(CALL, add_special_tokens=False)["input_ids"]
    seen = Counter()
    for groups, batch in trained:
        rows = [rollout for group in groups for rollout in group.rollouts]
        assert list(batch.rows) == rows
        for row, mask in zip(rows, batch.completion_mask, strict=True):
            length = len(row.completion_ids)
            assert mask[:length].tolist() == list(row.completion_mask)
            assert not mask[length:].any()
            own = [
                token
                for token, is_own in zip(row.completion_ids, row.completion_mask, strict=True)
                if is_own
            ]
            calls = [call for call in row.episode.calls if not call.error]
            seen["calls"] += len(calls)
            seen["masked"] += len(row.completion_ids) - len(own)
            assert own.count(call_id) >= len(calls)
            for turn, recorded in zip(row.turns, row.episode.turns, strict=True):
                said = tokenizer.decode(row.completion_ids[turn.start : turn.stop]).removesuffix(
                    "<eos>"
                )
                assert said.count(CALL) == len(recorded.calls)
                assert plain(said.replace(CALL, "")) == plain(recorded.text)
            assert row.completion_mask[-1]
            if len(row.turns) == 2 and len(row.episode.turns[0].calls) == 1:
                told = list(row.completion_ids[row.turns[0].stop : row.turns[1].start])
                assert told == reply, "the reply stands between the turns, and is not trained on"
                seen["replies"] += 1
    assert seen["calls"] > 3
    assert seen["replies"] > 0
    rows = read_json_lines(config.run / "metrics.jsonl")
    assert all(row["ratio_max"] == pytest.approx(1, abs=1e-4) for row in rows if "ratio_max" in row)
    assert sum(row["tools/calls"] for row in rows) > 0
    assert all(row["unscored"] == 0 for row in rows)
