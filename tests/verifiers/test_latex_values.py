"""Powers: exact while they are short, a ball beyond, refused where no number of digits would do."""

import pytest
from flint import acb, arb, fmpq

from rlvr.verifiers.math.latex.values import MOST_BITS, TooLarge, Undefined, Underflow, power_of


@pytest.mark.parametrize(
    ("base", "exponent", "power"),
    [
        (2, 10, 1024),
        (fmpq(-2, 3), -3, fmpq(-27, 8)),
        (0, 1, 0),
        (1, 10**30, 1),
        (-1, 10**30, 1),
        (-1, 10**30 + 1, -1),
        (-1, -(10**30) - 1, -1),
    ],
)
def test_short_powers_and_signs_are_exact(base, exponent, power):
    """(-1)^n is, whatever the length of n."""
    result = power_of(fmpq(base), fmpq(exponent), real=True)
    assert isinstance(result, fmpq)
    assert result == power


@pytest.mark.parametrize("base", [2, -2])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_power_is_exact_up_to_a_length(base, sign):
    """2 has two bits: its power of 20,000 is the last exact one, and a ball holds the next."""
    last = MOST_BITS // 2
    for exponent, kind in ((last, fmpq), (last + 1, arb)):
        power = power_of(fmpq(base), fmpq(sign * exponent), real=True)
        assert isinstance(power, kind)
        assert arb(power).contains(arb(base) ** (sign * exponent))


@pytest.mark.parametrize(
    ("base", "exponent", "power"),
    [(arb(-2), 3, arb(-8)), (acb(0, 1), 3, acb(0, -1)), (arb(0), 2, fmpq(0))],
)
def test_powers_of_balls(base, exponent, power):
    """A ball again; one that is taken for 0 has the power of 0."""
    result = power_of(base, fmpq(exponent), real=True)
    assert type(result) is type(power)
    assert result == power


@pytest.mark.parametrize(
    ("base", "exponent", "error"),
    [
        (0, 0, Undefined),
        (0, -1, Undefined),
        (2, 10**30, TooLarge),
        (2, -(10**30), Underflow),
    ],
)
def test_powers_without_a_value_that_can_be_held(base, exponent, error):
    """As a limit 0^0 may be anything."""
    with pytest.raises(error):
        power_of(fmpq(base), fmpq(exponent), real=True)
