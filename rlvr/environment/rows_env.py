"""An environment made from the rows of a data set, without a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rlvr.environment.base import Environment
from rlvr.errors import DataError, UsageError, brief
from rlvr.types import Prompt, Task

__all__ = ["RowsEnv", "environment_of_rows"]


def environment_of_rows(
    rows: Iterable[Mapping[str, Any]] | str | Path,
    prompt: str | Callable[[Mapping[str, Any]], Prompt],
    reference: str | Callable[[Mapping[str, Any]], Any],
    example: str | Callable[[Task], str | None] | None,
    id: str,
) -> RowsEnv:
    """The environment of rows, without a reward of its own.

    Args:
        rows, prompt, reference, example, id: see `Environment.from_rows`.

    Raises:
        UsageError: a column is neither a name nor a function.
    """
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
    return env


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
