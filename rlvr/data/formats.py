"""Rows from files of any common format, one at a time: by the name's ending, or by the
content where that says more.

    JSON lines, JSON arrays (.jsonl .ndjson .json) · .csv .tsv · .parquet · .arrow .feather · logs
    of inspect (.eval) the first two also as .gz or .zst · folders of `datasets` ·
    "owner/name:split" on the hub · "-" for stdin

A row that cannot be read is a `Line` with its error; a file of which nothing can be read is a
`DataError`.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import glob
import gzip
import io
import itertools
import json
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, TypeAlias, cast

from rlvr.data.files import open_input
from rlvr.data.hub import at_once
from rlvr.data.limits import ROW_LIMITS, JsonSkim, RowLimits, batch_rows, is_too_large
from rlvr.data.lines import Line, LongLine, Row, json_lines, parquet
from rlvr.data.tables import table_rows
from rlvr.errors import DataError

__all__ = [
    "ENDINGS",
    "STDIN",
    "Through",
    "count_rows",
    "ending_of",
    "hub_rows",
    "read_rows",
    "require_rows",
    "sources",
]

STDIN: Final = "-"
_JSON, _TABLES, _ARROW = (
    (".jsonl", ".ndjson", ".json"),
    {".csv": ",", ".tsv": "\t"},
    (".arrow", ".feather"),
)
_PACKED = (".gz", ".zst")
ENDINGS: Final = (*_JSON, *_TABLES, ".parquet", *_ARROW, ".eval")
"""Endings of files that hold rows; .gz or .zst may follow those of texts."""

Through: TypeAlias = Callable[[Iterable[bytes]], Iterable[bytes]]
"""Is given the lines of a file and returns those to be read."""

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+(?::[\w\[\]:%.-]+)?")
_BLOCK = 1 << 20  # of a long line, or of an array, that is read at a time
_SHOWN = 200  # characters of a row that is too large
_ANEW = "it is damaged or cut short: write or copy it anew"
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x1f\x8b", ".gz"),
    (b"\x28\xb5\x2f\xfd", ".zst"),
    (b"PAR1", ".parquet"),
    (b"ARROW1", ".arrow"),
    (b"PK\x03\x04", ".eval"),
)


def sources(given: str) -> list[str]:
    """The files, or the one other source, that an argument names, each as `read_rows` takes it.

    Args:
        given: a path, a pattern such as `runs/*.jsonl`, a folder, a hub id, or "-".

    Raises:
        DataError: there is no such file, folder or pattern, and it is no hub id.
    """
    # An existing path wins over a hub's id of the same form.
    path = Path(given)
    if given == STDIN or _is_saved_dataset(path) or (path.exists() and not path.is_dir()):
        return [given]
    if path.is_dir():
        paths = sorted(
            str(file) for file in path.rglob("*") if ending_of(file) in ENDINGS and file.is_file()
        )
        if not paths:
            raise DataError(f"{given}: the folder holds no file that ends in {' '.join(ENDINGS)}")
        return paths
    if _is_hub_id(given):
        return [given]
    if glob.has_magic(given):
        matches = glob.glob(given, recursive=True)  # noqa: PTH207
        paths = sorted(file for file in matches if Path(file).is_file())
        if not paths:
            raise DataError(f"{given}: no file fits this pattern")
        return paths
    raise DataError(f"{given}: no such file")


def read_rows(
    source: str | Path, through: Through | None = None, limits: RowLimits = ROW_LIMITS
) -> Iterator[Line]:
    """The rows of a file, of a folder that `datasets` saved, or of a data set on the hub.

    Args:
        source: one of what `sources` gives.
        through: is given the lines of a file of JSON lines and returns those to be read, an empty
            one for each that is not; of other files it is not called.
        limits: of a row; one that has more is a `Line` with an error.  Saved data sets and those of
            the hub have none.

    Raises:
        DataError: there is no such file, or it is in no format that holds rows.
    """
    path = Path(source)
    if str(source) == STDIN:
        return _by_content(lambda: sys.stdin.buffer, "stdin", through, limits, is_pipe=True)
    if _is_saved_dataset(path):
        return _number_rows(_saved_dataset(path))
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a .jsonl or .parquet file")
    if not path.exists():
        if not _is_hub_id(str(source)):
            raise DataError(f"{path}: no such file")
        name, _, split = str(source).partition(":")
        try:
            return _number_rows(hub_rows(name, split or "train"))
        except DataError as error:
            raise DataError(
                f"{path}: no such file, and no data set that can be had: {error}"
            ) from error
    return _by_ending(path, through, limits)


def require_rows(source: str | Path) -> None:
    """Refuse what holds no rows, before an output is begun or a worker started.

    A pipe is not looked into: what is taken from it once does not come again.

    Args:
        source: as for `read_rows`.

    Raises:
        DataError: see there.
    """
    if str(source) != STDIN and not Path(source).is_fifo():
        read_rows(source)


def count_rows(source: str | Path) -> int:
    """About as many rows as `read_rows` will give, for a progress bar; 0 where that cannot be told
    beforehand.

    Args:
        source: as for `read_rows`.
    """
    path = Path(source)
    if not path.is_file():
        return 0
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return int(pq.read_metadata(path).num_rows)
        except (pa.ArrowException, OSError):
            return 0
    if ending_of(path) not in (".jsonl", ".ndjson", *_TABLES):
        return 0
    with contextlib.suppress(*_DAMAGED, OSError), _opened(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return 0


def ending_of(path: Path) -> str:
    """The ending that names the format: `.jsonl` of `rows.jsonl.gz`.

    Args:
        path: the file.
    """
    name = path.name.lower()
    return Path(name).with_suffix("").suffix if Path(name).suffix in _PACKED else Path(name).suffix


def hub_rows(
    source: str, split: str, *, name: str | None = None, revision: str | None = None
) -> Iterable[Row]:
    """The rows of a data set on the hub, or of one that `datasets` has kept.

    Args:
        source: its id, such as "openai/gsm8k".
        split: "train", "test" …, or a part of it as `datasets` writes it.
        name: its configuration.
        revision: its commit; None for the newest.

    Raises:
        DataError: there is none, or it cannot be reached.
    """
    try:
        import datasets

        with at_once():
            rows: Iterable[Row] = datasets.load_dataset(
                source, name, split=split, revision=revision
            )
    except Exception as error:  # hub, network and data set errors share no root
        raise DataError(
            f"data set {source!r}, split {split!r}: {type(error).__name__}: {str(error)[:200]}; "
            "a local .jsonl or .parquet file with the same columns works too: data=PATH"
        ) from error
    return rows


def _is_hub_id(given: str) -> bool:
    return (
        bool(_HUB_ID.fullmatch(given)) and ending_of(Path(given.partition(":")[0])) not in ENDINGS
    )


def _by_ending(path: Path, through: Through | None, limits: RowLimits) -> Iterator[Line]:
    ending, is_packed = ending_of(path), path.suffix.lower() in _PACKED
    if ending in _TABLES:
        return _table(partial(_opened, path), str(path), _TABLES[ending], limits)
    if ending in _JSON:
        return _json(partial(_opened, path), str(path), through, limits)
    if is_packed or ending not in ENDINGS:
        is_pipe = not path.is_file()
        return _by_content(lambda: open_input(path), str(path), through, limits, is_pipe=is_pipe)
    return _binary(path, ending, limits)


def _binary(path: Path, ending: str, limits: RowLimits) -> Iterator[Line]:
    if not path.is_file():
        raise DataError(f"{path}: {ending[1:]} is read at several places; give an ordinary file")
    readers = {".parquet": parquet, ".eval": _inspect_archive}
    return readers.get(ending, _arrow)(path, limits)


def _by_content(
    opened: Callable[[], IO[bytes]],
    name: str,
    through: Through | None,
    limits: RowLimits,
    *,
    is_pipe: bool,
    is_unpacked: bool = False,
) -> Iterator[Line]:
    """A file whose name does not say what it is, or a pipe, which can be opened only once."""
    with _naming(name):
        file = opened()
        # a pipe may have few bytes yet, but has some or ends
        # peek leaves the bytes in the buffer, so a pipe can be read from its start.
        head = cast("io.BufferedReader", file).peek(4096)[:4096]
    if not is_pipe:
        file.close()
    again = (lambda: file) if is_pipe else opened
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if kind in _PACKED:
        # What unpacks to itself would be unpacked without end.
        if is_unpacked:
            raise DataError(f"{name}: packed more than once; unpack it, and give what comes out")
        unpacked = _unpack_file(file, kind) if is_pipe else None
        return _by_content(
            lambda: unpacked or _unpack_file(Path(name), kind),
            name,
            through,
            limits,
            is_pipe=is_pipe,
            is_unpacked=True,
        )
    if kind:
        path = Path(name)
        if is_pipe or is_unpacked:
            raise DataError(
                f"{name}: {kind[1:]} cannot be read from a pipe or packed; give it as a file of "
                f"its own"
            )
        return _binary(path, kind, limits)
    # A byte-order mark is no part of the text.
    if not head or head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
        return _json(again, name, through, limits)
    first = head.split(b"\n", 1)[0]
    # A file with a zero byte is no text.
    if b"\0" not in head and (b"," in first or b"\t" in first):
        delimiter = "\t" if first.count(b"\t") > first.count(b",") else ","
        return _table(again, name, delimiter, limits)
    raise DataError(
        f"{name}: neither its name nor its content says what it is; rows are read from files that "
        f"end in "
        f"{' '.join(ENDINGS)}, those of text also with .gz or .zst"
    )


def _opened(path: Path) -> IO[bytes]:
    packing = path.suffix.lower()
    return _unpack_file(path, packing) if packing in _PACKED else open_input(path)


def _unpack_file(file: Path | IO[bytes], packing: str) -> IO[bytes]:
    packed = open_input(file) if isinstance(file, Path) else file
    if packing == ".gz":
        unpacked: Any = gzip.GzipFile(fileobj=packed)
        if packed is not file:
            unpacked.myfileobj = packed  # which it closes with itself
        return cast("IO[bytes]", unpacked)
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(packed, "zstd"))


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the file in what its packing raises."""
    try:
        yield
    except _DAMAGED as error:
        raise DataError(f"{name}: cannot be read as gzip: {error}; {_ANEW}") from error
    except OSError as error:
        why = error.strerror or f"{error}; {_ANEW}"
        raise DataError(f"{name}: cannot be read: {why}") from error


