"""Every paper against a row-by-row loop in float64: the formula as printed, with no tensor in it.

A loop reads log-probabilities from `POINT`: `new` is where the loss is taken, `held` is what a stop-gradient reads, so
that differences of the loop's values are the paper's gradient.
"""

from itertools import pairwise
from math import exp, expm1, log

import numpy as np
import pytest
import torch

from rlvr.algo import aggregation
from rlvr.algo.kl import kl_loss
from rlvr.algo.masks import zero_masked
from rlvr.algo.objectives import Losses
from rlvr.algo.papers import NAMES, load_algorithm
from rlvr.algo.papers.base import Algorithm, Inputs
from rlvr.algo.preferences import gains
from rlvr.algo.ratios import log_ratio

G, T = 4, 6
LENGTHS = [3, 6, 1, 5, 4, 2, 6, 3]
SCORES = [1.0, 0.0, 0.0, 0.75, 0.5, 0.0, 0.25, 0.625]
DRAW = np.random.default_rng(3)
OLD = -DRAW.uniform(0.1, 2.0, (8, T))
NEW = np.minimum(OLD + 0.6 * DRAW.standard_normal((8, T)), -0.01)
REF = OLD + 0.3 * DRAW.standard_normal((8, T))
TEACHER = np.minimum(OLD + 0.8 * DRAW.standard_normal((8, T)), -0.01)
VALUES = DRAW.uniform(-0.5, 0.5, (8, T))
AFTER = [
    0.0,
    0.4,
    0.0,
    0.0,
    0.0,
    0.0,
    -0.2,
    0.0,
]  # the value after the last token of truncated rows
IMPLICIT = 0.3 * np.random.default_rng(4).standard_normal((8, T))
PARTS = DRAW.uniform(0.0, 1.0, (8, 3))
GREEDY = [0.5, 0.25]
MIDDLE = [max(1, length // 2) for length in LENGTHS]  # where a first step ends
POINT = {"new": NEW, "held": NEW}
GROUPS = [range(G), range(G, 2 * G)]


def tokens():
    return [(i, t) for i in range(8) for t in range(LENGTHS[i])]


def group(i):
    return GROUPS[i // G]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def std(values):
    values = list(values)
    return mean((v - mean(values)) ** 2 for v in values) ** 0.5


def new(i, t):
    return POINT["new"][i, t]


def ratio(i, t):
    return exp(new(i, t) - OLD[i, t])


def held_ratio(i, t):
    return exp(POINT["held"][i, t] - OLD[i, t])


def whole_ratio(i, of="new", power=1.0):
    """Of the completion; with a power of 1 / length the geometric mean."""
    return exp(power * sum(POINT[of][i, t] - OLD[i, t] for t in range(LENGTHS[i])))


def clip(value, low, high):
    return min(max(value, low), high)


def clipped(r, advantage, low, high):
    return min(r * advantage, clip(r, 1 - low, 1 + high) * advantage)


# --------------------------------------------------------------------------------- how losses are averaged


def by_completion(value):
    """Mean over completions of the mean over their tokens."""
    return -mean(mean(value(i, t) for t in range(LENGTHS[i])) for i in range(8))


def by_token(value):
    """Mean over all tokens."""
    return -mean(value(i, t) for i, t in tokens())


def by_sum(value):
    """Mean over completions of the sum over their tokens."""
    return -sum(value(i, t) for i, t in tokens()) / 8


def k3(i, t):
    d = new(i, t) - REF[i, t]
    return expm1(-d) + d


# --------------------------------------------------------------------------------- advantages


def relative(scores=SCORES, scale=True):
    """Each score against its group."""
    found = []
    for i in range(8):
        own = [scores[j] for j in group(i)]
        found.append((scores[i] - mean(own)) / (std(own) + 1e-6 if scale else 1))
    return found


def rewards(beta=0.0):
    """The score on the last token, less the penalty of each token."""
    found = {(i, t): -beta * (OLD[i, t] - REF[i, t]) for i, t in tokens()}
    for i in range(8):
        found[i, LENGTHS[i] - 1] += SCORES[i]
    return found


def scores(beta=0.0):
    return [sum(rewards(beta)[i, t] for t in range(LENGTHS[i])) for i in range(8)]


def whitened(found):
    m, s = mean(found.values()), std(found.values())
    return {place: (value - m) / (s + 1e-8) for place, value in found.items()}


def gae(beta, gamma, lam):
    r, found = rewards(beta), {}
    for i in range(8):
        last, value = 0.0, AFTER[i]
        for t in reversed(range(LENGTHS[i])):
            last = r[i, t] + gamma * value - VALUES[i, t] + gamma * lam * last
            found[i, t], value = last, VALUES[i, t]
    return found


# --------------------------------------------------------------------------------- the papers


def grpo():
    A = relative()
    return by_completion(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.2) - 0.04 * k3(i, t))


def grpo_process():
    A = {}
    for members in GROUPS:
        steps = {(i, LENGTHS[i] - 1): SCORES[i] for i in members}
        steps |= {(i, MIDDLE[i] - 1): PARTS[i, 0] for i in members if MIDDLE[i] < LENGTHS[i]}
        m, s = mean(steps.values()), std(steps.values())
        for i, t in tokens():
            if i in members:
                later = [
                    (r - m) / (s + 1e-6) for (j, end), r in steps.items() if j == i and end >= t
                ]
                A[i, t] = sum(later)
    return by_completion(lambda i, t: clipped(ratio(i, t), A[i, t], 0.2, 0.2) - 0.04 * k3(i, t))


def dapo():
    A = relative()
    return by_token(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.28))


def prorl():
    A = relative()
    return by_token(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.4) - 1e-3 * k3(i, t))


