r"""KTO: Kahneman-Tversky optimisation (arXiv:2402.01306).

z = max(0, mean gain of completions after prompts that are not theirs)                    (sec. 4.1)
loss w_d (1 - σ(β (h - z))) for a right completion, w_u (1 - σ(β (z - h))) for a wrong one  (eq. 8)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Preferences
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["KTO"]


@dataclass(frozen=True, kw_only=True)
class KTO(Preferences):
    """Completions that are known to be right or wrong, without pairs.

    Attributes:
        beta: strength of the pull towards the reference policy.
        right_weight: weight of right completions.
        wrong_weight: weight of wrong completions.
    """

    name = "kto"
    title = "KTO"
    paper = "arXiv:2402.01306"
    equations = "eq. 8"
    sources = "4.2: beta 0.1, weights 1"
    examples = "labels"
    reads = frozenset({"ref_logprobs", "reference_point"})

    beta: float = 0.1
    right_weight: float = 1.0
    wrong_weight: float = 1.0

    def check(self) -> None:
        super().check()
        for name in ("beta", "right_weight", "wrong_weight"):
            require_number(name, getattr(self, name), above=0)

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import kto

        return kto(
            inputs.gain,
            inputs.right,
            inputs.reference_point,
            beta=self.beta,
            right_weight=self.right_weight,
            wrong_weight=self.wrong_weight,
        )
