"""After a power cut there is the old state or the new one, never a third."""

import contextlib
import errno
import json
import os
import shutil

import pytest
import torch

from rlvr.data.files import sync_folder, write_whole
from rlvr.data.rows import Journal, read_whole
from rlvr.errors import DataError
from rlvr.train import checkpoint
from rlvr.train.metrics import Jsonl, read_metrics
from tests.faults.crashes import recorded

ROWS = [{"id": f"row {n}", "text": "x" * n, "n": n} for n in range(12)]


def left(state, folder):
    """The folder as the power cut leaves it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in state.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_scores_are_whole_or_absent(tmp_path, name, overwrite):
    """And where they are absent, the stopped run can be resumed: its rows are a beginning of all rows."""
    folder = tmp_path / "run"
    folder.mkdir()
    if overwrite:
        with Journal(folder / name, checksums=True) as journal:
            journal.write({"id": "old", "text": "", "n": 0})
            journal.finish()
    with (
        recorded(folder) as seen,
        Journal(folder / name, overwrite=overwrite, checksums=True) as journal,
    ):
        for row in ROWS:
            journal.write(row)
        journal.finish()
    assert len(seen.states) >= 5
    new = 0
    for state in seen.states:
        place = left(state, tmp_path / "left")
        if name in state:
            found = list(read_whole(place / name))
            assert found == ROWS or (overwrite and [row["id"] for row in found] == ["old"])
            new += found == ROWS
        else:
            assert not overwrite
        if f"{name}.partial" in state:
            with Journal(place / name, resume=True, overwrite=name in state) as journal:
                resumed = list(journal.rows())
                assert resumed == ROWS[: len(resumed)]
    assert new, "the new state is never reached, so nothing was tested"


def test_a_checkpoint_is_the_old_or_the_new_one(tmp_path):
    """The old one goes when the new one's name is on the disk."""
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, 1, {"step": 1, "w": torch.arange(50)}, keep=1)
    with recorded(folder) as seen:
        checkpoint.save(folder, 2, {"step": 2, "w": torch.arange(50)}, keep=1)
    steps = []
    for state in seen.states:
        found = checkpoint.newest(left(state, tmp_path / "left"))
        assert found is not None
        steps.append(found[1]["step"])
    assert set(steps) == {1, 2}


def test_metrics_are_there_for_every_step_that_a_checkpoint_counts(tmp_path):
    """They are synced first; later lines may be lost, which the next run writes again."""
    folder = tmp_path / "run"
    folder.mkdir()
    with recorded(folder) as seen:
        metrics = Jsonl(folder / "metrics.jsonl")
        for step in (1, 2, 3):
            metrics.log(step, {"reward": step / 2})
            checkpoint.save(folder, step, {"step": step}, keep=1)
        metrics.close()
    most = 0
    for state in seen.states:
        place = left(state, tmp_path / "left")
        if (found := checkpoint.newest(place)) is None:
            continue
        most = max(most, found[1]["step"])
        assert [row["step"] for row in read_metrics(place / "metrics.jsonl")][
            : found[1]["step"]
        ] == [*range(1, found[1]["step"] + 1)]
    assert most == 3


def test_a_report_is_the_old_or_the_new_one(tmp_path):
    """Settings of a run, audits, evaluations."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_whole(folder / "config.json", json.dumps({"a": 1}).encode())
    with recorded(folder) as seen:
        write_whole(folder / "config.json", json.dumps({"a": 2}).encode())
    assert {json.loads(state["config.json"])["a"] for state in seen.states} == {1, 2}


def test_the_recorder_finds_a_missing_sync(tmp_path, monkeypatch):
    """Else its silence would say nothing."""
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr("rlvr.data.files.sync_file", lambda file: file.flush())
    with recorded(folder) as seen:
        write_whole(folder / "config.json", b"{}")
    assert any(state.get("config.json") == b"" for state in seen.states)
    monkeypatch.undo()
    checkpoint.save(folder, 1, {"step": 1}, keep=1)
    monkeypatch.setattr("rlvr.data.files.sync_folder", lambda folder: None)
    with recorded(folder) as seen:
        checkpoint.save(folder, 2, {"step": 2}, keep=1)
    lost = 0
    for state in seen.states:
        try:
            lost += checkpoint.newest(left(state, tmp_path / "left")) is None
        except DataError:
            lost += 1
    assert lost


@pytest.mark.parametrize(
    ("number", "is_said"), [(errno.EIO, True), (errno.ENOSPC, True), (errno.EINVAL, False)]
)
def test_a_disk_that_fails_to_sync_a_folder_is_not_passed_over(
    tmp_path, monkeypatch, number, is_said
):
    """A file system that has no such call is another matter."""

    def failing(descriptor):
        raise OSError(number, "of the disk")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="of the disk") if is_said else contextlib.nullcontext():
        sync_folder(tmp_path)
