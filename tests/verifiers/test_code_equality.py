"""Equality of values: Python's own, and the leniencies by name."""

import math
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import UsageError
from rlvr.verifiers.code.cases import CallCase
from rlvr.verifiers.code.equality import JSON, STRICT, Equality, show_result
from rlvr.verifiers.code.reading import judged_replies

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PLAIN, PLAIN)
def test_strict_equality_is_pythons(one, other):
    """So that a call judged here says what the assert would have said."""
    assert STRICT.holds(one, other) == (one == other)


@given(PLAIN)
def test_a_copy_is_equal_unless_nan_is_in_it(value):
    """Identity, which Python's containers go by, does not survive the way here."""

    def copied(v):
        if isinstance(v, (list, tuple)):
            return type(v)(map(copied, v))
        if isinstance(v, dict):
            return {k: copied(x) for k, x in v.items()}
        return float(repr(v)) if isinstance(v, float) else v

    assert STRICT.holds(copied(value), value) == ("nan" not in repr(value).replace("'nan", "'"))
    assert Equality(nan=True).holds(copied(value), value)


def test_pythons_own_leniencies_stay():
    """Asserts have them: the paths agree, and APPS compares with == too."""
    Point = namedtuple("Point", "x y")
    pairs = [
        (1, True), (1.0, 1), (Decimal(1), 1), (Fraction(1, 2), 0.5), (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}), (Point(1, 2), (1, 2)), ({1}, frozenset({1})), (b"a", bytearray(b"a")),
        (-0.0, 0.0),
    ]  # fmt: skip
    assert all(STRICT.holds(*pair) and STRICT.holds(*pair[::-1]) for pair in pairs)
    others = [
        ([1], (1,)),
        ("1", 1),
        (b"a", "a"),
        (deque([1]), [1]),
        (None, False),
        ([], None),
        (0, None),
        ({}, []),
    ]
    assert not any(STRICT.holds(*pair) for pair in others)


def test_lists_and_tuples_are_one_where_json_stands_for_both():
    """At any depth, also in dicts; but not for sets, strings or anything else."""
    assert JSON.holds((1, [2, (3,)], {"a": (4,)}), [1, [2, [3]], {"a": [4]}])
    assert not JSON.holds((1, 2), [1])
    assert not JSON.holds({1}, [1])
    assert not JSON.holds("ab", ["a", "b"])
    assert not JSON.holds(deque([1]), [1])


def test_an_int_is_its_text_as_a_key_where_json_has_no_other():
    """One way only, at any depth, and no two keys become one."""
    assert JSON.holds([{1: {-2: (3,)}}], [{"1": {"-2": [3]}}])
    assert not JSON.holds({1: 2, "1": 2}, {"1": 2})
    assert not JSON.holds({True: 2}, {"1": 2})
    assert not JSON.holds({10**5000: 2}, {"1": 2})
    assert not STRICT.holds({1: 2}, {"1": 2})


def test_no_leniency_lets_a_large_number_pass_for_its_neighbour():
    """2**53 + 1 and 2**53 are one as floats; equality is not asked of floats."""
    assert not JSON.holds(2**53 + 1, 2.0**53)
    assert not Equality(nan=True).holds(2**53 + 1, 2.0**53)
    assert not Equality(rel_tol=1e-3).holds(10**400, 10**401)
    assert Equality(rel_tol=1e-3).holds(10**400, 10**400)


def test_tolerances_reach_into_containers():
    """Either is enough; NaN and infinities are near nothing."""
    near = Equality(abs_tol=1e-6, rel_tol=1e-6)
    assert near.holds([0.1 + 0.2, {"a": (1e9,)}], [0.3, {"a": (1e9 + 1,)}])
    assert not near.holds(0.3001, 0.3)
    assert not near.holds(True, 1.0000001)
    assert not near.holds(math.nan, math.nan)
    assert not near.holds(math.inf, 1e308)
    assert near.holds(math.inf, math.inf)


def test_one_in_a_list_stands_for_itself_where_asked():
    """Some rows of APPS wrap every value."""
    single = Equality(sequences=True, single=True)
    assert single.holds(3, [3])
    assert single.holds([3], [3])
    assert single.holds((1, 2), [[1, 2]])
    assert not single.holds(3, [3, 3])
    assert not JSON.holds(3, [3])


class Array:
    """Has no one truth, as numpy's."""

    def __eq__(self, other):
        return self

    def __bool__(self):
        raise ValueError("ambiguous")

    __hash__ = None


def test_values_that_cannot_be_compared_are_wrong_unless_the_reference_is_at_fault():
    """An array has no one truth, whatever the program says."""
    for value, expected, verdict in (
        (b'{"decimal":"NaN"}', 1.5, "WA"),
        (b'{"fraction":[1,2]}', Array(), "IE"),
        (b"1", Array(), "IE"),
        (b"[0]", Array(), "IE"),
    ):
        reply = b'[0,"value",' + value + b"]\n"
        [(found, why, _)] = judged_replies([CallCase("f", expected=expected)], reply, 0)
        assert found == verdict, why


def test_values_are_shown_in_little_room():
    """An int of more than 4300 digits has no text, and a Counter is sorted for its own."""
    assert show_result([1, "a"]) == "[1, 'a']"
    assert len(show_result("x" * 10**6)) < 250
    assert show_result(10**5000) == "a int that cannot be shown"
    assert show_result(Counter({1: Decimal("NaN"), 2: 1})) == "a Counter that cannot be shown"
    assert show_result([[0] * 50] * 50) == "a list of 50 items"
    assert show_result(set(range(10**6))) == "a set of 1000000 items"
    assert show_result({"k": "x" * 10**6}) == "a dict of 1 items"


def test_a_tolerance_is_a_number():
    """NaN would refuse everything in silence."""
    with pytest.raises(UsageError, match="rel_tol is"):
        Equality(rel_tol=math.nan)
