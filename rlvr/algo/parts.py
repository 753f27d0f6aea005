"""What algorithms share, as data: clips, penalties, critics and the other parts with their
numbers.  Needs no torch.

An algorithm (`rlvr.algo.papers`) has a part in a field of its name; the trainer does what the part
says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rlvr.errors import UsageError
from rlvr.validate import require_number, require_one_of, require_optional_whole, require_whole

__all__ = [
    "Baseline",
    "Clip",
    "Correction",
    "CorrectionKind",
    "Critic",
    "EntropyTarget",
    "Estimator",
    "Implicit",
    "Kl",
    "Level",
    "Mixing",
    "OverlongHandling",
    "Range",
    "Replay",
    "Reset",
    "Rule",
    "SoftClip",
    "Subset",
    "SubsetRule",
    "Trust",
    "TrustRegion",
]

Estimator = Literal["k1", "k2", "k3"]
"""Estimates of the KL divergence, see `rlvr.algo.kl`."""
Level = Literal["token", "sequence", "geometric"]
"""What has one correction weight, see `rlvr.algo.corrections`: a token; a row, the product over its
trained tokens (unbiased, of high variance); or a row, their geometric mean, which does not grow
with the length."""
CorrectionKind = Literal["truncate", "band", "mask"]
"""What becomes of a weight, see `Correction`."""
OverlongHandling = Literal["keep", "mask", "soft", "soft+mask"]
"""Truncated completions are trained on as they were scored; left out of the loss; scored with
`rlvr.Overlong`; or both: left out of the loss, while long completions that ended are scored with it
(DAPO's paper has either)."""
SubsetRule = Literal["max_variance", "random_subset"]
"""Which completions of a group are trained on, see `rlvr.algo.subsets`."""
Rule = Literal["fixed", "ppo", "ziegler", "dual"]
"""How a KL coefficient moves: not at all; by `control.next_beta` (a factor of 2, KL per token); by
`control.ziegler_beta` (up to a fifth per horizon, KL per completion); or by
`trust_region.dual_ascent`, as the multiplier of the constraint KL ≤ target (KL per token)."""
Baseline = Literal["none", "batch_mean", "moving_average"]
"""What `reinforce_advantages` subtracts: 0, the batch's mean score, or a moving
average over earlier batches."""


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
class Range:
    """The range [1 - low, 1 + high] in which a completion's ratio, or a weight, is kept.

    Attributes:
        low: in [0, 1].
        high: 0 or more.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        require_number("clip.low", self.low, 0, 1)
        require_number("clip.high", self.high, 0)


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
    """The penalty of `objectives.ppo_kl` on the KL from the policy that sampled
    (arXiv:1707.06347, sec. 4).

    Attributes:
        coefficient: β of the first step, above 0; with the rule "dual" also 0.
        rule: how β moves after each step.
        target: the KL that is wanted, in nats: per completion for "ziegler", else per token; None
            if fixed.
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
    """TRPO's steps (arXiv:1502.05477), see `rlvr.algo.trust_region`: they
    replace AdamW for the policy.

    Attributes:
        delta: δ, the mean KL per token from the weights before the step to those after it, in nats;
            above 0.
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
        lr: learning rate of the critic; None for the policy's.  A shared backbone learns at the
            policy's, its head at this one.
        schedule: of the learning rate; None for the policy's.
        coefficient: weight of the value loss, above 0.  It counts where the backbone is shared; an
            own critic is trained by AdamW, which undoes a factor.
        value_clip: range in which a value may move per batch, see `terms.value_loss`; None for no
            clip.
        warmup: training steps at the start in which only the critic learns.
        bootstrap: add the value after the last token to the score of a truncated completion, as
            where the limit is no part of the task (arXiv:1712.00378).  No target ever corrects that
            value, so completions without an end are then paid what is usual.
    """

    backbone: Literal["own", "shared"] = "own"
    lr: float | None = None
    schedule: Literal["constant", "linear", "cosine"] | None = None
    coefficient: float = 0.5
    value_clip: float | None = 0.2
    warmup: int = 0
    bootstrap: bool = False

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
class Implicit:
    """An implicit reward model that learns from each batch's outcomes (see `rlvr.train.implicit`).

    Attributes:
        beta: β of the rewards β log π_φ / π_ref, above 0.
        lr: learning rate of π_φ; None for twice the policy's.
    """

    beta: float = 0.05
    lr: float | None = None

    def __post_init__(self) -> None:
        require_number("implicit.beta", self.beta, above=0)
        if self.lr is not None:
            require_number("implicit.lr", self.lr, above=0)


@dataclass(frozen=True, slots=True)
class EntropyTarget:
    """An entropy coefficient that adapts (Skywork-OR1, arXiv:2505.22312), see
    `control.next_entropy_coefficient`.

    `Algorithm.entropy` is the coefficient of the first update.

    Attributes:
        nats: the mean entropy per token that is wanted; the bonus counts after updates at or below
            it.
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
    """Reference mixing (TR-DPO, arXiv:2404.09656): now and then, reference ← share · policy +
    (1 - share) · reference.

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
    """Train on groups of earlier steps again (RePO, arXiv:2506.09340; which groups, and how
    old they may be, is ours).

    Attributes:
        groups: how many a step trains on besides its own, drawn at random; fewer while there are
            not so many.
        max_versions: most training steps between the weights that sampled a token and those that
            are trained on it.
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
    rule: SubsetRule = "max_variance"

    def __post_init__(self) -> None:
        require_whole("subset.size", self.size, 1)
        require_one_of("subset.rule", self.rule, get_args(SubsetRule))


@dataclass(frozen=True, slots=True)
class Kl:
    """A penalty on the KL divergence from the reference policy (see `rlvr.algo.kl`).

    Attributes:
        estimator: which estimate of the divergence.
        coefficient: its weight, above 0; of the first step if it adapts.  With the rule "dual" also
            0.
        place: added to the loss, or subtracted from the reward.
        weighted: multiply the estimate by the ratio to the policy that sampled, so that its
            gradient is the KL's in every step on a batch, see `kl.kl_loss`; only in the loss.
        rule: how the coefficient moves after each step.
        target: the KL that is wanted, in nats: per completion for "ziegler", else per token; None
            if fixed.
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
                "kl.weighted is of a penalty in the loss; in the reward there is no ratio to weigh "
                "by"
            )
        require_one_of("kl.estimator", self.estimator, get_args(Estimator))
        require_one_of("kl.place", self.place, ("loss", "reward"))


