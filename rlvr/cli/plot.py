"""`rlvr plot`: draws the curves of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from rlvr.data.rows import require_output
from rlvr.errors import UsageError
from rlvr.text import one_line

__all__ = ["PlotCommand"]


@dataclass
class PlotCommand:
    """Draw the curves of a run: reward by part, accuracy, outcomes, unscored, length, entropy,
    evaluations and more.

    Example: rlvr plot runs/a
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of the run, which `rlvr train --run` named."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Write the picture to this file, .png; by default RUN/curves.png."""

    def run(self, out: Console, err: Console) -> int:
        if self.folder.is_file():
            raise UsageError(f"{self.folder} is a file; give the folder of a run")
        if self.output is not None:
            require_output(self.output, overwrite=True)
        picture = import_module("rlvr.train.plot").plot(self.folder, self.output)
        out.print(one_line(picture), soft_wrap=True)
        return 0
