"""The folder of a run: whose it is, what ran in it, and where its run stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.errors import UsageError, brief
from rlvr.train import checkpoint
from rlvr.train.metrics import versions

__all__ = ["claimed"]


def claimed(run: Path, about: Mapping[str, Any]) -> Path | None:
    """Make the folder this run's; gives the checkpoint to go on from, None to begin.

    Args:
        about: all that decides how the run goes, as plain JSON; written to `config.json` with versions.

    Raises:
        UsageError: it holds a run that differs, named setting by setting, or something that is no run.
    """
    path = run / "config.json"
    if (run / "metrics.jsonl").exists() and path.is_file():
        _require_same(json.loads(path.read_text(encoding="utf-8")), about, run)
        return checkpoint.latest(run / "checkpoints")
    if run.exists() and any(other != path for other in run.iterdir()):  # config.json alone: it never began
        raise UsageError(f"{run} is not empty, and holds no run; give a new folder")
    run.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({**about, "versions": versions()}, indent=2, ensure_ascii=False) + "\n", "utf-8")
    partial.replace(path)
    return None


def _require_same(theirs: Mapping[str, Any], ours: Mapping[str, Any], run: Path) -> None:
    before, now = _flat({name: theirs.get(name) for name in ours}), _flat(ours)
    differing = sorted(name for name in before | now if before.get(name) != now.get(name))
    if differing:
        listed = "; ".join(
            f"{name}: {brief(before.get(name))} there, {brief(now.get(name))} here" for name in differing
        )
        raise UsageError(f"{run} holds a run with other settings ({listed}); give a new folder, or the same settings")


def _flat(tree: Any, name: str = "") -> dict[str, Any]:
    """Every leaf by its path, such as settings.algorithm.clip.low."""
    if not isinstance(tree, Mapping) or not tree:
        return {name: tree}
    return {leaf: value for key, sub in tree.items() for leaf, value in _flat(sub, f"{name}.{key}".strip(".")).items()}
