"""Returns and advantages per token or per step.  Axes: B rows, T tokens; P prompts,
G completions per prompt.

`completion_mask` is True for trained tokens.  Other tokens (padding, an environment's replies
between turns) are skipped: no discount, no reward, no value, and the result there is 0.  Results
carry no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlvr.algo.masks import require_finite, standardise, zero_masked

__all__ = [
    "AdvantageEstimate",
    "discounted_returns",
    "gae",
    "monte_carlo_advantages",
    "n_step_advantages",
    "n_step_returns",
    "process_advantages",
    "whiten",
]


class AdvantageEstimate(NamedTuple):
    """The targets of policy and critic.

    Attributes:
        advantages: for the policy.
        returns: for the critic.
    """

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]


def gae(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Float[Tensor, " B"] | None = None,
) -> AdvantageEstimate:
    """Generalised advantage estimation: A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V_{t+1} - V_t;
    returns are A + V.

    arXiv:1506.02438, eq. 16, as PPO writes it (arXiv:1707.06347, eq. 11-12).  Not whitened, unlike
    verl's: see `whiten`.

    Args:
        rewards: r, per token; those on masked tokens are ignored.
        values: V of the state in which token t is chosen.
        completion_mask: True for trained tokens.
        gamma: γ, discount per token, in [0, 1].
        lam: λ, in [0, 1].
        bootstrap: V of the state after the last token: 0 where the rewards are all that a
            completion gets, the critic's estimate where it is paid for going on.  None for 0
            everywhere.

    Raises:
        ValueError: a trained token's reward or value is not finite, or gamma or lam is outside [0,
            1].
    """
    rewards, values = _check_inputs(rewards, values, completion_mask, gamma)
    _require_share("lam", lam)
    # A_{t+1} and V_{t+1} of each row; the loop goes from the last token back.
    last, value = torch.zeros_like(values[:, 0]), _end_value(bootstrap, values)
    advantages = torch.zeros_like(values)
    for t in reversed(range(values.shape[1])):
        current = rewards[:, t] + gamma * value - values[:, t] + gamma * lam * last
        trained = completion_mask[:, t]
        # A token that is not trained on passes on what
        # it got: to the one before it, it is not there.
        last, value = torch.where(trained, current, last), torch.where(trained, values[:, t], value)
        advantages[:, t] = torch.where(trained, current, 0.0)
    return AdvantageEstimate(advantages, advantages + values)


def discounted_returns(
    rewards: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    gamma: float = 1.0,
    bootstrap: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, "B T"]:
    """R_t = Σ_{k≥0} γ^k r_{t+k} (+ γ^n · bootstrap): discounted rewards from each token to the end
    of the completion.

    Args:
        rewards: r, per token; those on masked tokens are ignored.
        completion_mask: True for trained tokens.
        gamma: γ, discount per token, in [0, 1].
        bootstrap: value of the state after the last token; None for 0.

    Raises:
        ValueError: a trained token's reward is not finite, or gamma is outside [0, 1].
    """
    # With values 0 and λ 1, GAE's returns are the discounted rewards.
    return gae(
        rewards,
        torch.zeros_like(rewards),
        completion_mask,
        gamma=gamma,
        lam=1.0,
        bootstrap=bootstrap,
    ).returns


def n_step_returns(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    n: int,
    gamma: float = 1.0,
    bootstrap: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, "B T"]:
    """R_t = r_t + γ r_{t+1} + … + γ^{n-1} r_{t+n-1} + γ^n V_{t+n}: truncated returns (A3C,
    arXiv:1602.01783, sec. 4).

    R - V is A2C's advantage.  n = 1 is the one-step target r + γV', and n ≥ T the discounted
    return.

    Args:
        rewards: r, per token; those on masked tokens are ignored.
        values: V of the state in which token t is chosen.
        completion_mask: True for trained tokens.
        n: number of trained tokens to look ahead, at least 1.
        gamma: γ, discount per token, in [0, 1].
        bootstrap: value of the state after the last token, as in `gae`; None for 0.

    Raises:
        ValueError: n < 1, gamma is outside [0, 1], or a trained token's reward or value is not
            finite.
    """
    if n < 1:
        raise ValueError(f"n is {n}; a return looks at least 1 token ahead")
    rewards, values = _check_inputs(rewards, values, completion_mask, gamma)
    end = _end_value(bootstrap, values)[:, None]
    # Sorted with trained tokens first, so that a token's successor is its neighbour; `back`
    # restores the order.
    order = completion_mask.long().argsort(dim=1, descending=True, stable=True)
    back = order.argsort(dim=1)
    trained = completion_mask.gather(1, order)
    rewards, target = rewards.gather(1, order), torch.where(trained, values.gather(1, order), end)
    # Each pass looks one token further ahead; after T of them nothing changes.
    for _ in range(min(n, values.shape[1])):
        ahead = torch.cat([target[:, 1:], end], dim=1)
        target = torch.where(trained, rewards + gamma * ahead, end)
    return zero_masked(target.gather(1, back), completion_mask)


def n_step_advantages(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    completion_mask: Bool[Tensor, "B T"],
    *,
    n: int | None,
    gamma: float = 1.0,
    bootstrap: Float[Tensor, " B"] | None = None,
) -> AdvantageEstimate:
    """A = R - V with n-step returns R, which are the critic's targets too (A3C, arXiv:1602.01783,
    sec. 4).

    n = 1 is TD(0), n = None the Monte-Carlo return to the end of the completion.

    Args:
        rewards, values, completion_mask, gamma, bootstrap: as in `n_step_returns`.
        n: number of trained tokens to look ahead, at least 1; None for all.

    Raises:
        ValueError: as in `n_step_returns`.
    """
    ahead = max(1, values.shape[1]) if n is None else n
    targets = n_step_returns(
        rewards, values, completion_mask, n=ahead, gamma=gamma, bootstrap=bootstrap
    )
    return AdvantageEstimate(zero_masked(targets - values.detach(), completion_mask), targets)


def process_advantages(
    rewards: Float[Tensor, "P G T"],
    step_ends: Bool[Tensor, "P G T"],
    scored: Bool[Tensor, "P G"] | None = None,
    *,
    scale: bool = True,
    eps: float = 1e-6,
) -> Float[Tensor, "P G T"]:
    """Process-supervised GRPO: A_t = Σ of the normalised rewards of the steps that end at t or
    later.

    arXiv:2402.03300, 4.1.3: r̃ = (r - mean R) / std R with R all step rewards of all G completions
    of a prompt, so a completion with more steps weighs more.  The std divides by the number of
    steps.  Tokens after a completion's last step get 0.

    Args:
        rewards: the reward of a step, on its last token; other entries are ignored.
        step_ends: True on the last token of each step.
        scored: False for rollouts that do not count; None if all do.
        scale: divide by the std; False only centres.
        eps: added to the std.

    Raises:
        ValueError: a counted step's reward is not finite.
    """
    ends = step_ends if scored is None else step_ends & scored[:, :, None]
    require_finite(rewards, ends, "the step reward", "prompt", "completion", "token")
    flat = rewards.detach().flatten(1)
    normalised = standardise(flat, ends.flatten(1).to(flat.dtype), scale=scale, eps=eps).reshape(
        rewards.shape
    )
    # The sum from each token to the end; entries that are no step's end are 0.
    return normalised.flip(2).cumsum(dim=2).flip(2)


def monte_carlo_advantages(
    values: Float[Tensor, "B N"],
    boundaries: Int[Tensor, "B N"],
    completion_mask: Bool[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """VinePPO: each token of a step gets V(after the step) - V(before it)  (arXiv:2410.01679, sec.
    4; γ = 1).

    The advantages of a row's steps sum to its score minus the prompt's value.  Leave out boundaries
    without a value: the two steps around one become a single step.

    Args:
        values: V at each boundary: the mean score of new completions of the prefix; at the last
            boundary the completion's own score.
        boundaries: 0, …, T of the row, in tokens; a row with fewer repeats its last one, with any
            value.
        completion_mask: True for trained tokens.

    Raises:
        ValueError: boundaries decrease or leave a trained token out, or a value is not finite.
    """
    if (boundaries.diff(dim=1) < 0).any():
        row = int((boundaries.diff(dim=1) < 0).any(dim=1).nonzero()[0])
        raise ValueError(
            f"row {row}: the boundaries {boundaries[row].tolist()} decrease; give them in order"
        )
    tokens = torch.arange(completion_mask.shape[1], device=boundaries.device).expand(
        completion_mask.shape
    )
    # The first boundary beyond the token; right, as the token
    # at a boundary belongs to the step that begins there.
    after = torch.searchsorted(boundaries.contiguous(), tokens.contiguous(), right=True)
    outside = completion_mask & ((after == 0) | (after == boundaries.shape[1]))
    if outside.any():
        row, token = outside.nonzero()[0].tolist()
        raise ValueError(
            f"row {row}: token {token} is trained on and outside the boundaries "
            f"{boundaries[row].tolist()}"
        )
    # A repeated boundary is padding, and its value may be anything.
    used = torch.cat(
        [torch.ones_like(boundaries[:, :1], dtype=torch.bool), boundaries.diff(dim=1) > 0], dim=1
    )
    require_finite(values, used, "the value", "row", "boundary")
    values = zero_masked(values.detach(), used)
    # For tokens that are not trained on, whose result is 0 anyway.
    after = after.clamp(1, boundaries.shape[1] - 1)
    return zero_masked(values.gather(1, after) - values.gather(1, after - 1), completion_mask)


def whiten(
    advantages: Float[Tensor, "B T"], completion_mask: Bool[Tensor, "B T"], *, eps: float = 1e-8
) -> Float[Tensor, "B T"]:
    """(A - mean) / (std + eps) over all trained tokens of the whole batch, before it is split into
    micro-batches.

    PPO does this after `gae`, and REINFORCE++ (arXiv:2501.03262) after `discounted_returns` of
    rewards with a KL penalty.  The std is the population's; verl's has n - 1.

    Args:
        advantages: A, per token.
        completion_mask: True for trained tokens.
        eps: added to the std.

    Raises:
        ValueError: a trained token's advantage is not finite.
    """
    require_finite(advantages, completion_mask, "the advantage", "row", "token")
    # One row of the whole batch, since `standardise` works along the rows.
    weights = completion_mask.to(advantages.dtype).reshape(1, -1)
    flat = standardise(advantages.detach().reshape(1, -1), weights, scale=True, eps=eps)
    return flat.reshape(advantages.shape)


def _check_inputs(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float
) -> tuple[Tensor, Tensor]:
    _require_share("gamma", gamma)
    require_finite(rewards, mask, "the reward", "row", "token")
    require_finite(values, mask, "the value", "row", "token")
    return zero_masked(rewards.detach(), mask), zero_masked(values.detach(), mask)


def _end_value(bootstrap: Tensor | None, values: Tensor) -> Tensor:
    if bootstrap is None:
        return values.new_zeros(values.shape[0])
    require_finite(bootstrap, None, "the bootstrap value", "row")
    return bootstrap.detach()


def _require_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value}; it must lie in [0, 1]")
