"""The critic: values by hand, a gradient that knows nothing of batching, and a chain whose values are known."""

import dataclasses
import itertools
from dataclasses import replace

import pytest
import torch

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.numbers import changed
from rlvr.algo.parts import Correction, Critic, EntropyTarget, Kl, Mixing, Reset, Subset, Trust
from rlvr.errors import DataError, UsageError
from rlvr.train.credit import collate, credit
from rlvr.train.critic import CriticLearner
from rlvr.train.implicit import ImplicitRewards
from rlvr.train.parts import EntropyBonus, Reference, SubsetChoice, TrustPenalty
from tests.rounding import additions, assert_same
from tests.train.bandit import policy
from tests.train.test_learner import batch_of, learner, own_folder, rollout  # noqa: F401  `own_folder` is used by all

PPO = dataclasses.replace(load_algorithm("ppo"), kl=None, whiten=False, critic=Critic(lr=1e-2))


def ready(made, batch=None):
    """A batch with values, and with advantages and returns by the algorithm of the learner."""
    batch = made.prepared(batch or batch_of())
    groups = [rlvr.Group(row.task, [row]) for row in batch.rows]
    return replace(batch, **credit(groups, batch, made.algorithm)._asdict())


def head(made):
    return torch.cat(
        [p.detach().flatten() for p in made.part(CriticLearner)._root.head.parameters()]
    )


def weights(made):
    return torch.cat([p.detach().flatten() for p in made.policy.model.parameters()])


def test_a_new_critic_says_0_and_the_first_returns_are_the_rewards():
    """A zero-initialised head: advantage = return = the score, on every token."""
    made = learner(PPO)
    batch = ready(made)
    assert not batch.values.any()
    assert batch.advantages[batch.completion_mask].tolist() == pytest.approx(
        [
            0.95 ** (len(row.completion_ids) - 1 - t)
            for row in batch.rows
            for t in range(len(row.completion_ids))
        ]
    )
    ones = replace(made.algorithm, lam=1.0)
    groups = [rlvr.Group(row.task, [row]) for row in batch.rows]
    assert credit(groups, batch, ones).returns[batch.completion_mask].unique().tolist() == [1.0]


@pytest.mark.parametrize(("bootstrap", "after"), [(False, 0.0), (True, 0.25)])
def test_a_truncated_end_is_worth_its_score(bootstrap, after):
    """As in InstructGPT, TRL and verl.  No target corrects the value after the last token: with `bootstrap` a
    completion that is cut gets what the critic says of any, here 1/4, where a wrong one that ends gets 0."""
    critic = Critic(lr=1e-2, bootstrap=bootstrap)
    made = learner(dataclasses.replace(PPO, lam=1.0, critic=critic))
    with torch.no_grad():
        made.part(CriticLearner)._root.head.bias.fill_(0.25)
    rows = [rollout([1], [4, 5], total=0.0), rollout([1], [4, 5], total=0.0, truncated=True)]
    batch = ready(made, collate([rlvr.Group(rows[0].task, [row]) for row in rows]))
    assert batch.bootstrap.tolist() == [0.0, after]
    assert batch.returns.tolist() == [[0.0, 0.0], [after, after]]
    assert batch.advantages.tolist() == [[-0.25, -0.25], [after - 0.25, after - 0.25]]


def test_the_value_before_a_token_knows_nothing_of_it():
    """Rows that differ in their last token have the same values, up to the state after it."""
    made = learner(dataclasses.replace(PPO, critic=Critic(bootstrap=True)))
    torch.nn.init.normal_(made.part(CriticLearner)._root.head.weight)
    rows = [rollout([1, 5], [4, 6, last], truncated=True) for last in (7, 8)]
    values, after = made.part(CriticLearner).values(rows)
    torch.testing.assert_close(values[0], values[1])
    assert (after[0] - after[1]).abs() > 1e-3


@pytest.mark.parametrize("backbone", ["own", "shared"])
def test_a_step_moves_head_and_layers(backbone):
    """A critic whose values were detached would never learn.  An own one leaves the policy to the policy's loss."""
    made = learner(dataclasses.replace(PPO, critic=Critic(backbone=backbone, lr=1e-2)))
    torch.nn.init.normal_(
        made.part(CriticLearner)._root.head.weight
    )  # so that a gradient reaches the layers
    batch = ready(made)
    silent = replace(batch, advantages=torch.zeros_like(batch.advantages))
    before, policy_before = head(made), weights(made)
    own_before = [p.clone() for p in made.part(CriticLearner)._layers]
    numbers = made.update(silent, [range(6)], pytest.fail)
    assert not torch.equal(head(made), before)
    assert torch.equal(weights(made), policy_before) == (backbone == "own")
    assert any(
        not torch.equal(a, b)
        for a, b in zip(own_before, made.part(CriticLearner)._layers, strict=True)
    ) == (backbone == "own")
    assert numbers["value_loss"] > 0
    assert numbers["critic_grad_norm"] > 0


