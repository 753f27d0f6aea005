"""Lists, named parts and patterns; and schemas of strangers, whose patterns and references must not take long."""

import contextlib
import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.verifiers.json_schema import JSONVerifier
from rlvr.verifiers.parts import ListVerifier, PartsVerifier
from rlvr.verifiers.patterns import PatternVerifier, read_pattern

TOWNS = ["Oslo", ["Bern", "Berne"], "Lima"]


@pytest.mark.parametrize(
    ("text", "reason", "in_order"),
    [
        ("1. Oslo\n2. Berne\n3. Lima", "same-list", "same-list"),
        ("\\boxed{\\{Lima, Oslo, Bern\\}}", "same-list", "other-order"),
        ("Oslo or Rome, Bern, Lima", "other-items", "other-items"),
    ],
)
def test_lists_in_usual_forms_and_their_wrong_twins(text: str, reason: str, in_order: str):
    """Each item once, and no other; the order counts if it is asked for."""
    assert ListVerifier().verify(text, TOWNS).reason == reason
    assert ListVerifier(ordered=True).verify(text, TOWNS).reason == in_order


PRINTED_LISTS = [
    ", ".join,
    "; ".join,
    json.dumps,
    lambda items: "\n".join(f"- {item}" for item in items),
    lambda items: "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1)),
]


@given(
    st.lists(st.sampled_from(["Oslo", "Bern", "Berne", "Lima", "Rome"]), min_size=2, max_size=5),
    st.sampled_from(PRINTED_LISTS),
)
def test_a_list_is_right_if_its_items_fit_in_some_order(items, form):
    """Every order tried; in order, the one that stands there; the share is of the items of both."""
    accepted = [{"Oslo"}, {"Bern", "Berne"}, {"Lima"}]
    fits = [
        sum(item in texts for item, texts in zip(order, accepted, strict=True))
        for order in itertools.permutations([*items, None], 3)
    ]
    text, best = form(items), max(fits)
    right = len(items) == 3 and best == 3
    assert ListVerifier().verify(text, TOWNS).correct == right
    in_order = len(items) == 3 and fits[0] == 3
    assert ListVerifier(ordered=True).verify(text, TOWNS).correct == in_order
    share = ListVerifier(share=True).verify(text, TOWNS).value
    assert share == pytest.approx(1 if right else best / (len(items) + 3 - best))


@pytest.mark.parametrize("share", [False, True])
def test_a_long_list_is_refused_by_its_length(share: bool):
    """To compare 6,600 items with 100 took 15 s; so many cannot be right, and earn no share."""
    started = time.process_time()
    verdict = ListVerifier(share=share).verify("a, " * 6_600, [f"item {at}" for at in range(100)])
    assert (verdict.reason, verdict.value) == ("other-count", 0)
    assert time.process_time() - started < 0.5


def test_commas_within_items_part_nothing():
    """`1,000` is one number, and an item with a comma is written on a line or before a semicolon."""
    assert ListVerifier().verify("1,000, 2", [1000, 2]).correct
    assert ListVerifier().verify("Paris, Texas; Rome", ["Paris, Texas", "Rome"]).correct
    assert not ListVerifier().verify("Paris; Texas; Rome", ["Paris, Texas", "Rome"]).correct


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(a) 9.8 m/s^2\n(b) 3 s", "all-parts"),
        ("a: 9.8 m/s^2 or 5 m/s^2; b: 3 s", "wrong-parts"),
        ("a: 9.8 m/s^2; a: 5 m/s^2; b: 3 s", "twice"),
        ("9.8 m/s^2 and 3 s", "no-parts"),
        ("\\boxed{a: 5 m </answer><answer>9.8 m/s^2; b: 3 s}", "hedged"),
    ],
)
def test_named_parts_in_usual_forms_and_their_wrong_twins(text: str, reason: str):
    """Each part is judged by its own verifier; a second answer hidden in a part is a hedge."""
    assert PartsVerifier().verify(text, {"a": "9.8 m/s^2", "b": "3 s"}).reason == reason


@given(
    st.permutations("abc"),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["red", "blue", "two"])),
    st.sampled_from(
        [("{}: {}", "; "), ("{} = {}", ", "), ("**{}:** {}", "\n"), ('"{}": "{}"', ", ")]
    ),
)
def test_parts_are_right_by_their_names(order, values, form):
    """In any order and form: each must be there, and be right; the share is that of the right ones."""
    asked = {"a": "red", "b": "blue", "c": "two"}
    pattern, between = form
    text = between.join(pattern.format(name, values[name]) for name in order if name in values)
    text = f"{{{text}}}" if pattern.startswith('"') else text
    verdict = PartsVerifier("qa", share=True).verify(text, asked)
    right = sum(values.get(name) == value for name, value in asked.items())
    assert verdict.correct == (right == 3), text
    if len(values) == 3:
        assert verdict.value == pytest.approx(right / 3)


