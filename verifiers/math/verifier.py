"""`MathVerifier`: extract → limits → normal form → symbolic engine, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, TypeAlias

from rlvr.errors import DataError, UsageError
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.math import symbolic
from rlvr.verifiers.math.extract import DEFAULT_MARKERS, Extraction, extract
from rlvr.verifiers.math.fold import fold
from rlvr.verifiers.math.forms import Flawed, Form
from rlvr.verifiers.math.limits import exceeded, too_long
from rlvr.verifiers.math.normal import Decision, compare, decide
from rlvr.verifiers.math.policy import COMPETITION, MathPolicy
from rlvr.verifiers.math.reading import read

__all__ = ["MathVerifier", "Reference"]

Reference: TypeAlias = str | int | Fraction | float | Decimal


@dataclass(frozen=True, slots=True)
class MathVerifier:
    r"""Is the completion's final answer the reference?

        >>> MathVerifier().verify(r"So it is \boxed{\frac{2}{4}}.", "1/2").why
        'same-number'

    The reasons: `same-number same-text same-items same-choice symbolic-equal` are CORRECT; `no-answer empty-box
    unclosed-box unboxed` UNPARSED; anything else WRONG, among it `hedged limit too-hard chain tautology undefined
    unreadable symbolic-different` and `different-…`.

    Attributes:
        policy: what counts as equal.
        markers: what the prompt asks the model to write before its answer, such as `("####",)`.
    """

    policy: MathPolicy = COMPETITION
    markers: tuple[str, ...] = DEFAULT_MARKERS
    id: ClassVar[str] = "math-v1"

    def __post_init__(self) -> None:
        if isinstance(self.markers, str) or not all(isinstance(m, str) and m.strip() for m in self.markers):
            raise UsageError(f"markers={self.markers!r}: a tuple of non-empty strings, such as ('####',)")
        object.__setattr__(self, "markers", tuple(self.markers))  # a list would not hash

    def verify(self, completion: str, reference: Reference) -> Verdict:
        """Hold the completion against the reference.  Any text at all gets a verdict.

        Raises:
            DataError: the reference cannot be read; the message names it.
            Unscored: no symbolic worker can be started here.
        """
        if not isinstance(completion, str):
            raise UsageError(f"the completion is a {type(completion).__name__}; it must be a string")
        trusted = _reference_text(reference)
        right = _reference_form(trusted)
        found = extract(completion, markers=self.markers)
        if found is None:
            return Verdict(Outcome.UNPARSED, why="no-answer")
        if flaw := self._flaw(found):
            return flaw
        decision = self._decide(found.answer, trusted, right)
        return Verdict(Outcome.CORRECT if decision.equal else Outcome.WRONG, why=decision.reason, answer=found.answer)

    def _flaw(self, found: Extraction) -> Verdict | None:
        if found.flaw == "hedged" and self.policy.several_boxes == "hedge" and not self._all_say_the_same(found):
            return Verdict(Outcome.WRONG, why="hedged: several boxes in one statement differ", answer=found.answer)
        if found.flaw in ("empty-box", "unclosed-box"):
            return Verdict(Outcome.UNPARSED, why=found.flaw)
        if found.method == "phrase" and not self.policy.unboxed:
            return Verdict(Outcome.UNPARSED, why="unboxed: an answer was stated outside a box", answer=found.answer)
        return None

    def _all_say_the_same(self, found: Extraction) -> bool:
        r"""`\boxed{1\frac12} or \boxed{\frac32}` is one answer in two spellings."""
        return all(compare(other, found.answer, self.policy) for other in found.others)

    def _decide(self, answer: str, trusted: str, right: Form) -> Decision:
        limit = too_long(answer)
        folded = "" if limit else fold(answer)
        if limit := limit or exceeded(folded):
            return Decision(False, f"limit: {limit}")
        if not folded:
            return Decision(False, "unreadable: nothing but punctuation")
        decision = decide(read(folded), right, self.policy)
        if decision.equal is not None or decision.reason != "undecided":
            return decision
        if not self.policy.symbolic:
            return Decision(False, "undecided: the policy has no symbolic engine")
        return symbolic.decide(answer, trusted, self.policy)


def _reference_text(reference: Reference) -> str:
    """The reference as text.

    Raises:
        DataError: not a text or number, or one that has no value.
    """
    if isinstance(reference, bool) or not isinstance(reference, str | int | Fraction | float | Decimal):
        raise DataError(f"the reference is {reference!r}; it must be a text or a number")
    if isinstance(reference, str):
        boxed = extract(reference) if "\\boxed" in reference or "\\fbox" in reference else None
        text = boxed.answer if boxed else reference
        if not text.strip():
            raise DataError(f"the reference {reference!r} is empty")
        return text
    if (isinstance(reference, float) and not math.isfinite(reference)) or (
        isinstance(reference, Decimal) and not reference.is_finite()
    ):
        raise DataError(f"the reference is {reference!r}; it must be finite")
    return _number_text(reference)


def _number_text(reference: int | Fraction | float | Decimal) -> str:
    try:
        return repr(reference) if isinstance(reference, float) else str(reference)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        raise DataError("the reference is an integer of more than 4,300 digits") from None


@lru_cache(maxsize=4096)
def _reference_form(reference: str) -> Form:
    folded = "" if too_long(reference) else fold(reference)
    if limit := too_long(reference) or exceeded(folded):
        raise DataError(f"the reference {reference[:80]!r} is beyond a limit: {limit}")
    form = read(folded)
    if isinstance(form, Flawed):
        raise DataError(f"the reference {reference[:200]!r} has no value: {form.reason}")
    return form
