r"""A2C: advantage actor-critic (A3C, arXiv:1602.01783).

R_t = r_t + γ r_{t+1} + … + γ^n V_{t+n},   loss -(R - V) log π + c_v (V - R)² - c_e H       (sec. 4)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfTokens
from rlvr.algo.parts import Critic
from rlvr.validate import require_optional_whole

if TYPE_CHECKING:
    from rlvr.algo.objectives import Losses
    from rlvr.algo.returns import AdvantageEstimate


__all__ = ["A2C"]


@dataclass(frozen=True, kw_only=True)
class A2C(OfTokens):
    """One update per batch, with a critic and an entropy bonus.

    Attributes:
        critic: the value model.
        n_steps: tokens that a return looks ahead: 1 is TD(0), None the whole completion.
    """

    name = "a2c"
    title = "A2C"
    paper = "arXiv:1602.01783"
    equations = "sec. 4"
    sources = (
        "4: advantage R - V, entropy 0.01; returns to the end and γ 1 are ours, as the "
        "reward is at the end of hundreds of tokens: theirs, for Atari, are 5 steps and "
        "0.99"
    )
    needs = frozenset({"once"})
    reads = frozenset({"values"})

    critic: Critic = Critic(value_clip=None)
    n_steps: int | None = None
    whiten: bool = False
    entropy: float = 0.01

    def check(self) -> None:
        super().check()
        require_optional_whole("n_steps", self.n_steps, 1)

    def advantages(self, groups: Inputs) -> AdvantageEstimate:
        from rlvr.algo.returns import AdvantageEstimate, n_step_advantages

        A, R = n_step_advantages(
            groups.rewards,
            groups.values,
            groups.mask,
            n=self.n_steps,
            gamma=self.gamma,
            bootstrap=groups.bootstrap,
        )
        return AdvantageEstimate(self.whiten_advantages(A, groups.mask), R)

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import reinforce

        return reinforce(*inputs.usual)
