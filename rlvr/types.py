"""The records between prompt and gradient.  All are frozen; each field says its unit and shape.

Task ──▶ Completion ──▶ Verdict ──▶ Score ──▶ Rollout × G = Group
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, StrEnum
from functools import cached_property, lru_cache, partial
from numbers import Integral, Number, Rational, Real
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from rlvr.display import show_value
from rlvr.episode import EpisodeRecord
from rlvr.errors import DataError, UsageError, brief
from rlvr.validate import is_whole

__all__ = [
    "Completion",
    "Group",
    "JsonDict",
    "JsonObject",
    "Message",
    "Outcome",
    "Prompt",
    "Rollout",
    "Score",
    "StateDict",
    "Task",
    "Turn",
    "Verdict",
    "Verifier",
    "VerifierFunction",
    "as_verifier",
    "describe_returned",
    "is_async",
    "is_chat",
    "plain",
    "plain_reference",
    "read_reference",
    "takes_task",
    "verified",
    "verifies_async",
]

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object that is read: a schema, a body, a record.  Each reader checks what it takes."""

JsonDict: TypeAlias = dict[str, Any]
"""A JSON object that is made, or that its reader may change."""

StateDict: TypeAlias = Mapping[str, Any]
"""What an object saves of itself, by name: a tree of numbers, texts and tensors, from which only
the same class continues."""

Message: TypeAlias = Mapping[str, Any]
"""One chat message, `{"role": "user", "content": "…"}`."""

Prompt: TypeAlias = str | Sequence[Message]
"""What the model sees: a text, or chat messages in order."""


class Outcome(StrEnum):
    """The result of verifying a completion.  UNSCORED is a failure of rlvr, the others
    are the completion's own."""

    CORRECT = "correct"
    WRONG = "wrong"  # an answer was found and it does not hold; may carry partial credit
    UNPARSED = "unparsed"  # no answer was found
    # a failure of rlvr or the environment: masked and counted, never a reward of 0
    UNSCORED = "unscored"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(
            f"the outcome is {value!r}; it must be one of {', '.join(map(repr, map(str, cls)))}"
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One problem: what the model sees, and the trusted answer.

    Attributes:
        id: unique within its environment, stable across runs.
        prompt: a text, or at least one chat message.  The text is empty if a recorded row had none.
        reference: the trusted answer, in the form that the verifier takes.  The model never sees
            it.  Numbers become Python's own, see `plain_reference`.
        meta: anything else worth keeping (subject, level, source row).
    """

    id: str
    prompt: Prompt
    reference: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise TypeError(f"Task.id is {self.id!r}; it must be a non-empty string")
        if not isinstance(self.prompt, str) and not is_chat(self.prompt):
            raise TypeError(
                f"task {self.id!r}: prompt is {brief(self.prompt)}; it must be a string or a "
                "non-empty list of "
                "messages like {'role': 'user', 'content': '…'}"
            )
        if type(self.reference) not in _PLAIN:
            try:
                object.__setattr__(self, "reference", plain_reference(self.reference))
            except DataError as error:
                raise DataError(f"task {self.id!r}: {error}") from None
        if type(self.meta) is not dict and not isinstance(self.meta, Mapping):
            raise TypeError(f"task {self.id!r}: meta is {brief(self.meta)}; it must be a mapping")


@dataclass(frozen=True, slots=True)
class Completion:
    """The model's text after one prompt, with what the sampler knows about it.

    Attributes:
        text: the text alone, without the prompt.
        length_tokens: number of tokens that the sampler produced; None if unknown.  Rewards read it
            here and never tokenise again.
        truncated: True if it hit the token limit, as opposed to ending with a stop token.
        episode: the record of an episode with tools, whose answer `text` is then; None for one
            turn.
    """

    text: str
    length_tokens: int | None = None
    truncated: bool = False
    episode: EpisodeRecord | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"the completion is {brief(self.text)}; it must be a string")
        n = self.length_tokens
        if n is not None:
            if not is_whole(n) or n < 0:
                raise ValueError(
                    f"length_tokens is {n!r}; it must be a whole number of tokens, or None if "
                    f"unknown"
                )
            # numpy's numbers cannot be written as JSON
            object.__setattr__(self, "length_tokens", int(n))
        if not isinstance(self.truncated, bool):
            raise TypeError(f"truncated is {self.truncated!r}; it must be True or False")
        if self.episode is not None and not isinstance(self.episode, EpisodeRecord):
            raise TypeError(
                f"the episode is {brief(self.episode)}; it must be an EpisodeRecord, or None"
            )


_PLAIN: Final = frozenset((str, int, float, bool, type(None)))

# this object, and no other NaN, means "derive it from the outcome"
_BY_OUTCOME: Final = float("nan")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a completion is right, and why: before any shaping.

    Attributes:
        outcome: see `Outcome`.
        value: credit in [0, 1]; by default 1 for CORRECT and 0 otherwise.  WRONG may carry partial
            credit.
        why: `"reason"` or `"reason: text for people"`; the reason is short and stable, so that it
            can be counted.
        answer: what was extracted as the answer; None if nothing was found.
        detail: more information, which can be written as JSON.
    """

    outcome: Outcome
    value: float = _BY_OUTCOME
    why: str = ""
    answer: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, Outcome):
            # "correct" will do; "right" raises
            object.__setattr__(self, "outcome", Outcome(self.outcome))
        if self.value is _BY_OUTCOME:
            object.__setattr__(self, "value", 1.0 if self.outcome == "correct" else 0.0)
        else:
            self._check_value()
        if not isinstance(self.why, str):
            raise TypeError(
                f"a verdict's why is {brief(self.why)}; it must be a string, 'reason' or 'reason: "
                f"text'"
            )
        if self.answer is not None and not isinstance(self.answer, str):
            raise TypeError(
                f"a verdict's answer is {brief(self.answer)}; it must be the text of it, or None"
            )
        if type(self.detail) is not dict and not isinstance(self.detail, Mapping):
            raise TypeError(f"a verdict's detail is {brief(self.detail)}; it must be a mapping")

    def _check_value(self) -> None:
        if not isinstance(self.value, Real) or not 0.0 <= self.value <= 1.0:  # false for NaN too
            raise ValueError(
                f"a verdict's value is {brief(self.value)}; it must be a number in [0, 1]"
            )
        if type(self.value) is not float:  # numpy's numbers cannot be written as JSON
            object.__setattr__(self, "value", float(self.value))
        if self.value and self.outcome in (Outcome.UNPARSED, Outcome.UNSCORED):
            raise ValueError(
                f"a verdict of {self.outcome} has value {self.value!r}; only an answer can earn "
                f"credit"
            )

    @property
    def reason(self) -> str:
        """The part of `why` that can be counted."""
        return self.why.partition(":")[0]

    @property
    def correct(self) -> bool:
        """True for CORRECT alone, whatever the partial credit."""
        return self.outcome is Outcome.CORRECT


