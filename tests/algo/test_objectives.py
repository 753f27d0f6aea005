"""Losses per token by hand, their gradients, and the promise that a masked token is not there."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.algo.objectives import cispo, clipped, gspo, ppo_kl, reinforce, sapo, sequence_clipped
from rlvr.algo.ratios import RatioStats

NAN, INF = math.nan, math.inf
ON = torch.tensor([[True]])

OBJECTIVES = {
    "reinforce": reinforce,
    "sapo": lambda lp, b, a, m: sapo(lp, b, a, m),
    "ppo": partial(clipped, low=0.2, high=0.2),
    "decoupled": partial(clipped, low=0.2, high=0.28),
    "dual": partial(clipped, low=0.2, high=0.28, dual=3.0),
    "gspo": partial(gspo, low=0.1, high=0.2),
    "gspo_token": partial(gspo, low=0.1, high=0.2, per_token=True),
    "sequence": partial(sequence_clipped, low=0.3, high=0.5),
    "cispo": partial(cispo, low=0.3, high=0.4),
    "ppo_kl": partial(ppo_kl, beta=0.5),
}
every = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)


def f64(rows: list) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def one(objective, ratio: float, advantage: float) -> tuple[float, float, RatioStats]:
    """Loss, gradient in the log-probability and statistics of a single token of behaviour probability 1/2."""
    logprobs = f64([[math.log(0.5 * ratio)]]).requires_grad_()
    losses, stats = objective(logprobs, f64([[math.log(0.5)]]), f64([[advantage]]), ON)
    losses.sum().backward()
    return losses.item(), logprobs.grad.item(), stats


# ------------------------------------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.1, 2.0, -2.2, -2.2),  # inside: -r A, and d r / d log π = r
        (1.5, 2.0, -2.56, 0.0),  # a good token above the bound: -1.28 A, and it has learnt enough
        (1.5, -2.0, 3.0, 3.0),  # a bad token that became likelier is pushed back in full
        (0.5, 2.0, -1.0, -1.0),  # and so is a good one that became rarer
        (0.5, -2.0, 1.6, 0.0),  # a bad one below the bound: -0.8 A
        (9.0, 0.0, 0.0, 0.0),
    ],
)
def test_the_clip_by_hand(ratio: float, advantage: float, loss: float, gradient: float):
    """DAPO's 0.2 and 0.28: the bound holds only on the side to which the advantage pulls."""
    assert one(OBJECTIVES["decoupled"], ratio, advantage)[:2] == pytest.approx((loss, gradient))


@pytest.mark.parametrize(
    ("ratio", "loss", "gradient"), [(2.9, 5.8, 5.8), (4.0, 6.0, 0.0), (1e6, 6.0, 0.0)]
)
def test_the_dual_clip_by_hand(ratio: float, loss: float, gradient: float):
    """c = 3, A = -2: the loss of a bad token ends at 6."""
    assert one(OBJECTIVES["dual"], ratio, -2.0)[:2] == pytest.approx((loss, gradient))


def test_reinforce_is_minus_advantage_times_log_probability():
    """And its gradient -A, whatever the ratio."""
    assert one(reinforce, 0.5, 2.0)[:2] == pytest.approx((-2 * math.log(0.25), -2.0))


@pytest.mark.parametrize(
    ("ratio", "advantage", "tau"), [(2.0, 1.0, 1.0), (0.5, -2.0, 1.05), (1.0, 3.0, 1.0)]
)
def test_sapo_by_hand(ratio: float, advantage: float, tau: float):
    """-(4/τ) σ(τ (r - 1)) A, and its derivative by log π: -4 p (1 - p) r A, which is -r A at r = 1."""
    p = 1 / (1 + math.exp(-tau * (ratio - 1)))
    expected = (-4 / tau * p * advantage, -4 * p * (1 - p) * ratio * advantage)
    assert one(sapo, ratio, advantage)[:2] == pytest.approx(expected)


def test_a_temperature_of_sapo_is_above_0():
    """At 0 there is no gate."""
    with pytest.raises(ValueError, match=r"the temperatures are 0\.0 and 1\.05"):
        one(partial(sapo, positive=0.0), 1.0, 1.0)


