"""harbor's own command plays folders in our sandbox: the solution earns 1, an empty hand 0."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("harbor.environments.base", reason="harbor is not installed")

import rlvr
from rlvr.interop import from_harbor, to_harbor
from tests.interop.test_harbor import write
from tests.processes import ROOT

PLACE = "rlvr.interop.harbor_sandbox:RlvrSandbox"
SHARED = """schema_version = "1.4"
[task]
name = "tests/shared"
"""


def rewards(folder, agent, jobs):
    """What each trial earned, by the task's name."""
    argv = [str(Path(sys.executable).with_name("harbor")), "run", "-p", str(folder), "-a", agent]
    argv += ["--env", PLACE, "-o", str(jobs), "--job-name", agent, "-y", "-q"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1", "HARBOR_TELEMETRY": "0"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = [json.loads(path.read_text()) for path in (jobs / agent).glob("*/result.json")]
    return {one["task_name"]: one["verifier_result"]["rewards"]["reward"] for one in results}


def test_harbor_plays_our_folders_and_those_of_others(tmp_path):
    """Graded apart (`to_harbor`, and a folder by hand), and in the policy's own container."""
    folder = tmp_path / "tasks"
    names = [path.name for path in to_harbor(rlvr.make("bash-v1"), folder, tasks=1)]
    write(folder / "double")
    write(folder / "shared", task_toml=SHARED)
    assert set(rewards(folder, "oracle", tmp_path / "jobs").values()) == {1.0}
    idle = rewards(folder, "nop", tmp_path / "jobs")
    assert set(idle.values()) == {0.0}
    assert len(idle) == len(names) + 2
    with pytest.warns(rlvr.errors.DataWarning):
        assert from_harbor(folder).size == len(names)  # those by hand were not validated
