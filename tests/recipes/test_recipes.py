"""The recipes as they are typed, with a tiny model of our own from a folder and a few rows of our own from a file."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.cli.train import RECIPES
from rlvr.recipes.arithmetic_cpu.run import Settings
from rlvr.recipes.arithmetic_cpu.run import main as arithmetic_cpu
from rlvr.recipes.code_grpo.run import DEFAULTS as CODE_GRPO
from rlvr.recipes.math_dapo.run import DEFAULTS as MATH_DAPO
from rlvr.recipes.math_grpo.run import DEFAULTS as MATH_GRPO
from rlvr.recipes.math_prorl.run import DEFAULTS as MATH_PRORL
from rlvr.samplers.protocol import TokenRow
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

ROOT = Path(__file__).resolve().parents[2]
SUMS = [{"problem": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(4)]
CODE = [
    {"task_id": k, "text": f"f{k}", "test_setup_code": "", "code": f"def f{k}(x): return x+{k}",
     "test_list": [f"assert f{k}(1) == {1 + k}", f"assert f{k}(5) == {5 + k}"]}
    for k in range(4)
]  # fmt: skip
FEW = ["--steps", 2, "--prompts", 2, "--group-size", 4, "--workers", 0, "--eval-tasks", 2, "--eval-every", 1,
       "--lr", 1e-3, "--option", "instruction="]  # fmt: skip


def half_right(folder: Path, answers: dict[str, list[str]]) -> Path:
    """A saved model that gives one of the answers to each prompt: enough for groups of both kinds."""
    rng = Random(0)
    characters = sorted({c for prompt, said in answers.items() for c in prompt + "".join(said)})
    policy = Policy(*tiny("".join(characters), hidden=32, heads=2, layers=1, max_length_tokens=256))
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(80):
        rows = []
        for prompt in rng.choices(list(answers), k=24):
            answer = policy.tokenizer(rng.choice(answers[prompt]), add_special_tokens=False)[
                "input_ids"
            ]
            rows.append(
                TokenRow(
                    policy.tokenization.encode(prompt), [*answer, policy.tokenizer.eos_token_id]
                )
            )
        loss = -policy.logprobs(rows).sum() / sum(len(row.completion_ids) for row in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    policy.save(folder)
    return folder


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def adder(tmp_path_factory) -> list:
    """--model and --data for sums of two digits."""
    folder = tmp_path_factory.mktemp("adder")
    answers = {row["problem"]: [f"\\boxed{{{row['answer']}}}", "\\boxed{9}"] for row in SUMS}
    model = half_right(folder / "model", answers)
    return ["--model", model, "--data", written(folder / "rows.jsonl", SUMS), "--max-tokens", 16]


@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "flags"),
    [
        pytest.param("math_grpo", [], marks=pytest.mark.slow),
        ("math_dapo", ["--updates", 2, "--eval-n", 2, "--warmup-steps", 1]),
        pytest.param("math_prorl", ["--updates", 2, "--eval-n", 2], marks=pytest.mark.slow),
    ],
)
def test_a_recipe_for_mathematics_trains_on_a_file_of_ones_own(say, adder, tmp_path, name, flags):
    """Its first tenth is evaluated on and not trained on; the end has both evaluations and where the curves are."""
    code, said = say("train", name, *adder, "--run", tmp_path / "run", *FEW, *flags)
    assert code == 0, said
    assert "after 2 steps" in said
    assert (tmp_path / "run" / "curves.png").is_file()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if any(n.startswith("eval/avg@") for n in row)] == [0, 1, 2]
    assert sum(row.get("updates", 0) for row in rows) > 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["env"]["split"], config["eval_env"]["split"]) == ("train[10%:]", "train[:10%]")
    if name == "math_dapo":
        assert (
            config["env"]["reward"]
            == "correct(math-verifier-v3) + 0.5 * overlong(max_tokens=16, cache=3)"
        )


def test_a_part_of_one_file_is_named_for_both(say, adder, tmp_path):
    """--eval-split alone, or a split of the environment alone, would be taken for nothing or for too much."""
    command = ["train", "math_grpo", *adder, "--run", tmp_path / "run", *FEW]
    apart = ["--option", "split=train[20%:]", "--eval-split", "train[:20%]"]
    for flags in (apart[:2], apart[2:]):
        code, said = say(*command, *flags)
        assert (code, "is one file, of which the first tenth is evaluated on" in said) == (
            2,
            True,
        ), said
    code, said = say(*command, *apart)
    assert code == 0, said
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["env"]["split"], config["eval_env"]["split"]) == ("train[20%:]", "train[:20%]")


class Change(rlvr.Environment):
    """A generator of one's own, without any data."""

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(str(index), f"{self.split} {index}", reference=str(index))

    def verify(self, task, completion):
        return rlvr.Verdict("correct" if completion == task.reference else "wrong")


