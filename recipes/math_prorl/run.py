"""ProRL on competition problems, with the paper's settings (arXiv:2505.24864, sections 2.3, 3.2 and 3.3).

Example: rlvr train math_prorl --model deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B --chat
"""

from pathlib import Path

from tyro import MISSING

from rlvr.recipes.common import Flags, train
from rlvr.train.config import Config

__all__ = ["DEFAULTS", "main"]

DEFAULTS = Flags(
    # Theirs: 136,000 tasks of five kinds, 40,000 of them mathematics
    own_task=("math-v3", "DigitalLearningGmbH/MATH-lighteval"),
    config=Config(
        env="math-v3",
        model=MISSING,
        run=Path("runs/math_prorl"),
        # Clip 0.2 and 0.4, dynamic sampling, a KL penalty, and a new reference and optimiser where validation stalls.
        # The KL coefficient of 0.001, the patience of 3 evaluations and the mean over tokens are ours.
        algorithm="prorl",
        prompts=256,
        group_size=16,
        updates=4,
        max_tokens=8096,
        temperature=1.2,
        lr=2e-6,
        steps=2000,
        eval_n=16,
        eval_temperature=0.6,
        eval_top_p=0.95,
        # From here on ours, for one device.
        precision="bf16",
        gradient_checkpointing=True,
        micro_tokens=2**15,
        max_rows=128,
        max_tokens_in_flight=2**20,
        eval_every=50,
        eval_tasks=100,
    ),
)


def main(flags: Flags = DEFAULTS) -> int:
    """Train and print the results; returns the exit code.

    Args:
        flags: the settings.
    """
    return train(flags)
