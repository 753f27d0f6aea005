"""References are read where a worker can be killed, within CPU time, and a row with another one is left out."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

import rlvr
from rlvr.environment import reading
from rlvr.errors import DataError, DataWarning
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.base import BaseVerifier
from tests.scoring.test_services import service_of


@dataclass(frozen=True)
class Reads(BaseVerifier[str, str]):
    """Reads "endless" without end, cannot read "bad", and fails with "odd" only when it judges."""

    version = 1

    def read(self, reference):
        reading.READ_CPU_S = 0.3  # here and in the worker
        while reference == "endless":
            try:
                sum(range(1000))
            except Exception:  # noqa: BLE001  a user's code may catch anything
                continue
        if reference == "bad":
            raise DataError("no such animal")
        return reference

    def extract(self, text, task):
        return text

    def judge(self, answer, reference):
        if reference == "odd":
            raise DataError("found too late")
        return Verdict(Outcome.CORRECT if answer == reference else Outcome.WRONG)


class Animals(rlvr.Environment):
    reward = rlvr.Correct(Reads())

    def tasks(self):
        yield from (rlvr.Task(f"{i}", "p", reference) for i, reference in enumerate(("a", "bad")))


ROWS = [
    {"id": i, "reference": reference, "completion": "cat"}
    for i, reference in enumerate(("cat", "bad", "endless", "odd", "endless", "dog"))
]
OUTCOMES = [(0, "correct"), (3, "unscored"), (5, "wrong")]
REFUSED = [(2, "no such animal"), (3, "it takes more than"), (5, "it takes more than")]


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    monkeypatch.setattr(reading, "READ_CPU_S", reading.READ_CPU_S)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_row_whose_reference_cannot_be_read_is_left_out(workers):
    """One that fails only when it judges is our failure, not the answer's."""
    refused = []
    with rlvr.Scorer(Animals(), workers=workers) as scorer:
        scored = list(scorer.stream(ROWS, on_error=lambda *one: refused.append(one)))
        assert scorer.processes[1] == 0  # no worker was lost
    assert [(one.item.id, one.outcome.value) for one in scored] == OUTCOMES
    assert [(number, str(why)[:18].strip()) for number, why in refused] == [
        (number, why[:18]) for number, why in REFUSED
    ]


def test_a_service_says_which_references_cannot_be_read():
    """Also to a scorer elsewhere, which leaves the same rows out."""
    refused = []
    with (
        service_of(Animals()) as url,
        rlvr.Scorer(Animals(), engine=rlvr.engines.Services(url)) as scorer,
    ):
        scored = list(scorer.stream(ROWS, on_error=lambda *one: refused.append(one)))
    assert [(one.item.id, one.outcome.value) for one in scored] == OUTCOMES
    assert [number for number, _ in refused] == [number for number, _ in REFUSED]


def test_a_task_that_was_drawn_is_unscored():
    """A trainer that drew it has a group to fill: no error ends its run."""
    with rlvr.Scorer(Animals(), workers=1) as scorer:
        one, other = (scorer.score(task, "a") for task in Animals().tasks())
    assert one.total == 1.0
    assert other.total is None
    assert "no such animal" in other.verdict.why


@pytest.mark.parametrize("where", ["main thread", "another thread"])
def test_tasks_are_read_within_time_in_any_thread(where):
    """An endless reference in a data set is left out before a task is drawn.  Signals reach the main thread alone, and a notebook or a server loads its data in another one."""
    rows = [{"prompt": "p", "reference": "cat"}] * 40 + [{"prompt": "p", "reference": "endless"}]
    env = rlvr.Environment.from_rows(rows, verifier=Reads())
    with pytest.warns(DataWarning, match="1 of 41 rows .* more than 0.3 CPU s to read"):
        if where == "main thread":
            assert env.size == 40
        else:
            with ThreadPoolExecutor(1) as threads:
                assert threads.submit(lambda: env.size).result() == 40


def test_a_timer_of_the_caller_goes_on():
    """The limit of reading has the only timer of its kind; a program may have set it before."""
    rung = []
    before = signal.signal(signal.SIGVTALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.3, 0.05)
        with reading.limited_reading():
            spend(0.1)
        left, every = signal.getitimer(signal.ITIMER_VIRTUAL)
        assert 0 < left <= 0.25
        assert every == 0.05
        spend(0.5)
        assert rung
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def spend(cpu_s):
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        sum(range(10_000))  # in user mode, which this timer counts
