"""What a run leaves for people: the log, the line on the terminal, rollouts, and the picture."""

import json
import os
import subprocess
import sys
import types

import pytest
from rich.console import Console

from rlvr.errors import DataError, MissingDependency, UsageError
from rlvr.train.metrics import Jsonl, Progress, TensorBoard, Tracker, read_metrics, versions
from rlvr.train.plot import plot
from tests.json_lines import write_json_lines
from tests.processes import run_python
from tests.train.bandit import run_to_end


def test_a_number_that_is_not_finite_is_null(tmp_path):
    """NaN is no JSON: other readers would refuse the whole line."""
    log = Jsonl(tmp_path / "m.jsonl")
    log.log(1, {"a": float("nan"), "b": float("inf"), "c": 0.5})
    log.close()
    assert json.loads((tmp_path / "m.jsonl").read_text()) == {
        "step": 1,
        "a": None,
        "b": None,
        "c": 0.5,
    }


def test_a_run_that_goes_on_drops_what_was_logged_after_its_checkpoint(tmp_path):
    """Those steps come again. A run that begins anew drops everything."""
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n{"step": 3, "lo')
    Jsonl(path, resume_at=1).close()
    assert read_metrics(path) == [{"step": 0}, {"step": 1}]
    Jsonl(path).close()
    assert read_metrics(path) == []


def test_the_terminal_has_a_line_per_step_with_what_is_left(capsys):
    """Titles first; a number that a step does not have is a dash."""
    progress = Progress(4, Console(force_terminal=True, no_color=True, width=90))
    progress.log(1, {"accuracy": 0.5, "step_s": 1.0})
    said = capsys.readouterr().out.splitlines()
    assert "step accuracy   reward" in said[0]
    assert said[1].split()[:3] == ["1", "0.500", "–"]
    assert said[1].split()[-1] == "0:00"


def test_a_log_file_has_every_tenth_step_and_the_last(capsys):
    """A file needs no progress bar."""
    progress = Progress(12, Console(width=90))
    for step in range(13):
        progress.log(step, {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "step",
        "10",
        "12",
    ]


def test_tensorboard_has_the_same_numbers(tmp_path):
    """And a run that goes on hides what came after its checkpoint."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = TensorBoard(tmp_path)
    for step in (1, 2, 3):
        first.log(step, {"reward": step / 10})
    first.close()
    again = TensorBoard(tmp_path, resume_at=1)
    again.log(2, {"reward": 0.9})
    again.close()
    found = accumulator.EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(event.step, round(event.value, 5)) for event in found.Scalars("reward")] == [
        (1, 0.1),
        (2, 0.9),
    ]


def test_a_run_says_the_same_to_all_who_listen(tmp_path, monkeypatch):
    """Event files read back, and a tracker with W&B's interface: every number of every line of metrics.jsonl."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    told = []
    fake = types.SimpleNamespace(
        init=lambda **_: None, log=told.append, finish=lambda: told.append("finished")
    )
    monkeypatch.setitem(sys.modules, "fake_tracker", fake)
    run_to_end(tmp_path / "run", steps=2, eval_every=1, eval_tasks=3, track="fake_tracker")
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert told == [*({**row} for row in rows), "finished"]
    found = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    events = {
        (e.step, name): e.value for name in found.Tags()["scalars"] for e in found.Scalars(name)
    }
    wanted = {
        (row["step"], name): value for row in rows for name, value in row.items() if name != "step"
    }
    assert events == pytest.approx(wanted, rel=1e-6)


def test_a_tracker_is_whatever_has_its_three_functions(monkeypatch, tmp_path):
    """W&B, trackio: init, log, finish."""
    calls = []
    fake = types.SimpleNamespace(
        init=lambda **given: calls.append(("init", given)),
        log=lambda numbers: calls.append(("log", numbers)),
        finish=lambda: calls.append(("finish",)),
    )
    monkeypatch.setitem(sys.modules, "fake_tracker", fake)
    tracker = Tracker("fake_tracker", project="p", run=tmp_path / "n", config={"lr": 1})
    tracker.log(3, {"reward": 0.5})
    tracker.close()
    assert calls == [
        ("init", {"project": "p", "name": "n", "config": {"lr": 1}}),
        ("log", {"reward": 0.5, "step": 3}),
        ("finish",),
    ]
    with pytest.raises(
        UsageError, match=r"no_such_tracker.*not installed; pip install no_such_tracker"
    ):
        Tracker("no_such_tracker", project="p", run=tmp_path, config={})
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        UsageError, match=r"wandb.*not installed; pip install -c constraints.txt '\.\[track\]'"
    ):
        Tracker("wandb", project="p", run=tmp_path, config={})


TRACK = """
import sys
from pathlib import Path
from rlvr.train.metrics import Tracker

for first in (1, 2):  # the second run goes on from the checkpoint of step 1
    config = {"lr": 1e-6, "algorithm": {"clip": 0.2}}
    tracker = Tracker(sys.argv[1], project="rlvr", run=Path(sys.argv[2]), config=config)
    for step in (first, first + 1):
        tracker.log(step, {"reward/correct": step / 4, "eval/avg@1": float("nan")})
    tracker.close()
"""


def tracked(package, run, **variables):
    """Log with the real package in a process of its own, offline."""
    pytest.importorskip(package, reason="pip install -c constraints.txt '.[track]'")
    run.mkdir()
    environment = {**os.environ, "WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1", **variables}
    subprocess.run(
        [sys.executable, "-c", TRACK, package, str(run)],
        check=True,
        env=environment,
        capture_output=True,
    )


@pytest.mark.slow
def test_wandb_takes_what_a_run_says_offline(tmp_path):
    """Its own file has settings, every number and the step of each; both processes are one run of theirs."""
    tracked(
        "wandb",
        tmp_path / "a",
        WANDB_ERROR_REPORTING="false",
        WANDB_DATA_DIR=str(tmp_path),
        WANDB_CACHE_DIR=str(tmp_path),
    )
    files = sorted((tmp_path / "a" / "wandb").glob("offline-run-*/*.wandb"))
    assert files
    assert (
        len({path.name for path in files}) == 1
    )  # the id, by which `wandb sync` puts them together
    raw = b"".join(path.read_bytes() for path in files)
    for said in (b"reward/correct", b"0.25", b"0.75", b"eval/avg@1", b"algorithm", b"step"):
        assert said in raw, said


@pytest.mark.slow
def test_trackio_takes_what_a_run_says_offline(tmp_path):
    """Read back from its data base: one run, with the steps that were given."""
    tracked("trackio", tmp_path / "a", TRACKIO_DIR=str(tmp_path / "kept"))
    read = (
        "import json; from trackio.sqlite_storage import SQLiteStorage as S; "
        "print(json.dumps(S.get_logs('rlvr', 'a')))"
    )
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "kept"), "HF_HUB_OFFLINE": "1"}
    said = run_python(read, check=True, env=environment).stdout
    rows = json.loads(said.splitlines()[-1])
    assert [(row["step"], row["reward/correct"]) for row in rows] == [
        (1, 0.25),
        (2, 0.5),
        (2, 0.5),
        (3, 0.75),
    ]


