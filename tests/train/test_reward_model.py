"""Reward models: losses by hand, batching, what is learnt, and where a run goes on."""

import json
import math
import re
from pathlib import Path

import cloudpickle
import pytest
import torch

import rlvr
from rlvr.data.pairs import read_steps
from rlvr.errors import DataError, RewardError, UsageError
from rlvr.scoring.engines import ServedReward
from rlvr.train import checkpoint
from rlvr.train.learned_reward import LearnedReward
from rlvr.train.learner import Learner
from rlvr.train.policy import Policy
from rlvr.train.preferences import Example, Examples
from rlvr.train.reward_losses import RewardLosses
from rlvr.train.reward_model import RewardModel
from rlvr.train.tiny import tiny
from rlvr.train.trained_rows import TrainedRow
from tests.environments import Torchless
from tests.json_lines import write_json_lines
from tests.rounding import additions, assert_same
from tests.serve.serving import answering, served
from tests.train.bandit import CHARSET, Bandit, policy, run_to_end, trainer
from tests.train.test_preferences import assert_same_numbers, config, digits, offline
from tests.train.test_resume import differences, logged


def learner(name: str, tmp_path: Path, **options) -> Learner:
    """In float64 but for the head, which is not 0."""
    made = Policy(*tiny(CHARSET, hidden=16, heads=2, layers=1, dtype=torch.float64), **options)
    found = Learner(made, config(tmp_path, env="", algorithm=name, pairs=tmp_path / "p"))
    with torch.no_grad():
        found.policy.root.head.weight.copy_(torch.linspace(-1, 1, 16)[None])
        found.policy.root.head.bias.fill_(0.2)
    return found


def by_hand(made: Learner, row: TrainedRow, at: int) -> float:
    """The head on the last hidden state of the row's first `at` completion tokens alone."""
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids[:at]]])
    state = made.policy.model.base_model(input_ids=ids).last_hidden_state[0, -1].float()
    return float(made.policy.root.head(state).detach())


def row(*ids: int) -> TrainedRow:
    return TrainedRow([1, 5], ids, [True] * len(ids))


PAIRS = Examples(
    [
        Example((row(4, 6, 2), row(7, 2)), weight=1.0, margin=0.5),
        Example((row(8, 2), row(9, 9, 9, 2)), weight=0.5),
        Example((row(5, 2), row(4, 2)), weight=0.5, margin=0.25),
    ]
)
STEPS = Examples(
    [
        Example((row(4, 6, 7, 2),), steps=((1, 3.0, 4.0), (3, 0.0, 4.0))),
        Example((row(8, 2),), steps=((1, 1.0, 1.0),)),
        Example((row(5, 6, 2),), steps=((2, 2.0, 8.0),)),
    ]
)
LABELS = Examples([Example(one.rows, i % 2 == 0) for i, one in enumerate(STEPS.rows)])
GIVEN = {"reward_model": PAIRS, "process_reward_model": STEPS, "pointwise_reward_model": LABELS}


def gradient(made: Learner, given: Examples) -> tuple[torch.Tensor, dict[str, float]]:
    made.optimizer.zero_grad()
    numbers = made.part(RewardLosses).backward(given)
    grads = [p.grad.flatten().double() for p in made.parameters if p.grad is not None]
    return torch.cat(grads), numbers


def test_the_loss_of_pairs_by_hand(tmp_path: Path):
    """Margins, weights and centring 0.01; rewards are read after the end token."""
    made = learner("reward_model", tmp_path)
    expected = 0.0
    for one in PAIRS.rows:
        w, v = (by_hand(made, side, len(side.completion_ids)) for side in one.rows)
        expected += one.weight * (math.log1p(math.exp(-(w - v - one.margin))) + 0.01 * (w + v) ** 2)
    assert gradient(made, PAIRS)[1]["loss"] == pytest.approx(expected / 2.0, abs=1e-5)


