"""The bench: one program under judgement, the sandbox it runs in, and the time that is left for it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from rlvr.errors import UsageError
from rlvr.sandbox import Call, CallRun, Ending, Limits, Program, Run, Sandbox, TestRun, TestSuite

__all__ = ["Bench"]

_T = TypeVar("_T", Run, CallRun, TestRun)

_AGAIN = 1  # how often a run that ended at the wall clock is tried once more, alone
_GLANCE_CPU_S, _GLANCE_WALL_S = 0.1, 2.0
_SHORTEST_S = 0.05  # what is left is not worth a run below that


class Bench:
    """Runs a program, over and over, until the time for all its cases is up; then every run is None.

    Attributes:
        limits: of one case.
        together: all calls have the limits of one case, as they are a suite that was taken apart.
        cpu_s, wall_s: spent so far.
    """

    def __init__(
        self, program: Program, sandbox: Sandbox, limits: Limits, total_cpu_s: float | None, total_wall_s: float | None
    ) -> None:
        for name, value in (("total_cpu_s", total_cpu_s), ("total_wall_s", total_wall_s)):
            if value is not None and not value > 0:
                raise UsageError(f"{name} is {value!r}; it must be a number of seconds above 0, or None")
        self._program, self._sandbox, self.limits = program, sandbox, limits
        self._total_cpu_s, self._total_wall_s = total_cpu_s or math.inf, total_wall_s or math.inf
        self._again = _AGAIN
        self._compiled = False
        self.together = False
        self.cpu_s = self.wall_s = 0.0

    def run(self, stdin: str | bytes) -> Run | None:
        """With this on standard input; compiled before, which takes of the time too."""
        if not self._compiled:
            built = self._spent(self._sandbox.compile(self._program), _itself)
            if built.ending is not Ending.OK:
                return built
            self._compiled = True
        return self._timed(partial(self._sandbox.run, self._program, stdin), _itself)

    def call(self, calls: Sequence[Call]) -> CallRun | None:
        """As a module whose functions are called; each call has the limits of a case, unless they are a suite."""
        start = partial(self._sandbox.call, self._program, calls, case_cpu_s=self.limits.cpu_s)
        return self._timed(start, _of_calls, 1 if self.together else len(calls))

    def glance(self, calls: Sequence[Call]) -> CallRun | None:
        """`call` within a tenth of a second for all of them, which nearly every program needs less than."""
        limits = self._share(1)
        if limits is None:
            return None
        limits = dataclasses.replace(
            limits, cpu_s=min(limits.cpu_s, _GLANCE_CPU_S), wall_s=min(limits.wall, _GLANCE_WALL_S)
        )
        return self._spent(self._sandbox.call(self._program, calls, limits=limits), _of_calls)

    def test(self, suite: TestSuite) -> TestRun | None:
        """Beside a suite of tests, which has the limits of a case as a whole."""
        return self._timed(partial(self._sandbox.test, self._program, suite), _of_tests)

    def aside(self, program: Program, limits: Limits) -> Run | None:
        """Run a checker: on the program's time, for the program wrote what may take it long."""
        share = self._share(1, limits)
        return None if share is None else self._spent(self._sandbox.run(program, limits=share), _itself)

    def _timed(self, start: Callable[..., _T], run_of: Callable[[_T], Run], cases: int = 1) -> _T | None:
        """Once; and once more, alone, if the wall clock ended it: it may have waited for others."""
        limits = self._share(cases)
        if limits is None:
            return None
        done = self._spent(start(limits=limits), run_of)
        run = run_of(done)
        late = run.ending is Ending.TLE and run.wall_s >= limits.wall and run.cpu_s < limits.cpu_s
        if late and self._again and (limits := self._share(cases)):
            self._again -= 1
            done = self._spent(start(limits=limits, alone=True), run_of)
        return done

    def _share(self, cases: int, limits: Limits | None = None) -> Limits | None:
        """The limits of the next run, for so many cases."""
        limits = limits or self.limits
        cpu_s, wall_s = self._total_cpu_s - self.cpu_s, self._total_wall_s - self.wall_s
        if min(cpu_s, wall_s) < _SHORTEST_S:
            return None
        cpu_s, wall_s = min(cpu_s, cases * limits.cpu_s), min(wall_s, cases * limits.wall)
        return dataclasses.replace(limits, cpu_s=cpu_s, wall_s=wall_s)

    def _spent(self, done: _T, run_of: Callable[[_T], Run]) -> _T:
        self.cpu_s += run_of(done).cpu_s
        self.wall_s += run_of(done).wall_s
        return done


def _itself(run: Run) -> Run:
    return run


def _of_calls(done: CallRun) -> Run:
    return done.run


def _of_tests(done: TestRun) -> Run:
    return done.run
