"""Rows from files of any common format, one at a time: by the name's ending, or by the content where that says more.

    JSON lines, JSON arrays (.jsonl .ndjson .json) · .csv .tsv · .parquet · .arrow .feather · logs of inspect (.eval)
    the first two also as .gz or .zst · folders of `datasets` · "owner/name:split" on the hub · "-" for stdin

A row that cannot be read is a `Line` with its error; a file of which nothing can be read is a `DataError`.
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
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, TypeAlias, cast

from rlvr.data.hub import at_once
from rlvr.data.lines import MOST_VALUES, ROW_BYTES, Line, LongLine, Row, json_lines, parquet
from rlvr.errors import DataError

__all__ = [
    "ENDINGS",
    "STDIN",
    "Through",
    "count_rows",
    "ending_of",
    "hub_rows",
    "read_rows",
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
_SHOWN_BYTES = 200  # of a row that is too long
_BLOCK = 1 << 20  # characters of an array that are read at a time
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
    path = Path(given)
    if given == STDIN or _is_saved_dataset(path) or (path.exists() and not path.is_dir()):
        return [given]
    if path.is_dir():
        found = sorted(
            str(file) for file in path.rglob("*") if ending_of(file) in ENDINGS and file.is_file()
        )
        if not found:
            raise DataError(f"{given}: the folder holds no file that ends in {' '.join(ENDINGS)}")
        return found
    if _is_hub_id(given):
        return [given]
    if glob.has_magic(given):
        found = sorted(file for file in glob.glob(given, recursive=True) if Path(file).is_file())  # noqa: PTH207
        if not found:
            raise DataError(f"{given}: no file fits this pattern")
        return found
    raise DataError(f"{given}: no such file")


def read_rows(source: str | Path, through: Through | None = None) -> Iterator[Line]:
    """The rows of a file, of a folder that `datasets` saved, or of a data set on the hub.

    Args:
        source: one of what `sources` gives.
        through: is given the lines of a file of JSON lines and returns those to be read, an empty one for each that is
            not; of other files it is not called.

    Raises:
        DataError: there is no such file, or it is in no format that holds rows.
    """
    path = Path(source)
    if str(source) == STDIN:
        return _by_content(lambda: sys.stdin.buffer, "stdin", through, is_pipe=True)
    if _is_saved_dataset(path):
        return _numbered(_saved_dataset(path))
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a .jsonl or .parquet file")
    if not path.exists():
        if not _is_hub_id(str(source)):
            raise DataError(f"{path}: no such file")
        name, _, split = str(source).partition(":")
        try:
            return _numbered(hub_rows(name, split or "train"))
        except DataError as error:
            raise DataError(
                f"{path}: no such file, and no data set that can be had: {error}"
            ) from error
    return _by_ending(path, through)


def count_rows(source: str | Path) -> int:
    """About as many rows as `read_rows` will give, for a progress bar; 0 where that cannot be told beforehand.

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


def hub_rows(source: str, split: str, *, name: str | None = None) -> Iterable[Row]:
    """The rows of a data set on the hub, or of one that `datasets` has kept.

    Args:
        source: its id, such as "openai/gsm8k".
        split: "train", "test" …, or a part of it as `datasets` writes it.
        name: its configuration.

    Raises:
        DataError: there is none, or it cannot be reached.
    """
    try:
        import datasets

        with at_once():
            rows: Iterable[Row] = datasets.load_dataset(source, name, split=split)
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


def _by_ending(path: Path, through: Through | None) -> Iterator[Line]:
    ending, is_packed = ending_of(path), path.suffix.lower() in _PACKED
    if ending in _TABLES:
        return _table(partial(_opened, path), str(path), _TABLES[ending])
    if ending in _JSON:
        return _json(partial(_opened, path), str(path), through)
    if is_packed or ending not in ENDINGS:
        return _by_content(lambda: path.open("rb"), str(path), through, is_pipe=not path.is_file())
    if ending == ".parquet":
        return parquet(path)
    return _numbered(_inspect_archive(path) if ending == ".eval" else _arrow(path))


def _by_content(
    opened: Callable[[], IO[bytes]], name: str, through: Through | None, *, is_pipe: bool
) -> Iterator[Line]:
    """A file whose name does not say what it is, or a pipe, which can be opened only once."""
    with _naming(name):
        file = opened()
        head = cast("io.BufferedReader", file).peek(4096)[
            :4096
        ]  # a pipe may have few bytes yet, but has some or ends
    if not is_pipe:
        file.close()
    again = (lambda: file) if is_pipe else opened
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if kind in _PACKED:
        whole = _unpacked(file, kind) if is_pipe else None
        return _by_content(
            lambda: whole or _unpacked(Path(name), kind), name, through, is_pipe=is_pipe
        )
    if kind:
        path = Path(name)
        if is_pipe or path.suffix in _PACKED:
            raise DataError(
                f"{name}: {kind[1:]} cannot be read from a pipe or packed; give it as a file of its own"
            )
        return (
            parquet(path)
            if kind == ".parquet"
            else _numbered((_arrow if kind == ".arrow" else _inspect_archive)(path))
        )
    if not head or head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
        return _json(again, name, through)
    first = head.split(b"\n", 1)[0]
    if b"\0" not in head and (b"," in first or b"\t" in first):
        return _table(again, name, "\t" if first.count(b"\t") > first.count(b",") else ",")
    raise DataError(
        f"{name}: neither its name nor its content says what it is; rows are read from files that end in "
        f"{' '.join(ENDINGS)}, those of text also with .gz or .zst"
    )


