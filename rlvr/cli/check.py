"""The commands that look for mistakes of ours: check an environment, audit its verdicts, filter its tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from rlvr.cli.train import options_of
from rlvr.data.rows import Journal, dump_row, read_rows, read_whole
from rlvr.environment import Environment
from rlvr.environment.registry import load, make
from rlvr.errors import UsageError
from rlvr.scoring import WALL_S

__all__ = ["Audit", "Check", "Filter"]

_Options = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")]


@dataclass
class Check:
    """Look for holes in an environment before a policy finds them.

    Example: rlvr check gsm8k-v1 --tasks 50 --option split=test

    Scores what has to be right and a catalogue of what has not, here and in other processes and threads, and compares
    tasks and splits.  Exit code 1 if there are holes or warnings.  docs/writing/checking.md says what each name means.
    """

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """Id of the environment, or where its class stands: path/to/file.py:Class."""
    tasks: int = 20
    """How many tasks are drawn for scoring."""
    every: bool = False
    """Score at every task of a finite set instead."""
    seed: int = 0
    """Of the sample."""
    budget_s: float = 300.0
    """Wall seconds after which nothing more is scored; what was left out is said."""
    wall_s: float = WALL_S
    """Wall seconds after which a completion counts as hanging."""
    only: tuple[str, ...] = ()
    """Checks to run, of: tasks references exploits repeats episodes.  All unless given."""
    skip: tuple[str, ...] = ()
    """Checks or holes to leave out, by name."""
    option: _Options = ()
    """An option of the environment, NAME=VALUE; may be repeated."""
    json: bool = False
    """Print the report as JSON instead of a table."""

    def run(self, out: Console, err: Console) -> int:
        from rlvr.testing import check

        report = check(
            _made(self.env, self.option),
            tasks=None if self.every else self.tasks,
            seed=self.seed,
            budget_s=self.budget_s,
            wall_s=self.wall_s,
            only=self.only,
            skip=self.skip,
        )
        if self.json:
            _print_json(out, report.as_dict())
        else:
            report.show(out)
        return int(not report.clean)


@dataclass
class Audit:
    """Hold an environment's verdicts against labels: how many are false, which ones, and why.

    Example: rlvr audit gsm8k-v1 labelled.jsonl --label is_correct --by model --html audit.html

    A row is one that `rlvr score` takes, with a label: true or false, 1 or 0, correct or wrong.  Exit code 1 if a
    completion was UNSCORED or a row left out, by either environment; false verdicts are what an audit is for.
    """

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """Id of the environment, or where its class stands: path/to/file.py:Class."""
    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """Labelled completions, .jsonl or .parquet."""
    label: str = "label"
    """The column that says whether a completion is right."""
    by: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="COLUMN")] = ()
    """A column to slice by; may be repeated."""
    against: str | None = None
    """Another environment whose verdicts are compared with these."""
    option: _Options = ()
    """An option of the environment, NAME=VALUE; may be repeated."""
    against_option: _Options = ()
    """An option of the other one; without --against, of the same environment."""
    worst: int = 20
    """How many cases of each kind are kept."""
    html: Path | None = None
    """Where a page with all of it goes."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Where all of it goes as JSON."""
    overwrite: bool = False
    """Replace outputs that exist."""
    json: bool = False
    """Print it as JSON instead of tables."""
    workers: int | None = None
    """Worker processes; one per core unless given, 0 for none."""

    def run(self, out: Console, err: Console) -> int:
        from rlvr.testing.audit import audit, inert
        from rlvr.testing.audit_page import page

        read_rows(self.file)  # a missing file should not cost the start of workers
        _refuse_outputs([self.html, self.output], [self.file], overwrite=self.overwrite)
        env, other = _made(self.env, self.option), None
        if self.against is not None or self.against_option:
            other = _made(self.against or self.env, self.against_option)
        found = audit(
            env,
            self.file,
            label=self.label,
            by=self.by,
            against=other,
            worst=self.worst,
            workers=self.workers,
            progress=err.is_terminal,
        )
        if self.json:
            _print_json(out, found.as_dict())
        else:
            found.show(out)
            for case in found.cases[:10]:
                line = inert(f"{case.kind} {case.id}: {case.why[:200]}")
                out.print(line, soft_wrap=True, markup=False, emoji=False, highlight=False)
        if self.html is not None:
            _put(self.html, page(found).encode("utf-8", "backslashreplace"))
        if self.output is not None:
            _put(self.output, (json.dumps(found.as_dict(), indent=2, default=str) + "\n").encode())
        for why in found.left_out[:20]:
            err.print(f"[yellow]left out:[/] {escape(inert(why))}", soft_wrap=True, emoji=False, highlight=False)
        for why in found.disagreement.left_out[:20] if found.disagreement is not None else ():
            line = f"[yellow]left out by the second:[/] {escape(inert(why))}"
            err.print(line, soft_wrap=True, emoji=False, highlight=False)
        return int(not found.whole)


