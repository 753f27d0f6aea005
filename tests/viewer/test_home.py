"""The first page: folders, and a table of what is in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlvr.errors import DataError
from rlvr.viewer import Shown
from rlvr.viewer.metrics import RunMetrics
from rlvr.viewer.rendering import last_part
from tests.json_lines import write_json_lines
from tests.viewer.made import record, run_folder


def evaluated(folder: Path, values: list[float], **settings: object) -> Path:
    """A run with an evaluation at each step."""
    folder.mkdir(parents=True)
    steps = {"steps": len(values), **settings}
    (folder / "config.json").write_text(json.dumps({"settings": steps}))
    ends = {"eval/avg@4/low": 0.0, "eval/avg@4/high": 1.0, "step_s": 60.0}
    rows = [{"step": i, "eval/avg@4": value, **ends} for i, value in enumerate(values, 1)]
    write_json_lines(folder / "metrics.jsonl", rows)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs, a scored file, a report, and things that are neither."""
    evaluated(tmp_path / "runs/old/run-10", [0.1, 0.6, 0.4], model="m1", lr=1, env="sums")
    evaluated(tmp_path / "runs/old/run-9", [0.2, 0.5], model="m2", lr=1, env="sums")
    run_folder(tmp_path / "runs/plain", lr=2)
    write_json_lines(tmp_path / "runs/scored.jsonl", [record(i) for i in range(4)])
    (tmp_path / "runs/cut.parquet").write_bytes(b"PAR1 cut")
    write_json_lines(tmp_path / "runs/prompts.jsonl", [{"prompt": "p", "answer": "a"}])
    (tmp_path / "runs/model").mkdir()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / "runs/model" / name).write_text("{}")
    (tmp_path / "runs/loop").symlink_to(tmp_path / "runs")
    return tmp_path / "runs"


def names(page: str) -> list[str]:
    return re.findall(r'<a class="row" href="/\d+/">(.*?)</a>', page)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/data/models/smol", "smol"),
        ("runs/a/model/", "model"),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("package.sums:OneDigit", "OneDigit"),
        ("envs/mine.py:Change", "Change"),
        ("gsm8k-v4:0.5,group_size=4", "gsm8k-v4:0.5,group_size=4"),
        ("", ""),
    ],
)
def test_names_of_models_and_environments_leave_room_for_figures(name: str, shown: str):
    """A path of forty letters in each row put rewards and curves off the page; ids of a hub stay whole."""
    assert last_part(name) == shown


def test_a_folder_shows_the_runs_and_files_in_it(runs: Path, browse):
    """With the last and the best evaluation, and a page for each; models, other files and links are left out."""
    client = browse(runs)
    page = client.get("/?sort=name").text
    assert names(page) == ["old/run-9", "old/run-10", "plain", "scored.jsonl"]
    [row] = re.findall(r'class="row" href="/\d+/">old/run-10</a>(.*?)</tr>', page, re.DOTALL)
    cells = re.sub("<[^>]+>", " ", row).split()
    assert cells[:3] == ["m1", "sums", "3"]
    assert "0.4 0–1 0.6 0–1 at 2" in " ".join(cells)
    assert "0:03:00" in cells
    assert "ended" in cells
    for address in re.findall(r'href="(/\d+/)"', page):
        assert client.get(address).status_code == 200


def test_the_table_is_sorted_filtered_and_grouped(runs: Path, browse):
    """The address says how, so that it can be shared; what has no value comes last."""
    client = browse(runs)
    assert names(client.get("/?sort=-last").text)[:2] == ["old/run-9", "old/run-10"]
    assert names(client.get("/?sort=best").text)[:2] == ["old/run-9", "old/run-10"]
    assert names(client.get("/?q=M2").text) == ["old/run-9"]
    assert names(client.get("/?kind=scored+completions").text) == ["scored.jsonl"]
    page = client.get("/?group=settings.lr&kind=run").text
    assert "settings.lr = 1: 2, mean of the last evaluations 0.45" in page
    assert client.get("/?sort=nonsense").status_code == 400


def test_what_comes_into_the_folder_is_found(runs: Path, browse, monkeypatch):
    """New runs come last, so that addresses stay; what a partial file became is no second one."""
    monkeypatch.setattr("rlvr.viewer.sources._SCAN_S", -1.0)
    partial = write_json_lines(runs / "new.jsonl.partial", [record(0)])
    client = browse(runs)
    before = names(client.get("/?sort=name").text)
    evaluated(runs / "a-new-one", [0.9])
    partial.rename(runs / "new.jsonl")
    (runs / "plain" / "notes.md").write_text("Too hot. #broken <b>\n")
    page = client.get("/?sort=name").text
    assert sorted([*before, "a-new-one"]) == sorted(names(page))
    assert client.get(f"/{len(before)}/").text.count("a-new-one")
    assert "Too hot. #broken &lt;b&gt;" in page
    assert names(client.get("/?q=%23broken").text) == ["plain"]


def test_a_folder_with_nothing_to_show_is_refused(tmp_path: Path):
    """One line that says what to give."""
    with pytest.raises(DataError, match="no scored file and no report is found in it"):
        Shown([tmp_path])


def test_runs_are_compared_by_their_last_evaluations(runs: Path, browse):
    """A run without one is a line on the page, and so is a selection of one."""
    page = browse(runs).get("/compare?run=0&run=1")
    assert page.status_code == 400
    assert "has no evaluation" in page.text
    assert "select two or more" in browse(runs).get("/compare?run=0").text


def test_scored_files_are_compared(tmp_path: Path, browse):
    """What `rlvr compare` says, on a page, with a link to the rows."""
    ours = [record(i, task=f"sums/{i}") for i in range(12)]
    better = [{**row, "outcome": "correct", "total": 1.0} for row in ours]
    paths = [
        write_json_lines(tmp_path / "a.jsonl", ours),
        write_json_lines(tmp_path / "b.jsonl", better),
    ]
    page = browse(*paths).get("/compare?runs=0,1").text
    assert "b.jsonl" in page
    assert "12 tasks" in page
    assert 'href="/compare?a=0&amp;b=1"' in page


def test_metrics_are_read_on(tmp_path: Path):
    """Columns grow with the file; a line that is being written waits, and a file written anew is read anew."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1}\n{"step": 2, "b": NaN, "text": "7"}\n{"st')
    read = RunMetrics(path)
    read.update()
    assert (len(read), read.last_step, read.last("a"), read.damaged) == (2, 2, 1.0, [])
    with path.open("a") as file:
        file.write(f'ep": 3, "a": {10**400}}}\n[]\n' + '{"step": 4, "a": 5}')
    read.update()
    assert (len(read), read.damaged) == (4, [4])
    assert read.points("a")[0].tolist() == [1, 4]
    assert not len(read.points("text")[0])
    path.write_text('{"step": 7, "a": 2}\n{"step": 8, "a": 2}\n' * 9)
    read.update()
    assert (len(read), read.damaged) == (18, [])