@runtime_checkable
class Verifier(Protocol):
    """Compares a completion with a reference.  Pure, deterministic, and bounded in time
    and memory for any text.

    `id` ends in `-vN`, which goes up when a verdict could change; it is recorded with every score.
    What the completion did wrong is a verdict with a reason; an exception means that the verifier
    failed.

    A verifier that wants to see the prompt has a third argument with the name `task` and a default,
    `verify(completion, reference, task=None)`; it gets the `Task`.

    One that waits for something, such as a judge behind an endpoint, is an `async def verify`; many
    of them are then awaited at once.  A verifier that is async only for some settings says so in an
    attribute `is_async`.
    """

    @property
    def id(self) -> str:
        """Name and version, such as `math-v4`."""

    def verify(self, completion: str, reference: Any) -> Verdict | Awaitable[Verdict]:
        """The verdict on a completion.

        Args:
            completion: its text.
            reference: the trusted answer.
        """


VerifierFunction: TypeAlias = Callable[..., bool | Verdict | Awaitable[bool | Verdict]]
"""A verifier as a pure function of (completion, reference), or of (completion, reference,
task=None); may be async."""


def is_async(function: Callable[..., object]) -> bool:
    """True for what is declared with `async def`: a function, a method, a `partial` of one, or an
    object's `__call__`.

    What a plain function returns is never awaited: a forgotten `await` is an error, see `returned`.

    Args:
        function: any callable.
    """
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )


def verifies_async(verifier: Verifier) -> bool:
    """True if the verdicts of a verifier have to be awaited.

    Args:
        verifier: its attribute `is_async` says so, or else the declaration of its `verify`.
    """
    flag = getattr(verifier, "is_async", None)
    return flag if isinstance(flag, bool) else is_async(verifier.verify)


