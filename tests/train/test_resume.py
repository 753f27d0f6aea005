"""A run that is stopped anywhere and goes on is the run that was never stopped, to the last bit."""

import dataclasses
import json
import os
import random
import signal

import pytest
import torch

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.algo.parts import Critic, EntropyTarget, Kl, Mixing, Replay, Reset, Trust
from rlvr.errors import DataError, UsageError
from rlvr.train import checkpoint
from rlvr.train.loop import Trainer
from tests.json_lines import read_json_lines
from tests.train.bandit import Bandit, Turns, run_to_end, trainer

PRORL = dataclasses.replace(
    load_algorithm("prorl"), reset=Reset(every_steps=3, stall_validations=2)
)
STALL = dataclasses.replace(load_algorithm("prorl"), reset=Reset(stall_validations=2))
PPO = dataclasses.replace(
    load_algorithm("ppo"),
    kl=Kl("k1", 0.2, "reward", rule="ziegler", target=0.1, horizon=64),
    entropy_target=EntropyTarget(nats=9.0),
    mixing=Mixing(every_steps=2),
    critic=Critic(warmup=2, lr=1e-2),
)
DUAL = dataclasses.replace(
    load_algorithm("ppo_kl"), trust=Trust(coefficient=0.0, rule="dual", target=1e-3)
)
RUNS = {
    "grpo": {"algorithm": "grpo", "updates": 2},
    "dapo": {"algorithm": "dapo", "updates": 2, "warmup_steps": 3, "schedule": "cosine"},
    "prorl": {"algorithm": PRORL, "validation_every": 1, "validation_tasks": 8, "updates": 4},
    "prorl-stall": {"algorithm": STALL, "validation_every": 1, "validation_tasks": 1},
    "one-step-off": {"algorithm": "dapo", "max_staleness": 1, "prompts": 3},
    "vineppo-one-step-off": {"algorithm": "vineppo", "max_staleness": 1, "vine_k": 2, "prompts": 2},
    "rloo": {"algorithm": "rloo", "eval_every": 2, "eval_tasks": 4, "schedule": "linear"},
    "lora": {"algorithm": PRORL, "eval_every": 1, "eval_tasks": 8, "updates": 4, "lora_rank": 2},
    "ppo": {"algorithm": PPO, "updates": 2, "group_size": 4, "prompts": 4},
    "ppo-shared": {
        "algorithm": dataclasses.replace(
            load_algorithm("ppo_kl"), critic=Critic(backbone="shared", warmup=1)
        ),
        "updates": 2,
        "group_size": 4,
    },
    "ppo-lora": {"algorithm": "ppo", "group_size": 4, "updates": 2, "lora_rank": 2},
    "trpo": {"algorithm": "trpo", "prompts": 8, "updates": 4, "lora_rank": 2},
    "ppo-dual": {"algorithm": DUAL, "updates": 2, "group_size": 4},
    "reinforce": {"algorithm": "reinforce", "prompts": 16, "group_size": 1},
    "lora-one-step-off": {"algorithm": "dapo", "max_staleness": 1, "prompts": 3, "lora_rank": 2},
}
STEPS = 6


class Drawing(Bandit):
    """Its verdicts are drawn from Python's global generator, which they should not be."""

    def verify(self, task, completion):
        return rlvr.Verdict(
            "correct" if random.random() < 0.5 else "wrong", why="drawn", answer=completion[:1]
        )


RUNS["turns"] = {
    "algorithm": "grpo",
    "env": Turns(),
    "max_tokens": 9,
    "stop": ("7", "a"),
    "max_rows": 3,
}
RUNS["turns-one-step-off"] = RUNS["turns"] | {
    "algorithm": "dapo",
    "overlong": "keep",
    "max_staleness": 1,
}
IN_FLIGHT = {"max_staleness": 3, "prompts": 2, "max_rows": 5}
RUNS["in-flight"] = IN_FLIGHT | {"algorithm": "dapo", "max_tokens": 40, "overlong": "keep"}
RUNS["in-flight-lora"] = IN_FLIGHT | {"algorithm": "grpo", "max_tokens": 40, "lora_rank": 2, "eval_every": 2,
                                      "eval_tasks": 4}  # fmt: skip
