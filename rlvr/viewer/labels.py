"""Verdicts that a person calls right or wrong: kept in a file of their own, and
drawn one after another.

A line of the file is the row that was judged, with `label`: whether the completion is right, as
`rlvr audit` takes it; `verdict_is_right`; and `drawn`, the order in which the row came up.  Only
rows drawn at random tell how often a verdict is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import IO, Final

from rlvr.data.files import lock_file, sync_file, write_whole
from rlvr.data.formats import read_rows
from rlvr.data.lines import CHECKSUM
from rlvr.data.overlap import digest_of
from rlvr.errors import DataError, UsageError, brief
from rlvr.statistics import wilson
from rlvr.types import JsonDict
from rlvr.viewer.changes import disagreements
from rlvr.viewer.index import dumped
from rlvr.viewer.sources import Source

__all__ = ["Labels", "ORDERS", "draw_row"]

ORDERS: Final = {
    "random": "at random",
    "reason": "rarest reasons first",
    "disagreement": "where two files disagree",
}
"""How rows come up to be judged."""

_JUDGED: Final = "error IS NULL AND outcome IN ('correct', 'wrong', 'unparsed')"
_SHUFFLED: Final = "md5(n::VARCHAR), n"  # the same order in every session
_SQL: Final = {
    "random": f"SELECT n FROM rows WHERE {_JUDGED} ORDER BY {_SHUFFLED}",
    "reason": f"SELECT n FROM rows WHERE {_JUDGED} "
    f"ORDER BY count(*) OVER (PARTITION BY outcome, reason), outcome, reason, {_SHUFFLED}",
}
_CHUNK: Final = 64  # rows whose texts are read at once
# A person labels some hundreds; the rest would only be sorted.
_MOST_DIFFERING: Final = 10_000


class Labels:
    """What a person said of verdicts, and the file that keeps it.

    Args:
        path: a .jsonl file; it is made with the first mark, and continued if it is there.

    Raises:
        DataError: the file holds rows that are no marks.
        UsageError: the path has another ending, or another viewer writes it.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix != ".jsonl":
            raise UsageError(f"{path}: labels go to a .jsonl file")
        self.path = path
        self._lines: dict[bytes, dict[str, object]] = {}
        self._lock = Lock()
        self._file: IO[bytes] | None = None
        if path.exists():
            for line in read_rows(path):
                row = line.row or {}
                if not isinstance(row.get("label"), bool) or "verdict_is_right" not in row:
                    raise DataError(
                        f"{path}, line {line.number}: {line.error or 'no mark of a verdict'}; "
                        "give a file that rlvr view --labels wrote, or a new one"
                    )
                self._lines[_key(row)] = dict(row)
            self._open()

    def close(self) -> None:
        """Close the file; what was marked is in it already."""
        if self._file is not None:
            self._file.close()

    def of(self, row: Mapping[str, object]) -> bool | None:
        """Whether a row's verdict was called right; None if it was not judged.

        Args:
            row: a record.
        """
        line = self._lines.get(_key(row))
        return None if line is None else bool(line["verdict_is_right"])

    def mark(self, row: Mapping[str, object], verdict_is_right: bool | None, drawn: str) -> None:
        """Keep what was said of a verdict, on disk; a second mark of a row replaces the first.

        Args:
            row: a record.
            verdict_is_right: the mark; None takes an earlier one away.
            drawn: how the row came up: a key of `ORDERS`, or "" for one that was looked for.
        """
        with self._lock:
            key, is_known = _key(row), _key(row) in self._lines
            if verdict_is_right is None:
                self._lines.pop(key, None)
            else:
                self._lines[key] = {
                    **{name: value for name, value in row.items() if name != CHECKSUM},
                    "label": (row.get("outcome") == "correct") is verdict_is_right,
                    "verdict_is_right": verdict_is_right,
                    "drawn": drawn,
                }
            if is_known:
                write_whole(self.path, b"".join(map(dumped, self._lines.values())))
                self._open()
            elif verdict_is_right is not None:
                file = self._file or self._open()
                file.write(dumped(self._lines[key]))
                sync_file(file)

    def summary(self) -> JsonDict:
        """How many verdicts were judged, and how many are wrong, of all and of those drawn at
        random.

        Returns:
            `count`, `wrong`; `drawn` and `drawn_wrong` of the random ones, with `low` and `high`,
            the 95 % interval of the share of wrong verdicts, 0 to 1 if there is none.
        """
        with self._lock:
            marks = [(line["verdict_is_right"], line.get("drawn")) for line in self._lines.values()]
        random = [right for right, way_drawn in marks if way_drawn == "random"]
        wrong = random.count(False)
        low, high = wilson(wrong, len(random)) if random else (0.0, 1.0)
        return {
            "count": len(marks),
            "wrong": sum(not right for right, _ in marks),
            "drawn": len(random),
            "drawn_wrong": wrong,
            "low": low,
            "high": high,
        }

    def _open(self) -> IO[bytes]:
        if self._file is not None:
            self._file.close()
        self._file = self.path.open("ab")
        try:
            lock_file(self._file)
        except BlockingIOError:
            self._file.close()
            raise UsageError(f"{self.path}: another rlvr view writes these labels") from None
        return self._file


def draw_row(
    source: Source, labels: Labels, order: str, other: Source | None, skipped: set[int]
) -> int | None:
    """The number of the next row to judge; None if all were judged.

    Args:
        source: whose rows are judged.
        labels: the marks so far.
        order: a key of `ORDERS`.
        other: the file that it is compared with, for "disagreement".
        skipped: numbers of rows that do not come up again.

    Raises:
        UsageError: there is no such order, or it lacks the other file.
    """
    if order not in ORDERS:
        raise UsageError(f"order is {brief(order)}; it must be one of {', '.join(ORDERS)}")
    if (order == "disagreement") is (other is None):
        raise UsageError("the order 'disagreement' takes a second file, and no other order does")
    if other is None:
        numbers = [n for (n,) in source.index.query(_SQL[order])]
    else:
        differing = disagreements(source, other, None, most=_MOST_DIFFERING)["rows"]
        numbers = [
            n for _, n, outcome, *_ in differing if outcome in ("correct", "wrong", "unparsed")
        ]
    waiting = [n for n in numbers if n not in skipped]
    for chunk in _chunks(waiting):
        rows = source.index.rows(chunk)
        for n in chunk:
            row = rows.get(n)
            if isinstance(row, Mapping) and labels.of(row) is None:
                return n
    return None


def _chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[at : at + _CHUNK] for at in range(0, len(numbers), _CHUNK))


def _key(row: Mapping[str, object]) -> bytes:
    """What makes it the same verdict in any file: task, prompt, reference and completion."""
    names = ("env", "task", "prompt", "messages", "reference", "completion")
    values = [row.get(name) for name in names]
    return digest_of([json.dumps(values, sort_keys=True, default=str)])
