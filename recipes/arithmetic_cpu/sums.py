"""The task, two numbers of two digits, and how a sum is worked out.  The scoring workers
load this, and no torch."""

from random import Random

import rlvr
from rlvr.verifiers.math import MathVerifier

__all__ = ["SPLITS", "Sums", "added_by_columns"]

SPLITS = {"train": range(9), "test": range(9, 10)}  # tenths of all pairs


class Sums(rlvr.Environment):
    """Add two numbers of two digits; the answer goes in the last \\boxed{}.
    No pair is in both splits."""

    reward = rlvr.Correct(MathVerifier())

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded("recipes/sums", self.split, index)
        while True:
            # Drawn until the pair is of this split: one in ten is a test pair.
            a, b = rng.randint(10, 99), rng.randint(10, 99)
            if (
                rlvr.seeded("recipes/sums", min(a, b), max(a, b)).randrange(10)
                in SPLITS[self.split]
            ):
                return rlvr.Task(f"sums/{self.split}/{index}", f"{a}+{b}=", reference=a + b)


def added_by_columns(
    prompt: str, rng: Random, noise: float
) -> tuple[list[tuple[str, str, int, int]], str]:
    """The sum of two numbers of equal length, column by column from the right.

    Args:
        prompt: such as "12+34=".
        rng: draws the mistakes.
        noise: chance of each column to be added wrong, from 0 to 1.

    Returns:
        The columns, each as (digit, digit, carry, total of these three), and the sum that follows
        from them.
    """
    a, b = prompt.rstrip("=").split("+")
    carry, digits, columns = 0, "", []
    for x, y in zip(reversed(a), reversed(b), strict=True):
        total = int(x) + int(y) + carry
        if rng.random() < noise:
            # A column of 0+0 would become negative, which is no digit.
            total = max(0, total + rng.choice([-2, -1, 1, 2]))
        columns.append((x, y, carry, total))
        # The mistake goes on into the carry, so that an answer follows from its own columns.
        carry, digits = int(total > 9), str(total % 10) + digits
    return columns, "1" * carry + digits
