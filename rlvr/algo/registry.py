"""The functions of `rlvr.algo` by name, with what each one needs.  Needs no torch: a module is imported on first use.

A preset (`rlvr.algo.presets`) names functions; the trainer finds them here, computes the inputs that their entries
list, and passes the algorithm's numbers.  So a new algorithm is a function, its entry, and a preset:

    register("advantage", "mine", Function("my.module", "arXiv:…, eq. 3", inputs=same("scores", "scored")))
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from rlvr.errors import UsageError
from rlvr.validate import require_one_of

__all__ = ["Function", "Kind", "Need", "function", "names", "register", "same"]

Kind = Literal["advantage", "objective", "aggregation", "correction", "subset", "preference"]
"""What a function computes: advantages; a policy's losses per token; one number from losses; importance weights; which
completions are trained on; or losses of pairs of completions."""
Need = Literal[
    "siblings",
    "prefix_values",
    "step_rewards",
    "critic",
    "clip",
    "trust",
    "trust_region",
    "once",
    "pairs",
    "labels",
    "reference",
    "steps",
    "head",
]
"""What a function needs that not every run has:

    siblings        two or more completions per prompt
    prefix_values   values of prefixes, from completions that fork there (VinePPO)
    step_rewards    turns with rewards of their own
    critic          a trained value of every token
    clip            `Algorithm.clip`
    trust           `Algorithm.trust`, the coefficient of the KL from the policy that sampled
    trust_region    `Algorithm.trust_region`, in which its steps stay
    once            one optimiser step per batch of rollouts, as it has no ratio to the policy that sampled
    pairs           a chosen and a rejected completion of one prompt
    labels          completions that are known to be right or wrong
    steps           the steps of completions, each with counts of right continuations
    head            a head that gives numbers instead of tokens: a reward model
    reference       a reference policy that the loss compares with
"""


@dataclass(frozen=True)
class Function:
    """A function's entry.

    Attributes:
        module: where it is, such as "rlvr.algo.objectives"; it has the entry's name there, unless `attribute` says
            another one.
        source: paper and equation.
        inputs: its keyword arguments that are computed from a batch, each with the name of what is passed.
        settings: its keyword arguments that are numbers of the algorithm, each with the path of the field, such as
            "clip.low".
        needs: see `Need`.
        attribute: its name in the module; "" for the entry's.
    """

    module: str
    source: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    attribute: str = ""

    def __post_init__(self) -> None:
        for need in self.needs:
            require_one_of("needs", need, get_args(Need))

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The function itself."""
        found: Callable[..., Any] = getattr(importlib.import_module(self.module), self.attribute)
        return found

    def bound(self, algorithm: object) -> Callable[..., Any]:
        """The function with the algorithm's numbers.

        Args:
            algorithm: an `rlvr.algo.presets.Algorithm`.
        """
        return partial(
            self.call, **{name: attrgetter(path)(algorithm) for name, path in self.settings.items()}
        )

    def given(self, inputs: Mapping[str, Any] | object) -> dict[str, Any]:
        """The keyword arguments that are computed from a batch.

        Args:
            inputs: a mapping, or an object with attributes, of which only those that are needed are read.
        """
        read = inputs.__getitem__ if isinstance(inputs, Mapping) else partial(getattr, inputs)
        return {name: read(wanted) for name, wanted in self.inputs.items()}


def same(*names: str, **renamed: str) -> Mapping[str, str]:
    """A mapping for `Function.inputs` and `Function.settings`.

    Args:
        names: arguments that are called what is passed to them.
        renamed: arguments with another name, and what is passed to them.
    """
    return MappingProxyType({**{name: name for name in names}, **renamed})


_ENTRIES: Final[dict[tuple[Kind, str], Function]] = {}


