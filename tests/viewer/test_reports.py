"""Audits, checks and evaluations in the pages of the viewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr import viewer
from rlvr.cli import main
from rlvr.testing import check
from rlvr.testing.audit import audit
from tests.environments import Trials

HOSTILE = "</pre><script>alert(1)</script>\x1b[2J\u202e"


@pytest.fixture(scope="module")
def reports() -> dict[str, dict[str, Any]]:
    """One of each kind, as its command writes it."""
    rows = [
        {"task": 1, "completion": f"1{HOSTILE}", "label": True},
        {"task": 2, "completion": "2", "label": True},
    ]
    both = [*rows, {"task": 2, "completion": "3", "label": False}]
    metric = {"value": 0.5, "low": 0.4, "high": 0.6, "tasks": 10}
    return {
        "audit": audit(Trials(), rows, workers=0).as_dict(),
        "ranking": audit(Trials(), both, reward_model=lambda _, texts: [0.5, 0.75, 0.25], workers=0).as_dict(),
        "one-sided": audit(Trials(), rows, reward_model=lambda _, texts: [0.5] * len(texts), workers=0).as_dict(),
        "check": check(rlvr.make("qa-v4"), tasks=1, only=("tasks",)).as_dict(),
        "evaluation": {"model": HOSTILE, "metrics": {"avg@4": metric}, "too_long": [], "length": 7.25,
                       "truncated": 0.1, "unscored": 2},
    }  # fmt: skip


WORDS = {
    "audit": ("Audit of Trials", "false negatives", "50.00%", "labelled right"),
    "ranking": (
        "the reward model against labels",
        "1.000 [",
        "mean of 1 tasks",
        "mean score of wrong",
        "0.250",
    ),
    "one-sided": (
        "no task has both a right and a wrong completion",
        "mean score of right completions",
    ),
    "check": ("Check of qa-v4", "It passes", "earned by no text"),
    "evaluation": ("avg@4", "0.4000 to 0.6000", "10.0% truncated, 2 unscored"),
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_report_is_shown_beside_rows_and_alone(
    kind: str, reports, browse, scored: Path, tmp_path: Path
):
    """The same tables in the viewer, in its one page, and from the command itself; texts stay texts."""
    path = tmp_path / f"{kind}.json"
    path.write_text(json.dumps(reports[kind]))
    client = browse(path, scored)
    pages = [client.get("/0/").text, viewer.report_page(reports[kind]).decode()]
    exported = tmp_path / "page.html"
    assert main(["view", str(path), str(scored), "--export", str(exported)]) == 0
    for page in (*pages, exported.read_text(encoding="utf-8")):
        assert all(words in page for words in WORDS[kind])
        assert "<script>alert" not in page
        assert "\x1b" not in page
    assert "report" in client.get("/").text
    assert client.get("/0/rows").status_code == 404
    assert client.get("/0/row/0").status_code == 404


def test_what_is_no_report_is_one_line(browse, scored: Path, tmp_path: Path):
    """Other JSON, a report that lacks something, and half a file: the rest is shown."""
    half, other, lacking, odd = (
        tmp_path / f"{name}.json" for name in ("half", "other", "lacking", "odd")
    )
    tables = [{"caption": {}, "head": 3, "rows": [True]}]
    comparison = {"kind": "comparison", "lines": [], "results": {"names": []}, "tables": tables}
    odd.write_text(json.dumps(comparison))
    half.write_text('{"findings": [')
    lacking.write_text('{"findings": 3, "completions": 1, "tasks": 1}')
    other.write_text('{"a": 1}\n')
    page = browse(half, lacking, odd, scored).get("/").text
    assert "cannot be read as JSON" in page
    assert page.count("looks like a report, and lacks something") == 2
    assert (
        browse(other).get("/0/", follow_redirects=True).status_code == 200
    )  # rows, of which one is broken


def test_check_writes_its_report(tmp_path: Path, capsys):
    """--html and -o, beside the table."""
    page, report = tmp_path / "check.html", tmp_path / "check.json"
    command = [
        "check",
        "qa-v4",
        "--tasks",
        "1",
        "--only",
        "tasks",
        "--html",
        str(page),
        "-o",
        str(report),
    ]
    assert main(command) == 0
    assert "Check of qa-v4" in page.read_text()
    assert json.loads(report.read_text())["env"] == "qa-v4"
    assert main(command) == 2
    assert "exists" in capsys.readouterr().err
