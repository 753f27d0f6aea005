"""The metrics of a run as columns: read once, and read on from where they ended."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

__all__ = ["Column", "RunMetrics"]

Column: TypeAlias = NDArray[np.float64]
_Row: TypeAlias = Mapping[str, object]

_NUMBERS: Final = frozenset((int, float, type(None)))
_GREATEST: Final = 1e300  # greater numbers have no place on an axis
_DAMAGED: Final = 5  # lines that a note lists


class RunMetrics:
    """What a `metrics.jsonl` holds, as far as it has been read.

    Args:
        path: the file.

    Attributes:
        columns: of each metric its value at each line, NaN where the line has none; `step` too.
        damaged: numbers of lines that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] = ()
        self._forget()

    def _forget(self) -> None:
        self.columns: dict[str, Column] = {"step": np.empty(0)}
        self.damaged: list[int] = []
        self._done = self._lines = 0
        self._end = b""  # the last line that was read

    def __len__(self) -> int:
        return len(self.columns["step"])

    @property
    def notes(self) -> list[str]:
        """A line for what could not be read."""
        if not self.damaged:
            return []
        ellipsis = " …" if len(self.damaged) > _DAMAGED else ""
        listed = ", ".join(map(str, self.damaged[:_DAMAGED])) + ellipsis
        return [f"{self._path}: line {listed} cannot be read and is left out"]

    @property
    def last_step(self) -> int:
        """The step of the last line; 0 without one."""
        return int(self.columns["step"][-1]) if len(self) else 0

    def last(self, name: str) -> float:
        """The last value of a metric; NaN without one.

        Args:
            name: of the metric.
        """
        _, values = self.points(name)
        return float(values[-1]) if len(values) else math.nan

    def points(self, name: str, by: str = "step") -> tuple[Column, Column]:
        """A metric where it has a value: places and values.

        Args:
            name: of the metric.
            by: the metric that gives the places.
        """
        values, places = self.columns.get(name), self.columns.get(by)
        if values is None or places is None:
            return np.empty(0), np.empty(0)
        visible = (np.abs(values) < _GREATEST) & np.isfinite(places)  # NaN is not less
        return places[visible], values[visible]

    def update(self) -> None:
        """Read what is new.  A file that was written anew is read anew.

        Raises:
            OSError: the file cannot be read.
        """
        status = self._path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp == self._stamp:
            return
        with self._path.open("rb") as file:
            file.seek(max(0, self._done - len(self._end)))
            if stamp[:1] != self._stamp[:1] or file.read(len(self._end)) != self._end:
                self._forget()
            file.seek(self._done)
            self._add(file.read())
        self._stamp = stamp

    def _add(self, raw: bytes) -> None:
        rows = []
        for line in raw.splitlines(keepends=True):
            row = _row(line)
            if row is None and not line.endswith(b"\n"):
                break  # it is being written
            self._lines += 1
            self._done += len(line)
            self._end = line
            if row is not None:
                rows.append(row)
            elif line.strip():
                self.damaged.append(self._lines)
            else:
                self._lines -= 1  # the end of a line that was read before
        before, count = len(self), len(rows)
        if not count:
            return
        columns = _columns(rows)
        for name in self.columns.keys() | columns.keys():
            old = self.columns.get(name)
            old = np.full(before, np.nan) if old is None else old
            new = columns.get(name)
            new = np.full(count, np.nan) if new is None else new
            self.columns[name] = np.concatenate((old, new))


def _row(line: bytes) -> _Row | None:
    """A line as an object with a step; None if it is none."""
    try:
        row = orjson.loads(line)
    except ValueError:
        try:
            row = json.loads(line)  # NaN, which orjson refuses
        except (ValueError, RecursionError):
            return None
    if not isinstance(row, dict):
        return None
    step = row.get("step")
    is_step = isinstance(step, int) and not isinstance(step, bool) and abs(step) < 1 << 53
    return row if is_step else None


def _columns(rows: Sequence[_Row]) -> dict[str, Column]:
    """Columns of rows.  Most rows have the same names, so rows are taken together by their
    names."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(tuple(row), []).append(place)
    columns: dict[str, Column] = {}
    for names, at in places.items():
        table = _table([rows[place].values() for place in at], len(names))
        for number, name in enumerate(names):
            if name not in columns:
                columns[name] = np.full(len(rows), np.nan)
            columns[name][at] = table[:, number]
    return columns


def _table(rows: Sequence[Iterable[object]], width: int) -> NDArray[np.float64]:
    values: Iterator[object] = chain.from_iterable(rows)
    flat = list(values)
    if not set(map(type, flat)) <= _NUMBERS:
        flat = [value if type(value) in _NUMBERS else None for value in flat]
    try:
        table = np.array(flat, dtype=np.float64)
    except OverflowError:  # a whole number beyond all floats
        table = np.array([_float(value) for value in flat])
    return table.reshape(len(rows), width)


def _float(value: object) -> float:
    try:
        return math.nan if value is None else float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf
