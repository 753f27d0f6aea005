"""Fixtures that several test files share."""

import contextlib
import gc
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

import rlvr
from rlvr.data.formats import read_rows
from rlvr.workers import WorkerPool
from tests.environments import PLACE, Trials, acting
from tests.processes import Fifo
from tests.sandbox.sandboxes import USERS

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # as in the Makefile: torch's threads wait for each other, at full speed

with contextlib.suppress(ImportError):  # environments of one engine or peer do not have it
    from hypothesis import HealthCheck, settings

    # A wall clock says nothing of a property, and a suite that draws anew each time is not the same twice.
    few = settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("few", few)
    settings.register_profile("thorough", few, max_examples=150)  # `make test-slow`, and CI
    settings.load_profile("few")

FOR_BOTH_USERS = ("tests/escapes/", "tests/sandbox/test_sandbox_honest.py")
"""Tables of programs whose ending is the same whether root or an ordinary user runs the sandbox."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where root has run such a table, every fourth row is enough for the ordinary user; the others are slow."""
    rows = Counter()
    for item in items if len(USERS) > 1 else ():
        if item.nodeid.startswith(FOR_BOTH_USERS) and "[ordinary" in item.name:
            rows[item.path, item.originalname] += 1
            if rows[item.path, item.originalname] % 4 > 0:
                item.add_marker("slow")


def pytest_collection() -> None:
    """What is imported and collected stays: garbage is not looked for in it, which takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def interruptible():
    """SIGINT and SIGHUP act, here and in child processes, even if the tests run under `nohup` or `&`."""
    actions = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, action) for number, action in actions.items()}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture
def fifo(tmp_path):
    """A pipe by which a worker tells the test how far it has come."""
    fifo = Fifo(tmp_path / "fifo")
    yield fifo
    fifo.close()


@pytest.fixture(scope="module")
def pool():
    """Two workers that do what a text says."""
    with WorkerPool(acting, workers=2, memory_mib=256, quiet=True) as pool:
        yield pool


@pytest.fixture(scope="module")
def scorer():
    """A scorer of `Trials` with two workers."""
    with rlvr.Scorer(Trials(), workers=2) as scorer:
        yield scorer


@pytest.fixture
def say(capsys, monkeypatch):
    """Run the command in this process, in which a traceback would be the test's: (exit code, what it said).

    What it said on either stream; `say.out` and `say.err` hold them apart.
    """
    from rlvr.cli import main

    monkeypatch.setenv("COLUMNS", "200")  # no line breaks and no colours
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*argv: object) -> tuple[int, str]:
        code = main([str(arg) for arg in argv])
        run.out, run.err = capsys.readouterr()
        return code, run.err + run.out

    return run


@pytest.fixture
def score(say, tmp_path):
    """Score rows with `Trials`, without workers unless told; gives code, words and output."""

    def run(
        source: Path | list, *flags: object, env: str = PLACE, out: str = "out.jsonl"
    ) -> tuple[int, str, list]:
        if isinstance(source, list):
            source, rows = tmp_path / "in.jsonl", source
            source.write_text(
                "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
            )
        flags = flags if "--workers" in flags else (*flags, "--workers", 0)
        code, said = say("score", env, source, "-o", tmp_path / out, *flags)
        path = tmp_path / out
        return code, said, [line.row for line in read_rows(path)] if path.exists() else []

    return run
