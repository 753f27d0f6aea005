"""The tests' side: runs a test suite in a process of its own, against a program that it can only ask (`remote`).

What came of it goes to a descriptor that no code of the program has, a JSON line each:

    {"case": "test_add", "outcome": "pass" | "fail" | "error" | "skip", "message": "…"}
    {"done": true, "cases": 3}      the suite ended by itself
    {"died": true}                  the program ended, or talked nonsense, before the suite did
    {"ours": "…"}                   the tests are broken, whatever the program
    {"error": "…"}                  this interpreter lacks what they need

A suite has passed if it is done, has a case, and every case is "pass", or "skip" beside others.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import os
import re
import sys
import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from rlvr.sandbox.guest.remote import STANDARD, ProgramDied, Remote
from rlvr.sandbox.guest.texts import described, shown_asserts
from rlvr.sandbox.guest.trees import BadValue, loads

__all__ = ["Case", "OUTCOMES", "Results", "Session", "Stop", "TEST_FILE", "main", "read_results"]

OUTCOMES = ("pass", "fail", "error", "skip")

_TESTS = "tests"  # the module that the tests believe to be
TEST_FILE: Final = "test_solution"
"""The same, in pytest."""

_CASES = 100_000
_SHORT = {"np": "numpy", "pd": "pandas"}
_STANDARD_NAMES = {
    name: module
    for module, names in {
        "collections": "Counter OrderedDict defaultdict deque namedtuple",
        "copy": "deepcopy",
        "datetime": "date datetime timedelta timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "functools": "partial reduce",
        "math": "ceil floor inf isclose isnan nan pi sqrt",
    }.items()
    for name in names.split()
}
_NAME, _MESSAGE = 300, 2000


class Stop(BaseException):
    """There is nothing more to learn."""


class Case(NamedTuple):
    """One test and what came of it."""

    name: str
    outcome: str
    message: str = ""


class Results(NamedTuple):
    """What a suite wrote; see the module."""

    cases: tuple[Case, ...] = ()
    done: bool = False
    died: bool = False
    ours: str | None = None
    error: str | None = None


# ------------------------------------------------------------------------------------------- the process


def main(spec: dict[str, Any], channel_fd: int, results_fd: int) -> None:
    """Run the suite.

    Args:
        spec: "style" ("check", "asserts", "unittest", "pytest"); "test" and "setup", texts; "entry_point", a name or
            None; "module", the names by which the tests import the program; "stop", to end at the first failure.
        channel_fd: the socket to the program's process.
        results_fd: where results are written.
    """
    sys.setrecursionlimit(max(10_000, sys.getrecursionlimit()))  # calls back and forth take a dozen frames each
    sys.stdout = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115  nobody reads it
    session = Session(spec, Remote(channel_fd, (_TESTS, TEST_FILE)), results_fd)
    try:
        session.install()
        _style(spec["style"])(session)
        session.finish()
    except Stop:
        pass
    except BaseException as error:  # noqa: BLE001  whatever the tests raise here is a result
        try:
            session.case("tests", *described(error))
            session.finish()
        except Stop:
            pass


def _style(name: str) -> Callable[[Session], None]:
    if name in ("check", "asserts"):
        return {"check": _check, "asserts": _asserts}[name]
    from rlvr.sandbox.guest import runners

    return {"unittest": runners.run_unittest, "pytest": runners.run_pytest}[name]


class Session:
    """One run of a suite."""

    def __init__(self, spec: dict[str, Any], remote: Remote, results_fd: int) -> None:
        self.spec, self.remote = spec, remote
        self.ended = False
        self._fd = results_fd
        self._cases = self._counted = 0
        module = types.ModuleType(_TESTS)
        self.names = vars(module)
        self.names["__builtins__"] = _Fallback(self)
        self.module = sys.modules[_TESTS] = module

    def install(self) -> None:
        """Have the tests import the program by its names."""
        for name in self.spec["module"]:
            sys.modules[name] = _ProgramModule(name, self.remote)

    def case(self, name: str, outcome: str, message: str = "") -> None:
        """Report a case.  None counts once the program is gone."""
        if self.ended:
            raise Stop
        if self.remote.died is not None:
            self._end({"died": True})
        self._write({"case": name[:_NAME], "outcome": outcome, "message": message[:_MESSAGE]})
        self._cases += 1
        self._counted += outcome != "skip"
        if self._cases == _CASES or (self.spec["stop"] and outcome in ("fail", "error")):
            self._end({"done": True, "cases": self._cases})

    def finish(self) -> NoReturn:
        """The suite has come to its end."""
        if not self._counted:
            self.broken("no tests" if not self._cases else "no tests: every one was skipped")
        if self.remote.died is not None:
            self._end({"died": True})
        self._end({"done": True, "cases": self._cases})

    def broken(self, why: str) -> NoReturn:
        """The tests do not work.  That is their own fault only if the program had no part in it."""
        if self.remote.asked:
            self.case("tests", "error", why)
            self._counted += 1
            self.finish()
        self._end({"ours": why[:_MESSAGE]})

    def missing(self, what: str) -> NoReturn:
        """Something is not installed here."""
        self._end({"error": what})

    def run(self, code: Any) -> None:
        """Run setup or a whole test file, in which nothing is a case yet."""
        try:
            exec(code, self.names)  # noqa: S102  the tests, whom we trust, in a sandbox
        except (ProgramDied, Stop):
            raise
        except BaseException as error:  # noqa: BLE001  SystemExit too
            self.broken(described(error)[1])

    def compiled(self, text: str, name: str, *, shown: bool = False) -> Any:
        """Code of a text; with `shown`, in which a failing `assert a == b` says what a and b are."""
        try:
            tree = ast.parse(text, name)
            return compile(shown_asserts(tree, self.names) if shown else tree, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            self._end({"ours": described(error)[1]})

    def setup(self) -> None:
        """Run the trusted setup.  Its names win over the program's, but for the function under test itself."""
        self.run(self.compiled(self.spec["setup"], "<setup>"))
        entry = self.spec["entry_point"]
        if entry:
            self.names.pop(entry, None)  # often a stub: a signature with a docstring
            self.names["__builtins__"].pop(entry, None)  # MBPP has tasks that are called sum

    def own(self, name: str) -> Any:
        """What tests mean by a name that they use without importing it: `math.isclose` must not be the program's.

        Raises:
            LookupError: it is no such name.
        """
        module = _SHORT.get(name, name)
        used = re.search(rf"(?<![\w.]){name}\s*\.", self.spec["setup"] + "\n" + self.spec["test"])
        if used and (name in _SHORT or name in STANDARD):
            try:
                return importlib.import_module(module)
            except ImportError:
                raise KeyError(name) from None
        if self.spec["entry_point"] and name in _STANDARD_NAMES:
            return getattr(importlib.import_module(_STANDARD_NAMES[name]), name)
        raise KeyError(name)

    def _end(self, line: dict[str, Any]) -> NoReturn:
        if not self.ended:
            self._write(line)
        self.ended = True
        raise Stop

    def _write(self, line: dict[str, Any]) -> None:
        rest = memoryview(json.dumps(line).encode("ascii") + b"\n")
        while rest:
            rest = rest[os.write(self._fd, rest) :]


