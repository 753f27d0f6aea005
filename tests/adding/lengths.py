"""A page of the viewer: reports of the kind "lengths", JSON with the keys report and lengths."""

from rlvr.viewer.reports import Report, ReportTable


def page(tree):
    """One table: the length of each text."""
    rows = sorted(tree["lengths"].items())
    return Report("Lengths", tables=[ReportTable("by text", ("text", "characters"), rows)])
