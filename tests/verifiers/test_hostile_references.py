"""References are data from strangers, and answers any text: each is read or refused, in little time, and no pair fails."""

import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr.errors import DataError
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.instructions import KINDS, InstructionVerifier, read_instruction
from rlvr.verifiers.json_schema import JSONVerifier
from rlvr.verifiers.named import PLACES, class_of, make_verifier
from rlvr.verifiers.qa import QAVerifier
from tests.mutated import mutated
from tests.verifiers.test_instructions import ANY

CPU_S = 2.0  # of one reference, read and judged by; programs take longer
NAMES = [name for name in PLACES if name not in ("code", "judge")]  # a program; another model
LAUGHS = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(28)} | {"d28": {}}
F = {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}
WORDS = {
    "kind": "length_constraints:number_words",
    "arguments": {"num_words": 10**400, "relation": "around"},
}
REPEATED = [
    {"kind": "keywords:existence", "arguments": {"keywords": ["(a+)+$"]}},
    {"kind": "detectable_format:multiple_sections"}
    | {"arguments": {"section_spliter": "(a+)+$", "num_sections": 1}},
    {"kind": "keywords:forbidden_words", "arguments": {"forbidden_words": ["(a|a)*$"]}},
]


def judged(verifier, reference, completion):
    """The verdict, or the error of a reference that cannot be used, within its time."""
    began = time.process_time()
    try:
        verdict = verifier.verify(completion, reference)
    except DataError as error:
        verdict = error
    took = time.process_time() - began
    assert took < CPU_S, f"{took:.1f} CPU s: {reference!r:.300}"
    return verdict


def test_a_schema_that_multiplies_makes_no_answer_wrong():
    """Two references in each of 28 definitions are 2 ** 28 evaluations, of any answer."""
    schema = {"$defs": LAUGHS, "$ref": "#/$defs/d0"}
    error = judged(JSONVerifier(), {"schema": schema, "values": {"/a": 1}}, '{"a": 1}')
    assert isinstance(error, DataError)
    assert "do not multiply" in str(error)
    # One that multiplies by the depth of the answer is found only with an answer: UNSCORED, not WRONG.
    deep = json.loads('{"a":' * 25 + "1" + "}" * 25)
    twice = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}
    with pytest.raises(DataError, match="do not multiply"):
        JSONVerifier().verify(json.dumps(deep), {"schema": twice, "values": {"/a": 1}})


def test_an_answer_of_many_values_is_its_own_fault():
    """A plain schema and 60,000 values: the completion cannot make itself UNSCORED."""
    schema = {"items": {"type": "integer", "minimum": 0, "maximum": 10}}
    answer = json.dumps([1] * 40_000).replace(" ", "")
    verdict = judged(JSONVerifier(), {"schema": schema, "values": {"/0": 1}}, answer)
    assert verdict.outcome is Outcome.WRONG
    assert "evaluations" in verdict.why


@pytest.mark.parametrize("asked", REPEATED, ids=lambda one: one["kind"])
def test_a_keyword_that_is_a_pattern_is_matched_in_linear_time(asked):
    """The published checkers take keywords as patterns, which strangers write."""
    verdict = judged(InstructionVerifier(policy="reference"), [asked], "a" * 50_000 + "!")
    assert isinstance(verdict, Verdict)


