"""The recipes as they are typed, with a tiny model of our own from a folder and a few rows of our own from a file."""

import inspect
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.cli.recipes import RECIPES, markdown_table, recipe_named
from rlvr.recipes import tiny_models, tiny_sizes
from rlvr.recipes.arithmetic_cpu.run import DemoSettings
from rlvr.recipes.arithmetic_cpu.run import main as arithmetic_cpu
from rlvr.recipes.code_grpo.run import RECIPE as CODE_GRPO_RECIPE
from rlvr.recipes.math_dapo.run import RECIPE as MATH_DAPO_RECIPE
from rlvr.recipes.math_grpo.run import RECIPE as MATH_GRPO_RECIPE
from rlvr.recipes.math_prorl.run import RECIPE as MATH_PRORL_RECIPE
from rlvr.recipes.plan import Shape, commands, forecast_of
from rlvr.recipes.recipe import Machine, Recipe, RecipeSetting, load_recipe, published
from rlvr.recipes.tiny_models import products, search_model
from rlvr.samplers.protocol import TokenRow
from rlvr.train.config import Config
from rlvr.train.memory import forecast
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import character_tokenizer, tiny
from tests.commands import refusal_of
from tests.json_lines import write_json_lines

CODE_GRPO, MATH_DAPO = CODE_GRPO_RECIPE.flags(), MATH_DAPO_RECIPE.flags()
MATH_GRPO, MATH_PRORL = MATH_GRPO_RECIPE.flags(), MATH_PRORL_RECIPE.flags()
PAPERS = [name for name in RECIPES if (found := recipe_named(name)) and found.machines]
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


@pytest.fixture(scope="module")
def adder(tmp_path_factory) -> list:
    """--model and --data for sums of two digits."""
    folder = tmp_path_factory.mktemp("adder")
    answers = {row["problem"]: [f"\\boxed{{{row['answer']}}}", "\\boxed{9}"] for row in SUMS}
    model = half_right(folder / "model", answers)
    return [
        "--model",
        model,
        "--data",
        write_json_lines(folder / "rows.jsonl", SUMS),
        "--max-tokens",
        16,
    ]


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
            == "correct(math-verifier-v5) + 0.5 * overlong(max_tokens=16, cache=3)"
        )


def test_a_part_of_one_file_is_named_for_both(say, adder, tmp_path):
    """--eval-split alone, or a split of the environment alone, would be taken for nothing or for too much."""
    command = ["train", "math_grpo", *adder, "--run", tmp_path / "run", *FEW]
    apart = ["--option", "split=train[20%:]", "--eval-split", "train[:20%]"]
    for flags in (apart[:2], apart[2:]):
        assert "is one file, of which the first tenth is evaluated on" in refusal_of(
            *say(*command, *flags)
        )
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
    for name in (f"{__name__}:Change", "arithmetic-v1", "arithmetic-v1:0.5 kk-v4:0.5"):
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
    data = write_json_lines(tmp_path / "train.jsonl", CODE)
    write_json_lines(
        tmp_path / "test.jsonl", [row | {"text": row["text"] + " "} for row in CODE[:2]]
    )
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
            arithmetic_cpu(DemoSettings(run=tmp_path, noise=noise, warm_steps=warm_steps))
    assert len({settings["model"] for settings in seen}) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "make"),
    [("python_tool_math", products), ("search_qa", search_model)],
    ids=["python", "search"],
)
def test_a_recipe_with_tools_trains(name, make, say, tmp_path):
    """Its whole path in too few steps to learn anything: episodes with calls, their metrics, and the results."""
    make(steps=100).save(tmp_path / "model")
    few = ["--model", tmp_path / "model", "--run", tmp_path / "run", "--steps", 1]
    code, said = say("train", name, "--size", "tiny", *few)
    assert code == 0, said
    assert "episodes with a call" in said
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert any(row.get("tools/used", 0) > 0 for row in rows)
    assert sum(row.get("unscored", 0) for row in rows) == 0


