r"""RFT: rejection sampling fine-tuning (arXiv:2308.01825).

loss -log π(y | x) of distinct right completions                                            (3.2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, Preferences

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["RFT"]


@dataclass(frozen=True, kw_only=True)
class RFT(Preferences):
    """Fine-tuning on the right completions alone."""

    name = "rft"
    title = "RFT, best of n"
    paper = "arXiv:2308.01825"
    equations = "3.2"
    sources = "3.2: distinct right completions, fine-tuned on; 4 of a task are ours"
    examples = "right"

    per_task: int = 4

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import negative_log_likelihood

        return negative_log_likelihood(inputs.logprobs, inputs.mask)
