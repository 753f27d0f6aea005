"""The parts of an update that are a few lines each; critic and trust region
have files of their own.

Each reads its settings from the algorithm's field of the same name, see `rlvr.algo.parts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr.algo import subsets
from rlvr.algo.advantages import moving_average
from rlvr.algo.control import next_beta, next_entropy_coefficient, ziegler_beta
from rlvr.algo.corrections import compose
from rlvr.algo.kl import kl_loss
from rlvr.algo.masks import zero_masked
from rlvr.algo.papers.base import Algorithm, Inputs, PolicyGradient
from rlvr.algo.terms import entropy_bonus, top_entropy
from rlvr.algo.trust_region import dual_ascent
from rlvr.collect.groups import Groups
from rlvr.collect.prefixes import prefix_values_and_costs
from rlvr.samplers.protocol import rollout_seed
from rlvr.train.advantage_batches import AdvantageBatches
from rlvr.train.credit import Batch, owners_of, totals
from rlvr.train.critic import CriticLearner
from rlvr.train.example_recorder import ExampleRecorder
from rlvr.train.implicit import ImplicitRewards
from rlvr.train.novelty import AnswerNovelty
from rlvr.train.part import LearnerPart, Micro
from rlvr.train.policy import Policy
from rlvr.train.preferences import ExampleLosses
from rlvr.train.replay import ReplayBuffer
from rlvr.train.reward_losses import RewardLosses
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.train.rollout_log import RolloutRecorder
from rlvr.train.step_recorder import StepRecorder
from rlvr.train.step_rewards import StepRewards
from rlvr.train.teacher import Reference, SelfTeacher, Teacher
from rlvr.train.texts import FileTexts
from rlvr.train.trust_region import RegionStep
from rlvr.types import Group, JsonDict

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.learner import Learner

__all__ = [
    "Corrections",
    "EntropyBonus",
    "Forks",
    "HighEntropy",
    "KlPenalty",
    "Likelihood",
    "MovingBaseline",
    "OptimizerReset",
    "ReferenceMixing",
    "Selection",
    "SubsetChoice",
    "TrustPenalty",
    "parts_of",
    "shape_policy",
]


class Forks(LearnerPart):
    """Values of prefixes: from K new completions at every step (VinePPO), or a greedy
    one at the prompt (ReMax)."""

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return "prefix_values" in learner.algorithm.reads

    def gather(self, sampled: RolloutBatch, by: Groups) -> RolloutBatch:
        rollouts = sampled.rollouts
        options: JsonDict = {"k": self.learner.config.vine_k}
        if self.learner.algorithm.forks == "greedy":
            # A greedy completion from the prompt alone: ReMax's baseline.
            steps = [sorted({0, len(rollout.completion_ids)}) for rollout in rollouts]
            options = {"k": 1, "greedy": True, "steps": steps}
        values, costs = prefix_values_and_costs(by, rollouts, **options)
        return sampled.with_costs(costs, values=values)


class SubsetChoice(LearnerPart):
    """Some completions of each group are trained on, with advantages from all of them
    (PODS, arXiv:2504.13818, 3.2)."""

    wants = "subset"

    def choose(self, groups: Sequence[Group], batch: Batch, generator: torch.Generator) -> Batch:
        settings = self.learner.algorithm.subset
        assert settings is not None
        rule = getattr(subsets, settings.rule)
        scores, scored = totals(groups)
        # Scores stand in a rectangle, in which smaller groups are
        # filled up by places without a row.
        sizes = torch.tensor([len(group.rollouts) for group in groups])
        is_there = torch.arange(scores.shape[1]) < sizes[:, None]
        keep = rule(scores, scored, size=settings.size, generator=generator)[is_there]
        # Branches follow their rollout; denominators then count what is trained on alone.
        mask = batch.completion_mask & torch.cat([keep, keep[owners_of(groups)]])[:, None]
        advantages = torch.where(mask, batch.advantages, 0.0)
        return replace(batch, completion_mask=mask, advantages=advantages)


class HighEntropy(LearnerPart):
    """The policy's loss on the share of tokens with the highest entropy (`entropy_share`)."""

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return learner.algorithm.entropy_share < 1

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def before(self, batch: Batch) -> Batch:
        learner = self.learner
        share, temperature = learner.algorithm.entropy_share, learner.temperature
        both_values = learner.policy.logprobs(batch.rows, temperature, with_entropy=True)
        logprobs, entropies = (values.float().cpu() for values in both_values)
        old = logprobs if learner.algorithm.correction else None  # which needs no second pass then
        # Chosen once, among all trained tokens of the batch and under the weights before the step.
        kept_tokens = top_entropy(entropies, batch.completion_mask, share=share)
        return replace(batch, kept=kept_tokens, old_logprobs=old)

    def weigh(self, losses: Tensor, micro: Micro) -> Tensor:
        assert micro.batch.kept is not None
        return zero_masked(losses, micro.batch.kept)


