"""OpenRLHF's functions: its experience maker's advantages and `PolicyLoss`, with
the weights by autograd."""

from __future__ import annotations

from types import SimpleNamespace

from step_io import Step, TrainerConventions, main, stand_in_for, trainer_name

stand_in_for(
    (
        "aiohttp bitsandbytes deepspeed fastapi flash_attn gymnasium jsonlines langgraph loralib "
        "optree peft pylatexenc ray torchdata ring_flash_attn tensorboard torchmetrics uvicorn "
        "vllm wandb"
    ).split()
)

import torch  # noqa: E402
from openrlhf.models.loss import PolicyLoss  # noqa: E402
from openrlhf.trainer.ppo_utils import experience_maker  # noqa: E402

__all__ = ["CONVENTIONS", "run"]

CONVENTIONS = {
    "std": "sample",  # experience_maker.py: rewards.std(-1)
    "eps": 1e-9,  # there: (rewards - mean) / (std + 1e-9)
    "bound": 20.0,  # loss.py: log_ratio.clamp(-20, 20) of tokens
}
_ESTIMATORS = {"grpo": "group_norm", "gspo": "group_norm", "dr_grpo": "dr_grpo", "rloo": "rloo"}


def run(step: Step) -> tuple[str, TrainerConventions]:
    """Compute one update of a case.

    Args:
        step: the case; it gets advantages, and one optimiser step.
    """
    numbers = step.numbers
    sizes = {int(group): list(step.arrays["group"]).count(group) for group in step.arrays["group"]}
    if len(set(sizes.values())) > 1 or numbers.get("kl") or numbers["name"] not in _ESTIMATORS:
        raise NotImplementedError("groups of one size, without KL, of its own estimators")
    if not step.arrays["scored"].all():
        raise NotImplementedError("it has no way to mark a row as UNSCORED")
    mask = torch.tensor(step.pad("mask")).float()
    advantages = _advantages(step, mask, max(sizes.values()))
    step.arrays["advantages"] = step.flat(advantages.numpy())
    new, old = step.tensors()
    clip = numbers["clip"]
    loss = PolicyLoss(
        clip_eps_low=clip["low"],
        clip_eps_high=clip["high"],
        dual_clip=clip["dual"],
        token_level_loss=numbers["aggregation"] == "token_mean",
        policy_loss_type="gspo" if numbers["name"] == "gspo" else "ppo",
    )(new, old, advantages, mask)[0]
    step.add_gradient(new, loss)
    return trainer_name("openrlhf"), CONVENTIONS


def _advantages(step: Step, mask: torch.Tensor, size: int) -> torch.Tensor:
    kind = next(
        getattr(experience_maker, name)
        for name in dir(experience_maker)
        if name.endswith("ExperienceMaker")
    )
    maker = kind.__new__(kind)
    estimator = _ESTIMATORS[step.numbers["name"]]
    advantage = SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=False)
    reward = SimpleNamespace(
        clip_range=None,
        overlong_buffer_len=None,
        overlong_penalty_factor=None,
        stop_properly_penalty_coef=None,
    )
    rollout = SimpleNamespace(n_samples_per_prompt=size)
    args = SimpleNamespace(
        algo=SimpleNamespace(advantage=advantage), rollout=rollout, reward=reward
    )
    maker.strategy = SimpleNamespace(args=args)
    maker.advantage_estimator = estimator
    maker.kl_ctl = SimpleNamespace(value=0.0)
    experience_maker.apply_length_penalties = lambda *args, **more: None
    experience = SimpleNamespace(
        rewards=torch.tensor(step.arrays["score"]).float(),
        index=list(range(len(mask))),
        info={},
        kl=torch.zeros_like(mask),
        action_mask=mask.long(),
        values=None,
        advantages=None,
        returns=None,
    )
    return maker.compute_advantages_and_returns([experience])[0].advantages


if __name__ == "__main__":
    main(run)
