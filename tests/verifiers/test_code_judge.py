"""The judge over a scripted sandbox: what it makes of each ending.  The real one is in test_code_sandboxed.py."""

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rlvr.errors import DataError, UsageError
from rlvr.sandbox import CallRun, Ending, Limits, Program, Reply, Run, TestRun, TestSuite
from rlvr.sandbox.guest.writing import write
from rlvr.sandbox.outputs import Output
from rlvr.verifiers.code import (
    CallCase,
    CaseVerdict,
    CheckerProgram,
    StdioCase,
    case_runner,
    judge,
)

PROGRAM = Program("python", "…")
SUITE = TestSuite("unittest", "…")


class Scripted:
    """A sandbox that says what it is told to, and keeps what it was asked."""

    def __init__(self, *says: Any) -> None:
        self.limits = Limits(cpu_s=2, wall_s=4)
        self.says = list(says)
        self.asked: list[dict] = []

    def _next(self, **asked: Any) -> Any:
        self.asked.append(asked)
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        return said(asked) if isinstance(said, Callable) else said

    def compile(self, program, *, cpu_s=None, wall_s=None):
        return Run(Ending.OK)

    def run(self, program, stdin=b"", *, limits=None, judging=False):
        return self._next(program=program, stdin=stdin, limits=limits)

    def run_cases(self, program, stdins, *, limits, stop, total_cpu_s, total_wall_s):
        return [self.run(program, stdins[0], limits=limits.within(total_cpu_s, total_wall_s))]

    def call(self, program, calls, *, limits=None, case_cpu_s=None, look=None):
        return self._next(calls=calls, limits=limits, case_cpu_s=case_cpu_s)

    def test(self, program, tests, *, limits=None):
        return self._next(tests=tests, limits=limits)


def ok(stdout: str = "", **more: Any) -> Run:
    return Run(Ending.OK, exit_code=0, output=Output(stdout.encode()), **more)


def cases(n: int) -> list[StdioCase]:
    return [StdioCase(str(i), str(i)) for i in range(n)]


def echo(asked: dict) -> Run:
    return ok(asked["stdin"])


def test_all_cases_right_is_accepted():
    """Each is a run of its own."""
    box = Scripted(echo)
    found = judge(PROGRAM, cases(3), sandbox=box)
    assert (found.verdict, found.why, found.passed, found.total, found.fraction) == (
        "AC",
        "",
        3,
        3,
        1.0,
    )
    assert [asked["stdin"] for asked in box.asked] == ["0", "1", "2"]
    assert found.first_failure is None
    assert found.accepted


def test_the_first_failing_case_gives_the_verdict_and_is_shown():
    """And the judge stops there."""
    box = Scripted(ok("0"), ok("7"), ok("2"))
    found = judge(PROGRAM, cases(3), sandbox=box)
    assert (found.verdict, found.why) == ("WA", "case 2: line 1: '7', not '1'")
    assert [case.verdict for case in found.cases] == ["AC", "WA"]
    assert (found.first_failure.input, found.first_failure.expected, found.first_failure.got) == (
        "1",
        "1",
        "7",
    )
    assert len(box.asked) == 2


def test_partial_credit_needs_every_case():
    """Which the judge goes through when told not to stop."""
    box = Scripted(ok("x"), Run(Ending.RE, "exit code 1", exit_code=1), echo, echo)
    found = judge(PROGRAM, cases(4), sandbox=box, stop=False)
    assert [case.verdict for case in found.cases] == ["WA", "RE", "AC", "AC"]
    assert (found.verdict, found.fraction) == ("WA", 0.5)


@pytest.mark.parametrize("ending", [e for e in Ending if e is not Ending.OK])
def test_an_ending_is_the_verdict_whatever_was_printed(ending: Ending):
    """The right output and exit code 1 is RE."""
    said = Output(b"Traceback:\nValueError: no\n")
    run = Run(ending, "because", output=Output(b"0"), cpu_s=2.0, errors=said)
    found = judge(PROGRAM, cases(1), sandbox=Scripted(run))
    why = {
        "RE": "because: ValueError: no",
        "CE": "because: ValueError: no",
        "TLE": "over 2 CPU seconds or 4 wall seconds",
    }
    assert (found.verdict, found.why) == (ending.value, f"case 1: {why.get(ending, 'because')}")


