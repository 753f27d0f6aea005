"""How reward models are trained, on pairs or on the counts of steps.  The head is
float32 and begins at 0.

bradley_terry    pairs: -log σ(r_w - r_l - margin), with centring
                 RUN/model scores completions
step_label_loss  completions with verdicts, cross-entropy
                 RUN/model scores completions
step_label_loss  steps with counts of right continuations, cross-entropy
                 RUN/model scores steps
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from torch import Tensor

from rlvr.algo.papers.base import Algorithm
from rlvr.algo.preferences import weighted_mean
from rlvr.train.critic import ValueModule
from rlvr.train.part import ExampleMicro
from rlvr.train.policy import Policy
from rlvr.train.preferences import Example, ExampleLosses, Totals
from rlvr.train.reward_head import HEAD
from rlvr.train.reward_model import numbers_of
from rlvr.types import StateDict

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = ["RewardLosses"]


class RewardLosses(ExampleLosses):
    """Losses of the numbers of a head, which is trained with the
    policy's layers: a reward model."""

    name = "head"

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return "head" in learner.algorithm.needs

    @classmethod
    def shape(cls, policy: Policy, algorithm: Algorithm) -> None:
        # A policy that has a head keeps it.
        if "head" in algorithm.needs and not isinstance(policy.root, ValueModule):
            policy.root = ValueModule(policy)

    @property
    def _module(self) -> ValueModule:
        root = self.learner.policy.root
        assert isinstance(root, ValueModule)
        return root

    def _micro_loss(
        self, examples: Sequence[Example], whole: Totals, point: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        rows, weights, right = self._side_by_side(examples)
        numbers, device = numbers_of(self.learner.policy, rows), self.learner.policy.device
        if examples[0].steps:
            return self._step_loss(examples, rows, numbers, whole)
        # The number after the last token is at column `length`, see `numbers_of`.
        ends = torch.tensor([len(row.completion_ids) for row in rows], device=device)
        n, rewards = len(examples), numbers.gather(1, ends[:, None]).squeeze(1)
        margin = torch.tensor([example.margin for example in examples], device=device)
        self._show(ExampleMicro(examples, rows, outputs=rewards))
        inputs = {"rewards": rewards, "right": right, "margin": margin}
        losses = self._example_losses(inputs | {"chosen": rewards[:n], "rejected": rewards[n:]})
        terms = whole.means("gain", rewards.detach(), weights, right)
        named = {
            f"reward_{name.removeprefix('gain_').removeprefix('reward_')}": value
            for name, value in terms.items()
        }
        return weighted_mean(losses, weights, total=whole.weight), named

    def _step_loss(
        self, examples: Sequence[Example], rows: Sequence[object], numbers: Tensor, whole: Totals
    ) -> tuple[Tensor, dict[str, Tensor]]:
        flat = [
            (i, *step, example.weight)
            for i, example in enumerate(examples)
            for step in example.steps
        ]
        row, end, right, counts, weights = (
            torch.tensor(values, device=numbers.device) for values in zip(*flat, strict=True)
        )
        # The number before token `end` is the one after the step's last token.
        logits = numbers[row, end]
        self._show(ExampleMicro(examples, rows, outputs=logits, output_rows=row))
        losses = self._example_losses({"logits": logits, "right": right, "counts": counts})
        off = (logits.detach().sigmoid() - right / counts).abs()
        # Each continuation counts once: a step that was tried more often weighs more.
        return weighted_mean(losses, weights, total=whole.counts), {
            "step_error": weighted_mean(off * counts, weights, total=whole.counts)
        }

    def save(self, folder: Path) -> None:
        """Write the head beside the model, for `RewardModel.load`.

        Args:
            folder: of the model.
        """
        ranks, reads = self.learner.ranks, "completions"
        if self.learner.algorithm.examples == "steps":
            reads = "steps"
        # A collective: all ranks gather, the first writes.
        gathered = {name: ranks.gather(value) for name, value in self.state().items()}
        weights = {
            name: value.detach().cpu() for name, value in gathered.items() if value is not None
        }
        if ranks.first:
            save_file(weights, folder / HEAD, metadata={"reads": reads})

    def state(self) -> StateDict:
        return dict(self._module.head.state_dict())

    def load(self, state: Mapping[str, object]) -> None:
        head = self._module.head
        head.load_state_dict(self.learner.ranks.spread(state, head.state_dict()))