def dr_grpo():
    A = relative(scale=False)
    return by_sum(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.2)) / T


def rloo():
    R = scores(0.03)
    A = [R[i] - mean(R[j] for j in group(i) if j != i) for i in range(8)]
    return by_sum(lambda i, t: A[i] * new(i, t))


def reinforce():
    b = mean(SCORES)
    return by_sum(lambda i, t: (SCORES[i] - b) * new(i, t))


def reinforce_pp():
    r = rewards(0.01)
    returns = {(i, t): sum(r[i, u] for u in range(t, LENGTHS[i])) for i, t in tokens()}
    for i, t in tokens():
        returns[i, t] += AFTER[i]
    A = whitened(returns)
    return by_token(lambda i, t: clipped(ratio(i, t), A[i, t], 0.2, 0.2))


def reinforce_pp_baseline():
    own = relative(scale=False)
    A = whitened({(i, t): own[i] for i, t in tokens()})
    return by_token(lambda i, t: clipped(ratio(i, t), A[i, t], 0.2, 0.2) - 1e-3 * k2(i, t))


def k2(i, t):
    return (new(i, t) - REF[i, t]) ** 2 / 2


def magistral():
    own = relative(scale=False)
    A = [a / (std(own) + 1e-8) for a in own]  # of one update
    return by_token(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.28))


def vineppo():
    found = {}
    for i, t in tokens():
        at = [(0, VALUES[i, 0]), (MIDDLE[i], VALUES[i, 1]), (LENGTHS[i], SCORES[i])]
        at = at if MIDDLE[i] < LENGTHS[i] else [at[0], at[2]]
        for (start, before), (stop, after) in pairwise(at):
            if start <= t < stop:
                found[i, t] = after - before
    A = whitened(found)
    return by_token(lambda i, t: clipped(ratio(i, t), A[i, t], 0.2, 0.2) - 1e-4 * k3(i, t))


def ppo():
    A = whitened(gae(0.02, 1.0, 0.95))
    return by_token(lambda i, t: clipped(ratio(i, t), A[i, t], 0.2, 0.2))


def ppo_kl():
    A = whitened(gae(0.0, 1.0, 0.95))

    def value(i, t):
        r = ratio(i, t)
        return r * A[i, t] - (r - 1 - log(r))

    return by_token(value)


