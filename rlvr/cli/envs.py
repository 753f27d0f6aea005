"""`rlvr envs`: lists the environments."""

from __future__ import annotations

import inspect
import json
from dataclasses import MISSING, dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from tyro.conf import Positional, arg

from rlvr.console import label_text
from rlvr.data.named_sets import NAMED_SETS
from rlvr.environment.registry import environment_ids, load
from rlvr.errors import foreign_code
from rlvr.text import first_paragraph

if TYPE_CHECKING:
    from rlvr.environment.base import Environment

__all__ = ["EnvsCommand"]


@dataclass
class EnvsCommand:
    """List the environments that `rlvr.make` knows; or show one with its options.

    Example: rlvr envs gsm8k-v4

    The column "check" has what `rlvr check` found in the bundled environments when this version was
    made; `rlvr check ENV` looks for holes in any of them.
    """

    env: Positional[Annotated[str | None, arg(metavar="ENV")]] = None
    """Show this one: its id, or path/to/file.py:name of a class."""

    def run(self, out: Console, err: Console) -> int:
        if self.env is not None:
            _show(load(self.env), out)
            return 0
        names = environment_ids()
        longest = max(map(len, names), default=0)
        table = Table(Column("id", min_width=longest), "domain", "turns", "check", "what it is")
        checked = json.loads(files("rlvr.testing").joinpath("checked.json").read_text())
        failed = 0
        for name in names:
            with foreign_code() as errors:
                cls = load(name)
            if errors:
                table.add_row(name, "", "", "", label_text("cannot be loaded:", errors[0], "red"))
                failed = 1
                continue
            turns = str(cls.options().get("turns", 1))
            summary = first_paragraph(cls.__doc__ or "")
            table.add_row(name, cls.domain, turns, _found(checked.get(name)), summary)
        out.print(table)
        out.print("rlvr envs ENV shows one with its options")
        return failed


def _show(cls: type[Environment], out: Console) -> None:
    """What an environment is, and its options with their defaults."""
    summary = inspect.getdoc(cls) or f"{cls.__name__} does not say what it is."
    out.print(Text(summary), soft_wrap=True)
    table = Table("option", "default")
    for name, value in cls.options().items():
        table.add_row(name, Text("must be given" if value is MISSING else repr(value)))
    out.print(table)
    for name, named_set in NAMED_SETS.items():
        if named_set.env == cls.id:
            summary = (
                f"--option data={name}: {named_set.rows} rows of {named_set.hub}, "
                f"split {named_set.split}"
            )
            out.print(f"{summary}; licence {named_set.licence}", soft_wrap=True, highlight=False)


def _found(record: dict[str, int] | None) -> str:
    """The result of a check in a few words."""
    if record is None:
        return "not checked"
    if record["holes"] or record["warnings"]:
        return f"{record['holes']} holes, {record['warnings']} warnings"
    return "passes"
