"""Other readings of a form, drawn: sums of unit vectors beside tuples, inverse functions in another letter."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlvr.verifiers.math import MathPolicy, MathVerifier
from rlvr.verifiers.math.forms import Form, Named, Quantity
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.shapes import components, renamed_function, renamed_inverse
from rlvr.verifiers.math.statement import tree_of

VERIFIER = MathVerifier(MathPolicy(form="any"))
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


@given(LETTERS, LETTERS, st.integers(1, 9), st.integers(1, 9), st.sampled_from(["f", "g", "h"]))
def test_an_inverse_function_has_its_body_in_the_letter_of_the_expression(old, new, a, b, name):
    r"""f^{-1}(y) = 3y - 1 answers 3x - 1, whatever its letter, and no other body."""
    assume(old != new)
    answer, reference = rf"{name}^{{-1}}({old})={a}{old}-{b}", f"{a}{new}-{b}"
    named, body = form(answer), form(reference)
    assert isinstance(named, Named)
    renamed = renamed_inverse(named, body)
    assert isinstance(renamed, Quantity)
    assert tree_of(renamed) == tree_of(body)
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


@pytest.mark.parametrize(
    ("answer", "reference", "same"),
    [
        ("f(m)=2m", "f(n)=2n", True),
        ("f(x,y)=x-y", "f(u,v)=u-v", True),
        ("a_m=2m", "a_n=2n", True),
        ("a(m)=2m", "a_n=2n", True),
        ("y=2x", "y(x)=2x", True),
        ("y=2x", "f(x)=2x", True),
        ("f(m)=2m", "g(n)=2n", False),
        ("f(m)=2mn", "f(n)=2n^2", False),
        ("f(2)=5", "f(3)=5", False),
        ("a_1=5", "a_2=5", False),
        ("a=5", "a_n=5", False),
        ("xy=5", "xz=5", False),
    ],
)
def test_a_function_may_have_another_letter(answer, reference, same):
    """Its variables and indices are names of its own; a number or another head is none of them."""
    named, other = form(answer), form(reference)
    assert isinstance(named, Named)
    assert isinstance(other, Named)
    assert (renamed_function(named, other) is not None) is same
    assert VERIFIER.compare(answer, reference).correct is same


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (r"1\pm\sqrt{19}", r"1-\sqrt{19},1+\sqrt{19}", True),
        (r"\frac{-b\pm\sqrt{b^2-4c}}{2}", r"-\frac b2\pm\frac{\sqrt{b^2-4c}}{2}", True),
        (r"\pm\sqrt8", r"\{2\sqrt2,-2\sqrt2\}", True),
        (r"\pm\infty", r"\infty, -\infty", True),
        (r"\pm 5 \text{ cm}", r"5 \text{ cm}, -50 \text{ mm}", True),
        (r"(\pm1,2)", "(1,2),(-1,2)", True),
        (r"\pm1\pm2x", "1+2x,1-2x,-1+2x,-1-2x", True),
        (r"x\pm y\mp z", "x+y-z,x-y+z", True),
        (r"1\mp\sqrt2", r"1\pm\sqrt2", True),
        (r"x\pm y\pm z\pm t", "x+y+z+t,x-y-z-t", True),
        (r"1\pm\sqrt{19}", r"1+\sqrt{19}", False),
        (r"\pm\sqrt8", r"\{2\sqrt2\}", False),
        (r"1\pm\sqrt2", r"2\pm\sqrt2", False),
        (r"(\pm1,2)", "(1,2),(-1,3)", False),
        (r"(\pm x,2)", r"(\pm y,2)", False),
        (r"\pm\infty", r"\infty", False),
        (r"x\pm y\mp z", "x+y+z,x-y-z", False),
    ],
)
def test_a_double_sign_is_its_values(a, b, same):
    """One and two are free; more, or one that is turned round, go together."""
    assert VERIFIER.compare(a, b).correct is same
    assert VERIFIER.compare(b, a).correct is same


@pytest.mark.parametrize(
    ("answer", "reference", "same"),
    [
        ("b>a>c", "b, a, c", True),
        ("b, a, c", "b<a<c", True),
        ("b<a<c", "b, a, c", True),
        (r"\beta<\alpha<\gamma", r"\beta, \alpha, \gamma", True),
        ("b<a<d<c", "b,a,d,c", True),
        ("b<a<d<c", "a,b,d,c", False),
        ("b<a<c", "a, b, c", False),
        ("b<a>c", "b, a, c", False),
        ("n(n+1)=12", "12", False),
        (r"\binom n2=10", "10", False),
        ("2a_1=10", "10", False),
        ("a_1+a_2=7", "7", True),
        ("n(A)=7", "7", True),
        (r"\binom52=10", "10", True),
        (r"S=\frac{n(n+1)}{2}", r"\sum_{k=1}^n k", True),
    ],
)
def test_what_a_relation_states(answer, reference, same):
    """A ranking states an order, an equation the value of what it measures, and of one unknown
    nothing before it is solved."""
    assert VERIFIER.compare(answer, reference).correct is same


@pytest.mark.parametrize(
    ("answer", "reference", "same"),
    [
        (r"\{(2,1)\}", "(2,1)", True),
        ("(1,2)", r"\{(1,2)\}", True),
        ("(x,y)=(2,1)", r"\{(2,1)\}", True),
        (r"\{(1,2,3)\}", "(1,2,3)", True),
        (r"\{(2,1),(3,4)\}", "(2,1)", False),
        (r"\{(3,1)\}", "(2,1)", False),
        (r"\{\{2,1\}\}", "(2,1)", False),
        ("1,234", "1, 234", True),
        ("1, 234, 567", "1,234,567", True),
        ("1, 235", "1,234", False),
        (r"12\pi cm^2", r"12\pi \text{ cm}^2", True),
        (r"12\pi \text{ cm}^2", r"12\pi cm^2", True),
        (r"12\pi cm^2", r"12\pi \text{ m}^2", False),
        ("5 m", r"5 \text{ meters}", True),
        ("5 m", r"5 \text{ seconds}", False),
    ],
)
def test_other_readings_of_one_text(answer, reference, same):
    """A set of one point is the point, unless an interval may be meant; commas may group digits or
    separate numbers; letters behind a number may be a unit."""
    assert VERIFIER.compare(answer, reference).correct is same


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("2^2=4", "2,-2"),
        ("={nc=3}", r"2\text{ hours}"),
        (r"A^{-1}=\begin{pmatrix}1&0\\0&0.5\end{pmatrix}", "2n+1"),
    ],
)
def test_an_equation_of_another_shape_is_another_answer(answer, reference):
    """Its sides, names and letters need not be what the reference calls for: each raised."""
    assert not VERIFIER.compare(answer, reference).correct
