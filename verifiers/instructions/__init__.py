"""Verification of instructions whose observance can be counted: IFEval's 25 kinds, IFTrain's 29 and IFBench's 58.

completion ─ thinking away ─▶ answer ─ fences (strict) ─▶ each instruction's check ─▶ verdict
"""

from rlvr.verifiers.instructions import ifbench, ifeval, iftrain
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
    "read_instruction",
]
