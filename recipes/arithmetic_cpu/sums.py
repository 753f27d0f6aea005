"""The task: two numbers of two digits.  Apart from the training, for the workers that score load this and no torch."""

import rlvr
from rlvr.verifiers.math import MathVerifier

__all__ = ["SPLITS", "Sums"]

SPLITS = {"train": range(9), "test": range(9, 10)}  # tenths of all pairs


class Sums(rlvr.SingleTurnEnv):
    """Add two numbers of two digits; the answer goes in the last \\boxed{}.  No pair is in both splits."""

    reward = rlvr.Correct(MathVerifier())

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded("recipes/sums", self.split, index)
        while True:
            a, b = rng.randint(10, 99), rng.randint(10, 99)
            if rlvr.seeded("recipes/sums", min(a, b), max(a, b)).randrange(10) in SPLITS[self.split]:
                return rlvr.Task(f"sums/{self.split}/{index}", f"{a}+{b}=", reference=a + b)
