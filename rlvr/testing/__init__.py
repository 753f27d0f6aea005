"""Checks for authors: which holes does an environment have, before a policy finds them?

    def test_my_environment():
        rlvr.testing.check_environment(MyEnv())

`check` gives the whole report; `HOLES` says what each name in it means.
"""

from rlvr.testing.checks import check, check_environment
from rlvr.testing.findings import CHECKS, HOLES, CheckReport, Finding, Severity

__all__ = ["CHECKS", "Finding", "HOLES", "CheckReport", "Severity", "check", "check_environment"]