def test_the_loss_of_steps_by_hand(tmp_path: Path):
    """The mean over 17 continuations; a step is read after its last token."""
    made = learner("process_reward_model", tmp_path)
    expected = 0.0
    for one in STEPS.rows:
        for at, k, count in one.steps:
            x = by_hand(made, one.rows[0], at)
            expected += k * math.log1p(math.exp(-x)) + (count - k) * math.log1p(math.exp(x))
    assert gradient(made, STEPS)[1]["loss"] == pytest.approx(expected / 17, abs=1e-5)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize(
    "options", [{"max_tokens": 6, "overhead_tokens": 0}, {"packing": True, "max_tokens": 12}]
)
def test_the_gradient_does_not_depend_on_batching(name: str, options: dict, tmp_path: Path):
    """Up to rounding, head and layers alike."""
    given, made = GIVEN[name], learner(name, tmp_path)
    (a, numbers), (b, others) = (
        gradient(each, given) for each in (made, learner(name, tmp_path, **options))
    )
    terms = additions(made.policy.model, sum(one.tokens for one in given.rows))
    assert_same(a, b, terms=terms)
    assert_same_numbers(numbers, others, terms=terms)


def steps_file(path: Path) -> Path:
    """A step "1" is continued rightly in 3 of 4 cases, a step "0" in none."""
    return write_json_lines(path, [{"prompt": f"{d}=", "completions": [first, "2"], "right": [k, k], "scored": [4, 4]}
                          for d in range(6) for first, k in (("1", 3), ("0", 0))])  # fmt: skip


@pytest.mark.parametrize("name", ["reward_model", "pointwise_reward_model"])
def test_a_reward_model_learns_goes_on_and_scores(name: str, tmp_path: Path):
    """Stopped and resumed to the last bit, head included; then the saved model prefers what it was taught."""
    taught = [("0", "2"), ("0", "3"), ("1", "2"), ("1", "3")]
    rows = [{"prompt": f"{d}=", "chosen": a, "rejected": b} for d in range(3) for a, b in taught]
    pairs = write_json_lines(tmp_path / "pairs.jsonl", rows)
    settings = {"algorithm": name, "prompts": 12 if name == "reward_model" else 24, "lr": 3e-2}
    with offline(tmp_path / "whole", pairs, steps=12, **settings) as whole:
        whole.run()
    for steps in (5, 12):
        with offline(tmp_path / "parts", pairs, steps=steps, **settings) as part:
            part.run()
    states = [
        checkpoint.load_checkpoint(tmp_path / run / "checkpoints" / "step-00000012.pt")
        for run in ("whole", "parts")
    ]
    assert differences(*states) == []
    assert states[0]["learner"]["parts"]["head"]["weight"].abs().max() > 0
    last = logged(tmp_path / "whole")[-1]
    if name == "reward_model":
        assert last["reward_preferred"] == pytest.approx(1.0)
    else:
        assert last["reward_wrong"] < 0 < last["reward_right"]
    model = RewardModel.load(tmp_path / "whole" / "model")
    prompts = [row["prompt"] for row in rows]
    right, wrong = (
        model.scores(prompts, [row[side] for row in rows]) for side in ("chosen", "rejected")
    )
    assert all(0 <= b < a <= 1 for a, b in zip(right, wrong, strict=True))
    assert model.scores(prompts[:1], ["0"]) == pytest.approx(
        right[:1], abs=1e-6
    )  # alone as in a batch
    assert model.scores([], []) == []
    a_part_of_a_reward(tmp_path / "whole" / "model", model)


def a_part_of_a_reward(folder: Path, model: RewardModel) -> None:
    """0.5 of the model's score on top of the verdict's 1 or 0, also through workers, which get no weights."""
    env = Bandit()
    with pytest.raises(
        UsageError, match=r"has no reward_head\.safetensors, so it is no reward model"
    ):
        LearnedReward(folder.parent)
    part = LearnedReward(folder)
    env = env.with_reward(env.reward + 0.5 * part)
    assert len(cloudpickle.dumps(env)) < 20_000
    assert part.version in str(part)
    other = Torchless()
    other = other.with_reward(other.reward + 0.5 * part)
    ways = ((env, "1=", 0, [True, True, False]), (other, "Say 1.", 1, [True, True, True]))
    for judged, prompt, workers, right in ways:
        rows = [{"task": 1, "completion": text} for text in ("0", "3", "9")]
        scores = [one.score for one in rlvr.score(judged, rows, workers=workers)]
        said = model.scores([prompt] * 3, ["0", "3", "9"])
        assert [one.parts["learned"] for one in scores] == pytest.approx(
            [value / 2 for value in said], abs=1e-6
        )
        assert [one.verdict.correct for one in scores] == right


