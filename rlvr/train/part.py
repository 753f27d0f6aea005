"""The seam of a step: what algorithms share is a part, and loop and learner
call all parts in order.

gather ─▶ extend ─▶ make_batch (before ─▶ advantages ─▶ choose) ─▶ the updates ─▶ after, end_step
per update: select ─▶ per micro-batch: weigh, penalty ─▶ backward, step, after_update
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import Float
from torch import Generator, Tensor

from rlvr.algo.aggregation import Denominators
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.ratios import RatioStats
from rlvr.collect.groups import Groups
from rlvr.train.credit import Batch
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.types import Group, Rollout

if TYPE_CHECKING:  # they call the parts
    from rlvr.train.learner import Learner
    from rlvr.train.policy import Policy

__all__ = ["ExampleMicro", "LearnerPart", "Micro", "StepRows"]


@dataclass(frozen=True, slots=True)
class StepRows:
    """What a step trains on, the same on every rank.

    Attributes:
        batch: rows with all inputs of the updates; None to skip the step.
        updates: indices of the rows of each update.
        metrics: for the log.
        why: the step is skipped; empty if it is not.
    """

    batch: Any
    updates: Sequence[Sequence[int]] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


@dataclass(slots=True)
class Micro:
    """A micro-batch while its loss is made.  B rows, T tokens.

    Attributes:
        batch: its rows, on the policy's device.
        whole: the denominators of the whole update.
        aggregate: from losses per token [B, T] to the micro-batch's share of one number.
        logprobs: under the policy, with their gradient.
        before: what ratios compare with: the trainer's before the step, or the sampler's.
        entropies: of the policy at each token, with their gradient; None where no part needs them.
        more: other inputs of the loss, by name.
        terms: the micro-batch's share of what is logged.
    """

    batch: Batch
    whole: Denominators
    aggregate: Callable[[Tensor], Tensor]
    logprobs: Float[Tensor, "B T"]
    before: Float[Tensor, "B T"]
    entropies: Float[Tensor, "B T"] | None = None
    more: Mapping[str, Tensor] = field(default_factory=dict)
    terms: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExampleMicro:
    """A micro-batch of examples, before its backward pass.  N rows: all first
    sides, then all second ones.

    Attributes:
        examples: each with its rows.
        rows: of the examples, side by side.
        logprobs: under the policy [N, T], with their gradient; None where a head gives numbers
            instead.
        ref_logprobs: under the reference; None without one.
        point: KTO's z.
        outputs: the head's numbers, one for each row, or for each step; None without a head.
        output_rows: the row of each of these, where they are of steps.
    """

    examples: Sequence[object]
    rows: Sequence[Any]
    logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    point: Tensor | None = None
    outputs: Tensor | None = None
    output_rows: Tensor | None = None


class LearnerPart:
    """One thing that algorithms share, such as a critic or a KL penalty; every method
    does nothing by default.

    A subclass has `wants` or `is_wanted`, and the methods that it needs.  Parts are called in the
    order of `rlvr.train.parts.parts_of`.

    Args:
        learner: whose part it is; `learner.algorithm` has its settings.

    Attributes:
        name: of its state in a checkpoint.
        wants: the algorithm's field that asks for it.
        regularises: whether rows of advantages 0 have a gradient by it.
        needs_entropy: whether micro-batches get entropies.
        replaces_step: whether `move` makes the policy's step, instead of AdamW.
        makes_batch: whether `make_batch` says what a step trains on; one part of a learner does.
        average: the moving average of earlier scores, of the part that keeps it; else None.
    """

    name: ClassVar[str] = ""
    wants: ClassVar[str] = ""
    replaces_step = makes_batch = False
    average: float | None = None

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        """Whether a learner's algorithm asks for the part: by default by a value in the field
        `wants`.

        Args:
            learner: with policy, config and algorithm.
        """
        return bool(getattr(learner.algorithm, cls.wants))

    @classmethod
    def shape(cls, policy: Policy, algorithm: Algorithm) -> None:
        """Give the policy what the part trains of it, before it is sharded.

        Args:
            policy: with its layers.
            algorithm: of the run.
        """

    @property
    def regularises(self) -> bool:
        return False

    @property
    def needs_entropy(self) -> bool:
        return False

    @property
    def makes_logprobs(self) -> bool:
        """Whether `logprobs` computes those of the policy, instead of the policy alone."""
        return False

    @property
    def holds_policy(self) -> bool:
        """Whether the algorithm's loss of rows with advantages is left out of this step."""
        return False

    def make_batch(self, sampled: Any, step: int) -> StepRows:
        """What a step trains on, where `makes_batch`; a call that all ranks make.

        Args:
            sampled: what the step's rows come from; None on ranks that do not collect.
            step: steps done.
        """
        raise NotImplementedError

    def gather(self, sampled: RolloutBatch, by: Groups) -> RolloutBatch:
        """A step's rollouts with what has to be sampled or asked for them; only on the rank that
        collects.

        With `max_staleness` it is called ahead of the step, in a thread.

        Args:
            sampled: at least one group.
            by: samples and scores.
        """
        return sampled

    def extend(self, sampled: RolloutBatch, step: int, by: Groups) -> RolloutBatch:
        """What a step trains on: its rollouts, and perhaps others; only on the rank that collects.

        Args:
            sampled: what was collected for the step; perhaps no group.
            step: steps done, also the version of the weights that are trained.
            by: samples and scores.
        """
        return sampled

    def choose(self, groups: Sequence[Group], batch: Batch, generator: Generator) -> Batch:
        """The batch with the rows masked that are not trained on; only on the rank that collects.

        Args:
            groups: of the batch.
            batch: with advantages.
            generator: of this step.
        """
        return batch

    def before(self, batch: Batch) -> Batch:
        """The batch with what is computed under the weights before the step.

        Args:
            batch: as `collate` makes it.
        """
        return batch

    def observe(self, groups: Sequence[Group]) -> None:
        """See a batch after its advantages were computed; only on the rank that collects.

        Args:
            groups: of the batch.
        """

    def select(self, mini: Batch) -> Batch:
        """The rows of one update, with the tokens chosen among all of them.

        Args:
            mini: the update's rows.
        """
        return mini

    def logprobs(self, micro: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Log-probabilities under the policy, where `makes_logprobs`, and other inputs of the loss
        by name.

        Args:
            micro: the rows of a micro-batch.
        """
        raise NotImplementedError

    def weigh(self, losses: Tensor, micro: Micro) -> Tensor:
        """The policy's losses per token, weighted.

        Args:
            losses: [B, T].
            micro: their micro-batch.
        """
        return losses

    def penalty(self, loss: Tensor, micro: Micro) -> Tensor:
        """The loss with a penalty added.

        Args:
            loss: the micro-batch's share of the policy's loss.
            micro: the micro-batch.
        """
        return loss

    def see_examples(self, micro: ExampleMicro) -> None:
        """See a micro-batch of pairs, labels or right completions, before its backward pass.

        Args:
            micro: the micro-batch.
        """

    def see_values(self, rows: Sequence[Rollout], values: Tensor) -> None:
        """See what a critic says of some rows, before its backward pass.

        Args:
            rows: of a micro-batch.
            values: of each token, with their gradient.
        """

    def learns(self, mini: Batch) -> bool:
        """Whether the part has something of its own to train on these rows.

        Args:
            mini: the update's rows.
        """
        return False

    def backward(self, mini: Batch) -> dict[str, float]:
        """Add the gradients of the part's own weights; returns what is logged.

        Args:
            mini: the update's rows.
        """
        return {}

    def step(self) -> None:
        """Make a step of the part's own optimiser."""

    def clear(self) -> None:
        """Forget the gradients of the part's own weights."""

    def move(self, mini: Batch, rows: Sequence[int]) -> tuple[dict[str, float], list[RatioStats]]:
        """Move the policy, where `replaces_step`; returns the logged terms, and the ratios if it
        has moved.

        Args:
            mini: the update's rows.
            rows: indices of those with a gradient.
        """
        raise NotImplementedError

    def read_terms(self, terms: dict[str, float]) -> dict[str, float]:
        """The logged terms of an update, of which some may be made of others.

        Args:
            terms: summed over the micro-batches of all ranks.
        """
        return terms

    def gradient(self, norm: float) -> None:
        """See the policy's gradient, clipped, before the optimiser's step.

        Args:
            norm: before it was clipped.
        """

    def after_skip(self, mini: Any, numbers: Mapping[str, float]) -> None:
        """See an update whose loss or gradient is not finite, on which no step is made.

        Args:
            mini: its rows.
            numbers: what it would have logged.
        """

    def after_update(self, numbers: Mapping[str, float]) -> None:
        """See an update that has moved the policy.

        Args:
            numbers: what it logs.
        """

    def after(self, batch: Batch) -> dict[str, float]:
        """What follows all updates on a batch; returns what is logged.

        Args:
            batch: the whole of it.
        """
        return {}

    def begin_at(self, step: int) -> None:
        """Know where a run continues.

        Args:
            step: steps done.
        """

    def begin_schedule(self, left: int, **others: Any) -> None:
        """Begin the schedule of the part's own learning rate again, as a stage may want it.

        Args:
            left: updates to the end of the run.
            others: those of `LrClock.begin_again`.
        """

    def end_step(self, step: int) -> None:
        """See the end of a training step.

        Args:
            step: steps done, with this one.
        """

    def reset(self) -> None:
        """Start afresh, as ProRL's reset wants it."""

    def save(self, folder: Path) -> None:
        """Write what was trained beside the model; a call that all ranks make.

        Args:
            folder: of the model.
        """

    def state(self) -> Any:
        """What the next update depends on: a tree of tensors and numbers; None for nothing."""
        return None

    def load(self, state: Any) -> None:
        """Continue from what `state` returned.

        Args:
            state: what it returned, perhaps on another number of ranks: its tensors are whole, or
                shards over these.
        """
