"""Settings from files and flags: which wins, what is refused, and what a dry run shows of them."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

import rlvr
from rlvr.algo.papers import NAMES, algorithm_class, load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import as_record, changed, paper_numbers, parsed
from rlvr.algo.parts import Clip, Kl
from rlvr.errors import UsageError
from rlvr.train.config import Config
from rlvr.train.run_dir import examine_run_dir
from rlvr.train.settings import merge_numbers, read_settings
from rlvr.train.setup import environments
from tests.commands import refusal_of
from tests.json_lines import write_json_lines
from tests.rewards.parts import refusal
from tests.train.bandit import policy

ENV = "tests.train.bandit:Bandit"


@pytest.fixture
def written(tmp_path):
    """A file of settings for a run of two steps; gives its path."""
    policy().save(tmp_path / "model")

    def write(text: str = "", name: str = "run.toml"):
        lines = [
            f'env = "{ENV}"', f'model = "{tmp_path / "model"}"', f'run = "{tmp_path / "run"}"', "steps = 2",
            "prompts = 4", "group_size = 4", "max_tokens = 4", "workers = 0", "eval_tasks = 4",
        ]  # fmt: skip
        (tmp_path / name).write_text("\n".join([*lines, text]))
        return tmp_path / name

    return write


def test_weights_of_older_samples_come_from_one_place(tmp_path):
    """TOPR, VESPO and DPPO weigh by π / μ with μ the policy that sampled, as their papers and TRL's and verl's code
    have it, and DRO needs no weight: truncated importance sampling would weigh them a second time."""
    folders = {"env": ENV, "model": "m", "run": tmp_path, "eval_every": None}
    for stale in ({"max_staleness": 1}, {"sampler": "vllm"}):
        for name in "topr vespo dppo dro grpo cispo".split():
            algorithm = Config(algorithm=name, **folders, **stale).resolve().algorithm
            rules = [] if name in "topr vespo dppo dro" else ["token:truncate:2"]
            assert [str(rule) for rule in algorithm.correction] == rules, (name, stale)


def leaves(kind) -> int:
    return len(dataclasses.fields(kind))


def test_every_number_of_an_algorithm_has_a_flag_with_an_explanation():
    """They are made from the fields, so a new one has its flag at once."""
    found = paper_numbers(algorithm_class("prorl")) | paper_numbers(algorithm_class("ppo"))
    assert {
        "clip_low",
        "clip_high",
        "clip_dual",
        "kl_coefficient",
        "gamma",
        "entropy",
        "reset_every_steps",
    } <= set(found)
    parts = [Clip, Kl]
    assert sum(name.startswith(("clip_", "kl_")) for name in found) == sum(map(leaves, parts))
    assert not {"paper", "sources", "temperature", "group_size", "prompts"} & set(found)
    assert all(number.help for number in found.values())


def test_numbers_of_a_preset_change_one_by_one():
    """A part that the preset does without is made, and 0 or none take a part away."""
    dapo = changed(
        load_algorithm("dapo"),
        {"clip_high": 0.3, "kl_coefficient": 1e-3, "dynamic_sampling": False},
    )
    assert (dapo.clip, dapo.kl, dapo.dynamic_sampling) == (
        Clip(0.2, 0.3),
        Kl("k3", 1e-3, "loss"),
        False,
    )
    assert changed(load_algorithm("grpo"), {"kl_coefficient": 0.0}) == dataclasses.replace(
        load_algorithm("grpo"), kl=None
    )
    assert changed(load_algorithm("grpo"), {"kl_estimator": "k2"}).kl == Kl("k2", 0.04, "loss")
    assert all(changed(one, {}) == one for one in map(load_algorithm, NAMES))
    rules = "sequence:mask:0.5:2,token:truncate:2"
    assert [str(one) for one in load_algorithm("grpo", correction=rules).correction] == rules.split(
        ","
    )


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        (
            "dapo",
            {"clip_hihg": 0.3},
            "clip_hihg is no number of dapo; did you mean 'clip_high'?",
        ),
        ("grpo", {"lam": 0.5}, "lam is no number of grpo; ppo, ppo_kl, trpo have it"),
        ("dr_grpo", {"scale": True}, "grpo, grpo_process have it"),
        ("grpo", {"correction": "token:mask:2"}, "it must be LEVEL:truncate:HIGH"),
        ("grpo", {"refill": False}, "refill is False, and dynamic_sampling too"),
        ("dapo", {"clip_high": "x"}, "clip_high is str 'x'; it must be a number"),
        ("dapo", {"clip_high": float("nan")}, "clip_high is float nan; it must be a number"),
        ("dapo", {"clip_high": True}, "clip_high is bool True; it must be a number"),
        (
            "dapo",
            {"clip_low": 2.0},
            "clip.low is 2.0; it must be a number of at least 0 and of at most 1",
        ),
        ("dapo", {"epochs": 1.5}, "epochs is float 1.5; it must be a whole number"),
        ("dapo", {"kl_estimator": "k2"}, "dapo has no kl; give kl_coefficient too"),
        (
            "dapo",
            {"kl_estimator": "k9"},
            "kl_estimator is str 'k9'; it must be one of 'k1', 'k2', 'k3'",
        ),
        ("rloo", {"clip_high": 0.3}, "clip_high is no number of rloo"),
        ("grpo", {"clip": None}, "clip is no number of grpo"),
        ("prorl", {"kl_coefficient": 0}, "reset without kl"),
        ("prorl", {"kl": "none", "kl_place": "loss"}, "kl_place and no kl contradict each other"),
    ],
)
def test_a_number_that_cannot_work_is_refused(name, changes, why):
    """With the value, the rule and the way out."""
    assert why in refusal(lambda: changed(load_algorithm(name), changes))


def test_text_after_a_flag_is_read_by_its_type():
    """A switch takes true and false, a choice its word, a list its words with commas."""
    grpo, ppo = load_algorithm("grpo"), load_algorithm("ppo")
    assert [parsed(grpo, "scale", text) for text in ("false", "True")] == [False, True]
    assert (parsed(grpo, "epochs", "3"), parsed(ppo, "gamma", "1")) == (3, 1.0)
    assert (parsed(grpo, "clip_dual", "none"), parsed(grpo, "kl_place", "loss")) == (None, "loss")
    assert "scale is str 'perhaps'; it must be true or false" in refusal(
        lambda: parsed(grpo, "scale", "perhaps")
    )


def test_later_changes_win_by_part():
    """A flag that takes a part away does not contradict the file's number of that part, and the other way round."""
    ppo = load_algorithm("ppo")
    assert merge_numbers(ppo, {"kl_coefficient": 0.1, "gamma": 0.9}, {"kl": "none"}) == {
        "gamma": 0.9,
        "kl": "none",
    }
    assert merge_numbers(ppo, {"kl": "none"}, {"kl_coefficient": 0.1}) == {"kl_coefficient": 0.1}
    both = {"clip_low": 0.1, "clip_high": 0.3}
    assert merge_numbers(ppo, {"clip_low": 0.1}, {"clip_high": 0.3}) == both


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("stepz = 3", "there is no setting 'stepz'; did you mean 'steps'?"),
        ('lr = "x"', "lr is str 'x'; it must be a number"),
        ("packing = 1", "packing is int 1; it must be true or false"),
        (
            'schedule = "flat"',
            "schedule is str 'flat'; it must be one of 'constant', 'linear', 'cosine'",
        ),
        ("betas = [0.9]", "betas is list [0.9]; it must be a list of 2 numbers"),
        ('stop = "a"', "stop is str 'a'; it must be a list, each a text"),
        ("packing = nan", "packing is float nan; it must be true or false"),
        ("chat = nan", "chat is float nan; it must be one of 'auto', 'on', 'off'"),
        ('algorithm = "dapoo"', "did you mean 'dapo'"),
        (
            "[clip]\nhigh = 0.3",
            "there is no table 'clip'; write its numbers one by one, such as clip_low",
        ),
        ('[algorithm]\nadvantage = "group_advantages"', "algorithm has no name: it was recorded"),
        (
            '[algorithm]\nname = "dapo"\ncilp = 1',
            "algorithm has no 'cilp'; did you mean 'clip'?",
        ),
        ("lr = ", "cannot read settings from"),
    ],
)
def test_a_file_that_cannot_work_is_one_line_that_names_it(say, written, tmp_path, line, why):
    """Before anything is loaded, and nothing is written."""
    code, said = say("train", "--config", written(line))
    assert (code, why in said, "run.toml" in said, said.count("\n")) == (2, True, True, 1), said
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there_is_one_line(say, tmp_path):
    assert "none.toml: No such file or directory; give a TOML file" in refusal_of(
        *say("train", f"--config={tmp_path / 'none.toml'}")
    )


