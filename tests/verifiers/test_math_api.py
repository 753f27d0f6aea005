r"""`parse`, `compare` and `value`, and the settings of the policy that the verifier applies itself."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rlvr.errors import DataError, UsageError
from rlvr.verifiers.math import MathPolicy, MathVerifier, compare, parse, value

READINGS = [
    (r"\frac{2}{4}\text{ cm}", "number", "the number 1/2, in centimetre"),
    (r"\boxed{12.5\%}", "number", "the number 25/2 percent"),
    (r"\frac{2\pi}{3}", "number", "the number 2/3 π"),
    ("x^2+1", "expression", "the expression x^2+1"),
    ("x^2+1=3", "relation", "the relation x^2+1=3"),
    ("x = 5", "named", "x as the number 5"),
    ("(1, 3]", "interval", "the interval (1, 3] from the number 1 to the number 3"),
    ("(1, 2)", "tuple", "the pair (1, 2): the number 1; the number 2"),
    (r"\{1, x\}", "set", "the set of the number 1; the expression x"),
    (r"\emptyset", "set", "the empty set"),
    ("1, 2", "list", "the list of the number 1; the number 2"),
    (r"1\pm\sqrt2", "list", r"the values of 1\pm\sqrt2"),
    (
        r"(0, 1)\cup(2, 3)",
        "union",
        "the union of the pair (0, 1): the number 0; the number 1; the pair (2, 3): the number 2; the number 3",
    ),
    ("1:2:3", "ratio", "the ratio of the number 1; the number 2; the number 3"),
    ("5–6", "range", "the range of the number 5; the number 6"),
    (r"\textbf{(B)}\ 12", "choice", "the choice B, which is the number 12"),
    ("3:30 pm", "time", "the time 15:30"),
    ("11:59 pm", "time", "the time 23:59"),
    (r"\text{odd}", "words", "the words 'odd'"),
    ("x = x", "flawed", "no answer: tautology"),
    ("2^{30000}", "number", "the number of 30001 binary digits"),
]


@pytest.mark.parametrize(("text", "kind", "reading"), READINGS)
def test_what_was_read_can_be_printed(text, kind, reading):
    """To see why two answers are not equal."""
    answer = parse(text)
    assert (answer.kind, str(answer)) == (kind, reading)


def test_values_are_exact():
    """A percent sign divides by 100, a unit is told apart, and what is no single number has no value."""
    assert value(r"1\frac{1}{2}") == Fraction(3, 2)
    assert value("50%") == Fraction(1, 2)
    assert value("1.8 billion") == 1_800_000_000
    assert (value(r"12\text{ cm}"), parse(r"12\text{ cm}").unit) == (12, "centimetre")
    assert [value(text) for text in ("x", "1, 2", r"\pi", "(B)", "7:05")] == [None] * 5


def test_two_answers_are_compared_without_a_verifier():
    """With the verdict and reason that `MathVerifier.compare` gives."""
    assert compare("x = 1/2", "0.5").why == "same-number"
    assert compare(parse("1/2"), parse("0.5")).correct
    assert compare("0.33", ["1/2", "0.33"]).correct
    assert compare("2/4", "0.5", MathPolicy(form="any")).correct


def test_what_cannot_be_read_is_said():
    """A typed error with the text."""
    with pytest.raises(UsageError, match="a int; it must be a string"):
        parse(5)  # type: ignore[arg-type]
    for text in ("", "  ", "(" * 50):
        with pytest.raises(DataError, match="the answer"):
            parse(text)
    assert parse("9^{9^{9}}").kind == "expression"  # no number that anyone could write out


def test_references_may_be_declared_to_be_texts():
    """Then nothing is read as mathematics: 0.50 is not 0.5, and `x` no variable."""
    texts = MathVerifier(MathPolicy(references="text"))
    assert texts.verify(r"\boxed{New  York}", "new york").correct
    assert not texts.compare("0.50", "0.5").correct
    assert texts.compare(r"\frac{1", r"\frac{1").correct
    assert texts.doubt("anything") is None
    matched = MathVerifier(MathPolicy(references="text", case="match"))
    assert matched.compare("O(n)", "O(n)").correct
    assert not matched.compare("o(n)", "O(n)").correct
    with pytest.raises(DataError, match="must be a text"):
        texts.compare("5", 5)


def test_numbers_may_have_decimal_commas():
    """On both sides; a list has a space or semicolon behind each comma."""
    comma = MathVerifier(MathPolicy(decimal="comma"))
    for answer in ("0,5", "1/2", r"\frac12", "0{,}5", "0,50"):
        assert comma.compare(answer, "0,5").correct, answer
    assert comma.compare("1.234,5", "1234,5").correct
    assert comma.compare("1.234", "1234").correct
    assert comma.compare("2; 1", "1, 2").correct
    assert comma.compare("1.5", "1,5").correct  # no group of three: it can only be a point
    assert not comma.compare("12", "1,2").correct
    assert comma.compare("0,5x", r"\frac{x}{2}").correct


PROSE = [
    ("First 3, then we get 7 apples.", "7", True),
    ("So $x = 7$.", "7", True),
    (r"Thus \(\frac{1}{2}\), as was to be shown.", "0.5", True),
    ("It costs $1,250.50 in all.", "1250.5", True),
    ("We have 7 and then 8.", "7", False),
    ("The answer is 7. There were 9 of them.", "7", True),
    ("I cannot say.", "7", False),
    ("<think>7</think> I do not know.", "7", False),
]


@pytest.mark.parametrize(("completion", "reference", "right"), PROSE)
def test_the_last_expression_of_prose_counts_if_the_policy_says_so(completion, reference, right):
    """A box, a marker and a phrase come first; by default plain prose states no answer."""
    verifier = MathVerifier(MathPolicy(prose="last-expression"))
    assert verifier.verify(completion, reference).correct is right
    if "answer" not in completion:
        assert MathVerifier().verify(completion, reference).reason == "no-answer"


def test_a_tolerance_holds_for_numbers_without_an_exact_value():
    """The engine works out both sides."""
    near = MathVerifier(MathPolicy(tolerance=0.01))
    assert near.compare("1.41", r"\sqrt{2}").correct
    assert near.compare("6.28", r"2\pi").correct
    assert near.compare(r"\frac{22}{7}", r"\pi").correct
    assert not near.compare("1.4", r"\sqrt{2} + 0.1").correct
    assert not near.compare("6.4", r"2\pi").correct
    assert not near.compare("1.01x", "x").correct
