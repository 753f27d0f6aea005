"""One run of a test suite: its names, its cases, and how it ends."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rlvr.sandbox.guest.remote import STANDARD, NotJudged, ProgramDied, Remote
from rlvr.sandbox.guest.texts import describe_failure, shown_asserts
from rlvr.sandbox.guest.writing import write
from rlvr.workers.framing import write_all

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotMessage

__all__ = [
    "CASES",
    "MESSAGE",
    "NAME",
    "STANDARD_NAMES",
    "Stop",
    "SuiteRun",
    "TESTS",
    "TEST_FILE",
    "raised_by",
]

TESTS = "tests"  # `__name__` of the tests' module
TEST_FILE: Final = "test_solution"
"""The same for pytest."""

# More are not counted: a program that defines tests in a loop must not fill the results.
CASES = 100_000
_SHORT = {"np": "numpy", "pd": "pandas"}
# What HumanEval's and similar files use without importing it.
STANDARD_NAMES = {
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
# Letters that are kept of a case's name and of its message.
NAME, MESSAGE = 300, 2000


class Stop(BaseException):
    """Ends the suite: its results are written."""


def raised_by(
    step: Callable[[], object], passing: tuple[type[BaseException], ...] = (Stop,)
) -> BaseException | None:
    """What code of the tests raised, which is a result, even SystemExit; None if nothing.

    Args:
        step: runs it.
        passing: exceptions that end the suite and are raised on.
    """
    try:
        step()
    except passing:
        raise
    except BaseException as error:  # noqa: BLE001  see above
        return error
    return None


class SuiteRun:
    """One run of a suite.

    Args:
        spec: see `suite.main`.
        remote: the program.
        results_fd: where results are written.
    """

    def __init__(self, spec: SlotMessage, remote: Remote, results_fd: int) -> None:
        self.spec, self.remote = spec, remote
        self.ended = False
        self._fd = results_fd
        self._cases = self._counted = 0
        module = types.ModuleType(TESTS)
        self.names = vars(module)
        # A name that the tests do not define is looked up in the builtins, and there in the
        # program.
        self.names["__builtins__"] = _Fallback(self)
        self.module = sys.modules[TESTS] = module

    def install(self) -> None:
        """Make the program importable by the names that the tests use."""
        for name in self.spec["module"]:
            # Before the tests run: their imports find the stand-ins in sys.modules.
            sys.modules[name] = _ProgramModule(name, self.remote)
        for name in self.spec.get("folder", ()):
            # A module that the tests' interpreter has is not replaced: it may be what judges.
            if not _is_known(name.partition(".")[0]):
                sys.modules[name] = _ProgramModule(name, self.remote, f"{name}.")

    def case(self, name: str, outcome: str, message: str = "") -> None:
        """Report a case.  Once the program is gone, no case counts.

        Args:
            name, outcome, message: see `suite.Case`.

        Raises:
            Stop: the suite is over.
        """
        # Code of the tests that catches Stop must not report more.
        if self.ended:
            raise Stop
        self._halt()
        self._write("case", name[:NAME], outcome, message[:MESSAGE])
        self._cases += 1
        # Skipped tests prove nothing: a suite of them alone has no case.
        self._counted += outcome != "skip"
        if self._cases == CASES or (self.spec["stop"] and outcome in ("fail", "error")):
            self._end("done", self._cases)

    def finish(self) -> NoReturn:
        """Report that the suite has come to its end."""
        self._halt()
        # A program that had to pass no test must not pass.
        if not self._counted:
            self.broken("no tests" if not self._cases else "no tests: every one was skipped")
        self._end("done", self._cases)

    def broken(self, why: str) -> NoReturn:
        """Report that the tests do not work.  That is their own fault only if they have not asked
        the program.

        Args:
            why: what is wrong.
        """
        # A test file that breaks on what the program answered has found a fault of the program.
        if self.remote.asked:
            self.case("tests", "error", why)
            self._counted += 1
            self.finish()
        self._end("ours", why[:MESSAGE])

    def missing(self, what: str) -> NoReturn:
        """Report that something is not installed here.

        Args:
            what: a sentence that names it.
        """
        self._end("error", what)

    def run(self, code: types.CodeType) -> None:
        """Run setup or a whole test file, before any of its cases.

        Args:
            code: as `compiled` returned it.
        """
        error = raised_by(
            # the tests, which are trusted, in a sandbox
            lambda: exec(code, self.names),  # noqa: S102
            # These say that the program is gone, or that nothing can be judged: they end the suite.
            passing=(ProgramDied, NotJudged, Stop),
        )
        if error is not None:
            self.broken(describe_failure(error)[1])

    def compiled(self, text: str, name: str, *, shown: bool = False) -> types.CodeType:
        """The code of a text.

        Args:
            text: the source.
            name: the file name that tracebacks show.
            shown: a failing `assert a == b` says what a and b are.
        """
        try:
            tree = ast.parse(text, name)
            return compile(
                # Without `dont_inherit` this module's own `from __future__` lines would hold for
                # the tests.
                shown_asserts(tree, self.names) if shown else tree,
                name,
                "exec",
                dont_inherit=True,
            )
        except (SyntaxError, ValueError, RecursionError) as error:
            self._end("ours", describe_failure(error)[1])

    def setup(self) -> None:
        """Run the trusted setup.  Its names win over the program's, except that of the function
        under test."""
        self.run(self.compiled(self.spec["setup"], "<setup>"))
        entry = self.spec["entry_point"]
        if entry:
            self.names.pop(entry, None)  # often a stub: a signature with a docstring
            # MBPP has functions under test that are named as a builtin, such as sum
            self.names["__builtins__"].pop(entry, None)

    def own(self, name: str) -> Any:
        """The standard module or function that tests mean by a name which they use without
        importing it.

        It must not come from the program: with `math.isclose` of its own, it could pass any test.

        Args:
            name: as the tests use it.

        Raises:
            LookupError: it is no such name.
        """
        module = _SHORT.get(name, name)
        # Only where the tests use it as a module: "name." and no attribute of another object.
        used = re.search(rf"(?<![\w.]){name}\s*\.", self.spec["setup"] + "\n" + self.spec["test"])
        if used and (name in _SHORT or name in STANDARD):
            try:
                return importlib.import_module(module)
            except ImportError:
                raise KeyError(name) from None
        # HumanEval's files use these names without importing them.
        if self.spec["entry_point"] and name in STANDARD_NAMES:
            return getattr(importlib.import_module(STANDARD_NAMES[name]), name)
        raise KeyError(name)

    def _halt(self) -> None:
        """End the suite if the program is gone, or the tests asked for what only one process could
        do."""
        if self.remote.refused is not None:
            self._end("ours", self.remote.refused[:MESSAGE])
        if self.remote.died is not None:
            self._end("died")

    def _end(self, *line: object) -> NoReturn:
        # The first end counts; a second would contradict it.
        if not self.ended:
            self._write(*line)
        self.ended = True
        raise Stop

    def _write(self, *line: object) -> None:
        write_all(self._fd, write(list(line)) + b"\n")


class _Fallback(dict):  # type: ignore[type-arg]
    """The builtins of the tests.  A name that neither they nor the tests define is
    looked up in the program."""

    def __init__(self, session: SuiteRun) -> None:
        super().__init__(vars(builtins))
        self._session = session

    def __missing__(self, name: str) -> object:
        spec, remote = self._session.spec, self._session.remote
        # Python asks for __build_class__, __import__ and others, which the real builtins have.
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
            # KeyError becomes NameError with the usual text.
            raise KeyError(name) from None


def _is_known(name: str) -> bool:
    """Whether the tests' own interpreter has a module of this name, which no file of the program
    takes the place of."""
    # Modules of the program that were installed before do not count.
    if name in sys.stdlib_module_names or name in sys.modules:
        return not isinstance(sys.modules.get(name), _ProgramModule)
    return importlib.util.find_spec(name) is not None


class _ProgramModule(types.ModuleType):
    """The program as the tests import it.

    `from solution import *` imports no names: those that the tests lack are looked up in the
    program anyway (`_Fallback`), and those that they have, builtins included, must not be replaced.
    """

    def __init__(self, name: str, remote: Remote, prefix: str = "") -> None:
        super().__init__(name)
        vars(self).update(
            __all__=[], __file__=f"{name}.py", _rlvr_remote=remote, _rlvr_prefix=prefix
        )
        # With a path it is a package, so that `import shop.cart` finds the second part.
        if prefix:
            vars(self).update(__path__=[])

    def __getattr__(self, name: str) -> Any:
        full_name = vars(self)["_rlvr_prefix"] + name
        if isinstance(sys.modules.get(full_name), _ProgramModule):
            return sys.modules[full_name]
        # Dunder names are the import system's questions, not the tests'.
        if not name.startswith("__"):
            try:
                return vars(self)["_rlvr_remote"].name(full_name)
            except NameError:
                pass
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # __spec__, __loader__ and the like are set by the import system.
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            full_name = vars(self)["_rlvr_prefix"] + name
            vars(self)["_rlvr_remote"].ask("set", None, full_name, value)
