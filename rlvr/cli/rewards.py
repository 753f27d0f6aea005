"""`rlvr rewards`: lists the parts of which `--reward` makes a reward."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from rich.console import Console
from rich.table import Column, Table

from rlvr.rewards.expression import PARTS
from rlvr.text import first_paragraph

__all__ = ["RewardsCommand"]

_OWN = {
    "correct": ("0 to 1", "The credit of the verdict, by the environment's own verifier."),
    "reward": ("its own", "The whole reward of the environment."),
}


@dataclass
class RewardsCommand:
    """List the parts of a reward that `--reward EXPRESSION` takes, with their arguments and bounds.

    Example: rlvr rewards

    An expression adds and subtracts parts and multiplies them by numbers; a.gate(by=b) multiplies
    two, and a.clip(low, high) limits one.  A part of your own is path/to/file.py:Name.  See
    docs/writing/rewards.md.
    """

    def run(self, out: Console, err: Console) -> int:
        table = Table(Column("part", no_wrap=True), "arguments", "bounds", "what it is")
        for name, (bounds, what) in _OWN.items():
            table.add_row(name, "", bounds, what)
        for name, kind in PARTS.items():
            arguments = [
                parameter.name
                if parameter.default is parameter.empty or callable(parameter.default)
                else f"{parameter.name}={parameter.default!r}"
                for parameter in inspect.signature(kind).parameters.values()
                if parameter.name != "name"
            ]
            limits = inspect.getattr_static(kind, "bounds")
            bounds = (
                "by its values" if isinstance(limits, property) else "{:g} to {:g}".format(*limits)
            )
            what = first_paragraph(inspect.getdoc(kind) or "")
            table.add_row(name, ", ".join(arguments), bounds, what)
        out.print(table)
        return 0
