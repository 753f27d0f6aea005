"""The update of the policy from a batch with advantages.

mini-batches ─▶ micro-batches, bucketed by length ─▶ objective × correction + KL + entropy ─▶ backward ─▶ clip ─▶ AdamW
            └─▶ with a critic, its value loss ─▶ backward ─▶ clip ─▶ AdamW of its own

Denominators are those of the whole mini-batch, so the gradient does not depend on how its rows are split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rlvr.algo import aggregation
from rlvr.algo.advantages import moving_average
from rlvr.algo.aggregation import Denominators, denominators
from rlvr.algo.control import next_beta, next_entropy_coefficient, ziegler_beta
from rlvr.algo.corrections import composed
from rlvr.algo.kl import kl_loss
from rlvr.algo.masks import zero_masked
from rlvr.algo.objectives import Losses
from rlvr.algo.papers.base import Algorithm, Inputs, PolicyGradient
from rlvr.algo.ratios import RatioStats, log_ratio, ratio_stats
from rlvr.algo.terms import entropy_bonus, explained_variance, top_entropy
from rlvr.algo.trust_region import dual_ascent
from rlvr.display import Activity, Advance, uncounted
from rlvr.errors import RlvrError, UsageError
from rlvr.samplers.protocol import rollout_seed
from rlvr.train.config import Config
from rlvr.train.credit import Batch, totals
from rlvr.train.critic import CriticLearner
from rlvr.train.policy import Policy
from rlvr.train.ranks import Ranks
from rlvr.train.schedule import scheduled
from rlvr.train.trust_region import step_in_region
from rlvr.types import Group, Rollout

__all__ = ["Diverged", "Learner"]


class Diverged(RlvrError):
    """Losses or gradients were not finite in several mini-batches in a row; these did not change the weights."""


class Learner:
    """Policy, optimiser, learning rate schedule; with a KL penalty the reference policy, with values the critic.

    Args:
        policy: trained in place.
        config: settings of the run.
        ranks: the processes that train together, over which the policy is sharded; None for this one alone.
        activity: shows how far an update is; None for nothing.

    Attributes:
        parameters: what is trained of the policy.
        reference: the policy as it was given, or at the last reset: a frozen copy, or with LoRA the same weights with
            the adapter switched off; None without a KL penalty.
        critic: the value model; None for algorithms without one.
        algorithm: with the coefficients of the next step, where these adapt.
        average: the moving average of scores; None before the first batch, and for algorithms without one.
        last_entropy: mean entropy of the last update's tokens, where the coefficient adapts; infinity before it.
        updates: optimiser steps so far; the learning rate is a function of it.
        bad: mini-batches left out because a loss or gradient was not finite.

    Raises:
        UsageError: all weights are frozen.
    """

    def __init__(
        self,
        policy: Policy,
        config: Config,
        ranks: Ranks | None = None,
        activity: Activity | None = None,
    ) -> None:
        self.policy, self.config = policy, config.resolve()
        self._activity = activity or Activity()
        self._advance: Advance = uncounted
        self.ranks = ranks = ranks or Ranks()
        self.algorithm = self.config.algorithm
        if ranks.world > 1 and (alone := _of_one_process(self.algorithm)):
            raise UsageError(
                f"{', '.join(alone)} cannot be trained on several ranks yet; start one process"
            )
        policy.shard(ranks)  # before the optimiser, whose means are then sharded too
        self.parameters = [p for p in policy.model.parameters() if p.requires_grad]
        if not self.parameters:
            raise UsageError(
                "every weight of this model is frozen, so nothing would be trained; unfreeze some"
            )
        self.optimizer = self._fresh_optimizer()
        self.reference = policy.frozen() if self.algorithm.has_reference else None
        self.critic = None if self.algorithm.critic is None else CriticLearner(policy, self.config)
        self.average: float | None = None
        self.last_entropy = math.inf
        self.updates = self.bad = self._bad_in_a_row = 0

    def _fresh_optimizer(self) -> torch.optim.AdamW:
        config = self.config
        return torch.optim.AdamW(
            self.parameters,
            config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=self.policy.device.type
            in ("cpu", "cuda"),  # one pass over the weights instead of ten
        )

    @property
    def lr(self) -> float:
        """Learning rate of the next update."""
        config = self.config
        return scheduled(
            config.lr,
            config.schedule,
            done=self.updates,
            warmup=config.warmup_steps,
            updates=config.total_updates,
        )

    def mix(self) -> None:
        """Reference mixing: the reference takes over a share of the policy's weights (arXiv:2404.09656, eq. 1)."""
        assert self.reference is not None
        assert self.algorithm.mixing is not None
        with torch.no_grad():
            for theirs, ours in zip(
                self.reference.model.parameters(), self.policy.model.parameters(), strict=True
            ):
                theirs.lerp_(ours.detach(), self.algorithm.mixing.share)

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
        """The batch with what advantages and losses need, computed with the weights before the step.

        Log-probabilities of the trainer and of the reference, the critic's values, and which tokens have high entropy.

        Args:
            batch: as `collate` makes it.
        """
        share = self.algorithm.entropy_share
        if share < 1:
            with torch.no_grad():
                both = self.policy.logprobs(batch.rows, self.config.temperature, with_entropy=True)
            logprobs, entropies = (values.float().cpu() for values in both)
            batch = replace(batch, kept=top_entropy(entropies, batch.completion_mask, share=share))
        if self.algorithm.correction:
            old = self.logprobs(batch.rows, self.policy) if share == 1 else logprobs
            batch = replace(batch, old_logprobs=old)
        if self.reference is not None:
            batch = replace(batch, ref_logprobs=self.logprobs(batch.rows, self.reference))
        if self.critic is not None:
            values, after = self.critic.values(batch.rows)
            batch = replace(batch, values=values, bootstrap=after)
        return batch

    def observe(self, groups: Sequence[Group]) -> None:
        """Take the scores of a batch into the moving average; after its advantages were computed.

        Args:
            groups: of the batch.
        """
        if self.algorithm.baseline == "moving_average":
            self.average = moving_average(
                self.average, *totals(groups), decay=self.algorithm.baseline_decay
            )

    def update(
        self, batch: Batch, parts: Sequence[Sequence[int]], on_bad: Callable[[Batch], None]
    ) -> dict[str, float]:
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
        rows = sum(map(len, parts))
        with self._activity.task("updating, rows", rows) as self._advance:
            return self._update(batch, parts, on_bad)

    def _update(
        self, batch: Batch, parts: Sequence[Sequence[int]], on_bad: Callable[[Batch], None]
    ) -> dict[str, float]:
        found: list[dict[str, float]] = []
        stats: list[RatioStats] = []
        valued: list[dict[str, float]] = []
        moved = 0
        for part in parts:
            mini = batch.part(part)
            warming_up = self.critic is not None and self.critic.is_warming_up
            rows = [] if warming_up else self.rows_with_gradient(mini)
            if not rows and (self.critic is None or not mini.completion_mask.any()):
                continue  # no gradient, and so no step: AdamW's momentum alone would still move the weights
            region = self.algorithm.trust_region is not None
            mini = self._selected(mini)
            numbers, seen = self.backward(mini, rows) if rows and not region else ({}, [])
            if self.critic is not None:
                valued.append(self.critic.backward(mini, denominators(mini.completion_mask)))
                norm = torch.nn.utils.clip_grad_norm_(self.critic.parameters, self.config.grad_clip)
                valued[-1] |= {"critic_grad_norm": float(norm)}
            moves = any(p.grad is not None for p in self.parameters)
            if moves:
                numbers["grad_norm"] = float(
                    torch.nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip)
                )
            elif rows and region and all(map(math.isfinite, valued[-1].values() if valued else ())):
                numbers, seen = self._step_in_region(mini, rows)
            if not all(
                map(math.isfinite, (*numbers.values(), *(valued[-1].values() if valued else ())))
            ):
                self._skip(mini, on_bad)
                continue
            if self.critic is not None:
                self.critic.step()
            if moves:
                self._step()
            if moves or numbers.get("region_scale", 0.0) > 0:
                self._moved(numbers)
                moved += 1
            if numbers:
                found.append(numbers)
                stats += seen
            self._clear()
            self._bad_in_a_row = 0
        ratios = sum(stats[1:], start=stats[0]).means() if stats else {}
        numbers = _means(found) | _means(valued) | ratios
        if self.critic is not None:
            assert batch.values is not None
            assert batch.returns is not None
            self.critic.steps += 1
            numbers["explained_variance"] = explained_variance(
                batch.values, batch.returns, batch.completion_mask
            )
            numbers["critic_lr"] = self.critic.lr
        numbers |= self._adapt(batch)
        return {**numbers, "updates": float(moved), "bad_updates": float(self.bad), "lr": self.lr}

    def _adapt(self, batch: Batch) -> dict[str, float]:
        """Move the KL coefficients that adapt; returns them, and the KL that moved them."""
        numbers: dict[str, float] = {}
        for name in ("kl", "trust"):
            settings = getattr(self.algorithm, name)
            if settings is None or settings.rule == "fixed" or not batch.completion_mask.any():
                continue
            mask = batch.completion_mask
            rows = int(mask.any(dim=1).sum())
            if name == "kl":
                assert batch.ref_logprobs is not None
                measured = zero_masked(batch.behaviour_logprobs - batch.ref_logprobs, mask).sum()
            else:  # how far the step has moved the policy: only known after it
                now = self.logprobs(batch.rows, self.policy)
                measured = kl_loss(batch.behaviour_logprobs, now, mask, estimator="k3").sum()
            kl = float(measured / mask.sum())
            if settings.rule == "ppo":
                moved = next_beta(settings.coefficient, kl, target=settings.target)
            elif settings.rule == "dual":
                moved = dual_ascent(
                    settings.coefficient, kl, delta=settings.target, rate=settings.rate
                )
            else:
                kl = float(measured / rows)
                moved = ziegler_beta(
                    settings.coefficient,
                    kl,
                    target=settings.target,
                    samples=rows,
                    horizon=settings.horizon,
                )
            self.algorithm = self.algorithm.copy_with(
                **{name: replace(settings, coefficient=moved)}
            )
            numbers |= {f"{name}_coefficient": moved, f"{name}_measured": kl}
        if self.algorithm.entropy_target is not None:
            numbers["entropy_coefficient"] = self.algorithm.entropy
        return numbers

    def _step_in_region(
        self, mini: Batch, rows: Sequence[int]
    ) -> tuple[dict[str, float], list[RatioStats]]:
        """TRPO's step on a mini-batch; returns the logged terms, and the ratios after it."""
        assert self.algorithm.trust_region is not None
        whole = denominators(mini.completion_mask)
        indices = self.policy.micro_batches([mini.rows[i] for i in rows])
        micro = [_on(mini.part([rows[i] for i in part]), self.policy.device) for part in indices]
        last: list[tuple[Tensor, RatioStats]] = []

        def surrogate() -> Iterator[Tensor]:
            last.clear()
            for one in micro:
                loss, _, stats = self._loss(one, whole)
                last.append((loss.detach(), stats))
                yield -loss

        found = step_in_region(
            self.policy,
            self.parameters,
            surrogate,
            _on(mini, self.policy.device),
            self.algorithm.trust_region,
            temperature=self.config.temperature,
        )
        numbers = {
            "loss": float(sum(loss for loss, _ in last)),
            "grad_norm": found.gradient_norm,
            "region_kl": found.kl,
            "region_gain": found.gain,
            "region_scale": found.scale,
            "region_residual": found.residual,
        }
        return numbers, [stats for _, stats in last] if found.accepted else []

    def _selected(self, mini: Batch) -> Batch:
        """The mini-batch with the tokens that the algorithm selects over all of it."""
        algorithm = self.algorithm
        if "selected" not in algorithm.reads:
            return mini
        assert isinstance(algorithm, PolicyGradient)
        mask, old = mini.completion_mask, mini.old_logprobs
        known = {
            "logprobs": self.logprobs(mini.rows, self.policy),
            "old_logprobs": mini.behaviour_logprobs if old is None else old,
            "advantages": zero_masked(mini.advantages, mask),
            "mask": mask,
            "generator": torch.Generator().manual_seed(
                rollout_seed("select", self.config.seed, self.updates)
            ),
        }
        return replace(mini, selected=algorithm.select(Inputs(algorithm, known)))

    def _step(self) -> None:
        self.optimizer.param_groups[0]["lr"] = self.lr
        self.optimizer.step()

    def _moved(self, numbers: Mapping[str, float]) -> None:
        """Count an update, and let the entropy coefficient follow it."""
        self.updates += 1
        target = self.algorithm.entropy_target
        if target is not None and "entropy_now" in numbers:
            self.last_entropy = numbers["entropy_now"]
            moved = next_entropy_coefficient(
                self.algorithm.entropy,
                self.last_entropy,
                target=target.nats,
                step=target.step,
                least=target.least,
                most=target.most,
            )
            self.algorithm = self.algorithm.copy_with(entropy=moved)

    def _clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if self.critic is not None:
            self.critic.optimizer.zero_grad(set_to_none=True)

    def _skip(self, mini: Batch, on_bad: Callable[[Batch], None]) -> None:
        self._clear()
        self.bad += 1
        self._bad_in_a_row += 1
        on_bad(mini)
        if self._bad_in_a_row >= self.config.bad_steps:
            raise Diverged(
                f"{self._bad_in_a_row} losses or gradients in a row were not finite, the last on {len(mini.rows)} "
                f"rollouts, which are kept in {self.config.run / 'bad'}; lower lr or grad_clip, or train in fp32"
            )

    @property
    def _needs_entropy(self) -> bool:
        algorithm = self.algorithm
        return (
            algorithm.entropy != 0
            or algorithm.entropy_target is not None
            or "entropies" in algorithm.reads
        )

    def rows_with_gradient(self, mini: Batch) -> list[int]:
        """Indices of the rows whose gradient is not 0; only these are computed.

        Without a KL penalty in the loss, an entropy bonus or a regulariser of the algorithm's own, a row of advantages
        0 has no gradient; it still counts in the denominators.

        Args:
            mini: a mini-batch.
        """
        kl = self.algorithm.kl
        every = (
            self.algorithm.regularised
            or self._needs_entropy
            or (kl is not None and kl.place == "loss")
        )
        has_gradient = mini.completion_mask if every else mini.advantages != 0
        found: list[int] = has_gradient.any(dim=1).nonzero().flatten().tolist()
        return found

    def backward(
        self, mini: Batch, rows: Sequence[int]
    ) -> tuple[dict[str, float], list[RatioStats]]:
        """Add the gradient of a mini-batch, micro-batch by micro-batch; returns the logged terms and the ratios.

        Args:
            mini: the mini-batch, whose trained tokens and rows are the denominators.
            rows: indices of the rows to compute, see `rows_with_gradient`.
        """
        whole = denominators(mini.completion_mask)
        sums: dict[str, Tensor] = {}
        stats = []
        for indices, counts in self.policy.plan([mini.rows[i] for i in rows]):
            loss, terms, seen = self._loss(
                _on(mini.part([rows[i] for i in indices]), self.policy.device), whole
            )
            (loss if counts else loss * 0.0).backward()
            self._advance(len(indices))
            stats.append(seen if counts else seen.none())
            for name, value in {"loss": loss, **terms}.items():
                sums[name] = sums.get(name, 0.0) + value.detach() * counts
        sums, stats = self._over_ranks(sums, sum(stats[1:], start=stats[0]))
        numbers = {name: float(value) for name, value in sums.items()}
        if (
            "kl_gradient" in numbers
        ):  # squared norms with respect to log-probabilities; rows are apart, so these add
            held, moved = (
                math.sqrt(numbers.pop("kl_gradient")),
                math.sqrt(numbers.pop("policy_gradient")),
            )
            numbers["kl_share"] = held / (held + moved) if held + moved else 0.0
        return numbers, stats

    def _over_ranks(
        self, sums: dict[str, Tensor], stats: RatioStats
    ) -> tuple[dict[str, Tensor], list[RatioStats]]:
        """Sums over the micro-batches of all ranks."""
        if self.ranks.world == 1:
            return sums, [stats]
        together = self.ranks.sum(torch.stack([value.double().cpu() for value in sums.values()]))
        names = [field.name for field in fields(stats)]
        added = self.ranks.sum(torch.stack([getattr(stats, name).double().cpu() for name in names]))
        found = dict(zip(names, added, strict=True))
        found["ratio_max"] = self.ranks.largest(stats.ratio_max.double().cpu())
        return dict(zip(sums, together, strict=True)), [RatioStats(**found)]

    def _loss(
        self, micro: Batch, whole: Denominators
    ) -> tuple[Tensor, dict[str, Tensor], RatioStats]:
        """The micro-batch's share of the loss and of the logged terms, and the statistics of its ratios."""
        algorithm, mask, entropies = self.algorithm, micro.completion_mask, None
        terms: dict[str, Tensor] = {}
        if self._needs_entropy:
            logprobs, entropies = self.policy.logprobs(
                micro.rows, self.config.temperature, with_entropy=True
            )
        else:
            logprobs = self.policy.logprobs(micro.rows, self.config.temperature)
        before = micro.behaviour_logprobs if micro.old_logprobs is None else micro.old_logprobs
        inputs = self._inputs(micro, logprobs, before, entropies)
        losses, stats = self._losses(algorithm.loss(inputs), inputs)
        if micro.kept is not None:
            losses = zero_masked(losses, micro.kept)
        if algorithm.correction:
            # Importance weights where the sampler had older weights, or computes differently, than the trainer.
            assert micro.old_logprobs is not None
            policies = micro.old_logprobs, micro.behaviour_logprobs, mask
            weights, each = composed(algorithm.correction, *policies)
            losses = losses * weights
            for name, one in each.items():
                cut = one.stats.low + one.stats.high
                terms |= {
                    f"correction/{name}/weight": one.weights.sum() / whole.tokens,
                    f"correction/{name}/cut": cut / whole.tokens,
                }
        loss = self._aggregated(losses, mask, whole)
        if algorithm.kl is not None and algorithm.kl.place == "loss":
            assert micro.ref_logprobs is not None
            weigh_by = before if algorithm.kl.weighted else None
            kl = kl_loss(
                logprobs,
                micro.ref_logprobs,
                mask,
                estimator=algorithm.kl.estimator,
                behaviour_logprobs=weigh_by,
            )
            penalty = self._aggregated(algorithm.kl.coefficient * kl, mask, whole)
            terms |= {
                "kl_ref": kl.detach().sum() / whole.tokens,
                "kl_gradient": _squared_gradient(penalty, logprobs),
                "policy_gradient": _squared_gradient(loss, logprobs),
            }
            loss = loss + penalty
        if entropies is not None and (algorithm.entropy or algorithm.entropy_target is not None):
            target = algorithm.entropy_target
            coefficient = (
                algorithm.entropy if target is None or self.last_entropy <= target.nats else 0.0
            )
            loss = loss + self._aggregated(
                entropy_bonus(entropies, mask, coefficient=coefficient), mask, whole
            )
            if target is not None:
                terms["entropy_now"] = zero_masked(entropies.detach(), mask).sum() / whole.tokens
        return loss, terms, stats

    def _aggregated(self, losses: Tensor, mask: Tensor, whole: Denominators) -> Tensor:
        if self.algorithm.aggregation == "token_mean":
            return aggregation.token_mean(losses, mask, tokens=whole.tokens)
        if self.algorithm.aggregation == "sequence_mean":
            return aggregation.sequence_mean(losses, mask, sequences=whole.sequences)
        length = self.algorithm.length_tokens or self.config.max_tokens
        return aggregation.constant(losses, mask, sequences=whole.sequences, length_tokens=length)

    def _inputs(
        self, micro: Batch, logprobs: Tensor, before: Tensor, entropies: Tensor | None
    ) -> Inputs:
        """What the algorithm's loss reads of a micro-batch."""
        mask = micro.completion_mask

        def log_r() -> Tensor:
            return log_ratio(logprobs, before, mask)

        return Inputs(
            self.algorithm,
            {
                "logprobs": logprobs,
                "old_logprobs": before,
                "behaviour_logprobs": micro.behaviour_logprobs,
                "log_ratio": log_r,
                "ratio": lambda: log_r().exp(),
                "advantages": zero_masked(micro.advantages, mask),
                "mask": mask,
                "ref_logprobs": micro.ref_logprobs,
                "values": micro.values,
                "returns": micro.returns,
                "entropies": entropies,
                "selected": micro.selected,
            },
        )

    def _losses(self, found: Tensor | Losses, inputs: Inputs) -> Losses:
        """An algorithm's losses, checked, with the statistics of its ratios."""
        losses = found.losses if isinstance(found, Losses) else found
        label, shape = self.algorithm.label, inputs.logprobs.shape
        if not isinstance(losses, Tensor) or losses.shape != shape:
            given = list(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise UsageError(
                f"the loss of {label} is {given}; it must have one number per token, {list(shape)}"
            )
        if inputs.logprobs.requires_grad and not losses.requires_grad:
            raise UsageError(
                f"the loss of {label} has no gradient; compute it from inputs.logprobs or inputs.ratio"
            )
        if isinstance(found, Losses):
            return found
        return Losses(zero_masked(losses, inputs.mask), ratio_stats(inputs.log_ratio, inputs.mask))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on; whole tensors, on ranks but the first None."""
        found: dict[str, Any] = self.ranks.whole(
            {
                "policy": self.policy.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "reference": None if self.reference is None else self.reference.state_dict(),
                "counts": [self.updates, self.bad, self._bad_in_a_row],
                "critic": None if self.critic is None else self.critic.state_dict(),
                "adapted": {
                    "kl": self.algorithm.kl and self.algorithm.kl.coefficient,
                    "trust": self.algorithm.trust and self.algorithm.trust.coefficient,
                    "entropy": self.algorithm.entropy,
                    "last_entropy": self.last_entropy,
                    "average": self.average,
                },
            }
        )
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: what `state_dict` returned.
        """
        self.policy.load_state_dict(state["policy"])
        means = self.ranks.spread(state["optimizer"]["state"], dict(enumerate(self.parameters)))
        self.optimizer.load_state_dict({**state["optimizer"], "state": means})
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])
        self.updates, self.bad, self._bad_in_a_row = state["counts"]
        if self.critic is not None:
            self.critic.load_state_dict(state.get("critic"))
        if (adapted := state.get("adapted")) is not None:  # runs of 0.1 had nothing that adapts
            for name in ("kl", "trust"):
                if (settings := getattr(self.algorithm, name)) is not None:
                    changed = replace(settings, coefficient=adapted[name])
                    self.algorithm = self.algorithm.copy_with(**{name: changed})
            if self.algorithm.entropy_target is not None:
                self.algorithm = self.algorithm.copy_with(entropy=adapted["entropy"])
            self.last_entropy, self.average = adapted["last_entropy"], adapted["average"]


