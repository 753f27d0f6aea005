"""Recompute a recorded step, and name the first quantity that departs, with the
convention that would explain it.

A number departs if it is further from ours than rounding allows.  What rounding allows is derived:
the judge is run again with every input moved by a few units in its last place, up and down (Monte
Carlo arithmetic, D. S. Parker 1997); the spread is the effect of rounded inputs, and a few units of
the sum of all terms without their signs is that of the operations (running error analysis,
Wilkinson 1963).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from rlvr.algo.judge.advantages import ADVANTAGES, advantages
from rlvr.algo.judge.conventions import Conventions
from rlvr.algo.judge.critic import CriticLoss
from rlvr.algo.judge.dual import Float64s
from rlvr.algo.judge.examples import EXAMPLE_LOSSES, ExampleLoss
from rlvr.algo.judge.head import of_update, setting_of, what_advantages_lack, what_the_loss_lacks
from rlvr.algo.judge.losses import LOSSES, UpdateLoss
from rlvr.algo.judge.rows import (
    Formulas,
    Setting,
    StepRow,
    advantage_rows,
    rows_of_update,
    shake,
    value_rows,
)
from rlvr.algo.judge.selection import wrong_selection
from rlvr.algo.judge.updates import (
    foreign_token,
    missing_row,
    not_finite,
    untrained_row,
    wrong_sizes,
)
from rlvr.data.step_files import StepFile, spans

__all__ = ["QuantityCheck", "verify"]

_Made: TypeAlias = UpdateLoss | ExampleLoss
_Status = Literal["equal", "departs", "not compared"]
_UNIT = 2.0**-24  # of float32, in which trainers compute losses
_ROUNDINGS = 64  # of one result: a formula of a few operations and a sum of thousands of terms
_WAYS: tuple[float | int, ...] = (1.0, -1.0, 1, 2)
"""All inputs up, all down, and two seeded draws."""


@dataclass(frozen=True, slots=True)
class QuantityCheck:
    """What became of a quantity.

    Attributes:
        quantity: such as "advantages", or "update 0: weights".
        status: equal; departs; or not compared, and then `why`.
        row, token: of the greatest departure; None where the quantity is of the whole.
        recorded, recomputed: both values there.
        tolerance: what rounding allows there.
        why: why it was not compared, or what is wrong with the recorded value alone.
        explained: what conventions say under which the recorded numbers are right.
        ratio: of the norms, recorded over recomputed; None for single numbers.
        cosine: of the angle between recorded and recomputed.
    """

    quantity: str
    status: _Status
    row: int | None = None
    token: int | None = None
    recorded: float | None = None
    recomputed: float | None = None
    tolerance: float | None = None
    why: str = ""
    explained: tuple[str, ...] = ()
    ratio: float | None = None
    cosine: float | None = None

    def __str__(self) -> str:
        if self.status == "equal":
            return f"{self.quantity}: equal"
        if self.status == "not compared":
            return f"{self.quantity}: not compared, {self.why}"
        place = "" if self.row is None else f" at row {self.row}"
        place += "" if self.token is None else f", token {self.token}"
        line = f"{self.quantity}: departs{place}: {self.recorded:.9g} is recorded, "
        if self.recomputed is None:
            return line + self.why
        line += f"{self.recomputed:.9g} recomputed, and rounding allows {self.tolerance:.2g}"
        if self.ratio is not None:
            line += f"; norms' ratio {self.ratio:.6g}, cosine {self.cosine:.6g}"
        return line + "".join(f"; explained if {says}" for says in self.explained)


def verify(
    step: StepFile, how: Conventions | None = None, own: Formulas | None = None
) -> list[QuantityCheck]:
    """Recompute what a step file has, in the order in which a trainer computes it.

    Each quantity is recomputed from the recorded ones before it, so the first departure is where
    the trainer differs.

    Args:
        step: the file's.
        how: conventions; None for those that the file declares.
        own: formulas of the user's algorithm that the file names; None for a published one.

    Raises:
        DataError: the file has no algorithm, or its head says something that cannot be; with the
            place.
    """
    setting = setting_of(step, how, own)
    if place := not_finite(step):  # nothing that follows can be compared
        name, row, token, value = place
        why = "which is no finite number"
        return [QuantityCheck(name, "departs", row, token, value, why=why)]
    with np.errstate(all="ignore"):
        return _findings(step, setting)


def _findings(step: StepFile, setting: Setting) -> list[QuantityCheck]:
    findings = [] if setting.name in EXAMPLE_LOSSES else [_advantages(step, setting)]
    findings += _left_out(step)
    if place := foreign_token(step):
        findings.append(QuantityCheck("used", "departs", *place, 1.0, 0.0, 0.0))
    sizes: Iterable[tuple[int, int, int]] = ()
    if "advantages" in step.arrays:
        sizes = wrong_sizes(step)
        if place := untrained_row(step):
            findings.append(QuantityCheck("updates", "departs", *place, 0.0, 1.0, 0.0))
    for number, groups, right in sizes:
        name = f"update {number}: groups"
        counts = float(groups), float(right), 0.0
        findings.append(QuantityCheck(name, "departs", None, None, *counts))
    for number in range(len(step.updates)):
        if setting.own or setting.name in LOSSES or setting.name in EXAMPLE_LOSSES:
            findings += _update(step, number, setting)
        else:
            why = f"the judge has no loss of {setting.name}; --algorithm judges a user's own"
            findings.append(QuantityCheck(f"update {number}", "not compared", why=why))
        findings += _critic(step, number, setting)
    return findings


def _left_out(step: StepFile) -> Iterator[QuantityCheck]:
    """A trainer leaves an update out whose loss or gradient is not finite;
    not one whose numbers are."""
    if step.head.get("left_out") is not True or not step.updates:
        return
    terms = {"loss": step.updates[0].get("loss"), **step.updates[0].get("terms", {})}
    numbers = [value for value in terms.values() if value is not None]
    if numbers and np.isfinite(numbers).all():
        yield QuantityCheck("update 0: left out", "departs", None, None, 1.0, 0.0, 0.0)


# ------------------------------------------------------------------------------ the quantities


def _advantages(step: StepFile, setting: Setting) -> QuantityCheck:
    if "advantages" not in step.arrays:
        return QuantityCheck("advantages", "not compared", why="the file has none")
    if setting.own is None and setting.name not in ADVANTAGES:
        why = f"the judge has none of {setting.name}"
        return QuantityCheck("advantages", "not compared", why=why)
    if missing := what_advantages_lack(step, setting):
        return QuantityCheck("advantages", "not compared", why=_lacks(missing))
    rows = advantage_rows(step)
    used = step.arrays.get("used", step.arrays["mask"])
    span, places = spans(step.arrays["offsets"]), []
    for row in rows:
        places += [(row.index, int(t)) for t in row.at if used[span[row.index]][t]]
    at = [span[i].start + t for i, t in places]

    def recompute(rows: Sequence[StepRow], setting: Setting) -> Float64s:
        row_advantages = advantages(rows, setting)
        advantage_at = {
            (row.index, int(t)): a
            for row, values in zip(rows, row_advantages, strict=True)
            for t, a in zip(row.at, values, strict=True)
        }
        return np.array([advantage_at[place] for place in places])

    # Differences of scores over one std: each is off by units of the greatest.
    recorded = step.arrays["advantages"][at].astype(float)
    finite = np.abs(recorded[np.isfinite(recorded)])
    greatest = finite.max() if len(finite) else 0.0
    return _compare(
        "advantages", recorded, recompute, rows, setting, places, np.abs(recorded) + greatest
    )


def _update(step: StepFile, number: int, setting: Setting) -> Iterator[QuantityCheck]:
    head, prefix = step.updates[number], f"update{number}."
    setting = of_update(step, number, setting)
    if missing := what_the_loss_lacks(step, number, setting):
        yield QuantityCheck(f"update {number}", "not compared", why=_lacks(missing))
        return
    rows, computed = rows_of_update(step, number)
    batch = rows_of_update(_with_all_rows(step, number), number)[0]
    name = f"update {number}: "

    def loss_of(own: Sequence[StepRow], setting: Setting) -> _Made:
        if setting.name in EXAMPLE_LOSSES:
            return ExampleLoss(own, setting)
        return UpdateLoss(rows, own, setting, batch, head)

    recomputed_loss = loss_of(computed, setting)
    if setting.name not in EXAMPLE_LOSSES and (place := missing_row(step, number)):
        yield QuantityCheck(name + "computed", "departs", *place, 0.0, 1.0, 0.0)
    if wrong := wrong_selection(rows, computed, setting, step.head.get("precision")):
        yield QuantityCheck(name + "selected", "departs", *wrong, 0.0)
    for quantity, count in (
        ("tokens", recomputed_loss.tokens),
        ("sequences", recomputed_loss.sequences),
    ):
        if quantity in head and head[quantity] != count:
            explained = tuple(
                says
                for says, how in setting.how.others()
                if getattr(loss_of(computed, replace(setting, how=how)), quantity) == head[quantity]
            )
            values = float(head[quantity]), float(count)
            yield QuantityCheck(
                f"{name}{quantity}", "departs", None, None, *values, 0.0, "", explained
            )
    for key in ("weights", "entropy_weights", "divergence_weights"):
        if prefix + key in step.arrays:
            yield _tokens(step, number, key, computed, setting, loss_of)
    if prefix + "output_weights" in step.arrays:
        yield _outputs(step, number, computed, setting, loss_of)
    terms = {"loss": head.get("loss"), **head.get("terms", {})}
    for key, recorded in terms.items():
        if recorded is None or (key != "loss" and key not in recomputed_loss.terms):
            continue

        # key=key binds the loop's variable now; a closure would read its last value.
        def number_of(own: Sequence[StepRow], setting: Setting, key: str = key) -> Float64s:
            part_loss = loss_of(own, setting)
            return np.array([part_loss.loss if key == "loss" else part_loss.terms.get(key, 0.0)])

        recorded_array = np.array([recorded], float)
        size = recomputed_loss.sizes[key]
        yield _compare(name + key, recorded_array, number_of, computed, setting, (), size)
    if (region := setting.numbers.get("trust_region")) and "region_kl" in terms:
        yield _within_region(name, terms["region_kl"], region["delta"])


def _within_region(name: str, kl: float, delta: float) -> QuantityCheck:
    """Whether a step of TRPO is in its region; the line search takes steps up to 1.5 δ, as the
    divergence is not quadratic."""
    if kl <= 1.5 * delta:
        return QuantityCheck(f"{name}region_kl", "equal")
    return QuantityCheck(f"{name}region_kl", "departs", None, None, kl, delta, delta / 2)


def _critic(step: StepFile, number: int, setting: Setting) -> Iterator[QuantityCheck]:
    """The critic's loss, and its slope in each value."""
    prefix, name = f"update{number}.", f"update {number}: "
    if prefix + "value_rows" not in step.arrays or not setting.numbers.get("critic"):
        return
    if missing := [name for name in ("values", "returns") if name not in step.arrays]:
        yield QuantityCheck(name + "value weights", "not compared", why=_lacks(missing[0]))
        return
    setting = of_update(step, number, setting)
    rows = value_rows(step, number)
    places = [(row.index, int(t)) for row in rows for t in row.at]
    # One more than rows, the end of the last.
    starts = np.cumsum([0, *(row.length for row in rows)])
    at = [int(t + start) for row, start in zip(rows, starts, strict=False) for t in row.at]
    critic_loss = CriticLoss(rows, setting)

    def weights(own: Sequence[StepRow], setting: Setting) -> Float64s:
        return _join(CriticLoss(own, setting).weights)

    recorded = step.arrays[prefix + "value_weights"][at].astype(float)
    steep = _join(critic_loss.steep)
    yield _compare(name + "value weights", recorded, weights, rows, setting, places, steep)
    loss = step.updates[number].get("terms", {}).get("value_loss")
    if loss is not None:

        def mean(own: Sequence[StepRow], setting: Setting) -> Float64s:
            return np.array([CriticLoss(own, setting).loss])

        yield _compare(
            name + "value_loss", np.array([loss]), mean, rows, setting, (), critic_loss.size
        )


