r"""RPG: a policy gradient regularised by the KL from the policy that sampled (arXiv:2505.17508).

J = E_π[R] - β UKL(π ‖ π_old),   UKL = E_π_old[w log w - w + 1],   w = π / π_old
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfGroups
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["RPG"]


@dataclass(frozen=True, kw_only=True)
class RPG(OfGroups):
    """The reverse KL in the loss, with the weight that makes its gradient right in every update.

    Attributes:
        beta: β, weight of the KL.
    """

    name = "rpg"
    title = "RPG"
    paper = "arXiv:2505.17508"
    equations = "URKL, the differentiable loss"
    sources = (
        "the loss as on the authors' page; their clipped weights and their reference that is "
        "renewed now and then are left out; the group's advantages, β and 4 updates are ours"
    )
    regularised = True
    updates = 4

    beta: float = 0.01

    def check(self) -> None:
        super().check()
        require_number("beta", self.beta, 0)

    def loss(self, inputs: Inputs) -> Tensor:
        w = inputs.ratio
        # w log w - w is β's term of UKL; its constant 1 has no gradient.
        return w * (self.beta * (inputs.log_ratio - 1) - inputs.advantages)