def describe_returned(value: object) -> str:
    """What a function returned, for the error that it is of the wrong type.  A coroutine is closed
    and explained.

    Args:
        value: the value.
    """
    if inspect.isasyncgen(value):
        return "an async generator; write `return` in place of `yield`"
    if not inspect.isawaitable(value):
        return brief(value)
    if inspect.iscoroutine(value):
        value.close()  # or Python warns that it was never awaited
    return (
        f"a {type(value).__name__} that was not awaited; "
        "declare the function with `async def`, and await inside it"
    )


def verified(verifier: Verifier, completion: str, task: Task) -> Verdict | Awaitable[Verdict]:
    """The verdict on a completion; the task is passed on to verifiers that take it.  To be awaited
    if `verifies_async`.

    Args:
        verifier: its `verify` takes (completion, reference), or an argument with the name `task`
            too.
        completion: its text.
        task: what the completion answers.
    """
    verify: Callable[..., Verdict | Awaitable[Verdict]] = verifier.verify
    if takes_task(verify):
        return verify(completion, task.reference, task=task)
    return verify(completion, task.reference)


def read_reference(verifier: Verifier | None, reference: object) -> None:
    """Refuse a reference that a verifier cannot use, before a task with it costs a completion.

    Verifiers on `rlvr.verifiers.base` read it; of others nothing can be told.

    Args:
        verifier: that of the reward; None if there is none.
        reference: the trusted answer.

    Raises:
        DataError: it cannot be read.
    """
    read = getattr(verifier, "read", None)
    if callable(read):
        read(reference)


def takes_task(function: Callable[..., object]) -> bool:
    """True if it has an argument `task`.  One that a `partial` has set is the user's.

    Args:
        function: of a user, such as a verifier.
    """
    if isinstance(function, partial) and "task" in function.keywords:
        return False
    try:
        return _names_task(getattr(function, "__func__", function))
    except TypeError:  # not hashable
        return _names_task.__wrapped__(function)


@lru_cache(maxsize=256)
def _names_task(function: Callable[..., object]) -> bool:
    """By its own signature; a decorator that passes on any keyword has the signature of what it
    decorates."""
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters
        inner = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have none
        return False
    anything = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    parameter_found = parameters.get("task") or (inner.get("task") if anything else None)
    return parameter_found is not None and parameter_found.kind in (
        parameter_found.POSITIONAL_OR_KEYWORD,
        parameter_found.KEYWORD_ONLY,
    )


@dataclass(frozen=True)
class _Function:
    """A plain function as a `Verifier`."""

    function: VerifierFunction

    @property
    def id(self) -> str:
        name = getattr(self.function, "__qualname__", "<lambda>")
        return "function-v0" if name.endswith("<lambda>") else f"{name}-v0"

    def __str__(self) -> str:  # `id` is the same for all lambdas
        return show_value(self.function)

    @cached_property
    def is_async(self) -> bool:
        return is_async(self.function)

    def verify(
        self, completion: str, reference: object, task: Task | None = None
    ) -> Verdict | Coroutine[Any, Any, Verdict]:
        options = {"task": task} if takes_task(self.function) else {}
        result = self.function(completion, reference, **options)
        return self._await_result(result) if self.is_async else self._read(result)

    async def _await_result(self, result: Any) -> Verdict:
        return self._read(await result)

    def _read(self, result: Any) -> Verdict:
        result = plain(result)
        if isinstance(result, Verdict):
            return result
        if not isinstance(result, bool):
            raise UsageError(
                f"{self.id} returned {describe_returned(result)}; a verifier returns a Verdict, or "
                f"True or False"
            )
        return Verdict(
            Outcome.CORRECT if result else Outcome.WRONG, why=f"said-{str(result).lower()}"
        )