@dataclass(frozen=True, slots=True)
class Correction:
    """Importance weights for a sampler whose log-probabilities differ from the trainer's, see
    `rlvr.algo.corrections`.

    As a text it is LEVEL:truncate:HIGH, LEVEL:band:LOW:HIGH or LEVEL:mask:LOW:HIGH.  Several, with
    commas between them, are multiplied.

    Attributes:
        kind: truncate: min(w, high).  band: w inside [low, high], 0 outside (IcePop).  mask: 1
            inside, 0 outside.
        level: what has one weight w.
        low: the least weight that `band` and `mask` keep; 0 with `truncate`.
        high: the greatest weight that they keep, and the cap of `truncate`.
    """

    kind: CorrectionKind = "truncate"
    level: Level = "token"
    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        require_one_of("correction.kind", self.kind, get_args(CorrectionKind))
        require_one_of("correction.level", self.level, get_args(Level))
        if self.kind == "truncate" and self.low:
            raise UsageError(
                f"correction.low is {self.low}, and truncate has no lower bound; leave it out, or "
                f"choose band"
            )
        if not 0 <= self.low <= 1 <= self.high:
            raise UsageError(
                f"correction keeps weights in [{self.low}, {self.high}]; 1 must lie inside, as it "
                "is the weight where sampler and trainer agree"
            )

    def __str__(self) -> str:
        bounds = f"{self.high:g}" if self.kind == "truncate" else f"{self.low:g}:{self.high:g}"
        return f"{self.level}:{self.kind}:{bounds}"

    @classmethod
    def read(cls, text: str) -> Correction:
        """The correction that a text says.

        Args:
            text: such as "sequence:mask:0.5:2".

        Raises:
            UsageError: it says none.
        """
        words = text.strip().split(":")
        try:
            level, kind, *bounds = words
            numbers = [float(bound) for bound in bounds]
            if len(numbers) != (1 if kind == "truncate" else 2):
                raise ValueError
        except ValueError:
            raise UsageError(
                f"correction is {text!r}; it must be LEVEL:truncate:HIGH, LEVEL:band:LOW:HIGH or "
                f"LEVEL:mask:LOW:HIGH, "
                "such as token:truncate:2, with commas between several"
            ) from None
        # checked there
        return cls(
            kind,  # type: ignore[arg-type]
            level,  # type: ignore[arg-type]
            *([0.0] if len(numbers) == 1 else []),
            *numbers,
        )


@dataclass(frozen=True, slots=True)
class Reset:
    """ProRL's hard reset: the policy becomes the new reference, and the optimiser starts afresh.

    Attributes:
        every_steps: steps between resets; None for no fixed period.
        stall_validations: reset after this many validations in a row without a new best; None to
            ignore validation.
        kl_share: reset after a step in which the KL penalty's share of the gradient was above this,
            in (0, 1): the penalty then holds the policy more than the reward moves it.  None to
            ignore it.
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
