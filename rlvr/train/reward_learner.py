"""How reward models are trained, on pairs or on the counts of steps.  The head is float32 and begins at 0.

bradley_terry     pairs: -log σ(r_w - r_l - margin), with centring               RUN/model scores completions
step_label_loss   completions with verdicts, cross-entropy                       RUN/model scores completions
step_label_loss   steps with counts of right continuations, cross-entropy        RUN/model scores steps
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rlvr.algo.preferences import weighted_mean
from rlvr.display import Activity
from rlvr.train.config import Config
from rlvr.train.part import ExampleMicro
from rlvr.train.policy import Policy
from rlvr.train.preferences import Example, PreferenceLearner, _Totals
from rlvr.train.reward_head import HEAD
from rlvr.train.reward_model import numbers_of, scorer_of

__all__ = ["RewardLearner"]


class RewardLearner(PreferenceLearner):
    """A learner that trains a reward model.

    Args:
        policy: whose layers are trained.
        config: settings of the run; its algorithm's loss needs a head.

    Raises:
        UsageError: all weights are frozen.
    """

    def __init__(self, policy: Policy, config: Config, activity: Activity | None = None) -> None:
        super().__init__(policy, config, activity=activity)
        self._scorer, self._module = scorer_of(policy)
        self.parameters = [*self.parameters, *self._module.head.parameters()]
        self.optimizer = self.fresh_optimizer()

    def _micro_loss(
        self, examples: Sequence[Example], whole: _Totals, point: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        rows = [row for side in zip(*(one.rows for one in examples), strict=True) for row in side]
        numbers, device = numbers_of(self._scorer, rows), self.policy.device
        weights = torch.tensor([one.weight for one in examples], device=device)
        if examples[0].steps:
            return self._step_loss(examples, rows, numbers, whole)
        ends = torch.tensor([len(row.completion_ids) for row in rows], device=device)
        n, rewards = len(examples), numbers.gather(1, ends[:, None]).squeeze(1)
        margin = torch.tensor([one.margin for one in examples], device=device)
        right = torch.tensor([one.right for one in examples], device=device)
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
        self, examples: Sequence[Example], rows: Sequence[Any], numbers: Tensor, whole: _Totals
    ) -> tuple[Tensor, dict[str, Tensor]]:
        flat = [(i, *step, one.weight) for i, one in enumerate(examples) for step in one.steps]
        row, end, right, counts, weights = (
            torch.tensor(values, device=numbers.device) for values in zip(*flat, strict=True)
        )
        logits = numbers[row, end]
        self._show(ExampleMicro(examples, rows, outputs=logits, output_rows=row))
        losses = self._example_losses({"logits": logits, "right": right, "counts": counts})
        off = (logits.detach().sigmoid() - right / counts).abs()
        return weighted_mean(losses, weights, total=whole.counts), {
            "step_error": weighted_mean(off * counts, weights, total=whole.counts)
        }

    def save(self, folder: Path) -> None:
        """Write the model with its head, for `RewardModel.load`.

        Args:
            folder: where it goes; it is made.
        """
        super().save(folder)
        save_file(
            {name: value.detach().cpu() for name, value in self._module.head.state_dict().items()},
            folder / HEAD,
            metadata={"reads": "steps" if self.algorithm.examples == "steps" else "completions"},
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {**super().state_dict(), "head": self._module.head.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: what `state_dict` returned.
        """
        self._module.head.load_state_dict(state["head"])
        super().load_state_dict(state)
