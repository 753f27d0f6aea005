"""Papers against row-by-row loops in float64: the formula as printed, with no tensor in it."""

import numpy as np
import pytest
import torch

from rlvr.algo import aggregation
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Inputs
from rlvr.algo.ratios import log_ratio

G, T = 4, 6
LENGTHS = [3, 6, 1, 5, 4, 2, 6, 3]
SCORES = [1.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.25, 0.5]
DRAW = np.random.default_rng(3)
OLD = -DRAW.uniform(0.1, 2.0, (8, T))
NEW = OLD + 0.6 * DRAW.standard_normal((8, T))


def mean_of(group, of):
    return sum(of[i] for i in group) / len(group)


GROUPS = [range(G), range(G, 2 * G)]


def grpo_advantages():
    found = [0.0] * 8
    for group in GROUPS:
        mean = mean_of(group, SCORES)
        std = (sum((SCORES[i] - mean) ** 2 for i in group) / G) ** 0.5
        for i in group:
            found[i] = (SCORES[i] - mean) / (std + 1e-6)
    return found


def tokens():
    return [(i, t) for i in range(8) for t in range(LENGTHS[i])]


def clipped(ratio, advantage, low, high):
    return min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


def ratio(i, t):
    return np.exp(NEW[i, t] - OLD[i, t])


def by_completion(value):
    """Mean over completions of the mean over their tokens."""
    return -sum(sum(value(i, t) for t in range(LENGTHS[i])) / LENGTHS[i] for i in range(8)) / 8


def by_token(value):
    """Mean over all tokens."""
    return -sum(value(i, t) for i, t in tokens()) / sum(LENGTHS)


def grpo():
    A = grpo_advantages()
    return by_completion(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.2))


def dapo():
    A = grpo_advantages()
    return by_token(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.28))


