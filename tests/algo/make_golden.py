"""Writes golden.json: what verl says to small batches.  Run where verl and its torch are installed, on any CPU:

    python tests/algo/make_golden.py

Inputs are written with the answers, so the tests need neither verl nor its random numbers.  Gradients are with respect
to `logprobs` (or `values`), so an answer of one number still checks every token.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import (
    compute_rollout_correction_weights,
    compute_rollout_rejection_mask,
)
from verl.workers.config import ActorConfig

HERE = Path(__file__).parent
AGGREGATIONS = {
    "sequence_mean": "seq-mean-token-mean",
    "token_mean": "token-mean",
    "constant": "seq-mean-token-sum-norm",
}
B, T, GROUPS = 6, 7, [0, 0, 0, 1, 1, 2]  # groups of three, two and one


def inputs() -> dict[str, torch.Tensor]:
    """Six rows of up to seven tokens, one with a gap as the environment's reply leaves; six decimals."""
    rng = np.random.default_rng(2402_03300)
    behaviour = -rng.exponential(1.0, (B, T))
    drawn = {
        "scores": rng.normal(0.4, 0.5, B),
        "behaviour_logprobs": behaviour,
        "logprobs": behaviour + rng.normal(0, 0.5, (B, T)),
        "ref_logprobs": behaviour + rng.normal(0, 0.4, (B, T)),
        "advantages": rng.normal(0, 1, (B, T)),
        "values": rng.normal(0.3, 0.4, (B, T)),
        "old_values": rng.normal(0.3, 0.4, (B, T)),
        "returns": rng.normal(0.5, 0.6, (B, T)),
        "rewards": rng.normal(0, 0.3, (B, T)),
    }
    made = {name: torch.tensor(np.round(x, 6), dtype=torch.float64) for name, x in drawn.items()}
    lengths = torch.tensor([7, 4, 5, 6, 1, 3])
    mask = torch.arange(T) < lengths[:, None]
    mask[3, 2:4] = False
    return made | {"completion_mask": mask}


def advantages(x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    mask, index = x["completion_mask"].double(), np.array(GROUPS)
    at_the_end = torch.zeros(B, T, dtype=torch.float64)
    for row in range(B):
        at_the_end[row, int(mask[row].nonzero()[-1])] = x["scores"][row]
    config = SimpleNamespace(gamma=0.9)
    gae, gae_returns = core_algos.compute_gae_advantage_return(
        x["rewards"] * mask, x["values"], mask, 0.9, 0.8
    )
    plus = core_algos.compute_reinforce_plus_plus_outcome_advantage
    return {
        "grpo": core_algos.compute_grpo_outcome_advantage(at_the_end, mask, index)[0],
        "dr_grpo": core_algos.compute_grpo_outcome_advantage(
            at_the_end, mask, index, norm_adv_by_std_in_grpo=False
        )[0],
        "rloo": core_algos.compute_rloo_outcome_advantage(at_the_end, mask, index)[0],
        "reinforce_pp_baseline": core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(
            at_the_end[:5],
            mask[:5],
            index[:5],  # without the group of one, whose raw score it would pass through
        )[0],
        "reinforce_pp": plus(x["rewards"] * mask, mask, config)[0],
        "reinforce_pp_returns": plus(x["rewards"] * mask, mask, config)[1],
        "gae_whitened": gae * mask,
        "gae_returns": gae_returns * mask,
    }


def objectives(x: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Loss under each aggregation, gradient under the first."""
    cases = {
        "ppo": ("vanilla", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 1e9}),
        "decoupled": (
            "vanilla",
            {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 1e9},
        ),
        "dual": ("vanilla", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 1.5}),
        "gspo": ("gspo", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.15}),
        "cispo": ("cispo", {"clip_ratio_low": 0.3, "clip_ratio_high": 0.4}),
    }
    return {name: _objective(x, kind, settings) for name, (kind, settings) in cases.items()}


def _objective(x: dict[str, torch.Tensor], kind: str, settings: dict[str, float]) -> dict[str, Any]:
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **settings)
    found: dict[str, Any] = {"settings": settings}
    for ours, theirs in AGGREGATIONS.items():
        logprobs = x["logprobs"].clone().requires_grad_()
        loss, metrics = core_algos.get_policy_loss_fn(kind)(
            old_log_prob=x["behaviour_logprobs"],
            log_prob=logprobs,
            advantages=x["advantages"],
            response_mask=x["completion_mask"].double(),
            loss_agg_mode=theirs,
            config=config,
        )
        loss.backward()
        found[ours] = {"loss": loss, "gradient": logprobs.grad}
    found["clipped"] = metrics["actor/pg_clipfrac"]
    found["clipped_dual"] = metrics["actor/pg_clipfrac_lower"]
    return found


def kls(x: dict[str, torch.Tensor]) -> dict[str, Any]:
    found = {}
    for estimator in ("k1", "k2", "k3"):
        logprobs = x["logprobs"].clone().requires_grad_()
        estimate = (
            core_algos.kl_penalty(logprobs, x["ref_logprobs"], estimator) * x["completion_mask"]
        )
        estimate.sum().backward()
        found[estimator] = {"losses": estimate, "gradient": logprobs.grad}
    far = core_algos.kl_penalty(torch.tensor([-9.0]), torch.tensor([-1.0]), "k3")
    return found | {"k3_of_a_log_ratio_of_minus_8": far}


def value(x: dict[str, torch.Tensor]) -> dict[str, Any]:
    values = x["values"].clone().requires_grad_()
    loss, fraction = core_algos.compute_value_loss(
        values, x["returns"], x["old_values"], x["completion_mask"].double(), cliprange_value=0.2
    )
    loss.backward()
    return {"loss": loss, "gradient": values.grad, "clipped": fraction}


def corrections(x: dict[str, torch.Tensor]) -> dict[str, Any]:
    log_ratio, mask = x["logprobs"] - x["behaviour_logprobs"], x["completion_mask"].double()

    def weights(level: str, threshold: str | float) -> torch.Tensor:
        return compute_rollout_correction_weights(log_ratio, mask, level, threshold)[0]

    # Their bounds are on behaviour / trainer: 0.9 to 1.25 there is 0.8 to 1 / 0.9 here.
    kept = compute_rollout_rejection_mask(log_ratio, mask, "seq_mean_k1", "0.9_1.25")[0]
    return {
        "truncated_token": weights("token", 1.3),
        "truncated_sequence": weights("sequence", 1.3),
        "masked_token": weights("token", "0.7_1.3"),
        "masked_sequence": weights("sequence", "0.3_1.3"),
        "kept_geometric": kept,
    }


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().tolist()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return value


def main() -> None:
    x = inputs()
    golden = {
        "made_by": {"verl": version("verl"), "torch": torch.__version__},
        "inputs": x | {"groups": GROUPS},
        "advantages": advantages(x),
        "objectives": objectives(x),
        "kl": kls(x),
        "value": value(x),
        "corrections": corrections(x),
    }
    text = (
        "{\n"
        + ",\n".join(f'"{part}": {json.dumps(plain(answers))}' for part, answers in golden.items())
        + "\n}\n"
    )
    (HERE / "golden.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
