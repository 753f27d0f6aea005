"""How far two computations of the same number may be apart, from the machine's precision and not from trial.

The order of a sum is the kernel's: it differs with the CPU, the batch and the number of threads.
A sum of n terms has an error of at most γ_n = n u / (1 - n u) times the sum of the terms' sizes,
where u is half of the machine epsilon (Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., section 3.1 and eq. 4.4).  What follows from this:

- Errors are in proportion to what was summed, not to what is left of it: an element of a gradient near 0 may be the
  difference of large terms.  So an array is judged by its largest element, and no element by its own size.
- Sums on top of each other add their n: a model's n is the length of the longest chain of additions through it.
- What solves an equation multiplies the error by the condition number of its matrix.
"""

from __future__ import annotations

import torch

__all__ = ["additions", "assert_same", "in_float64", "unit"]


def unit(terms: int, dtype: torch.dtype = torch.float32) -> float:
    """γ_n, the relative error of n roundings one after the other.

    Args:
        terms: n.
        dtype: the coarsest one in which something was computed.
    """
    roundings = terms * torch.finfo(dtype).eps / 2
    assert roundings < 0.1, "so many terms say nothing in this precision"
    return roundings / (1 - roundings)


def additions(model: torch.nn.Module, tokens: int) -> int:
    """The longest chain of additions in a loss of a model and its gradient.

    Forward each product of matrices adds over its inputs, backward over its outputs and over all tokens; norms add over
    their width, and attention over the tokens, each twice.

    Args:
        model: a transformer whose layers follow each other.
        tokens: of a batch.
    """
    chain = tokens
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            chain += module.in_features + module.out_features
        elif "norm" in type(module).__name__.lower():
            chain += 2 * module.weight.numel()
        elif "attention" in type(module).__name__.lower():
            chain += 2 * tokens
    return chain


def assert_same(
    found: torch.Tensor,
    wanted: torch.Tensor,
    *,
    terms: int,
    condition: float = 1.0,
    dtype: torch.dtype = torch.float32,
    also: float = 0.0,
    size: float | None = None,
) -> None:
    """Hold |found - wanted| ≤ condition · (2 γ_terms + also) · size: each of the two has an error.

    Args:
        found: one computation.
        wanted: the other one, of the same shape.
        terms: additions one after the other, such as `additions`.
        condition: by which what follows magnifies an error.
        dtype: the coarsest one in which something was computed.
        also: relative error by method, such as that at which an iteration stops.
        size: of what was summed; by default the largest element of `wanted`.
    """
    size = max(wanted.abs().flatten().tolist(), default=0.0) if size is None else size
    most = condition * (2 * unit(terms, dtype) + also) * size
    torch.testing.assert_close(found, wanted, rtol=0, atol=most, check_dtype=False)


def in_float64(model: torch.nn.Module) -> torch.nn.Module:
    """The model with all of its weights and sums in float64.

    `.double()` alone leaves the norms of transformers in float32, which round where others do not.

    Args:
        model: changed in place, and given back.
    """
    model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = _Norm(module)
    return model


class _Norm:
    """x / √(mean x² + ε) · weight, in the precision of x."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self._module.variance_epsilon)
        return self._module.weight * x * scale