RUNS["in-flight-vineppo"] = IN_FLIGHT | {"algorithm": "vineppo", "vine_k": 2, "max_tokens": 20}
RUNS["in-flight-turns"] = RUNS["turns"] | IN_FLIGHT | {"max_tokens": 60, "prompts": 3}
REPLAY = dataclasses.replace(load_algorithm("grpo"), replay=Replay(groups=2, max_versions=2))
RUNS["replay"] = {"algorithm": REPLAY, "max_staleness": 2, "prompts": 2, "max_tokens": 20}
RUNS["prime"] = {"algorithm": "prime", "overlong": "keep", "updates": 2, "prompts": 3}
RUNS["dpo"] = {"algorithm": "dpo", "updates": 4, "prompts": 3}
RUNS["kto-lora"] = {"algorithm": "kto", "prompts": 3, "lora_rank": 2, "max_staleness": 1}
RUNS["rft"] = {"algorithm": "rft", "prompts": 3, "schedule": "linear"}
RUNS["drawing"] = {"algorithm": "grpo", "env": Drawing()}


@pytest.fixture(autouse=True)
def _updates_of_one_group(monkeypatch):
    """Several updates per step, although the batches are small."""
    for module in ("credit", "preferences", "update_sizes", "config.run"):
        monkeypatch.setattr(f"rlvr.train.{module}.LEAST_GROUPS", 1)
    for module in ("credit", "update_sizes", "config.run"):
        monkeypatch.setattr(f"rlvr.train.{module}.LEAST_ROWS", 1)


def logged(run) -> list[dict]:
    """Metrics without the seconds and bytes, which are never the same."""
    rows = read_json_lines(run / "metrics.jsonl")
    return [{k: v for k, v in row.items() if not k.endswith(("_s", "_mib"))} for row in rows]


def state(made: Trainer, step: int) -> dict:
    """All that this step of the run left, as a checkpoint has it."""
    return checkpoint.load_checkpoint(made.config.run / "checkpoints" / f"step-{step:08d}.pt")


def differences(a, b, path: str = "") -> list[str]:
    """Where two states differ in as much as a bit; seconds are never the same."""
    if isinstance(a, torch.Tensor):
        return [] if torch.equal(a, b) else [path]
    if isinstance(a, dict):
        return [f"{path}: {a.keys() ^ b.keys()}"] * (a.keys() != b.keys()) or [
            place
            for k in a
            if not str(k).endswith("_s")
            for place in differences(a[k], b[k], f"{path}.{k}")
        ]
    if isinstance(a, list | tuple):
        return [f"{path}: {len(a)}, {len(b)}"] * (len(a) != len(b)) or [
            place
            for i, (x, y) in enumerate(zip(a, b, strict=True))
            for place in differences(x, y, f"{path}[{i}]")
        ]
    return [] if a == b else [f"{path}: {a!r}, {b!r}"]


def stopped_after(made: Trainer, step: int) -> None:
    """Run it, and let the signal come in the midst of this step."""
    learn = made.learner.learn

    def learning(gathered, done):
        if done + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return learn(gathered, done)

    made.learner.learn = learning
    made.run()


EVERY_DAY = {"prorl": 4, "in-flight-turns": 4}
"""Steps of those that are not slow: a reset and a step after it, and episodes that outlast updates."""


@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param(
            name,
            EVERY_DAY.get(name, STEPS),
            id=name,
            marks=[pytest.mark.slow] * (name not in EVERY_DAY),
        )
        for name in RUNS
    ],
)
def test_stopped_at_any_step_it_goes_on_as_if_it_had_not_been(tmp_path, name, steps):
    """Weights, optimiser, reference, generators, cursor, waiting batch, stall counter and log: nothing may be lost."""
    settings = RUNS[name] | {"steps": steps, "seed": 3}
    with trainer(tmp_path / "whole", **settings, checkpoint_every=1, keep=steps) as whole:
        whole.run()
    for step in range(1, steps + 1):  # each part goes on from where the one before was stopped
        with trainer(tmp_path / "stopped", **settings) as made:
            assert made.steps_done == step - 1
            stopped_after(made, step)
            assert made.steps_done == step
        assert differences(state(made, step), state(whole, step)) == []
    assert logged(made.config.run) == logged(whole.config.run)


QUICK = ("lora-one-step-off", "ppo", "in-flight")


@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RUNS]
)
def test_stopped_once_it_goes_on_to_the_end_in_one_process(tmp_path, name):
    """The steps after the first of a resumed process, too, are those of the run that was never stopped."""
    settings = RUNS[name] | {"steps": STEPS, "seed": 3}
    with trainer(tmp_path / "whole", **settings) as whole:
        whole.run()
    with trainer(tmp_path / "stopped", **settings) as made:
        stopped_after(made, 2)
        assert made.steps_done == 2
    with trainer(tmp_path / "stopped", **settings) as again:
        assert again.steps_done == 2
        again.run()
    assert differences(state(again, STEPS), state(whole, STEPS)) == []
    assert logged(again.config.run) == logged(whole.config.run)


