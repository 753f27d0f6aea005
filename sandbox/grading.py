"""`Box`: files that a policy left, graded where it never was.

The files are data until code of ours asks for them: tests run in a process of their own, and ask
the program's process for values over a socket (`Sandbox.test`).  So nothing that the program
prints, exits with, or defines as its equality is a result, and no configuration, plugin or start-up
file of it is read by the tests' interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

from rlvr.errors import SandboxFailed
from rlvr.sandbox.guest.remote import GIVEN_OBJECT
from rlvr.sandbox.records import Ending, Program, TestRun, TestSuite, is_file_name

if TYPE_CHECKING:
    from rlvr.sandbox.sandbox import Sandbox

__all__ = ["Box"]


_NOT_THERE = ("ModuleNotFoundError:", "ImportError:")


class Box:
    """A fresh place for files; see `Session.box`.

    Args:
        sandbox: whose limits and isolation it has.
        files: by path.
    """

    def __init__(self, sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
        self.sandbox, self.files = sandbox, dict(files)
        self._lock = threading.Lock()
        self._running = 0
        self._tested_s = self._since = 0.0  # without the seconds since that moment

    @property
    def testing_s(self) -> float:
        """Wall seconds in which any `test` ran, until now.

        The sandbox limits each of them, so they count for no other limit: a program could use that
        up, or wait for a place.
        """
        self._count_tests(0)
        return self._tested_s

    def _count_tests(self, change: int) -> None:
        """One more or less runs from now on; threads may run several at once."""
        with self._lock:
            now_s = monotonic()
            if self._running:
                self._tested_s += now_s - self._since
            self._since = now_s
            self._running += change

    def text(self, path: str) -> str | None:
        """A file's text; None if there is none, or it is not UTF-8.

        Args:
            path: of the file.
        """
        try:
            return self.files[path].decode()
        except (KeyError, UnicodeDecodeError):
            return None

    def test(
        self, test: str, *, style: str = "unittest", files: Mapping[str, bytes] | None = None
    ) -> dict[str, str]:
        """Run tests against the Python files, each of which is imported by its own name, such as
        `shop.cart`.

        Args:
            test: the tests' code, which the program never sees.
            style: see `TestSuite`.
            files: by path, instead of the box's own.  The tests of another box would use up the
                time limit of `grade`.

        Returns:
            The outcome of each test by name: "pass", "fail", "error" or "skip".  A test that is
            missing has not run: compare with the names that you expect.  Where the program gives an
            object in place of a value, and a test does with it what cannot cross the border between
            the processes, the tests end there, and one more name says so.

        Raises:
            SandboxFailed: we failed, or the tests pass functions of the program what cannot cross
                the border.
        """
        given = self.files if files is None else files
        files = {path: data for path, data in given.items() if is_file_name(path)}
        # Without a main file the program is empty, and the tests import the other files by name.
        program = Program("python", None if "main.py" in files else "", files=files)
        suite = TestSuite(style, test, modules=("main",), stop=False)
        self._count_tests(1)
        try:  # what reads the results has a limit of its own, too
            return _outcomes(self.sandbox.test(program, suite))
        finally:
            self._count_tests(-1)


def _outcomes(run: TestRun) -> dict[str, str]:
    """See `Box.test`."""
    # Ours: neither run says anything about the files, so no outcome is made of it.
    for one in (run.run, run.tests):
        if one.ending is Ending.IE:
            raise SandboxFailed(one.why)
    if run.fault is not None and run.fault.startswith(_NOT_THERE):
        return {}  # a file that the tests import is not among these
    if run.fault is not None and run.fault.startswith(GIVEN_OBJECT):
        return {**_outcomes_by_name(run), run.fault: "error"}
    # Anything else that stops the tests is a fault of the suite, which must not cost the
    # policy.
    if run.fault is not None or run.missing is not None:
        raise SandboxFailed(f"the tests cannot judge: {run.fault or run.missing}")
    return _outcomes_by_name(run)


def _outcomes_by_name(run: TestRun) -> dict[str, str]:
    """The outcomes by name; of two with one name the worse counts."""
    outcomes: dict[str, str] = {}
    for case in run.cases:
        # A pass is replaced by any later outcome of that name, a failure by none.
        if outcomes.get(case.name, "pass") == "pass":
            outcomes[case.name] = case.outcome
    return outcomes
