"""`rlvr check`: looks for holes in an environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from rlvr import viewer
from rlvr.cli.arguments import (
    EnvironmentArgument,
    NameValues,
    Overwrite,
    RewardText,
    SandboxLevel,
    StrictRows,
    environment_of,
    print_json,
    require_outputs,
    rows_with,
)
from rlvr.data.files import write_whole
from rlvr.scoring import WALL_S

__all__ = ["CheckCommand"]


@dataclass
class CheckCommand:
    """Look for holes in an environment before a policy finds them.

    Example: rlvr check gsm8k-v4 --tasks 50 --option split=test

    Scores answers that must be right and a catalogue of answers that must not be, in this process,
    in others and in threads; compares tasks and splits.  Exit code 1 if there are holes or
    warnings.  docs/writing/checking.md explains each name.

    Example: rlvr check my_verifier.py:OneOf --data rows.jsonl

    With --data it checks a verifier on rows of prompt and reference.
    """

    env: EnvironmentArgument
    data: Annotated[str | None, arg(metavar="ROWS")] = None
    """Check a verifier on these rows, a file or a hub id: ENV is then a name of `rlvr verifiers`,
    or path/to/file.py:name of your own."""
    tasks: int = 20
    """Number of tasks that are drawn for scoring."""
    every: bool = False
    """Score every task of a finite set, instead of a sample."""
    seed: int = 0
    """Seed of the sample of tasks."""
    budget_s: float = 300.0
    """Seconds after which no further completion is scored; the report lists what was left out."""
    wall_s: float = WALL_S
    """Seconds after which a completion counts as hanging."""
    labels: Path | None = None
    """Score these completions too, which a person called right or wrong:
    a file of `rlvr view --labels`."""
    workers: int | None = None
    """Number of worker processes;
    by default one per core where more than 20 tasks are drawn, else one."""
    only: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """Checks to run, out of: tasks references exploits verifier repeats episodes labels."""
    skip: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: none)")] = ()
    """Names of checks or holes to leave out."""
    option: NameValues = ()
    """Set an option of the environment, or a setting of the verifier; may be repeated."""
    strict: StrictRows = False
    reward: RewardText = None
    sandbox: SandboxLevel = None
    html: Path | None = None
    """Write the report to this HTML page; needs the extra `view`."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Write the report to this file, as JSON; `rlvr view` shows it."""
    overwrite: Overwrite = False
    json: bool = False
    """Print the report as JSON instead of a table."""

    def run(self, out: Console, err: Console) -> int:
        from rlvr.testing import check

        require_outputs([self.html, self.output], [], overwrite=self.overwrite)
        env, options = self.env, self.option
        if self.data is not None:
            env, options = rows_with(self.env, self.option, data=self.data)
        report = check(
            environment_of(env, options, self.sandbox, reward=self.reward, strict=self.strict),
            tasks=None if self.every else self.tasks,
            seed=self.seed,
            budget_s=self.budget_s,
            wall_s=self.wall_s,
            only=self.only,
            skip=self.skip,
            workers=self.workers,
            labels=self.labels,
        )
        if self.json:
            print_json(out, report.as_dict())
        else:
            report.show(out)
        if self.html is not None:
            write_whole(self.html, viewer.report_page(report.as_dict()))
        if self.output is not None:
            write_whole(
                self.output, (json.dumps(report.as_dict(), indent=2, default=str) + "\n").encode()
            )
        return int(not report.clean)