def test_parts_may_have_verifiers_of_their_own():
    """A name and a quantity in one problem; code and judges cannot judge a part."""
    verifier = PartsVerifier(verifiers={"who": "qa"}, share=True)
    reference = {"who": "Marie Curie", "mass": "2 kg"}
    assert verifier.verify("who: Marie Curie\nmass: 2000 g", reference).correct
    assert verifier.verify("who: Marie Curie\nmass: 3 kg", reference).value == 0.5
    with pytest.raises(rlvr.UsageError, match="'code' cannot judge a part"):
        PartsVerifier("code")
    with pytest.raises(rlvr.DataError, match="the part 'mass'"):
        verifier.read({"who": "x", "mass": "heavy"})


def test_a_pattern_matches_the_whole_answer():
    """Not a part of it; and a pattern that pays anything is no reference."""
    pytest.importorskip("re2")
    said = ["AB-1234", "xAB-1234", "AB-1234 or CD-1234"]
    plates = [PatternVerifier().verify(text, r"[A-Z]{2}-\d{4}").correct for text in said]
    assert plates == [True, False, False]
    for pattern in (".*", "a*", "", 5, "(?=a)b", r"(a)\1", "[", "a{1000}{1000}"):
        with pytest.raises(rlvr.DataError, match="pattern"):
            PatternVerifier().read(pattern)


def test_without_re2_a_pattern_is_a_data_error(monkeypatch: pytest.MonkeyPatch):
    """It names the pattern and the extra; a backtracking engine in its place could be made to hang."""
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    with pytest.raises(rlvr.DataError, match=r"own-pattern.*patterns"):
        read_pattern("own-pattern")


def _cpu_s(text: str, reference: dict) -> float:
    started = time.thread_time()
    with contextlib.suppress(rlvr.DataError):  # of references that multiply
        assert not JSONVerifier().verify(text, reference).correct
    return time.thread_time() - started


def test_schemas_cannot_take_long():
    """A pattern that backtracks, references that multiply, and items that have to be compared pairwise."""
    pytest.importorskip("re2")
    doubled = {"l0": {"type": "integer"}}
    for i in range(1, 40):
        doubled[f"l{i}"] = {"allOf": [{"$ref": f"#/$defs/l{i - 1}"}] * 2}
    for schema, value in (
        ({"pattern": "^(a+)+$"}, "a" * 50_000 + "!"),
        ({"$ref": "#/$defs/l39"}, 1),
        ({"uniqueItems": True}, [{}, []] * 15_000),
    ):
        reference = {"schema": {"$defs": doubled, "properties": {"b": schema}}, "values": {"/a": 1}}
        text = json.dumps({"a": 1, "b": value})
        assert _cpu_s(text, reference) < 3


@pytest.mark.parametrize(
    "reference",
    [
        {"schema": {"properties": {"b": {"$ref": "#/$defs/none"}}}, "values": {"/a": 1}},
        {"schema": {"properties": {"b": {"pattern": "(?=a)"}}}, "values": {"/a": 1}},
        {"schema": {"type": "string"}, "whole": 1},
        {"schema": {"$ref": "#"}, "values": {"": 1}},
    ],
)
def test_a_schema_that_fails_while_judging_is_refused_before(reference: dict):
    """An answer could otherwise choose the property that makes its verdict an exception."""
    with pytest.raises(rlvr.DataError):
        JSONVerifier().read(reference)


@pytest.mark.parametrize(
    ("schema", "document", "right"),
    [
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"a": 1, "x": 2}, True),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"a": 1, "x": "2"}, False),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"a": 1}, True),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"a": 1, "b": 1}, False),
        ({"patternProperties": {"^a": {}}, "additionalProperties": {"type": "null"}}, {"a": 1, "b": 1}, False),
        ({"properties": {"b": {"uniqueItems": True}}}, {"a": 1, "b": [1, True, "1", None]}, True),
        ({"properties": {"b": {"uniqueItems": True}}}, {"a": 1, "b": [1, 1.0]}, False),
        ({"properties": {"b": {"uniqueItems": True}}}, {"a": 1, "b": [{"x": 1, "y": 2}, {"y": 2, "x": 1}]}, False),
    ],
)  # fmt: skip
def test_the_linear_keywords_say_what_the_specification_says(
    schema: dict, document: dict, right: bool
):
    """They replace those of `jsonschema`, which match by Python's engine or compare pairwise."""
    pytest.importorskip("re2")
    reference = {"schema": schema, "values": {"/a": 1}}
    assert JSONVerifier().verify(json.dumps(document), reference).correct is right


def test_a_run_of_spaces_is_passed_once():
    """19,000 of them took 3 s: where an "and" may begin was tried at each, up to the last."""
    started = time.process_time()
    assert not ListVerifier().verify("Oslo" + " " * 19_000 + "Lima", TOWNS).correct
    assert ListVerifier().verify("Oslo, Bern" + " " * 10_000 + "and Lima", TOWNS).correct
    assert time.process_time() - started < 1
