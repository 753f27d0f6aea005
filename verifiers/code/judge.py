"""`judge`: runs a program on its cases and says which of them it passes.

    StdioCase   a run for each; a comparator or a checker compares its output with the expected one, or an interactor
                talks with it (interactive)
    CallCase    one run for all; the values come back as plain data and are compared in this process
    TestSuite   plain asserts become calls; other tests run in a process of their own, beside the program's

In none of them does the expected output or value enter the process that runs the program.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from rlvr.sandbox import (
    Call,
    CallRun,
    Ending,
    Limits,
    Program,
    Reply,
    Run,
    Sandbox,
    TestRun,
    TestSuite,
)
from rlvr.verifiers.code.asserts import named, split
from rlvr.verifiers.code.case_runner import CaseRunner
from rlvr.verifiers.code.cases import CallCase, Cases, Interactor, StdioCase, checked_cases
from rlvr.verifiers.code.checker import Checker, Compare, as_checker, refuse_empty
from rlvr.verifiers.code.equality import shown
from rlvr.verifiers.code.interactive import dealt, decided
from rlvr.verifiers.code.shared import shared_sandbox
from rlvr.verifiers.code.verdicts import (
    CaseResult,
    CaseVerdict,
    Failure,
    Judgement,
    cut,
    one_line,
    plain,
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
_RESTARTS = (
    3  # of a program that ends during a call; then the other cases get the last one's verdict
)
_SHORT = 200
_LATE = "no time was left for it"
_ERROR = re.compile(
    rb"(?:\A|\n)([\w./-]++:\d+:\d+: (?:fatal )?error: [^\n]+)|\n((?:Uncaught )?\w*Error: [^\n]+)\n    at "
)

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
        compare: how standard output is compared: a comparator or its name, or a checker `Program`; or an `Interactor`.
        sandbox: None for one that this process shares.
        limits: of one case, or of all tests of a suite together.  None for the sandbox's own.
        stop: end with the first case that fails; False if the fraction of accepted cases is needed.
        total_cpu_s, total_wall_s: seconds for all cases together; beyond them the verdict is TLE.  None for no limit.

    Raises:
        DataError: there are no cases, or a program that does nothing would pass them all.
        IsolationUnavailable: the sandbox cannot keep a promise here.  Any other failure of ours is the verdict IE.
        UsageError: a total is no number of seconds above 0, or `compare` is no comparator.
    """
    checked_cases(cases)
    sandbox = sandbox or shared_sandbox()
    runner = CaseRunner(program, sandbox, limits or sandbox.limits, total_cpu_s, total_wall_s)
    if isinstance(cases, TestSuite):
        suite = named(cases)
        calls = split(suite)
        if calls is None:
            return _suite(runner, dataclasses.replace(suite, stop=stop))
        runner.together = True
        return _concluded(runner, _called(runner, calls, stop), len(calls), stop)
    called = [case for case in cases if isinstance(case, CallCase)]
    if called:
        return _concluded(runner, _called(runner, called, stop), len(called), stop)
    fed = [case for case in cases if isinstance(case, StdioCase)]
    if isinstance(compare, Interactor):
        return _concluded(runner, _talked(runner, fed, compare, sandbox.limits), len(fed), stop)
    refuse_empty(compare, fed)
    return _concluded(
        runner, _fed(runner, fed, as_checker(compare, runner, sandbox.limits)), len(fed), stop
    )


def _concluded(runner: CaseRunner, judged: Iterable[_Judged], total: int, stop: bool) -> Judgement:
    """The judgement, with the verdict of the first case that failed; later cases are judged only if they count."""
    results: list[CaseResult] = []
    first: _Judged | None = None
    for result, failure in judged:
        if failure is not None:
            expected, got = (plain(cut(text, _SHORT)) for text in (failure.expected, failure.got))
            result = dataclasses.replace(result, expected=expected, got=got)
        results.append(result)
        if result.verdict is not _AC and (first is None or result.verdict is _IE):
            first = result, failure
        if first is not None and (stop or result.verdict in _FINAL):
            break
    if first is None:
        return Judgement(_AC, "", tuple(results), total, cpu_s=runner.cpu_s, wall_s=runner.wall_s)
    result, failure = first
    why = f"{result.name}: {result.why}" if result.why else result.name
    return Judgement(
        result.verdict,
        why,
        tuple(results),
        total,
        first_failure=failure,
        cpu_s=runner.cpu_s,
        wall_s=runner.wall_s,
    )