class Corrections(LearnerPart):
    """Importance weights where the sampler had older weights, or computes
    differently, than the trainer."""

    wants = "correction"

    def before(self, batch: Batch) -> Batch:
        # Another part has computed them in its own pass.
        if batch.old_logprobs is not None:
            return batch
        learner = self.learner
        return replace(batch, old_logprobs=learner.logprobs(batch.rows, learner.policy))

    def weigh(self, losses: Tensor, micro: Micro) -> Tensor:
        batch = micro.batch
        assert batch.old_logprobs is not None
        policies = batch.old_logprobs, batch.behaviour_logprobs, batch.completion_mask
        weights, by_rule = compose(self.learner.algorithm.correction, *policies)
        for name, factor in by_rule.items():
            # Over the tokens of the whole update, so that the terms of micro-batches add up.
            cut = factor.stats.low + factor.stats.high
            micro.terms |= {
                f"correction/{name}/weight": factor.weights.sum() / micro.whole.tokens,
                f"correction/{name}/cut": cut / micro.whole.tokens,
            }
        return losses * weights

    def after(self, batch: Batch) -> dict[str, float]:
        """How far sampler and trainer were apart before the step, in nats per token."""
        if batch.old_logprobs is None:
            return {}
        apart = (batch.old_logprobs - batch.behaviour_logprobs)[batch.completion_mask].abs()
        return {"mismatch": float(apart.mean())} if len(apart) else {}


class OptimizerReset(LearnerPart):
    """The optimiser starts afresh at a reset, where the algorithm says so."""

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        settings = learner.algorithm.reset
        return settings is not None and settings.optimizer

    def reset(self) -> None:
        self.learner.optimizer = self.learner.fresh_optimizer()


class ReferenceMixing(LearnerPart):
    """Now and then the reference takes over a share of the policy's weights
    (arXiv:2404.09656, eq. 1)."""

    wants = "mixing"

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def end_step(self, step: int) -> None:
        settings, reference = self.learner.algorithm.mixing, self.learner.part(Reference)
        assert settings is not None
        assert reference is not None
        # Every n-th step of the run, also after a resume: counted from its beginning.
        if step % settings.every_steps:
            return
        share_lists = reference.policy.shares(), self.learner.policy.shares()
        # Share by share: policy and reference are sharded alike.
        for reference_share, policy_share in zip(*share_lists, strict=True):
            reference_share.lerp_(policy_share.detach(), settings.share)


class _Coefficient(LearnerPart):
    """A coefficient of KL that may move after each batch; its name is that
    of the algorithm's field."""

    @property
    def settings(self) -> Any:
        """Of the next step."""
        return getattr(self.learner.algorithm, self.name)

    def measure_kl(self, batch: Batch) -> Tensor:
        """The KL of all trained tokens, summed."""
        raise NotImplementedError

    def after(self, batch: Batch) -> dict[str, float]:
        settings, mask = self.settings, batch.completion_mask
        # Without a trained token there is no KL to move by.
        if settings.rule == "fixed" or not mask.any():
            return {}
        total, rows = self.measure_kl(batch), int(mask.any(dim=1).sum())
        # Ziegler's target is per completion (arXiv:1909.08593, 2.2), PPO's per token.
        kl = float(total / (rows if settings.rule == "ziegler" else mask.sum()))
        moved = _move_coefficient(settings, kl, rows)
        # Loaded into the algorithm, from which the next step's penalty reads it.
        self.load(moved)
        return {f"{self.name}_coefficient": moved, f"{self.name}_measured": kl}

    def state(self) -> float:
        return float(self.settings.coefficient)

    def load(self, state: float) -> None:
        changed = replace(self.settings, coefficient=state)
        self.learner.algorithm = self.learner.algorithm.copy_with(**{self.name: changed})


def _move_coefficient(settings: Any, kl: float, rows: int) -> float:
    """A coefficient after a step; `kl` per token, or with the rule "ziegler" per completion."""
    beta, target = settings.coefficient, settings.target
    if settings.rule == "ppo":
        return next_beta(beta, kl, target=target)
    if settings.rule == "dual":
        return dual_ascent(beta, kl, delta=target, rate=settings.rate)
    return ziegler_beta(beta, kl, target=target, samples=rows, horizon=settings.horizon)


