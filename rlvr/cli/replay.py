"""`rlvr replay`: scores recorded completions again and compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated

from rich.console import Console
from tyro.conf import UseAppendAction, arg

from rlvr.cli.arguments import Accept, InputFile, Workers, say_if_unprotected
from rlvr.data.formats import count_rows
from rlvr.data.lines import Row
from rlvr.data.rows import read_whole
from rlvr.display import progress_bar
from rlvr.scoring.identity import read_identity
from rlvr.scoring.records import Difference, replay
from rlvr.text import one_line
from rlvr.types import Outcome

__all__ = ["ReplayCommand"]

_SHOWN = 20  # records with differences listed on the terminal; the rest is counted


@dataclass
class ReplayCommand:
    """Score recorded completions again and report every record whose score differs.

    Example: rlvr replay scored.jsonl

    Episodes are graded again from the files that their records hold.  UNSCORED records are passed
    over: they hold a failure of rlvr and no verdict.  Exit code 1 if a record differs or none was
    replayed.
    """

    file: InputFile
    """File that `rlvr score` wrote, .jsonl or .parquet."""
    workers: Workers = None
    allow: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="PLACE")] = ()
    """Code that the file may name as environment or in an option, path/to/file.py:Class;
    may be repeated.  A file of records runs no other code."""
    accept: Accept = ()
    rerun: bool = False
    """Make the calls of recorded episodes again, and report replies that differ."""

    def run(self, out: Console, err: Console) -> int:
        outcomes, failures = Counter[str](), list[list[Difference]]()
        count = 0
        say_if_unprotected(self.file, err)
        with progress_bar("replaying", count_rows(self.file), err) as tick:
            for differences in replay(
                _count_outcomes(read_whole(self.file), outcomes),
                workers=self.workers,
                allow=self.allow,
                accept=self.accept,
                identity=read_identity(self.file),
                rerun=self.rerun,
            ):
                count += 1
                if differences:
                    failures.append(differences)
                tick()
        for difference in chain.from_iterable(failures[:_SHOWN]):
            out.print(one_line(difference), soft_wrap=True)
        unscored = outcomes[Outcome.UNSCORED]
        passed_over = f"; {unscored} unscored records passed over" if unscored else ""
        out.print(f"{count} verdicts replayed, {len(failures)} differ{passed_over}")
        return int(bool(failures) or not count)


def _count_outcomes(rows: Iterable[Row], outcomes: Counter[str]) -> Iterator[Row]:
    for row in rows:
        outcomes[str(row.get("outcome"))] += 1
        yield row
