"""Training runs in the browser: curves, steps, settings."""

from __future__ import annotations

import fcntl
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlvr.data.rollouts import write_rollouts
from rlvr.viewer.curves import panels
from rlvr.viewer.metrics import RunMetrics
from tests.json_lines import write_json_lines
from tests.processes import run_python
from tests.viewer.made import record, rollouts, run_folder


def test_a_run_has_curves_steps_and_settings(tmp_path: Path, browse):
    """The dots on the axes and the list of steps lead to the rollouts that were kept, and to no others."""
    client = browse(run_folder(tmp_path / "a"))
    page = client.get("/0/").text
    titles = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert titles == ["accuracy", "reward and its parts"]  # kl was never a number
    assert set(re.findall(r'href="(/0/rows\?step=\d+)"', page)) == {
        "/0/rows?step=1",
        "/0/rows?step=3",
    }
    assert "settings.clip.low</td>" in page
    assert "versions.rlvr</td>" in page
    for address in set(re.findall(r'href="(/[^"]*)"', page)):
        assert client.get(address.replace("&amp;", "&")).status_code == 200


def test_rollouts_of_a_step_are_filtered_like_any_rows(tmp_path: Path, browse):
    """Step 1 has one correct of four; what was dropped is one value of a filter away."""
    client = browse(run_folder(tmp_path / "a"))
    page = client.get("/0/rows?step=1").text
    assert '<span class="outcome o-correct">correct</span></a></td><td class="n">1 ' in page
    assert "dropped=all-wrong" in page
    assert client.get("/0/rows?step=1&dropped=all-wrong").text.count('<a class="row"') == 1
    assert client.get("/0/rows?step=2").text.count('<a class="row"') == 0


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("advantage_min=0.5", 4),
        ("advantage_max=-0.5", 4),
        ("advantage_min=-1&advantage_max=1", 4),
        ("step=1&advantage_min=1.5", 1),
    ],
)
def test_rollouts_are_filtered_by_a_range_of_advantages(
    query: str, count: int, tmp_path: Path, browse
):
    """Those of the fixture are -1.5 to 1.5 in each of two steps; the bounds are in the address and in the form."""
    page = browse(run_folder(tmp_path / "a")).get(f"/0/rows?{query}").text
    assert page.count('<a class="row"') == count
    name, _, value = query.rpartition("&")[2].partition("=")
    assert f'name="{name}" size="4" value="{value}"' in page
    assert f"{name}: {value}" in page


def test_a_task_is_followed_across_steps(tmp_path: Path, browse):
    """One line per step, each of which opens the group of that step."""
    client = browse(run_folder(tmp_path / "a"))
    page = client.get("/0/rows?task=sums/0").text
    table = page[page.index("this task by step") : page.index("8 rows")]
    cells = [re.sub("<[^>]+>", " ", row).split() for row in re.findall("<tr>(.*?)</tr>", table)][1:]
    assert cells == [
        ["1", "4", "1", "0.25", "1", "all-wrong"],
        ["3", "4", "3", "0.75", "1", "all-wrong"],
    ]
    group = client.get("/0/group?task=sums/0&step=3").text
    assert group.count('<article class="side"') == 4
    assert "\\boxed{<mark>2</mark>} at step 3" in group


