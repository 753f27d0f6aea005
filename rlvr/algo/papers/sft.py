r"""SFT: supervised fine-tuning on demonstrations (InstructGPT, arXiv:2203.02155).

loss -log π(y | x), mean over tokens                                                        (3.5)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.algo.papers.base import Inputs, OfFile

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["SFT"]


@dataclass(frozen=True, kw_only=True)
class SFT(OfFile):
    """Fine-tuning on the completions of a file, often before reinforcement learning."""

    name = "sft"
    title = "Supervised fine-tuning"
    paper = "arXiv:2203.02155"
    equations = "3.5"
    sources = (
        "3.5, which has 16 epochs and a cosine schedule; one epoch at a time is ours: "
        "--steps says how many"
    )
    examples = "right"

    def loss(self, inputs: Inputs) -> Tensor:
        from rlvr.algo.preferences import negative_log_likelihood

        return negative_log_likelihood(inputs.logprobs, inputs.mask)
