"""`rlvr score`: scores the completions in a file, and continues a run that was stopped."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from rich.console import Console
from rich.text import Text
from tyro.conf import Positional, arg

from rlvr.cli.arguments import (
    Accept,
    EngineAddress,
    MemoryMib,
    NameValues,
    Overwrite,
    PatienceSeconds,
    RewardText,
    SandboxLevel,
    WallSeconds,
    Workers,
    engine_at,
    environment_of,
    rows_with,
)
from rlvr.cli.rejected import show_left_out
from rlvr.console import label_text
from rlvr.data.columns import Columns, likely, missing_hint
from rlvr.data.files import real_path
from rlvr.data.formats import STDIN, count_rows, read_rows, require_rows, sources
from rlvr.data.limits import ROW_LIMITS, RowLimits
from rlvr.data.lines import Line, Row
from rlvr.data.rows import Journal, KeptLines, rejected_row
from rlvr.display import LeftOut, progress_bar
from rlvr.environment import Environment
from rlvr.errors import DataError, UsageError
from rlvr.scoring import MEMORY_MIB, WALL_S, Scored, Scorer
from rlvr.scoring.blocks import Block, Blocks, digest_of_lines
from rlvr.scoring.identity import DataDigest, IdentityFile, identity_of
from rlvr.scoring.items import Ids, Item, RowTask, hash_id, item_of, was_there
from rlvr.scoring.records import Recorder, is_record_of, provenance, require_same_run
from rlvr.scoring.shards import Shard, ShardTotals, rejected_path
from rlvr.scoring.tally import Tally
from rlvr.text import one_line
from rlvr.types import JsonDict
from rlvr.validate import require_whole

__all__ = ["ScoreCommand"]

_ENV_HELP = "The environment: its id, or path/to/file.py:name; with --verifier a file to score."
_FILES_HELP = (
    "Files with completions: JSON lines or arrays, CSV, TSV, Parquet or Arrow, also packed; "
    "patterns, folders, hub ids (owner/name:split), - for stdin."
)
_FLUSH_S = 0.1  # a kill loses the rows of so long a time; they are scored again


@dataclass
class ScoreCommand:
    """Score the completions in files with an environment, or with a verifier alone.

    Example: rlvr score gsm8k-v4 completions.jsonl -o scored.jsonl --workers 2
    Example: rlvr score --verifier math --reference-column gold answers.csv -o scored.jsonl

    A row has "completion" and says which task it answers: "task" (an index or an id), or
    "reference", or the columns of the environment's own data set.  All other columns are passed
    through.  See docs/using/scoring.md.
    """

    env: Annotated[Positional[str], arg(metavar="ENV", help=_ENV_HELP)]
    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE", help=_FILES_HELP)] = ()
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Write the scores to this file, .jsonl or .parquet, there when it is whole; - for JSON lines
    on stdout."""
    verifier: str | None = None
    """Score with this verifier alone, and no environment: a name of `rlvr verifiers`,
    or path/to/file.py:name."""
    prompt_column: str | None = None
    """Column with the prompt; a dotted path leads into it."""
    reference_column: str | None = None
    """Column with the reference, such as reward_model.ground_truth."""
    completion_column: str | None = None
    """Column with the completion: a text, chat messages, or a list of either."""
    id_column: str | None = None
    """Column with the name of the row."""
    like: Literal["", "inspect", "lighteval", "lm-eval", "trl", "verl"] = ""
    """Read the rows as this tool writes them."""
    bare: bool = False
    """Completions are the answers alone: they are put into a box."""
    peek: bool = False
    """Show three rows as they would be read, and score nothing."""
    shard: Annotated[str | None, arg(metavar="I/N")] = None
    """Score the I-th of N shares of the rows, such as 3/16; `rlvr join` makes one file of them."""
    workers: Workers = None
    scorer: EngineAddress = None
    patience_s: PatienceSeconds = 300.0
    option: NameValues = ()
    """Set an option of the environment, or a setting of the verifier; may be repeated."""
    reward: RewardText = None
    sandbox: SandboxLevel = None
    row_mib: int = ROW_LIMITS.size_bytes >> 20
    """Leave out a row that takes more in its file, unpacked, in MiB."""
    strict: bool = False
    """Stop at the first row that cannot be used, instead of leaving it out."""
    resume: bool = False
    """Continue a run that was stopped."""
    accept: Accept = ()
    overwrite: Overwrite = False
    wall_s: WallSeconds = WALL_S
    memory_mib: MemoryMib = MEMORY_MIB
    resumable: ClassVar[bool] = True

    def run(self, out: Console, err: Console) -> int:
        env_name, files, options = self._read_arguments()
        columns = Columns(
            self.prompt_column,
            self.reference_column,
            self.completion_column,
            self.id_column,
            self.like,
            self.bare,
        )
        limits = replace(
            ROW_LIMITS, size_bytes=require_whole("--row-mib", self.row_mib, 1, 1024) << 20
        )
        source = _Source(
            [source_file for file in files for source_file in sources(file)], columns, limits
        )
        env = environment_of(env_name, options, self.sandbox, reward=self.reward)
        if self.peek:
            return _peek(source, env, out)
        if self.output is None:
            raise UsageError("say where the scores go: -o OUT.jsonl, or -o - for stdout")
        to_stdout = str(self.output) == STDIN
        shard = (
            None if self.shard is None else Shard.read(self.shard, by_group=env.reward.group_level)
        )
        if shard is not None and self.output.suffix != ".jsonl":
            raise UsageError(
                f"a shard goes to a .jsonl file, not to {self.output}; `rlvr join` can write "
                f"Parquet"
            )
        rejected = _RejectedRows(None if to_stdout else self.output, strict=self.strict)
        source.refuse_output(self.output, rejected.path)
        identity, tally = identity_of(env), Tally()
        run = provenance(env, env_name, identity)
        if to_stdout:
            if self.resume:
                raise UsageError("what went to stdout cannot be resumed; give -o a file")
            if sys.stdout is None:
                raise UsageError("-o - writes to stdout, which is closed; give -o a file")
            journal: Journal | _Pipe = _Pipe()
            out = err
        else:
            journal = Journal(
                self.output,
                resume=self.resume,
                overwrite=self.overwrite,
                checksums=True,
                flush_s=_FLUSH_S,
            )
        with journal, rejected:
            first = next(journal.rows(), None) if self.resume else None
            recorded = None if first is None else str(first.get("identity"))
            identity_file = (
                IdentityFile(None, identity, accept=self.accept)
                if to_stdout
                else IdentityFile.beside(self.output, identity, recorded, accept=self.accept)
            )
            source.note = identity_file.note_data
            source.note("columns", str(columns))
            if env.reward.group_level:
                journal.drop(_last_group(journal))  # a group is scored whole
            with (
                closing(
                    _RemainingRows(
                        source, rejected, env, journal, run, tally, shard, resume=self.resume
                    )
                ) as rows,
                Scorer(
                    env,
                    workers=self.workers,
                    wall_s=self.wall_s,
                    memory_mib=self.memory_mib,
                    engine=engine_at(self.scorer, self.patience_s),
                    accept=self.accept,
                ) as scorer,
                progress_bar(
                    f"scoring with {env_name}", self._count(source, journal, shard), err
                ) as tick,
            ):
                started = time.perf_counter()
                run_identity = scorer.identity()
                for scored in scorer.stream(rows, on_error=rows.reject):
                    identity_file.follow(run_identity)
                    rows.write(scored)
                    tick()
                took_s = time.perf_counter() - started
                if tally.count:
                    identity_file.follow(scorer.identity())
            if not tally.count and (shard is None or not rows.read):
                raise DataError(
                    f"{source}: {rejected.summary() or 'it has no rows'}; nothing was written"
                )
            if shard is not None:
                ShardTotals(
                    shard.number,
                    shard.count,
                    rows.read,
                    tally.count,
                    rejected.count,
                    identity_file.identity.as_dict(),
                ).write(self.output)
            rows.forget()
            journal.finish(identity_file.notes())
            if shard is not None or self.output.suffix == ".parquet":
                identity_file.remove()  # it stands elsewhere
        rejected.show(err)
        changed = source.changed()
        if changed:
            err.print(
                label_text(
                    "warning:",
                    f"{changed} was changed while it was read: rows may be missing or torn",
                ),
                soft_wrap=True,
            )
        tally.show(out)
        fresh = tally.count - journal.done
        out.print(
            f"{fresh} scored in {took_s:.2f} s, {fresh / took_s:,.0f} per second; start-up not "
            f"counted"
        )
        out.print(f"written to {'stdout' if to_stdout else one_line(self.output)}", soft_wrap=True)
        return int(bool(rejected.count or tally.unscored or changed))

    def _count(self, source: _Source, journal: Journal | _Pipe, shard: Shard | None) -> int:
        """About how many rows are to be scored."""
        return max(0, source.count() // (1 if shard is None else shard.count) - journal.done)

    def _read_arguments(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """The environment, the files and its options: with a verifier of its own the first argument
        is a file too."""
        if self.verifier is None:
            if not self.files:
                raise UsageError(
                    f"{self.env}: say what to score, as in `rlvr score {self.env} FILE -o OUT`"
                )
            return self.env, self.files, self.option
        env, options = rows_with(self.verifier, self.option)
        return env, (self.env, *self.files), options


def _peek(source: _Source, env: Environment, out: Console) -> int:
    """Show how three rows are read."""
    shown_rows = 0
    for name, line in itertools.islice(source, 3):
        shown_rows += 1
        out.print(Text(f"{one_line(name)}, row {line.number}", "bold"))
        try:
            if line.row is None:
                raise DataError(line.error)
            item = item_of(env, line.row, line.number)
        except DataError as error:
            out.print(
                label_text("  cannot be used:", _with_flag(str(error), line.row or {}), "red"),
                soft_wrap=True,
            )
            continue
        task = item.task
        prompt = (
            task.prompt
            if isinstance(task.prompt, str)
            else json.dumps(task.prompt, ensure_ascii=False)
        )
        parts = {
            "id": repr(item.id),
            "task": task.id,
            "prompt": prompt,
            "reference": json.dumps(task.reference, ensure_ascii=False, default=str),
            "completion": item.completion.text,
            "passed on": ", ".join(item.row),
        }
        for part, text in parts.items():
            out.print(
                f"  {part:<11}{_shorten(text)}",
                soft_wrap=True,
                emoji=False,
            )
    if not shown_rows:
        raise DataError(f"{source}: it has no rows")
    return 0


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:90]} … {line[-100:]}"