def _verdict_on(run: Run) -> CaseVerdict:
    """The verdict on how a run ended; RE for one that ended well before it had answered."""
    return _RE if run.ending is Ending.OK else CaseVerdict(run.ending.value)


def _reason(run: Run, limits: Limits) -> str:
    """Why a run ended, with its last message; nothing that was measured, as it differs from run to run."""
    if run.ending is Ending.TLE:
        return f"over {limits.cpu_s:g} CPU seconds or {limits.wall:g} wall seconds"
    said = _said(run) if run.ending in (Ending.RE, Ending.CE) else ""
    return f"{run.why}: {said}" if run.why and said else run.why or said


def _said(run: Run) -> str:
    """The line of stderr that says most: the first error of a compiler or of node, else the last line."""
    if found := _ERROR.search(run.stderr):
        return (found[1] or found[2]).decode("utf-8", "replace")
    return _tail(run).strip().rpartition("\n")[2]


def _tail(run: Run) -> str:
    return run.stderr[-1000:].decode("utf-8", "replace")


# ------------------------------------------------------------------------------------------------ standard output


def _fed(runner: CaseRunner, cases: Sequence[StdioCase], checker: Checker) -> Iterator[_Judged]:
    for number, case in enumerate(cases, 1):
        name, expected = f"case {number}", cut(case.stdout or "")
        run = runner.run(case.stdin)
        if run is None:
            yield CaseResult(name, _TLE, _LATE), Failure(name, cut(case.stdin), expected, "")
            continue
        verdict, why = (
            checker.check(case, run)
            if run.ending is Ending.OK
            else (_verdict_on(run), _reason(run, runner.limits))
        )
        result = CaseResult(name, verdict, one_line(why), run.cpu_s, run.memory_mib)
        yield result, Failure(name, cut(case.stdin), expected, cut(run.stdout), _tail(run))


# ------------------------------------------------------------------------------------------------ interactors


def _talked(
    runner: CaseRunner, cases: Sequence[StdioCase], interactor: Interactor, limits: Limits
) -> Iterator[_Judged]:
    """The interactor reads the case's input; what both say is the output that the results show."""
    theirs = 0.0
    for number, case in enumerate(cases, 1):
        name, answer = f"case {number}", cut(case.stdout or "")
        built = runner.compiled()
        if built is not None:
            yield (
                CaseResult(name, _verdict_on(built), one_line(_reason(built, runner.limits))),
                None,
            )
            continue
        done = runner.interact(*dealt(interactor, case, limits, runner.limits))
        if done is None:
            late = theirs > runner.cpu_s
            why = "the interactor has used up the time for all cases" if late else _LATE
            yield (
                CaseResult(name, _IE if late else _TLE, why),
                Failure(name, cut(case.stdin), answer, ""),
            )
            continue
        theirs += done.interactor.cpu_s
        verdict, why = decided(done, interactor)
        if verdict is None:
            verdict, why = _verdict_on(done.program), _reason(done.program, runner.limits)
        run = done.program
        result = CaseResult(
            name,
            verdict,
            one_line(why),
            run.cpu_s,
            run.memory_mib,
            interactor_cpu_s=done.interactor.cpu_s,
        )
        yield result, Failure(name, cut(case.stdin), answer, cut(done.transcript), _tail(run))


# ------------------------------------------------------------------------------------------------ calls


def _called(runner: CaseRunner, cases: Sequence[CallCase], stop: bool) -> Iterator[_Judged]:
    """The cases in one process; if the program ends during a case, a new process begins with the next case."""
    at = deaths = 0
    while at < len(cases):
        done = _call_run(runner, cases[at:], stop)
        if done is None:
            for number, case in enumerate(cases[at:], at + 1):
                yield _failed(number, case, _TLE, _LATE)
            return
        for reply in done.replies:
            if reply is None:
                break
            at += 1
            yield _answered(at, cases[at - 1], reply)
        else:
            return  # how the program ends after its last answer does not matter
        deaths += 1
        why = (
            "it ended before it answered"
            if done.run.ending is Ending.OK
            else _reason(done.run, runner.limits)
        )
        for _ in range(len(cases) - at if deaths > _RESTARTS else 1):
            at += 1
            yield _failed(at, cases[at - 1], _verdict_on(done.run), why, stderr=_tail(done.run))