def test_a_pipe_without_a_writer_is_one_line(say, tmp_path, monkeypatch):
    """It stopped the command for ever."""
    monkeypatch.setattr("rlvr.data.files._WRITER_S", 0.1)
    os.mkfifo(tmp_path / "run.toml")
    assert "a pipe that no program wrote to within 0.1 s; give a file" in refusal_of(
        *say("train", f"--config={tmp_path / 'run.toml'}")
    )


def test_a_run_from_a_file_and_one_from_its_record(say, written, tmp_path):
    """Flags win; config.json continues its own run, and begins another one where --run says so."""
    code, said = say(
        "train", "--config", written("clip_high = 0.5\n"), "--clip-low", 0.1, "--algorithm", "grpo"
    )
    assert code == 0, said
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert settings["algorithm"]["clip"] == {"low": 0.1, "high": 0.5, "dual": None}
    assert settings["algorithm"]["name"] == "grpo"
    record = tmp_path / "run" / "config.json"
    assert read_settings(record)["algorithm"].clip == Clip(0.1, 0.5)
    code, said = say("train", "--config", record)
    assert code == 0, said
    assert "continuing after step 2" in say.err
    code, said = say(
        "train",
        "--config",
        record,
        "--run",
        tmp_path / "other",
        "--steps",
        1,
        "--kl-coefficient",
        0,
    )
    assert code == 0, said
    other = json.loads((tmp_path / "other" / "config.json").read_text())["settings"]
    assert (other["steps"], other["prompts"], other["algorithm"]["kl"]) == (1, 4, None)


