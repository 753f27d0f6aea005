"""GRPO on programs that are run in the sandbox, with the settings of
`math_grpo` except those below.

Example: rlvr train code_grpo --size tiny
"""

from rlvr.recipes.math_grpo.run import RECIPE as MATH
from rlvr.recipes.recipe import Machine, Recipe, changed_setting, ours
from rlvr.recipes.tiny_sizes import DRILLS

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="GRPO on programs",
    paper=MATH.paper,
    env="mbpp-v3",
    data="google-research-datasets/mbpp",
    settings={
        **MATH.settings,
        "prompts": changed_setting(
            32, 16, "4.2", "MBPP has 374 tasks for training, and programs are short"
        ),
        "group_size": changed_setting(16, 64, "4.2", "with 32 prompts, for one device"),
        "overlong": ours(
            "mask", "a program that was cut off says nothing about the one it would have become"
        ),
        "steps": ours(
            50,
            "four times over MBPP's 374 tasks; more of them with --env code-stdio-v3 and its data",
        ),
        "eval_every": ours(25, "they have no programs"),
    },
    sizes={
        "small": {"prompts": 16, "micro_tokens": 8192, "max_rows": 128},
        "tiny": DRILLS,
    },
    machines={
        "paper": Machine("Qwen/Qwen2.5-Coder-1.5B-Instruct", trainers=8, samplers=2),
        "small": Machine("Qwen/Qwen2.5-Coder-1.5B-Instruct"),
    },
    notes=(
        "at size tiny functions of one line are written, code-drills-v1",
        "the paper trains on mathematics alone; settings are taken over",
    ),
)
