"""The update: a loss by hand, a gradient that knows nothing of batching, and each part of DAPO alone."""

import dataclasses
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rlvr
from rlvr.algo.advantages import group_advantages
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.rloo import RLOO
from rlvr.algo.parts import Clip, Correction, Kl
from rlvr.train.config import Config
from rlvr.train.credit import Batch, collate, credit
from rlvr.train.learner import Diverged, Learner
from rlvr.train.parts import Reference
from rlvr.train.rollout_batch import RolloutBatch
from tests.rounding import additions, assert_same
from tests.train.bandit import policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain(RLOO):
    """REINFORCE with GRPO's advantages: nothing but -A log π, as a mean over tokens."""

    aggregation = "token_mean"
    kl: Kl | None = None
    group_size: int | None = 2

    def advantages(self, groups):
        return group_advantages(groups.scores, groups.scored)


REINFORCE = Plain()
CLIPPED = load_algorithm(
    "grpo", clip_low=0.2, clip_high=0.2, aggregation="token_mean", kl="none", group_size=2
)


def clipped_of(aggregation: str) -> Algorithm:
    """PPO's clip under each aggregation."""
    if aggregation == "constant":
        return load_algorithm("dr_grpo", clip_low=0.2, clip_high=0.2)
    return dataclasses.replace(CLIPPED, aggregation=aggregation)


LENGTHS = (3, 1, 5, 2, 4, 5)


def rollout(
    prompt, completion, logprobs=None, *, total=1.0, mask=None, truncated=False
) -> rlvr.Rollout:
    """One of given tokens; unscored if the total is None."""
    T = len(completion)
    outcome = "unscored" if total is None else "correct" if total > 0 else "wrong"
    verdict = rlvr.Verdict(outcome, why="given")
    return rlvr.Rollout(
        task=rlvr.Task("t", "?"),
        text="",
        prompt_ids=prompt,
        completion_ids=completion,
        completion_mask=[True] * T if mask is None else mask,
        behaviour_logprobs=[-1.0] * T if logprobs is None else logprobs,
        weights_version=0,
        truncated=truncated,
        score=rlvr.Score(total, {} if total is None else {"correct": total}, verdict),
    )


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """A bad mini-batch becomes a file of the run, whose folder is relative here."""
    monkeypatch.chdir(tmp_path)


def learner(algorithm: Algorithm, *, made=None, **settings) -> Learner:
    """Of a tiny policy, in float32, that has not learned anything yet."""
    settings = {
        "env": "e",
        "model": "m",
        "run": Path("r"),
        "eval_every": None,
        "max_tokens": 8,
        "lr": 0.1,
    } | settings
    return Learner(made or policy(), Config(algorithm=algorithm, **settings))


def batch_of(lengths=LENGTHS, advantages=None, seed: int = 0) -> Batch:
    """Rows of random tokens, that the policy of `learner` did not quite sample."""
    draw = torch.Generator().manual_seed(seed)
    rows = []
    for i, T in enumerate(lengths):
        logprobs = -1 - 3 * torch.rand(T, generator=draw)
        rows.append(
            rollout(
                [1, 4 + i], torch.randint(4, 17, (T,), generator=draw).tolist(), logprobs.tolist()
            )
        )
    batch = collate([rlvr.Group(rows[0].task, rows)])
    if advantages is None:
        advantages = torch.linspace(-1, 1, len(rows))
    per_row = torch.as_tensor(advantages, dtype=torch.float32)[:, None]
    return replace(batch, advantages=torch.where(batch.completion_mask, per_row, 0.0))


def gradient(made: Learner, batch: Batch, rows=None) -> torch.Tensor:
    """Of one mini-batch, all parameters in a row."""
    made.optimizer.zero_grad()
    made.backward(batch, list(range(len(batch.rows))) if rows is None else rows)
    return torch.cat([p.grad.flatten() for p in made.policy.model.parameters()])


