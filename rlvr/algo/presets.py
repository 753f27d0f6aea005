"""Published algorithms as data: which pieces of `rlvr.algo`, with which numbers, and where the numbers stand.

Needs no torch.  A field that names a piece holds the function's own name, so that a search for `token_mean` finds both.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

from rlvr.errors import UsageError

__all__ = [
    "Advantage",
    "Aggregation",
    "Algorithm",
    "Clip",
    "Correction",
    "Estimator",
    "Kl",
    "Need",
    "Objective",
    "Overlong",
    "PRESETS",
    "Reset",
    "preset",
]

Advantage = Literal[
    "group_advantages",
    "rloo_advantages",
    "reinforce_advantages",
    "global_advantages",
    "magistral_advantages",
    "process_advantages",
    "monte_carlo_advantages",
    "discounted_returns",
    "gae",
]
Objective = Literal["reinforce", "a2c", "clipped", "gspo", "cispo", "ppo_kl"]
Aggregation = Literal["sequence_mean", "token_mean", "constant"]
Estimator = Literal["k1", "k2", "k3"]
Overlong = Literal["keep", "mask", "soft"]
"""Truncated completions: trained on as they were scored; left out of the loss; scored with `rlvr.Overlong`."""
Need = Literal["values", "prefix_values"]
"""What the trainer brings besides scores: a critic's values per token; values of prefixes from forked rollouts."""


def _require_one_of(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{field} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")


@dataclass(frozen=True, slots=True)
class Clip:
    """The ratio is kept in [1 - low, 1 + high]; `dual` as in `objectives.clipped`."""

    low: float
    high: float
    dual: float | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.low <= 1 and 0 <= self.high < float("inf")):
            raise UsageError(f"clip is [1 - {self.low}, 1 + {self.high}]; low lies in [0, 1] and high is 0 or more")
        if self.dual is not None and not self.dual > 1 + self.high:
            raise UsageError(f"clip.dual is {self.dual}; it must be above 1 + high = {1 + self.high:g}, or None")


@dataclass(frozen=True, slots=True)
class Kl:
    """A penalty for leaving the reference policy: which estimate, how much, and where (see `rlvr.algo.kl`)."""

    estimator: Estimator
    coefficient: float
    place: Literal["loss", "reward"]

    def __post_init__(self) -> None:
        _require_one_of("kl.estimator", self.estimator, get_args(Estimator))
        _require_one_of("kl.place", self.place, ("loss", "reward"))
        if not 0 < self.coefficient < float("inf"):
            raise UsageError(f"kl.coefficient is {self.coefficient}; it must be above 0, and kl None for none")


@dataclass(frozen=True, slots=True)
class Correction:
    """Weights against a sampler whose numbers are not the trainer's: a function of `rlvr.algo.corrections`.

    `low` is for `masked` alone; `high` is the cap of `truncated`.
    """

    kind: Literal["truncated", "masked"] = "truncated"
    level: Literal["token", "sequence", "geometric"] = "token"
    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        _require_one_of("correction.kind", self.kind, ("truncated", "masked"))
        _require_one_of("correction.level", self.level, ("token", "sequence", "geometric"))
        if not 0 <= self.low <= 1 <= self.high:
            raise UsageError(f"correction keeps [{self.low}, {self.high}]; 1 must lie inside, or equal engines differ")


