"""A Ray autoscaler adds nodes while rows wait.  `make test-ray` runs it; real autoscalers of clouds were not tried.

The provider is the simulated one of Ray's `AutoscalingCluster`; the class itself stops every Ray of the machine, and
reads a file that the wheel lacks.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")

from tests.processes import PATIENCE_S

HEAD = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
NODE = {
    "resources": {"CPU": 1, "object_store_memory": 100 << 20},
    "node_config": {},
    "min_workers": 0,
    "max_workers": 2,
}
EMPTY = [
    f"{kind}_commands"
    for kind in "initialization setup head_setup worker_setup head_start_ray worker_start_ray".split()
]
CONFIG = {
    "cluster_name": "simulated",
    "max_workers": 2,
    "upscaling_speed": 1.0,
    "idle_timeout_minutes": 5,
    "auth": {},
    "available_node_types": {"cpu": NODE, "ray.head.default": HEAD},
    "head_node_type": "ray.head.default",
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "rsync_filter": [],
    **{key: [] for key in EMPTY},
}
SCRIPT = """
import json, sys, time
import rlvr
from rlvr.scoring.engines import RayCluster

class Slow(rlvr.Environment):
    def task(self, index):
        return rlvr.Task(f"slow/{index}", "Say it.", reference=str(index))

    def verify(self, task, completion):
        time.sleep(0.05)
        return rlvr.Verdict("correct" if completion == task.reference else "wrong")

with rlvr.Scorer(Slow(), engine=RayCluster(sys.argv[1])) as scorer:
    workers, right = [scorer.workers], True
    for one in scorer.stream({"task": i, "completion": str(i)} for i in range(10**5)):
        right &= one.score.verdict.correct
        if scorer.workers == 2:
            break
    workers.append(scorer.workers)
print(json.dumps([workers, right]))
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of a cluster whose head has no CPU, and whose autoscaler may add two nodes of one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    provider = {
        "type": "fake_multinode",
        "gcs_address": f"127.0.0.1:{port}",
        "disable_node_updaters": True,  # they use ssh
        "disable_launch_config_check": True,
        "use_node_id_as_ip": True,  # else it waits for its first node for ever: all have one address
    }
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "provider": provider}))
    more = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    argv = [
        "start",
        "--head",
        "--block",
        f"--port={port}",
        "--num-cpus=0",
        "--node-ip-address=127.0.0.1",
    ]
    argv += [f"--autoscaling-config={tmp_path / 'config.json'}", "--include-dashboard=false"]
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / "ray"), *argv],
        env=os.environ | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = []
    for line in process.stdout:
        said.append(line)
        if "Ray runtime started" in line:
            break
    else:
        pytest.fail("".join(said))
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


DATASET = """
import sys
import ray, rlvr
from rlvr.scoring.engines import score_dataset

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
rows = [{"id": i, "task": i, "completion": "7"} for i in range(100)]
totals = score_dataset(ray.data.from_items(rows), rlvr.make("arithmetic-v1"), sys.argv[2], parts=2)
print(totals.scored)
"""


def run(script: str, *argv: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_an_autoscaler_sees_demand(address):
    """From no node at all one comes as a scorer wants it; while all its workers are busy a second comes, and works."""
    assert json.loads(run(SCRIPT, address)) == [[1, 2], True]


def test_nodes_come_for_a_dataset(address, tmp_path):
    """From no node at all: what reads and what scores wait for theirs."""
    assert run(DATASET, address, tmp_path / "out") == "100"
