"""One page that needs no server and no other file: what the viewer shows first, and
some rows of every kind."""

from __future__ import annotations

from typing import Final

from rlvr.viewer import pages
from rlvr.viewer.curves import overlay_curves
from rlvr.viewer.filters import Filters
from rlvr.viewer.rendering import render, style
from rlvr.viewer.sources import ReportSource, RunSource, Shown, Source

__all__ = ["export"]

_PER_REASON: Final = 5  # rows of each outcome and reason
_SLICE_S: Final = 3600.0  # between two looks at whether all has been read


def export(sources: Shown) -> bytes:
    """The page.  It reads every file to its end first.

    Args:
        sources: what it shows.
    """
    sections = [_section(source) for source in sources.all]
    runs = [
        (source.name, source.metrics()[0])
        for source in sources.all
        if isinstance(source, RunSource)
    ]
    return render(
        "export.html",
        style=style(),
        found=sections,
        refused=sources.refused,
        overlaid=overlay_curves(runs) if len(runs) > 1 else [],
    )


def _section(source: Source) -> dict[str, object]:
    while not source.index.update(wait_s=_SLICE_S):
        pass
    counts = pages.summary(source, Filters())
    reasons = []
    for outcome, reason, _ in counts["reasons"][: counts["most"]]:
        rows = pages.rows_of_reason(source, outcome, reason, _PER_REASON)
        reasons.append((outcome, reason, rows))
    return {
        "source": source,
        "report": source.report if isinstance(source, ReportSource) else None,
        "run": pages.run_page(source, None) if isinstance(source, RunSource) else None,
        "counts": counts if counts["total"] else None,
        "reasons": reasons,
        "sides": [side for _, _, sides in reasons for side in sides],
        "per_reason": f"up to {_PER_REASON}",
    }
