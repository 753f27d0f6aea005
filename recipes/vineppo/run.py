"""VinePPO on competition problems, with the authors' settings for MATH and a 7B
model (arXiv:2410.01679).

Example: rlvr train vineppo --size tiny
"""

from rlvr.recipes.recipe import ON_ONE_DEVICE, Machine, Recipe, ours, published
from rlvr.recipes.tiny_sizes import SUMS

__all__ = ["RECIPE"]

_SCRIPT = "the authors' configs/polIter_deepseekSft2_vineppo_MATH.jsonnet"

RECIPE = Recipe(
    about="VinePPO on mathematics: values by sampling on from each step",
    paper="VinePPO, arXiv:2410.01679",
    env="math-v4",
    data="DigitalLearningGmbH/MATH-lighteval",
    settings={
        "algorithm": published("vineppo", f"4; KL 1e-4 in the loss, two epochs: {_SCRIPT}"),
        "prompts": published(64, f"{_SCRIPT}: 512 completions an iteration"),
        "group_size": published(8, _SCRIPT),
        "updates": published(8, "mini-batches of 64 completions"),
        "vine_k": published(9, _SCRIPT),
        "max_tokens": published(1024, _SCRIPT),
        "temperature": published(0.6, _SCRIPT),
        "steps": published(1000, _SCRIPT),
        "lr": published(1e-6, "appendix, as in the algorithm's own file"),
        **ON_ONE_DEVICE,
        "eval_every": ours(50, "they evaluate checkpoints afterwards"),
        "eval_tasks": ours(500, "as many as MATH-500 has"),
    },
    sizes={
        "small": {"prompts": 16, "updates": 4, "vine_k": 4, "micro_tokens": 8192, "max_rows": 128},
        "tiny": SUMS | {"prompts": 16, "vine_k": 3, "temperature": 1.0},
    },
    machines={
        "paper": Machine("deepseek-ai/deepseek-math-7b-instruct", trainers=8, samplers=8),
        "small": Machine("Qwen/Qwen2.5-1.5B-Instruct"),
    },
    notes=(
        "they sample with top-p 0.9, which our training has not: ratios need the policy's own "
        "distribution",
    ),
)
