"""`rlvr envs`: lists the environments."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlvr.environment import MultiTurnEnv
from rlvr.environment.registry import environment_ids, load

__all__ = ["EnvsCommand"]


@dataclass
class EnvsCommand:
    """List the environments that `rlvr.make` knows, with domain, turns and options; `rlvr check` tests one.

    Example: rlvr envs
    """

    def run(self, out: Console, err: Console) -> int:
        table = Table("id", "domain", "turns", "options", "what it is")
        failed = 0
        for name in environment_ids():
            try:
                cls = load(name)
            except Exception as error:  # noqa: BLE001  a plugin may raise anything; the others are listed all the same
                table.add_row(name, "", "", "", f"[red]cannot be loaded: {escape(str(error))}")
                failed = 1
                continue
            options = ", ".join(
                option if value is MISSING else f"{option}={value!r}" for option, value in cls.options().items()
            )
            turns = "several" if issubclass(cls, MultiTurnEnv) else "1"
            table.add_row(
                name, escape(cls.domain), turns, escape(options), escape((cls.__doc__ or "").strip().partition("\n")[0])
            )
        out.print(table)
        return failed
