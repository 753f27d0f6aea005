"""The tasks of the trainer's benchmarks, and the models that they begin with.

In `Sums` all completions have about the same length, as the model was taught.  In `Noise` they end
by chance: the model has random weights, so that each of 44 tokens, the end token among them, is
about equally likely, and lengths are geometric.  No length is forced on either side: both sides run
the same model.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

import rlvr
from rlvr.recipes.arithmetic_cpu.run import warm_start
from rlvr.recipes.arithmetic_cpu.sums import added_by_columns
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

__all__ = [
    "CHARSET",
    "MAX_TOKENS",
    "NOISE",
    "Noise",
    "Sums",
    "random_model",
    "right_columns",
    "warm_started",
]

CHARSET = "0123456789+= #"
# 40, and four special tokens: a completion has 44 tokens on average
NOISE = "abcdefghijklmnopqrstuvwxyz0123456789+-=#"
MAX_TOKENS = {"skewed": 192, "uniform": 56}
SPLITS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}  # tenths of all pairs


class Sums(rlvr.Environment):
    """Add two numbers of some digits, column by column; the answer follows the #.
    No pair is in both splits."""

    digits: int = 3
    reward = rlvr.Correct(
        lambda completion, reference: completion.rpartition("#")[2] == str(reference)
    )

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded("benchmarks/sums", self.split, index)
        while True:
            a, b = (rng.randint(10 ** (self.digits - 1), 10**self.digits - 1) for _ in "ab")
            if (
                rlvr.seeded("benchmarks/sums", min(a, b), max(a, b)).randrange(10)
                in SPLITS[self.split]
            ):
                return rlvr.Task(f"sums/{self.split}/{index}", f"{a}+{b}=", reference=a + b)


class Noise(rlvr.Environment):
    """Begin with a letter of the first half; a random model is right about every third time."""

    reward = rlvr.Correct(lambda completion, reference: completion[:1] in tuple("abcdefghijklm"))

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded("benchmarks/noise", self.split, index)
        return rlvr.Task(
            f"noise/{self.split}/{index}", "".join(rng.choices(NOISE, k=11)), reference=""
        )


def random_model(seed: int = 0) -> tuple[Any, Any]:
    """A Qwen2 of a million weights for `Noise`, and its tokenizer.  Untied:
    a tied one likes to repeat itself."""
    return tiny(NOISE, hidden=128, layers=4, heads=4, tied=False, seed=seed)


def warm_started(folder: Path, *, seed: int, steps: int, noise: float = 0.08) -> Path:
    """The same model taught on worked `Sums`, a share of whose columns is wrong; made once,
    then kept."""
    kept = folder / f"llama-sums-{seed}-{steps}-{noise:g}"
    if (kept / "config.json").is_file():
        return kept
    # transformers reads the tokenizer of a qwen2 folder by its own rules, which drop spaces.
    policy = Policy(*tiny(CHARSET, hidden=128, layers=4, heads=4, family="llama", seed=seed))
    warm_start(
        policy, Sums(), worked, steps=steps, noise=noise, seed=seed, console=Console(quiet=True)
    )
    policy.save(kept)
    return kept


def worked(prompt: str, rng: Random, noise: float) -> str:
    """An answer whose length depends on the number of columns alone; see `added_by_columns`."""
    columns, total = added_by_columns(prompt, rng, noise)
    return (
        " ".join(f"{x}+{y}+{carry}={column:02}" for x, y, carry, column in columns) + f" #{total}"
    )


def right_columns(task: rlvr.Task, steps: list[str]) -> list[float]:
    """For `--step-reward`: 1 for each column that is added rightly, and for the right total."""
    return [float(_is_right(step.strip(), str(task.reference))) for step in steps]


def _is_right(step: str, total: str) -> bool:
    if step.startswith("#"):
        return step == f"#{total}"
    terms, _, column = step.partition("=")
    try:
        return sum(map(int, terms.split("+"))) == int(column)
    except ValueError:
        return False
