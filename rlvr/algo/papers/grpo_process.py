r"""GRPO with process supervision (DeepSeekMath, arXiv:2402.03300, 4.1.3).

r~ = (r - mean(R)) / std(R),  R all step rewards of all completions of a prompt
A_{i,t} = Σ of r~ of the steps of completion i that end at t or later
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs
from rlvr.algo.papers.grpo import GRPO

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["GRPOProcess"]


@dataclass(frozen=True, kw_only=True)
class GRPOProcess(GRPO):
    """GRPO whose steps have rewards of their own; it divides by the standard deviation of these."""

    name = "grpo_process"
    title = "GRPO, process"
    equations = "4.1.3, eq. 3, 4"
    sources = "4.2: as grpo; the step rewards are those of --step-reward or of turns"
    reads = frozenset({"step_rewards", "step_ends"})
    takes_rewards = False
    takes_steps = True

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.returns import process_advantages

        return process_advantages(
            groups.step_rewards, groups.step_ends, groups.scored, scale=self.scale
        )
