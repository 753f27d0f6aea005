"""Which task folders of harbor may be used: those whose solution earns 1 and
whose empty hand earns 0.

`validation.json` in each folder says so, with a digest of its files and the Python that ran them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rlvr.environment.ready_tools import sandbox
from rlvr.errors import DataError
from rlvr.interop.harbor_folder import VALIDATION, HarborFolder
from rlvr.interop.harbor_trial import HarborReward, Workplace, begin, judge_trial, solve
from rlvr.sandbox import Sandbox
from rlvr.sandbox.toolchains import find_python

__all__ = ["box_for", "fault_of", "task_folders", "validate_harbor"]

_VALIDATED_S: Final = 600.0  # that a solution may take, if the task does not say less


def validate_harbor(
    path: str | Path, *, python: str | None = None, packages: Sequence[str] = ()
) -> dict[str, str]:
    """Play each task twice, by its own solution and by doing nothing, and write down what each
    earned.

    Args:
        path: one task's folder, or a folder of such folders; each that can be read gets a
            `validation.json`.
        python, packages: see `from_harbor`.

    Returns:
        Why each folder cannot be used, by its name; "" where it can.

    Raises:
        SandboxFailed: we failed.
    """
    reasons = {}
    for folder in task_folders(Path(path)):
        try:
            task = HarborFolder.read(folder)
            report = _validate_task(task, python, packages)
            (folder / VALIDATION).write_text(json.dumps(report, indent=2) + "\n")
            reasons[folder.name] = fault_of(task, python, packages)
        except DataError as error:
            reasons[folder.name] = str(error)
    return reasons


def box_for(places: tuple[str, ...], python: str | None, packages: Sequence[str]) -> Sandbox:
    """The sandbox of this process that has these folders.

    Args:
        places: absolute names.
        python, packages: see `from_harbor`.
    """
    return sandbox(folders=places, python=python, packages=tuple(packages))


def task_folders(path: Path) -> list[Path]:
    """The folder itself, or those in it that have a task.toml.

    Args:
        path: of either.

    Raises:
        DataError: there is none.
    """
    if (path / "task.toml").exists():
        return [path]
    folders = sorted(config_file.parent for config_file in path.glob("*/task.toml"))
    if not folders:
        raise DataError(f"{path}: neither it nor a folder in it has a task.toml")
    return folders


def _validate_task(
    task: HarborFolder, python: str | None, packages: Sequence[str]
) -> dict[str, object]:
    box = box_for(task.folders, python, packages)

    def play(act: Callable[[Workplace, HarborFolder], None]) -> dict[str, object]:
        began = time.monotonic()
        place = begin(box, task, min(_VALIDATED_S, task.agent_s))
        try:
            act(place, task)
            place.freeze()
            left = place.outputs(())
        finally:
            place.close()
        reward: HarborReward = judge_trial(box, task, left, _VALIDATED_S)
        seconds = round(time.monotonic() - began, 2)
        played = {"reward": reward.value, "rewards": dict(reward.rewards), "seconds": seconds}
        return played | ({"why": reward.why, "tail": reward.tail} if reward.why else {})

    return {
        "digest": task.digest,
        "oracle": play(solve),
        "nop": play(lambda place, folder: None),
        "versions": {"rlvr": version("rlvr"), "python": _python(python), "schema": "1.4"},
        "packages": sorted(packages),
    }


def fault_of(task: HarborFolder, python: str | None, packages: Sequence[str]) -> str:
    """Why a folder does not load; "" if it does.

    Args:
        task: the folder.
        python, packages: see `from_harbor`.
    """
    path = task.path / VALIDATION
    again = f"run rlvr.interop.validate_harbor({str(task.path)!r})"
    if not path.is_file():
        return f"it has no {VALIDATION}; {again}"
    try:
        report = json.loads(path.read_text())
        earned = {name: report[name]["reward"] for name in ("oracle", "nop")}
        digest, ran_by = report["digest"], report["versions"]["python"]
        imports = set(report["packages"])
    except (ValueError, KeyError, TypeError) as error:
        return f"its {VALIDATION} cannot be read ({type(error).__name__}: {error}); {again}"
    if digest != task.digest:
        return f"its files have changed since it was validated; {again}"
    if ran_by != _python(python):
        return f"it was validated with Python {ran_by}, and this is {_python(python)}; {again}"
    if missing := sorted(imports - set(packages)):
        return f"it was validated with packages={missing}; give them, or {again}"
    if earned["oracle"] != 1 or earned["nop"] != 0:
        tail = " ".join(str(report["oracle"].get("tail", "")).split())[-120:]
        return (
            f"its solution earned {earned['oracle']} and doing nothing {earned['nop']}, and it "
            f"needs 1 and 0" + (f" (the tests said: {tail})" if tail else "")
        )
    return ""


def _python(python: str | None) -> str:
    numbers = find_python(python).version if python else sys.version_info[:3]
    return ".".join(map(str, numbers[:2]))
