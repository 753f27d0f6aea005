"""What wraps a module works on the policy's root: two gloo processes, DDP."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("wrapped_worker.py")


@pytest.mark.parametrize("names", ["tied full", "untied lora"])
def test_two_ranks_add_up_to_the_gradient_of_one_process(names):
    """Forward and backward, in float64 to 1e-12 of each gradient's norm; with LoRA, the adapter switched off before.

    A trainer that called layers or read the head past the root would get no gradients here.
    """
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    done = subprocess.run(
        [*command, WORKER, *names.split()],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(WORKER.parent.parent.parent)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{names}: gradients differ by" in done.stdout
