"""Magistral's GRPO: no KL, clip-higher, advantages by the mini-batch's std, a punishment of
length (arXiv:2506.10910).

Example: rlvr train magistral --size tiny
"""

from rlvr.recipes.recipe import ON_ONE_DEVICE, Machine, Recipe, ours, published
from rlvr.recipes.tiny_sizes import SUMS

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="Magistral on mathematics",
    paper="Magistral, arXiv:2506.10910",
    env="math-v4",
    data="DigitalLearningGmbH/MATH-lighteval",
    settings={
        "algorithm": published(
            "magistral", "2.1, 2.2: no KL, clip up to 0.28, groups without variation dropped"
        ),
        "prompts": ours(128, "they print sizes in sequences, which shrink as completions grow"),
        "group_size": ours(16, "they print none"),
        "max_tokens": ours(16384, "the first of their lengths; they go on to 24k and 32k"),
        "lr": ours(1e-6, "they print none"),
        "steps": ours(500, "they print none"),
        **ON_ONE_DEVICE,
        "micro_tokens": ours(2**15, "for one device"),
        "max_rows": ours(64, "for one device"),
        "eval_every": ours(50, "they print none"),
        "eval_tasks": ours(100, "they print none"),
    },
    sizes={
        "small": {"prompts": 32, "max_tokens": 2048},
        "tiny": SUMS,
    },
    machines={
        "paper": Machine("mistralai/Mistral-7B-Instruct-v0.3", trainers=8, samplers=8),
        "small": Machine("Qwen/Qwen2.5-1.5B-Instruct"),
    },
    notes=(
        "their reward also has 0.1 for form and 0.1 for the prompt's language: --reward with "
        "format(…) and language(…)",
        "training is asynchronous there: --max-staleness",
    ),
)