@dataclass
class Filter:
    """Keep the tasks that are worth training on: by pass rate, each once, none from a test set.

    Example: rlvr filter scored.jsonl -o tasks.jsonl --min-rate 0.1 --max-rate 0.9 --min-n 4 --tests test.jsonl

    What goes stands in OUT.dropped.jsonl with its reason.  Exit code 1 if nothing is left.
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """What `rlvr score` wrote; or tasks with prompt and reference, where no rate is asked for."""
    output: Annotated[Path, arg(aliases=["-o"], metavar="OUT")]
    """Where the tasks go, .jsonl or .parquet, for `Environment.from_rows`."""
    min_rate: float = 0.0
    """The least share of correct rollouts."""
    max_rate: float = 1.0
    """The greatest."""
    min_n: int = 0
    """So many scored rollouts at least."""
    by: Literal["rate", "interval"] = "rate"
    """Drop by k/n, or only where the whole 95 % interval lies outside."""
    tests: Path | None = None
    """A test set whose prompts must not be trained on, .jsonl or .parquet."""
    test_column: str = "prompt"
    """Where its prompts stand."""
    prompt_column: str = "prompt"
    """Where those of the tasks do."""
    ngram: int = 13
    """Words that a task and a test must not share in a row; of a shorter test all of its words, from 4 up."""
    keep_duplicates: bool = False
    """Keep tasks with the same prompt."""
    near: float | None = None
    """Drop tasks that share this part of their 5-grams with an earlier one, such as 0.8."""
    overwrite: bool = False
    """Replace outputs that exist."""

    def run(self, out: Console, err: Console) -> int:
        from rlvr.data.filtering import Limits, filter_tasks

        limits = Limits(
            self.min_rate, self.max_rate, self.min_n, self.by, not self.keep_duplicates, self.near, self.ngram
        )
        gone = self.output.with_name(self.output.name + ".dropped.jsonl")
        read_rows(self.file)
        _refuse_outputs([self.output, gone], [self.file, self.tests], overwrite=self.overwrite)
        tests = [] if self.tests is None else _column(self.tests, self.test_column)
        with Journal(self.output, overwrite=self.overwrite) as journal:
            kept, dropped = filter_tasks(read_whole(self.file), limits, tests, prompt=self.prompt_column)
            for task in kept:
                journal.write(task.row())
            if kept:
                journal.finish()
        _put(gone, b"".join(dump_row(one.row()) for one in dropped))
        if not kept and self.output.exists():
            self.output.unlink()  # or it would be taken for what was kept
            err.print(f"[yellow]nothing is left:[/] removed the old {escape(str(self.output))}", soft_wrap=True)
        table = Table("", "tasks")
        table.add_row("kept", str(len(kept)))
        for reason, count in Counter(one.reason for one in dropped).most_common():
            table.add_row(escape(reason), str(count))
        out.print(table)
        out.print(f"what went, and why: {escape(str(gone))}", soft_wrap=True)
        return int(not kept)


def _made(env: str, options: tuple[str, ...]) -> Environment:
    return make(env, **options_of(load(env), options))


def _column(path: Path, name: str) -> list[str]:
    found = []
    for number, row in enumerate(read_whole(path), 1):
        if not isinstance(row.get(name), str):
            raise UsageError(f"{path}, row {number}: no text in column {name!r}; it has {', '.join(map(repr, row))}")
        found.append(row[name])
    return found


def _refuse_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path | None], *, overwrite: bool) -> None:
    """Whatever stands in the way of an output is said before anything is computed.

    Raises:
        UsageError: it is an input or another output, exists, is no file, or its folder is missing.
    """
    taken = {path.resolve(): "what is read" for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise UsageError(f"{path} is {taken[path.resolve()]}, and would be written over; name another output")
        if not path.parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.parent}")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no ordinary file; name another output")
        if path.exists() and any(path.samefile(other) for other in taken if other.exists()):
            raise UsageError(f"{path} is another name of what is read or written here; name another output")
        if path.exists() and not overwrite:
            raise UsageError(f"{path} exists; name another output, or pass --overwrite")
        taken[path.resolve()] = "another output"


def _put(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    partial.replace(path)


def _print_json(out: Console, data: dict[str, Any]) -> None:
    """As it is: a table's width, colours and emoji are nothing for a program to read."""
    out.print(json.dumps(data, indent=2, default=str), soft_wrap=True, markup=False, highlight=False, emoji=False)
