"""The KL's estimates and which gradient each has, by summing over all tokens; value loss and entropy bonus by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlvr.algo import kl
from rlvr.algo.kl import kl_loss, penalise
from rlvr.algo.terms import entropy_bonus, value_loss
from tests.algo.plain import unchecked

NAN, INF = math.nan, math.inf
ON = torch.tensor([[True]])
LOGITS = torch.tensor([0.3, -1.2, 0.8, 0.1], dtype=torch.float64)
REFERENCE = torch.tensor([-0.5, 0.4, 0.2, -0.9], dtype=torch.float64).log_softmax(0)


def f64(rows: list) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# ------------------------------------------------------------------------------------------ kl


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        ("k1", -math.log(2), 1.0),
        ("k2", math.log(2) ** 2 / 2, -math.log(2)),
        ("k3", 1 - math.log(2), -1.0),
    ],
)
def test_the_estimates_by_hand(estimator: str, value: float, gradient: float):
    """π = 1/4, ref = 1/2: d = -log 2, e^-d = 2.  Gradients 1, d and 1 - e^-d."""
    logprobs = f64([[math.log(0.25)]]).requires_grad_()
    losses = kl_loss(logprobs, f64([[math.log(0.5)]]), ON, estimator=estimator)
    losses.sum().backward()
    assert losses.item() == pytest.approx(value)
    assert logprobs.grad.item() == pytest.approx(gradient)


def exact() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of KL(π ‖ ref) and KL(ref ‖ π) in the logits, and KL(π ‖ ref) itself."""
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(0)
    reverse = (logprobs.exp() * (logprobs - REFERENCE)).sum()
    forward = (REFERENCE.exp() * (REFERENCE - logprobs)).sum()
    grads = (torch.autograd.grad(true, logits, retain_graph=True)[0] for true in (reverse, forward))
    return *grads, reverse.detach()


def expected(estimator: str, place: str) -> torch.Tensor:
    """The mean over π's own tokens of what the estimate moves the logits by, as a gradient to descend."""
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(0)[None]
    mask = torch.ones(1, 4, dtype=torch.bool)
    if place == "loss":
        per_token = kl_loss(logprobs, REFERENCE[None], mask, estimator=estimator)
    else:
        reward = penalise(
            torch.zeros(1, 4).double(),
            logprobs,
            REFERENCE[None],
            mask,
            coefficient=1.0,
            estimator=estimator,
        )
        per_token = -reward * logprobs  # REINFORCE
    return torch.autograd.grad((logprobs.detach().exp() * per_token).sum(), logits)[0]


def test_in_the_loss_k1_does_nothing_k2_is_the_reverse_and_k3_the_forward_kl():
    """In expectation, exactly: by the sum over a vocabulary of four."""
    reverse, forward, _ = exact()
    torch.testing.assert_close(expected("k1", "loss"), torch.zeros(4).double())
    torch.testing.assert_close(expected("k2", "loss"), reverse)
    torch.testing.assert_close(expected("k3", "loss"), forward)


def test_in_the_reward_k1_is_the_reverse_kl_and_k3_is_not():
    """k3 there is the reverse minus the forward gradient; k2 is neither."""
    reverse, forward, _ = exact()
    torch.testing.assert_close(expected("k1", "reward"), reverse)
    torch.testing.assert_close(expected("k3", "reward"), reverse - forward)
    assert (expected("k2", "reward") - reverse).abs().max() > 0.05


def test_k1_and_k3_have_the_right_mean_and_k2_has_not():
    """E_π over four tokens."""
    logprobs, mask = LOGITS.log_softmax(0)[None], torch.ones(1, 4, dtype=torch.bool)
    means = {
        k: (logprobs.exp() * kl_loss(logprobs, REFERENCE[None], mask, estimator=k)).sum()
        for k in ("k1", "k2", "k3")
    }
    _, _, true = exact()
    torch.testing.assert_close(means["k1"], true)
    torch.testing.assert_close(means["k3"], true)
    assert (means["k2"] - true).abs() > 0.02


