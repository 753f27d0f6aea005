"""Advantages as papers print them: loops over groups and rows in float64, one function per formula.

Each function gives an array [T] or one number for each row.  A row that does not vote is in no
mean, and has 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from rlvr.algo.judge.dual import Float64s
from rlvr.algo.judge.rows import Setting, StepRow
from rlvr.errors import DataError

__all__ = ["ADVANTAGES", "advantages"]

_Advantages = list[Any]


def advantages(rows: Sequence[StepRow], setting: Setting) -> list[Float64s]:
    """The advantages of a batch's rollouts, [T] of each.

    Args:
        rows: of the step.
        setting: the algorithm, its numbers, and the conventions.

    Raises:
        DataError: the algorithm has none, or is unknown here.
    """
    if setting.own is None and setting.name not in ADVANTAGES:
        raise DataError(f"the judge has no advantages of {setting.name!r}")
    formula = ADVANTAGES[setting.name] if setting.own is None else setting.own.advantages
    values = formula(rows, setting)
    return [
        np.broadcast_to(a, len(row.at)).astype(float) for row, a in zip(rows, values, strict=True)
    ]


# ------------------------------------------------------------------------- who votes, and with what


def _groups(rows: Sequence[StepRow]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(row.group, []).append(i)
    return list(groups.values())


def _votes(row: StepRow, setting: Setting) -> bool:
    choice = setting.how.masked_rows
    if choice == "algorithm":
        choice = "vote" if setting.numbers.get("masked_vote", True) else "left out"
    scored = row.scored or setting.how.unscored == "zero"
    return scored and (choice != "left out" or len(row.at) > 0)


def _score(row: StepRow, setting: Setting) -> float:
    if setting.how.masked_rows == "zero" and not len(row.at):
        return 0.0
    return row.score - float(np.sum(_kl_in_reward(row, setting)))


def _kl_in_reward(row: StepRow, setting: Setting) -> Float64s:
    kl = setting.kl_in("reward")
    if not kl or len(row.ref) < len(row.at):  # a file without a reference, tried with another place
        return np.zeros(len(row.at))
    bound = setting.how.bound
    d = np.clip(row.behaviour - row.ref, -bound, bound)
    # k3 is e^-d - 1 + d; expm1 keeps its digits for a small d, where e^-d - 1 cancels.
    estimate = {"k1": d, "k2": d**2 / 2, "k3": np.expm1(-d) + d}[kl["estimator"]]
    return np.asarray(kl["coefficient"] * estimate)


def _rewards(row: StepRow, setting: Setting) -> Float64s:
    """Rewards of turns and the rest of the score on trained tokens, less each token's KL
    penalty."""
    rewards, remainder = np.zeros(len(row.at)), row.score
    if not len(row.at):
        return rewards
    for end, reward in row.steps:
        # To the last trained token before the turn's end, or the first one where none is before it.
        rewards[max(bisect_left(row.at.tolist(), end) - 1, 0)] += reward
        remainder -= reward
    # What the turns leave of the score is given at the end, so that rewards sum to the score.
    rewards[-1] += remainder
    return rewards - _kl_in_reward(row, setting)


def _std(values: Float64s, setting: Setting) -> float:
    # Of one value the sample's std would be 0 / 0.
    return float(np.std(values, ddof=1 if setting.how.std == "sample" and len(values) > 1 else 0))


def _normal(values: Float64s, eps: float, setting: Setting) -> Float64s:
    """Centred and divided by the std; 0 where all are equal."""
    # Compared, not computed: the mean of equal numbers can be
    # off by a rounding, which the small std would blow up.
    if not len(values) or values.min() == values.max():
        return np.zeros(len(values))
    return np.asarray((values - values.mean()) / (_std(values, setting) + eps))


def _by_group(formula: Callable[..., Any]) -> Callable[[Sequence[StepRow], Setting], _Advantages]:
    """A formula of the voting rows' scores in one group, for all groups."""

    def of_batch(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
        advantages: _Advantages = [0.0] * len(rows)
        for members in _groups(rows):
            voters = [i for i in members if _votes(rows[i], setting)]
            if not voters:
                continue
            scores = np.array([_score(rows[i], setting) for i in voters])
            values = formula(scores, setting, [rows[i] for i in voters])
            if len(voters) == 1 and setting.how.single == "score":
                values = scores
            for i, advantage in zip(voters, values, strict=True):
                advantages[i] = advantage
        return advantages

    return of_batch


# ----------------------------------------------------------------------------- of whole completions


def _centre(r: Float64s, setting: Setting, rows: Sequence[StepRow] = ()) -> Float64s:
    """r - mean (Dr. GRPO, DRO)."""
    return np.asarray(r - r.mean()) if r.min() < r.max() else np.zeros(len(r))


def _relative(r: Float64s, setting: Setting, rows: Sequence[StepRow] = ()) -> Float64s:
    """(r - mean) / (std + eps), GRPO eq. 4.1.2."""
    centred = _centre(r, setting)
    if not setting.numbers.get("scale", True) or r.min() == r.max():
        return centred
    return centred / (_std(r, setting) + setting.how.eps)


def _leave_one_out(r: Float64s, setting: Setting, rows: Sequence[StepRow]) -> Float64s:
    return np.array([r[i] - np.delete(r, i).mean() if len(r) > 1 else 0.0 for i in range(len(r))])


def _length_weighted(r: Float64s, setting: Setting, rows: Sequence[StepRow]) -> Float64s:
    lengths = np.array([len(row.at) for row in rows])
    return np.asarray(r - (lengths * r).sum() / max(1, lengths.sum()))


def _best(r: Float64s, setting: Setting, rows: Sequence[StepRow]) -> Float64s:
    return ((r == r.max()) & (r.max() > r.min())).astype(float)


def _over_mean(r: Float64s, setting: Setting, rows: Sequence[StepRow]) -> Float64s:
    return np.asarray(r / r.mean() - 1 if r.mean() > 0 else 0 * r)


def _lead(r: Float64s, setting: Setting, rows: Sequence[StepRow]) -> Float64s:
    """max r - max of the others: what the pass@k score loses without a completion."""
    if len(r) == 1:
        return np.zeros(1)
    return np.array([r.max() - np.delete(r, i).max() for i in range(len(r))])


def _above_pivot(r: Float64s, setting: Setting, rows: Sequence[StepRow]) -> Float64s:
    return np.asarray(r - setting.numbers["pivot"])


def _gpg(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    centred = _by_group(_centre)(rows, setting)
    voters = sum(_votes(row, setting) for row in rows)
    mixed = 0
    for members in _groups(rows):
        if any(centred[i] for i in members):
            mixed += sum(_votes(rows[i], setting) for i in members)
    # The loss divides by all rows; the factor makes it a mean over those of groups that differ.
    return [a * voters / max(1, mixed) for a in centred]


def _gdpo(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    total = np.zeros(len(rows))
    for members in _groups(rows):
        voters = [i for i in members if _votes(rows[i], setting)]
        for part in range(len(rows[0].parts) if voters else 0):
            total[voters] += _relative(np.array([rows[i].parts[part] for i in voters]), setting)
    every = [i for i, row in enumerate(rows) if _votes(row, setting)]
    total[every] = _normal(total[every], 1e-6, setting)
    return list(total)


def _minus_baseline(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    scores = [_score(row, setting) for row in rows]
    voters = [s for s, row in zip(scores, rows, strict=True) if _votes(row, setting)]
    kind = setting.numbers["baseline"]
    baseline = float(np.mean(voters)) if voters and kind != "none" else 0.0
    if kind == "moving_average" and setting.numbers.get("average") is not None:
        # The average of earlier batches; the first batch has none, and its own mean instead.
        baseline = setting.numbers["average"]
    return [(s - baseline) * _votes(row, setting) for s, row in zip(scores, rows, strict=True)]


def _magistral(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    """Centred by group, divided by the std of the update's own."""
    centred = _by_group(_centre)(rows, setting)
    for number in {row.number for row in rows}:
        indices = [i for i, row in enumerate(rows) if row.number == number and _votes(row, setting)]
        for i, value in zip(
            indices, _normal(np.array([centred[i] for i in indices]), 1e-8, setting), strict=True
        ):
            centred[i] = value
    return centred


def _batch_normal(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    """Centred by group, then normal over all tokens (REINFORCE++-baseline)."""
    centred = _by_group(_centre)(rows, setting)
    voters = [i for i, row in enumerate(rows) if _votes(row, setting)]
    # A row counts in mean and std once per trained token.
    rows_values = [np.full(len(rows[i].at), centred[i]) for i in voters]
    for i, values in zip(voters, _normalise_rows(rows_values, setting), strict=True):
        centred[i] = values
    return centred


# ------------------------------------------------------------------------------ of tokens


def _normalise_rows(found: Sequence[Float64s], setting: Setting) -> list[Float64s]:
    if not found:
        return []
    flat = _normal(np.concatenate(found), 1e-8, setting)
    return np.split(flat, np.cumsum([len(row_values) for row_values in found])[:-1])


def _white(found: Sequence[Float64s], setting: Setting) -> list[Float64s]:
    return _normalise_rows(found, setting) if setting.numbers.get("whiten") else list(found)


def _returns(row: StepRow, rewards: Float64s, gamma: float) -> Float64s:
    returns, after = np.zeros(len(rewards)), row.end
    for t in reversed(range(len(rewards))):
        returns[t] = after = rewards[t] + gamma * after
    return returns


def _discount(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    gamma = setting.numbers["gamma"]
    returns = [_returns(row, _rewards(row, setting), gamma) for row in rows]
    return _white(returns, setting)


def _gae(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    """GAE, arXiv:1506.02438, eq. 16."""
    gamma, lam = setting.numbers["gamma"], setting.numbers["lam"]
    advantages = []
    for row in rows:
        r, gae = _rewards(row, setting), np.zeros(len(row.at))
        # From the last token back; `row.end` is the value after it.
        last, value = 0.0, row.end
        for t in reversed(range(len(r))):
            last = r[t] + gamma * value - row.values[t] + gamma * lam * last
            gae[t], value = last, row.values[t]
        advantages.append(gae)
    white, weight = _white(advantages, setting), setting.numbers.get("group_weight", 0.0)
    if not weight:
        return list(white)
    of_group = _by_group(_relative)(rows, setting)
    return [A + weight * term for A, term in zip(white, of_group, strict=True)]


def _n_steps(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    """r_t + … + γ^n V_{t+n} - V_t, arXiv:1602.01783, sec. 4."""
    gamma, n = setting.numbers["gamma"], setting.numbers["n_steps"]
    advantages = []
    for row in rows:
        r, row_advantages = _rewards(row, setting), np.zeros(len(row.at))
        for t in range(len(r)):
            stop = len(r) if n is None else min(len(r), t + n)
            after = row.end if stop == len(r) else row.values[stop]
            ahead = sum(gamma ** (u - t) * r[u] for u in range(t, stop))
            row_advantages[t] = ahead + gamma ** (stop - t) * after - row.values[t]
        advantages.append(row_advantages)
    return _white(advantages, setting)


def _process(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    """The normal rewards of the steps that end at a token or later, arXiv:2402.03300, 4.1.3."""
    advantages: _Advantages = [0.0] * len(rows)
    for members in _groups(rows):
        voters = [i for i in members if _votes(rows[i], setting)]
        rewards = np.array([reward for i in voters for _, reward in rows[i].steps])
        # One normal reward for each step of the group,
        # taken in the order in which they were gathered.
        normal = iter(_relative(rewards, setting).tolist() if len(rewards) else [])
        for i in voters:
            row_advantages = np.zeros(len(rows[i].at))
            # `steps` stands first: zip asks it first and, where it has ended,
            # takes nothing from `normal`, which the next row goes on with.
            for (end, _), value in zip(rows[i].steps, normal, strict=False):
                row_advantages += value * (rows[i].at < end)
            advantages[i] = row_advantages
    return advantages


def _prefixes(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    """V after a step minus V before it (VinePPO, sec. 4; ReMax with one step from the prompt)."""
    advantages, complete = [], []
    for row in rows:
        row_advantages = np.zeros(len(row.at))
        for (start, before), (stop, after) in pairwise(sorted(row.prefixes)):
            row_advantages[(row.at >= start) & (row.at < stop)] = after - before
        advantages.append(row_advantages)
        # With fewer than two values there is no step to compare;
        # such a row has advantages 0 and is not in the batch's std.
        complete.append(len(row.prefixes) > 1)
    if not setting.numbers.get("whiten"):
        return list(advantages)
    white = iter(
        _normalise_rows(
            [
                row_values
                for row_values, is_complete in zip(advantages, complete, strict=True)
                if is_complete
            ],
            setting,
        )
    )
    return [
        next(white) if is_complete else 0 * row_values
        for row_values, is_complete in zip(advantages, complete, strict=True)
    ]


def _distill(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    scored = _by_group(_relative)(rows, setting)
    gamma, weight = setting.numbers["gamma"], setting.numbers["reward_weight"]
    advantages = []
    for row, outcome in zip(rows, scored, strict=True):
        gap = row.teacher - row.behaviour
        ahead = [
            sum(gamma ** (u - t) * gap[u] for u in range(t, len(gap))) for t in range(len(gap))
        ]
        advantages.append(np.array(ahead) + weight * outcome)
    return advantages


def _prime(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    """Returns of token rewards less the other completions' mean, and the score less theirs
    (Algorithm 1)."""
    gamma = setting.numbers["gamma"]
    means = [float(row.implicit.mean()) if len(row.at) else 0.0 for row in rows]
    scored, advantages = _by_group(_leave_one_out)(rows, setting), []
    for i, row in enumerate(rows):
        sibling_means = [
            means[j]
            for j, sibling in enumerate(rows)
            if j != i and sibling.group == row.group and _votes(sibling, setting)
        ]
        # A row that does not vote, or has no other voter in its group, is compared with itself.
        baseline = (
            float(np.mean(sibling_means)) if sibling_means and _votes(row, setting) else means[i]
        )
        row_advantages, after = np.zeros(len(row.at)), 0.0
        for t in reversed(range(len(row_advantages))):
            row_advantages[t] = after = row.implicit[t] - baseline + gamma * after
        advantages.append(row_advantages + scored[i])
    return advantages


def _none(rows: Sequence[StepRow], setting: Setting) -> _Advantages:
    return [0.0] * len(rows)


ADVANTAGES: Final[dict[str, Callable[[Sequence[StepRow], Setting], _Advantages]]] = {
    **dict.fromkeys(
        (
            "grpo dapo prorl gspo luspo ppo_completions sapo cispo gmpo kl_cov clip_cov dppo "
            "vespo rpg"
        ).split(),
        _by_group(_relative),
    ),
    **dict.fromkeys(("dr_grpo", "dro"), _by_group(_centre)),
    **dict.fromkeys(("ppo", "ppo_kl", "trpo"), _gae),
    **dict.fromkeys(("vineppo", "remax"), _prefixes),
    **dict.fromkeys(("gkd", "sdft"), _none),
    "rloo": _by_group(_leave_one_out),
    "opo": _by_group(_length_weighted),
    "raft_pp": _by_group(_best),
    "maxrl": _by_group(_over_mean),
    "pass_k": _by_group(_lead),
    "topr": _by_group(_above_pivot),
    "gpg": _gpg,
    "gdpo": _gdpo,
    "reinforce": _minus_baseline,
    "reinforce_pp": _discount,
    "reinforce_pp_baseline": _batch_normal,
    "magistral": _magistral,
    "a2c": _n_steps,
    "grpo_process": _process,
    "distill": _distill,
    "prime": _prime,
}