def trpo():
    A = whitened(gae(0.0, 1.0, 1.0))
    return by_token(lambda i, t: ratio(i, t) * A[i, t])


def a2c():
    A = gae(0.0, 1.0, 1.0)
    return by_token(lambda i, t: A[i, t] * new(i, t))


def gspo():
    A, loss = relative(), 0.0
    for i in range(8):
        loss -= clipped(whole_ratio(i, power=1 / LENGTHS[i]), A[i], 3e-4, 4e-4) / 8
    return loss


def luspo():
    A, loss = relative(), 0.0
    for i in range(8):
        s = whole_ratio(i, power=1 / LENGTHS[i])
        loss -= LENGTHS[i] * clipped(s, A[i], 2e-3, 2.5e-3) / 8
    return loss


def ppo_completions():
    A, loss = relative(), 0.0
    for i in range(8):
        loss -= clipped(whole_ratio(i), A[i], 0.2, 0.2) / 8
    return loss


def sapo():
    def gate(i, t):
        tau = 1.0 if A[i] > 0 else 1.05
        return 4 / tau / (1 + exp(-tau * (ratio(i, t) - 1))) * A[i]

    A = relative()
    return by_completion(gate)


def cispo():
    A = relative()
    return by_token(lambda i, t: min(held_ratio(i, t), 5.0) * A[i] * new(i, t))


def gmpo():
    A, loss = relative(), 0.0
    for i in range(8):
        product, sign = 1.0, 1 if A[i] > 0 else -1
        for t in range(LENGTHS[i]):
            r = ratio(i, t)
            product *= min(r**sign, clip(r, exp(-0.4), exp(0.4)) ** sign) ** sign
        loss -= product ** (1 / LENGTHS[i]) * A[i] / 8
    return loss


def opo():
    A = []
    for i in range(8):
        total = sum(LENGTHS[j] * SCORES[j] for j in group(i))
        A.append(SCORES[i] - total / sum(LENGTHS[j] for j in group(i)))
    return by_token(lambda i, t: A[i] * new(i, t))


def covariances(A):  # noqa: N803  the paper's
    at = {(i, t): POINT["held"][i, t] for i, t in tokens()}
    mean_p, mean_a = mean(at.values()), mean(A[i] for i, _ in tokens())
    return {(i, t): (p - mean_p) * (A[i] - mean_a) for (i, t), p in at.items()}


def kl_cov():
    A = relative()
    cov = covariances(A)
    held = sorted(cov, key=lambda one: cov[one])[-6:]  # a fifth of 30 tokens

    def value(i, t):
        penalty = 0.7 * abs(new(i, t) - OLD[i, t]) if (i, t) in held else 0.0
        return ratio(i, t) * A[i] - penalty

    return by_token(value)


def clip_cov():
    A = relative()
    cov = covariances(A)
    # All that lie between the bounds and are not clipped, as the share is 1.
    out = [
        (i, t)
        for i, t in tokens()
        if 0.2 < cov[i, t] < 1.5 and not (A[i] > 0 and held_ratio(i, t) > 2)
    ]
    assert 0 < len(out) < 30
    return by_token(lambda i, t: 0.0 if (i, t) in out else clipped(ratio(i, t), A[i], 1.0, 1.0))


def raft_pp():
    best = [SCORES[i] == max(SCORES[j] for j in group(i)) for i in range(8)]
    return by_completion(lambda i, t: clipped(ratio(i, t), 1.0, 0.2, 0.2) * best[i])


def maxrl():
    A = [SCORES[i] / mean(SCORES[j] for j in group(i)) - 1 for i in range(8)]
    return by_token(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.2))


def gpg():
    A = relative(scale=False)  # no group is without variation here: alpha is 1
    return by_token(lambda i, t: A[i] * new(i, t))