def test_a_flag_repairs_what_the_file_leaves_open(say, written):
    """The settings are held against each other when all are known, not before."""
    path = written("lora_alpha = 4.0\npacking = true")
    assert "a LoRA adapter (--lora-rank)" in say("train", "--config", path, "--dry-run")[1]
    code, said = say("train", "--config", path, "--lora-rank", 2, "--no-packing", "--dry-run")
    assert code == 0, said


def test_a_dry_run_shows_settings_memory_and_a_group_and_writes_nothing(say, written, tmp_path):
    """Each number with the place it comes from."""
    path = written('kl_coefficient = 1e-3\nalgorithm = "dapo"')
    flags = ["--clip-high", 0.3, "--lr", 1e-3, "--stage", "at=1,lr=0.1", "--stage", "at=9,lr=0.2"]
    code, said = say("train", "--config", path, "--dry-run", *flags)
    assert code == 0, said
    assert "stage: at=1,lr=0.1\n" in said
    assert "stage: at=9,lr=0.2; it lies behind the last step, 2, and does not begin" in said
    rows = {
        cells[0]: tuple(cells[1:])
        for line in say.out.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("│").split("│")]) == 3
    }
    assert rows["clip_high"] == ("0.3", "flag")
    assert rows["lr"] == ("0.001", "flag")
    assert rows["kl_coefficient"] == ("0.001", "run.toml")
    assert rows["kl_estimator"] == ("k3", "default")
    assert rows["clip_low"] == ("0.2", "dapo")
    assert rows["temperature"] == ("1.0", "dapo")
    assert rows["overlong_cache"] == ("1", "a fifth of max_tokens")
    assert rows["canary"] == ("0.001", "precision")
    assert rows["weight_decay"] == ("0.0", "default")
    assert "memory on cpu, forecast: " in said
    assert said.count("by its first character") == 4
    assert not (tmp_path / "run").exists()


