"""GRPO on competition problems, with the settings of DeepSeekMath (arXiv:2402.03300, section 4.2).

Example: rlvr train math_grpo --size tiny
"""

from rlvr.recipes.recipe import ON_ONE_DEVICE, Machine, Recipe, ours, published
from rlvr.recipes.tiny_sizes import SUMS

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="GRPO on mathematics",
    paper="DeepSeekMath, arXiv:2402.03300",
    env="math-v4",
    data="DigitalLearningGmbH/MATH-lighteval",
    settings={
        "algorithm": published("grpo", "4.1, 4.2: KL 0.04 in the loss, one update a batch"),
        "prompts": published(
            16, "4.2: batch 1024 of 64 outputs each; that it counts outputs is our reading"
        ),
        "group_size": published(64, "4.2"),
        "updates": published(1, "4.2"),
        "max_tokens": published(1024, "4.2"),
        "lr": published(1e-6, "4.2"),
        "steps": ours(1000, "they print none"),
        **ON_ONE_DEVICE,
        "eval_every": ours(50, "they print none"),
        "eval_tasks": ours(500, "as many as MATH-500 has"),
        "eval_temperature": ours(
            0.0, "their accuracies are of one greedy answer, as far as they say"
        ),
    },
    sizes={
        "small": {"prompts": 16, "group_size": 16, "micro_tokens": 8192, "max_rows": 128},
        "tiny": SUMS,
    },
    machines={
        "paper": Machine("deepseek-ai/deepseek-math-7b-instruct", trainers=8, samplers=8),
        "small": Machine("Qwen/Qwen2.5-1.5B-Instruct"),
    },
    notes=(
        "clip 0.2 is PPO's, as they print none",
        "theirs are some 144,000 questions like those of GSM8K and MATH",
    ),
)
