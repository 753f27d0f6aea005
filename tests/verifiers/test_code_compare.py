"""Comparators: what counts as the same output."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import UsageError
from rlvr.verifiers.code.compare import (
    COMPARATORS,
    Floats,
    comparator,
    exact,
    lines,
    tokens,
    unordered,
)

TEXT = st.text(alphabet="ab1. \n\t\r", max_size=40)


def same(compare, output: str, expected: str) -> bool:
    """True or not; a text is a reason why not."""
    said = compare("", output, expected)
    assert isinstance(said, (bool, str))
    return said is True


@given(TEXT)
def test_every_comparator_accepts_the_expected_output_itself(text: str):
    """Whatever it is."""
    assert all(same(compare, text, text) for compare in COMPARATORS.values())


@given(TEXT, TEXT)
def test_comparators_are_ordered_by_leniency(output: str, expected: str):
    """exact ⊂ lines ⊂ tokens ⊂ floats, and lines ⊂ unordered."""
    chain = [exact, lines, tokens, Floats()]
    said = [same(compare, output, expected) for compare in chain]
    assert said == sorted(said)
    assert same(unordered, output, expected) or not same(lines, output, expected)


@given(TEXT, TEXT)
def test_each_comparator_says_what_its_one_line_definition_says(output: str, expected: str):
    """A slow and simple definition beside each fast one."""

    def bare(text: str) -> list[str]:
        return [line.rstrip(" \t\r\n\f\v") for line in text.rstrip(" \t\r\n\f\v").split("\n")]

    assert same(exact, output, expected) == (output == expected)
    assert same(lines, output, expected) == (bare(output) == bare(expected))
    assert same(tokens, output, expected) == (output.split() == expected.split())
    assert same(unordered, output, expected) == (sorted(bare(output)) == sorted(bare(expected)))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("1\n", "1"),
        ("1 \r\n2\r\n", "1\n2\n"),
        ("\n", ""),
        ("1\n\n\n", "1"),
        ("", "  \n"),
        ("a\t\nb", "a\nb"),
    ],
)
def test_lines_forgives_what_nobody_sees(output: str, expected: str):
    """Space at the ends of lines, and blank lines at the end."""
    assert lines("", output, expected) is True


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (" 1", "1"),
        ("1\n\n2", "1\n2"),
        ("1", "1\n2"),
        ("1\n2", "1"),
        ("1  2", "1 2"),
        ("YES", "Yes"),
        ("1\u00a0", "1"),
    ],
)
def test_lines_keeps_what_a_reader_sees(output: str, expected: str):
    """The first line alone does not pass, nor what only Unicode calls a space."""
    assert lines("", output, expected) is not True


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("0.3333333", "0.333333333"),  # by 3.3e-8
        ("1e3", "1000.0"),
        ("5.0", "5"),
        ("4.9999999", "5"),
        ("1000000.5", "1000000.0"),  # by 5e-7 of it
        ("+7", "7"),
        ("007", "7"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("-0.0", "0"),
        ("ok  1.0\n2.0", "ok 1.00 2.00"),
        ("nan", "nan"),  # a text like any other
    ],
)
def test_floats_forgives_a_small_error(output: str, expected: str):
    """Absolute or relative, 1e-6 each."""
    assert Floats()("", output, expected) is True


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("0.3333", "0.333333333"),
        ("1000001", "1000000"),  # a count, off by one
        ("nan", "1.0"),
        ("NaN", "nan"),
        ("inf", "1e308"),
        ("1e999", "1e308"),
        ("1e999", "1e998"),
        ("5", "1e400"),  # infinitely far from it, and not within a part of infinity
        ("0x1p0", "1.0"),
        ("1_000.0", "1000.0"),
        ("1,5", "1.5"),
        ("١.0", "1.0"),  # an Arabic digit
        ("1.0 2.0", "1.0"),
        ("1.0", "1.0 2.0"),
        ("Yes 1.0", "yes 1.0"),
        ("", "0"),
    ],
)
def test_floats_refuses_the_rest(output: str, expected: str):
    """NaN, infinities, other notations, other words, more or fewer tokens."""
    assert Floats()("", output, expected) is not True


def test_floats_takes_either_tolerance():
    """One at 0 leaves the other to decide."""
    assert Floats(abs_tol=0, rel_tol=0.1)("", "95.0", "100.0") is True
    assert Floats(abs_tol=0, rel_tol=0.1)("", "89.0", "100.0") is not True
    assert Floats(abs_tol=0.5, rel_tol=0)("", "100.4", "100.0") is True
    assert Floats(abs_tol=0, rel_tol=0)("", "1.0", "1.00") is True


@pytest.mark.parametrize("tolerance", [-1, float("nan"), float("inf"), "1", True])
def test_a_tolerance_is_a_number(tolerance):
    """NaN would refuse everything in silence, and infinity accept it."""
    with pytest.raises(UsageError, match="abs_tol is"):
        Floats(abs_tol=tolerance)


def test_the_first_difference_is_named():
    """Where it is, what stands there, and what should."""
    assert lines("", "1\nfoo\n3", "1\nbar\n3") == "line 2: 'foo', not 'bar'"
    assert tokens("", "1 2", "1 2 3") == "token 3: nothing, not '3'"
    assert tokens("", "1 2 3", "1 2") == "token 3: '3', not the end"
    assert len(lines("", "x" * 10**6, "y")) < 200


FLOODS = {
    "newlines": lambda n: ("\n" * n, "1"),
    "spaces": lambda n: (" " * n, "1"),
    "tokens": lambda n: ("a " * (n // 2), "1 2"),
    "digits": lambda n: ("1" * n, "1.0"),
    "digits on both sides": lambda n: ("1" * n, "1" * (n // 10) + ".5"),
    "an exponent": lambda n: ("1e" + "9" * (n // 10), "1.5"),
    "lines": lambda n: ("1\n" * (n // 10) + "x", "1\n" * (n // 10) + "y"),
}


@pytest.mark.parametrize("name", COMPARATORS)
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_is_compared_in_linear_time(name: str, flood: str):
    """16 times the output takes 16 times as long, and not 256 times."""

    def took_s(size: int) -> float:
        output, expected = FLOODS[flood](size)
        start = time.process_time()
        assert not same(COMPARATORS[name], output, expected)
        return time.process_time() - start

    short = min(took_s(60_000) for _ in range(3))
    assert took_s(960_000) < 64 * max(short, 0.005)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARATORS)
@pytest.mark.parametrize("flood", FLOODS)
def test_ten_megabytes_are_compared_in_5_cpu_seconds(name: str, flood: str):
    """The ratio above does not see a comparator that has become slow at every size."""
    output, expected = FLOODS[flood](10**7)
    start = time.process_time()
    assert not same(COMPARATORS[name], output, expected)
    assert time.process_time() - start < 5


def test_the_order_of_lines_is_all_that_unordered_forgives():
    """How often each occurs still counts."""
    expected = [str(i % 7) for i in range(50)]
    output = random.Random(0).sample(expected, len(expected))
    assert unordered("", "\n".join(output), "\n".join(expected)) is True
    assert unordered("", "1\n1\n2", "1\n2\n2") is not True
    assert unordered("", "1 2", "2 1") is not True


@pytest.mark.parametrize("given", ["line", "", None, 3, ["lines"]])
def test_a_comparator_is_a_name_or_a_function(given):
    """The error lists the names."""
    with pytest.raises(UsageError, match="exact, lines, tokens, floats, unordered"):
        comparator(given)
