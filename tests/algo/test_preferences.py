"""Losses on preferences: by hand, their minimisers, their gradients, and that no two of them are the same."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.algo import preferences
from rlvr.algo.preferences import (
    bradley_terry,
    dpo,
    gains,
    hinge,
    ipo,
    kto,
    kto_reference_point,
    negative_log_likelihood,
    step_label_loss,
    weighted_mean,
)
from tests.algo.plain import unchecked

LN3 = math.log(3)
PLAIN = unchecked(preferences)


def f64(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# ------------------------------------------------------------------------------------------ by hand


def test_gains_are_sums_or_means_of_trained_tokens_alone():
    """-1 + 2 = 1 and its mean ½; the masked token's NaN and its gradient stay outside."""
    logprobs = f64([[-2.0, math.nan, -1.0], [-3.0, -3.0, math.inf]]).requires_grad_()
    ref, mask = (
        f64([[-1.0, 0.0, -3.0], [-3.0, -1.0, 0.0]]),
        torch.tensor([[True, False, True], [True, True, False]]),
    )
    summed = gains(logprobs, ref, mask, length="sum")
    assert summed.tolist() == [1.0, -2.0]
    assert gains(logprobs, ref, mask, length="mean").tolist() == [0.5, -1.0]
    summed.sum().backward()
    assert logprobs.grad.tolist() == [[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]


def test_a_row_without_trained_tokens_has_gain_0():
    """Its mean is not 0 / 0: a completion that was cut to nothing made TRL's IPO NaN."""
    none = torch.zeros(1, 2, dtype=torch.bool)
    assert gains(f64([[-1.0, -1.0]]), f64([[0.0, 0.0]]), none, length="mean").item() == 0.0


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda w, v: dpo(w, v, beta=0.5), math.log(4 / 3)),  # β Δ = ln 3, and σ(ln 3) = ¾
        (
            lambda w, v: dpo(w, v, beta=0.5, smoothing=0.25),
            0.75 * math.log(4 / 3) + 0.25 * math.log(4),
        ),
        (
            lambda w, v: dpo(w, v, beta=0.5, smoothing=0.25, reading="robust"),
            (0.75 * math.log(4 / 3) - 0.25 * math.log(4)) / 0.5,
        ),
        (lambda w, v: hinge(w, v, beta=0.5), 0.0),  # βΔ = 1.0986 is above 1
        (lambda w, v: hinge(w, v, beta=0.25), 1 - LN3 / 2),
        (lambda w, v: ipo(w, v, beta=0.5), (2 * LN3 - 1) ** 2),
        (lambda w, v: bradley_terry(w, v, margin=LN3), math.log(4 / 3)),
        (
            lambda w, v: bradley_terry(w, v, margin=LN3, centring=0.1),
            math.log(4 / 3) + 0.1 * (4 * LN3) ** 2,
        ),
    ],
)
def test_a_pair_by_hand(loss, expected: float):
    """h_w = 3 ln 3, h_l = ln 3, so Δ = 2 ln 3."""
    assert loss(f64([3 * LN3]), f64([LN3])).item() == pytest.approx(expected, abs=1e-12)


def test_kto_by_hand():
    """β (h - z) = ln 3: a right one loses 1 - ¾, a wrong one ¾; the weights multiply."""
    gain, right = f64([2 * LN3, 2 * LN3]), torch.tensor([True, False])
    losses = kto(gain, right, f64(LN3), beta=1.0, right_weight=2.0, wrong_weight=3.0)
    assert losses.tolist() == pytest.approx([2 * 0.25, 3 * 0.75], abs=1e-12)


def test_the_reference_of_kto_is_a_number_of_at_least_0():
    """Without gradient; a mean below 0, which no divergence has, becomes 0."""
    gain = f64([1.0, 2.0]).requires_grad_()
    assert kto_reference_point(gain).item() == 1.5
    assert not kto_reference_point(gain).requires_grad
    assert kto_reference_point(f64([-1.0, 0.5])).item() == 0.0


def test_the_loss_of_step_labels_counts():
    """3 of 4 right at x = 0: four labels, each ln 2."""
    assert step_label_loss(f64([0.0]), f64([3.0]), f64([4.0])).item() == pytest.approx(
        4 * math.log(2)
    )


def test_a_token_of_fine_tuning_loses_its_negative_log_probability():
    """Masked tokens lose 0."""
    mask = torch.tensor([[True, False]])
    assert negative_log_likelihood(f64([[-2.0, -5.0]]), mask).tolist() == [[2.0, 0.0]]


# --------------------------------------------------------------------------------------- minimisers


def least(risk) -> float:
    """Where a convex function of one number is least; Newton's method on torch's derivatives."""
    x = f64(0.0).requires_grad_()
    for _ in range(30):
        (slope,) = torch.autograd.grad(risk(x), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope, x)
        x = (x - (slope / bend).clamp(-1, 1)).detach().requires_grad_()
    return x.item()


