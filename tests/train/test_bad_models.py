"""What can be wrong with a model, a device or a disk is one line, before time is spent."""

import errno
import json

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlvr.errors import RlvrError
from rlvr.train import checkpoint
from rlvr.train.loading import require_finite_weights
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from tests.commands import refusal_of
from tests.rewards.parts import refusal
from tests.train.bandit import CHARSET, policy, trainer

ENV = "tests.train.bandit:Bandit"


@pytest.fixture
def folder(tmp_path):
    """Of a tiny model."""
    policy().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def train(say, tmp_path, folder):
    """A step of training, with further flags; gives the code and what was said."""

    def run(*flags: object) -> tuple[int, str]:
        return say("train", "--env", ENV, "--model", folder, "--run", tmp_path / "run", "--steps", 1, "--prompts", 2,
                   "--group-size", 2, "--max-tokens", 4, "--workers", 0, "--eval-tasks", 2, "--algorithm", "dr_grpo",
                   *flags)  # fmt: skip

    return run


def change(folder, name: str, **values) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def weights_of(folder, edit) -> None:
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def nan(state) -> None:
    state["model.layers.0.mlp.up_proj.weight"][3, 4] = float("nan")


def cut(folder) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])


def other_shape(state) -> None:
    state["model.norm.weight"] = torch.zeros(7)


def without_tokenizer(folder) -> None:
    for path in folder.glob("*token*"):
        path.unlink()


def without_end(folder) -> None:
    change(folder, "tokenizer_config.json", eos_token=None)
    change(folder, "config.json", eos_token_id=None)
    change(folder, "generation_config.json", eos_token_id=None)


BROKEN = {
    "NaN": (lambda folder: weights_of(folder, nan),
            "the weights of model.layers.0.mlp.up_proj.weight are not finite (1 of"),
    "weights": (lambda folder: weights_of(folder, lambda state: state.pop("model.norm.weight")),
                "lacks 1 of the model's weights, such as model.norm.weight"),
    "shape": (lambda folder: weights_of(folder, other_shape),
              "model.norm.weight has the shape [7] in its file and [16] by config.json; give a fold"),
    "cut": (cut, "incomplete metadata, file not fully covered"),
    "nothing": (lambda folder: (folder / "model.safetensors").unlink(), "missing or damaged: Error no file"),
    "heads": (lambda folder: change(folder, "config.json", model_type="llama", num_attention_heads=3),
              "is not a multiple of the number of attention heads (3)"),
    "tokenizer": (without_tokenizer, "has no tokenizer that can be loaded"),
    "end": (without_end, "the model has no end token, so every completion would run to its limit"),
    "end beyond": (lambda folder: change(folder, "generation_config.json", eos_token_id=[2, 99]),
                   "the end token 99 is beyond the model's 18 tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_one_line(train, say, folder, name):
    """In training and in evaluation alike."""
    breaking, why = BROKEN[name]
    breaking(folder)
    for code, said in (
        train(),
        say("eval", ENV, "--model", folder, "--limit", 2, "--max-tokens", 4, "--workers", 0),
    ):
        assert (code, why in said) == (2, True), said
        assert said.count("\n") == 1, said


def test_without_an_end_token_a_stop_text_will_do(train, folder):
    """Base models end with a text."""
    without_end(folder)
    code, said = train("--stop", "=")
    assert code == 0, said


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--seed", str(2**64)), "it must be a whole number from 0 to 18446744073709551615"),
        (("--device", "cuda:7"), "device is 'cuda:7', which this machine does not have"),
        (
            ("--sampler", "sglang"),
            "sampler is str 'sglang'; it must be local, vllm, or addresses of vLLM servers",
        ),
        (
            ("--attention", "flash_attention_2"),
            "computes in half precision only, and precision is",
        ),
        (
            ("--attention", "flash_attention_2", "--precision", "bf16"),
            "with attention 'flash_attention_2': ",
        ),
        (("--attention", "nonsense"), "with attention 'nonsense': "),
        (("--lora-rank", "0"), "lora_rank is 0; it must be a whole number of at least 1"),
        (
            ("--lora-alpha", "8"),
            "it is of a LoRA adapter (--lora-rank)",
        ),
        (
            ("--lora-rank", "2", "--lora-targets", "qproj"),
            "lora_targets has 'qproj', which no layer of",
        ),
    ],
)
def test_a_setting_of_the_model_that_cannot_work_is_one_line(train, tmp_path, flags, why):
    """And the folder is free for the next try."""
    if torch.cuda.is_available() and flags[0] == "--device":
        pytest.skip("this machine has GPUs")
    assert why in refusal_of(*train(*flags))
    assert not any((tmp_path / "run" / name).exists() for name in ("metrics.jsonl", "checkpoints"))


def test_packing_and_attention_are_settings(train):
    """A run goes on with others, as they change rounding alone."""
    assert train("--packing", "--attention", "eager")[0] == 0
    assert train("--steps", "2")[0] == 0


class Full:
    """A disk with room for so many bytes."""

    def __init__(self, file, room: int) -> None:
        self._file, self._room = file, room
        self.crc32 = 0

    def write(self, data) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


@pytest.mark.parametrize("room", [pytest.param(10, marks=pytest.mark.slow), 5000])
def test_a_disk_that_fills_while_a_checkpoint_is_written_is_one_line(
    train, tmp_path, monkeypatch, room
):
    """torch reports the place in its file instead.  The checkpoint before stays, and the run goes on from there."""
    assert train("--checkpoint-every", 1)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "Checksummed", lambda file: Full(file, room))
        code, said = train("--steps", 2)
    assert code == 2
    lines = [line for line in said.splitlines() if line.startswith("rlvr:")]
    assert len(lines) == 1
    assert "No space left on device" in lines[0]
    assert "the disk is full; free some of it" in lines[0]
    assert "step-00000002.pt" in lines[0]
    assert "Traceback" not in said
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [
        "step-00000001.pt"
    ]
    assert train("--steps", 2)[0] == 0


def test_a_disk_that_fills_while_the_model_is_written_is_an_error_of_ours(tmp_path, monkeypatch):
    """Not a traceback of safetensors; nothing half-written takes the model's name."""
    with trainer(tmp_path / "run", steps=1) as made:

        def full(self, folder, **_):
            raise SafetensorError(
                "Error while serializing: I/O error: No space left on device (os error 28)"
            )

        monkeypatch.setattr(type(made.policy.model), "save_pretrained", full)
        with pytest.raises(
            RlvrError, match=r"the model cannot be written .*No space left on device"
        ):
            made.run()
    assert not (tmp_path / "run" / "model").exists()


def test_weights_that_are_not_finite_are_refused_from_python_too():
    """Infinite ones as well, and large ones that are finite are not."""
    model, tokenizer = tiny(CHARSET, hidden=16, heads=2, layers=1)
    with torch.no_grad():
        model.model.norm.weight.fill_(3e38)
    require_finite_weights(model)
    with torch.no_grad():
        model.model.norm.weight[2] = float("inf")
    assert "the weights of model.norm.weight are not finite (1 of 16)" in refusal(
        lambda: Policy(model, tokenizer)
    )
