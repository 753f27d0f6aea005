"""`rlvr score`: scores the completions in a file, and continues a run that was stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape
from tyro.conf import arg

from rlvr.cli.arguments import (
    EnvironmentArgument,
    InputFile,
    MemoryMib,
    NameValues,
    Overwrite,
    SandboxLevel,
    WallSeconds,
    Workers,
    environment_of,
)
from rlvr.data.rows import Journal, Line, Row, count_rows, dump_row, read_rows
from rlvr.display import progress_bar
from rlvr.environment import Environment
from rlvr.environment.source import changed_source
from rlvr.errors import DataError, UsageError
from rlvr.scoring import MEMORY_MIB, WALL_S, Scorer
from rlvr.scoring.items import Item, item_of
from rlvr.scoring.records import input_fields, is_record_of, provenance, record
from rlvr.scoring.tally import Tally

__all__ = ["ScoreCommand"]

_READ = frozenset(("id", "task", "prompt", "outcome", "total", "parts", "why"))  # of the rows of a stopped run
_SHOWN = 20  # rejected rows listed on the terminal; the rest is counted


@dataclass
class ScoreCommand:
    """Score the completions in a file with an environment.

    Example: rlvr score gsm8k-v2 completions.jsonl -o scored.jsonl --workers 2

    A row has "completion" and says which task it answers: "task" (an index or an id), or "reference", or the columns
    of the environment's own data set.  All other columns are passed through.  See docs/using/scoring.md.
    """

    env: EnvironmentArgument
    file: InputFile
    """File with completions, .jsonl or .parquet."""
    output: Annotated[Path, arg(aliases=["-o"], metavar="OUT")]
    """Write the scores to this file, .jsonl or .parquet.  It appears when all are there, never half-written."""
    workers: Workers = None
    option: NameValues = ()
    """Set an option of the environment; may be repeated."""
    sandbox: SandboxLevel = None
    strict: bool = False
    """Stop at the first row that cannot be used, instead of leaving it out."""
    resume: bool = False
    """Continue a run that was stopped."""
    overwrite: Overwrite = False
    wall_s: WallSeconds = WALL_S
    memory_mib: MemoryMib = MEMORY_MIB

    def run(self, out: Console, err: Console) -> int:
        read_rows(self.file)  # first, so that a missing input leaves no trace of an output
        env = environment_of(self.env, self.option, self.sandbox)
        run, tally = provenance(env, self.env), Tally()
        rejected = _RejectedRows(self.output, strict=self.strict)
        if self.file.resolve() in (self.output.resolve(), rejected.path.resolve()):
            raise UsageError(f"{self.file} is the input and would be overwritten; name another output")
        journal = Journal(self.output, resume=self.resume, overwrite=self.overwrite, checksums=True)
        with journal, rejected:
            last, group = None, 0  # the last task, and its rows: the run may have been stopped among them
            for row in journal.rows():
                _require_same_run(row, run, journal.partial)
                group = group + 1 if (task := (row["task"], row["prompt"])) == last else 1
                last = task
            if env.reward.group_level:
                journal.drop(group)  # a group is scored whole
            for row in journal.rows():
                tally.add_record(row)
            with (
                Scorer(env, workers=self.workers, wall_s=self.wall_s, memory_mib=self.memory_mib) as scorer,
                progress_bar(f"scoring with {self.env}", count_rows(self.file) - journal.done, err) as tick,
            ):
                rows = _RemainingRows(self.file, rejected, env, journal, run)
                started = time.perf_counter()
                for scored in scorer.stream(rows, on_error=rows.reject):
                    row = record(scored, run)
                    journal.write(row)
                    tally.add_record(row)
                    rows.mark_scored()
                    tick()
                took_s = time.perf_counter() - started
            if not tally.count:
                raise DataError(f"{self.file}: {rejected.summary() or 'it has no rows'}; nothing was written")
            journal.finish()
        rejected.show(err)
        tally.show(out)
        fresh = tally.count - journal.done
        out.print(f"{fresh} scored in {took_s:.2f} s, {fresh / took_s:,.0f} per second; start-up not counted")
        out.print(f"written to {escape(str(self.output))}", soft_wrap=True)
        return int(bool(rejected.count or tally.unscored))


class _RemainingRows:
    """The items of a file, without those that a stopped run has scored.

    The rows of the stopped run must be the beginning of this file, or the output would be a mixture of two inputs.
    """

    def __init__(
        self, path: Path, rejected: _RejectedRows, env: Environment, journal: Journal, run: dict[str, Any]
    ) -> None:
        self._path, self._rejected, self._env, self._journal, self._run = path, rejected, env, journal, run
        self._given = 0
        self._under_way: dict[int, Line] = {}  # by number of the item: the scorer counts items, errors name lines

    def __iter__(self) -> Iterator[Item]:
        done, skipped = self._journal.rows(), set[str]()
        due = next(done, None)
        for line in read_rows(self._path):
            try:
                item = self._recordable(line)
                if item.id in skipped:
                    raise DataError(f"the id {item.id!r} was there before; ids must be unique")
            except DataError as error:
                self._rejected.add(self._path, line, error)
                continue
            if due is not None:
                if not is_record_of(due, item, self._run):
                    raise self._mismatch(f"line {line.number}, row {item.id!r},", due)
                skipped.add(item.id)
                due = next(done, None)
                continue
            self._given += 1
            self._under_way[self._given] = line
            yield item
        if due is not None:
            raise self._mismatch("its end", due)

    def _mismatch(self, what: str, row: Row) -> UsageError:
        return UsageError(
            f"{self._path}: {what} stands where the stopped run had row {row['id']!r}, as {self._journal.partial} "
            "says; pass --overwrite to begin anew"
        )

    def _recordable(self, line: Line) -> Item:
        """The item of a line, if it can be recorded.

        Checked before scoring: a reference may be no JSON, Parquet holds dates, and Python's JSON reader takes NaN.
        """
        if line.row is None:
            raise DataError(line.error)
        item = item_of(self._env, line.row, line.number)
        dump_row(input_fields(item, self._run))
        return item

    def mark_scored(self) -> None:
        """Forget the oldest line under way: scores come in order."""
        del self._under_way[next(iter(self._under_way))]

    def reject(self, number: int, error: DataError) -> None:
        """Reject the line of an item that the scorer refused.

        Args:
            number: of the item, counted from 1.
            error: why it was refused.
        """
        self._rejected.add(self._path, self._under_way.pop(number), error)


class _RejectedRows:
    """Rows that could not be used, kept in a file beside the output."""

    def __init__(self, output: Path, *, strict: bool) -> None:
        self.path = output.with_name(output.name + ".rejected.jsonl")
        self.strict = strict
        self.count = 0
        self._shown: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> _RejectedRows:
        self.path.unlink(missing_ok=True)  # an earlier run's
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def add(self, path: Path, line: Line, error: DataError) -> None:
        message = f"{path}, line {line.number}: {error}"
        if self.strict:
            raise DataError(f"{message}; fix the row, and --resume goes on from there")
        if not self.count:
            self._file = self._stack.enter_context(self.path.open("wb"))
        entry = {"line": line.number, "why": str(error), "row": line.row, "text": line.text}
        try:
            kept = dump_row(entry)
        except DataError:  # the row was rejected because it is no JSON
            kept = dump_row(entry | {"row": None, "text": repr(line.row)})
        self._file.write(kept)
        self.count += 1
        if self.count <= _SHOWN:
            self._shown.append(message)

    def show(self, err: Console) -> None:
        for message in self._shown:
            err.print(f"[yellow]left out:[/] {escape(message)}", soft_wrap=True, highlight=False)
        if self.count:
            err.print(f"{self.count} rows left out; all of them are in {escape(str(self.path))}", soft_wrap=True)

    def summary(self) -> str:
        """One line for a file of which no row could be used; empty if none was rejected."""
        if not self.count:
            return ""
        return f"none of its {self.count} rows can be used, as {self.path} says; the first is {self._shown[0]}"


def _require_same_run(row: Row, run: dict[str, Any], partial: Path) -> None:
    if missing := _READ.difference(row):
        raise UsageError(
            f"{partial}, row {row.get('id')!r} lacks {', '.join(sorted(missing))}; no run leaves this behind, so it "
            "cannot be resumed: pass --overwrite to begin anew"
        )
    if edited := changed_source(row.get("source"), run["source"]):
        raise UsageError(
            f"{partial} was scored by another program: {edited} since; pass --overwrite to begin anew, or undo the edit"
        )
    for name, value in run.items():
        if row.get(name) != value:
            raise UsageError(
                f"{partial} was scored with {name} {row.get(name)!r}, this run has {value!r}; "
                "pass --overwrite to begin anew"
            )