def register(kind: Kind, name: str, entry: Function) -> None:
    """Add a function.

    Args:
        kind: what it computes.
        name: by which presets name it.
        entry: where it is, and what it needs.

    Raises:
        UsageError: there is no such kind, or another function of this kind has the name.
    """
    require_one_of("kind", kind, get_args(Kind))
    entry = replace(entry, attribute=entry.attribute or name)
    if (known := _ENTRIES.get((kind, name))) is not None and known != entry:
        raise UsageError(
            f"there is already the {kind} {name!r}, of {known.module}; choose another name"
        )
    _ENTRIES[kind, name] = entry


def names(kind: Kind) -> tuple[str, ...]:
    """The names of a kind's functions.

    Args:
        kind: what they compute.
    """
    return tuple(name for of, name in _ENTRIES if of == kind)


def function(kind: Kind, name: str) -> Function:
    """The entry of a function.

    Args:
        kind: what it computes.
        name: its name.

    Raises:
        UsageError: there is none of this name; the error lists them and names the nearest.
    """
    return _ENTRIES[kind, require_one_of(kind, name, names(kind))]


_ADVANTAGES: Final = "rlvr.algo.advantages"
_RETURNS: Final = "rlvr.algo.returns"
_OBJECTIVES: Final = "rlvr.algo.objectives"
_AGGREGATION: Final = "rlvr.algo.aggregation"
_CORRECTIONS: Final = "rlvr.algo.corrections"

for _name, _entry in {
    "group_advantages": Function(
        _ADVANTAGES,
        "arXiv:2402.03300, 4.1.2",
        same("scores", "scored"),
        same("scale"),
        ("siblings",),
    ),
    "rloo_advantages": Function(
        _ADVANTAGES, "arXiv:2402.14740, 2.3", same("scores", "scored"), needs=("siblings",)
    ),
    "reinforce_advantages": Function(
        _ADVANTAGES, "Williams 1992", same("scores", "scored", "baseline")
    ),
    "global_advantages": Function(
        _ADVANTAGES,
        "arXiv:2501.03262",
        same("scores", "scored", "lengths_tokens"),
        same("group_baseline"),
    ),
    "magistral_advantages": Function(
        _ADVANTAGES,
        "arXiv:2506.10910, 2.1",
        same("scores", "scored", "minibatch"),
        needs=("siblings",),
    ),
    "process_advantages": Function(
        _RETURNS,
        "arXiv:2402.03300, 4.1.3",
        same("step_ends", "scored", rewards="step_rewards"),
        same("scale"),
        ("siblings", "step_rewards"),
    ),
    "monte_carlo_advantages": Function(
        _RETURNS,
        "arXiv:2410.01679, 4",
        same("boundaries", "completion_mask", values="prefix_values"),
        needs=("prefix_values",),
    ),
    "discounted_returns": Function(
        _RETURNS, "arXiv:2501.03262", same("rewards", "completion_mask", "bootstrap"), same("gamma")
    ),
    "gae": Function(
        _RETURNS,
        "arXiv:1506.02438, eq. 16",
        same("rewards", "values", "completion_mask", "bootstrap"),
        same("gamma", "lam"),
        ("critic",),
    ),
    "n_step_advantages": Function(
        _RETURNS,
        "arXiv:1602.01783, 4",
        same("rewards", "values", "completion_mask", "bootstrap"),
        same("gamma", n="n_steps"),
        ("critic",),
    ),
}.items():
    register("advantage", _name, _entry)