@pytest.mark.parametrize("ending", [Ending.CE, Ending.IE])
def test_what_one_case_says_of_all_ends_the_judging(ending: Ending):
    """A program that does not compile, or a sandbox that fails, would say the same again."""
    box = Scripted(ok("x"), Run(ending, "…"))
    found = judge(PROGRAM, cases(9), sandbox=box, stop=False)
    assert len(box.asked) == 2
    assert found.verdict == (ending if ending is Ending.IE else "WA")


def test_time_without_a_core_is_not_the_program_s():
    """The budget for all cases is of wall seconds in which the program could work or chose to wait."""
    box = Scripted(lambda asked: ok(asked["stdin"], wall_s=4.0, starved_s=3.0))
    found = judge(PROGRAM, cases(3), sandbox=box, total_wall_s=4)
    assert found.verdict == "AC"
    assert 3.0 <= found.wall_s < 4.0  # a second for each case, and the CPU time of reading; not 12


def test_a_run_over_its_time_is_not_tried_again():
    """At the CPU limit or at the wall: a second run would cost as much and say the same."""
    used = Run(Ending.TLE, "cpu", cpu_s=2.0, wall_s=2.1)
    late = Run(Ending.TLE, "wall", cpu_s=0.1, wall_s=4.0)
    for box, held_to in (
        (Scripted(used), cases(1)),
        (Scripted(late), cases(1)),
        (Scripted(replied(None, run=used)), calls(1)),
    ):
        assert judge(PROGRAM, held_to, sandbox=box).verdict == "TLE"
        assert len(box.asked) == 1


def test_all_cases_together_have_a_budget(monkeypatch):
    """What is left is the limit of the next run; what is over it is TLE without a run.

    Reading what a case wrote takes 0.1 s of it too.
    """
    read = case_runner.read_each
    charged = lambda *a, **k: read(*a, **k)._replace(cpu_s=0.1)  # noqa: E731
    monkeypatch.setattr(case_runner, "read_each", charged)
    box = Scripted(lambda asked: ok(asked["stdin"], cpu_s=0.9, wall_s=1.0))
    found = judge(PROGRAM, cases(9), sandbox=box, stop=False, total_cpu_s=2.5, total_wall_s=100)
    assert [case.verdict for case in found.cases] == ["AC"] * 3 + ["TLE"] * 6
    assert [asked["limits"].cpu_s for asked in box.asked] == pytest.approx([2, 1.5, 0.5])
    box = Scripted(lambda asked: ok(asked["stdin"], wall_s=1.0))
    assert judge(PROGRAM, cases(9), sandbox=box, total_wall_s=3).verdict == "TLE"
    assert [asked["limits"].wall_s for asked in box.asked] == pytest.approx([3, 1.9, 0.8])


@pytest.mark.parametrize(
    "budget", [{"total_cpu_s": 0}, {"total_wall_s": -1}, {"total_cpu_s": float("nan")}]
)
def test_a_budget_is_above_zero(budget: dict):
    """NaN would never run out."""
    with pytest.raises(UsageError, match="above 0"):
        judge(PROGRAM, cases(1), sandbox=Scripted(echo), **budget)


def test_cases_that_any_program_passes_are_refused():
    """No cases; or nothing but empty outputs, unless a checker looks closer."""
    for none in ([], [StdioCase("1", ""), StdioCase("2", "\n")]):
        with pytest.raises(DataError, match="would pass"):
            judge(PROGRAM, none, sandbox=Scripted(echo))
    assert judge(
        PROGRAM, [StdioCase("1", "")], lambda i, o, e: o == i, sandbox=Scripted(echo)
    ).accepted
    assert judge(
        PROGRAM, [StdioCase("1", ""), StdioCase("2", "2")], sandbox=Scripted(ok(), ok("2"))
    ).accepted


# -------------------------------------------------------------------------------------- comparators


