"""GRPO on bugs of small projects, with the settings of `desk` except those below.

Example: rlvr train swe_lite --size tiny
"""

from rlvr.recipes.desk.run import RECIPE as DESK
from rlvr.recipes.recipe import Machine, Recipe, changed_setting, ours, published
from rlvr.recipes.tiny_sizes import PRODUCTS

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="GRPO on bugs of small projects, with a shell",
    paper=DESK.paper,
    env="swe-lite-v1",
    settings={
        **DESK.settings,
        "group_size": changed_setting(16, 64, "4.2", "an episode takes thousands of tokens"),
        "max_tokens": changed_setting(16384, 1024, "4.2", "of all turns of an episode together"),
        "max_turns": ours(20, "as many as the environment gives"),
        "prompts": published(16, "4.2"),
        "steps": ours(100, "twice over its 789 tasks for training"),
        "eval_every": ours(20, "they have no episodes"),
        "eval_tasks": ours(100, "of its 267 tasks for testing"),
    },
    sizes={
        "small": {
            "prompts": 16,
            "group_size": 8,
            "max_tokens": 8192,
            "micro_tokens": 8192,
            "max_rows": 32,
        },
        "tiny": PRODUCTS,
    },
    machines={
        "paper": Machine("Qwen/Qwen3-8B", trainers=8, samplers=4),
        "small": Machine("Qwen/Qwen3-1.7B"),
    },
    notes=(
        "at size tiny Python multiplies, as by python_tool_math: no model of that size mends a bug",
        "the paper trains on mathematics alone; settings are taken over",
    ),
)
