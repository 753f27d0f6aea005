"""DAPO on competition problems, with the paper's settings (arXiv:2503.14476, section 4.1).

Example: rlvr train math_dapo --model Qwen/Qwen2.5-32B
"""

from pathlib import Path

from tyro import MISSING

from rlvr.recipes.common import Flags, train
from rlvr.train.config import Config

__all__ = ["DEFAULTS", "main"]

_UPDATES = 16  # per step: 512 prompts x 16 completions in mini-batches of 512

DEFAULTS = Flags(
    # Theirs: DAPO-Math-17k, see the README
    own_task=("math-v3", "DigitalLearningGmbH/MATH-lighteval"),
    config=Config(
        env="math-v3",
        model=MISSING,
        run=Path("runs/math_dapo"),
        algorithm="dapo",  # clip 0.2 and 0.28, mean over tokens, dynamic sampling, soft overlong, no KL
        prompts=512,
        group_size=16,
        updates=16,
        max_tokens=16384
        + 4096,  # the soft punishment rises over the last fifth, unless told otherwise
        lr=1e-6,
        warmup_steps=20 * _UPDATES,  # 20 rollout steps
        weight_decay=0.1,  # this and the next: not in the paper, but in the authors' script for verl
        grad_clip=1.0,
        eval_n=32,
        eval_temperature=1.0,
        eval_top_p=0.7,
        # From here on ours, for one device.
        steps=300,
        precision="bf16",
        gradient_checkpointing=True,
        micro_tokens=2**15,
        max_rows=64,
        max_tokens_in_flight=2**20,
        eval_every=20,
        eval_tasks=30,  # as many as AIME has
    ),
)


def main(flags: Flags = DEFAULTS) -> int:
    """Train and print the results; returns the exit code.

    Args:
        flags: the settings.
    """
    return train(flags)
