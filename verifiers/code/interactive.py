"""What an interaction says about the program: right, wrong, or nothing, as the interactor is at fault.

The interactor is the task's, and what makes it fail is either its own fault, which says nothing about the program (IE),
or what the program did.  It is the program's where

    the interactor waited for a word when the program had ended, and then failed;
    it got a word and raised ValueError, LookupError, OverflowError or EOFError in Python: `int("hello")`;
    it went over a limit with what the program said: words were left, or more than half of its CPU time was before the
    last word; where memory or output ran out, the program had said more than 64 KiB.

An interactor in Python that fails by itself may look the same in the second case, if it does so after the first word.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from rlvr.sandbox import Ending, Interaction, Limits, Program
from rlvr.verifiers.code.cases import Interactor, StdioCase
from rlvr.verifiers.code.checker import first_line, with_room
from rlvr.verifiers.code.verdicts import CaseVerdict

__all__ = ["dealt", "decided"]

_AC, _WA, _IE, _ILE = CaseVerdict.AC, CaseVerdict.WA, CaseVerdict.IE, CaseVerdict.ILE
_OVER: Final = {Ending.TLE, Ending.MLE, Ending.OLE}
_MUCH: Final = 64 << 10  # bytes: more than an interactor need keep
_KEPT: Final = (
    16  # bytes of memory for each byte that the program may say: a list of short texts in Python
)

_SAYS: Final = {"testlib": {0: _AC, 1: _WA, 2: _WA}, "icpc": {42: _AC, 43: _WA}}
_ACCEPTS: Final = {"testlib": 0, "icpc": 42}
_INPUT, _ANSWER, _OUTPUT, _FOLDER = "input.txt", "answer.txt", "output.txt", "feedback"
_ARGS: Final = {"testlib": (_INPUT, _OUTPUT, _ANSWER), "icpc": (_INPUT, _ANSWER, _FOLDER)}

_Finding: TypeAlias = tuple[CaseVerdict | None, str]


def dealt(
    interactor: Interactor, case: StdioCase, limits: Limits, program: Limits
) -> tuple[Program, Limits, int]:
    """The interactor with a case's input and answer, its limits, and the exit code with which it accepts.

    Args:
        interactor: the task's.
        case: the case.
        limits: of an interactor that brings none.
        program: of the judged program, which may say so much.
    """
    own = interactor.program
    files: dict[str, str | bytes] = {_INPUT: case.stdin, _ANSWER: case.stdout or ""}
    if interactor.protocol == "icpc":
        files[f"{_FOLDER}/judgemessage.txt"] = ""  # the folder has to be there
    made = Program(own.language, files={**own.files, **files}, args=_ARGS[interactor.protocol])
    cpu_s = interactor.cpu_s or limits.cpu_s
    memory_mib = (interactor.memory_mib or limits.memory_mib) + int(_KEPT * program.output_mib)
    room = with_room(limits, files)
    granted = Limits(
        cpu_s=cpu_s,
        memory_mib=memory_mib + room.memory_mib - limits.memory_mib,
        output_mib=limits.output_mib,
        processes=limits.processes,
        disk_mib=room.disk_mib,
        files=limits.files,
    )
    return made, granted, _ACCEPTS[interactor.protocol]


def decided(done: Interaction, interactor: Interactor) -> _Finding:
    """The verdict and its reason; None for the verdict that the program's own end has.

    Args:
        done: how they talked.
        interactor: the task's.
    """
    program, theirs = done.program, done.interactor
    if Ending.IE in (program.ending, theirs.ending):
        return _IE, program.why if program.ending is Ending.IE else f"the interactor: {theirs.why}"
    if theirs.ending is Ending.CE:
        return _IE, f"the interactor does not compile: {first_line(theirs)}"
    if done.stuck == "interactor":
        return _IE, "the interactor waits for what no program can bring"
    if done.stuck:
        return _ILE, "it and the interactor waited for each other (is its output flushed?)"
    said = None if theirs.exit_code is None else _SAYS[interactor.protocol].get(theirs.exit_code)
    failed = program.ending is not Ending.OK and not done.stopped
    if done.ended_early and failed:
        return None, ""
    if said is _AC:
        return (None, "") if failed else (_AC, "")
    if said is _WA:
        return _WA, first_line(theirs)
    if program.ending in _OVER:  # over a limit of its own, and the interactor was ended with it
        return None, ""
    return _failed(done, interactor)


def _failed(done: Interaction, interactor: Interactor) -> _Finding:
    """The interactor has given no verdict."""
    theirs = done.interactor
    if done.ended_early:
        return _WA, "it ended before the interactor had decided"
    if interactor.program.language == "python" and done.no_word and done.asked:
        return _WA, f"the interactor cannot read it: {_last_line(theirs.stderr)}"
    if done.asked and theirs.ending in _OVER:
        wall = "wall seconds" in theirs.why
        if (
            theirs.ending is Ending.TLE
            and not wall
            and (done.unread or 2 * done.since_s < theirs.cpu_s)
        ):
            return CaseVerdict.TLE, "the interactor's time was used up with what it said"
        if theirs.ending is not Ending.TLE and done.said > _MUCH:
            return CaseVerdict.OLE, "it said more than the interactor can take in"
    if theirs.exit_code == 7 and interactor.protocol == "testlib":
        return _IE, "the interactor gives points, which are no verdict"
    why = _last_line(theirs.stderr) or theirs.why
    return (
        _IE,
        f"the interactor failed: {theirs.why}: {why}"
        if why != theirs.why
        else f"the interactor failed: {why}",
    )


def _last_line(stderr: bytes) -> str:
    return stderr[-1000:].decode("utf-8", "replace").strip().rpartition("\n")[2]