def test_a_comparator_of_ones_own_sees_input_output_and_expected():
    """It says True, False, or why not.  It runs in the reader, also where it is no function of a module."""
    yes = "yes"

    def compare(input: str, output: str, expected: str) -> bool | str:
        return (
            True if output == yes else f"{input} {output} {expected}" if output == "no" else False
        )

    box = Scripted(ok("yes"), ok("no"), ok("?"))
    found = judge(PROGRAM, cases(3), compare, sandbox=box, stop=False)
    assert [case.why for case in found.cases] == [
        "",
        "1 no 1",
        "the output is not the expected one",
    ]


def test_a_comparator_that_cannot_be_sent_is_refused_before_a_program_runs():
    """It would run in another process than the one that made it."""
    lock, box = threading.Lock(), Scripted(ok("1"))
    with pytest.raises(UsageError, match="lock"):
        judge(PROGRAM, cases(1), lambda i, o, e: lock.locked(), sandbox=box)
    assert not box.asked


def test_a_comparator_that_takes_too_long_is_tried_on_the_expected_output(monkeypatch):
    """Over its time there too, it is at fault; else the output is."""
    monkeypatch.setattr(case_runner, "CPU_S", 0.3)
    monkeypatch.setattr(case_runner, "_READ_CPU_S", 0.3)

    def compare(input: str, output: str, expected: str) -> bool:
        while output != expected or input == "1":
            pass
        return True

    for case, verdict in (("0", "WA"), ("1", "IE")):
        found = judge(PROGRAM, [StdioCase(case, "0")], compare, sandbox=Scripted(ok("7")))
        assert found.verdict == verdict, found


def test_a_text_that_breaks_the_comparator_is_wrong():
    """`int(output)` raises at what is no number; a model must not be able to make that our failure."""
    found = judge(
        PROGRAM,
        cases(1),
        lambda i, output, expected: int(output) == int(expected),
        sandbox=Scripted(ok("x")),
    )
    assert found.verdict == "WA"
    assert "ValueError" in found.why


def test_a_comparator_that_fails_on_the_expected_output_is_our_failure():
    """It would fail at any program."""
    assert (
        judge(
            PROGRAM,
            cases(1),
            lambda i, output, expected: len(output / 2) == 1,
            sandbox=Scripted(ok("1")),
        ).verdict
        == "IE"
    )


def test_a_comparator_that_returns_something_else_is_a_mistake_to_be_told():
    """None is what a function without a return says."""
    with pytest.raises(UsageError, match="returned NoneType"):
        judge(PROGRAM, cases(1), lambda i, o, e: None, sandbox=Scripted(echo))


def test_bytes_that_are_no_text_stay_different():
    """As U+FFFD they would all be one."""
    box = Scripted(Run(Ending.OK, output=Output(b"\xff\n")))
    assert judge(PROGRAM, [StdioCase("", b"\xff")], sandbox=box).accepted
    assert not judge(PROGRAM, [StdioCase("", b"\xfe")], sandbox=box).accepted
    assert not judge(PROGRAM, [StdioCase("", "\ufffd")], sandbox=box).accepted


@pytest.mark.parametrize(
    ("code", "on_the_answer", "verdict"),
    [
        (0, 0, "AC"), (1, 0, "WA"), (2, 0, "WA"), (4, 0, "WA"), (8, 0, "WA"), (3, 0, "WA"), (3, 3, "IE"),
        (None, 0, "WA"), (None, None, "IE"), (None, 1, "IE"), (103, 103, "IE"), (7, 0, "WA"), (6, 6, "IE"),
    ],
)  # fmt: skip
def test_a_checker_program_speaks_by_its_exit_code(code, on_the_answer, verdict: str):
    """testlib's; where it breaks, it is asked about the expected output, and breaks there only if it is our failure."""
    checker = Program("python", "…", files={"lib.py": "…"})

    def said(code: int | None) -> Run:
        return Run(
            Ending.RE if code != 0 else Ending.OK,
            "…",
            exit_code=code,
            errors=Output(b"points 0.5 for 7\n"),
        )

    box = Scripted(ok("7"), said(code), said(on_the_answer))
    found = judge(PROGRAM, [StdioCase("1", "5")], checker, sandbox=box)
    assert found.verdict == verdict
    asked = box.asked[1]["program"]
    assert asked.args == ("input.txt", "output.txt", "answer.txt")
    assert {k: v for k, v in asked.files.items() if k.endswith(".txt")} == {
        "input.txt": "1", "output.txt": Output(b"7"), "answer.txt": "5",
    }  # fmt: skip
    assert "lib.py" in asked.files