def test_the_penalty_is_taken_from_the_reward():
    """1 - 0.5 · log 2 where the policy is twice as sure as the reference; without gradient, 0 where masked."""
    logprobs = f64([[math.log(0.5), NAN]]).requires_grad_()
    got = penalise(
        f64([[1.0, NAN]]),
        logprobs,
        f64([[math.log(0.25), INF]]),
        torch.tensor([[True, False]]),
        coefficient=0.5,
    )
    torch.testing.assert_close(got, f64([[1 - 0.5 * math.log(2), 0.0]]))
    assert not got.requires_grad


ESTIMATORS = {
    "k1": (lambda d: d, lambda d: 1.0),
    "k2": (lambda d: d * d / 2, lambda d: d),
    "k3": (lambda d: math.expm1(-d) + d, lambda d: -math.expm1(-d)),
}
"""Value and gradient of each, by d."""
LOGPROBS = st.floats(-9, 0)


@given(
    st.sampled_from(sorted(ESTIMATORS)),
    st.lists(st.tuples(LOGPROBS, LOGPROBS), min_size=1, max_size=4),
    st.sampled_from([NAN, INF, -INF]),
)
def test_the_estimates_of_any_token(estimator: str, pairs: list, junk: float):
    """Closed forms; a masked token has exactly 0, also in the gradient, and the reference none."""
    value, slope = ESTIMATORS[estimator]
    mask = torch.tensor([[True] * len(pairs) + [False]])
    logprobs = f64([[*(lp for lp, _ in pairs), junk]]).requires_grad_()
    ref = f64([[*(ref for _, ref in pairs), -junk]]).requires_grad_()
    losses = kl_loss(logprobs, ref, mask, estimator=estimator)
    losses.sum().backward()
    differences = [lp - ref for lp, ref in pairs]
    torch.testing.assert_close(losses, f64([[*map(value, differences), 0.0]]))
    torch.testing.assert_close(logprobs.grad, f64([[*map(slope, differences), 0.0]]))
    assert losses[0, -1] == logprobs.grad[0, -1] == 0
    assert ref.grad is None


@given(st.sampled_from(sorted(ESTIMATORS)), LOGPROBS, LOGPROBS, LOGPROBS)
def test_a_weight_is_the_ratio_to_the_policy_that_sampled(
    estimator: str, logprob: float, ref: float, behaviour: float
):
    """r k, with the gradient r k + r k'."""
    value, slope = (part(logprob - ref) for part in ESTIMATORS[estimator])
    logprobs = f64([[logprob]]).requires_grad_()
    loss = kl_loss(
        logprobs, f64([[ref]]), ON, estimator=estimator, behaviour_logprobs=f64([[behaviour]])
    )
    loss.sum().backward()
    ratio = math.exp(logprob - behaviour)
    assert loss.item() == pytest.approx(ratio * value)
    assert logprobs.grad.item() == pytest.approx(ratio * (value + slope))


@given(st.sampled_from(sorted(ESTIMATORS)), LOGPROBS, LOGPROBS, st.floats(-2, 2), st.floats(0, 3))
def test_the_penalty_is_the_estimate_times_its_coefficient(
    estimator: str, logprob: float, ref: float, reward: float, coefficient: float
):
    """Taken from the reward."""
    found = penalise(
        f64([[reward]]), f64([[logprob]]), f64([[ref]]), ON,
        coefficient=coefficient, estimator=estimator,
    )  # fmt: skip
    expected = reward - coefficient * ESTIMATORS[estimator][0](logprob - ref)
    assert found.item() == pytest.approx(expected)


def test_k3_stays_finite_for_a_token_that_the_policy_has_given_up():
    """d = -200: e^200 is inf in float32."""
    logprobs = torch.tensor([[-201.0]], requires_grad=True)
    losses = kl_loss(logprobs, torch.tensor([[-1.0]]), ON, estimator="k3")
    losses.sum().backward()
    assert losses.isfinite().all()
    assert logprobs.grad.isfinite().all()


