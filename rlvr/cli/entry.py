"""The `rlvr` command.  Each subcommand is a dataclass: its fields are the flags, its `run` gives the exit code.

Exit codes: 0 all well; 1 done, but something needs a look (rows left out, UNSCORED, differences, missing parts);
2 not done, one line says why; 3 a bug, ours or a plugin's, with its traceback; 130 interrupted, `--resume` goes on.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, dataclass
from importlib.metadata import version
from itertools import chain, takewhile
from pathlib import Path
from typing import Annotated, Any, Protocol

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from rlvr.cli.check import Audit, Check, Filter
from rlvr.cli.doctor import examine
from rlvr.cli.serve import Serve
from rlvr.cli.train import Eval, Plot, Train, options_of, recipe
from rlvr.data.rows import Journal, Line, Row, count_rows, dump_row, read_rows, read_whole
from rlvr.display import progress_bar
from rlvr.environment import Environment
from rlvr.environment.registry import environment_ids, load, make
from rlvr.errors import DataError, RlvrError, UsageError
from rlvr.scoring import MEMORY_MIB, WALL_S, Scorer
from rlvr.scoring.items import Item, item_of
from rlvr.scoring.records import Difference, asked, continues, provenance, record, replay
from rlvr.scoring.tally import Tally
from rlvr.types import Outcome

__all__ = ["Doctor", "Envs", "Replay", "Score", "main"]

_SHOWN = 20  # faulty rows and differences listed on the terminal; the rest is counted


class _Command(Protocol):
    def run(self, out: Console, err: Console) -> int:
        """What was asked for goes to `out`; errors, progress and what was left out to `err`."""


@dataclass
class Score:
    """Score the completions in a file with an environment.

    Example: rlvr score gsm8k-v1 completions.jsonl -o scored.jsonl --workers 2

    A row has "completion" and says which task it answers: "task" (an index or an id), or "reference", or the columns
    of the environment's own data set.  All other columns are passed through.  docs/using/scoring.md has the details.
    """

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """Id of the environment, or where its class stands: path/to/file.py:Class."""
    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """Completions, .jsonl or .parquet."""
    output: Annotated[Path, arg(aliases=["-o"], metavar="OUT")]
    """Where the scores go, .jsonl or .parquet; whole or absent, never half-written."""
    workers: int | None = None
    """Worker processes; one per core unless given, 0 for none."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """An option of the environment, NAME=VALUE; may be repeated."""
    strict: bool = False
    """Stop at the first row that cannot be used, instead of leaving it out."""
    resume: bool = False
    """Go on with a run that was stopped."""
    overwrite: bool = False
    """Replace an output that exists."""
    wall_s: float = WALL_S
    """Wall seconds after which a completion's worker is killed and it counts as UNSCORED."""
    memory_mib: int = MEMORY_MIB
    """Limit on each worker's memory."""

    def run(self, out: Console, err: Console) -> int:
        read_rows(self.file)  # first, so that a missing input leaves no trace of an output
        env = make(self.env, **options_of(load(self.env), self.option))
        run, tally = provenance(env, self.env), Tally()
        rejected = _Rejected(self.output, strict=self.strict)
        if self.file.resolve() in (self.output.resolve(), rejected.path.resolve()):
            raise UsageError(f"{self.file} is what is read, and would be written over; name another output")
        with Journal(self.output, resume=self.resume, overwrite=self.overwrite) as journal, rejected:
            for row in journal.done:
                _must_match(row, run, journal.partial)
            if env.reward.group_level:
                journal.drop(_last_group(journal.done))
            for row in journal.done:
                tally.add_record(row)
            with (
                Scorer(env, workers=self.workers, wall_s=self.wall_s, memory_mib=self.memory_mib) as scorer,
                progress_bar(f"scoring with {self.env}", count_rows(self.file) - len(journal.done), err) as tick,
            ):
                rows = _Input(self.file, rejected, env, journal, run)
                started = time.perf_counter()
                for scored in scorer.stream(rows, on_error=rows.reject):
                    row = record(scored, run)
                    journal.write(row)
                    tally.add_record(row)
                    rows.scored()
                    tick()
                took_s = time.perf_counter() - started
            if not tally.count:
                raise DataError(f"{self.file}: {rejected.summary() or 'it has no rows'}; nothing was written")
            journal.finish()
        rejected.show(err)
        tally.show(out)
        fresh = tally.count - len(journal.done)
        out.print(f"{fresh} scored in {took_s:.2f} s, {fresh / took_s:,.0f} per second; start-up not counted")
        out.print(f"written to {escape(str(self.output))}", soft_wrap=True)
        return int(bool(rejected.count or tally.unscored))


