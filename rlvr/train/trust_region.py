"""A step of TRPO on a model: the micro-batches, and the divergence over the whole vocabulary.  Axes: N tokens, V words.

The step replaces AdamW: learning rate, its schedule and the clip of gradients do not count.  It costs about 25
gradients, in a line search each halving a further two forward passes, and keeps the distributions of the whole batch:
4 bytes × V for each trained token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlvr.algo.parts import TrustRegion
from rlvr.algo.trust_region import Parts, TrustRegionStep, full_kl, trust_region_step
from rlvr.train.credit import Batch
from rlvr.train.policy import Policy

__all__ = ["step_in_region"]


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
        policy: whose weights are moved, on one device.
        parameters: the trained ones.
        surrogate: what is to rise, in the parts of micro-batches.
        batch: rows and `completion_mask`; the divergence is the mean over its trained tokens.
        settings: size of the region, iterations.
        temperature: at which the completions were sampled.
    """
    parts = policy.micro_batches(batch.rows)
    trained = batch.completion_mask.sum()

    def distributions(part: Sequence[int]) -> Float[Tensor, "N V"]:
        micro = policy.micro_batch([batch.rows[i] for i in part])
        head = policy.model.get_output_embeddings()
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
        )
