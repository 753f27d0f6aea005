"""Items out one after the other, observations back in any order, scores
in the order of the rows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from rlvr.environment import Environment
from rlvr.errors import DataError
from rlvr.rewards import Observation
from rlvr.scoring.items import Item, ItemReader, OnError, Rows, RowTask
from rlvr.types import Outcome, Score, Task

__all__ = [
    "Ordering",
    "Scored",
    "Scores",
    "Seen",
    "SlowReference",
    "Taken",
    "UnreadReference",
]


class UnreadReference(DataError):
    """The reference of an item cannot be read."""


class SlowReference(DataError):
    """The reference of an item takes long to read, and nothing else is known of
    it; see `Engine.observe`."""


Seen: TypeAlias = Observation | DataError
"""Result of the first stage; a `DataError` for an item that cannot be sent to a worker, or whose
reference it cannot read."""

Scores: TypeAlias = list[Score] | Future[list[Score]]
"""Result of the second stage; a future if a group-level part is async."""

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Scored:
    """An item and its score.

    Attributes:
        item: what was scored.
        score: its score, with total None if UNSCORED.
    """

    item: Item
    score: Score

    @property
    def outcome(self) -> Outcome:
        """The outcome of the verdict."""
        return self.score.verdict.outcome


@dataclass(slots=True, eq=False)
class Taken:
    """An item that was taken to be observed.

    Attributes:
        number: of its row, counted from 1.
        item: what is to be scored.
        letters: of its texts.
        seen: its observation, once it is there.
    """

    number: int
    item: Item
    letters: int
    seen: Seen | None = None


class Ordering(Generic[_R]):
    """The rows of one run between the two stages of scoring.  Not safe from threads.

    Args:
        env: the environment whose tasks the rows answer.
        rows, on_error: see `Scorer.stream`.
        combine: the second stage, for the completions of one task.
        by_group: whether consecutive completions of one task go to the second stage together, not
            one by one.
        with_tasks: whether tasks that a worker has made of a row are made here, too.
        most_letters: no item is taken while the texts of those under way have so many.
    """

    def __init__(
        self,
        env: Environment,
        rows: Rows,
        on_error: OnError | None,
        combine: Callable[[Sequence[Item], Sequence[Observation]], list[_R] | Future[list[_R]]],
        *,
        by_group: bool,
        with_tasks: bool = True,
        most_letters: float = math.inf,
    ) -> None:
        self._with_tasks = with_tasks or by_group
        self._source = ItemReader(env, rows, on_error)
        self._items = iter(self._source)
        self._by_group = by_group
        self._combine = combine
        self._window: deque[Taken] = deque()
        self._letters, self._most_letters = 0, most_letters  # of all in it
        self._pending: list[
            tuple[Item, Observation]
        ] = []  # of one task, for a reward that compares
        # of one task each
        self._groups: deque[tuple[list[Item], list[_R] | Future[list[_R]]]] = deque()
        self.ended = False  # whether every row was taken

    def take(self, most: int) -> list[Taken]:
        """The next items; fewer than `most` if there are no more, or if those under way have too
        many letters.

        Args:
            most: greatest number of items.
        """
        items = list[Taken]()
        while len(items) < most and self._letters < self._most_letters:
            number, item = next(self._items, (0, None))
            if item is None:
                self.ended = True
                break
            items.append(Taken(number, item, letters := _letters_of(item)))
            self._letters += letters
        self._window += items
        return items

    def ready(self, most: int | None = None) -> Iterator[tuple[Item, _R]]:
        """The items whose turn has come, with what the second stage made of them.

        Args:
            most: waits for async group-level parts while more than so many groups are under way;
                None never waits.

        Raises:
            DataError: see `Scorer.stream`.
        """
        while self._window and self._window[0].seen is not None:
            entry = self._window.popleft()
            self._letters -= entry.letters
            assert entry.seen is not None
            # In the order of the rows, and only now: rows that a worker has refused are not made
            # here.
            if self._with_tasks and type(entry.item.task) is RowTask:
                self._make_task(entry)
            if isinstance(entry.seen, DataError):
                self._source.refuse(entry.number, entry.seen)
                continue
            if not self._by_group:  # nothing to wait for, and the next one may take long
                scores = self._combine([entry.item], [entry.seen])
                # Groups before it wait for a future: rows keep their order.
                if not isinstance(scores, Future) and not self._groups:
                    yield entry.item, scores[0]
                    continue
                self._groups.append(([entry.item], scores))
                yield from self._take_finished(most)
                continue
            if self._pending and not _same(self._pending[0][0].task, entry.item.task):
                self._flush()
            self._pending.append((entry.item, entry.seen))
            yield from self._take_finished(most)
        # With an error the last task may lack completions, and a part that compares them would
        # give others a wrong score.
        if self.ended and not self._window and self._source.error is None:
            self._flush()
        if self._groups:
            yield from self._take_finished(most)

    def _make_task(self, taken: Taken) -> None:
        """Of a row of which a worker has made one."""
        if not isinstance(taken.seen, DataError):
            try:
                taken.item = self._source.made(taken.item)
            except DataError as error:
                taken.seen = error

    def rest(self) -> Iterator[tuple[Item, _R]]:
        """The items of the groups that are under way, when every item was observed; waits for them.

        Raises:
            Exception: what ended the run before its last row.
        """
        # Zero: waits for every group.
        yield from self.ready(0)
        if self._source.error is not None:
            raise self._source.error

    @property
    def error(self) -> BaseException | None:
        """What ended the rows before their last one."""
        return self._source.error

    @property
    def combining(self) -> Future[list[_R]] | None:
        """The first group whose scores are waited for; None if there is none."""
        scores = self._groups[0][1] if self._groups else None
        return scores if isinstance(scores, Future) else None

    def cancel(self) -> None:
        """Give up the groups that are under way.  Any thread may call this."""
        # A copy: another thread may be taking groups out.
        for _, scores in tuple(self._groups):
            if isinstance(scores, Future):
                scores.cancel()

    def _flush(self) -> None:
        """Begin the second stage of what is pending."""
        if self._pending:
            items, observed = (
                [item for item, _ in self._pending],
                [observation for _, observation in self._pending],
            )
            self._pending.clear()
            self._groups.append((items, self._combine(items, observed)))

    def _take_finished(self, most: int | None) -> Iterator[tuple[Item, _R]]:
        """The scores of the first groups, as far as they are there."""
        while self._groups:
            items, scores = self._groups[0]
            if isinstance(scores, Future):
                # More under way than allowed: then the oldest is waited for.
                if not (scores.done() or (most is not None and len(self._groups) > most)):
                    break
                scores = scores.result()
            self._groups.popleft()
            yield from zip(items, scores, strict=True)


def _letters_of(item: Item) -> int:
    task = item.task
    texts = (item.completion.text, task.prompt, task.reference, *task.meta.values())
    return sum([len(text) for text in (*texts, *item.row.values()) if type(text) is str])


def _same(task: Task, other: Task) -> bool:
    # rows without ids and tasks all have the id "row"
    return (task.id, task.prompt) == (other.id, other.prompt)
