"""What procedural environments share: tasks drawn from a hash, each in one split alone; or rows instead of them."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

import rlvr
from rlvr.validate import require_one_of

__all__ = ["Made", "Puzzle"]

_SPLITS = {
    "train": range(8),
    "validation": range(8, 9),
    "test": range(9, 10),
}  # tenths of all puzzles

_MOST = 5000  # draws to find a puzzle of the split


class Made(NamedTuple):
    """A puzzle: prompt, reference, and the text of a right answer."""

    prompt: str
    reference: Any
    solution: str


class Puzzle(rlvr.SingleTurnEnv):
    """A generator of puzzles.  `make` draws one; a hash of its form assigns it to a split.

    With an option `data` that is set, its rows are the tasks, by `task_from`.
    """

    domain = "logic"

    def __post_init__(self) -> None:
        if not self._rows:
            require_one_of("split", self.split, _SPLITS)

    @abstractmethod
    def make(self, rng: Random, mine: Callable[[Any], bool]) -> Made | None:
        """A puzzle that has a solution; None if this draw gives none of the split.

        Args:
            rng: draws it.
            mine: whether a puzzle of this form, what two puzzles share if they are the same, belongs to the split.
        """

    @property
    def _rows(self) -> str:
        """The data set to take tasks from; "" for procedural ones."""
        return str(self.config.get("data", ""))

    def _mine(self, form: Any) -> bool:
        return hashlib.sha256(repr(form).encode()).digest()[0] * 10 // 256 in _SPLITS[self.split]

    @property
    def size(self) -> int | None:
        return len(self._tasks) if self._rows else None

    def tasks(self) -> Iterable[rlvr.Task]:
        if not self._rows:
            return super().tasks()
        return self.tasks_in(self._rows)

    def task(self, index: int) -> rlvr.Task:
        if self._rows:
            return super().task(index)
        options = "/".join(str(value) for name, value in self.config.items() if name != "split")
        rng = rlvr.seeded(self.id, self.split, options, index)
        made = next((made for _ in range(_MOST) if (made := self.make(rng, self._mine))), None)
        if made is None:
            raise rlvr.UsageError(
                f"{self.id}: split {self.split!r} has no puzzle with {options}; take larger ones"
            )
        name = "/".join(filter(None, (self.id, self.split, options, str(index))))
        return rlvr.Task(name, made.prompt, made.reference, {"solution": made.solution})

    def example(self, task: rlvr.Task) -> str | None:
        solution = task.meta.get("solution")
        return None if solution is None else f"<answer>\n{solution}\n</answer>"
