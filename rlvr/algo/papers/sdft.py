r"""SDFT: self-distillation fine-tuning (arXiv:2601.19897, Algorithm 1).

y ~ π(· | x);   minimise KL(π(· | x) ‖ π_φ(· | x, c)) at each token of y, c the task's reference
φ ← α θ + (1 - α) φ after each step
"""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.algo.papers.gkd import Divergence
from rlvr.algo.parts import Mixing
from rlvr.errors import UsageError

__all__ = ["SDFT"]


@dataclass(frozen=True, kw_only=True)
class SDFT(Divergence):
    """The teacher is the policy itself, which is shown the reference.

    Attributes:
        mixing: by how much the teacher follows the policy, and when; None for the policy as it
            began.
        shown: the teacher's prompt, made of {prompt} and {reference}; of chat messages, the last
            one.
    """

    name = "sdft"
    title = "SDFT"
    paper = "arXiv:2601.19897"
    equations = "Algorithm 1"
    sources = (
        "Algorithm 1: reverse KL on the policy's samples, a teacher that is a moving average; the "
        "share α of 0.01, the words that show the reference and one update are ours"
    )
    teaches_itself = True

    beta: float = 1.0
    mixing: Mixing | None = Mixing(every_steps=1, share=0.01)
    shown: str = "{prompt}\n\nA right answer is: {reference}\n\nNow answer in words of your own.\n"

    def check(self) -> None:
        super().check()
        for part in ("{prompt}", "{reference}"):
            if part not in self.shown:
                raise UsageError(f"shown is {self.shown!r}; it must have {part} in it")
