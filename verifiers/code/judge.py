"""`judge`: runs a program on its cases and says which of them it passes.

    StdioCase   a run for each; a comparator or a checker compares its output with the expected one,
                or an interactor talks with it (interactive)
    CallCase    one run for all; the values come back as plain data, and are compared
    TestSuite   plain asserts become calls; other tests run in a process of their own, beside the
                program's

In none of them does the expected output or value enter the process that runs the program; and
nothing that the program wrote is read in this one: a reader does that (reading), and sends a record
per case.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from rlvr.sandbox import (
    Ending,
    Limits,
    Program,
    ProgramCall,
    Run,
    Sandbox,
    TestRun,
    TestSuite,
)
from rlvr.sandbox.outputs import Readable
from rlvr.verifiers.code.asserts import name_entry_point, split
from rlvr.verifiers.code.case_runner import CaseRunner
from rlvr.verifiers.code.cases import CallCase, Cases, Interactor, StdioCase, checked_cases
from rlvr.verifiers.code.checker import Checker, CheckerResult, Compare, as_checker, refuse_empty
from rlvr.verifiers.code.equality import show_result
from rlvr.verifiers.code.interactive import Meeting
from rlvr.verifiers.code.reading import describe_outputs, judged_replies
from rlvr.verifiers.code.shared import shared_sandbox
from rlvr.verifiers.code.verdicts import (
    CaseResult,
    CaseVerdict,
    Failure,
    Judgement,
    reason_line,
    shorten,
    valid_text,
)

__all__ = ["judge"]

_AC, _WA, _TLE, _RE, _IE = (
    CaseVerdict.AC,
    CaseVerdict.WA,
    CaseVerdict.TLE,
    CaseVerdict.RE,
    CaseVerdict.IE,
)
_FINAL: Final = frozenset((CaseVerdict.CE, _IE))  # verdicts of one case that hold for all cases
_OUTCOMES: Final = {"pass": _AC, "fail": _WA, "error": _RE}
# of a program that ends during a call; then the other cases get the last one's verdict
_RESTARTS = 3
_TOGETHER: Final = 16  # cases in one request
# Of the expected outputs of one request; a first case that is larger goes alone.
_EXPECTED_BYTES: Final = 1 << 20
_SHORT = 200
_LATE = "no time was left for it"

_Judged: TypeAlias = tuple[CaseResult, Failure | None]


def judge(
    program: Program,
    cases: Cases,
    compare: Compare = "lines",
    *,
    sandbox: Sandbox | None = None,
    limits: Limits | None = None,
    stop: bool = True,
    total_cpu_s: float | None = None,
    total_wall_s: float | None = None,
) -> Judgement:
    """Run a program on its cases, in the sandbox.

    Args:
        program: untrusted.  Calls and suites need a program in Python.
        cases: a list of `StdioCase` or of `CallCase`, or a `TestSuite`.
        compare: how standard output is compared: a comparator or its name, or a checker `Program`;
            or an `Interactor`.
        sandbox: None for one that this process shares.
        limits: of one case, or of all tests of a suite together.  None for the sandbox's own.
        stop: end with the first case that fails; False if the fraction of accepted cases is needed.
        total_cpu_s, total_wall_s: seconds for all cases together; beyond them the verdict is TLE.
            None for no limit.

    Raises:
        DataError: there are no cases, or a program that does nothing would pass them all.
        IsolationUnavailable: the sandbox cannot keep a promise here.  Any other failure of ours is
            the verdict IE.
        UsageError: a total is no number of seconds above 0, or `compare` is no comparator.
    """
    checked_cases(cases)
    sandbox = sandbox or shared_sandbox()
    runner = CaseRunner(program, sandbox, limits or sandbox.limits, total_cpu_s, total_wall_s)
    if isinstance(cases, TestSuite):
        suite = name_entry_point(cases)
        calls = split(suite)
        if calls is None:
            return _suite(runner, dataclasses.replace(suite, stop=stop))
        runner.together = True
        cases = calls
    judged: Iterable[_Judged]
    called = [case for case in cases if isinstance(case, CallCase)]
    fed = [case for case in cases if isinstance(case, StdioCase)]
    if called:
        judged = _call_cases(runner, called, stop)
    elif isinstance(compare, Interactor):
        judged = _talk_with(runner, fed, compare, sandbox.limits)
    else:
        refuse_empty(compare, fed)
        judged = _feed_cases(runner, fed, as_checker(compare, runner, sandbox.limits), stop)
    return _conclude(runner, judged, len(cases), stop)


def _conclude(runner: CaseRunner, judged: Iterable[_Judged], total: int, stop: bool) -> Judgement:
    """The judgement, with the verdict of the first case that failed; later cases are judged only if
    they count."""
    results: list[CaseResult] = []
    first: _Judged | None = None
    for result, failure in judged:
        if failure is not None:
            expected, got = (
                valid_text(shorten(text, _SHORT)) for text in (failure.expected, failure.got)
            )
            result = dataclasses.replace(result, expected=expected, got=got)
        results.append(result)
        if result.verdict is not _AC and (first is None or result.verdict is _IE):
            first = result, failure
        # After the result is kept: the case that ends the judging is the last one that is listed.
        if first is not None and (stop or result.verdict in _FINAL):
            break
    verdict, why, failure = _AC, "", None
    if first is not None:
        result, failure = first
        verdict = result.verdict
        why = f"{result.name}: {result.why}" if result.why else result.name
    judgement = Judgement(verdict, why, tuple(results), total, first_failure=failure)
    return dataclasses.replace(judgement, cpu_s=runner.cpu_s, wall_s=runner.wall_s)


def _verdict_on(run: Run) -> CaseVerdict:
    """The verdict on how a run ended; RE for one that ended well before it had answered."""
    return _RE if run.ending is Ending.OK else CaseVerdict(run.ending.value)


def _reason(run: Run, limits: Limits, said: str = "") -> str:
    """Why a run ended, with its last message; nothing that was measured, as it differs from run to
    run."""
    if run.ending is Ending.TLE:
        return f"over {limits.cpu_s:g} CPU seconds or {limits.wall:g} wall seconds"
    if run.ending not in (Ending.RE, Ending.CE):
        said = ""
    return f"{run.why}: {said}" if run.why and said else run.why or said


def _describe_run(runner: CaseRunner, run: Run) -> tuple[str, str, str]:
    """The beginning of its output, the line of stderr that says most, and the end of stderr."""
    if not run.output.size and not run.errors.size:
        return "", "", ""
    reading = runner.read(describe_outputs, run.output.lent(), run.errors.lent())
    if reading.lost:
        return "", reading.lost, ""
    got, error_line, tail = reading.records[0]
    return got, error_line, tail


# ---------------------------------------------------------------------------------- standard output


def _feed_cases(
    runner: CaseRunner, cases: Sequence[StdioCase], checker: Checker, stop: bool
) -> Iterator[_Judged]:
    """Twice as many cases are run together each time, so that few are run in vain where an early
    one fails."""
    at, many = 0, 1
    while at < len(cases):
        batch = _batch(cases[at : at + many])
        runs = runner.run([case.stdin for case in batch], stop)
        if not runs:
            for case in cases[at:]:
                at += 1
                yield _late(at, case)
            return
        # Only these are checked: a run that broke a limit has its verdict, whatever it wrote.
        ended = [(case, run) for case, run in zip(batch, runs, strict=False) if _ended_well(run)]
        findings = checker.check([case for case, _ in ended], [run for _, run in ended], stop)
        for case, run in zip(batch, runs, strict=False):
            at += 1
            finding = next(findings) if _ended_well(run) else CheckerResult(None)
            yield _result(runner, at, case, run, finding)
        many = min(2 * many, _TOGETHER)


def _batch(cases: Sequence[StdioCase]) -> Sequence[StdioCase]:
    """The first cases whose expected outputs are quickly read together."""
    size = 0
    for at, case in enumerate(cases):
        size += len(case.stdout or "")
        if at and size > _EXPECTED_BYTES:
            return cases[:at]
    return cases


def _ended_well(run: Run) -> bool:
    return run.ending is Ending.OK


def _late(number: int, case: StdioCase) -> _Judged:
    name = f"case {number}"
    failure = Failure(name, shorten(case.stdin), shorten(case.stdout or ""), "")
    return CaseResult(name, _TLE, _LATE), failure


def _result(
    runner: CaseRunner, number: int, case: StdioCase, run: Run, found: CheckerResult
) -> _Judged:
    """The result of a case; what the program wrote is described only where it is of use."""
    name, (verdict, why, points, got) = f"case {number}", found
    error_line = tail = ""
    if verdict is not _AC or got is None:
        output, error_line, tail = _describe_run(runner, run)
        got = output if got is None else got
    if verdict is None:
        verdict, why = _verdict_on(run), reason_line(_reason(run, runner.limits, error_line))
    result = CaseResult(name, verdict, why, run.cpu_s, run.memory_mib, points=points)
    return result, Failure(name, shorten(case.stdin), shorten(case.stdout or ""), got, tail)


# -------------------------------------------------------------------------------------- interactors


def _talk_with(
    runner: CaseRunner, cases: Sequence[StdioCase], interactor: Interactor, limits: Limits
) -> Iterator[_Judged]:
    """The interactor reads the case's input; what both say is the output that the results show."""
    for number, case in enumerate(cases, 1):
        built = runner.compiled()
        if built is not None:
            yield _result(runner, number, case, built, CheckerResult(None))
            continue
        meeting = Meeting(interactor, case, runner, limits)
        done = meeting.talk()
        if done is None:
            yield _late(number, case)
            continue
        finding = meeting.decide(done)._replace(got=shorten(done.transcript))
        result, failure = _result(runner, number, case, done.program, finding)
        yield dataclasses.replace(result, interactor_cpu_s=done.interactor.cpu_s), failure


