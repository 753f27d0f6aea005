"""verl's functions of advantages and losses (`verl.trainer.ppo.core_algos`), with
the weights by autograd."""

from __future__ import annotations

from types import SimpleNamespace

from step_io import Step, TrainerConventions, main, stand_in_for

stand_in_for(("ray", "pylatexenc", "flash_attn", "vllm", "torchdata", "codetiming", "wandb"))

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
_MODES = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}


def run(step: Step) -> tuple[str, TrainerConventions]:
    """Compute one update of a case.

    Args:
        step: the case; it gets advantages, and one optimiser step.
    """
    kl, has_reference = step.numbers.get("kl"), "ref_logprobs" in step.arrays
    if (kl and not has_reference) or not step.arrays["scored"].all():
        raise NotImplementedError("only where all rows are scored, and KL has a reference")
    mask = torch.tensor(step.pad("mask")).float()
    rewards = torch.zeros_like(mask)
    for row, (score, ids) in enumerate(
        zip(step.arrays["score"], step.rows("token_ids"), strict=True)
    ):
        rewards[row, len(ids) - 1] = float(score)
    if kl and kl["place"] == "reward":
        _, old = step.tensors()
        rewards -= kl["coefficient"] * _kl(step, old) * mask
    advantages = _advantages(step, rewards, mask)
    step.arrays["advantages"] = step.flat(advantages.numpy())
    if step.numbers["name"] != "rloo":  # its loss has no ratio
        _add_loss(step, mask, advantages)
    return f"verl {verl.__version__}", CONVENTIONS


def _advantages(step: Step, rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    name, index, numbers = step.numbers["name"], np.array(step.arrays["group"]), step.numbers
    if name == "rloo":
        return core_algos.compute_rloo_outcome_advantage(rewards, mask, index)[0]
    if name == "reinforce_pp":
        config = SimpleNamespace(gamma=numbers["gamma"])
        plus = core_algos.compute_reinforce_plus_plus_outcome_advantage
        return plus(rewards, mask, config)[0]
    if name == "ppo":
        values = torch.tensor(step.pad("values")).float()
        rates = numbers["gamma"], numbers["lam"]
        return core_algos.compute_gae_advantage_return(rewards, values, mask, *rates)[0]
    return core_algos.compute_grpo_outcome_advantage(
        rewards, mask, index, norm_adv_by_std_in_grpo=name != "dr_grpo"
    )[0]


def _kl(step: Step, logprobs: torch.Tensor) -> torch.Tensor:
    reference = torch.tensor(step.pad("ref_logprobs"))
    return core_algos.kl_penalty(logprobs, reference, step.numbers["kl"]["estimator"])


def _add_loss(step: Step, mask: torch.Tensor, advantages: torch.Tensor) -> None:
    clip, kl = step.numbers["clip"], step.numbers.get("kl")
    new, old = step.tensors()
    config = _Config(
        clip_ratio=clip["low"],
        clip_ratio_low=clip["low"],
        clip_ratio_high=clip["high"],
        clip_ratio_c=clip.get("dual") or 1e9,
        global_batch_info={},
        policy_loss=SimpleNamespace(),
    )
    name, mode = step.numbers["name"], _MODES[step.numbers["aggregation"]]
    loss_of = core_algos.get_policy_loss_fn(name if name in ("gspo", "cispo") else "vanilla")
    loss = loss_of(old, new, advantages, mask, mode, config, _correction(step, old, mask))[0]
    if kl and kl["place"] == "loss":
        of_tokens = _kl(step, new)
        loss = loss + kl["coefficient"] * core_algos.agg_loss(of_tokens, mask, mode)
    step.add_gradient(new, loss)


def _correction(step: Step, old: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | None:
    weights = None
    for rule in step.numbers.get("correction", []):
        from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

        apart = old - torch.tensor(step.pad("behaviour_logprobs"))
        is_band = rule["kind"] == "band"
        bounds = f"{rule['low']}_{rule['high']}" if is_band else rule["high"]
        factors = compute_rollout_correction_weights(apart, mask, rule["level"], bounds)[0]
        weights = factors if weights is None else weights * factors
    return weights


class _Config(dict[str, object]):
    """Settings by attribute and by key, as verl reads them; also where
    it asks for its own class."""

    __getattr__ = dict.__getitem__

    @property
    def __class__(self) -> type:
        from verl.workers.config import ActorConfig

        return ActorConfig


if __name__ == "__main__":
    main(run)
