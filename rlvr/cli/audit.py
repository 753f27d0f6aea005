"""`rlvr audit`: compares the verdicts of an environment with labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import Positional, UseAppendAction, arg

from rlvr import viewer
from rlvr.cli.arguments import (
    MemoryMib,
    NameValues,
    Overwrite,
    Workers,
    environment_of,
    print_json,
    require_outputs,
    say_if_unprotected,
)
from rlvr.console import label_text
from rlvr.data.files import write_whole
from rlvr.data.formats import require_rows
from rlvr.display import LeftOut
from rlvr.errors import UsageError
from rlvr.text import inert

__all__ = ["AuditCommand"]

# cases and reasons on the terminal; JSON and the page have more
_SHOWN_CASES, _SHOWN_LEFT_OUT = 10, 20


@dataclass
class AuditCommand:
    """Compare an environment's verdicts with labels: how many are false, which ones, and why.

    Example: rlvr audit gsm8k-v4 labelled.jsonl --label is_correct --by model --html audit.html

    With --yardstick it measures graders of mathematics on labelled rows that come with rlvr, such
    as `rlvr audit --yardstick math --verifier my_grader.py:grade`.

    A row is one that `rlvr score` takes, with a label: true or false, 1 or 0, correct or wrong.
    Exit code 1 if either environment left a completion UNSCORED or a row out.  False verdicts do
    not change the exit code.
    """

    env: Annotated[
        Positional[str | None],
        arg(metavar="ENV", help="The environment: its id, or path/to/file.py:Class."),
    ] = None
    file: Annotated[Positional[Path | None], arg(metavar="FILE")] = None
    """File with labelled completions, .jsonl or .parquet."""
    yardstick: str | None = None
    """Measure verifiers on labelled rows that come with rlvr,
    instead of an environment on a file: math."""
    verifier: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME")] = ()
    """With --yardstick: rlvr (the default), math-verify, trl, inspect_ai, or
    path/to/file.py:FUNCTION; repeatable."""
    family: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME")] = ()
    """With --yardstick: measure on this family of rows alone; may be repeated."""
    wall_s: float = 15.0
    """With --yardstick: seconds after which the process of a verifier is killed;
    the row then counts as stopped."""
    memory_mib: MemoryMib = 4096
    label: str = "label"
    """Column that says whether a completion is right."""
    by: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="COLUMN")] = ()
    """Report separately for each value of this column; may be repeated."""
    against: str | None = None
    """Second environment, whose verdicts are compared with those of the first."""
    reward_model: Path | None = None
    """Measure this reward model against the labels too:
    RUN/model of `rlvr train --algorithm reward_model`."""
    option: NameValues = ()
    """Set an option of the environment; may be repeated."""
    against_option: NameValues = ()
    """Set an option of the second environment; without --against,
    that is the same environment again."""
    worst: int = 20
    """Number of cases of each kind that the report keeps."""
    html: Path | None = None
    """Write the whole report to this HTML page; needs the extra `view`."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Write the whole report to this file, as JSON."""
    overwrite: Overwrite = False
    json: bool = False
    """Print the report as JSON instead of tables."""
    workers: Workers = None

    def run(self, out: Console, err: Console) -> int:
        if self.yardstick is not None:
            return self._measure(self.yardstick, out)
        if self.env is None or self.file is None:
            raise UsageError("rlvr audit takes ENV and FILE, or --yardstick math without them")
        return self._audit(self.env, self.file, out, err)

    def _measure(self, yardstick: str, out: Console) -> int:
        from rlvr.testing.yardstick import measure_yardstick

        if self.env is not None or self.html is not None or self.reward_model is not None:
            raise UsageError("--yardstick takes no ENV, no FILE, no --html and no --reward-model")
        require_outputs([self.output], [], overwrite=self.overwrite)
        measurement = measure_yardstick(
            self.verifier or ("rlvr",),
            name=yardstick,
            families=self.family,
            wall_s=self.wall_s,
            memory_mib=self.memory_mib,
            workers=self.workers,
        )
        if self.json:
            print_json(out, measurement.as_dict())
        else:
            measurement.show(out, worst=self.worst)
        if self.output is not None:
            write_whole(self.output, (json.dumps(measurement.as_dict(), indent=2) + "\n").encode())
        return 0

    def _audit(self, env_id: str, file: Path, out: Console, err: Console) -> int:
        from rlvr.testing.audit import audit

        require_rows(file)  # a missing file should not cost the start of workers
        say_if_unprotected(file, err)
        require_outputs([self.html, self.output], [file], overwrite=self.overwrite)
        env, second_env = environment_of(env_id, self.option), None
        if self.against is not None or self.against_option:
            second_env = environment_of(self.against or env_id, self.against_option)
        model: Any = None
        if self.reward_model is not None:
            from rlvr.train.reward_model import RewardModel

            model = RewardModel.load(self.reward_model).scores
        result = audit(
            env,
            file,
            label=self.label,
            by=self.by,
            against=second_env,
            reward_model=model,
            worst=self.worst,
            workers=self.workers,
            progress=err.is_terminal,
        )
        if self.json:
            print_json(out, result.as_dict())
        else:
            result.show(out)
            for case in result.cases[:_SHOWN_CASES]:
                line = inert(f"{case.kind} {case.id}: {case.why[:200]}")
                out.print(line, soft_wrap=True)
        if self.html is not None:
            write_whole(self.html, viewer.report_page(result.as_dict()))
        if self.output is not None:
            write_whole(
                self.output, (json.dumps(result.as_dict(), indent=2, default=str) + "\n").encode()
            )

        _show_left_out(err, "left out", result.left_out)
        if result.disagreement is not None:
            _show_left_out(err, "left out by the second", result.disagreement.left_out)
        return int(not result.whole)


def _show_left_out(err: Console, what: str, rows: Sequence[str]) -> None:
    """By reason, with one example of each; the report has them all."""
    left_out = LeftOut()
    for text in rows:
        row, _, why = text.partition(": ")
        left_out.add(row, why)
    for line in left_out.lines(_SHOWN_LEFT_OUT):
        err.print(label_text(f"{what}:", line), soft_wrap=True)
