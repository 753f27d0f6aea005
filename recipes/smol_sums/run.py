"""A small instruct model learns by GRPO to add one-digit numbers, on a CPU.

Example: rlvr train smol_sums --model build/real/smollm2-135m-instruct
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro import MISSING
from tyro.conf import OmitArgPrefixes, arg

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.recipes.common import train
from rlvr.train.config import Config
from rlvr.train.setup import environments

__all__ = ["DEFAULTS", "ENVIRONMENT", "Settings", "main"]

ENVIRONMENT = "rlvr.recipes.smol_sums.sums:OneDigitSums"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the run; each can be changed by a flag."""

    config: OmitArgPrefixes[Annotated[Config, arg(name="")]]

    def environments(self) -> tuple[rlvr.Environment, rlvr.Environment | None]:
        """The environment to train on, and the one to evaluate on."""
        return environments(self.config)


DEFAULTS = Settings(
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
    )
)


def main(settings: Settings = DEFAULTS) -> int:
    """Train and print the results; returns the exit code.

    Args:
        settings: of the run.
    """
    return train(settings)
