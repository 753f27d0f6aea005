"""When a reference may have been rounded, and by how much an answer may then differ from it.

This is the one comparison that is not symmetric: only the reference may be rounded.
"""

from __future__ import annotations

from fractions import Fraction

from rlvr.verifiers.math.forms import Quantity
from rlvr.verifiers.math.policy import MathPolicy

__all__ = ["bounds", "is_rounded", "within"]

# 0.33 may be 33/100; with three digits hardly any other exact number comes as near by chance.
_FEWEST_DIGITS = 3
# 12.5, 0.75 and 0.125 are halves, quarters and eighths: nothing was rounded.
_EXACT = frozenset((1, 2, 4, 8))


def bounds(
    answer: Quantity, reference: Quantity, policy: MathPolicy
) -> tuple[Fraction, Fraction] | None:
    """The closed interval around the reference's number in which the answer's must lie; None where
    it must be equal.

    Both numbers are meant as they stand in `value`, without percent signs and units.
    """
    # Rounding and tolerance side by side: the wider interval holds.
    rounded = _rounding_range(answer, reference, policy)
    if not policy.tolerance or reference.value is None:
        return rounded
    # From its digits, as 0.1 is no tenth in binary.
    value, distance = Fraction(reference.value), Fraction(str(policy.tolerance))
    if policy.tolerance_is == "relative":
        distance *= abs(value)
    low, high = rounded or (value, value)
    return min(low, value - distance), max(high, value + distance)


def _rounding_range(
    answer: Quantity, reference: Quantity, policy: MathPolicy
) -> tuple[Fraction, Fraction] | None:
    places, value = reference.places, reference.value
    if policy.rounding == "exact" or not places or value is None:
        return None
    place = Fraction(1, 10**places)
    if policy.rounding == "reference":
        # 12.5 for 12.46: a shorter decimal says less than the reference.
        is_exact = answer.places is not None and answer.places < places
    else:
        # A decimal answer has been rounded by its writer, and is judged as it stands.
        is_exact = bool(answer.places) or _is_decimal(answer) or not is_rounded(value, places)
    # Not cut off: 3.142 is no 22/7 = 3.14285…, which is 3.143.
    return None if is_exact else (value - place / 2, value + place / 2)


def is_rounded(value: Fraction | int, places: int | None) -> bool:
    """True for a decimal that stands for a longer one: 0.458, but not 0.33, 12.5 or 0.125.

    Args:
        value: what it is worth.
        places: how many digits stand behind its point.
    """
    if not places or value.denominator in _EXACT:
        return False
    # Significant digits of a decimal with so many places.
    return len(str(abs(int(value * 10**places))).lstrip("0")) >= _FEWEST_DIGITS


def within(x: Fraction | int, answer: Quantity, reference: Quantity, policy: MathPolicy) -> bool:
    """True if the answer's number x is near enough."""
    allowed = bounds(answer, reference, policy)
    return allowed is not None and allowed[0] <= x <= allowed[1]


def _is_decimal(answer: Quantity) -> bool:
    """12.46 written as 623/50 is still no more exact than 12.5."""
    if answer.value is None:
        return False
    denominator = Fraction(answer.value).denominator
    # A fraction whose denominator has no other primes ends as a decimal.
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1
