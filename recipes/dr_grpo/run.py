"""Dr. GRPO on competition problems, with the settings of the authors' script (arXiv:2503.20783).

Example: rlvr train dr_grpo --size tiny
"""

from rlvr.recipes.recipe import Machine, Recipe, ours, published
from rlvr.recipes.tiny_sizes import SUMS

__all__ = ["RECIPE"]

_SCRIPT = "the authors' script, examples/qwen2.5-math-7b.sh"

RECIPE = Recipe(
    about="Dr. GRPO on mathematics",
    paper="Understanding R1-Zero-like training, arXiv:2503.20783",
    env="math-v4",
    data="DigitalLearningGmbH/MATH-lighteval",
    settings={
        "algorithm": published("dr_grpo", "3.2: no std, no 1/|o|, no KL"),
        "prompts": published(128, _SCRIPT),
        "group_size": published(8, _SCRIPT),
        "updates": published(8, f"{_SCRIPT}: 1,024 completions in batches of 128"),
        "max_tokens": published(3000, _SCRIPT),
        "temperature": published(1.0, _SCRIPT),
        "lr": published(1e-6, _SCRIPT),
        "eval_temperature": published(0.0, _SCRIPT),
        "eval_every": published(16, _SCRIPT),
        "chat": ours(
            "auto",
            "theirs is the R1 or the Qwen-Math template by name; a base model gets its prompt raw",
        ),
        "steps": ours(500, "20 passes over 8,000 tasks would be 1,250"),
        "precision": published("bf16", _SCRIPT),
        "gradient_checkpointing": published(True, _SCRIPT),
        "eval_tasks": ours(500, "as many as MATH-500 has"),
    },
    sizes={
        "small": {"prompts": 32, "max_tokens": 2048, "micro_tokens": 8192, "max_rows": 128},
        "tiny": SUMS,
    },
    machines={
        "paper": Machine("Qwen/Qwen2.5-Math-7B", trainers=8, samplers=8),
        "small": Machine("Qwen/Qwen2.5-Math-1.5B"),
    },
    notes=("theirs are MATH's problems of levels 3 to 5, some 8,000",),
)