@pytest.mark.parametrize(
    "recipe", [MATH_GRPO, MATH_DAPO, MATH_PRORL, CODE_GRPO], ids=["grpo", "dapo", "prorl", "code"]
)
def test_a_recipe_leaves_the_data_of_another_task_to_it(recipe):
    """Its own data belong to its own task: a class of one's own has none, and GSM8K has others."""
    for name in (f"{__name__}:Change", "arithmetic-v1", "arithmetic-v1:0.5 kk-v2:0.5"):
        asked = replace(recipe, config=replace(recipe.config, env=name), reward="2*correct - 1")
        trained, evaluated = asked.environments()
        assert (trained.split, evaluated.split) == ("train", "test")
        assert (trained.reward.bounds, evaluated.reward.bounds) == ((-1, 1), (-1, 1))
    with pytest.raises(rlvr.UsageError, match="has no option 'data'"):
        replace(recipe, data="x", config=replace(recipe.config, env="arithmetic-v1")).environments()


@pytest.mark.slow
def test_the_recipe_for_code_runs_what_is_written(say, tmp_path):
    """Programs go through the sandbox; a group of right and wrong ones moves the policy."""
    programs = {
        k: [f"```python\ndef f{k}(x): return x+{k}\n```", f"```python\ndef f{k}(x): return x\n```"]
        for k in range(4)
    }
    answers = {f"f{k}": programs[k] for k in range(4)}
    model = half_right(tmp_path / "model", answers)
    data = written(tmp_path / "train.jsonl", CODE)
    written(tmp_path / "test.jsonl", [row | {"text": row["text"] + " "} for row in CODE[:2]])
    flags = ["--eval-data", tmp_path / "test.jsonl", "--option", "shown=0", "--max-tokens", 64]
    few = [
        16 if flag == 4 else flag for flag in FEW
    ]  # of which some are for the task: the model hardly looks at it
    code, said = say(
        "train",
        "code_grpo",
        "--model",
        model,
        "--data",
        data,
        "--run",
        tmp_path / "run",
        *few,
        *flags,
    )
    assert code == 0, said
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert 0 < sum(row["accuracy"] for row in rows[1:]) < 2
    assert sum(row["unscored"] for row in rows[1:]) == 0
    assert sum(row["updates"] for row in rows[1:]) == 2


def test_the_warm_start_is_one_of_the_settings(monkeypatch, tmp_path):
    """A run is not gone on with from another one's model."""
    seen = []

    def trainer(config, **parts):
        seen.append(config.resolve().recorded)
        raise KeyboardInterrupt

    monkeypatch.setattr("rlvr.recipes.arithmetic_cpu.run.Trainer", trainer)
    for noise, warm_steps in ((0.25, 2), (0.5, 2), (0.25, 3)):
        with pytest.raises(KeyboardInterrupt):
            arithmetic_cpu(Settings(run=tmp_path, noise=noise, warm_steps=warm_steps))
    assert len({settings["model"] for settings in seen}) == 3


@pytest.mark.slow
def test_a_recipe_is_a_module_of_the_checkout_too(adder, tmp_path):
    """python -m recipes.NAME is `rlvr train NAME`: flags, messages and exit codes."""
    command = [
        sys.executable,
        "-m",
        "recipes.math_grpo",
        *adder,
        "--run",
        tmp_path / "run",
        *FEW,
        "--lr",
        "0",
    ]
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr.strip() == "rlvr: lr is 0.0; it must be a number above 0"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
@pytest.mark.parametrize("name", ["python_tool_math", "search_qa"])
def test_a_recipe_with_tools_trains(name, say, tmp_path):
    """Its whole path in too few steps to learn anything: episodes with calls, their metrics, and the results."""
    code, said = say("train", name, "--run", tmp_path / "run", "--steps", 1, "--warm-steps", 100)
    assert code == 0, said
    assert "episodes with a call" in said
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert any(row.get("tools/used", 0) > 0 for row in rows)
    assert sum(row.get("unscored", 0) for row in rows) == 0


