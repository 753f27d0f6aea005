"""Checkpoints: whole or absent, the newest few, and the same state again."""

import errno
import random
import signal
import warnings

import pytest
import torch

from rlvr.errors import DataError, UsageError
from rlvr.train import checkpoint
from rlvr.train.checkpoint import stop_requested


def test_what_was_saved_comes_back_to_the_bit(tmp_path):
    """Tensors of any kind, numbers, texts, and what is made of them."""
    state = {
        "w": torch.randn(3, dtype=torch.float64),
        "n": [1, 2.5, None, "x"],
        "m": {"b": torch.tensor([True])},
    }
    found = checkpoint.load_checkpoint(checkpoint.save(tmp_path, 7, state, keep=1))
    assert torch.equal(found["w"], state["w"])
    assert (found["n"], found["m"]["b"].tolist()) == (state["n"], [True])


def test_the_newest_few_are_kept(tmp_path):
    """Steps are numbers, not texts: 10 is after 9."""
    for step in (8, 9, 10):
        checkpoint.save(tmp_path, step, {}, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000009.pt",
        "step-00000010.pt",
    ]
    assert checkpoint.latest(tmp_path) == tmp_path / "step-00000010.pt"


def test_a_run_killed_while_it_saved_has_the_checkpoint_before(tmp_path, monkeypatch):
    """The new file has its name only when all of it is on the disk."""
    checkpoint.save(tmp_path, 1, {"a": 1}, keep=2)

    def killed(state, file):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 2, {"a": 2}, keep=2)
    assert checkpoint.load_checkpoint(checkpoint.latest(tmp_path)) == {"a": 1}


def test_no_folder_and_an_empty_one_have_no_checkpoint(tmp_path):
    """A run that begins."""
    assert checkpoint.latest(tmp_path) is checkpoint.latest(tmp_path / "none") is None


def test_a_damaged_checkpoint_is_named(tmp_path):
    """One line, with its path; and nothing in it is run."""
    (tmp_path / "step-00000001.pt").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DataError, match=r"step-00000001\.pt cannot be read as a checkpoint"):
        checkpoint.load_checkpoint(tmp_path / "step-00000001.pt")


def test_a_damaged_newest_checkpoint_costs_the_steps_since_the_one_before(tmp_path):
    """That is what keep=2 is for; where all are damaged there is nothing to go on from, and that is said."""
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {"step": step}, keep=2)
    whole = (tmp_path / "step-00000002.pt").read_bytes()
    (tmp_path / "step-00000002.pt").write_bytes(whole[:100])
    with pytest.warns(
        RuntimeWarning, match=r"00002\.pt cannot be read.*from the one before, step-00000001\.pt"
    ):
        found = checkpoint.newest(tmp_path)
    assert found == (tmp_path / "step-00000001.pt", {"step": 1})
    (tmp_path / "step-00000001.pt").write_bytes(b"")
    with pytest.raises(DataError, match="the run cannot go on"):
        checkpoint.newest(tmp_path)


def test_the_newest_checkpoint_has_to_stay(tmp_path):
    """keep=0 would remove what was just written."""
    with pytest.raises(UsageError, match="keep is 0"):
        checkpoint.save(tmp_path, 1, {}, keep=0)


def test_generators_go_on_where_they_stood(tmp_path):
    """Python's and torch's; through a file, as a run would."""
    checkpoint.save(tmp_path, 1, {"rng": checkpoint.rng_state()}, keep=1)
    drawn = random.random(), torch.rand(3)
    checkpoint.restore_rng(checkpoint.load_checkpoint(checkpoint.latest(tmp_path))["rng"])
    assert random.random() == drawn[0]
    assert torch.equal(torch.rand(3), drawn[1])


@pytest.mark.usefixtures("interruptible")
def test_the_first_signal_asks_and_the_second_one_interrupts():
    """Who presses Ctrl-C twice does not want to wait for the step."""
    said: list[str] = []
    with stop_requested(said.append) as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert said == ["SIGINT: this step is finished and saved first; a second one interrupts it"]
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_ignored_sigint_stays_ignored():
    """`nohup rlvr train …`, or `rlvr train … &` in a script: Ctrl-C is not for this run, and SIGTERM still stops it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_requested() as stopped:
            signal.raise_signal(signal.SIGINT)
            assert not stopped()
            signal.raise_signal(signal.SIGTERM)
            assert stopped()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_no_damage_loads_in_silence(tmp_path):
    """torch reads 93 of 100 files with one bit flipped and says nothing."""
    path = checkpoint.save(tmp_path, 1, {"w": torch.arange(2000.0), "n": [1, "x"]}, keep=1)
    whole, rng = path.read_bytes(), random.Random("flips")
    places = [rng.randrange(len(whole)) for _ in range(150)] + list(
        range(len(whole) - 45, len(whole))
    )
    flipped = []
    for place in places:
        flipped.append(bytearray(whole))
        flipped[-1][place] ^= 1 << rng.randrange(8)
    for damaged in (
        *flipped,
        *(whole[:length] for length in (len(whole) - 1, len(whole) - 21, len(whole) // 2, 0)),
    ):
        path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(
                (DataError, RuntimeWarning), match=r"checkpoint|no checksum|damaged"
            ):
                checkpoint.load_checkpoint(path)


def test_a_checkpoint_is_a_file_of_torchs(tmp_path):
    """The checksum stands in the zip's comment; and torch's own settings are as they were."""
    path = checkpoint.save(tmp_path, 1, {"w": torch.arange(3)}, keep=1)
    assert torch.load(path, weights_only=True)["w"].tolist() == [0, 1, 2]
    assert torch.serialization.get_crc32_options()


def test_a_checkpoint_of_an_older_version_loads_and_says_that_nothing_protects_it(tmp_path):
    """It has no checksum."""
    path = tmp_path / "step-00000001.pt"
    torch.save({"step": 1}, path)
    with pytest.warns(
        RuntimeWarning,
        match=r"step-00000001\.pt has no checksum: damage to it would pass unnoticed",
    ):
        assert checkpoint.load_checkpoint(path) == {"step": 1}
    torch.save([1, 2], path)
    with pytest.raises(DataError, match="it holds a list"):
        checkpoint.load_checkpoint(path)


def test_a_full_disk_leaves_no_half_checkpoint(tmp_path, monkeypatch):
    """Nor does it take the place that the next try needs."""

    def full(state, file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, 2, {"a": 2}, keep=2)
    assert not list(tmp_path.iterdir())
