"""The logs of a run: metrics, and a line of progress.

RUN/config.json       the resolved settings, versions, seeds
RUN/metrics.jsonl     one object per step
RUN/tensorboard/      the same, if tensorboard is installed
RUN/rollouts/         a Parquet file for each step whose rollouts are kept,
                      see `rlvr.train.rollout_log`
RUN/evaluations/      the results of each task at each evaluation, see `rlvr compare`
RUN/checkpoints/      see `rlvr.train.checkpoint`
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import platform
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rlvr.data.files import sync_file, write_whole
from rlvr.errors import MissingDependency, UsageError
from rlvr.types import JsonDict, JsonObject

if TYPE_CHECKING:
    from rich.console import Console

    from rlvr.collect.evaluation import EvaluationReport

__all__ = [
    "Jsonl",
    "Log",
    "Logger",
    "Progress",
    "TensorBoard",
    "Tracker",
    "evaluation_metrics",
    "keep_evaluation",
    "open_loggers",
    "read_metrics",
    "tracker_of",
    "versions",
]

_PACKAGES = (
    "rlvr",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "sympy",
    "math-verify",
)
_SHOWN = {
    "accuracy": "accuracy",
    "reward": "reward",
    "length": "length",
    "entropy": "entropy",
    "clipped_high": "clipped",
    "waste": "waste",
    "step_s": "step s",
}
"""Metrics on the line of progress, and the titles of their columns."""


Log: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""A function of (step, metrics)."""


class Logger(Protocol):
    """A destination of metrics."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record the metrics of a step.

        Args:
            step: number of steps done.
            numbers: metrics by name.
        """

    def close(self) -> None:
        """Write what is buffered."""


