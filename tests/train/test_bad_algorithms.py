"""Files of algorithms that a run cannot train on: one line, and the weights stay as they were."""

import pytest
import torch

from rlvr.errors import RlvrError
from tests.train.bandit import trainer

ALGORITHMS = """
from dataclasses import dataclass

from rlvr.algo.advantages import group_advantages
from rlvr.algo.papers.base import PolicyGradient


@dataclass(frozen=True, kw_only=True)
class Plain(PolicyGradient):
    def advantages(self, groups):
        return group_advantages(groups.scores, groups.scored)

    def loss(self, inputs):
        return -inputs.advantages * inputs.logprobs


class Narrow(Plain):
    def loss(self, inputs):
        return super().loss(inputs).sum(1)


class Number(Plain):
    def loss(self, inputs):
        return 0.5


class Detached(Plain):
    def loss(self, inputs):
        return super().loss(inputs).detach()


class Nan(Plain):
    def loss(self, inputs):
        return super().loss(inputs) * float("nan")


class Undeclared(Plain):
    def loss(self, inputs):
        return inputs.ref_logprobs
"""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Narrow", r"the loss of .*:Narrow is \[\d+\]; it must have one number per token, \[\d+, 4\]"),
        ("Number", "the loss of .*:Number is float; it must have one number per token"),
        ("Detached", "the loss of .*:Detached has no gradient; compute it from inputs.logprobs"),
        ("Nan", "1 losses or gradients in a row were not finite.*mine.py:Nan --check"),
        ("Undeclared", ":Undeclared reads inputs.ref_logprobs without declaring it"),
    ],
)  # fmt: skip
def test_a_loss_that_cannot_train_ends_the_run_with_a_line(tmp_path, name, why):
    (tmp_path / "mine.py").write_text(ALGORITHMS)
    settings = {"algorithm": f"{tmp_path / 'mine.py'}:{name}", "steps": 3, "bad_steps": 1}
    with trainer(tmp_path / "run", **settings) as made:
        before = [p.detach().clone() for p in made.learner.parameters]
        with pytest.raises(RlvrError, match=why) as error:
            made.run()
        assert all(map(torch.equal, before, made.learner.parameters))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / "model").exists()
