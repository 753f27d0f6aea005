"""`rlvr envs`: lists the environments."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass
from importlib.resources import files

from rich.console import Console
from rich.table import Column, Table

from rlvr.console import labelled
from rlvr.environment.registry import environment_ids, load

__all__ = ["EnvsCommand"]


@dataclass
class EnvsCommand:
    """List the environments that `rlvr.make` knows, with domain, turns, check and options.

    Example: rlvr envs

    The column "check" has what `rlvr check` found in the bundled environments when this version was made; `rlvr check
    ENV` looks for holes in any of them.
    """

    def run(self, out: Console, err: Console) -> int:
        names = environment_ids()
        longest = max(map(len, names), default=0)
        table = Table(
            Column("id", min_width=longest), "domain", "turns", "check", "options", "what it is"
        )
        checked = json.loads(files("rlvr.testing").joinpath("checked.json").read_text())
        failed = 0
        for name in names:
            try:
                cls = load(name)
            except Exception as error:  # noqa: BLE001  a plugin may raise anything; the others are listed all the same
                table.add_row(name, "", "", "", "", labelled("cannot be loaded:", error, "red"))
                failed = 1
                continue
            options = ", ".join(
                option if value is MISSING else f"{option}={value!r}"
                for option, value in cls.options().items()
            )
            turns = "1" if cls.single_turn else "several"
            said = (cls.__doc__ or "").strip().partition("\n")[0]
            table.add_row(name, cls.domain, turns, _found(checked.get(name)), options, said)
        out.print(table)
        return failed


def _found(record: dict[str, int] | None) -> str:
    """The result of a check in a few words."""
    if record is None:
        return "not checked"
    if record["holes"] or record["warnings"]:
        return f"{record['holes']} holes, {record['warnings']} warnings"
    return "passes"
