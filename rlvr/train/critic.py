"""The critic: a scalar head that estimates, before each token, the sum of the rewards to come.

values once per batch ─▶ advantages and returns ─▶ per mini-batch: ½ (V - R)², clipped, mean over tokens ─▶ AdamW

The backbone is the critic's own, a copy of the policy as it began, or the policy's (`Critic.backbone`).  A shared one
shares weights, not the pass: the layers are run once for the log-probabilities and once for the values.  The head is
float32 and begins at 0, so that the first advantages are the returns.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rlvr.algo.aggregation import Denominators, token_mean
from rlvr.algo.terms import value_loss
from rlvr.errors import DataError
from rlvr.samplers.protocol import TokenRow
from rlvr.train.batches import Padded
from rlvr.train.config import ResolvedConfig
from rlvr.train.credit import Batch
from rlvr.train.policy import Policy, RootModule
from rlvr.train.schedule import scheduled
from rlvr.types import Rollout

__all__ = ["CriticLearner", "ValueModule"]


class ValueModule(RootModule):
    """A number per completion token, of the text before it: the root module of critics and of reward models.

    Args:
        policy: whose layers it has.
        model: a copy of them; None for these layers.
    """

    def __init__(self, policy: Policy, model: Any = None) -> None:
        model = policy.model if model is None else model
        super().__init__(model, policy.root.logits)
        width = model.get_output_embeddings().weight.shape[1]
        self.head = nn.Linear(width, 1, dtype=torch.float32, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.learns_layers = True

    def forward(
        self, batch: Padded, temperature: float = 1.0, with_entropy: bool = False
    ) -> tuple[Float[Tensor, " N"], None]:
        """The numbers of a micro-batch.

        Args:
            batch: padded, packed, or with shared prompts.
            temperature, with_entropy: not used; as `RootModule` has them.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.learns_layers):
            states = self.states(batch)
        with torch.autocast(
            states.device.type, enabled=False
        ):  # bfloat16 has 8 bits, too few to regress on
            return self.head(states.float()).squeeze(-1), None


class CriticLearner:
    """The critic with its optimiser.

    Args:
        policy: as the run begins; its micro-batching, precision and adapter are the critic's too.
        config: settings of the run, whose algorithm has a critic.

    Attributes:
        updates: optimiser steps so far.
        steps: training steps so far, of which the first `warmup` leave the policy alone.
    """

    def __init__(self, policy: Policy, config: ResolvedConfig) -> None:
        assert config.algorithm.critic is not None
        self.config, self.settings = config, config.algorithm.critic
        self.updates = self.steps = 0
        self._own = self.settings.backbone == "own"
        self._model = copy.copy(policy)
        if self._own:
            self._model.model = _twin(policy.model)
        self._model.root = self._root = ValueModule(policy, self._model.model)
        self._layers = (
            [p for p in self._model.model.parameters() if p.requires_grad] if self._own else []
        )
        self.parameters = [*self._layers, *self._root.head.parameters()]
        self.optimizer = torch.optim.AdamW(
            self.parameters, self.lr, betas=config.betas, weight_decay=config.weight_decay
        )

    @property
    def lr(self) -> float:
        """Learning rate of the next update."""
        config = self.config
        return scheduled(
            self.settings.lr or config.lr,
            self.settings.schedule or config.schedule,
            done=self.updates,
            warmup=config.warmup_steps,
            updates=config.total_updates,
        )

    @property
    def is_warming_up(self) -> bool:
        """True in the steps in which only the critic learns."""
        return self.steps < self.settings.warmup

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def values(self, rows: Sequence[Rollout]) -> tuple[Float[Tensor, "B T"], Float[Tensor, " B"]]:
        """The value before each token, and after the last one where a row was truncated; 0 after a real end.

        Args:
            rows: B rollouts.
        """
        # One token more, whatever it is, so that the state after the last one is before another.
        longer = [TokenRow(row.prompt_ids, [*row.completion_ids, 0]) for row in rows]
        found = self._model.logprobs(longer).float().cpu()
        lengths = torch.tensor([len(row.completion_ids) for row in rows])
        after = found.gather(1, lengths[:, None]).squeeze(1)
        truncated = torch.tensor([row.truncated for row in rows])
        inside = torch.arange(found.shape[1] - 1) < lengths[:, None]
        return torch.where(inside, found[:, :-1], 0.0), torch.where(truncated, after, 0.0)

    def backward(self, mini: Batch, whole: Denominators) -> dict[str, float]:
        """Add the gradient of a mini-batch's value loss, the mean over its trained tokens; returns what is logged.

        Args:
            mini: with `values` and `returns`.
            whole: its denominators.
        """
        self._root.learns_layers = self._own or not self.is_warming_up
        rows = mini.completion_mask.any(dim=1).nonzero().flatten().tolist()
        factor = 1.0 if self._own else self.settings.coefficient
        sums = torch.zeros(2, device=self._model.device)
        for indices in self._model.micro_batches([mini.rows[i] for i in rows]):
            micro = mini.part([rows[i] for i in indices])
            values = self._model.logprobs(micro.rows)
            assert micro.values is not None
            assert micro.returns is not None
            old, returns, mask = (
                t.to(values.device) for t in (micro.values, micro.returns, micro.completion_mask)
            )
            losses, clipped = value_loss(values, old, returns, mask, clip=self.settings.value_clip)
            loss = token_mean(losses, mask, tokens=whole.tokens)
            (factor * loss).backward()
            sums += torch.stack([loss.detach(), clipped.detach() / whole.tokens])
        return dict(zip(("value_loss", "value_clipped"), sums.tolist(), strict=True))

    def step(self) -> None:
        """Make an optimiser step."""
        self.optimizer.param_groups[0]["lr"] = self.lr
        self.optimizer.step()
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {
            "layers": [p.detach() for p in self._layers],
            "head": self._root.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "counts": [self.updates, self.steps],
        }

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: what `state_dict` returned.

        Raises:
            DataError: it is of a run without a critic, or with another backbone.
        """
        if state is None or len(state["layers"]) != len(self._layers):
            raise DataError(
                "this checkpoint has no critic, or one with another backbone; give a new folder"
            )
        with torch.no_grad():
            for mine, theirs in zip(self._layers, state["layers"], strict=True):
                mine.copy_(theirs)
        self._root.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates, self.steps = state["counts"]


def _twin(model: Any) -> Any:
    """A copy of a model, in which frozen weights, as beside a LoRA adapter, are the same tensors."""
    frozen = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, dict(frozen))
