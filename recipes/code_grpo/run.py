"""GRPO on programs that are run in the sandbox; settings of DeepSeekMath (arXiv:2402.03300, 4.2) where they carry over.

rlvr train code_grpo --model Qwen/Qwen2.5-Coder-1.5B-Instruct --chat
rlvr train code_grpo --model … --env code-stdio-v1 --data deepmind/code_contests
"""

from pathlib import Path

from tyro import MISSING

from rlvr.recipes.common import Flags, train
from rlvr.train.config import Config

__all__ = ["DEFAULTS", "main"]

DEFAULTS = Flags(
    data="google-research-datasets/mbpp",
    config=Config(
        env="mbpp-v1",
        model=MISSING,
        run=Path("runs/code_grpo"),
        algorithm="grpo",  # KL 0.04 in the loss, one update per step; the clip is PPO's, they print none
        max_tokens=1024,
        lr=1e-6,
        # From here on ours, for one device.
        prompts=32,
        group_size=16,
        overlong="mask",  # a program that was cut off says nothing about the one it would have become
        steps=500,
        precision="bf16",
        gradient_checkpointing=True,
        eval_every=25,
        eval_tasks=500,
        eval_temperature=0.0,
    ),
)


def main(flags: Flags = DEFAULTS) -> int:
    """Train and print the results; returns the exit code."""
    return train(flags)
