"""`rlvr view`: scored files and training runs in the browser (docs/using/viewing.md).

sources           what a path holds: scored rows, a run, or a report
reports           audits, checks and evaluations as tables and cases; needs Jinja2 alone
index             one table per source in DuckDB, of all that rows are counted and filtered by; texts stay in the files
texts             completions as safe HTML: escaped, cut, the answer marked
curves            metrics as inline SVG
labels            verdicts that a person called right or wrong
rendering         the templates
pages, app        what a page shows; the routes, and who may ask
one_page          one page that needs no server

Completions are written by a model that may be hostile: their texts are data on every page.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.viewer.app import app_of, run
    from rlvr.viewer.labels import Labels
    from rlvr.viewer.one_page import export
    from rlvr.viewer.reports import report_page
    from rlvr.viewer.sources import Shown

__all__ = ["Labels", "Shown", "app_of", "export", "report_page", "run"]

_MODULES = {
    "Labels": "labels",
    "Shown": "sources",
    "app_of": "app",
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
