"""What a path holds: scored completions, a training run, or a report."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from rlvr.errors import DataError, brief
from rlvr.train.metrics import read_metrics
from rlvr.viewer.index import Index, RowsFile
from rlvr.viewer.reports import Report, read_report

__all__ = ["ReportSource", "RunSource", "Shown", "Source", "State"]

_STEP = re.compile(r"step-(\d{1,12})\.parquet")
_PARTIAL: Final = ".partial"  # what a file is called until it is whole
_LOCK: Final = ".lock"  # which a process holds while it trains in a run's folder
_RECENT_S: Final = 30.0  # for which a file without a lock is followed after it has changed


class State(NamedTuple):
    """Whether a source is still being written.

    Attributes:
        live: it is, so that its pages follow it.
        text: the same in words; empty if there is nothing to say.
    """

    live: bool
    text: str


class Source:
    """Scored completions that were given to the viewer.

    Args:
        path: the file.
        name: what pages call it.
        folder: for temporary files.

    Attributes:
        path, name: see above.
        index: of its rows.
    """

    is_run = False
    what = "scored completions"

    def __init__(self, path: Path, name: str, folder: Path) -> None:
        self.path, self.name = path, name
        self._changed_ns = 0  # when it last changed, as far as it was looked at
        self.index = Index(self.files, folder)

    def files(self) -> list[RowsFile]:
        """The files of its rows.  A partial file that is whole by now has another name."""
        done = self._finished()
        return [RowsFile(self.path if done is None else done)]

    def state(self) -> State:
        """Whether it is still being written."""
        if self.path.suffix != _PARTIAL:
            return _by_time(self.path)
        locked = _is_locked(self.path)  # first: it may become whole at any moment
        if not self.path.exists():
            if (done := self._finished()) is not None:
                return State(False, f"Ended: it is whole, and called {done.name} now.")
            return State(False, "Removed before its end: there is no such file now.")
        if locked is None:  # a file system that has no locks
            return _by_time(self.path)
        if locked:
            return State(True, f"Being written: it is called {self.path.stem} once it is whole.")
        return State(False, "Stopped before its end: no process writes it now.")

    def _finished(self) -> Path | None:
        """What a partial file became.  An output that is older than the partial file is of an earlier run."""
        if self.path.suffix != _PARTIAL:
            return None
        with suppress(OSError):
            self._changed_ns = self.path.stat().st_mtime_ns
            return None
        done = self.path.with_suffix("")
        with suppress(OSError):
            if (
                done.is_file()
                and not done.is_symlink()
                and done.stat().st_mtime_ns >= self._changed_ns
            ):
                return done
        return None


class RunSource(Source):
    """A training run: its metrics, its settings, and the rollouts that it kept."""

    is_run = True
    what = "run"
    _metrics: tuple[tuple[int, ...], list[dict[str, Any]], list[str]] | None = (
        None  # of the file as it was
    )

    def files(self) -> list[RowsFile]:
        """The files of rollouts, by step.  A link that leads out of the run's folder is not followed."""
        folder, found = self.path / "rollouts", []
        if folder.is_dir() and self._is_inside(folder):
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = _STEP.fullmatch(entry.name)
                    if name and (not entry.is_symlink() or self._is_inside(Path(entry.path))):
                        found.append(RowsFile(Path(entry.path), int(name[1])))
        return sorted(found, key=lambda file: file.step)

    def state(self) -> State:
        """Whether a process trains in it, and how far it has come."""
        rows, total = self.metrics()[0], self.settings()[0].get("settings.steps", "")
        last = rows[-1]["step"] if rows else 0
        at = f"step {last:,}" + (
            f" of {int(total):,}" if total.isdecimal() and len(total) < 10 else ""
        )
        if total.isdecimal() and last >= int(total) > 0:
            return State(False, f"Ended: {at}.")
        lock = self.path / _LOCK
        locked = _is_locked(lock) if self._is_inside(lock) else None
        if locked is None:  # made without a lock, or copied from elsewhere
            return _by_time(self.path / "metrics.jsonl", self.path / "rollouts")
        return State(
            locked,
            f"Being written: {at}." if locked else f"Stopped at {at}: no process trains in it now.",
        )

    @property
    def steps(self) -> list[int]:
        """The steps whose rollouts were kept."""
        return [file.step for file in self.files()]

    def metrics(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The metrics of each step, and a line for what could not be read."""
        path = self.path / "metrics.jsonl"
        if not path.is_file() or not self._is_inside(path):
            return [], [f"{path}: there are no metrics yet"]
        status = path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._metrics is None or self._metrics[0] != stamp:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                rows = read_metrics(path)
            self._metrics = (stamp, rows, [str(it.message) for it in said])
        return self._metrics[1:]

    def settings(self) -> tuple[dict[str, str], str]:
        """Every setting and version by its path, such as `settings.algorithm.clip.low`; and what could not be read."""
        path = self.path / "config.json"
        try:
            if not self._is_inside(path):
                raise ValueError("it leads out of the run's folder")
            tree = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            return {}, f"{path}: the settings cannot be read: {brief(str(error))}"
        return dict(_leaves(tree, "")), ""

    def _is_inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.path.resolve())


class ReportSource(Source):
    """An audit, a check or an evaluation, which has no rows.

    Args:
        path, name, folder: see `Source`.
        report: what it says.
    """

    what = "report"

    def __init__(self, path: Path, name: str, folder: Path, report: Report) -> None:
        super().__init__(path, name, folder)
        self.report = report

    def files(self) -> list[RowsFile]:
        """No files of rows."""
        return []

    def state(self) -> State:
        """A report is whole."""
        return State(False, "")


class Shown:
    """All that one viewer shows, by number; nothing else can be reached through it.

    Args:
        paths: scored files, folders of runs, and reports of audits, checks and evaluations.

    Attributes:
        all: the sources, in order.
        refused: a line for each path that is none of these.

    Raises:
        DataError: none of the paths can be shown.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.all: list[Source] = []
        self.refused: list[str] = []
        self._stack = ExitStack()
        temporary = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rlvr-view-"))
        )
        try:
            for path in paths:
                try:
                    self._open(path, temporary / str(len(self.all)))
                except (DataError, OSError) as error:
                    self.refused.append(str(error))
            if not self.all:
                raise DataError(
                    "; ".join(self.refused) or "give at least one scored file or folder of a run"
                )
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path, folder: Path) -> None:
        is_run = _is_run(path)
        names = {source.name for source in self.all}
        short = path.resolve().name
        name = next(it for it in (short, str(path), f"{path} ({len(self.all)})") if it not in names)
        report = None if is_run else read_report(path)
        folder.mkdir()
        source: Source
        if report is not None:
            source = ReportSource(path.absolute(), name, folder, report)
        else:
            source = (RunSource if is_run else Source)(path.absolute(), name, folder)
        self._stack.callback(source.index.close)
        self.all.append(source)

    def close(self) -> None:
        """Stop reading, and remove the temporary files."""
        self._stack.close()

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _is_locked(path: Path) -> bool | None:
    """Whether a process holds a lock on a file; None if that cannot be known.

    The lock is taken for an instant, so this is asked only about what is not finished.
    """
    if not path.is_file():  # another thing may wait for ever to be opened
        return None
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _by_time(*paths: Path) -> State:
    """The state of what has no lock: it may still grow if it has changed a moment ago."""
    for path in paths:
        with suppress(OSError):
            if abs(time.time() - path.stat().st_mtime) < _RECENT_S:
                return State(
                    True, f"Changed less than {_RECENT_S:.0f} s ago; followed in case it grows."
                )
    return State(False, "")


def _is_run(path: Path) -> bool:
    """Whether a path is a run's folder; False for a file.

    Raises:
        DataError: it is neither.
    """
    if path.is_dir():
        if any((path / name).exists() for name in ("metrics.jsonl", "rollouts", "config.json")):
            return True
        raise DataError(
            f"{path} is a folder without metrics.jsonl, so no run; give a run's folder or a scored file"
        )
    if path.is_file():
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
        return False
    partial = path.with_name(path.name + ".partial")
    hint = f"; it is still being written: give {partial}" if partial.is_file() else ""
    what = "is no ordinary file" if path.exists() else "there is no such file or folder"
    raise DataError(f"{path}: {what}{hint}")


def _leaves(tree: Any, name: str) -> Iterable[tuple[str, str]]:
    if isinstance(tree, Mapping) and tree:
        for key, sub in tree.items():
            yield from _leaves(sub, f"{name}.{key}".strip("."))
    else:
        yield name, tree if isinstance(tree, str) else json.dumps(tree)