def assert_same_gradient(made: Learner, found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Up to the rounding of sums over the model and the tokens of `batch_of`."""
    assert_same(found, wanted, terms=additions(made.policy.model, 8 * len(LENGTHS)))


def constant(model, logprobs: dict[int, float]) -> None:
    """Make a model that gives these tokens these logprobs, whatever stands before them, and the others the rest."""
    head = model.get_output_embeddings()
    rest = math.log(
        (1 - sum(map(math.exp, logprobs.values()))) / (head.out_features - len(logprobs))
    )
    model.lm_head = torch.nn.Linear(head.in_features, head.out_features)
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.bias.fill_(rest)
        for token, logprob in logprobs.items():
            model.lm_head.bias[token] = logprob


@pytest.fixture
def known():
    """A policy that says token 4 with chance 1/2 and token 5 with chance 1/4, always."""
    made = policy()
    constant(made.model, {4: math.log(1 / 2), 5: math.log(1 / 4)})
    return made


@pytest.mark.parametrize(
    ("aggregation", "loss"), [("token_mean", -0.2), ("sequence_mean", 2 / 3), ("constant", -0.05)]
)
def test_the_loss_of_a_batch_is_what_it_is_by_hand(known, aggregation, loss):
    """Row 1: tokens 4, 5, 5 at behaviour 1/2, 1/4, 1/8, so ratios 1, 1, 2; advantage 1, the last clipped to 1.2:
    losses -1, -1, -1.2.  Row 2: token 4 at behaviour 1/4, ratio 2, advantage -1.2: no clip from above, loss 2.4.

    Token mean: (-3.2 + 2.4) / 4 = -0.2.  Sequence mean: (-3.2/3 + 2.4) / 2 = 2/3.  Constant 8: -0.8 / (2 · 8) = -0.05.
    """
    rows = [
        rollout([1], [4, 5, 5], [math.log(1 / 2), math.log(1 / 4), math.log(1 / 8)]),
        rollout([1], [4], [math.log(1 / 4)]),
    ]
    batch = collate([rlvr.Group(rows[0].task, rows)])
    batch = replace(batch, advantages=torch.tensor([[1.0, 1.0, 1.0], [-1.2, 0.0, 0.0]]))
    made = learner(clipped_of(aggregation), made=known)
    numbers, stats = made.backward(batch, [0, 1])
    assert numbers["loss"] == pytest.approx(loss, abs=1e-6)
    assert sum(float(one.high) for one in stats) == 1


def test_kl_and_correction_in_a_loss_by_hand(known):
    """One token, 4: trainer 1/2, behaviour 1/8, reference 1/4, advantage 1.

    Before the step the trainer said 1/2 too: ratio 1, weight min(1/2 : 1/8, 2) = 2, objective -2.
    k3 = r - 1 - log r at r = (1/4) / (1/2): 1/2 - 1 + log 2 = 0.193147, of which a tenth is added.
    """
    row = rollout([1], [4], [math.log(1 / 8)])
    batch = replace(
        collate([rlvr.Group(row.task, [row])]),
        advantages=torch.ones(1, 1),
        old_logprobs=torch.full((1, 1), math.log(1 / 2)),
        ref_logprobs=torch.full((1, 1), math.log(1 / 4)),
    )
    algorithm = dataclasses.replace(CLIPPED, kl=Kl("k3", 0.1, "loss"), correction=(Correction(),))
    numbers, _ = learner(algorithm, made=known).backward(batch, [0])
    assert numbers["loss"] == pytest.approx(-2 + 0.1 * (math.log(2) - 0.5), abs=1e-6)
    assert numbers["kl_ref"] == pytest.approx(math.log(2) - 0.5, abs=1e-6)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant"])
@pytest.mark.parametrize("micro_tokens", [7, 12, 20])
def test_the_gradient_does_not_depend_on_the_budget_of_a_micro_batch(aggregation, micro_tokens):
    """Denominators are those of the mini-batch: parts of a loss add up, whatever shares a micro-batch."""
    algorithm = dataclasses.replace(
        clipped_of(aggregation),
        kl=Kl("k3", 0.1, "loss"),
        entropy=0.01,
        correction=(Correction(),),
    )
    whole, split = (
        learner(algorithm),
        learner(algorithm, made=policy(max_tokens=micro_tokens, overhead_tokens=0)),
    )
    batch = whole.prepared(batch_of())
    assert len(split.policy.micro_batches(batch.rows)) > len(whole.policy.micro_batches(batch.rows))
    assert_same_gradient(split, gradient(split, batch), gradient(whole, batch))


def test_rows_without_an_advantage_cost_nothing_and_change_nothing():
    """They have no gradient, and keep their place in the denominator: half of a batch silent is half the gradient."""
    made, batch = learner(CLIPPED), batch_of(advantages=[1.0, 0.0, -1.0, 0.0, 0.0, 0.5])
    assert made.rows_with_gradient(batch) == [0, 2, 5]
    assert_same_gradient(made, gradient(made, batch, [0, 2, 5]), gradient(made, batch))
    alone = batch.part([0, 2, 5])
    tokens = [int(one.completion_mask.sum()) for one in (alone, batch)]
    fewer = gradient(made, alone) * tokens[0] / tokens[1]
    assert_same_gradient(made, gradient(made, batch, [0, 2, 5]), fewer)


def test_with_a_kl_in_the_loss_every_row_teaches():
    """A group that agrees has no advantage, and is still to be held to the reference."""
    batch = batch_of(advantages=[0.0] * 6)
    assert learner(load_algorithm("grpo")).rows_with_gradient(batch) == [0, 1, 2, 3, 4, 5]
    assert learner(load_algorithm("dapo")).rows_with_gradient(batch) == []


def test_a_mini_batch_without_anything_to_teach_is_no_step():
    """AdamW's momentum would move the weights on no evidence at all."""
    made = learner(CLIPPED)
    made.update(batch_of(), [range(6)], pytest.fail)
    before = [p.clone() for p in made.policy.model.parameters()]
    numbers = made.update(batch_of(advantages=[0.0] * 6), [range(6)], pytest.fail)
    assert numbers["updates"] == 0
    assert all(map(torch.equal, before, made.policy.model.parameters()))


def test_clip_higher_lets_an_unlikely_token_rise_further(known):
    """Ratio 1.25, advantage 1: outside of 1 ± 0.2 it has no gradient, inside of [0.8, 1.28] it has (DAPO, 3.1)."""
    row = rollout([1], [4], [math.log(1 / 2.5)])
    batch = replace(collate([rlvr.Group(row.task, [row])]), advantages=torch.ones(1, 1))
    assert gradient(learner(CLIPPED, made=known), batch).abs().max() == 0
    higher = dataclasses.replace(CLIPPED, clip=Clip(0.2, 0.28))
    assert gradient(learner(higher, made=known), batch).abs().max() > 0.1


def test_under_the_token_mean_a_token_of_a_long_answer_weighs_as_much_as_any(known):
    """DAPO, 3.3.  Rows of 3 and 1 tokens: by tokens the long row has 3/4 of the loss, by sequences half."""
    rows = [rollout([1], [4, 4, 4], [math.log(0.5)] * 3), rollout([1], [4], [math.log(0.5)])]
    batch = collate([rlvr.Group(rows[0].task, rows)])
    batch = replace(batch, advantages=torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]))
    for aggregation, share in {"token_mean": 0.75, "sequence_mean": 0.5}.items():
        made = learner(clipped_of(aggregation), made=known)
        assert made.backward(batch, [0])[0]["loss"] == pytest.approx(-share, abs=1e-6)


