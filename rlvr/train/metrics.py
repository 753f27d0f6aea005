"""What a run leaves behind for people: numbers, rollouts, and a line that moves.

RUN/config.json       the resolved settings, versions, seeds
RUN/metrics.jsonl     one object per step
RUN/tensorboard/      the same, where tensorboard is installed
RUN/rollouts/         one Parquet file per step that keeps them
RUN/checkpoints/      see `rlvr.train.checkpoint`
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rlvr.collect.stats import Dropped
from rlvr.data.rows import Journal
from rlvr.errors import MissingDependency, UsageError
from rlvr.types import Group

if TYPE_CHECKING:
    from rich.console import Console

    from rlvr.collect.evaluation import Report

__all__ = [
    "Jsonl",
    "Log",
    "Logger",
    "Progress",
    "TensorBoard",
    "Tracker",
    "evaluation_numbers",
    "log_rollouts",
    "logging_to",
    "read_metrics",
    "versions",
]

_PACKAGES = ("rlvr", "torch", "transformers", "tokenizers", "safetensors", "numpy", "sympy", "math-verify")
_SHOWN = {"accuracy": "accuracy", "reward": "reward", "length": "length", "entropy": "entropy",
          "clipped_high": "clipped", "waste": "waste", "step_s": "step s"}  # fmt: skip


Log: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""(step, numbers)."""


class Logger(Protocol):
    """Somewhere that numbers go."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the numbers of a step."""

    def close(self) -> None:
        """Be done."""


class Jsonl:
    """`metrics.jsonl`.  A run that goes on after step `resume_at` first drops what was logged later."""

    def __init__(self, path: Path, *, resume_at: int | None = None) -> None:
        kept = []
        if resume_at is not None and path.exists():
            kept = [json.dumps(row) + "\n" for row in read_metrics(path) if row["step"] <= resume_at]
        partial = path.with_suffix(".partial")
        partial.write_text("".join(kept), encoding="utf-8")
        partial.replace(path)  # whoever is stopped here has lost nothing
        self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """One line; what is not finite becomes null, for JSON has no word for it."""
        row = {"step": step, **{k: v if math.isfinite(v) else None for k, v in numbers.items()}}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        """The file is whole after every line."""
        self._file.close()


class TensorBoard:
    """Event files for TensorBoard.

    Raises:
        MissingDependency: it is not installed.
    """

    def __init__(self, folder: Path, *, resume_at: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingDependency("tensorboard", "train") from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=None if resume_at is None else resume_at + 1)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()


class Tracker:
    """W&B, or anything with its `init`, `log` and `finish`, such as trackio.

    Raises:
        UsageError: the package is not installed.
    """

    def __init__(self, package: str, *, project: str, name: str, config: Mapping[str, Any]) -> None:
        try:
            module: Any = importlib.import_module(package)
        except ImportError:
            raise UsageError(f"track={package!r}: it is not installed; pip install {package}") from None
        module.init(project=project, name=name, config=dict(config))
        self._module = module

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._module.log({**numbers, "step": step})

    def close(self) -> None:
        """The run is over."""
        self._module.finish()


class Progress:
    """A line per step on a terminal, with what is left; every tenth step where nobody watches."""

    def __init__(self, total: int, console: Console, *, first: int = 0) -> None:
        self._console = console
        self._total, self._first, self._started = total, first, time.monotonic()
        self._printed = 0

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        if step == 0 or (not self._console.is_terminal and step % 10 and step != self._total):
            return
        if self._printed % 20 == 0:
            titles = "".join(f"{title:>9}" for title in _SHOWN.values())
            self._console.print(f"  step{titles}     left", style="bold", highlight=False)
        self._printed += 1
        cells = "".join(f"{numbers[name]:>9.3f}" if name in numbers else f"{'–':>9}" for name in _SHOWN)
        done = step - self._first
        left = (time.monotonic() - self._started) / max(1, done) * (self._total - step)
        self._console.print(f"{step:>6}{cells}{_duration(left):>9}", highlight=False)

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def logging_to(
    run: Path, steps: int, console: Console, *, done: int, track: str | None, config: Mapping[str, Any]
) -> Iterator[Log]:
    """Log to all of them; gives the function that does.

    Args:
        done: steps before this process; 0 for a run that begins.
        track: see `Tracker`.
    """
    since = done or None
    found: list[Logger] = []
    with ExitStack() as stack:

        def add(one: Logger) -> None:
            stack.callback(one.close)
            found.append(one)

        if track is not None:  # first: where it cannot be had, the folder is still free
            add(Tracker(track, project="rlvr", name=run.name, config=config))
        add(Jsonl(run / "metrics.jsonl", resume_at=since))
        add(Progress(steps, console, first=done))
        with contextlib.suppress(MissingDependency):
            add(TensorBoard(run / "tensorboard", resume_at=since))

        def log(step: int, numbers: Mapping[str, float]) -> None:
            for one in found:
                one.log(step, numbers)

        yield log


def evaluation_numbers(report: Report) -> dict[str, float]:
    """What the log says of an evaluation."""
    numbers = {
        "eval/length": report.length,
        "eval/truncated": report.truncated,
        "eval/unscored": float(report.unscored),
    }
    for name, found in report.metrics.items():
        numbers |= {f"eval/{name}": found.value, f"eval/{name}/low": found.low, f"eval/{name}/high": found.high}
    return numbers


def log_rollouts(path: Path, groups: Iterable[Group], dropped: Iterable[Dropped] = ()) -> None:
    """Write the rollouts of a step, one row each, for reading.

    Those of dropped groups follow, with the reason in `dropped`: what went wrong with a run mostly stands there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with Journal(path, overwrite=True) as journal:
        for row in chain(_rows(groups, ""), *(_rows([one.group], one.why) for one in dropped if one.group)):
            journal.write(row)
        journal.finish()


def _rows(groups: Iterable[Group], dropped: str) -> Iterator[dict[str, Any]]:
    for group in groups:
        prompt = group.task.prompt if isinstance(group.task.prompt, str) else json.dumps(list(group.task.prompt))
        for number, rollout in enumerate(group.rollouts):
            score = rollout.score
            yield {
                "task": group.task.id,
                "rollout": number,
                "prompt": prompt,
                "completion": rollout.text,
                "length_tokens": len(rollout.completion_ids),
                "truncated": rollout.truncated,
                "outcome": str(score.verdict.outcome) if score else "unscored",
                "why": score.verdict.why if score else "",
                "score": score.total if score else None,
                "detail": json.dumps(dict(score.verdict.detail), default=str) if score else "{}",
                "dropped": dropped,
                "parts": json.dumps(dict(score.parts)) if score else "{}",
                "weights_version": rollout.weights_version,
            }


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The steps of a `metrics.jsonl`; a torn last line, of a run that was killed while it wrote, is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def versions() -> dict[str, str]:
    """What the run ran with."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
