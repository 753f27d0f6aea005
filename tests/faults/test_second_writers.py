"""Two programs on one output: each row is in it, or the exit is not 0, at whatever moment the other one comes."""

import os
import threading
from pathlib import Path

import pytest

from rlvr.data import rows as module
from rlvr.data.files import lock_file
from rlvr.data.rows import Journal, dump_row, read_whole
from rlvr.errors import UsageError

ROWS = [{"id": f"row {n}"} for n in range(5)]
OTHERS = b'{"id": "of another program"}\n'
NAMES = ["out.jsonl", "out.parquet"]


def written(path: Path, **options: bool) -> Journal:
    """A run that has scored all its rows and has not finished."""
    journal = Journal(path, checksums=True, **options)
    for row in ROWS:
        journal.write(row)
    return journal


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"overwrite": True}], ids=str)
def test_a_live_run_is_named_as_live(tmp_path, name, flags):
    """Also where neither flag is given: it is no run that was stopped."""
    with written(tmp_path / name) as journal:
        with pytest.raises(
            UsageError, match=r"\.partial is being written by another run; wait for it or stop it"
        ):
            Journal(tmp_path / name, **flags)
        journal.finish()
    assert list(read_whole(tmp_path / name)) == ROWS


@pytest.mark.parametrize("name", NAMES)
def test_the_lock_is_held_until_the_output_has_its_name(tmp_path, name, monkeypatch):
    """A second run that starts while the first one renames would take the finished rows for its own."""
    tried = []
    publish = module.publish

    def while_another_starts(partial, path, *, overwrite):
        for flags in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(UsageError, match="another run"):
                Journal(tmp_path / name, **flags)
            tried.append(flags)
        publish(partial, path, overwrite=overwrite)

    monkeypatch.setattr(module, "publish", while_another_starts)
    with written(tmp_path / name) as journal:
        journal.finish()
    assert len(tried) == 3
    assert list(read_whole(tmp_path / name)) == ROWS


def test_a_run_that_waited_at_the_lock_leaves_the_finished_output_alone(tmp_path, monkeypatch):
    """It has opened the partial file before that was renamed: what it holds then is the other run's output."""
    path = tmp_path / "out.jsonl"
    first = written(path)

    def first_ends_before(file):
        monkeypatch.setattr(module, "lock_file", lock_file)
        with first:
            first.finish()
        lock_file(file)

    monkeypatch.setattr(module, "lock_file", first_ends_before)
    with pytest.raises(UsageError, match=r"out\.jsonl exists"):
        Journal(path, resume=True)
    assert list(read_whole(path)) == ROWS


def replace(partial: Path) -> None:
    other = partial.with_name("other")
    other.write_bytes(OTHERS)
    other.replace(partial)


def append(partial: Path) -> None:
    with partial.open("ab") as file:
        file.write(OTHERS)


def truncate(partial: Path) -> None:
    os.truncate(partial, 20)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [replace, append, truncate, Path.unlink])
def test_a_partial_file_that_another_program_changed_is_no_output(tmp_path, name, change):
    """Exit code 2 and no file is better than a file with rows of something else."""
    with written(tmp_path / name) as journal:
        change(journal.partial)
        with pytest.raises(
            UsageError, match=r"was replaced or changed by another program while this run wrote it"
        ):
            journal.finish()
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", NAMES)
def test_an_output_made_meanwhile_is_left_as_it_is(tmp_path, name):
    """Without --overwrite nothing is ever replaced; and what this run wrote is not lost either."""
    path = tmp_path / name
    with written(path) as journal:
        path.write_bytes(OTHERS)
        with pytest.raises(
            UsageError, match=r"was made by another program meanwhile and is left as it is"
        ):
            journal.finish()
    assert path.read_bytes() == OTHERS
    path.unlink()
    with Journal(path, resume=True, checksums=True) as journal:
        assert (journal.done, list(journal.rows())) == (5, ROWS)
        journal.finish()
    assert list(read_whole(path)) == ROWS


