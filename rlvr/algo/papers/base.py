"""What every algorithm is: a class whose fields are its numbers,
with `advantages(groups)` and `loss(inputs)`.

A paper is a subclass in a file of its own.  What makes the paper is code or a class attribute; what
it lets one choose is a field.  A part that a class has no field for is absent: `Absent` says what
the trainer reads then.  Needs no torch: functions of tensors are imported where they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn, get_args

from rlvr.algo.parts import (
    Baseline,
    Clip,
    Correction,
    Critic,
    EntropyTarget,
    Implicit,
    Kl,
    Mixing,
    OverlongHandling,
    Range,
    Replay,
    Reset,
    Subset,
    Trust,
    TrustRegion,
)
from rlvr.errors import UsageError
from rlvr.validate import (
    nearest,
    require_number,
    require_one_of,
    require_optional_whole,
    require_whole,
)

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr.algo.objectives import Losses
    from rlvr.algo.returns import AdvantageEstimate

__all__ = [
    "Absent",
    "ActorCritic",
    "Aggregation",
    "Algorithm",
    "ExampleKind",
    "INPUTS",
    "Inputs",
    "Judged",
    "Need",
    "OfFile",
    "OfGroups",
    "OfPairs",
    "OfTokens",
    "PolicyGradient",
    "Preferences",
    "Printed",
    "Proximal",
    "Sampled",
]

Aggregation = Literal["token_mean", "group_token_mean", "sequence_mean", "constant"]
"""How losses per token become one number, see `rlvr.algo.aggregation`."""
Need = Literal["siblings", "once", "head", "file"]
"""What an algorithm needs that not every run has:

    siblings  two or more completions per prompt
    once     one optimiser step per batch of rollouts, as it has no ratio to the policy that sampled
    head     a head that gives numbers instead of tokens: a reward model
    file     examples of a file, as it samples nothing
