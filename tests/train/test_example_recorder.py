"""Steps of pairs, labels, right completions and reward models in files: the judge recomputes them."""

import json

import numpy as np
import pytest

from rlvr.algo.judge.verify import verify
from rlvr.algo.papers import load_algorithm
from rlvr.data.step_files import StepFile, read_step
from tests.train.bandit import run_to_end
from tests.train.test_preferences import digits, offline
from tests.train.test_reward_model import steps_file

SAMPLED = {
    "dpo": {},
    "dpo, conservative": {"smoothing": 0.1},
    "dpo, robust": {"smoothing": 0.1, "reading": "robust", "sft_weight": 0.5},
    "ipo": {"length": "mean"},
    "slic": {},
    "kto": {"right_weight": 1.5},
    "rft": {},
}
OF_FILES = ("sft", "dpo", "reward_model", "pointwise_reward_model", "process_reward_model")


def of_sampled(folder, case: str):
    algorithm = load_algorithm(case.partition(",")[0], **SAMPLED[case])
    settings = {"prompts": 16, "group_size": 4, "steps": 2, "step_files": 1, "updates": 2}
    run_to_end(folder, algorithm=algorithm, **settings)
    return sorted((folder / "steps").iterdir())


def of_file(folder, name: str):
    make = steps_file if name == "process_reward_model" else digits
    settings = {"algorithm": name, "steps": 3, "step_files": 2, "verify_every": 1, "lr": 1e-2}
    with offline(folder / "run", make(folder / "rows.jsonl"), **settings) as made:
        made.run()
    files = sorted((folder / "run" / "steps").iterdir())
    assert [file.name[:13] for file in files] == ["step-00000001", "step-00000003"]
    rows = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert not [key for row in rows for key in json.loads(row) if key.startswith("departs/")]
    return files


def assert_verified(file) -> StepFile:
    step = read_step(file)
    findings = verify(step)
    assert [str(one) for one in findings if one.status != "equal"] == []
    said = {one.quantity.partition(": ")[2] for one in findings}
    assert "loss" in said
    assert said & {"weights", "output weights"}
    return step


@pytest.mark.slow
@pytest.mark.parametrize("case", SAMPLED)
def test_steps_of_sampled_examples_verify(case: str, tmp_path):
    """Both updates: the loss, and the weight of each token."""
    for file in of_sampled(tmp_path / "run", case):
        step = assert_verified(file)
        assert np.abs(step.arrays["update0.weights"]).max() > 0


@pytest.mark.parametrize("name", OF_FILES)
def test_steps_of_files_verify(name: str, tmp_path):
    """Of heads the weight of each output; a run that checks itself says nothing."""
    for file in of_file(tmp_path, name):
        assert_verified(file)


def test_a_departure_of_a_pair_is_named(tmp_path):
    """A token's weight, a loss, or an output's weight that is a hundredth too large; a pair without its second row."""
    file, *_ = of_file(tmp_path, "dpo")
    step = read_step(file)
    weights = step.arrays["update0.weights"] * np.float32(1.01)
    [found] = [
        one
        for one in verify(StepFile(step.head, {**step.arrays, "update0.weights": weights}))
        if one.status == "departs"
    ]
    assert found.quantity == "update 0: weights"
    assert found.ratio == pytest.approx(1.01, rel=1e-4)
    group = np.arange(len(step.arrays["group"]), dtype=np.int32)
    [found] = verify(StepFile(step.head, {**step.arrays, "group": group}))
    assert found.why.startswith("the file has no two rows of each pair")


def test_an_example_that_comes_twice_in_a_step_verifies_twice(tmp_path):
    """A step may have the end of one pass over the file and the beginning of the next."""
    settings = {"prompts": 16, "steps": 2, "step_files": 1, "updates": 1, "lr": 1e-2}
    with offline(tmp_path / "run", digits(tmp_path / "rows.jsonl"), **settings) as made:
        assert len(made.source.examples.rows) < settings["prompts"]
        made.run()
    for file in sorted((tmp_path / "run" / "steps").iterdir()):
        assert_verified(file)
