"""What a step file's head says of its algorithm and updates, checked once: formulas read
it without further checks.

What the head says wrongly is the file's fault, and an error with its place; what a file lacks is
not compared, and the rest is.  So whatever a formula raises is a fault of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rlvr.algo.judge.conventions import Conventions, conventions_of
from rlvr.algo.judge.examples import EXAMPLE_LOSSES, OF_PAIRS
from rlvr.algo.judge.rows import Formulas, Setting
from rlvr.data.step_files import StepFile
from rlvr.errors import DataError
from rlvr.types import JsonObject

__all__ = ["needs", "of_update", "setting_of", "what_advantages_lack", "what_the_loss_lacks"]

_Check = Callable[[Any], bool]


def _number(least: float = -math.inf, most: float = math.inf) -> _Check:
    def check(value: Any) -> bool:
        # `type`, as True is an int; up to 2**53 every int is a float64 without rounding.
        is_number = type(value) is float or (type(value) is int and abs(value) <= 2**53)
        return is_number and least <= value <= most  # false for NaN

    return check


def _whole(value: object) -> bool:
    return type(value) is int and 0 < value <= 2**53


def _one_of(*choices: str) -> _Check:
    return lambda value: isinstance(value, str) and value in choices


def _or_none(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


_ANY = _number()
_SHARE = _number(0.0, 1.0)
_NUMBERS: Final[Mapping[str, tuple[_Check, str]]] = {
    **dict.fromkeys(
        "reward_weight group_weight likelihood pivot clip_high eps beta tau low high cap "
        "positive_k positive_rate negative_k negative_rate entropy_now centring right_weight "
        "wrong_weight sft_weight".split(),
        (_ANY, "a number"),
    ),
    **dict.fromkeys(("gamma", "lam", "share"), (_SHARE, "a number from 0 to 1")),
    **dict.fromkeys(("scale", "masked_vote", "whiten"), (_flag, "true or false")),
    **dict.fromkeys(
        ("average", "length_tokens", "reference_point"), (_or_none(_ANY), "a number or null")
    ),
    "n_steps": (_or_none(_whole), "a whole number above 0, or null"),
    "smoothing": (lambda value: _number(0.0, 0.5)(value) and value < 0.5, "a number in [0, 0.5)"),
    "aggregation": (
        _one_of("token_mean", "group_token_mean", "sequence_mean", "constant"),
        "token_mean, group_token_mean, sequence_mean or constant",
    ),
    "baseline": (
        _one_of("none", "batch_mean", "moving_average"),
        "none, batch_mean or moving_average",
    ),
    "divergence": (_one_of("tv", "kl"), "tv or kl"),
    "length": (_one_of("sum", "mean"), "sum or mean"),
    "reading": (_one_of("conservative", "robust"), "conservative or robust"),
}
"""Numbers that formulas read, with what each must be; others are nobody's business here."""

_LEVELS, _KINDS = ("token", "sequence", "geometric"), ("truncate", "band", "mask")
_PARTS: Final[Mapping[str, Mapping[str, tuple[_Check, str, bool]]]] = {
    "clip": {
        "low": (_ANY, "a number", True),
        "high": (_ANY, "a number", True),
        "dual": (_or_none(_ANY), "a number or null", False),
    },
    "kl": {
        "coefficient": (_ANY, "a number", True),
        "estimator": (_one_of("k1", "k2", "k3"), "k1, k2 or k3", True),
        "place": (_one_of("loss", "reward"), "loss or reward", True),
        "weighted": (_flag, "true or false", False),
    },
    "trust": {"coefficient": (_ANY, "a number", True)},
    "soft_clip": {"positive": (_ANY, "a number", True), "negative": (_ANY, "a number", True)},
    "critic": {
        "value_clip": (_or_none(_ANY), "a number or null", True),
        "coefficient": (_ANY, "a number", True),
        "backbone": (_one_of("own", "shared"), "own or shared", True),
    },
    "trust_region": {"delta": (_number(0.0), "a number from 0", True)},
    "correction": {
        "level": (_one_of(*_LEVELS), ", ".join(_LEVELS), True),
        "kind": (_one_of(*_KINDS), ", ".join(_KINDS), True),
        "low": (_ANY, "a number", True),
        "high": (_ANY, "a number", True),
    },
}
"""Parts of an algorithm: of each number what it must be, and whether the part needs it."""

