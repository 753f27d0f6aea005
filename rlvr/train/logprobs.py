"""Log-probabilities of given tokens, computed block by block over the vocabulary, without
a full tensor of logits.

Axes: N tokens, H hidden width, V vocabulary, W width of a block.  Full logits would
be N·V numbers in float32,
0.6 MB per token at V = 152k, in several copies.  Here one block of N·W logits exists at a time, and
only sums per token are kept.  The backward pass computes the blocks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

__all__ = ["LogitsTransform", "token_logprobs"]

# numbers in a block if the tokens are few: 8 MiB in float32, which may fit into a cache
_BLOCK: Final = 2**21
# least width, with many tokens: 4 KB per token and copy, and wide enough for a fast product
_NARROWEST: Final = 1024


@dataclass(frozen=True, slots=True)
class LogitsTransform:
    """How a model turns the head's output z into logits: `scale`·z, then
    `softcap`·tanh(z / `softcap`).

    Attributes:
        scale: 1 for none.
        softcap: None for none.
    """

    scale: float = 1.0
    softcap: float | None = None

    def apply_(self, z: Tensor) -> Tensor:
        """The logits, computed in place.

        Args:
            z: the head's output; it is overwritten.
        """
        if self.scale != 1.0:
            z.mul_(self.scale)
        # In place: z is a block of N·W numbers, and each copy of it would double the peak.
        return z if self.softcap is None else z.div_(self.softcap).tanh_().mul_(self.softcap)

    def backward_(self, gradient: Tensor, logits: Tensor) -> Tensor:
        """The gradient at z, computed in place.

        Args:
            gradient: at the logits; it is overwritten.
            logits: what `apply_` gave; with a softcap they are overwritten.
        """
        if self.softcap is not None:
            # tanh is logits / softcap, so no second buffer is kept from the forward pass.
            gradient.mul_(logits.div_(self.softcap).square_().neg_().add_(1.0))  # 1 - tanh²
        return gradient if self.scale == 1.0 else gradient.mul_(self.scale)


def token_logprobs(
    hidden: Float[Tensor, "N H"],
    weight: Float[Tensor, "V H"],
    targets: Int[Tensor, " N"],
    *,
    bias: Float[Tensor, " V"] | None = None,
    logits: LogitsTransform = LogitsTransform(),
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"] | None]:
    """log softmax(logits / temperature) at the targets; and the entropy of that softmax in nats, or
    None.

    Both are differentiable once, in `hidden`, `weight` and `bias`.  Sums are in float32, or in
    float64 for inputs of float64.  Under autocast the products are in its type, as in the model's
    own head.

    Args:
        hidden: last hidden state at each token.
        weight: of the head.
        targets: the token whose log-probability is wanted, for each hidden state.
        bias: of the head; None for none.
        logits: how the model turns the head's output into logits.
        temperature: above 0.
        with_entropy: compute the entropy too.

    Raises:
        ValueError: the temperature is not above 0.
    """
    if not temperature > 0:
        raise ValueError(
            f"temperature is {temperature}; it must be above 0, as greedy choice has no "
            f"log-probabilities"
        )
    kind = hidden.device.type
    # The type in which the model's own head would multiply.
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    with torch.autocast(kind, enabled=False):
        logprobs, entropy = _TokenLogprobs.apply(
            hidden, weight, bias, targets, _Settings(logits, 1.0 / temperature, dtype, with_entropy)
        )
    return logprobs, entropy if with_entropy else None


@dataclass(frozen=True, slots=True)
class _Settings:
    logits: LogitsTransform
    inverse_temperature: float
    dtype: torch.dtype
    with_entropy: bool

    @property
    def sums(self) -> torch.dtype:
        # bfloat16 and float16 are summed in float32; float64 stays.
        return torch.promote_types(self.dtype, torch.float32)

    def blocks(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """For each block: (slice of the vocabulary, its rows of the weight, its logits before the
        temperature)."""
        # Few tokens get wide blocks, many tokens narrow ones: N·W is about _BLOCK numbers.
        width = max(_NARROWEST, _BLOCK // max(1, len(hidden)))
        for start in range(0, len(weight), width):
            block = slice(start, min(start + width, len(weight)))
            rows = weight[block].to(self.dtype)
            # [N, W]: the product in the head's type, everything after it in the type of sums.
            z = (hidden @ rows.T).to(self.sums)
            if bias is not None:
                z.add_(bias[block])
            yield block, rows, self.logits.apply_(z)

    @staticmethod
    def inside(targets: Tensor, block: slice) -> tuple[Tensor, Tensor]:
        """(Whether each target lies in the block, its column there; any column if it does not)."""
        columns = targets - block.start
        inside = (columns >= 0) & (columns < block.stop - block.start)
        # Clamped: `gather` and `scatter_add_` need a column
        # that exists; `inside` discards what it reads.
        return inside, columns.clamp(0, block.stop - block.start - 1).unsqueeze(1)


class _TokenLogprobs(torch.autograd.Function):  # type: ignore[misc]
    """Forward keeps, per token, a running maximum m and the sums of exp(l - m) and of
    exp(l - m)·l over logits l."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor]:
        states = hidden.to(settings.dtype)
        # -inf: the first block's exp(peak - higher) is then 0, which removes the empty sums.
        peak = states.new_full((len(states),), -torch.inf, dtype=settings.sums)
        total, weighted, at_target = (torch.zeros_like(peak) for _ in range(3))
        for block, _, logit in settings.blocks(states, weight, bias):
            logit.mul_(settings.inverse_temperature)
            inside, columns = settings.inside(targets, block)
            at_target = torch.where(inside, logit.gather(1, columns).squeeze(1), at_target)
            higher = torch.maximum(peak, logit.amax(dim=1))
            # What the sums so far shrink by when the maximum rises: exp(old m - new m) ≤ 1.
            shrink = (peak - higher).exp_()
            peak = higher
            if settings.with_entropy:
                p = (logit - peak.unsqueeze(1)).exp_()
                weighted = weighted * shrink + torch.linalg.vecdot(p, logit)
                total = total * shrink + p.sum(dim=1)
            else:
                # Without entropy the logits are not needed again, so exp is taken in their place.
                total = total * shrink + logit.sub_(peak.unsqueeze(1)).exp_().sum(dim=1)
        log_total = peak + total.log()
        # H = log Σ exp(l) - Σ p l.
        entropy = log_total - weighted / total
        ctx.settings = settings
        # Hidden and weight, not logits: blocks are computed again in the backward pass.
        ctx.save_for_backward(hidden, weight, bias, targets, log_total, entropy)
        return at_target - log_total, entropy

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(
        ctx: FunctionCtx, at_logprobs: Tensor, at_entropy: Tensor
    ) -> tuple[Tensor | None, ...]:
        """d log p_t / d l_j = [j = t] - p_j, and d entropy / d l_j = -p_j (log p_j + entropy)."""
        settings: _Settings = ctx.settings
        hidden, weight, bias, targets, log_total, entropy = ctx.saved_tensors
        states = hidden.to(settings.dtype)
        # Summed over blocks in float32: V / W additions in bfloat16 would lose the small ones.
        at_hidden = (
            torch.zeros_like(states, dtype=settings.sums) if ctx.needs_input_grad[0] else None
        )
        # Each block writes its own rows once, so `empty` is filled.
        at_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        at_bias = torch.empty_like(bias) if ctx.needs_input_grad[2] else None
        for block, rows, logit in settings.blocks(states, weight, bias):
            # `backward_` needs the logits below
            log_p = logit if settings.logits.softcap is None else logit.clone()
            log_p.mul_(settings.inverse_temperature).sub_(log_total.unsqueeze(1))
            if settings.with_entropy:
                outer = (
                    (log_p + entropy.unsqueeze(1))
                    .mul_(at_entropy.unsqueeze(1))
                    .add_(at_logprobs.unsqueeze(1))
                )
                gradient = log_p.exp_().mul_(outer).neg_()
            else:
                # Softmax part -p_j; [j = t] is added at the target's column below.
                gradient = log_p.exp_().mul_(-at_logprobs.unsqueeze(1))
            inside, columns = settings.inside(targets, block)
            # 0 outside: adds nothing at the clamped column.
            gradient.scatter_add_(1, columns, torch.where(inside, at_logprobs, 0).unsqueeze(1))
            gradient = settings.logits.backward_(gradient.mul_(settings.inverse_temperature), logit)
            if at_bias is not None:
                at_bias[block] = gradient.sum(dim=0)
            gradient = gradient.to(settings.dtype)
            if at_weight is not None:
                at_weight[block] = gradient.T @ states
            if at_hidden is not None:
                at_hidden += gradient @ rows
        return (
            None if at_hidden is None else at_hidden.to(hidden.dtype),
            at_weight,
            at_bias,
            None,
            None,
        )
