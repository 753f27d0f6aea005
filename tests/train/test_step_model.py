"""Recorded steps beside their models: log-probabilities and gradients, in another layout and precision."""

import shutil

import numpy as np
import pytest

from rlvr.algo.papers import load_algorithm
from rlvr.cli.entry import main
from rlvr.data.step_files import StepFile, read_step, write_step
from rlvr.errors import DataError
from rlvr.train.step_model import StepModel, verify_with_models
from tests.train.bandit import policy, run_to_end


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two steps of GRPO with entropy bonus, and the folder of the model that it began with."""
    folder = tmp_path_factory.mktemp("run")
    first = policy()
    first.save(folder / "first")
    algorithm = {"correction": "token:truncate:2", "entropy": 0.01}
    settings = {"prompts": 2, "group_size": 4, "steps": 2, "step_files": 1, "grad_clip": 0.05}
    run_to_end(
        folder / "run", made=first, algorithm=load_algorithm("grpo", **algorithm), **settings
    )
    return folder


@pytest.fixture
def step(run):
    return read_step(run / "run" / "steps" / "step-00000001.safetensors")


@pytest.fixture
def models(run):
    model = StepModel.load(run / "first")
    return {"model": model, "reference": model}


def test_log_probabilities_and_gradient_are_those_of_the_model(step, models):
    """Also where the gradient was clipped."""
    findings = verify_with_models(step, **models)
    assert [str(one) for one in findings] == [
        "weights: equal",
        "old_logprobs: equal",
        "update 0: logprobs: equal",
        "update 0: gradient: equal",
        "ref_logprobs: equal",
    ]
    assert step.updates[0]["gradient_scale"] < 1


@pytest.mark.parametrize("name", ["old_logprobs", "ref_logprobs", "update0.logprobs"])
def test_a_log_probability_that_is_off_is_named(step, models, name):
    """By a thousandth, at one token."""
    values = step.arrays[name].copy()
    at = int(np.flatnonzero(step.arrays["mask"])[-1])
    values[-1 if name == "update0.logprobs" else at] += 1e-3
    findings = verify_with_models(StepFile(step.head, {**step.arrays, name: values}), **models)
    [departure] = [one for one in findings if one.status == "departs"]
    assert departure.quantity == name.replace("update0.", "update 0: ")
    assert departure.recorded - departure.recomputed == pytest.approx(1e-3, rel=0.1)
    assert departure.tolerance < 1e-4


def test_another_temperature_explains_log_probabilities(step, models):
    """A trainer that divides no logits, though its sampler did; one that declares it has no departure."""
    hot = {**step.head, "temperature": 0.7}
    findings = verify_with_models(StepFile(hot, step.arrays), **models)
    off = [one for one in findings if one.status == "departs" and "logprobs" in one.quantity]
    says = "log-probabilities are at temperature 1"
    assert {one.explained for one in off} == {(says,)}
    declared = {**hot, "conventions": {"temperature": "one"}}
    findings = verify_with_models(StepFile(declared, step.arrays), **models)
    assert {one.status for one in findings} == {"equal"}


def test_a_gradient_that_is_off_is_named(step, models):
    """By a hundredth, with the ratio of norms."""
    sketch = step.arrays["update0.sketch"] * 1.01
    file = StepFile(step.head, {**step.arrays, "update0.sketch": sketch})
    [departure] = [
        one for one in verify_with_models(file, models["model"]) if one.status == "departs"
    ]
    assert departure.quantity == "update 0: gradient"
    assert departure.ratio == pytest.approx(1.01, abs=1e-4)
    assert departure.cosine == pytest.approx(1, abs=1e-6)


def test_another_model_is_refused_in_one_line(run, step):
    """The one after the step, by name; any other, with both digests."""
    later = read_step(run / "run" / "steps" / "step-00000002.safetensors")
    model = StepModel.load(run / "first")
    with pytest.raises(DataError, match="not the one before this step"):
        verify_with_models(later, model)
    after = StepFile(
        {**step.head, "weights_before": "words:", "weights_after": model.digest}, step.arrays
    )
    with pytest.raises(DataError, match="has the weights after this step"):
        verify_with_models(after, model)
    ranks = {key: value for key, value in step.head.items() if key != "weights_before"}
    findings = verify_with_models(StepFile(ranks, step.arrays), model)
    assert findings[0].why.startswith("the file has no digest")
    assert {one.status for one in findings[1:]} == {"equal"}


def test_a_digest_of_an_earlier_release_is_not_compared(step, models):
    """It is of other bytes, so that it says nothing of the model; all else is verified."""
    earlier = StepFile(
        {**step.head, "weights_before": "0786a0289c058d8f0bf5757985dfedf1"}, step.arrays
    )
    weights, *others = verify_with_models(earlier, models["model"])
    assert (weights.status, weights.why) == (
        "not compared",
        "the file has the digest of an earlier release",
    )
    assert {one.status for one in others} == {"equal"}


def test_a_file_without_prompts_is_refused(step, models):
    arrays = {key: array for key, array in step.arrays.items() if not key.startswith("prompt")}
    with pytest.raises(DataError, match="no prompt_ids"):
        verify_with_models(StepFile(step.head, arrays), models["model"])


def test_the_command_takes_the_folder(run, tmp_path, capsys):
    """Quantities of the file first, then those of the model."""
    file = tmp_path / "step.safetensors"
    shutil.copy(run / "run" / "steps" / "step-00000001.safetensors", file)
    assert main(["step", "verify", str(file), "--model", str(run / "first")]) == 0
    said = capsys.readouterr().out
    assert "update 0: weights: equal" in said
    assert "update 0: gradient: equal" in said
    step = read_step(file)
    write_step(
        file,
        StepFile(
            step.head,
            {**step.arrays, "old_logprobs": step.arrays["old_logprobs"] - np.float32(0.01)},
        ),
    )
    assert main(["step", "verify", str(file), "--model", str(run / "first")]) == 1
    assert "old_logprobs: departs" in capsys.readouterr().out
    assert main(["step", "show", str(file), "--model", str(run / "first")]) == 2