def preferred(p: float, loss):
    """The risk of Δ where the first completion is preferred with probability p."""
    zero = f64([0.0])

    def risk(x):
        ahead = x.reshape(1)
        return (p * loss(ahead, zero) + (1 - p) * loss(zero, ahead)).sum()

    return risk


@pytest.mark.parametrize(
    ("loss", "p", "expected"),
    [
        (lambda w, v: dpo(w, v, beta=0.5), 0.8, math.log(4) / 0.5),  # logit(.8) = ln 4
        (lambda w, v: ipo(w, v, beta=0.5), 0.8, 0.6),  # (2p - 1) / 2β
        (
            lambda w, v: dpo(w, v, beta=0.5, smoothing=0.2),
            1.0,
            math.log(4) / 0.5,
        ),  # cDPO stays finite
        # p = .8 seen through flips of rate .2 is .68; robust finds the clean optimum, plain DPO logit(.68) / β
        (
            lambda w, v: dpo(w, v, beta=0.5, smoothing=0.2, reading="robust"),
            0.68,
            math.log(4) / 0.5,
        ),
        (lambda w, v: dpo(w, v, beta=0.5), 0.68, math.log(0.68 / 0.32) / 0.5),
        (lambda w, v: bradley_terry(w, v), 0.8, math.log(4)),
    ],
)
def test_the_minimiser_is_the_one_of_the_paper(loss, p: float, expected: float):
    """So signs, β and ε are right, and not only the value at one point."""
    assert least(preferred(p, loss)) == pytest.approx(expected, abs=1e-6)


def test_dpo_on_preferences_of_a_bandit_finds_rewards_over_beta():
    """Three completions, pairs drawn by σ(r_i - r_j): h_i - h_j = (r_i - r_j) / β, as in RL with that KL penalty."""
    rewards, ref, beta = f64([1.0, 0.0, 0.5]), f64([0.2, 0.5, 0.3]).log(), 0.5
    logits = ref.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [logits], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-15
    )

    def risk():
        optimiser.zero_grad()
        h = logits.log_softmax(0) - ref
        total = sum(
            torch.sigmoid(rewards[i] - rewards[j]) * dpo(h[i : i + 1], h[j : j + 1], beta=beta)
            for i, j in itertools.permutations(range(3), 2)
        ).sum()
        total.backward()
        return total

    optimiser.step(risk)
    h = (logits.log_softmax(0) - ref).detach()
    torch.testing.assert_close(h - h[1], (rewards - rewards[1]) / beta, atol=1e-5, rtol=0)
    best = (ref + rewards / beta).softmax(0)  # the closed form of the optimum of E[r] - β KL
    torch.testing.assert_close(logits.detach().softmax(0), best, atol=1e-5, rtol=0)
    assert best.tolist() == pytest.approx([0.52906, 0.17900, 0.29194], abs=1e-5)


def test_step_labels_are_learnt_as_shares():
    """σ(x) = k / K, whatever K."""
    assert sigma(
        least(lambda x: step_label_loss(x.reshape(1), f64([3.0]), f64([9.0])).sum())
    ) == pytest.approx(1 / 3)


# --------------------------------------------------------------------------------------- the family


def test_no_two_losses_are_the_same():
    """A trainer that fell back to one of them for all would pass every test of a single loss."""
    logprobs, ref = (
        f64([[-1.0, -2.0, -0.5], [-2.0, -1.0, 0.0], [-1.5, -2.5, -0.1], [-0.2, -1.1, -3.0]]),
        f64([[-1.3, -1.0, -0.5], [-2.5, -1.5, 0.0], [-0.5, -3.5, -1.1], [-0.9, -1.0, -1.0]]),
    )
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()
    found = {}
    for length in ("sum", "mean"):
        h = gains(logprobs, ref, mask, length=length)
        w, v = h[:2], h[2:]
        found |= {
            f"dpo {length}": dpo(w, v, beta=0.3),
            f"conservative {length}": dpo(w, v, beta=0.3, smoothing=0.1),
            f"robust {length}": dpo(w, v, beta=0.3, smoothing=0.1, reading="robust"),
            f"hinge {length}": hinge(w, v, beta=0.3),
            f"ipo {length}": ipo(w, v, beta=0.3),
            f"bradley_terry {length}": bradley_terry(w, v),
            f"kto {length}": kto(h, torch.tensor([1, 1, 0, 0]).bool(), f64(0.1), beta=0.3)[:2],
        }
    for (one, a), (other, b) in itertools.combinations(found.items(), 2):
        assert not torch.allclose(a, b, atol=1e-4), (one, other)


