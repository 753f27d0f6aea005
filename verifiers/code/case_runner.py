"""`CaseRunner`: runs one program on its cases in the sandbox, within the time that
is left for all of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from rlvr.sandbox import (
    CallRun,
    Ending,
    Interaction,
    Limits,
    Program,
    ProgramCall,
    Run,
    Sandbox,
    TestRun,
    TestSuite,
)
from rlvr.sandbox.outputs import Readable
from rlvr.sandbox.reader import CPU_S, Reading, Work, read_aside, read_each
from rlvr.sandbox.sandbox import SHORTEST_S
from rlvr.validate import require_seconds

__all__ = ["CaseRunner"]

_T = TypeVar("_T", Run, CallRun, TestRun)

_READ_CPU_S = 1.0  # that reading gets even if little is left
# CPU and wall seconds that a judge gets with a right answer, even if none is left
_AGAIN_S = (2.5, 5.0)


class CaseRunner:
    """Runs a program on case after case; when the time for all its cases is
    used up, there is no run.

    Args:
        program: the program to judge.
        sandbox: where it runs.
        limits: of one case.
        total_cpu_s, total_wall_s: seconds for all cases together; None for no limit.

    Attributes:
        limits: of one case.
        together: True: all calls together have the limits of one case, since they were one suite of
            tests.
        cpu_s, wall_s: seconds used so far, by the program and by reading what it wrote.

    Raises:
        UsageError: a total is neither None nor a number of seconds above 0.
    """

    def __init__(
        self,
        program: Program,
        sandbox: Sandbox,
        limits: Limits,
        total_cpu_s: float | None,
        total_wall_s: float | None,
    ) -> None:
        for name, value in (("total_cpu_s", total_cpu_s), ("total_wall_s", total_wall_s)):
            require_seconds(name, value, or_none=True)
        self._program, self._sandbox, self.limits = program, sandbox, limits
        self._total_cpu_s, self._total_wall_s = total_cpu_s or math.inf, total_wall_s or math.inf
        self._compiled = False
        self.together = False
        self.cpu_s = self.wall_s = 0.0

    def run(self, stdins: Sequence[str | bytes], stop: bool = True) -> list[Run]:
        """The runs on the first of these inputs.  The first call compiles the program, on the
        program's own time.

        Args:
            stdins: the whole standard inputs.
            stop: end with the first run that fails.

        Returns:
            See `Sandbox.run_cases`; none if no time is left.
        """
        built = self.compiled()
        if built is not None:
            return [built]
        if self._share(1) is None:
            return []
        runs = self._sandbox.run_cases(
            self._program,
            stdins,
            limits=self.limits,
            stop=stop,
            total_cpu_s=self._total_cpu_s - self.cpu_s,
            total_wall_s=self._total_wall_s - self.wall_s,
        )
        return [self._spent(run) for run in runs]

    def compiled(self) -> Run | None:
        """Compile the program, on its own time; the run if that failed, None if it is ready."""
        if not self._compiled:
            cpu_s, wall_s = self._total_cpu_s - self.cpu_s, self._total_wall_s - self.wall_s
            built = self._sandbox.compile(self._program, cpu_s=cpu_s, wall_s=wall_s)
            self._spent(built)
            if built.ending is not Ending.OK:
                return built
            self._compiled = True
        return None

    def call(
        self, calls: Sequence[ProgramCall], look: Callable[[Readable], bool] | None
    ) -> CallRun | None:
        """One run that calls the program's functions; each call has the limits of a case (but see
        `together`).

        None if no time is left, as with the methods below.

        Args:
            calls: made in this order.
            look: see `Sandbox.call`.
        """
        start = partial(
            self._sandbox.call, self._program, calls, case_cpu_s=self.limits.cpu_s, look=look
        )
        return self._run_timed(start, 1 if self.together else len(calls))

    def test(self, suite: TestSuite) -> TestRun | None:
        """One run beside a suite of tests, which as a whole has the limits of one case.

        Args:
            suite: the tests.
        """
        return self._run_timed(partial(self._sandbox.test, self._program, suite))

    def aside(self, program: Program, limits: Limits, again: bool = False) -> Run | None:
        """Run a checker program, on the judged program's time: that program's output decides how
        long it takes.

        Args:
            program: the checker program, with its files.
            limits: of this run, beside the time that is left.
            again: it has the expected output: whatever time was used up, there is some for that.
        """
        share = self._share_again(limits) if again else self._share(1, limits)
        return (
            None
            if share is None
            else self._spent(self._sandbox.run(program, limits=share, judging=True))
        )

    def interact(
        self, interactor: Program, limits: Limits, accepts: int, instead: Program | None = None
    ) -> Interaction | None:
        """Run the program together with an interactor, whose CPU time is its own.

        Args:
            interactor: the interactor, with its files.
            limits: of the interactor.
            accepts: see `Sandbox.interact`.
            instead: a right program, in place of the judged one; see `aside`.

        Returns:
            How they talked; None if no time is left.
        """
        share = self._share_again(self.limits) if instead else self._share(1)
        if share is None:
            return None
        left_s = self._total_wall_s - self.wall_s
        limits = self._share_again(limits) if instead else limits.within(math.inf, left_s)
        done = self._sandbox.interact(
            instead or self._program,
            interactor,
            limits=share,
            interactor_limits=limits,
            accepts=accepts,
        )
        self.cpu_s += done.program.cpu_s
        self.wall_s += max(run.wall_s - run.starved_s for run in (done.program, done.interactor))
        return done

    def read(self, work: Work, *args: object) -> Reading:
        """Have the reader work, on the judged program's time: what that wrote decides how long it
        takes.

        Args:
            work, args: see `read_aside`.

        Raises:
            SandboxFailed, UsageError: see `read_aside`.
        """
        return self._charge(read_aside(work, *args, cpu_s=self._reading_s()))

    def read_each(self, work: Work, n: int, *args: object, loads: bytes | None = None) -> Reading:
        """`read` for cases that are read together.

        Args:
            work, n, args, loads: see `rlvr.sandbox.reader.read_each`.

        Raises:
            SandboxFailed, UsageError: see `read_aside`.
        """
        return self._charge(read_each(work, n, *args, cpu_s=self._reading_s(), loads=loads))

    def _reading_s(self) -> float:
        return max(_READ_CPU_S, min(CPU_S, self._total_cpu_s - self.cpu_s))

    def _charge(self, reading: Reading) -> Reading:
        self.cpu_s += reading.cpu_s
        self.wall_s += reading.cpu_s
        return reading

    def _run_timed(self, start: Callable[..., _T], cases: int = 1) -> _T | None:
        limits = self._share(cases)
        return None if limits is None else self._spent(start(limits=limits))

    def _share(self, cases: int, limits: Limits | None = None) -> Limits | None:
        """The limits of the next run of so many cases; None if the time is used up."""
        limits = limits or self.limits
        cpu_s, wall_s = self._total_cpu_s - self.cpu_s, self._total_wall_s - self.wall_s
        if min(cpu_s, wall_s) < SHORTEST_S:
            return None
        if cases > 1:
            limits = dataclasses.replace(
                limits, cpu_s=cases * limits.cpu_s, wall_s=cases * limits.wall
            )
        return limits.within(cpu_s, wall_s)

    def _share_again(self, limits: Limits) -> Limits:
        cpu_s, wall_s = self._total_cpu_s - self.cpu_s, self._total_wall_s - self.wall_s
        return limits.within(max(cpu_s, _AGAIN_S[0]), max(wall_s, _AGAIN_S[1]))

    def _spent(self, done: _T) -> _T:
        run = done if isinstance(done, Run) else done.run
        self.cpu_s += run.cpu_s
        self.wall_s += run.wall_s - run.starved_s
        return done