def _parts(opened: Callable[[], IO[bytes]], name: str) -> Generator[bytes, None, None]:
    """The lines of a file, of which a long one comes in parts."""
    with _naming(name), opened() as file:
        yield from iter(lambda: file.readline(_BLOCK), b"")


def _is_begun(part: bytes) -> bool:
    """Whether another part of the same line follows."""
    return len(part) >= _BLOCK and not part.endswith(b"\n")


def _whole_lines(parts: Iterable[bytes], limits: RowLimits) -> Iterator[bytes]:
    """Lines; of one that has too much in it, the beginning and the size."""
    line, size = list[bytes](), 0
    for part in parts:
        size += len(part)
        if size <= limits.size_bytes or not line:
            line.append(part)
        else:
            del line[1:]  # its beginning is enough
        if not _is_begun(part):
            yield _whole_line(line, size, limits)
            line, size = [], 0
    if line:
        yield _whole_line(line, size, limits)


def _whole_line(parts: list[bytes], size: int, limits: RowLimits) -> bytes:
    line = parts[0] if len(parts) == 1 else b"".join(parts)
    is_large = size > limits.size_bytes or is_too_large(line, limits)
    return LongLine.of(line, size, limits) if is_large else line


def _number_rows(rows: Iterable[object]) -> Iterator[Line]:
    for number, row in enumerate(rows, 1):
        if isinstance(row, Mapping):
            yield Line(number, dict(row))
        else:
            yield Line(
                number, None, f"a {type(row).__name__}, not an object", json.dumps(row, default=str)
            )


