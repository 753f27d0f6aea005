"""Other readings of a form, drawn: sums of unit vectors beside tuples, inverse functions in another letter."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlvr.verifiers.math import MathPolicy, MathVerifier
from rlvr.verifiers.math.forms import Form, Named, Quantity
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.shapes import components, renamed_inverse

VERIFIER = MathVerifier(MathPolicy(form="any"))
STEADY = settings(derandomize=True, deadline=None, max_examples=60)
AXES = "ijk"
MARKS = [
    r"\mathbf{#}",
    r"\mathbf #",
    r"\hat{#}",
    r"\hat{\mathbf{#}}",
    r"\vec{#}",
    r"\boldsymbol{#}",
    "#",
]
COORDINATES = st.lists(
    st.fractions(min_value=-20, max_value=20, max_denominator=9), min_size=2, max_size=3
)
LETTERS = st.sampled_from("xtuwz")


def form(text: str) -> Form:
    return read(text)


def written(x: Fraction) -> str:
    whole = x.denominator == 1
    size = str(abs(x)) if whole else rf"\frac{{{abs(x.numerator)}}}{{{x.denominator}}}"
    return f"-{size}" if x < 0 else size


def vector(coordinates: list[Fraction], mark: str, order: list[int]) -> str:
    """The sum of the axes that are not 0; a factor of 1 is left out."""
    terms = []
    for axis in order:
        x = coordinates[axis]
        if x != 0:
            factor = {1: "", -1: "-"}.get(x, written(x))
            terms.append(
                (factor if factor[:1] == "-" else f"+{factor}") + mark.replace("#", AXES[axis])
            )
    return "".join(terms).removeprefix("+")


@STEADY
@given(COORDINATES, st.sampled_from(MARKS), st.data())
def test_a_sum_of_unit_vectors_has_the_coordinates_of_its_tuple(coordinates, mark, data):
    """In any order of its terms, and no other coordinates; `3 + i` may be a number, so plain
    letters count only beside a j."""
    order = data.draw(st.permutations(range(len(coordinates))))
    assume(any(coordinates) and (mark != "#" or coordinates[1]))
    text = vector(coordinates, mark, order)
    read_items = components(form(text), len(coordinates))
    assert read_items is not None
    assert [item.value for item in read_items.items] == coordinates
    right = f"({','.join(map(written, coordinates))})"
    assert VERIFIER.compare(text, right).correct
    assert VERIFIER.compare(right, text).correct
    axis = data.draw(st.integers(0, len(coordinates) - 1))
    changed = [x + (n == axis) for n, x in enumerate(coordinates)]
    assert not VERIFIER.compare(text, f"({','.join(map(written, changed))})").correct


@pytest.mark.parametrize(
    ("text", "size", "why"),
    [
        ("5", 2, "no unit vector"),
        (r"2\mathbf{i}+3\mathbf{i}", 2, "an axis twice"),
        (r"\hat{i}+\hat{k}", 2, "an axis beyond the plane"),
        (r"\hat{i}+2j", 2, "two notations"),
        ("3i", 2, "a number"),
        ("3+4i", 2, "a number"),
        (r"\hat{i}+\hat{j}", 4, "more coordinates than axes"),
        (r"\hat{i}+\hat{j}", 1, "one coordinate"),
        (r"2\hat{i}+3\hat{j}+1", 2, "a number behind it"),
        (r"2\hat{i}3\hat{j}", 2, "no sign between them"),
        (r"(1+\hat{i})+\hat{j}", 2, "brackets that do not match"),
    ],
)
def test_what_is_no_sum_of_unit_vectors(text, size, why):
    """The reason stands beside each."""
    assert components(form(text), size) is None, why


@STEADY
@given(LETTERS, LETTERS, st.integers(1, 9), st.integers(1, 9), st.sampled_from(["f", "g", "h"]))
def test_an_inverse_function_has_its_body_in_the_letter_of_the_expression(old, new, a, b, name):
    r"""f^{-1}(y) = 3y - 1 answers 3x - 1, whatever its letter, and no other body."""
    assume(old != new)
    answer, reference = rf"{name}^{{-1}}({old})={a}{old}-{b}", f"{a}{new}-{b}"
    named, body = form(answer), form(reference)
    assert isinstance(named, Named)
    renamed = renamed_inverse(named, body)
    assert isinstance(renamed, Quantity)
    assert renamed.text.replace(" ", "") == reference
    assert VERIFIER.compare(answer, reference).correct
    assert not VERIFIER.compare(answer, f"{a}{new}-{b + 1}").correct


@pytest.mark.parametrize(
    ("answer", "other", "why"),
    [
        ("f(y)=y-1", "x-1", "no inverse"),
        ("f^{-1}(y)=y-1", "y-1", "the letter is the same"),
        ("f^{-1}(y)=y-a", "x-a", "another letter beside it"),
        ("f^{-1}(y)=3", "x", "it does not depend on its letter"),
        ("f^{-1}(y)=y-1", "7", "nothing to rename to"),
        ("f^{-1}(y)=y-1", "(x,1)", "no expression"),
    ],
)
def test_what_is_no_inverse_to_rename(answer, other, why):
    """The reason stands beside each."""
    named = form(answer)
    assert isinstance(named, Named)
    assert renamed_inverse(named, form(other)) is None, why