_CLIPPED = (
    "grpo dapo prorl dr_grpo reinforce_pp reinforce_pp_baseline magistral vineppo ppo maxrl gdpo "
    "prime grpo_process gspo luspo ppo_completions cispo clip_cov"
).split()
_OF_ADVANTAGES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ppo", "ppo_kl", "trpo"), "values gamma lam"),
    **dict.fromkeys(("vineppo", "remax"), "prefixes"),
    "a2c": "values gamma n_steps",
    "distill": "teacher_logprobs gamma reward_weight",
    "gdpo": "score_parts",
    "grpo_process": "turns",
    "prime": "implicit_rewards gamma",
    "reinforce": "baseline",
    "reinforce_pp": "gamma",
    "topr": "pivot",
}
_OF_LOSSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("dpo", "ipo", "slic"), "logprobs ref_logprobs beta"),
    "dpo": "logprobs ref_logprobs beta smoothing reading",
    "kto": "logprobs ref_logprobs beta right_weight wrong_weight reference_point",
    **dict.fromkeys(("rft", "sft"), "logprobs"),
    "reward_model": "outputs centring",
    "pointwise_reward_model": "outputs",
    "process_reward_model": "outputs step_labels",
    **dict.fromkeys(_CLIPPED, "clip"),
    "clip_cov": "clip selected",
    "dppo": "divergence low high cap",
    "dro": "ref_logprobs tau",
    "gmpo": "eps",
    "kl_cov": "selected beta",
    "ppo_kl": "trust",
    "raft_pp": "clip_high",
    "rpg": "beta",
    "sapo": "soft_clip",
    "vespo": "positive_k positive_rate negative_k negative_rate",
    **dict.fromkeys(("gkd", "sdft"), "divergences"),
}
"""What each algorithm's formulas read: arrays, parts and numbers."""
_ARRAYS: Final = frozenset(
    "values prefixes teacher_logprobs ref_logprobs score_parts turns implicit_rewards step_labels "
    "row_weights".split()
)
_OF_UPDATE: Final = frozenset(("logprobs", "selected", "outputs", "divergences"))


def setting_of(
    step: StepFile, how: Conventions | None = None, own: Formulas | None = None
) -> Setting:
    """The algorithm of a step, its numbers and conventions.

    Args:
        step: the file's.
        how: conventions; None for those that the file declares.
        own: formulas of an algorithm that is not published.

    Raises:
        DataError: there is no algorithm, or something in the head is not what it must be; with its
            place.
    """
    numbers = step.head.get("algorithm")
    if not isinstance(numbers, Mapping) or not isinstance(numbers.get("name"), str):
        raise DataError("the file's head has no algorithm, so there is nothing to recompute it by")
    _require_numbers("algorithm", numbers)
    declared = step.head.get("conventions", {})
    if not isinstance(declared, Mapping):
        raise DataError(f"conventions are {declared!r}; they must be choices by name")
    for number, update in enumerate(step.updates):
        _require_update(f"update {number}", update, len(step.arrays[f"update{number}.computed"]))
    return Setting(numbers["name"], numbers, how or conventions_of(declared), own)


def of_update(step: StepFile, number: int, setting: Setting) -> Setting:
    """The setting with the coefficients that an update had.

    Args:
        step: the file's.
        number: of the update.
        setting: of the step, as `setting_of` gives it.
    """
    return replace(setting, numbers={**setting.numbers, **step.updates[number].get("numbers", {})})


def needs(name: str, setting: Setting) -> tuple[list[str], list[str]]:
    """Arrays, parts and numbers that an algorithm's advantages are computed from, and its loss.

    Args:
        name: of the algorithm.
        setting: its numbers.
    """
    of_advantages = _OF_ADVANTAGES.get(name, "").split()
    of_loss = _OF_LOSSES.get(name, "").split()
    if name in EXAMPLE_LOSSES:
        return [], of_loss
    of_loss = ["logprobs", "advantages", "aggregation", *of_loss]
    if setting.numbers.get("kl"):
        (of_advantages if setting.kl_in("reward") else of_loss).append("ref_logprobs")
    if setting.numbers.get("likelihood"):
        of_loss.append("row_weights")
    if setting.numbers.get("aggregation") == "constant":
        of_loss.append("length_tokens")
    return of_advantages, of_loss


