"""Trinity-RFT's functions: its group advantages and policy losses, with the weights by autograd."""

from __future__ import annotations

from types import SimpleNamespace

from step_io import Step, TrainerConventions, main, stand_in_for

stand_in_for(("datasets", "omegaconf", "openai", "pyarrow", "ray", "verl", "vllm", "wandb"))

import torch  # noqa: E402
import trinity  # noqa: E402
from trinity.algorithm.advantage_fn.grpo_advantage import GRPOGroupedAdvantage  # noqa: E402
from trinity.algorithm.advantage_fn.rloo_advantage import RLOOAdvantageFn  # noqa: E402
from trinity.algorithm.policy_loss_fn.gspo_policy_loss import GSPOLossFn  # noqa: E402
from trinity.algorithm.policy_loss_fn.ppo_policy_loss import PPOPolicyLossFn  # noqa: E402

__all__ = ["CONVENTIONS", "run"]

CONVENTIONS = {
    "std": "sample",  # grpo_advantage.py: torch.std(rewards)
    "bound": 20.0,  # ppo_policy_loss.py: negative_approx_kl is clamped
}
_MODES = {"token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean"}


def run(step: Step) -> tuple[str, TrainerConventions]:
    """Compute one update of a case.

    Args:
        step: the case; it gets advantages, and one optimiser step.
    """
    numbers = step.numbers
    if numbers.get("kl") or not step.arrays["scored"].all() or numbers["name"] == "dr_grpo":
        raise NotImplementedError("without KL, with a std, all rows scored: it cannot mark one")
    mask = torch.tensor(step.pad("mask")).float()
    advantages = _advantages(step, mask)
    step.arrays["advantages"] = step.flat(advantages.numpy())
    if numbers["name"] != "rloo":
        _add_loss(step, mask, advantages)
    return f"trinity {trinity.__version__}", CONVENTIONS


def _advantages(step: Step, mask: torch.Tensor) -> torch.Tensor:
    scores = torch.tensor(step.arrays["score"]).float()
    group = step.arrays["group"].tolist()
    if step.numbers["name"] == "rloo":
        rewards = torch.zeros_like(mask)
        rewards[:, 0] = scores
        batch = SimpleNamespace(
            batch={"token_level_rewards": rewards, "response_mask": mask},
            non_tensor_batch={"uid": group},
        )
        rloo_advantages: torch.Tensor = RLOOAdvantageFn()(batch)[0].batch["advantages"]
        return rloo_advantages
    advantages = torch.zeros_like(mask)
    function = GRPOGroupedAdvantage()
    for number in sorted(set(group)):
        rows = [row for row, group_number in enumerate(group) if group_number == number]
        experiences = [
            SimpleNamespace(reward=float(scores[row]), action_mask=mask[row]) for row in rows
        ]
        for row, experience in zip(
            rows, function.calculate_group_advantage(str(number), experiences)[0], strict=True
        ):
            advantages[row] = experience.advantages
    return advantages


def _add_loss(step: Step, mask: torch.Tensor, advantages: torch.Tensor) -> None:
    clip = {
        "clip_range_low": step.numbers["clip"]["low"],
        "clip_range_high": step.numbers["clip"]["high"],
    }
    mode = _MODES[step.numbers["aggregation"]]
    if step.numbers["name"] == "gspo":
        function = GSPOLossFn(**clip, loss_agg_mode=mode)
    else:
        function = PPOPolicyLossFn(
            **clip, clip_ratio_c=step.numbers["clip"]["dual"] or 1e9, loss_agg_mode=mode
        )
    new, old = step.tensors()
    step.add_gradient(new, function(new, old, mask, advantages)[0])


if __name__ == "__main__":
    main(run)
