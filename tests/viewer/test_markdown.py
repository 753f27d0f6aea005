"""Completions as Markdown, with formulas and coloured code, that can run nothing."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from rlvr.viewer.markdown import render_text
from rlvr.viewer.texts import word_diff
from tests.json_lines import write_json_lines
from tests.viewer.hostile import PAYLOADS
from tests.viewer.made import record
from tests.viewer.test_safety import ALLOWED, Elements

MARKUP = ALLOWED | set("em s hr ol blockquote br thead tbody tr th td table ins del".split())


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**a**", "<p><strong>a</strong></p>"),
        ("# a", '<p class="heading">a</p>'),
        ("|a|\n|:-:|\n|1|", "<td>1</td>"),
        ("$x^2$", '<span class="tex">x^2</span>'),
        ("costs $5 and $6", "costs $5 and $6"),
        ("\\[a<b\\]", '<span class="tex display">a&lt;b</span>'),
        ("so \\boxed{\\frac{1}{2}}.", '<span class="tex">\\boxed{\\frac{1}{2}}</span>.'),
        ("`$x$`", "<code>$x$</code>"),
        ("```python\ndef f\n```", '<span class="p-k">def</span>'),
        ("```nonsense\ndef\n```", "def\n</code>"),
    ],
)
def test_what_people_write_is_rendered(text: str, html: str):
    """Markdown, tables, formulas in their usual signs and boxes without, code by its language."""
    assert html in render_text(text).html


def test_what_the_verifier_read_is_marked():
    """In a line and in a formula."""
    assert "<mark>7</mark>" in render_text("it is 7.", (6, 7)).html
    found = render_text("\\boxed{7}", (7, 8)).html
    assert '<mark><span class="tex">\\boxed{7}</span></mark>' in found
    assert "\ue000" not in render_text("**7** \ue000x\ue001", (2, 5)).html


def test_what_is_no_element_is_counted():
    """So that a reader knows what stands there as text."""
    found = render_text("<b>x</b> [a](http://b) ![c](d)")
    assert found.removed == {"HTML tags": 2, "links": 1, "images": 1}
    assert not render_text("1 < 2").removed


def assert_harmless(text: str) -> None:
    """No element but text's own, no attribute but class, start of a list and alignment."""
    elements = Elements(render_text(text).html)
    assert set(elements.names) <= MARKUP, text
    assert elements.attributes <= {"class", "start"}, text
    assert not elements.references, text


def test_a_payload_becomes_no_element_that_can_do_anything():
    """Each of more than two hundred, alone."""
    for payload in PAYLOADS:
        assert_harmless(payload)


SIGNS = ["*", "**", "`", "```", "$", "\\(", "|", "|-|", "\n", "> ", "- ", "~~", "<", ">", "&", '"']


@given(st.lists(st.sampled_from([*SIGNS, *PAYLOADS]) | st.text(max_size=3), max_size=8))
def test_no_mixture_of_markup_and_payloads_becomes_an_element_that_can_do_anything(pieces):
    """A payload that begins in a table, a formula or a block of code and ends outside of it."""
    assert_harmless("".join(pieces))


@pytest.mark.parametrize(
    "sign", ["*", "[", ">", "- ", "`", "$", "\\(", "|a", "\\boxed{", "_a", "~~", "&", "<", "1. "]
)
def test_a_text_of_one_sign_is_read_in_time(sign: str):
    """20,000 characters, the most of a page; CPU seconds."""
    begin = time.process_time()
    render_text((sign * 20_000)[:20_000])
    assert time.process_time() - begin < 5


def test_two_completions_differ_by_words():
    """Escaped, and in one text."""
    assert word_diff("a <b> c", "a <i> c") == "a &lt;<del>b</del><ins>i</ins>&gt; c"


WORDS = st.lists(st.sampled_from(["a", " ", "<b>", "&amp;", "\n", "é", "<del>", "1.5"])).map(
    "".join
)


@given(WORDS, WORDS)
def test_a_difference_holds_both_texts(first, second):
    """Without what was put in it is the first, without what was taken away the second."""
    joined = word_diff(first, second)
    for text, own, other in ((first, "del", "ins"), (second, "ins", "del")):
        left = re.sub(rf"(?s)<{other}>.*?</{other}>", "", joined)
        assert Markup(re.sub(rf"</?{own}>", "", left)).unescape() == text


@pytest.mark.parametrize(
    ("text", "is_rendered"),
    [
        ("So **7** is it.", True),
        ("Then $x^2$ is 4.", True),
        ("| a | b |\n|---|---|\n| 1 | 2 |", True),
        ("<think>so</think> Then \\(x\\) is 4.", True),
        ("First 7,\nthen \\boxed{7}.", False),
        ("**7** <b>", False),
        ("**7** ![a](http://b)", False),
        ("**7**" + " x" * 20_000, False),
    ],
)
def test_texts_with_markup_are_rendered_unless_they_hold_elements(
    text: str, is_rendered: bool, tmp_path: Path, browse
):
    """Raw is a click away from each, and the other way round."""
    rows = [record(0, completion=text, env="e"), record(1, completion="plain", env="e")]
    client = browse(write_json_lines(tmp_path / "a.jsonl", rows))
    for address in ("/0/row/0?", "/0/group?task=sums/0&env=e&"):
        assert ('<div class="markdown"' in client.get(address).text) is is_rendered
        assert '<div class="markdown"' not in client.get(address + "view=raw").text
        assert '<div class="markdown"' in client.get(address + "view=rendered").text


def test_pages_switch_between_raw_and_rendered(tmp_path: Path, browse):
    """A row and a group; the difference of two completions is a click away."""
    rows = [record(i, completion=f"**{i}** <b>", env="e") for i in range(4)]
    client = browse(write_json_lines(tmp_path / "a.jsonl", rows))
    assert "<strong><mark" not in client.get("/0/row/0").text
    page = client.get("/0/row/0?view=rendered").text
    assert "<strong><mark>0</mark></strong> &lt;b&gt;" in page
    assert "Shown as text: 1 HTML tags." in page
    group = client.get("/0/group?task=sums/0&env=e&view=rendered").text
    assert group.count('<div class="markdown"') == 4
    assert "/0/diff/0/3" in group
    assert "<del>0</del><ins>3</ins>" in client.get("/0/diff/0/3").text
    assert client.get("/0/diff/0/99").status_code == 404
