"""Task folders of harbor as an `Environment`, graded apart; and ours as such folders.

    validate_harbor("tasks/")       # runs each solution and each empty hand, writes validation.json
    env = from_harbor("tasks/")     # a bash session for each episode
    to_harbor(rlvr.make("bash-v1"), "out/", tasks=20)

A folder loads if its own `validation.json` says that the solution earned 1 and doing nothing 0,
with these files and this Python.  Needs no harbor: written against harbor 0.25.0, task schema 1.4.
For `harbor run` itself there is `rlvr.interop.harbor_sandbox:RlvrSandbox`.
"""

from __future__ import annotations

import base64
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from rlvr.environment import Environment
from rlvr.environment.ready_tools import bash
from rlvr.environment.tools import Tool
from rlvr.episode import Ask, EpisodeRecord
from rlvr.errors import DataError, DataWarning, UsageError
from rlvr.interop.harbor_folder import HarborFolder
from rlvr.interop.harbor_trial import Workplace, begin, judge_trial, solution_files, solve_command
from rlvr.interop.harbor_validation import box_for, fault_of, task_folders
from rlvr.interop.reported import verdict_of_reward
from rlvr.sandbox import Sandbox
from rlvr.types import Outcome, Task, Verdict
from rlvr.validate import require_number

__all__ = ["HarborEnv", "from_harbor"]

_SHOWN: Final = 3


def from_harbor(
    path: str | Path,
    *,
    python: str | None = None,
    packages: Sequence[str] = (),
    split: str = "train",
    **options: Any,
) -> HarborEnv:
    """Task folders as an environment: a bash session, and the folder's own tests in a fresh box.

    A folder in a folder of several that cannot be used is left out, counted by reason in
    `rows_left_out`, and named in a warning.

    Args:
        path: one task's folder, or a folder of such folders.
        python: interpreter of the sessions and tests, see `Sandbox`.
        packages: distributions that they may import, such as "pytest".
        split: name of the tasks' split.
        options: limits, see `EpisodeLimits`; and `test_seconds`, which the tests may take at most.

    Raises:
        DataError: no folder can be used; names what it needs with file and line, or that
            `validate_harbor` has to run.
    """
    return HarborEnv(
        path=str(path), python=python, packages=tuple(packages), split=split, **options
    )


class HarborEnv(Environment):
    """Task folders of harbor; made by `from_harbor`.

    The reasons: `full-reward` is CORRECT; `reward` (below 1), `no-reward` (the tests wrote none)
    and `outputs` (too many files) WRONG.  `detail` has the rewards by name.

    Options:
        path, python, packages: see there.
        test_seconds: that the tests may take at most; the task may say less.
    """

    id: ClassVar[str] = "harbor-v1"
    domain = "tools"
    outputs = ("**",)
    turns: int = 32
    calls: int = 64
    call_seconds: float = 60.0
    episode_seconds: float = 600.0
    path: str
    python: str | None = None
    packages: tuple[str, ...] = ()
    test_seconds: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("test_seconds", self.test_seconds, above=0)
        self._loaded: dict[str, HarborFolder] = {}
        faults: dict[str, str] = {}
        for folder in task_folders(Path(self.path)):
            try:
                task = HarborFolder.read(folder)
                if fault := fault_of(task, self.python, self.packages):
                    raise DataError(f"{folder}: {fault}")
                self._loaded[f"{self.id}/{self.split}/{task.name}"] = task
            except DataError as error:
                faults[folder.name] = str(error)
        if not self._loaded:
            raise DataError("; ".join(list(faults.values())[:_SHOWN]))
        self._faults = Counter(_reason(fault) for fault in faults.values())
        if faults:
            first_faults = "; ".join(list(faults.values())[:_SHOWN])
            warnings.warn(
                f"{len(faults)} task folders are left out: {first_faults}",
                DataWarning,
                stacklevel=4,
            )

    @property
    def rows_left_out(self) -> Mapping[str, int]:
        """How many folders were left out, by reason."""
        return dict(self._faults)

    def tasks(self) -> Iterator[Task]:
        for name, folder in self._loaded.items():
            place = f"You have a bash session in {folder.workdir}. When you are done, say so."
            prompt = f"{folder.instruction.strip()}\n\n{place}"
            yield Task(name, prompt, meta={"digest": folder.digest})

    def setup(self, task: Task) -> Workplace:
        return begin(self._sandbox, self._folder(task), self.call_seconds)

    def tools(self, state: Workplace) -> list[Tool]:
        return [bash(state.session)]

    def grade(self, task: Task, box: Any) -> dict[str, object]:
        reward = judge_trial(self._sandbox, self._folder(task), box.files, self.test_seconds)
        return {"reward": reward.value, "rewards": dict(reward.rewards), "why": reward.why}

    def verify(self, task: Task, episode: EpisodeRecord) -> Verdict:
        final = episode.final if isinstance(episode.final, Mapping) else {}
        value = final.get("reward")
        detail = {"rewards": dict(final.get("rewards", {}))}
        if value is None:
            why = final.get("why") or "no-reward: nothing was judged"
            return Verdict(Outcome.WRONG, why=why, detail=detail)
        return verdict_of_reward(value, 1.0, None, detail)

    def example_episode(self, task: Task) -> list[str | Ask]:
        folder = self._folder(task)
        lines = []
        for path, data in solution_files(folder).items():
            place, packed = shlex.quote(path), base64.b64encode(data).decode()
            lines.append(f"mkdir -p $(dirname {place}); printf %s {packed} | base64 -d > {place}")
            lines += [f"chmod +x {place}"] if data.startswith(b"#!") else []
        return [Ask("bash", {"command": "\n".join([*lines, solve_command(folder)])}), "Done."]

    def _folder(self, task: Task) -> HarborFolder:
        folder = self._loaded.get(task.id)
        if folder is None:
            raise UsageError(f"{self.path} has no task {task.id!r}")
        if task.meta.get("digest", folder.digest) != folder.digest:
            raise UsageError(f"{folder.path}: its files are not those that {task.id!r} was made of")
        return folder

    @property
    def _sandbox(self) -> Sandbox:
        places = {place for folder in self._loaded.values() for place in folder.folders}
        return box_for(tuple(sorted(places)), self.python, self.packages)


def _reason(fault: str) -> str:
    """A fault without the paths in it, to be counted."""
    for short, words in {
        "not validated": "it has no validation",
        "validated otherwise": "it was validated with",
        "changed since it was validated": "have changed since",
        "solution or doing nothing earn otherwise": "it needs 1 and 0",
    }.items():
        if words in fault:
            return short
    return "cannot be played here"
