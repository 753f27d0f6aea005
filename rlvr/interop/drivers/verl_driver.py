"""verl's functions of advantages and losses (`verl.trainer.ppo.core_algos`), with the weights by autograd."""

from __future__ import annotations

from typing import Any

from step_io import Step, main, stand_in

stand_in(("ray", "pylatexenc", "flash_attn", "vllm", "torchdata", "codetiming", "wandb"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import verl  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402

__all__ = ["CONVENTIONS", "run"]

CONVENTIONS = {
    "std": "sample",  # core_algos.py, compute_grpo_outcome_advantage: torch.std
    "bound": 20.0,  # compute_policy_loss_vanilla: negative_approx_kl is clamped
    "cap": 10.0,  # compute_policy_loss_gspo: log_seq_importance_ratio is clamped
}
_MODES = {"token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean"}


def run(step: Step) -> tuple[str, dict[str, Any]]:
    """Compute one update of a case.

    Args:
        step: the case; it gets advantages, and one optimiser step.
    """
    if step.numbers.get("kl") or not step.arrays["scored"].all():
        raise NotImplementedError("without KL, all rows scored: it cannot mark one as UNSCORED")
    mask = torch.tensor(step.padded("mask")).float()
    rewards = torch.zeros_like(mask)
    for row, (score, ids) in enumerate(
        zip(step.arrays["score"], step.rows("token_ids"), strict=True)
    ):
        rewards[row, len(ids) - 1] = float(score)
    index, numbers = np.array(step.arrays["group"]), step.numbers
    if numbers["name"] == "rloo":
        advantages = core_algos.compute_rloo_outcome_advantage(rewards, mask, index)[0]
    else:
        advantages = core_algos.compute_grpo_outcome_advantage(
            rewards, mask, index, norm_adv_by_std_in_grpo=numbers["name"] != "dr_grpo"
        )[0]
    step.arrays["advantages"] = step.flat(advantages.numpy())
    if numbers["name"] != "rloo":
        _add_loss(step, mask, advantages)
    return f"verl {verl.__version__}", CONVENTIONS


def _add_loss(step: Step, mask: torch.Tensor, advantages: torch.Tensor) -> None:
    from types import SimpleNamespace

    clip = step.numbers["clip"]
    new, old = step.tensors()
    config = _Config(
        clip_ratio=clip["low"],
        clip_ratio_low=clip["low"],
        clip_ratio_high=clip["high"],
        clip_ratio_c=clip["dual"] or 1e9,
        global_batch_info={},
        policy_loss=SimpleNamespace(),
    )
    name = "gspo" if step.numbers["name"] == "gspo" else "vanilla"
    loss = core_algos.get_policy_loss_fn(name)(
        old, new, advantages, mask, _MODES[step.numbers["aggregation"]], config
    )[0]
    loss.backward()
    step.add_gradient(new, float(loss))


class _Config(dict[str, Any]):
    """Settings by attribute and by key, as verl reads them; also where it asks for its own class."""

    __getattr__ = dict.__getitem__

    @property
    def __class__(self) -> Any:
        from verl.workers.config import ActorConfig

        return ActorConfig


if __name__ == "__main__":
    main(run)