def test_a_process_reward_model_learns_the_shares(tmp_path: Path):
    """¾ and 0, read after the first step."""
    with offline(
        tmp_path / "run",
        steps_file(tmp_path / "s.jsonl"),
        algorithm="process_reward_model",
        steps=40,
        prompts=12,
        lr=3e-2,
    ) as made:
        made.run()
    with pytest.raises(UsageError, match="process_reward_model and judges steps, not completions"):
        RewardModel.load(tmp_path / "run" / "model")
    with pytest.raises(UsageError, match="train one with --algorithm reward_model"):
        LearnedReward(tmp_path / "run" / "model")
    model = RewardModel.load(tmp_path / "run" / "model", reads="steps")
    assert model.step_scores("3=", ["1", "2"])[0] == pytest.approx(0.75, abs=0.1)
    assert model.step_scores("3=", ["0", "2"])[0] == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "p", "completions": []}, "completions is"),
        ({"prompt": "p", "completions": ["a"], "labels": [True, False]}, "a list of 1"),
        (
            {"prompt": "p", "completions": ["a"], "right": [3], "scored": [2]},
            "3 of int 2 continuations",
        ),
        (
            {"prompt": "p", "completions": ["a"], "right": [0], "scored": [0]},
            "no step with a label",
        ),
        ({"completions": ["a"], "labels": [True]}, "the prompt is"),
    ],
)
def test_steps_that_cannot_be_used_are_refused(row: dict, said: str, tmp_path: Path):
    """By row and rule."""
    with pytest.raises(DataError, match=said):
        read_steps(write_json_lines(tmp_path / "s.jsonl", [row]))


def test_labels_of_trl_are_one_continuation_each(tmp_path: Path):
    """Its columns have no counts."""
    [found] = read_steps(
        write_json_lines(
            tmp_path / "s.jsonl",
            [{"prompt": "p", "completions": ["a", "b"], "labels": [True, False]}],
        )
    )
    assert (found.right, found.scored) == ([1.0, 0.0], [1.0, 1.0])


def test_a_reward_model_is_no_policy(tmp_path: Path):
    """It needs a file, evaluates on nothing, and a policy is no reward model."""
    with pytest.raises(UsageError, match="trained on a file"):
        config(tmp_path / "run", algorithm="reward_model")
    with pytest.raises(UsageError, match="leave it out"):
        offline(
            tmp_path / "run",
            digits(tmp_path / "p.jsonl"),
            algorithm="reward_model",
            env="arithmetic-v1",
        )
    policy().save(tmp_path / "model")
    with pytest.raises(UsageError, match="is no reward model"):
        RewardModel.load(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())


# ----------------------------------------------------------------------------------------- in a run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reward model whose head is not 0."""
    made = learner("reward_model", tmp_path)
    made.policy.model.float()
    made.save(tmp_path / "rm")
    return tmp_path / "rm"


def test_what_the_model_cannot_read_has_the_least_value(folder: Path):
    """A policy gains nothing by length; a prompt that is too long is the task's fault, and no score at all."""
    model = RewardModel.load(folder)
    positions = model._positions
    texts = ["0", "1" * (positions - 3), "1" * (positions - 2), "1" * 2_000_000, "\ud800"]
    found = model.scores(["="] * 5, texts)
    assert [value > 0 for value in found] == [True, True, False, False, True]
    with pytest.raises(UsageError, match=f"reward model {positions} positions"):
        model.scores(["=" * positions], ["0"])
    with torch.no_grad():
        model._scorer.root.head.weight.fill_(math.nan)
    with pytest.raises(RewardError, match="gave nan"):
        model.scores(["="], ["0"])


def test_a_prompt_that_the_template_refuses_is_the_rows_fault(folder: Path):
    """Half of a surrogate pair is none: the rows beside it would be without a score too."""
    model = RewardModel.load(folder)
    model._tokenization.tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ m.content }}"
        "{% endfor %}"
    )
    assert all(
        0 < one < 1
        for one in model.scores(["=\ud800", [{"role": "user", "content": "1\udc00"}]], ["0", "1"])
    )
    with pytest.raises(UsageError, match="chat template refuses the row: TemplateError: no tools"):
        model.scores([[{"role": "tool", "content": "1"}]], ["0"])


