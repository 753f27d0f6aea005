r"""Losses on preferences.  Axes: P pairs, N rows, T tokens.

A row's *gain* is how much likelier the policy makes its completion than the reference policy does:

    h = Σ_t m_t (logprobs_t - ref_logprobs_t)        "sum", or divided by Σ_t m_t: "mean"

A pair has the gains h_w of its chosen and h_l of its rejected completion, and the difference Δ =
h_w - h_l.  If the chosen one is preferred with probability p, the losses are least at

    dpo                    Δ = logit(p) / β
    dpo, conservative ε    β Δ = logit((1 - ε) p + ε (1 - p))
    dpo, robust ε          logit(p) / β of the clean labels, where labels were flipped at the rate ε
    ipo                    Δ = (2p - 1) / (2β)
    bradley_terry          r_w - r_l = logit(p), without a margin

Each function gives one loss per pair or row.  Their denominators are the caller's: `weighted_mean`.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlvr.algo.masks import zero_masked

__all__ = [
    "bradley_terry",
    "dpo",
    "gains",
    "hinge",
    "ipo",
    "kto",
    "kto_reference_point",
    "negative_log_likelihood",
    "step_label_loss",
    "weighted_mean",
]

_Length = Literal["sum", "mean"]
"""How the tokens of a row become one number."""
_Smoothing = Literal["conservative", "robust"]
"""The two readings of label smoothing, see `dpo`."""


def gains(
    logprobs: Float[Tensor, "N T"],
    ref_logprobs: Float[Tensor, "N T"],
    completion_mask: Bool[Tensor, "N T"],
    *,
    length: _Length,
) -> Float[Tensor, " N"]:
    """h: the sum or the mean of logprobs - ref_logprobs over each row's trained tokens; 0 for a row
    without any.

    DPO (arXiv:2305.18290) and IPO as its paper has it (arXiv:2310.12036, eq. 17) take the sum.  The
    mean is the length-normalised DPO of Tülu 3 (arXiv:2411.15124, eq. 6) and what IPO's authors
    recommended to TRL.

    Args:
        logprobs: under the policy, carrying its gradient.
        ref_logprobs: under the reference policy; no gradient flows there.
        completion_mask: True for trained tokens: not the prompt, an environment's replies or
            padding.
        length: "sum" or "mean".

    Raises:
        ValueError: there is no such `length`.
    """
    summed = zero_masked(logprobs - ref_logprobs.detach(), completion_mask).sum(dim=1)
    if length == "sum":
        return summed
    if length == "mean":
        return summed / completion_mask.sum(dim=1).clamp(min=1)
    raise ValueError(f"length is {length!r}; it must be 'sum' or 'mean'")


def dpo(
    chosen: Float[Tensor, " P"],
    rejected: Float[Tensor, " P"],
    *,
    beta: float,
    smoothing: float = 0.0,
    reading: _Smoothing = "conservative",
) -> Float[Tensor, " P"]:
    """-log σ(β Δ): direct preference optimisation (arXiv:2305.18290, eq. 7).

    Label smoothing ε supposes that a share ε of the labels is wrong.
    "conservative" mixes both labels,
    -(1 - ε) log σ(βΔ) - ε log σ(-βΔ) (Mitchell 2023, cDPO), so that Δ stays finite.  "robust"
    removes the bias of the flips, (-(1 - ε) log σ(βΔ) + ε log σ(-βΔ)) / (1 - 2ε) (arXiv:2403.00409,
    eq. 13), and may be negative.

    Args:
        chosen: h_w.
        rejected: h_l.
        beta: β, above 0.
        smoothing: ε, in [0, ½).
        reading: of the smoothing.

    Raises:
        ValueError: a number is out of its range, or there is no such reading.
    """
    _require_positive("beta", beta)
    if not 0 <= smoothing < 0.5:  # false for NaN
        raise ValueError(
            f"smoothing is {smoothing}; it must be in [0, 0.5): at 0.5 the labels say nothing"
        )
    # logsigmoid, not log of sigmoid: that would be -inf from about -104 in float32.
    right = -logsigmoid(beta * (chosen - rejected))
    if smoothing == 0:
        return right
    flipped = -logsigmoid(beta * (rejected - chosen))
    if reading == "conservative":
        return (1 - smoothing) * right + smoothing * flipped
    if reading == "robust":
        return ((1 - smoothing) * right - smoothing * flipped) / (1 - 2 * smoothing)
    raise ValueError(f"reading is {reading!r}; it must be 'conservative' or 'robust'")


def hinge(
    chosen: Float[Tensor, " P"], rejected: Float[Tensor, " P"], *, beta: float
) -> Float[Tensor, " P"]:
    """max(0, 1 - β Δ): SLiC-HF's loss (arXiv:2305.10425, eq. 2) on gains, as in RSO
    (arXiv:2309.06657, sec. 3.2).

    Args:
        chosen: h_w.
        rejected: h_l.
        beta: β, above 0.

    Raises:
        ValueError: β is not above 0.
    """
    _require_positive("beta", beta)
    return torch.relu(1 - beta * (chosen - rejected))


def ipo(
    chosen: Float[Tensor, " P"], rejected: Float[Tensor, " P"], *, beta: float
) -> Float[Tensor, " P"]:
    """(Δ - 1 / 2β)²: IPO (arXiv:2310.12036, eq. 17), where β is called τ.

    With gains of length "sum" it is the paper's, with "mean" TRL's; at the same β the two ask for
    differences that differ by the number of tokens.

    Args:
        chosen: h_w.
        rejected: h_l.
        beta: β, above 0.

    Raises:
        ValueError: β is not above 0.
    """
    _require_positive("beta", beta)
    return (chosen - rejected - 1 / (2 * beta)).square()


def kto(
    gain: Float[Tensor, " N"],
    right: Bool[Tensor, " N"],
    reference_point: Float[Tensor, ""],
    *,
    beta: float,
    right_weight: float = 1.0,
    wrong_weight: float = 1.0,
) -> Float[Tensor, " N"]:
    """w_d (1 - σ(β (h - z))) for a right completion, w_u (1 - σ(β (z - h))) for a wrong one.

    KTO (arXiv:2402.01306, eq. 8) without the constant λ_y, which has no gradient.

    Args:
        gain: h, as "sum".
        right: True for right completions.
        reference_point: z, see `kto_reference_point`; no gradient flows there.
        beta: β, above 0.
        right_weight, wrong_weight: w_d and w_u, 0 or above.  The paper wants w_d · n_d / (w_u ·
            n_u) in [1, 3/2].

    Raises:
        ValueError: a number is out of its range.
    """
    _require_positive("beta", beta)
    for name, weight in (("right_weight", right_weight), ("wrong_weight", wrong_weight)):
        if not 0 <= weight < float("inf"):
            raise ValueError(f"{name} is {weight}; it must be a finite number of at least 0")
    distance = beta * (gain - reference_point.detach())
    # 1 - σ(x) is σ(-x), without the difference that rounds to 0.
    return torch.where(
        right, right_weight * torch.sigmoid(-distance), wrong_weight * torch.sigmoid(distance)
    )


def kto_reference_point(mismatched: Float[Tensor, " N"]) -> Float[Tensor, ""]:
    """z: the mean gain of completions after prompts that are not theirs, at least 0, without
    gradient.

    An estimate of KL(policy ‖ reference) (arXiv:2402.01306, sec. 4.1).  It is biased: the
    completions are not the policy's, and the bound at 0 lifts it.

    Args:
        mismatched: h of each completion after another row's prompt, as "sum".
    """
    return mismatched.detach().mean().clamp(min=0)


def negative_log_likelihood(
    logprobs: Float[Tensor, "N T"], completion_mask: Bool[Tensor, "N T"]
) -> Float[Tensor, "N T"]:
    """-logprobs per token, 0 where masked: the loss of supervised fine-tuning.

    Args:
        logprobs: under the policy, carrying its gradient.
        completion_mask: True for trained tokens.
    """
    return -zero_masked(logprobs, completion_mask)


def bradley_terry(
    chosen: Float[Tensor, " P"],
    rejected: Float[Tensor, " P"],
    *,
    margin: Float[Tensor, " P"] | float = 0.0,
    centring: float = 0.0,
) -> Float[Tensor, " P"]:
    """-log σ(r_w - r_l - m) + c (r_w + r_l)²: the loss of a reward model (arXiv:2307.09288, eq. 2).

    The pair alone fixes rewards only up to a constant, which drifts; c keeps them around 0
    (arXiv:2312.09244, sec. 2).

    Args:
        chosen: r_w, the reward of the chosen completion.
        rejected: r_l.
        margin: m, the least difference asked for, 0 or above.
        centring: c, 0 or above.

    Raises:
        ValueError: c is below 0.
    """
    if not 0 <= centring < float("inf"):
        raise ValueError(f"centring is {centring}; it must be a finite number of at least 0")
    losses = -logsigmoid(chosen - rejected - margin)
    return losses + centring * (chosen + rejected).square() if centring else losses


def step_label_loss(
    logits: Float[Tensor, " N"], right: Float[Tensor, " N"], counts: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """-(k log σ(x) + (K - k) log σ(-x)): the loss of a process reward model on Monte-Carlo counts.

    Least where σ(x) = k / K.  A step of K completions weighs as much as K labels of one
    (arXiv:2312.08935, eq. 4, has K = 1 with the soft label k / K).

    Args:
        logits: x, one per step.
        right: k, completions from the step's end that were right; fractions are partial credit.
        counts: K, completions that were scored.

    Raises:
        ValueError: a count is not in 0 ≤ k ≤ K.
    """
    if not ((right >= 0) & (right <= counts)).all():
        raise ValueError("a step has more right completions than scored ones, or fewer than 0")
    return -(right * logsigmoid(logits) + (counts - right) * logsigmoid(-logits))


def weighted_mean(
    losses: Float[Tensor, " N"], weights: Float[Tensor, " N"], *, total: Float[Tensor, ""] | float
) -> Float[Tensor, ""]:
    """Σ w · loss / total.  With the whole mini-batch's total, micro-batches add up to the gradient
    of the whole.

    Args:
        losses: of the pairs or rows of a micro-batch.
        weights: w, one for each.
        total: Σ w over the mini-batch, above 0.
    """
    return (losses * weights).sum() / total


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):  # false for NaN
        raise ValueError(f"{name} is {value}; it must be a finite number above 0")