def test_recipes_have_the_published_numbers():
    """What a preset says of its paper's batch is what the recipe asks for; the other numbers as printed."""
    for flags, name in ((MATH_GRPO, "grpo"), (MATH_DAPO, "dapo"), (MATH_PRORL, "prorl")):
        config, printed = flags.config.resolve(), load_algorithm(name).printed
        assert (config.prompts, config.group_size) == (printed.prompts, printed.group_size)
        assert config.updates_per_batch == printed.updates
    grpo, dapo, prorl = MATH_GRPO.config, MATH_DAPO.config, MATH_PRORL.config
    assert (grpo.lr, grpo.max_tokens) == (1e-6, 1024)
    assert (dapo.lr, dapo.max_tokens, dapo.max_tokens // 5, dapo.warmup_steps) == (
        1e-6,
        20480,
        4096,
        320,
    )
    assert (dapo.eval_n, dapo.eval_temperature, dapo.eval_top_p) == (32, 1.0, 0.7)
    assert (prorl.lr, prorl.max_tokens, prorl.resolve().temperature, prorl.steps) == (
        2e-6,
        8096,
        1.2,
        2000,
    )
    assert CODE_GRPO.config.algorithm == "grpo"


def test_every_recipe_that_trains_is_known_to_the_command(say):
    """And says what it is for; a name that is nearly one is set right."""
    assert [path.parent.name for path in sorted((ROOT / "recipes").glob("*/__main__.py"))] == list(
        RECIPES
    )
    for name in RECIPES:
        readme = (ROOT / "recipes" / name / "README.md").read_text()
        assert "**Claim.**" in readme
        assert f"rlvr train {name}" in readme
        assert len((ROOT / "recipes" / name / "run.py").read_text().splitlines()) <= 200
    code, said = say("train", "math_dappo")
    assert (code, "did you mean 'math_dapo'" in said) == (2, True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
def test_five_domains_train_in_one_run(say, tmp_path):
    """ProRL's recipe over five domains, procedural and offline: mathematics, science, queries, logic, instructions."""
    shares = [
        "arithmetic-v1:0.3,difficulty=1",
        "chem-v2:0.3,ask=formula",
        "sql-v2:0.2,group_size=3",
    ]
    shares += ["kk-v2:0.1,people=2,max_tokens=8", "iftrain-v2:0.1,instructions=1,max_tokens=8"]
    env = rlvr.make(" ".join(shares))
    pairs = [(str(task.prompt), env.example(task)) for task in map(env.task, range(60))]
    characters = sorted({char for pair in pairs for char in "".join(pair)})
    policy = Policy(
        *tiny("".join(characters), hidden=32, heads=2, layers=1, max_length_tokens=1536)
    )
    optimizer, rng = (
        torch.optim.AdamW(policy.model.parameters(), lr=1e-2, weight_decay=0.0),
        Random(0),
    )
    short = [
        pair for pair in pairs if len(pair[0]) < 200
    ]  # so that some answers are right: the form, and a guess
    for _ in range(60):
        rows = [
            TokenRow(
                policy.tokenization.encode(prompt),
                [*policy.tokenizer(answer)["input_ids"], policy.tokenizer.eos_token_id],
            )
            for prompt, answer in rng.choices(short, k=8)
        ]
        loss = -policy.logprobs(rows).sum() / sum(len(row.completion_ids) for row in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    policy.save(tmp_path / "model")
    command = [
        "train",
        "math_prorl",
        "--model",
        tmp_path / "model",
        "--precision",
        "fp32",
        "--prompts",
        10,
    ]
    command += [
        "--group-size",
        4,
        "--updates",
        2,
        "--max-tokens",
        40,
        "--max-tries",
        1,
        "--workers",
        0,
        "--lr",
        1e-3,
    ]
    command += [
        "--eval-every",
        2,
        "--eval-tasks",
        1,
        "--eval-n",
        2,
        "--checkpoint-every",
        1,
        "--option",
        "curriculum={}",
    ]
    command += [piece for share in shares for piece in ("--env", share)]
    code, said = say(*command, "--run", tmp_path / "whole", "--steps", 2)
    assert code == 0, said
    rows = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    names = ["arithmetic-v1", "chem-v2", "sql-v2", "kk-v2", "iftrain-v2"]
    taken = [sum(row.get(f"env/{name}/rollouts", 0) for row in rows) for name in names]
    assert taken == [24, 24, 12, 8, 8]  # 20 tasks by weights, in groups of 4, and of 3 for SQL
    assert all(f"eval/{name}/avg@2" in rows[-1] for name in names)
    assert all("eval/avg@2" in row for row in (rows[0], rows[-1]))
