"""The part after thinking, fenced blocks, statements: each case by hand, and none of them slow on any text."""

import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.text import (
    THINKING_TAGS,
    FencedBlock,
    after_thinking,
    fenced_blocks,
    first_paragraph,
    inert,
    one_line,
    python_tree,
    same_statement,
    squeeze_text,
)
from rlvr.verifiers.answers import unwrap


def test_white_space_and_case_do_not_tell_answers_apart():
    """A vote should not be lost to a line break; "ß" and "SS" are one in casefold."""
    assert squeeze_text(" 1 000\n Meter\t") == squeeze_text("1000 METER") == "1000meter"
    assert squeeze_text("Straße") == squeeze_text("STRASSE")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It is 5.", "It is 5."),
        ("", ""),
        ("<think>2?</think>It is 3.", "It is 3."),
        ("<thinking>2?</thinking>It is 3.", "It is 3."),
        ("<think>a</think>b<think>c</think>d", "d"),
        (
            "2?</think>It is 3.",
            "It is 3.",
        ),  # the template opened the tag, so that the completion only closes it
        ("<think>It is 3.", None),
        ("<think>a</think>b<think>c", None),
        ("<think>a</think>", ""),
        ("<thinking>a</think>b", "b"),  # the last closing tag of either kind counts
    ],
)
def test_the_answer_follows_the_last_closing_tag(text, answer):
    """None while the model still thinks: what it tries there is no answer."""
    begin = after_thinking(text)
    assert (None if begin is None else text[begin:]) == answer


@pytest.mark.parametrize(
    ("between", "same"),
    [
        ("", True),
        (" or ", True),
        (", ", True),
        (r"$ \text{and} $", True),
        (" and\nalso ", True),  # linking words alone, even over two lines
        (" which equals ", True),  # words, and neither a line nor a sentence ends
        (". No, it is ", False),
        (" which I take back\n", False),
        ("?", True),  # no word follows
        (" 2.5 is less than ", True),  # a point inside a number ends no sentence
        ("x" * 20_000, True),
        ("x" * 20_001, False),
    ],
)
def test_a_statement_ends_with_its_sentence_or_line(between, same):
    """Two answers in one statement are a hedge; a later statement corrects an earlier one."""
    assert same_statement(between) is same


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("x = 1", []),
        ("a\n```python\nx = 1\n```\nb", [FencedBlock(2, 18, "python", "x = 1\n", True)]),
        ("```\nx\n", [FencedBlock(0, 7, "", "x\n\n", False)]),
        ("~~~ Python3.11 title\nx\n~~~", [FencedBlock(0, 23, "python", "x\n", True)]),
        ("```{.python}\n```", [FencedBlock(0, 13, "python", "\n", True)]),
        ("````md\n```\ninner\n```\n````", [FencedBlock(0, 21, "md", "```\ninner\n```\n", True)]),
        ("```\nx\n~~~\ny\n```", [FencedBlock(0, 12, "", "x\n~~~\ny\n", True)]),
        ("  ```\n    x\n y\n  ```", [FencedBlock(0, 15, "", "  x\ny\n", True)]),
        (
            "```\n    ```\n```",
            [FencedBlock(0, 12, "", "    ```\n", True)],
        ),  # a docstring's, four columns further in
        ("``` a`b\nx", []),  # a backtick in the info string: this is inline code
    ],
)
def test_fenced_blocks_are_commonmarks(text, blocks):
    """Positions are in characters, so that what stands before a block can be told from what stands in it."""
    assert list(fenced_blocks(text)) == blocks


@pytest.mark.parametrize(("fences", "blocks"), [(20_000, 10_000), (20_001, 0)])
def test_a_text_of_more_than_20_000_fences_has_no_block(fences, blocks):
    text = "```\n" * fences
    assert len(list(fenced_blocks(text))) == blocks
    assert unwrap(f" {text}") == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "```" + " " * 1_000_000 + "`",
        " " * 500_000 + "```\n" + "```a\n" * 100_000,
        "```\n" * 250_000,
        "~" * 1_000_000,
        "\n" * 1_000_000,
        "<think>" * 140_000,
        "</think>" * 125_000,
        "or " * 300_000,
    ],
    ids=["spaces", "indented", "fences", "tildes", "lines", "thinking", "thought", "words"],
)
def test_a_megabyte_of_anything_takes_moments(text):
    """A completion may be made to stall the scorer; a quadratic scan of a megabyte takes hours."""
    start = time.process_time()
    list(fenced_blocks(text))
    after_thinking(text)
    same_statement(text)
    squeeze_text(text)
    assert time.process_time() - start < 5


