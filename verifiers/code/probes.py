"""Probes of the checker or interactor that a task brings, for `rlvr check`: what does it
accept that cannot be right?

A policy earns with an output or a program that passes every case, so a probe counts where it passes
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rlvr.sandbox import Ending, Limits, Program, Run, Sandbox
from rlvr.sandbox.outputs import Output
from rlvr.verifiers.code.case_runner import CaseRunner
from rlvr.verifiers.code.cases import CheckerProgram, Interactor, StdioCase
from rlvr.verifiers.code.checker import CheckerResult, as_checker
from rlvr.verifiers.code.interactive import Meeting
from rlvr.verifiers.code.verdicts import CaseVerdict

__all__ = ["Probes"]

_CASES: Final = 8  # of a reference; more take time and say little more
_AC: Final = CaseVerdict.AC
_NOISE: Final = "q7# -1 zz\n0.5 }{\n"
_PROGRAMS: Final = {
    "exit(0)": "exit(0)",
    "a program that prints noise": f"print({_NOISE!r} * 100)",
    "a program that repeats what it reads": "for line in open(0): print(line, end='', flush=True)",
}


@dataclass(frozen=True, slots=True)
class Probes:
    """Probes of the judges that references bring.

    Attributes:
        sandbox: where programs run.
        limits: of one case.
        total_cpu_s, total_wall_s: seconds of one probe over all cases.
    """

    sandbox: Sandbox
    limits: Limits
    total_cpu_s: float
    total_wall_s: float

    def of_checker(
        self, checker: CheckerProgram, cases: Sequence[StdioCase]
    ) -> Iterator[tuple[str, str]]:
        """A hole's name, and what was seen, for each that a checker has.

        Args:
            checker: it is given outputs in place of a program's.
            cases: of its reference.
        """
        cases = cases[:_CASES]
        usable = [case for case in cases if _words(case.stdout)]
        for case in usable:
            finding = self._check(checker, case, case.stdout)
            if finding.verdict is not _AC:
                yield "checker-rejects", f"the expected output: {finding.why}"
                break
        wrong: dict[str, list[str | bytes]]
        wrong = {"nothing": [""] * len(cases), "noise": [_NOISE] * len(cases)}
        wrong["the input"] = [case.stdin for case in cases]
        for name, outputs in wrong.items():
            tries = list(zip(cases, outputs, strict=True))
            differs = any(_words(case.stdout) != _words(output) for case, output in tries)
            if differs and all(self._check(checker, *tried).verdict is _AC for tried in tries):
                yield "checker-accepts", name

    def of_interactor(
        self, interactor: Interactor, cases: Sequence[StdioCase]
    ) -> Iterator[tuple[str, str]]:
        """The same for an interactor.

        Args:
            interactor: it is given programs; its own `solution` must be right.
            cases: of its reference.
        """
        cases = cases[:_CASES]
        if interactor.solution is None:
            yield "checker-untried", "the reference has no 'solution', a right program"
        else:
            for finding in self._meetings(interactor, cases, interactor.solution):
                if finding.verdict is not _AC:
                    yield "checker-rejects", f"the reference's solution: {finding.why}"
                    break
        for name, source in _PROGRAMS.items():
            met = self._meetings(interactor, cases, Program("python", source))
            if all(finding.verdict is _AC for finding in met):
                yield "checker-accepts", name

    def _check(
        self, checker: CheckerProgram, case: StdioCase, output: str | bytes | None
    ) -> CheckerResult:
        runner = self._runner(Program("python", ""))
        run = Run(Ending.OK, output=Output.of_text(output))
        checks = as_checker(checker, runner, self.sandbox.limits)
        return next(checks.check([case], [run], stop=True))

    def _meetings(
        self, interactor: Interactor, cases: Sequence[StdioCase], program: Program
    ) -> Iterator[CheckerResult]:
        for case in cases:
            runner = self._runner(program)
            built = runner.compiled()
            meeting = Meeting(interactor, case, runner, self.sandbox.limits)
            done = None if built else meeting.talk()
            yield meeting.decide(done) if done else CheckerResult(None, "it does not compile")

    def _runner(self, program: Program) -> CaseRunner:
        limits = self.limits
        return CaseRunner(program, self.sandbox, limits, self.total_cpu_s, self.total_wall_s)


def _words(text: str | bytes | None) -> list[str] | list[bytes]:
    return (text or "").split()
