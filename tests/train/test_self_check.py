"""A run judges its own steps, and computes an update again in another layout."""

import json
import math

import pytest
import torch

import rlvr.algo.objectives
from rlvr.algo.papers import load_algorithm
from rlvr.data.step_files import read_step
from rlvr.train.gradient_sketch import weights_digest
from rlvr.train.policy import Policy
from tests.train.bandit import run_to_end, trainer

SETTINGS = {"prompts": 5, "group_size": 4, "steps": 3}


def metrics(run) -> list[dict]:
    text = (run / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def departing(run) -> dict[int, set[str]]:
    """Of each step, the quantities that depart."""
    rows = {row["step"]: {k for k in row if k.startswith("departs/")} for row in metrics(run)}
    return {step: names for step, names in rows.items() if names}


@pytest.mark.parametrize("numbers", [{}, {"entropy": 0.01, "correction": "token:truncate:2"}])
def test_a_run_that_is_right_says_nothing_and_learns_the_same(tmp_path, numbers):
    """Checked at each step or never, the weights are the same bits."""
    digests = []
    for every in (1, 0):
        run = tmp_path / str(every)
        algorithm = load_algorithm("grpo", **numbers)
        with trainer(run, algorithm=algorithm, verify_every=every, **SETTINGS) as made:
            made.run()
            digests.append(weights_digest(made.policy.model))
        assert departing(run) == {}
        assert not (run / "steps").exists()
    assert digests[0] == digests[1]


def test_a_wrong_loss_is_an_alarm_that_names_it(tmp_path, monkeypatch, capsys):
    """A loss that is a hundredth too large, at the step at which it is looked for; its file says where."""
    right = rlvr.algo.objectives.clipped

    def wrong(*args, **more):
        made = right(*args, **more)
        return made._replace(losses=made.losses * 1.01)

    monkeypatch.setattr(rlvr.algo.objectives, "clipped", wrong)
    run_to_end(tmp_path / "run", verify_every=2, quietly=False, **SETTINGS)
    assert departing(tmp_path / "run") == {2: {"departs/update 0: weights"}}
    said = " ".join(capsys.readouterr().err.split())
    assert "alarm: this step is not what its algorithm says: update 0: weights" in said
    [file] = (tmp_path / "run" / "steps").iterdir()
    assert read_step(file).head["step"] == 2


@pytest.mark.parametrize(("is_other", "factor"), [(False, 1.05), (True, math.nan)])
def test_a_layout_that_matters_is_an_alarm(tmp_path, monkeypatch, is_other, factor):
    """Log-probabilities that are off where rows share a micro-batch: the judge cannot see that, the layout can."""
    right = Policy.logprobs

    def wrong(self, rows, *args, **more):
        made = right(self, rows, *args, **more)
        if (self.max_tokens < 16384) != is_other or not torch.is_grad_enabled():
            return made
        # The other layout asks for entropies, too.
        return [made[0] * factor, *made[1:]] if is_other else made * factor

    monkeypatch.setattr(Policy, "logprobs", wrong)
    run_to_end(tmp_path / "run", verify_every=1, **(SETTINGS | {"steps": 1}))
    assert departing(tmp_path / "run") == {1: {"departs/log-probabilities", "departs/gradient"}}