@pytest.mark.parametrize("backbone", ["own", "shared"])
def test_in_the_warm_up_only_the_critic_learns(backbone):
    """Two steps; the third moves the policy too."""
    made = learner(dataclasses.replace(PPO, critic=Critic(backbone=backbone, warmup=2, lr=1e-2)))
    start, moved = weights(made), []
    for _ in range(3):
        before = head(made)
        numbers = made.update(ready(made), [range(6)], pytest.fail)
        moved.append((not torch.equal(weights(made), start), numbers["updates"]))
        assert not torch.equal(head(made), before)
    assert moved == [(False, 0.0), (False, 0.0), (True, 1.0)]


@pytest.mark.parametrize("options", [{"max_tokens": 7, "overhead_tokens": 0}, {"packing": True}])
def test_the_critics_gradient_does_not_depend_on_batching(options):
    """Micro-batches and packing, up to rounding; denominators are the mini-batch's."""
    found = []
    for made in (learner(PPO), learner(PPO, made=policy(**options))):
        torch.manual_seed(0)
        torch.nn.init.normal_(made.part(CriticLearner)._root.head.weight)
        batch = ready(made)
        numbers = made.part(CriticLearner).backward(batch)
        grads = [
            p.grad.flatten() for p in made.part(CriticLearner).parameters if p.grad is not None
        ]
        found.append((torch.cat(grads), batch.values, numbers["value_loss"]))
    terms = additions(made.policy.model, batch.completion_mask.numel())
    for one, other in zip(*found, strict=True):
        assert_same(torch.as_tensor(one), torch.as_tensor(other), terms=terms)


def test_the_value_loss_by_hand():
    """V = 0, R = (1, 1, 0), no clip: mean of ½, ½, 0 is 1/3."""
    made = learner(dataclasses.replace(PPO, lam=1.0, critic=Critic(value_clip=None)))
    rows = [rollout([1], [4, 5], total=1.0), rollout([1], [4], total=0.0)]
    batch = ready(made, collate([rlvr.Group(rows[0].task, [row]) for row in rows]))
    numbers = made.part(CriticLearner).backward(batch)
    assert numbers.pop("critic_grad_norm") > 0
    assert numbers == {"value_loss": pytest.approx(1 / 3), "value_clipped": 0.0}


def test_rewards_of_turns_stand_on_their_turns():
    """1 at the first turn's end and ½ at the second's: returns 1.5 and ½.  The part of the total beyond them, and a
    reward whose turn is masked, stand on trained tokens: rewards always sum to the total."""
    algorithm = dataclasses.replace(PPO, lam=1.0)
    made = learner(algorithm)
    row = rollout([1], [4, 5, 6, 7, 8], total=1.75, mask=[True, True, False, True, True])
    turns = [rlvr.Turn(0, 2, 1.0), rlvr.Turn(3, 5, 0.5)]
    batch = ready(made, collate([rlvr.Group(row.task, [replace(row, turns=turns)])]))
    assert batch.returns[batch.completion_mask].tolist() == [1.75, 1.75, 0.75, 0.75]
    masked = replace(row, turns=turns, completion_mask=[True, True, False, False, False])
    batch = ready(made, collate([rlvr.Group(row.task, [masked])]))
    assert batch.returns[batch.completion_mask].tolist() == [1.75, 1.75]


def test_the_reference_is_mixed():
    """0.6 of the policy and 0.4 of the reference, weight by weight (TR-DPO)."""
    made = learner(dataclasses.replace(load_algorithm("grpo"), mixing=Mixing(share=0.6)))
    was = torch.cat([p.detach().flatten() for p in made.part(Reference).policy.model.parameters()])
    made.update(made.prepared(batch_of()), [range(6)], pytest.fail)
    made.end_step(512)
    now = torch.cat([p.detach().flatten() for p in made.part(Reference).policy.model.parameters()])
    torch.testing.assert_close(now, 0.6 * weights(made) + 0.4 * was)
    assert not torch.equal(now, was)


