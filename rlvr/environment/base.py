"""`Environment`: a task is data, an episode is what a policy does with it, and
`verify` is a pure function.

`split` and an index determine a task; the same task and completion always give the same verdict.
Tasks are addressed by index, so that shuffling, sharding and resuming need only a position.

    class Sums(rlvr.Environment):         # annotated names are options: Sums(terms=4, split="test")
        terms: int = 3
        reward = Correct(MathVerifier())  # or define verify(task, completion) yourself

        def task(self, index): ...        # or tasks(), for a finite set

An episode has one reply, unless the class has tools, a simulated user, or an `open` of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from rlvr.environment.episode import (
    AWAITED_AT_ONCE,
    Episode,
    EpisodeLimits,
    TurnsEpisode,
    is_cut,
)
from rlvr.environment.graded_episode import GradedEpisode
from rlvr.environment.options import check_annotations, typed_options
from rlvr.environment.stepping import Stepping
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.environment.tools import Tool, declared_tools, tools_of
from rlvr.episode import Ask, EpisodeRecord, PolicyTurn
from rlvr.errors import DataError, UsageError, brief
from rlvr.rewards import Correct, Observation, Reward
from rlvr.rewards.expression import parse_reward
from rlvr.types import (
    Completion,
    JsonDict,
    Message,
    Outcome,
    Prompt,
    Score,
    Task,
    Verdict,
    Verifier,
    VerifierFunction,
    describe_returned,
    is_async,
    verified,
)
from rlvr.validate import require_whole
from rlvr.workers.loops import finish, loop_thread

if TYPE_CHECKING:
    from rlvr.data.lines import Row
    from rlvr.environment.mixture import Share

__all__ = ["Environment", "RowsEnv", "require_environment", "require_one_reply"]

_PLAIN_METHODS = (
    "example find observe reference_of reset score score_group step task task_from task_of tasks"
).split()

# A class with one of them plays episodes of several turns.
_HOOKS = ("setup", "tools", "user", "final", "grade", "open")

_E = TypeVar("_E", bound="Environment")


def _default_of(option: Field[object]) -> object:
    """The default of an option, or MISSING; a class that was sent to another process has a MISSING
    of its own."""
    missing = type(MISSING)
    factory: Any = option.default_factory
    if isinstance(factory, missing):
        return MISSING if isinstance(option.default, missing) else option.default
    return factory()


def _checking(init: Callable[..., None]) -> Callable[..., None]:
    """The dataclass's own __init__, with options checked against their annotated types first."""

    @wraps(init)
    def checking(self: Environment, *args: object, **given: object) -> None:
        options = self.options()
        all_known = all(name in options for name in given)  # else Python's own error is clearer
        init(self, *args, **(typed_options(type(self), given, options) if all_known else given))
        _ = self.limits  # which checks them

    return checking


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
@dataclass(kw_only=True, eq=False)
class Environment(Stepping):
    """Tasks, episodes and verdicts, with options and a reward.  Define `task` or `tasks`,
    and `verify` or a verifier.

    Subclasses become keyword-only dataclasses: each annotated name is an option with its default.

    Attributes:
        id: name and version, which `register` sets.
        reward: makes a score from the verdict.
        max_concurrent: how many completions are awaited at once, if `verify`, the verifier or a
            part of the reward is async; in all worker processes of a scorer together.
        domain: what its tasks are about, in a word or two, for `rlvr envs`.
        split: the part of the tasks, such as "train" or "test".
    """

    max_concurrent: ClassVar[int] = AWAITED_AT_ONCE
    domain: ClassVar[str] = ""
    _awaits_verify: ClassVar[bool] = False
    _inputs: Mapping[str, str] = field(default_factory=dict, init=False, repr=False)
    _reward_text: ClassVar[str] = ""
    outputs: ClassVar[tuple[str, ...]] = ()
    """Patterns of the files that remain of a session, such as "src/**.py", for `grade`."""

    plays: ClassVar[type[Episode]] = Episode
    """The kind of its episodes: what only some environments do is asked of this class.  Where an
    option makes one reply the whole episode, `__post_init__` sets it to `Episode`."""

    if TYPE_CHECKING:  # options of classes with several turns, see `EpisodeLimits`
        turns: int = 8
        calls: int = 16
        call_seconds: float = 10.0
        episode_seconds: float = 300.0
        reply_chars: int = 4_000

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        # its options would be lost: slots take the place of their defaults
        if "__slots__" in cls.__dict__:
            raise UsageError(
                f"{cls.__name__}: an environment is a dataclass without slots; drop "
                f"@dataclass(slots=True)"
            )
        check_annotations(cls)
        cls.plays = cls._kind()
        cls.plays.add_options(cls)
        own_init = "__init__" in cls.__dict__
        dataclass(kw_only=True, eq=False)(cls)
        if not own_init:
            # before __post_init__ uses them
            cls.__init__ = _checking(cls.__init__)  # type: ignore[method-assign]
        if "id" not in cls.__dict__:
            # until `register` sets it; never inherited, since the seeds of tasks depend on it
            cls.id = cls.__name__
        cls._check_reward(cls.reward)
        cls._awaits_verify = is_async(cls.verify)
        for name in ("verify", *_PLAIN_METHODS):
            if not callable(given := getattr(cls, name)):
                raise UsageError(
                    f"{cls.__name__}.{name} is {brief(given)}; it must be a method: def {name}(self"
                    ", …)"
                )
        for name in _PLAIN_METHODS:
            method = getattr(cls, name)
            if iscoroutinefunction(method) or isasyncgenfunction(method):
                raise UsageError(
                    f"{cls.__name__}.{name} is async; of an environment's methods only verify may "
                    "be: make it a plain def, and let it call asyncio.run(…) if it has to wait for "
                    "something"
                )
        require_whole(f"{cls.__name__}.max_concurrent", cls.max_concurrent, 1)
        if bool(cls.outputs) != (cls.grade is not Environment.grade):
            raise UsageError(
                f"{cls.__name__}: outputs and grade belong together: "
                'outputs = ("src/**.py",) names the files that grade(task, box) judges'
            )

    def __post_init__(self) -> None:
        """Check the options; a subclass adds its own."""

    @classmethod
    def _kind(cls) -> type[Episode]:
        """The kind of episodes of a class, by what it defines."""
        if cls.outputs:
            return GradedEpisode
        defined = [name for name in _HOOKS if getattr(cls, name) is not getattr(Environment, name)]
        if declared_tools(cls) or defined not in ([], ["open"]):
            return ToolEpisode
        return TurnsEpisode if defined else cls.plays

    @property
    def single_turn(self) -> bool:
        """Whether one completion is the whole episode."""
        return self.plays is Episode

    @property
    def limits(self) -> EpisodeLimits:
        """How far an episode may go, from the options of these names."""
        return self.plays.limits_of(self)

    @classmethod
    def _check_reward(cls, reward: Reward) -> None:
        """Refuse two sources of the verdict: `verify` would silently replace the verifier of the
        reward."""
        if not isinstance(reward, Reward):
            raise UsageError(
                f"{cls.__name__}: the reward is {reward!r}; make it of parts such as Correct() and "
                f"Format(…)"
            )
        named = reward.primary is not None and reward.primary.verifier is not None
        if named and cls.verify is not Environment.verify:
            raise UsageError(
                f"{cls.__name__} defines verify, and its reward {reward} names a verifier too; "
                "write Correct() for the verdict of verify, or drop verify"
            )

    @classmethod
    def options(cls) -> dict[str, object]:
        """The options and their defaults; `dataclasses.MISSING` for one that must be given."""
        return {f.name: _default_of(f) for f in fields(cls) if f.init}

    @property
    def config(self) -> JsonDict:
        """The options that differ from their defaults: with `id`, all that is needed to make it
        again."""
        changed = {
            name: getattr(self, name)
            for name, default in self.options().items()
            if getattr(self, name) != default
        }
        return changed | ({"reward": self._reward_text} if self._reward_text else {})

    def with_reward(self: _E, reward: Reward) -> _E:
        """A copy with another reward: `env.with_reward(env.reward + 0.5 * Overlong(4096, 512))`.

        Args:
            reward: the other reward.
        """
        self._check_reward(reward)
        copy = self._copy()
        copy.reward = reward  # type: ignore[misc]  # an instance may shadow its class's reward
        copy._reward_text = ""  # type: ignore[misc]
        return copy

    def with_reward_text(self: _E, text: str, load: Callable[[str], object]) -> _E:
        """A copy with the reward that an expression describes, which stands in its `config`.

        Args:
            text, load: see `parse_reward`.

        Raises:
            UsageError: see there.
        """
        copy = self.with_reward(parse_reward(text, own=self.reward, load=load))
        copy._reward_text = text  # type: ignore[misc]  # as with `reward`
        return copy

    def example(self, task: Task) -> str | None:
        """A completion that must be CORRECT, for checks and demonstrations; None if there is none.

        Args:
            task: what the completion answers.
        """
        if task.reference is None:
            return None
        example_of = getattr(self._verifier, "example", None)
        return (
            example_of(task.reference) if callable(example_of) else f"\\boxed{{{task.reference}}}"
        )

    def without_tasks(self: _E) -> _E:
        """A copy without its data, for workers: each task is sent to them with its completion."""
        copy = self._copy()
        for name in ("_tasks", "_by_id"):
            copy.__dict__.pop(name, None)
        return copy

    def _copy(self: _E) -> _E:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._rng = copy._episode = None  # an episode of its own
        return copy

    def __deepcopy__(self: _E, memo: dict[int, object]) -> _E:
        return self._copy()  # data need no second copy

    # ---------------------------------------- what a mixture answers otherwise than one environment

    @property
    def members(self) -> Mapping[str, Environment]:
        """The environments by name; one with its id, where this is no mixture."""
        return {self.id: self}

    @property
    def shares(self) -> Mapping[str, Share]:
        """Those of a mixture by name; none where this is no mixture."""
        return {}

    def route(self, task: Task) -> tuple[Environment, Task]:
        """The environment that a task comes from, and the task as that one knows it.

        Args:
            task: of this environment.
        """
        return self, task

    def locate(self, index: int) -> tuple[str, int]:
        """The name of the environment that a task number belongs to, and its own number of it.

        Args:
            index: counted from 0.
        """
        return self.id, index

    def member_at(self, index: int) -> tuple[Environment, int]:
        """`locate`, with the environment itself.

        Args:
            index: counted from 0.
        """
        name, member_index = self.locate(index)
        return self.members[name], member_index

    def name_of(self, task: Task) -> str:
        """The name of the environment that a task comes from.

        Args:
            task: of this environment.
        """
        return self.id

    def first(self, limit: int | None) -> int | None:
        """How many task numbers hold the first tasks of every environment.

        Args:
            limit: greatest number of tasks of each environment; None for all.

        Returns:
            The number; None without a limit if an environment generates tasks without end.
        """
        sizes = [size for size in (limit, self.size) if size is not None]
        return min(sizes, default=None)

    def evaluation_tasks(self, count: int, rng: random.Random) -> Sequence[int]:
        """Numbers of tasks to evaluate on: a sample, in order; the first ones where tasks are
        generated without end.

        Args:
            count: greatest number of tasks; of each environment of a mixture.
            rng: draws the sample.
        """
        if self.size is None:
            return range(count)
        return sorted(rng.sample(range(self.size), min(count, self.size)))

    def each(self, change: Callable[[Share | None, Environment], Environment]) -> Environment:
        """Change an environment, or each one of a mixture.

        Args:
            change: a function of a share (None where this is no mixture) and its environment that
                gives the other environment.
        """
        return change(None, self)

    def verify(self, task: Task, completion: Any) -> Verdict | Awaitable[Verdict]:
        """The verdict on a completion, by default from the verifier of the reward's first
        `Correct`.

        What the completion did wrong is a verdict; raise only if the environment itself failed.
        One that waits for something, such as a judge behind an endpoint, is an `async def verify`;
        so is that of an async verifier.

        Args:
            task: what the completion answers.
            completion: its text; the `EpisodeRecord` of an episode with several turns.

        Raises:
            UsageError: neither this method nor a verifier is defined.
        """
        if self._verifier is None:
            raise self._without_verdicts()
        return verified(self._verifier, completion, task)

    def require_verdicts(self) -> None:
        """Refuse an environment that no completion can be judged with.

        Raises:
            UsageError: it has neither a verifier nor a method of its own that judges.
        """
        judging = ("verify", "observe", "aobserve", "score", "score_group")
        inherits = all(getattr(type(self), it) is getattr(Environment, it) for it in judging)
        if inherits and self._verifier is None:
            raise self._without_verdicts()

    def _without_verdicts(self) -> UsageError:
        unread = getattr(self, "verifier", None) is not None
        return UsageError(
            f"{type(self).__name__} cannot tell right from wrong: define verify(self, task, "
            "completion), or name a verifier, reward = Correct(MathVerifier())"
            + "; its attribute verifier is not read"
            * unread
        )

    @property
    def is_async(self) -> bool:
        """True if the first stage of a score waits: `verify`, the verifier or a part of the reward
        is async."""
        return self._awaits_verify or self.reward.observes_async

    @property
    def _awaits_verifier(self) -> bool:
        primary = self.reward.primary
        return type(self).verify is Environment.verify and primary is not None and primary.is_async

    def observe(self, task: Task, completion: Completion) -> Observation:
        """The first stage of a score: verdict and raw values of the parts.  Runs in a worker.

        Args:
            task: what the completion answers.
            completion: its text, with its length if known.

        Raises:
            UsageError: the environment is async; await `aobserve`.
        """
        return finish(self.aobserve(task, completion))

    async def aobserve(self, task: Task, completion: Completion) -> Observation:
        """`observe`, with what is async awaited.

        Args:
            task, completion: see `observe`.
        """
        verdict: object = self._verdict_on(task, completion)
        if type(verdict) is not Verdict:
            if isawaitable(verdict) and (self._awaits_verify or self._awaits_verifier):
                verdict = await verdict
            if not isinstance(verdict, Verdict):
                raise UsageError(
                    f"{type(self).__name__}.verify returned {describe_returned(verdict)}; it must "
                    f"be a Verdict"
                )
        return await self.reward.aobserve(task, completion, verdict)

    def _verdict_on(self, task: Task, completion: Completion) -> Verdict | Awaitable[Verdict]:
        """The verdict of `verify`; one of several turns reads the record, a verifier its answer."""
        record = completion.episode
        if record is not None and record.fault:
            return Verdict(Outcome.WRONG, why=record.fault, answer=record.answer)
        if type(self).verify is Environment.verify:
            return self.verify(task, completion.text if record is None else record.answer)
        return self.verify(task, self.plays.judged(self, completion))

    def score(self, task: Task, completion: str | Completion) -> Score:
        """Score one completion in this process.

        Exceptions of the environment are raised; `Scorer` turns them into UNSCORED and contains
        hangs and crashes.

        Args:
            task: what the completion answers.
            completion: its text; a `Completion` if the reward reads its length.

        Raises:
            UsageError: the reward compares the completions of a group; use `score_group`.
        """
        if self.reward.group_level:
            raise UsageError(
                f"the reward of {self.id}, {self.reward}, compares completions of one task: use "
                f"score_group"
            )
        return self.score_group(task, [completion])[0]

    def score_group(self, task: Task, completions: Sequence[str | Completion]) -> list[Score]:
        """Score all completions of one task together, in this process.

        Args:
            task: what the completions answer.
            completions: texts; `Completion` objects if the reward reads their lengths.
        """
        if isinstance(completions, (str, Completion)):
            raise UsageError(f"score_group got {brief(completions)}; give it a list of completions")
        texts = [c if isinstance(c, Completion) else Completion(c) for c in completions]
        if self.is_async or self.reward.combines_async:
            return loop_thread("calls").call(self._ascore_group, task, texts)
        return self.reward.combine(task, texts, [self.observe(task, c) for c in texts])

    async def _ascore_group(self, task: Task, completions: Sequence[Completion]) -> list[Score]:
        slots = asyncio.Semaphore(self.max_concurrent)

        async def observed(completion: Completion) -> Observation:
            async with slots:
                return await self.aobserve(task, completion)

        tasks = [asyncio.ensure_future(observed(completion)) for completion in completions]
        try:
            # so that of several exceptions the first completion's is raised
            observations = [await task_running for task_running in tasks]
        finally:
            for observing in tasks:
                observing.cancel()
        return await self.reward.acombine(task, completions, observations)

    # ------------------------------------------------------ what an author of several turns defines

    def setup(self, task: Task) -> object:
        """The state of an episode, which its tools get; by default None.  Plain or async.

        Its `close` (or `aclose`) is called at the end, whatever happened.

        Args:
            task: of the episode.
        """

    def tools(self, state: Any) -> Sequence[Tool]:
        """The tools of an episode: by default the methods with `@rlvr.tool`.

        Override it to add others: `return [*super().tools(state), ready_tools.python(state)]`,
        with `rlvr.environment.ready_tools`.

        Args:
            state: of the episode.
        """
        return tools_of(self, state)

    def user(self, task: Task, transcript: Sequence[Message]) -> Any:
        """The next message of a simulated user after a turn without calls; None ends the episode.
        Plain or async.

        Args:
            task: of the episode.
            transcript: the chat messages after the prompt.
        """

    def final(self, task: Task, state: Any) -> object:
        """What `verify` needs of the state, read at the end: JSON, `EpisodeRecord.final`.  Plain or
        async.

        Not called if a call was over its time and took the state with it.

        Args:
            task: of the episode.
            state: of the episode.
        """

    def grade(self, task: Task, box: Any) -> object:
        """What `verify` needs of the `outputs`, found in a fresh box: JSON, `EpisodeRecord.final`,
        in place of `final`.

        All processes of the session are dead by then.  Outputs that are too large, or that a
        session does not live to give, are WRONG; an exception is our failure.  Plain or async.

        Args:
            task: of the episode.
            box: the files, `rlvr.sandbox.Box`: `box.text(path)`, `box.test(tests)`.
        """

    def turn_rewards(self, task: Task, episode: EpisodeRecord) -> Sequence[float | None] | None:
        """A reward for each turn, for algorithms that credit turns; None, the default, for none.
        Pure.

        They are a division of the total among the turns and do not change it: what they do not sum
        up to counts for the last turn.

        Args:
            task: of the episode.
            episode: its record.
        """
        return None

    def example_episode(self, task: Task) -> Sequence[str | Ask | PolicyTurn] | None:
        """The turns of a policy that earns the maximum, for checks; None for none.

        Args:
            task: of the episode.
        """
        return self.plays.example(self, task)

    # ------------------------------------------------------------------------------------- episodes

    def open(self, task: Task) -> Episode:
        """Open an episode.  Close it, or use it as a context manager.

        Override it for an episode of your own, derived from `rlvr.Episode`.

        Args:
            task: of the episode.

        Raises:
            Unscored: `setup` failed.
            UsageError: its tools cannot be used.
        """
        return self.plays(self, task)

    def completion_of(self, episode: EpisodeRecord, length_tokens: int | None = None) -> Completion:
        """An episode as scores read it: `env.score(task, env.completion_of(episode))`.

        Args:
            episode: the record.
            length_tokens: of the policy; None if unknown.
        """
        return Completion(episode.answer, length_tokens, is_cut(episode.end), episode)

    @staticmethod
    def from_rows(
        rows: Iterable[Mapping[str, object]] | str | Path,
        *,
        prompt: str | Callable[[Row], Prompt] = "prompt",
        reference: str | Callable[[Row], object] = "reference",
        verifier: Verifier | VerifierFunction | None = None,
        reward: Reward | None = None,
        example: str | Callable[[Task], str | None] | None = None,
        id: str = "rows-v0",
    ) -> RowsEnv:
        """An environment made from a data set, without a class.

        Rows of completions may have the same columns as `rows`, or else `task` or `reference`; see
        `task_of`.

        Args:
            rows: a list of dicts, a `datasets.Dataset`, or another iterable of mappings; or a
                .jsonl or .parquet file, or a hub id.
            prompt, reference: the name of a column, or a function of the row.
            verifier: checks completions; short for `reward=Correct(verifier)`.
            reward: the whole reward, instead of `verifier`.
            example: a completion that must be CORRECT, for `check_environment`: the name of a
                column, or a function of the task; by default the reference in \\boxed{}.
            id: the environment's name in records.

        Raises:
            UsageError: neither or both of `verifier` and `reward` were given.
            DataError: a row lacks a column; names the row.
        """
        if (verifier is None) == (reward is None):
            raise UsageError("from_rows: give either verifier=… or reward=…")
        for name, column, what in (
            ("prompt", prompt, "row"),
            ("reference", reference, "row"),
            ("example", example, "task"),
        ):
            if (
                not isinstance(column, str)
                and not callable(column)
                and (name, column) != ("example", None)
            ):
                raise UsageError(
                    f"from_rows: {name} is {brief(column)}; give a column's name, or a function of "
                    f"the {what}"
                )
        if isinstance(rows, Iterator):
            rows = list(rows)  # an iterator can be read only once
        env = RowsEnv(rows=rows, prompt=prompt, reference=reference, example_from=example)
        env.id = id  # type: ignore[misc]
        return env.with_reward(reward if reward is not None else Correct(verifier))


