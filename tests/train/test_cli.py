"""train, eval and plot, as they are typed."""

import json
import textwrap

import pytest

from rlvr.errors import UsageError
from rlvr.train.config import Config
from rlvr.train.setup import environments
from tests.commands import refusal_of
from tests.json_lines import write_json_lines
from tests.processes import run_python
from tests.train.bandit import policy

ENV = "tests.train.bandit:Bandit"


@pytest.fixture
def model(tmp_path):
    """A folder with a tiny model."""
    policy().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def train(say, tmp_path, model):
    """Two steps of training, with further flags; gives the code and what was said."""

    def run(*flags: object) -> tuple[int, str]:
        return say("train", "--env", ENV, "--model", model, "--run", tmp_path / "run", "--steps", 2, "--prompts", 4,
                   "--group-size", 4, "--max-tokens", 4, "--workers", 0, "--eval-tasks", 4, *flags)  # fmt: skip

    return run


def test_a_policy_is_trained_evaluated_and_drawn(train, say, tmp_path):
    """The three commands, each with what the one before has left."""
    pytest.importorskip("matplotlib")
    code, said = train("--algorithm", "grpo")
    assert code == 0, said
    assert "step 0: avg@1 " in said
    assert "2 steps; all files of the run are in" in said
    flags = "-n 4 -k 1 4 --limit 5 --max-tokens 4 --stop a --workers 0 --device cpu --option split=test".split()
    flags += ["--precision", "bf16", "--max-rows", "2", "--max-tokens-in-flight", "64"]
    code, said = say(
        "eval", ENV, "--model", tmp_path / "run" / "model", *flags, "-o", tmp_path / "r.json"
    )
    assert code == 0, said
    assert "pass@4" in said
    assert "maj@4" in said
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["n"], len(report["tasks"]), report["config"]) == (4, 5, {"split": "test"})
    assert report["sampling"]["stop"] == ["a"]
    assert "there is no folder" in refusal_of(
        *say("eval", ENV, "--model", "nowhere", "-o", tmp_path / "none" / "r.json")
    )
    code, said = say("plot", tmp_path / "run")
    assert (code, (tmp_path / "run" / "curves.png").is_file()) == (0, True)


def test_the_same_command_goes_on_and_another_is_refused(train, say):
    """A finished run is left alone; other settings are named in one line."""
    assert train("--algorithm", "grpo")[0] == 0
    assert train("--algorithm", "grpo")[0] == 0
    assert "continuing after step 2" in say.err
    assert "settings.lr: float 1e-06 there, float 0.5 here" in refusal_of(
        *train("--algorithm", "grpo", "--lr", "0.5")
    )


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--algorithm", "dapoo"), "did you mean 'dapo'"),
        (("--algorithm", "td3"), "there is no algorithm 'td3'"),
        (("--lr", "0"), "lr is 0.0; it must be a number above 0"),
        (("--group-size", "0"), "group_size is 0; it must be a whole number of at least 1"),
        (("--canary", "-1"), "canary is -1.0; it must be a number of at least 0"),
        (("--betas", "2", "3"), "betas[0] is 2.0; it must be a number of at least 0 and below 1"),
        (("--weight-decay", "-1"), "weight_decay is -1.0; it must be a number of at least 0"),
        (
            ("--temperature", "0"),
            "temperature is 0.0; it must be a number above 0; near 1 to train",
        ),
        (
            ("--eval-temperature", "-2"),
            "eval_temperature is -2.0; it must be a number of at least 0",
        ),
        (("--group-size", "1", "--algorithm", "dr_grpo"), "compares the completions of a prompt"),
        (("--eval-top-p", "0"), "eval_top_p is 0.0; it must be a number above 0 and of at most 1"),
        (("--eval-option", "colour=red"), "colour"),
        (
            ("--eval-option", "colour"),
            "--eval-option colour: write NAME=VALUE, such as --eval-option split=test",
        ),
        (("--option", "colour=red"), "colour"),
    ],
)
def test_a_setting_that_cannot_work_is_one_line(train, tmp_path, flags, why):
    """Before a model is loaded; and the folder is free for the next try."""
    assert why in refusal_of(*train(*flags))
    assert not (tmp_path / "run").exists()