def test_a_dry_run_is_refused_where_the_run_would_be(say, written, tmp_path):
    """A folder of something else."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").touch()
    code, said = say("train", "--config", written(), "--dry-run")
    assert (code, "is not empty, and holds no run" in said) == (2, True), said


def test_a_recipe_takes_a_file_and_numbers(say, written, tmp_path):
    """The file lies between the recipe's settings and the flags."""
    write_json_lines(tmp_path / "mine.jsonl", ({"problem": "1+1=", "answer": "2"} for _ in "ab"))
    (tmp_path / "run.toml").write_text(f'model = "{tmp_path / "none"}"\nclip_low = 0.1\nlr = 5.0\n')
    flags = [
        "--config",
        tmp_path / "run.toml",
        "--data",
        tmp_path / "mine.jsonl",
        "--lr",
        7.0,
        "--dry-run",
    ]
    say("train", "math_dapo", *flags)
    rows = [line.split() for line in say.out.splitlines()]
    assert ["│", "clip_low", "│", "0.1", "│", "run.toml", "│"] in rows
    assert ["│", "lr", "│", "7.0", "│", "flag", "│"] in rows
    assert ["│", "prompts", "│", "512", "│", "recipe", "math_dapo", "│"] in rows


def test_flags_take_settings_below_them_out_of_use(say, written, tmp_path):
    """A recipe's `eval_n`, or a file's, was refused with `--eval-every None`, and cannot be left
    out."""
    path = written("eval_every = 5\neval_n = 3")
    code, said = say("train", "--config", path, "--eval-every", "None", "--dry-run")
    assert code == 0, said
    rows = [line.split() for line in say.out.splitlines()]
    assert ["│", "eval_n", "│", "1", "│", "default", "│"] in rows
    assert "eval_n is int 3, and nothing reads it" in refusal_of(
        *say("train", "--config", path, "--eval-every", "None", "--eval-n", 3, "--dry-run")
    )
    path = written('algorithm = "grpo_process"\nstep_reward = "forks"\nstep_delimiter = "1"')
    code, said = say("train", "--config", path, "--algorithm", "grpo", "--dry-run")
    assert code == 0, said  # the delimiter was read for the step rewards alone
    path = written("sampler_memory = 0.8")
    assert "sampler_memory is float 0.8, and nothing reads it" in refusal_of(
        *say("train", "--config", path, "--eval-every", "None", "--dry-run")
    )


def test_an_algorithm_survives_its_record(tmp_path):
    """Every preset, through JSON and back."""
    for name in NAMES:
        algorithm = load_algorithm(name)
        (tmp_path / "c.json").write_text(
            json.dumps({"settings": {"algorithm": as_record(algorithm)}})
        )
        found = read_settings(tmp_path / "c.json")["algorithm"]
        assert found == algorithm, name
        assert isinstance(found, Algorithm)


def test_a_record_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "c.json").write_text("[1]")
    with pytest.raises(UsageError, match="holds a list; it must be a table"):
        read_settings(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"algorithm": 5}, "algorithm is int 5; it must be the name of an algorithm"),
        (
            {"algorithm": "dpo", "group_size": 1},
            "a pair has a right and a wrong completion of one prompt",
        ),
        (
            {"algorithm": "dpo", "pairs": Path("p.jsonl"), "max_staleness": 1},
            "max_staleness is int 1, and nothing reads it with dpo: it is of runs that sample",
        ),
        (
            {"algorithm": "grpo", "group_size": 1},
            "grpo compares the completions of a prompt",
        ),
        ({"algorithm": "reinforce", "updates": 4}, "only the first step on a batch is right"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, why, tmp_path):
    """With what they say, and the way out."""
    given = {"env": "a", "model": "m", "run": tmp_path} | settings
    assert why in refusal(lambda: Config(**given))
    Config(env="a", model="m", run=tmp_path, algorithm="rft", group_size=1)


