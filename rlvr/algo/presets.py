"""Published algorithms as data: which pieces of `rlvr.algo`, with which numbers, and where the numbers stand.

Needs no torch.  A field that names a piece holds the function's own name in `rlvr.algo.registry`, so that a search for
`token_mean` finds both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

from rlvr.algo.registry import Function, Need, function, names
from rlvr.errors import UsageError
from rlvr.validate import require_number, require_one_of, require_optional_whole, require_whole

__all__ = [
    "Algorithm",
    "Baseline",
    "Clip",
    "Correction",
    "Critic",
    "EntropyTarget",
    "Estimator",
    "Kl",
    "Level",
    "Mixing",
    "OverlongHandling",
    "PRESETS",
    "Preference",
    "Replay",
    "Reset",
    "Rule",
    "SoftClip",
    "Subset",
    "Trust",
    "TrustRegion",
    "preset",
]

Estimator = Literal["k1", "k2", "k3"]
"""Estimates of the KL divergence, see `rlvr.algo.kl`."""
Level = Literal["token", "sequence", "geometric"]
"""What has one correction weight, see `rlvr.algo.corrections`: a token; a row, the product over its trained tokens
(unbiased, of high variance); or a row, their geometric mean, which does not grow with the length."""
OverlongHandling = Literal["keep", "mask", "soft", "soft+mask"]
"""Truncated completions are trained on as they were scored; left out of the loss; scored with `rlvr.Overlong`; or both:
left out of the loss, while long completions that ended are scored with it (DAPO's paper has either)."""
Rule = Literal["fixed", "ppo", "ziegler", "dual"]
"""How a KL coefficient moves: not at all; by `control.next_beta` (a factor of 2, KL per token); by
`control.ziegler_beta` (up to a fifth per horizon, KL per completion); or by `trust_region.dual_ascent`, as the
multiplier of the constraint KL ≤ target (KL per token)."""
Baseline = Literal["none", "batch_mean", "moving_average"]
"""What `reinforce_advantages` subtracts: 0, the batch's mean score, or a moving average over earlier batches."""


@dataclass(frozen=True, slots=True)
class Clip:
    """The range [1 - low, 1 + high] in which the ratio is kept.

    Attributes:
        low: in [0, 1].
        high: 0 or more.
        dual: the bound of the dual clip (see `objectives.clipped`), above 1 + high; None for none.
    """

    low: float
    high: float
    dual: float | None = None

    def __post_init__(self) -> None:
        require_number("clip.low", self.low, 0, 1)
        require_number("clip.high", self.high, 0)
        if self.dual is not None:
            require_number(
                "clip.dual", self.dual, above=1 + self.high, hint="which is 1 + high, or None"
            )


@dataclass(frozen=True, slots=True)
class SoftClip:
    """The temperatures of SAPO's gate, see `objectives.sapo`.

    Attributes:
        positive: for tokens of positive advantage, above 0.
        negative: for the others, above 0.
    """

    positive: float = 1.0
    negative: float = 1.05

    def __post_init__(self) -> None:
        require_number("soft_clip.positive", self.positive, above=0)
        require_number("soft_clip.negative", self.negative, above=0)


def _require_rule(
    name: str, coefficient: float, rule: str, target: float | None, horizon: int, rate: float
) -> None:
    require_one_of(f"{name}.rule", rule, get_args(Rule))
    if rule == "dual":  # a multiplier is 0 while its constraint holds
        require_number(f"{name}.coefficient", coefficient, 0)
    else:
        require_number(
            f"{name}.coefficient", coefficient, above=0, hint=f"and {name} None for no penalty"
        )
    require_whole(f"{name}.horizon", horizon, 1)
    require_number(f"{name}.rate", rate, above=0)
    if rule != "fixed":
        require_number(
            f"{name}.target", target, above=0, hint="the KL that the coefficient aims at"
        )


@dataclass(frozen=True, slots=True)
class Trust:
    """The penalty of `objectives.ppo_kl` on the KL from the policy that sampled (arXiv:1707.06347, sec. 4).

    Attributes:
        coefficient: β of the first step, above 0; with the rule "dual" also 0.
        rule: how β moves after each step.
        target: the KL that is wanted, in nats: per completion for "ziegler", else per token; None if fixed.
        horizon: of "ziegler", in completions.
        rate: of "dual": how much β rises for each nat above the target.
    """

    coefficient: float = 1.0
    rule: Rule = "ppo"
    target: float | None = 0.01
    horizon: int = 10_000
    rate: float = 10.0

    def __post_init__(self) -> None:
        _require_rule("trust", self.coefficient, self.rule, self.target, self.horizon, self.rate)


@dataclass(frozen=True, slots=True)
class TrustRegion:
    """TRPO's steps (arXiv:1502.05477), see `rlvr.algo.trust_region`: they replace AdamW for the policy.

    Attributes:
        delta: δ, the mean KL per token from the weights before the step to those after it, in nats; above 0.
        damping: added to the diagonal of the Fisher matrix, 0 or above.
        cg_steps: iterations of conjugate gradients, each with the cost of about two gradients.
        backtracks: most halvings of a step.
    """

    delta: float = 0.01
    damping: float = 0.1
    cg_steps: int = 10
    backtracks: int = 10

    def __post_init__(self) -> None:
        require_number("trust_region.delta", self.delta, above=0)
        require_number("trust_region.damping", self.damping, 0)
        require_whole("trust_region.cg_steps", self.cg_steps, 1)
        require_whole("trust_region.backtracks", self.backtracks, 0)


@dataclass(frozen=True, slots=True)
class Critic:
    """A value model that is trained beside the policy (see `rlvr.train.critic`).

    Attributes:
        backbone: "own", a copy of the policy as it began; or "shared", the policy's own layers.
        lr: learning rate of the critic; None for the policy's.  A shared backbone learns at the policy's, its head at
            this one.
        schedule: of the learning rate; None for the policy's.
        coefficient: weight of the value loss, above 0.  It counts where the backbone is shared; an own critic is
            trained by AdamW, which undoes a factor.
        value_clip: range in which a value may move per batch, see `terms.value_loss`; None for no clip.
        warmup: training steps at the start in which only the critic learns.
    """

    backbone: Literal["own", "shared"] = "own"
    lr: float | None = None
    schedule: Literal["constant", "linear", "cosine"] | None = None
    coefficient: float = 0.5
    value_clip: float | None = 0.2
    warmup: int = 0

    def __post_init__(self) -> None:
        require_one_of("critic.backbone", self.backbone, ("own", "shared"))
        require_one_of(
            "critic.schedule", self.schedule, ("constant", "linear", "cosine"), or_none=True
        )
        if self.lr is not None:
            require_number("critic.lr", self.lr, above=0)
        require_number("critic.coefficient", self.coefficient, above=0)
        if self.value_clip is not None:
            require_number(
                "critic.value_clip", self.value_clip, above=0, hint="or None for no clip"
            )
        require_whole("critic.warmup", self.warmup, 0)


@dataclass(frozen=True, slots=True)
class EntropyTarget:
    """An entropy coefficient that adapts (Skywork-OR1, arXiv:2505.22312), see `control.next_entropy_coefficient`.

    `Algorithm.entropy` is the coefficient of the first update.

    Attributes:
        nats: the mean entropy per token that is wanted; the bonus counts after updates at or below it.
        step: change of the coefficient per update.
        least: the least coefficient.
        most: the greatest coefficient.
    """

    nats: float = 0.2
    step: float = 0.005
    least: float = 0.0
    most: float = 1.0

    def __post_init__(self) -> None:
        require_number("entropy_target.nats", self.nats, above=0)
        require_number("entropy_target.step", self.step, above=0)
        require_number("entropy_target.least", self.least, 0)
        require_number("entropy_target.most", self.most, self.least, hint="which is least")


@dataclass(frozen=True, slots=True)
class Mixing:
    """Reference mixing (TR-DPO, arXiv:2404.09656): now and then, reference ← share · policy + (1 - share) · reference.

    Attributes:
        every_steps: training steps between mixes.
        share: α, in (0, 1]; 1 replaces the reference.
    """

    every_steps: int = 512
    share: float = 0.6

    def __post_init__(self) -> None:
        require_whole("mixing.every_steps", self.every_steps, 1)
        require_number("mixing.share", self.share, above=0, most=1)


@dataclass(frozen=True, slots=True)
class Replay:
    """Train on groups of earlier steps again (RePO, arXiv:2506.09340; which groups, and how old they may be, is ours).

    Attributes:
        groups: how many a step trains on besides its own, drawn at random; fewer while there are not so many.
        max_versions: most training steps between the weights that sampled a token and those that are trained on it.
    """

    groups: int
    max_versions: int = 4

    def __post_init__(self) -> None:
        require_whole("replay.groups", self.groups, 1)
        require_whole("replay.max_versions", self.max_versions, 1)


@dataclass(frozen=True, slots=True)
class Subset:
    """Train on some completions of each group, with advantages from all of them.

    Attributes:
        size: completions per group that are trained on.
        rule: a function of `rlvr.algo.subsets`.
    """

    size: int
    rule: str = "max_variance"

    def __post_init__(self) -> None:
        require_whole("subset.size", self.size, 1)
        require_one_of("subset.rule", self.rule, names("subset"))


@dataclass(frozen=True, slots=True)
class Kl:
    """A penalty on the KL divergence from the reference policy (see `rlvr.algo.kl`).

    Attributes:
        estimator: which estimate of the divergence.
        coefficient: its weight, above 0; of the first step if it adapts.  With the rule "dual" also 0.
        place: added to the loss, or subtracted from the reward.
        weighted: multiply the estimate by the ratio to the policy that sampled, so that its gradient is the KL's in
            every step on a batch, see `kl.kl_loss`; only in the loss.
        rule: how the coefficient moves after each step.
        target: the KL that is wanted, in nats: per completion for "ziegler", else per token; None if fixed.
        horizon: of "ziegler", in completions.
        rate: of "dual": how much the coefficient rises for each nat above the target.
    """

    estimator: Estimator
    coefficient: float
    place: Literal["loss", "reward"]
    weighted: bool = False
    rule: Rule = "fixed"
    target: float | None = None
    horizon: int = 10_000
    rate: float = 10.0

    def __post_init__(self) -> None:
        _require_rule("kl", self.coefficient, self.rule, self.target, self.horizon, self.rate)
        if self.weighted and self.place != "loss":
            raise UsageError(
                "kl.weighted is of a penalty in the loss; in the reward there is no ratio to weigh by"
            )
        require_one_of("kl.estimator", self.estimator, get_args(Estimator))
        require_one_of("kl.place", self.place, ("loss", "reward"))


@dataclass(frozen=True, slots=True)
class Correction:
    """Importance weights for a sampler whose log-probabilities differ from the trainer's.

    Attributes:
        kind: a function of `rlvr.algo.corrections`.
        level: what has one weight.
        low: the least weight that `masked` keeps; not used by `truncated`.
        high: the greatest weight that `masked` keeps, and the cap of `truncated`.
    """

    kind: str = "truncated"
    level: Level = "token"
    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        require_one_of("correction.kind", self.kind, names("correction"))
        require_one_of("correction.level", self.level, get_args(Level))
        if not 0 <= self.low <= 1 <= self.high:
            raise UsageError(
                f"correction keeps weights in [{self.low}, {self.high}]; 1 must lie inside, as it is the weight where "
                "sampler and trainer agree"
            )


@dataclass(frozen=True, slots=True)
class Reset:
    """ProRL's hard reset: the policy becomes the new reference, and the optimiser starts afresh.

    Attributes:
        every_steps: steps between resets; None for no fixed period.
        stall_validations: reset after this many validations in a row without a new best; None to ignore validation.
        kl_share: reset after a step in which the KL penalty's share of the gradient was above this, in (0, 1): the
            penalty then holds the policy more than the reward moves it.  None to ignore it.
        optimizer: reset the optimiser's moments too.
    """

    every_steps: int | None = None
    stall_validations: int | None = None
    optimizer: bool = True
    kl_share: float | None = None

    def __post_init__(self) -> None:
        if self.every_steps is None and self.stall_validations is None and self.kl_share is None:
            raise UsageError(
                "a reset without every_steps, stall_validations or kl_share never happens; give one"
            )
        if self.kl_share is not None:
            require_number("reset.kl_share", self.kl_share, above=0, below=1)
        require_optional_whole("reset.every_steps", self.every_steps, 1)
        require_optional_whole("reset.stall_validations", self.stall_validations, 1)


@dataclass(frozen=True, slots=True)
class Preference:
    """Learning from which completions are right, instead of from advantages (see `rlvr.algo.preferences`).

    Attributes:
        loss: a preference function: dpo, ipo, hinge, kto or negative_log_likelihood; of reward models bradley_terry or
            step_label_loss.
        beta: strength of the pull towards the reference policy; in IPO it is called τ.
        length: whether the gain of a completion is the sum or the mean over its tokens.
        smoothing: share of labels that are supposed to be wrong (dpo).
        reading: how smoothing is read: conservative or robust (dpo).
        right_weight: weight of right completions (kto).
        wrong_weight: weight of wrong completions (kto).
        centring: weight of (r_w + r_l)², which keeps the rewards of a reward model around 0 (bradley_terry).
        sft_weight: weight of the chosen completions' negative log-likelihood per token, added to the loss.
        per_task: most pairs drawn from a group; of labelled or right completions, most of each label.
        unparsed: draw completions without an answer as wrong ones too.
    """

    loss: str
    beta: float = 0.1
    length: Literal["sum", "mean"] = "sum"
    smoothing: float = 0.0
    reading: Literal["conservative", "robust"] = "conservative"
    right_weight: float = 1.0
    wrong_weight: float = 1.0
    centring: float = 0.0
    sft_weight: float = 0.0
    per_task: int = 2
    unparsed: bool = False

    def __post_init__(self) -> None:
        needs = function("preference", self.loss).needs
        require_one_of("preference.length", self.length, ("sum", "mean"))
        require_one_of("preference.reading", self.reading, ("conservative", "robust"))
        require_number("preference.beta", self.beta, above=0)
        require_number("preference.smoothing", self.smoothing, 0, below=0.5)
        for name in ("right_weight", "wrong_weight"):
            require_number(f"preference.{name}", getattr(self, name), above=0)
        require_number("preference.sft_weight", self.sft_weight, 0)
        require_number("preference.centring", self.centring, 0)
        require_whole("preference.per_task", self.per_task, 1)
        if self.smoothing and self.loss != "dpo":
            raise UsageError(
                f"preference.smoothing is {self.smoothing}, and {self.loss} has no labels to smooth; set 0"
            )
        if self.sft_weight and ("pairs" not in needs or "head" in needs):
            raise UsageError(
                f"preference.sft_weight is of policies on pairs, and the loss {self.loss!r}; set it to 0"
            )
        if self.loss == "kto" and self.length == "mean":
            raise UsageError(
                "preference.length is 'mean', and KTO compares sums with a divergence; set it to 'sum'"
            )


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What is computed from a batch of rollouts, and how often it is trained on.

    Attributes:
        paper: where it was published.
        advantage: a function of `rlvr.algo.advantages` or `rlvr.algo.returns`.  With a KL penalty in the reward, those
            that compare whole completions take the score minus the sum of the completion's penalties;
            `discounted_returns` takes the penalties per token, and the score on the last one.
        objective: a function of `rlvr.algo.objectives`.
        aggregation: a function of `rlvr.algo.aggregation`.
        preference: learning from preferences; then advantage, objective and aggregation are empty.  None for others.
        clip: for objectives that clip; None for the others.
        soft_clip: for sapo.
        trust: for ppo_kl; None for the others.
        trust_region: for surrogate; None for the others.
        scale: divide by the group's standard deviation (group_advantages, process_advantages).
        group_baseline: subtract the group's mean first (global_advantages).
        baseline: what reinforce_advantages subtracts.
        baseline_decay: of the moving average, in [0, 1).
        gamma: discount per token (discounted_returns, gae, n_step_advantages).
        lam: λ of gae: 0 is TD(0), 1 the Monte-Carlo return.
        n_steps: tokens that n_step_advantages looks ahead: 1 is TD(0), None the whole completion.
        critic: the value model, for gae and n_step_advantages; None for the others.
        length_tokens: the length of `constant`; None for the sampler's max_tokens.
        kl: the KL penalty; None for none, and then there is no reference policy.
        mixing: when the reference takes over a part of the policy; None for never.
        entropy: coefficient of the entropy bonus; 0 for none.
        entropy_target: how that coefficient adapts; None for not.
        entropy_share: share of the tokens, those of highest entropy, that the policy is trained on; 1 for all.
        dynamic_sampling: drop groups whose completions are all correct or all wrong, and sample others instead.
        refill: False: dynamic sampling does not sample others; the remaining groups weigh more, as all denominators
            are theirs alone.
        subset: which completions of a group are trained on; None for all.
        replay: groups of earlier steps that are trained on again; None for none.
        overlong: what is done with truncated completions.
        overlong_share: greatest soft punishment as a share of the width of the reward's bounds.  1/2 is DAPO's -1 for
            rewards of ±1, and -½ for rewards in [0, 1]: equal after dividing by the std.
        correction: weights for differences between sampler and trainer; None for none.
        reset: when reference and optimiser start afresh; None for never.
        whiten: normalise advantages over all tokens of the batch, where they differ from token to token.
        epochs: passes over each batch of rollouts.
        prompts: prompts per step, as published; not used by the trainer.  None where the paper has none.
        group_size: completions per prompt, as published: what `Config.group_size` is by default.
        minibatch: rollouts per optimiser step, as published; not used by the trainer.
        temperature: sampling temperature.
        sources: where each published number stands, and which ones are ours.

    Raises:
        UsageError: a number out of its range, or pieces that do not fit each other.
    """

    paper: str
    advantage: str = ""
    objective: str = ""
    aggregation: str = ""
    preference: Preference | None = None
    clip: Clip | None = None
    soft_clip: SoftClip = SoftClip()
    trust: Trust | None = None
    trust_region: TrustRegion | None = None
    scale: bool = True
    group_baseline: bool = False
    baseline: Baseline = "batch_mean"
    baseline_decay: float = 0.9
    gamma: float = 1.0
    lam: float = 1.0
    n_steps: int | None = None
    critic: Critic | None = None
    length_tokens: int | None = None
    kl: Kl | None = None
    mixing: Mixing | None = None
    entropy: float = 0.0
    entropy_target: EntropyTarget | None = None
    entropy_share: float = 1.0
    dynamic_sampling: bool = False
    refill: bool = True
    subset: Subset | None = None
    replay: Replay | None = None
    overlong: OverlongHandling = "keep"
    overlong_share: float = 0.5
    correction: Correction | None = None
    reset: Reset | None = None
    whiten: bool = False
    epochs: int = 1
    prompts: int | None = None
    group_size: int | None = None
    minibatch: int | None = None
    temperature: float = 1.0
    sources: str = ""

    def __post_init__(self) -> None:
        require_one_of("overlong", self.overlong, get_args(OverlongHandling))
        require_number("overlong_share", self.overlong_share, above=0, most=1)
        require_whole("epochs", self.epochs, 1)
        for name in ("prompts", "group_size", "minibatch", "length_tokens", "n_steps"):
            require_optional_whole(name, getattr(self, name), 1)
        require_number("temperature", self.temperature, above=0, hint="near 1 to train")
        require_number("gamma", self.gamma, 0, 1)
        require_number("lam", self.lam, 0, 1)
        require_number(
            "entropy", self.entropy, 0, hint="and above 0 to keep the policy from collapsing"
        )
        require_number("entropy_share", self.entropy_share, above=0, most=1)
        require_one_of("baseline", self.baseline, get_args(Baseline))
        require_number("baseline_decay", self.baseline_decay, 0, below=1)
        steps = ("trust", "trust_region")
        for name, piece in (
            ("critic", self.advantage),
            *((name, self.objective) for name in steps),
        ):
            if (getattr(self, name) is None) == (name in self.needs):
                ways = {"critic": "Critic() (--critic-backbone own)", "trust": "Trust()"}
                fix = (
                    f"give {ways.get(name, name)}"
                    if name in self.needs
                    else f"it uses none, so leave {name} out"
                )
                raise UsageError(f"{piece} with {name} {getattr(self, name)}: {fix}")
        if (self.clip is None) == ("clip" in self.needs):
            clipping = [
                name for name in names("objective") if "clip" in function("objective", name).needs
            ]
            raise UsageError(
                f"objective {self.objective!r} with clip {self.clip}; {', '.join(clipping)} need a clip, others none"
            )
        if self.preference is not None:
            self._require_preference_alone()
        if (
            self.trust_region is not None
            and self.critic is not None
            and self.critic.backbone == "shared"
        ):
            raise UsageError(
                "critic.backbone is 'shared' with trust_region: the value loss would move the policy's layers out of "
                "the region; give the critic its 'own'"
            )
        if "once" in self.needs and self.epochs > 1:
            raise UsageError(
                f"objective {self.objective!r} with epochs {self.epochs}: it has no ratio to the policy that sampled, "
                "so only the first step on a batch is right; set epochs to 1, or choose the objective 'clipped'"
            )
        if self.replay is not None and (found := {"once", "prefix_values"} & self.needs):
            why = (
                "no ratio to the policy that sampled"
                if "once" in found
                else "values of its own rollouts alone"
            )
            raise UsageError(
                f"replay with {self.advantage} and {self.objective}, which has {why}; leave replay out"
            )
        if self.reset is not None and self.kl is None:
            raise UsageError(
                "reset without kl: there is no reference policy to be reset; give kl or drop reset"
            )
        if self.mixing is not None and not self.has_reference:
            raise UsageError(
                "mixing without kl: there is no reference policy to mix into; give kl or drop mixing"
            )
        if (
            self.reset is not None
            and self.reset.kl_share is not None
            and self.kl is not None
            and self.kl.place != "loss"
        ):
            raise UsageError(
                "reset.kl_share with the KL in the reward: it has no gradient of its own; put it in the loss"
            )
        if self.kl is not None and self.kl.place == "reward" and not self._takes_rewards:
            raise UsageError(
                f"{self.advantage} has no place for a KL penalty in the reward; put it in the loss"
            )

    @property
    def pieces(self) -> dict[str, Function]:
        """The entries of advantage, objective and aggregation, or of preference, by kind.

        Raises:
            UsageError: there is no such function.
        """
        if self.preference is not None:
            return {"preference": function("preference", self.preference.loss)}
        return {
            "advantage": function("advantage", self.advantage),
            "objective": function("objective", self.objective),
            "aggregation": function("aggregation", self.aggregation),
        }

    @property
    def has_reference(self) -> bool:
        """Whether the loss or the reward compares with a reference policy."""
        return self.kl is not None or "reference" in self.needs

    @property
    def needs(self) -> frozenset[Need]:
        """What the pieces need that not every run has."""
        return frozenset(need for piece in self.pieces.values() for need in piece.needs)

    def _require_preference_alone(self) -> None:
        others = (
            "advantage",
            "objective",
            "aggregation",
            "kl",
            "clip",
            "entropy",
            "correction",
            "reset",
            "whiten",
            "replay",
        )
        if given := [name for name in others if getattr(self, name)]:
            raise UsageError(
                f"this algorithm learns from preferences, which have no {', '.join(given)}; leave these out, or set "
                "preference to None"
            )

    @property
    def _takes_rewards(self) -> bool:
        return bool({"scores", "rewards"} & set(self.pieces["advantage"].inputs.values()))


_SYMMETRIC: Final = Clip(low=0.2, high=0.2)  # arXiv:1707.06347, sec. 6.1: the best of 0.1, 0.2, 0.3

PRESETS: Final[Mapping[str, Algorithm]] = MappingProxyType(
    {
        "grpo": Algorithm(
            paper="arXiv:2402.03300",
            advantage="group_advantages",
            objective="clipped",
            clip=_SYMMETRIC,
            aggregation="sequence_mean",
            kl=Kl("k3", 0.04, "loss"),
            prompts=16,
            group_size=64,
            minibatch=1024,
            sources="4.2: KL 0.04, 64 completions, batch 1024 (taken to count completions), one update; the clip is "
            "PPO's, they print none",
        ),
        "dapo": Algorithm(
            paper="arXiv:2503.14476",
            advantage="group_advantages",
            objective="clipped",
            clip=Clip(low=0.2, high=0.28),
            aggregation="token_mean",
            dynamic_sampling=True,
            overlong="soft",
            prompts=512,
            group_size=16,
            minibatch=512,
            sources="4.1: clip 0.2/0.28, 512 x 16, mini-batch 512 (16 updates), overlong 20480 with cache 4096, no KL; "
            "2.4: rewards of ±1",
        ),
        "prorl": Algorithm(
            paper="arXiv:2505.24864",
            advantage="group_advantages",
            objective="clipped",
            clip=Clip(low=0.2, high=0.4),
            aggregation="token_mean",
            kl=Kl("k3", 1e-3, "loss"),
            dynamic_sampling=True,
            reset=Reset(stall_validations=3),
            prompts=256,
            group_size=16,
            minibatch=1024,
            temperature=1.2,
            sources="3.2: clip 0.2/0.4, n 16, temperature 1.2, batch 256 and mini-batch 64, of prompts, as there are 4 "
            "updates a step; 2.3.1, 3.3: reset of reference and optimiser on a stall; KL coefficient, patience and "
            "aggregation are not published: these are ours",
        ),
        "dr_grpo": Algorithm(
            paper="arXiv:2503.20783",
            advantage="group_advantages",
            scale=False,
            objective="clipped",
            clip=_SYMMETRIC,
            aggregation="constant",
            prompts=128,
            group_size=8,
            minibatch=128,
            sources="3.2: neither std nor 1/|o|, no KL; 128 x 8 with mini-batch 128 as in the authors' script",
        ),
        "rloo": Algorithm(
            paper="arXiv:2402.14740",
            advantage="rloo_advantages",
            objective="reinforce",
            aggregation="constant",
            length_tokens=1,  # a completion is one action: its log-probability is the plain sum
            kl=Kl("k1", 0.03, "reward"),
            group_size=4,
            sources="2.2-2.3: the KL in the reward; 5.1: k 2 or 4; appendix C: KL 0.03 (summaries) or 0.10 (dialogue)",
        ),
        "reinforce_pp": Algorithm(
            paper="arXiv:2501.03262",
            advantage="discounted_returns",
            objective="clipped",
            clip=_SYMMETRIC,
            aggregation="token_mean",
            kl=Kl("k1", 0.01, "reward"),
            whiten=True,
            group_size=1,
            sources="KL k1 per token in the reward, advantages normalised over the global batch; 0.01 and the clip "
            "as in the authors' OpenRLHF",
        ),
        "magistral": Algorithm(
            paper="arXiv:2506.10910",
            advantage="magistral_advantages",
            objective="clipped",
            clip=Clip(low=0.2, high=0.28),
            aggregation="token_mean",
            dynamic_sampling=True,
            overlong="soft",
            overlong_share=0.1,
            sources="2.1: no KL, high 0.26 to 0.28, groups without variance dropped; 2.2: soft length penalty of up to "
            "0.1, where format gives 0.1 and a right answer 0.9; "
            "low 0.2 is ours",
        ),
        "vineppo": Algorithm(
            paper="arXiv:2410.01679",
            advantage="monte_carlo_advantages",
            objective="clipped",
            clip=_SYMMETRIC,
            aggregation="token_mean",
            kl=Kl("k3", 1e-4, "loss"),
            whiten=True,
            epochs=2,
            prompts=64,
            group_size=8,
            minibatch=64,
            temperature=0.6,
            sources="the authors' configuration for MATH: KL 1e-4 in the loss, clip 0.2, 2 epochs, 512 episodes of 64 "
            "prompts, mini-batch 64, temperature 0.6, K = 9 forks per step, advantages whitened, theirs per mini-batch",
        ),
        "gspo": Algorithm(
            paper="arXiv:2507.18071",
            advantage="group_advantages",
            objective="gspo",
            clip=Clip(low=3e-4, high=4e-4),
            aggregation="sequence_mean",
            sources="5.1: clip 3e-4 and 4e-4, each batch in 4 mini-batches; no KL is named; group size not printed",
        ),
        "cispo": Algorithm(
            paper="arXiv:2506.13585",
            advantage="group_advantages",
            objective="cispo",
            clip=Clip(low=1.0, high=4.0),
            aggregation="token_mean",
            dynamic_sampling=True,
            sources="3.1: no lower bound, no KL, dynamic sampling; their upper bound is not printed: a weight of at "
            "most 5 is that of ScaleRL, arXiv:2510.13786",
        ),
        "sapo": Algorithm(
            paper="arXiv:2511.20347",
            advantage="group_advantages",
            objective="sapo",
            aggregation="sequence_mean",
            sources="eq. 5 and 6, temperatures 1 and 1.05; no KL is named",
        ),
        "ppo": Algorithm(
            paper="arXiv:1707.06347",
            advantage="gae",
            lam=0.95,
            objective="clipped",
            clip=_SYMMETRIC,
            aggregation="token_mean",
            kl=Kl("k1", 0.02, "reward"),
            whiten=True,
            critic=Critic(),
            prompts=512,
            group_size=1,
            minibatch=64,
            sources="6.1: clip 0.2, λ 0.95; for language models as in InstructGPT (arXiv:2203.02155, C.4): KL 0.02 in "
            "the reward, γ 1, value clip 0.2, batch 512 in mini-batches of 64, one epoch; whitening as in OpenAI's "
            "baselines; no critic warm-up is named",
        ),
        "ppo_kl": Algorithm(
            paper="arXiv:1707.06347",
            advantage="gae",
            lam=0.95,
            objective="ppo_kl",
            trust=Trust(),
            aggregation="token_mean",
            whiten=True,
            critic=Critic(value_clip=None),
            group_size=1,
            epochs=4,
            sources="eq. 8 and sec. 4: β 1 at first, halved and doubled around a target, of which 0.01 is their middle "
            "one; 6.1: λ 0.95; theirs has 10 epochs, 4 are ours",
        ),
        "trpo": Algorithm(
            paper="arXiv:1502.05477",
            advantage="gae",
            objective="surrogate",
            aggregation="token_mean",
            trust_region=TrustRegion(),
            whiten=True,
            critic=Critic(value_clip=None),
            group_size=1,
            sources="sec. 8: δ 0.01; sec. 5.1: returns of single paths, so λ and γ are 1; app. C: 10 iterations.  "
            "Damping, the critic as baseline and whitening are those of OpenAI's code and ours",
        ),
        "a2c": Algorithm(
            paper="arXiv:1602.01783",
            advantage="n_step_advantages",
            objective="reinforce",
            aggregation="token_mean",
            entropy=0.01,
            critic=Critic(value_clip=None),
            group_size=1,
            sources="4: advantage R - V, entropy 0.01; returns to the end and γ 1 are ours, as the reward is at the "
            "end of hundreds of tokens: theirs, for Atari, are 5 steps and 0.99",
        ),
        "reinforce": Algorithm(
            paper="doi:10.1007/BF00992696",
            advantage="reinforce_advantages",
            baseline="moving_average",
            objective="reinforce",
            aggregation="constant",
            length_tokens=1,  # the gradient of a completion's log-probability, which is a sum
            group_size=1,
            sources="Williams 1992, sec. 4: any baseline that the action does not change; sec. 8: the average of "
            "earlier rewards with decay 0.9",
        ),
        "dpo": Algorithm(
            paper="arXiv:2305.18290",
            preference=Preference("dpo", beta=0.1),
            dynamic_sampling=True,
            overlong="mask",
            sources="App. B: beta 0.1; sums over tokens, eq. 7.  Pairs per group and what is masked are ours",
        ),
        "ipo": Algorithm(
            paper="arXiv:2310.12036",
            preference=Preference("ipo", beta=0.1, length="mean"),
            dynamic_sampling=True,
            overlong="mask",
            sources="eq. 17 has sums; means and 0.1 are TRL's, as the authors advised; length='sum' is the paper's",
        ),
        "kto": Algorithm(
            paper="arXiv:2402.01306",
            preference=Preference("kto", beta=0.1),
            overlong="mask",
            sources="4.2: beta 0.1, weights 1",
        ),
        "reward_model": Algorithm(
            paper="arXiv:2307.09288",
            preference=Preference("bradley_terry", centring=0.01),
            sources="eq. 2; centring and its weight are of arXiv:2312.09244, 2 and TRL's examples",
        ),
        "process_reward_model": Algorithm(
            paper="arXiv:2312.08935",
            preference=Preference("step_label_loss"),
            sources="eq. 4 with soft labels; weights by the number of continuations are ours",
        ),
        "rft": Algorithm(
            paper="arXiv:2308.01825",
            preference=Preference("negative_log_likelihood", per_task=4),
            overlong="mask",
            sources="3.2: distinct right completions, fine-tuned on; 4 of a task are ours",
        ),
    }
)
"""The published algorithms by name.  `dataclasses.replace` changes a setting and checks the result again."""


def preset(name: str) -> Algorithm:
    """The published algorithm of this name.

    Args:
        name: a key of `PRESETS`.

    Raises:
        UsageError: there is none of this name; the error lists them and names the nearest.
    """
    return PRESETS[require_one_of("algorithm", name, PRESETS)]
