"""Losses as papers print them, of one row of an update in float64, with slopes
in its log-probabilities.

Each formula gives a `Dual` of each trained token, or one of the row, which then is the loss of each
of its tokens. `held` marks what a stop-gradient reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from rlvr.algo.judge.dual import Dual, Float64s, choose, dual_variable, exp, largest, sigmoid
from rlvr.algo.judge.rows import Setting, StepRow
from rlvr.errors import DataError
from rlvr.types import JsonObject

__all__ = ["LOSSES", "UpdateLoss", "losses"]


def losses(row: StepRow, setting: Setting) -> list[Dual]:
    """The terms of the policy's loss of a row, before corrections and penalties.

    Args:
        row: a computed row of an update.
        setting: the algorithm, its numbers, and the conventions.

    Raises:
        DataError: the judge does not know the algorithm.
    """
    if setting.own is None and setting.name not in LOSSES:
        raise DataError(f"the judge has no loss of {setting.name!r}")
    formula = LOSSES[setting.name] if setting.own is None else setting.own.loss
    terms = formula(row, setting)
    return terms if isinstance(terms, list) else [terms]


# ------------------------------------------------------------------------------ what formulas share


def _ratio(row: StepRow, setting: Setting) -> Dual:
    if setting.how.ratio == "sequence":
        return _geometric(row, setting)
    return exp(setting.log_ratio(row, row.old))


def _geometric(row: StepRow, setting: Setting) -> Dual:
    mean = setting.log_ratio(row, row.old).sum() / max(1, len(row.at))
    return exp(mean.clip(-np.inf, setting.how.cap))


def _whole(row: StepRow, setting: Setting) -> Dual:
    bound = setting.how.bound
    return exp(setting.log_ratio(row, row.old).sum().clip(-bound, bound))


def _log(row: StepRow) -> Dual:
    return dual_variable(row.new)


def _held(number: Dual) -> Any:
    return number.value


def _one(row: StepRow) -> float:
    """The advantage of a row whose tokens all have the same."""
    return float(row.advantages[0]) if len(row.advantages) else 0.0


def _clip_both(r: Dual, advantage: object, low: float, high: float) -> Dual:
    """-min(r A, clip(r, 1 - low, 1 + high) A)."""
    return largest(-(r * advantage), -(r.clip(1 - low, 1 + high) * advantage))


# ------------------------------------------------------------------------------ the formulas


def _clip_loss(row: StepRow, setting: Setting) -> Dual:
    clip, r, A = setting.numbers["clip"], _ratio(row, setting), row.advantages
    loss = _clip_both(r, A if np.ndim(r.value) else _one(row), clip["low"], clip["high"])
    if clip.get("dual") is None:
        return loss
    # Dual clip: with a negative advantage the clipped loss still
    # grows with r without end; beyond `dual` it is a constant.
    over = (A < 0) & (r.value > clip["dual"])
    return choose(~over, loss, -clip["dual"] * A)


def _raft_pp(row: StepRow, setting: Setting) -> Dual:
    # low = 1: the bound 1 - low is 0, which no ratio is below.
    return _clip_both(_ratio(row, setting), row.advantages, 1.0, setting.numbers["clip_high"])


def _reinforce(row: StepRow, setting: Setting) -> Dual:
    return -(_log(row) * row.advantages)


def _surrogate(row: StepRow, setting: Setting) -> Dual:
    return -(_ratio(row, setting) * row.advantages)


def _ppo_kl(row: StepRow, setting: Setting) -> Dual:
    log_r = setting.log_ratio(row, row.old)
    r = exp(log_r)
    return (r - 1 - log_r) * setting.numbers["trust"]["coefficient"] - r * row.advantages


def _rpg(row: StepRow, setting: Setting) -> Dual:
    log_r = setting.log_ratio(row, row.old)
    return exp(log_r) * ((log_r - 1) * setting.numbers["beta"] - row.advantages)


def _gspo(row: StepRow, setting: Setting) -> Dual:
    clip = setting.numbers["clip"]
    return _clip_both(_geometric(row, setting), _one(row), clip["low"], clip["high"])


def _ppo_completions(row: StepRow, setting: Setting) -> Dual:
    clip = setting.numbers["clip"]
    return _clip_both(_whole(row, setting), _one(row), clip["low"], clip["high"])


def _sapo(row: StepRow, setting: Setting) -> Dual:
    soft, A = setting.numbers["soft_clip"], row.advantages
    tau = np.where(A > 0, soft["positive"], soft["negative"])
    # 4 / τ makes the slope 1 at r = 1, where σ' is 1/4.
    return -(sigmoid((_ratio(row, setting) - 1) * tau) * (4 / tau * A))


def _cispo(row: StepRow, setting: Setting) -> Dual:
    clip = setting.numbers["clip"]
    # The clipped ratio is a weight without slope, so that every token keeps a gradient.
    weight = np.clip(_held(_ratio(row, setting)), 1 - clip["low"], 1 + clip["high"])
    return -(_log(row) * (weight * row.advantages))


def _gmpo(row: StepRow, setting: Setting) -> Dual:
    eps, A = setting.numbers["eps"], _one(row)
    log_r = setting.log_ratio(row, row.old)
    near, sign = log_r.clip(-eps, eps), np.sign(A)
    # The lesser of both, by the advantage's sign: only what would raise the objective is clipped.
    used = choose(sign * log_r.value <= sign * near.value, log_r, near)
    return -(exp(used.sum() / max(1, len(row.at))) * A)


def _kl_cov(row: StepRow, setting: Setting) -> Dual:
    log_r = setting.log_ratio(row, row.old)
    # |log r| with a slope: the sign is a constant beside it.
    penalty = log_r * (np.sign(log_r.value) * setting.numbers["beta"] * row.selected)
    return penalty - exp(log_r) * row.advantages


def _clip_cov(row: StepRow, setting: Setting) -> Dual:
    # Selected tokens have no gradient and stay in the denominator.
    return _clip_loss(row, setting) * np.where(row.selected, 0.0, 1.0)


def _dro(row: StepRow, setting: Setting) -> list[Dual]:
    h = setting.log_ratio(row, row.ref).sum()
    # Over the length, since a number of the row counts once for each of its tokens.
    half = setting.numbers["tau"] / 2 / max(1, len(row.at))
    return [_reinforce(row, setting), h * h * half]


def _dppo(row: StepRow, setting: Setting) -> Dual:
    numbers, A = setting.numbers, row.advantages
    p, q = np.exp(row.new), np.exp(row.old)
    apart = np.abs(p - q)
    if numbers["divergence"] == "kl":
        log_rest = np.log((1 - q + 1e-8) / (1 - p + 1e-8))
        apart = -q * _held(setting.log_ratio(row, row.old)) + (1 - q) * log_rest
    out = (A < 0) & (p < q) & (apart > numbers["low"])
    out |= (A > 0) & (p > q) & (apart > numbers["high"])
    weight = np.minimum(_held(_ratio(row, setting)), numbers["cap"]) * ~out
    return -(_log(row) * (weight * A))


def _topr(row: StepRow, setting: Setting) -> Dual:
    # A completion's ratio, without slope and at most 1; it weighs negative advantages alone.
    s = min(float(_held(_whole(row, setting))), 1.0)
    return -(_log(row) * (np.where(row.advantages < 0, s, 1.0) * row.advantages))


def _vespo(row: StepRow, setting: Setting) -> Dual:
    numbers, A = setting.numbers, row.advantages
    w = float(_held(_whole(row, setting)))
    k = np.where(A < 0, numbers["negative_k"], numbers["positive_k"])
    rate = np.where(A < 0, numbers["negative_rate"], numbers["positive_rate"])
    return -(_log(row) * (np.exp(k * np.log(w) + rate * (1 - w)) * A))


def _divergence(row: StepRow, setting: Setting) -> Dual:
    """D of each token, whose slope is in the whole distribution: see `divergence_weights`."""
    none = np.zeros(len(row.at))
    return Dual(row.divergences, none, np.abs(row.divergences), none)


LOSSES: Final[dict[str, Callable[[StepRow, Setting], Any]]] = {
    **dict.fromkeys(
        "grpo dapo prorl dr_grpo reinforce_pp reinforce_pp_baseline magistral vineppo ppo maxrl "
        "gdpo prime grpo_process".split(),
        _clip_loss,
    ),
    **dict.fromkeys("rloo reinforce a2c opo gpg pass_k remax".split(), _reinforce),
    **dict.fromkeys(("trpo", "distill"), _surrogate),
    **dict.fromkeys(("gspo", "luspo"), _gspo),
    "raft_pp": _raft_pp,
    "ppo_kl": _ppo_kl,
    "rpg": _rpg,
    "ppo_completions": _ppo_completions,
    "sapo": _sapo,
    "cispo": _cispo,
    "gmpo": _gmpo,
    "kl_cov": _kl_cov,
    "clip_cov": _clip_cov,
    "dro": _dro,
    "dppo": _dppo,
    "topr": _topr,
    "vespo": _vespo,
    **dict.fromkeys(("gkd", "sdft"), _divergence),
}


# ------------------------------------------------------------------------------ the update


class UpdateLoss:
    """What an update makes of its rows.

    Args:
        rows: all rows of the update, computed or not.
        computed: those with the policy's log-probabilities.
        setting: the algorithm, its numbers, and the conventions.
        batch: all rows of the step, for trainers whose denominators are of all of them.
        head: of the update; `micro` and `rank` of each computed row are for a mean of means.

    Attributes:
        loss: what is minimised.
        sizes: of loss and terms, the sums of what they are sums of, without signs.
        weights: ∂loss / ∂log-probability of each trained token, of each computed row.
        steep: the same without signs, see `Dual`.
        entropy_weights, divergence_weights: ∂loss / ∂entropy and ∂loss / ∂divergence, the same.
        terms: what is logged.
        tokens, sequences: the denominators.
    """

    def __init__(
        self,
        rows: Sequence[StepRow],
        computed: Sequence[StepRow],
        setting: Setting,
        batch: Sequence[StepRow] = (),
        head: JsonObject | None = None,
    ) -> None:
        self.setting = setting
        by_group = setting.numbers.get("aggregation") == "group_token_mean"
        kind = "group" if by_group else setting.how.denominator
        counted_rows = batch if kind in ("batch", "share") and batch else rows
        self.tokens, self.sequences = _denominators(counted_rows, setting)
        # The number of each computed row's micro-batch or rank; () where means are not of parts.
        numbers = (head or {}).get({"micro-batch": "micro"}.get(kind, kind), ())
        self._part = {row.index: n for row, n in zip(computed, numbers, strict=False)}
        if kind == "group":
            self._part = {row.index: row.group for row in rows}
        members: dict[int, list[StepRow]] = {}
        for row in counted_rows:
            members.setdefault(self._part.get(row.index, -1), []).append(row)
        self._sizes = {
            part: _denominators(part_rows, setting) for part, part_rows in members.items()
        }
        # By this every denominator is multiplied: a mean of means has the number of
        # parts; an equal share of the batch is the whole times its part of the rows.
        self._parts = len(rows) / max(1, len(counted_rows)) if kind == "share" else len(members)
        if by_group:
            # A group without a trained token is in no mean over groups.
            self._parts = sum(tokens > 0 for tokens, _ in self._sizes.values())
        self.loss, self.sizes = 0.0, {"loss": 0.0}
        self.weights: list[Float64s] = []
        self.entropy_weights: list[Float64s] = []
        self.divergence_weights: list[Float64s] = []
        self.steep: list[Float64s] = []
        self.terms: dict[str, float] = {}
        for row in computed:
            self._add(row)

    def _add(self, row: StepRow) -> None:
        setting, share = self.setting, self._share(row)
        weights = self._steep = np.zeros(len(row.at))
        # Corrections weigh the policy's terms; a penalty below has the share alone.
        scale = share * self._corrections(row) * row.kept
        for term in losses(row, setting):
            weights += self._take(term, scale)
        if kl := setting.kl_in("loss"):
            penalty = _kl(row, setting, kl)
            self._log("kl_ref", penalty.value, penalty.size)
            weights += self._take(penalty * kl["coefficient"], share)
        if setting.numbers.get("likelihood"):
            weight = setting.numbers["likelihood"] * row.weight
            weights += self._take(-_log(row) * weight, share)
        self.weights.append(weights)
        self.steep.append(self._steep)
        self.divergence_weights.append(scale)
        if len(row.entropies):
            self._take_entropy(row, share)

    def _take_entropy(self, row: StepRow, share: Float64s) -> None:
        """Add the entropy bonus."""
        weights = -self.setting.numbers.get("entropy_now", 0.0) * share
        self.loss += float(np.sum(weights * row.entropies))
        self.sizes["loss"] += float(np.sum(np.abs(weights * row.entropies)))
        self.entropy_weights.append(weights)

    def _take(self, term: Dual, scale: Float64s) -> Float64s:
        """Add a term of the loss; its weights."""
        if not np.ndim(term.value):
            # A number of the row is the loss of each of its
            # tokens, so it counts by the sum of their shares.
            scale = np.asarray(np.sum(scale))
        self.loss += float(np.sum(term.value * scale))
        self.sizes["loss"] += float(np.sum(term.size * scale))
        self._steep = self._steep + term.steep * scale
        return np.asarray(term.slope * scale)

    def _log(self, name: str, values: Any, sizes: Any) -> None:
        """Add a row's share of a mean over tokens."""
        for totals, numbers in ((self.terms, values), (self.sizes, sizes)):
            # Over all tokens of the update, whatever the rule by which the loss is aggregated.
            totals[name] = totals.get(name, 0.0) + float(np.sum(numbers)) / max(1, self.tokens)

    def _share(self, row: StepRow) -> Float64s:
        """What one token's loss counts for."""
        numbers, trained = self.setting.numbers, _mark_trained(row, self.setting)
        # -1: without parts all rows are one.
        tokens, sequences = self._sizes.get(self._part.get(row.index, -1), (0, 0))
        if numbers["aggregation"].endswith("token_mean"):
            denominator = tokens
        elif numbers["aggregation"] == "sequence_mean":
            denominator = sequences * int(trained.sum())
        else:
            denominator = sequences * numbers["length_tokens"]
        return trained / max(1, denominator * self._parts)

    def _corrections(self, row: StepRow) -> Float64s:
        """The weights for a sampler that computes otherwise, without gradient."""
        rules, bound = self.setting.numbers.get("correction", ()), self.setting.how.bound
        weights = []
        for rule in rules:
            log_w = np.clip(row.old - row.behaviour, -bound, bound)
            if rule["level"] == "sequence":
                log_w = np.full(len(log_w), np.clip(log_w.sum(), -bound, bound))
            elif rule["level"] == "geometric":
                log_w = np.full(len(log_w), log_w.sum() / max(1, len(log_w)))
            w, low, high = np.exp(log_w), rule["low"], rule["high"]
            inside = (w >= low) & (w <= high)
            if rule["kind"] == "truncate":
                weights.append(np.minimum(w, high))
            else:
                weights.append(np.where(inside, w if rule["kind"] == "band" else 1.0, 0.0))
            cut = w > high if rule["kind"] == "truncate" else ~inside
            bounds = f"{high:g}" if rule["kind"] == "truncate" else f"{low:g}:{high:g}"
            name = f"correction/{rule['level']}:{rule['kind']}:{bounds}"
            for end, values in (("weight", weights[-1]), ("cut", cut)):
                self._log(f"{name}/{end}", values, values)
        if not weights or self.setting.how.corrections == "none":
            return np.ones(len(row.at))
        kinds: dict[str, Any] = {"mean": np.mean, "sum": np.sum}
        kind = kinds.get(self.setting.how.corrections, np.prod)
        return np.asarray(kind(weights, axis=0))


