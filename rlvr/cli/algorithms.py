"""`rlvr algorithms`: lists the algorithms, with the preset or setting that reaches each."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from rlvr.algo.table import ROWS

__all__ = ["AlgorithmsCommand"]


@dataclass
class AlgorithmsCommand:
    """List the algorithms: preset or setting, functions, and the equations that they follow.

    `rlvr train --algorithm PRESET` trains with one.

    Example: rlvr algorithms
    """

    def run(self, out: Console, err: Console) -> int:
        table = Table(
            "algorithm",
            Column("equation, functions of rlvr.algo, and how", overflow="fold"),
            show_lines=True,
        )
        for row in ROWS:
            preset = f"--algorithm {row.preset}" if row.preset else ""
            left, right = (row.name, preset), (row.equation, *row.functions, row.how)
            table.add_row(*(escape("\n".join(filter(None, lines))) for lines in (left, right)))
        out.print(table)
        return 0
