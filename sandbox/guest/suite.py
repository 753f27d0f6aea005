"""The tests' side: runs a test suite in a process of its own, against a program that it
can only ask (`remote`).

The results are written to a descriptor that no code of the program has, a JSON line each:

    ["case", "test_add", "pass" | "fail" | "error" | "skip", "message"]
    ["done", 3]         the suite ended by itself, after so many cases
    ["died"]            the program ended, or sent something malformed, before the suite ended
    ["ours", "…"]       the tests are broken, or ask for more than values, whatever the program
    ["error", "…"]      this interpreter lacks what they need

A suite has passed if it is done, has a case, and every case is "pass", or "skip" beside others.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rlvr.sandbox.guest.reading import read
from rlvr.sandbox.guest.remote import Remote
from rlvr.sandbox.guest.runners import run_pytest, run_unittest
from rlvr.sandbox.guest.suite_run import CASES, MESSAGE, NAME, Stop, SuiteRun, raised_by
from rlvr.sandbox.guest.texts import describe_failure

if TYPE_CHECKING:
    from types import CodeType

    from rlvr.sandbox.guest.messages import SlotMessage

__all__ = ["Case", "OUTCOMES", "SuiteResults", "main", "read_suite_cases"]

_READS_OUTPUT = re.compile(
    r"\b(?:capsys|capfd|capsysbinary|redirect_std\w+|monkeypatch|mocker|unittest\.mock)\b|"
    r"\bsys\.std(?:out|err|in)\s*=[^=]"
)

OUTCOMES = ("pass", "fail", "error", "skip")


class Case(NamedTuple):
    """One test and its outcome, one of `OUTCOMES`."""

    name: str
    outcome: str
    message: str = ""


class SuiteResults(NamedTuple):
    """What a suite wrote; see the top of this module."""

    cases: tuple[Case, ...] = ()
    done: bool = False
    died: bool = False
    ours: str | None = None
    error: str | None = None


# -------------------------------------------------------------------------------------- the process


def main(spec: SlotMessage, channel_fd: int, results_fd: int) -> None:
    """Run the suite.

    Args:
        spec: "style" ("check", "asserts", "unittest", "pytest"); "test" and "setup", texts;
            "entry_point", a name or None; "module", the names by which the tests import the
            program; "stop", to end at the first failure.
        channel_fd: the socket to the program's process.
        results_fd: where results are written.
    """
    # calls back and forth take a dozen frames each
    sys.setrecursionlimit(max(10_000, sys.getrecursionlimit()))
    session = SuiteRun(spec, Remote(channel_fd), results_fd)
    if _READS_OUTPUT.search(spec["setup"] + "\n" + spec["test"]):
        session.remote.refused = "the tests read what the program prints, or replace parts of it"

    def run() -> None:
        try:
            # what tests print is not read
            sys.stdout = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
        # The machine's fault, which must not cost the policy; a program can cause others (ENOMEM).
        except (FileNotFoundError, PermissionError) as error:
            session.broken(f"{os.devnull} cannot be opened here: {error.strerror}")
        session.install()
        _style(spec["style"])(session)
        session.finish()

    with contextlib.suppress(Stop):
        error = raised_by(run)  # whatever the tests raise is a result
        # Tests that raise outside of a case are a case of their own, which failed.
        if error is not None:
            session.case("tests", *describe_failure(error))
            session.finish()


def _style(name: str) -> Callable[[SuiteRun], None]:
    return {"check": _check, "asserts": _asserts, "unittest": run_unittest, "pytest": run_pytest}[
        name
    ]


# -------------------------------------------------------------------------------- check and asserts


def _check(session: SuiteRun) -> None:
    """HumanEval: `check(candidate)`; some test files call it themselves at their end."""
    session.setup()
    text = session.spec["test"]
    # For its errors: what is run below is the same text without its own calls of check.
    session.compiled(text, "<test>")
    tree = ast.parse(text)
    own_calls = [node for node in tree.body if _calls_check(node)]
    tree.body = [node for node in tree.body if not _calls_check(node)]
    # Without its own calls of check; with `shown`, asserts can say what they compared.
    session.run(session.compiled(ast.unparse(tree), "<test>", shown=True))
    if "check" not in session.names:
        session.broken("the test defines no check()")
    calls = [ast.unparse(node) for node in own_calls] or ["check(candidate)"]
    for i, call in enumerate(calls):
        _attempt(
            session,
            "check" if len(calls) == 1 else f"check {i + 1}",
            session.compiled(call, "<test>"),
        )


def _calls_check(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check"
    )


def _asserts(session: SuiteRun) -> None:
    """MBPP: each `assert` of the top level is a case, the statements between them are run as they
    come."""
    session.setup()
    text = session.spec["test"]
    session.compiled(text, "<test>")
    body = ast.parse(text).body
    # Asserts in functions or loops are no cases: the text is then one case as a whole.
    if not any(isinstance(node, ast.Assert) for node in body):
        if any(isinstance(node, ast.Assert) for top in body for node in ast.walk(top)):
            _attempt(session, "tests", session.compiled(text, "<test>", shown=True))
        return
    asserts = 0
    for node in body:
        code = session.compiled(ast.unparse(node), "<test>", shown=True)
        if isinstance(node, ast.Assert):
            asserts += 1
            _attempt(session, f"assert {asserts}", code)
        else:
            session.run(code)


def _attempt(session: SuiteRun, name: str, code: CodeType) -> None:
    # With the suite's names, so that every assert can use functions of the setup.
    error = raised_by(lambda: exec(code, session.names))  # noqa: S102  see SuiteRun.run
    session.case(name, *(("pass",) if error is None else describe_failure(error)))


# ----------------------------------------------------------------------------- in the host's reader


def read_suite_cases(data: bytes) -> SuiteResults:
    """The results that `main` wrote, up to the first line that it cannot have written.

    Args:
        data: what was written.
    """
    cases: list[Case] = []
    for line in data.split(b"\n")[:-1]:  # what follows the last line end is incomplete
        try:
            # ValueError covers both errors of `read`.
            record = read(line)
        except ValueError:
            break
        match record:
            case ["case", str(name), str(outcome), str(message)] if (
                # A name that is no outcome, or too many cases: from there on nothing counts.
                outcome in OUTCOMES and len(cases) < CASES
            ):
                cases.append(Case(name[:NAME], outcome, message[:MESSAGE]))
            # The count must agree, so a suite that lost lines is not done.
            case ["done", int(count)] if count == len(cases):
                return SuiteResults(tuple(cases), done=True)
            case ["died"]:
                return SuiteResults(tuple(cases), died=True)
            case ["ours", str(why)]:
                return SuiteResults(tuple(cases), ours=why[:MESSAGE])
            case ["error", str(what)]:
                return SuiteResults(tuple(cases), error=what[:MESSAGE])
            case _:
                break
    return SuiteResults(tuple(cases))