"""
ExampleKind = Literal["pairs", "labels", "right", "steps"]
"""What is learned from, instead of advantages: a chosen and a rejected completion of one prompt;
completions that are known to be right or wrong; right completions alone; or the steps of
completions, each with counts of right continuations."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a paper's own experiments used; None where it prints none.

    Attributes:
        prompts: prompts per step.
        group_size: completions per prompt.
        updates: optimiser steps per batch and epoch.
        lr: learning rate of the policy.
        max_tokens: most tokens of a completion.
    """

    prompts: int | None = None
    group_size: int | None = None
    updates: int | None = None
    lr: float | None = None
    max_tokens: int | None = None


class Absent:
    """What the trainer reads of an algorithm whose class has no field of that name.

    Attributes:
        aggregation: how losses per token become one number.
        length_tokens: the length of "constant"; None for the run's max_tokens.
        kl: a penalty on the divergence from the reference policy.
        critic: a trained value of every token.
        implicit: a reward model that is trained on the outcomes of each batch.
        clip, trust, trust_region: bounds of the policy's step.
        mixing: when the reference takes over a part of the policy.
        reset: when reference and optimiser start afresh.
        replay: groups of earlier steps that are trained on again.
        subset: which completions of a group are trained on.
        correction: weights for differences between sampler and trainer.
        likelihood: weight of the log-likelihood of right completions beside the loss.
        novelty: weight of the punishment of answers that a group has several times.
        entropy, entropy_target, entropy_share: bonus, its adaptation, and the share of tokens that
            are trained on.
        baseline, baseline_decay: what REINFORCE subtracts.
        epochs: passes over each batch.
        dynamic_sampling, refill: whether groups without variation are dropped, and others sampled
            instead.
        overlong, overlong_share: what is done with truncated completions.
        masked_vote: whether rows that are left out of the loss still count in their group's
            baseline.
        texts, student_share: a file whose completions are trained on too, and the share of the
            policy's own.
        group_size, temperature: of sampling, by default.
        length, sft_weight: of gains, and of an added loss of fine-tuning.
        per_task, unparsed: what is drawn from a group of completions.
    """

    aggregation: str = "token_mean"
    length_tokens: int | None = None
    kl: Kl | None = None
    critic: Critic | None = None
    implicit: Implicit | None = None
    clip: Clip | Range | None = None
    trust: Trust | None = None
    trust_region: TrustRegion | None = None
    mixing: Mixing | None = None
    reset: Reset | None = None
    replay: Replay | None = None
    subset: Subset | None = None
    correction: tuple[Correction, ...] = ()
    likelihood: float = 0.0
    novelty: float = 0.0
    entropy: float = 0.0
    entropy_target: EntropyTarget | None = None
    entropy_share: float = 1.0
    baseline: Baseline = "batch_mean"
    baseline_decay: float = 0.9
    epochs: int = 1
    dynamic_sampling: bool = False
    refill: bool = True
    overlong: OverlongHandling = "keep"
    overlong_share: float = 0.5
    masked_vote: bool = True
    texts: str | None = None
    student_share: float = 1.0
    group_size: int | None = None
    temperature: float = 1.0
    length: Literal["sum", "mean"] = "sum"
    sft_weight: float = 0.0
    per_task: int = 2
    unparsed: bool = False


INPUTS: Final[Mapping[str, str]] = {
    "ref_logprobs": "log-probabilities under the reference policy",
    "teacher_logprobs": "log-probabilities under the teacher",
    "divergence": (
        "how far the policy's distribution is from the teacher's at each token, with its gradient: "
        "what the class's `divergence(policy, teacher)` makes of log-probabilities over the "
        "vocabulary"
    ),
    "implicit_rewards": (
        "β log π_φ / π_ref of each token, by the implicit reward model as it was before the step"
    ),
    "entropies": "the policy's entropy at each token, with its gradient",
    "values": "the critic's value before each token",
    "returns": "the critic's targets",
    "selected": "the tokens that `select` has chosen over the whole update",
    "prefix_values": "values at step boundaries, from completions that fork there",
    "boundaries": "where these boundaries are, in tokens",
    "score_parts": "what each part of the reward added to each score",
    "minibatch": (
        "the number of the update in which each completion is trained, "
        "for advantages that are of an update"
    ),
    "step_rewards": "the reward of each step on its last token",
    "step_ends": "True on these tokens",
    "reference_point": "KTO's z",
}
"""What an algorithm declares in `reads`, as it costs something; the rest is there anyway."""


class Inputs:
    """What `advantages`, `select` and `loss` read.

    In `loss`, of a micro-batch of B rows of T tokens: `logprobs` (carrying the gradient),
    `old_logprobs` (the trainer's, before the step), `behaviour_logprobs` (the sampler's),
    `log_ratio` and `ratio` of the first two, `advantages`, `mask`, and what `reads` declares.  In
    `advantages`, of P groups of G completions: `scores` and `scored` [P, G], `rewards` and `mask`
    [B, T], `lengths_tokens` [P, G], and what `reads` declares.

    Args:
        algorithm: whose `reads` says what else there is.
        values: the inputs by name; a function computes its input when that is read first.
    """

    def __init__(self, algorithm: Algorithm, values: Mapping[str, object]) -> None:
        self._algorithm, self._values = algorithm, dict(values)

    @property
    def usual(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What most losses take first: `logprobs`, `old_logprobs`, `advantages`, `mask`."""
        return self.logprobs, self.old_logprobs, self.advantages, self.mask

    def __getattr__(self, name: str) -> Any:
        # pickle and copy ask for __setstate__ and the like before __init__
        # has run; looking into `_values` then would recurse without end.
        if name.startswith("_"):
            raise AttributeError(name)
        values, algorithm = self._values, self._algorithm
        # Refused even where it is there by chance, so
        # that what works with one setting works with all.
        if name in INPUTS and name not in algorithm.reads:
            raise UsageError(
                f"{algorithm.label} reads inputs.{name} without declaring it, so it was not "
                f"computed; "
                f'add "{name}" to `reads` of the class'
            )
        if name not in values:
            readable = [
                input_name
                for input_name in values
                if input_name not in INPUTS or input_name in algorithm.reads
            ]
            raise UsageError(
                f"there is no input {name!r} here{nearest(name, readable)}; there are "
                f"{', '.join(sorted(readable))}"
            )
        value = values[name]
        if callable(value):
            value = values[name] = value()
        return value


