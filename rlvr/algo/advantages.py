"""Advantages of whole completions from their scores.  Axes: P prompts, G completions per prompt.

Every function takes `scores`, one per completion, and `scored`, False for a rollout that is
UNSCORED or missing (groups may have different sizes) and None for none of these: such a rollout is
in no mean and no std, its score may be any number, and its advantage is 0.  Advantages carry no
gradient.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlvr.algo.masks import require_finite, standardise, zero_masked

__all__ = [
    "batch_mean",
    "global_advantages",
    "group_advantages",
    "magistral_advantages",
    "moving_average",
    "reinforce_advantages",
    "rloo_advantages",
]


def group_advantages(
    scores: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"] | None = None,
    *,
    scale: bool = True,
    eps: float = 1e-6,
) -> Float[Tensor, "P G"]:
    r"""Compare each completion with its group: A = (r - mean_G r) / (std_G r + eps).

    The papers do not say which std: ours divides by the number of scored rollouts, as numpy's does,
    verl's and TRL's by one less, which makes their advantages sqrt((G - 1) / G) times ours.  A
    group of one, or of equal scores, gives exactly 0; verl returns the raw score of a group of one.

    Args:
        scores: r.
        scored: False for rollouts that do not count; None if all do.
        scale: divide by the std, as GRPO does (arXiv:2402.03300, 4.1.2); False only centres (Dr.
            GRPO, arXiv:2503.20783, 3.2).
        eps: added to the std.

    Raises:
        ValueError: a scored rollout's score is not finite.
    """
    return standardise(scores.detach(), _weights(scores, scored), scale=scale, eps=eps)


def rloo_advantages(
    scores: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"] | None = None
) -> Float[Tensor, "P G"]:
    """Compare each completion with the mean of the *others* in its group: A_i = r_i - mean_{j≠i}
    r_j.

    RLOO (arXiv:2402.14740, 2.3), which is n / (n - 1) times the centred score, with n scored
    rollouts in the group. With n = 1, A is 0; verl returns the raw score.

    Args:
        scores: r.
        scored: False for rollouts that do not count; None if all do.

    Raises:
        ValueError: a scored rollout's score is not finite.
    """
    weights = _weights(scores, scored)
    n = weights.sum(dim=1, keepdim=True)
    # r_i - mean of the others = (r_i - mean of all) · n / (n - 1).  Of one
    # alone the centred score is 0 already; the clamp keeps 0 / 0 away.
    return standardise(scores.detach(), weights, scale=False, eps=0.0) * n / (n - 1).clamp(min=1)


def reinforce_advantages(
    scores: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"] | None = None,
    *,
    baseline: float | Float[Tensor, "#P #G"] = 0.0,
) -> Float[Tensor, "P G"]:
    """A = r - b (Williams 1992).  The gradient is unbiased if b does not depend on the completion.

    Args:
        scores: r.
        scored: False for rollouts that do not count; None if all do.
        baseline: b, a constant, `batch_mean(…)`, a `moving_average(…)`, or one number per prompt
            [P, 1], such as the score of the greedy completion (ReMax, arXiv:2310.10505).
            `batch_mean` includes the completion's own score, which multiplies the expected gradient
            by 1 - 1/n; `rloo_advantages` does not.

    Raises:
        ValueError: a scored rollout's score is not finite.
    """
    # For its checks alone: a given baseline needs no weights.
    _weights(scores, scored)
    return zero_masked(scores.detach() - baseline, scored)


def batch_mean(scores: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"] | None = None) -> float:
    """The mean score of the scored completions; 0 if there is none.

    Args:
        scores: one per completion.
        scored: False for rollouts that do not count; None if all do.

    Raises:
        ValueError: a scored rollout's score is not finite.
    """
    weights = _weights(scores, scored)
    return float(zero_masked(scores.detach(), scored).sum() / weights.sum().clamp(min=1))


def moving_average(
    average: float | None,
    scores: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"] | None = None,
    *,
    decay: float,
) -> float | None:
    """The baseline for the *next* batch: decay · average + (1 - decay) · batch_mean.

    A batch without a scored rollout changes nothing.

    Args:
        average: the baseline so far; None before the first batch, whose mean is then the start (no
            bias towards 0).
        scores: one per completion of the batch.
        scored: False for rollouts that do not count; None if all do.
        decay: in [0, 1).

    Raises:
        ValueError: `decay` is outside [0, 1), or a scored rollout's score is not finite.
    """
    if not 0 <= decay < 1:
        raise ValueError(
            f"decay is {decay}; it must lie in [0, 1), where 0 uses the last batch only"
        )
    if scored is not None and not scored.any():
        return average
    mean = batch_mean(scores, scored)
    return mean if average is None else decay * average + (1 - decay) * mean


def global_advantages(
    scores: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"] | None = None,
    *,
    group_baseline: bool = False,
    lengths_tokens: Int[Tensor, "P G"] | None = None,
    eps: float = 1e-8,
) -> Float[Tensor, "P G"]:
    """Normalise over the whole batch: A = (r - mean_batch) / (std_batch + eps).  REINFORCE++
    (arXiv:2501.03262).

    If advantages differ from token to token, as with a KL penalty in the reward, use
    `returns.whiten` instead.  The std is the population's; verl's has n - 1, and its eps is under
    the root.

    Args:
        scores: r.
        scored: False for rollouts that do not count; None if all do.
        group_baseline: subtract the group's mean first (REINFORCE++-baseline).
        lengths_tokens: number of each completion's trained tokens, so that it counts once per
            token, as in the paper; None: each completion counts once.
        eps: added to the std.

    Raises:
        ValueError: a scored rollout's score is not finite.
    """
    weights = _weights(scores, scored)
    x = (
        standardise(scores.detach(), weights, scale=False, eps=0.0)
        if group_baseline
        else scores.detach()
    )
    if lengths_tokens is not None:
        # A completion then counts in mean and std as often as it has
        # trained tokens; one without any has weight 0, and so advantage 0.
        weights = weights * lengths_tokens
    # One row of the whole batch, since `standardise` works along the rows.
    flat = standardise(x.reshape(1, -1), weights.reshape(1, -1), scale=True, eps=eps)
    return flat.reshape(scores.shape)


def magistral_advantages(
    scores: Float[Tensor, "P G"],
    scored: Bool[Tensor, "P G"] | None = None,
    *,
    minibatch: Int[Tensor, "P G"] | None = None,
    eps: float = 1e-8,
) -> Float[Tensor, "P G"]:
    """Centre per group, then normalise per mini-batch.  Magistral (arXiv:2506.10910, 2.1),
    "advantage normalization".

    Mean and std of a mini-batch count each completion once, whatever its length.  A group is
    centred as a whole, even if its rollouts are in several mini-batches.

    Args:
        scores: one per completion.
        scored: False for rollouts that do not count; None if all do.
        minibatch: number of the mini-batch in which each rollout is trained; None if there is only
            one.
        eps: added to the std.

    Raises:
        ValueError: a scored rollout's score is not finite.
    """
    weights = _weights(scores, scored)
    centred = standardise(scores.detach(), weights, scale=False, eps=0.0)
    if minibatch is None:
        minibatch = torch.zeros_like(scores, dtype=torch.long)
    # One row per mini-batch, in which other rollouts have weight 0; the sum over rows has each
    # rollout once.
    members = torch.stack(
        [(minibatch == number) * weights for number in sorted(set(minibatch.flatten().tolist()))]
    ).flatten(1)
    rows = standardise(centred.reshape(1, -1).expand_as(members), members, scale=True, eps=eps)
    return rows.sum(dim=0).reshape(scores.shape)


def _weights(scores: Tensor, scored: Tensor | None) -> Tensor:
    """1 for rollouts that count, else 0.

    Raises:
        ValueError: a score that counts is not finite.
    """
    require_finite(scores, scored, "the score", "prompt", "completion")
    return torch.ones_like(scores) if scored is None else scored.to(scores.dtype)
