r"""GRPO with process supervision (DeepSeekMath, arXiv:2402.03300, 4.1.3).

r~ = (r - mean(R)) / std(R),  R all step rewards of all completions of a prompt
A_{i,t} = Σ of r~ of the steps of completion i that end at t or later
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from rlvr.algo.papers.base import Inputs, Printed, Proximal
from rlvr.algo.parts import Clip, Kl
from rlvr.validate import require_one_of

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["GRPOProcess"]


@dataclass(frozen=True, kw_only=True)
class GRPOProcess(Proximal):
    """GRPO whose steps have rewards of their own, as in environments whose turns do.

    Attributes:
        clip: the range in which the ratio is kept.
        scale: divide by the standard deviation of the step rewards.
        aggregation: how losses per token become one number; the paper's is sequence_mean.
    """

    name = "grpo_process"
    title = "GRPO, process"
    paper = "arXiv:2402.03300"
    equations = "4.1.3, eq. 3, 4"
    sources = "4.2: as grpo; the step rewards are those of an environment's turns"
    needs = frozenset({"siblings"})
    reads = frozenset({"step_rewards", "step_ends"})
    takes_rewards = False
    printed = Printed(prompts=16, group_size=64, updates=1, lr=1e-6, max_tokens=1024)

    clip: Clip = Clip(low=0.2, high=0.2)
    scale: bool = True
    aggregation: Literal["sequence_mean", "token_mean"] = "sequence_mean"
    kl: Kl | None = Kl("k3", 0.04, "loss")

    def check(self) -> None:
        super().check()
        require_one_of("aggregation", self.aggregation, ("sequence_mean", "token_mean"))

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.returns import process_advantages

        return process_advantages(
            groups.step_rewards, groups.step_ends, groups.scored, scale=self.scale
        )

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
