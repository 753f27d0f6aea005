"""TRPO as the trainer's step: the natural gradient of a model, its region, and what cannot have one."""

import dataclasses
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlvr.algo.objectives import surrogate
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.dapo import DAPO
from rlvr.algo.parts import Critic, Kl, Trust, TrustRegion
from rlvr.errors import UsageError
from rlvr.train.config import Config
from rlvr.train.critic import CriticLearner
from tests.rounding import additions, assert_same, in_float64, unit
from tests.train.bandit import policy
from tests.train.test_critic import ready
from tests.train.test_learner import batch_of, learner, own_folder  # noqa: F401  `own_folder` is used by all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region(DAPO):
    """TRPO's step on GRPO's advantages, without a critic."""

    trust_region: TrustRegion = TrustRegion(delta=1e-3, damping=0.1, cg_steps=60)
    dynamic_sampling: bool = False
    overlong: str = "keep"
    group_size: int | None = 2

    def loss(self, inputs):
        return surrogate(inputs.logprobs, inputs.old_logprobs, inputs.advantages, inputs.mask)


REGION = Region()


def flat(made) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in made.parameters])


def distributions(made, batch) -> torch.Tensor:
    """[N, V] of the trained tokens, from the model's own forward."""
    found = []
    for row, mask in zip(batch.rows, batch.completion_mask, strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        logits = made.policy.model(input_ids=ids, use_cache=False).logits[
            0, len(row.prompt_ids) - 1 : -1
        ]
        found.append(logits[mask[: len(row.completion_ids)]].log_softmax(-1))
    return torch.cat(found)


def moved(made, batch) -> dict:
    return made.update(batch, [range(len(batch.rows))], pytest.fail)


def test_a_step_is_the_natural_gradient_and_stays_in_the_region():
    """Against a direct solver in float64, with the Fisher matrix FᵀF from the gradients of whole distributions.

    FᵀF = mean over tokens of Σ_v p_v ∇log p_v ∇log p_vᵀ; Woodbury's formula inverts it with the damping.
    """
    made = learner(REGION, made=policy(share_prompts=False))
    in_float64(made.policy.model)
    batch = batch_of()
    before, whole = flat(made), distributions(made, batch)
    old = whole.detach()
    weights = dict(made.policy.model.named_parameters())
    p, n = old.exp(), len(old)

    each = torch.autograd.grad(
        whole.flatten(), list(weights.values()), torch.eye(whole.numel(), dtype=whole.dtype),
        retain_graph=True, is_grads_batched=True,
    )  # fmt: skip
    F = (p.flatten() / n).sqrt()[:, None] * torch.cat([one.flatten(1) for one in each], dim=1)
    condition = 1 + float(torch.linalg.matrix_norm(F, 2)) ** 2 / 0.1  # of FᵀF + 0.1: 13
    made.backward(batch, list(range(len(batch.rows))))
    g = -torch.cat([w.grad.flatten() for w in weights.values()])
    made.optimizer.zero_grad()
    x = 10 * (g - F.T @ torch.linalg.solve(F @ F.T + 0.1 * torch.eye(len(F), dtype=g.dtype), F @ g))
    step = (2e-3 / x.dot(F.T @ (F @ x) + 0.1 * x)).sqrt() * x

    numbers = moved(made, batch)
    assert numbers["updates"] == numbers["region_scale"] == 1.0
    terms = {"terms": additions(made.policy.model, 8 * len(batch.rows)), "dtype": torch.float64}
    # The iteration stops at a residual of 1e-10, and what that leaves of x is at most the condition number times it.
    moves = step.norm().item()
    assert_same(flat(made) - before, step, condition=condition, also=1e-10, size=moves, **terms)
    now = distributions(made, batch).detach()
    kl = float((old.exp() * (old - now)).sum() / n)
    # A divergence is what is left of terms p log p, whose sum is at most log V.
    assert numbers["region_kl"] == pytest.approx(kl, abs=2 * unit(**terms) * math.log(old.shape[1]))
    assert 0 < kl <= 1.5e-3
    assert numbers["grad_norm"] == pytest.approx(float(g.norm()))
    assert numbers["region_gain"] > 0


def test_a_step_does_not_depend_on_batching():
    """Surrogate, products and divergence in micro-batches, packed or with shared prompts: the same weights.

    The system is solved to 1e-10, since the condition number bounds what an error does to a
    solution and not what it does to an iteration that is cut short.  It is 1 + 1.2 / damping.
    """
    solved = replace(REGION, trust_region=TrustRegion(delta=1e-3, damping=1.0, cg_steps=60))
    found = []
    for options in (
        {"share_prompts": False},
        {"max_tokens": 7, "overhead_tokens": 0},
        {"packing": True},
    ):
        made = learner(solved, made=policy(**options))
        in_float64(made.policy.model)
        before = flat(made)
        moved(made, batch_of())
        found.append(flat(made) - before)
    terms = {"terms": additions(made.policy.model, 8 * 6), "dtype": torch.float64}
    for other in found[1:]:
        moves = other.norm().item()
        assert_same(found[0], other, condition=2.2, also=2e-10, size=moves, **terms)


def test_with_an_adapter_only_the_adapter_moves():
    """And the KL is that of the model with it."""
    made = policy()
    made.add_lora(rank=2)
    frozen = [p.detach().clone() for p in made.model.parameters() if not p.requires_grad]
    stepping = learner(REGION, made=made)
    assert 0 < moved(stepping, batch_of())["region_kl"] <= 1.5e-3
    kept = [p for p in made.model.parameters() if not p.requires_grad]
    assert all(torch.equal(a, b) for a, b in zip(frozen, kept, strict=True))


def test_nothing_to_gain_is_no_update():
    """Advantages of 0: no row has a gradient, and nothing moves.  A gradient that is not finite is skipped and kept."""
    made = learner(REGION)
    before, bad = flat(made), []
    assert moved(made, batch_of(advantages=torch.zeros(6)))["updates"] == 0.0
    made.update(batch_of(advantages=torch.full((6,), math.nan)), [range(6)], bad.append)
    assert len(bad) == 1
    assert made.bad == 1
    assert torch.equal(flat(made), before)


def test_the_preset_trains_a_critic_beside_it():
    """The critic has AdamW, as with PPO; the policy's optimiser makes no step."""
    made = learner(
        replace(load_algorithm("trpo"), whiten=False, critic=Critic(lr=1e-2, value_clip=None))
    )
    numbers = moved(made, ready(made))
    assert numbers["value_loss"] > 0
    assert made.part(CriticLearner).updates == made.updates == 1
    assert not made.optimizer.state


def test_the_multiplier_rises_above_the_target_and_falls_to_0_below():
    """λ + rate (KL - δ), never below 0: as the coefficient of ppo_kl, and of a KL from the reference."""
    trust = Trust(coefficient=0.0, rule="dual", target=1e-4, rate=2.0)
    made = learner(dataclasses.replace(load_algorithm("ppo_kl"), trust=trust), group_size=6)
    numbers = moved(made, ready(made))
    assert numbers["trust_measured"] > 1e-4
    assert numbers["trust_coefficient"] == pytest.approx(2 * (numbers["trust_measured"] - 1e-4))
    assert made.algorithm.trust.coefficient == numbers["trust_coefficient"]

    kl = Kl("k3", 0.1, "loss", rule="dual", target=50.0)
    made = learner(dataclasses.replace(load_algorithm("grpo"), kl=kl))
    assert moved(made, made.prepared(batch_of()))["kl_coefficient"] == 0.0
    assert made.algorithm.kl.coefficient == 0.0


def test_what_cannot_have_a_region_is_refused():
    """With the value and the way out."""
    with pytest.raises(UsageError, match=r"backbone is 'shared' with trust_region"):
        replace(load_algorithm("trpo"), critic=Critic(backbone="shared"))
    with pytest.raises(UsageError, match=r"trust_region\.delta is 0\.0"):
        TrustRegion(delta=0.0)
    settings = {"env": "e", "model": "m", "run": Path("r"), "algorithm": "trpo"}
    with pytest.raises(UsageError, match=r"precision is 'bf16', in which the conjugate gradients"):
        Config(**settings, precision="bf16")
    with pytest.raises(UsageError, match=r"gradient_checkpointing with a trust region"):
        Config(**settings, gradient_checkpointing=True)
