"""A Ray dataset scored on the nodes: read, scored and written there.  `make test-ray` runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

from ray._private.test_utils import get_other_nodes  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import rlvr  # noqa: E402
from rlvr.data.rows import read_whole  # noqa: E402
from rlvr.errors import DataError, UsageError  # noqa: E402
from rlvr.scoring.engines import score_dataset  # noqa: E402
from tests.environments import Siblings, Trials  # noqa: E402
from tests.processes import PATIENCE_S  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
SMALL = {"object_store_memory": 100 << 20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, and two nodes of one CPU."""
    head = {"num_cpus": 0, "include_dashboard": False, **SMALL}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, **SMALL)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def records(folder: Path) -> dict:
    """Score and outcome by id; ids are unique over all files."""
    rows = [
        row for path in sorted(folder.glob("part-*-of-?????.jsonl")) for row in read_whole(path)
    ]
    by_id = {row["id"]: (row["outcome"], row["total"], row["parts"], row["task"]) for row in rows}
    assert len(by_id) == len(rows)
    return by_id


def expected(env: rlvr.Environment, rows: list[dict], left_out: list[str]) -> dict:
    scored = rlvr.score(env, rows, workers=0, on_error=lambda _, error: left_out.append(str(error)))
    return {
        one.item.id: (one.outcome.value, one.score.total, dict(one.score.parts), one.item.task.id)
        for one in scored
    }


def test_scores_are_those_of_one_machine(cluster, tmp_path):
    """Rows that cannot be used, doubles, and rows without ids, two of which are alike."""
    rows = [{"id": i, "task": i, "completion": f"{i % 7}"} for i in range(200)]
    rows += [{"id": 3, "task": 3, "completion": "3"}, {"id": 500, "completion": "no task"}]
    left_out: list[str] = []
    here = expected(Trials(), rows, left_out)
    rows += [{"task": 5, "completion": "5"}] * 2
    dataset = ray.data.from_items(rows, override_num_blocks=5)
    totals = score_dataset(dataset, Trials(), tmp_path / "out", parts=4)
    there = records(tmp_path / "out")
    nameless = {name: there.pop(name) for name in [*there] if str(name).startswith("row:")}
    assert [one[:2] for one in nameless.values()] == [("correct", 1.0)] * 2
    # Of two rows with one id that differ, one counts; which is settled by their content.
    assert there.keys() == here.keys()
    assert all(there[name] == here[name] for name in here if name != 3)
    assert (totals.scored, totals.left_out) == (202, 2)
    reasons = [
        json.loads(line)["why"]
        for path in (tmp_path / "out").glob("*.rejected.jsonl")
        for line in path.open()
    ]
    assert sorted(reasons) == sorted(left_out)


def test_groups_are_whole(cluster, tmp_path):
    """Wherever the completions of a task stand; the reward compares their lengths."""
    rows = [
        {"id": i, "task": i // 4, "completion": f"{i // 4}", "length_tokens": 5 * i % 7 + 1}
        for i in range(80)
    ]
    here = expected(Siblings(), rows, [])
    double = {"id": 7, "task": 30, "completion": "30", "length_tokens": 1}
    dataset = ray.data.from_items([*rows[::3], *rows[1::3], *rows[2::3], double])
    totals = score_dataset(dataset, Siblings(), tmp_path / "out", parts=3)
    assert (totals.scored, totals.left_out) == (80, 1)
    there = records(tmp_path / "out")
    whole = {name for name, one in here.items() if not one[3].endswith(("/1", "/30"))}
    assert {name: there[name] for name in whole} == {name: here[name] for name in whole}


def test_what_is_there_is_kept_and_compared(cluster, tmp_path):
    """Other rows, another environment and a folder in use are refused in one line."""
    out = tmp_path / "out"
    dataset = ray.data.from_items([{"id": i, "task": i, "completion": "1"} for i in range(50)])
    score_dataset(dataset, Trials(), out, parts=3)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.iterdir()}
    with pytest.raises(UsageError, match="pass resume=True"):
        score_dataset(dataset, Trials(), out)
    assert score_dataset(dataset, Trials(), out, resume=True).scored == 50
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.iterdir()}
    others = ray.data.from_items([{"id": i, "task": i, "completion": "2"} for i in range(50)])
    with pytest.raises(UsageError, match=r"differs from this run in data: part . has another"):
        score_dataset(others, Trials(), out, resume=True)
    with pytest.raises(UsageError, match=r"differs from .* in settings"):
        score_dataset(dataset, Siblings(), out, resume=True, parts=3)
    with pytest.raises(DataError, match=r"no row of the dataset could be used"):
        score_dataset(ray.data.from_items([{"x": 1}]), Trials(), tmp_path / "none", parts=1)


DRIVER = """
import sys, time
import ray, rlvr
from rlvr.scoring.engines import score_dataset

class Slow(rlvr.Environment):
    def task(self, index):
        return rlvr.Task(f"slow/{index}", "Say it.", reference=str(index))

    def verify(self, task, completion):
        time.sleep(0.01)
        return rlvr.Verdict("correct" if completion == task.reference else "wrong")

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
rows = ray.data.range(1200, override_num_blocks=4)
rows = rows.map(lambda row: {"id": int(row["id"]), "task": int(row["id"]), "completion": "7"})
print(score_dataset(rows, Slow(), sys.argv[2], parts=12, resume=True).scored)
"""


def start(cluster: Cluster, out: Path) -> subprocess.Popen:
    argv = [sys.executable, "-W", "ignore", "-c", DRIVER, cluster.address, str(out)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_parts(out: Path, count: int, driver: subprocess.Popen) -> None:
    until = time.monotonic() + 2 * PATIENCE_S
    while len([*out.glob("part-*.shard.json")]) < count:
        assert driver.poll() is None, driver.stderr.read()[-3000:]
        assert time.monotonic() < until
        time.sleep(0.05)


def await_end(driver: subprocess.Popen) -> None:
    """All rows are scored; Ray writes lines of its own into the output, after ours too."""
    printed, errors = driver.communicate(timeout=4 * PATIENCE_S)
    assert driver.returncode == 0, errors[-3000:]
    assert "1200" in printed.splitlines(), printed[-3000:] + errors[-3000:]


def test_what_dies_is_gone_on_with(cluster, tmp_path):
    """The driver is killed, then actors, then a node: the files have the bytes of one run, and
    finished parts are not scored again."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    await_end(start(cluster, whole))
    driver = start(cluster, out)
    await_parts(out, 2, driver)
    driver.kill()
    driver.communicate()
    done = {path: path.stat().st_mtime_ns for path in out.glob("part-*.shard.json")}
    driver = start(cluster, out)
    await_parts(out, 4, driver)
    for pid in actors():
        os.kill(pid, signal.SIGKILL)
    await_parts(out, 6, driver)
    [node, *_] = get_other_nodes(cluster, exclude_head=True)
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(num_cpus=1, **SMALL)
    await_end(driver)
    assert done.items() <= {path: path.stat().st_mtime_ns for path in out.iterdir()}.items()
    parts = sorted(path.name for path in whole.glob("part-*-of-?????.jsonl"))
    assert len(parts) == 12
    for name in parts:
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def actors() -> list[int]:
    """Processes of Ray Data that score."""
    titles = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            titles[int(path.parent.name)] = path.read_bytes()
        except OSError:
            continue
    return [pid for pid, title in titles.items() if b"PartScorer" in title]
