"""`rlvr pairs`: preference data from scored completions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from rlvr.cli.arguments import InputFile, Overwrite, print_json, require_outputs, say_if_unprotected
from rlvr.cli.rejected import show_left_out
from rlvr.console import label_text
from rlvr.data.formats import STDIN
from rlvr.data.pairs import PairReport, PairRules, preference_rows
from rlvr.data.rows import Journal
from rlvr.display import LeftOut
from rlvr.errors import UsageError

__all__ = ["PairsCommand"]


@dataclass
class PairsCommand:
    """Make preference data from scored completions:
    a correct and a wrong completion of the same task.

    Example: rlvr pairs scored.jsonl -o pairs.jsonl

    `rlvr train --algorithm dpo --pairs pairs.jsonl …` learns from them.

    The columns are those of TRL.  UNSCORED completions are never used.  Of the pairs of a task
    those of similar length come first, and those with the most frequent wrong answer.  Exit code 1
    if no row could be made.
    """

    file: InputFile
    """File that `rlvr score` wrote."""
    output: Annotated[Path, arg(aliases=["-o"], metavar="OUT")]
    """Write the rows to this file, .jsonl or .parquet."""
    form: Literal["pairs", "labels", "completions"] = "pairs"
    """pairs: prompt, chosen, rejected, for DPO, IPO and reward models; labels: prompt, completion,
    label, for KTO; completions: prompt and right completion, best score first, for
    rejection-sampling fine-tuning."""
    per_task: int = 2
    """Most pairs of a task; with labels and completions, most completions of each label."""
    unparsed: bool = False
    """Take completions without an answer as wrong ones too;
    these pairs teach the form of an answer."""
    truncated: bool = False
    """Take completions that hit the token limit too; these pairs teach brevity."""
    near: float = 0.2
    """Two lengths are near if they differ by at most this share of the greater one."""
    near_only: bool = False
    """Make only pairs of near length."""
    margin_scale: float | None = None
    """Add the column margin for reward models: this times the difference in credit.
    Useful with partial credit."""
    seed: int = 0
    """Draws between completions that are equally good."""
    strict: bool = False
    """Stop at the first row that cannot be used, instead of leaving it out."""
    overwrite: Overwrite = False
    json: bool = False
    """Print the report as JSON instead of a table."""

    def run(self, out: Console, err: Console) -> int:
        if str(self.file) == STDIN:
            raise UsageError(
                "rlvr pairs reads its file twice, which a pipe cannot give; write the scores to a "
                "file"
            )
        if self.margin_scale is not None and self.form != "pairs":
            raise UsageError(
                f"--margin-scale is of pairs, and --form is {self.form}; leave one of them out"
            )
        rules = PairRules(
            self.per_task, self.unparsed, self.truncated, self.near, self.near_only, self.seed
        )
        require_outputs([self.output], [self.file], overwrite=self.overwrite)
        say_if_unprotected(self.file, err)
        unusable = LeftOut()
        rows, report = preference_rows(
            self.file,
            rules,
            form=self.form,
            margin_scale=self.margin_scale,
            left_out=None
            if self.strict
            else lambda line, why: unusable.add(f"line {line.number}", why),
        )
        show_left_out(err, unusable)
        written, labels = 0, set()
        with Journal(self.output, overwrite=self.overwrite) as journal:
            for row in rows:
                journal.write(row)
                written += 1
                labels.add(row.get("label"))
            if written:
                journal.finish()
        if not written and self.output.exists():
            self.output.unlink()  # or it would be taken for what was made now
        self._show(written, report, out)
        if not written:
            why = (
                "no task has both a right and a wrong completion"
                if self.form == "pairs"
                else "no completion is left"
            )
            err.print(
                label_text("nothing is written:", f"{why}; sample more completions per task"),
                soft_wrap=True,
            )
        elif self.form == "labels" and len(labels) == 1:
            err.print(
                label_text("note:", f"all labels are {labels.pop()}; KTO needs both"),
                soft_wrap=True,
            )
        if self.form == "pairs" and report.teaches_brevity:
            err.print(
                label_text(
                    "note:",
                    f"the shorter completion is the chosen one in {report.shorter_share:.0%} of "
                    "the pairs, so that training on them shortens completions; use --near-only, "
                    "or train on the mean per token",
                ),
                soft_wrap=True,
            )
        return int(not written)

    def _show(self, written: int, report: PairReport, out: Console) -> None:
        counts = {"rows": written, **report.as_dict()}
        if self.json:
            print_json(out, counts)
            return
        table = Table("", "")
        table.add_row("rows written", str(written))
        table.add_row("tasks", str(report.tasks))
        table.add_row(
            "tasks with both right and wrong ones", str(report.tasks - _one_sided(report))
        )
        table.add_row("tasks all right / all wrong", f"{report.all_right} / {report.all_wrong}")
        if self.form == "pairs" and report.pairs:
            numbers = report.metrics()
            table.add_row("mean length of chosen", f"{numbers['chosen_length']:.1f}")
            table.add_row("mean length of rejected", f"{numbers['rejected_length']:.1f}")
            table.add_row("the shorter one is chosen", f"{report.shorter_share:.1%}")
            table.add_row("pairs of near length", f"{report.near / report.pairs:.1%}")
        for reason, count in report.left_out.most_common():
            table.add_row(f"completions left out: {reason}", str(count))
        out.print(table)


def _one_sided(report: PairReport) -> int:
    return report.tasks - report.paired