def as_verifier(verifier: Verifier | VerifierFunction) -> Verifier:
    """A verifier unchanged, or a verifier made from a function.

    Args:
        verifier: an object with `verify`, or a function of (completion, reference); either may take
            `task` too.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(verifier, type) or not (hasattr(verifier, "verify") or callable(verifier)):
        raise UsageError(
            f"{verifier!r} is no verifier: give an object with verify(completion, reference), such "
            f"as MathVerifier() "
            "with its parentheses, or a function (completion, reference) -> bool"
        )
    if isinstance(verifier, Verifier):
        return verifier
    if hasattr(verifier, "verify"):
        raise UsageError(
            f"{verifier!r} is no verifier yet: it needs an id, a name and version such as 'math-v4'"
        )
    return _Function(verifier)


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of a completion, with what each part added.

    Attributes:
        total: finite and inside the reward's bounds; None exactly if the outcome is UNSCORED, so
            that a failure of rlvr cannot be averaged as if it were a reward.
        parts: what each part added, by name; the names are the same for every score of one reward,
            and the values sum to the total.  Empty if the outcome is UNSCORED.
        verdict: the outcome and its reason.
    """

    total: float | None
    parts: Mapping[str, float]
    verdict: Verdict

    def __post_init__(self) -> None:
        if not isinstance(self.verdict, Verdict):
            raise TypeError(f"a score's verdict is {brief(self.verdict)}; it must be a Verdict")
        if (self.total is None) != (self.verdict.outcome is Outcome.UNSCORED):
            raise ValueError(
                f"a score of {self.total!r} with outcome {self.verdict.outcome}: None goes with "
                f"unscored"
            )
        if self.total is None:
            if self.parts:
                raise ValueError(
                    f"an unscored completion has parts {dict(self.parts)}; it can have none"
                )
        elif not (type(self.total) is float or isinstance(self.total, Real)) or not math.isfinite(
            self.total
        ):
            raise ValueError(f"a score of {brief(self.total)}; it must be a finite number")
        else:
            self._check_sum(self.total)

    def _check_sum(self, total: float) -> None:
        """Check that the parts sum to the total, up to rounding relative to the greatest part."""
        try:
            values = self.parts.values()
            off, rounding = abs(total - sum(values)), 1e-9 * max(1.0, abs(total), *map(abs, values))
        except (AttributeError, TypeError):
            raise TypeError(
                f"a score's parts are {brief(self.parts)}; they must map names to numbers"
            ) from None
        if not math.isfinite(rounding) or not off <= rounding:
            raise ValueError(
                f"a score of {total!r} has the parts {brief(self.parts)}; they must be finite, and "
                f"their sum the total"
            )


