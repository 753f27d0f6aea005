"""Where the tasks of an environment come from: by index, by id, from rows of a data set."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rlvr.data.lines import Line
from rlvr.data.rows import dataset_lines
from rlvr.display import LeftOut
from rlvr.environment.reading import is_read_later, limited_reading
from rlvr.errors import DataError, DataWarning, UsageError, brief
from rlvr.rewards import Correct, Reward
from rlvr.types import Task, Verifier, plain_reference, read_reference
from rlvr.validate import is_whole

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["TaskSource"]

_UNNAMED: Final = "the rows"


@dataclass(kw_only=True, eq=False)
class TaskSource:
    """The tasks of an environment, which defines `task`, or `tasks` for a finite set."""

    id: ClassVar[str] = ""
    reward: ClassVar[Reward] = Correct()
    split: str = "train"
    strict_rows: bool = field(default=False, init=False, repr=False)
    """True: a row that cannot be used stops the run, see `stop_at_bad_rows`."""

    _left_out: Mapping[str, int] | None = field(default=None, init=False, repr=False)

    def task_of(self, row: Row) -> Task:
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

    def task_from(self, row: Row) -> Task:
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
        verifier = self._verifier
        read, knows = getattr(verifier, "read", None), getattr(verifier, "knows", None)
        if callable(read) and not (callable(knows) and knows(task.reference)):
            with limited_reading():
                read(task.reference)

    @property
    def _verifier(self) -> Verifier | None:
        primary = self.reward.primary
        return None if primary is None else primary.verifier

    @property
    def rows_left_out(self) -> Mapping[str, int]:
        """Number of rows of the data that cannot be used, by an example of each reason; reads the
        tasks."""
        if type(self).task is TaskSource.task:
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
        if type(self).task is TaskSource.task:
            raise UsageError(
                f"{type(self).__name__} has no tasks: define tasks(self), or task(self, index) for "
                f"a generator"
            )
        return (self.task(index) for index in itertools.count())

    def tasks_in(
        self,
        source: str | Iterable[Mapping[str, object] | Line],
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
        where = source if isinstance(source, str) else _UNNAMED
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
                # None: this environment makes no task of such a row.
                if task is not None:
                    self.read_task(task)
            # An environment's own code on a stranger's row may raise these.
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
        rows = "rows" if where == _UNNAMED else f"rows of {where}"
        summary = f"{self.id}: {left.count:,} of {count:,} {rows} cannot be used"
        reasons = "; ".join(left.lines(3))
        # One in twenty, or no task at all: the data set is not what was expected.
        if 20 * left.count > count or not made:
            raise DataError(
                f"{summary}, more than one in twenty: {reasons}; mend them or take them out"
            )
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
        return None if type(self).task is not TaskSource.task else len(self._tasks)

    def find(self, task: str | int) -> Task:
        """The task with this id, or at this index; ids of generated tasks must end in `/index` to
        be found.

        Args:
            task: an id, or an index counted from 0.

        Raises:
            LookupError: there is no such task.
        """
        if is_whole(task) and task >= 0:
            return self._task_at(int(task))
        if not isinstance(task, str):
            raise LookupError(
                f"{self.id} has no task {brief(task)}; give an id, or an index counted from 0"
            )
        # Tasks that are generated can only be found by the index in their id.
        if self.size is not None:
            task_found = self._by_id.get(task)
        else:
            index = task.rpartition("/")[2]
            # At most eighteen digits: no index is longer, and `int` refuses thousands of them.
            task_found = (
                self._task_at(int(index)) if index.isdecimal() and len(index) < 19 else None
            )
        if task_found is None or task_found.id != task:
            raise LookupError(f"{self.id}, split {self.split!r}, has no task {task!r}")
        return task_found

    def _task_at(self, index: int) -> Task:
        task: object = self.task(index)
        if not isinstance(task, Task):
            raise self._not_a_task(f"task({index})", task)
        return task

    def _not_a_task(self, call: str, value: object) -> UsageError:
        return UsageError(
            f"{type(self).__name__}.{call} gave {brief(value)}; it must give Task(id, prompt, …)"
        )

    @cached_property
    def _tasks(self) -> Sequence[Task]:
        given: object = self.tasks()
        if not isinstance(given, Iterable):
            raise self._not_a_task("tasks()", given)
        tasks = list(given)
        ids: set[str] = set()
        for index, task in enumerate(tasks):
            if not isinstance(task, Task):
                raise self._not_a_task(f"tasks(), number {index},", task)
            if task.id in ids:
                raise UsageError(
                    f"{self.id}: two tasks have the id {task.id!r}; ids must be unique"
                )
            ids.add(task.id)
        return tasks

    @cached_property
    def _by_id(self) -> dict[str, Task]:
        return {task.id: task for task in self._tasks}
