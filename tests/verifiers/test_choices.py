"""Multiple choice: one letter in the place that was asked for, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.types import Outcome
from rlvr.verifiers.choices import ChoiceVerifier

ASKED = {"options": ["cell wall", "nucleus", "ribosome", "membrane"], "answer": "ribosome"}


def verdict(text: str, asked: dict = ASKED) -> rlvr.Verdict:
    return ChoiceVerifier().verify(text, asked)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>c</answer>",
        "**Answer:** C",
        "Therefore, the answer is (C).",
        r"First I thought \boxed{A}. But no, it is \boxed{C}",
    ],
)
def test_one_letter_or_its_text_is_an_answer(text: str):
    """In a box, in tags, after "Answer:", or stated in words."""
    assert verdict(text).correct


@pytest.mark.parametrize("said", ["1/2", "0.50", r"\frac{1}{2}", "50%"])
def test_an_option_that_is_a_number_may_be_said_in_another_notation(said: str):
    """Where one option has that number; of two that have it none is meant."""
    asked = {"options": ["0.5", "2", "5"], "answer": "0.5"}
    assert verdict(rf"\boxed{{{said}}}", asked).correct
    assert not verdict(rf"\boxed{{{said}}}", {**asked, "options": ["0.5", "2/4", "5"]}).correct


NAMED = (
    "{letter}",
    r"\text{{{letter}}}",
    "({letter})",
    "[{letter}]",
    "{letter}. {text}",
    "{letter} {text}",
    "{text} ({letter})",
    "{text}",
)
PLACES = (r"\boxed{{{}}}", "<answer>{}</answer>", "Answer: {}", "**Answer:** {}")
TEXTS = ("cell wall", "nucleus", "ribosome", "membrane", "plastid")


@given(
    st.permutations(TEXTS),
    st.integers(2, 5),
    st.integers(0, 4),
    st.integers(0, 6),
    st.sampled_from(NAMED),
    st.sampled_from(PLACES),
)
def test_the_letter_is_right_where_its_option_is(texts, count, right, said, form, place):
    """Whatever the order of the options, the form and the place; a letter beyond the last names none."""
    options = texts[:count]
    asked = {"options": options, "answer": options[right % count]}
    text = options[said] if said < count else "ribosome"
    answer = form.format(letter="ABCDEFG"[said], text=text)
    names_one = said < count if "{letter}" in form else text in options
    expected = names_one and text == asked["answer"]
    assert verdict(place.format(answer), asked).correct == expected


@given(
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(NAMED),
    st.sampled_from(NAMED),
    st.sampled_from((" or ", ", ", " and ", "/")),
)
def test_two_options_are_no_answer(first, second, form, other, between):
    """One of them may be right; nor is a letter with the text of another."""
    options = ASKED["options"]
    names = [
        form.format(letter="ABCD"[first], text=options[first]),
        other.format(letter="ABCD"[second], text=options[second]),
    ]
    answers = [between.join(names)] if first != second else []
    if first != second:
        answers.append(f"{'ABCD'[first]}. {options[second]}")
    for answer in answers:
        assert not verdict(rf"\boxed{{{answer}}}").correct, answer


@pytest.mark.parametrize(
    "text",
    [
        "C",
        "ribosome",
        "A, B, C and D were looked at; C looks best.",
        "Answer:\n\nAntwort",
        r"\boxed{A} or \boxed{C}",
        r"\boxed{A, B, C, D}",
        r"\boxed{ABCD}",
        r"\boxed{not C}",
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


def test_a_letter_of_another_alphabet_is_no_option():
    """The Turkish İ is an i to patterns that ignore case, and an exception was UNSCORED."""
    asked = {"options": ["4", "5"], "answer": "5"}
    assert ChoiceVerifier().verify(r"\boxed{İ}", asked).reason == "no-such-choice"