@dataclass(frozen=True, slots=True)
class Turn:
    """One of the policy's turns in a multi-turn rollout.

    Attributes:
        start, stop: its tokens are [start, stop) of the completion.
        reward: of this turn; None if it has none of its own.
    """

    start: int
    stop: int
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion with all that training needs.  T = number of completion tokens.

    Attributes:
        task: what the completion answers.
        text: the completion as text.
        prompt_ids: token ids of the prompt.
        completion_ids: token ids, shape [T]; in a multi-turn rollout also the environment's
            replies.
        completion_mask: True where a token is trained on, shape [T].
        behaviour_logprobs: natural log-probabilities under the policy that sampled, shape [T]; 0
            where the mask is False.  Required: importance ratios are computed from them.
        weights_version: of the weights that sampled it; the oldest if they changed meanwhile.
        truncated: True if it hit the token limit.
        score: None until scored.
        turns: the policy's turns in order; empty for a single-turn rollout.
        branches: further rows of the same episode, where an agent's requests did not extend one
            another; see `rlvr.agents`.  They share the score, and have no branches of their own.
        token_versions: version of the weights for each token, shape [T]; empty if all have
            `weights_version`.
        episode: the record of an episode with tools; None for others.
    """

    task: Task
    text: str
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    completion_mask: Sequence[bool]
    behaviour_logprobs: Sequence[float]
    weights_version: int
    truncated: bool = False
    score: Score | None = None
    turns: Sequence[Turn] = ()
    branches: Sequence[Rollout] = ()
    token_versions: Sequence[int] = ()
    episode: EpisodeRecord | None = None

    def __post_init__(self) -> None:
        lengths = {
            "completion_ids": len(self.completion_ids),
            "completion_mask": len(self.completion_mask),
            "behaviour_logprobs": len(self.behaviour_logprobs),
            **({"token_versions": len(self.token_versions)} if len(self.token_versions) else {}),
        }
        if len(set(lengths.values())) != 1:
            raise ValueError(
                f"task {self.task.id!r}: a rollout's lengths must agree, and they are {lengths}"
            )
        stop = 0
        for turn in self.turns:
            if not stop <= turn.start < turn.stop <= len(self.completion_ids):
                raise ValueError(
                    f"task {self.task.id!r}: turn [{turn.start}, {turn.stop}) is empty, overlaps "
                    f"the one before, or leaves the completion's {len(self.completion_ids)} tokens"
                )
            stop = turn.stop

    @property
    def completion(self) -> Completion:
        """The completion as rewards see it; its length counts only the policy's own tokens.

        That of an episode with tools has the policy's answer as its text, since the rest holds what
        tools said.
        """
        text = self.text if self.episode is None else self.episode.answer
        length = sum(sum(map(bool, row.completion_mask)) for row in (self, *self.branches))
        return Completion(text, length, self.truncated, self.episode)


@dataclass(frozen=True, slots=True)
class Group:
    """The G rollouts of one task.

    Attributes:
        task: what the rollouts answer.
        rollouts: at least one.
    """

    task: Task
    rollouts: Sequence[Rollout]

    def __post_init__(self) -> None:
        if not self.rollouts:
            raise ValueError(f"task {self.task.id!r}: a group needs at least one rollout")
        for rollout in self.rollouts:
            if rollout.task.id != self.task.id:
                raise ValueError(
                    f"a rollout of task {rollout.task.id!r} stands in the group of {self.task.id!r}"
                )


def is_chat(prompt: object) -> bool:
    """Whether a prompt is a list of chat messages, each with its role and content.

    Args:
        prompt: any value.
    """
    return (
        isinstance(prompt, Sequence)
        and len(prompt) > 0
        and all(isinstance(m, Mapping) and "role" in m and "content" in m for m in prompt)
    )


def plain(value: Any) -> Any:
    """A scalar of numpy or torch as a plain Python value; anything else unchanged.

    Args:
        value: any value.
    """
    return value.item() if getattr(value, "shape", None) == () else value


def plain_reference(value: Any) -> Any:
    """A reference with Python's own numbers, which a record can hold and a verifier reads as they
    were meant.

    Scalars of numpy and torch become int, float or bool; one of low precision becomes the shortest
    decimal that it stands for (`np.float32(0.1)` is 0.1).  A `Decimal` becomes its text, a
    `Fraction` an int or a text such as "1/3". Lists, tuples and mappings are searched; anything
    else, arrays too, is the verifier's and stays.

    Args:
        value: any reference.

    Raises:
        DataError: a number that Python's int and float cannot hold, such as a complex one, or a
            Decimal that is none.
    """
    if type(value) in _PLAIN or isinstance(value, Enum):
        return value
    if isinstance(value, Mapping):
        return _same_or(value, {key: plain_reference(item) for key, item in value.items()})
    if type(value) in (list, tuple):
        return _same_or(value, type(value)(map(plain_reference, value)))
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        return _plain_scalar(value)
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Rational):
        return (
            int(value.numerator)
            if value.denominator == 1
            else f"{int(value.numerator)}/{int(value.denominator)}"
        )
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Number):
        raise _no_number(value)
    return value


def _same_or(value: Any, converted: Any) -> object:
    """The container itself if nothing in it had to change, so that a verifier's own type of mapping
    stays."""
    before, after = (x.values() if isinstance(x, Mapping) else x for x in (value, converted))
    return value if all(old is new for old, new in zip(before, after, strict=True)) else converted


def _plain_scalar(value: Any) -> object:
    try:
        number = value.item()
    except Exception:  # noqa: BLE001  a library's own, such as for a tensor without storage
        raise _no_number(value) from None
    kind = str(value.dtype)
    if kind == "object":
        return plain_reference(number)
    if type(number) in (int, bool, str) and "time" not in kind:
        return number
    if not isinstance(number, Real) or "time" in kind:
        raise _no_number(value)
    number = float(number)  # of numpy's longdouble too
    if "64" in kind or not math.isfinite(number):
        return number
    again = value.new_tensor if hasattr(value, "new_tensor") else value.dtype.type
    for digits in range(1, 17):
        short = float(f"{number:.{digits}g}")
        if float(again(short)) == number:
            return short
    return number


def _no_number(value: object) -> DataError:
    return DataError(
        f"the reference is {brief(value)}; a number in it must be one that Python's int or float "
        "can hold, or a Decimal or Fraction"
    )
