"""unittest and pytest files, run in the tests' process; see `suite`."""

from __future__ import annotations

import builtins
import contextlib
import os
import symtable
import sys
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.sandbox.guest.suite_run import TEST_FILE, Stop, SuiteRun, raised_by
from rlvr.sandbox.guest.texts import describe_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

__all__ = ["run_pytest", "run_unittest"]


def run_unittest(session: SuiteRun) -> None:
    """Run the suite with unittest; each test method is a case.

    Args:
        session: the run.
    """
    vars(unittest)["main"] = lambda *args, **kwargs: None  # for a file that ends in unittest.main()
    session.setup()
    session.run(session.compiled(session.spec["test"], "<test>"))
    # The loader is asked for the module only; a runner would print and exit.
    load = unittest.defaultTestLoader.loadTestsFromModule
    suites: list[unittest.TestSuite] = []
    error = raised_by(lambda: suites.append(load(session.module)))  # by a load_tests of their own
    if error is not None:
        session.broken(describe_failure(error)[1])
    suites[0].run(_Result(session))


class _Result(unittest.TestResult):
    def __init__(self, session: SuiteRun) -> None:
        super().__init__()
        self._session = session
        self._told: set[int] = set()

    def _case(self, test: unittest.TestCase, outcome: str, message: str = "") -> None:
        self._told.add(id(test))
        self._session.case(_name(test), outcome, message)

    # unittest's names, here and below
    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._case(test, "pass")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self._case(test, *describe_failure(err[1]))

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        # Ours: it ends the suite and is no outcome of a test.
        if isinstance(err[1], Stop):
            raise err[1]
        self._case(test, "error", describe_failure(err[1])[1])

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._case(test, "skip", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        self._case(test, "pass")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        # unittest counts it as a failure of the run; so does a case here.
        self._case(test, "fail", "an expected failure did not come")

    def addSubTest(  # noqa: N802
        self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any
    ) -> None:
        # None says that the sub-test passed; the whole test is then reported as such.
        if err is not None:
            self._case(subtest, *describe_failure(err[1]))


def _name(test: unittest.TestCase) -> str:
    name = str(test.id())
    # Ids begin with the module's name, which is ours.
    return name[len("tests.") :] if name.startswith("tests.") else name


def run_pytest(session: SuiteRun) -> None:
    """Run the suite with pytest; each test function is a case.

    Args:
        session: the run.
    """
    # Plugins of the host's interpreter must not take part in the verdict.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        # not above: it loads compression libraries, which would slow down every run
        import tempfile

        import pytest
    except ImportError:
        session.missing("pytest is not installed")
    text = session.spec["setup"] + "\n" + session.spec["test"]
    # Compiled first: a test file that does not compile is a fault of the tests, not pytest's error.
    session.compiled(text, "<test>")
    _lend_names(session, text)
    # The folder is removed at the end, and pycache files would count as files of the scratch.
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, TEST_FILE + ".py")
        path.write_text(text, encoding="utf-8")
        options = [
            "-q",
            # Capturing by descriptor would need temporary files.
            "--capture=sys",
            "--import-mode=importlib",
            f"--rootdir={folder}",
            # An empty configuration: none is looked for in the folders above.
            "-c",
            os.devnull,
        ]
        plugins = [
            # Neither a cache folder nor handlers of signals, which are of no use here.
            arg
            for name in ("cacheprovider", "faulthandler")
            for arg in ("-p", f"no:{name}")
        ]
        code = pytest.main([str(path), *options, *plugins], plugins=[_Plugin(session)])
        if code not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.broken(f"pytest ended with {code!r}")
    session.finish()


def _lend_names(session: SuiteRun, text: str) -> None:
    """Make the program's names builtins, where the file uses them without defining them.

    That is needed because pytest imports the file as an ordinary module, without
    `session._Fallback`.
    """
    table = symtable.symtable(text, "<test>", "exec")
    bound = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
    for name in sorted(_globals(table) - bound - set(dir(builtins))):
        with contextlib.suppress(Exception):  # then the test that uses it fails
            setattr(builtins, name, _found(session, name))
    # What looking up asked is no question of a test: `broken` tells by this whose fault it is.
    session.remote.asked = False  # by the tests themselves


def _found(session: SuiteRun, name: str) -> object:
    entry = session.spec["entry_point"]
    if entry and name in ("candidate", entry):
        return session.remote.entry(entry)
    try:
        return session.own(name)
    except LookupError:
        return session.remote.name(name)


def _globals(table: symtable.SymbolTable) -> set[str]:
    names = {
        s.get_name() for s in table.get_symbols() if s.is_global() or table.get_type() == "module"
    }
    return names.union(*map(_globals, table.get_children()))


class _Plugin:
    def __init__(self, session: SuiteRun) -> None:
        self._session = session
        self._outcomes: dict[str, tuple[str, str]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            # The last line of the report names the error.
            self._tell(self._session.broken, str(report.longrepr).strip().rpartition("\n")[2])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("::")[2] or report.nodeid
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = str(getattr(crash, "message", report.longrepr))
            # An assertion of the tests is a failure; anything else that is raised, an error.
            failed = report.when == "call" and message.startswith(
                ("assert", "AssertionError", "Failed")
            )
            self._outcomes[name] = "fail" if failed else "error", message
        elif report.skipped:
            # A failure that came before is kept: a later phase may report a skip.
            self._outcomes.setdefault(
                name, ("skip", str(getattr(report, "wasxfail", report.longrepr)))
            )
        elif report.when == "call":
            self._outcomes.setdefault(name, ("pass", ""))
        # Reported after the last phase, since a fixture's end can fail too.
        if report.when == "teardown":
            self._tell(
                self._session.case, name, *self._outcomes.pop(name, ("error", "it was not run"))
            )

    def _tell(self, what: Callable[..., object], *args: object) -> None:
        try:
            what(*args)
        except Stop:
            import pytest

            # pytest's own exit ends the session in good order.
            pytest.exit("enough")
