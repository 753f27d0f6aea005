"""`rlvr algorithms`: lists the algorithms, with the preset or setting that reaches each."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlvr.algo.table import ROWS

__all__ = ["AlgorithmsCommand"]


@dataclass
class AlgorithmsCommand:
    """List the algorithms: preset or setting, functions, and the equations that they follow.

    `rlvr train --algorithm PRESET` trains with one.

    Example: rlvr algorithms
    """

    def run(self, out: Console, err: Console) -> int:
        table = Table("algorithm", "preset", "functions of rlvr.algo", "equation", "how")
        for row in ROWS:
            cells = (row.name, row.preset or "–", ", ".join(row.functions), row.equation, row.how)
            table.add_row(*map(escape, cells))
        out.print(table)
        return 0
