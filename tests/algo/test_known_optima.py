"""Small problems whose answer is known: a bandit with a closed form, a token bandit by enumeration, and a chain."""

import itertools

import pytest
import torch

from rlvr.algo.kl import kl_loss, penalise
from rlvr.algo.objectives import clipped, ppo_kl, reinforce
from rlvr.algo.returns import discounted_returns, gae, monte_carlo_advantages, n_step_advantages

R = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
REF = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
BETA = 0.5
BEST = REF * (R / BETA).exp() / (REF * (R / BETA).exp()).sum()
"""The optimum of E r - β KL(π ‖ ref): ref · exp(r / β), normalised."""
ON = torch.ones(3, 1, dtype=torch.bool)


def trained(gradient, steps: int = 100) -> torch.Tensor:
    """The policy after gradient steps on the *expected* loss: actions are rows, weighted by their probability."""
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        logprobs = logits.log_softmax(0)[:, None]
        losses = gradient(logprobs, logprobs.detach())
        (step,) = torch.autograd.grad((logprobs.detach().exp() * losses).sum(), logits)
        logits = (logits - 2.0 * step).detach().requires_grad_()
    return logits.softmax(0).detach()


def in_reward(objective):
    def losses(logprobs, old):
        rewards = penalise(R[:, None], old, REF.log()[:, None], ON, coefficient=BETA)
        return objective(logprobs, old, rewards - (old.exp() * rewards).sum(), ON).losses

    return losses


def in_loss(**settings):
    def losses(logprobs, old):
        weighted = {"behaviour_logprobs": old} if settings.get("weighted") else {}
        kl = kl_loss(logprobs, REF.log()[:, None], ON, estimator=settings["estimator"], **weighted)
        return reinforce(logprobs, old, R[:, None], ON).losses + BETA * kl

    return losses


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param(in_reward(reinforce), id="REINFORCE, k1 in the reward"),
        pytest.param(
            in_reward(lambda *of: clipped(*of, low=0.2, high=0.2)), id="PPO, k1 in the reward"
        ),
        pytest.param(in_reward(lambda *of: ppo_kl(*of, beta=1.0)), id="PPO-KL, k1 in the reward"),
        pytest.param(in_loss(estimator="k2"), id="k2 in the loss"),
        pytest.param(
            in_loss(estimator="k3", weighted=True), id="k3 in the loss, importance-weighted"
        ),
        pytest.param(
            in_loss(estimator="k1", weighted=True), id="k1 in the loss, importance-weighted"
        ),
    ],
)
def test_the_bandit_with_a_kl_penalty_comes_to_its_optimum(losses):
    """ref · exp(r / β): (0.52906, 0.17900, 0.29194) to 1e-3."""
    assert BEST.tolist() == pytest.approx([0.52906, 0.17900, 0.29194], abs=1e-5)
    assert trained(losses).tolist() == pytest.approx(BEST.tolist(), abs=1e-3)


def test_k3_in_the_loss_comes_elsewhere():
    """As GRPO has it, its gradient is that of the forward KL, and so its optimum another one."""
    assert (trained(in_loss(estimator="k3")) - BEST).abs().max() > 0.02


def test_every_estimators_bias_on_a_token_bandit():
    """Vocabulary 8, length 3: the exact gradient by all 512 texts.  A second step on rollouts of an older policy: only
    the importance-weighted estimates have the gradient of KL(π ‖ ref)."""
    draw = torch.Generator().manual_seed(0)
    tables = [torch.randn(3, 8, generator=draw, dtype=torch.float64) * 0.3 for _ in range(3)]
    logits, old, ref = tables[0].requires_grad_(), tables[1], tables[2]
    texts = torch.tensor(list(itertools.product(range(8), repeat=3)))
    mask = torch.ones(512, 3, dtype=torch.bool)

    def logprobs(table):
        return table.log_softmax(1)[torch.arange(3), texts]

    now, before, reference = logprobs(logits), logprobs(old), logprobs(ref)
    exact = (now.sum(1).exp() * (now - reference).sum(1)).sum()
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)

    def found(**settings):
        estimate = kl_loss(now, reference, mask, **settings).sum(1)
        return torch.autograd.grad(
            (before.sum(1).exp() * estimate).sum(), logits, retain_graph=True
        )[0]

    for estimator in ("k1", "k3"):
        bias = (found(estimator=estimator, behaviour_logprobs=before) - wanted).abs().max()
        assert bias < 1e-6, estimator
        assert (found(estimator=estimator) - wanted).abs().max() > 0.01, estimator


