"""A small instruct model learns by GRPO to add one-digit numbers, on a CPU.

Example: rlvr train smol_sums --model build/real/smollm2-135m-instruct
"""

from rlvr.recipes.recipe import Recipe, ours

__all__ = ["RECIPE"]

RECIPE = Recipe(
    about="SmolLM2-135M-Instruct learns to add by GRPO, on a CPU",
    paper="a demonstration, of no paper",
    env="rlvr.recipes.smol_sums.sums:OneDigitSums",
    settings={
        "algorithm": ours("grpo", "it needs no critic and no teacher"),
        "kl_coefficient": ours(0.01, "a quarter of the paper's: the task is narrow"),
        "steps": ours(30, "for two cores"),
        "prompts": ours(8, "for two cores"),
        "group_size": ours(8, "for two cores"),
        "max_tokens": ours(16, "an answer is a number alone"),
        "micro_tokens": ours(4096, "for two cores"),
        "lr": ours(5e-6, "as tried: it learns within the steps"),
        "eval_every": ours(10, "three times in the run"),
        "eval_tasks": ours(100, "all that are held out"),
        "eval_n": ours(2, "for two cores"),
        "workers": ours(1, "a check takes microseconds"),
    },
)
