"""Checks of an output: by a comparator in the reader, or by a checker program in a box of its own.

Both read what an untrusted program wrote, and either may be broken.  One that fails on an output is
tried on the expected one: if it fails or refuses there too, it is at fault and the verdict is IE;
else the output is, and is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from rlvr.errors import DataError
from rlvr.sandbox import Ending, Limits, Program, Run
from rlvr.sandbox.languages import LANGUAGES
from rlvr.sandbox.outputs import Output
from rlvr.verifiers.code.case_runner import CaseRunner
from rlvr.verifiers.code.cases import CheckerProgram, Interactor, StdioCase
from rlvr.verifiers.code.compare import COMPARATORS, Comparator, comparator
from rlvr.verifiers.code.reading import Shipped, compare_outputs
from rlvr.verifiers.code.verdicts import CaseVerdict, reason_line
from rlvr.workers import ship

__all__ = [
    "Checker",
    "CheckerResult",
    "Compare",
    "LATE",
    "as_checker",
    "first_line",
    "points_of",
    "refuse_empty",
    "said_by",
    "with_room",
]

Compare: TypeAlias = str | Comparator | Program | CheckerProgram | Interactor
"""A comparator, its name, a checker program or an interactor; a bare `Program` is a checker
with testlib's protocol."""

_AC, _WA, _IE = CaseVerdict.AC, CaseVerdict.WA, CaseVerdict.IE


class CheckerResult(NamedTuple):
    """What was found about an output.

    Attributes:
        verdict: AC or WA; TLE if no time is left for the check; IE if we failed; None for what the
            program's end says.
        why: the reason.
        points: from 0 to 1, what the output is worth; None for 1 where it is accepted and else 0.
        got: its beginning; None where it was not looked at.
    """

    verdict: CaseVerdict | None
    why: str = ""
    points: float | None = None
    got: str | None = None


LATE: Final = CheckerResult(CaseVerdict.TLE, "no time was left for it")
"""Of an output or a program for which no time is left."""
_FILES: Final = ("input.txt", "output.txt", "answer.txt")
_SAYS: Final[dict[str, dict[int, CaseVerdict]]] = {
    # testlib.h, `resultExitCode`: _ok, _wa, _pe, _dirt, _unexpected_eof.  _fail (3) is a death;
    # _points see below
    "testlib": {0: _AC, 1: _WA, 2: _WA, 4: _WA, 8: _WA},
    "icpc": {42: _AC, 43: _WA},
}
# testlib's exit code for points, which its message names.
_POINTS: Final = 7
_SHARE = re.compile(rb"(?:[01]|[01]?\.\d{1,20}|[01]\.\d{0,20}|\d(?:\.\d{1,20})?e-\d{1,3})")
_SAYS_POINTS = re.compile(rb"points ([01]|[01]?\.\d{1,20})\b")


class Checker(Protocol):
    """Checks the outputs of runs that ended well."""

    def check(
        self, cases: Sequence[StdioCase], runs: Sequence[Run], stop: bool
    ) -> Iterator[CheckerResult]:
        """What is found about each run's output.

        Args:
            cases: with their input and expected output.
            runs: the runs on those inputs, which have the outputs.
            stop: the first output that is not accepted is the last that counts.
        """


def as_checker(compare: Compare, runner: CaseRunner, limits: Limits) -> Checker:
    """The checker for a setting `compare`.

    Args:
        compare: a comparator, its name, or a checker program.
        runner: runs a checker program, on the judged program's time.
        limits: of one run of a checker program.

    Raises:
        UsageError: the comparator cannot be sent to the reader.
    """
    if isinstance(compare, Program):
        compare = CheckerProgram(compare)
    assert not isinstance(compare, Interactor)  # `judge` has it run with the program
    if isinstance(compare, CheckerProgram):
        return _Boxed(compare, runner, limits)
    return _Read(compare if isinstance(compare, str) else ship(comparator(compare)), runner)


def refuse_empty(compare: Compare, cases: Sequence[StdioCase]) -> None:
    """Refuse cases that a program which does nothing would pass.

    A caller's own comparator, checker or interactor may read more than the expected output, and is
    trusted here.

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
    if not any(case.stdout and not case.stdout.isspace() for case in cases):
        raise DataError("every expected output is empty: a program that does nothing would pass")


@dataclass(frozen=True, slots=True)
class _Read:
    """A comparator in the reader."""

    compare: Shipped
    runner: CaseRunner

    def check(
        self, cases: Sequence[StdioCase], runs: Sequence[Run], stop: bool
    ) -> Iterator[CheckerResult]:
        step = len(runs) if isinstance(self.compare, str) else 1  # a user's may take its time
        for at in range(0, len(runs), step):
            texts = [self._texts(case) for case in cases[at : at + step]]
            outputs = [run.output for run in runs[at : at + step]]
            for record, text in zip(self._read(texts, outputs, stop), texts, strict=False):
                yield self._lost(record, *text) if isinstance(record, str) else _finding(*record)

    def _texts(self, case: StdioCase) -> tuple[Output, Output | None]:
        """Input, where the comparator may look at it, and expected output."""
        stdin = Output() if isinstance(self.compare, str) else Output.of_text(case.stdin)
        return stdin, None if case.stdout is None else Output.of_text(case.stdout)

    def _lost(self, why: str, stdin: Output, expected: Output | None) -> CheckerResult:
        """The reader was lost with an output; that may be the fault of a user's comparator."""
        is_builtin = isinstance(self.compare, str)
        if expected is not None and not is_builtin:
            [again] = self._read([(stdin, expected)], [expected], True)
            if isinstance(again, str):
                return CheckerResult(
                    _IE, f"the comparator fails, and on the expected output too: {why}"
                )
        return CheckerResult(_WA, why)

    def _read(
        self, texts: Sequence[tuple[Output, Output | None]], outputs: Sequence[Output], stop: bool
    ) -> list[Any]:
        items = [
            (stdin.lent(), output.lent(), None if expected is None else expected.lent())
            for (stdin, expected), output in zip(texts, outputs, strict=True)
        ]
        loads = self.compare if isinstance(self.compare, bytes) else None
        args = self.compare, items, stop
        return self.runner.read_each(compare_outputs, len(items), *args, loads=loads).records


