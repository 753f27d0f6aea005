"""One token per row, from that row's own random numbers.  Axes: B rows, V vocabulary.

A row's numbers are a function of its seed and of the step alone, so what else is in the batch cannot change what it
draws, except where the model's own arithmetic does: a matrix product over other rows may round differently in the
last bit, and a draw within that bit of the boundary between two tokens goes the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from rlvr.samplers.protocol import Sampling

__all__ = ["choose", "kept", "uniforms"]

_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_WIDE_ENOUGH: Final = 256  # as many tokens hold the nucleus nearly always; sorting 150k of them takes far longer


def uniforms(seeds: Sequence[int], start: int, stop: int) -> NDArray[np.float64]:
    """Numbers `start` to `stop` of each seed's stream, in (0, 1): [seeds, stop - start].

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, fig. 9 and 17), whose state is a counter.  The seed is mixed
    first, so that seeds a multiple of its increment apart do not share a stream.  48 bits are kept: times a total,
    the greatest then stays below it.
    """
    states = _mixed(np.array([seed % 2**64 for seed in seeds], dtype=np.uint64) + _GAMMA)
    counters = np.arange(start + 1, stop + 1, dtype=np.uint64) * _GAMMA
    numbers = (_mixed(states[:, None] + counters) >> np.uint64(16)).astype(np.float64)
    return (numbers + 0.5) * 2.0**-48


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def choose(
    logits: Float[Tensor, "B V"], uniform: Float[Tensor, " B"], sampling: Sampling
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Draw by inverting the cumulative distribution: (tokens, their logprobs as drawn, the model's own).

    The order is temperature, then top-k, top-p and min-p, each on what the one before left (as transformers has it;
    vLLM puts min-p first).  At temperature 0 the most likely token is certain: its logprob as drawn is 0.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    model_logprobs = logits.log_softmax(dim=-1)
    if sampling.temperature == 0:
        token = logits.argmax(dim=-1, keepdim=True)
        own = model_logprobs.gather(1, token).squeeze(1)
        return token.squeeze(1), torch.zeros_like(own), own
    logprobs = model_logprobs
    if sampling.temperature != 1:
        logprobs = (logits / sampling.temperature).log_softmax(dim=-1)
    probs = logprobs.exp()
    if sampling.truncates:
        probs = probs.where(kept(probs, sampling), 0.0)
    exact = torch.float32 if logits.device.type == "mps" else torch.float64  # 150k small numbers are added up
    cumulative = probs.cumsum(dim=-1, dtype=exact)
    total = cumulative[:, -1:]
    point = uniform.to(exact).unsqueeze(1) * total
    if exact == torch.float32:  # in which the point may round up to the total
        point = torch.minimum(point, total * (1 - 2 * torch.finfo(exact).eps))
    token = torch.searchsorted(cumulative, point, right=True)  # a token of no probability is never the first above it
    token = token.clamp_(max=logits.shape[1] - 1)  # NaN leads beyond the end; the caller sees it in the logprobs
    own = model_logprobs.gather(1, token).squeeze(1)
    drawn = own if sampling.temperature == 1 else logprobs.gather(1, token).squeeze(1)
    if sampling.truncates:
        drawn = drawn - total.squeeze(1).log().to(drawn.dtype)
    return token.squeeze(1), drawn, own


def kept(probs: Float[Tensor, "B V"], sampling: Sampling) -> Bool[Tensor, "B V"]:
    """Which tokens top-k, top-p and min-p leave.  Tokens as likely as the last one kept are kept with it."""
    floor = torch.zeros_like(probs[:, :1])
    if 0 < sampling.top_k < probs.shape[1]:
        floor = probs.topk(sampling.top_k, dim=-1).values[:, -1:]
    if sampling.top_p < 1:
        mass = sampling.top_p * probs.where(probs >= floor, 0.0).sum(dim=-1, keepdim=True)
        floor = torch.maximum(floor, _nucleus_floor(probs, mass))
    if sampling.min_p > 0:
        floor = torch.maximum(floor, sampling.min_p * probs.amax(dim=-1, keepdim=True))
    return probs >= floor


def _nucleus_floor(probs: Float[Tensor, "B V"], mass: Float[Tensor, "B 1"]) -> Float[Tensor, "B 1"]:
    """The least likely of the most likely tokens that together reach the mass."""
    for width in (_WIDE_ENOUGH, probs.shape[1]):
        falling = probs.topk(min(width, probs.shape[1]), dim=-1).values
        reached = falling.cumsum(dim=-1)
        if width >= probs.shape[1] or bool((reached[:, -1:] >= mass).all()):
            break
    last = (reached < mass).sum(dim=-1, keepdim=True).clamp_(max=falling.shape[1] - 1)
    return falling.gather(1, last)