class KlPenalty(_Coefficient):
    """The penalty on the KL from the reference, where it is in the loss; `credit`
    has the one in the reward."""

    name = wants = "kl"

    @property
    def regularises(self) -> bool:
        return bool(self.settings.place == "loss")

    def penalty(self, loss: Tensor, micro: Micro) -> Tensor:
        settings, batch = self.settings, micro.batch
        if settings.place != "loss":
            return loss
        kl = kl_loss(
            micro.logprobs,
            batch.ref_logprobs,
            batch.completion_mask,
            estimator=settings.estimator,
            # Weighted: the estimator's expectation is under the
            # policy that sampled, so its tokens get the ratio.
            behaviour_logprobs=micro.before if settings.weighted else None,
        )
        penalty = micro.aggregate(settings.coefficient * kl)
        micro.terms |= {
            # A mean over the tokens of the whole update; this is a micro-batch's share of it.
            "kl_ref": kl.detach().sum() / micro.whole.tokens,
            "kl_gradient": _squared_gradient(penalty, micro.logprobs),
            "policy_gradient": _squared_gradient(loss, micro.logprobs),
        }
        return loss + penalty

    def read_terms(self, terms: dict[str, float]) -> dict[str, float]:
        """The penalty's share of the gradient with respect to log-probabilities, of whose rows the
        squared norms add."""
        if "kl_gradient" not in terms:
            return terms
        # Only here, after the sums over micro-batches and ranks: squares add up, roots do not.
        held, moved = (math.sqrt(terms.pop(f"{of}_gradient")) for of in ("kl", "policy"))
        return {**terms, "kl_share": held / (held + moved) if held + moved else 0.0}

    def measure_kl(self, batch: Batch) -> Tensor:
        assert batch.ref_logprobs is not None
        # The estimator k1 on sampled tokens: its mean is
        # unbiased for the KL of the policy that sampled.
        return zero_masked(
            batch.behaviour_logprobs - batch.ref_logprobs, batch.completion_mask
        ).sum()


class TrustPenalty(_Coefficient):
    """The coefficient of the penalty on how far a step moves the policy,
    which is only known after it."""

    name = wants = "trust"

    def measure_kl(self, batch: Batch) -> Tensor:
        current = self.learner.logprobs(batch.rows, self.learner.policy)
        # From where the loss's penalty is measured, so that what it cannot move does not count.
        before, mask = batch.ratio_logprobs, batch.completion_mask
        return kl_loss(before, current, mask, estimator="k3").sum()


class Likelihood(LearnerPart):
    """Maximum likelihood on right completions, beside the policy's loss
    (VAPO, arXiv:2504.05118)."""

    wants = "likelihood"

    regularises = True

    def penalty(self, loss: Tensor, micro: Micro) -> Tensor:
        batch = micro.batch
        assert batch.outcomes is not None
        # Exactly 1: a completion with partial credit is no example of how it is done.
        right = (batch.outcomes == 1)[:, None] * batch.completion_mask
        weighted = -self.learner.algorithm.likelihood * zero_masked(micro.logprobs, right)
        return loss + micro.aggregate(weighted)


class EntropyBonus(LearnerPart):
    """The entropy bonus, and its coefficient where that follows a target.

    Attributes:
        last: mean entropy of the last update's tokens, where the coefficient adapts; infinity
            before it.
    """

    name = "entropy"

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        # Infinity: until an entropy was measured the bonus is off wherever there is a target.
        self.last = math.inf

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        algorithm = learner.algorithm
        return bool(algorithm.entropy) or algorithm.entropy_target is not None

    @property
    def needs_entropy(self) -> bool:
        return True

    @property
    def coefficient(self) -> float:
        """Of the next update."""
        algorithm = self.learner.algorithm
        target = algorithm.entropy_target
        # Above its target the policy needs no bonus; the coefficient is kept for later.
        return algorithm.entropy if target is None or self.last <= target.nats else 0.0

    def penalty(self, loss: Tensor, micro: Micro) -> Tensor:
        algorithm, mask = self.learner.algorithm, micro.batch.completion_mask
        target, entropies = algorithm.entropy_target, micro.entropies
        assert entropies is not None
        if target is not None:
            micro.terms["entropy_now"] = (
                zero_masked(entropies.detach(), mask).sum() / micro.whole.tokens
            )
        return loss + micro.aggregate(entropy_bonus(entropies, mask, coefficient=self.coefficient))

    def after_update(self, numbers: Mapping[str, float]) -> None:
        algorithm, target = self.learner.algorithm, self.learner.algorithm.entropy_target
        if target is None or "entropy_now" not in numbers:
            return
        self.last = numbers["entropy_now"]
        moved = next_entropy_coefficient(
            algorithm.entropy,
            self.last,
            target=target.nats,
            step=target.step,
            least=target.least,
            most=target.most,
        )
        self.learner.algorithm = algorithm.copy_with(entropy=moved)

    def after(self, batch: Batch) -> dict[str, float]:
        algorithm = self.learner.algorithm
        if algorithm.entropy_target is None:
            return {}
        return {"entropy_coefficient": algorithm.entropy}

    def state(self) -> list[float]:
        return [self.learner.algorithm.entropy, self.last]

    def load(self, state: Sequence[float]) -> None:
        # A fixed coefficient is a setting, and may have been changed on purpose since.
        if self.learner.algorithm.entropy_target is not None:
            self.learner.algorithm = self.learner.algorithm.copy_with(entropy=state[0])
        self.last = state[1]


