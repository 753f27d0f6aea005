"""ProRL on competition problems, with the paper's settings (arXiv:2505.24864,
sections 2.3, 3.2 and 3.3).

Example: rlvr train math_prorl --size tiny
"""

from rlvr.recipes.recipe import ON_ONE_DEVICE, Machine, Recipe, ours, published
from rlvr.recipes.tiny_sizes import SUMS

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="ProRL on mathematics",
    paper="ProRL, arXiv:2505.24864",
    env="math-v4",
    data="DigitalLearningGmbH/MATH-lighteval",
    settings={
        "algorithm": published(
            "prorl", "2.3: clip 0.2 and 0.4, dynamic sampling, KL, resets where validation stalls"
        ),
        "prompts": published(256, "3.2"),
        "group_size": published(16, "3.2"),
        "updates": published(4, "3.2"),
        "max_tokens": published(8096, "3.2"),
        "stage": published(
            ("at=1800,max_tokens=16000",),
            "3.3: the last 200 of some 2,000 steps have 16,000 tokens",
        ),
        "temperature": published(1.2, "3.2"),
        "lr": published(2e-6, "3.2"),
        "steps": published(2000, "3.3"),
        "eval_n": published(16, "3.4"),
        "eval_temperature": published(0.6, "3.4"),
        "eval_top_p": published(0.95, "3.4"),
        **ON_ONE_DEVICE,
        "micro_tokens": ours(2**15, "for one device"),
        "max_rows": ours(128, "for one device"),
        "eval_every": ours(50, "they print none"),
        "eval_tasks": ours(100, "they print none"),
    },
    sizes={
        "small": {"prompts": 32, "updates": 4, "max_tokens": 2048, "eval_n": 4, "stage": ()},
        "tiny": SUMS | {"temperature": 1.0},
    },
    machines={
        "paper": Machine("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", trainers=8, samplers=8),
        "small": Machine("Qwen/Qwen2.5-1.5B-Instruct"),
    },
    notes=(
        "theirs are 136,000 tasks of five kinds, 40,000 of them mathematics: several --env, see "
        "below",
        "the KL coefficient of 0.001, a patience of 3 validations and the mean over tokens are "
        "ours",
    ),
)