def test_a_checker_runs_on_the_time_of_the_program():
    """An output that takes the checker long would otherwise outlast the scorer, and be our failure."""
    hangs = Run(Ending.TLE, "over 3 CPU seconds", cpu_s=3.0, wall_s=3.0)
    box = Scripted(ok("7"), hangs, ok())
    found = judge(
        PROGRAM, cases(4), Program("python", "…"), sandbox=box, total_wall_s=3, stop=False
    )
    assert [case.verdict for case in found.cases] == ["WA", "TLE", "TLE", "TLE"]
    assert len(box.asked) == 3
    box = Scripted(ok("7"), hangs, ok())
    found = judge(PROGRAM, cases(1), Program("python", "…"), sandbox=box)
    assert (found.verdict, found.why) == ("WA", "case 1: the checker cannot read it: over its time")


def test_a_checker_that_never_ends_is_our_failure_though_no_time_is_left():
    """It was TLE for a right program: the expected output is given to it even then."""
    sleeps = Run(Ending.TLE, "over 30 wall seconds", wall_s=3.0)
    box = Scripted(ok("7"), sleeps)
    found = judge(PROGRAM, cases(1), Program("python", "…"), sandbox=box, total_wall_s=3)
    assert found.verdict == "IE"
    assert found.why == "case 1: the checker fails, and on the expected output too: over its time"
    assert (box.asked[2]["limits"].cpu_s, box.asked[2]["limits"].wall) == (2, 4)


def test_the_number_of_a_checker_may_have_an_exponent():
    """Python prints 0.00001 as 1e-05; that was a checker that had died."""
    checker = CheckerProgram(Program("python", "…"), "prints")
    found = judge(PROGRAM, cases(1), checker, sandbox=Scripted(ok("7"), ok("1e-05\n")))
    assert (found.verdict, found.fraction) == ("WA", 1e-05)


def test_compiling_is_on_the_time_of_the_program_too():
    """It may take no more than is left, and what it takes is missed by the first run."""
    box, asked = Scripted(ok("0")), []
    box.compile = lambda program, **most: (
        asked.append(most) or Run(Ending.OK, cpu_s=3.0, wall_s=3.0)
    )
    assert judge(PROGRAM, cases(1), sandbox=box, total_cpu_s=4, total_wall_s=4).accepted
    assert (box.asked[0]["limits"].cpu_s, box.asked[0]["limits"].wall_s) == (1, 1)
    assert asked == [{"cpu_s": 4, "wall_s": 4}]
    box.compile = lambda program, **most: Run(
        Ending.CE, "it does not compile", errors=Output(b"x\nm.cpp:1:2: error: no\n | ;\n")
    )
    assert (
        judge(PROGRAM, cases(1), sandbox=box).why
        == "case 1: it does not compile: m.cpp:1:2: error: no"
    )


def test_the_reason_is_the_line_that_says_most():
    """node's last line is its version, Python's its error."""
    node = b"/box/main.js:1\nx\n^\n\nReferenceError: x is not defined\n    at Object.<anonymous>\n\nNode.js v20.1.0\n"
    python = b"Traceback (most recent call last):\nKeyError: 1\n\nDuring ...:\n\nTraceback ...\nValueError: no\n"
    for stderr, said in ((node, "ReferenceError: x is not defined"), (python, "ValueError: no")):
        run = Run(Ending.RE, "exit code 1", exit_code=1, errors=Output(stderr))
        assert judge(PROGRAM, cases(1), sandbox=Scripted(run)).why == f"case 1: exit code 1: {said}"


# -------------------------------------------------------------------------------------------- calls


def calls(n: int) -> list[CallCase]:
    return [CallCase("f", (i,), {}, i) for i in range(n)]


def replied(*replies: Reply | None, run: Run | None = None) -> CallRun:
    lines = []
    for i, reply in enumerate(replies):
        if reply is None:
            break
        kind, _, message = (reply.error or "").partition(": ")
        lines.append(
            write([i, "error", kind, message] if reply.error else [i, "value", reply.value])
        )
    return CallRun(run or ok(), Output(b"".join(line + b"\n" for line in lines)), len(replies))


