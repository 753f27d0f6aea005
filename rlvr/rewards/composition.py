"""Rewards compose by arithmetic, and each score says what each part added.

    reward = Correct(verifier) + 0.1 * Format(BOXED) + 0.5 * Overlong(max_tokens=4096, cache=512)
    reward = Correct(verifier).gate(by=Format(BOXED)).clip(-1, 1)

A reward is evaluated in two stages.  `observe` looks at one completion and gives each part's raw
value; it may be slow or crash, so it runs in a worker.  `combine` is arithmetic on those values;
group-level parts are evaluated there, where all completions of the group are known.  Both are
coroutines underneath, which wait only where a part is async.

`Score.parts` says what each part added to the total.  A gate, a clip and a constant change the
total too, so each has an entry of its own with what it added or took away; two with the same name
share an entry.  The entries of one score sum to its total, up to rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, TypeGuard

from rlvr.display import settings, show_number
from rlvr.errors import RewardError, Unscored, UsageError, brief
from rlvr.types import (
    Completion,
    Outcome,
    Score,
    Task,
    Verdict,
    Verifier,
    VerifierFunction,
    as_verifier,
    describe_returned,
    is_async,
    plain,
    takes_task,
    verified,
    verifies_async,
)
from rlvr.validate import is_number
from rlvr.workers.loops import finish

__all__ = ["Bounds", "Correct", "GroupPart", "Observation", "Part", "Reward"]

Bounds: TypeAlias = tuple[float, float]
"""(least, greatest) value."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one completion before composition.

    Attributes:
        verdict: of the environment.
        values: raw value of each part that looks at one completion, by name.
    """

    verdict: Verdict
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every score of a reward needs, collected from the expression once."""

    primary: Correct | None
    single: tuple[tuple[Part, bool], ...]  # and whether it is async
    joint: tuple[tuple[GroupPart, bool], ...]
    needs_length: bool
    bounds: Bounds
    observes_async: bool
    combines_async: bool