# -------------------------------------------------------------------------------------------- calls


def _call_cases(runner: CaseRunner, cases: Sequence[CallCase], stop: bool) -> Iterator[_Judged]:
    """The cases in one process; if the program ends during a case, a new process begins with the
    next case."""
    at = deaths = 0
    while at < len(cases):
        remaining = cases[at:]
        calls = [ProgramCall(case.name, case.args, case.kwargs, case.then) for case in remaining]
        look = partial(_has_failed, runner, remaining) if stop and len(remaining) > 1 else None
        done = runner.call(calls, look)
        if done is None:
            for number, case in enumerate(remaining, at + 1):
                yield _fail_case(number, case, _TLE, _LATE)
            return
        for record in runner.read_each(
            judged_replies, len(remaining), remaining, done.results.lent()
        ).records:
            at += 1
            yield _judge_record(at, cases[at - 1], record)
        if at == len(cases):
            return  # how the program ends after its last answer does not matter
        deaths += 1
        _, error_line, tail = _describe_run(runner, done.run)
        why = (
            "it ended before it answered"
            if done.run.ending is Ending.OK
            else _reason(done.run, runner.limits, error_line)
        )
        # The case at which it ended fails, and the next ones get a new process; a program that
        # ends again and again fails them all, or each case would cost the start of a process.
        for _ in range(len(cases) - at if deaths > _RESTARTS else 1):
            at += 1
            yield _fail_case(at, cases[at - 1], _verdict_on(done.run), why, stderr=tail)