@pytest.mark.parametrize(("ratio", "weight"), [(1.2, 1.2), (3.0, 1.4), (0.5, 0.7)])
def test_cispo_bounds_the_weight_and_never_the_gradient_away(ratio: float, weight: float):
    """-w A log π with w in [0.7, 1.4]: a token far outside still learns, which is CISPO's point."""
    loss, gradient, stats = one(OBJECTIVES["cispo"], ratio, 2.0)
    assert loss == pytest.approx(-2 * weight * math.log(0.5 * ratio))
    assert gradient == pytest.approx(-2 * weight)
    assert (stats.low, stats.high) == (ratio < weight, ratio > weight)


def test_without_a_lower_bound_cispo_weighs_down_to_0():
    """The paper sets none."""
    assert one(partial(cispo, high=1.0), 1e-3, 1.0)[1] == pytest.approx(-1e-3)


def test_ppo_kl_by_hand():
    """r = 2, A = 1, β = 1/2: -2 + (2 - 1 - log 2) / 2; gradient -r A + β (r - 1)."""
    assert one(OBJECTIVES["ppo_kl"], 2.0, 1.0)[:2] == pytest.approx((-1.5 - math.log(2) / 2, -1.5))


def of_two_rows(name: str, ratios: list) -> tuple:
    """Losses, slopes and statistics of two tokens a row with A = 3; the third token is not trained on."""
    logprobs = (f64(ratios).log() - 5).requires_grad_()
    mask = torch.tensor([[True, True, False]] * 2)
    losses, stats = OBJECTIVES[name](
        logprobs, torch.full((2, 3), -5.0).double(), f64([[3.0]] * 2), mask
    )
    losses.sum().backward()
    return losses.tolist(), logprobs.grad.tolist(), stats.means()


def rows_of(*numbers: float) -> list:
    return [pytest.approx([number, number, 0.0]) for number in numbers]


def test_gspo_has_one_ratio_per_completion():
    """Ratios 2 and 1/2 make s = 1, which is not clipped; 4 and 1 make 2, which is: -1.2 A at each token.

    d s / d log π_t = s / 2, over two tokens with the same s: -A s each.
    """
    losses, slopes, stats = of_two_rows("gspo", [[2.0, 0.5, 1.0], [4.0, 1.0, 9.0]])
    assert (losses, slopes) == (rows_of(-3.0, -3.6), rows_of(-3.0, 0.0))
    assert (stats["clipped_high"], stats["ratio_max"]) == (0.5, pytest.approx(2))


def test_the_product_of_ratios_by_hand():
    """Ratios 2 and 0.6 make s = 1.2, inside; 2 and 1 make 2, and the bound is 1.5; d s / d log π_t = s, not s / T."""
    losses, slopes, stats = of_two_rows("sequence", [[2.0, 0.6, 1.0], [2.0, 1.0, 9.0]])
    assert (losses, slopes) == (rows_of(-3.6, -4.5), rows_of(-7.2, 0.0))
    assert stats["clipped_high"] == 0.5
    # Of one token both are PPO.
    single = [one(OBJECTIVES[name], 1.1, 2.0)[:2] for name in ("sequence", "ppo")]
    assert single[0] == pytest.approx(single[1])


def test_gspo_token_differs_where_advantages_do():
    """A = 1, 3 at ratio 1: GSPO moves both tokens by their mean 2, GSPO-token each by its own."""
    args = f64([[-1.0, -1.0]]), f64([[1.0, 3.0]]), torch.tensor([[True, True]])
    gradients = {}
    for name in ("gspo", "gspo_token"):
        logprobs = f64([[-1.0, -1.0]]).requires_grad_()
        losses, _ = OBJECTIVES[name](logprobs, *args)
        losses.sum().backward()
        gradients[name] = losses.detach().tolist(), logprobs.grad.tolist()
    assert gradients == {
        "gspo": ([[-1.0, -3.0]], [[-2.0, -2.0]]),
        "gspo_token": ([[-1.0, -3.0]], [[-1.0, -3.0]]),
    }