@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
def test_a_cold_start_is_a_run_of_its_own_that_the_other_begins_with(say, adder, tmp_path):
    """Texts first, then rewards; the same command goes on, and a run without texts has none."""
    texts = [
        {"prompt": row["problem"], "completion": f"\\boxed{{{row['answer']}}}"} for row in SUMS
    ]
    file = write_json_lines(tmp_path / "texts.jsonl", texts)
    command = ["train", "reasoning_sft", "--size", "small", *adder, *FEW, "--run", tmp_path / "run"]
    command += [
        "--precision",
        "fp32",
        "--cold-start",
        file,
        "--cold-steps",
        30,
        "--cold-prompts",
        8,
    ]
    for _ in range(2):
        code, said = say(
            *command, "--cold-lr", 3e-3, "--no-gradient-checkpointing", "--chat", "off"
        )
        assert code == 0, said
    before = read_metrics(tmp_path / "run-cold-start" / "metrics.jsonl")
    assert before[-1]["step"] == 30
    assert before[-1]["loss"] < before[0]["loss"]  # the model knows half of them
    assert "run-cold-start/model" in (tmp_path / "run" / "config.json").read_text()


@pytest.mark.parametrize("size", [pytest.param("paper", marks=pytest.mark.slow), "small"])
def test_a_size_is_planned_for_devices_that_are_not_here(say, size):
    """For every recipe: settings, devices, commands, and a forecast that fits; neither model nor data is looked for."""
    for name in PAPERS:
        recipe = recipe_named(name)
        machine, flags = recipe.machines[size], recipe.flags(size)
        assert flags.config.model == machine.model
        found = forecast_of(flags.config, machine)
        assert found.peak <= machine.device_gib * 2**30, (name, str(found))
        *server, train = commands(name, size, machine)
        assert ("vllm_server" in "".join(server)) == (machine.samplers > 0)
        assert train.startswith("torchrun") == (machine.trainers > 1)
        assert f"rlvr train {name} --size {size}" in train
    late = ["--stage", "at=9999,lr=1e-7"]
    code, said = say("train", "math_dapo", "--size", size, "--dry-run", *late)
    words = ["devices:", "rlvr train math_dapo", "forecast:", "warmup_steps", "recipe math_dapo"]
    words.append("it lies behind the last step")
    assert (code, [word for word in words if word not in said]) == (0, []), said
    code, said = say("train", "math_dapo", "--size", size, "--job", "kubernetes", *late)
    assert (code, "kind: Job" in said, "--stage at=9999,lr=1e-7" in said) == (0, True, True), said
    assert "--job" not in said
    code, said = say("train", "math_dapo", "--size", size, "--dry-run", "--micro-tokens", 2**19)
    assert (code, "it cannot fit.  Lower micro_tokens to" in said) == (2, True), said


def test_the_planned_command_takes_along_what_was_given(say):
    """Copied to a cluster, it would train on the recipe's own task otherwise."""
    own = ("--env", "arithmetic-v1", "--reward", "2*correct - 1")
    code, said = say("train", "math_grpo", *own, "--dry-run")
    assert (code, "--env arithmetic-v1 --reward '2*correct - 1' --sampler" in said) == (0, True), (
        said
    )
    assert "there is no file" in refusal_of(
        *say("train", "math_grpo", "--env", "nothere.py:Own", "--dry-run")
    )
    assert "--job is 'slurm': it is of a size's own model" in refusal_of(
        *say("train", "math_grpo", "--model", "nothere", "--job", "slurm")
    )