@dataclass(frozen=True, kw_only=True)
class Algorithm(Absent):
    """A published algorithm: its numbers are the fields.
    `dataclasses.replace` changes one and checks the rest again.

    Class attributes, which are no settings:
        name: for `--algorithm`. title: as the paper has it. paper: where it was published.
        equations: where its equations stand. sources: where each number stands, and which ones are
        ours. printed: what the paper's own experiments used. updates: optimiser steps per batch and
        epoch, by default; see `rlvr.train.credit.update_rows`. needs: what not every run has.
        reads: inputs that have to be computed, see `INPUTS`. examples: what is learned from instead
        of advantages; None for algorithms with advantages. regularised: whether the loss has a
        gradient where advantages are 0. off_policy: whether the loss is right for samples of any
        policy, as its own weight compares with the one that sampled, or none is needed; runs then
        add no correction. takes_rewards: whether a KL penalty can be in the reward.
        teaches_itself: whether the teacher is the reference policy, which is shown the task's
        reference. takes_steps: whether rewards of steps count, see `rlvr.train.step_rewards`.
        forks: where new completions give prefix values: K of them at every step, or a greedy one at
        the prompt. spec: what `--algorithm` was, for one from a user's file. digest: of that file.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    equations: ClassVar[str] = ""
    sources: ClassVar[str] = ""
    printed: ClassVar[Printed] = Printed()
    updates: ClassVar[int] = 1
    needs: ClassVar[frozenset[Need]] = frozenset()
    reads: ClassVar[frozenset[str]] = frozenset()
    examples: ClassVar[ExampleKind | None] = None
    regularised: ClassVar[bool] = False
    off_policy: ClassVar[bool] = False
    takes_rewards: ClassVar[bool] = True
    takes_steps: ClassVar[bool] = False
    teaches_itself: ClassVar[bool] = False
    forks: ClassVar[Literal["steps", "greedy"]] = "steps"
    spec: ClassVar[str] = ""
    digest: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse numbers that cannot work; subclasses add theirs, and call this one.

        Raises:
            UsageError: a number is out of its range, or two contradict each other.
        """

    @property
    def label(self) -> str:
        """What it is called: the name for `--algorithm`."""
        return self.spec or self.name or type(self).__name__

    def copy_with(self, **fields: Any) -> Algorithm:
        """A copy with other values of fields, checked.

        Args:
            fields: by name; parts, not flat names.
        """
        return replace(self, **fields)

    @property
    def has_reference(self) -> bool:
        """Whether the loss or the reward compares with a reference policy."""
        return self.kl is not None or "ref_logprobs" in self.reads or self.teaches_itself

    @property
    def trains_two(self) -> bool:
        """Whether another model of the policy's size learns beside it: a critic of its own layers,
        or rewards."""
        own_critic = self.critic is not None and self.critic.backbone == "own"
        return own_critic or self.implicit is not None

    @property
    def needs_teacher(self) -> bool:
        """Whether it learns from another model."""
        return bool({"teacher_logprobs", "divergence"} & self.reads) and not self.teaches_itself

    def loss_temperature(self, sampling: float) -> float:
        """At which losses read log-probabilities: that of sampling, whose ratios they have; 1 for
        losses of examples, which are of the model itself, whatever sampled these.

        Args:
            sampling: the temperature of sampling.
        """
        return sampling if self.examples is None else 1.0

    def advantages(self, groups: Inputs) -> Any:
        """The advantages of a batch, without gradient.

        Args:
            groups: see `Inputs`.

        Returns:
            One per completion [P, G], or one per token [B, T]; with a critic an
            `AdvantageEstimate`.
        """
        self._lacks("advantages")

    def loss(self, inputs: Inputs) -> Tensor | Losses:
        """What is minimised.

        Args:
            inputs: see `Inputs`.

        Returns:
            One number per token [B, T]; of pairs and labels, one per example or per token.
        """
        self._lacks("loss")

    def _lacks(self, method: str) -> NoReturn:
        raise UsageError(f"{self.label} has no {method}(…); write it in the class")


