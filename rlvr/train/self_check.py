"""A run checks itself: a step is judged in float64, and its first update is computed
again in another layout.

The judge finds advantages, losses and weights of tokens that are not the paper's; the other layout,
without packing, shared prompts and autocast, finds log-probabilities and gradients that depend on
how rows lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from rlvr.algo.judge.verify import verify
from rlvr.data.step_files import StepFile
from rlvr.train.gradient_sketch import sketch

if TYPE_CHECKING:
    from rlvr.data.step_files import StepArray

if TYPE_CHECKING:  # its recorder calls this
    from rlvr.train.learner import Learner

__all__ = ["departures", "other_layout"]

_ALLOWED: Final = {"fp32": 1e-2, "bf16": 0.25}
"""Of a gradient, relative to its norm.  Layouts differ by rounding alone: 1e-6 on CPUs, 1e-3 where
a GPU rounds the factors of products to 10 bits, and a few hundredths in bfloat16."""


def departures(step: StepFile) -> dict[str, float]:
    """By how many times what rounding allows each quantity departs that the judge recomputes.

    Args:
        step: as a file has it.
    """
    ratios = dict[str, float]()
    for check in verify(step):
        if check.status != "departs":
            continue
        off = abs((check.recorded or 0.0) - (check.recomputed or 0.0))
        ratios[check.quantity] = off / check.tolerance if check.tolerance else float("inf")
    # JSON has no infinity, and a tolerance of 0 gives one.
    return {name: by if np.isfinite(by) else 1e9 for name, by in ratios.items()}


def other_layout(
    learner: Learner,
    rows: Sequence[Any],
    computed: Mapping[int, Mapping[str, StepArray]],
    scale: float,
    taken: NDArray[np.float64],
) -> dict[str, float]:
    """By how many times what is allowed log-probabilities and gradient differ in another layout.

    The weights are those before the step, and the gradients of the update stay as they are.

    Args:
        learner: between the backward pass and the optimiser's step.
        rows: of the batch.
        computed: of the update, by row: logprobs, weights, and perhaps entropy weights.
        scale: of the clip of gradients.
        taken: the sketch of the gradient, clipped.
    """
    algorithm, config = learner.algorithm, learner.config
    has_own = algorithm.critic is not None and algorithm.critic.backbone == "shared"
    # A shared critic adds a gradient of its own, and
    # a divergence has no weight of a log-probability.
    if learner.ranks.world > 1 or has_own or "divergence" in algorithm.reads or not computed:
        return {}
    policy, parameters = learner.policy.in_another_layout(), list(learner.policy.model.parameters())
    # Set aside, and put back below: the optimiser's step comes after this.
    saved_grads = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    order, off = list(computed), 0.0
    for part in policy.micro_batches([rows[i] for i in order]):
        indices = [order[i] for i in part]
        # numpy's maximum keeps a NaN, which departs; Python's `max` may lose it.
        off = np.maximum(off, _backward(policy, rows, indices, computed, learner.temperature))
    other_sketch = scale * sketch(policy.model)
    for parameter, grad in zip(parameters, saved_grads, strict=True):
        parameter.grad = grad
    norm = float(np.linalg.norm(other_sketch))
    apart = (
        float(np.linalg.norm(other_sketch - taken)) / norm if norm else float(np.linalg.norm(taken))
    )
    ratios = {
        "log-probabilities": off / (config.canary or 1.0),
        "gradient": apart / _ALLOWED[config.precision],
    }
    # `not <=`: what is NaN departs too.
    return {name: by for name, by in ratios.items() if not by <= 1}


def _backward(
    policy: Any,
    rows: Sequence[Any],
    part: Sequence[int],
    computed: Mapping[int, Mapping[str, StepArray]],
    temperature: float,
) -> float:
    """Add the gradient of some rows; how far a log-probability is from the recorded one."""
    outputs = policy.logprobs([rows[i] for i in part], temperature, with_entropy=True)
    # A loss with a gradient even where no weight is recorded.
    loss, off = outputs[0].sum() * 0.0, 0.0
    for n, index in enumerate(part):
        row_arrays = computed[index]
        for values, name in zip(outputs, ("weights", "entropy_weights"), strict=True):
            if name in row_arrays:
                # Constants: the slope of the loss in each
                # log-probability, as the first layout had it.
                weights = torch.from_numpy(row_arrays[name]).to(values)
                loss = loss + (values[n, : len(weights)] * weights).sum()
        # Masked tokens may differ: nothing reads them.
        used = np.flatnonzero(rows[index].completion_mask)
        logprobs_now = outputs[0][n].detach().float().cpu().numpy()
        if len(used):
            differences = np.abs(logprobs_now[used] - row_arrays["logprobs"][used])
            off = float(np.maximum(off, differences.max()))
    loss.backward()
    return off