@pytest.mark.parametrize(
    ("verifier", "reference", "why"),
    [
        (QAVerifier(), ["a b c"] * 20_000, "10,000 is the most"),
        (QAVerifier(), ["Paris", "\\boxed{"], "cannot be read as an answer"),
        (make_verifier("list"), ["a,b;c"], "cannot be told apart"),
        (make_verifier("roles"), {"A" * 3000: "knight"}, "longer than an answer may be"),
        (make_verifier("sudoku"), [[1, 0, 0, 1], *[[0] * 4] * 3], "a digit twice"),
        (JSONVerifier(), {"whole": 0, "values": {"/a": 1}}, "give one of them"),
        (make_verifier("calls"), {"functions": [F], "calls": [{"f": {"a": [1]}}] * 60}, "50 calls"),
        (make_verifier("calls"), {"functions": [{"name": 5}], "calls": [{5: {}}]}, "no call"),
        (InstructionVerifier(), [WORDS], "num_words is int"),
        (make_verifier("calls"), {"functions": [F], "calls": [{"f": {"a": [1] * 10_001}}]}, "most"),
        (make_verifier("expression"), {"numbers": [1, 1], "target": 10**5000}, "numbers"),
        (make_verifier("code"), {"inputs": [""], "outputs": ["1"], "cpu_s": float("inf")}, "cpu_s"),
    ],
)
def test_what_makes_no_sense_is_an_error_of_the_row(verifier, reference, why):
    """Not of the run, which other errors would end."""
    with pytest.raises(DataError, match=why):
        verifier.read(reference)


def test_values_are_compared_as_json_has_them():
    """A tuple is a list and the key 1 a text, as JSON writes them: no answer was right for them."""
    asked = {"whole": {1: ("a", "b")}}
    assert JSONVerifier().verify('{"1": ["a", "b"]}', asked).correct
    assert JSONVerifier().verify(JSONVerifier().example(asked), asked).correct


def test_what_a_row_lacks_may_be_none():
    """A data set with one schema has it so; null was the right answer to such a row."""
    asked = {"schema": None, "whole": None, "values": {"/a": 1}}
    assert JSONVerifier().verify('{"a": 1}', asked).correct
    assert not JSONVerifier().verify("null", asked).correct
    assert JSONVerifier().example(asked) is None
    assert JSONVerifier().verify("null", {"whole": None}).correct


@pytest.mark.parametrize("name", NAMES)
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_reference_is_read_or_refused(name, data):
    """A changed reference is a DataError or has a verdict, and what was read judges every answer."""
    verifier, good = make_verifier(name), class_of(name).reference_example
    reference = data.draw(mutated(good))
    example = verifier.example(good) or "\\boxed{1}"
    for completion in (example, "", "```json\n{}\n```", "\\boxed{" + "1" * 400 + "}"):
        verdict = judged(verifier, reference, completion)
        assert isinstance(verdict, DataError) or verdict.outcome is not Outcome.UNSCORED


# signs that fold to two, that are digits or spaces to some functions alone, halves of pairs
ODD = "\ud800 \x00 İ ı ß ﬁ Ⅷ ½ ² ① ٣ \u202e \u2028 \x85 \u0301 \ufeff ㎏ − a 1 1e999 ( ) [ { } \\ ^ _ = -> *"
PIECES = (*ODD.split(" "), " ", "\n", "\\boxed{", "</answer>", "```", "SELECT ", "f(", "knight ")
FORMS = (
    "%",
    "<answer>%</answer>",
    "\\boxed{%}",
    "Answer: %",
    "```\n%\n```",
    "%a 1",
    "a %. 1",
    "1%",
)
ANSWERS = [form.replace("%", piece) for form in FORMS for piece in PIECES]


@pytest.mark.parametrize("name", NAMES)
def test_any_answer_has_a_verdict(name):
    """An exception would let a completion choose UNSCORED."""
    verifier, reference = make_verifier(name), class_of(name).reference_example
    for answer in ANSWERS:
        assert verifier.verify(answer, reference).why, answer


def test_any_answer_follows_an_instruction_or_not():
    """Each kind says so, under both policies; those of language need letters of their own."""
    for name, kind in KINDS.items():
        if "language" in name or "change_case" in name:
            continue
        instruction = read_instruction(
            name, {argument: ANY[argument] for argument in kind.arguments}
        )
        for answer in filter(str.strip, ANSWERS):
            for strict in (True, False):
                assert isinstance(instruction.why_not(answer, strict=strict), str), (name, answer)