def test_calls_share_a_run_and_each_has_the_limits_of_a_case():
    """Unless the budget has less."""
    box = Scripted(replied(*[Reply(i) for i in range(3)]))
    assert judge(PROGRAM, calls(3), sandbox=box, stop=False).accepted
    assert (box.asked[0]["limits"].cpu_s, box.asked[0]["case_cpu_s"], len(box.asked)) == (6, 2, 1)
    judge(PROGRAM, calls(3), sandbox=box, stop=False, total_cpu_s=5)
    assert box.asked[1]["limits"].cpu_s == 5


def test_a_run_is_looked_at_only_where_the_first_failure_ends_it():
    """What it has written so far is read by the reader, and a wrong value is enough."""
    looks = []

    class Looked(Scripted):
        def call(self, program, calls, *, limits=None, case_cpu_s=None, look=None):
            looks.append(look and [look(b""), look(replied(Reply(7)).results.lent())])
            return replied(Reply(0), Reply(1))

    for held_to, stop in ((calls(2), True), (calls(2), False), (calls(1), True)):
        judge(PROGRAM, held_to, sandbox=Looked(None), stop=stop)
    assert looks == [[False, True], None, None]


def test_a_wrong_value_shows_the_call():
    """What was called, what came, what should have."""
    found = judge(PROGRAM, calls(2), sandbox=Scripted(replied(Reply(0), Reply([7]))))
    assert found.why == "case 2: [7], not 1"
    assert (found.first_failure.input, found.first_failure.expected, found.first_failure.got) == (
        "f(1)",
        "1",
        "[7]",
    )


def test_what_a_call_raises_is_an_error_and_what_is_no_value_is_wrong():
    """The first is RE as in any judge."""
    box = Scripted(
        replied(
            Reply(error="ValueError: no"), Reply(error="NotAValue: not a value: a cycle"), Reply(2)
        )
    )
    found = judge(PROGRAM, calls(3), sandbox=box, stop=False)
    assert [(case.verdict, case.why) for case in found.cases] == [
        ("RE", "ValueError: no"), ("WA", "not a value: a cycle"), ("AC", ""),
    ]  # fmt: skip


def test_a_program_that_dies_in_a_call_goes_on_with_the_next():
    """In a new process, as far as the fraction counts."""
    died = Run(Ending.RE, "signal 11", signal=11)
    box = Scripted(replied(Reply(0), None, None, run=died), replied(Reply(2)))
    found = judge(PROGRAM, calls(3), sandbox=box, stop=False)
    assert [case.verdict for case in found.cases] == ["AC", "RE", "AC"]
    assert [[call.args for call in asked["calls"]] for asked in box.asked] == [
        [(0,), (1,), (2,)],
        [(2,)],
    ]
    box = Scripted(replied(Reply(0), None, None, run=died))
    assert judge(PROGRAM, calls(3), sandbox=box).verdict == "RE"
    assert len(box.asked) == 1


def test_a_program_that_keeps_dying_is_given_up():
    """Four processes, and the rest goes by the last death."""
    box = Scripted(
        lambda asked: replied(*[None] * len(asked["calls"]), run=Run(Ending.MLE, "memory"))
    )
    found = judge(PROGRAM, calls(50), sandbox=box, stop=False)
    assert [case.verdict for case in found.cases] == ["MLE"] * 50
    assert len(box.asked) == 4


def test_a_program_that_ends_well_without_an_answer_has_failed():
    """`os._exit(0)` is no way to pass."""
    found = judge(PROGRAM, calls(2), sandbox=Scripted(replied(None, None, run=ok())))
    assert (found.verdict, found.why) == ("RE", "case 1: it ended before it answered")


def test_what_happens_after_the_last_answer_does_not_count():
    """A thread that was left running, an atexit that crashes: the tests process would not have seen it either."""
    found = judge(
        PROGRAM, calls(1), sandbox=Scripted(replied(Reply(0), run=Run(Ending.TLE, "wall", cpu_s=2)))
    )
    assert found.accepted


