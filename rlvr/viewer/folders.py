"""Which runs, scored files and reports a folder holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from rlvr.errors import DataError
from rlvr.viewer.index import parquet_columns
from rlvr.viewer.reports import Report, read_report

__all__ = ["STEP_SUFFIX", "find_sources", "is_run", "require_shown"]

_MOST_FOLDERS: Final = 20_000  # that are looked into
_DEEPEST: Final = 8  # levels
_LARGEST_REPORT: Final = 32 << 20  # bytes of a file that is read to see whether it is a report
_LONGEST_LINE: Final = 1 << 22  # bytes of a first row
STEP_SUFFIX: Final = ".safetensors"  # of recorded steps, and of models, which are not shown
_SCORED: Final = (".jsonl", ".jsonl.partial", ".parquet", ".parquet.partial")
_COLUMNS: Final = ("completion", "outcome")  # which every scored file has


def find_sources(
    folder: Path, known: dict[Path, tuple[int, ...]]
) -> Iterator[tuple[Path, Report | None]]:
    """What can be shown in a folder and the folders in it, in the order of names; links are not
    followed.

    Args:
        folder: where it is looked for.  Nothing is looked for inside of a run.
        known: what was looked at before: path → stamp.  It is skipped unless it has changed, and
            what is found for good is skipped for ever.

    Yields:
        Path and, of a report, what it says.
    """
    waiting = [(folder, 0)]
    for _ in range(_MOST_FOLDERS):
        if not waiting:
            return
        folder_now, depth = waiting.pop()
        inner = []
        for entry in _entries(folder_now):
            path = Path(entry.path)
            if known.get(path) == _FOUND:
                continue
            if entry.is_dir(follow_symlinks=False):
                if is_run(path):
                    known[path] = _FOUND
                    yield path, None
                elif depth < _DEEPEST:
                    inner.append((path, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                yield from _look(path, entry.stat(), known)
        waiting += reversed(inner)


_FOUND: Final = (-1,)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        visible = (entry for entry in entries if not entry.name.startswith("."))
        return sorted(visible, key=lambda entry: entry.name)
    return []


def _look(
    path: Path, status: os.stat_result, known: dict[Path, tuple[int, ...]]
) -> Iterator[tuple[Path, Report | None]]:
    """A file, if it is one that is shown."""
    if path.suffix not in (".json", STEP_SUFFIX) and not path.name.endswith(_SCORED):
        return
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
    if known.get(path) == stamp:
        return
    known[path] = stamp
    with suppress(OSError, DataError):  # a file that is not ours, or not whole yet
        report = None
        if path.suffix == ".json":
            report = read_report(path) if status.st_size <= _LARGEST_REPORT else None
        if report is not None or (path.suffix != ".json" and _is_shown(path)):
            known[path] = _FOUND
            yield path, report


def _is_shown(path: Path) -> bool:
    return _is_recorded_step(path) if path.suffix == STEP_SUFFIX else _is_scored(path)


def _is_recorded_step(path: Path) -> bool:
    from rlvr.data.step_files import is_step  # numpy, which scored files do without

    return is_step(path)


def _is_scored(path: Path) -> bool:
    """Whether the first row of a file is a scored completion."""
    with path.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
    if first.startswith(b"PAR1"):
        return parquet_columns(path).issuperset(_COLUMNS)
    try:
        row = orjson.loads(first)
    except ValueError:  # NaN is rare: the whole line need not be read for these names
        return all(b'"%s"' % name.encode() in first for name in _COLUMNS)
    return isinstance(row, dict) and row.keys() >= set(_COLUMNS)


def is_run(path: Path) -> bool:
    """Whether a folder is a run's.

    Args:
        path: the folder.
    """
    if (path / "metrics.jsonl").exists() or (path / "rollouts").is_dir():
        return True
    config = path / "config.json"  # a saved model has one, too
    return config.exists() and not any((path / name).exists() for name in _OF_MODELS)


_OF_MODELS: Final = ("model.safetensors", "tokenizer.json", "tokenizer_config.json")


def require_shown(path: Path) -> None:
    """Refuse a file that cannot be rows of completions, before it is read.

    Args:
        path: it, or the folder of a run.

    Raises:
        DataError: it is none, is packed, or is another format.
    """
    if path.is_dir():
        return
    if path.is_file():
        if path.suffix == STEP_SUFFIX:
            if not _is_recorded_step(path):
                raise DataError(f"{path} holds tensors and no training step; give a step file")
            return
        with path.open("rb") as file:
            first = file.read(64)
        if first.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
            raise DataError(
                f"{path} is packed; unpack it first, as its rows are read from where they stand"
            )
        if first.lstrip()[:1] == b"[" or (b"\0" in first and not first.startswith(b"PAR1")):
            raise DataError(
                f"{path} is neither JSON lines nor Parquet; give a file that `rlvr score -o` wrote"
            )
        return
    partial = Path(f"{path}.partial")
    hint = f"; it is still being written: give {partial}" if partial.is_file() else ""
    what = "is no ordinary file" if path.exists() else "there is no such file or folder"
    raise DataError(f"{path}: {what}{hint}")
