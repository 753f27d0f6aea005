"""What a stopped run has finished, in blocks of rows, so that a resumed one passes over most
rows without parsing them.

    lines of the input ─▶ a hundred of them: digest, ids ┐
    their records      ─▶ digest, counts of their scores ┴─▶ one line of OUT.partial.blocks

A block whose lines are in the input and in the output as they were is passed over as a whole.  All
other rows are read one by one and compared with their records, so the file saves time and decides
nothing: without it, or where it is damaged, a run is resumed to the same bytes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from rlvr.data.lines import CHECKSUM, checked_lines, stamped
from rlvr.data.rows import dump_row
from rlvr.scoring.tally import Tally

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Block", "Blocks", "digest_of_lines"]

# of the input, in a block: a row that cannot be passed over costs the reading of so many
_LINES: Final = 100
# 128 bits: two of 2^32 blocks are equal by chance once in 2^65.
_DIGEST_BYTES: Final = 16


@dataclass(slots=True, eq=False)
class Block:
    """Rows of the input that stand together, and their records.

    Attributes:
        file: place of their file among those of the run, from 0.
        lines: how many lines of that file.
        read: how many rows these are; one line may hold several completions.
        ids: numbers of the ids of the rows that were given to be scored, see `Ids`.
        whole: whether every row was recorded and brings its task with it.  If not, its rows are
            read again.
        records: number of records.
        size: of the records, in bytes.
        tally: counts of their scores.
        input, output: digests of the lines.
    """

    file: int
    lines: int = 0
    read: int = 0
    ids: array[int] = field(default_factory=lambda: array("Q"))
    whole: bool = True
    records: int = 0
    size: int = 0
    tally: Tally = field(default_factory=Tally)
    input: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES))
    output: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES))

    def wrote(self, line: bytes) -> None:
        """Count a record.

        Args:
            line: as it stands in the output.
        """
        self.records += 1
        self.size += len(line)
        self.output.update(line)

    def as_row(self) -> dict[str, object]:
        """The block as JSON."""
        return {
            "file": self.file,
            "lines": self.lines,
            "read": self.read,
            "ids": base64.b64encode(self.ids.tobytes()).decode(),
            "whole": self.whole,
            "records": self.records,
            "size": self.size,
            "tally": self.tally.as_row(),
            "input": self.input.hexdigest(),
            "output": self.output.hexdigest(),
        }

    @classmethod
    def from_row(cls, row: Row) -> Block:
        """The block that `as_row` wrote; its digests are texts.

        Args:
            row: its JSON.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        ids = array("Q")
        ids.frombytes(base64.b64decode(row["ids"], validate=True))
        return cls(**{**row, "ids": ids, "tally": Tally.from_row(row["tally"])})


def digest_of_lines(lines: bytes) -> str:
    """The digest of lines as blocks have it.

    Args:
        lines: one after the other.
    """
    return hashlib.blake2b(lines, digest_size=_DIGEST_BYTES).hexdigest()


class Blocks:
    """The blocks of one run.  They are gone with its partial file.

    Attributes:
        open: the block that takes the rows of the line that was read last; None where they are in
            no block.

    Args:
        partial: the partial file of the output.
        run: what must be the same for the blocks of a stopped run to be used.
        resume: whether there may be a stopped run.
        fits: says of a block whether its records come next in the output.
        pass_over: called with a block whose lines are in the input and in the output; counts its
            rows as done.
    """

    def __init__(
        self,
        partial: Path,
        run: Mapping[str, object],
        *,
        resume: bool,
        fits: Callable[[Block], bool],
        pass_over: Callable[[Block], None],
    ) -> None:
        self.open: Block | None = None
        self._partial, self._fits, self._pass_over = partial, fits, pass_over
        self._path = Path(f"{partial}.blocks")
        self._header = stamped(dump_row({"run": digest_of_lines(dump_row(run))}))
        self._waiting: deque[Block] = deque()  # their records are not all written
        self._kept: Iterator[tuple[Block, int]] = (
            _read_blocks(self._path, self._header) if resume else iter(())
        )
        self._next = next(self._kept, None)
        self._used = len(self._header)  # bytes of the file that go on to hold
        self._file: IO[bytes] | None = None
        self._ended = False

    def lines(self, lines: Iterable[bytes], file: int) -> Iterator[bytes]:
        """The lines of a file; those of blocks that are passed over come as empty ones, so that the
        others keep their numbers.

        Args:
            lines: of JSON, one row each.
            file: place of the file among those of the run, from 0.
        """
        # by the first line of a file one knows whether the others have checksums
        lines, is_first = iter(lines), True
        while self._next is not None and self._next[0].file == file:
            block, end = self._next
            block_lines = list(itertools.islice(lines, block.lines))
            # Changed on either side: from here on row by row.
            if digest_of_lines(b"".join(block_lines)) != block.input or not self._fits(block):
                lines = itertools.chain(block_lines, lines)
                break
            if block.whole and not is_first:
                self._pass_over(block)
                yield from itertools.repeat(b"\n", len(block_lines))
            else:
                yield from block_lines
            self._used, is_first = end, False
            self._next = next(self._kept, None)
        for line in lines:
            self._next = None  # what follows in the file is of a run that went on in another way
            if self.open is None:
                self.open = Block(file)
                self._waiting.append(self.open)
            self.open.lines += 1
            self.open.input.update(line)
            yield line
            if is_first or self.open.lines >= _LINES:
                self.open, is_first = None, False
        self.open = None

    def wrote(self, block: Block | None, line: bytes) -> None:
        """Count a record; they come in the order of the rows.

        Args:
            block: in which its row is; None for none.
            line: as it stands in the output.
        """
        if block is None:
            return
        while self._waiting[0] is not block:  # no record of it can follow
            self._keep(self._waiting.popleft())
        block.wrote(line)

    def _keep(self, block: Block) -> None:
        if self._ended:
            return
        try:
            if self._file is None:
                self._file = self._path.open("r+b" if self._path.exists() else "w+b")
                # From the last block that was used on the file is written anew.
                self._file.truncate(self._used if self._used > len(self._header) else 0)
                if not self._file.seek(0, 2):
                    self._file.write(self._header)
            self._file.write(stamped(dump_row(block.as_row())))
            self._file.flush()
        except OSError:  # a full disk: the output will say so; this file only saves time
            self._ended = True

    def remove(self) -> None:
        """Remove the file: the output is whole."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        """Close the file, and remove it where nothing was written that could be resumed."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
            if not self._partial.exists() or not self._partial.stat().st_size:
                self._path.unlink(missing_ok=True)


def _read_blocks(path: Path, header: bytes) -> Iterator[tuple[Block, int]]:
    """The blocks in a file with this header, each with the place of its end, up to the first that
    is damaged."""
    # another version's
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError), path.open("rb") as file:
        if file.readline() != header:
            return
        end = len(header)
        for _, raw, damage, checked in checked_lines(file):
            end += len(raw)
            if damage or not checked or not raw.endswith(b"\n"):
                return
            row = json.loads(raw)
            del row[CHECKSUM]
            yield Block.from_row(row), end