def _opened(path: Path) -> IO[bytes]:
    packing = path.suffix.lower()
    return _unpacked(path, packing) if packing in _PACKED else path.open("rb")


def _unpacked(file: Path | IO[bytes], packing: str) -> IO[bytes]:
    if packing == ".gz":
        return cast("IO[bytes]", gzip.open(file))
    import pyarrow as pa

    return io.BufferedReader(
        pa.CompressedInputStream(str(file) if isinstance(file, Path) else file, "zstd")
    )


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the file in what its packing raises."""
    try:
        yield
    except _DAMAGED as error:
        raise DataError(f"{name}: cannot be read as gzip: {error}") from error
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error}") from error


def _lines(opened: Callable[[], IO[bytes]], name: str) -> Generator[bytes, None, None]:
    """The lines of a file; one that is longer than a row may be comes in parts."""
    with _naming(name), opened() as file:
        yield from iter(lambda: file.readline(ROW_BYTES), b"")


def _is_begun(line: bytes) -> bool:
    """Whether this is a part of a line, and another one follows."""
    return len(line) >= ROW_BYTES and not line.endswith(b"\n")


def _is_wide(line: bytes) -> bool:
    """Whether this JSON may hold more values than a row may; commas in texts are counted, too."""
    return len(line) > MOST_VALUES and line.count(b",") + line.count(b"[") > MOST_VALUES


def _whole_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The same lines; of one that comes in parts or has too many values, the beginning and the size."""
    lines = iter(lines)
    for line in lines:
        begin, size = line[:_SHOWN_BYTES], len(line)
        if not _is_begun(line):
            yield LongLine(b"%b ... %d bytes\n" % (begin, size)) if _is_wide(line) else line
            continue
        del line
        for part in lines:
            size += len(part)
            if not _is_begun(part):
                break
        yield LongLine(b"%b ... %d bytes\n" % (begin, size))


def _numbered(rows: Iterable[Any]) -> Iterator[Line]:
    for number, row in enumerate(rows, 1):
        if isinstance(row, Mapping):
            yield Line(number, dict(row))
        else:
            yield Line(
                number, None, f"a {type(row).__name__}, not an object", json.dumps(row, default=str)
            )


# -------------------------------------------------------------------------------------------------------------- JSON


def _json(opened: Callable[[], IO[bytes]], name: str, through: Through | None) -> Iterator[Line]:
    """JSON lines, an array, or one object over several lines, such as a log of inspect."""
    with contextlib.closing(_lines(opened, name)) as lines:
        head: list[bytes] = []
        for line in lines:
            head.append(line.removeprefix(codecs.BOM_UTF8) if not head else line)
            if line.strip():
                break
        every, first = itertools.chain(head, lines), head[-1].lstrip() if head else b""
        if first.startswith(b"[") and not _is_list_without_rows(first):
            yield from _array(every)
            return
        is_long = bool(head) and (_is_begun(head[-1]) or _is_wide(head[-1]))
        if (
            not is_long and first.startswith(b"{") and not _is_json(first)
        ):  # goes on in the next line, or the first row is damaged
            second = next(lines, b"")
            every = itertools.chain(head, [second], lines)
            if not second.lstrip().startswith(b"{"):
                whole = b"".join(every)
                if _is_json(whole):
                    yield Line(1, json.loads(whole))
                    return
                every = itertools.chain(io.BytesIO(whole))
        whole_lines = _whole_lines(every)
        yield from json_lines(whole_lines if through is None else through(whole_lines), name)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_list_without_rows(line: bytes) -> bool:
    """A line `[1, 2]` is a bad row of JSON lines; a list that begins here, or holds objects, is all there is."""
    try:
        return not any(isinstance(item, dict) for item in json.loads(line))
    except (ValueError, RecursionError):
        return False