for _name, _entry in {
    "reinforce": Function(_OBJECTIVES, "Williams 1992", needs=("once",)),
    "clipped": Function(
        _OBJECTIVES,
        "arXiv:1707.06347, eq. 7",
        settings=same(low="clip.low", high="clip.high", dual="clip.dual"),
        needs=("clip",),
    ),
    "gspo": Function(
        _OBJECTIVES,
        "arXiv:2507.18071, eq. 5",
        settings=same(low="clip.low", high="clip.high"),
        needs=("clip",),
    ),
    "sequence_clipped": Function(
        _OBJECTIVES,
        "arXiv:1707.06347, eq. 7, per completion",
        settings=same(low="clip.low", high="clip.high"),
        needs=("clip",),
    ),
    "sapo": Function(
        _OBJECTIVES,
        "arXiv:2511.20347, eq. 5",
        settings=same(positive="soft_clip.positive", negative="soft_clip.negative"),
    ),
    "ppo_kl": Function(
        _OBJECTIVES,
        "arXiv:1707.06347, eq. 8",
        settings=same(beta="trust.coefficient"),
        needs=("trust",),
    ),
    "surrogate": Function(_OBJECTIVES, "arXiv:1502.05477, eq. 14", needs=("trust_region",)),
    "cispo": Function(
        _OBJECTIVES,
        "arXiv:2506.13585, eq. 4",
        settings=same(low="clip.low", high="clip.high"),
        needs=("clip",),
    ),
}.items():
    register("objective", _name, _entry)

for _name, _entry in {
    "max_variance": Function(
        "rlvr.algo.subsets", "arXiv:2504.13818, 3.2", settings=same(size="subset.size")
    ),
    "random_subset": Function(
        "rlvr.algo.subsets", "arXiv:2504.13818, 4", settings=same(size="subset.size")
    ),
}.items():
    register("subset", _name, _entry)

for _name, _entry in {
    "sequence_mean": Function(_AGGREGATION, "arXiv:2402.03300, eq. 3", same("sequences")),
    "token_mean": Function(_AGGREGATION, "arXiv:2503.14476, 3.3", same("tokens")),
    "constant": Function(_AGGREGATION, "arXiv:2503.20783, 3.2", same("sequences", "length_tokens")),
}.items():
    register("aggregation", _name, _entry)

for _name, _entry in {
    "truncated": Function(
        _CORRECTIONS, "Ionides 2008", settings=same(cap="correction.high", level="correction.level")
    ),
    "masked": Function(
        _CORRECTIONS,
        "arXiv:2510.18855, 2.3.2",
        settings=same(low="correction.low", high="correction.high", level="correction.level"),
    ),
}.items():
    register("correction", _name, _entry)

_PREFERENCES: Final = "rlvr.algo.preferences"

for _name, _entry in {
    "dpo": Function(
        _PREFERENCES,
        "arXiv:2305.18290, eq. 7",
        same("chosen", "rejected"),
        same(
            beta="preference.beta", smoothing="preference.smoothing", reading="preference.reading"
        ),
        ("pairs", "reference"),
    ),
    "hinge": Function(
        _PREFERENCES,
        "arXiv:2309.06657, 3.2",
        same("chosen", "rejected"),
        same(beta="preference.beta"),
        ("pairs", "reference"),
    ),
    "ipo": Function(
        _PREFERENCES,
        "arXiv:2310.12036, eq. 17",
        same("chosen", "rejected"),
        same(beta="preference.beta"),
        ("pairs", "reference"),
    ),
    "kto": Function(
        _PREFERENCES,
        "arXiv:2402.01306, eq. 8",
        same("gain", "right", "reference_point"),
        same(
            beta="preference.beta",
            right_weight="preference.right_weight",
            wrong_weight="preference.wrong_weight",
        ),
        ("labels", "reference"),
    ),
    "bradley_terry": Function(
        _PREFERENCES,
        "arXiv:2307.09288, eq. 2",
        same("chosen", "rejected", "margin"),
        same(centring="preference.centring"),
        ("pairs", "head"),
    ),
    "step_label_loss": Function(
        _PREFERENCES,
        "arXiv:2312.08935, eq. 4",
        same("logits", "right", "counts"),
        needs=("steps", "head"),
    ),
    "negative_log_likelihood": Function(
        _PREFERENCES, "arXiv:2308.01825", same("logprobs", "completion_mask")
    ),
}.items():
    register("preference", _name, _entry)