def test_the_thinking_tags_are_pairs():
    """Others build completions of them."""
    assert all(
        f"<{opening[1:-1]}>" == opening and f"</{opening[1:-1]}>" == closing
        for opening, closing in THINKING_TAGS
    )


def test_the_first_paragraph_is_one_line():
    """Lists of environments and of rewards show it, however its docstring is broken into lines."""
    text = "\n    Add two\n    numbers.\n\n    More.\n"
    assert first_paragraph(text) == "Add two numbers."
    assert first_paragraph("") == ""


@given(st.lists(st.sampled_from([*THINKING_TAGS[0], *THINKING_TAGS[1], "a", "<", "\n"])))
def test_the_answer_begins_after_the_last_closing_tag_of_any_text(pieces: list[str]):
    """And while a later tag is open there is none."""
    openings, closings = ({pair[at] for pair in THINKING_TAGS} for at in (0, 1))
    last = max((at for at, piece in enumerate(pieces) if piece in closings), default=-1)
    rest = pieces[last + 1 :]
    expected = None if openings & set(rest) else len("".join(pieces[: last + 1]))
    assert after_thinking("".join(pieces)) == expected


@given(st.lists(st.text("aB ß.\u00a0\n\t")), st.sampled_from([" ", "\n", "\u2003"]))
def test_white_space_anywhere_is_squeezed(pieces: list[str], space: str):
    """Also between any two letters."""
    text = "".join(pieces)
    assert squeeze_text(space.join(pieces)) == squeeze_text(text.upper()) == squeeze_text(text)
    assert squeeze_text(squeeze_text(text)) == squeeze_text(text)


@given(st.lists(st.sampled_from(["```", "~~~", "````", "``` py", "    ```", "x = 1", "", " "])))
def test_blocks_of_any_text_are_in_order_and_apart(lines: list[str]):
    """Each begins at a fence, ends at its own kind of fence or with the text, and holds none."""
    text, end = "\n".join(lines), 0
    for block in fenced_blocks(text):
        assert end <= block.start < block.end <= len(text) + 1
        opening = text[block.start : block.end].partition("\n")[0].strip()
        assert opening[:3] in ("```", "~~~")
        if block.closed:
            closing = text[block.end :].partition("\n")[0].strip()
            assert closing[:3] == opening[:3]
            assert opening.split()[0] not in block.code.split("\n")
        else:
            assert block.end == len(text) + 1
        end = block.end


@given(st.lists(st.text("ab =#`", max_size=8).filter(lambda line: "```" not in line), min_size=1))
def test_code_between_fences_comes_back(lines: list[str]):
    """As it was written, its language in lower case."""
    code = "\n".join(lines) + "\n"
    [block] = fenced_blocks(f"Here:\n```Python\n{code}```\n")
    assert (block.language, block.code, block.closed) == ("python", code, True)


@given(st.text())
def test_what_is_shown_has_nothing_that_a_terminal_obeys(text: str):
    """Printable text stays as it is; a name stays on its line."""
    assert all(char.isprintable() or char in "\n\t" for char in inert(text))
    assert one_line(text).isprintable()
    if text.isprintable():
        assert inert(text) == one_line(text) == text


@given(st.lists(st.text("ab \n\t"), min_size=1))
def test_a_paragraph_has_single_spaces(paragraphs: list[str]):
    """However its words stood."""
    found = first_paragraph("\n\n".join(paragraphs))
    assert found == " ".join(found.split())


@pytest.mark.parametrize("text", [r'f(p="\d+")', "1or 2"])
def test_what_python_warns_of_is_read_under_any_filter(text: str):
    """With `python -W error` the warning is a SyntaxError, and the verdict on a call was another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert python_tree(text).body
