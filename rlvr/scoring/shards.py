"""Shares of one input, scored by runs that know nothing of each other, and put together again.

A row's place is its number in the input, from 1.  Shard i of n has the places i, n + i, 2n + i …;
where the reward compares the completions of a task it has whole groups.  A shard's record begins
with the place, and beside the shard stands what it needs to be joined: how many rows the input had,
and what scored them.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from rlvr.data.files import read_bounded, write_whole
from rlvr.data.lines import checked_lines, without_checksum
from rlvr.errors import DataError, UsageError
from rlvr.scoring.identity import Identity, shard_path
from rlvr.types import Task

__all__ = [
    "JoinedRow",
    "Shard",
    "ShardTotals",
    "joined_rows",
    "read_totals",
    "rejected_path",
    "totals_of",
]

_SHOWN = 20  # missing shards that an error names
_PLACE = re.compile(rb'\{"place": ([1-9][0-9]*), ')


def rejected_path(output: Path) -> Path:
    """The file beside an output with the rows that could not be used.

    Args:
        output: the file with the scores.
    """
    return Path(f"{output}.rejected.jsonl")


class Shard:
    """Says of each row of an input, in their order, whether it is this shard's.

    Args:
        number: of the shard, from 1.
        count: number of shards.
        by_group: whether completions of one task that stand in consecutive rows stay together.
    """

    def __init__(self, number: int, count: int, *, by_group: bool = False) -> None:
        self.number, self.count, self.by_group = number, count, by_group
        self._task: tuple[object, ...] | None = None  # of the group that is being read
        self._groups, self._owner = 0, 0
        self._last: list[tuple[object, ...] | None] = [
            None
        ] * count  # the task of each shard's last group

    @classmethod
    def read(cls, text: str, *, by_group: bool) -> Shard:
        """The shard that was asked for.

        Args:
            text: "3/16" is the third of sixteen.
            by_group: see above.

        Raises:
            UsageError: it is not of that form, or the number is not from 1 to n.
        """
        # At most nine digits: no number that would take memory.
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if match is None or int(match[2]) < 1:
            raise UsageError(
                f"--shard {text}: write i/n, such as --shard 3/16 for the third of sixteen shards"
            )
        number, count = int(match[1]), int(match[2])
        if not 1 <= number <= count:
            hint = (
                f"; shards count from 1, so an array from 0 passes its number plus 1, here "
                f"1/{count}" * (not number)
            )
            raise UsageError(f"--shard {text}: there is no shard {number} of {count}{hint}")
        return cls(number, count, by_group=by_group)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def has(self, place: int) -> bool:
        """Whether the row at a place is ours, of rows that are dealt one by one.

        Args:
            place: from 1.
        """
        # Round robin, so that shards of a sorted file are alike.
        return (place - 1) % self.count == self.number - 1

    def has_task(self, task: Task) -> bool:
        """Whether the next completion is ours, where they are dealt by groups.  To be asked of
        every usable row.

        Two groups of one task that do not touch in the input must not touch in a shard either, or
        they would be scored as one.  Such a group goes to the next shard whose last group is of
        another task; there is always one.

        Args:
            task: what it answers.
        """
        key = (task.id, json.dumps(task.prompt, default=str))
        # A group is a run of rows of one task.
        if key != self._task:
            self._task, self._owner = key, self._groups % self.count
            while self._last[self._owner] == key:
                self._owner = (self._owner + 1) % self.count
            self._last[self._owner] = key
            self._groups += 1
        return self._owner == self.number - 1


@dataclass(frozen=True, slots=True)
class ShardTotals:
    """What a shard says of itself, in a small file beside its records.

    Attributes:
        shard: its number, from 1.
        of: number of shards.
        rows: rows of the whole input.
        scored, left_out: rows of this shard, which are together all of it.
        identity: how they were scored, with the digests of the input, as JSON.
    """

    shard: int
    of: int
    rows: int
    scored: int
    left_out: int
    identity: dict[str, object]

    def require_whole_numbers(self) -> None:
        """Refuse what a file says that no shard has.

        Raises:
            ValueError: a number is none, or there is no such shard.
        """
        numbers = (self.shard, self.of, self.rows, self.scored, self.left_out)
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError("shard, of, rows, scored and left_out are whole numbers")
        if not 1 <= self.shard <= self.of:
            raise ValueError(f"there is no shard {self.shard} of {self.of}")

    def write(self, output: Path) -> None:
        """Write them beside a shard.

        Args:
            output: the shard's records.
        """
        write_whole(shard_path(output), json.dumps(asdict(self), indent=2).encode() + b"\n")


def read_totals(
    files: Sequence[Path], accept: Collection[str] = ()
) -> tuple[list[ShardTotals], Identity]:
    """The totals of shards that are one whole, in the order of the files, and their common
    identity.

    Args:
        files: the records of each shard.
        accept: parts in which their identities may differ, see `require_same`.

    Raises:
        UsageError: one is missing, double, unfinished, no shard, or of another run or input.
    """
    all_totals = [totals_of(file) for file in files]
    first, places = all_totals[0], dict[int, Path]()
    identity = Identity.from_dict(first.identity)
    for file, shard in zip(files, all_totals, strict=True):
        if shard.of != first.of:
            raise UsageError(
                f"{file} is one of {shard.of} shards, and {files[0]} one of {first.of}; join those "
                f"of one run"
            )
        if shard.shard in places:
            raise UsageError(
                f"{file} and {places[shard.shard]} are both shard {shard.shard} of {shard.of}; "
                f"give one of them"
            )
        places[shard.shard] = file
        if shard.rows != first.rows:
            raise UsageError(
                f"{file} is of an input of {shard.rows} rows, {files[0]} of one of {first.rows}; "
                "score all shards of one input"
            )
        shard_identity = Identity.from_dict(shard.identity)
        identity.add(shard_identity, str(file), accept, here=str(files[0]))
    if count := first.of - len(places):
        missing = [*islice((n for n in range(1, first.of + 1) if n not in places), _SHOWN)]
        missing_text = ", ".join(map(str, missing)) + " …" * (count > _SHOWN)
        raise UsageError(
            f"of {first.of} shards {count} are missing: {missing_text}; run `rlvr score … "
            f"--shard "
            f"{missing[0]}/{first.of}`, with --resume if it was stopped, and name its output here"
        )
    return all_totals, identity


def totals_of(file: Path) -> ShardTotals:
    if not file.is_file():
        partial = Path(f"{file}.partial")
        stopped = (
            f"; its run was stopped, as {partial} says: run it again with --resume"
            * partial.exists()
        )
        raise UsageError(
            f"{file}: there is no such file{stopped or '; name the outputs of rlvr score --shard'}"
        )
    path = shard_path(file)
    try:
        totals = ShardTotals(**json.loads(read_bounded(path)))
        totals.require_whole_numbers()
        return totals
    except FileNotFoundError:
        raise UsageError(
            f"{file} is no shard: there is no {path.name} beside it, which `rlvr score --shard "
            f"i/n` writes"
        ) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{path} is not what `rlvr score --shard` writes: {error}; score the shard again"
        ) from None


@dataclass(frozen=True, slots=True)
class JoinedRow:
    """A row of the input, as a shard left it.

    Attributes:
        place: in the input, from 1.
        file: of the shard.
        line: its record as one run would have written it, without checksum; or the entry of a row
            that was left out.
        is_record: which of the two.
    """

    place: int
    file: Path
    line: bytes
    is_record: bool


def joined_rows(files: Sequence[Path], totals: Sequence[ShardTotals]) -> Iterator[JoinedRow]:
    """The rows of all shards in the order of the input, read line by line.

    Args:
        files: the records of each shard.
        totals: of each, see `read_totals`.

    Raises:
        UsageError: the rows that a shard left out are missing.
        DataError: a line is damaged, or a row is missing or there twice.
    """
    streams = [_records(file, shard) for file, shard in zip(files, totals, strict=True)]
    streams += [iter(_left_out(file, shard)) for file, shard in zip(files, totals, strict=True)]
    before = 0
    # Each stream is sorted by place, so the merge holds one row of each.
    for row in heapq.merge(*streams, key=lambda row: row.place):
        if row.place == before:
            raise DataError(
                f"{row.file}: row {row.place} of the input is there twice; score this shard again"
            )
        if row.place != before + 1:
            raise DataError(f"row {before + 1} of the input is in no shard; score the shards again")
        before = row.place
        yield row
    # The last rows may be missing, which no gap shows.
    if before != totals[0].rows:
        raise DataError(f"the shards end at row {before} of {totals[0].rows}; score them again")


def _records(file: Path, totals: ShardTotals) -> Iterator[JoinedRow]:
    count, before = 0, 0
    with file.open("rb") as lines:
        for number, raw, damage, checked in checked_lines(lines):
            place = _PLACE.match(raw)
            # Places rise within a shard.
            if damage or place is None or not checked or int(place[1]) <= before:
                why = damage or "it is not a line of a shard, in its place"
                raise DataError(f"{file}, line {number}: {why}; score this shard again")
            count, before = count + 1, int(place[1])
            yield JoinedRow(before, file, b"{" + without_checksum(raw)[place.end() :], True)
    if count != totals.scored:
        raise DataError(
            f"{file} has {count} records, and its run wrote {totals.scored}; score this shard again"
        )


def _left_out(file: Path, totals: ShardTotals) -> list[JoinedRow]:
    rows = []
    if totals.left_out:
        path = rejected_path(file)
        try:
            entries = path.read_bytes().splitlines()
        except FileNotFoundError:
            raise UsageError(
                f"{path} is missing: shard {totals.shard} left {totals.left_out} rows out"
            ) from None
        for number, line in enumerate(entries, 1):
            if (place := _PLACE.match(line)) is None:
                raise DataError(
                    f"{path}, line {number}: it is not of a shard; score this shard again"
                )
            rows.append(JoinedRow(int(place[1]), file, b"{" + line[place.end() :], False))
    if len(rows) != totals.left_out:
        raise DataError(
            f"{file}: {len(rows)} of {totals.left_out} rows that were left out are known; score it "
            f"again"
        )
    return sorted(rows, key=lambda row: row.place)