class Jsonl:
    """Writes `metrics.jsonl`.

    Args:
        path: the file.
        resume_at: the step after which the run continues; lines of later steps are dropped.  None
            for a new file.

    Warns:
        RuntimeWarning: the file lacks steps that the run has done.
    """

    def __init__(self, path: Path, *, resume_at: int | None = None) -> None:
        lines_before = []
        if resume_at is not None and path.exists():
            rows = [row for row in read_metrics(path) if row["step"] <= resume_at]
            lines_before = [json.dumps(row) + "\n" for row in rows]
            if lost := sorted(set(range(1, resume_at + 1)) - {row["step"] for row in rows}):
                listed = ", ".join(map(str, lost[:5])) + (" …" if len(lost) > 5 else "")
                warnings.warn(
                    f"{path} lacks step {listed}, which the checkpoint counts as done: a power cut "
                    "or an editor took them; the training is not affected",
                    RuntimeWarning,
                    stacklevel=2,
                )
        # Written whole first, then appended to: a kill in between leaves a complete file.
        write_whole(path, "".join(lines_before).encode())
        self._file = path.open("ab")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write one line; numbers that are not finite become null, as JSON has none.

        Args:
            step, numbers: see `Logger.log`.
        """
        row = {"step": step, **{k: v if math.isfinite(v) else None for k, v in numbers.items()}}
        self._file.write(json.dumps(row).encode() + b"\n")
        sync_file(self._file)  # before the checkpoint that counts on it

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Writes event files for TensorBoard.

    Args:
        folder: of the event files.
        resume_at: the step after which the run continues; events of later steps are dropped.  None
            for a new run.

    Raises:
        MissingDependency: it is not installed.
    """

    def __init__(self, folder: Path, *, resume_at: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingDependency("tensorboard", "train") from None
        # `purge_step`: TensorBoard hides what was logged from this step on.
        self._writer: Any = SummaryWriter(
            str(folder), purge_step=None if resume_at is None else resume_at + 1
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()


class Tracker:
    """Logs to Weights & Biases, to trackio, or to a package with the same
    `init`, `log` and `finish`.

    A run that goes on goes on there too, under the same name.  What the two packages take beyond
    that (folders, servers, working offline) is said by their own environment variables, such as
    WANDB_MODE and TRACKIO_DIR.

    Args:
        package: "wandb", "trackio", or the name of another package.
        project: of the tracker.
        run: folder of the run, whose name is the run's there.
        config: settings to be shown there.

    Raises:
        UsageError: the package is not installed.
    """

    def __init__(self, package: str, *, project: str, run: Path, config: JsonObject) -> None:
        self._package, self._module = package, tracker_of(package)
        place = run.resolve()
        options: JsonDict = {}
        # The machine and the path: two machines may have a folder of the same name.
        if package == "wandb":  # names need not be unique there, ids must be
            unique = f"{platform.node()}:{place}"
            options = {
                "id": f"rlvr-{zlib.crc32(unique.encode()):08x}",
                "resume": "allow",
                "dir": str(place),
            }
        elif package == "trackio":
            options = {"resume": "allow"}
        opened = self._module.init(project=project, name=place.name, config=dict(config), **options)
        if package == "wandb":
            # wandb's own count of steps cannot go back to a checkpoint's step.
            opened.define_metric("*", step_metric="step")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        if self._package == "trackio":  # where "step" is no metric's name
            self._module.log(dict(numbers), step=step)
        else:
            self._module.log({**numbers, "step": step})

    def close(self) -> None:
        """Finish the run there."""
        self._module.finish()


def tracker_of(package: str) -> Any:
    """The module of a tracker.

    Args:
        package: its name.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        is_extra = package in ("wandb", "trackio")
        way = "pip install -c constraints.txt '.[track]'" if is_extra else f"pip install {package}"
        raise UsageError(f"track is {package!r}, which is not installed; {way}") from None


class Progress:
    """Prints a line per step on a terminal, with the time left; elsewhere every tenth step.

    Args:
        total: steps of the run.
        console: where it is printed.
        first: steps done before this process.
    """

    def __init__(self, total: int, console: Console, *, first: int = 0) -> None:
        self._console = console
        self._total, self._first, self._started = total, first, time.monotonic()
        self._printed = 0

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        if step == 0 or (not self._console.is_terminal and step % 10 and step != self._total):
            return
        # Titles again every 20 lines, as the first ones have scrolled away.
        if self._printed % 20 == 0:
            titles = "".join(f"{title:>9}" for title in _SHOWN.values())
            self._console.print(f"  step{titles}     left", style="bold", highlight=False)
        self._printed += 1
        cells = "".join(
            f"{numbers[name]:>9.3f}" if name in numbers else f"{'–':>9}" for name in _SHOWN
        )
        # Steps of this process: those before a resume took other time.
        done = step - self._first
        left = (time.monotonic() - self._started) / max(1, done) * (self._total - step)
        self._console.print(f"{step:>6}{cells}{_duration(left):>9}", highlight=False)

    def close(self) -> None:
        """Nothing is buffered."""


@contextmanager
def open_loggers(
    run: Path,
    steps: int,
    console: Console,
    *,
    done: int,
    track: str | None,
    config: Mapping[str, object],
) -> Iterator[Log]:
    """Open all loggers of a run; yields the function that logs to them.

    Args:
        run: folder of the run.
        steps: steps of the run.
        console: where progress is printed.
        done: steps done before this process; 0 for a new run.
        track: package of a `Tracker`; None for none.
        config: settings of the run, for the tracker.
    """
    since = done or None
    loggers: list[Logger] = []
    with ExitStack() as stack:

        def add(one: Logger) -> None:
            stack.callback(one.close)
            loggers.append(one)

        if track is not None:
            tracker_of(track)  # if the package is missing, nothing has been written yet
        add(Jsonl(run / "metrics.jsonl", resume_at=since))
        # behind it: where a login fails, the folder already holds a run that can go on
        if track is not None:
            add(Tracker(track, project="rlvr", run=run, config=config))
        add(Progress(steps, console, first=done))
        with contextlib.suppress(MissingDependency):
            add(TensorBoard(run / "tensorboard", resume_at=since))

        def log(step: int, numbers: Mapping[str, float]) -> None:
            for logger in loggers:
                logger.log(step, numbers)

        yield log


def evaluation_metrics(report: EvaluationReport, of: str = "eval") -> dict[str, float]:
    """The metrics of an evaluation, with `eval/` before their names.

    Args:
        report: of the evaluation.
        of: what stands there instead.
    """
    numbers = {
        f"{of}/length": report.length,
        f"{of}/truncated": report.truncated,
        f"{of}/unscored": float(report.unscored),
        f"{of}/too_long": float(len(report.too_long)),
    }
    for name, metric in report.metrics.items():
        numbers |= {
            f"{of}/{name}": metric.value,
            f"{of}/{name}/low": metric.low,
            f"{of}/{name}/high": metric.high,
        }
    return numbers


def keep_evaluation(run: Path, step: int, report: EvaluationReport, name: str = "") -> None:
    """Write the results of each task to RUN/evaluations, which `rlvr compare` reads.

    Args:
        run: the run's folder.
        step: at which the policy was evaluated.
        report: of the evaluation.
        name: of a further evaluation, which has a folder of its own.
    """
    path = run / "evaluations" / name / f"step-{step}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report.as_dict() | {"model": f"{run.name}, step {step}"}, default=str)
    write_whole(path, text.encode() + b"\n")


def read_metrics(path: Path) -> list[JsonDict]:
    """The rows of a `metrics.jsonl`.  A last line that is cut off, because the run was killed, is
    left out.

    Args:
        path: the file.

    Warns:
        RuntimeWarning: other lines cannot be read; they are left out.
    """
    rows, damaged = [], []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                raise ValueError("no object with a step")
            rows.append(row)
        except (ValueError, RecursionError):
            # A last line without an end was being written when the process was killed.
            if line.endswith(b"\n"):
                damaged.append(number)
    if damaged:
        listed = ", ".join(map(str, damaged[:5])) + (" …" if len(damaged) > 5 else "")
        warnings.warn(
            f"{path}: line {listed} cannot be read and is left out", RuntimeWarning, stacklevel=2
        )
    return rows


def versions() -> dict[str, str]:
    """Versions of Python, the platform and the packages that affect a run."""
    by_package = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            by_package[package] = version(package)
    return by_package


def _duration(seconds: float) -> str:
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"
