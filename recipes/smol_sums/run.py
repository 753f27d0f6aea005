"""A small instruct model learns by GRPO to add one-digit numbers, on a CPU.

Example: rlvr train smol_sums --model build/real/smollm2-135m-instruct
"""

from pathlib import Path

from tyro import MISSING

from rlvr.algo.papers import load_algorithm
from rlvr.recipes.common import train
from rlvr.recipes.flags import Flags
from rlvr.train.config import Config

__all__ = ["DEFAULTS", "ENVIRONMENT", "main"]

ENVIRONMENT = "rlvr.recipes.smol_sums.sums:OneDigitSums"


DEFAULTS = Flags(
    own_task=(ENVIRONMENT, None),
    config=Config(
        env=ENVIRONMENT,
        model=MISSING,
        run=Path("runs/smol_sums"),
        algorithm=load_algorithm("grpo", kl_coefficient=0.01),
        steps=30,
        prompts=8,
        group_size=8,
        max_tokens=16,
        micro_tokens=4096,
        lr=5e-6,
        eval_every=10,
        eval_tasks=100,
        eval_n=2,
        workers=1,
    ),
)


def main(flags: Flags = DEFAULTS) -> int:
    """Train and print the results; returns the exit code.

    Args:
        flags: of the run.
    """
    return train(flags)