@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_plan_forecasts_what_the_whole_model_would(checkpointing, tmp_path):
    """From narrow models of one and three layers, up to a fifth too much and never too little."""
    shape = Shape("qwen2", 512, 1536, 6, 8, 2, 4096, True, head_width=64)
    config = Config(env="arithmetic-v1", model="m", run=tmp_path, algorithm="grpo", prompts=4, group_size=8,
                    max_tokens=512, gradient_checkpointing=checkpointing, precision="bf16", max_rows=8)  # fmt: skip
    model = AutoModelForCausalLM.from_config(shape.model().config, dtype=torch.float32)
    policy = Policy(model, character_tokenizer("0"), autocast=torch.bfloat16,
                    gradient_checkpointing=checkpointing, share_prompts=False)  # fmt: skip
    whole = forecast(policy, config, prompt_tokens=1024)
    planned = forecast_of(config, Machine("m"), shape)
    for part in (
        "weights",
        "optimizer",
        "reference",
        "gradients",
        "activations",
        "logits",
        "keys_values",
    ):
        assert 1 <= getattr(planned, part) / getattr(whole, part) <= 1.2, part


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


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_s_page_has_its_table_and_begins_with_what_runs_here(name):
    """The table is made of the settings, so that page and run cannot part; each number has a source or a reason."""
    recipe = recipe_named(name)
    page = (ROOT / "recipes" / name / "README.md").read_text()
    assert markdown_table(recipe) in page
    first = next(line.strip() for line in page.splitlines() if line.startswith("    "))
    assert first.startswith(f"rlvr train {name} --size tiny")
    assert sorted(recipe.sizes) == ["small", "tiny"]
    printed = load_algorithm(recipe.settings["algorithm"].value).printed
    for number in ("prompts", "group_size", "lr"):  # also of Printed: what differs says so
        of_paper, one = getattr(printed, number), recipe.settings[number]
        if of_paper is not None and recipe.paper.endswith(
            load_algorithm(recipe.settings["algorithm"].value).paper
        ):
            assert of_paper in (one.value, one.theirs), number


@pytest.mark.parametrize("name", PAPERS)
def test_every_size_of_a_recipe_is_a_run_s_settings(name):
    """On a task of one's own, on a mixture, on an episode with tools; warm-up belongs to the batch."""
    recipe = recipe_named(name)
    for size in ("paper", *recipe.sizes):
        flags = recipe.flags(size)
        for env in (f"{__name__}:Change", "arithmetic-v1:0.5 kk-v4:0.5"):
            asked = replace(flags, config=replace(flags.config, env=env, model="m"), reward=None)
            assert asked.environments()[0].split == "train"
        updates, steps = flags.config.resolve().updates_per_batch, flags.config.steps
        assert flags.config.warmup_steps <= updates * steps * 0.3  # Search-R1's is 0.285


RECIPE_FILE = """
from rlvr.recipes.recipe import Recipe, ours, published

RECIPE = Recipe(
    about="Mine", paper="none", env="arithmetic-v1",
    settings={"algorithm": published("dapo", "3"), "clip_high": ours(0.3, "tried"), "steps": ours(2, "short")},
    sizes={"tiny": {"steps": 1}},
)
"""
RECIPE_TOML = """
about = "Mine"
paper = "none"
env = "arithmetic-v1"
[settings]
algorithm = {value = "dapo", source = "3"}
clip_high = {value = 0.3, why = "tried", theirs = 0.28, source = "4.1"}
steps = {value = 2, why = "short"}
[sizes.tiny]
steps = 1
"""


def test_a_file_of_one_s_own_is_a_recipe(say, adder, tmp_path):
    """A .py with RECIPE or a .toml: listed, at its sizes, changed by flags, and trained."""
    (tmp_path / "own_recipe.py").write_text(RECIPE_FILE)
    assert load_recipe(tmp_path / "own_recipe.py").flags().config.algorithm.clip.high == 0.3
    path = tmp_path / "own_recipe.toml"
    path.write_text(RECIPE_TOML)
    recipe = load_recipe(path)
    assert (recipe.flags().config.steps, recipe.flags("tiny").config.steps) == (2, 1)
    assert recipe.flags().config.algorithm.clip.high == 0.3
    code, said = say("recipes", path)
    assert (code, "0.28" in said and "tried" in said) == (0, True), said
    few = ["--prompts", 2, "--group-size", 4, "--workers", 0, "--max-tokens", 16]
    few += ["--dynamic-sampling", "false"]
    code, said = say("train", path, "--size", "tiny", *adder[:2], *few, "--run", tmp_path / "run",
                     "--env", "rlvr.recipes.arithmetic_cpu.sums:Sums")  # fmt: skip
    assert code == 0, said
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")][-1] == 1


