"""Handlers that fork, and replies that are out of place: no item ever gets another one's result."""

import ctypes
import json
import os
import pickle
import signal
import sys
import time

import pytest

from rlvr.errors import WorkerDied
from rlvr.workers import WorkerPool
from rlvr.workers.fork_server import ChildLost, ForkServer
from rlvr.workers.framing import frame_payload

WALL_S = 30.0


def leave(way: str) -> object:
    """In the child: go the way that a careless verifier does."""
    match way:
        case "return":
            return "of the child"
        case "exit":
            sys.exit(0)
        case "exit with a text":
            sys.exit("failed")
        case "raise":
            raise ValueError("in the child")
        case "end":
            os._exit(0)
        case "run out of memory":
            raise MemoryError
        case "be killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "live on":
            time.sleep(600)
    raise AssertionError(way)


WAYS = [
    "return",
    "exit",
    "exit with a text",
    "raise",
    "end",
    "run out of memory",
    "be killed",
    "live on",
]


QUICK = {"os": ("return", "exit", "raise", "run out of memory"), "libc": ("return",)}


def forking(way: str, fork: str = "os"):
    """A set-up whose handler forks at every tenth item; both processes come back to the caller."""

    def setup():
        def handle(item):
            if item % 10 == 3:
                child = os.fork() if fork == "os" else ctypes.CDLL(None).fork()
                if not child:
                    return leave(way)
            return item * item

        return handle

    return setup


@pytest.mark.parametrize(
    ("fork", "way"),
    [
        pytest.param(fork, way, marks=[pytest.mark.slow] * (way not in QUICK[fork]))
        for fork in ("os", "libc")
        for way in WAYS
    ],
)
def test_a_handler_that_forks_mixes_nothing_up(way, fork):
    """The child would answer on its parent's pipe, for items that are not its own."""
    with WorkerPool(forking(way, fork), spares=0) as pool:
        items = list(range(60))
        assert pool.run(items, wall_s=WALL_S) == [item * item for item in items]
        assert pool.run(items, wall_s=WALL_S) == [item * item for item in items]
        assert pool.lost == 0


def writing():
    """A set-up whose handler writes a text item to every pipe, as a frame, before it replies."""

    def handle(item):
        if isinstance(item, str):
            for fd in range(3, 4096):
                try:
                    os.write(fd, frame_payload(item.encode()))
                except OSError:
                    continue
        return item

    return handle


NOW = 1.0  # a time that has been


def out_of_place(number: int) -> list[str]:
    """Replies to the third item of the request of this number that are not the one that is due."""
    return [
        "null",
        "[]",
        '"ok"',
        json.dumps(["ok", number, 0, NOW, 0.5, "forged"]),  # an item that was answered
        json.dumps(["ok", number, 7, NOW, 0.5, "forged"]),
        json.dumps(["ok", number + 8, 2, NOW, 0.5, "forged"]),
        json.dumps(["begin", number, 2, NOW, 0.5, None]),
        json.dumps([["ok"], number, 2, NOW, 0.5, "forged"]),
        json.dumps(["ok", number, 2, NOW * 2 + 1e6, 0.5, "forged"]),  # time for ever
        f'["ok", {number}, 2, NaN, 0.5, "forged"]',
        json.dumps(["ok", number, 2, "soon", 0.5, "forged"]),
        json.dumps(["error", number, 2, NOW, 0.5, None]),
        json.dumps(["error", number, 2, NOW, 0.5, ["ValueError", 3, ""]]),
        json.dumps(["last", number, 2, NOW, 0.5, "x"]),
    ]


@pytest.mark.parametrize(
    "places",
    [(0, 4, 9), pytest.param(range(len(out_of_place(1))), marks=pytest.mark.slow)],
    ids=["three", "all"],
)
def test_a_reply_out_of_place_is_the_loss_of_its_worker(places):
    """Never an exception of the run, and never a result.  Each costs a worker, which takes a third of a second."""
    with WorkerPool(writing, spares=0) as pool:
        for place in places:
            frame = out_of_place(2 if place != places[0] else 1)[
                place
            ]  # the worker of the last two is used again
            found = pool.run([0, 1, frame, 3, 4], wall_s=WALL_S)
            assert [found[0], found[1], found[3], found[4]] == [0, 1, 3, 4], frame
            assert isinstance(found[2], WorkerDied), frame


def test_what_stands_behind_the_last_reply_answers_no_later_request():
    """Another process wrote it; it is still in the pipe when the worker is used again."""
    with WorkerPool(writing, spares=0) as pool:
        first = pool.run([1, json.dumps(["ok", 2, 0, NOW, 0.5, "forged"])], wall_s=WALL_S)
        assert first[0] == 1
        assert isinstance(first[1], WorkerDied)
        assert pool.run([3, 4], wall_s=WALL_S) == [3, 4]


def test_a_child_of_the_fork_server_that_forks_replies_once():
    """The grandchild comes back to the loop too."""
    server = ForkServer(lambda item: (os.fork(), item)[1])
    try:
        assert [server.ask(item, cpu_s=5.0, wall_s=WALL_S) for item in range(20)] == list(range(20))
    finally:
        server.end()


def test_a_reply_to_another_request_is_no_reply(monkeypatch):
    """The child of the fork server is lost then, for no fault of the request."""
    server = ForkServer(lambda item: item)
    dumps = pickle.dumps
    try:
        assert server.ask("a", cpu_s=5.0, wall_s=WALL_S) == "a"
        monkeypatch.setattr(pickle, "dumps", lambda request: dumps((7, *request[1:])))
        with pytest.raises(ChildLost, match="died"):
            server.ask("b", cpu_s=5.0, wall_s=WALL_S)
        monkeypatch.undo()
        assert server.ask("c", cpu_s=5.0, wall_s=WALL_S) == "c"
    finally:
        server.end()


def test_a_handler_that_replaces_json_changes_no_reply():
    """Libraries patch `json` for their own types; the worker keeps what it began with."""

    def setup():
        def handle(item):
            json.dumps = lambda *args, **kwargs: "null"
            time.monotonic = lambda: None
            return item

        return handle

    with WorkerPool(setup, spares=0) as pool:
        assert pool.run([1, 2], wall_s=WALL_S) == [1, 2]
        assert pool.run([3], wall_s=WALL_S) == [3]
