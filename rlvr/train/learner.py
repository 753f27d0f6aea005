"""The update of the policy from a batch with advantages.

mini-batches ─▶ micro-batches, bucketed by length ─▶ objective × correction + KL + entropy ─▶ backward ─▶ clip ─▶ AdamW

Denominators are those of the whole mini-batch, so the gradient does not depend on how its rows are split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rlvr.algo.aggregation import Denominators, denominators
from rlvr.algo.kl import kl_loss
from rlvr.algo.ratios import RatioStats
from rlvr.algo.registry import function
from rlvr.algo.terms import entropy_bonus
from rlvr.errors import RlvrError, UsageError
from rlvr.train.config import Config
from rlvr.train.credit import Batch
from rlvr.train.policy import Policy
from rlvr.train.ranks import Ranks
from rlvr.types import Rollout

__all__ = ["Diverged", "Learner"]


class Diverged(RlvrError):
    """Losses or gradients were not finite in several mini-batches in a row; these did not change the weights."""


class Learner:
    """Policy, optimiser, learning rate schedule and, with a KL penalty, the reference policy.

    Args:
        policy: trained in place.
        config: settings of the run.
        ranks: the processes that train together, over which the policy is sharded; None for this one alone.

    Attributes:
        reference: the policy as it was given, or at the last reset: a frozen copy, or with LoRA the same weights with
            the adapter switched off; None without a KL penalty.
        updates: optimiser steps so far; the learning rate is a function of it.
        bad: mini-batches left out because a loss or gradient was not finite.

    Raises:
        UsageError: all weights are frozen.
    """

    def __init__(self, policy: Policy, config: Config, ranks: Ranks | None = None) -> None:
        self.policy, self.config = policy, config.resolve()
        self.ranks = ranks = ranks or Ranks()
        self.algorithm = self.config.algorithm
        if ranks.world > 1 and getattr(self.algorithm, "critic", None) is not None:
            raise UsageError("a critic cannot be trained on several ranks yet; start one process")
        policy.shard(ranks)  # before the optimiser, whose means are then sharded too
        self._parameters = [p for p in policy.model.parameters() if p.requires_grad]
        if not self._parameters:
            raise UsageError("every weight of this model is frozen, so nothing would be trained; unfreeze some")
        self.optimizer = self._fresh_optimizer()
        self.reference = policy.frozen() if self.algorithm.has_reference else None
        self.updates = self.bad = self._bad_in_a_row = 0

    def _fresh_optimizer(self) -> torch.optim.AdamW:
        config = self.config
        return torch.optim.AdamW(
            self._parameters,
            config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=self.policy.device.type in ("cpu", "cuda"),  # one pass over the weights instead of ten
        )

    @property
    def lr(self) -> float:
        """Learning rate of the next update: it rises over the warm-up, then follows the schedule."""
        warm = self.config.warmup_steps
        if self.updates < warm:
            return self.config.lr * (self.updates + 1) / (warm + 1)
        done = min(1.0, (self.updates - warm) / max(1, self.config.updates - warm))
        match self.config.schedule:
            case "linear":
                return self.config.lr * (1.0 - done)
            case "cosine":
                return self.config.lr * 0.5 * (1.0 + math.cos(math.pi * done))
            case _:
                return self.config.lr

    def reset(self) -> None:
        """ProRL's reset: the policy becomes the reference, and the optimiser starts afresh (arXiv:2505.24864, 2.3.1).

        The schedule of the learning rate continues.
        """
        assert self.reference is not None
        assert self.algorithm.reset is not None
        self.reference.load_state_dict(self.policy.state_dict())
        if self.algorithm.reset.optimizer:
            self.optimizer = self._fresh_optimizer()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def logprobs(self, rows: Sequence[Rollout], policy: Policy) -> Float[Tensor, "B T"]:
        """Log-probabilities of completion tokens at the training temperature, on the CPU.

        Args:
            rows: B rollouts.
            policy: the model that computes them.
        """
        return policy.logprobs(rows, self.config.temperature).float().cpu()

    def prepared(self, batch: Batch) -> Batch:
        """The batch with the log-probabilities that advantages and losses need: `old_logprobs`, `ref_logprobs`.

        Args:
            batch: as `collate` makes it.
        """
        if self.algorithm.correction is not None:
            batch = replace(batch, old_logprobs=self.logprobs(batch.rows, self.policy))
        if self.reference is not None:
            batch = replace(batch, ref_logprobs=self.logprobs(batch.rows, self.reference))
        return batch

    def update(self, batch: Batch, parts: Sequence[Sequence[int]], on_bad: Callable[[Batch], None]) -> dict[str, float]:
        """Make one optimiser step for each mini-batch that has a gradient, and return metrics for the log.

        `loss`, `grad_norm` (before it is clipped) and `kl_ref` are means over the steps; the ratio's statistics are
        over all tokens of rows with a gradient.

        Args:
            batch: with advantages, and with what `prepared` adds.
            parts: the indices of each mini-batch's rows.
            on_bad: called with each mini-batch whose loss or gradient is not finite; no step is made on it.

        Raises:
            Diverged: `config.bad_steps` mini-batches in a row were not finite.
        """
        found: list[dict[str, float]] = []
        stats: list[RatioStats] = []
        for part in parts:
            mini = batch.part(part)
            rows = self.rows_with_gradient(mini)
            if not rows:
                continue  # no gradient, and so no step: AdamW's momentum alone would still move the weights
            numbers, seen = self.backward(mini, rows)
            numbers["grad_norm"] = float(torch.nn.utils.clip_grad_norm_(self._parameters, self.config.grad_clip))
            if math.isfinite(numbers["loss"]) and math.isfinite(numbers["grad_norm"]):
                self._step()
                found.append(numbers)
                stats += seen
            else:
                self._skip(mini, on_bad)
        known = {name: [one[name] for one in found if name in one] for name in dict.fromkeys(chain(*found))}
        means = {name: sum(values) / len(values) for name, values in known.items()}
        ratios = sum(stats[1:], start=stats[0]).means() if stats else {}
        return {**means, **ratios, "updates": float(len(found)), "bad_updates": float(self.bad), "lr": self.lr}

    def _step(self) -> None:
        self.optimizer.param_groups[0]["lr"] = self.lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        self._bad_in_a_row = 0

    def _skip(self, mini: Batch, on_bad: Callable[[Batch], None]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.bad += 1
        self._bad_in_a_row += 1
        on_bad(mini)
        if self._bad_in_a_row >= self.config.bad_steps:
            raise Diverged(
                f"{self._bad_in_a_row} losses or gradients in a row were not finite, the last on {len(mini.rows)} "
                f"rollouts, which are kept in {self.config.run / 'bad'}; lower lr or grad_clip, or train in fp32"
            )

    def rows_with_gradient(self, mini: Batch) -> list[int]:
        """Indices of the rows whose gradient is not 0; only these are computed.

        Without a KL penalty in the loss and an entropy bonus, a row of advantages 0 has no gradient; it still counts
        in the denominators.

        Args:
            mini: a mini-batch.
        """
        kl = self.algorithm.kl
        every = self.algorithm.entropy != 0 or (kl is not None and kl.place == "loss")
        has_gradient = mini.completion_mask if every else mini.advantages != 0
        found: list[int] = has_gradient.any(dim=1).nonzero().flatten().tolist()
        return found

    def backward(self, mini: Batch, rows: Sequence[int]) -> tuple[dict[str, float], list[RatioStats]]:
        """Add the gradient of a mini-batch, micro-batch by micro-batch; returns the logged terms and the ratios.

        Args:
            mini: the mini-batch, whose trained tokens and rows are the denominators.
            rows: indices of the rows to compute, see `rows_with_gradient`.
        """
        whole = denominators(mini.completion_mask)
        sums: dict[str, Tensor] = {}
        stats = []
        for indices, counts in self.policy.plan([mini.rows[i] for i in rows]):
            loss, terms, seen = self._loss(_on(mini.part([rows[i] for i in indices]), self.policy.device), whole)
            (loss if counts else loss * 0.0).backward()
            stats.append(seen if counts else seen.none())
            for name, value in {"loss": loss, **terms}.items():
                sums[name] = sums.get(name, 0.0) + value.detach() * counts
        sums, stats = self._over_ranks(sums, sum(stats[1:], start=stats[0]))
        return {name: float(value) for name, value in sums.items()}, stats

    def _over_ranks(self, sums: dict[str, Tensor], stats: RatioStats) -> tuple[dict[str, Tensor], list[RatioStats]]:
        """Sums over the micro-batches of all ranks."""
        if self.ranks.world == 1:
            return sums, [stats]
        together = self.ranks.sum(torch.stack([value.double().cpu() for value in sums.values()]))
        names = [field.name for field in fields(stats)]
        added = self.ranks.sum(torch.stack([getattr(stats, name).double().cpu() for name in names]))
        found = dict(zip(names, added, strict=True))
        found["ratio_max"] = self.ranks.largest(stats.ratio_max.double().cpu())
        return dict(zip(sums, together, strict=True)), [RatioStats(**found)]

    def _loss(self, micro: Batch, whole: Denominators) -> tuple[Tensor, dict[str, Tensor], RatioStats]:
        """The micro-batch's share of the loss and of the logged terms, and the statistics of its ratios."""
        algorithm, mask, entropies = self.algorithm, micro.completion_mask, None
        if algorithm.entropy != 0:
            logprobs, entropies = self.policy.logprobs(micro.rows, self.config.temperature, with_entropy=True)
        else:
            logprobs = self.policy.logprobs(micro.rows, self.config.temperature)
        before = micro.behaviour_logprobs if micro.old_logprobs is None else micro.old_logprobs
        losses, stats = algorithm.pieces["objective"].bound(algorithm)(logprobs, before, micro.advantages, mask)
        if algorithm.correction is not None:
            # Importance weights where the sampler had older weights, or computes differently, than the trainer.
            weigh = function("correction", algorithm.correction.kind).bound(algorithm)
            losses = losses * weigh(micro.old_logprobs, micro.behaviour_logprobs, mask).weights
        terms = {}
        if algorithm.kl is not None and algorithm.kl.place == "loss":
            assert micro.ref_logprobs is not None
            kl = kl_loss(logprobs, micro.ref_logprobs, mask, estimator=algorithm.kl.estimator)
            losses = losses + algorithm.kl.coefficient * kl
            terms["kl_ref"] = kl.detach().sum() / whole.tokens
        if entropies is not None:
            losses = losses + entropy_bonus(entropies, mask, coefficient=algorithm.entropy)
        return self._aggregated(losses, mask, whole), terms, stats

    def _aggregated(self, losses: Tensor, mask: Tensor, whole: Denominators) -> Tensor:
        length = self.algorithm.length_tokens or self.config.max_tokens
        counts = {"sequences": whole.sequences, "tokens": whole.tokens, "length_tokens": length}
        aggregation = self.algorithm.pieces["aggregation"]
        loss: Tensor = aggregation.bound(self.algorithm)(losses, mask, **aggregation.given(counts))
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on; whole tensors, on ranks but the first None."""
        found: dict[str, Any] = self.ranks.whole(
            {
                "policy": self.policy.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "reference": None if self.reference is None else self.reference.state_dict(),
                "counts": [self.updates, self.bad, self._bad_in_a_row],
            }
        )
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: what `state_dict` returned.
        """
        self.policy.load_state_dict(state["policy"])
        means = self.ranks.spread(state["optimizer"]["state"], dict(enumerate(self._parameters)))
        self.optimizer.load_state_dict({**state["optimizer"], "state": means})
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])
        self.updates, self.bad, self._bad_in_a_row = state["counts"]


def _on(batch: Batch, device: torch.device) -> Batch:
    tensors = ("completion_mask", "behaviour_logprobs", "advantages", "old_logprobs", "ref_logprobs")
    moved = {name: value.to(device) for name in tensors if (value := getattr(batch, name)) is not None}
    return replace(batch, **moved)
