"""Any number of runs in one set of curves."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources
from pathlib import Path

import pytest

from rlvr.viewer import Shown, export
from rlvr.viewer.app import _STATIC
from tests.json_lines import write_json_lines
from tests.viewer.made import record, run_folder


def run(folder: Path, values: list[float], **settings: object) -> Path:
    """A run with a reward at each step, 10 tokens, 2 rollouts and half an hour for each."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"settings": settings}))
    each = {"tokens": 10, "rollouts": 2, "step_s": 1800}
    rows = [{"step": i, "reward": value, **each} for i, value in enumerate(values, 1)]
    write_json_lines(folder / "metrics.jsonl", rows)
    return folder


@pytest.fixture
def client(tmp_path: Path, browse):
    """Two seeds of a run, a run with another rate, and a scored file."""
    first = run(tmp_path / "a", [0.0, 1.0, 0.0, 1.0], lr=1, seed=0)
    (first / "checkpoints").mkdir()
    (first / "checkpoints" / "step-00000003.pt").touch()
    return browse(
        first,
        run(tmp_path / "b", [1.0, 1.0], lr=1, seed=1),
        run(tmp_path / "c", [0.5] * 4000 + [9.0] + [0.5] * 4000, lr=2, seed=0),
        write_json_lines(tmp_path / "scored.jsonl", [record(0)]),
    )


def lines(client, query: str) -> list[dict]:
    return client.get(f"/overlay/data?metric=reward&{query}").json()["lines"]


@pytest.mark.parametrize(
    ("by", "x"),
    [
        ("step", [1, 2, 3, 4]),
        ("tokens", [10, 20, 30, 40]),
        ("samples", [2, 4, 6, 8]),
        ("hours", [0.5, 1, 1.5, 2]),
    ],
)
def test_the_axis_is_steps_or_a_running_sum(by: str, x: list[float], client):
    """What a step costs differs from run to run."""
    [line] = lines(client, f"runs=0&by={by}")
    assert line["x"] == x


def test_smoothing_is_a_mean_that_forgets(client):
    """By hand with weight 1/2: 0, 2/3, 2/7, 2/3; the first value is not weighed more than others."""
    [line] = lines(client, "runs=0&smooth=0.5")
    assert line["y"] == pytest.approx([0, 2 / 3, 2 / 7, 2 / 3])


def test_seeds_become_a_mean_and_a_range(client):
    """Runs that differ in nothing else; a seed that has ended counts no more."""
    first, other = lines(client, "runs=0,1,2&bands=1")
    assert first["name"] == "a and 1 more seeds"
    assert first["y"] == [0.5, 1.0, 0.0, 1.0]
    assert first["low"][0] == 0.0
    assert first["high"][0] == 1.0
    assert other["name"] == "c"


def test_a_peak_is_seen_and_zoom_shows_every_point(client):
    """8,001 points are thinned to the least and greatest of each stretch."""
    [line] = lines(client, "runs=2")
    assert len(line["x"]) <= 1502
    assert max(line["y"]) == 9.0
    [line] = lines(client, "runs=2&from=3990&to=4010")
    assert line["x"] == list(range(3990, 4011))


def test_the_page_has_panels_events_and_settings_that_differ(client):
    """A checkpoint is a mark at its place on any axis."""
    page = client.get("/overlay?run=0&run=1&run=2").text
    assert 'data-metric="reward"' in page
    assert re.search(r"<td>settings.lr</td>(<td class=\"text\">\d</td>){3}", page)
    assert "checkpoint</td>" in page
    marks = client.get("/overlay/data?metric=reward&runs=0&by=tokens").json()["marks"]
    assert marks == [{"x": 30.0, "run": 0, "what": "checkpoint"}]
    assert (
        client.get("/compare?a=0&b=1", follow_redirects=False).headers["location"]
        == "/overlay?runs=0,1"
    )


@pytest.mark.parametrize(
    "query",
    [
        "runs=3",
        "",
        "runs=x",
        "runs=0&by=week",
        "runs=0&smooth=1",
        "runs=0&from=nan",
        "runs=" + "0," * 40,
    ],
)
def test_what_cannot_be_shown_is_one_line(query: str, client):
    """A scored file has no curves, a weight of 1 never moves; a repeated run is shown once."""
    status = client.get(f"/overlay/data?metric=reward&{query}").status_code
    assert status == (200 if query.endswith(",") else 400)


def test_exports_hold_the_curves_drawn(tmp_path: Path):
    """A line for each run, and no script."""
    with Shown([run_folder(tmp_path / "a"), run_folder(tmp_path / "b")]) as sources:
        page = export(sources).decode()
    figure = page[page.index("Runs in one set of curves") :]
    figure = figure[: figure.index("</figure>")]
    assert re.findall("<polyline[^>]*><title>(.*?)</title>", figure) == ["a", "b"]
    assert "<script" not in page


def test_vendored_files_are_what_they_were():
    """Each has a version, a licence beside it and a checksum."""
    static = resources.files("rlvr.viewer").joinpath("static")
    listed = json.loads(static.joinpath("vendor", "vendor.json").read_text())
    assert {f"vendor/{name}" for name in listed} == {it for it in _STATIC.values() if "/" in it}
    for name, told in listed.items():
        path = static.joinpath("vendor", name)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == told["sha256"]
        folder = static.joinpath("vendor", name.partition("/")[0])
        assert folder.joinpath("LICENSE").read_text().startswith("The MIT License")
