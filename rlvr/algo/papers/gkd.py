r"""GKD: generalised knowledge distillation (arXiv:2306.13649).

P the teacher's distribution of the next token, Q the policy's, on completions:
a share λ is the policy's own, the others are a file's                             (Algorithm 1)
M = β P + (1 - β) Q,   D = β KL(P ‖ M) + (1 - β) KL(Q ‖ M)                         (generalised JSD)
β 0: KL(P ‖ Q), forward;   β 1: KL(Q ‖ P), reverse, which are the limits of its gradient
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Proximal
from rlvr.errors import UsageError
from rlvr.validate import require_number, require_optional_whole

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["Divergence", "GKD"]


@dataclass(frozen=True, kw_only=True)
class Divergence(Proximal):
    """The policy's distribution moves towards a teacher's at each token.

    Attributes:
        beta: β, from the forward KL (0) to the reverse KL (1).
        top_k: compare the teacher's k likeliest tokens, and all others as one; None for the whole
            vocabulary.
    """

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
        # The divergence has a gradient of its own and reads no advantage.
        return groups.scores * 0.0

    def divergence(self, policy: Tensor, teacher: Tensor) -> Tensor:
        from math import log

        from torch import logaddexp

        Q, P = _coarse(policy, teacher, self.top_k)
        # At the ends one term of the formula is 0 and M is P or Q, so its
        # gradient would be 0; the KLs are the limits that the paper has.
        if self.beta in (0.0, 1.0):
            return _kl(P, Q) if self.beta == 0 else _kl(Q, P)
        # log(β P + (1 - β) Q), in logarithms throughout.
        M = logaddexp(P + log(self.beta), Q + log(1 - self.beta))
        return self.beta * _kl(P, M) + (1 - self.beta) * _kl(Q, M)

    def loss(self, inputs: Inputs) -> Tensor:
        divergence: Tensor = inputs.divergence
        return divergence


@dataclass(frozen=True, kw_only=True)
class GKD(Divergence):
    """Generalised knowledge distillation.

    Attributes:
        student_share: λ, the share of completions that the policy samples, above 0; the others are
            of `texts`.
        texts: a file with the columns prompt and completion, such as a teacher's; None with λ = 1.
    """

    name = "gkd"
    title = "GKD"
    paper = "arXiv:2306.13649"
    equations = "generalised JSD, Algorithm 1"
    sources = (
        "the paper tries β of 0.1, 0.5 and 0.9, λ of 0, 0.5 and 1, and prefers own samples; it "
        "draws a batch's kind with probability λ, here each batch has both; top-k and one update "
        "are ours"
    )

    student_share: float = 1.0
    texts: str | None = None

    def check(self) -> None:
        super().check()
        require_number("student_share", self.student_share, above=0, most=1)
        if (self.student_share < 1) != (self.texts is not None):
            raise UsageError(
                f"student_share is {self.student_share:g} and texts {self.texts!r}; give a file of "
                "texts with a student_share below 1, or neither; on texts alone --algorithm sft "
                "trains"
            )


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """Σ p log(p / q) over the last axis, of log-probabilities."""
    return (p.exp() * (p - q)).sum(dim=-1)


def _coarse(policy: Tensor, teacher: Tensor, k: int | None) -> tuple[Tensor, Tensor]:
    """Both with the teacher's k likeliest tokens, and the others as one outcome."""
    from torch import cat, finfo

    if k is None or k >= teacher.shape[-1]:
        return policy, teacher
    best = teacher.topk(k, dim=-1).indices
    coarse = []
    for logprobs in (policy, teacher):
        top = logprobs.gather(-1, best)
        remainder = 1 - top.exp().sum(dim=-1, keepdim=True)
        # The remainder can round to 0 or below, of which there is no logarithm.
        coarse.append(cat([top, remainder.clamp(min=finfo(logprobs.dtype).tiny).log()], dim=-1))
    return coarse[0], coarse[1]
