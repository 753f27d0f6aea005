"""What a path holds: scored completions, a training run, or a report."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rlvr.errors import DataError, brief
from rlvr.viewer.folders import STEP_SUFFIX, find_sources, is_run, require_shown
from rlvr.viewer.index import Index, RowsFile
from rlvr.viewer.reports import Report, read_report
from rlvr.workers.closing import Closing

if TYPE_CHECKING:
    from rlvr.viewer.metrics import RunMetrics

__all__ = ["ReportSource", "RunSource", "Shown", "Source", "State", "read_step_report"]

_STEP = re.compile(r"step-(\d{1,12})\.parquet")
_PARTIAL: Final = ".partial"  # what a file is called until it is whole
_LOCK: Final = ".lock"  # which a process holds while it trains in a run's folder
_NOTES: Final = 4000  # bytes of a run's notes that are read
_SCAN_S: Final = 2.0  # between two looks into the folders that were given
_RECENT_S: Final = 30.0  # for which a file without a lock is followed after it has changed


class State(NamedTuple):
    """Whether a source is still being written.

    Attributes:
        live: it is, so that its pages follow it.
        text: the same in words; empty if there is nothing to say.
        name: the same in one word.
    """

    live: bool
    text: str
    name: str = ""


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
        done = self._find_finished()
        return [RowsFile(self.path if done is None else done)]

    @property
    def results(self) -> Path:
        """What `rlvr compare` reads."""
        return self.files()[0].path

    def holds(self, path: Path) -> bool:
        """Whether a path is its own, or what its partial file became.

        Args:
            path: an absolute path.
        """
        return path in (self.path, self._find_finished())

    def state(self) -> State:
        """Whether it is still being written."""
        if self.path.suffix != _PARTIAL:
            return _by_time(self.path)
        locked = _is_locked(self.path)  # first: it may become whole at any moment
        if not self.path.exists():
            if (done := self._find_finished()) is not None:
                text = f"Ended: it is whole, and called {done.name} now."
                return State(False, text, "ended")
            return State(False, "Removed before its end: there is no such file now.", "removed")
        if locked is None:  # a file system that has no locks
            return _by_time(self.path)
        if locked:
            text = f"Being written: it is called {self.path.stem} once it is whole."
            return State(True, text, "running")
        return State(False, "Stopped before its end: no process writes it now.", "stopped")

    def _find_finished(self) -> Path | None:
        """What a partial file became.  An output that is older than the partial file is of an
        earlier run."""
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

    def __init__(self, path: Path, name: str, folder: Path) -> None:
        super().__init__(path, name, folder)
        from rlvr.viewer.metrics import RunMetrics  # numpy, which scored files do without

        self._metrics = RunMetrics(path / "metrics.jsonl")
        self._reading = threading.Lock()
        self._settings: tuple[tuple[int, ...], tuple[dict[str, str], str]] | None = None

    def files(self) -> list[RowsFile]:
        """The files of rollouts, by step.  A link that leads out of the run's folder is not
        followed."""
        folder, found_files = self.path / "rollouts", []
        if folder.is_dir() and self._is_inside(folder):
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = _STEP.fullmatch(entry.name)
                    if name and (not entry.is_symlink() or self._is_inside(Path(entry.path))):
                        found_files.append(RowsFile(Path(entry.path), int(name[1])))
        return sorted(found_files, key=lambda file: file.step)

    def state(self) -> State:
        """Whether a process trains in it, and how far it has come."""
        last, total = self.metrics()[0].last_step, self.settings()[0].get("settings.steps", "")
        at = f"step {last:,}" + (
            f" of {int(total):,}" if total.isdecimal() and len(total) < 10 else ""
        )
        if total.isdecimal() and last >= int(total) > 0:
            return State(False, f"Ended: {at}.", "ended")
        lock = self.path / _LOCK
        locked = _is_locked(lock) if self._is_inside(lock) else None
        if locked is None:  # made without a lock, or copied from elsewhere
            return _by_time(self.path / "metrics.jsonl", self.path / "rollouts")
        if locked:
            return State(True, f"Being written: {at}.", "running")
        return State(False, f"Stopped at {at}: no process trains in it now.", "stopped")

    @property
    def steps(self) -> list[int]:
        """The steps whose rollouts were kept."""
        return [file.step for file in self.files()]

    def step_files(self) -> dict[str, Path]:
        """The steps that can be recomputed, by name: those of RUN/steps."""
        paths = sorted((self.path / "steps").glob(f"*{STEP_SUFFIX}"))
        return {path.stem: path for path in paths if path.is_file() and self._is_inside(path)}

    def metrics(self) -> tuple[RunMetrics, list[str]]:
        """The metrics, read on to their end, and a line for what could not be read."""
        path = self.path / "metrics.jsonl"
        with self._reading:
            if not path.is_file() or not self._is_inside(path):
                return self._metrics, [f"{path}: there are no metrics yet"]
            self._metrics.update()
            return self._metrics, self._metrics.notes

    @property
    def results(self) -> Path:
        """The folder, whose last evaluation is read."""
        return self.path

    def has_read(self) -> bool:
        """Whether its metrics were read before, so that reading on is quick."""
        return len(self._metrics) > 0

    def settings(self) -> tuple[dict[str, str], str]:
        """Every setting and version by its path, such as `settings.algorithm.clip.low`; and what
        could not be read."""
        path = self.path / "config.json"
        try:
            if not self._is_inside(path):
                raise ValueError("it leads out of the run's folder")
            status = path.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._settings is None or self._settings[0] != stamp:
                tree = json.loads(path.read_text(encoding="utf-8"))
                self._settings = (stamp, (dict(_leaves(tree, "")), ""))
        except (OSError, ValueError, RecursionError) as error:
            return {}, f"{path}: the settings cannot be read: {brief(str(error))}"
        return self._settings[1]

    def notes(self) -> str:
        """What the user has written into RUN/notes.md; empty without it."""
        path = self.path / "notes.md"
        if not path.is_file() or not self._is_inside(path):
            return ""
        with suppress(OSError), path.open("rb") as file:
            return file.read(_NOTES).decode("utf-8", "replace")
        return ""

    def _is_inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.path.resolve())


class ReportSource(Source):
    """An audit, a check, an evaluation or a training step, which has no rows.

    Args:
        path, name, folder: see `Source`.
        report: what it says; None of a step file, which is judged when its page is opened.
    """

    what = "report"

    def __init__(self, path: Path, name: str, folder: Path, report: Report | None) -> None:
        super().__init__(path, name, folder)
        self._report = report

    @property
    def report(self) -> Report:
        """What it says.

        Raises:
            DataError: the step file cannot be read.
        """
        if self._report is None:
            self._report = read_step_report(self.path)
        return self._report

    @property
    def says(self) -> str:
        """Its title and its first line; empty of a step that is not judged yet."""
        if self._report is None:
            return ""
        return " ".join([self._report.title, *self._report.lines[:1]])

    @property
    def results(self) -> Path:
        """The file of the report."""
        return self.path

    def files(self) -> list[RowsFile]:
        """No files of rows."""
        return []

    def state(self) -> State:
        """A report is whole."""
        return State(False, "")


class Shown(Closing):
    """All that one viewer shows, by number; nothing else can be reached through it.

    Args:
        paths: scored files, folders of runs, reports of audits, checks and evaluations, and folders
            in which such are found.

    Attributes:
        all: the sources, in order; what is found later comes last, so that numbers stay.
        refused: a line for each path that is none of these.
        follows: whether new ones may come: a folder that is no run was given.

    Raises:
        DataError: none of the paths can be shown.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.all: list[Source] = []
        self.refused: list[str] = []
        self._stack = ExitStack()
        self._folders: list[Path] = []
        self._known: dict[Path, tuple[int, ...]] = {}  # what was looked at in them
        self._scanning, self._scanned = threading.Lock(), 0.0
        self._temporary = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rlvr-view-"))
        )
        try:
            for path in paths:
                try:
                    self._take(path)
                except (DataError, OSError) as error:
                    self.refused.append(str(error))
            if not self.all:
                raise DataError(
                    "; ".join(self.refused) or "give at least one scored file or folder of a run"
                )
        except BaseException:
            self.close()
            raise

    @property
    def follows(self) -> bool:
        """Whether new sources may come."""
        return bool(self._folders)

    def refresh(self) -> None:
        """Look for what has come into the folders, if the last look is some seconds ago."""
        with self._scanning:
            if self._folders and time.monotonic() - self._scanned > _SCAN_S:
                for folder in self._folders:
                    self._scan(folder)
                self._scanned = time.monotonic()

    def _take(self, path: Path) -> None:
        """Open what was given."""
        if not path.is_dir() or is_run(path):
            require_shown(path)
            self._open(path, str(path.resolve().name), read_report(path))
            return
        before = len(self.all)
        self._folders.append(path)
        self._scan(path)
        if len(self.all) == before:
            raise DataError(
                f"{path} is a folder without metrics.jsonl, so no run, and none, no scored file "
                "and no report is found in it; give a run's folder or a scored file"
            )

    def _scan(self, folder: Path) -> None:
        several = len(self._folders) > 1
        for path, report in find_sources(folder, self._known):
            name = str(path.relative_to(folder))
            self._open(path, f"{folder.resolve().name}/{name}" if several else name, report)

    def _open(self, path: Path, short: str, report: Report | None) -> None:
        absolute = path.absolute()
        if self._folders and any(source.holds(absolute) for source in self.all):
            return  # given by itself, and found in a folder
        names = {source.name for source in self.all}
        name = next(
            candidate
            for candidate in (short, str(path), f"{path} ({len(self.all)})")
            if candidate not in names
        )
        temporary = self._temporary / str(len(self.all))
        temporary.mkdir()
        source: Source
        if report is not None or absolute.suffix == STEP_SUFFIX:
            source = ReportSource(absolute, name, temporary, report)
        else:
            source = (RunSource if path.is_dir() else Source)(absolute, name, temporary)
        self._stack.callback(source.index.close)
        self.all.append(source)

    def close(self) -> None:
        """Stop reading, and remove the temporary files."""
        self._stack.close()


def read_step_report(path: Path) -> Report:
    """What a step file says, and what departs in it.

    Args:
        path: of the file.

    Raises:
        DataError: it cannot be read.
    """
    from rlvr.viewer.steps import step_report  # numpy, which scored files do without

    return step_report(path)


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
                text = f"Changed less than {_RECENT_S:.0f} s ago; followed in case it grows."
                return State(True, text, "running")
    return State(False, "")


def _leaves(tree: object, name: str) -> Iterable[tuple[str, str]]:
    if isinstance(tree, Mapping) and tree:
        for key, sub in tree.items():
            yield from _leaves(sub, f"{name}.{key}".strip("."))
    else:
        yield name, tree if isinstance(tree, str) else json.dumps(tree)
