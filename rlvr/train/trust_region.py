"""A step of TRPO on a model: the micro-batches, and the divergence over the whole vocabulary.
Axes: N tokens, V words.

The step replaces AdamW: learning rate, its schedule and the clip of gradients do not count.  It
costs about 25 gradients, in a line search each halving a further two forward passes, and keeps the
distributions of the whole batch: 4 bytes × V for each trained token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlvr.algo.aggregation import denominators
from rlvr.algo.parts import TrustRegion
from rlvr.algo.ratios import RatioStats
from rlvr.algo.trust_region import Parts, TrustRegionStep, full_kl, trust_region_step
from rlvr.train.credit import Batch
from rlvr.train.part import LearnerPart
from rlvr.train.policy import Policy

__all__ = ["RegionStep", "step_in_region"]


class RegionStep(LearnerPart):
    """TRPO's step in the place of AdamW's.

    On several ranks each has all weights and computes its rows; gradients and products are summed.
    """

    wants = "trust_region"

    replaces_step = True

    def move(self, mini: Batch, rows: Sequence[int]) -> tuple[dict[str, float], list[RatioStats]]:
        """Move the policy, and return the logged terms, and the ratios after the step if it was
        accepted.

        Args:
            mini: the update's rows.
            rows: indices of those with a gradient.
        """
        learner, settings = self.learner, self.learner.algorithm.trust_region
        assert settings is not None
        totals = denominators(mini.completion_mask, mini.group)
        plan = learner.policy.plan([mini.rows[i] for i in rows])
        micro = [(mini.part([rows[i] for i in part]), counts) for part, counts in plan]
        last: list[RatioStats] = []

        def surrogate() -> Iterator[Tensor]:
            last.clear()
            for micro_batch, counts in micro:
                loss, _, stats = learner.loss(micro_batch, totals)
                # The last call of `surrogate` is at the weights that were kept.
                last.append(stats if counts else stats.none())
                yield -loss * counts

        mask = mini.completion_mask.to(learner.policy.device)
        region_step = step_in_region(
            learner.policy,
            learner.parameters,
            surrogate,
            replace(mini, completion_mask=mask),
            settings,
            temperature=learner.temperature,
        )
        numbers = {
            "loss": -region_step.surrogate,
            "grad_norm": region_step.gradient_norm,
            "region_kl": region_step.kl,
            "region_gain": region_step.gain,
            "region_scale": region_step.scale,
            "region_residual": region_step.residual,
        }
        if not region_step.accepted:
            return numbers, []
        return numbers, [learner.join_stats(sum(last[1:], start=last[0]))]


def step_in_region(
    policy: Policy,
    parameters: Sequence[Tensor],
    surrogate: Parts,
    batch: Batch,
    settings: TrustRegion,
    *,
    temperature: float,
) -> TrustRegionStep:
    """Move the weights by one step that stays near the weights before it.

    Args:
        policy: whose weights are moved, which every rank has whole.
        parameters: the trained ones.
        surrogate: what is to rise, in the parts of micro-batches.
        batch: rows and `completion_mask`; the divergence is the mean over its trained tokens.
        settings: size of the region, iterations.
        temperature: at which the completions were sampled.
    """
    # Passes that do not count are left out: weights are whole here, so no rank waits for them.
    parts = [part for part, counts in policy.plan(batch.rows) if counts]
    trained = batch.completion_mask.sum()

    def distributions(part: Sequence[int]) -> Float[Tensor, "N V"]:
        micro = policy.micro_batch([batch.rows[i] for i in part])
        head = policy.model.get_output_embeddings()
        # Only trained tokens: V numbers are kept for each.
        mask = batch.completion_mask[part][micro.rows, micro.columns]
        logits = policy.root.logits.apply_(head(policy.root.states(micro)[mask]))
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return (logits.to(dtype) / temperature).log_softmax(dim=-1)

    def divergence() -> Iterator[Tensor]:
        for part, before in zip(parts, old, strict=True):
            yield full_kl(before, distributions(part)).sum() / trained

    with sdpa_kernel(SDPBackend.MATH):  # the fused ones have no second derivatives
        with torch.no_grad():
            old = [distributions(part) for part in parts]
        return trust_region_step(
            parameters,
            surrogate,
            divergence,
            delta=settings.delta,
            damping=settings.damping,
            cg_steps=settings.cg_steps,
            backtracks=settings.backtracks,
            sum_over_ranks=policy.ranks.sum,
        )
