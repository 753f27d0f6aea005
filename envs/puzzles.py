"""What procedural environments share: tasks drawn by their index, each in one split;
or rows of data instead."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import rlvr
from rlvr.validate import require_one_of

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Generator", "Made", "Puzzle", "column"]

# tenths of all puzzles
_SPLITS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}

_MOST = 5000  # draws to find a puzzle of the split


class Made(NamedTuple):
    """A puzzle: prompt, reference, and the text of a right answer."""

    prompt: str
    reference: Any
    solution: str


class Generator(rlvr.Environment):
    """Draws tasks by their index.  With an option `data` that is set, the rows of
    that data set are the tasks.

    A row has `prompt` and a `reference` as the verifier takes it, or the columns that `task_from`
    reads.
    """

    row_key: ClassVar[str | None] = None
    """The column with a row's own name, which takes the place of its number in the task's id."""

    def __post_init__(self) -> None:
        if not self._rows:
            require_one_of("split", self.split, _SPLITS)

    @abstractmethod
    def draw(self, index: int) -> rlvr.Task:
        """The task at an index; the same in every process.

        Args:
            index: counted from 0.
        """

    @property
    def _rows(self) -> str:
        """The data set to take tasks from; "" for drawn ones."""
        return str(self.config.get("data", ""))

    @property
    def size(self) -> int | None:
        return len(self._tasks) if self._rows else None

    def tasks(self) -> Iterable[rlvr.Task]:
        if not self._rows:
            return super().tasks()
        return self.tasks_in(self._rows, key=self.row_key, make=self._of_row)

    def task(self, index: int) -> rlvr.Task:
        return super().task(index) if self._rows else self.draw(index)

    def _of_row(self, row: Row, id: str) -> rlvr.Task:
        if "prompt" in row and "reference" in row:
            return rlvr.Task(id, row["prompt"], self.reference_of(row["reference"]))
        return self.task_from(row, id)  # type: ignore[call-arg]  # subclasses take an id too

    def in_split(self, *form: Any) -> bool:
        """Whether a task belongs to the split: a hash of its form decides, so that no two splits
        share one.

        Args:
            form: texts that two tasks share if they are the same.
        """
        return rlvr.seeded(self.id, *form).randrange(10) in _SPLITS[self.split]


def column(row: Mapping[str, object], *names: str) -> Any:
    """The value of the first of these columns that a row has, as data sets name one thing
    differently.

    Args:
        row: the row.
        names: of the columns.

    Raises:
        DataError: it has none of them.
    """
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise rlvr.DataError(f"no column {' or '.join(map(repr, names))}; there is {', '.join(row)}")


class Puzzle(Generator):
    """A generator of puzzles.  `make` draws one; a hash of its form assigns it to a split."""

    domain = "logic"

    @abstractmethod
    def make(self, rng: Random, mine: Callable[[object], bool]) -> Made | None:
        """A puzzle that has a solution; None if this draw gives none of the split.

        Args:
            rng: draws it.
            mine: whether a puzzle of this form, what two puzzles share if they are the same,
                belongs to the split.
        """

    def _mine(self, form: object) -> bool:
        return hashlib.sha256(repr(form).encode()).digest()[0] * 10 // 256 in _SPLITS[self.split]

    def draw(self, index: int) -> rlvr.Task:
        # What the options are is a part of a task's name and seed; where it comes from is not.
        settings = [
            str(value) for name, value in self.config.items() if name not in ("split", "data")
        ]
        options = "/".join(settings)
        rng = rlvr.seeded(self.id, self.split, options, index)
        # A form of the other splits, or one without a solution, is drawn anew.
        draft = next((draft for _ in range(_MOST) if (draft := self.make(rng, self._mine))), None)
        if draft is None:
            raise rlvr.UsageError(
                f"{self.id}: split {self.split!r} has no puzzle with {options}; take larger ones"
            )
        name = "/".join(filter(None, (self.id, self.split, options, str(index))))
        return rlvr.Task(name, draft.prompt, draft.reference, {"solution": draft.solution})

    def example(self, task: rlvr.Task) -> str | None:
        solution = task.meta.get("solution")
        return None if solution is None else f"<answer>\n{solution}\n</answer>"