@pytest.mark.parametrize(
    ("settings", "sizes", "says"),
    [
        ({}, {}, "no setting 'algorithm'"),
        ({"stepps": published(1, "2")}, {}, "did you mean 'steps'"),
        ({"lam": published(1, "2")}, {}, "no setting 'lam'"),
        ({}, {"large": {}}, "size is 'large'"),
        (
            {"warmup_steps": published(320, "2")},
            {"small": {"prompts": 4}},
            "changes the batch and not warmup_steps",
        ),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(settings, sizes, says):
    """By the value, the rule and the way out."""
    own = {} if not settings and not sizes else {"algorithm": published("dapo", "3")}
    with pytest.raises(rlvr.UsageError, match=says):
        Recipe(about="", paper="", env="arithmetic-v1", settings={**own, **settings}, sizes=sizes)


def test_a_number_without_source_is_refused(say, tmp_path):
    """Also one that differs without a reason, a size that is not there, and a file that is no recipe."""
    with pytest.raises(rlvr.UsageError, match="neither source nor reason"):
        RecipeSetting(0.3)
    with pytest.raises(rlvr.UsageError, match="say why"):
        RecipeSetting(0.3, "4.1", 0.28)
    (tmp_path / "no.toml").write_text("about = 1\nwhat = 2")
    (tmp_path / "no.py").write_text("x = 1")
    for line, says in [
        (["train", "math_dapo", "--size", "huge"], "--size is 'huge'"),
        (["train", "math_dapo", "--size"], "--size needs a value"),
        (["train", "math_dapo", "--size", "tiny", "--size=small"], "given as tiny and as small"),
        (["train", "math_dapo", "--size", "tiny", "--env", "kk-v4"], "give a --model"),
        (["train", tmp_path / "no.toml"], "is no recipe"),
        (["train", tmp_path / "no.py"], "no.py"),
        (["recipes", tmp_path / "none.py"], "there is no file"),
        (["recipes", "math_dappo"], "did you mean 'math_dapo'"),
    ]:
        assert says in refusal_of(*say(*line))


def test_every_recipe_that_trains_is_known_to_the_command(say):
    """And says what it is for; a name that is nearly one is set right."""
    folders = {path.parent.name for path in (ROOT / "recipes").glob("*/run.py")}
    assert folders - {"score_arithmetic"} == set(RECIPES)
    for name in RECIPES:
        readme = (ROOT / "recipes" / name / "README.md").read_text()
        assert "**Claim.**" in readme
        assert f"rlvr train {name}" in readme
        assert len((ROOT / "recipes" / name / "run.py").read_text().splitlines()) <= 200
    assert "did you mean 'math_dapo'" in refusal_of(*say("train", "math_dappo"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
def test_five_domains_train_in_one_run(say, tmp_path):
    """ProRL's recipe over five domains, procedural and offline: mathematics, science, queries, logic, instructions."""
    shares = [
        "arithmetic-v1:0.3,difficulty=1",
        "chem-v4:0.3,ask=formula",
        "sql-v4:0.2,group_size=3",
    ]
    shares += ["kk-v4:0.1,people=2,max_tokens=8", "iftrain-v4:0.1,instructions=1,max_tokens=8"]
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
    names = ["arithmetic-v1", "chem-v4", "sql-v4", "kk-v4", "iftrain-v4"]
    taken = [sum(row.get(f"env/{name}/rollouts", 0) for row in rows) for name in names]
    assert taken == [24, 24, 12, 8, 8]  # 20 tasks by weights, in groups of 4, and of 3 for SQL
    assert all(f"eval/{name}/avg@2" in rows[-1] for name in names)
    assert all("eval/avg@2" in row for row in (rows[0], rows[-1]))


def test_what_makes_the_model_of_a_tiny_size_is_there():
    """It is named by a text, so that torch is imported only where a model is made."""
    for function, arguments in tiny_sizes._MAKERS.values():
        inspect.signature(getattr(tiny_models, function)).bind(**arguments)
