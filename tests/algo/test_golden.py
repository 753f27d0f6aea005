"""verl 0.9.1's numbers for the same small batches, to 1e-6; where verl and a paper part, both are written down."""

from typing import Any

import pytest
import torch

from rlvr.algo import aggregation, objectives
from rlvr.algo.advantages import global_advantages, group_advantages, rloo_advantages
from rlvr.algo.corrections import masked, truncated
from rlvr.algo.kl import kl_loss
from rlvr.algo.returns import discounted_returns, gae, whiten
from rlvr.algo.terms import value_loss
from tests.algo.golden import GOLDEN, INPUTS

MASK = INPUTS["completion_mask"]
LENGTHS = MASK.sum(dim=1)
# The six rows are groups of three, two and one: two entries of the table are missing, and hold what may not matter.
SCORED = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
NO_SINGLE = torch.tensor([True, True, True, True, True, False])


def close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, torch.as_tensor(theirs, dtype=ours.dtype), rtol=0, atol=1e-6)


def table(rows: torch.Tensor) -> torch.Tensor:
    """Rows [B] as a ragged table [P, G]."""
    return torch.full((3, 3), torch.nan, dtype=torch.float64).masked_scatter(SCORED, rows)


def tokens(advantages: torch.Tensor) -> torch.Tensor:
    """A table [P, G] as one value per trained token [B, T]."""
    return advantages[SCORED][:, None] * MASK


def denominator(name: str) -> dict[str, int]:
    sequences, n = len(MASK), int(LENGTHS.sum())
    return {
        "sequence_mean": {"sequences": sequences},
        "token_mean": {"tokens": n},
        "constant": {"sequences": sequences, "length_tokens": MASK.shape[1]},
    }[name]


def test_the_numbers_say_who_made_them():
    """Another version may say other things."""
    assert GOLDEN["made_by"]["verl"] == "0.9.1"


def test_grpo_is_verls_up_to_bessels_correction():
    """verl divides by the sample std, sqrt(n / (n - 1)) times the population's: our advantage is so much larger."""
    ours = tokens(group_advantages(table(INPUTS["scores"]), SCORED, eps=0.0))
    siblings = torch.tensor([3, 3, 3, 2, 2, 1])
    bessel = (siblings / (siblings - 1))[NO_SINGLE].sqrt()[:, None]
    theirs = GOLDEN["advantages"]["grpo"][NO_SINGLE]
    torch.testing.assert_close(
        ours[NO_SINGLE], theirs * bessel, rtol=1e-5, atol=1e-6
    )  # their eps is 1e-6 of the std
    assert (ours[NO_SINGLE] - theirs).abs().max() > 0.1


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_verl_passes_the_raw_score_of_a_group_of_one_through(name: str):
    """Ours is 0: there is no sibling to compare with, and a raw score would be a bandit without a baseline."""
    advantages = {
        "grpo": group_advantages(table(INPUTS["scores"]), SCORED),
        "dr_grpo": group_advantages(table(INPUTS["scores"]), SCORED, scale=False),
        "rloo": rloo_advantages(table(INPUTS["scores"]), SCORED),
    }[name]
    assert advantages[2, 0] == 0
    torch.testing.assert_close(
        GOLDEN["advantages"][name][5, 0], INPUTS["scores"][5], rtol=1e-5, atol=0
    )


def test_centred_scores():
    """Dr. GRPO, groups of three and two."""
    ours = tokens(group_advantages(table(INPUTS["scores"]), SCORED, scale=False))
    close(ours[NO_SINGLE], GOLDEN["advantages"]["dr_grpo"][NO_SINGLE])


def test_leave_one_out():
    """RLOO, groups of three and two."""
    ours = tokens(rloo_advantages(table(INPUTS["scores"]), SCORED))
    close(ours[NO_SINGLE], GOLDEN["advantages"]["rloo"][NO_SINGLE])


def test_reinforce_pp_with_a_group_baseline_counts_tokens():
    """verl whitens over tokens with the sample std: ours times sqrt((n - 1) / n), n tokens of five rows."""
    lengths = torch.zeros(2, 3, dtype=torch.long).masked_scatter(SCORED[:2], LENGTHS)
    scores = table(INPUTS["scores"])[:2]
    ours = global_advantages(scores, SCORED[:2], group_baseline=True, lengths_tokens=lengths)
    n = int(LENGTHS[:5].sum())
    per_token = ours[SCORED[:2]][:, None] * MASK[:5]
    close(per_token * ((n - 1) / n) ** 0.5, GOLDEN["advantages"]["reinforce_pp_baseline"])


def test_discounted_returns_and_their_whitening():
    """REINFORCE++ with rewards per token; a gap in a row is stepped over."""
    returns = discounted_returns(INPUTS["rewards"], MASK, gamma=0.9)
    close(returns, GOLDEN["advantages"]["reinforce_pp_returns"])
    n = int(LENGTHS.sum())
    close(whiten(returns, MASK) * ((n - 1) / n) ** 0.5, GOLDEN["advantages"]["reinforce_pp"])