def _finding(verdict: str, why: str, got: str) -> CheckerResult:
    return CheckerResult(CaseVerdict(verdict), why, got=got)


@dataclass(frozen=True, slots=True)
class _Boxed:
    """A checker program in a box of its own."""

    checker: CheckerProgram
    runner: CaseRunner
    limits: Limits

    def check(
        self, cases: Sequence[StdioCase], runs: Sequence[Run], stop: bool
    ) -> Iterator[CheckerResult]:
        for case, run in zip(cases, runs, strict=True):
            yield self._check_case(case, run)

    def _check_case(self, case: StdioCase, run: Run) -> CheckerResult:
        checker_run = self._run(case, run.output)
        if checker_run is None:
            return LATE._replace(why="no time was left for the checker")
        if checker_run.ending is Ending.IE:
            return CheckerResult(_IE, f"the checker: {checker_run.why}")
        if checker_run.ending is Ending.CE:
            return CheckerResult(_IE, f"the checker does not compile: {first_line(checker_run)}")
        finding = said_by(checker_run, self.checker)
        if finding is not None:
            return finding
        # how much time was left is not for records
        why = (
            "over its time"
            if checker_run.ending is Ending.TLE
            else first_line(checker_run) or checker_run.why
        )
        if case.stdout is not None:
            again = self._run(case, case.stdout, again=True)
            right = None if again is None else said_by(again, self.checker)
            if right is None or right.verdict is not _AC:
                return CheckerResult(
                    _IE, f"the checker fails, and on the expected output too: {why}"
                )
        return CheckerResult(_WA, f"the checker cannot read it: {why}")

    def _run(
        self, case: StdioCase, output: str | bytes | Output, again: bool = False
    ) -> Run | None:
        files = dict(zip(_FILES, (case.stdin, output, case.stdout or ""), strict=True))
        args = _FILES if self.checker.protocol == "testlib" else (_FILES[0], _FILES[2], _FILES[1])
        return self.runner.aside(
            self.checker.program.beside(files, args), with_room(self.limits, files), again
        )


def said_by(run: Run, judge: CheckerProgram | Interactor) -> CheckerResult | None:
    """What a checker or an interactor says; None if it died, or may have died.

    An uncaught exception of Java or node gives the same exit code as testlib's "wrong", and is
    taken for a death, which is then tried on the expected output; Python is run so that it gives
    another one.

    Args:
        run: its run.
        judge: the checker or interactor.
    """
    if judge.protocol == "prints":
        if run.ending is not Ending.OK:
            return None
        last = run.output.tail(100).rstrip().rpartition(b"\n")[2].strip()
        return points_of(float(last), run) if _SHARE.fullmatch(last) and float(last) <= 1 else None
    code = -1 if run.exit_code is None else run.exit_code
    if judge.protocol == "testlib" and code == _POINTS:
        match = _SAYS_POINTS.search(run.errors.head(1000) or run.output.head(1000))
        return points_of(float(match[1]), run) if match and float(match[1]) <= 1 else None
    if run.ending not in (Ending.OK, Ending.RE) or code in LANGUAGES[judge.program.language].dies:
        return None
    verdict = _SAYS[judge.protocol].get(code)
    return None if verdict is None else CheckerResult(verdict, first_line(run))


def points_of(points: float, run: Run) -> CheckerResult:
    """The finding for an output that is worth so many points.

    Args:
        points: from 0 to 1; only 1 is accepted.
        run: of the checker.
    """
    return CheckerResult(_AC if points == 1 else _WA, first_line(run), points)


def with_room(limits: Limits, files: Mapping[str, str | bytes | Output]) -> Limits:
    """The limits plus disk and memory for the files, which may be as large as the largest output.

    Args:
        limits: of a checker or an interactor.
        files: name → content.
    """
    sizes = [text.size if isinstance(text, Output) else len(text) for text in files.values()]
    mib = sum(sizes) * 4 / (1 << 20)
    return replace(limits, disk_mib=limits.disk_mib + mib, memory_mib=limits.memory_mib + int(mib))


def first_line(run: Run) -> str:
    """Its first line on stderr, where testlib writes; if that is empty, on stdout.

    Args:
        run: of a checker or an interactor.
    """
    line = (run.errors.head(1000).strip() or run.output.head(1000).strip()).partition(b"\n")[0]
    return reason_line(line.decode("utf-8", "replace"))