def test_the_statistics_by_hand():
    """Ratios 1/2, 1, 2, 4 with signs that clip the first and the last; k3 = r - 1 - log r."""
    ratios = f64([[0.5, 1.0, 2.0, 4.0, NAN]])
    mask = torch.tensor([[True, True, True, True, False]])
    _, stats = clipped(
        ratios.log(),
        torch.zeros(1, 5).double(),
        f64([[-1.0, 1.0, -1.0, 1.0, NAN]]),
        mask,
        low=0.2,
        high=0.2,
        dual=1.5,
    )
    assert stats.means() == pytest.approx(
        {
            "ratio_mean": 7.5 / 4,
            "ratio_max": 4.0,
            "kl": (-0.5 + 0 + 1 + 3 - math.log(4)) / 4,  # logs: -1 + 0 + 1 + 2 = 2 of log 2
            "clipped_low": 0.25,
            "clipped_high": 0.25,
            "clipped_dual": 0.25,
        },
        rel=1e-6,
    )


def test_statistics_add_up_over_micro_batches():
    """Sums add, the maximum is the larger one; an empty micro-batch changes nothing."""
    x = torch.linspace(-2, 1, 12).double().reshape(4, 3)
    args = x, torch.full_like(x, -0.5), x.sin(), x > -1.5
    whole = OBJECTIVES["dual"](*args).stats
    parts = [
        OBJECTIVES["dual"](*(a[rows] for a in args)).stats
        for rows in (slice(0, 1), slice(1, 4), slice(0, 0))
    ]
    total = parts[0] + parts[1] + parts[2]
    assert total.means() == pytest.approx(whole.means())
    assert whole.tokens == 10


# ----------------------------------------------------------------------------------------- promises


@every
@settings(max_examples=30)
@given(data=st.data())
def test_a_masked_token_is_not_there(objective, data):
    """Loss and gradient are exactly 0 whatever its inputs, and the other tokens do not notice."""
    junk = st.sampled_from([NAN, INF, -INF, 1e300, -1e300])
    mask = torch.tensor([[True, False, True, False], [False] * 4])
    clean = [f64([[-0.4, 0.0, -1.1, 0.0], [0.0] * 4]), f64([[-0.9, 0.0, -0.8, 0.0], [0.0] * 4])]
    clean.append(f64([[-1.0, 0.0, 2.0, 0.0], [0.0] * 4]))
    found = []
    for inputs in (clean, [torch.where(mask, x, data.draw(junk)) for x in clean]):
        logprobs = inputs[0].clone().requires_grad_()
        losses, stats = objective(logprobs, *inputs[1:], mask)
        losses.sum().backward()
        assert (losses[~mask] == 0).all()
        assert (logprobs.grad[~mask] == 0).all()
        found.append((losses.detach(), logprobs.grad, f64(list(stats.means().values()))))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    assert found[0][1][mask].abs().max() > 0


@every
def test_the_first_step_is_the_policy_gradient(objective):
    """Where the policy is the behaviour policy, each of them moves a completion by -A ∇log π; no ratio is clipped.

    The product of a row's two ratios is in the losses of both its tokens, so that their sum has it twice.
    """
    logprobs = f64([[-0.3, -1.0], [-2.0, -0.1]])
    learned = logprobs.clone().requires_grad_()
    A = f64([[1.0, 1.0], [-2.0, -2.0]])
    losses, stats = objective(learned, logprobs, A, torch.ones(2, 2, dtype=torch.bool))
    losses.sum().backward()
    torch.testing.assert_close(learned.grad, -A * (2 if objective is OBJECTIVES["sequence"] else 1))
    assert stats.means() | {"ratio_mean": 1.0, "ratio_max": 1.0} == stats.means()
    assert stats.means()["kl"] == stats.means()["clipped_low"] == stats.means()["clipped_high"] == 0


SMOOTH = {name: f for name, f in OBJECTIVES.items() if name not in ("cispo", "gspo_token")}


