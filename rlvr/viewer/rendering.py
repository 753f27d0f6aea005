"""The templates of the viewer; every value in them is escaped."""

from __future__ import annotations

import time
from datetime import timedelta
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlvr.text import inert

__all__ = ["last_part", "render", "style", "templates"]

templates = Environment(
    loader=PackageLoader("rlvr.viewer"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters["inert"] = inert
templates.filters["number"] = lambda value: "–" if value is None else f"{value + 0.0:.4g}"  # not -0
templates.filters["rough"] = lambda value: f"{value + 0.0:.3g}"
templates.filters["when"] = lambda seconds: (
    "–" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
)
templates.filters["lasting"] = lambda seconds: (
    str(timedelta(seconds=round(seconds))) if seconds else "–"
)


def last_part(name: str) -> str:
    """The name at the end of a folder's path, or of a class's place; ids of a hub stay whole.

    Args:
        name: of a model or an environment.
    """
    place, colon, kind = name.rpartition(":")
    if colon and kind.isidentifier() and "." in place:
        return kind
    is_path = name.startswith((".", "/")) or name.count("/") > 1
    return name.rstrip("/").rpartition("/")[2] if is_path else name


templates.filters["last_part"] = last_part


def render(template: str, **values: object) -> bytes:
    """A page as UTF-8; what that cannot hold (lone surrogates) is escaped.

    Args:
        template: its file name.
        values: for the template.
    """
    return templates.get_template(template).render(**values).encode("utf-8", "backslashreplace")


def style() -> Markup:
    """The style sheet, for pages that need no other file."""
    return Markup(
        resources.files("rlvr.viewer").joinpath("static", "style.css").read_text(encoding="utf-8")
    )
