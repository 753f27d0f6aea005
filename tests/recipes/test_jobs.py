"""Job files: they parse, hold the plan's commands, and start servers where the trainers look for them."""

import os
import re
import subprocess
from typing import get_args

import pytest
import yaml

from rlvr.cli.train import _Launcher
from rlvr.errors import UsageError
from rlvr.recipes.jobs import LAUNCHERS, job_file
from rlvr.recipes.plan import commands
from rlvr.recipes.recipe import Machine

LARGE = Machine("org/model", trainers=16, samplers=10)
GIVEN = ["--reward", "2*correct - 1"]
STUB = '#!/bin/bash\necho "$rank ${CUDA_VISIBLE_DEVICES-} $(basename "$0") $*" >> calls\n'

SLEEP = """#!/bin/bash
until (( $(grep -c vllm_server calls) == SERVERS )); do /bin/sleep 0.02; done
touch .over-7
"""  # of a node that samples: until its servers have begun; then the first node has ended


def script_of(launcher: str, text: str) -> str:
    """What each node runs."""
    if launcher == "slurm":
        return text.partition("<<'NODE' || true\n")[2].partition("\nNODE\n")[0]
    *_, document = yaml.safe_load_all(text)
    if launcher == "skypilot":
        return document["run"]
    return document["spec"]["template"]["spec"]["containers"][0]["args"][0]


def require_bash(script: str) -> None:
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_file_parses_and_holds_the_commands_of_the_plan(launcher):
    """Of one device the command as it is; of many all words but those that stand for addresses."""
    assert tuple(LAUNCHERS) == get_args(_Launcher)
    small = job_file(launcher, "math_dapo", "small", Machine("org/model"), GIVEN)
    require_bash(script_of(launcher, small))
    assert commands("math_dapo", "small", Machine("org/model"), GIVEN)[0] in small
    text = job_file(launcher, "math_dapo", "paper", LARGE, GIVEN)
    script = script_of(launcher, text)
    require_bash(script)
    for command in commands("math_dapo", "paper", LARGE, GIVEN):
        words = command.partition("    #")[0]
        for part in re.split(r"8000|FIRST_NODE|http\S+|FOLDER_OF_ALL", words):
            assert part in script
    if launcher == "slurm":
        require_bash(text)
    assert "Not tried on a cluster" in text.replace("not", "Not")


def test_trainers_ask_the_servers_that_samplers_start(tmp_path):
    """Two nodes train, two sample: eight servers on one and two on the other."""
    script = script_of("slurm", job_file("slurm", "math_dapo", "paper", LARGE, GIVEN))
    stubs = {
        "python": STUB,
        "curl": STUB,
        "torchrun": STUB,
        "scontrol": "#!/bin/bash\nprintf '%s\\n' a b c d\n",
        "sleep": SLEEP,
    }
    for name, text in stubs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    common = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "a,b,c,d",
        "SLURM_JOB_ID": "7",
    }
    for rank, servers in ((2, 8), (3, 10), (1, 0), (0, 0)):
        (tmp_path / ".over-7").unlink(missing_ok=True)
        node = common | {"SLURM_NODEID": str(rank), "SERVERS": str(servers)}
        subprocess.run(["bash", "-c", f"export rank\n{script}"], cwd=tmp_path, env=node, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    served = [
        f"http://{'abcd'[int(call[0])]}:{port[1]}"
        for call in calls
        if (port := re.search(r"^\d \d python .*vllm_server org/model .*--port (\d+)", call))
    ]
    trained = [call for call in calls if "torchrun" in call]
    assert len(set(served)) == 10
    assert [call[0] for call in trained] == ["1", "0"]
    for call in trained:
        assert sorted(re.search(r"--sampler (\S+)", call)[1].split(",")) == sorted(served)
        assert (
            "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint a:29500 --nproc-per-node 8 -m" in call
        )
        assert "--reward 2*correct - 1 " in call
        assert f"--sampler-folder {tmp_path}/.weights-7" in call
    assert (tmp_path / ".over-7").is_file()


def test_a_job_that_would_start_servers_takes_no_others():
    with pytest.raises(UsageError, match="a job starts its samplers itself; leave --sampler"):
        job_file("slurm", "math_dapo", "paper", LARGE, ["--sampler", "http://a:8000"])


@pytest.mark.parametrize(
    "flag", ["--sampler=http://a:8000", "--serve-samplers=2", "--sampler=vllm"]
)
def test_a_plan_names_the_samplers_that_were_given_and_no_others(flag):
    [train] = commands("math_dapo", "paper", LARGE, [flag])
    assert train.endswith(flag)