def test_gae():
    """verl whitens inside; ours does so apart."""
    ours = gae(INPUTS["rewards"], INPUTS["values"], MASK, gamma=0.9, lam=0.8)
    close(ours.returns, GOLDEN["advantages"]["gae_returns"])
    n = int(LENGTHS.sum())
    close(
        whiten(ours.advantages, MASK) * ((n - 1) / n) ** 0.5, GOLDEN["advantages"]["gae_whitened"]
    )


CASES = {
    "ppo": ("clipped", {"low": 0.2, "high": 0.2}),
    "decoupled": ("clipped", {"low": 0.2, "high": 0.28}),
    "dual": ("clipped", {"low": 0.2, "high": 0.2, "dual": 1.5}),
    "gspo": ("gspo", {"low": 0.1, "high": 0.15, "per_token": True}),  # verl has only this form
    "cispo": ("cispo", {"low": 0.3, "high": 0.4}),
}


@pytest.mark.parametrize("mean", ["sequence_mean", "token_mean", "constant"])
@pytest.mark.parametrize("name", CASES)
def test_a_loss_and_its_gradient(name: str, mean: str):
    """Each objective under each aggregation; verl's sequence mean divides by n + 1e-8."""
    function, settings = CASES[name]
    logprobs = INPUTS["logprobs"].clone().requires_grad_()
    losses, _ = getattr(objectives, function)(
        logprobs, INPUTS["behaviour_logprobs"], INPUTS["advantages"], MASK, **settings
    )
    loss = getattr(aggregation, mean)(losses, MASK, **denominator(mean))
    loss.backward()
    close(loss.detach(), GOLDEN["objectives"][name][mean]["loss"])
    close(logprobs.grad, GOLDEN["objectives"][name][mean]["gradient"])


@pytest.mark.parametrize("name", CASES)
def test_as_many_tokens_are_clipped(name: str):
    """verl has one fraction for both bounds; ours tell them apart."""
    function, settings = CASES[name]
    x = INPUTS["logprobs"], INPUTS["behaviour_logprobs"], INPUTS["advantages"], MASK
    means = getattr(objectives, function)(*x, **settings).stats.means()
    assert means["clipped_low"] + means["clipped_high"] == pytest.approx(
        GOLDEN["objectives"][name]["clipped"], abs=1e-6
    )
    assert means["clipped_dual"] == pytest.approx(
        GOLDEN["objectives"][name]["clipped_dual"], abs=1e-6
    )
    assert means["clipped_low"] > 0
    assert means["clipped_high"] > 0


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_estimates_and_their_gradients(estimator: str):
    """Per token."""
    logprobs = INPUTS["logprobs"].clone().requires_grad_()
    losses = kl_loss(logprobs, INPUTS["ref_logprobs"], MASK, estimator=estimator)
    losses.sum().backward()
    close(losses.detach(), GOLDEN["kl"][estimator]["losses"])
    close(logprobs.grad, GOLDEN["kl"][estimator]["gradient"])


def test_verl_cuts_k3_at_10():
    """At d = -8 the estimate is e^8 - 1 - 8 = 2971.96: beyond the cut there would be no way back to the reference."""
    far = torch.tensor([[-9.0]]), torch.tensor([[-1.0]]), torch.tensor([[True]])
    assert kl_loss(*far, estimator="k3").item() == pytest.approx(2971.958, abs=1e-3)
    assert GOLDEN["kl"]["k3_of_a_log_ratio_of_minus_8"].item() == 10


def test_a_clipped_value_loss():
    """Mean over tokens, with the gradient in the values."""
    values = INPUTS["values"].clone().requires_grad_()
    losses, clipped = value_loss(values, INPUTS["old_values"], INPUTS["returns"], MASK, clip=0.2)
    loss = aggregation.token_mean(losses, MASK, tokens=int(LENGTHS.sum()))
    loss.backward()
    close(loss.detach(), GOLDEN["value"]["loss"])
    close(values.grad, GOLDEN["value"]["gradient"])
    close(clipped / LENGTHS.sum(), GOLDEN["value"]["clipped"])


@pytest.mark.parametrize(
    ("name", "function", "settings"),
    [
        ("truncated_token", truncated, {"cap": 1.3}),
        ("truncated_sequence", truncated, {"cap": 1.3, "level": "sequence"}),
        ("masked_token", masked, {"low": 0.7, "high": 1.3}),
        ("masked_sequence", masked, {"low": 0.3, "high": 1.3, "level": "sequence"}),
    ],
)
def test_correction_weights(name: str, function: Any, settings: dict):
    """TIS and IcePop, per token and per sequence."""
    close(
        function(INPUTS["logprobs"], INPUTS["behaviour_logprobs"], MASK, **settings).weights,
        GOLDEN["corrections"][name],
    )


def test_rows_kept_by_the_geometric_mean():
    """verl only masks there, and counts the ratio the other way round: 1 / 0.9 and 1 / 1.25 are its 0.9 and 1.25."""
    x = INPUTS["logprobs"], INPUTS["behaviour_logprobs"], MASK
    kept = masked(*x, low=0.8, high=1 / 0.9, level="geometric").weights > 0
    close(kept.double(), GOLDEN["corrections"]["kept_geometric"])
    assert 0 < kept.any(dim=1).sum() < len(kept)
