"""GRPO on competition problems, with the settings of DeepSeekMath (arXiv:2402.03300, section 4.2).

Example: rlvr train math_grpo --model deepseek-ai/deepseek-math-7b-instruct --chat
"""

from pathlib import Path

from tyro import MISSING

from rlvr.recipes.common import Flags, train
from rlvr.train.config import Config

__all__ = ["DEFAULTS", "main"]

DEFAULTS = Flags(
    # Theirs: some 144,000 questions like those of GSM8K and MATH
    own_task=("math-v3", "DigitalLearningGmbH/MATH-lighteval"),
    config=Config(
        env="math-v3",
        model=MISSING,
        run=Path("runs/math_grpo"),
        algorithm="grpo",  # KL 0.04 in the loss, one update per step; the clip is PPO's, they print none
        prompts=16,  # 64 outputs of each make their batch of 1024
        group_size=64,
        max_tokens=1024,
        lr=1e-6,
        # From here on ours, for one device.
        steps=1000,
        precision="bf16",
        gradient_checkpointing=True,
        eval_every=50,
        eval_tasks=500,
        eval_temperature=0.0,
    ),
)


def main(flags: Flags = DEFAULTS) -> int:
    """Train and print the results; returns the exit code.

    Args:
        flags: the settings.
    """
    return train(flags)