@dataclass
class Envs:
    """List the environments that `rlvr.make` knows, with their options.

    Example: rlvr envs
    """

    def run(self, out: Console, err: Console) -> int:
        table = Table("id", "options", "what it is")
        failed = 0
        for name in environment_ids():
            try:
                cls = load(name)
            except Exception as error:  # noqa: BLE001  somebody's plugin; the others are listed all the same
                table.add_row(name, "", f"[red]cannot be loaded: {escape(str(error))}")
                failed = 1
                continue
            options = ", ".join(
                option if value is MISSING else f"{option}={value!r}" for option, value in cls.options().items()
            )
            table.add_row(name, escape(options), escape((cls.__doc__ or "").strip().partition("\n")[0]))
        out.print(table)
        return failed


@dataclass
class Replay:
    """Score recorded completions again and report every record that comes out otherwise.

    UNSCORED records are passed over: they hold a failure of ours and no verdict.

    Example: rlvr replay scored.jsonl
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """What `rlvr score` wrote, .jsonl or .parquet."""
    workers: int | None = None
    """Worker processes; one per core unless given, 0 for none."""

    def run(self, out: Console, err: Console) -> int:
        outcomes, found = Counter[str](), list[list[Difference]]()
        count = 0
        with progress_bar("replaying", count_rows(self.file), err) as tick:
            for differences in replay(_noted(read_whole(self.file), outcomes), workers=self.workers):
                count += 1
                if differences:
                    found.append(differences)
                tick()
        for difference in chain.from_iterable(found[:_SHOWN]):
            out.print(escape(str(difference)), soft_wrap=True)
        unscored = outcomes[Outcome.UNSCORED]
        passed_over = f"; {unscored} unscored records passed over" if unscored else ""
        out.print(f"{count} verdicts replayed, {len(found)} differ{passed_over}")
        return int(bool(found) or not count)


@dataclass
class Doctor:
    """Say what is installed, what works, what is missing and how to get it.

    Example: rlvr doctor
    """

    def run(self, out: Console, err: Console) -> int:
        marks = {True: "[green]ok", False: "[red]MISSING", None: "[yellow]absent"}
        table = Table("", "part", "found", "remedy")
        healthy = True
        for finding in examine():
            healthy &= finding.ok is not False
            table.add_row(marks[finding.ok], finding.what, escape(finding.detail), escape(finding.remedy))
        out.print(table)
        return int(not healthy)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    out, err = Console(), Console(stderr=True)
    if list(argv) == ["--version"]:
        out.print(f"rlvr {version('rlvr')}", highlight=False)
        return 0
    command: _Command | None = None
    try:
        command = _asked_for(argv)
        return command.run(out, err)
    except (RlvrError, OSError) as error:  # the caller's, the environment's, the disk's: one line says which
        err.print(f"[bold red]rlvr:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        return 2
    except Exception:  # noqa: BLE001  a bug, ours or a plugin's: whole, and not with the code for "done, look"
        err.print_exception()
        return 3
    except KeyboardInterrupt:
        err.print("interrupted" + "; `--resume` goes on where it stopped" * isinstance(command, Score))
        return 130


def _asked_for(argv: Sequence[str]) -> _Command:
    if len(argv) > 1 and argv[0] == "train" and not argv[1].startswith("-"):
        return recipe(argv[1], argv[2:])
    commands: dict[str, Any] = {
        "score": Score,
        "envs": Envs,
        "replay": Replay,
        "check": Check,
        "audit": Audit,
        "filter": Filter,
        "train": Train,
        "eval": Eval,
        "plot": Plot,
        "serve": Serve,
        "doctor": Doctor,
    }
    command: _Command = tyro.extras.subcommand_cli_from_dict(
        commands,
        prog="rlvr",
        description="Verifiable rewards: score completions, list environments, replay records, train and evaluate "
        "policies, serve scores over HTTP, examine the machine.  `rlvr --version` says which one this is.",
        args=argv,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return command


class _Input:
    """The rows of a file with their line numbers as ids, less those that a stopped run has scored.

    What it has scored has to be the beginning of this input, or the output would be a mixture.
    """

    def __init__(
        self, path: Path, rejected: _Rejected, env: Environment, journal: Journal, run: dict[str, Any]
    ) -> None:
        self._path, self._rejected, self._env, self._journal, self._run = path, rejected, env, journal, run
        self._given = 0
        self._under_way: dict[int, Line] = {}  # the scorer counts items, people count lines

    def __iter__(self) -> Iterator[Item]:
        done, skipped = deque(self._journal.done), set[str]()
        for line in read_rows(self._path):
            try:
                item = self._recordable(line)
                if item.id in skipped:
                    raise DataError(f"the id {item.id!r} was there before; ids must be unique")
            except DataError as error:
                self._rejected.add(self._path, line, error)
                continue
            if done:
                if not continues(done[0], item, self._run):
                    raise self._mismatch(f"line {line.number}, row {item.id!r},", done[0])
                skipped.add(item.id)
                done.popleft()
                continue
            self._given += 1
            self._under_way[self._given] = line
            yield item
        if done:
            raise self._mismatch("its end", done[0])

    def _mismatch(self, what: str, row: Row) -> UsageError:
        return UsageError(
            f"{self._path}: {what} stands where the stopped run had row {row['id']!r}, as {self._journal.partial} "
            "says; pass --overwrite to begin anew"
        )

    def _recordable(self, line: Line) -> Item:
        """Before it is scored: an author's reference may be no JSON, Parquet holds dates, and Python reads NaN."""
        if line.row is None:
            raise DataError(line.error)
        item = item_of(self._env, line.row, line.number)
        dump_row(asked(item, self._run))
        return item

    def scored(self) -> None:
        """Scores come in order: the oldest line is done with."""
        del self._under_way[next(iter(self._under_way))]

    def reject(self, number: int, error: DataError) -> None:
        """The scorer has no use for the item of this number."""
        self._rejected.add(self._path, self._under_way.pop(number), error)