def _last_group(journal: Journal | _Pipe) -> int:
    """Number of the last rows of the stopped run that answer one task: it may have been stopped
    among them."""
    rows = journal.backwards()
    last = next(rows, None)
    if last is None:
        return 0
    task = last.get("task"), last.get("prompt")
    return 1 + sum(
        1
        for _ in itertools.takewhile(lambda row: (row.get("task"), row.get("prompt")) == task, rows)
    )


class _Source:
    """The rows of some files, with our columns.

    Args:
        names: as `read_rows` takes them.
        columns: where things stand in a row.
        limits: of a row.
    """

    def __init__(self, names: list[str], columns: Columns, limits: RowLimits) -> None:
        self._names, self._columns, self._limits = names, columns, limits
        for name in names:
            require_rows(name)  # an input that cannot be read leaves no trace of an output
        self._before = {name: _state(name) for name in names}
        self.note: Callable[[str, str], None] = lambda name, digest: None
        """Called with the name and the digest of each block of rows."""

    def __str__(self) -> str:
        return (
            self._names[0]
            if len(self._names) == 1
            else f"{self._names[0]} and {len(self._names) - 1} more"
        )

    def __iter__(self) -> Iterator[tuple[str, Line]]:
        return self.rows(None)

    def rows(self, blocks: Blocks | None) -> Iterator[tuple[str, Line]]:
        """All rows, each with the name of its file.

        Args:
            blocks: leaves out those that a stopped run has finished.
        """
        for place, name in enumerate(self._names):
            digest = DataDigest(place + 1, self.note)
            through = partial(_through, digest, blocks, place)
            for line in self._columns.rows(digest.rows(read_rows(name, through, self._limits))):
                if len(self._names) > 1 and line.row is not None and line.row.get("id") is None:
                    # numbers begin anew
                    line = replace(line, row={**line.row, "id": f"{name}:{line.number}"})
                yield name, line

    @property
    def reading(self) -> JsonDict:
        """All that says which rows are read, but for the content of the files."""
        limits = {} if self._limits == ROW_LIMITS else {"limits": asdict(self._limits)}
        return {"files": self._names, "columns": asdict(self._columns), **limits}

    def count(self) -> int:
        """About how many rows there are; 0 if that is not known beforehand."""
        return sum(map(count_rows, self._names))

    def refuse_output(self, *outputs: Path | None) -> None:
        """Raise where an output would replace an input."""
        inputs = {real_path(Path(name)) for name in self._names if name != STDIN}
        for output in outputs:
            if output is not None and real_path(output) in inputs:
                raise UsageError(
                    f"{output} is the input and would be overwritten; name another output"
                )

    def changed(self) -> str:
        """The file that is not as it was at the beginning; "" if all are."""
        return next((name for name, before in self._before.items() if _state(name) != before), "")