def _of_one_process(algorithm: Algorithm) -> list[str]:
    """The settings of an algorithm whose state one process holds."""
    adapts = algorithm.kl is not None and algorithm.kl.rule != "fixed"
    found = {
        "a critic": algorithm.critic is not None,
        "an adaptive KL coefficient": adapts or algorithm.trust is not None,
        "entropy_target": algorithm.entropy_target is not None,
        "entropy_share": algorithm.entropy_share < 1,
        "subset": algorithm.subset is not None,
        "mixing": algorithm.mixing is not None,
        "a moving average": algorithm.baseline == "moving_average",
        "trust_region": algorithm.trust_region is not None,
    }
    return [name for name, here in found.items() if here]


def _squared_gradient(loss: Tensor, logprobs: Tensor) -> Tensor:
    """|∂loss / ∂logprobs|²: cheap, as it stops before the model."""
    [gradient] = torch.autograd.grad(loss, logprobs, retain_graph=True, allow_unused=True)
    return logprobs.new_zeros(()) if gradient is None else gradient.square().sum()


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number over the updates that have it."""
    known = {name: [one[name] for one in found if name in one] for one in found for name in one}
    return {name: sum(values) / len(values) for name, values in known.items()}


def _on(batch: Batch, device: torch.device) -> Batch:
    return replace(batch, **{name: values.to(device) for name, values in batch.tensors().items()})
