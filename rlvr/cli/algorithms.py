"""`rlvr algorithms`: lists the algorithms, or shows the equations, numbers and sources of one.
Needs no torch."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

from rich.console import Console
from rich.table import Column, Table
from tyro.conf import FlagCreatePairsOff, Positional, arg

from rlvr.algo.papers import NAMES, algorithm_class, load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import flag_of, paper_numbers
from rlvr.errors import UsageError

__all__ = ["AlgorithmsCommand"]


@dataclass
class AlgorithmsCommand:
    """List the algorithms, or show one: its equations, its numbers with their defaults,
    and where they stand.

    `rlvr train --algorithm NAME` trains with one.  NAME may be FILE.py:CLASS or
    PACKAGE.MODULE:CLASS, of your own.

    Example: rlvr algorithms dapo
    """

    name: Positional[Annotated[str | None, arg(metavar="NAME")]] = None
    """Show this one."""
    check: FlagCreatePairsOff[bool] = False
    """Try, on a tiny model, whether it keeps what the trainer promises: equal gradients however
    rows are split, on two ranks too; nothing learned from masked tokens, fields that are read, and
    more."""

    def run(self, out: Console, err: Console) -> int:
        if self.name is None:
            if self.check:
                raise UsageError("--check tries one algorithm; give its name, such as mine.py:Mine")
            out.print(_make_table())
        elif self.check:
            return _check(self.name, out)
        else:
            _show(algorithm_class(self.name), out)
        return 0


def _check(name: str, out: Console) -> int:
    algorithm = load_algorithm(name)
    findings = import_module("rlvr.train.conformance").conforms(algorithm, on_ranks=True)
    for finding in findings:
        out.print(f"{'FAILS' if finding.fault else 'holds'}  {finding.rule}", soft_wrap=True)
        if finding.fault:
            out.print(f"       {finding.fault}", soft_wrap=True)
    return int(any(result.fault for result in findings))


def _make_table() -> Table:
    table = Table("--algorithm", Column("paper and equations", overflow="fold"), "updates")
    for name in NAMES:
        kind = algorithm_class(name)
        table.add_row(name, f"{kind.title}\n{kind.paper}, {kind.equations}", _updates(kind))
    return table


def _updates(kind: type[Algorithm]) -> str:
    is_ours = kind.printed.updates is None and kind.__module__.startswith("rlvr.")
    return f"{kind.updates}" + (" (ours)" if is_ours else "")


def _show(kind: type[Algorithm], out: Console) -> None:
    def line(text: str) -> None:
        out.print(text, soft_wrap=True)

    algorithm = kind()
    line(inspect.cleandoc(sys.modules[kind.__module__].__doc__ or kind.__doc__ or ""))
    line(f"\n{algorithm.label}: {_updates(kind)} updates per batch")
    printed = {
        field.name: getattr(kind.printed, field.name)
        for field in dataclasses.fields(kind.printed)
        if getattr(kind.printed, field.name) is not None
    }
    if printed:
        line("The paper's: " + ", ".join(f"{name} {value:g}" for name, value in printed.items()))
    if kind.sources:
        line(f"Sources: {kind.sources}\n")
    table = Table("flag", "default", Column("what it is", overflow="fold"))
    for name, number in paper_numbers(kind).items():
        holder = algorithm if number.part is None else getattr(algorithm, number.part)
        if number.name and holder is not None:
            value = getattr(holder, number.name)
            value_text = (
                ",".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
            )
            table.add_row(flag_of(name), value_text, number.help)
    out.print(table)
    absent = sorted(
        {
            number.part
            for number in paper_numbers(kind).values()
            if number.part and getattr(algorithm, number.part) is None
        }
    )
    if absent:
        line(f"Parts that it does without, each with flags of its own: {', '.join(absent)}")
