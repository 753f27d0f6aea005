"""Which GPUs servers of samplers get."""

import pytest
import torch

from rlvr.errors import UsageError
from rlvr.train.sampling import server_devices


@pytest.mark.parametrize(
    ("count", "there", "environment", "held", "wanted"),
    [
        (2, 4, {}, 0, ["2", "3"]),
        (2, 4, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, 0, ["6", "7"]),
        (3, 4, {"CUDA_VISIBLE_DEVICES": "4, 5,6,7"}, 2, ["4", "5", "7"]),
        (2, 4, {"CUDA_VISIBLE_DEVICES": "4,5,6,7", "LOCAL_WORLD_SIZE": "2"}, 0, ["6", "7"]),
        (1, 2, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, 0, ["GPU-b"]),
        (1, 2, {"CUDA_VISIBLE_DEVICES": "0,1,-1,5"}, 0, ["1"]),
        (4, 8, {"LOCAL_WORLD_SIZE": "4"}, 0, ["4", "5", "6", "7"]),
    ],
)
def test_servers_get_visible_gpus_that_no_rank_holds(
    monkeypatch, count, there, environment, held, wanted
):
    """By the names that CUDA_VISIBLE_DEVICES has; the ranks of this machine hold the first ones."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    assert server_devices(count, environment, held) == wanted


def test_too_few_gpus_are_refused(monkeypatch):
    """4 ranks and 6 servers on 8 GPUs: two servers would share with the trainer."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    with pytest.raises(UsageError, match="serve_samplers is 6, and of 8 visible GPUs 4 are held"):
        server_devices(6, {"LOCAL_WORLD_SIZE": "4"}, 0)
