"""Verification of instructions whose observance can be counted: IFEval's 25 kinds, IFTrain's 29,
IFBench's 58, and M-IFEval's in Spanish, French and Japanese.

completion ─ thinking away ─▶ answer ─ fences (strict) ─▶ each instruction's check ─▶ verdict

verifier                           `InstructionVerifier`: the verdict on a list of instructions
registry                           kind → typed arguments and a check, under two policies
ifeval, iftrain, ifbench, mifeval  the kinds, a file for each set
text                               words, sentences and paragraphs, in linear time
language                           which language a text is in
sense, triples                     whether an answer says anything; letter triples of English

Contract: a kind is a function under `registry.kind`, for `strict` and for `reference`.
Sees `verifiers` and the ground.
Goes wrong: `reference` must give the published checkers' verdicts, holes included, `strict` must
not; a pattern that is not linear in the text.
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