def test_near_the_reference_k3_does_not_cancel():
    """e^-d - 1 in float32 loses all digits at d = 1e-4; expm1 keeps d² / 2 to a few percent."""
    got = kl_loss(torch.tensor([[-0.9999]]), torch.tensor([[-1.0]]), ON, estimator="k3").item()
    assert got == pytest.approx(5e-9, rel=0.3)


def test_an_unknown_estimator_is_named():
    """k4 there is none."""
    with pytest.raises(ValueError, match=r"estimator is 'k4'; it must be 'k1', 'k2' or 'k3'"):
        unchecked(kl).kl_loss(torch.zeros(1, 1), torch.zeros(1, 1), ON, estimator="k4")


# ------------------------------------------------------------------------------ value loss, entropy


@pytest.mark.parametrize(
    ("value", "loss", "gradient"),
    [
        (0.1, 0.405, -0.9),  # within ± 0.2 of the old value 0: (0.1 - 1)² / 2
        (
            0.5,
            0.32,
            0.0,
        ),  # towards the return and too far: (0.2 - 1)² / 2, and it has learnt enough
        (-0.5, 1.125, -1.5),  # away from it: in full
    ],
)
def test_the_clipped_value_loss_by_hand(value: float, loss: float, gradient: float):
    """Old value 0, return 1, clip 0.2."""
    values = f64([[value]]).requires_grad_()
    losses, clipped = value_loss(values, f64([[0.0]]), f64([[1.0]]), ON, clip=0.2)
    losses.sum().backward()
    assert losses.item() == pytest.approx(loss)
    assert values.grad.item() == pytest.approx(gradient)
    assert clipped == (value == 0.5)


def test_without_a_clip_it_is_half_the_square():
    """(0.5 - 1)² / 2."""
    losses, clipped = value_loss(f64([[0.5]]), f64([[0.0]]), f64([[1.0]]), ON)
    assert losses.item() == 0.125
    assert clipped == 0


EIGHTHS = st.integers(-24, 24).map(lambda n: n / 8)


@given(
    st.lists(st.tuples(EIGHTHS, EIGHTHS, EIGHTHS), min_size=1, max_size=4),
    st.none() | st.sampled_from([0.1, 0.7]),
)
def test_the_value_loss_of_any_token(tokens: list, clip: float | None):
    """The greater of both squares; no gradient where the clip decides, and none where masked."""
    V, old, R = (
        f64([[*(token[at] for token in tokens), junk]]) for at, junk in enumerate((NAN, NAN, INF))
    )
    V.requires_grad_()
    mask = torch.tensor([[True] * len(tokens) + [False]])
    losses, clipped = value_loss(V, old, R, mask, clip=clip)
    losses.sum().backward()
    count = 0
    for at, (v, before, target) in enumerate(tokens):
        near = v if clip is None else min(max(v, before - clip), before + clip)
        decides = (near - target) ** 2 > (v - target) ** 2
        count += decides
        assert losses[0, at].item() == pytest.approx(
            max((v - target) ** 2, (near - target) ** 2) / 2
        )
        if (near - target) ** 2 != (v - target) ** 2 or near == v:
            assert V.grad[0, at].item() == pytest.approx(0.0 if decides else v - target)
    assert clipped == count
    assert losses[0, -1] == V.grad[0, -1] == 0


def test_a_value_clip_of_0_is_refused():
    """It would freeze the critic; None is how to say no clip."""
    with pytest.raises(ValueError, match=r"clip is 0\.0; it must be above 0, or None"):
        value_loss(f64([[0.5]]), f64([[0.0]]), f64([[1.0]]), ON, clip=0.0)


def test_the_entropy_bonus_lowers_the_loss():
    """-0.01 · 2 nats, gradient -0.01; a masked token has neither."""
    entropies = f64([[2.0, NAN]]).requires_grad_()
    bonus = entropy_bonus(entropies, torch.tensor([[True, False]]), coefficient=0.01)
    bonus.sum().backward()
    assert bonus.tolist() == [[-0.02, 0.0]]
    assert entropies.grad.tolist() == [[-0.01, 0.0]]