def what_advantages_lack(step: StepFile, setting: Setting) -> str:
    """The first thing that advantages would be computed from and that the file does not have; empty
    if it has all.

    Args:
        step: the file's.
        setting: its own.
    """
    return _first_missing(step, setting, needs(setting.name, setting)[0], "")


def what_the_loss_lacks(step: StepFile, number: int, setting: Setting) -> str:
    """The first thing that the loss would be computed from and that the file does not have; empty
    if it has all.

    Args:
        step: the file's.
        number: of the update.
        setting: of the update.
    """
    prefix = f"update{number}."
    if setting.name in OF_PAIRS:
        sizes = np.unique(
            step.arrays["group"][step.arrays[prefix + "computed"]], return_counts=True
        )[1]
        if (sizes != 2).any():
            return "two rows of each pair"
    return _first_missing(step, setting, needs(setting.name, setting)[1], prefix)


def _first_missing(step: StepFile, setting: Setting, needed: Sequence[str], prefix: str) -> str:
    for name in needed:
        if name in _OF_UPDATE:
            is_there = prefix + name in step.arrays
        elif name in _ARRAYS or name == "advantages":
            is_there = name in step.arrays
        else:
            is_there = name in setting.numbers
            # n_steps is null where returns go to the end;
            # anything else that is null cannot be computed with.
            is_there &= name == "n_steps" or setting.numbers.get(name) is not None
        if not is_there:
            return name
    return ""


# ------------------------------------------------------------------------------ checks


def _require_numbers(place: str, numbers: Mapping[str, object]) -> None:
    for name, value in numbers.items():
        if name in _NUMBERS:
            check, rule = _NUMBERS[name]
            if not check(value):
                raise DataError(f"{place}.{name} is {_show(value)}; it must be {rule}")
        elif name == "correction" and value is not None:
            if not isinstance(value, list | tuple):
                raise DataError(f"{place}.correction is {_show(value)}; it must be a list")
            for n, rule_of_one in enumerate(value):
                _require_part(f"{place}.correction[{n}]", name, rule_of_one)
        elif name in _PARTS and value is not None:
            _require_part(f"{place}.{name}", name, value)


def _require_part(place: str, name: str, part: object) -> None:
    if not isinstance(part, Mapping):
        raise DataError(f"{place} is {_show(part)}; it must be numbers by name")
    for key, (check, rule, needed) in _PARTS[name].items():
        if key not in part and needed:
            raise DataError(f"{place} has no {key}; it must be {rule}")
        if key in part and not check(part[key]):
            raise DataError(f"{place}.{key} is {_show(part[key])}; it must be {rule}")


def _require_update(place: str, update: JsonObject, computed: int) -> None:
    numbers, terms = update.get("numbers", {}), update.get("terms", {})
    for name, value in (("numbers", numbers), ("terms", terms)):
        if not isinstance(value, Mapping):
            raise DataError(f"{place}: {name} are {_show(value)}; they must be numbers by name")
    _require_numbers(f"{place}, numbers", numbers)
    logged = {f"terms.{name}": value for name, value in terms.items()}
    logged["loss"] = update.get("loss")
    for name, value in logged.items():
        # A loss or a term may be NaN or infinite: that is
        # what a run recorded, and no fault of the file.
        if value is not None and not (type(value) is float or _number()(value)):
            raise DataError(f"{place}: {name} is {_show(value)}; it must be a number or null")
    for name in ("tokens", "sequences"):
        if name in update and not (type(update[name]) is int and 0 <= update[name] <= 2**53):
            raise DataError(f"{place}: {name} is {_show(update[name])}; it must be a count")
    for name in ("micro", "rank"):
        listed = update.get(name, [])
        if not isinstance(listed, list) or not all(type(number) is int for number in listed):
            raise DataError(f"{place}: {name} is {_show(listed)}; it must be a list of numbers")
        if listed and len(listed) != computed:
            raise DataError(
                f"{place}: {name} has {len(listed)} numbers for {computed} computed rows"
            )


def _show(value: object) -> str:
    return repr(value)[:80]