def pass_k():
    def lead(i):
        own = [SCORES[j] for j in group(i)]
        return max(own) - max(SCORES[j] for j in group(i) if j != i)

    return by_sum(lambda i, t: lead(i) * new(i, t))


def remax():
    return by_sum(lambda i, t: (SCORES[i] - GREEDY[i // G]) * new(i, t))


def dro():
    """Half the squared error, divided by τ; without the square of r - V, which no policy changes."""
    A, tau, loss = relative(scale=False), 0.05, 0.0
    for i in range(8):
        h = sum(new(i, t) - REF[i, t] for t in range(LENGTHS[i]))
        ref = sum(REF[i, t] for t in range(LENGTHS[i]))
        loss += ((A[i] - tau * h) ** 2 - A[i] ** 2) / (2 * tau) / 8 - A[i] * ref / 8
    return loss


def dppo(divergence):
    A = relative()

    def value(i, t):
        p, q = exp(POINT["held"][i, t]), exp(OLD[i, t])
        apart = abs(p - q)
        if divergence == "kl":
            apart = q * log(q / p) + (1 - q) * log((1 - q) / (1 - p))
        out = apart > (0.15 if divergence == "tv" else 0.05) and (p - q) * A[i] > 0
        return 0.0 if out else min(held_ratio(i, t), 1.5) * A[i] * new(i, t)

    return by_token(value)


def gdpo():
    total = [sum(column) for column in zip(*(relative(PARTS[:, k]) for k in range(3)), strict=True)]
    A = [(a - mean(total)) / (std(total) + 1e-6) for a in total]
    return by_token(lambda i, t: clipped(ratio(i, t), A[i], 0.2, 0.2))


def topr():
    def value(i, t):
        R = SCORES[i] - 0.4
        weight = 1.0 if R > 0 else min(whole_ratio(i, "held"), 1.0)
        return weight * R * new(i, t)

    return by_sum(value)


def vespo():
    A = relative()

    def value(i, t):
        k, rate = (2.0, 3.0) if A[i] >= 0 else (3.0, 2.0)
        w = whole_ratio(i, "held")
        return w**k * exp(rate * (1 - w)) * A[i] * new(i, t)

    return by_token(value)


def distill():
    """A token answers for half of what the next one costs; the scores count a tenth."""
    scored = relative()

    def advantage(i, t):
        later = range(t, LENGTHS[i])
        gap = sum(0.5 ** (u - t) * (TEACHER[i, u] - OLD[i, u]) for u in later)
        return gap + 0.1 * scored[i]

    return by_token(lambda i, t: ratio(i, t) * advantage(i, t))


def prime(gamma=1.0):
    """A completion's baseline is the mean of the others' means over their tokens."""
    own = [mean(IMPLICIT[i, t] for t in range(LENGTHS[i])) for i in range(8)]

    def advantage(i, t):
        others = [j for j in group(i) if j != i]
        less = [IMPLICIT[i, s] - mean(own[j] for j in others) for s in range(t, LENGTHS[i])]
        process = sum(gamma**k * r for k, r in enumerate(less))
        return process + SCORES[i] - mean(SCORES[j] for j in others)

    return by_token(lambda i, t: clipped(ratio(i, t), advantage(i, t), 0.2, 0.2))


def gkd(beta=0.5):
    """Of two tokens, the sampled one and another, which have all the probability."""

    def kl(p, q):
        return p * log(p / q) + (1 - p) * log((1 - p) / (1 - q))

    def value(i, t):
        q, p = exp(new(i, t)), exp(TEACHER[i, t])
        m = beta * p + (1 - beta) * q
        if beta in (0, 1):
            return -(kl(p, q) if beta == 0 else kl(q, p))
        return -beta * kl(p, m) - (1 - beta) * kl(q, m)

    return by_token(value)


CASES = {
    "gkd": (gkd, {}),
    "gkd, uneven": (lambda: gkd(0.1), {"beta": 0.1}),
    "gkd, forward": (lambda: gkd(0.0), {"beta": 0.0}),
    "gkd, the likeliest": (gkd, {"top_k": 1}),
    "sdft": (lambda: gkd(1.0), {}),
    "prime, discounted": (lambda: prime(0.9), {"gamma": 0.9}),
    "distill": (distill, {"gamma": 0.5, "reward_weight": 0.1}),
    "kl_cov": (kl_cov, {"share": 0.2, "beta": 0.7}),
    "clip_cov": (clip_cov, {"share": 1.0, "low": 0.2, "high": 1.5}),
    "dppo": (lambda: dppo("tv"), {"cap": 1.5}),
    "dppo, kl": (
        lambda: dppo("kl"),
        {"cap": 1.5, "divergence": "kl", "low": 0.05, "high": 0.05},
    ),
    "topr": (topr, {"pivot": 0.4}),
}
for simple in (
    *(grpo, grpo_process, dapo, prorl, dr_grpo, rloo, reinforce, reinforce_pp, magistral, vineppo),
    *(reinforce_pp_baseline, ppo, ppo_kl, trpo, a2c, gspo, luspo, ppo_completions, sapo, cispo),
    *(gmpo, opo, raft_pp, maxrl, gpg, pass_k, dro, gdpo, vespo, remax, prime),
):
    CASES[simple.__name__] = (simple, {})


# --------------------------------------------------------------------------------- ours


def tensor(values):
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def on_tokens(found):
    whole = torch.zeros(8, T, dtype=torch.float64)
    for place, value in found.items():
        whole[place] = value
    return whole


def known_of_groups(beta):
    """The inputs of `advantages`, with a penalty of this weight in the reward."""
    steps = {(i, MIDDLE[i] - 1): PARTS[i, 0] for i in range(8)}
    steps |= {(i, LENGTHS[i] - 1): SCORES[i] for i in range(8)}
    mask = torch.arange(T)[None] < torch.tensor(LENGTHS)[:, None]
    at = [sorted({0, MIDDLE[i], LENGTHS[i]}) for i in range(8)]
    values = [[VALUES[i, 0], VALUES[i, 1], SCORES[i]] for i in range(8)]
    values = [v if len(b) == 3 else [v[0], v[2], v[2]] for v, b in zip(values, at, strict=True)]
    return {
        "mask": mask,
        "credited": mask,
        "scored": torch.ones(2, G, dtype=torch.bool),
        "scores": tensor(scores(beta)).view(2, G),
        "rewards": on_tokens(rewards(beta)),
        "values": tensor(VALUES),
        "behaviour_logprobs": tensor(OLD),
        "teacher_logprobs": tensor(TEACHER),
        "implicit_rewards": tensor(IMPLICIT),
        "bootstrap": tensor(AFTER),
        "lengths_tokens": torch.tensor(LENGTHS).view(2, G),
        "minibatch": torch.zeros(2, G, dtype=torch.long),
        "baseline": mean(SCORES),
        "score_parts": tensor(PARTS).view(2, G, 3),
        "prefix_values": tensor(values),
        "boundaries": torch.tensor([b if len(b) == 3 else [*b, b[-1]] for b in at]),
        "step_rewards": on_tokens(steps).view(2, G, T),
        "step_ends": (on_tokens(dict.fromkeys(steps, 1.0)) > 0).view(2, G, T),
    }


def of_two(logprobs):
    """Log-probabilities of a sampled token and of the only other one."""
    one = torch.as_tensor(logprobs)
    return torch.stack([one, torch.log1p(-one.exp())], dim=-1)


def loss_of(case: str, new: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The class's loss of one update, and the log-probabilities that carry its gradient."""
    return loss_with(load_algorithm(case.split(",")[0], **CASES[case][1]), new)


def loss_with(made: Algorithm, new: np.ndarray = NEW) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of an algorithm with any numbers."""
    in_reward = made.kl is not None and made.kl.place == "reward"
    known = known_of_groups(made.kl.coefficient if in_reward else 0.0)
    mask = known["mask"]
    if made.forks == "greedy":
        ends = [[GREEDY[i // G], SCORES[i]] for i in range(8)]
        known |= {
            "prefix_values": tensor(ends),
            "boundaries": torch.tensor([[0, length] for length in LENGTHS]),
        }
    found = made.advantages(Inputs(made, known))
    A = found[0] if isinstance(found, tuple) else found
    A = A.reshape(8, 1) * mask if A.numel() == 8 else A.reshape(8, T)
    logprobs = tensor(new).requires_grad_()
    log_r = log_ratio(logprobs, tensor(OLD), mask)
    given = {
        "logprobs": logprobs.detach(),
        "old_logprobs": tensor(OLD),
        "advantages": A,
        "mask": mask,
    }
    generator = torch.Generator().manual_seed(0)
    given["selected"] = made.select(Inputs(made, given | {"generator": generator}))
    given |= {"logprobs": logprobs, "log_ratio": log_r, "ratio": log_r.exp()}
    if "divergence" in made.reads:
        divergence = made.divergence(of_two(logprobs.where(mask, tensor(-1.0))), of_two(TEACHER))
        given["divergence"] = zero_masked(divergence, mask)
    losses = made.loss(Inputs(made, given | {"ref_logprobs": tensor(REF)}))
    losses = losses.losses if isinstance(losses, Losses) else losses
    if made.kl is not None and not in_reward:
        penalty = kl_loss(logprobs, tensor(REF), mask, estimator=made.kl.estimator)
        losses = losses + made.kl.coefficient * penalty
    if made.aggregation == "token_mean":
        return aggregation.token_mean(losses, mask, tokens=int(mask.sum())), logprobs
    if made.aggregation == "sequence_mean":
        return aggregation.sequence_mean(losses, mask, sequences=8), logprobs
    length = made.length_tokens or T
    return aggregation.constant(losses, mask, sequences=8, length_tokens=length), logprobs


@pytest.mark.parametrize("case", CASES)
def test_a_papers_loss_is_that_of_a_plain_loop(case: str):
    """To rounding, at log ratios of about 0.6, where clips act."""
    loss, _ = loss_of(case, NEW)
    assert loss.item() == pytest.approx(CASES[case][0](), rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_its_gradient_is_that_of_the_loop(case: str, monkeypatch):
    """By central differences of the loop, whose stop-gradients stay where they are: also a weight's that it holds."""
    loss, logprobs = loss_of(case, NEW)
    loss.backward()
    plain, step = CASES[case][0], 1e-6
    for i, t in tokens():
        near = []
        for sign in (1, -1):
            moved = NEW.copy()
            moved[i, t] += sign * step
            monkeypatch.setitem(POINT, "new", moved)
            near.append(plain())
        wanted = (near[0] - near[1]) / (2 * step)
        assert logprobs.grad[i, t].item() == pytest.approx(wanted, abs=1e-7), (i, t)


@pytest.mark.parametrize("case", CASES)
def test_what_is_masked_changes_nothing(case: str):
    """Not even as NaN, in the loss and in its gradient."""
    other = NEW.copy()
    for i, length in enumerate(LENGTHS):
        other[i, length:] = np.nan
    (loss, before), (again, after) = loss_of(case, NEW), loss_of(case, other)
    loss.backward()
    again.backward()
    assert again.item() == loss.item()
    assert torch.equal(before.grad, after.grad)


def test_gpg_makes_up_for_groups_of_equal_scores():
    """Half of the completions are in a group of equal scores: the others count twice (eq. 7)."""
    made = load_algorithm("gpg")
    known = {"scores": tensor([[1.0, 0.0], [1.0, 1.0]]), "scored": torch.ones(2, 2).bool()}
    found = made.advantages(Inputs(made, known))
    assert found.tolist() == [[1.0, -1.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0]),
        ([1.0, 1.0, 0.0], [0.0, 0.0, 0.0]),
        ([0.2, 0.9, 0.5], [0.0, pytest.approx(0.4), 0.0]),
    ],
)
def test_only_a_best_completion_without_a_rival_raises_pass_at_k(row, wanted):
    """Without it the best would be the second; one UNSCORED row, whatever its score, is no rival."""
    made = load_algorithm("pass_k")
    known = {
        "scores": tensor([[*row, 9.0]]),
        "scored": torch.tensor([[True, True, True, False]]),
    }
    assert made.advantages(Inputs(made, known)).tolist() == [[*wanted, 0.0]]


# --------------------------------------------------------------------------------- pairs, labels, steps


def sigma(x):
    return 1 / (1 + exp(-x))


def gain(i, power=1.0):
    return power * sum(new(i, t) - REF[i, t] for t in range(LENGTHS[i]))


def of_pairs(value):
    """Rows 0 to 3 are chosen, rows 4 to 7 rejected."""
    return [value(i, i + G) for i in range(G)]


def kto(z=0.3):
    def value(i):
        h = 0.1 * (gain(i) - z)
        return 1 - sigma(h) if SCORES[i] > 0.4 else 1 - sigma(-h)

    return [value(i) for i in range(8)]


def process_reward_model():
    return [
        -(3 * s * log(sigma(x)) + 3 * (1 - s) * log(1 - sigma(x)))
        for s, x in zip(SCORES, VALUES[:, 0], strict=True)
    ]


PREFERENCES = {
    "dpo": lambda: of_pairs(lambda w, lo: -log(sigma(0.1 * (gain(w) - gain(lo))))),
    "slic": lambda: of_pairs(lambda w, lo: max(0.0, 1 - 0.1 * (gain(w) - gain(lo)))),
    "ipo": lambda: of_pairs(
        lambda w, lo: (gain(w, 1 / LENGTHS[w]) - gain(lo, 1 / LENGTHS[lo]) - 5.0) ** 2
    ),
    "kto": kto,
    "reward_model": lambda: of_pairs(
        lambda w, lo: (
            -log(sigma(VALUES[w, 0] - VALUES[lo, 0] - 0.2))
            + 0.01 * (VALUES[w, 0] + VALUES[lo, 0]) ** 2
        )
    ),
    "process_reward_model": process_reward_model,
    "pointwise_reward_model": lambda: [
        -log(sigma(x) if s > 0.4 else 1 - sigma(x))
        for s, x in zip(SCORES, VALUES[:, 0], strict=True)
    ],
}
PREFERENCES |= dict.fromkeys(
    ("rft", "sft"),
    lambda: [-new(i, t) if t < LENGTHS[i] else 0.0 for i in range(8) for t in range(T)],
)


@pytest.mark.parametrize("name", PREFERENCES)
def test_a_loss_on_examples_is_that_of_a_plain_loop(name: str):
    """Of pairs, labels, right completions and steps."""
    made = load_algorithm(name)
    mask = torch.arange(T)[None] < torch.tensor(LENGTHS)[:, None]
    h = gains(tensor(NEW), tensor(REF), mask, length=made.length)
    if name == "reward_model":
        h = tensor(VALUES[:, 0])
        made = load_algorithm(name, centring=0.01)
    right = tensor(SCORES)
    known = {
        "logprobs": tensor(NEW),
        "mask": mask,
        "gain": h,
        "chosen": h[:G],
        "rejected": h[G:],
        "margin": torch.full((G,), 0.2, dtype=torch.float64),
        "reference_point": torch.tensor(0.3, dtype=torch.float64),
        "logits": tensor(VALUES[:, 0]),
        "rewards": tensor(VALUES[:, 0]),
        "counts": torch.full((8,), 3.0, dtype=torch.float64),
        "right": 3 * right if name == "process_reward_model" else right > 0.4,
    }
    found = made.loss(Inputs(made, known))
    assert found.flatten().tolist() == pytest.approx(PREFERENCES[name](), rel=1e-9)


def test_no_paper_is_without_a_loop():
    """What anyone recomputes a step from."""
    assert {case.split(",")[0] for case in CASES} | PREFERENCES.keys() == set(NAMES)