def test_the_penalty_follows_the_divergence_that_it_is_of():
    """With a correction ratios are to the trainer's own log-probabilities.  Before an update these are the policy's;
    the sampler's are far off, and a coefficient that followed them would rise without end."""
    trust, correction = Trust(target=1e-4), (Correction(),)
    algorithm = dataclasses.replace(load_algorithm("ppo_kl"), trust=trust, correction=correction)
    made = learner(algorithm, group_size=6)
    numbers = made.part(TrustPenalty).after(made.prepared(batch_of()))
    assert numbers == {"trust_measured": 0.0, "trust_coefficient": 0.5}


def test_what_has_adapted_stays_where_a_stage_changes_another_number():
    """β has doubled to 2 when its target changes; a stage that names β itself says where it goes on."""
    trust = Trust(target=1e-4)
    made = learner(dataclasses.replace(load_algorithm("ppo_kl"), trust=trust), group_size=6)
    made.update(ready(made), [range(6)], pytest.fail)
    for changes, coefficient in (({"target": 1e-3}, 2.0), ({"coefficient": 0.5}, 0.5)):
        algorithm = changed(made.config.algorithm, {f"trust_{n}": x for n, x in changes.items()})
        made.change(dataclasses.replace(made.config, algorithm=algorithm, written={}))
        assert made.algorithm.trust == dataclasses.replace(
            trust, **({"target": 1e-3} | {"coefficient": coefficient})
        )


@pytest.mark.parametrize("name", ["ppo", "prime"])
def test_a_second_models_rate_is_the_policys_in_every_stage(name):
    """It kept the run's first rate, and came to 0 too soon where a stage makes more updates: after 2 of 4 steps of
    one update at most, a stage has rate ½ and three updates a step; the schedule's second half lasts six."""
    settings = {"lr": 1.0, "schedule": "linear", "updates": 3, "group_size": 32}

    def of_prompts(prompts: int, **others):
        return learner(load_algorithm(name), **(settings | {"prompts": prompts} | others))

    made = of_prompts(8, steps=4)
    second = made.part(CriticLearner) or made.part(ImplicitRewards)
    times = {"ppo": 1.0, "prime": 2.0}[name]
    assert second.lr == times
    second.updates = 2
    made.change(of_prompts(24, steps=4, lr=0.5).config)
    made.begin_schedule(2, schedule=False, warmup=None)
    assert second.lr == pytest.approx(times * 0.25)
    second.updates = 5
    assert second.lr == pytest.approx(times * 0.125)

    longer = of_prompts(24, steps=6, lr=0.5)  # goes on after step 3, with two more steps
    again = longer.part(CriticLearner) or longer.part(ImplicitRewards)
    again.load(second.state())
    assert again.lr == pytest.approx(times * 0.5 * 0.5 * 9 / 12)


def test_coefficients_follow_what_is_measured():
    """PPO's rule after a step that has moved the policy far; Ziegler's from the rollouts; Skywork's by the entropy."""
    made = learner(
        dataclasses.replace(load_algorithm("ppo_kl"), trust=Trust(target=1e-4)), group_size=6
    )
    numbers = made.update(ready(made), [range(6)], pytest.fail)
    assert numbers["trust_measured"] > 1.5e-4
    assert made.algorithm.trust.coefficient == numbers["trust_coefficient"] == 2.0

    made = learner(
        dataclasses.replace(
            load_algorithm("ppo"), kl=Kl("k1", 0.2, "reward", rule="ziegler", target=6.0)
        )
    )
    batch = ready(made)
    apart = (
        float(
            torch.where(
                batch.completion_mask, batch.behaviour_logprobs - batch.ref_logprobs, 0.0
            ).sum()
        )
        / 6
    )
    error = min(max(apart / 6 - 1, -0.2), 0.2)
    numbers = made.update(batch, [range(6)], pytest.fail)
    assert numbers["kl_coefficient"] == pytest.approx(0.2 * (1 + error * 6 / 10_000))

    made = learner(
        dataclasses.replace(
            load_algorithm("dr_grpo"), entropy_target=EntropyTarget(nats=9.0, step=0.25)
        )
    )
    first = made.update(made.prepared(batch_of()), [range(6)], pytest.fail)
    assert first["entropy_coefficient"] == 0.25
    assert made.part(EntropyBonus).last == pytest.approx(first["entropy_now"])


