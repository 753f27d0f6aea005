"""`rlvr referee`: another trainer on cases in which trainers have differed,
beside a judge in float64."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from rlvr import viewer
from rlvr.cli.arguments import require_outputs
from rlvr.data.files import write_whole
from rlvr.interop.referee import PEERS, Ruling, referee, referee_report
from rlvr.text import one_line

__all__ = ["RefereeCommand"]


@dataclass
class RefereeCommand:
    """Run another trainer's own code on given tokens, and name what departs from its paper,
    by the token.

    Example: rlvr referee trl --python .venv-trl/bin/python

    Trainers: trl, verl, openrlhf, ms_swift, areal, trinity, rlvr.  Each case is equal; declared,
    where only a convention differs that its driver declares with its source (undeclared, if that
    was read in other releases); departs; or not compared.  Exit code 1 if one departs.
    """

    name: Positional[Annotated[str, arg(metavar="NAME")]]
    """The trainer."""
    python: Path = Path(sys.executable)
    """Interpreter of an environment in which it is installed; rlvr need not be."""
    source: Path | None = None
    """Folder to import the trainer from, such as a checkout or `pip install --target FOLDER`."""
    keep: Path | None = None
    """Folder in which cases and answers stay, as step files for `rlvr step`."""
    output: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Write the findings to this file as JSON; `rlvr view` shows it."""
    html: Path | None = None
    """Write them to this file as a page that needs no server."""
    overwrite: bool = False
    """Replace these files if they exist."""
    json: bool = False
    """Print the findings as JSON."""

    def run(self, out: Console, err: Console) -> int:
        require_outputs([self.html, self.output], [], overwrite=self.overwrite)
        answers = referee(self.name, self.python, self.source, self.keep)
        tree = referee_report(self.name, answers)
        if self.html is not None:
            write_whole(self.html, viewer.report_page(tree))
        if self.output is not None:
            write_whole(self.output, (json.dumps(tree, indent=2) + "\n").encode())
        if self.json:
            out.print(json.dumps(tree), markup=False, soft_wrap=True)
        else:
            for line in _lines(self.name, answers):
                out.print(line, markup=False, highlight=False, soft_wrap=True)
        return int(any(ruling.departs for ruling in answers))


def _lines(name: str, answers: Sequence[Ruling]) -> list[str]:
    trainers = sorted({ruling.trainer for ruling in answers if ruling.trainer})
    lines = [one_line(", ".join(trainers) or "no answers")]
    if any(answer.status == "undeclared" for answer in answers):
        lines[0] += f"; undeclared: conventions of {name} were read in {', '.join(PEERS[name])}"
    for answer in answers:
        lines.append(
            f"{answer.case}: {answer.status}" + (f", {one_line(answer.why)}" if answer.why else "")
        )
        lines += [f"    {quantity}" for quantity in answer.departs]
    return lines