class Reward(ABC):
    """An expression over parts.  Immutable; composing makes a new reward.

    `+`, `-` and multiplication by a number work as usual; see also `gate` and `clip`.
    """

    __array_ufunc__: ClassVar[None] = None  # makes numpy's numbers call __rmul__ and __radd__ below

    @property
    @abstractmethod
    def bounds(self) -> Bounds:
        """The least and the greatest total, computed through the expression and enforced on every
        score."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The keys of `Score.parts`, in order; the same for every score."""

    @property
    @abstractmethod
    def leaves(self) -> tuple[_Leaf, ...]:
        """Every part, gates included, in order and each once."""

    @abstractmethod
    def evaluate(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """The total, and what each entry of `names` added to it.

        Args:
            values: raw value of each part, by name.
        """

    def __add__(self, other: Reward | float) -> Reward:
        return _Sum(self, _as_reward(other))

    def __radd__(self, other: float) -> Reward:
        if _is_number(other) and other == 0:
            return self  # so that sum([a, b, c]) works
        return _Sum(_as_reward(other), self)

    def __mul__(self, factor: float) -> Reward:
        # An infinite factor times a value of 0 would be NaN, and no bounds could be given.
        if not _is_number(factor):
            factor_text = str(factor) if isinstance(factor, Reward) else brief(factor)
            raise UsageError(
                f"{factor_text} * {self}: a reward is scaled by a finite number; to multiply two, "
                f"use gate"
            )
        return _Scaled(self, float(factor))

    __rmul__ = __mul__

    def __neg__(self) -> Reward:
        return self * -1.0

    def __sub__(self, other: Reward | float) -> Reward:
        return self + (
            -other if isinstance(other, Reward) or _is_number(other) else _as_reward(other)
        )

    def __rsub__(self, other: float) -> Reward:
        return _as_reward(other) + -self

    def gate(self, *, by: Reward) -> Reward:
        """This reward multiplied by another: `Length(…).gate(by=Correct(…))`.

        Args:
            by: a reward whose bounds lie in [0, 1].

        Raises:
            UsageError: `by` is no reward, or its bounds are others.
        """
        if not isinstance(by, Reward):
            raise UsageError(
                f"{self} gated by {brief(by)}: a gate is a reward; to scale by a number, write 0.5 "
                f"* …"
            )
        return _Gated(self, by)

    def clip(self, low: float, high: float) -> Reward:
        """This reward with its total limited to [low, high].

        Args:
            low, high: finite numbers.

        Raises:
            UsageError: the limits are not finite or not in order.
        """
        if not (_is_number(low) and _is_number(high) and low <= high):
            raise UsageError(
                f"{self} clipped to [{low!r}, {high!r}]: the limits must be finite numbers and in "
                f"order"
            )
        return _Clipped(self, float(low), float(high))

    @property
    def primary(self) -> Correct | None:
        """The first `Correct`: its verdict is the score's verdict."""
        return self._plan.primary

    @property
    def needs_length(self) -> bool:
        """True if a part reads the completion's length in tokens."""
        return self._plan.needs_length

    @property
    def group_level(self) -> bool:
        """True if a part compares the completions of one task, so that none can be scored alone."""
        return bool(self._plan.joint)

    @cached_property
    def _plan(self) -> _Plan:
        leaves = self.leaves
        _require_finite(self)
        single = tuple((leaf, leaf.is_async) for leaf in leaves if isinstance(leaf, Part))
        joint = tuple((leaf, leaf.is_async) for leaf in leaves if isinstance(leaf, GroupPart))
        return _Plan(
            primary=next((leaf for leaf in leaves if isinstance(leaf, Correct)), None),
            single=single,
            joint=joint,
            needs_length=any(leaf.needs_length for leaf in leaves),
            bounds=self.bounds,
            observes_async=any(waits for _, waits in single),
            combines_async=any(waits for _, waits in joint),
        )

    @property
    def observes_async(self) -> bool:
        """True if a part that looks at one completion is async, or the verifier of a `Correct`."""
        return self._plan.observes_async

    @property
    def combines_async(self) -> bool:
        """True if a group-level part is async."""
        return self._plan.combines_async

    def observe(self, task: Task, completion: Completion, verdict: Verdict) -> Observation:
        """The first stage: raw values of the parts that look at one completion.

        Args:
            task: what the completion answers.
            completion: its text, with its length if known.
            verdict: of the environment on this completion.

        Raises:
            RewardError: a part's value is not finite or outside its bounds, or it needs a length
                that is not recorded.
            Unscored: the verifier of a further `Correct` failed.
            UsageError: a part is async; await `aobserve`.
        """
        return finish(self.aobserve(task, completion, verdict))

    async def aobserve(self, task: Task, completion: Completion, verdict: Verdict) -> Observation:
        """`observe`, with async parts awaited, one after another.

        Args:
            task, completion, verdict: see `observe`.
        """
        # No part is asked: the total is None whatever
        # they give, and a judge's calls would be in vain.
        if verdict.outcome is Outcome.UNSCORED:
            return Observation(verdict, {})
        primary, values = self._plan.primary, {}
        for leaf, waits in self._plan.single:
            # The environment has run this verifier already;
            # a second call could give another verdict.
            if leaf is primary:
                values[leaf.name] = verdict.value
            else:
                _require_length(leaf, [completion], task)
                value: Any = leaf.value(task, completion, verdict)
                values[leaf.name] = _check_value(leaf, await value if waits else value, task)
        return Observation(verdict, values)

    def combine(
        self, task: Task, completions: Sequence[Completion], observations: Sequence[Observation]
    ) -> list[Score]:
        """The second stage: scores of the completions of one task.  Group-level parts do not see
        UNSCORED ones.

        Args:
            task: what the completions answer.
            completions: of the group.
            observations: one for each completion, from `observe`.

        Raises:
            RewardError, UsageError: as for `observe`.
        """
        return finish(self.acombine(task, completions, observations))

    async def acombine(
        self, task: Task, completions: Sequence[Completion], observations: Sequence[Observation]
    ) -> list[Score]:
        """`combine`, with async parts awaited, one after another.

        Args:
            task, completions, observations: see `combine`.
        """
        present = [
            i for i, o in enumerate(observations) if o.verdict.outcome is not Outcome.UNSCORED
        ]
        values = [dict(observation.values) for observation in observations]
        for leaf, waits in self._plan.joint:
            # Only the scored ones are compared: an UNSCORED one must
            # not move the group's shortest length or its majority.
            compared = [completions[i] for i in present]
            _require_length(leaf, compared, task)
            task_option: dict[str, object] = {"task": task} if takes_task(leaf.values) else {}
            column: Any = leaf.values(
                compared, [observations[i].verdict for i in present], **task_option
            )
            column = await column if waits else column
            # A generator or a single number has no len() below.
            if not isinstance(column, Collection):
                raise RewardError(
                    f"part {leaf.name!r} of task {task.id!r} gave {describe_returned(column)}, not "
                    f"a list of values"
                )
            if len(column) != len(present):
                raise RewardError(
                    f"part {leaf.name!r} of task {task.id!r} gave {len(column)} values for "
                    f"{len(present)} completions; "
                    "it must give one for each"
                )
            # The values are of the completions that were
            # compared, so they go back by position in the group.
            for i, value in zip(present, column, strict=True):
                values[i][leaf.name] = _check_value(leaf, value, task)
        scores = []
        # Read once: `bounds` is computed through the whole expression each time.
        low, high = self._plan.bounds
        for observation, raw in zip(observations, values, strict=True):
            if observation.verdict.outcome is Outcome.UNSCORED:
                scores.append(Score(None, {}, observation.verdict))
                continue
            total, parts = self.evaluate(raw)
            # It cannot leave them while each part keeps its own: rounding is monotone.
            if not low <= total <= high:
                raise RewardError(f"{self} gave {total!r}, outside its bounds [{low:g}, {high:g}]")
            scores.append(Score(total, parts, observation.verdict))
        return scores


class _Leaf(Reward):
    """A named part with a raw value, which `Part` or `GroupPart` computes."""

    name: str
    needs_length: ClassVar[bool] = False

    @property
    @abstractmethod
    def is_async(self) -> bool:
        """True if its values are awaited."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def leaves(self) -> tuple[_Leaf, ...]:
        return (self,)

    def evaluate(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        value = values[self.name]
        return value, {self.name: value}

    def __str__(self) -> str:
        """The name and the settings that are not the default: rewards that differ must not read the
        same."""
        changed = settings(self, but=("name",))
        return f"{self.name}({', '.join(changed)})" if changed else self.name


class Part(_Leaf):
    """A part that looks at one completion.  Subclass it as a frozen dataclass
    with a `name` and `bounds`:

        @dataclass(frozen=True)
        class Polite(rlvr.Part):
            name: str = "polite"
            bounds: ClassVar = (0.0, 1.0)

            def value(self, task, completion, verdict):
                return float("please" in completion.text)

    It must be pure and take bounded time.  Set `needs_length = True` if it reads
    `completion.length_tokens`.  One that waits for something is an `async def value`.
    """

    @property
    def is_async(self) -> bool:
        return is_async(self.value)

    @abstractmethod
    def value(
        self, task: Task, completion: Completion, verdict: Verdict
    ) -> float | Awaitable[float]:
        """The raw value, inside `bounds`; may be `async def`.

        Args:
            task: what the completion answers.
            completion: its text; its length is there if `needs_length` is set.
            verdict: of the environment.
        """


class GroupPart(_Leaf):
    """A part that compares the completions of one task."""

    @property
    def is_async(self) -> bool:
        return is_async(self.values)

    @abstractmethod
    def values(
        self, completions: Sequence[Completion], verdicts: Sequence[Verdict]
    ) -> Sequence[float] | Awaitable[Sequence[float]]:
        """One raw value per completion, each inside `bounds`; may be `async def`.

        One that wants to see the prompt has a third argument with the name `task` and a default,
        and gets the `Task`.

        Args:
            completions: of one task, without UNSCORED ones.
            verdicts: one for each completion.
        """


@dataclass(frozen=True, init=False)
class Correct(Part):
    """The verdict's credit, in [0, 1].

    The first `Correct` of a reward gives the score its verdict.  Further ones need a verifier and a
    name of their own.

    Args:
        verifier: a `Verifier`, or a function `(completion, reference) -> bool | Verdict`, which get
            the task too if they have an argument `task`; None for the environment's own `verify`.
        name: of the part in `Score.parts`.
    """

    verifier: Verifier | None = None
    name: str = "correct"
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def __init__(
        self, verifier: Verifier | VerifierFunction | None = None, name: str = "correct"
    ) -> None:
        object.__setattr__(self, "verifier", None if verifier is None else as_verifier(verifier))
        object.__setattr__(self, "name", name)

    def __str__(self) -> str:
        """The name with the verifier's id and settings, or with the verifier's own `__str__` if it
        has one."""
        if self.verifier is None:
            return self.name
        # A class without a `__str__` of its own inherits object's,
        # which names an address in memory that changes with each run.
        if type(self.verifier).__str__ is not object.__str__:
            return f"{self.name}({self.verifier})"
        return f"{self.name}({', '.join([self.verifier.id, *settings(self.verifier)])})"

    @property
    def is_async(self) -> bool:
        return self.verifier is not None and verifies_async(self.verifier)

    def value(
        self, task: Task, completion: Completion, verdict: Verdict
    ) -> float | Coroutine[Any, Any, float]:
        """Credit from this part's own verifier; not called for the first `Correct`, whose verdict
        is known.

        Args:
            task, completion, verdict: see `Part.value`.
        """
        if self.verifier is None:
            raise UsageError(
                f"part {self.name!r}: only the first Correct may go without a verifier"
            )
        verdict_of_verifier = verified(self.verifier, completion.text, task)
        return (
            self._await_credit(verdict_of_verifier, task)
            if self.is_async
            else self._credit(verdict_of_verifier, task)
        )

    async def _await_credit(self, own: Any, task: Task) -> float:
        return self._credit(await own, task)

    def _credit(self, own: object, task: Task) -> float:
        if not isinstance(own, Verdict):
            raise UsageError(
                f"part {self.name!r}: its verifier returned {describe_returned(own)}; it must be a "
                f"Verdict"
            )
        # a failure of the verifier has no value: the whole completion is unscored
        if own.outcome is Outcome.UNSCORED:
            raise Unscored(
                f"part {self.name!r} of task {task.id!r}: its verifier returned UNSCORED "
                f"({own.why})"
            )
        return own.value


@dataclass(frozen=True)
class _Constant(Reward):
    amount: float
    names: ClassVar[tuple[str, ...]] = ("constant",)
    leaves: ClassVar[tuple[_Leaf, ...]] = ()

    @property
    def bounds(self) -> Bounds:
        return self.amount, self.amount

    def evaluate(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        return self.amount, {"constant": self.amount}

    def __str__(self) -> str:
        return show_number(self.amount)


@dataclass(frozen=True)
class _Sum(Reward):
    left: Reward
    right: Reward

    def __post_init__(self) -> None:
        # Only names of parts clash; "constant", a gate's and a clip's
        # entry may stand on both sides, and `evaluate` adds them up.
        leaves = {leaf.name for leaf in _merge_leaves(self.left.leaves, self.right.leaves)}
        for name in self.left.names:
            if name in leaves and name in self.right.names:
                raise UsageError(
                    f"{self}: two parts are named {name!r}; give one of them another name=…, or "
                    "scale one part instead of adding it twice"
                )
        _require_finite(self)

    @property
    def bounds(self) -> Bounds:
        (a, b), (c, d) = self.left.bounds, self.right.bounds
        return a + c, b + d

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.left.names + self.right.names))

    @property
    def leaves(self) -> tuple[_Leaf, ...]:
        return _merge_leaves(self.left.leaves, self.right.leaves)

    def evaluate(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        left, parts = self.left.evaluate(values)
        right, right_parts = self.right.evaluate(values)
        for name, value in right_parts.items():
            parts[name] = parts[name] + value if name in parts else value
        return left + right, parts

    def __str__(self) -> str:
        right = str(self.right)
        return f"{self.left} - {right[1:]}" if right.startswith("-") else f"{self.left} + {right}"


class _Unary(Reward):
    """A reward made of one other; `label` names the entry of its own effect, if it has one."""

    inner: Reward

    @property
    def label(self) -> str:
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.inner.names, self.label) if self.label else self.inner.names

    @property
    def leaves(self) -> tuple[_Leaf, ...]:
        return self.inner.leaves


@dataclass(frozen=True)
class _Scaled(_Unary):
    inner: Reward
    factor: float

    def __post_init__(self) -> None:
        _require_finite(self)

    @property
    def bounds(self) -> Bounds:
        # + 0.0: there is no -0.0
        low, high = sorted(self.factor * bound + 0.0 for bound in self.inner.bounds)
        return low, high

    def evaluate(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        total, parts = self.inner.evaluate(values)
        return self.factor * total + 0.0, {
            name: self.factor * value + 0.0 for name, value in parts.items()
        }

    def __str__(self) -> str:
        return f"{show_number(self.factor)} * {_bracket(self.inner, _Sum)}"


@dataclass(frozen=True)
class _Gated(_Unary):
    inner: Reward
    by: Reward

    def __post_init__(self) -> None:
        low, high = self.by.bounds
        if not (low >= 0 and high <= 1):
            raise UsageError(
                f"{self.inner} gated by {self.by}: a gate lies in [0, 1], this one in [{low:g}, "
                f"{high:g}]; clip it"
            )
        if self.label in self.inner.names:
            raise UsageError(
                f"{self.inner} is gated by {self.by} twice; gate it once, by {self.by}.gate(by=…)"
            )
        _merge_leaves(self.inner.leaves, self.by.leaves)

    @property
    def label(self) -> str:
        return "gate:" + "+".join(self.by.names)

    @property
    def bounds(self) -> Bounds:
        # A product over a rectangle has its extremes at the corners, whatever the signs are.
        corners = [a * b for a in self.inner.bounds for b in self.by.bounds]
        return min(corners), max(corners)

    @property
    def leaves(self) -> tuple[_Leaf, ...]:
        return _merge_leaves(self.inner.leaves, self.by.leaves)

    def evaluate(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        total, parts = self.inner.evaluate(values)
        gated = total * self.by.evaluate(values)[0] + 0.0
        return gated, parts | {self.label: gated - total}

    def __str__(self) -> str:
        return f"{_bracket(self.inner, _Sum, _Scaled)}.gate(by={self.by})"


@dataclass(frozen=True)
class _Clipped(_Unary):
    inner: Reward
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.label in self.inner.names:
            raise UsageError(
                f"{self.inner} is already clipped to [{show_number(self.low)}, "
                f"{show_number(self.high)}]; once will do"
            )

    @property
    def label(self) -> str:
        return f"clip:{show_number(self.low)}:{show_number(self.high)}"

    @property
    def bounds(self) -> Bounds:
        low, high = self.inner.bounds
        # Both ends are clipped on both sides: an interval
        # wholly outside of the limits becomes one point.
        return min(max(low, self.low), self.high), min(max(high, self.low), self.high)

    def evaluate(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        total, parts = self.inner.evaluate(values)
        clipped = min(max(total, self.low), self.high)
        return clipped, parts | {self.label: clipped - total}

    def __str__(self) -> str:
        return (
            f"{_bracket(self.inner, _Sum, _Scaled)}.clip({show_number(self.low)}, "
            f"{show_number(self.high)})"
        )


def _merge_leaves(first: tuple[_Leaf, ...], second: tuple[_Leaf, ...]) -> tuple[_Leaf, ...]:
    """Each part once: the same part may stand in a sum and as a gate, two parts under one name may
    not."""
    by_name = {leaf.name: leaf for leaf in first}
    for leaf in second:
        # Equal, not identical: parts are frozen dataclasses,
        # so two with the same settings are one part.
        if by_name.setdefault(leaf.name, leaf) != leaf:
            raise UsageError(
                f"two different parts are named {leaf.name!r}; give one of them another name=…, or "
                f"use one object twice"
            )
    return tuple(by_name.values())


def _require_finite(reward: Reward) -> None:
    low, high = reward.bounds
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise UsageError(
            f"{reward} has the bounds [{low:g}, {high:g}]; they must be finite and in order"
        )


def _require_length(leaf: _Leaf, completions: Sequence[Completion], task: Task) -> None:
    if leaf.needs_length and any(c.length_tokens is None for c in completions):
        raise RewardError(
            f"part {leaf.name!r} of task {task.id!r} reads length_tokens, which was not recorded; "
            "pass Completion(text, length_tokens=…)"
        )


def _check_value(leaf: _Leaf, value: object, task: Task) -> float:
    low, high = leaf.bounds
    # numpy's and torch's scalars become Python's before they are compared.
    value = plain(value)
    if not _is_number(value) or not low <= value <= high:  # NaN fails the comparison
        raise RewardError(
            f"part {leaf.name!r} of task {task.id!r} gave {describe_returned(value)}, "
            f"not a number in [{low:g}, {high:g}]"
        )
    return float(value)


def _as_reward(other: Reward | float) -> Reward:
    if isinstance(other, Reward):
        return other
    if not _is_number(other):
        raise UsageError(
            f"{brief(other)} cannot be added to a reward; a reward or a finite number can"
        )
    return _Constant(float(other))


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number.  Booleans count: a part may return `text.isascii()`."""
    return isinstance(value, bool) or is_number(value)


def _bracket(reward: Reward, *looser: type[Reward]) -> str:
    return f"({reward})" if isinstance(reward, looser) else str(reward)
