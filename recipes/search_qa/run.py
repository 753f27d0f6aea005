"""GRPO on questions with a search engine, with the settings of Search-R1 (arXiv:2503.09516).

Example: rlvr train search_qa --size tiny
"""

from rlvr.recipes.recipe import Machine, Recipe, changed_setting, ours, published
from rlvr.recipes.tiny_sizes import SEARCH

__all__ = ["RECIPE"]

_SCRIPT = "the authors' train_grpo.sh"

RECIPE = Recipe(
    about="Answering by search",
    paper="Search-R1, arXiv:2503.09516",
    env="search-v4",
    settings={
        "algorithm": published("grpo", _SCRIPT),
        "kl_coefficient": published(0.001, _SCRIPT),
        "prompts": published(512, _SCRIPT),
        "group_size": published(5, _SCRIPT),
        "updates": ours(2, "their mini-batches of 256 count prompts, as we read the script"),
        "temperature": published(1.0, _SCRIPT),
        "max_turns": changed_setting(
            6, 3, f"{_SCRIPT}: max_turns 2, then the answer", "as many as the environment gives"
        ),
        "max_tokens": changed_setting(
            2048, 500, f"{_SCRIPT}: of each turn", "of all turns together"
        ),
        "lr": published(1e-6, _SCRIPT),
        "warmup_steps": published(573, f"{_SCRIPT}: 0.285 of all steps; counted in updates"),
        "steps": published(1005, _SCRIPT),
        "chat": ours("on", "calls are written by the model's template; theirs is a prompt of text"),
        "precision": ours("bf16", "for one device"),
        "gradient_checkpointing": published(True, _SCRIPT),
        "eval_every": published(50, _SCRIPT),
        "eval_tasks": ours(200, "theirs are whole test sets"),
    },
    sizes={
        "small": {
            "prompts": 32,
            "group_size": 8,
            "updates": 1,
            "max_tokens": 1024,
            "warmup_steps": 20,
            "steps": 200,
            "micro_tokens": 8192,
            "max_rows": 64,
        },
        "tiny": SEARCH,
    },
    machines={
        "paper": Machine("Qwen/Qwen2.5-3B", trainers=8, samplers=2),
        "small": Machine("Qwen/Qwen2.5-1.5B-Instruct"),
    },
    notes=("theirs are NQ and HotpotQA over Wikipedia: --option data=… --option corpus=…",),
)