def _call_run(runner: CaseRunner, cases: Sequence[CallCase], stop: bool) -> CallRun | None:
    """A run of all calls; first with little time, so that an early failure need not wait for a slow call."""
    calls = [Call(case.name, case.args, case.kwargs, case.then) for case in cases]
    if stop and len(calls) > 1:
        done = runner.glance(calls)
        if done is None or done.run.ending is not Ending.TLE:
            return done
        answered = [
            (case, reply)
            for case, reply in zip(cases, done.replies, strict=True)
            if reply is not None
        ]
        if any(_answered(0, case, reply)[0].verdict is not _AC for case, reply in answered):
            return done
    return runner.call(calls)


def _answered(number: int, case: CallCase, reply: Reply) -> _Judged:
    if reply.error is not None:
        foreign = reply.error.startswith("NotAValue: ")
        why = reply.error.removeprefix("NotAValue: ")
        return _failed(number, case, _WA if foreign else _RE, why, got=cut(reply.error))
    if case.holds(reply.value, reply.listed):
        return CaseResult(f"case {number}", _AC), None
    got = "an iterator" if reply.listed else shown(reply.value)
    return _failed(number, case, _WA, f"{got}, not {_wanted(case)}", got=got)


def _failed(
    number: int, case: CallCase, verdict: CaseVerdict, why: str, got: str = "", stderr: str = ""
) -> _Judged:
    name = f"case {number}"
    result = CaseResult(name, verdict, one_line(why))
    return result, Failure(name, _call_shown(case), _wanted(case), got, stderr)


def _wanted(case: CallCase) -> str:
    match case.rule:
        case "true" | "false":
            return f"a {case.rule} value"
        case "in":
            return f"one of {shown(case.expected)}"
        case "near" | "near or at":
            return f"within {case.tolerance:g} of {shown(case.expected)}"
    return shown(case.expected)


def _call_shown(case: CallCase) -> str:
    args = [shown(arg) for arg in case.args[:20]] + [
        f"{k}={shown(v)}" for k, v in list(case.kwargs.items())[:20]
    ]
    call = f"{case.name}({', '.join(args)})"
    for function in case.then:
        call = f"{function}({call})"
    return cut(call)


# ------------------------------------------------------------------------------------------------ suites


def _suite(runner: CaseRunner, suite: TestSuite) -> Judgement:
    done = runner.test(suite)
    assert done is not None  # there is time for the first run
    judged = list(_tested(done, runner.limits))
    judgement = _concluded(runner, judged, len(judged), stop=False)
    return dataclasses.replace(judgement, complete=done.done and not done.died)


def _tested(done: TestRun, limits: Limits) -> Iterator[_Judged]:
    """The results that the process of the tests reported; the suite is complete only if that process ended."""
    name = "the suite"
    for case in done.cases:
        if case.outcome in _OUTCOMES:  # a skipped test gives no result
            name = f"after {case.name}"
            result = CaseResult(case.name, _OUTCOMES[case.outcome], one_line(case.message))
            yield result, Failure(case.name, "", "", cut(case.message), _tail(done.run))
    broken = _broken(done, limits, tested=name != "the suite")
    if broken is not None:
        verdict, why = broken
        yield (
            CaseResult(name, verdict, one_line(why)),
            Failure(name, "", "", cut(why), _tail(done.run)),
        )


def _broken(done: TestRun, limits: Limits, tested: bool) -> tuple[CaseVerdict, str] | None:
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
        return _verdict_on(
            done.run
        ), "the program ended before the tests did" if ended else _reason(done.run, limits)
    if not done.done:  # the program's values were too much for the tests
        return _verdict_on(
            done.tests
        ), f"the tests did not come to their end: {_reason(done.tests, limits)}"
    return None if tested else (_WA, "every test was skipped")