def test_the_chains_values_agree():
    """Five steps, each right with 1/2, reward 1 at the end: V = 1/32 … 1/2.  With them TD(0), n-step and GAE have the
    mean advantage 0 over all 32 texts at every state; λ = 1, VinePPO and the return less V are one number."""
    texts = torch.tensor(list(itertools.product([0, 1], repeat=5)), dtype=torch.bool)
    alive = torch.cat([torch.ones(32, 1, dtype=torch.bool), texts[:, :-1]], dim=1).cumprod(1).bool()
    values = torch.where(alive, 2.0 ** -torch.arange(5, 0, -1, dtype=torch.float64), 0.0)
    rewards = torch.zeros(32, 5, dtype=torch.float64)
    rewards[:, -1] = texts.all(1)
    mask = torch.ones(32, 5, dtype=torch.bool)
    ways = {f"λ = {lam}": gae(rewards, values, mask, lam=lam) for lam in (0.0, 0.5, 0.95, 1.0)}
    ways |= {f"n = {n}": n_step_advantages(rewards, values, mask, n=n) for n in (1, 2, 3, None)}
    for name, found in ways.items():
        for t in range(5):
            for prefix in {tuple(row.tolist()) for row in texts[:, :t]}:
                same = (texts[:, :t] == torch.tensor(prefix, dtype=torch.bool)).all(1)
                assert float(found.advantages[same, t].mean()) == pytest.approx(0, abs=1e-12), name
    torch.testing.assert_close(ways["n = 1"].advantages, ways["λ = 0.0"].advantages)
    torch.testing.assert_close(ways["n = None"].advantages, ways["λ = 1.0"].advantages)
    torch.testing.assert_close(ways["n = None"].returns, discounted_returns(rewards, mask))
    ends = torch.cat([values, texts.all(1)[:, None].double()], dim=1)
    vine = monte_carlo_advantages(ends, torch.arange(6).expand(32, 6), mask)
    torch.testing.assert_close(vine, ways["λ = 0.0"].advantages)


def test_the_variance_of_the_gradient_falls_with_the_baseline():
    """Of the first step's gradient over all texts of the chain: critic < group's mean < none."""
    texts = torch.tensor(list(itertools.product([0, 1], repeat=5)), dtype=torch.float64)
    right = texts.bool().all(1).double()
    score = texts - 0.5  # d log π / d logit of each step
    alive = torch.cat([torch.ones(32, 1, dtype=torch.float64), texts[:, :-1].cumprod(1)], dim=1)
    values = alive * 2.0 ** -torch.arange(5, 0, -1, dtype=torch.float64)
    after = torch.cat([values[:, 1:], right[:, None]], dim=1)
    none, mean, critic = (
        score * A for A in (right[:, None], right[:, None] - 1 / 32, after - values)
    )
    assert torch.allclose(none.mean(0), critic.mean(0))
    assert critic.var(0).sum() < mean.var(0).sum() < none.var(0).sum()


def test_a_masked_gap_changes_no_advantage():
    """The same episode with 0 and with 50 tokens of the environment between two turns."""
    draw = torch.Generator().manual_seed(3)
    rewards, values = torch.rand(1, 6, generator=draw), torch.rand(1, 6, generator=draw)
    wide = torch.cat([torch.ones(1, 3), torch.zeros(1, 50), torch.ones(1, 3)], dim=1).bool()

    def spread(x):
        return torch.cat([x[:, :3], torch.full((1, 50), 99.0), x[:, 3:]], dim=1)

    narrow = torch.ones(1, 6, dtype=torch.bool)
    end = torch.tensor([0.3])
    for way in (
        lambda *of: gae(*of, gamma=0.9, lam=0.8, bootstrap=end),
        lambda *of: n_step_advantages(*of, n=2, gamma=0.9, bootstrap=end),
    ):
        torch.testing.assert_close(
            way(spread(rewards), spread(values), wide).advantages[wide],
            way(rewards, values, narrow).advantages[narrow],
        )