def test_versions_name_what_a_number_may_depend_on():
    """A curve that cannot be had again is first held against these."""
    assert {"python", "platform", "torch", "transformers"} <= set(versions())


@pytest.mark.slow
def test_a_run_becomes_a_picture(tmp_path):
    """Also one whose steps lack some of the numbers, or have null for them."""
    pytest.importorskip("matplotlib")
    rows = [
        {"step": 0, "eval/avg@1": 0.2, "eval/avg@1/low": 0.1, "eval/avg@1/high": 0.3},
        {"step": 1, "reward": 0.5, "entropy": None},
        {"step": 2, "reward": 0.6, "entropy": 1.0},
    ]
    write_json_lines(tmp_path / "metrics.jsonl", rows)
    assert plot(tmp_path) == tmp_path / "curves.png"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert plot(tmp_path, tmp_path / "other.png").stat().st_size > 10_000


def test_an_evaluation_is_drawn_once_however_many_names_it_has(tmp_path, monkeypatch):
    """With one completion a task avg@1, maj@1 and pass@1 are one curve, and say so; with more pass@4 is another."""
    from matplotlib.axes import Axes

    drawn = []
    monkeypatch.setattr(Axes, "plot", lambda self, *a, **k: drawn.append(k.get("label")))
    monkeypatch.setattr(Axes, "legend", lambda self, **options: None)
    names = {"eval/avg@1": 0.2, "eval/pass@1": 0.2, "eval/maj@1": 0.2, "eval/pass@4": 0.5}
    row = {"step": 0} | {
        f"{name}{end}": value for name, value in names.items() for end in ("", "/low", "/high")
    }
    write_json_lines(tmp_path / "metrics.jsonl", [row])
    plot(tmp_path)
    assert [label for label in drawn if label] == ["avg@1 = maj@1 = pass@1", "pass@4"]


def test_a_picture_has_parts_outcomes_and_no_empty_panel(tmp_path, monkeypatch):
    """Steps are whole numbers; the title says what was trained; unscored rollouts are drawn where there are some."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    seen = []
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (self.canvas.draw(), seen.append(self))
    )
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    settings = {"env": "bandit-v1", "model": "tiny", "algorithm": {"name": "grpo"}}
    (run / "config.json").write_text(json.dumps({"settings": settings}))
    step = {
        "reward": 0.5,
        "reward/correct": 0.4,
        "reward/$x$": 0.1,
        "unscored": 0.0,
        "outcome/wrong": 0.5,
        "kl": None,
    }
    for unscored in (0.0, 3.0):
        rows = [{"step": 1, **step}, {"step": 2, **step, "unscored": unscored}]
        write_json_lines(run / "metrics.jsonl", rows)
        plot(run)
    first, second = ([panel.get_title() for panel in figure.axes] for figure in seen)
    assert first == ["mean reward and its parts", "outcomes, share of rollouts"]
    assert second == [*first, "unscored rollouts"]
    panel = seen[0].axes[0]
    assert [line.get_label() for line in panel.get_lines()] == [
        "reward",
        r"reward/\$x\$",
        "reward/correct",
    ]
    assert {float(tick).is_integer() for tick in panel.get_xticks()} == {True}
    assert seen[0].get_suptitle() == "runs/a: bandit-v1, tiny, grpo"


def test_a_folder_without_a_run_is_named(tmp_path):
    """And not drawn as six empty panels."""
    with pytest.raises(DataError, match="has no steps"):
        plot(tmp_path)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    """One line says how to get it."""
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match=r"pip install -c constraints\.txt '\.\[train\]'"):
        plot(tmp_path)