def test_a_run_with_a_reward_model(folder: Path, tmp_path: Path):
    """Its part is in the rewards with weight and limits, in the forecast, and not in the evaluation."""
    settings = {
        "reward_model": str(folder),
        "reward_model_weight": 0.5,
        "reward_model_bounds": (0.0, 0.4),
    }
    with trainer(tmp_path / "run", steps=1, eval_every=0, eval_tasks=4, **settings) as run:
        run.run()
        assert run.source.env.reward.bounds == (0.0, 1.2)
        assert run.source.eval_env.reward.bounds == (0.0, 1.0)
        assert run.source.forecast.reward_model == sum(
            file.stat().st_size for file in folder.glob("*.safetensors")
        )
        assert "reward model" in str(run.source.forecast)
    row = logged(tmp_path / "run")[-1]
    assert 0 < row["reward/learned"] <= 0.5
    assert row["reward"] == pytest.approx(
        row["accuracy"] + row["reward/learned"] + row["reward/clip:0:0.4"]
    )
    with answering() as (
        url,
        state,
    ):  # the same model behind an address, so the run goes on with it
        state.version = LearnedReward(folder).version
        run_to_end(
            tmp_path / "run",
            steps=2,
            eval_every=0,
            eval_tasks=4,
            **settings | {"reward_model": url},
        )
    assert sum(state.asked) >= 16
    assert (
        logged(tmp_path / "run")[-1]["reward/learned"] == 0.0
    )  # it answers with the share of a letter


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"reward_model": "nowhere"}, r"nowhere has no reward_head\.safetensors"),
        ({"reward_model": "http://a:key@b"}, "has a key in it"),
        (
            {"reward_model_weight": 0},
            "reward_model_weight is 0; it must be a number above 0, or leave reward_model out",
        ),
        ({"reward_model_weight": -1}, "reward_model_weight is -1"),
        ({"reward_model_weight": math.inf}, "reward_model_weight is inf"),
        ({"reward_model_bounds": (0.5, 0.5)}, "the first must be below the second"),
        ({"reward_model_bounds": (-1, 1)}, r"reward_model_bounds\[0\] is -1"),
        ({"reward_model_bounds": (0, 1, 2)}, "must be two numbers"),
        ({"reward_model": "rm", "algorithm": "dpo"}, "it is of algorithms that learn from rewards"),
    ],
)
def test_a_reward_model_that_cannot_be_added_is_refused(settings: dict, said: str, tmp_path: Path):
    """Before anything is loaded."""
    with pytest.raises(UsageError, match=said):
        trainer(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_the_command_takes_a_reward_model(folder: Path, tmp_path: Path, say):
    """From a file or as flags; --dry-run shows the settings and a group's scores."""
    policy().save(tmp_path / "model")
    (tmp_path / "run.toml").write_text(
        f'reward_model = "{folder}"\nreward_model_bounds = [0, 0.4]\n'
    )
    flags = [
        "--env",
        "tests.train.bandit:Bandit",
        "--model",
        tmp_path / "model",
        "--run",
        tmp_path / "run",
    ]
    flags += "--algorithm grpo --steps 1 --prompts 2 --group-size 2 --max-tokens 4 --workers 0 --eval-tasks 4".split()
    flags += ["--config", tmp_path / "run.toml", "--reward-model-weight", "0.25", "--device", "cpu"]
    code, said = say("train", *flags, "--dry-run")
    assert code == 0, said
    assert re.search(r"reward_model_weight\s+│?\s*0\.25\s+│?\s*flag", said)
    assert re.search(r"reward_model_bounds\s+│?\s*0\.0 0\.4\s+│?\s*run\.toml", said)
    assert not (tmp_path / "run").exists()
    with answering() as (url, state):
        code, said = say("train", *flags, "--reward-model", url)
        assert code == 0, said
        assert sum(state.asked) == 4
    code, said = say(
        "train", *flags, "--run", tmp_path / "other", "--reward-model", "http://127.0.0.1:1"
    )
    assert code != 0
    assert "rlvr serve --reward-model" in said


@pytest.mark.slow
def test_the_served_model_is_the_one_in_the_folder(folder: Path):
    """The command, over a socket: the same version, and the same numbers to the last digit."""
    texts = ["0", "11", "", "2a", "9" * 5000]
    with served("--reward-model", str(folder), "--device", "cpu", place="arithmetic-v1") as (
        _,
        port,
    ):
        there, here = ServedReward(f"http://127.0.0.1:{port}"), LearnedReward(folder)
        assert there.version == here.version
        said = [
            part.values([rlvr.Completion(text) for text in texts], [], rlvr.Task("t", "7=", "r"))
            for part in (there, here)
        ]
    assert said[0] == said[1]
    assert said[0][-1] == 0.0
