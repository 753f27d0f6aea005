"""One run of a test suite: its names, its cases, and how it ends."""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import re
import sys
import types
from typing import Any, Final, NoReturn

from rlvr.sandbox.guest.remote import STANDARD, ProgramDied, Remote
from rlvr.sandbox.guest.texts import described, shown_asserts
from rlvr.workers.framing import write_all

__all__ = ["CASES", "MESSAGE", "NAME", "Session", "Stop", "TESTS", "TEST_FILE"]

TESTS = "tests"  # the module that the tests believe to be
TEST_FILE: Final = "test_solution"
"""The same, in pytest."""

CASES = 100_000
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
NAME, MESSAGE = 300, 2000


class Stop(BaseException):
    """There is nothing more to learn."""


class Session:
    """One run of a suite."""

    def __init__(self, spec: dict[str, Any], remote: Remote, results_fd: int) -> None:
        self.spec, self.remote = spec, remote
        self.ended = False
        self._fd = results_fd
        self._cases = self._counted = 0
        module = types.ModuleType(TESTS)
        self.names = vars(module)
        self.names["__builtins__"] = _Fallback(self)
        self.module = sys.modules[TESTS] = module

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
        self._write({"case": name[:NAME], "outcome": outcome, "message": message[:MESSAGE]})
        self._cases += 1
        self._counted += outcome != "skip"
        if self._cases == CASES or (self.spec["stop"] and outcome in ("fail", "error")):
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
        self._end({"ours": why[:MESSAGE]})

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
        write_all(self._fd, json.dumps(line).encode("ascii") + b"\n")


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
