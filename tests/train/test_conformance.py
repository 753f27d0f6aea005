"""Algorithms keep what the trainer promises, and what breaks a promise is found by name."""

from dataclasses import dataclass

import pytest

from rlvr.algo.advantages import group_advantages
from rlvr.algo.objectives import Losses, clipped
from rlvr.algo.papers import NAMES, algorithm_class, load_algorithm
from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.errors import UsageError
from rlvr.train.conformance import conforms
from tests.commands import refusal_of

ADVANTAGES = {
    name: (kind.__base__, kind.reads)
    for name in NAMES
    if not (kind := algorithm_class(name)).examples
}
FIRST = {kind: name for name, kind in reversed(ADVANTAGES.items())}
"""Further algorithms that have the same base and read the same arrays are slow, and so are two of three others."""


def faults(algorithm) -> dict[str, str]:
    return {one.rule: one.fault for one in conforms(algorithm) if one.fault}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[pytest.mark.slow] * (name != FIRST[kind] or list(FIRST).index(kind) % 3 > 0),
        )
        for name, kind in ADVANTAGES.items()
    ],
)
def test_ours_conform(name: str):
    """All rules, at the paper's numbers."""
    assert faults(load_algorithm(name)) == {}


@dataclass(frozen=True, kw_only=True)
class Plain(Proximal):
    """What the broken ones below have in common.

    Attributes:
        low: of the clip.
    """

    low: float = 0.2

    def advantages(self, groups: Inputs):
        return group_advantages(groups.scores, groups.scored)

    def loss(self, inputs: Inputs) -> Losses:
        return clipped(*inputs.usual, low=self.low, high=0.2)


class OfOthers(Plain):
    def loss(self, inputs):
        losses = super().loss(inputs).losses
        return losses * losses.detach().mean()


class OfMasked(Plain):
    def loss(self, inputs):
        whole = (inputs.old_logprobs - inputs.logprobs).sum(1, keepdim=True)
        return super().loss(inputs).losses + whole


class Pulls(Plain):
    def loss(self, inputs):
        return super().loss(inputs).losses + inputs.log_ratio.square()


class OfAll(Plain):
    def advantages(self, groups):
        return (groups.scores - groups.scores.mean(1, keepdim=True)) * groups.scored


class Explodes(Plain):
    def loss(self, inputs):
        return -inputs.advantages * inputs.ratio.float().pow(20).to(inputs.ratio.dtype)


class Idle(Plain):
    def loss(self, inputs):
        return clipped(*inputs.usual, low=0.2, high=0.2)


class Remembers(Plain):
    calls = [0]  # noqa: RUF012  a state where none belongs

    def loss(self, inputs):
        self.calls[0] += 1
        return super().loss(inputs).losses * self.calls[0]


@pytest.mark.parametrize(
    ("kind", "rule", "why"),
    [
        (OfOthers, "in one micro-batch, in many", "a row's loss may depend on that row"),
        (OfMasked, "masked tokens", "leave out what `inputs.mask` leaves out"),
        (Pulls, "advantages of 0", "set `regularised = True` in the class"),
        (OfAll, "UNSCORED", "give every mean and std `groups.scored`"),
        (Explodes, "finite at log ratios", "kept in ± 20"),
        (Idle, "every field", "nothing depends on low"),
        (Remembers, "resumed", "keep nothing in the class"),
    ],
)
def test_a_broken_promise_is_named(kind, rule: str, why: str):
    """With the way out."""
    found = {one: fault for one, fault in faults(kind()).items() if rule in one}
    assert len(found) == 1
    assert why in next(iter(found.values()))


class Raises(Plain):
    def loss(self, inputs):
        return inputs.logprobs @ inputs.logprobs


class Narrow(Plain):
    def loss(self, inputs):
        return super().loss(inputs).losses.sum(1)


class Detached(Plain):
    def loss(self, inputs):
        return super().loss(inputs).losses.detach()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (Raises(), "Raises raises RuntimeError: "),
        (Narrow(), r"the loss of Narrow is \[\d+\]; it must have one number per token"),
        (Detached(), "the loss of Detached has no gradient"),
        (load_algorithm("dpo"), "dpo learns from pairs; --check tries algorithms with advantages"),
    ],
)
def test_what_cannot_be_tried_is_one_line(made, why: str):
    """An error of the algorithm's own code too."""
    with pytest.raises(UsageError, match=why):
        conforms(made)


def test_the_command_says_which_rules_hold(say, tmp_path, monkeypatch):
    """And ends with 1 if one does not.  Two ranks are tried in tests/ranks: each imports torch."""
    monkeypatch.setattr("rlvr.train.conformance._said_by_ranks", lambda places, algorithm: "0.0")
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from rlvr.algo.papers.grpo import GRPO\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(GRPO):\n"
        "    name = 'mine'\n"
        "    unused: float = 0.5\n"
    )
    code, said = say("algorithms", f"{file}:Mine", "--check")
    assert code == 1
    assert "holds  masked tokens change nothing" in said
    assert "holds  the gradient is the same on two ranks" in said
    assert "nothing depends on unused; drop what is not read" in said
    assert "give its name" in refusal_of(*say("algorithms", "--check"))
