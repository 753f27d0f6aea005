"""On-policy distillation: the policy samples, and a teacher says how likely each
token is (arXiv:2306.08543).

Example: rlvr train distill --size tiny
"""

from rlvr.recipes.recipe import ON_ONE_DEVICE, Machine, Recipe, changed_setting, ours, published
from rlvr.recipes.tiny_sizes import SUMS, TEACHER

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="On-policy distillation from a teacher",
    paper="MiniLLM, arXiv:2306.08543",
    env="math-v4",
    data="DigitalLearningGmbH/MATH-lighteval",
    settings={
        "algorithm": published("distill", "2.1: the reverse KL of the policy's own samples"),
        "teacher": ours("Qwen/Qwen3-8B", "theirs are of 2023; any with the policy's vocabulary"),
        "gamma": changed_setting(
            0.0,
            "1, with the part of single steps apart",
            "2.2",
            "long returns are noisy, and the part of single steps is exact",
        ),
        "prompts": ours(64, "we could not confirm theirs"),
        "group_size": ours(4, "each token has its own signal, so that a group need not disagree"),
        "updates": ours(1, "then the ratio is 1"),
        "max_tokens": ours(4096, "theirs are instructions, with short answers"),
        "lr": ours(5e-6, "we could not confirm theirs"),
        "steps": ours(150, "with a signal on each token few are needed"),
        **ON_ONE_DEVICE,
        "eval_every": ours(25, "they print none"),
        "eval_tasks": ours(500, "as many as MATH-500 has"),
    },
    sizes={
        "small": {
            "prompts": 32,
            "max_tokens": 2048,
            "teacher": "Qwen/Qwen3-4B",
            "micro_tokens": 8192,
            "max_rows": 64,
        },
        "tiny": SUMS | {"teacher": TEACHER, "gamma": 0.0, "steps": 30, "eval_every": 10},
    },
    machines={
        "paper": Machine("Qwen/Qwen3-1.7B", trainers=8, samplers=2),
        "small": Machine("Qwen/Qwen3-1.7B"),
    },
    notes=(
        "their mix with the teacher's samples and their length normalisation are left out",
        "rewards beside the teacher: --reward-weight; whole distributions: --algorithm gkd",
    ),
)