class _Fallback(dict):  # type: ignore[type-arg]
    """The builtins of the tests.  A name that is none, and that the tests do not define, is the program's."""

    def __init__(self, session: Session) -> None:
        super().__init__(vars(builtins))
        self._session = session

    def __missing__(self, name: str) -> Any:
        spec, remote = self._session.spec, self._session.remote
        if name.startswith("__"):
            raise KeyError(name)
        if spec["entry_point"] and name in ("candidate", spec["entry_point"]):
            return remote.entry(spec["entry_point"])
        try:
            return self._session.own(name)
        except LookupError:
            pass
        try:
            return remote.name(name)
        except NameError:
            raise KeyError(name) from None


class _ProgramModule(types.ModuleType):
    """The program as the tests import it.

    `from solution import *` takes nothing: names that the tests do not have are the program's anyway (`_Fallback`), and
    those that they have, the builtins too, must not become the program's.
    """

    def __init__(self, name: str, remote: Remote) -> None:
        super().__init__(name)
        vars(self).update(__all__=[], __file__=f"{name}.py", _rlvr_remote=remote)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            try:
                return vars(self)["_rlvr_remote"].name(name)
            except NameError:
                pass
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            vars(self)["_rlvr_remote"].set_name(name, value)

    def __delattr__(self, name: str) -> None:
        vars(self)["_rlvr_remote"].delete_name(name)


# -------------------------------------------------------------------------------------- check and asserts


def _check(session: Session) -> None:
    """HumanEval: `check(candidate)`, which MBPP files in the wild call themselves at their end."""
    session.setup()
    text = session.spec["test"]
    session.compiled(text, "<test>")
    tree = ast.parse(text)
    own = [node for node in tree.body if _calls_check(node)]
    tree.body = [node for node in tree.body if not _calls_check(node)]
    session.run(session.compiled(ast.unparse(tree), "<test>", shown=True))
    if "check" not in session.names:
        session.broken("the test defines no check()")
    calls = [ast.unparse(node) for node in own] or ["check(candidate)"]
    for i, call in enumerate(calls):
        _attempt(session, "check" if len(calls) == 1 else f"check {i + 1}", session.compiled(call, "<test>"))


def _calls_check(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check"


def _asserts(session: Session) -> None:
    """MBPP: each `assert` of the top level is a case, the statements between them are run as they come."""
    session.setup()
    text = session.spec["test"]
    session.compiled(text, "<test>")
    body = ast.parse(text).body
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


def _attempt(session: Session, name: str, code: Any) -> None:
    try:
        exec(code, session.names)  # noqa: S102  see Session.run
    except Stop:
        raise
    except BaseException as error:  # noqa: BLE001  SystemExit too is a failure
        session.case(name, *described(error))
    else:
        session.case(name, "pass")


# ----------------------------------------------------------------------------------------------- on the host


def read_results(data: bytes) -> Results:
    """What `main` wrote, up to the first line that is none of its."""
    cases: list[Case] = []
    for line in data.split(b"\n")[:-1]:  # what follows the last line end is partial
        try:
            said = loads(line)
        except BadValue:
            break
        if type(said) is not dict:
            break
        if said.keys() == {"case", "outcome", "message"} and all(type(text) is str for text in said.values()):
            if said["outcome"] not in OUTCOMES or len(cases) == _CASES:
                break
            cases.append(Case(said["case"][:_NAME], said["outcome"], said["message"][:_MESSAGE]))
        elif said.keys() == {"done", "cases"} and said["done"] is True and said["cases"] == len(cases):
            return Results(tuple(cases), done=True)
        elif said == {"died": True}:
            return Results(tuple(cases), died=True)
        elif said.keys() == {"ours"} and type(said["ours"]) is str:
            return Results(tuple(cases), ours=said["ours"][:_MESSAGE])
        elif said.keys() == {"error"} and type(said["error"]) is str:
            return Results(tuple(cases), error=said["error"][:_MESSAGE])
        else:
            break
    return Results(tuple(cases))
