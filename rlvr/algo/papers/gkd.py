r"""GKD: generalised knowledge distillation (arXiv:2306.13649).

P the teacher's distribution of the next token, Q the policy's, on completions that the policy samples
M = β P + (1 - β) Q,   D = β KL(P ‖ M) + (1 - β) KL(Q ‖ M)                                  (generalised JSD)
β 0: KL(P ‖ Q), forward;   β 1: KL(Q ‖ P), reverse, which are the limits of its gradient
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.validate import require_number, require_optional_whole

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["GKD"]


@dataclass(frozen=True, kw_only=True)
class GKD(Proximal):
    """The policy samples, and at each token its distribution moves towards the teacher's.

    Attributes:
        beta: β, from the forward KL (0) to the reverse KL (1).
        top_k: compare the teacher's k likeliest tokens, and all others as one; None for the whole vocabulary.
    """

    name = "gkd"
    title = "GKD"
    paper = "arXiv:2306.13649"
    equations = "generalised JSD, on-policy (λ = 1)"
    sources = "the paper tries β of 0.1, 0.5 and 0.9, and prefers own samples; top-k and one update are ours"
    reads = frozenset({"divergence"})
    regularised = True
    takes_rewards = False

    beta: float = 0.5
    top_k: int | None = None

    def check(self) -> None:
        super().check()
        require_number("beta", self.beta, 0, 1)
        require_optional_whole("top_k", self.top_k, 1)

    def advantages(self, groups: Inputs) -> Tensor:
        return groups.scores * 0.0

    def divergence(self, policy: Tensor, teacher: Tensor) -> Tensor:
        from math import log

        from torch import logaddexp

        Q, P = _coarse(policy, teacher, self.top_k)
        if self.beta in (0.0, 1.0):
            return _kl(P, Q) if self.beta == 0 else _kl(Q, P)
        M = logaddexp(P + log(self.beta), Q + log(1 - self.beta))
        return self.beta * _kl(P, M) + (1 - self.beta) * _kl(Q, M)

    def loss(self, inputs: Inputs) -> Tensor:
        divergence: Tensor = inputs.divergence
        return divergence


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """Σ p log(p / q) over the last axis, of log-probabilities."""
    return (p.exp() * (p - q)).sum(dim=-1)


def _coarse(policy: Tensor, teacher: Tensor, k: int | None) -> tuple[Tensor, Tensor]:
    """Both with the teacher's k likeliest tokens, and the others as one outcome."""
    from torch import cat, finfo

    if k is None or k >= teacher.shape[-1]:
        return policy, teacher
    best = teacher.topk(k, dim=-1).indices
    found = []
    for one in (policy, teacher):
        kept = one.gather(-1, best)
        rest = 1 - kept.exp().sum(dim=-1, keepdim=True)
        found.append(cat([kept, rest.clamp(min=finfo(one.dtype).tiny).log()], dim=-1))
    return found[0], found[1]