class MovingBaseline(LearnerPart):
    """The moving average of scores that REINFORCE subtracts.

    Attributes:
        average: None before the first batch.
    """

    name = "average"

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self.average = None

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return learner.algorithm.baseline == "moving_average"

    def observe(self, groups: Sequence[Group]) -> None:
        decay = self.learner.algorithm.baseline_decay
        self.average = moving_average(self.average, *totals(groups), decay=decay)

    def state(self) -> float | None:
        return self.average

    def load(self, state: float | None) -> None:
        self.average = state


class Selection(LearnerPart):
    """The tokens that an algorithm selects over all of an update, see `PolicyGradient.select`."""

    @classmethod
    def is_wanted(cls, learner: Learner) -> bool:
        return "selected" in learner.algorithm.reads

    def select(self, mini: Batch) -> Batch:
        learner, algorithm, mask = self.learner, self.learner.algorithm, mini.completion_mask
        assert isinstance(algorithm, PolicyGradient)
        # By the number of updates: a resumed run draws the same tokens.
        seed = rollout_seed("select", learner.config.seed, learner.updates)
        fields = {
            "logprobs": learner.logprobs(mini.rows, learner.policy),
            "old_logprobs": mini.ratio_logprobs,
            "advantages": zero_masked(mini.advantages, mask),
            "mask": mask,
            "generator": torch.Generator().manual_seed(seed),
        }
        return replace(mini, selected=algorithm.select(Inputs(algorithm, fields)))


_PARTS: tuple[type[LearnerPart], ...] = (
    RolloutRecorder,
    AdvantageBatches,
    ExampleLosses,
    RewardLosses,
    AnswerNovelty,
    Forks,
    StepRewards,
    ReplayBuffer,
    FileTexts,
    SubsetChoice,
    HighEntropy,
    Corrections,
    Reference,
    Teacher,
    SelfTeacher,
    ImplicitRewards,
    CriticLearner,
    KlPenalty,
    TrustPenalty,
    Likelihood,
    EntropyBonus,
    MovingBaseline,
    Selection,
    RegionStep,
    ReferenceMixing,
    OptimizerReset,
    StepRecorder,
    ExampleRecorder,
)
"""All parts, in the order in which they are called."""


def parts_of(learner: Learner, kept: Sequence[LearnerPart] = ()) -> list[LearnerPart]:
    """The parts that a learner's algorithm asks for, in their order.

    Args:
        learner: with policy, config and algorithm.
        kept: parts that there are already; those that are still asked for stay as they are.
    """
    kept_by_kind = {type(part): part for part in kept}
    kinds = (kind for kind in _PARTS if kind.is_wanted(learner))
    return [kept_by_kind[kind] if kind in kept_by_kind else kind(learner) for kind in kinds]


def shape_policy(policy: Policy, algorithm: Algorithm) -> None:
    """Give the policy what is trained beside its layers, before it is sharded.

    Args:
        policy: with its layers.
        algorithm: of the run.
    """
    for kind in _PARTS:
        kind.shape(policy, algorithm)


def _squared_gradient(loss: Tensor, logprobs: Tensor) -> Tensor:
    """|∂loss / ∂logprobs|²: cheap, as it stops before the model."""
    # `retain_graph`: the update's own backward pass goes through the same graph.
    [gradient] = torch.autograd.grad(loss, logprobs, retain_graph=True, allow_unused=True)
    return logprobs.new_zeros(()) if gradient is None else gradient.square().sum()
