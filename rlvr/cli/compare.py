"""`rlvr compare`: which of several models is better on the same tasks, and whether that is sure."""

from __future__ import annotations

import glob
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from rlvr.cli.arguments import Overwrite, print_json, require_outputs, say_line
from rlvr.data.files import real_path, write_whole
from rlvr.errors import UsageError, import_optional
from rlvr.scoring.compare import Comparison, Entry, Results, compare, read_labels, read_results
from rlvr.text import one_line

__all__ = ["CompareCommand"]

_HELP = (
    "Scored files, rollouts, reports of `rlvr eval -o` or folders of runs.  NAME=FILE gives a "
    "name; several files of one name are seeds of one method."
)
_FORMS = (".json", ".md", ".html")


@dataclass
class CompareCommand:
    """Compare models task by task: differences with intervals, and what could have been seen.

    Example: rlvr compare old.jsonl new.jsonl
    Example: rlvr compare grpo=g1.json grpo=g2.json dapo=d1.json dapo=d2.json -o board.md

    Tasks are paired by id and reference, and all completions of a task count as one observation.
    The exit code is 0 whatever the result.
    """

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE", help=_HELP)]
    k: Annotated[tuple[int, ...], arg(aliases=["-k"], help_behavior_hint="(default: n)")] = ()
    """Values of k for pass@k and maj@k."""
    cluster: Annotated[str | None, arg(metavar="COLUMN")] = None
    """Column whose values say which tasks belong together, such as variants of one source row;
    these are not independent."""
    accept: tuple[Literal["settings", "code", "inputs"], ...] = ()
    """Compare scores that were decided with other settings, code or inputs; the result says so."""
    level: float = 0.95
    """Of the confidence intervals."""
    labels: Path | None = None
    """Verdicts that a person judged (`rlvr view --labels`):
    tasks whose verdicts are wrong are a part of their own."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Write the result to this file: .json, .md (Markdown) or .html (a page); `rlvr view` shows the
    JSON too."""
    overwrite: Overwrite = False
    json: bool = False
    """Print the result as JSON instead of tables."""

    def run(self, out: Console, err: Console) -> int:
        if not 0 < self.level < 1:
            raise UsageError(f"--level is {self.level}; it must lie between 0 and 1, such as 0.95")
        named = _by_name(self.files)
        if self.output is not None:
            if self.output.suffix not in _FORMS:
                raise UsageError(f"{self.output}: the output must end in {', '.join(_FORMS)}")
            paths = [path for paths in named.values() for path in paths]
            require_outputs([self.output], paths, overwrite=self.overwrite)
        entries = [
            Entry(name, [self._read(path, name, len(paths)) for path in paths])
            for name, paths in named.items()
        ]
        labels = None if self.labels is None else read_labels(self.labels)
        comparison = compare(
            entries, ks=self.k, accept=self.accept, level=self.level, labels=labels
        )
        self._show(comparison, out)
        if self.output is not None:
            write_whole(self.output, _write_page(comparison, self.output.suffix))
            say_line(err, f"written to {one_line(self.output)}")
        return 0

    def _read(self, path: Path, name: str, seeds: int) -> Results:
        return read_results(path, name if seeds == 1 else str(path), cluster=self.cluster)

    def _show(self, found: Comparison, out: Console) -> None:
        if self.json:
            print_json(out, found.as_dict())
            return
        for comparison_table in found.tables():
            table = Table(title=Text(one_line(comparison_table.caption)), title_justify="left")
            for place, name in enumerate(comparison_table.head):
                is_name = place == 0 or name in ("", "model")
                table.add_column(Text(one_line(name)), justify="left" if is_name else "right")
            for row in comparison_table.rows:
                table.add_row(*(Text(one_line(cell)) for cell in row))
            out.print(table)
        for line in found.lines():
            out.print(one_line(line), soft_wrap=True, markup=False, highlight=False)


def _by_name(given: tuple[str, ...]) -> dict[str, list[Path]]:
    """Name → files.  A path that exists has no name in it, whatever its signs."""
    named: dict[str, list[Path]] = {}
    alone: list[Path] = []
    for text in given:
        name, equals, files = text.partition("=")
        if equals and name and not Path(text).exists():
            named.setdefault(name, []).extend(_paths(files))
        else:
            alone += _paths(text)
    short = [path.name for path in alone]
    for path in alone:
        unique = short.count(path.name) == 1 and path.name not in named
        name = path.name if unique and path.name else str(path)
        if name in named:
            raise UsageError(f"{path} is given twice; name each file once, or give NAME=FILE")
        named[name] = [path]
    if len(named) < 2:
        raise UsageError(
            f"{'one' if named else 'no'} model was given; name at least two, such as old.jsonl "
            "new.jsonl, or of one run RUN/evaluations/step-0.json RUN"
        )
    every = [real_path(path) for paths in named.values() for path in paths]
    if twice := next((path for path in every if every.count(path) > 1), None):
        raise UsageError(f"{twice} is given twice; name each file once")
    return named


def _paths(text: str) -> list[Path]:
    if Path(text).exists() or not glob.has_magic(text):
        return [Path(text)]
    matches = sorted(glob.glob(text))  # noqa: PTH207
    if not matches:
        raise UsageError(f"{text}: no file fits this pattern")
    return [Path(match) for match in matches]


def _write_page(found: Comparison, suffix: str) -> bytes:
    if suffix == ".md":
        return found.markdown().encode()
    if suffix == ".html":
        page: bytes = import_optional("rlvr.viewer.reports", "view").report_page(found.as_dict())
        return page
    return (json.dumps(found.as_dict(), indent=2) + "\n").encode()