class RowsEnv(Environment):
    """The environment that `Environment.from_rows` makes; see there for its options."""

    id: ClassVar[str] = "rows-v0"
    rows: Iterable[Mapping[str, Any]] | str | Path = ()
    prompt: str | Callable[[Mapping[str, Any]], Prompt] = "prompt"
    reference: str | Callable[[Mapping[str, Any]], Any] = "reference"
    example_from: str | Callable[[Task], str | None] | None = None

    @property
    def config(self) -> JsonDict:
        """Without the rows: a record cannot repeat them, and each recorded task has what its
        verdict needs."""
        return {name: value for name, value in super().config.items() if name != "rows"}

    def tasks(self) -> Iterator[Task]:
        rows = str(self.rows) if isinstance(self.rows, Path) else self.rows
        return self.tasks_in(rows, make=self._row_task)

    def _row_task(self, row: object, id: str) -> Task:
        where = f"row {id.rpartition('/')[2]}"
        if not isinstance(row, Mapping):
            raise DataError(f"{where} is {brief(row)}; it must be a mapping of columns")
        row_id = row.get("id")
        return self._task(row, id if row_id is None else str(row_id), where)

    def task_from(self, row: Row) -> Task:
        task = {name: value for name, value in row.items() if name not in _OF_THE_COMPLETION}
        # the row's id is that of the completion, not of the task
        return self._task(task, "row", "the row")

    def _task(self, row: Mapping[str, object], id: str, where: str) -> Task:
        prompt, reference = _cell(row, self.prompt, where), _cell(row, self.reference, where)
        meta = {
            name: value for name, value in row.items() if name not in (self.prompt, self.reference)
        }
        return Task(id, prompt, reference, meta)

    def example(self, task: Task) -> str | None:
        if self.example_from is None:
            return super().example(task)
        if callable(self.example_from):
            return self.example_from(task)
        if self.example_from == self.reference:
            return str(task.reference)
        example: str = _cell(task.meta, self.example_from, f"task {task.id!r}")
        return example

    def without_tasks(self) -> RowsEnv:
        copy = super().without_tasks()
        copy.rows = ()
        return copy


_OF_THE_COMPLETION = ("id", "completion", "length_tokens", "truncated")


def _cell(row: Mapping[str, object], column: str | Callable[[Row], object], where: str) -> Any:
    if not isinstance(column, str):
        return column(row)
    if column not in row:
        raise DataError(f"{where} has no column {column!r}; it has {', '.join(map(repr, row))}")
    return row[column]


def require_environment(env: object) -> None:
    """Refuse what is no environment, or judges nothing.

    Args:
        env: what was given as one.

    Raises:
        UsageError: it is none, or see `Environment.require_verdicts`.
    """
    if not isinstance(env, Environment):
        raise UsageError(f"{env!r} is not an environment; rlvr.make('gsm8k-v4') gives one")
    for member in env.members.values():
        member.require_verdicts()


def require_one_reply(env: Environment, why: str) -> None:
    """Refuse an environment with several turns, or tools.

    Args:
        env: the environment.
        why: one reply is needed, and what to use instead.

    Raises:
        UsageError: it has.
    """
    require_environment(env)
    if not env.single_turn:
        raise UsageError(f"{env.id} has several turns, {why}")
