"""The Parquet file of a training step's rollouts: typed columns, so that any
tool can filter by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlvr.data.files import whole_file
from rlvr.data.lines import Row
from rlvr.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["is_rollouts", "read_rollout_table", "read_rollouts", "rollouts_with", "write_rollouts"]


def write_rollouts(path: Path, rows: Iterable[Row]) -> None:
    """Write rollouts to a file, which is there whole or not at all.

    Columns that a row lacks are null.  Texts that are no UTF-8 (lone surrogates) are written with
    escapes.

    Args:
        path: the file; its folder is made.
        rows: with the columns that docs/reference/records.md lists under "Rollouts of a run";
            others are left out.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([_utf8(row) for row in rows], schema=_schema(pa))
    with whole_file(path) as file:
        pq.write_table(table, file)


_TEXTS: Final = (
    "task",
    "env",
    "prompt",
    "reference",
    "completion",
    "outcome",
    "why",
    "answer",
    "dropped",
    "detail",
)
_NESTED: Final = ("messages", "episode")
_MARK: Final = b"rlvr_rollouts"


def is_rollouts(path: Path) -> bool:
    """Whether `write_rollouts` wrote a file.

    Args:
        path: a Parquet file.

    Raises:
        DataError: it is cut short or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _MARK in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from error


def read_rollout_table(path: Path, names: Sequence[str]) -> pa.Table:
    """Some columns of a file that `write_rollouts` wrote, as an Arrow table.

    Args:
        path: the file.
        names: of the columns; those that it lacks are null.

    Raises:
        DataError: it is damaged, or a column has another type than `write_rollouts` gives it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(pa)
    try:
        with pq.ParquetFile(path) as file:
            present = [name for name in names if name in file.schema_arrow.names]
            # files are small: threads cost more than they save
            table = file.read(present, use_threads=False)
            rows = file.metadata.num_rows
        columns = [
            table[name].cast(schema.field(name).type)
            if name in table.column_names
            else pa.nulls(rows, schema.field(name).type)
            for name in names
        ]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from error
    return pa.table(columns, names=list(names))


def read_rollouts(path: Path, places: Sequence[int]) -> list[Row]:
    """Some rows of a file that `write_rollouts` wrote; columns without a value are left out.

    Args:
        path: the file.
        places: of the rows, from 0.

    Raises:
        DataError: it is damaged, or lacks a row.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            rows = file.read().take(list(places)).to_pylist()
    except (pa.ArrowException, OSError, IndexError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from error
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def rollouts_with(path: Path, text: str) -> list[int]:
    """The places of the rows that contain a text, upper and lower case told apart.

    Args:
        path: a file that `write_rollouts` wrote.
        text: what to look for.

    Raises:
        DataError: it is damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    text = _utf8(text)
    try:
        with pq.ParquetFile(path) as file:
            table = file.read([*_TEXTS, *_NESTED])
        places: set[int] = set()
        for name in _TEXTS:
            places.update(
                pc.indices_nonzero(
                    pc.match_substring(table[name], text).fill_null(False)
                ).to_pylist()
            )
        for name in _NESTED:
            if table[name].null_count < len(table):
                rows = table[name].to_pylist()
                places.update(place for place, value in enumerate(rows) if _contains(value, text))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from error
    return sorted(places)


def _contains(value: object, text: str) -> bool:
    if isinstance(value, str):
        return text in value
    inner = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    )
    return any(_contains(item, text) for item in inner)


def _schema(pa: Any) -> Any:
    text, number, count, flag = pa.string(), pa.float64(), pa.int64(), pa.bool_()
    logprobs = pa.list_(pa.float32())
    call = pa.struct(
        {"name": text, "arguments": text, "reply": text, "error": flag, "seconds": number}
    )
    columns = {
        "task": text,
        "env": text,
        "rollout": count,
        "prompt": text,
        "messages": pa.list_(pa.struct({"role": text, "content": text})),
        "reference": text,
        "completion": text,
        "length_tokens": count,
        "truncated": flag,
        "outcome": text,
        "why": text,
        "answer": text,
        "score": number,
        "parts": pa.map_(text, number),
        "advantage": number,
        "dropped": text,
        "detail": text,
        "weights_version": count,
        "turns": pa.list_(pa.struct({"start": count, "stop": count, "reward": number})),
        "episode": pa.list_(pa.struct({"text": text, "calls": pa.list_(call), "user": text})),
        "tokens": pa.list_(text),
        "token_ids": pa.list_(count),
        "completion_mask": pa.list_(flag),
        "behaviour_logprobs": logprobs,
        "logprobs": logprobs,
        "advantages": logprobs,
    }
    return pa.schema(columns, metadata={_MARK: b"1"})


def _utf8(value: object) -> Any:
    """The same with every text as UTF-8 can hold it."""
    if isinstance(value, str):
        # ASCII is UTF-8 already.
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {name: _utf8(item) for name, item in value.items()}
    return [_utf8(item) for item in value] if isinstance(value, list) else value
