r"""A Bradley-Terry reward model (Llama 2, arXiv:2307.09288; InstructGPT, arXiv:2203.02155, eq. 1).

loss -log σ(r_w - r_l - m) + c (r_w + r_l)²                                                 (eq. 2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Judged
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["BradleyTerry"]


@dataclass(frozen=True, kw_only=True)
class BradleyTerry(Judged):
    """A head that scores completions, trained on pairs of a file.

    Attributes:
        centring: weight c of (r_w + r_l)², which keeps the rewards around 0.
    """

    name = "reward_model"
    title = "Bradley-Terry reward model"
    paper = "arXiv:2307.09288"
    equations = "eq. 2"
    sources = "eq. 2; centring and its weight are of arXiv:2312.09244, 2 and TRL's examples"
    examples = "pairs"

    centring: float = 0.01

    def check(self) -> None:
        super().check()
        require_number("centring", self.centring, 0)

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import bradley_terry

        return bradley_terry(
            inputs.chosen, inputs.rejected, margin=inputs.margin, centring=self.centring
        )