def _mark_trained(row: StepRow, setting: Setting) -> Float64s:
    """1 for each token that is trained on, and 0 for an end token that is left out."""
    trained = np.ones(len(row.at))
    # The last token is an end token only where the completion was not cut off.
    has_end = len(row.at) > 0 and row.at[-1] == row.length - 1 and not row.truncated
    if has_end and setting.how.end_token == "left out":
        trained[-1] = 0.0
    return trained


def _denominators(rows: Sequence[StepRow], setting: Setting) -> tuple[int, int]:
    """Tokens and rows that are trained on."""
    if setting.how.empty_rows == "counted":
        # A masked row counts with all its tokens.
        return sum(len(row.at) or row.length for row in rows), len(rows)
    counts = [int(_mark_trained(row, setting).sum()) for row in rows]
    return sum(counts), sum(count > 0 for count in counts)


def _kl(row: StepRow, setting: Setting, kl: Any) -> Dual:
    """The estimate of KL(π ‖ reference) of each token."""
    d, how = setting.log_ratio(row, row.ref), setting.how
    estimator = kl["estimator"] if how.kl_estimator == "algorithm" else how.kl_estimator
    estimate = d
    if estimator == "k2":
        estimate = d * d / 2
    elif estimator == "k3":
        estimate = exp(-d) - 1 + d
    weighted = "token" if kl.get("weighted") else how.kl_ratio
    if weighted == "token":
        return estimate * exp(setting.log_ratio(row, row.old))
    if weighted == "sequence":
        s = _geometric(row, setting)
        # each token's ratio is the row's
        total, largest = np.sum(estimate.value), np.sum(estimate.size)
        return Dual(
            estimate.value * s.value,
            estimate.slope * s.value + total * s.slope,
            estimate.size * s.size,
            estimate.steep * s.size + largest * s.steep,
        )
    return estimate