def _with_all_rows(step: StepFile, number: int) -> StepFile:
    """The step as if this update had all its rows, for denominators of the whole batch.

    Args:
        step: the file's.
        number: of the update.
    """
    every = np.arange(len(step.arrays["offsets"]) - 1, dtype=np.int32)
    return StepFile(step.head, {**step.arrays, f"update{number}.rows": every})


def _tokens(
    step: StepFile,
    number: int,
    key: str,
    computed: Sequence[StepRow],
    setting: Setting,
    made: Callable[[Sequence[StepRow], Setting], _Made],
) -> QuantityCheck:
    """A quantity of each trained token."""
    places, at, start = [], [], 0
    for row in computed:
        places += [(row.index, int(t)) for t in row.at]
        at += (row.at + start).tolist()
        start += row.length

    def recompute(own: Sequence[StepRow], setting: Setting) -> Float64s:
        row_values = getattr(made(own, setting), key)
        return _join(row_values)

    recorded = step.arrays[f"update{number}.{key}"][at].astype(float)
    name = f"update {number}: {key.replace('_', ' ')}"
    size = None
    if key == "weights":
        size = _join(made(computed, setting).steep)
    return _compare(name, recorded, recompute, computed, setting, places, size)


def _outputs(
    step: StepFile,
    number: int,
    computed: Sequence[StepRow],
    setting: Setting,
    made: Callable[[Sequence[StepRow], Setting], _Made],
) -> QuantityCheck:
    """∂loss / ∂output of a head, one for each row or step; the token is the step's number."""
    places = [(row.index, i) for row in computed for i in range(len(row.outputs))]

    def of(own: Sequence[StepRow], setting: Setting, name: str) -> Float64s:
        return _join(getattr(made(own, setting), name))

    recorded = step.arrays[f"update{number}.output_weights"].astype(float)
    name = f"update {number}: output weights"
    steep = of(computed, setting, "output_steep")

    def recompute(own: Sequence[StepRow], setting: Setting) -> Float64s:
        return of(own, setting, "output_weights")

    return _compare(name, recorded, recompute, computed, setting, places, steep)


