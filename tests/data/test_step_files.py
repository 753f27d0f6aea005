"""Files of training steps: what was written is read, and what is damaged or hostile is refused in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

from rlvr.data.step_files import STEP_VERSION, StepFile, read_step, write_step
from rlvr.errors import DataError

ARRAYS = {
    "token_ids": np.array([5, 6, 7], np.int32),
    "offsets": np.array([0, 2, 3]),
    "mask": np.array([True, True, False]),
    "group": np.zeros(2, np.int32),
    "score": np.array([1.0, 0.0]),
    "scored": np.ones(2, bool),
    "behaviour_logprobs": np.array([-0.5, -1.0, np.nan], np.float32),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "folder" / "step.safetensors"
    write_step(found, StepFile({"step": 3, "tasks": ["é"]}, ARRAYS))
    return found


def test_what_was_written_is_read(path: Path):
    """Also NaN, which a step that went wrong has."""
    step = read_step(path)
    assert step.head == {"step": 3, "tasks": ["é"], "version": STEP_VERSION}
    assert step.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(step.arrays[name], array)
        assert step.arrays[name].dtype == array.dtype


def test_the_layout_is_that_of_safetensors(path: Path):
    """Its own library reads it."""
    safetensors = pytest.importorskip("safetensors.numpy")
    found = safetensors.load_file(path)
    np.testing.assert_array_equal(found["token_ids"], ARRAYS["token_ids"])


def test_a_file_that_is_cut_or_altered_anywhere_is_refused(path: Path):
    """Every prefix, and a flip of any one bit of any byte but spaces, is noticed."""
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError):
            read_step(path)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        try:
            step = read_step(path)
        except DataError:
            continue
        # Only the head's own text outside its digest can differ without harm: names of arrays are compared here.
        assert step.head == read_head(whole)
        assert step.arrays.keys() == ARRAYS.keys(), place


def read_head(whole: bytes) -> dict:
    text = whole[8 : 8 + int.from_bytes(whole[:8], "little")]
    return json.loads(json.loads(text)["__metadata__"]["step"])


def rewritten(path: Path, change) -> None:
    """The file with another head; its digest is of the arrays and of the step's text alone."""
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    listed = json.loads(whole[8 : 8 + length])
    change(listed)
    text = json.dumps(listed).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])


def offsets_of(name: str, start: int, stop: int):
    return lambda listed: listed[name].update(data_offsets=[start, stop])


HOSTILE = {
    "overlap": (offsets_of("token_ids", 0, 12), "overlap"),
    "far": (offsets_of("score", 1 << 60, (1 << 60) + 16), "bytes|begins"),
    "negative": (lambda listed: listed["score"].update(shape=[-2]), "shape"),
    "huge": (lambda listed: listed["score"].update(shape=[1 << 62, 1 << 62]), "shape"),
    "type": (lambda listed: listed["score"].update(dtype="PICKLE"), "dtype"),
    "none": (lambda listed: listed.pop("__metadata__"), "no head"),
    "lacks": (lambda listed: listed.pop("score"), "bytes|gap|no array"),
    "endless": (lambda listed: listed["score"].update(shape=[1e999]), "shape"),
    "version": (lambda listed: listed["__metadata__"].update(step='{"version": 1e999}'), "no head"),
    "text": (lambda listed: listed.update(score="x"), "dtype"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_head_is_refused_in_one_line(path: Path, name: str):
    """Overlapping or far offsets, shapes that cannot be, types that there are not."""
    change, message = HOSTILE[name]
    rewritten(path, change)
    with pytest.raises(DataError, match=message) as caught:
        read_step(path)
    assert "\n" not in str(caught.value)


def test_a_head_of_a_gigabyte_is_not_read(path: Path):
    """Its length alone is looked at."""
    whole = path.read_bytes()
    path.write_bytes((1 << 30).to_bytes(8, "little") + whole[8:])
    with pytest.raises(DataError, match="1073741824 bytes"):
        read_step(path)


def test_a_newer_version_is_refused(path: Path):
    def change(listed):
        head = json.loads(listed["__metadata__"]["step"])
        listed["__metadata__"]["step"] = json.dumps({**head, "version": STEP_VERSION + 1})

    rewritten(path, change)
    with pytest.raises(DataError, match="install a newer one"):
        read_step(path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("group", np.zeros(3, np.int32), "must be"),
        ("mask", np.ones(2, bool), "must be"),
        ("offsets", np.array([0, 3, 2]), "decrease"),
        ("offsets", np.array([0, 2**63 - 1, -(2**63), -1, 3]), "decrease"),
        ("owner", np.array([0, 5], np.int32), "row numbers"),
        ("turns", np.zeros((1, 2), np.int32), "shape"),
        ("score", np.array(["a", "b"]), "type"),
        ("offsets", np.array([0.0, 2.0, 3.0]), "I32 or I64"),
        ("score", np.ones(2, np.int64), "F32 or F64"),
        ("mask", np.ones(3, np.float32), "type"),
        ("score_parts", np.ones(2), "shape"),
        ("turns", np.zeros((1, 3), np.int32), "turn_rewards"),
    ],
)
def test_arrays_that_do_not_fit_are_not_written(tmp_path: Path, name, array, message):
    """So what is written can be read."""
    with pytest.raises(DataError, match=message):
        write_step(tmp_path / "a", StepFile({}, {**ARRAYS, name: array}))
    assert not (tmp_path / "a").exists()
