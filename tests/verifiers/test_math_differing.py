"""Where two formulas part: a point with both values, for people."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.verifiers.math import MathPolicy, MathVerifier
from rlvr.verifiers.math.differing import differing_point


@pytest.mark.parametrize(
    ("answer", "reference", "point", "values"),
    [
        ("x^2 - 1", "(x-1)(x+2)", {"x": "2"}, ("3", "4")),
        (r"\frac{x}{2}", "x/3", {"x": "2"}, ("1", "2/3")),
        (r"\sqrt{2}", "1.41", {}, ("1.414213562", "141/100")),
        ("a+b", "a-b", {"a": "2", "b": "3"}, ("5", "-1")),
        (r"\ln(-x)", "x", {"x": "-1"}, ("0", "-1")),
        (r"\sum_{k=1}^{n} k", "n^2", {"n": "2"}, ("3", "4")),
    ],
)
def test_a_point_shows_the_difference(answer, reference, point, values):
    found = differing_point(answer, reference)
    assert (found.point, (found.answer, found.reference)) == (point, values)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("x+1", "1+x"),
        ("5", "5.0"),
        ("(1,2)", "[1,2)"),
        ("Paris", "5"),
        ("", "3"),
        (r"\begin{pmatrix}1\end{pmatrix}", r"\begin{pmatrix}2\end{pmatrix}"),
        ("2^{2^{2^{2^{100}}}}", "3"),
        ("{" * 5000, "3"),
    ],
)
def test_none_where_there_is_none_or_none_can_be_found(answer, reference):
    assert differing_point(answer, reference) is None


FORMULA = st.recursive(
    st.sampled_from(["x", "y", "2", "3", r"\pi", "-1", "1/2"]),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from("+-*^"), part).map(lambda it: f"({it[0]}{it[1]}{it[2]})"),
        st.tuples(st.sampled_from([r"\sqrt", r"\sin", r"\ln"]), part).map(
            lambda it: f"{it[0]}{{{it[1]}}}"
        ),
    ),
    max_leaves=6,
)


IN_PROCESS = MathVerifier(MathPolicy(symbolic=False))


@given(a=FORMULA, b=FORMULA)
def test_a_difference_is_never_one_of_equal_formulas(a: str, b: str):
    """What the verifier calls equal has no such point."""
    if differing_point(a, b) is not None:
        assert not IN_PROCESS.compare(a, b).correct


@given(a=st.text(max_size=200), b=st.text(max_size=200))
def test_any_text_is_taken(a: str, b: str):
    differing_point(a, b)


def test_it_is_bounded():
    began = time.process_time()
    for text in (
        "9" * 100_000,
        "x^" * 2000 + "2",
        r"\sum_{k=1}^{10^9} k^k",
        "(" * 900 + "x" + ")" * 900,
    ):
        differing_point(text, "x")
    assert time.process_time() - began < 4