@pytest.mark.parametrize("name", NAMES)
def test_on_a_file_system_without_links_nothing_is_replaced_either(tmp_path, name, monkeypatch):
    """FAT, and some network file systems."""

    def none(*args):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    path = tmp_path / name
    with written(path) as journal:
        path.write_bytes(OTHERS)
        with pytest.raises(UsageError, match="exists"):
            journal.finish()
        path.unlink()
        journal.finish()
    assert list(read_whole(path)) == ROWS


def test_a_run_killed_between_the_two_names_has_finished(tmp_path):
    """The output is there under both: a next run must not write into it."""
    path = tmp_path / "out.jsonl"
    with written(path) as journal:
        journal.finish()
    os.link(path, journal.partial)
    with pytest.raises(UsageError, match="exists"):
        Journal(path, resume=True)
    with Journal(path, overwrite=True) as second:
        second.write({"id": "new"})
        assert list(read_whole(path)) == ROWS
        second.finish()
    assert list(read_whole(path)) == [{"id": "new"}]


@pytest.mark.parametrize("name", NAMES)
def test_of_many_runs_at_once_one_writes(tmp_path, name):
    """Each of the others is told so; no row of two runs stands in one file."""
    path, gate, said = tmp_path / name, threading.Barrier(6), []
    refused: list[str] = []

    def run(number: int) -> None:
        gate.wait()
        try:
            with Journal(path, checksums=True) as journal:
                for n in range(50):
                    journal.write({"id": f"{number}/{n}"})
                journal.finish()
                said.append(number)
        except UsageError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = said
    assert all("another run" in why or "exists" in why for why in refused), refused
    assert [row["id"] for row in read_whole(path)] == [f"{winner}/{n}" for n in range(50)]
    assert not journal_files(tmp_path, name)


def journal_files(folder: Path, name: str) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != name]


@pytest.mark.parametrize("name", NAMES)
def test_no_flipped_bit_is_read_in_silence(tmp_path, name):
    """Of a file of scores: each is an error that names its line, or changes nothing that is read."""
    import random

    path = tmp_path / name
    rows = [
        {"id": f"row {n}", "total": n / 3, "parts": {"correct": 0.5}, "text": "ß" * n}
        for n in range(20)
    ]
    with Journal(path, checksums=True) as journal:
        for row in rows:
            journal.write(row)
        journal.finish()
    whole, rng, noticed = path.read_bytes(), random.Random(name), 0
    for _ in range(300):
        place = rng.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            assert list(read_whole(path)) == rows
            assert name.endswith(".parquet")  # whose metadata and padding are not all read
        except UsageError:
            noticed += 1
    assert noticed == 300 if name == "out.jsonl" else noticed > 150


def test_rows_of_an_older_version_are_read_and_no_row_may_lack_what_others_have(tmp_path):
    """A flipped bit in a checksum's own name would make its line look like one of these."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"".join(map(dump_row, ROWS)))
    assert list(read_whole(path)) == ROWS
    with Journal(tmp_path / "new.jsonl", checksums=True) as journal:
        journal.write(ROWS[0])
        journal.finish()
    path.write_bytes((tmp_path / "new.jsonl").read_bytes() + dump_row(ROWS[1]))
    with pytest.raises(UsageError, match="line 2: it has no checksum, and the lines before have"):
        list(read_whole(path))
    path.write_bytes(dump_row(ROWS[1]) + (tmp_path / "new.jsonl").read_bytes())
    with pytest.raises(
        UsageError, match="line 2: it has a checksum, and the lines before have none"
    ):
        list(read_whole(path))


def test_a_stopped_run_of_an_older_version_goes_on_without_checksums(tmp_path):
    """Half of the rows with and half without could not be told from damage."""
    path = tmp_path / "out.jsonl"
    path.with_name("out.jsonl.partial").write_bytes(b"".join(map(dump_row, ROWS[:3])))
    with Journal(path, resume=True, checksums=True) as journal:
        for row in ROWS[3:]:
            journal.write(row)
        journal.finish()
    assert list(read_whole(path)) == ROWS
