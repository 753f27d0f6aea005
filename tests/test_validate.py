"""Checks of what a caller gives: what passes, and what the error says of what does not."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import UsageError
from rlvr.validate import (
    is_number,
    is_whole,
    nearest,
    require_number,
    require_one_of,
    require_optional_whole,
    require_seconds,
    require_whole,
)


def said(check, *args, **options) -> str:
    """The one line of the refusal."""
    with pytest.raises(UsageError) as caught:
        check(*args, **options)
    return str(caught.value)


def test_whole_numbers_of_any_make_and_no_others():
    """numpy's integers are whole; True, 3.0 and "3" are slips."""
    assert all(map(is_whole, (3, -1, 10**30, np.int64(3), np.uint8(3))))
    assert not any(map(is_whole, (True, 3.0, np.float64(3), "3", None)))


def test_finite_numbers_and_no_others():
    """NaN compares as false with every limit, so it has to be refused by itself."""
    assert all(map(is_number, (3, 0.5, Fraction(1, 2), np.float32(0.5))))
    assert not any(map(is_number, (True, math.nan, math.inf, -math.inf, 10**400, 1j, "1", None)))


def test_a_whole_number_comes_back_as_an_int():
    """json cannot write numpy's."""
    found = require_whole("steps", np.int64(3), 1)
    assert (found, type(found)) == (3, int)
    assert [require_whole("k", k, 1, 4) for k in (1, 4)] == [1, 4]


def test_a_whole_number_outside_its_limits_is_refused():
    """Name, value, rule, and the way out where there is one."""
    assert (
        said(require_whole, "steps", 0, 1) == "steps is 0; it must be a whole number of at least 1"
    )
    assert said(require_whole, "k", 5, 1, 4) == "k is 5; it must be a whole number from 1 to 4"
    assert said(require_whole, "n", 1.5, 0, hint="0 for none") == (
        "n is 1.5; it must be a whole number of at least 0; 0 for none"
    )
    assert said(require_whole, "n", True, 0).startswith("n is True; ")
    assert said(require_whole, "n", "3", 0).startswith("n is '3'; ")


def test_none_passes_where_it_may():
    """And the rule says what it stands for."""
    assert require_optional_whole("limit", None, 1) is None
    assert require_optional_whole("limit", 2, 1) == 2
    assert said(require_optional_whole, "limit", 0, 1, none="all") == (
        "limit is 0; it must be a whole number of at least 1, or None for all"
    )


def test_limits_of_a_number_are_allowed_or_not():
    """`least` and `most` belong to what is allowed, `above` and `below` do not."""
    assert [require_number("p", p, 0, 1) for p in (0, 0.5, 1)] == [0, 0.5, 1]
    assert require_number("lr", 0.1, above=0) == 0.1
    assert (
        said(require_number, "p", 1.5, 0, 1)
        == "p is 1.5; it must be a number of at least 0 and of at most 1"
    )
    assert said(require_number, "lr", 0, above=0) == "lr is 0; it must be a number above 0"
    assert said(require_number, "beta", 1.0, 0, below=1) == (
        "beta is 1.0; it must be a number of at least 0 and below 1"
    )
    assert said(require_number, "x", math.nan) == "x is nan; it must be a finite number"
    assert (
        said(require_number, "x", math.inf, 0)
        == "x is inf; it must be a finite number of at least 0"
    )
    assert said(require_number, "x", 2.0, most=1, hint="or leave it out").endswith(
        "of at most 1, or leave it out"
    )


def test_seconds_may_be_infinite_and_not_zero():
    """Infinity is no limit; at NaN no clock would ever run out."""
    assert (require_seconds("wall_s", math.inf), require_seconds("wall_s", 0.5)) == (math.inf, 0.5)
    assert require_seconds("wall_s", None, or_none=True) is None
    for wrong in (0, -1, math.nan, True, "1", None):
        assert said(require_seconds, "wall_s", wrong).endswith(
            "it must be a number of seconds above 0"
        )
    assert said(require_seconds, "wall_s", 0, or_none=True).endswith("above 0, or None")


def test_a_choice_that_is_none_names_the_nearest():
    """A slip of one letter is set right; a word of another kind is not."""
    kinds = ("keep", "mask", "soft")
    assert require_one_of("overlong", "mask", kinds) == "mask"
    assert require_one_of("overlong", None, kinds, or_none=True) is None
    assert said(require_one_of, "overlong", "msk", kinds) == (
        "overlong is 'msk'; it must be one of 'keep', 'mask', 'soft'; did you mean 'mask'?"
    )
    assert said(require_one_of, "overlong", None, iter(kinds)).endswith(
        "one of 'keep', 'mask', 'soft'"
    )
    assert (nearest("dappo", ["grpo", "dapo"]), nearest("x", ["grpo"])) == (
        "; did you mean 'dapo'?",
        "",
    )


def test_a_long_value_is_cut():
    """A completion given by mistake must not fill the screen."""
    text = said(require_whole, "steps", "x" * 100_000, 1)
    assert text.startswith("steps is ")
    assert len(text) < 400


ANYTHING = st.one_of(
    st.integers(-5, 5), st.floats(-5, 5), st.sampled_from([math.nan, math.inf, -math.inf]),
    st.booleans(), st.none(), st.text(max_size=3), st.lists(st.integers(), max_size=2),
    st.integers(-5, 5).map(np.int64), st.fractions(-5, 5),
)  # fmt: skip
"""What a caller may give where a number is asked for."""


def passes(check, *args, **options) -> bool:
    try:
        check(*args, **options)
    except UsageError as error:
        line = str(error)
    else:
        return True
    assert line.startswith("value is ")
    assert "; it must be" in line
    return False


@given(ANYTHING, st.integers(-3, 3), st.none() | st.integers(-3, 3))
def test_a_whole_number_passes_within_its_limits_and_nothing_else(value, least, most):
    """Whatever was given, one line names it."""
    fits = isinstance(value, int | np.int64) and not isinstance(value, bool) and value >= least
    expected = fits and (most is None or value <= most)
    assert passes(require_whole, "value", value, least, most) == expected
    assert passes(require_optional_whole, "value", value, least, none="all") == (
        fits or value is None
    )


@given(ANYTHING, st.integers(-3, 3), st.booleans())
def test_a_number_passes_within_its_limits_and_nothing_else(value, limit, inclusive):
    """`least` and `most` are allowed, `above` and `below` are not; NaN and infinity never."""
    fits = is_number(value)
    low, high = ("least", "most") if inclusive else ("above", "below")
    over = fits and (value >= limit if inclusive else value > limit)
    under = fits and (value <= limit if inclusive else value < limit)
    assert passes(require_number, "value", value, **{low: limit}) == over
    assert passes(require_number, "value", value, **{high: limit}) == under


@given(ANYTHING)
def test_seconds_are_above_0(value):
    """Infinity is no limit."""
    real = is_number(value) or (isinstance(value, float) and value == math.inf)
    assert passes(require_seconds, "value", value) == (real and value > 0)


@given(st.text("abcdefgh", min_size=4, max_size=12), st.data())
def test_a_letter_left_out_is_no_other_word(word, data):
    """The word itself is what was meant, whatever else there is of other letters."""
    at = data.draw(st.integers(0, len(word) - 1))
    assert nearest(word[:at] + word[at + 1 :], ["xyz", word, "uvw"]) == f"; did you mean {word!r}?"
