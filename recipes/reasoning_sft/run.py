"""A cold start on worked-out solutions, then reinforcement learning, as
DeepSeek-R1 (arXiv:2501.12948).

Example: rlvr train reasoning_sft --size tiny
"""

from rlvr.recipes.r1_zero.run import RECIPE as ZERO
from rlvr.recipes.recipe import Recipe, changed_setting, ours, published
from rlvr.recipes.tiny_sizes import COLD

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="Cold start on worked-out solutions, then RL",
    paper=ZERO.paper,
    env=ZERO.env,
    data=ZERO.data,
    reward=ZERO.reward,
    settings={
        **ZERO.settings,
        "cold_steps": ours(100, "thousands of texts, some passes; they print no number of steps"),
        "cold_prompts": published(128, "v2, hyperparameters of fine-tuning"),
        "cold_lr": changed_setting(
            1e-5,
            "5e-5, falling to 5e-6",
            "v2, hyperparameters of fine-tuning",
            "it is constant here",
        ),
        "chat": ours("on", "after the cold start the template is the model's"),
    },
    sizes={
        "small": {
            **ZERO.sizes["small"],
            "cold_prompts": 32,
        },
        "tiny": COLD | {"kl_coefficient": 0.001, "reward": "correct"},
    },
    machines=ZERO.machines,
    notes=(
        "texts are yours, with columns prompt and completion: --cold-start texts.jsonl; a run "
        "without them is r1_zero's",
        "of their four stages these are the first two; --stage and a second run make the others",
    ),
)
