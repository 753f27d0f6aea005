"""Environments whose references take long or cannot be read.

Workers import this file, and not that of the tests, which takes a second of CPU time in each.
"""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import rlvr
from rlvr.environment import reading
from rlvr.errors import DataError
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.base import BaseVerifier

LIMIT_S = 0.3
if "PYTEST_CURRENT_TEST" in os.environ:  # a worker that a test has started imports this file
    reading.READ_CPU_S = LIMIT_S


def spend(cpu_s):
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        sum(range(10_000))  # in user mode, which this timer counts


@dataclass(frozen=True)
class Reads(BaseVerifier[str, str]):
    """Reads "endless" without end, cannot read "bad", and fails with "odd" only when it judges."""

    version = 1

    def read(self, reference):
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


@dataclass(frozen=True)
class Waits(Reads):
    """Reads a path until there is a file, with 50 ms of CPU time before it looks; another text at once."""

    def read(self, reference):
        if reference.startswith("/"):
            spend(0.05)
            while not Path(reference).exists():
                time.sleep(0.01)
        return reference


class Gates(rlvr.Environment):
    """Tasks whose references are read by `Waits`."""

    reward = rlvr.Correct(Waits())


class Awaited(rlvr.Environment):
    """The same, and its verdicts are awaited, two at once."""

    max_concurrent: ClassVar[int] = 2

    def reference_of(self, value):
        return Waits().read(value)

    async def verify(self, task, completion):
        await asyncio.sleep(0)
        if task.reference == "opens":
            Path(completion).touch()
        return Waits().judge(completion, task.reference)


class Questions(Animals):
    """Tasks of the data set's own columns, or of a reference, by code that may take for ever."""

    def task_from(self, row, id="row"):
        if row["animal"] == "odd":
            raise ValueError("no such column")
        return rlvr.Task(id, "p", Reads().read(row["animal"]))

    def reference_of(self, value):
        return Reads().read(value)
