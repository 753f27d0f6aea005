"""Checks of an output: by a comparator in this process, or by a checker program in a sandbox of its own.

Both read what an untrusted program wrote.  If one fails on such a text, it is given the expected output as well: if it
succeeds there, the program's output is at fault; if it fails there too, we are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from rlvr.errors import DataError, RlvrError, UsageError, brief
from rlvr.sandbox import Ending, Limits, Program, Run
from rlvr.verifiers.code.case_runner import CaseRunner
from rlvr.verifiers.code.cases import CheckerProgram, Interactor, StdioCase
from rlvr.verifiers.code.compare import COMPARATORS, Comparator, comparator
from rlvr.verifiers.code.verdicts import CaseVerdict

__all__ = ["Checker", "Compare", "as_checker", "first_line", "refuse_empty", "with_room"]

Compare: TypeAlias = str | Comparator | Program | CheckerProgram | Interactor
"""A comparator, its name, a checker program or an interactor; a bare `Program` is a checker with testlib's protocol."""

_Finding: TypeAlias = tuple[CaseVerdict, str]

_AC, _WA, _IE = CaseVerdict.AC, CaseVerdict.WA, CaseVerdict.IE
_LATE: Final = CaseVerdict.TLE, "no time was left for the checker"
_FILES: Final = ("input.txt", "output.txt", "answer.txt")
_PRINTS: Final = {b"1": _AC, b"1.0": _AC, b"0": _WA, b"0.0": _WA}
_SAYS: Final = {0: _AC, 1: _WA, 2: _WA}  # testlib's _ok, _wa, _pe


class Checker(Protocol):
    """Checks the output of a run that ended well."""

    def check(self, case: StdioCase, run: Run) -> _Finding:
        """The verdict and its reason: AC or WA; TLE if no time is left for the check; IE if we failed.

        Args:
            case: the case, with its input and expected output.
            run: the run on that input, which has the output.
        """


def as_checker(compare: Compare, runner: CaseRunner, limits: Limits) -> Checker:
    """The checker for a setting `compare`.

    Args:
        compare: a comparator, its name, or a checker program.
        runner: runs a checker program, on the judged program's time.
        limits: of one run of a checker program.
    """
    if isinstance(compare, Program):
        compare = CheckerProgram(compare)
    assert not isinstance(compare, Interactor)  # `judge` has it run with the program
    return (
        _Boxed(compare, runner, limits)
        if isinstance(compare, CheckerProgram)
        else _Here(comparator(compare))
    )


def refuse_empty(compare: Compare, cases: Sequence[StdioCase]) -> None:
    """Refuse cases that a program which does nothing would pass.

    A caller's own comparator, checker or interactor may read more than the expected output, and is trusted here.

    Args:
        compare: how outputs are compared.
        cases: the cases.

    Raises:
        DataError: every expected output is empty.
    """
    if (
        isinstance(compare, Program | CheckerProgram | Interactor)
        or comparator(compare) not in COMPARATORS.values()
    ):
        return
    if not any(case.stdout and case.stdout.strip() for case in cases):
        raise DataError("every expected output is empty: a program that does nothing would pass")


@dataclass(frozen=True, slots=True)
class _Here:
    """A comparator in this process."""

    compare: Comparator

    def check(self, case: StdioCase, run: Run) -> _Finding:
        expected = _text(case.stdout)
        try:
            return self._finding(case, _text(run.stdout), expected)
        except RlvrError:
            raise
        except Exception as error:  # noqa: BLE001  the caller's code over an untrusted text
            said = f"{type(error).__name__}: {error}"
            if case.stdout is None:
                return _WA, f"the comparator raised {said}"
            try:
                self._finding(case, expected, expected)
            except Exception:  # noqa: BLE001  the same
                return _IE, f"the comparator raised {said}, and on the expected output too"
            return _WA, f"the comparator cannot read it: {said}"

    def _finding(self, case: StdioCase, output: str, expected: str) -> _Finding:
        said = self.compare(_text(case.stdin), output, expected)
        if said is True:
            return _AC, ""
        if said is not False and not isinstance(said, str):
            raise UsageError(
                f"the comparator returned {brief(said)}; it must be True, False, or a text: why not"
            )
        return _WA, said or "the output is not the expected one"


@dataclass(frozen=True, slots=True)
class _Boxed:
    """A checker program in a box of its own."""

    checker: CheckerProgram
    runner: CaseRunner
    limits: Limits

    def check(self, case: StdioCase, run: Run) -> _Finding:
        said = self._run(case, run.stdout)
        if said is None:
            return _LATE
        if said.ending is Ending.IE:
            return _IE, f"the checker: {said.why}"
        found = self._found(said)
        if found is not None:
            return found, first_line(said)
        if said.ending is Ending.CE:
            return _IE, f"the checker does not compile: {first_line(said)}"
        why = (
            "over its time" if said.ending is Ending.TLE else said.why
        )  # how much time was left is not for records
        if case.stdout is not None:
            again = self._run(case, case.stdout)
            if again is None:
                return _LATE
            if self._found(again) is None:
                return _IE, f"the checker failed, and on the expected output too: {why}"
        return _WA, f"the checker cannot read it: {why}"

    def _found(self, said: Run) -> CaseVerdict | None:
        """What a run of the checker says; None if it failed."""
        if self.checker.protocol == "testlib":
            return _SAYS.get(-1 if said.exit_code is None else said.exit_code)
        last = said.stdout.split()[-1:]
        return _PRINTS.get(last[0]) if said.ending is Ending.OK and last else None

    def _run(self, case: StdioCase, output: str | bytes) -> Run | None:
        files = dict(zip(_FILES, (case.stdin, output, case.stdout or ""), strict=True))
        args = _FILES if self.checker.protocol == "testlib" else (_FILES[0], _FILES[2], _FILES[1])
        own = self.checker.program
        program = Program(own.language, files={**own.files, **files}, args=args)
        return self.runner.aside(program, with_room(self.limits, files))


def with_room(limits: Limits, files: Mapping[str, str | bytes]) -> Limits:
    """The limits plus disk and memory for the files, which may be as large as the largest output.

    Args:
        limits: of a checker or an interactor.
        files: name → content.
    """
    mib = sum(map(len, files.values())) * 4 / (1 << 20)
    return replace(limits, disk_mib=limits.disk_mib + mib, memory_mib=limits.memory_mib + int(mib))


def _text(raw: str | bytes | None) -> str:
    """As text; bytes that are not UTF-8 become lone surrogates, so that different bytes stay different."""
    return raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw or ""


def first_line(run: Run) -> str:
    """Its first line on stderr, where testlib writes; if that is empty, on stdout.

    Args:
        run: of a checker or an interactor.
    """
    said = (run.stderr.strip() or run.stdout.strip()).partition(b"\n")[0]
    return said[:1000].decode("utf-8", "replace")