def _join(of_rows: Sequence[Float64s]) -> Float64s:
    """One array of the rows' arrays, of which there may be none."""
    return np.concatenate([np.zeros(0), *of_rows])


# ------------------------------------------------------------------------------ comparing


def _compare(
    quantity: str,
    recorded: Float64s,
    recompute: Callable[[Sequence[StepRow], Setting], Float64s],
    rows: Sequence[StepRow],
    setting: Setting,
    places: Sequence[tuple[int, int]],
    size: object = None,
) -> QuantityCheck:
    """Compare arrays; a departure is tried against every other convention."""
    expected = recompute(rows, setting)
    [allowed] = _tolerances([expected], recompute, rows, [setting], size)
    if _fits(recorded, expected, allowed):
        return QuantityCheck(quantity, "equal")
    others = list(setting.how.others())
    settings = [replace(setting, how=how) for _, how in others]
    values = [recompute(rows, other) for other in settings]
    # Under another convention rounding may allow more, as where an std is small.
    looser = _tolerances(values, recompute, rows, settings, size)
    explained = [
        says
        for (says, _), theirs, theirs_allowed in zip(others, values, looser, strict=True)
        if _fits(recorded, theirs, np.maximum(allowed, theirs_allowed))
    ]
    excess = np.abs(recorded - expected) / np.maximum(allowed, np.finfo(float).tiny)
    # A NaN among them, recorded or computed, is the worst.
    worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
    row, token = places[worst] if places else (None, None)
    ratio, cosine = _angle(recorded, expected) if places else (None, None)
    return QuantityCheck(
        quantity,
        "departs",
        row,
        token,
        float(recorded[worst]),
        float(expected[worst]),
        float(allowed[worst]),
        "",
        tuple(explained),
        ratio,
        cosine,
    )