@dataclass(frozen=True, kw_only=True)
class Sampled(Algorithm):
    """An algorithm that samples completions.

    Attributes:
        dynamic_sampling: drop groups whose completions are all correct or all wrong, and sample
            others instead.
        refill: False: dynamic sampling does not sample others; the remaining groups weigh more, as
            all denominators are theirs alone.
        overlong: what is done with truncated completions.
        overlong_share: greatest soft punishment as a share of the width of the reward's bounds.
            1/2 is DAPO's -1 for rewards of ±1, and -½ for rewards in [0, 1]: equal after dividing
            by the std.
        mixing: when the reference takes over a part of the policy; None for never.
        group_size: completions per prompt: what `Config.group_size` is by default.
        temperature: sampling temperature: what `Config.temperature` is by default.
    """

    dynamic_sampling: bool = False
    refill: bool = True
    overlong: OverlongHandling = "keep"
    overlong_share: float = 0.5
    mixing: Mixing | None = None
    group_size: int | None = None
    temperature: float = 1.0

    def check(self) -> None:
        super().check()
        require_one_of("overlong", self.overlong, get_args(OverlongHandling))
        require_number("overlong_share", self.overlong_share, above=0, most=1)
        require_optional_whole("group_size", self.group_size, 1)
        require_number("temperature", self.temperature, above=0, hint="near 1 to train")
        if not self.refill and not self.dynamic_sampling:
            raise UsageError(
                "refill is False, and dynamic_sampling too: no group is dropped, so none could be "
                "sampled instead; "
                "leave refill out"
            )
        if self.mixing is not None and not self.has_reference:
            raise UsageError(
                "mixing without kl: there is no reference policy to mix into; give kl or drop "
                "mixing"
            )


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(Sampled):
    """A policy gradient: advantages of sampled completions, and a loss per token.

    Attributes:
        kl: the KL penalty; None for none, and then there is no reference policy.  In the reward,
            algorithms that compare whole completions take the score minus the sum of the
            completion's penalties.
        likelihood: weight of the negative log-likelihood of right completions, a mean as the loss
            is one (VAPO, arXiv:2504.05118, has 0.1 and the mean over their own tokens); 0 for none.
        novelty: c, by how much the score falls for each of a group's other completions with the
            same answer, divided by the group's size (batch exploration, arXiv:2509.06941); 0 for
            none.
        entropy: coefficient of the entropy bonus; 0 for none.
        entropy_target: how that coefficient adapts; None for not.
        entropy_share: share of the tokens, those of highest entropy, that the policy is trained on;
            1 for all.
        subset: which completions of a group are trained on; None for all.
        correction: weights for differences between sampler and trainer; several are multiplied.
        masked_vote: whether rows that are left out of the loss, such as truncated ones, count in
            their group's baseline.
        reset: when reference and optimiser start afresh; None for never.
    """

    kl: Kl | None = None
    likelihood: float = 0.0
    novelty: float = 0.0
    entropy: float = 0.0
    entropy_target: EntropyTarget | None = None
    entropy_share: float = 1.0
    subset: Subset | None = None
    correction: tuple[Correction, ...] = ()
    masked_vote: bool = True
    reset: Reset | None = None

    def check(self) -> None:
        super().check()
        require_number("likelihood", self.likelihood, 0)
        require_number("novelty", self.novelty, 0)
        require_number(
            "entropy", self.entropy, 0, hint="and above 0 to keep the policy from collapsing"
        )
        require_number("entropy_share", self.entropy_share, above=0, most=1)
        require_one_of("aggregation", self.aggregation, get_args(Aggregation))
        require_optional_whole("length_tokens", self.length_tokens, 1)
        if not self.masked_vote and "siblings" not in self.needs:
            raise UsageError(
                f"masked_vote is False, and {self.label} has no baseline of a group; leave it out"
            )
        if self.reset is not None and self.kl is None:
            raise UsageError(
                "reset without kl: there is no reference policy to be reset; give kl or drop reset"
            )
        if (
            self.reset is not None
            and self.reset.kl_share is not None
            and self.kl is not None
            and self.kl.place != "loss"
        ):
            raise UsageError(
                "reset.kl_share with the KL in the reward: it has no gradient of its own; put it "
                "in the loss"
            )
        if self.kl is not None and self.kl.place == "reward" and not self.takes_rewards:
            raise UsageError(
                f"{self.label} has no place for a KL penalty in the reward; put it in the loss"
            )

    def select(self, update: Inputs) -> Tensor | None:
        """The tokens of a whole update that `loss` treats apart, as `inputs.selected` [B, T]; None
        for no selection.

        Args:
            update: `logprobs` under the policy before the update, `old_logprobs`, `advantages` and
                `mask` of all its rows, and a `generator` for tokens that are drawn.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class Proximal(PolicyGradient):
    """A policy gradient with a ratio to the policy that sampled:
    several steps on a batch are right.

    Attributes:
        epochs: passes over each batch of rollouts.
        replay: groups of earlier steps that are trained on again; None for none.
    """

    epochs: int = 1
    replay: Replay | None = None

    def check(self) -> None:
        super().check()
        require_whole("epochs", self.epochs, 1)
        if self.replay is not None and "prefix_values" in self.reads:
            raise UsageError(
                f"replay with {self.label}, which has values of its own rollouts alone; leave "
                f"replay out"
            )


@dataclass(frozen=True, kw_only=True)
class OfGroups(Proximal):
    """A completion is judged against its siblings: A = (r - mean(r)) / std(r),
    as in GRPO (arXiv:2402.03300, 4.1.2)."""

    needs = frozenset({"siblings"})

    def advantages(self, groups: Inputs) -> Tensor:
        from rlvr.algo.advantages import group_advantages

        return group_advantages(groups.scores, groups.scored)


@dataclass(frozen=True, kw_only=True)
class OfTokens(PolicyGradient):
    """Advantages from rewards per token: those of steps count, and a KL penalty in the reward.

    Attributes:
        gamma: discount per token.
        whiten: normalise advantages over all tokens of the batch.
    """

    takes_steps = True

    gamma: float = 1.0
    whiten: bool = True
    group_size: int | None = 1

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "whitened" in cls.__dict__:  # an override that would never be called
            raise UsageError(f"{cls.__name__}.whitened has another name now: whiten_advantages")

    def check(self) -> None:
        super().check()
        require_number("gamma", self.gamma, 0, 1)

    def whiten_advantages(self, advantages: Tensor, mask: Tensor) -> Tensor:
        """The advantages, normalised where `whiten` says so.

        Args:
            advantages: [B, T].
            mask: True for trained tokens.
        """
        from rlvr.algo.returns import whiten

        return whiten(advantages, mask) if self.whiten else advantages


@dataclass(frozen=True, kw_only=True)
class ActorCritic(OfTokens, Proximal):
    """Advantages from a critic, by GAE (arXiv:1506.02438, eq. 16).

    Attributes:
        lam: λ of GAE: 0 is TD(0), 1 the Monte-Carlo return.
        group_weight: weight of the scores' advantages within a group, as GRPO has them, beside
            GAE's; 0 for none.
    """

    reads = frozenset({"values"})

    lam: float = 0.95
    group_weight: float = 0.0

    def check(self) -> None:
        super().check()
        require_number("lam", self.lam, 0, 1)
        require_number("group_weight", self.group_weight, 0)
        if self.group_weight and self.group_size == 1:
            raise UsageError(
                f"group_weight is {self.group_weight}, and a group of one has no other to compare "
                "with; give --group-size, such as 8"
            )

    def advantages(self, groups: Inputs) -> AdvantageEstimate:
        from rlvr.algo.advantages import group_advantages
        from rlvr.algo.returns import AdvantageEstimate, gae

        A, R = gae(
            groups.rewards,
            groups.values,
            groups.mask,
            gamma=self.gamma,
            lam=self.lam,
            bootstrap=groups.bootstrap,
        )
        A = self.whiten_advantages(A, groups.mask)
        if self.group_weight:
            of_group = group_advantages(groups.scores, groups.scored).reshape(-1, 1)
            # One number per row [B, 1], spread over its trained tokens.
            A = A + self.group_weight * of_group * groups.mask
        return AdvantageEstimate(A, R)


@dataclass(frozen=True, kw_only=True)
class Preferences(Sampled):
    """Learning from which completions are right, instead of from advantages.

    Attributes:
        per_task: most pairs drawn from a group; of labelled or right completions, most of each
            label.
        unparsed: draw completions without an answer as wrong ones too.
        epochs: passes over each batch of examples.
    """

    overlong: OverlongHandling = "mask"
    per_task: int = 2
    unparsed: bool = False
    epochs: int = 1

    def check(self) -> None:
        super().check()
        require_whole("per_task", self.per_task, 1)
        require_whole("epochs", self.epochs, 1)


@dataclass(frozen=True, kw_only=True)
class OfPairs(Preferences):
    """A loss on pairs, which compares gains over a reference policy.

    Attributes:
        beta: strength of the pull towards the reference policy; in IPO it is called τ.
        length: whether the gain of a completion is the sum or the mean over its tokens.
        sft_weight: weight of the chosen completions' negative log-likelihood per token, added to
            the loss.
    """

    beta: float = 0.1
    length: Literal["sum", "mean"] = "sum"
    sft_weight: float = 0.0

    examples = "pairs"
    reads = frozenset({"ref_logprobs"})

    def check(self) -> None:
        super().check()
        require_number("beta", self.beta, above=0)
        require_one_of("length", self.length, ("sum", "mean"))
        require_number("sft_weight", self.sft_weight, 0)


@dataclass(frozen=True, kw_only=True)
class OfFile(Algorithm):
    """Learning from the examples of a file alone.

    Attributes:
        epochs: passes over each batch of examples.
    """

    epochs: int = 1

    needs = frozenset({"file"})

    def check(self) -> None:
        super().check()
        require_whole("epochs", self.epochs, 1)


@dataclass(frozen=True, kw_only=True)
class Judged(OfFile):
    """A reward model."""

    needs = frozenset({"file", "head"})
