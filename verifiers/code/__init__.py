"""Verification of programs: does the program in a completion do what its reference asks?

completion ─ program ─▶ program ┐
reference ─ cases.read ─▶ cases ┴ judge ═══▶ sandbox: runs, calls, tests ═══▶ values and outputs ─ compare ─▶ verdict
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
