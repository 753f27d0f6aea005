"""`Environment`: a task is data, an episode is what a policy does with it, and `verify` is a pure function.

`split` and an index determine a task; the same task and completion always give the same verdict.
Tasks are addressed by index, so that shuffling, sharding and resuming need only a position.

    class Sums(rlvr.Environment):                # annotated names are options: Sums(terms=4, split="test")
        terms: int = 3
        reward = Correct(MathVerifier())         # or define verify(task, completion) yourself

        def task(self, index): ...               # or tasks(), for a finite set

An episode has one reply, unless the class has tools, a simulated user, or an `open` of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import itertools
import random
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property, wraps
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from rlvr.data.lines import Line
from rlvr.data.rows import dataset_lines
from rlvr.display import LeftOut
from rlvr.environment.episode import Episode, EpisodeLimits
from rlvr.environment.options import check_annotations, typed_options
from rlvr.environment.reading import is_read_later, limited_reading
from rlvr.environment.tool_episode import ToolEpisode
from rlvr.environment.tools import Tool, declared_tools, tools_of
from rlvr.episode import Ask, EpisodeRecord, PolicyTurn
from rlvr.errors import DataError, DataWarning, UsageError, brief
from rlvr.rewards import Correct, Observation, Reward
from rlvr.rewards.expression import parse_reward
from rlvr.types import (
    Completion,
    Outcome,
    Prompt,
    Score,
    Task,
    Verdict,
    Verifier,
    VerifierFunction,
    describe_returned,
    is_async,
    plain_reference,
    read_reference,
    verified,
)
from rlvr.validate import is_whole, require_whole
from rlvr.workers.loops import finish, loop_thread

if TYPE_CHECKING:
    from rlvr.environment.mixture import Share

__all__ = ["Environment", "RowsEnv", "seeded"]

_PLAIN_METHODS = "example find observe reference_of reset score score_group step task task_from task_of tasks".split()

# A class with one of them plays episodes of several turns.
_HOOKS = ("setup", "tools", "user", "final", "grade")

_E = TypeVar("_E", bound="Environment")


def seeded(*key: str | int) -> random.Random:
    """A random generator for one task, seeded with a hash of (id, split, index).

    Seeding with seed + index would give neighbouring seeds the same tasks, and splits would
    overlap.

    Args:
        key: strings and whole numbers that identify the task.

    Raises:
        UsageError: a part of the key is of another type.
    """
    for part in key:
        if not isinstance(
            part, (str, Integral)
        ):  # the repr of other types may differ between processes
            raise UsageError(
                f"seeded({brief(part)}): give strings and whole numbers, str(…) of anything else"
            )
    # The repr of numpy's integers differs from that of Python's, and both must lead to the same
    # task.
    plain = tuple(str(part) if isinstance(part, str) else int(part) for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return random.Random(int.from_bytes(digest[:16], "big"))


def _default_of(option: Field[Any]) -> Any:
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
    def checking(self: Environment, *args: Any, **given: Any) -> None:
        options = self.options()
        all_known = all(name in options for name in given)  # else Python's own error is clearer
        init(self, *args, **(typed_options(type(self), given, options) if all_known else given))
        _ = self.limits  # which checks them

    return checking


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
@dataclass(kw_only=True, eq=False)
class Environment:
    """Tasks, episodes and verdicts, with options and a reward.  Define `task` or `tasks`, and `verify` or a verifier.

    Subclasses become keyword-only dataclasses: each annotated name is an option with its default.

    Attributes:
        id: name and version, which `register` sets.
        reward: makes a score from the verdict.
        max_concurrent: how many completions are awaited at once, if `verify`, the verifier or a
            part of the reward is async; in all worker processes of a scorer together.
        domain: what its tasks are about, in a word or two, for `rlvr envs`.
        split: the part of the tasks, such as "train" or "test".
    """

    id: ClassVar[str] = ""
    reward: ClassVar[Reward] = Correct()
    max_concurrent: ClassVar[int] = 64
    domain: ClassVar[str] = ""
    _awaits_verify: ClassVar[bool] = False
    _inputs: Mapping[str, str] = field(default_factory=dict, init=False, repr=False)
    _reward_text: ClassVar[str] = ""
    split: str = "train"
    _rng: random.Random | None = field(default=None, init=False, repr=False)
    _episode: Episode | None = field(default=None, init=False, repr=False)
    _playing: Task | None = field(default=None, init=False, repr=False)
    """The task of `_episode`, as this environment names it."""

    strict_rows: bool = field(default=False, init=False, repr=False)
    """True: a row that cannot be used stops the run, see `stop_at_bad_rows`."""

    _left_out: Mapping[str, int] | None = field(default=None, init=False, repr=False)

    single_turn: ClassVar[bool] = True
    """Whether one completion is the whole episode."""

    outputs: ClassVar[tuple[str, ...]] = ()
    """Patterns of the files that remain of a session, such as "src/**.py", for `grade`."""

    _plays: ClassVar[type[Episode]] = Episode

    if TYPE_CHECKING:  # options of classes with several turns, see `EpisodeLimits`
        turns: int = 8
        calls: int = 16
        call_seconds: float = 10.0
        episode_seconds: float = 300.0
        reply_chars: int = 4_000

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if (
            "__slots__" in cls.__dict__
        ):  # its options would be lost: slots take the place of their defaults
            raise UsageError(
                f"{cls.__name__}: an environment is a dataclass without slots; drop "
                f"@dataclass(slots=True)"
            )
        check_annotations(cls)
        if cls._has_hooks():
            cls._plays = ToolEpisode
            cls._add_limits()
        cls.single_turn = cls._plays is Episode and cls.open is Environment.open
        own_init = "__init__" in cls.__dict__
        dataclass(kw_only=True, eq=False)(cls)
        if not own_init:
            cls.__init__ = _checking(cls.__init__)  # type: ignore[method-assign]  # before __post_init__ uses them
        if "id" not in cls.__dict__:
            cls.id = (
                cls.__name__
            )  # until `register` sets it; never inherited, since the seeds of tasks depend on it
        cls._check_reward(cls.reward)
        cls._awaits_verify = is_async(cls.verify)
        for name in _PLAIN_METHODS:
            method = getattr(cls, name, None)
            if iscoroutinefunction(method) or isasyncgenfunction(method):
                raise UsageError(
                    f"{cls.__name__}.{name} is async; of an environment's methods only verify may "
                    f"be: make it a plain "
                    "def, and let it call asyncio.run(…) if it has to wait for something"
                )
        require_whole(f"{cls.__name__}.max_concurrent", cls.max_concurrent, 1)
        if bool(cls.outputs) != (cls.grade is not Environment.grade):
            raise UsageError(
                f'{cls.__name__}: outputs and grade belong together: outputs = ("src/**.py",) names the files that '
                "grade(task, box) judges"
            )

    def __post_init__(self) -> None:
        """Check the options; a subclass adds its own."""

    @classmethod
    def _has_hooks(cls) -> bool:
        overrides = any(getattr(cls, name) is not getattr(Environment, name) for name in _HOOKS)
        return bool(declared_tools(cls)) or overrides

    @classmethod
    def _add_limits(cls) -> None:
        """Make the fields of `EpisodeLimits` options, unless the class has them."""
        if cls.max_concurrent == Environment.max_concurrent:
            cls.max_concurrent = 128  # they mostly wait for a model
        present = {
            name for base in cls.__mro__[1:] for name in getattr(base, "__dataclass_fields__", ())
        }
        annotations = inspect.get_annotations(cls)
        added = {}
        for limit in fields(EpisodeLimits):
            if limit.name not in present and limit.name not in annotations:
                added[limit.name] = type(limit.default)
                setattr(cls, limit.name, cls.__dict__.get(limit.name, limit.default))
        cls.__annotations__ = annotations | added

    def play_single_turns(self) -> None:
        """Make one reply the whole episode: for `__post_init__`, where an option says so.

        `verify` gets a text then.
        """
        self.single_turn, self._plays = True, Episode  # type: ignore[misc]  # of this instance alone

    @property
    def limits(self) -> EpisodeLimits:
        """How far an episode may go, from the options of these names."""
        if self.single_turn:
            return Episode.limits
        names = (limit.name for limit in fields(EpisodeLimits))
        return EpisodeLimits(**{name: getattr(self, name) for name in names if hasattr(self, name)})

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
                f"write Correct() for "
                "the verdict of verify, or drop verify"
            )

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The options and their defaults; `dataclasses.MISSING` for one that must be given."""
        return {f.name: _default_of(f) for f in fields(cls) if f.init}

    @property
    def config(self) -> dict[str, Any]:
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

    def with_reward_text(self: _E, text: str, load: Callable[[str], Any]) -> _E:
        """A copy with the reward that an expression describes, which stands in its `config`.

        Args:
            text, load: see `parse_reward`.

        Raises:
            UsageError: see there.
        """
        copy = self.with_reward(parse_reward(text, own=self.reward, load=load))
        copy._reward_text = text  # type: ignore[misc]  # as with `reward`
        return copy

    def task_of(self, row: Mapping[str, Any]) -> Task:
        """The task that a row of completions answers.

        Environments over a data set override `task_from`, so that rows may have the data set's own
        columns.

        Args:
            row: the columns of the row.

        Raises:
            LookupError, TypeError, DataError: the task cannot be determined; becomes an error of
                that row alone.
        """
        if "reference" in row:
            name = str(row.get("task", row.get("id", "row")))
            return Task(
                name,
                row.get("prompt", ""),
                self.reference_of(plain_reference(row["reference"])),
                row.get("meta", {}),
            )
        if "task" in row:
            return self.find(row["task"])
        return self.task_from(row)

    def task_from(self, row: Mapping[str, Any]) -> Task:
        """A task from the data set's own columns.

        Args:
            row: the columns of the row.
        """
        raise DataError(
            f"neither 'task' nor 'reference' among its columns {', '.join(map(repr, row))}"
        )

    def reference_of(self, value: Any) -> Any:
        """The reference as the verifier takes it, from a row's column `reference`; by default
        unchanged.

        Numbers of other libraries are Python's own by now, see `rlvr.types.plain_reference`.  The
        verifier of the reward reads it, so that what it cannot read is an error of one row, and not
        of each of its completions.

        Override it if that column may hold more than the answer, such as a whole solution.

        Args:
            value: the value of the column.

        Raises:
            DataError: the value is no reference.
        """
        if not is_read_later():
            read_reference(self._verifier, value)
        return value

    def read_task(self, task: Task) -> None:
        """Read the reference of a task, as the verifier of the reward does before it judges.

        Args:
            task: from any source.

        Raises:
            DataError: the reference cannot be read, or takes too much time.
        """
        with limited_reading():
            read_reference(self._verifier, task.reference)

    @property
    def _verifier(self) -> Verifier | None:
        primary = self.reward.primary
        return None if primary is None else primary.verifier

    @property
    def rows_left_out(self) -> Mapping[str, int]:
        """Number of rows of the data that cannot be used, by an example of each reason; reads the
        tasks."""
        if type(self).task is Environment.task:
            _ = self._tasks
        return self._left_out or {}

    def stop_at_bad_rows(self) -> None:
        """Make a row that cannot be used an error, instead of leaving it out: `--strict` of
        commands.

        Raises:
            UsageError: the environment reads no rows.
        """
        self.strict_rows = True

    def tasks(self) -> Iterable[Task]:
        """All tasks of the split, in a fixed order; without end if `task` generates them."""
        if type(self).task is Environment.task:
            raise UsageError(
                f"{type(self).__name__} has no tasks: define tasks(self), or task(self, index) for "
                f"a generator"
            )
        return (self.task(index) for index in itertools.count())

    def tasks_in(
        self,
        source: str | Iterable[Mapping[str, Any] | Line],
        *,
        name: str | None = None,
        key: str | None = None,
        make: Callable[[Mapping[str, Any], str], Task | None] | None = None,
    ) -> Iterator[Task]:
        """The tasks of a data set's rows, by `task_from`: for `tasks`.

        A row that cannot be read or used, and one whose reference the reward's verifier cannot
        read, is left out; one warning counts them by reason.  The ids of the others have the
        numbers of their rows.

        Args:
            source: a file, a folder or a hub id, see `rlvr.data.rows.dataset_lines`; or rows.
            name: the configuration of a data set on the hub.
            key: column with the row's own name, which takes the place of its number in the id.
            make: makes the task from a row and an id, by default `task_from`; None leaves the row
                out on purpose.

        Raises:
            DataError: no row can be used, or more than one in twenty cannot; or, with
                `strict_rows`, one cannot.
        """
        lines: Iterable[Line] = (
            dataset_lines(source, self.split, name=name)
            if isinstance(source, str)
            else (
                row if isinstance(row, Line) else Line(number, row)
                for number, row in enumerate(source, start=1)
            )
        )
        where = source if isinstance(source, str) else "the rows"
        make = make or self.task_from  # type: ignore[assignment]  # subclasses take an id too
        left, count, task_count, names = LeftOut(), 0, 0, set[Any]()
        for index, line in enumerate(lines):
            count += 1
            try:
                if line.row is None:
                    raise DataError(line.error)
                row_id = None if key is None else line.row.get(key)
                if row_id is not None and row_id in names:
                    raise DataError(f"another row has the {key} {row_id!r} too")
                with limited_reading():
                    task = make(
                        line.row, f"{self.id}/{self.split}/{index if row_id is None else row_id}"
                    )  # type: ignore[misc]
                if task is not None:
                    self.read_task(task)
            except (DataError, TypeError, ValueError, LookupError, AttributeError) as error:
                reason = (
                    str(error)
                    if isinstance(error, DataError)
                    else f"{type(error).__name__}: {error}"
                )
                if self.strict_rows:
                    raise DataError(f"{where}, row {index}: {reason}") from error
                left.add(f"row {index}", reason)
                continue
            if task is not None:
                task_count += 1
                names.add(row_id)
                yield task
        self._report(where, left, count, task_count)

    def _report(self, where: str, left: LeftOut, count: int, made: int) -> None:
        """Say which rows were left out; too many are an error."""
        self._left_out = dict(left.reasons(20))
        if not left.count:
            return
        summary = f"{self.id}: {left.count:,} of {count:,} rows of {where} cannot be used"
        reasons = "; ".join(left.lines(3))
        if 20 * left.count > count or not made:
            raise DataError(f"{summary}, more than one in twenty: {reasons}")
        warnings.warn(f"{summary} and were left out: {reasons}", DataWarning, stacklevel=2)

    def task(self, index: int) -> Task:
        """The task at an index.

        Args:
            index: counted from 0.

        Raises:
            IndexError: there is no task at this index.
        """
        if index < 0 or index >= len(self._tasks):
            raise IndexError(
                f"{self.id} has {len(self._tasks)} tasks in split {self.split!r}; there is no task "
                f"{index}"
            )
        return self._tasks[index]

    @property
    def size(self) -> int | None:
        """Number of tasks in the split; None if they are generated without end."""
        return None if type(self).task is not Environment.task else len(self._tasks)

    def find(self, task: str | int) -> Task:
        """The task with this id, or at this index; ids of generated tasks must end in `/index` to
        be found.

        Args:
            task: an id, or an index counted from 0.

        Raises:
            LookupError: there is no such task.
        """
        if is_whole(task) and task >= 0:
            return self.task(int(task))
        if not isinstance(task, str):
            raise LookupError(
                f"{self.id} has no task {brief(task)}; give an id, or an index counted from 0"
            )
        if self.size is not None:
            task_found = self._by_id.get(task)
        else:
            index = task.rpartition("/")[2]
            task_found = self.task(int(index)) if index.isdecimal() and len(index) < 19 else None
        if task_found is None or task_found.id != task:
            raise LookupError(f"{self.id}, split {self.split!r}, has no task {task!r}")
        return task_found

    @cached_property
    def _tasks(self) -> Sequence[Task]:
        tasks = list(self.tasks())
        ids: set[str] = set()
        for index, task in enumerate(tasks):
            if not isinstance(task, Task):
                raise UsageError(
                    f"{type(self).__name__}.tasks() gave {task!r} at {index}; it must give "
                    f"Task(id, prompt, …)"
                )
            if task.id in ids:
                raise UsageError(
                    f"{self.id}: two tasks have the id {task.id!r}; ids must be unique"
                )
            ids.add(task.id)
        return tasks

    @cached_property
    def _by_id(self) -> dict[str, Task]:
        return {task.id: task for task in self._tasks}

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

    def __deepcopy__(self: _E, memo: dict[int, Any]) -> _E:
        return self._copy()  # data need no second copy

    # ------------------------------------------------ what a mixture answers otherwise than one environment

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
            raise UsageError(
                f"{type(self).__name__} cannot tell right from wrong: define verify(self, task, "
                f"completion), or name a "
                "verifier, reward = Correct(MathVerifier())"
            )
        return verified(self._verifier, completion, task)

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
        verdict: Any = self._verdict_on(task, completion)
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
        """The verdict of `verify`; it reads the text, or the record of an episode with several
        turns."""
        record = completion.episode
        if record is not None and record.fault:
            return Verdict(Outcome.WRONG, why=record.fault, answer=record.answer)
        if self.single_turn:
            return self.verify(task, completion.text)
        if type(self).verify is Environment.verify:
            return self.verify(task, completion.text if record is None else record.answer)
        if record is None:
            raise UsageError(
                f"{self.id} verifies episodes, and this completion has none; rlvr eval and rlvr "
                "train record them, and env.completion_of(record) makes a completion of one"
            )
        return self.verify(task, record)

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
            observations = [
                await task_running for task_running in tasks
            ]  # so that of several exceptions the first completion's is raised
        finally:
            for observing in tasks:
                observing.cancel()
        return await self.reward.acombine(task, completions, observations)

    # ------------------------------------------------------- what an author of several turns defines

    def setup(self, task: Task) -> Any:
        """The state of an episode, which its tools get; by default None.  Plain or async.

        Its `close` (or `aclose`) is called at the end, whatever happened.

        Args:
            task: of the episode.
        """

    def tools(self, state: Any) -> Sequence[Tool]:
        """The tools of an episode: by default the methods with `@rlvr.tool`.

        Override it to add others: `return [*super().tools(state), rlvr.tools.python(state)]`.

        Args:
            state: of the episode.
        """
        return tools_of(self, state)

    def user(self, task: Task, transcript: Sequence[Mapping[str, Any]]) -> Any:
        """The next message of a simulated user after a turn without calls; None ends the episode.
        Plain or async.

        Args:
            task: of the episode.
            transcript: the chat messages after the prompt.
        """

    def final(self, task: Task, state: Any) -> Any:
        """What `verify` needs of the state, read at the end: JSON, `EpisodeRecord.final`.  Plain or
        async.

        Not called if a call was over its time and took the state with it.

        Args:
            task: of the episode.
            state: of the episode.
        """

    def grade(self, task: Task, box: Any) -> Any:
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
        example = self.example(task) if self.single_turn else None
        return None if example is None else [example]

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
        return self._plays(self, task)

    def completion_of(self, episode: EpisodeRecord, length_tokens: int | None = None) -> Completion:
        """An episode as scores read it: `env.score(task, env.completion_of(episode))`.

        Args:
            episode: the record.
            length_tokens: of the policy; None if unknown.
        """
        return Completion(
            episode.answer, length_tokens, episode.end in ("tokens", "turns", "positions"), episode
        )

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Prompt, dict[str, Any]]:
        """Begin an episode as in Gymnasium, with a task drawn at random or that of
        `options={"index": 7}`.

        Args:
            seed: makes this draw and the following ones repeatable.
            options: `index`, counted from 0, or none.

        Returns:
            The task's prompt, and info with "task", "index" and, where there are several turns,
            "tools", the schemas.
        """
        self.close()
        index, task = self._draw_task(seed, options)
        self._playing, self._episode = task, (episode := self.open(task))
        info = {"task": task.id, "index": index}
        return episode.prompt, info if self.single_turn else {**info, "tools": episode.schemas}

    def step(self, action: Any) -> tuple[Prompt, float, bool, bool, dict[str, Any]]:
        """Take a turn of the policy, as in Gymnasium.  The last one's reward is the total of the
        episode.

        Args:
            action: a text, with calls in <tool_call> tags; or another form of a turn, see
                `TurnLike`, such as `Completion(text, length_tokens=…)` where the reward reads the
                length.

        Returns:
            The messages that the policy is told, and info with "task"; at the end also "score", and
            "episode", the record, where there are several turns.

        Raises:
            UsageError: there was no `reset` before, or the verdict is UNSCORED.
            Unscored: the environment failed.
        """
        episode = self._episode
        if episode is None:
            raise UsageError(
                f"{self.id}: step before reset; no episode is under way, call reset() for the next"
            )
        try:
            messages = episode.reply(action)
        except Exception:
            self.close()
            raise
        info: dict[str, Any] = {"task": (self._playing or episode.task).id}
        if messages is not None:
            return messages, 0.0, False, False, info
        self.close()
        score = self._last_score(episode)
        info["score"] = score
        if not self.single_turn:
            info["episode"] = episode.record
        truncated = episode.end != "answer"
        return "", float(score.total or 0.0), not truncated, truncated, info

    def close(self) -> None:
        """End the episode that `reset` began.  Idempotent."""
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.close()

    def _last_score(self, episode: Episode) -> Score:
        length = 0 if self.reward.needs_length and not self.single_turn else None  # not known here
        score = self.score(self._playing or episode.task, episode.completion(length))
        if score.total is None:
            raise UsageError(
                f"{self.id}: verify returned UNSCORED ({score.verdict.why}); here it has to raise "
                f"instead"
            )
        return score

    def _draw_task(self, seed: int | None, options: Mapping[str, Any] | None) -> tuple[int, Task]:
        """The task of `options={"index": 7}`, or one at random."""
        if seed is not None or self._rng is None:
            self._rng = random.Random(seed)
        index = (options or {}).get("index")
        if index is None:
            size = 2**31 if self.size is None else self.size
            index = self._rng.randrange(
                max(size, 1)
            )  # if there are no tasks, `task(0)` raises the error
        return index, self.task(index)

    @staticmethod
    def from_rows(
        rows: Iterable[Mapping[str, Any]] | str | Path,
        *,
        prompt: str | Callable[[Mapping[str, Any]], Prompt] = "prompt",
        reference: str | Callable[[Mapping[str, Any]], Any] = "reference",
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
    def config(self) -> dict[str, Any]:
        """Without the rows: a record cannot repeat them, and each recorded task has what its
        verdict needs."""
        return {name: value for name, value in super().config.items() if name != "rows"}

    def tasks(self) -> Iterator[Task]:
        rows = str(self.rows) if isinstance(self.rows, Path) else self.rows
        return self.tasks_in(rows, make=self._row_task)

    def _row_task(self, row: Any, id: str) -> Task:
        where = f"row {id.rpartition('/')[2]}"
        if not isinstance(row, Mapping):
            raise DataError(f"{where} is {brief(row)}; it must be a mapping of columns")
        row_id = row.get("id")
        return self._task(row, id if row_id is None else str(row_id), where)

    def task_from(self, row: Mapping[str, Any]) -> Task:
        task = {name: value for name, value in row.items() if name not in _OF_THE_COMPLETION}
        return self._task(
            task, "row", "the row"
        )  # the row's id is that of the completion, not of the task

    def _task(self, row: Mapping[str, Any], id: str, where: str) -> Task:
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


def _cell(
    row: Mapping[str, Any], column: str | Callable[[Mapping[str, Any]], Any], where: str
) -> Any:
    if not isinstance(column, str):
        return column(row)
    if column not in row:
        raise DataError(f"{where} has no column {column!r}; it has {', '.join(map(repr, row))}")
    return row[column]