def test_masked_rows_are_in_no_denominator():
    """A truncated row under overlong filtering, or an unscored one: not there at all (DAPO, 3.4)."""
    made, batch = learner(CLIPPED), batch_of()
    mask = batch.completion_mask.clone()
    mask[5] = False
    masked = replace(
        batch, completion_mask=mask, advantages=torch.where(mask, batch.advantages, 0.0)
    )
    fewer = batch.part(range(5))
    assert_same_gradient(made, gradient(made, masked), gradient(made, fewer))


def test_a_gradient_is_cut_to_its_norm():
    """The log says how long it was."""
    made = learner(CLIPPED, grad_clip=1e-3)
    seen = []
    made.optimizer.register_step_pre_hook(
        lambda optimizer, args, kwargs: seen.append(
            torch.cat([p.grad.flatten() for p in made.parameters]).norm()
        )
    )
    numbers = made.update(batch_of(), [range(6)], pytest.fail)
    assert numbers["grad_norm"] > 0.01
    assert float(seen[0]) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [1, 2, 3, 3, 3, 3]),
        ("linear", [1, 2, 3, 2.25, 1.5, 0.75]),
        ("cosine", [1, 2, 3, 2.56066, 1.5, 0.43934]),
    ],
)
def test_the_learning_rate_rises_and_then_keeps_to_its_schedule(schedule, rates):
    """3 at its height, 2 steps of rise, 4 down to 0; cosine: 3/2 (1 + cos 45°) = 2.56066."""
    made = learner(
        CLIPPED, lr=3.0, warmup_steps=2, schedule=schedule, steps=6, prompts=1, group_size=2
    )
    found = []
    for _ in range(6):
        found.append(made.lr)
        made.updates += 1
    assert found == pytest.approx(rates, abs=1e-5)


