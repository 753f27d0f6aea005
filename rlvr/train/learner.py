"""The update of the policy from a batch with advantages.

before ─▶ per update: micro-batches, bucketed by length ─▶ loss and penalties
  ─▶ backward ─▶ clip ─▶ AdamW ─▶ after

What algorithms share, such as KL, critic and corrections, are parts (`rlvr.train.parts`); the
learner calls them and names none.  Denominators are those of the whole update, so the gradient does
not depend on how its rows are split.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from rich.console import RenderableType
from torch import Tensor

from rlvr.algo.aggregation import Denominators, aggregate, denominators
from rlvr.algo.masks import zero_masked
from rlvr.algo.objectives import Losses
from rlvr.algo.papers.base import Inputs
from rlvr.algo.ratios import RatioStats, log_ratio, ratio_stats
from rlvr.display import Activity, Advance, uncounted
from rlvr.errors import DataError, RlvrError, UsageError
from rlvr.train.config import Config, ResolvedConfig
from rlvr.train.credit import Batch
from rlvr.train.part import LearnerPart, Micro
from rlvr.train.parts import parts_of, shape_policy
from rlvr.train.policy import Policy
from rlvr.train.ranks import Ranks
from rlvr.train.schedule import LrClock, scheduled_rate
from rlvr.types import Rollout, StateDict

__all__ = ["Diverged", "Learner", "ignore"]

_P = TypeVar("_P", bound=LearnerPart)


def ignore(mini: object) -> None:
    """Nothing: every bad mini-batch is in a file anyway, see `rlvr.train.step_recorder`."""


class Diverged(RlvrError):
    """Losses or gradients were not finite in several mini-batches in a row; these
    did not change the weights."""


class Learner:
    """Policy, optimiser, learning rate schedule, and the parts that the algorithm asks for.

    Args:
        policy: trained in place.
        config: settings of the run.
        ranks: the processes that train together, over which the policy is sharded; None for this
            one alone.
        activity: shows how far an update is; None for nothing.
        say: prints a line, or a table.

    Attributes:
        parameters: what is trained of the policy.
        parts: of the algorithm, in the order in which they are called.
        algorithm: with the coefficients of the next step, where these adapt.
        updates: optimiser steps so far; the learning rate is a function of it.
        bad: mini-batches left out because a loss or gradient was not finite.

    Raises:
        UsageError: all weights are frozen, or a part cannot be on several ranks.
    """

    def __init__(
        self,
        policy: Policy,
        config: Config,
        ranks: Ranks | None = None,
        activity: Activity | None = None,
        say: Callable[[RenderableType], None] = ignore,
    ) -> None:
        self.policy, self.config, self.say = policy, config.resolve(), say
        self._activity = activity or Activity()
        self._advance: Advance = uncounted
        self.ranks = ranks = ranks or Ranks()
        self.algorithm = self.config.algorithm
        shape_policy(policy, self.algorithm)
        # Before the optimiser, whose means are then sharded too;
        # but shards have no second derivatives.
        policy.shard(ranks, whole=self.algorithm.trust_region is not None)
        self.parameters = [p for p in policy.root.parameters() if p.requires_grad]
        if not self.parameters:
            raise UsageError(
                "every weight of this model is frozen, so nothing would be trained; unfreeze some"
            )
        self.optimizer = self.fresh_optimizer()
        self.updates = self.bad = self._bad_in_a_row = 0
        self._clock = LrClock(self.config.total_updates, self.config.warmup_steps)
        self._take_parts(parts_of(self))

    def _take_parts(self, parts: list[LearnerPart]) -> None:
        self.parts = parts
        self._mover = next((part for part in self.parts if part.replaces_step), None)
        self._reader = next((part for part in self.parts if part.makes_logprobs), None)
        self._maker = next(part for part in self.parts if part.makes_batch)
        self._needs_entropy = any(part.needs_entropy for part in self.parts)

    def part(self, kind: type[_P]) -> _P | None:
        """The part of a kind; None if the algorithm has none.

        Args:
            kind: its class.
        """
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def fresh_optimizer(self) -> torch.optim.AdamW:
        """AdamW over the trained parameters, without moments."""
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
        return scheduled_rate(self.config.lr, self.config.schedule, self._clock, self.updates)

    @property
    def temperature(self) -> float:
        """At which losses read log-probabilities."""
        return self.algorithm.loss_temperature(self.config.temperature)

    def begin_at(self, step: int) -> None:
        """Let the parts know where a run continues.

        Args:
            step: steps done.
        """
        for part in self.parts:
            part.begin_at(step)

    def end_step(self, step: int) -> None:
        """Let the parts see the end of a training step.

        Args:
            step: steps done, with this one.
        """
        for part in self.parts:
            part.end_step(step)

    def change(self, config: ResolvedConfig) -> None:
        """Go on with other settings; what adapts stays as it is, unless these say otherwise.

        Args:
            config: settings of the next step.
        """
        self.algorithm = _keep_adapted(self.algorithm, self.config.algorithm, config.algorithm)
        self.config = config
        self._take_parts(parts_of(self, self.parts))

    def begin_schedule(self, left_steps: int, **others: Any) -> None:
        """Begin the learning rate's schedule again, as a stage may want it.

        Args:
            left_steps: steps that are left of the run.
            others: those of `LrClock.begin_again`.
        """
        # In updates, which is what the schedule counts; batches that are not full make fewer.
        left = left_steps * self.algorithm.epochs * self.config.updates_per_batch
        self._clock = self._clock.begin_again(self.updates, left, **others)
        for part in self.parts:
            part.begin_schedule(left, **others)

    def reset(self) -> None:
        """Let the parts start afresh: ProRL's reset (arXiv:2505.24864, 2.3.1).

        The schedule of the learning rate continues.
        """
        for part in self.parts:
            part.reset()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def logprobs(self, rows: Sequence[Rollout], policy: Policy) -> Float[Tensor, "B T"]:
        """Log-probabilities of completion tokens at the losses' temperature, on the CPU.

        Args:
            rows: B rollouts.
            policy: the model that computes them.
        """
        # float32 on the CPU: a batch's columns are kept
        # for the whole step, beside the device's memory.
        return policy.logprobs(rows, self.temperature).float().cpu()

    def prepared(self, batch: Batch) -> Batch:
        """The batch with what advantages and losses need, computed with the weights before the
        step.

        Args:
            batch: as `collate` makes it.
        """
        for part in self.parts:
            batch = part.before(batch)
        return batch

    def learn(self, sampled: object, step: int) -> dict[str, float]:
        """Make the updates of a step, and return metrics for the log.  All ranks make this call.

        Args:
            sampled: what the step's rows come from; None on ranks that do not collect.
            step: steps done.

        Raises:
            Diverged: `config.bad_steps` mini-batches in a row were not finite.
        """
        started = time.perf_counter()
        rows = self._maker.make_batch(sampled, step)
        # Every rank has the same batch, so either all skip the step or none.
        if rows.batch is None:
            self.say(f"step {step + 1} is skipped: {rows.why}")
            return {**rows.metrics, "skipped": 1.0, "updates": 0.0, "lr": self.lr}
        prepared = time.perf_counter()
        numbers = self.update(rows.batch, rows.updates)
        times = {"prepare_s": prepared - started, "update_s": time.perf_counter() - prepared}
        return {**rows.metrics, **numbers, **times}

    def update(
        self,
        batch: Batch,
        parts: Sequence[Sequence[int]],
        on_bad: Callable[[Batch], None] = ignore,
    ) -> dict[str, float]:
        """Make one optimiser step for each mini-batch that has a gradient, and return metrics for
        the log.

        `loss`, `grad_norm` (before it is clipped) and what parts log of a step are means over the
        steps; the ratio's statistics are over all tokens of rows with a gradient.

        Args:
            batch: with advantages, and with what `prepared` adds.
            parts: the indices of each mini-batch's rows.
            on_bad: called with each mini-batch whose loss or gradient is not finite; no step is
                made on it.

        Raises:
            Diverged: `config.bad_steps` mini-batches in a row were not finite.
        """
        logged: list[dict[str, float]] = []
        # Ratios of tokens are summed over updates and divided
        # once: updates differ in their number of tokens.
        stats: list[RatioStats] = []
        moved = 0
        with self._activity.task("updating, rows", sum(map(len, parts))) as self._advance:
            for rows in parts:
                update = self._one_update(batch.part(rows), on_bad)
                if update is None:
                    continue
                numbers, ratio_stats, has_moved = update
                moved += has_moved
                if numbers:
                    logged.append(numbers)
                    stats += ratio_stats
            numbers = _means(logged) | (sum(stats[1:], start=stats[0]).means() if stats else {})
            for part in self.parts:
                numbers |= part.after(batch)
        return {**numbers, "updates": float(moved), "bad_updates": float(self.bad), "lr": self.lr}

    def _one_update(
        self, mini: Batch, on_bad: Callable[[Batch], None]
    ) -> tuple[dict[str, float], list[RatioStats], bool] | None:
        """What an update logs, its ratios, and whether it moved the policy; None for one that was
        left out."""
        held = any(part.holds_policy for part in self.parts)
        # While a critic warms up the policy's rows are not computed at all.
        rows = [] if held else self.rows_with_gradient(mini)
        learning = [part for part in self.parts if part.learns(mini)]
        if not rows and not learning:
            # no gradient, and so no step: AdamW's momentum alone would still move the weights
            return None
        for part in self.parts:
            mini = part.select(mini)
        numbers, ratio_stats = (
            self.backward(mini, rows) if rows and self._mover is None else ({}, [])
        )
        part_metrics: dict[str, float] = {}
        for part in learning:
            part_metrics |= part.backward(mini)
        # A mover (trust region) sets weights itself; then no gradient stands here.
        moves = any(p.grad is not None for p in self.parameters)
        if moves:
            # Before gradients are known to be finite; if the norm is not, no step is made below.
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip)
            numbers["grad_norm"] = float(norm)
            for part in self.parts:
                part.gradient(float(norm))
        elif rows and self._mover is not None and all(map(math.isfinite, part_metrics.values())):
            numbers, ratio_stats = self._mover.move(mini, rows)
        numbers |= part_metrics
        # After the backward passes of all ranks: each has the same numbers, so that either all
        # skip or none does.
        if not all(map(math.isfinite, numbers.values())):
            for part in self.parts:
                part.after_skip(mini, numbers)
            self._skip(mini, on_bad)
            return None
        for part in learning:
            part.step()
        if moves:
            # From the number of updates, not of calls: a skipped
            # update takes no part of the schedule.
            self.optimizer.param_groups[0]["lr"] = self.lr
            self.optimizer.step()
        if has_moved := moves or (self._mover is not None and bool(ratio_stats)):
            self.updates += 1
            for part in self.parts:
                part.after_update(numbers)
        self._clear()
        self._bad_in_a_row = 0
        return numbers, ratio_stats, has_moved

    def _clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for part in self.parts:
            part.clear()

    def _skip(self, mini: Batch, on_bad: Callable[[Batch], None]) -> None:
        self._clear()
        self.bad += 1
        self._bad_in_a_row += 1
        on_bad(mini)
        if self._bad_in_a_row >= self.config.bad_steps:
            spec = self.algorithm.spec
            check = f", or see rlvr algorithms {spec} --check" if spec else ""
            raise Diverged(
                f"{self._bad_in_a_row} losses or gradients in a row were not finite, the last on "
                f"{len(mini.rows)} rollouts, which are kept in {self.config.run / 'steps'}; lower "
                f"lr or grad_clip, or train in fp32{check}"
            )

    def rows_with_gradient(self, mini: Batch) -> list[int]:
        """Indices of the rows whose gradient is not 0; only these are computed.

        Where nothing regularises, a row of advantages 0 has no gradient; it still counts in the
        denominators.

        Args:
            mini: a mini-batch.
        """
        every = any(part.regularises or part.needs_entropy for part in self.parts)
        has_gradient = mini.completion_mask if every else mini.advantages != 0
        indices: list[int] = has_gradient.any(dim=1).nonzero().flatten().tolist()
        return indices

    def backward(
        self, mini: Batch, rows: Sequence[int]
    ) -> tuple[dict[str, float], list[RatioStats]]:
        """Add the gradient of a mini-batch, micro-batch by micro-batch; returns the logged terms
        and the ratios.

        Args:
            mini: the mini-batch, whose trained tokens and rows are the denominators.
            rows: indices of the rows to compute, see `rows_with_gradient`.
        """
        # Of the whole update: rows without gradient count too,
        # or leaving them out would change the others' weight.
        totals = denominators(mini.completion_mask, mini.group)

        def loss(indices: Sequence[int]) -> tuple[Tensor, dict[str, Tensor], RatioStats]:
            return self.loss(mini.part([rows[i] for i in indices]), totals)

        # Micro-batches are planned over rows with a gradient alone; `indices` count these.
        return self.add_gradients(self.policy.plan([mini.rows[i] for i in rows]), loss)

    def add_gradients(
        self,
        plan: Iterable[tuple[Sequence[int], bool]],
        loss_of: Callable[[Sequence[int]], tuple[Tensor, dict[str, Tensor], RatioStats | None]],
    ) -> tuple[dict[str, float], list[RatioStats]]:
        """Go backward through micro-batches; returns the logged terms and the ratios of all ranks.

        Args:
            plan: of this rank: (indices, whether they count), see `Ranks.plan`.
            loss_of: of a micro-batch its share of the loss and of the terms, and its ratios; None
                where there are none.
        """
        sums: dict[str, Tensor] = {}
        stats = list[RatioStats]()
        for indices, counts in plan:
            loss, terms, micro_stats = loss_of(indices)
            # A rank with fewer micro-batches makes passes that do not count, since shards are
            # gathered in every pass; times 0, as the backward pass gathers too.
            (loss if counts else loss * 0.0).backward()
            self._advance(len(indices))
            if micro_stats is not None:
                stats.append(micro_stats if counts else micro_stats.none())
            for name, value in {"loss": loss, **terms}.items():
                sums[name] = sums.get(name, 0.0) + value.detach() * counts
        sums, stats = self._over_ranks(sums, [sum(stats[1:], start=stats[0])] if stats else [])
        numbers = {name: float(value) for name, value in sums.items()}
        for part in self.parts:
            numbers = part.read_terms(numbers)
        return numbers, stats

    def _over_ranks(
        self, sums: dict[str, Tensor], stats: list[RatioStats]
    ) -> tuple[dict[str, Tensor], list[RatioStats]]:
        """Sums over the micro-batches of all ranks."""
        if self.ranks.world == 1:
            return sums, stats
        # One message for all terms.  In float64, as sums of float32 would differ in the last
        # digits from those of one rank.
        # Terms stand in the order in which they were first added, the same on every rank.
        together = self.ranks.sum(torch.stack([value.double().cpu() for value in sums.values()]))
        return dict(zip(sums, together, strict=True)), [
            self.join_stats(rank_stats) for rank_stats in stats
        ]

    def join_stats(self, stats: RatioStats) -> RatioStats:
        """Statistics of the tokens of all ranks.

        Args:
            stats: of this rank's.
        """
        names = [field.name for field in fields(stats)]
        added = self.ranks.sum(torch.stack([getattr(stats, name).double().cpu() for name in names]))
        added_by_name = dict(zip(names, added, strict=True))
        # The only one that is no sum.
        added_by_name["ratio_max"] = self.ranks.largest(stats.ratio_max.double().cpu())
        return RatioStats(**added_by_name)

    def loss(
        self, mini: Batch, whole: Denominators
    ) -> tuple[Tensor, dict[str, Tensor], RatioStats]:
        """The micro-batch's share of the loss and of the logged terms, and the statistics of its
        ratios.

        Args:
            mini: the rows of a micro-batch.
            whole: the denominators of the update.
        """
        batch, temperature = mini.on(self.policy.device), self.temperature
        entropies, mask = None, batch.completion_mask
        reader_values: dict[str, Tensor] = {}
        if self._reader is not None:
            logprobs, reader_values = self._reader.logprobs(batch)
        elif self._needs_entropy:
            logprobs, entropies = self.policy.logprobs(batch.rows, temperature, with_entropy=True)
        else:
            logprobs = self.policy.logprobs(batch.rows, temperature)
        # Of the ratio's denominator, which is fixed while the batch is trained on.
        before = batch.ratio_logprobs
        share = partial(
            aggregate,
            completion_mask=mask,
            whole=whole,
            rule=self.algorithm.aggregation,
            length_tokens=self.algorithm.length_tokens,
            max_tokens=self.config.max_tokens,
            group=batch.group,
        )
        micro = Micro(batch, whole, share, logprobs, before, entropies, reader_values)
        inputs = self._inputs(batch, logprobs, before, entropies, reader_values)
        # First per token, then weighed by parts (corrections, masks), then one number.
        losses, stats = self._losses(self.algorithm.loss(inputs), inputs)
        for part in self.parts:
            losses = part.weigh(losses, micro)
        # A share: summed over micro-batches and ranks it is
        # the update's loss, so no further division follows.
        loss = share(losses)
        for part in self.parts:
            loss = part.penalty(loss, micro)
        return loss, micro.terms, stats

    def _inputs(
        self,
        micro: Batch,
        logprobs: Tensor,
        before: Tensor,
        entropies: Tensor | None,
        more: Mapping[str, Tensor],
    ) -> Inputs:
        """What the algorithm's loss reads of a micro-batch."""
        mask = micro.completion_mask

        def log_r() -> Tensor:
            # A function: algorithms that read no ratio do not pay for it.
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
                "teacher_logprobs": micro.teacher_logprobs,
                "values": micro.values,
                "returns": micro.returns,
                "entropies": entropies,
                "selected": micro.selected,
                **more,
            },
        )

    def _losses(self, found: Tensor | Losses, inputs: Inputs) -> Losses:
        """An algorithm's losses, checked, with the statistics of its ratios."""
        losses = found.losses if isinstance(found, Losses) else found
        label, shape = self.algorithm.label, inputs.logprobs.shape
        if not isinstance(losses, Tensor) or losses.shape != shape:
            shape_text = list(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise UsageError(
                f"the loss of {label} is {shape_text}; it must have one number per token, "
                f"{list(shape)}"
            )
        # Without gradients (an evaluation of the loss) there is none to ask for.
        if inputs.logprobs.requires_grad and not losses.requires_grad:
            raise UsageError(
                f"the loss of {label} has no gradient; compute it from inputs.logprobs or "
                f"inputs.ratio"
            )
        if isinstance(found, Losses):
            return found
        return Losses(zero_masked(losses, inputs.mask), ratio_stats(inputs.log_ratio, inputs.mask))

    def save(self, folder: Path) -> None:
        """Write what was trained.  All ranks make this call.

        Args:
            folder: where it goes; it is made.
        """
        self.policy.save(folder)
        for part in self.parts:
            part.save(folder)

    def state_dict(self) -> StateDict:
        """Everything that the next update depends on; on several ranks sharded tensors are
        shards."""
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            # Bad updates too: a resumed run ends after as many of them in a row.
            "counts": [self.updates, self.bad, self._bad_in_a_row],
            "clock": asdict(self._clock),
            "steps": self.config.steps,
            "parts": {part.name: part.state() for part in self.parts if part.name},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: what `state_dict` returned.

        Raises:
            DataError: it lacks a part that the algorithm has.
        """
        self.policy.load_state_dict(state["policy"])
        # After the policy's: the optimiser's shards are laid out like its parameters.
        self.ranks.load_optimizer(self.optimizer, state["optimizer"], self.parameters)
        self.updates, self.bad, self._bad_in_a_row = state["counts"]
        clock = LrClock(**state["clock"])
        per_step = self.algorithm.epochs * self.config.updates_per_batch
        extra_updates = (
            self.config.steps - state["steps"]
        ) * per_step  # a resumed run may be longer
        self._clock = replace(clock, left=clock.left + extra_updates)
        saved_parts = state["parts"]
        for part in self.parts:
            if part.name and part.name not in saved_parts:
                raise DataError(f"this checkpoint has no {part.name}; give a new folder")
            if part.name:
                part.load(saved_parts[part.name])


def _keep_adapted(running: Any, before: Any, after: Any) -> Any:
    """An algorithm, or a part of it, with other settings: a number that has moved from where its
    setting was, such as an adaptive β, stays where that setting is the same.

    Args:
        running: with the numbers of now.
        before, after: as the settings had it, and have it.
    """
    kept = {}
    for number in fields(running):
        now, old, new = (getattr(one, number.name) for one in (running, before, after))
        if old == new:
            kept[number.name] = now
        elif is_dataclass(now) and type(now) is type(old) is type(new):
            kept[number.name] = _keep_adapted(now, old, new)
    return replace(after, **kept)


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number over the updates that have it."""
    by_name = {
        name: [metrics_of_update[name] for metrics_of_update in found if name in metrics_of_update]
        for metrics in found
        for name in metrics
    }
    return {name: sum(values) / len(values) for name, values in by_name.items()}