# --------------------------------------------------------------------------------------------- JSON


_MOST_BLANK_BYTES = 1 << 16
"""Before the first row; behind more of them only lines are read, since they are held until it is
known what comes."""

_ROWS_OF_ARRAY = re.compile(rb"\s*\[\s*(\{|$)")


def _json(
    opened: Callable[[], IO[bytes]], name: str, through: Through | None, limits: RowLimits
) -> Iterator[Line]:
    """JSON lines, an array, or one object over several lines, such as a log of inspect."""
    with contextlib.closing(_parts(opened, name)) as parts:
        head: list[bytes] = []
        size = 0
        for part in parts:
            # A byte-order mark can only be at the very beginning.
            head.append(part.removeprefix(codecs.BOM_UTF8) if not head else part)
            size += len(part)
            if part.strip() or size > _MOST_BLANK_BYTES:
                break
        first = head[-1].lstrip() if head else b""
        is_whole = not (_is_begun(first) or is_too_large(first, limits))
        # A list of numbers on one line is a bad row and no array of rows.
        if first.startswith(b"[") and not (is_whole and _is_list_without_rows(first)):
            yield from _array(itertools.chain(head, parts), limits)
            return
        if first.startswith(b"{") and is_whole and not _is_json(first):
            # It goes on in the next lines, or the first row is damaged.
            held, is_all = _held(parts, limits)
            content = b"".join([*head, *held])
            if is_all and not is_too_large(content, limits) and _is_json(content):
                yield Line(1, json.loads(content))
                return
            # They are lines of their own: all that was read goes on as such.
            head += held
        lines = _whole_lines(itertools.chain(head, parts), limits)
        yield from json_lines(lines if through is None else through(lines), name)


