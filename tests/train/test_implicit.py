"""The implicit reward model of PRIME: what it gives, what it learns, and that both are of whole updates."""

from math import exp, log

import pytest
import torch

from rlvr.algo.papers import load_algorithm
from rlvr.train.credit import collate
from rlvr.train.implicit import ImplicitRewards
from rlvr.train.metrics import read_metrics
from rlvr.types import Group, Task
from tests.train.bandit import Bandit, policy, run_to_end
from tests.train.test_learner import learner, own_folder, rollout  # noqa: F401  `own_folder` is used by all

BETA = 0.5
TOTALS = [1.0, 0.0, 0.25, None, 1.0]


def batch():
    rows = [
        rollout([1, 5], [4 + i, 6, 7 + i][: 1 + i % 3], total=total)
        for i, total in enumerate(TOTALS)
    ]
    return collate([Group(Task("t", "?"), rows)])


def made(**options):
    algorithm = load_algorithm("prime", implicit_beta=BETA)
    found = learner(algorithm, group_size=5, **options)
    part = found.part(ImplicitRewards)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # so that its rewards are not 0, with which it begins
        for p in part.parameters:
            p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype), alpha=0.1)
    return found, part


def plain(part, prepared) -> float:
    """The mean over completions of the cross-entropy of σ(β Σ log π_φ / π_ref) with the credit."""
    logprobs = part.learner.logprobs(prepared.rows, part.model).tolist()
    found = []
    for i, row in enumerate(prepared.rows):
        trained = [t for t, is_on in enumerate(row.completion_mask) if is_on]
        if not trained:
            continue
        r = BETA * sum(logprobs[i][t] - prepared.ref_logprobs[i, t].item() for t in trained)
        p, o = 1 / (1 + exp(-r)), prepared.outcomes[i].item()
        found.append(-o * log(p) - (1 - o) * log(1 - p))
    return sum(found) / len(found)


def test_it_begins_without_an_opinion():
    """As the policy, so that the first batch has the outcomes alone to learn from."""
    found = learner(load_algorithm("prime"), group_size=5)
    assert found.prepared(batch()).implicit_rewards.abs().max() == 0


@pytest.mark.parametrize("max_tokens", [16384, 6])
def test_its_loss_and_gradient_are_those_of_a_plain_loop(max_tokens):
    """In one micro-batch and in many: a step against it lowers the loop by its squared norm, to first order."""
    found, part = made(made=policy(max_tokens=max_tokens))
    prepared = found.prepared(batch())
    before = plain(part, prepared)
    part.clip_gradient = lambda: 0.0
    numbers = part.backward(prepared)
    assert numbers["implicit_loss"] == pytest.approx(before, rel=1e-5)
    squared = sum(float(p.grad.square().sum()) for p in part.parameters)
    step = 1e-3 / squared
    with torch.no_grad():
        for p in part.parameters:
            p.sub_(p.grad, alpha=step)
    assert before - plain(part, prepared) == pytest.approx(1e-3, rel=0.05)


def test_it_learns_what_the_verifier_says(tmp_path):
    """Its loss falls from log 2, and the policy is right twice as often as by chance, 5 in 17."""
    run_to_end(
        tmp_path / "run",
        env=Bandit(),
        algorithm="prime",
        overlong="keep",
        steps=10,
        prompts=16,
        lr=1e-2,
    )
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "reward" in row]
    assert rows[-1]["implicit_loss"] < rows[0]["implicit_loss"] == pytest.approx(log(2), rel=1e-5)
    assert rows[-1]["reward"] > 10 / 17 > rows[0]["reward"]