def test_a_run_that_is_still_being_written_is_followed(tmp_path: Path, browse):
    """A new line of metrics and a new file of rollouts are on the next page; half a line is not."""
    run = run_folder(tmp_path / "a")
    client = browse(run)
    assert "the last of step 3" in client.get("/0/").text
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "accuracy": 1.0}\n{"step": 5, "acc')
    (run / "rollouts" / "step-00000004.parquet").write_bytes(
        (run / "rollouts" / "step-00000003.parquet").read_bytes()
    )  # fmt: skip
    page = client.get("/0/").text
    assert "the last of step 4" in page
    assert "cannot be read" not in page
    assert client.get("/0/rows?step=4").text.count('<a class="row"') == 4


def test_a_run_says_whether_a_process_trains_in_it(tmp_path: Path, browse):
    """By the lock that training holds, and by its number of steps; only a run that goes on is asked for again."""
    run = run_folder(tmp_path / "a")
    settings = json.loads((run / "config.json").read_text())
    settings["settings"]["steps"] = 5
    client = browse(run)
    says = "Changed less than 30 s ago"
    assert says in client.get("/0/").text  # nothing but its time says so
    (run / "config.json").write_text(json.dumps(settings))
    with (run / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for address in ("/0/", "/0/rows", f"/0/row/{1 << 32}"):
            page = client.get(address).text
            assert "Being written: step 3 of 5." in page or "/row/" in address
            assert '<body data-renew="5">' in page
    for steps, said in (
        (5, "Stopped at step 3 of 5: no process trains in it now."),
        (3, "Ended: step 3 of 3."),
    ):
        settings["settings"]["steps"] = steps
        (run / "config.json").write_text(json.dumps(settings))
        page = client.get("/0/").text
        assert said in page
        assert "data-renew" not in page


def test_a_run_of_one_step_or_none_is_shown(tmp_path: Path, browse):
    """A run that has only begun has no metrics, no rollouts and half its settings."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text('{"settings": ')
    page = browse(tmp_path / "a").get("/0/").text
    assert "there are no metrics yet" in page
    assert "the settings cannot be read" in page
    assert "None were kept" in page


def test_damaged_metrics_and_rollouts_cost_only_themselves(tmp_path: Path, browse):
    """A line names each; the other steps are shown."""
    run = run_folder(tmp_path / "a")
    (run / "rollouts" / "step-00000001.parquet").write_bytes(b"PAR1 cut")
    text = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([text[0], "{broken", *text[2:]]) + "\n")
    client = browse(run)
    page = client.get("/0/rows?step=3").text
    assert page.count('<a class="row"') == 4
    assert (
        "step-00000001.parquet: is cut short, or still being written" in client.get("/0/rows").text
    )
    assert "line 2 cannot be read" in client.get("/0/").text


@pytest.mark.parametrize("column", ["score", "parts", "step", "task"])
def test_rollouts_of_another_shape_cost_only_themselves(column: str, tmp_path: Path, browse):
    """Our mark in a file that another tool has changed: one line, and the other steps are shown."""
    run = run_folder(tmp_path / "a")
    table = pq.read_table(run / "rollouts" / "step-00000001.parquet")
    odd = pa.table({column: [b"\xff", b"two"]}).replace_schema_metadata(table.schema.metadata)
    pq.write_table(odd, run / "rollouts" / "step-00000001.parquet")
    client = browse(run)
    page = client.get("/0/rows").text
    assert page.count('<a class="row"') == (
        6 if column == "step" else 4
    )  # a column that rollouts do not have
    assert ("step-00000001.parquet: cannot be read as Parquet" in page) == (column != "step")
    assert client.get(f"/0/row/{1 << 32}").status_code in (200, 404)


def test_rollouts_that_cannot_be_stored_cost_only_themselves(tmp_path: Path, browse):
    """A column that is there twice, and a step that no run reaches: a line for each, and the others are shown."""
    run = run_folder(tmp_path / "a")
    first = run / "rollouts" / "step-00000001.parquet"
    table = pq.read_table(first)
    pq.write_table(table.append_column("task", table["task"]), first)
    pq.write_table(
        pa.table({"completion": ["x"], "outcome": ["wrong"]}),
        first.with_name("step-4294967296.parquet"),
    )
    client = browse(run)
    page = client.get("/0/rows").text
    assert page.count('<a class="row"') == 4
    assert "step-00000001.parquet: cannot be read as Parquet" in page
    assert "step 4294967296 is not shown" in page
    assert client.get("/0/rows?q=different-number").text.count('<a class="row"') == 1


def test_curves_come_without_the_database():
    """The first page of a run has two seconds; what reads rows would take a quarter of them to import."""
    probe = """if True:
        import sys, tempfile, pathlib
        from rlvr import viewer
        from rlvr.viewer import pages, rendering
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "metrics.jsonl").write_text('{"step": 1, "accuracy": 0.5}')
            with viewer.Shown([pathlib.Path(folder)]) as sources:
                viewer.viewer_app(sources)
                assert pages.run_page(sources.all[0], "/0/")["panels"]
        print({"duckdb", "pyarrow", "fastapi", "torch"} & set(sys.modules))
    """
    found = run_python(probe, check=True)
    assert found.stdout.strip() == "set()"


def test_links_out_of_a_run_are_not_followed(tmp_path: Path, browse):
    """A run that was copied from elsewhere may hold links: only what is in the folder was given."""
    secret = write_json_lines(tmp_path / "secret.json", [{"settings": "concealed"}])
    run = run_folder(tmp_path / "a")
    (run / "config.json").unlink()
    (run / "config.json").symlink_to(secret)
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(
        write_json_lines(tmp_path / "m", [{"step": 777, "accuracy": 1.0}])
    )
    rows = write_json_lines(tmp_path / "rows", [record(0, completion="concealed")])
    (run / "rollouts" / "step-00000009.parquet").symlink_to(rows)
    client = browse(run)
    page = client.get("/0/").text + client.get("/0/rows?step=9").text
    assert "concealed" not in page
    assert "777" not in page
    assert "rows?step=9" not in page


@pytest.mark.parametrize(
    "values", [[1.0], [2.0] * 3, [0.0, 1e-12], [1e299, -1e299], [None, float("nan"), 1.0]]
)
def test_curves_stay_in_their_frame(values: list[float | None], tmp_path: Path):
    """One point, a flat line, tiny and huge numbers, gaps."""
    rows = [{"step": i, "loss": value, "<b>": 1.0} for i, value in enumerate(values)]
    [panel] = panels(metrics(tmp_path, rows), [0], lambda step: f"?<{step}>")
    assert "<b>" not in panel.svg
    assert "?&lt;0&gt;" in panel.svg or not panel.svg.count("<a ")
    places = [
        tuple(map(float, it.split(",")))
        for them in re.findall('points="([^"]*)"', panel.svg)
        for it in them.split()
    ]
    assert all(0 <= x <= 420 and 0 <= y <= 200 for x, y in places)
    assert "nan" not in panel.svg


def metrics(folder: Path, rows: list[dict[str, Any]]) -> RunMetrics:
    """The rows as a run's metrics."""
    read = RunMetrics(write_json_lines(folder / "metrics.jsonl", rows))
    read.update()
    return read


def test_long_runs_are_thinned_but_keep_their_peaks(tmp_path: Path):
    """A single step at which the gradient explodes must be seen among 100,000."""
    rows = [{"step": i, "grad_norm": 100.0 if i == 54_321 else 1.0} for i in range(100_000)]
    [panel] = panels(metrics(tmp_path, rows), [], None)
    [points] = re.findall('points="([^"]*)"', panel.svg)
    heights = [float(it.partition(",")[2]) for it in points.split()]
    assert len(heights) <= 1501
    assert min(heights) < 20 < 150 < max(heights)


def test_a_page_of_a_run_that_is_over_does_not_renew_itself(tmp_path: Path, browse):
    """Its step was read before, so that the page came while the others were being looked at."""
    client = browse(run_folder(tmp_path / "a"))
    client.get("/0/rows")
    pages = [client.get("/0/rows?step=1").text for _ in range(5)]
    assert all("Still reading" not in page for page in pages)


def test_tokens_are_coloured_by_what_was_recorded_of_them(tmp_path: Path, browse):
    """By probability, by what updates changed, by advantage; tokens that were not trained on have no colour."""
    client = browse(run_folder(tmp_path / "a"))
    row = re.findall(r'href="(/0/row/\d+)"', client.get("/0/rows?step=1").text)[0]
    assert "no colours</strong>" in client.get(row).text
    for colour, classes in {
        "probability": ["q0", "q3", ""],
        "change": ["d2", "d4", ""],
        "advantage": ["d0", "d0", ""],
    }.items():
        page = client.get(f"{row}?colour={colour}").text
        text = page[page.index('<pre class="text long"') :]
        assert re.findall('<span class="t (.*?)" title=', text) == classes
        assert "log-probability -3.000, in the last update -1.000, advantage -1.500" in text
        assert " at &lt;b&gt;</span>" in text
    assert "probability when it was sampled</strong>" in client.get(f"{row}?colour=nothing").text


def test_what_changed_between_two_steps_is_one_page(tmp_path: Path, browse):
    """The reason that grew, the part that moved, and the task that flipped since it was last sampled."""
    client = browse(run_folder(tmp_path / "a"))
    assert "/0/changes?step=3&amp;before=1" in client.get("/0/rows?step=3").text
    page = client.get("/0/changes?step=3&before=1").text
    cells = [re.sub("<[^>]+>", " ", row).split() for row in re.findall("<tr>(.*?)</tr>", page)]
    assert ["wrong", "different-number", "3", "1", "-50.0", "points"] in cells
    assert ["mean", "reward", "0.25", "0.75"] in cells
    assert ["correct", "0.25", "0.75", "0"] in cells
    assert ["sums/0", "1", "25%", "75%", "of", "4"] in cells
    for address in set(re.findall(r'href="(/0/[^"]*)"', page)):
        assert client.get(address.replace("&amp;", "&")).status_code == 200
    assert client.get("/0/changes?step=2&before=1").status_code == 404  # its rollouts were not kept


def test_a_search_in_rollouts_finds_any_column(tmp_path: Path, browse):
    """Completions, reasons, prompts; and what is inside an episode."""
    run = run_folder(tmp_path / "a")
    rows = rollouts(5)
    rows[2]["episode"] = [
        {
            "text": "",
            "calls": [{"name": "look", "arguments": "{}", "reply": "the needle"}],
            "user": None,
        }
    ]
    rows[1]["prompt"], rows[1]["messages"] = None, [{"role": "user", "content": "hay needle"}]
    write_rollouts(run / "rollouts" / "step-00000005.parquet", rows)
    client = browse(run)
    for query, count in {"needle": 2, "at+step+3": 4, "different-number": 4, "nowhere": 0}.items():
        for _ in range(2):  # the second time from what was kept
            assert client.get(f"/0/rows?q={query}").text.count('<a class="row"') == count, query
    page = client.get(f"/0/row/{(5 << 32) + 2}").text
    assert "call of look" in page
    assert "the needle" in page
    assert "hay needle" in client.get(f"/0/text/{(5 << 32) + 1}/prompt").text