def _held(parts: Iterator[bytes], limits: RowLimits) -> tuple[list[bytes], bool]:
    """The next parts that may be of the same object, and whether they are all there are."""
    held, size = list[bytes](), 0
    for part in parts:
        held.append(part)
        size += len(part)
        # Another line that begins an object: these are JSON lines.
        if size > limits.size_bytes or (len(held) == 1 and part.lstrip().startswith(b"{")):
            return held, False
    return held, True


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_list_without_rows(line: bytes) -> bool:
    """A line `[1, 2]` is a bad row of JSON lines; a list that begins here, or holds objects, is all
    there is."""
    if _ROWS_OF_ARRAY.match(line):
        return False
    try:
        return not any(isinstance(item, dict) for item in json.loads(line))
    except (ValueError, RecursionError):
        return False


def _array(blocks: Iterable[bytes], limits: RowLimits) -> Iterator[Line]:
    """The objects of one array, each read as soon as it is there."""
    text = _Text(blocks)
    text.skip(" \t\r\n")
    text.at += 1  # behind the bracket
    for number in itertools.count(1):
        # The comma after a value is passed over with the white space.
        text.skip(" \t\r\n,")
        if text.held.startswith("]", text.at):
            return
        value, fault = text.value(limits)
        if fault:
            yield Line(number, None, fault, value[:2000])
            if fault is _NO_END:
                return
            continue
        yield replace(_one_row(value), number=number)


def _one_row(text: str | bytes) -> Line:
    try:
        return next(_number_rows([json.loads(text)]))
    except (ValueError, RecursionError) as error:
        shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
        return Line(1, None, f"not JSON: {error}", shown[:2000])


_NO_END = "not JSON: it has no end; no row behind it can be read"


