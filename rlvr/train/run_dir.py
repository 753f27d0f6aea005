"""The folder of a run: whose it is, what ran in it, and who runs in it now."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rlvr.errors import DataError, UsageError, brief
from rlvr.train.metrics import versions

__all__ = ["claimed"]

_LOCK: Final = ".lock"
_FREE: Final = frozenset(
    f"settings.{name}"
    for name in (
        "bad_steps", "canary", "checkpoint_every", "device", "gradient_checkpointing", "keep", "max_rows",
        "micro_tokens", "rollouts_every", "track", "workers",
    )
)  # fmt: skip
"""Settings of the machine and of the reports: the run is the same under any, but for how its sums are rounded."""


@contextmanager
def claimed(run: Path, about: Mapping[str, Any], say: Callable[[str], None]) -> Iterator[None]:
    """Make the folder this run's, and keep other processes out of it meanwhile.

    A run goes on under the settings that it began with.  Those that do not change what is learned may be others: that
    is said, and `config.json` has the new ones.

    Args:
        about: all that decides how the run goes, as plain JSON; written to `config.json` with versions.
        say: prints a line.

    Raises:
        UsageError: it holds a run that differs, named setting by setting, or something that is no run; another process
            is at it; or this is one of several processes.
        DataError: its `config.json` is damaged.
    """
    if os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
        raise UsageError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}: the trainer is one process on one device, and several would "
            "write over each other; start it without torchrun or accelerate"
        )
    path = run / "config.json"
    has_begun = (run / "metrics.jsonl").exists() and path.is_file()
    if not has_begun and run.exists() and any(other.name not in (path.name, _LOCK) for other in run.iterdir()):
        raise UsageError(f"{run} is not empty, and holds no run; give a new folder")
    run.mkdir(parents=True, exist_ok=True)
    with (run / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it ends with the process, however that ends
        except BlockingIOError:
            raise UsageError(
                f"{run} is being trained in by another process; wait for it, or give a new folder"
            ) from None
        changed = _changed(_read(path), about, run) if has_begun else {}
        for name, (before, now) in changed.items():
            say(f"{name} is {brief(now)} from here on, and was {brief(before)}")
        if changed or not has_begun:
            partial = path.with_suffix(".partial")
            text = json.dumps({**about, "versions": versions()}, indent=2, ensure_ascii=False)
            partial.write_text(text + "\n", encoding="utf-8")
            partial.replace(path)
        yield


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return dict(found)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} cannot be read as the settings of a run ({error}); give a new folder") from None


def _changed(theirs: Mapping[str, Any], ours: Mapping[str, Any], run: Path) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, as (before, now); only such as do not change what is learned."""
    before, now = _flat({name: theirs.get(name) for name in ours}), _flat(ours)
    differing = {
        name: (before.get(name), now.get(name)) for name in sorted(before | now) if before.get(name) != now.get(name)
    }
    decisive = [name for name in differing if not _is_free(name, ours["settings"])]
    if decisive:
        listed = "; ".join(f"{name}: {brief(before.get(name))} there, {brief(now.get(name))} here" for name in decisive)
        raise UsageError(f"{run} holds a run with other settings ({listed}); give a new folder, or the same settings")
    return differing


def _is_free(name: str, settings: Mapping[str, Any]) -> bool:
    if name == "settings.steps":
        return bool(settings["schedule"] == "constant")  # others are stretched over all steps
    if name.startswith(("settings.eval_", "eval_env")):
        reset = settings["algorithm"]["reset"]
        return reset is None or reset["stall_validations"] is None
    return name in _FREE


def _flat(tree: Any, name: str = "") -> dict[str, Any]:
    """Every leaf by its path, such as settings.algorithm.clip.low."""
    if not isinstance(tree, Mapping) or not tree:
        return {name: tree}
    return {leaf: value for key, sub in tree.items() for leaf, value in _flat(sub, f"{name}.{key}".strip(".")).items()}
