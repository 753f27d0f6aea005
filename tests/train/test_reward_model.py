"""Reward models: losses by hand, batching, what is learnt, and where a run goes on."""

import json
import math
from pathlib import Path

import cloudpickle
import pytest
import torch

import rlvr
from rlvr.data.pairs import read_steps
from rlvr.errors import DataError, UsageError
from rlvr.train import checkpoint
from rlvr.train.learned_reward import LearnedReward
from rlvr.train.policy import Policy
from rlvr.train.preferences import Example, Examples, TrainedRow
from rlvr.train.reward_model import RewardLearner, RewardModel
from rlvr.train.tiny import tiny
from tests.environments import Torchless
from tests.train.bandit import CHARSET, Bandit, policy
from tests.train.test_preferences import config, digits, offline, written
from tests.train.test_resume import differences, logged


def learner(name: str, tmp_path: Path, **options) -> RewardLearner:
    """In float64 but for the head, which is not 0."""
    made = Policy(*tiny(CHARSET, hidden=16, heads=2, layers=1, dtype=torch.float64), **options)
    found = RewardLearner(made, config(tmp_path, env="", algorithm=name, pairs=tmp_path / "p"))
    with torch.no_grad():
        found._module.head.weight.copy_(torch.linspace(-1, 1, 16)[None])
        found._module.head.bias.fill_(0.2)
    return found


def by_hand(made: RewardLearner, row: TrainedRow, at: int) -> float:
    """The head on the last hidden state of the row's first `at` completion tokens alone."""
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids[:at]]])
    state = made.policy.model.base_model(input_ids=ids).last_hidden_state[0, -1].float()
    return float(made._module.head(state).detach())


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
GIVEN = {"reward_model": PAIRS, "process_reward_model": STEPS}


def gradient(made: RewardLearner, given: Examples) -> tuple[torch.Tensor, dict[str, float]]:
    made.optimizer.zero_grad()
    numbers, _ = made.backward(given, made.rows_with_gradient(given))
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
@pytest.mark.parametrize("options", [{"max_tokens": 6, "overhead_tokens": 0}, {"packing": True, "max_tokens": 12}])
def test_the_gradient_does_not_depend_on_batching(name: str, options: dict, tmp_path: Path):
    """To 1e-6, head and layers alike."""
    (a, numbers), (b, others) = (
        gradient(made, GIVEN[name]) for made in (learner(name, tmp_path), learner(name, tmp_path, **options))
    )
    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    assert numbers == pytest.approx(others, abs=1e-6)


def steps_file(path: Path) -> Path:
    """A step "1" is continued rightly in 3 of 4 cases, a step "0" in none."""
    return written(path, [{"prompt": f"{d}=", "completions": [first, "2"], "right": [k, k], "scored": [4, 4]}
                          for d in range(6) for first, k in (("1", 3), ("0", 0))])  # fmt: skip


def test_a_reward_model_learns_goes_on_and_scores(tmp_path: Path):
    """Stopped and resumed to the last bit, head included; then the saved model prefers what it was taught."""
    taught = [("0", "2"), ("0", "3"), ("1", "2"), ("1", "3")]
    rows = [{"prompt": f"{d}=", "chosen": a, "rejected": b} for d in range(3) for a, b in taught]
    pairs = written(tmp_path / "pairs.jsonl", rows)
    settings = {"algorithm": "reward_model", "prompts": 12, "lr": 3e-2}
    with offline(tmp_path / "whole", pairs, steps=12, **settings) as whole:
        whole.run()
    for steps in (5, 12):
        with offline(tmp_path / "parts", pairs, steps=steps, **settings) as part:
            part.run()
    states = [checkpoint.load(tmp_path / run / "checkpoints" / "step-00000012.pt") for run in ("whole", "parts")]
    assert differences(*states) == []
    assert states[0]["learner"]["head"]["weight"].abs().max() > 0
    assert logged(tmp_path / "whole")[-1]["reward_preferred"] == pytest.approx(1.0)
    model = RewardModel.load(tmp_path / "whole" / "model")
    prompts = [row["prompt"] for row in rows]
    right, wrong = (model.scores(prompts, [row[side] for row in rows]) for side in ("chosen", "rejected"))
    assert all(0 <= b < a <= 1 for a, b in zip(right, wrong, strict=True))
    assert model.scores(prompts[:1], ["0"]) == pytest.approx(right[:1], abs=1e-6)  # alone as in a batch
    assert model.scores([], []) == []
    a_part_of_a_reward(tmp_path / "whole" / "model", model)


def a_part_of_a_reward(folder: Path, model: RewardModel) -> None:
    """0.5 of the model's score on top of the verdict's 1 or 0, also through workers, which get no weights."""
    env = Bandit()
    with pytest.raises(UsageError, match=r"has no reward_head\.safetensors, so it is no reward model"):
        LearnedReward(folder.parent)
    part = LearnedReward(folder)
    env = env.with_reward(env.reward + 0.5 * part)
    assert len(cloudpickle.dumps(env)) < 20_000
    assert part.version in str(part)
    other = Torchless()
    other = other.with_reward(other.reward + 0.5 * part)
    ways = ((env, "1=", 0, [True, True, False]), (other, "Say 1.", 1, [True, True, True]))
    for judged, prompt, workers, right in ways:
        rows = [{"task": 1, "completion": text} for text in ("0", "1", "9")]
        scores = [one.score for one in rlvr.score(judged, rows, workers=workers)]
        said = model.scores([prompt] * 3, ["0", "1", "9"])
        assert [one.parts["learned"] for one in scores] == pytest.approx([value / 2 for value in said], abs=1e-6)
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
    model = RewardModel.load(tmp_path / "run" / "model")
    assert model.step_scores("3=", ["1", "2"])[0] == pytest.approx(0.75, abs=0.1)
    assert model.step_scores("3=", ["0", "2"])[0] == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "p", "completions": []}, "completions is"),
        ({"prompt": "p", "completions": ["a"], "labels": [True, False]}, "a list of 1"),
        ({"prompt": "p", "completions": ["a"], "right": [3], "scored": [2]}, "3 of int 2 continuations"),
        ({"prompt": "p", "completions": ["a"], "right": [0], "scored": [0]}, "no step with a label"),
        ({"completions": ["a"], "labels": [True]}, "the prompt is"),
    ],
)
def test_steps_that_cannot_be_used_are_refused(row: dict, said: str, tmp_path: Path):
    """By row and rule."""
    with pytest.raises(DataError, match=said):
        read_steps(written(tmp_path / "s.jsonl", [row]))


def test_labels_of_trl_are_one_continuation_each(tmp_path: Path):
    """Its columns have no counts."""
    [found] = read_steps(
        written(tmp_path / "s.jsonl", [{"prompt": "p", "completions": ["a", "b"], "labels": [True, False]}])
    )
    assert (found.right, found.scored) == ([1.0, 0.0], [1.0, 1.0])


def test_a_reward_model_is_no_policy(tmp_path: Path):
    """It needs a file, evaluates on nothing, and a policy is no reward model."""
    with pytest.raises(UsageError, match="trained on a file"):
        config(tmp_path / "run", algorithm="reward_model")
    with pytest.raises(UsageError, match="leave it out"):
        offline(tmp_path / "run", digits(tmp_path / "p.jsonl"), algorithm="reward_model", env="arithmetic-v1")
    policy().save(tmp_path / "model")
    with pytest.raises(UsageError, match="is no reward model"):
        RewardModel.load(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())
