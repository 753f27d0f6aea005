"""Recorded training steps in the browser: rows, updates, and what departs first."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from rlvr.algo.judge.vectors import vectors
from rlvr.cli import main
from rlvr.data.step_files import StepFile, write_step
from rlvr.errors import DataError
from rlvr.viewer import Shown
from rlvr.viewer.steps import step_report
from tests.viewer.made import run_folder

HOSTILE = "</pre><script>alert(1)</script>\x1b[2J\u202e"


@pytest.fixture(scope="module")
def step() -> StepFile:
    """A step of GRPO with texts that attack the page."""
    found = next(step for name, step in vectors() if name == "grpo-plain")
    task = {"task": "sums/0", "prompt": HOSTILE, "reference": ["7"]}
    head = {"texts": [HOSTILE] * 8, "groups": {"0": task}, "trainer": HOSTILE, "step": 10}
    return StepFile({**found.head, **head}, found.arrays)


def departing(step: StepFile, row: int) -> StepFile:
    """The same, with an advantage that no rounding explains."""
    wrong = step.arrays["advantages"].copy()
    wrong[step.arrays["offsets"][row]] += 0.25
    return StepFile(step.head, {**step.arrays, "advantages": wrong})


def test_the_page_of_a_step_names_what_departs_first(step: StepFile, tmp_path: Path, browse):
    """By itself, in a run and in one page: row, token, both values; its text comes first; texts stay texts."""
    run = run_folder(tmp_path / "run")
    alone, kept = tmp_path / "alone.safetensors", run / "steps" / "step-00000010.safetensors"
    for path in (alone, kept):
        write_step(path, departing(step, 5))
    client, exported = browse(run, alone), tmp_path / "page.html"
    assert "/0/step/step-00000010" in client.get("/0/").text
    assert main(["view", str(alone), "--export", str(exported)]) == 0
    pages = [client.get(address).text for address in ("/0/step/step-00000010", "/1/")]
    for page in (*pages, exported.read_text(encoding="utf-8")):
        assert re.search(r"First: advantages: departs at row 5, token \d: -?\d", page)
        assert re.findall("<summary>(row [^<]*)", page)[0] == "row 5, departs: score 0"
        assert "sums/0" in page
        assert "<script>alert" not in page
        assert "\x1b" not in page
    for address in ("/0/step/other", "/0/step/..%2F..%2Falone", "/1/step/alone", "/1/rows"):
        assert client.get(address).status_code == 404


def test_a_step_that_holds_says_so(step: StepFile, tmp_path: Path):
    """Each row's score and mean advantage are the file's."""
    write_step(tmp_path / "a.safetensors", step)
    report = step_report(tmp_path / "a.safetensors")
    assert report.lines[1].startswith("Nothing departs: ")
    rows = next(table for table in report.tables if table.caption == "rows")
    assert [row[2] for row in rows.rows] == [f"{score:.6g}" for score in step.arrays["score"]]
    first = step.arrays["advantages"][: step.arrays["offsets"][1]]
    assert float(rows.rows[0][3]) == pytest.approx(float(first.mean()), rel=1e-5)


@pytest.mark.parametrize("head", [{"groups": 3, "texts": 7}, {"updates": [{"terms": 1}]}, {}])
def test_a_head_of_other_shapes_is_shown(head: dict[str, object], step: StepFile, tmp_path: Path):
    """Files are data from strangers."""
    changed = StepFile({**step.head, "algorithm": "none", **head}, step.arrays)
    write_step(tmp_path / "a.safetensors", changed)
    assert step_report(tmp_path / "a.safetensors").lines[1].startswith("Not judged: ")


def test_weights_of_a_model_are_no_step(step: StepFile, tmp_path: Path):
    """Both are safetensors: one is refused by name, and passed over in a folder."""
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({"a": np.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match="holds tensors and no training step"):
        Shown([tmp_path / "model.safetensors"])
    write_step(tmp_path / "step.safetensors", step)
    with Shown([tmp_path]) as sources:
        assert [source.name for source in sources.all] == ["step.safetensors"]
