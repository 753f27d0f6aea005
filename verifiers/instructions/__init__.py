"""Verification of instructions whose observance can be counted: IFEval's 25 kinds, IFTrain's 29,
IFBench's 58, and M-IFEval's in Spanish, French and Japanese.

completion ─ thinking away ─▶ answer ─ fences (strict) ─▶ each instruction's check ─▶ verdict
"""

from rlvr.verifiers.instructions import ifbench, ifeval, iftrain, mifeval
from rlvr.verifiers.instructions.registry import (
    KINDS,
    Argument,
    Instruction,
    kind,
    read_instruction,
)
from rlvr.verifiers.instructions.verifier import InstructionVerifier

__all__ = [
    "Argument",
    "Instruction",
    "InstructionVerifier",
    "KINDS",
    "ifbench",
    "ifeval",
    "iftrain",
    "kind",
    "mifeval",
    "read_instruction",
]
