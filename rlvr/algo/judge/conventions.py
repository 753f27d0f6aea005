"""What papers leave open and trainers answer differently: one table.

A step file declares its trainer's conventions; a departure is explained by the one under which the
recorded number is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from rlvr.errors import DataError
from rlvr.types import JsonObject
from rlvr.validate import nearest

__all__ = ["CHOICES", "Conventions", "conventions_of", "conventions_table"]

CHOICES: Final[Mapping[str, Mapping[Any, str]]] = {
    "std": {
        "population": "std divides by the number of scores, or of tokens",
        "sample": "std divides by one less than the number of scores, or of tokens",
    },
    "eps": {1e-6: "1e-6 is added to the std", 1e-4: "1e-4 is added to the std"},
    "single": {
        "zero": "a group of one has advantage 0",
        "score": "a group of one has its score as advantage",
    },
    "unscored": {
        "left out": "UNSCORED rows are in no mean",
        "zero": "UNSCORED rows count as a score of 0",
    },
    "masked_rows": {
        "algorithm": (
            "masked rows vote in their group's baseline as the algorithm's masked_vote says"
        ),
        "vote": "rows without a trained token vote in their group's baseline",
        "left out": "rows without a trained token are in no mean",
        "zero": "rows without a trained token count as a score of 0",
    },
    "denominator": {
        "update": "means are over the whole update",
        "batch": "means are over the whole batch of rollouts, not the update",
        "share": "means are over an equal share of the whole batch for each update",
        "micro-batch": "a mean of means of micro-batches",
        "rank": "a mean of means of ranks",
        "group": "a mean of means of groups",
    },
    "empty_rows": {
        "left out": "rows without a trained token are in no denominator",
        "counted": "rows without a trained token are in the denominators, with all their tokens",
    },
    "end_token": {
        "trained": "the end token of a completion is trained on",
        "left out": "the end token of a completion is not trained on",
    },
    "kl_place": {
        "algorithm": "the KL is where the algorithm has it",
        "loss": "the KL is in the loss",
        "reward": "the KL is in the reward",
    },
    "kl_ratio": {
        "none": "the KL has no weight, unless the algorithm gives it one",
        "token": "the KL of a token is weighted by the token's ratio",
        "sequence": "the KL of a token is weighted by its completion's ratio",
    },
    "kl_estimator": {
        "algorithm": "the KL's estimator is the algorithm's",
        "k1": "the KL is estimated by k1",
        "k2": "the KL is estimated by k2",
        "k3": "the KL is estimated by k3",
    },
    "ratio": {
        "token": "the ratio is that of a token, where the algorithm has one",
        "sequence": "the ratio is the geometric mean over the completion",
    },
    "bound": {20.0: "log ratios are kept within ±20", float("inf"): "log ratios have no bound"},
    "cap": {
        float("inf"): "a completion's ratio has no cap",
        10.0: "the log of a completion's geometric ratio is at most 10",
    },
    "corrections": {
        "product": "corrections are multiplied",
        "mean": "corrections are averaged",
        "sum": "corrections are summed",
        "none": "corrections have no effect",
    },
    "temperature": {
        "sampling": "log-probabilities are at the temperature of sampling",
        "one": "log-probabilities are at temperature 1",
    },
}
"""Each convention's choices, the trainer's own first, with what each one says."""


@dataclass(frozen=True, slots=True)
class Conventions:
    """A trainer's conventions; the defaults are rlvr's.

    Attributes:
        std, eps: of a group's scores.
        single: advantage of a group of one.
        unscored, masked_rows: who counts in a group's mean.
        denominator, empty_rows, end_token: what means are over.
        kl_place, kl_ratio, kl_estimator: of a KL penalty.
        ratio: of what.
        bound: of log ratios.
        cap: of the log of a geometric ratio.
        corrections: how several are one.
        temperature: of log-probabilities.
    """

    std: str = "population"
    eps: float = 1e-6
    single: str = "zero"
    unscored: str = "left out"
    masked_rows: str = "algorithm"
    denominator: str = "update"
    empty_rows: str = "left out"
    end_token: str = "trained"
    kl_place: str = "algorithm"
    kl_ratio: str = "none"
    kl_estimator: str = "algorithm"
    ratio: str = "token"
    bound: float = 20.0
    cap: float = float("inf")
    corrections: str = "product"
    temperature: str = "sampling"

    def others(self) -> Iterator[tuple[str, Conventions]]:
        """Each change of one convention: what it says, and the conventions with it."""
        for name, choices in CHOICES.items():
            for choice, says in choices.items():
                if choice != getattr(self, name):
                    yield says, replace(self, **{name: choice})


def conventions_of(declared: JsonObject) -> Conventions:
    """The conventions that a step file declares.

    Args:
        declared: choices by name; what is absent is rlvr's.

    Raises:
        DataError: there is no such convention or choice.
    """
    names = [field.name for field in fields(Conventions)]
    for name, choice in declared.items():
        if name not in names:
            raise DataError(f"there is no convention {name!r}{nearest(name, names)}")
        is_number = name in ("eps", "bound", "cap")
        # `type`, as True is an int; up to 2**53 every int is a float64 without rounding.
        fits = type(choice) is float or (type(choice) is int and choice <= 2**53)
        if is_number and not (fits and choice >= 0):
            raise DataError(f"{name} is {choice!r:.80}; it must be a number of 0 or more")
        if not is_number and choice not in list(CHOICES[name]):
            raise DataError(f"{name} is {choice!r:.80}; it is one of {', '.join(CHOICES[name])}")
    return Conventions(**declared)


def conventions_table() -> str:
    """The conventions as a Markdown table, for docs/reference/step_files.md."""
    lines = ["| convention | choice: what it says |", "|---|---|"]
    for name, choices in CHOICES.items():
        meanings = "; ".join(f"*{choice}*: {says}" for choice, says in choices.items())
        lines.append(f"| `{name}` | {meanings} |")
    return "\n".join(lines) + "\n"
