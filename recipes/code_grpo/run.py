"""GRPO on programs that are run in the sandbox, with the settings of `math_grpo` except those below.

Example: rlvr train code_grpo --model Qwen/Qwen2.5-Coder-1.5B-Instruct --chat
rlvr train code_grpo --model … --env code-stdio-v3 --data deepmind/code_contests
"""

from dataclasses import replace
from pathlib import Path

from rlvr.recipes.common import Flags, train
from rlvr.recipes.math_grpo import run as math_grpo

__all__ = ["DEFAULTS", "main"]

DEFAULTS = Flags(
    own_task=("mbpp-v3", "google-research-datasets/mbpp"),
    config=replace(
        math_grpo.DEFAULTS.config,
        env="mbpp-v3",
        run=Path("runs/code_grpo"),
        # From here on ours, for one device.
        prompts=32,
        group_size=16,
        overlong="mask",  # a program that was cut off says nothing about the one it would have become
        steps=500,
        eval_every=25,
    ),
)


def main(flags: Flags = DEFAULTS) -> int:
    """Train and print the results; returns the exit code.

    Args:
        flags: the settings.
    """
    return train(flags)