def test_no_time_left_is_tle_for_the_rest():
    """Without another process."""
    died = Run(Ending.TLE, "cpu", cpu_s=2.5)
    box = Scripted(replied(Reply(0), None, None, None, run=died))
    found = judge(PROGRAM, calls(4), sandbox=box, stop=False, total_cpu_s=2.5)
    assert [case.verdict for case in found.cases] == ["AC", "TLE", "TLE", "TLE"]
    assert len(box.asked) == 1


def test_plain_asserts_are_calls():
    """And anything else is a suite."""
    box = Scripted(replied(Reply(2), Reply(3)))
    found = judge(
        PROGRAM, TestSuite("asserts", "assert f(1) == 2\nassert f(2) == 4"), sandbox=box, stop=False
    )
    assert (found.verdict, found.why) == ("WA", "case 2: 3, not 4")
    assert box.asked[0]["limits"] == box.limits  # those of a suite: for all together


# ------------------------------------------------------------------------------------------- suites


def suite_run(
    *outcomes: str,
    done: bool = True,
    died: bool = False,
    fault: str = "",
    message: str = "…",
    **runs: Run,
) -> TestRun:
    lines = [
        ["case", f"test_{i}", outcome, message if outcome != "pass" else ""]
        for i, outcome in enumerate(outcomes)
    ]
    if fault or died or done:
        lines.append(["ours", fault] if fault else ["died"] if died else ["done", len(outcomes)])
    results = Output(b"".join(write(line) + b"\n" for line in lines))
    return TestRun(**({"run": ok(), "tests": ok()} | runs), results=results)


@pytest.mark.parametrize(
    ("run", "verdict", "fraction"),
    [
        (suite_run("pass", "pass"), "AC", 1),
        (suite_run("pass", "fail"), "WA", 0.5),
        (suite_run("pass", "error", "fail", "pass"), "RE", 0.5),
        (suite_run("pass", "skip"), "AC", 1),
        (suite_run("skip", "skip"), "WA", 0),
        (suite_run(), "WA", 0),
        (suite_run("pass", done=False), "RE", 0),
        (suite_run("pass", done=False, died=True), "RE", 0),
        (suite_run("pass", done=False, died=True, run=Run(Ending.MLE, "memory")), "MLE", 0),
        (suite_run("fail", done=False, died=True, run=Run(Ending.MLE, "memory")), "WA", 0),
        (suite_run("pass", done=False, tests=Run(Ending.TLE, "cpu")), "TLE", 0),
        (suite_run("pass", done=False, tests=Run(Ending.MLE, "memory")), "MLE", 0),
        (suite_run("pass", fault="SyntaxError"), "IE", 0),
        (suite_run("fail", fault="SyntaxError"), "IE", 0),
        (suite_run("pass", run=Run(Ending.IE, "slot")), "IE", 0),
        (suite_run("pass", tests=Run(Ending.IE, "slot")), "IE", 0),
        (suite_run(done=False, run=Run(Ending.CE, "compile"), died=True), "CE", 0),
    ],
)
def test_a_suite_counts_only_if_it_came_to_its_end(run: TestRun, verdict: str, fraction: float):
    """A program that ends after the easy tests has not passed those few of them: it is not known how many there are."""
    found = judge(PROGRAM, SUITE, sandbox=Scripted(run), stop=False)
    assert found.verdict == verdict
    if verdict != "IE":
        assert found.fraction == fraction


def test_a_suite_is_told_whether_to_stop():
    """The judge's word comes before the suite's own."""
    box = Scripted(suite_run("pass"))
    judge(PROGRAM, dataclasses.replace(SUITE, stop=True), sandbox=box, stop=False)
    judge(PROGRAM, dataclasses.replace(SUITE, stop=False), sandbox=box)
    assert [asked["tests"].stop for asked in box.asked] == [False, True]


def test_reasons_are_fit_to_be_recorded():
    """One line, cut, and without addresses, which would differ when the record is replayed."""
    box = Scripted(suite_run("fail", message="<A object at 0x7f00deadbeef>\n" + "x" * 999))
    why = judge(PROGRAM, SUITE, sandbox=box).why
    assert why.startswith("test_0: <A object at 0x…> xxx")
    assert len(why) < 220


def test_verdicts_are_texts():
    """So that they can be counted and recorded."""
    assert CaseVerdict.AC == "AC"
    assert f"{CaseVerdict.TLE}" == "TLE"