def test_a_loss_that_is_not_finite_moves_nothing_and_is_kept():
    """One NaN in a gradient would be in every weight after one step."""
    made, kept = learner(CLIPPED, bad_steps=3), []
    bad = batch_of()
    bad.advantages[0, 0] = math.inf
    before = [p.clone() for p in made.policy.model.parameters()]
    numbers = made.update(bad, [range(6), range(6)], kept.append)
    assert (numbers["updates"], numbers["bad_updates"], len(kept)) == (0, 2, 2)
    assert all(map(torch.equal, before, made.policy.model.parameters()))
    with pytest.raises(Diverged, match="3 losses or gradients in a row"):
        made.update(bad, [range(6)], kept.append)


def test_a_good_step_forgives_the_bad_ones_before():
    """They count in a row: one odd batch in a thousand does not end a run."""
    made, bad = learner(CLIPPED, bad_steps=2), batch_of()
    bad.advantages[0, 0] = math.inf
    for _ in range(3):
        made.update(bad, [range(6)], lambda mini: None)
        made.update(batch_of(), [range(6)], lambda mini: None)
    assert (made.updates, made.bad) == (3, 3)


def test_a_reset_takes_the_policy_as_reference_and_forgets_the_moments():
    """ProRL: afterwards the KL is 0, and AdamW as new; the learning rate's schedule goes on."""
    made = learner(load_algorithm("prorl"), eval_every=1, schedule="linear", steps=10)
    batch = made.prepared(batch_of())
    made.update(batch, [range(6)], pytest.fail)
    assert not torch.equal(
        made.logprobs(batch.rows, made.part(Reference).policy),
        made.logprobs(batch.rows, made.policy),
    )
    lr = made.lr
    made.reset()
    assert torch.equal(
        made.logprobs(batch.rows, made.part(Reference).policy),
        made.logprobs(batch.rows, made.policy),
    )
    assert made.optimizer.state_dict()["state"] == {}
    assert made.lr == lr < 0.1


def test_the_reference_is_not_trained():
    """It shares nothing with the policy."""
    made = learner(load_algorithm("grpo"))
    batch = made.prepared(batch_of())
    before = made.logprobs(batch.rows, made.part(Reference).policy)
    made.update(batch, [range(6)], pytest.fail)
    assert torch.equal(made.logprobs(batch.rows, made.part(Reference).policy), before)
    assert not torch.equal(made.logprobs(batch.rows, made.policy), before)


def test_credit_comes_before_the_update_and_reaches_it():
    """From scores to weights: the better of two answers becomes likelier, the other less likely."""
    made = learner(REINFORCE, lr=0.01)
    rows = [rollout([1], [4, 6], total=1.0), rollout([1], [5, 7], total=0.0)]
    groups = [rlvr.Group(rows[0].task, rows)]
    batch = collate(groups)
    batch = replace(batch, advantages=credit(groups, batch, REINFORCE).advantages)
    before = made.logprobs(rows, made.policy).sum(dim=1)
    made.update(batch, [range(2)], pytest.fail)
    after = made.logprobs(rows, made.policy).sum(dim=1)
    assert after[0] > before[0]
    assert after[1] < before[1]


@pytest.mark.parametrize("tokens", [[4, 5], []])
@pytest.mark.parametrize("name", ["dapo", "ppo", "reinforce_pp"])
def test_a_step_without_a_trained_token_is_skipped(name, tokens):
    """All truncated and masked logged an entropy of NaN; episodes that end before their first token stopped the run."""
    rows = [rollout([1], tokens, total=t, mask=[False] * len(tokens)) for t in (0.0, 1.0)]
    sampled = RolloutBatch([rlvr.Group(rows[0].task, rows)], None, {}, {"t": 0}, wall_s=0.0)
    said: list[object] = []
    made = learner(load_algorithm(name))
    made.say = said.append
    numbers = made.learn(sampled, 0)
    assert said == ["step 1 is skipped: no completion has a token that is trained on"]
    assert (numbers["skipped"], numbers["updates"]) == (1.0, 0.0)
    assert all(map(math.isfinite, numbers.values()))
