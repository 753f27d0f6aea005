"""What older versions wrote is read: records replay, files compare, reports open, runs go on."""

import shutil
from pathlib import Path

import pytest

import rlvr
from rlvr.cli import main
from rlvr.data.strengths import read_strengths
from rlvr.records import replay
from rlvr.scoring.compare import read_results
from rlvr.viewer.reports import read_report
from tests.frozen.write import small_run
from tests.json_lines import read_json_lines

RELEASES = sorted(path for path in Path(__file__).parent.iterdir() if (path / "run").is_dir())
assert RELEASES, "no release's files are here"
pytestmark = [
    pytest.mark.parametrize("written", RELEASES, ids=lambda path: path.name),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # another identity: the code goes on
]


def test_every_recorded_completion_scores_as_it_did(written: Path):
    """Outcome, reason, answer, detail and total of every bundled environment's records."""
    path = written / "records.jsonl"
    differences = list(replay(path, workers=0, accept=("code",)))  # 31 pools would cost a minute
    assert len(differences) == len(read_json_lines(path)) > 60
    assert not [str(one) for found in differences for one in found]


def test_scored_files_replay_and_compare(written: Path):
    """JSON lines and Parquet say the same, and their identities are read."""
    found = [read_results(written / f"scored.{ending}") for ending in ("jsonl", "parquet")]
    assert found[0].tasks == found[1].tasks
    assert len(read_json_lines(written / "scored.jsonl")) == 3
    for ending in ("jsonl", "parquet"):
        assert main(["replay", str(written / f"scored.{ending}"), "--accept", "code"]) == 0


def test_reports_open(written: Path):
    """In the viewer; and the strength of tasks where it filters and trains."""
    for name in ("check", "strength", "audit", "compare", "run/evaluations/step-2"):
        report = read_report(written / f"{name}.json")
        assert report is not None, name
        assert report.lines or report.tables
    known = read_strengths(written / "strength.json")
    env = rlvr.make("code-drills-v1")
    tasks = {task.id: task for task in map(env.task, range(200)) if task.id in known.tasks}
    assert len(tasks) == len(known.tasks) == 3
    assert {known.of(task.id, task.reference).state for task in tasks.values()} >= {"untested"}


def test_a_run_goes_on_from_its_checkpoint(written: Path, tmp_path: Path):
    """And keeps what it had logged; a step file is still recomputed within rounding."""
    run = tmp_path / "run"
    shutil.copytree(written / "run", run)
    before = read_json_lines(run / "metrics.jsonl")
    small_run(run, 3)
    after = read_json_lines(run / "metrics.jsonl")
    assert after[: len(before)] == before
    assert [row["step"] for row in after] == [0, 1, 2, 3]
    assert after[3]["updates"] == 1
    for path in sorted((written / "run/steps").iterdir()):
        assert main(["step", "verify", str(path)]) == 0
