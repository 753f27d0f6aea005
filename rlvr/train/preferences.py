"""The update from preferences: pairs of completions, labelled completions, or
right completions alone.

examples of a step ─▶ mini-batches ─▶ micro-batches ─▶ log-probabilities ─▶ gains
  ─▶ loss of each example ─▶ backward

Examples come from the groups that a collector has sampled, or from a file.  Denominators are those
of the whole mini-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.objectives import Losses
from rlvr.algo.papers.base import Algorithm, Inputs
from rlvr.algo.preferences import gains, kto_reference_point, negative_log_likelihood, weighted_mean
from rlvr.data.overlap import digest_of
from rlvr.data.pairs import (
    Candidate,
    PairReport,
    PairRules,
    draw,
    draw_labelled,
    draw_right,
    read_labelled,
    read_pairs,
    read_steps,
)
from rlvr.errors import DataError, UsageError
from rlvr.samplers.protocol import rollout_seed
from rlvr.samplers.tokenization import Tokenization
from rlvr.train.batches import buckets
from rlvr.train.part import ExampleMicro, LearnerPart, StepRows
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.train.teacher import Reference
from rlvr.train.trained_rows import TrainedRow, step_row, tokenized
from rlvr.train.update_sizes import LEAST_GROUPS
from rlvr.types import Group, JsonDict, Outcome, Rollout

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = [
    "Example",
    "ExampleLosses",
    "Examples",
    "Totals",
    "examples_of_file",
    "examples_of_groups",
    "mismatch_rows",
]


@dataclass(frozen=True, slots=True)
class Example:
    """What one loss is computed from.

    Attributes:
        rows: (chosen, rejected) of a pair; a single row otherwise.
        right: whether the first row is right.
        weight: in the mean over examples, above 0.
        margin: for reward models.
        steps: for process reward models: (tokens up to the step's end, right continuations,
            continuations) of each.
    """

    rows: tuple[TrainedRow, ...]
    right: bool = True
    weight: float = 1.0
    margin: float = 0.0
    steps: tuple[tuple[int, float, float], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of all rows, with their prompts."""
        return sum(len(row.prompt_ids) + len(row.completion_ids) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Examples:
    """The examples of a step, or of a mini-batch: what `Batch` is for advantages.

    Attributes:
        rows: the examples.
    """

    rows: Sequence[Example]

    def part(self, indices: Sequence[int]) -> Examples:
        """Some of the examples.

        Args:
            indices: which.
        """
        return Examples([self.rows[i] for i in indices])


class ExampleLosses(LearnerPart):
    """Losses of `rlvr.algo.preferences`, instead of one of rows with advantages."""

    makes_batch = holds_policy = True

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        algorithm = learner.algorithm
        return algorithm.examples is not None and "head" not in algorithm.needs

    def make_batch(self, sampled: Examples | RolloutBatch | None, step: int) -> StepRows:
        learner, metrics = self.learner, dict[str, float]()
        config, examples = learner.config, sampled
        if isinstance(sampled, RolloutBatch):
            examples_drawn = examples_of_groups(
                sampled.groups, learner.algorithm, config.seed, step
            )
            examples, metrics = examples_drawn[0], examples_drawn[1].metrics()
        shared = learner.ranks.from_first(examples)
        assert isinstance(shared, Examples)
        # One that comes twice, at the end of a pass, is two: parts tell examples apart.
        batch = Examples([replace(example) for example in shared.rows])
        n = len(batch.rows)
        if not n:
            why = "no group has completions that could be preferred"
            return StepRows(None, metrics=metrics, why=why)
        generator = torch.Generator().manual_seed(rollout_seed("minibatches", config.seed, step))
        # Examples are groups here; a smaller batch makes fewer updates.
        count = max(1, min(config.updates, n // LEAST_GROUPS))
        ends = [n * (i + 1) // count for i in range(count)]
        updates: list[list[int]] = []
        for _ in range(learner.algorithm.epochs):
            order = list(range(n))
            if count > 1:
                order = torch.randperm(n, generator=generator).tolist()
            updates += [order[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        return StepRows(batch, updates, metrics)

    def learns(self, mini: Any) -> bool:
        return True

    def backward(self, mini: Any) -> dict[str, float]:
        """Add the gradient of a mini-batch, micro-batch by micro-batch; returns the logged terms.

        Args:
            mini: `Examples`, whose weights and tokens are the denominators.
        """
        examples: Sequence[Example] = mini.rows
        totals = Totals.of(examples)
        needs_point = "reference_point" in self.learner.algorithm.reads
        point = self._reference_point(examples) if needs_point else None

        def loss(indices: Sequence[int]) -> tuple[Tensor, dict[str, Tensor], None]:
            return *self._micro_loss([examples[i] for i in indices], totals, point), None

        plan = self.learner.ranks.plan([example.tokens for example in examples], self.micro_batches)
        return self.learner.add_gradients(plan, loss)[0]

    def micro_batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Indices of the examples in each micro-batch; the rows of an example are never apart.

        Args:
            lengths: tokens of each example.
        """
        policy = self.learner.policy
        limits = {"max_tokens": policy.max_tokens, "overhead_tokens": policy.overhead_tokens}
        return buckets(lengths, **limits)

    def _micro_loss(
        self, examples: Sequence[Example], whole: Totals, point: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The micro-batch's share of the loss and of the logged terms."""
        rows, weights, right = self._side_by_side(examples)
        n, mask = len(examples), self._mask(rows)
        logprobs = self._logprobs(rows)
        inputs = {
            "logprobs": logprobs,
            "mask": mask,
            "reference_point": point,
            "right": right,
        }
        terms: dict[str, Tensor] = {}
        before = self._reference_logprobs(rows)
        self._show(ExampleMicro(examples, rows, logprobs, before, point))
        if before is not None:
            h = gains(logprobs, before, mask, length=self.learner.algorithm.length)
            # Gain: log π - log π_ref of a row, summed or a mean over tokens as the algorithm says.
            inputs |= {"gain": h, "chosen": h[:n], "rejected": h[n:]}
            terms |= whole.means("gain", h.detach(), weights, right)
        losses = self._example_losses(inputs)
        # Of first rows, which are the right ones of pairs.
        nll = negative_log_likelihood(logprobs[:n], mask[:n]).sum(dim=1)
        if losses.dim() == 2:  # one per token: a mean over tokens, as for language models
            loss = weighted_mean(losses.sum(dim=1), weights, total=whole.tokens)
        else:
            loss = weighted_mean(losses, weights, total=whole.weight)
        if self.learner.algorithm.sft_weight:
            loss = loss + self.learner.algorithm.sft_weight * weighted_mean(
                nll, weights, total=whole.tokens
            )
        # With wrong completions among them a mean likelihood says nothing.
        if not whole.wrong:
            terms["nll"] = weighted_mean(nll.detach(), weights, total=whole.tokens)
        summed = torch.where(mask, logprobs.detach(), 0.0).sum(dim=1)
        return loss, terms | whole.means("logprob", summed, weights, right)

    def _side_by_side(self, examples: Sequence[Example]) -> tuple[list[TrainedRow], Tensor, Tensor]:
        """All first rows and then all second ones; each example's weight,
        and whether it is right."""
        rows = [
            row
            for side in zip(*(example.rows for example in examples), strict=True)
            for row in side
        ]
        device = self.learner.policy.device
        weights = torch.tensor([example.weight for example in examples], device=device)
        return rows, weights, torch.tensor([example.right for example in examples], device=device)

    def _example_losses(self, inputs: Mapping[str, object]) -> Tensor:
        """The algorithm's losses: one per example, or one per token."""
        result = self.learner.algorithm.loss(Inputs(self.learner.algorithm, inputs))
        return result.losses if isinstance(result, Losses) else result

    def _show(self, micro: ExampleMicro) -> None:
        for part in self.learner.parts:
            part.see_examples(micro)

    def _logprobs(self, rows: Sequence[TrainedRow]) -> Float[Tensor, "N T"]:
        return self.learner.policy.logprobs(rows, self.learner.temperature)

    def _reference_logprobs(self, rows: Sequence[TrainedRow]) -> Tensor | None:
        """With gradients on, or off: as `Policy.logprobs`, which on several ranks computes the rows
        of this one, or those of all."""
        reference = self.learner.part(Reference)
        if reference is None:
            return None
        return reference.policy.logprobs(rows, self.learner.temperature).detach()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _reference_point(self, examples: Sequence[Example]) -> Tensor:
        """KTO's z: from each prompt of the mini-batch with a completion of another prompt; 0 if
        there is one prompt."""
        # First rows: KTO has one for each example.
        rows = [example.rows[0] for example in examples]
        partners = mismatch_rows([row.prompt_ids for row in rows])
        mixed = [
            TrainedRow(row.prompt_ids, rows[i].completion_ids, rows[i].completion_mask)
            # `zip` to the shorter: no partners where all prompts are the same.
            for row, i in zip(rows, partners, strict=False)
        ]
        if not mixed:
            return torch.zeros((), device=self.learner.policy.device)
        before = self._reference_logprobs(mixed)
        assert before is not None
        length = self.learner.algorithm.length
        return kto_reference_point(
            gains(self._logprobs(mixed), before, self._mask(mixed), length=length)
        )

    def _mask(self, rows: Sequence[TrainedRow]) -> Bool[Tensor, "N T"]:
        width = max(len(row.completion_ids) for row in rows)
        padded = [
            [*row.completion_mask, *[False] * (width - len(row.completion_mask))] for row in rows
        ]
        return torch.tensor(padded, device=self.learner.policy.device)


def mismatch_rows(prompts: Sequence[Sequence[int]]) -> list[int]:
    """For each row the index of a row with another prompt; empty if all rows have one prompt.

    Every row is taken once, unless more than half of the rows share a prompt: then the other rows
    are taken in turns.

    Args:
        prompts: the prompt of each row, in tokens.
    """
    places: dict[tuple[int, ...], list[int]] = {}
    for i, prompt in enumerate(prompts):
        places.setdefault(tuple(prompt), []).append(i)
    if len(places) < 2:
        return []
    largest = max(map(len, places.values()))
    order = [i for rows in places.values() for i in rows]
    partner = [0] * len(order)
    if 2 * largest <= len(order):  # with prompts side by side, so great a shift leaves each prompt
        for k, i in enumerate(order):
            partner[i] = order[(k + largest) % len(order)]
        return partner
    for rows in places.values():
        same_prompt = set(rows)
        candidates = [i for i in order if i not in same_prompt]
        # In turns, so that no other row is taken much more often.
        for k, i in enumerate(rows):
            partner[i] = candidates[k % len(candidates)]
    return partner


class Totals(NamedTuple):
    """Denominators of a mini-batch.

    Attributes:
        weight: sum of the examples' weights.
        tokens: trained tokens of the first rows, each times its example's weight.
        right, wrong: sums of the weights of examples whose first row is right, or wrong.
        pairs: whether the examples are pairs.
        counts: continuations of all steps, times their example's weight.
    """

    weight: float
    tokens: float
    right: float
    wrong: float
    pairs: bool
    counts: float

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Totals:
        return cls(
            sum(example.weight for example in examples),
            # First rows only: the likelihood term is of these.
            sum(example.weight * sum(example.rows[0].completion_mask) for example in examples),
            sum(example.weight for example in examples if example.right),
            sum(example.weight for example in examples if not example.right),
            len(examples[0].rows) == 2,
            sum(example.weight * count for example in examples for _, _, count in example.steps),
        )

    def means(self, name: str, values: Tensor, weights: Tensor, right: Tensor) -> dict[str, Tensor]:
        """A micro-batch's share of the means over chosen and rejected, or over right and wrong
        completions.

        Args:
            name: of the values.
            values: one of each row: of pairs, those of the chosen ones and then those of the
                rejected ones.
            weights, right: of each example.
        """
        n = len(weights)
        if not self.pairs:
            shares = {}
            for label, is_label, total in (
                ("right", right, self.right),
                ("wrong", ~right, self.wrong),
            ):
                if total:
                    shares[f"{name}_{label}"] = (weights * values * is_label).sum() / total
            return shares
        share = weights / self.weight
        ahead = values[:n] - values[n:]
        shares = {
            f"{name}_chosen": (share * values[:n]).sum(),
            f"{name}_rejected": (share * values[n:]).sum(),
        }
        if name == "gain":
            shares |= {
                "gain_margin": (share * ahead).sum(),
                "preferred": (share * (ahead > 0)).sum(),
            }
        return shares


# ----------------------------------------------------------------------------------------- examples


def examples_of_groups(
    groups: Sequence[Group], algorithm: Algorithm, *key: str | int
) -> tuple[Examples, PairReport]:
    """What an algorithm of preferences trains on, from scored rollouts; and counts.

    Args:
        groups: of rollouts; UNSCORED ones are never used.
        algorithm: says what is drawn from a group, and how many.
        key: with a task's id, fixes the draw; such as the run's seed and the step.
    """
    # "mask" keeps truncated completions out of the loss, so they are no candidates here.
    rules = PairRules(
        algorithm.per_task, unparsed=algorithm.unparsed, truncated=algorithm.overlong != "mask"
    )
    kind, report, examples = algorithm.examples, PairReport(), list[Example]()
    for group in groups:
        if any(rollout.branches for rollout in group.rollouts):
            raise UsageError(
                f"an episode of task {group.task.id!r} has several rows, because its agent's "
                "requests did not all extend one another; preferences are learned from one row, so "
                "use an algorithm such as grpo"
            )
        # A rollout with no trained token would have a gain of 0 whatever the policy does.
        rollouts = [rollout for rollout in group.rollouts if any(rollout.completion_mask)]
        candidates = [_candidate(rollout) for rollout in rollouts]
        drawn_pairs = draw(candidates, rules, group.task.id, *key)
        report.add(candidates, drawn_pairs, rules)
        picked: Sequence[tuple[int, ...]] = drawn_pairs.pairs
        if kind != "pairs":
            pick = draw_labelled if kind == "labels" else draw_right
            picked = [(i,) for i in pick(candidates, rules, group.task.id, *key)]
        for indices in picked:
            rows = tuple(_row(rollouts[i]) for i in indices)
            examples.append(
                # Each task counts once in the mean, whatever number was drawn from it.
                Example(rows, candidates[indices[0]].outcome is Outcome.CORRECT, 1 / len(picked))
            )
    return Examples(examples), report


def _candidate(rollout: Rollout) -> Candidate:
    score = rollout.score
    fields: JsonDict = {"length": len(rollout.completion_ids), "truncated": rollout.truncated}
    if score is None:
        return Candidate(digest_of([rollout.text]), Outcome.UNSCORED, **fields)
    verdict = score.verdict
    fields |= {"answer": verdict.answer, "value": verdict.value, "total": score.total}
    return Candidate(digest_of([rollout.text]), verdict.outcome, **fields)


def _row(rollout: Rollout) -> TrainedRow:
    return TrainedRow(rollout.prompt_ids, rollout.completion_ids, rollout.completion_mask)


def examples_of_file(
    path: Path, algorithm: Algorithm, tokenization: Tokenization, *, max_tokens: int
) -> tuple[Examples, int]:
    """The examples of a file, and how many were left out because a completion is longer than
    `max_tokens`.

    Nothing is cut: a completion without its end would be another one.

    Args:
        path: as `rlvr pairs` writes it, or TRL takes it.
        algorithm: says whether it has pairs, labels or right completions.
        tokenization: of the policy.
        max_tokens: most tokens of a completion.

    Raises:
        DataError: there is nothing to train on, or a row cannot be used.
    """
    kind, examples = algorithm.examples, list[Example]()
    read = 0
    if kind == "pairs":
        for pair in read_pairs(path):
            sides = (pair.chosen, pair.chosen_truncated), (pair.rejected, pair.rejected_truncated)
            rows = tokenized(tokenization, pair.prompt, sides)
            examples.append(Example(rows, True, pair.weight, pair.margin))
    elif kind == "steps":
        for labelled in read_steps(path):
            row, ends = step_row(tokenization, labelled.prompt, labelled.steps)
            counted = zip(ends, labelled.right, labelled.scored, strict=True)
            # A step without a continuation that was scored has no label.
            examples.append(Example((row,), steps=tuple(step for step in counted if step[2])))
    else:
        for labelled_row in read_labelled(path, needs_both=kind == "labels"):
            if labelled_row.label or kind == "labels":
                rows = tokenized(
                    tokenization,
                    labelled_row.prompt,
                    [(labelled_row.completion, labelled_row.truncated)],
                )
                examples.append(Example(rows, labelled_row.label, labelled_row.weight))
    read = len(examples)
    examples = [
        example
        for example in examples
        # At least one token: an empty completion has no probability to learn.
        if all(0 < len(row.completion_ids) <= max_tokens for row in example.rows)
    ]
    if not examples:
        why = (
            f"all {read} have a completion of more than max_tokens={max_tokens} tokens"
            if read
            else "none is right"
        )
        raise DataError(f"{path} has nothing to train on: {why}")
    if kind == "labels" and len({example.right for example in examples}) == 1:
        raise DataError(
            f"with max_tokens={max_tokens}, the rows of {path} that are left all have one label; "
            f"raise it"
        )
    return Examples(examples), read - len(examples)
