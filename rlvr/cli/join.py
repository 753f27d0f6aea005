"""`rlvr join`: makes one file of the shards that `rlvr score --shard` wrote."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from rlvr.cli.arguments import Accept, Overwrite, require_outputs
from rlvr.data.files import whole_file
from rlvr.data.rows import Journal, dump_row
from rlvr.errors import DataError
from rlvr.scoring.identity import IdentityFile, require_acceptable
from rlvr.scoring.items import Ids, was_there
from rlvr.scoring.shards import joined_rows, read_totals, rejected_path
from rlvr.scoring.tally import Tally
from rlvr.text import one_line

__all__ = ["JoinCommand"]

_FLUSH_S = 1.0


@dataclass
class JoinCommand:
    """Join the shards of a run into the file that one `rlvr score` would have written.

    Example: rlvr join scored-*.jsonl -o scored.jsonl

    Checks that the shards are of one input and one run, and that no row is missing or there twice.
    """

    files: Annotated[
        Positional[tuple[Path, ...]], arg(metavar="FILE", help="The outputs of all shards.")
    ]
    output: Annotated[Path, arg(aliases=["-o"], metavar="OUT")]
    """Write the scores to this file, .jsonl or .parquet."""
    overwrite: Overwrite = False
    accept: Accept = ()

    def run(self, out: Console, err: Console) -> int:
        # A pattern such as scored-*.jsonl finds the rows that were left out too.
        files = [file for file in self.files if not file.name.endswith(".jsonl.rejected.jsonl")]
        if not files:
            raise DataError("no shards were named; give the outputs of rlvr score --shard")
        require_acceptable(self.accept)
        totals, identity = read_totals(files, self.accept)  # before anything is written
        rejected = rejected_path(self.output)
        require_outputs(
            [self.output, rejected], [*files, *map(rejected_path, files)], overwrite=self.overwrite
        )
        rejected.unlink(missing_ok=True)
        tally, ids, left_out = Tally(), Ids(), list[bytes]()
        with ExitStack() as stack:
            journal = stack.enter_context(
                Journal(self.output, overwrite=self.overwrite, checksums=True, flush_s=_FLUSH_S)
            )
            # a join that failed has nothing to resume
            stack.callback(journal.partial.unlink, missing_ok=True)
            for row in joined_rows(files, totals):
                if not row.is_record:
                    left_out.append(row.line)
                    continue
                record = json.loads(row.line)
                try:
                    # of two rows with one id in different shards one run keeps the first
                    ids.add(record["id"])
                except DataError:
                    why = str(was_there(record["id"]))
                    left_out.append(
                        dump_row({"line": None, "why": why, "row": record, "text": ""})[:-1]
                    )
                    continue
                tally.add_record(record)
                journal.write(row.line + b"\n")
            if not tally.count:
                raise DataError(
                    f"{self.output}: no row of the {len(files)} shards could be used; nothing was "
                    f"written"
                )
            identity_file = IdentityFile.beside(self.output, identity)
            if self.output.suffix == ".jsonl":
                identity_file.write()
            journal.finish(identity_file.notes())
        if left_out:
            with whole_file(rejected) as file:
                file.write(b"".join(line + b"\n" for line in left_out))
            err.print(
                f"{len(left_out)} rows left out; all of them are in {one_line(rejected)}",
                soft_wrap=True,
            )
        tally.show(out)
        out.print(f"{len(files)} shards joined, written to {one_line(self.output)}", soft_wrap=True)
        return int(bool(left_out or tally.unscored))