def _lacks(missing: str) -> str:
    return f"the file has no {missing}, which it is computed from"


def _fits(recorded: Float64s, ours: Float64s, allowed: Float64s) -> bool:
    # NaN is never within what is allowed, so a recorded NaN departs.
    return bool((np.abs(recorded - ours) <= allowed).all())


def _tolerances(
    values: Sequence[Float64s],
    recompute: Callable[[Sequence[StepRow], Setting], Float64s],
    rows: Sequence[StepRow],
    settings: Sequence[Setting],
    size: Any,
) -> list[Float64s]:
    """What rounding may move the values of each setting by; rows are shaken once for all."""
    spreads = [np.zeros(len(ours)) for ours in values]
    for way in _WAYS:
        shaken = [shake(row, _UNIT, way) for row in rows]
        for spread, ours, setting in zip(spreads, values, settings, strict=True):
            np.maximum(spread, np.abs(recompute(shaken, setting) - ours), out=spread)
    return [
        4 * spread + _ROUNDINGS * _UNIT * (np.abs(ours) if size is None else size)
        for spread, ours in zip(spreads, values, strict=True)
    ]


def _angle(recorded: Float64s, ours: Float64s) -> tuple[float, float]:
    a, b = float(np.linalg.norm(recorded)), float(np.linalg.norm(ours))
    return a / b if b else np.inf, float(recorded @ ours) / (a * b) if a and b else 0.0
