"""GRPO on errands at a desk, with the settings of `math_grpo` except those below.

Example: rlvr train desk --size tiny
"""

from rlvr.recipes.math_grpo.run import RECIPE as MATH
from rlvr.recipes.recipe import Machine, Recipe, changed_setting, ours
from rlvr.recipes.tiny_sizes import SEARCH

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="GRPO on errands with tools, a user and rules",
    paper=MATH.paper,
    env="desk-v2",
    settings={
        **MATH.settings,
        "prompts": changed_setting(
            32, 16, "4.2", "errands are short, and many kinds are wanted in a batch"
        ),
        "group_size": changed_setting(16, 64, "4.2", "with 32 prompts, for one device"),
        "max_tokens": changed_setting(4096, 1024, "4.2", "of all turns of an episode together"),
        "max_turns": ours(16, "as many as the environment gives"),
        "overlong": ours("mask", "an episode that was cut off says nothing about its end"),
        "chat": ours("on", "calls are written by the model's template"),
        "steps": ours(300, "tasks are made without end"),
        "eval_every": ours(25, "they have no episodes"),
        "eval_tasks": ours(150, "50 of each of its three worlds"),
        "eval_temperature": ours(
            1.0, "a greedy episode that loops would count as one kind of error"
        ),
    },
    sizes={
        "small": {"prompts": 16, "group_size": 8, "micro_tokens": 8192, "max_rows": 64},
        "tiny": SEARCH,
    },
    machines={
        "paper": Machine("Qwen/Qwen3-8B", trainers=8, samplers=4),
        "small": Machine("Qwen/Qwen3-1.7B"),
    },
    notes=(
        "at size tiny ages are looked up, as by search_qa: no model of that size does an errand",
        "the paper trains on mathematics alone; settings are taken over",
    ),
)