def _array(blocks: Iterable[bytes]) -> Iterator[Line]:
    """The objects of one array, each read as soon as it is there."""
    decode = json.JSONDecoder().raw_decode
    text, at, number = _Text(blocks), 0, 0
    text.more(1)
    at = text.skip(0) + 1  # behind the bracket
    while True:
        at = text.skip(at, " \t\r\n,")
        if at < len(text.held) and text.held[at] == "]":
            return
        number += 1
        try:
            value, end = decode(text.held, at)
            if end == len(text.held) and not text.ended:
                raise ValueError("it may go on")
        except (ValueError, RecursionError) as error:
            if text.ended or len(text.held) - at > ROW_BYTES:
                yield Line(
                    number,
                    None,
                    f"not JSON: {error}; no row behind it can be read",
                    text.held[at : at + 2000],
                )
                return
            text.drop(at)
            text.more(
                2 * len(text.held)
            )  # twice as much, so that a long row is not begun again and again
            at, number = 0, number - 1
            continue
        yield from (Line(number, line.row, line.error, line.text) for line in _numbered([value]))
        at = end


class _Text:
    """A text that comes in blocks; what was used is dropped."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks, self._decoder = iter(blocks), codecs.getincrementaldecoder("utf-8")("replace")
        self.held, self.ended = "", False

    def more(self, least: int) -> None:
        """Hold at least so many characters, if there are so many."""
        parts, size = [self.held], len(self.held)
        while size < max(least, _BLOCK) and not self.ended:
            block = next(self._blocks, None)
            self.ended = block is None
            parts.append(self._decoder.decode(block or b"", final=self.ended))
            size += len(parts[-1])
        self.held = "".join(parts)

    def drop(self, count: int) -> None:
        self.held = self.held[count:]

    def skip(self, at: int, signs: str = " \t\r\n") -> int:
        """The first place from here on that holds another sign; more is read where there is none."""
        while True:
            while at < len(self.held) and self.held[at] in signs:
                at += 1
            if at < len(self.held) or self.ended:
                return at
            self.more(len(self.held) + 1)


# ------------------------------------------------------------------------------------------------------------- tables


_NUMBERS = frozenset(("task", "length_tokens"))
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_OURS = frozenset(("id", "task", "reference", "prompt", "meta", "length_tokens", "truncated"))


def _table(opened: Callable[[], IO[bytes]], name: str, delimiter: str) -> Iterator[Line]:
    """CSV or TSV with a header; every cell is a text, but for our own columns that are none."""
    csv.field_size_limit(
        1 << 30
    )  # characters; a completion may be longer than the 131,072 that Python begins with
    with (
        _naming(name),
        opened() as file,
        io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text,
    ):
        rows = csv.reader(text, delimiter=delimiter, strict=True)
        number = 0
        try:
            columns = next(rows, [])
            if len(set(columns)) < len(columns) or not all(columns):
                raise DataError(
                    f"{name}: its header is {columns!r:.300}; every column needs a name of its own"
                )
            for number, cells in enumerate(rows, 1):
                if not cells:
                    continue
                if len(cells) != len(columns):
                    why = f"{len(cells)} cells, where the header has {len(columns)}"
                    yield Line(number, None, why, delimiter.join(cells))
                else:
                    yield Line(number, dict(_cells(zip(columns, cells, strict=True))))
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(
                f"{name}: cannot be read behind row {number}: {error}; it must be UTF-8 and quoted"
            ) from error


def _cells(row: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
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


# ------------------------------------------------------------------------------------------------- Arrow and archives


def _arrow(path: Path) -> Iterator[Any]:
    """A file or a stream of Arrow, as `datasets` and pandas write them."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as file:
            try:
                reader = pa.ipc.open_file(file)
                batches: Iterable[Any] = map(reader.get_batch, range(reader.num_record_batches))
            except pa.ArrowInvalid:
                batches = pa.ipc.open_stream(file)
            for batch in batches:
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Arrow: {error}") from error


def _is_saved_dataset(path: Path) -> bool:
    return path.is_dir() and any(
        (path / name).is_file() for name in ("state.json", "dataset_dict.json")
    )


def _saved_dataset(path: Path) -> Iterable[Any]:
    import datasets

    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:  # its errors share no root
        raise DataError(f"{path}: cannot be read as a folder of datasets: {error}") from error
    if not isinstance(found, datasets.DatasetDict):
        return cast("Iterable[Any]", found)
    if len(found) != 1:
        raise DataError(
            f"{path} has the splits {', '.join(found)}; give one of them: {path / next(iter(found), 'train')}"
        )
    return cast("Iterable[Any]", next(iter(found.values())))


def _inspect_archive(path: Path) -> Iterator[Any]:
    """The samples of a log of inspect_ai (https://inspect.aisi.org.uk/eval-logs.html): a zip with one JSON for each."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [
                name
                for name in archive.namelist()
                if name.startswith("samples/") and name.endswith(".json")
            ]
            for name in names:
                yield json.loads(archive.read(name))
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, *_DAMAGED) as error:
        raise DataError(
            f"{path}: cannot be read as a log of inspect: {error}; `inspect log convert --to json`"
        ) from error
    if not names:
        raise DataError(f"{path}: no samples in it; is it a log of inspect?")