class _Text:
    """A text that comes in blocks.

    Attributes:
        held: a part of it.
        at: the place up to which that was used.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks, self._decoder = iter(blocks), codecs.getincrementaldecoder("utf-8")("replace")
        self.held, self.at, self._has_ended = "", 0, False

    def _more(self) -> None:
        parts, size = [self.held], 0
        while size < _BLOCK and not self._has_ended:
            block = next(self._blocks, None)
            self._has_ended = block is None
            parts.append(self._decoder.decode(block or b"", final=self._has_ended))
            size += len(parts[-1])
        self.held = "".join(parts)

    def skip(self, signs: str) -> None:
        """Go to the next place that holds another sign."""
        while True:
            while self.at < len(self.held) and self.held[self.at] in signs:
                self.at += 1
            if self.at < len(self.held) or self._has_ended:
                return
            self.held, self.at = "", 0
            self._more()

    def value(self, limits: RowLimits) -> tuple[str, str]:
        """The text of the next value, and ""; or its beginning, and what is wrong with it."""
        self.held, self.at = self.held[self.at :], 0
        skim, place, beginning = JsonSkim(), 0, ""
        while (end := skim.end(self.held, place)) is None:
            if self._has_ended:
                return beginning or self.held, _NO_END
            # Too large already: only where it ends is looked for.
            if beginning or _is_large(skim, len(self.held), limits):
                beginning, self.held = beginning or self.held[:_SHOWN], ""
            place = len(self.held)
            self._more()
        # At least one character further, or a text that is no JSON would be read for ever.
        self.at = max(end, 1)  # a sign out of place is passed over
        if beginning or _is_large(skim, end, limits):
            return beginning or self.held[:_SHOWN], limits.why
        return self.held[:end], ""


def _is_large(skim: JsonSkim, size: int, limits: RowLimits) -> bool:
    return size > limits.size_bytes or skim.values > limits.values or skim.depth > limits.depth


# ------------------------------------------------------------------------------------------- tables


_NUMBERS = frozenset(("task", "length_tokens"))
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_OURS = frozenset(("id", "task", "reference", "prompt", "meta", "length_tokens", "truncated"))


def _table(
    opened: Callable[[], IO[bytes]], name: str, delimiter: str, limits: RowLimits
) -> Iterator[Line]:
    """CSV or TSV with a header; every cell is a text, but for our own columns that are none."""
    with _naming(name), opened() as file:
        number = 0
        try:
            rows = table_rows(cast("io.BufferedIOBase", file), delimiter, limits)
            columns = next(rows, [])
            if columns is None or len(columns) > limits.values:
                raise DataError(f"{name}: its header is too much: {limits.why}")
            if len(set(columns)) < len(columns) or not all(columns):
                raise DataError(
                    f"{name}: its header is {columns!r:.300}; every column needs a name of its own"
                )
            for number, cells in enumerate(rows, 1):
                if cells is None:
                    yield Line(number, None, limits.why)
                elif cells and len(cells) != len(columns):
                    why = f"{len(cells)} cells, where the header has {len(columns)}"
                    yield Line(number, None, why, delimiter.join(cells))
                elif cells:
                    yield Line(number, dict(_cells(zip(columns, cells, strict=True))))
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(
                f"{name}: cannot be read behind row {number}: {error}; it must be UTF-8 and quoted"
            ) from error


def _cells(row: Iterable[tuple[str, str]]) -> Iterator[tuple[str, object]]:
    for column, cell in row:
        if column not in _OURS:
            yield column, cell
        elif column == "truncated" and cell.lower() in _TRUTHS:
            yield column, _TRUTHS[cell.lower()]
        elif cell:  # an empty one says nothing
            yield (
                column,
                int(cell) if column in _NUMBERS and cell.isascii() and cell.isdigit() else cell,
            )


# ------------------------------------------------------------------------------- Arrow and archives


def _arrow(path: Path, limits: RowLimits) -> Iterator[Line]:
    """A file or a stream of Arrow, as `datasets` and pandas write them."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as file:
            try:
                reader = pa.ipc.open_file(file)
                batches: Iterable[object] = map(reader.get_batch, range(reader.num_record_batches))
            # A stream has no table of its batches.
            except pa.ArrowInvalid:
                batches = pa.ipc.open_stream(file)
            rows = (row for batch in batches for row in batch_rows(batch, limits))
            for number, row in enumerate(rows, 1):
                yield Line(number, row, "" if row is not None else limits.why)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Arrow: {error}; {_ANEW}") from error


def _is_saved_dataset(path: Path) -> bool:
    return path.is_dir() and any(
        (path / name).is_file() for name in ("state.json", "dataset_dict.json")
    )


def _saved_dataset(path: Path) -> Iterable[object]:
    import datasets

    try:
        dataset = datasets.load_from_disk(str(path))
    except Exception as error:  # its errors share no root
        raise DataError(f"{path}: cannot be read as a folder of datasets: {error}") from error
    if not isinstance(dataset, datasets.DatasetDict):
        return cast("Iterable[Any]", dataset)
    if len(dataset) != 1:
        raise DataError(
            f"{path} has the splits {', '.join(dataset)}; give one of them: "
            f"{path / next(iter(dataset), 'train')}"
        )
    return cast("Iterable[Any]", next(iter(dataset.values())))


def _inspect_archive(path: Path, limits: RowLimits) -> Iterator[Line]:
    """The samples of a log of inspect_ai (https://inspect.aisi.org.uk/eval-logs.html): a
    zip with one JSON for each."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [
                name
                for name in archive.namelist()
                if name.startswith("samples/") and name.endswith(".json")
            ]
            for number, name in enumerate(names, 1):
                try:
                    # The size that the archive says need not be true.
                    with archive.open(name) as file:
                        sample = file.read(limits.size_bytes + 1)
                # A RuntimeError: encrypted, or packed by another method.
                except (zipfile.BadZipFile, RuntimeError, *_DAMAGED) as error:
                    yield Line(number, None, f"cannot be unpacked: {error}")
                    continue
                if is_too_large(sample, limits):
                    yield Line(number, None, limits.why)
                    continue
                yield replace(_one_row(sample), number=number)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{path}: cannot be read as a log of inspect: {error}; `inspect log convert --to json`"
        ) from error
    if not names:
        raise DataError(f"{path}: no samples in it; is it a log of inspect?")