def test_only_tokens_of_high_entropy_have_a_gradient(monkeypatch):
    """A fifth of the tokens is in the policy's loss; all of them stay in the denominator."""
    made = learner(dataclasses.replace(load_algorithm("dr_grpo"), entropy_share=0.2))
    batch = made.prepared(batch_of())
    assert int(batch.kept.sum()) == 4  # of 20
    plain = learner(load_algorithm("dr_grpo"))
    made.backward(batch, range(6))
    plain.backward(
        replace(batch, kept=None, advantages=torch.where(batch.kept, batch.advantages, 0.0)),
        range(6),
    )
    for ours, theirs in zip(
        made.policy.model.parameters(), plain.policy.model.parameters(), strict=True
    ):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_kl_penaltys_share_of_the_gradient():
    """Without an advantage the penalty is all of it, without a divergence nothing; it sums over micro-batches."""
    algorithm = dataclasses.replace(load_algorithm("grpo"), reset=Reset(kl_share=0.5))
    made, split = (
        learner(algorithm),
        learner(algorithm, made=policy(max_tokens=7, overhead_tokens=0)),
    )
    batch = made.prepared(batch_of())
    assert made.backward(batch, range(6))[0]["kl_share"] == pytest.approx(0, abs=1e-6)
    far = replace(batch, ref_logprobs=batch.ref_logprobs - 0.3)
    share = made.backward(far, range(6))[0]["kl_share"]
    assert 0 < share < 1
    assert split.backward(far, range(6))[0]["kl_share"] == pytest.approx(share, rel=1e-5)
    none = replace(far, advantages=torch.zeros_like(far.advantages))
    assert made.backward(none, range(6))[0]["kl_share"] == 1


def test_a_subset_is_trained_on_with_the_advantages_of_all():
    """Scores 1, 0, 0, 0: the advantage of the right one is 3/4 although it is trained beside one wrong one."""
    algorithm = dataclasses.replace(load_algorithm("dr_grpo"), subset=Subset(2))
    groups = [
        rlvr.Group(rlvr.Task("t", "?"), [rollout([1], [4], total=float(i == 0)) for i in range(4)])
    ]
    batch = collate(groups)
    batch = replace(batch, advantages=credit(groups, batch, algorithm).advantages)
    part = learner(algorithm, group_size=4).part(SubsetChoice)
    batch = part.choose(groups, batch, torch.Generator())
    assert int(batch.completion_mask.sum()) == 2
    assert sorted(batch.advantages.flatten().tolist()) == [-0.25, 0, 0, 0.75]


def test_what_does_not_fit_the_run_is_refused():
    """Before anything is sampled."""
    with pytest.raises(UsageError, match=r"subset\.size is 16 of a group_size of 8"):
        learner(dataclasses.replace(load_algorithm("dr_grpo"), subset=Subset(16)))
    with pytest.raises(UsageError, match="mixing with lora_rank"):
        learner(dataclasses.replace(load_algorithm("grpo"), mixing=Mixing()), lora_rank=2)
    with pytest.raises(
        UsageError,
        match=r"updates is 2, and a2c has no ratio to the policy that sampled",
    ):
        learner(load_algorithm("a2c"), updates=2)
    with pytest.raises(DataError, match="has no critic"):
        learner(PPO).load_state_dict(learner(load_algorithm("dapo")).state_dict())


def test_a_lora_critic_has_an_adapter_of_its_own_on_the_same_frozen_weights():
    """Its trunk costs no memory: the very tensors of the policy."""
    pytest.importorskip("peft")
    adapted = policy()
    adapted.add_lora(rank=2, seed=0)
    made = learner(PPO, made=adapted)
    theirs = {p.data_ptr() for p in adapted.model.parameters() if not p.requires_grad}
    own = made.part(CriticLearner).model.model
    assert {p.data_ptr() for p in own.parameters() if not p.requires_grad} == theirs
    torch.nn.init.normal_(made.part(CriticLearner)._root.head.weight)
    before = [p.clone() for p in made.part(CriticLearner)._layers]
    made.update(ready(made), [range(6)], pytest.fail)
    assert any(
        not torch.equal(a, b) for a, b in zip(before, made.part(CriticLearner)._layers, strict=True)
    )


@pytest.mark.slow
def test_the_critic_learns_the_values_of_the_chain():
    """Five steps, each right with 1/2: V = 1/32, 1/16, 1/8, 1/4, 1/2 before them.  Mean absolute error after 200
    updates; `benchmarks/algorithms.py chain` prints it."""
    from benchmarks.algorithms import chain_error

    assert chain_error(updates=200, seed=0) <= 0.02


def test_every_text_of_the_chain_is_there():
    """The benchmark's rows are all 32 texts or draws of them."""
    from benchmarks.algorithms import chain_rows

    rows = chain_rows(torch.tensor(list(itertools.product([0, 1], repeat=5))))
    assert len({tuple(row.completion_ids) for row in rows}) == 32
    assert sum(row.score.total for row in rows) == 1
