r"""VinePPO (arXiv:2410.01679).

V^(s) = mean score of K new completions of the prefix s                                     (eq. 6)
A(s_t, a_t) = r + V^(s_{t+1}) - V^(s_t), the same for all tokens of a step                  (sec. 4)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Printed, Proximal
from rlvr.algo.parts import Clip, Kl

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses


__all__ = ["VinePPO"]


@dataclass(frozen=True, kw_only=True)
class VinePPO(Proximal):
    """PPO with Monte-Carlo values at step boundaries in the place of a critic.

    Attributes:
        clip: the range in which the ratio is kept.
        whiten: normalise advantages over all tokens of the batch.
    """

    name = "vineppo"
    title = "VinePPO"
    paper = "arXiv:2410.01679"
    equations = "sec. 4"
    sources = (
        "the authors' configuration for MATH: KL 1e-4 in the loss, clip 0.2, 2 epochs, "
        "512 episodes of 64 prompts, mini-batch 64, learning rate 1e-6, temperature 0.6, "
        "K = 9 forks per step, advantages whitened, theirs per mini-batch"
    )
    reads = frozenset({"prefix_values", "boundaries"})
    takes_rewards = False
    printed = Printed(prompts=64, group_size=8, updates=8, lr=1e-6, max_tokens=1024)
    updates = 8

    clip: Clip = Clip(low=0.2, high=0.2)
    whiten: bool = True
    kl: Kl | None = Kl("k3", 1e-4, "loss")
    epochs: int = 2
    group_size: int | None = 8
    temperature: float = 0.6

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.returns import monte_carlo_advantages, whiten

        A = monte_carlo_advantages(groups.prefix_values, groups.boundaries, groups.mask)
        # Only over rows whose end has a value: the others
        # have advantages 0, which would move mean and std.
        return whiten(A, groups.credited) if self.whiten and groups.credited.any() else A

    def loss(self, inputs: Inputs) -> Losses:
        from rlvr.algo.objectives import clipped

        return clipped(*inputs.usual, **asdict(self.clip))
