"""Multiple choice: one letter in the place that was asked for, and nothing else."""

import pytest

import rlvr
from rlvr.types import Outcome
from rlvr.verifiers.choices import ChoiceVerifier

ASKED = {"options": ["cell wall", "nucleus", "ribosome", "membrane"], "answer": "ribosome"}


def verdict(text: str, asked: dict = ASKED) -> rlvr.Verdict:
    return ChoiceVerifier().verify(text, asked)


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{C}",
        r"\boxed{\text{C}}",
        r"\boxed{(C)}",
        r"\boxed{C. ribosome}",
        r"\boxed{C ribosome}",
        r"\boxed{ribosome (C)}",
        r"\boxed{[C]}",
        r"\boxed{ribosome}",
        "<answer>c</answer>",
        "Answer: C",
        "**Answer:** C",
        "Therefore, the answer is (C).",
        r"First I thought \boxed{A}. But no, it is \boxed{C}",
    ],
)
def test_one_letter_or_its_text_is_an_answer(text: str):
    """In a box, in tags, after "Answer:", or stated in words."""
    assert verdict(text).correct


@pytest.mark.parametrize(
    "text",
    [
        "C",
        "ribosome",
        "A, B, C and D were looked at; C looks best.",
        "Answer:\n\nAntwort",
        r"\boxed{A} or \boxed{C}",
        r"\boxed{B or C}",
        r"\boxed{A, B, C, D}",
        r"\boxed{ABCD}",
        r"\boxed{C and D}",
        r"\boxed{C. nucleus}",
        r"\boxed{C nucleus}",
        r"\boxed{nucleus (C)}",
        r"\boxed{ribosome, nucleus}",
        r"\boxed{not C}",
        r"\boxed{H}",
        r"\boxed{E}",
        r"\boxed{}",
        r"\boxed{?}",
        r"\boxed{cell wall, nucleus, ribosome, membrane}",
        "<think>\\boxed{C}</think> I cannot say.",
        "<think>\\boxed{C}",
        "ok",
        "x",
        "",
        "The answer is not C",
        "The answer is A or C",
    ],
)
def test_two_letters_no_place_or_all_options_are_none(text: str):
    """simple-evals #33 reads A in "Answer:\\n\\nAntwort"; sia #57 takes the first letter anywhere."""
    assert not verdict(text).correct
    assert verdict(text).value == 0


def test_the_reasons_say_what_was_wrong():
    """So that a run can count hedges apart from mistakes."""
    assert verdict(r"\boxed{A}").why == "another-choice: A"
    assert verdict(r"\boxed{A or C}").reason == "hedged"
    assert verdict(r"\boxed{Z}").reason == "no-such-choice"
    assert verdict("C").outcome is Outcome.UNPARSED


def test_a_letter_that_is_the_text_of_another_option_names_neither():
    """Options "B", "A": does \\boxed{A} mean the first option or the second?"""
    assert not verdict(r"\boxed{A}", {"options": ["B", "A", "O"], "answer": "A"}).correct
    assert verdict(r"\boxed{B. A}", {"options": ["B", "A", "O"], "answer": "A"}).correct


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"options": ["4", "5"], "answer": "6"}, "none of the options"),
        ({"options": ["4"], "answer": "4"}, "2 to 26 texts"),
        ({"options": ["4", "4 "], "answer": "4"}, "any answer would be right"),
        ({"options": ["BB", "Bb", "bb"], "answer": "bB"}, "none of the options"),
        ({"options": ["4", ""], "answer": "4"}, "2 to 26 texts"),
        ("C", "it must be"),
    ],
)
def test_options_without_the_answer_are_an_error(asked: object, message: str):
    """An error of the row, not a wrong answer of every completion."""
    with pytest.raises(rlvr.DataError, match=message):
        ChoiceVerifier().verify(r"\boxed{A}", asked)
