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
    "Clip",
    "Correction",
    "Estimator",
    "Kl",
    "Level",
    "OverlongHandling",
    "PRESETS",
    "Reset",
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
            require_number("clip.dual", self.dual, above=1 + self.high, hint="which is 1 + high, or None")


@dataclass(frozen=True, slots=True)
class Kl:
    """A penalty on the KL divergence from the reference policy (see `rlvr.algo.kl`).

    Attributes:
        estimator: which estimate of the divergence.
        coefficient: its weight, above 0.
        place: added to the loss, or subtracted from the reward.
    """

    estimator: Estimator
    coefficient: float
    place: Literal["loss", "reward"]

    def __post_init__(self) -> None:
        require_one_of("kl.estimator", self.estimator, get_args(Estimator))
        require_one_of("kl.place", self.place, ("loss", "reward"))
        require_number("kl.coefficient", self.coefficient, above=0, hint="and kl None for no penalty")


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
        optimizer: reset the optimiser's moments too.
    """

    every_steps: int | None = None
    stall_validations: int | None = None
    optimizer: bool = True

    def __post_init__(self) -> None:
        if self.every_steps is None and self.stall_validations is None:
            raise UsageError("a reset without every_steps and without stall_validations never happens; give one")
        require_optional_whole("reset.every_steps", self.every_steps, 1)
        require_optional_whole("reset.stall_validations", self.stall_validations, 1)


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
        clip: for objectives that clip; None for the others.
        scale: divide by the group's standard deviation (group_advantages, process_advantages).
        group_baseline: subtract the group's mean first (global_advantages).
        gamma: discount per token (discounted_returns).
        lam: λ of `returns.gae`.  No preset uses it before there is a critic; it stays as runs have recorded it.
        length_tokens: the length of `constant`; None for the sampler's max_tokens.
        kl: the KL penalty; None for none, and then there is no reference policy.
        entropy: coefficient of the entropy bonus; 0 for none.
        dynamic_sampling: drop groups whose completions are all correct or all wrong, and sample others instead.
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
    advantage: str
    objective: str
    aggregation: str
    clip: Clip | None = None
    scale: bool = True
    group_baseline: bool = False
    gamma: float = 1.0
    lam: float = 1.0
    length_tokens: int | None = None
    kl: Kl | None = None
    entropy: float = 0.0
    dynamic_sampling: bool = False
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
        for name in ("prompts", "group_size", "minibatch", "length_tokens"):
            require_optional_whole(name, getattr(self, name), 1)
        require_number("temperature", self.temperature, above=0, hint="near 1 to train")
        require_number("gamma", self.gamma, 0, 1)
        require_number("lam", self.lam, 0, 1)
        require_number("entropy", self.entropy, 0, hint="and above 0 to keep the policy from collapsing")
        if (self.clip is None) == ("clip" in self.needs):
            clipping = [name for name in names("objective") if "clip" in function("objective", name).needs]
            raise UsageError(
                f"objective {self.objective!r} with clip {self.clip}; {', '.join(clipping)} need a clip, others none"
            )
        if "once" in self.needs and self.epochs > 1:
            raise UsageError(
                f"objective {self.objective!r} with epochs {self.epochs}: it has no ratio to the policy that sampled, "
                "so only the first step on a batch is right; set epochs to 1, or choose the objective 'clipped'"
            )
        if self.reset is not None and self.kl is None:
            raise UsageError("reset without kl: there is no reference policy to be reset; give kl or drop reset")
        if self.kl is not None and self.kl.place == "reward" and not self._takes_rewards:
            raise UsageError(f"{self.advantage} has no place for a KL penalty in the reward; put it in the loss")

    @property
    def pieces(self) -> dict[str, Function]:
        """The entries of advantage, objective and aggregation, by kind.

        Raises:
            UsageError: there is no such function.
        """
        return {
            "advantage": function("advantage", self.advantage),
            "objective": function("objective", self.objective),
            "aggregation": function("aggregation", self.aggregation),
        }

    @property
    def needs(self) -> frozenset[Need]:
        """What the pieces need that not every run has."""
        return frozenset(need for piece in self.pieces.values() for need in piece.needs)

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