UNREAD = {
    "sampler_memory": (0.9, "--sampler vllm"),
    "sampler_positions": (100, "--sampler vllm and --serve-samplers"),
    "sampler_lora": ("swapped", "a LoRA adapter with vLLM"),
    "sampler_python": (Path("p"), "servers that are started here"),
    "sampler_sleep": (True, "--sampler vllm"),
    "sampler_key_env": ("K", "servers"),
    "sampler_folder": (Path("x"), "servers"),
    "lora_alpha": (4.0, "a LoRA adapter"),
    "lora_targets": (("q",), "a LoRA adapter"),
    "vine_k": (5, "algorithms with forks"),
    "overlong_cache": (5, "the soft punishment"),
    "reward_model_weight": (0.5, "a reward model"),
    "reward_model_bounds": ((0, 0.5), "a reward model"),
    "eval_split": ("x", "evaluations"),
    "eval_tasks": (3, "evaluations"),
    "eval_n": (3, "evaluations and validations"),
    "eval_top_p": (0.5, "evaluations and validations"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_nothing_reads_is_refused_by_name(name: str, tmp_path):
    """With GRPO, the local sampler and neither evaluation nor files of rollouts; whatever the value is."""
    value, reader = UNREAD[name]
    given = {"env": "a", "model": "m", "run": tmp_path, "algorithm": "grpo"}
    given |= {"eval_every": None, "rollouts_every": 0}
    default = next(one.default for one in dataclasses.fields(Config) if one.name == name)
    for one in (value, default):
        said = refusal(lambda one=one: Config(**given, **{name: one}))
        assert said.startswith(f"{name} is ")
        assert f"it is of {reader}" in said
    assert dataclasses.replace(Config(**given), steps=3).steps == 3  # which names all of them


@pytest.mark.parametrize(
    ("name", "value"), [("max_turns", 3), ("step_s", 5.0), ("turn_schedule", "ready")]
)
def test_what_episodes_read_is_refused_where_there_are_none(name: str, value, tmp_path):
    """Known with the environment, before a model is loaded."""
    given = {"env": "arithmetic-v1", "model": "m", "run": tmp_path, "algorithm": "grpo"}
    said = refusal(lambda: environments(Config(**given, **{name: value})))
    assert said.startswith(f"{name} is ")
    assert "it is of episodes of turns; leave it out" in said


def test_an_environment_without_splits_is_trained_on_and_not_evaluated(tmp_path):
    """What `from_rows` gives, at FILE.py:NAME: "it has no option 'split'" named no way out."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import rlvr\n"
        "rows = [{'prompt': '1 + 1?', 'reference': '2'}] * 2\n"
        "env = rlvr.Environment.from_rows(rows, verifier=lambda text, reference: text == reference)\n"
    )
    given = {"env": f"{file}:env", "model": "m", "run": tmp_path, "algorithm": "grpo"}
    said = refusal(lambda: environments(Config(**given)))
    assert "name a class with the option split, or evaluate on nothing (--eval-every none)" in said
    env, eval_env = environments(Config(**given, eval_every=None))
    assert (env.size, eval_env) == (2, None)


def test_a_mixtures_own_group_size_has_to_fit_the_algorithm(tmp_path):
    """One of its environments would have no advantage for ever, and the others hide it."""
    shares = [rlvr.Share("arithmetic-v1"), rlvr.Share("qa-v4", group_size=1)]
    given = {"env": "a", "model": "m", "run": tmp_path, "eval_every": None}
    mixture = rlvr.Mixture(envs=shares)
    said = refusal(lambda: environments(Config(algorithm="grpo", **given), mixture))
    assert "group_size of qa-v4 in the mixture is 1" in said
    environments(Config(algorithm="reinforce_pp", **given), mixture)


def test_a_run_of_before_papers_is_refused_with_one_line(tmp_path):
    """Its record names functions; under the new updates it would be another run."""
    old = {
        "settings": {"algorithm": {"paper": "arXiv:2402.03300", "advantage": "group_advantages"}}
    }
    (tmp_path / "config.json").write_text(json.dumps(old))
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(UsageError, match=r"a run of a version before 0\.2") as caught:
        examine_run_dir(tmp_path, {"settings": {"algorithm": {"name": "grpo"}}})
    assert "\n" not in str(caught.value)