class _Rejected:
    """Rows that could not be used, kept beside the output so that nothing is lost."""

    def __init__(self, output: Path, *, strict: bool) -> None:
        self.path = output.with_name(output.name + ".rejected.jsonl")
        self.strict = strict
        self.count = 0
        self._shown: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> _Rejected:
        self.path.unlink(missing_ok=True)  # an earlier run's
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def add(self, path: Path, line: Line, error: DataError) -> None:
        message = f"{path}, line {line.number}: {error}"
        if self.strict:
            raise DataError(f"{message}; mend the row, and --resume goes on from there")
        if not self.count:
            self._file = self._stack.enter_context(self.path.open("wb"))
        entry = {"line": line.number, "why": str(error), "row": line.row, "text": line.text}
        try:
            kept = dump_row(entry)
        except DataError:  # that is what is wrong with it
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
        """In one line, where nothing else was there; empty if nothing was left out."""
        if not self.count:
            return ""
        return f"none of its {self.count} rows can be used, as {self.path} says; the first is {self._shown[0]}"


def _must_match(row: Row, run: dict[str, Any], partial: Path) -> None:
    for name, value in run.items():
        if row.get(name) != value:
            raise UsageError(
                f"{partial} was scored with {name} {row.get(name)!r}, this run has {value!r}; "
                "pass --overwrite to begin anew"
            )


def _last_group(done: Sequence[Row]) -> int:
    """How many rows the last task has: the run may have been stopped among them, and a group is scored whole."""
    last = [(row["task"], row["prompt"]) for row in done[-1:]]
    return sum(1 for _ in takewhile(lambda row: (row["task"], row["prompt"]) == last[0], reversed(done)))


def _noted(rows: Iterable[Row], outcomes: Counter[str]) -> Iterator[Row]:
    for row in rows:
        outcomes[str(row.get("outcome"))] += 1
        yield row
