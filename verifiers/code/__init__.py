"""Verification of programs: does the program in a completion do what its reference asks?

completion ─ program ─▶ program ┐
reference ─ cases.read ─▶ cases ┴ judge ═▶ sandbox: runs, calls, tests ═▶ values and outputs
                                                                      ─ compare ─▶ verdict

verifier                   `CodeVerifier`
program, continuation      the program in a completion; code that continues a prompt
cases                      what a program is tested with: texts, calls, or a suite
asserts, expressions       tests made of asserts as calls; values of expressions in tests
judge, case_runner         runs a program on its cases, within the time left for all
checker, interactive       a checker's word on an output; an interactor's on a program
compare, equality          outputs as contest judges compare them; values of calls
reading                    what of it is done in the reader, which may die
shared                     sandboxes that all judges of this process share
verdicts                   results of each case and of the whole
probes                     what a task's checker or interactor accepts, for `rlvr check`
operators, tree_operators  slips in programs, for `rlvr strength`

Contract: `rlvr.verifiers.base.BaseVerifier`.  Expected values never enter the program's process.
Sees `sandbox`, `verifiers`, `workers` and the ground.
Goes wrong: whose fault a failure is.  What the program caused is WRONG; the checker's or ours is
UNSCORED only where the expected output fails too.
"""

from rlvr.verifiers.code.cases import CallCase, CheckerProgram, Interactor, StdioCase
from rlvr.verifiers.code.compare import COMPARATORS, Comparator, Floats
from rlvr.verifiers.code.equality import Equality
from rlvr.verifiers.code.judge import judge
from rlvr.verifiers.code.program import find_program
from rlvr.verifiers.code.verdicts import CaseResult, CaseVerdict, Failure, Judgement
from rlvr.verifiers.code.verifier import CodeVerifier

__all__ = [
    "COMPARATORS",
    "CallCase",
    "CaseResult",
    "CaseVerdict",
    "CheckerProgram",
    "CodeVerifier",
    "Comparator",
    "Equality",
    "Failure",
    "Floats",
    "Interactor",
    "Judgement",
    "StdioCase",
    "find_program",
    "judge",
]