def test_micro_batches_add_up_to_the_whole():
    """With the mini-batch's Σ w as denominator; the split 1 + 3 gives the gradient of 4."""
    h = torch.randn(
        4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()
    weights, zero = f64([1.0, 0.5, 0.5, 2.0]), torch.zeros(4, dtype=torch.float64)
    weighted_mean(dpo(h, zero, beta=1.0), weights, total=weights.sum()).backward()
    whole, h.grad = h.grad, None
    for part in (slice(0, 1), slice(1, 4)):
        weighted_mean(
            dpo(h[part], zero[part], beta=1.0), weights[part], total=weights.sum()
        ).backward()
    torch.testing.assert_close(h.grad, whole, atol=1e-15, rtol=0)


def test_far_apart_sides_stay_finite():
    """Δ of ± 10⁴, as after a diverged step: log σ does not become log 0."""
    h = f64([1e4, -1e4]).requires_grad_()
    losses = dpo(h, f64([0.0, 0.0]), beta=1.0, smoothing=0.1)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert h.grad.isfinite().all()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: dpo(x, x, beta=0.0), "beta is 0.0"),
        (lambda x: ipo(x, x, beta=math.nan), "beta is nan"),
        (lambda x: dpo(x, x, beta=1.0, smoothing=0.5), "smoothing is 0.5"),
        (lambda x: PLAIN.dpo(x, x, beta=1.0, smoothing=0.1, reading="soft"), "reading is 'soft'"),
        (
            lambda x: kto(x, torch.ones(1).bool(), x[0], beta=1.0, wrong_weight=-1.0),
            "wrong_weight is -1.0",
        ),
        (lambda x: bradley_terry(x, x, centring=-0.1), "centring is -0.1"),
        (lambda x: step_label_loss(x, x + 2, x + 1), "more right completions than scored"),
        (
            lambda x: PLAIN.gains(x[None], x[None], torch.ones(1, 1).bool(), length="max"),
            "length is 'max'",
        ),
    ],
)
def test_numbers_out_of_range_are_refused(call, name: str):
    """By name and value."""
    with pytest.raises(ValueError, match=name):
        call(f64([0.0]))


# --------------------------------------------------------------------------------------- properties

GAINS = st.floats(-8, 8)
SHARES = st.sampled_from([0.0, 0.1, 0.4])


@given(GAINS, GAINS, st.floats(0.05, 2), SHARES)
def test_losses_on_a_pair_know_nothing_but_the_difference(
    w: float, v: float, beta: float, share: float
):
    """Closed forms in Δ = h_w - h_l, so that both may move together."""
    d = w - v
    right, flipped = -math.log(sigma(beta * d)), -math.log(sigma(-beta * d))
    expected = {
        "dpo": (dpo, {"smoothing": share}, (1 - share) * right + share * flipped),
        "robust": (
            dpo,
            {"smoothing": share, "reading": "robust"},
            ((1 - share) * right - share * flipped) / (1 - 2 * share),
        ),
        "hinge": (hinge, {}, max(0, 1 - beta * d)),
        "ipo": (ipo, {}, (d - 1 / (2 * beta)) ** 2),
    }
    for name, (loss, options, value) in expected.items():
        for shift in (0.0, 1.0):
            found = loss(f64([w + shift]), f64([v + shift]), beta=beta, **options)
            assert found.item() == pytest.approx(value, abs=1e-9), name


@given(st.lists(st.tuples(GAINS, st.booleans()), min_size=1, max_size=4), GAINS, st.floats(0.05, 2))
def test_kto_weighs_each_side(rows: list[tuple[float, bool]], z: float, beta: float):
    """λ (1 - σ(β (h - z))) for a right one and λ (1 - σ(β (z - h))) for a wrong one: between 0 and its weight."""
    gain, right = f64([h for h, _ in rows]), torch.tensor([good for _, good in rows])
    losses = kto(gain, right, f64(z), beta=beta, right_weight=2.0, wrong_weight=3.0)
    expected = [
        2 * (1 - sigma(beta * (h - z))) if good else 3 * (1 - sigma(beta * (z - h)))
        for h, good in rows
    ]
    assert losses.tolist() == pytest.approx(expected)


@given(st.lists(st.tuples(GAINS, GAINS, st.booleans()), min_size=1, max_size=5))
def test_gains_of_any_row(tokens: list[tuple[float, float, bool]]):
    """The sum and the mean of what is trained on; what is not counts nowhere."""
    logprobs = f64([[lp if on else math.nan for lp, _, on in tokens]])
    ref, mask = f64([[r for _, r, _ in tokens]]), torch.tensor([[on for *_, on in tokens]])
    differences = [lp - r for lp, r, on in tokens if on]
    summed, mean = (gains(logprobs, ref, mask, length=length).item() for length in ("sum", "mean"))
    assert summed == pytest.approx(sum(differences))
    assert mean == pytest.approx(sum(differences) / max(1, len(differences)))


@given(GAINS, st.integers(0, 6), st.integers(0, 6))
def test_step_labels_are_counted_one_by_one(x: float, right: int, wrong: int):
    """As many losses as labels."""
    found = step_label_loss(f64([x]), f64([float(right)]), f64([float(right + wrong)])).item()
    assert found == pytest.approx(-right * math.log(sigma(x)) - wrong * math.log(sigma(-x)))
