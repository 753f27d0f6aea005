"""GRPO on mathematics with a Python session, with the settings of ToRL
(arXiv:2503.23383, section 4.1).

Example: rlvr train python_tool_math --size tiny
"""

from rlvr.recipes.recipe import ON_ONE_DEVICE, Machine, Recipe, changed_setting, ours, published
from rlvr.recipes.tiny_sizes import PRODUCTS

__all__ = ["RECIPE"]

_MEMORY = "4.1, from memory"

RECIPE = Recipe(
    about="Mathematics with Python",
    paper="ToRL, arXiv:2503.23383",
    env="python-tool-math-v4",
    settings={
        "algorithm": published("grpo", "4.1: GRPO"),
        "kl_coefficient": published(0.0, "4.1: no KL"),
        "prompts": published(128, _MEMORY),
        "group_size": published(16, _MEMORY),
        "temperature": published(1.0, "4.1"),
        "max_turns": changed_setting(6, "2: one call", _MEMORY, "as many as the environment gives"),
        "max_tokens": ours(3072, "they print none; of all turns together"),
        "lr": ours(1e-6, "they print none"),
        "steps": ours(300, "they print none"),
        "chat": ours("on", "calls are written by the model's template; theirs is a prompt of text"),
        **ON_ONE_DEVICE,
        "eval_every": ours(25, "they print none"),
        "eval_tasks": ours(200, "they print none"),
    },
    sizes={
        "small": {"prompts": 32, "group_size": 8, "micro_tokens": 8192, "max_rows": 64},
        "tiny": PRODUCTS,
    },
    machines={
        "paper": Machine("Qwen/Qwen2.5-Math-7B", trainers=8, samplers=8),
        "small": Machine("Qwen/Qwen2.5-Math-1.5B"),
    },
    notes=(
        "the paper was not at hand: GRPO without KL, temperature, rewards and data were compared "
        "with a reviewed summary (huggingface.co/datasets/rl-llm-wiki/knowledge-base, discussion "
        "523); the numbers of prompts, completions and calls are from memory",
        "theirs are 28,740 competition problems; here the problems are made without end",
        "their reward is +-1; the same after dividing by the std",
    ),
)
