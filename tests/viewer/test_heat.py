"""Tasks by steps or files, coloured by pass rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.data.rollouts import write_rollouts
from tests.json_lines import write_json_lines
from tests.viewer.made import record, rollouts

RIGHT = {
    "late": {10: 0, 20: 2},
    "lost": {10: 4, 20: 0},
    "never": {10: 0, 20: 0},
    "always": {10: 4, 20: 4},
    "once": {20: 2},
}
"""Correct ones of four, by task and step."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two steps of five tasks, of which one was sampled once; the groups without variation were dropped."""
    (tmp_path / "run" / "rollouts").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text('{"settings": {}}')
    write_json_lines(tmp_path / "run" / "metrics.jsonl", [{"step": 20, "reward": 0.5}])
    for step in (10, 20):
        rows = []
        for task, right in RIGHT.items():
            if step in right:
                dropped = "all" if right[step] in (0, 4) else ""
                outcomes = ["correct" if i < right[step] else "wrong" for i in range(4)]
                rows += [
                    {**row, "task": task, "outcome": outcome, "dropped": dropped}
                    for row, outcome in zip(rollouts(step), outcomes, strict=True)
                ]
        write_rollouts(tmp_path / "run" / "rollouts" / f"step-{step:08d}.parquet", rows)
    return tmp_path / "run"


def tasks(client, sort: str) -> list[str]:
    return [task for task, _ in client.get(f"/heat/data?runs=0&sort={sort}").json()["tasks"]]


def test_tasks_are_sorted_by_what_happened_to_them(run: Path, browse):
    """First success, then the mean; the rise of the last third over the first; p (1 - p)."""
    client = browse(run)
    client.get("/heat?runs=0")
    assert tasks(client, "first") == ["always", "lost", "once", "late", "never"]
    assert tasks(client, "learning")[0] in ("late", "once")
    assert tasks(client, "learning")[-1] == "lost"
    assert set(tasks(client, "variance")[:2]) == {"late", "once"}
    assert tasks(client, "name") == sorted(RIGHT)
    found = client.get("/heat/data?runs=0&sort=name").json()
    assert found["columns"] == [10, 20]
    assert found["cells"] == [100, 100, 0, 50, 100, 0, 0, 0, 255, 50]
    assert found["dropped"] == [0, 1, 2, 4, 5, 6, 7]


def test_what_was_lost_and_never_solved_has_tables(run: Path, browse):
    """Since a step: with the last one nothing can have been lost."""
    page = browse(run).get("/heat?runs=0&since=10").text
    for said in (
        "lost since then, the worst first: 1",
        "gained since then: 1",
        "never solved: 1",
        "always solved: 1",
    ):
        assert said in page
    assert "1 have no scored completion" in page
    assert "first: 0" in browse(run).get("/heat?runs=0&since=20").text


def test_files_are_columns(tmp_path: Path, browse):
    """A task that a file lacks has no cell there; a run among them is refused."""
    first = write_json_lines(tmp_path / "a.jsonl", [record(i, env="e") for i in range(8)])
    other = write_json_lines(tmp_path / "b.jsonl", [record(i, env="e") for i in range(4)])
    client = browse(first, other)
    assert "2 tasks; of 4 cells 1 have" in client.get("/heat?runs=0,1").text
    found = client.get("/heat/data?runs=0,1&sort=name").json()
    assert (found["columns"], found["cells"]) == (["a.jsonl", "b.jsonl"], [75, 75, 75, 255])


def test_bad_addresses_and_empty_sources_are_one_line(run: Path, tmp_path: Path, browse):
    """No task at all is an empty map."""
    empty = write_json_lines(tmp_path / "empty.jsonl", [record(0, task="")])
    client = browse(run, empty)
    assert client.get("/heat?runs=0,1").status_code == 400
    assert client.get("/heat?runs=0&sort=x").status_code == 400
    assert "0 tasks" in client.get("/heat?runs=1").text
