"""Checks for authors of environments: finds the holes before a policy does.

    def test_my_environment():
        rlvr.testing.check_environment(MyEnv())

checks                 `check` and `check_environment`, made of the following
tasks, scores          the tasks themselves; examples and the catalogue, scored in workers
exploits, answers      completions that deserve nothing, by name; when two answers are the same
searched, code         texts found in the verifier's own code; what is read from it
verifiers, rewritings  properties of a verifier on `BaseVerifier`; rewritings of a right answer
episodes, plays        played episodes: the example, the replies; episodes from a list of turns
cheats                 scripts that tamper with a session
repeats                the same in another process, hash seed and thread
tried_work             wrong and right work, wherever there is a maker
findings               the holes by name (`HOLES`), and the report
labelled, audit        a person's labels as cases; verdicts compared with labels
work                   makers of wrong work with witnesses, and of right work
strength, strengthen   how much wrong work tasks pay; data with stronger tests
graders, yardstick     graders of mathematics by name; our labelled answers (folder yardsticks)

Contract: a check yields `Finding`s of a name in `HOLES`; a maker of work is a class under
`@serves`.
Sees `verifiers`, `sandbox`, `scoring` and below, not `envs`; `cli` and `audit` see it.
Goes wrong: a right answer called a hole (the text must deserve nothing whatever the task means),
and a check whose completions hang: all are scored in workers that can be killed.
"""

from rlvr.testing.checks import check, check_environment
from rlvr.testing.findings import CHECKS, HOLES, CheckReport, Finding, Severity

__all__ = ["CHECKS", "CheckReport", "Finding", "HOLES", "Severity", "check", "check_environment"]
