"""`rlvr strength`: measures how much wrong work each task pays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from tyro.conf import arg

from rlvr import viewer
from rlvr.cli.arguments import (
    EnvironmentArgument,
    NameValues,
    Overwrite,
    SandboxLevel,
    StrictRows,
    Workers,
    environment_of,
    print_json,
    require_outputs,
)
from rlvr.console import Plainly, label_text
from rlvr.data.files import write_whole
from rlvr.data.formats import read_rows
from rlvr.display import LeftOut
from rlvr.environment import Environment
from rlvr.errors import DataError, UsageError

if TYPE_CHECKING:
    from rlvr.testing.strength import WrittenWork

__all__ = ["StrengthCommand"]


@dataclass
class StrengthCommand:
    """Measure how much wrong work each task pays, with evidence found without the verifier.

    Example: rlvr strength humaneval-v3 --option data=HumanEval.jsonl --every -o strength.json

    For each task it makes slips in the reference solution (and takes completions that models
    wrote), looks for an input on which each differs from the reference, and scores it.  Wrong work
    that is paid is a hole.  Exit code 1 if there is one, or if right work is refused.
    docs/writing/checking.md explains the terms.
    """

    env: EnvironmentArgument
    output: Annotated[Path, arg(aliases=["-o"], metavar="OUT")]
    """Write the report to this file, as JSON; `rlvr view` shows it,
    and `rlvr filter --strength` reads it."""
    tasks: int = 20
    """Number of tasks."""
    every: bool = False
    """Measure every task of a finite set, instead of a sample."""
    works: int = 8
    """Number of wrong works that are made for each task."""
    completions: Annotated[Path | None, arg(metavar="FILE")] = None
    """Completions that models wrote, with their tasks,
    as `rlvr score` takes them or a run kept them; tried too.
    One with `label` right is right work."""
    strengthen: Annotated[Path | None, arg(metavar="OUT.jsonl")] = None
    """Write a copy of the environment's data to this file, with cases that refute the wrong work
    that is paid, in its own columns; a manifest beside it says what each case is for."""
    seed: int = 0
    """Seed of the sample of tasks and of the work."""
    workers: Workers = None
    budget_s: float | None = None
    """Seconds after which no further task is begun; the report counts those that were left out."""
    resume: bool = False
    """Go on with a run that was stopped: tasks that are in OUT.part are not measured again."""
    option: NameValues = ()
    """Set an option of the environment; may be repeated."""
    strict: StrictRows = False
    sandbox: SandboxLevel = None
    html: Path | None = None
    """Write the report to this HTML page; needs the extra `view`."""
    overwrite: Overwrite = False
    json: bool = False
    """Print the report as JSON instead of a table."""

    def run(self, out: Console, err: Console) -> int:
        from rlvr.testing.strength import measure_strength
        from rlvr.testing.strengthen import SourceRows, manifest_path, write_strengthened

        part = Path(f"{self.output}.part")
        manifest = None if self.strengthen is None else manifest_path(self.strengthen)
        if self.strengthen is not None and self.strengthen.suffix != ".jsonl":
            raise UsageError(
                f"--strengthen {self.strengthen}: it is written as JSON lines; name it .jsonl"
            )
        outputs = [self.html, self.output, self.strengthen, manifest]
        require_outputs(outputs, [self.completions], overwrite=self.overwrite)
        if part.exists() and not self.resume:
            if not self.overwrite:
                raise UsageError(
                    f"{part} is of a run that was stopped; give --resume, or --overwrite"
                )
            part.unlink()
        env = environment_of(self.env, self.option, self.sandbox, strict=self.strict)
        source = None if self.strengthen is None else SourceRows(env)
        report = measure_strength(
            env,
            tasks=None if self.every else self.tasks,
            works=self.works,
            completions=self._read_completions(env, err),
            seed=self.seed,
            workers=self.workers,
            budget_s=self.budget_s,
            journal=part,
            mending=self.strengthen is not None,
        )
        tree = report.as_dict()
        write_whole(self.output, (json.dumps(tree, indent=2) + "\n").encode())
        if self.html is not None:
            write_whole(self.html, viewer.report_page(tree))
        lines = []
        if self.strengthen is not None and source is not None:
            lines = write_strengthened(source, tree, self.strengthen)
        if not report.left_out:
            part.unlink()
        if self.json:
            print_json(out, tree)
        else:
            report.show(out)
        for line in lines:
            (err if self.json else out).print(Plainly(line), soft_wrap=True)
        return int(not report.clean)

    def _read_completions(self, env: Environment, err: Console) -> Iterator[WrittenWork]:
        """The completions of the file, with the ids of their tasks."""
        from rlvr.testing.audit import label_of
        from rlvr.testing.strength import WrittenWork

        if self.completions is None:
            return
        left = LeftOut()
        for line in read_rows(self.completions):
            try:
                if line.row is None:
                    raise DataError(line.error)
                columns = dict(line.row)
                label, text = columns.pop("label", None), columns.get("completion")
                if not isinstance(text, str):
                    raise DataError("no text in column 'completion'")
                is_right = None if label is None else label_of(label)
                yield WrittenWork(env.task_of(columns).id, text, is_right)
            except (LookupError, TypeError, UsageError) as error:
                left.add(f"row {line.number}", str(error))
        for line_left_out in left.lines(3):
            err.print(label_text("left out:", line_left_out), soft_wrap=True)
