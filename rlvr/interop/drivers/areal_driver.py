"""AReaL's functions: its normalisation of rewards and `ppo_actor_loss_fn`, with
the weights by autograd."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from step_io import Step, TrainerConventions, main, module_of, stand_in_for, trainer_name

__all__ = ["CONVENTIONS", "run"]

CONVENTIONS = {
    "std": "sample",  # api/cli_args.py, NormConfig: std_unbiased is True
    "eps": 1e-5,  # there: eps
    "bound": float("inf"),  # functional.py: torch.exp(logprobs - proximal_logprobs)
}
_UTILS = Path(sys.argv[3], "areal", "utils")
_LEVELS = {
    "grpo": {"std_level": "group"},
    "gspo": {"std_level": "group"},
    "dapo": {"std_level": "group"},
    "dr_grpo": {"std_level": None},
    "rloo": {"std_level": None, "mean_leave1out": True},
}


stand_in_for(("areal", "datasets", "einops", "ray", "tensordict", "torchdata"))
# so that the package itself is a stand-in: its modules are read by their files
sys.path.remove(sys.argv[3])


def run(step: Step) -> tuple[str, TrainerConventions]:
    """Compute one update of a case.

    Args:
        step: the case; it gets advantages, and one optimiser step where the mean is over tokens.
    """
    numbers = step.numbers
    sizes = {list(step.arrays["group"]).count(number) for number in step.arrays["group"]}
    if numbers.get("kl") or not step.arrays["scored"].all() or len(sizes) > 1:
        raise NotImplementedError("without KL, groups of one size, all rows scored")
    levels = {"mean_level": "group", "mean_leave1out": False, **_LEVELS[numbers["name"]]}
    config = SimpleNamespace(std_unbiased=True, group_size=sizes.pop(), eps=1e-5, **levels)
    scores = torch.tensor(step.arrays["score"]).float()
    mask = torch.tensor(step.pad("mask")).float()
    normalized = module_of(_UTILS / "data.py").Normalization(config)(scores)
    advantages = (
        normalized[:, None] * mask
    )  # GAE with γ = λ = 1 and without values, trainer/ppo/actor.py
    step.arrays["advantages"] = step.flat(advantages.numpy())
    if numbers["aggregation"] == "token_mean":
        clip = numbers["clip"]
        new, old = step.tensors()
        loss = module_of(_UTILS / "functional" / "functional.py").ppo_actor_loss_fn(
            new,
            old,
            old,
            advantages,
            clip["low"],
            mask.bool(),
            eps_clip_higher=clip["high"],
            c_clip=clip["dual"],
            importance_sampling_level="sequence" if numbers["name"] == "gspo" else "token",
        )[0]
        step.add_gradient(new, loss)
    return trainer_name("areal"), CONVENTIONS


if __name__ == "__main__":
    main(run)