def test_a_run_with_other_settings_is_not_gone_on_with(tmp_path):
    """It would be a mixture of two. All that differs is named, the algorithm's numbers too."""
    run_to_end(tmp_path / "run", steps=1)
    with pytest.raises(
        UsageError, match=r"settings\.algorithm\.kl\.coefficient: float 0\.04 there.*settings\.lr: "
    ):
        trainer(tmp_path / "run", steps=1, algorithm="dr_grpo", lr=0.5)


FREE = {"micro_tokens": 64, "max_rows": 8, "keep": 5, "checkpoint_every": 9, "steps": 3, "rollouts_every": 1,
        "device": "cpu", "workers": 0, "bad_steps": 5, "canary": 0.1,
        "gradient_checkpointing": True}  # fmt: skip


@pytest.mark.slow
def test_settings_that_change_nothing_learned_may_change(tmp_path, capsys):
    """The next machine has less memory or fewer cores, and a hundred more steps are wanted: no reason to begin anew."""
    run_to_end(tmp_path / "run", steps=2, workers=1)
    with trainer(tmp_path / "run", quietly=False, **FREE) as again:
        assert again.steps_done == 2
        again.run()
    said = capsys.readouterr().err
    assert "settings.micro_tokens is int 64 from here on, and was int 16384" in said
    assert all(f"settings.{name} is " in said for name in FREE)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["steps"] == 3
    assert [row["step"] for row in logged(tmp_path / "run")] == [1, 2, 3]
    with pytest.raises(UsageError, match=r"steps is 1, and the run in .* has done 3"):
        trainer(tmp_path / "run", **FREE | {"steps": 1})


def test_settings_that_decide_may_not(tmp_path):
    """A schedule is stretched over all steps; a stall is counted on the tasks that are held out."""
    run_to_end(tmp_path / "linear", steps=2, schedule="linear")
    with pytest.raises(UsageError, match=r"settings\.steps: int 2 there, int 3 here"):
        trainer(tmp_path / "linear", steps=3, schedule="linear")
    stall = {
        "algorithm": STALL,
        "validation_every": 1,
        "validation_tasks": 1,
        "steps": 1,
        "group_size": 16,
    }
    run_to_end(tmp_path / "stall", **stall)
    with pytest.raises(UsageError, match=r"settings\.validation_tasks"):
        trainer(tmp_path / "stall", **stall | {"validation_tasks": 2})


def test_two_processes_do_not_train_in_one_folder(tmp_path, monkeypatch):
    """They would write over each other's checkpoints; nor does one of torchrun's."""
    with trainer(tmp_path / "run", steps=1) as made:
        with pytest.raises(UsageError, match="is being trained in by another process"):
            trainer(tmp_path / "run", steps=1)
        made.run()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UsageError, match=r"WORLD_SIZE is 4, and RANK, .* is not set"):
        trainer(tmp_path / "other", steps=1)
    assert not (tmp_path / "other").exists()


def test_a_damaged_config_is_named(tmp_path):
    """It cannot be told then whether this is the run."""
    run_to_end(tmp_path / "run", steps=1)
    for text in ("{", "[1]"):
        (tmp_path / "run" / "config.json").write_text(text)
        with pytest.raises(
            DataError, match=r"config\.json cannot be read as the settings of a run"
        ):
            trainer(tmp_path / "run", steps=1)


def test_a_tracker_that_is_not_there_leaves_the_folder_free(tmp_path):
    """The same command without the slip is not a run with other settings."""
    with (
        trainer(tmp_path / "run", steps=1, track="wandbb") as made,
        pytest.raises(UsageError, match="wandbb"),
    ):
        made.run()
    with trainer(tmp_path / "run", steps=1) as made:
        made.run()
    assert made.steps_done == 1


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path):
    """It may be a user's home."""
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not empty"):
        trainer(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_killed_between_log_and_checkpoint_logs_no_step_twice(tmp_path):
    """Steps after the checkpoint are run again; what they had logged is dropped, and so is a torn line."""
    with trainer(tmp_path / "run", steps=4, checkpoint_every=2, keep=9) as made:
        made.run()
    run = made.config.run
    (run / "checkpoints" / "step-00000004.pt").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    before = (run / "metrics.jsonl").read_text().splitlines()[:2]
    with trainer(run, steps=4, checkpoint_every=2, keep=9) as again:
        assert again.steps_done == 2
        again.run()
    assert (run / "metrics.jsonl").read_text().splitlines()[:2] == before
    assert [row["step"] for row in logged(run)] == [1, 2, 3, 4]


def test_a_finished_run_is_left_as_it_is(tmp_path):
    """Saying the command once more must not train on."""
    with trainer(tmp_path / "run", steps=2) as made:
        made.run()
    before = logged(made.config.run)
    with trainer(tmp_path / "run", steps=2) as again:
        again.run()
    assert (again.steps_done, logged(again.config.run)) == (2, before)
