"""DeepSeek-R1-Zero's run: a base model, rewards for right answers and for their form,
GRPO (arXiv:2501.12948).

Example: rlvr train r1_zero --size tiny
"""

from rlvr.recipes.recipe import ON_ONE_DEVICE, Machine, Recipe, changed_setting, ours, published
from rlvr.recipes.tiny_sizes import SUMS

__all__ = ["RECIPE"]

_HYPER = "v2, hyperparameters of R1-Zero"

RECIPE = Recipe(
    about="R1-Zero: accuracy and format, from a base model",
    paper="DeepSeek-R1, arXiv:2501.12948",
    env="math-v4",
    data="DigitalLearningGmbH/MATH-lighteval",
    reward="correct + format('<think>...</think>')",
    settings={
        "algorithm": published("grpo", "2.2.1"),
        "kl_coefficient": published(0.001, _HYPER),
        "reset_every_steps": published(400, f"{_HYPER}: the reference is renewed"),
        "reset_optimizer": published(False, f"{_HYPER}: the reference alone"),
        "prompts": published(32, _HYPER),
        "group_size": published(16, _HYPER),
        "updates": ours(
            1,
            "they split rollouts of 8,192 into 16 batches of 512; here a batch is sampled for each",
        ),
        "temperature": published(1.0, _HYPER),
        "chat": published(
            "off", "2.2.3: the base model gets the template of table 1, not a chat's"
        ),
        "max_tokens": changed_setting(
            8192, "32,768, later 65,536", _HYPER, "what a model of 7B and one node hold"
        ),
        "lr": ours(1e-6, "we could not confirm theirs"),
        "steps": ours(1000, "theirs are 10 times as many, of a model of 671B"),
        **ON_ONE_DEVICE,
        "eval_every": ours(50, "they print none"),
        "eval_tasks": ours(500, "as many as MATH-500 has"),
    },
    sizes={
        "small": {"prompts": 16, "max_tokens": 2048, "micro_tokens": 8192, "max_rows": 64},
        "tiny": SUMS | {"kl_coefficient": 0.001, "reward": "correct"},
    },
    machines={
        "paper": Machine("Qwen/Qwen2.5-7B", trainers=8, samplers=8),
        "small": Machine("Qwen/Qwen2.5-1.5B-Instruct"),
    },
    notes=(
        "the weight of the format is ours: they add both without a number",
        "at size tiny there is no thinking, so no reward for its form",
    ),
)
