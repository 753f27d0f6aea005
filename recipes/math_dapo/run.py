"""DAPO on competition problems, with the paper's settings (arXiv:2503.14476, section 4.1).

Example: rlvr train math_dapo --size tiny
"""

from rlvr.recipes.recipe import ON_ONE_DEVICE, Machine, Recipe, ours, published
from rlvr.recipes.tiny_sizes import SUMS

__all__ = ["RECIPE"]

_UPDATES = 16
_SCRIPT = "the authors' script for verl"

RECIPE = Recipe(
    about="DAPO on mathematics",
    paper="DAPO, arXiv:2503.14476",
    env="math-v4",
    data="DigitalLearningGmbH/MATH-lighteval",
    settings={
        "algorithm": published(
            "dapo", "3: clip 0.2 and 0.28, dynamic sampling, mean over tokens, soft overlong, no KL"
        ),
        "prompts": published(512, "4.1"),
        "group_size": published(16, "4.1"),
        "updates": published(_UPDATES, "4.1: mini-batches of 512 completions"),
        "max_tokens": published(16384 + 4096, "3.4, 4.1: the punishment rises over the last 4,096"),
        "lr": published(1e-6, "4.1"),
        "warmup_steps": published(20 * _UPDATES, "4.1: 20 rollout steps; counted in updates"),
        "weight_decay": published(0.1, _SCRIPT),
        "grad_clip": published(1.0, _SCRIPT),
        "eval_n": published(32, "4.1"),
        "eval_temperature": published(1.0, "4.1"),
        "eval_top_p": published(0.7, "4.1"),
        "steps": ours(300, "they print none"),
        **ON_ONE_DEVICE,
        "micro_tokens": ours(24576, "one completion with its prompt, for 80 GB"),
        "max_rows": ours(64, "for one device"),
        "eval_every": ours(20, "they print none"),
        "eval_tasks": ours(30, "as many as AIME has"),
    },
    sizes={
        "small": {
            "prompts": 32,
            "updates": 4,
            "max_tokens": 2048,
            "warmup_steps": 20 * 4,
            "eval_n": 4,
        },
        "tiny": SUMS,
    },
    machines={
        "paper": Machine("Qwen/Qwen2.5-32B", trainers=32, samplers=16),
        "small": Machine("Qwen/Qwen2.5-1.5B-Instruct"),
    },
    notes=(
        "theirs is DAPO-Math-17k, whose columns have other names: see below",
        "the reward is 1 or 0 and the punishment up to 1/2; theirs +-1 and 1, the same after "
        "dividing by the std",
        "the mean is over the mini-batch's tokens, as in the authors' script; eq. 8 has it over a "
        "group's: --aggregation group_token_mean",
        "of the paper's two ways with truncated completions, the punishment is on; --overlong "
        "soft+mask masks them first",
        "at most 10 tasks are tried for each group, as in the authors' script; then the step goes "
        "on with fewer",
    ),
)