def _has_failed(runner: CaseRunner, cases: Sequence[CallCase], results: Readable) -> bool:
    """Whether a program that still runs has failed a case already."""
    reading = runner.read(judged_replies, cases, results, 0)
    return bool(reading.lost) or any(verdict != _AC for verdict, _, _ in reading.records)


def _judge_record(number: int, case: CallCase, record: str | Sequence[str]) -> _Judged:
    if isinstance(record, str):  # the reader was lost
        return _fail_case(number, case, _WA, record)
    verdict, why, got = record
    if verdict == _AC:
        return CaseResult(f"case {number}", _AC), None
    return _fail_case(number, case, CaseVerdict(verdict), why, got=got)


def _fail_case(
    number: int, case: CallCase, verdict: CaseVerdict, why: str, got: str = "", stderr: str = ""
) -> _Judged:
    name = f"case {number}"
    result = CaseResult(name, verdict, reason_line(why))
    return result, Failure(name, _call_shown(case), case.wanted(), got, stderr)


def _call_shown(case: CallCase) -> str:
    args = [show_result(arg) for arg in case.args[:20]] + [
        f"{k}={show_result(v)}" for k, v in list(case.kwargs.items())[:20]
    ]
    call = f"{case.name}({', '.join(args)})"
    for function in case.then:
        call = f"{function}({call})"
    return shorten(call)


# ------------------------------------------------------------------------------------------- suites


def _suite(runner: CaseRunner, suite: TestSuite) -> Judgement:
    done = runner.test(suite)
    assert done is not None  # there is time for the first run
    judged = list(_judge_tests(runner, done))
    judgement = _conclude(runner, judged, len(judged), stop=False)
    return dataclasses.replace(judgement, complete=done.done and not done.died)


def _judge_tests(runner: CaseRunner, done: TestRun) -> Iterator[_Judged]:
    """The results that the process of the tests reported; the suite is complete only if that
    process ended."""
    name = "the suite"
    _, error_line, tail = _describe_run(runner, done.run)
    for case in done.cases:
        if case.outcome in _OUTCOMES:  # a skipped test gives no result
            name = f"after {case.name}"
            result = CaseResult(case.name, _OUTCOMES[case.outcome], reason_line(case.message))
            yield result, Failure(case.name, "", "", shorten(case.message), tail)
    broken = _why_broken(runner, done, error_line, tested=name != "the suite")
    if broken is not None:
        verdict, why = broken
        yield CaseResult(name, verdict, reason_line(why)), Failure(name, "", "", shorten(why), tail)


def _why_broken(
    runner: CaseRunner, done: TestRun, said: str, tested: bool
) -> tuple[CaseVerdict, str] | None:
    """Why the suite did not end or gave no result; None if it ended and gave one."""
    for run in (done.run, done.tests):
        if run.ending is Ending.IE:
            return _IE, run.why
    if done.missing is not None:
        return _IE, f"{done.missing} in the sandbox; let it in with packages=('pytest',)"
    if done.fault is not None:
        return _IE, f"the tests: {done.fault}"
    if done.died:
        ended = done.run.ending is Ending.OK
        reason = _reason(done.run, runner.limits, said)
        return _verdict_on(done.run), "the program ended before the tests did" if ended else reason
    if not done.done:  # the program's values were too much for the tests
        reason = _reason(done.tests, runner.limits, _describe_run(runner, done.tests)[1])
        return _verdict_on(done.tests), f"the tests did not come to their end: {reason}"
    return None if tested else (_WA, "every test was skipped")