def _through(
    digest: DataDigest, blocks: Blocks | None, file: int, lines: Iterable[bytes]
) -> Iterator[bytes]:
    lines = digest.lines(lines)
    return lines if blocks is None else blocks.lines(lines, file)


def _state(name: str) -> tuple[int, int, int] | None:
    path = Path(name)
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


class _Pipe:
    """JSON lines on stdout, with what `Journal` has for a file."""

    done = 0
    partial = Path(STDIN)

    def backwards(self) -> Iterator[Row]:
        return iter(())

    rows = backwards

    def drop(self, count: int) -> None:
        """Nothing was written before."""

    def write(self, line: bytes) -> bytes:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()  # the reader may wait for it
        return line

    def finish(self, notes: Mapping[str, str]) -> None:
        sys.stdout.buffer.flush()

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, *exc: object) -> None:
        return


@dataclass(slots=True)
class _UnderWay:
    """A row that is being scored: errors name file and line, and its record has been begun."""

    name: str
    line: Line
    place: int | None
    inputs: tuple[bytes, bytes] | None  # None until its task was made
    block: Block | None


class _RemainingRows:
    """The items of the input, without those that a stopped run has scored.

    The rows of the stopped run must be the beginning of this input, or the output would be a
    mixture of two.

    Attributes:
        read: number of rows that were read, those of other shards too.
    """

    def __init__(
        self,
        source: _Source,
        rejected: _RejectedRows,
        env: Environment,
        journal: Journal | _Pipe,
        run: dict[str, object],
        tally: Tally,
        shard: Shard | None,
        *,
        resume: bool,
    ) -> None:
        self._source, self._rejected, self._env, self._journal, self._run = (
            source,
            rejected,
            env,
            journal,
            run,
        )
        self._tally, self._recorder, self._shard = tally, Recorder(run), shard
        self._given = self.read = 0
        self._under_way: dict[int, _UnderWay] = {}  # by number of the item
        self._skipped = Ids()
        self._kept: KeptLines | None = None
        self._blocks: Blocks | None = None
        if isinstance(journal, Journal):
            self._kept = journal.kept()
            # which rows are then ours depends on all before them
            if shard is None or not shard.by_group:
                same = {"run": run, "shard": str(shard), **source.reading}
                self._blocks = Blocks(
                    journal.partial, same, resume=resume, fits=self._fits, pass_over=self._pass_over
                )

    def close(self) -> None:
        """Close the files that are beside the output."""
        if self._kept is not None:
            self._kept.close()
        if self._blocks is not None:
            self._blocks.close()

    def forget(self) -> None:
        """There will be nothing to resume."""
        if self._blocks is not None:
            self._blocks.remove()

    @property
    def _left(self) -> int:
        return 0 if self._kept is None else self._kept.left

    def __iter__(self) -> Iterator[Item]:
        skipped, shard, blocks = self._skipped, self._shard, self._blocks
        by_group = shard is not None and shard.by_group
        for name, line in self._source.rows(blocks):
            self.read += 1
            place = None if shard is None else self.read
            is_ours = shard is None or shard.has(self.read)
            block = None if blocks is None else blocks.open
            if block is not None:
                block.read += 1
            if not (is_ours or by_group):
                continue
            try:
                item, inputs = self._recordable(line, place)
                number = hash_id(item.id)
                if not skipped.put(number) if self._left or by_group else number in skipped:
                    raise was_there(item.id)
            except DataError as error:
                if is_ours:
                    self._reject(_UnderWay(name, line, place, None, block), error)
                continue
            if shard is not None and by_group and not shard.has_task(item.task):
                continue
            if block is not None:
                block.ids.append(number)
                block.whole &= not (
                    line.row and "task" in line.row and line.row.get("reference") is None
                )
            if self._kept is not None and self._kept.left:
                assert inputs is not None, "tasks are made here as long as rows are compared"
                where = f"{name}: line {line.number}"
                score = self._scored_before(self._kept.read(), item, place, inputs, where)
                self._tally.add_record(score)
                if blocks is not None and block is not None:
                    blocks.wrote(block, self._kept.raw)
                    block.tally.add_record(score)
                continue
            self._given += 1
            self._under_way[self._given] = _UnderWay(name, line, place, inputs, block)
            yield item
        if self._kept is not None and self._kept.left:
            raise self._mismatch(f"{self._source}: its end", json.loads(self._kept.read()))

    def _fits(self, block: Block) -> bool:
        assert self._kept is not None
        lines = self._kept.peek(block.records, block.size)
        return lines is not None and digest_of_lines(lines) == block.output

    def _pass_over(self, block: Block) -> None:
        assert self._kept is not None
        self._kept.skip(block.records, block.size)
        self.read += block.read
        self._tally.merge(block.tally)
        for number in block.ids:
            self._skipped.put(number)

    def _scored_before(
        self, due: bytes, item: Item, place: int | None, inputs: tuple[bytes, bytes], where: str
    ) -> Row:
        """The score of an item in the line of the stopped run that should be of it."""
        score = self._recorder.score_in(due, inputs)
        # of another row or run, or another version has written the same in another way
        if score is None:
            try:
                score = json.loads(due)
            except ValueError as error:
                raise UsageError(
                    f"{self._journal.partial}: {error}; no run leaves this behind, so it cannot be "
                    f"resumed: "
                    "pass --overwrite to begin anew"
                ) from None
            require_same_run(score, self._run, self._journal.partial, strict=False)
            if score.get("place") != place or not is_record_of(score, item, self._run):
                raise self._mismatch(f"{where}, row {item.id!r},", score)
        return score

    def _mismatch(self, what: str, row: Row) -> UsageError:
        of_shard = f"; this is shard {self._shard}" if self._shard is not None else ""
        return UsageError(
            f"{what} stands where the stopped run had row {row['id']!r}, as "
            f"{self._journal.partial} says{of_shard}; pass --overwrite to begin anew"
        )

    def _recordable(self, line: Line, place: int | None) -> tuple[Item, tuple[bytes, bytes] | None]:
        """The item of a line and the beginning of its record, if it can be recorded; None if a
        worker makes its task.

        Checked before scoring: a reference may be no JSON, Parquet holds dates, and Python's JSON
        reader takes NaN.
        """
        if line.row is None:
            raise DataError(line.error)
        # A stopped run and a shard of groups have to know at once which rows count.
        by_group = self._shard is not None and self._shard.by_group
        item = item_of(self._env, line.row, line.number, read=bool(self._left) or by_group)
        is_made = type(item.task) is not RowTask
        return item, self._recorder.inputs(item, place) if is_made else None

    def write(self, scored: Scored) -> None:
        """Write the record of the oldest item under way: scores come in order.

        Args:
            scored: that item and its score.
        """
        row = self._under_way.pop(next(iter(self._under_way)))
        try:
            inputs = row.inputs or self._recorder.inputs(scored.item, row.place)
        except DataError as error:  # of a task that a worker made
            self._reject(row, error)
            return
        written = self._journal.write(self._recorder.line(scored, inputs))
        self._tally.add(scored)
        if self._blocks is not None and row.block is not None:
            self._blocks.wrote(row.block, written)
            row.block.tally.add(scored)

    def reject(self, number: int, error: DataError) -> None:
        """Reject the line of an item that the scorer refused.

        Args:
            number: of the item, counted from 1.
            error: why it was refused.
        """
        self._reject(self._under_way.pop(number), error)

    def _reject(self, row: _UnderWay, error: DataError) -> None:
        if row.block is not None:
            row.block.whole = False
        self._rejected.add(row.name, row.line, error, row.place)


