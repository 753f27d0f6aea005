"""Verification of mathematical answers: is the completion's final answer equal to the reference?

completion ─ extract ─▶ answer ─ fold, limits ─▶ reading ─▶ form ─ normal ─▶ equal | different
                                                                             | cannot tell
                                                                               │
                                verdict ◀─ symbolic ─ engine (worker process) ─┘

verifier, policy, api           `MathVerifier`; its settings; parts of it for a notebook
fold, limits, cut               spellings folded into one; what is refused before it is parsed
reading, forms                  a text as a form; the kinds of forms
remarks                         what is said beside a value
shapes, statement               other readings of a form; all that was read as one tree
arithmetic, words, units        exact values; numbers in words; what may stand beside a number
nouns, clock, quantity          counted things; times and dates; a number with what belongs to it
normal, numbers, matching       the exact comparison; two numbers; pairs of parts
rounding                        when a reference may have been rounded
finished, canonical             what may not be left open; what differs only in how it is written
asked, given                    forms that a prompt asks for; what it gives
prompted                        readings of an answer that only the prompt shows to be meant
symbolic, worker, engine        the engine from the caller's side; its process; are two trees equal?
equality, probing, points       of each kind; by values; at which points
relations, solving, parameters  equations; conditions on one variable; declared letters
intervals, realsets, residues   sets of reals and of whole numbers
boolean                         logic and sets by truth tables
differing                       a point at which two formulas part, for people
latex                           lexer, parser, tree, values

Contract: `rlvr.verifiers.base.BaseVerifier`; `normal.decide_forms` says equal, different, or None.
Sees `verifiers`, `workers` and the ground; sympy is imported in the worker alone.
Goes wrong: a lenient fall-back that pays a wrong answer, a text that costs more than its length,
and a verdict that changes without another `-vN` (tests/frozen).
"""

from rlvr.verifiers.answers import BOXED, DEFAULT_MARKERS, Extraction, extract
from rlvr.verifiers.math.api import ReadAnswer, compare, parse, value
from rlvr.verifiers.math.policy import COMPETITION, GSM8K, HENDRYCKS, LENIENT_NUMERIC, MathPolicy
from rlvr.verifiers.math.verifier import MathVerifier

__all__ = [
    "BOXED",
    "COMPETITION",
    "DEFAULT_MARKERS",
    "Extraction",
    "GSM8K",
    "HENDRYCKS",
    "LENIENT_NUMERIC",
    "MathPolicy",
    "MathVerifier",
    "ReadAnswer",
    "compare",
    "extract",
    "parse",
    "value",
]