def dr_grpo():
    A = [SCORES[i] - mean_of(GROUPS[i // G], SCORES) for i in range(8)]
    return -sum(clipped(ratio(i, t), A[i], 0.2, 0.2) for i, t in tokens()) / (8 * T)


def rloo():
    A = [SCORES[i] - sum(SCORES[j] for j in GROUPS[i // G] if j != i) / (G - 1) for i in range(8)]
    return -sum(A[i] * NEW[i, t] for i, t in tokens()) / 8


def gspo():
    A, loss = grpo_advantages(), 0.0
    for i in range(8):
        s = np.exp(sum(NEW[i, t] - OLD[i, t] for t in range(LENGTHS[i])) / LENGTHS[i])
        loss -= clipped(s, A[i], 3e-4, 4e-4) / 8
    return loss


def ppo_completions():
    A, loss = grpo_advantages(), 0.0
    for i in range(8):
        s = np.exp(sum(NEW[i, t] - OLD[i, t] for t in range(LENGTHS[i])))
        loss -= clipped(s, A[i], 0.2, 0.2) / 8
    return loss


def sapo():
    def gate(i, t):
        tau = 1.0 if A[i] > 0 else 1.05
        return 4 / tau / (1 + np.exp(-tau * (ratio(i, t) - 1))) * A[i]

    A = grpo_advantages()
    return by_completion(gate)


def cispo():
    A = grpo_advantages()
    return by_token(lambda i, t: min(ratio(i, t), 5.0) * A[i] * NEW[i, t])


def gmpo():
    A, loss = grpo_advantages(), 0.0
    for i in range(8):
        product = 1.0
        sign = 1 if A[i] > 0 else -1
        for t in range(LENGTHS[i]):
            r = ratio(i, t)
            product *= min(r**sign, min(max(r, np.exp(-0.4)), np.exp(0.4)) ** sign) ** sign
        loss -= product ** (1 / LENGTHS[i]) * A[i] / 8
    return loss


def opo():
    A = [0.0] * 8
    for group in GROUPS:
        b = sum(LENGTHS[i] * SCORES[i] for i in group) / sum(LENGTHS[i] for i in group)
        for i in group:
            A[i] = SCORES[i] - b
    return by_token(lambda i, t: A[i] * NEW[i, t])


def kl_cov():
    A = grpo_advantages()
    places = tokens()
    mean_p = sum(NEW[i, t] for i, t in places) / len(places)
    mean_a = sum(A[i] for i, _ in places) / len(places)
    cov = {(i, t): (NEW[i, t] - mean_p) * (A[i] - mean_a) for i, t in places}
    held = sorted(places, key=lambda one: cov[one])[-6:]  # a fifth of 30 tokens

    def value(i, t):
        penalty = 0.7 * abs(NEW[i, t] - OLD[i, t]) if (i, t) in held else 0.0
        return ratio(i, t) * A[i] - penalty

    return by_token(value)


def raft_pp():
    best = [SCORES[i] == max(SCORES[j] for j in GROUPS[i // G]) for i in range(8)]
    return by_completion(lambda i, t: clipped(ratio(i, t), 1.0, 0.2, 0.2) * best[i])


def maxrl():
    means = [mean_of(GROUPS[i // G], SCORES) for i in range(8)]
    A = [SCORES[i] / means[i] - 1 for i in range(8)]
    return by_token(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.2))


CASES = {
    "grpo": (grpo, {"kl": "none"}),
    "dapo": (dapo, {}),
    "dr_grpo": (dr_grpo, {}),
    "rloo": (rloo, {"kl": "none"}),
    "gspo": (gspo, {}),
    "ppo_completions": (ppo_completions, {}),
    "sapo": (sapo, {}),
    "cispo": (cispo, {}),
    "gmpo": (gmpo, {}),
    "opo": (opo, {}),
    "kl_cov": (kl_cov, {"share": 0.2, "beta": 0.7}),
    "raft_pp": (raft_pp, {}),
    "maxrl": (maxrl, {}),
}


def loss_of(name: str, numbers: dict, new: np.ndarray) -> torch.Tensor:
    """The class's loss of one update."""
    made = load_algorithm(name, **numbers)
    lengths = torch.tensor(LENGTHS)
    mask = torch.arange(T)[None] < lengths[:, None]
    known = {
        "scores": torch.tensor(SCORES, dtype=torch.float64).view(2, G),
        "scored": torch.ones(2, G, dtype=torch.bool),
        "lengths_tokens": lengths.view(2, G),
        "mask": mask,
    }
    advantages = made.advantages(Inputs(made, known)).reshape(8, 1) * mask
    old, logprobs = torch.tensor(OLD), torch.tensor(new, requires_grad=True)
    log_r = log_ratio(logprobs, old, mask)
    given = {
        "logprobs": logprobs,
        "old_logprobs": old,
        "log_ratio": log_r,
        "ratio": log_r.exp(),
        "advantages": advantages,
        "mask": mask,
        "selected": made.select(Inputs(made, {"logprobs": logprobs.detach(), "advantages": advantages, "mask": mask})),
    }  # fmt: skip
    losses = made.loss(Inputs(made, given)).losses
    if made.aggregation == "token_mean":
        return aggregation.token_mean(losses, mask, tokens=int(mask.sum()))
    if made.aggregation == "sequence_mean":
        return aggregation.sequence_mean(losses, mask, sequences=8)
    length = made.length_tokens or T
    return aggregation.constant(losses, mask, sequences=8, length_tokens=length)


@pytest.mark.parametrize("name", CASES)
def test_a_papers_loss_is_that_of_a_plain_loop(name: str):
    """To rounding, at log ratios of about 0.6, where clips act."""
    plain, numbers = CASES[name]
    assert loss_of(name, numbers, NEW).item() == pytest.approx(plain(), rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_what_is_masked_changes_nothing(name: str):
    """Not even as inf, in the loss and in its gradient."""
    _, numbers = CASES[name]
    other = NEW.copy()
    for i, length in enumerate(LENGTHS):
        other[i, length:] = np.nan
    assert loss_of(name, numbers, other).item() == loss_of(name, numbers, NEW).item()
