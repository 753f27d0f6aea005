"""`rlvr view`: scored files and training runs in the browser (docs/using/viewing.md).

sources, folders         what a path holds: rows, a run, a report; and what a folder holds
index, search            one table per source in DuckDB; texts found in the files
filters                  the filters of an address as a condition in SQL
app, pages, home         the routes and who may ask; what pages show; the first page
reports                  audits, checks and evaluations as tables and cases; needs Jinja2 alone
steps, verdicts, tokens  a recorded step; what a verdict rests on; tokens coloured by a number
changes, heat, overlay   between two steps or files; tasks by steps; runs over each other
metrics, curves          metrics as columns; as inline SVG
labels                   verdicts that a person called right or wrong
texts, markdown          completions as safe HTML, plain or rendered
rendering, one_page      the templates; one page that needs no server

Completions are written by a model that may be hostile: their texts are data on every page.

Contract: a page of a report is a function that gives a `Report`: title, lines, tables, cases
(docs/adding.md).
Sees `http`, `scoring`, `algo` and below, not `train`; `cli` sees it.
Goes wrong: a text that reaches the page unescaped, an address that names a path of the machine, and
files that grow while they are read.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.viewer.app import run, viewer_app
    from rlvr.viewer.labels import Labels
    from rlvr.viewer.one_page import export
    from rlvr.viewer.reports import report_page
    from rlvr.viewer.sources import Shown

__all__ = ["Labels", "Shown", "export", "report_page", "run", "viewer_app"]

_MODULES = {
    "Labels": "labels",
    "Shown": "sources",
    "viewer_app": "app",
    "export": "one_page",
    "report_page": "reports",
    "run": "app",
}


def __getattr__(name: str) -> Any:
    """Import lazily what needs FastAPI, Jinja2 and DuckDB: `rlvr --help` should load none of
    them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
