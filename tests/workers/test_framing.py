"""`rlvr.workers.framing` and `rlvr.workers.clock`: what pool, fork server and sandbox have in common."""

import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.workers.clock import cpu_s
from rlvr.workers.framing import FrameTooLong, frame_payload, read_frame, take_frame, write_all


@pytest.fixture
def pipe():
    ends = os.pipe()
    with os.fdopen(ends[0], "rb"), os.fdopen(ends[1], "wb"):
        yield ends


def test_a_frame_is_a_length_and_the_payload():
    """4 bytes, little endian: 258 is 2 + 1 × 256."""
    assert bytes(frame_payload(b"abc")) == b"\3\0\0\0abc"
    assert bytes(frame_payload(bytes(258)))[:5] == b"\2\1\0\0\0"


@pytest.mark.parametrize("payload", [b"", b"abc", bytes(5_000_000)], ids=len)
def test_what_is_written_is_read(pipe, payload):
    """Also more than a pipe holds at once."""
    writer = threading.Thread(target=lambda: write_all(pipe[1], frame_payload(payload)))
    writer.start()
    assert read_frame(pipe[0]) == payload
    writer.join()


@pytest.mark.parametrize("sent", [b"", b"\3\0", b"\3\0\0\0ab"])
def test_a_stream_that_ends_early_gives_nothing(sent):
    """Between frames, in the length, in the payload."""
    read, write = os.pipe()
    os.write(write, sent)
    os.close(write)
    assert read_frame(read) is None
    os.close(read)


def test_a_length_is_refused_before_the_payload_is_read(pipe):
    """Or the other side could fill our memory."""
    os.write(pipe[1], b"\xff\xff\xff\xff")
    with pytest.raises(FrameTooLong, match="4294967295"):
        read_frame(pipe[0], 100)
    with pytest.raises(FrameTooLong) as caught:
        take_frame(bytearray(b"\4\0\0\0"), 3)
    assert caught.value.length == 4


@given(
    st.lists(st.binary(max_size=9), max_size=5), st.lists(st.integers(1, 12)), st.binary(max_size=3)
)
def test_frames_are_taken_as_they_are_complete(payloads, sizes, rest):
    """However the stream is cut: each payload once, in order, and not before its last byte is there."""
    stream = b"".join(map(bytes, map(frame_payload, payloads))) + rest
    ends = [sum(len(p) + 4 for p in payloads[: i + 1]) for i in range(len(payloads))]
    buffer, taken, at = bytearray(), [], 0
    for size in [*sizes, len(stream)]:
        buffer += stream[at : at + size]
        at = min(at + size, len(stream))
        while (payload := take_frame(buffer, 9)) is not None:
            taken.append(payload)
        assert taken == payloads[: sum(end <= at for end in ends)]
    assert (taken, bytes(buffer)) == (payloads, rest)


def test_the_clock_of_another_process():
    """It stands while that waits, and is 0 for a process that is gone."""
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(time.process_time(), flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        used = float(child.stdout.readline())
        assert cpu_s(child.pid) == pytest.approx(used, abs=0.1) or sys.platform != "linux"
        child.communicate("\n")
    assert cpu_s(child.pid) == 0.0