@pytest.mark.parametrize("objective", SMOOTH.values(), ids=SMOOTH)
def test_gradients_are_those_of_the_loss(objective):
    """Finite differences in float64, away from the kinks; cispo and gspo_token stop gradients on purpose."""
    behaviour = f64([[-1.0, -0.7, -1.3], [-0.5, -2.0, -1.0]])
    shift = f64([[0.05, -0.6, 0.6], [-0.04, 1.5, 0.08]])
    A = f64([[1.0, -1.0, 1.0], [2.0, -0.5, 0.7]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert torch.autograd.gradcheck(
        lambda lp: objective(lp, behaviour, A, mask).losses, (behaviour + shift).requires_grad_()
    )


@every
def test_only_the_policy_learns(objective):
    """Behaviour logprobs and advantages are numbers, also where the caller forgot to detach them; so are statistics."""
    lp, b, A = (f64([[x]]).requires_grad_() for x in (-0.5, -0.6, 1.0))
    losses, stats = objective(lp, b, A, ON)
    losses.sum().backward()
    assert b.grad is None
    assert A.grad is None
    assert not any(getattr(stats, name).requires_grad for name in RatioStats.__dataclass_fields__)


@every
def test_one_advantage_per_row_is_one_per_token(objective):
    """[B, 1] and [B, T] say the same."""
    lp, b = f64([[-0.5, -1.0], [-0.2, -0.9]]), f64([[-0.6, -0.8], [-0.5, -0.9]])
    A, mask = f64([[1.0], [-2.0]]), torch.tensor([[True, True], [True, False]])
    wide = A.expand(2, 2)
    torch.testing.assert_close(
        objective(lp, b, A.expand_as(lp), mask).losses, objective(lp, b, wide, mask).losses
    )
    torch.testing.assert_close(
        objective(lp, b, A, mask).losses, objective(lp, b, wide, mask).losses
    )


@pytest.mark.parametrize(
    "name", ["ppo", "decoupled", "dual", "gspo", "sequence", "ppo_kl", "cispo"]
)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_ratio_beyond_the_largest_float_leaves_loss_and_gradient_finite(
    name: str, advantage: float, dtype
):
    """exp(90) is inf in float32; the token that is clipped away would otherwise have the gradient 0 · inf = NaN."""
    lp = torch.tensor([[-1.0, -91.0]], dtype=dtype, requires_grad=True)
    losses, _ = OBJECTIVES[name](
        lp,
        torch.tensor([[-91.0, -1.0]], dtype=dtype),
        torch.full((1, 2), advantage),
        torch.tensor([[True, True]]),
    )
    losses.sum().backward()
    assert losses.isfinite().all()
    assert lp.grad.isfinite().all()


@given(
    ratio=st.floats(0.01, 20), advantage=st.floats(-3, 3), low=st.floats(0, 1), high=st.floats(0, 3)
)
def test_the_clip_never_promises_more_than_the_bound(ratio, advantage, low, high):
    """It is pessimistic: at least the unclipped loss, and a good token gains at most (1 + high) A."""
    loss, gradient, _ = one(partial(clipped, low=low, high=high), ratio, advantage)
    assert loss >= -ratio * advantage - 1e-9
    if advantage > 0:
        assert loss >= -(1 + high) * advantage - 1e-9
    assert gradient == pytest.approx(0) or gradient == pytest.approx(-ratio * advantage)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            partial(clipped, low=-0.1, high=0.2),
            r"low is -0\.1 and high is 0\.2; the ratio is kept in \[1 - low",
        ),
        (partial(clipped, low=1.1, high=0.2), r"low is 1\.1"),
        (partial(gspo, low=0.1, high=INF), r"high is inf"),
        (partial(cispo, high=NAN), r"high is nan"),
        (
            partial(clipped, low=0.2, high=0.28, dual=1.28),
            r"dual is 1\.28; it must be above 1 \+ high = 1\.28",
        ),
        (partial(ppo_kl, beta=-1.0), r"beta is -1\.0"),
        (partial(ppo_kl, beta=NAN), r"beta is nan"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(call, message: str):
    """1.2 for 0.2 is easily written."""
    x = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=message):
        call(x, x, x, ON)
