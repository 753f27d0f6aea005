"""Verification of mathematical answers: is the completion's final answer equal to the reference?

completion ─ extract ─▶ answer ─ fold, limits ─▶ reading ─▶ form ─ normal ─▶ equal | different | cannot tell
                                                                                                    │
                                                       verdict ◀─ symbolic ─ engine (worker process) ┘
"""

from rlvr.verifiers.answers import BOXED, DEFAULT_MARKERS, Extraction, extract
from rlvr.verifiers.math.api import Answer, compare, parse, value
from rlvr.verifiers.math.policy import COMPETITION, GSM8K, HENDRYCKS, LENIENT_NUMERIC, MathPolicy
from rlvr.verifiers.math.verifier import MathVerifier

__all__ = [
    "Answer",
    "BOXED",
    "COMPETITION",
    "DEFAULT_MARKERS",
    "Extraction",
    "GSM8K",
    "HENDRYCKS",
    "LENIENT_NUMERIC",
    "MathPolicy",
    "MathVerifier",
    "compare",
    "extract",
    "parse",
    "value",
]
