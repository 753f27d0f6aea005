"""What an interaction says about the program: right, wrong, or nothing, as
the interactor is at fault.

The interactor is the task's, and may be broken.  Where it dies (an uncaught exception, a limit, an
exit code that says nothing), what the program said may be the reason.  It is not where the
interactor had not asked for a word; nor where it dies with the reference's `solution` too.  Without
one, a death after the first word counts against the program.
"""

from __future__ import annotations

from typing import Final

from rlvr.sandbox import Ending, Interaction, Limits, Program, Run
from rlvr.sandbox.outputs import Output
from rlvr.verifiers.code.case_runner import CaseRunner
from rlvr.verifiers.code.cases import Interactor, StdioCase
from rlvr.verifiers.code.checker import LATE, CheckerResult, first_line, said_by, with_room
from rlvr.verifiers.code.verdicts import CaseVerdict, reason_line

__all__ = ["Meeting"]

_AC, _WA, _IE, _ILE = CaseVerdict.AC, CaseVerdict.WA, CaseVerdict.IE, CaseVerdict.ILE
# bytes of memory for each byte that the program may say: a list of short texts in Python
_KEPT: Final = 16
# Exit codes for a right program: testlib's _ok, and 42 of the ICPC's problem packages.
_ACCEPTS: Final = {"testlib": 0, "icpc": 42}
_INPUT, _ANSWER, _OUTPUT, _FOLDER = "input.txt", "answer.txt", "output.txt", "feedback"
_ARGS: Final = {"testlib": (_INPUT, _OUTPUT, _ANSWER), "icpc": (_INPUT, _ANSWER, _FOLDER)}


class Meeting:
    """One case: the program meets the interactor.

    Args:
        interactor: the task's.
        case: the case.
        runner: of the program.
        limits: of an interactor that brings none.
    """

    def __init__(
        self, interactor: Interactor, case: StdioCase, runner: CaseRunner, limits: Limits
    ) -> None:
        self._interactor, self._runner = interactor, runner
        files: dict[str, str | bytes | Output] = {_INPUT: case.stdin, _ANSWER: case.stdout or ""}
        if interactor.protocol == "icpc":
            files[f"{_FOLDER}/judgemessage.txt"] = ""  # the folder has to be there
        self._program = interactor.program.beside(files, _ARGS[interactor.protocol])
        words_mib = int(_KEPT * runner.limits.output_mib)
        room = with_room(limits, files)
        self._limits = Limits(
            cpu_s=interactor.cpu_s or limits.cpu_s,
            memory_mib=(interactor.memory_mib or limits.memory_mib)
            + words_mib
            + room.memory_mib
            - limits.memory_mib,
            output_mib=limits.output_mib,
            processes=limits.processes,
            disk_mib=room.disk_mib,
            files=limits.files,
        )

    def talk(self, solution: Program | None = None) -> Interaction | None:
        """How they have talked; None if no time is left.

        Args:
            solution: instead of the program.
        """
        accepts = _ACCEPTS[self._interactor.protocol]
        return self._runner.interact(self._program, self._limits, accepts, solution)

    def decide(self, done: Interaction) -> CheckerResult:
        """The verdict and its reason.

        Args:
            done: from `talk`.
        """
        program, interactor_run = done.program, done.interactor
        if program.ending is Ending.IE:
            return CheckerResult(_IE, program.why)
        if interactor_run.ending is Ending.IE:
            return CheckerResult(_IE, f"the interactor: {interactor_run.why}")
        if interactor_run.ending is Ending.CE:
            return CheckerResult(
                _IE, f"the interactor does not compile: {first_line(interactor_run)}"
            )
        if done.stuck == "interactor":
            return CheckerResult(_IE, "the interactor waits for what no program can bring")
        if done.stuck:
            return CheckerResult(
                _ILE, "it and the interactor waited for each other (is its output flushed?)"
            )
        finding = said_by(interactor_run, self._interactor)
        failed = program.ending is not Ending.OK and not done.stopped
        if failed and (done.ended_early or (finding is not None and finding.verdict is _AC)):
            return CheckerResult(None)
        if finding is not None:
            return finding
        if failed and program.ending is not Ending.RE:
            # Over a limit of its own, and the interactor was ended with it.
            return CheckerResult(None)
        return self._judge_death(done)

    def _was_late(self, run: Run) -> bool:
        """Whether the interactor was ended within its own limits, as no time was left."""
        wall_s = run.wall_s - run.starved_s
        within = run.cpu_s < self._limits.cpu_s and wall_s < self._limits.wall
        return run.ending is Ending.TLE and within

    def _judge_death(self, done: Interaction) -> CheckerResult:
        interactor_run = done.interactor
        message = reason_line(
            interactor_run.errors.tail(1000).decode("utf-8", "replace").strip().rpartition("\n")[2]
        )
        why = message or interactor_run.why
        if not done.asked and not done.ended_early:
            return CheckerResult(_IE, f"the interactor failed before it asked for a word: {why}")
        solution = self._interactor.solution
        if solution is not None:
            again = self.talk(solution)
            right = None if again is None else said_by(again.interactor, self._interactor)
            if right is None or right.verdict is not _AC:
                return CheckerResult(
                    _IE, f"the interactor failed, and with the solution too: {why}"
                )
        if self._was_late(interactor_run):
            return LATE
        if done.ended_early:
            return CheckerResult(_WA, "it ended before the interactor had decided")
        return CheckerResult(_WA, f"the interactor cannot read it: {why}")
