"""Checkpoints with shards: complete or absent, whatever befalls the folder beside the file."""

import datetime
import gc
import pickle

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from rlvr.errors import DataError
from rlvr.train import checkpoint

WEIGHTS = torch.arange(12.0).reshape(6, 2)


@pytest.fixture(scope="module")
def shard():
    """Makes a tensor one of a group of one process, as it would be in a group of several."""
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=limit)
    mesh = init_device_mesh("cpu", (1,))
    yield lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])
    gc.collect()
    dist.destroy_process_group()


def folder_of(path):
    [found] = path.parent.glob(f"{path.stem}-*/")
    return found


def test_shards_come_back_whole_in_their_places(shard, tmp_path):
    """Between lists, dicts and plain tensors; the file without its folder is a small one."""
    state = {"a": [shard(WEIGHTS), {3: shard(WEIGHTS[:, 0])}], "b": torch.ones(2), "c": (1, "x")}
    path = checkpoint.save(tmp_path, 7, state, keep=1)
    found = checkpoint.load_checkpoint(path)
    assert torch.equal(found["a"][0], WEIGHTS)
    assert torch.equal(found["a"][1][3], WEIGHTS[:, 0])
    assert (found["b"].tolist(), found["c"], set(found)) == ([1.0, 1.0], (1, "x"), {"a", "b", "c"})


def test_folders_go_with_their_checkpoints(shard, tmp_path):
    """Those that are pruned, that were written again, or that a killed run has left."""
    (tmp_path / "step-00000002-deadbeef").mkdir()
    for step in (1, 2, 3, 3):
        checkpoint.save(tmp_path, step, {"w": shard(WEIGHTS)}, keep=2)
    names = sorted(path.name[:13] for path in tmp_path.iterdir())
    assert names == ["step-00000002"] * 2 + ["step-00000003"] * 2


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "folder"])
def test_damaged_shards_cost_the_steps_since_the_checkpoint_before(shard, tmp_path, damage):
    for step in (1, 2):
        path = checkpoint.save(tmp_path, step, {"w": shard(WEIGHTS + step)}, keep=2)
    folder = folder_of(path)
    file = max(folder.glob("*.distcp"))
    whole = file.read_bytes()
    if damage == "folder":
        folder.rename(tmp_path / "elsewhere")
    elif damage == "gone":
        file.unlink()
    else:
        flipped = bytes([*whole[:-9], whole[-9] ^ 1, *whole[-8:]])
        file.write_bytes(flipped if damage == "flip" else whole[:-1])
    with pytest.raises(DataError, match="is gone, or its checksum does not fit") as error:
        checkpoint.load_checkpoint(path)
    assert "\n" not in str(error.value)
    with pytest.warns(RuntimeWarning, match=r"going on from the one before, step-00000001\.pt"):
        _, state = checkpoint.newest(tmp_path, ["w"])
    assert torch.equal(state["w"], WEIGHTS + 1)


@pytest.mark.parametrize("own", [False, True])
def test_a_run_of_a_stranger_runs_no_code(shard, tmp_path, monkeypatch, own):
    """torch unpickles what describes the shards, of all ranks or else of one; checksums fit, as the
    stranger has made them too."""
    ran = tmp_path / "ran"
    hostile = pickle.dumps(Writes(ran))

    def replaces(folder):
        (folder / ".metadata").write_bytes(
            pickle.dumps(Metadata({}, storage_meta="")) if own else hostile
        )
        if own:
            (folder / "__0.metadata").write_bytes(hostile)

    monkeypatch.setattr(checkpoint, "sync_folder", replaces)
    path = checkpoint.save(tmp_path, 1, {"w": shard(WEIGHTS)}, keep=1)
    with pytest.raises(DataError, match=r"does not describe shards|cannot read its shards"):
        checkpoint.load_checkpoint(path)
    assert not ran.exists()


class Writes:
    """A file, when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


def test_a_disk_that_fills_while_shards_are_written_leaves_the_checkpoint_before(
    shard, tmp_path, monkeypatch
):
    """One line, with the rank; and nothing takes the place that the next try needs."""
    checkpoint.save(tmp_path, 1, {"w": shard(WEIGHTS)}, keep=2)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=r"rank 0 cannot write its shards: .*No space left") as error:
        checkpoint.save(tmp_path, 2, {"w": shard(WEIGHTS)}, keep=2)
    assert error.value.errno == 28
    assert {path.name[:13] for path in tmp_path.iterdir()} == {"step-00000001"}
    assert torch.equal(checkpoint.newest(tmp_path)[1]["w"], WEIGHTS)