def test_one_file_is_not_both_trained_on_and_evaluated_on(say, tmp_path, model):
    """It stands for every split; unless a part is kept apart, or another file is named, the run is refused."""
    for name, first in (("mine.jsonl", 0), ("other.jsonl", 20)):
        rows = [{"problem": f"{k}=", "answer": str(k)} for k in range(first, first + 20)]
        write_json_lines(tmp_path / name, rows)
    flags = ["--env", "math-v4", "--model", model, "--steps", 1, "--prompts", 2, "--group-size", 2, "--max-tokens", 4,
             "--workers", 0, "--algorithm", "dr_grpo", "--option", f"data={tmp_path / 'mine.jsonl'}"]  # fmt: skip
    assert "20 of the 20 tasks to evaluate on" in refusal_of(
        *say("train", *flags, "--run", tmp_path / "a")
    )
    assert "of split 'test', have prompts that are trained on, in split 'test'" in refusal_of(
        *say("train", *flags, "--option", "split=test", "--run", tmp_path / "a")
    )
    overlap = ["--option", "split=train[10%:]", "--eval-split", "train[:20%]"]
    assert "2 of the 4 tasks to evaluate on" in refusal_of(
        *say("train", *flags, *overlap, "--run", tmp_path / "a")
    )
    assert not (tmp_path / "a").exists()
    apart = ["--option", "split=train[10%:]", "--eval-split", "train[:10%]"]
    code, said = say("train", *flags, *apart, "--run", tmp_path / "b")
    assert code == 0, said
    tasks = json.loads((tmp_path / "b" / "config.json").read_text())
    assert (tasks["env"]["split"], tasks["eval_env"]["split"]) == ("train[10%:]", "train[:10%]")
    code, said = say(
        "train",
        *flags,
        "--eval-option",
        f"data={tmp_path / 'other.jsonl'}",
        "--run",
        tmp_path / "c",
    )
    assert code == 0, said


def test_one_task_in_a_hundred_may_be_in_both_splits(tmp_path):
    """Published sets are like that, and its user cannot change that: a warning says so."""
    rows = [{"problem": f"{k}+1=", "answer": str(k + 1)} for k in range(300)]
    for name, part in (("train", rows[:200]), ("test", rows[199:])):
        write_json_lines(tmp_path / f"{name}.jsonl", part)
    config = Config(
        env="math-v4", model="none", run=tmp_path / "run", env_options={"data": str(tmp_path)}
    )
    with pytest.warns(RuntimeWarning, match="1 of the 100 tasks to evaluate on"):
        env, eval_env = environments(config.resolve())
    assert (env.size, eval_env.size) == (200, 101)


def test_a_device_that_is_not_there_is_one_line(train):
    """And the folder is free for the next try."""
    for device in ("nonsense", "meta", "meta:x", "hpu"):
        assert f"device is '{device}', which this machine does not have" in refusal_of(
            *train("--device", device, "--algorithm", "grpo")
        )
    assert train("--algorithm", "grpo", "--steps", 1)[0] == 0


@pytest.mark.parametrize("setting", [{"lr": "x"}, {"betas": (0.9, "x")}, {"canary": "low"}])
def test_a_text_for_a_number_is_refused(tmp_path, setting):
    """From Python nothing has read the value before."""
    with pytest.raises(UsageError, match=rf"{next(iter(setting))}\S* is .*; it must be a number"):
        Config(env="e", model="m", run=tmp_path, **setting)


@pytest.mark.parametrize("targets", ["q_proj", ("q_proj", ""), (1,), None])
def test_targets_of_an_adapter_are_a_list(tmp_path, targets):
    """The letters of a text are no names of layers."""
    with pytest.raises(UsageError, match=r"lora_targets is .*; it must be a list of texts"):
        Config(env="e", model="m", run=tmp_path, lora_rank=2, lora_targets=targets)


def test_a_model_that_is_not_there_leaves_the_folder_free(train, tmp_path):
    """The next try, with the name put right, is not another run."""
    assert train("--model", tmp_path / "nowhere", "--algorithm", "grpo")[0] == 2
    assert train("--algorithm", "grpo", "--steps", 1)[0] == 0


def test_help_loads_no_torch():
    """Who looks for a flag does not wait two seconds for it, and need not have it installed."""
    code = (
        "import sys\n"
        "from rlvr.cli import main\n"
        "for command in ('train', 'eval', 'plot'):\n"
        "    try: main([command, '--help'])\n"
        "    except SystemExit as end: print(end.code, {'torch', 'transformers', 'numpy'} & set(sys.modules))"
    )
    done = run_python(code)
    assert [line for line in done.stdout.splitlines() if line.startswith("0 ")] == [
        "0 set()"
    ] * 3, done.stderr


def test_without_torch_the_extra_is_named():
    """One line says how to get it, before anything else is looked at."""
    script = textwrap.dedent(
        """
        import sys

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "torch":
                    raise ModuleNotFoundError("No module named 'torch'", name="torch")

        sys.meta_path.insert(0, Missing())
        from rlvr.cli import main

        sys.exit(main("train --env nothing-v1 --model m --run r --algorithm grpo".split()))
        """
    )
    done = run_python(script)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert (
        "torch is not installed; get it with: pip install -c constraints.txt '.[train]' in a checkout"
        in done.stderr
    )
