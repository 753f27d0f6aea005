"""Finding the final answer: which statement counts, what it says, and that no text can make the search slow."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.verifiers import stated
from rlvr.verifiers.math import BOXED, extract
from tests.processes import in_turn

FOUND = [
    # (completion, answer, method, why it stands here)
    (r"So it is \boxed{5}.", "5", "box", "the plain case"),
    (r"\boxed {5}", "5", "box", "a space before the brace"),
    (r"\boxed{ \frac{1}{2} }", r"\frac{1}{2}", "box", "nested braces, space inside"),
    (r"\boxed{\{1, 2\}}", r"\{1, 2\}", "box", "escaped braces do not nest"),
    (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right.", "box", "an unmatched escaped brace"),
    (r"\fbox{5} ", "5", "box", "fbox"),
    (r"\framebox[2cm]{5}", "5", "box", "framebox with a width"),
    (r"\boxed{\boxed{5}}", "5", "box", "a box in a box"),
    (r"$\boxed{\text{so } \fbox{5}}$", r"\text{so } \fbox{5}", "box", "the outer box says more"),
    (r"Hence \boxed 5.", "5", "bare-box", "LaTeX takes one sign; models mean the word"),
    (r"Hence $\boxed 12$", "12", "bare-box", "up to the end of the maths"),
    (r"Hence \boxed{12", "12", "open-box", "cut off before the brace"),
    (r"Hence $\boxed{\frac{1}{2}$.", r"\frac{1}{2}", "open-box", "one brace short at the very end"),
    ("First \\boxed{4}.\nNo, I forgot one: \\boxed{5}.", "5", "box", "a self-correction"),
    (
        r"I get \boxed{4}. Wait, that is wrong. It is \boxed{5}.",
        "5",
        "box",
        "a self-correction in another sentence",
    ),
    (r"\boxed{7}, that is \boxed{7}", "7", "box", "saying it twice is no hedge"),
    (
        r"I shall put it in \boxed{}: \boxed{5}",
        "5",
        "box",
        "echoing the instruction is no second answer",
    ),
    (r"<think>\boxed{1}</think> \boxed{2}", "2", "box", "thinking is not answering"),
    (
        r"it may be \boxed{1} </think> \boxed{2}",
        "2",
        "box",
        "the opening tag may stand in the prompt",
    ),
    ("<answer> 5 </answer>", "5", "tag", "an answer tag"),
    ("<answer>5", "5", "tag", "the closing tag was the stop string"),
    (r"<answer>It is \boxed{5}</answer>", "5", "box", "a box inside the tag says it better"),
    (
        "I boxed \\boxed{4}, hm.\n<answer>5</answer>",
        "5",
        "tag",
        "a tag after a box is the last statement",
    ),
    ("A: 4\nA: 18\n", "18", "marker", "the last marker's line"),
    ("so 18 #### 18.", "18", "marker", "a marker of signs may stand anywhere"),
    ("**A:** 18", "18", "marker", "bold around a marker"),
    ("The final answer is $5$. I hope it is correct.", "$5$", "phrase", "the sentence ends there"),
    ("Final Answer: **73**", "73", "phrase", "bold"),
    ("**Answer**: 73", "73", "phrase", "bold around the word"),
    ("## Final answer:\n\n**73**", "73", "phrase", "as a heading"),
    ("**Final Answer**\n\n73", "73", "phrase", "a heading without a colon"),
    ("### Answer\n$$\n73\n$$", "73", "phrase", "displayed below a heading"),
    ("Final answer:\n\\[\n73\n\\]", "73", "phrase", "displayed the other way"),
    ("\\textbf{Final Answer:} 73", "73", "phrase", "a LaTeX heading"),
    ("The answer is \\(5\\).", "\\(5\\)", "phrase", "inline maths"),
    ("The answer is 5. Is the answer 6? No.", "5", "phrase", "a question states nothing"),
    (r"\boxed{**5**}", "5", "box", "bold inside"),
    (r"\framebox[3cm][c]{5}", "5", "box", "with its width and place"),
    (r"\boxed{5*}", "5*", "box", "one star multiplies"),
    ("The answer is 3.5 cm.", "3.5 cm", "phrase", "a decimal point ends no sentence"),
    ("The answer is 1. No: the answer is 2.", "2", "phrase", "the last one counts"),
    ("\\boxed{5}.\n\nNo other value is possible.", "5", "box", "a no that takes nothing back"),
    (r"A common mistake is 6. So \boxed{5}.", "5", "box", "a warning of another answer"),
    (r"It would be 6 if x were odd: \boxed{5}", "5", "box", "what does not hold stands before it"),
    (r"\boxed{5}, which is correct or at least plausible.", "5", "box", "an or without a number"),
    (r"\boxed{0.5} or half of it", "0.5", "box", "the same"),
    (r"\boxed{5}, which is wrong for n = 1 alone.", "5", "box", "of a case"),
    (r"The relative error is $\boxed{0.01}$.", "0.01", "box", "a task may ask for it"),
    (r"The first mistake is \boxed{3}", "3", "box", "the same"),
    (r"It is false that x = 6, so $\boxed{5}$", "5", "box", "what is false ends before it"),
    (r"It's not true that b > a hence $\boxed{5}$", "5", "box", "the same without a comma"),
    (r"It cannot be anything but \boxed{5}.", "5", "box", "denied twice"),
    (r"\boxed{5} would be the answer even if n were odd.", "5", "box", "holds all the more"),
    ("\\boxed{5}\n\nSelf-correction: none.", "5", "box", "a word with a hyphen"),
]


@pytest.mark.parametrize(("completion", "answer", "method", "why"), FOUND)
def test_an_answer_is_found_where_it_was_stated(completion, answer, method, why):
    """The answer, how it was marked, and its exact span."""
    found = extract(completion, markers=("A:", "####"))
    assert found is not None, why
    assert (found.answer, found.method, found.flaw) == (answer, method, ""), why
    assert completion[found.start : found.stop] == found.answer


NOT_FOUND = [
    ("", "nothing at all"),
    ("It is 5, or so.", "loose text is never searched"),
    ("<think> so \\boxed{5}", "still thinking"),
    ("</think> and again <think> \\boxed{5}", "thinking again"),
    ("<think>The answer is 5</think> I give up.", "surrender after the thought"),
    ("The DNA: 5 and NBA: 6", "a marker of letters must open its line"),
    ("Answer:", "nothing stands after it"),
    ("\\boxedtext{5}", "another command"),
]


@pytest.mark.parametrize(("completion", "why"), NOT_FOUND)
def test_no_answer_is_made_up(completion, why):
    """Better none than one that the model did not state."""
    assert extract(completion, markers=("A:",)) is None, why


FLAWED = [
    (r"\boxed{}", "empty-box", "empty"),
    (
        r"\boxed{ $ $ }. The answer is 5.",
        "empty-box",
        "an empty box, and loose text that is not looked at",
    ),
    ("\\boxed{5\n\nand so on", "unclosed-box", "text goes on"),
    (r"\boxed{11}, \boxed{12}, and \boxed{13}", "hedged", "three answers in a line"),
    ("\\boxed{11}\n\\boxed{12}", "hedged", "nothing is said between them"),
    (r"It is \boxed{11} or perhaps \boxed{12}.", "hedged", "one sentence"),
    (r"\boxed{11}. \boxed{12}.", "hedged", "full stops say nothing either"),
    (r"\boxed{4}, so <answer>5</answer>", "hedged", "a box and a tag"),
    (r"\boxed{\boxed{1} or \boxed{2}}", "hedged", "inside one box"),
    (r"\boxed{27} (or 28 if you count zero)", "hedged", "a number behind it"),
    (r"\boxed{27} or 28 or 29", "hedged", "several behind it"),
    (r"\boxed{27}, although it might be 28.", "hedged", "the same in a clause"),
    (r"Anything but \boxed{27}.", "denied", "all others"),
    (r"The wrong answer is \boxed{27}.", "denied", "named as wrong"),
    (r"A common mistake is to say \boxed{27}.", "denied", "the same as a warning"),
    (r"It's false that the answer is \boxed{27}.", "denied", "of a whole clause"),
    (r"Please disregard \boxed{27}.", "denied", "before it"),
    (r"\boxed{27} – ignore this box.", "retracted", "behind it"),
    (r"One could believe \boxed{27}, which is false.", "retracted", "in a clause of its own"),
    (r"\boxed{27} would be the answer if 9 were odd.", "retracted", "which it is not"),
    (r"\boxed{27} is far from right.", "retracted", "judged"),
    (r"\boxed{27} does not hold.", "retracted", "the same"),
    ("\\boxed{27}\n\nCorrection: 28", "retracted", "corrected outside a box"),
    ("\\boxed{27}\nEdit: I meant 28.", "retracted", "the same"),
    (r"\boxed{27} --- just kidding, \(28\).", "retracted", "the same"),
]


@pytest.mark.parametrize(("completion", "flaw", "why"), FLAWED)
def test_a_box_that_is_no_answer_ends_the_search(completion, flaw, why):
    """Where a box exists nothing falls through to loose text."""
    found = extract(completion)
    assert found is not None, why
    assert found.flaw == flaw, why


@pytest.mark.parametrize(
    ("completion", "parts"),
    [
        (r"$x=\boxed{3}, y=\boxed{4}$", ("x = 3", "y = 4")),
        (r"\boxed{3} and \boxed{4}", ("3", "4")),
        (r"width: \boxed{3}, depth: \boxed{4}", ("width = 3", "depth = 4")),
        (r"\boxed{3}", ()),
        ("\\boxed{3}. So I tried again, and this is it: \\boxed{4}", ()),
    ],
)
def test_the_boxes_of_one_statement_may_be_the_parts_of_one_answer(completion, parts):
    """In their order and with their names, for a caller that knows that the reference has parts."""
    found = extract(completion)
    assert found is not None
    assert found.parts == parts


def test_a_hedge_names_what_else_was_said():
    """So that a verifier can see whether two spellings of one answer were meant."""
    found = extract(r"\boxed{1\frac12} or \boxed{\frac32}")
    assert found is not None
    assert (found.answer, found.others) == (r"\frac32", (r"1\frac12",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{5}", True),
        (r"\boxed{1} or \boxed{2}", True),
        (r"so \boxed{}", False),
        (r"so \boxed{5", False),
        (r"so \boxed 5", False),
        (r"<think>\boxed{5}</think> 5", False),
        (r"<think>\boxed{5}", False),
        ("<answer>5</answer>", False),
    ],
)
def test_boxed_is_a_matter_of_form(text, expected):
    """It asks for a closed, filled box outside the thinking part; what is in it is checked elsewhere."""
    assert BOXED(text) is expected


def test_boxed_travels_to_workers():
    """Rewards are shipped to other processes, and named after their check."""
    assert pickle.loads(pickle.dumps(BOXED)) is BOXED
    assert BOXED.__name__ == "boxed"


MEGABYTE = [
    "{", "}", "\\boxed{", "\\boxed", "\\boxed ", "\\boxed{{", "\\boxed{}", "\\boxed{5} ", "\\boxed{5}\n", "\\framebox[",
    "<think>", "</think>", "<think></think>", "<answer>", "<answer>\\boxed{", "A:", "A:\n", "####", " A: ", "answer ",
    "answer is ", "Answer:\n", " ", "\n", "$", "\\", "*", "# ", "\x00", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("unit", in_turn(MEGABYTE, 3))
def test_a_megabyte_of_anything_costs_a_blink(unit):
    """Linear whatever is repeated; 0.05 s is usual, the rest is for a busy machine."""
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    extract(text, markers=("A:", "####"))
    BOXED(text)
    assert time.process_time() - start < 0.4


def test_a_line_far_from_the_end_is_found():
    """And the last of several counts, wherever they stand."""
    filler = "so it goes on\n" * 10_000
    first, second = "The answer is 5.\n", "The answer is 6.\n"
    assert [extract(text).answer for text in (first + filler, first + filler + second)] == [
        "5",
        "6",
    ]
    assert extract(first + second + filler).answer == "6"


@given(st.text(alphabet=st.sampled_from("\\boxed{}<think>/answr:A5 \n$.*\ud800\x00"), max_size=80))
def test_no_text_breaks_it_and_spans_are_exact(text):
    """Whatever is found stands where it says it stands."""
    found = extract(text, markers=("A:",))
    if found is not None:
        assert text[found.start : found.stop] == found.answer


DENIALS = (
    "is not|are clearly not|cannot|never|isn't|isn’t equal to|is not ever be|never be|anything but|"
    "anything except|anything other than|disregard|ignore the box|disregard the answer|"
    "ignore the result|the wrong answer is|a false result was|wrong guess would be|a trap is to get|"
    "an error is to give|common mistake is|easy trap would be|a trap is to say|"
    "a mistake is to write|an error is to think|it is false that x =|it could not be|doesn't|neither|"
    "by no means|it's not|i don't think that the answer is|i doubt it is|no way it's|nobody would say|"
    "it would be wrong to answer|an incorrect result|never write|ist nicht|non è|não é|не|不是"
).split("|")
BOXES = (r"\boxed{", r"\fbox{", r"\framebox{", "<answer>")
OPENED = st.lists(st.sampled_from((*BOXES, r"\[", r"\(", *" $*_`:\xa0")))


@given(st.sampled_from(DENIALS), OPENED)
def test_the_quick_look_for_a_denial_passes_over_none(denial, opened):
    """Brackets and boxes may open between its last word and the answer, on the same line."""
    before = f"so it {denial} {''.join(opened[:6])}".lower()
    assert stated._flaw_before(stated._unopened(before), "5")
    assert stated._may_deny(stated._unopened(before))