class _RejectedRows:
    """Rows that could not be used, kept in a file beside the output."""

    def __init__(self, output: Path | None, *, strict: bool) -> None:
        self.path = None if output is None else rejected_path(output)
        self.strict = strict
        self._left_out = LeftOut()
        self._first = ""
        self._stack = ExitStack()

    def __enter__(self) -> _RejectedRows:
        if self.path is not None:
            self.path.unlink(missing_ok=True)  # an earlier run's
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def add(self, name: str, line: Line, error: DataError, place: int | None) -> None:
        where, reason = f"{name}, line {line.number}", _with_flag(str(error), line.row or {})
        if self.strict:
            raise DataError(f"{where}: {reason}; fix the row, and --resume goes on from there")
        self._keep(line, reason, place)
        self._first = self._first or f"{where}: {reason}"
        self._left_out.add(where, reason)

    @property
    def count(self) -> int:
        """How many there are."""
        return self._left_out.count

    def _keep(self, line: Line, reason: str, place: int | None) -> None:
        if self.path is None:
            return
        if not self.count:
            self._file = self._stack.enter_context(self.path.open("wb"))
        self._file.write(rejected_row(line, reason, place))

    def show(self, err: Console) -> None:
        show_left_out(err, self._left_out, self.path)

    def summary(self) -> str:
        """One line for a file of which no row could be used; empty if none was rejected."""
        if not self.count:
            return ""
        where = "" if self.path is None else f", as {self.path} says"
        return f"none of its {self.count} rows can be used{where}; the first is {self._first}"


def _with_flag(reason: str, columns: Row) -> str:
    """Why a row cannot be used, with the flag that names the column which it lacks."""
    for what in ("completion", "reference"):
        if reason.endswith(missing_hint(columns, what)):
            column = likely(columns, what) or "COLUMN"
            return f"{reason}: --{what}-column {column} takes it from there"
    return reason
