"""Checks for authors of environments: finds the holes before a policy does.

    def test_my_environment():
        rlvr.testing.check_environment(MyEnv())

`check` returns the whole report; `HOLES` explains each name in it.

checks    `check` and `check_environment`, made of tasks, scores, repeats and episodes
exploits  the catalogue of completions that deserve nothing, with `answers` for texts that must not count
verifiers the properties of a verifier on `BaseVerifier`, with `rewritings` of right answers
findings  the holes by name, and the report
audit     verdicts compared with labels; `rlvr.viewer.reports` shows them as HTML
"""

from rlvr.testing.checks import check, check_environment
from rlvr.testing.findings import CHECKS, HOLES, CheckReport, Finding, Severity

__all__ = ["CHECKS", "CheckReport", "Finding", "HOLES", "Severity", "check", "check_environment"]