@dataclass(frozen=True, slots=True)
class Reset:
    """ProRL's hard reset: the reference becomes the policy, and the optimiser starts afresh.

    Attributes:
        every_steps: None for no period.
        stall_validations: reset after so many validations without a new best; None to ignore validation.
        optimizer: drop its moments too.
    """

    every_steps: int | None = None
    stall_validations: int | None = None
    optimizer: bool = True

    def __post_init__(self) -> None:
        if self.every_steps is None and self.stall_validations is None:
            raise UsageError("a reset without every_steps and without stall_validations never happens; give one")
        for name in ("every_steps", "stall_validations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"reset.{name} is {value}; it must be at least 1, or None")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What is computed from a batch of rollouts, and how often it is trained on.

    Attributes:
        paper: where it is from.
        advantage: a function of `rlvr.algo.advantages` or `rlvr.algo.returns`.  With a penalty in the reward, those
            that judge whole completions take the score minus the sum of a completion's penalties, those that go over
            time (discounted_returns, gae) take the penalties per token, and the score on the last one.
        scale: divide by the group's std (group_advantages, process_advantages).
        group_baseline: subtract the group's mean first (global_advantages).
        gamma, lam: of `gae` and of rewards per token.
        objective: a function of `rlvr.algo.objectives`.
        clip: for clipped, gspo and cispo; None for the others.
        aggregation: a function of `rlvr.algo.aggregation`.
        length_tokens: the length of `constant`; None for the sampler's max_tokens.
        kl: None for no reference policy at all.
        entropy: coefficient of the entropy bonus.
        dynamic_sampling: leave out groups that are all right or all wrong, and refill.
        overlong: what becomes of truncated completions.
        correction: None where sampler and trainer agree.
        reset: when reference and optimiser start afresh.
        value_clip: of `terms.value_loss`; None for the plain square.  Only with "values" in `needs`.
        whiten: normalise advantages that differ from token to token over all tokens of the batch.
        needs: inputs besides scores.
        epochs: passes over each batch of rollouts.
        prompts, group_size, minibatch: prompts per step, completions of each, rollouts per optimiser step: the
            published ones, as a hint; None where the paper has none.
        temperature: at which completions are sampled.
        sources: where each published number stands, and which are ours.
    """

    paper: str
    advantage: Advantage
    objective: Objective
    aggregation: Aggregation
    clip: Clip | None = None
    scale: bool = True
    group_baseline: bool = False
    gamma: float = 1.0
    lam: float = 1.0
    length_tokens: int | None = None
    kl: Kl | None = None
    entropy: float = 0.0
    dynamic_sampling: bool = False
    overlong: Overlong = "keep"
    correction: Correction | None = None
    reset: Reset | None = None
    value_clip: float | None = None
    whiten: bool = False
    needs: tuple[Need, ...] = ()
    epochs: int = 1
    prompts: int | None = None
    group_size: int | None = None
    minibatch: int | None = None
    temperature: float = 1.0
    sources: str = ""

    def __post_init__(self) -> None:
        _require_one_of("advantage", self.advantage, get_args(Advantage))
        _require_one_of("objective", self.objective, get_args(Objective))
        _require_one_of("aggregation", self.aggregation, get_args(Aggregation))
        _require_one_of("overlong", self.overlong, get_args(Overlong))
        for need in self.needs:
            _require_one_of("needs", need, get_args(Need))
        if (self.clip is not None) != (self.objective in ("clipped", "gspo", "cispo")):
            raise UsageError(
                f"objective {self.objective!r} with clip {self.clip}; clipped, gspo, cispo take one, no other"
            )
        if self.reset is not None and self.kl is None:
            raise UsageError("reset without kl: there is no reference policy to be reset; give kl or drop reset")
        wanted: dict[str, Need] = {"gae": "values", "a2c": "values", "monte_carlo_advantages": "prefix_values"}
        for piece in (self.advantage, self.objective):
            if piece in wanted and wanted[piece] not in self.needs:
                raise UsageError(f"{piece} is computed from {wanted[piece]}; add {wanted[piece]!r} to needs")
        for name in ("epochs", "prompts", "group_size", "minibatch", "length_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be at least 1")


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
            sources="4.1: clip 0.2/0.28, 512 x 16, mini-batch 512 (16 updates), overlong 20480 with cache 4096, no KL",
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
            sources="2.1: no KL, high 0.26 to 0.28, groups without variance dropped; 2.2: soft length penalty; "
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
            needs=("prefix_values",),
            epochs=2,
            prompts=64,
            group_size=8,
            minibatch=64,
            temperature=0.6,
            sources="the authors' configuration for MATH: KL 1e-4 in the loss, clip 0.2, 2 epochs, 512 episodes of 64 "
            "prompts, mini-batch 64, temperature 0.6, K = 9 forks per step, advantages whitened, theirs per mini-batch",
        ),
        "ppo": Algorithm(
            paper="arXiv:1707.06347",
            advantage="gae",
            objective="clipped",
            clip=_SYMMETRIC,
            aggregation="token_mean",
            lam=0.95,
            kl=Kl("k1", 0.02, "reward"),
            value_clip=0.2,
            whiten=True,
            needs=("values",),
            sources="sec. 6.1: clip 0.2, lambda 0.95; gamma 1, KL 0.02 in the reward and value clip 0.2 as in "
            "InstructGPT (arXiv:2203.02155, appendix C)",
        ),
    }
)
"""By name; `preset` says what is near a wrong one.  `dataclasses.replace` changes a setting and checks it again."""


def preset(name: str) -> Algorithm:
    """The algorithm of this name.

    Raises:
        UsageError: there is none, with the nearest that there is.
    """
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"there is no algorithm {name!r}{hint} (there are {', '.join(PRESETS)})")
