"""Weights that ranks read from files by themselves; on several ranks see tests/ranks."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlvr.errors import UsageError
from rlvr.train.policy import Policy
from rlvr.train.ranks import Ranks
from rlvr.train.shares import empty_of_folder
from rlvr.train.tiny import tiny
from tests.train.bandit import CHARSET

WEIGHT = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def model():
    return tiny(CHARSET, hidden=16, heads=2, layers=2)


@pytest.fixture
def folder(model, tmp_path):
    Policy(*model).save(tmp_path)
    return tmp_path


def edit(path, change) -> None:
    state = load_file(path)
    change(state)
    save_file(state, path, metadata={"format": "pt"})


def in_files(model, folder, old=0.0) -> None:
    """Several files with their index, among which are some of a model that was saved there before."""
    model[0].save_pretrained(folder, max_shard_size="8KB")
    [first] = folder.glob("model-00001-of-*.safetensors")
    state = load_file(first)
    (folder / "model.safetensors").unlink(missing_ok=True)
    stale = {name: torch.full_like(value, old) for name, value in state.items()}
    save_file(stale, folder / "model-00009-of-00009.safetensors")
    save_file(stale, folder / "adapter_model.safetensors")


def bfloat16(folder) -> None:
    edit(
        folder / "model.safetensors",
        lambda state: state.update({name: value.bfloat16() for name, value in state.items()}),
    )


@pytest.mark.parametrize("kind", ["one", "several", "bfloat16"])
def test_each_share_is_that_of_the_files_that_transformers_reads(model, folder, kind):
    """Of one file or of several with an index, whatever else lies beside them; in the model's type."""
    if kind == "several":
        in_files(model, folder)
    if kind == "bfloat16":
        bfloat16(folder)
    empty, files = empty_of_folder(folder, dtype=torch.float32, attention=None)
    assert all(p.is_meta for p in empty.parameters())
    made = empty._apply(lambda t: torch.empty_like(t, device="cpu") if t.is_meta else t)
    made.tie_weights()
    files.fill(made, Ranks())
    wanted = Policy.load(folder).model
    for (name, ours), theirs in zip(made.named_parameters(), wanted.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def cut_short(folder) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def lacking(folder) -> None:
    edit(folder / "model.safetensors", lambda state: state.pop(WEIGHT))


def of_another_shape(folder) -> None:
    edit(folder / "model.safetensors", lambda state: state.update({WEIGHT: torch.ones(3, 16)}))


def without_a_file_of_its_index(folder) -> None:
    path = folder / "model.safetensors"
    index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(path), "gone.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    path.unlink()


def without_weights(folder) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("breaking", "why"),
    [
        (cut_short, "cannot load the model"),
        (lacking, f"lacks 1 of the model's weights, such as {WEIGHT}"),
        (of_another_shape, f"cannot load the model .*: {WEIGHT} has the shape"),
        (without_a_file_of_its_index, "cannot load the model"),
        (without_weights, "cannot load the model"),
    ],
)
def test_files_that_cannot_be_read_in_shares_are_one_line(folder, breaking, why):
    """The same as where a model is read whole."""
    breaking(folder)
    with pytest.raises(UsageError, match=why) as error:
        Policy.load(folder, in_shares=True)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def test_a_folder_of_bin_files_is_read_whole(model, folder):
    """They are pickles, of which no part can be read."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    made = Policy.load(folder, in_shares=True)
    wanted = model[0].state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in made.model.state_dict().items())
