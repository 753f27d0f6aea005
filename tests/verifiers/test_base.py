"""The one shape of a verifier: ids, references that are read once, a final verify, and one extraction."""

import json
import pickle
from dataclasses import dataclass

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.errors import UsageError
from rlvr.types import Outcome, Task, Verdict, verifies_async
from rlvr.verifiers.answers import Answer, Form, find_answer
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.calls import CallsVerifier
from rlvr.verifiers.chemistry import ChemistryVerifier
from rlvr.verifiers.choices import ChoiceVerifier
from rlvr.verifiers.code import CodeVerifier
from rlvr.verifiers.instructions import InstructionVerifier
from rlvr.verifiers.json_schema import JSONVerifier
from rlvr.verifiers.judge import Fallback, Judge
from rlvr.verifiers.logic import ExpressionVerifier, GridVerifier, RolesVerifier, SudokuVerifier
from rlvr.verifiers.math import MathVerifier
from rlvr.verifiers.qa import QAVerifier
from rlvr.verifiers.science import ScienceVerifier
from rlvr.verifiers.sql import SQLVerifier

PLAIN = [
    MathVerifier(),
    ScienceVerifier(),
    ChemistryVerifier(),
    ChoiceVerifier(),
    RolesVerifier(),
    GridVerifier(),
    SudokuVerifier(),
    ExpressionVerifier(),
    QAVerifier(),
    SQLVerifier(),
    JSONVerifier(),
    CallsVerifier(),
    InstructionVerifier(),
]
VERIFIERS = [*PLAIN, CodeVerifier()]
READS: list[object] = []


@dataclass(frozen=True)
class Exact(BaseVerifier[Answer, str]):
    """The reference's text."""

    version = 3
    form = Form(bare=True)

    def read(self, reference):
        READS.append(reference)
        return reference["text"].strip()

    def judge(self, answer, reference):
        return Verdict("correct" if answer.text == reference else "wrong", why="compared")


def test_an_id_is_made_of_the_class_and_its_version_and_cannot_be_set():
    """`QAVerifier(id="math-verifier-v5")` worked, and its records were another verifier's."""
    assert [one.id for one in PLAIN] == [
        f"{name}-verifier-v{5 if name == 'math' else 4}"
        for name in (
            "math science chemistry choice roles grid sudoku expression qa sql json calls instruction".split()
        )
    ]
    assert (Exact.id, Judge.id, Fallback.id) == ("exact-v3", "judge-v3", "fallback-v3")
    with pytest.raises(TypeError):
        QAVerifier(id="math-verifier-v5")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        QAVerifier().id = "math-verifier-v5"
    for name in ("id", "verify"):
        with pytest.raises(rlvr.UsageError, match=f"defines {name}"):
            type("Other", (Exact,), {name: "x"})


def test_a_reference_is_read_once_and_told_apart_by_type():
    """1, 1.0 and True are equal in Python, and not as references; a refused one is refused from memory."""
    verifier = Exact()
    READS.clear()
    for _ in range(3):
        assert verifier.verify("a", {"text": "a "}).correct
        with pytest.raises(rlvr.DataError, match="exact-v3"):
            verifier.read({"text": 1})
        with pytest.raises(rlvr.DataError, match="cannot be read"):
            verifier.read({"text": True})
    assert [json.dumps(one) for one in READS] == ['{"text": "a "}', '{"text": 1}', '{"text": true}']


def test_a_class_of_a_script_can_be_sent_to_workers():
    """By value, as cloudpickle does; the cache of references has a lock and stays behind."""
    sent = pickle.loads(
        cloudpickle.dumps(type("Own", (Exact,), {"read": lambda self, reference: reference})())
    )
    assert sent.verify("a", "a").correct


def test_a_judge_that_waits_is_awaited():
    """A verdict of `extract` too: a caller that awaits must not get a bare verdict."""

    class Waits(Exact):
        async def judge(self, answer, reference):
            return Verdict("correct")

    assert verifies_async(Waits())
    env = rlvr.Environment.from_rows(
        [{"prompt": "?", "reference": {"text": "a"}}], verifier=Waits()
    )
    assert [env.score(env.task(0), text).verdict.outcome for text in ("a", "")] == [
        Outcome.CORRECT,
        Outcome.UNPARSED,
    ]


ODD = [
    None, 5, "", [], {}, {"a": 1}, [None], ["x", None], float("nan"), True, b"x", [[1]], [[[]]], {"a": {"b": []}},
    {"options": ["a", "a"], "answer": "a"}, {"options": 5, "answer": 5}, {"numbers": ["6"], "target": 1},
    {"schema": "x", "fillings": 5, "query": "x"}, {"functions": 5, "calls": 5}, [{"kind": 5}],
]  # fmt: skip


@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda one: one.id)
def test_any_reference_is_read_or_refused_by_a_data_error(verifier: BaseVerifier):
    """References are data from strangers: lists and mappings raised TypeError in three verifiers."""
    for reference in ODD:
        try:
            verifier.read(reference)
        except rlvr.DataError:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["options", "answer", "numbers", "target", "whole", "kind", "calls", "functions"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(reference=JSON)
def test_any_json_is_read_or_refused(reference):
    """The same with what Hypothesis draws; code's and SQL's forms are tried by their own tests."""
    for verifier in PLAIN:
        try:
            verifier.read(reference)
        except rlvr.DataError:
            continue


EXAMPLES = [one for one in PLAIN if one.reference_example is not None]


@pytest.mark.parametrize("verifier", EXAMPLES, ids=lambda one: one.id)
def test_the_example_of_a_reference_is_correct(verifier: BaseVerifier):
    """`rlvr verifiers` shows both; None is for references to which no text can be made."""
    example = verifier.example(verifier.reference_example)
    assert example is None or verifier.verify(example, verifier.reference_example).correct


ANSWERS = {
    "science": (ScienceVerifier(), "5 m", "5 m"),
    "chemistry": (ChemistryVerifier(), "2 H2 + O2 -> 2 H2O", "2 H2 + O2 -> 2 H2O"),
    "choice": (ChoiceVerifier(), {"options": ["Rome", "Lyon"], "answer": "Rome"}, "A"),
    "roles": (RolesVerifier(), {"Ann": "knight", "Bob": "knave"}, "Ann: knight, Bob: knave"),
    "grid": (GridVerifier(), [["a", "b"], ["c", "d"]], "a, b\nc, d"),
    "expression": (ExpressionVerifier(), {"numbers": [6, 4], "target": 24}, "6*4"),
    "qa": (QAVerifier(), "Paris", "Paris"),
    "sql": (SQLVerifier(), SQLVerifier.reference_example, "SELECT a FROM t"),
    "json": (JSONVerifier(), {"whole": {"a": 1}}, '{"a": 1}'),
    "calls": (CallsVerifier(), CallsVerifier.reference_example, '[f(city="Lagos")]'),
}
WRAPPINGS = (
    "\\boxed{{{}}}", "<answer>{}</answer>", "<answer>\n```\n{}\n```\n</answer>", "Thoughts.\n\nAnswer: {}",
    "Thoughts.\n\n**Answer:** {}", "Thoughts. The answer is {}", "<answer>\\boxed{{{}}}</answer>",
    "<answer>${}$</answer>", "<answer>**{}**</answer>", "**\\boxed{{{}}}**", "<answer>{0}</answer> Checked: "
    "<answer>{0}</answer>", "<answer>zzz</answer>\n\nWait, that is wrong.\n\n<answer>{}</answer>",
    "\\boxed{{\\text{{{}}}}}", "<answer>The answer is {}</answer>", "<answer>{}",
)  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_a_right_answer_is_accepted_in_usual_wrappings(name: str):
    """106 of 168 were; a fence and bare text count for the verifiers that declare them."""
    verifier, reference, answer = ANSWERS[name]
    for wrapping in WRAPPINGS:
        verdict = verifier.verify(wrapping.format(answer), reference)
        assert verdict.correct, (wrapping, verdict)


@pytest.mark.parametrize("name", ANSWERS)
def test_hedges_and_unfinished_texts_are_never_paid(name: str):
    """Two answers in one statement, an open box, and an answer in the thinking."""
    verifier, reference, answer = ANSWERS[name]
    for text in (
        f"<answer>zzz</answer> or <answer>{answer}</answer>",
        f"<answer>{answer}</answer>, maybe <answer>zzz</answer>",
        f"<answer>{answer} or zzz</answer>",
        f"<answer>{answer}, maybe zzz</answer>",
        f"\\boxed{{{answer}",
        f"<think><answer>{answer}</answer>",
        f"<think><answer>{answer}</answer></think> I cannot say.",
        "<answer></answer>",
        f"<answer>{answer}?</answer>",
        f"<answer>{answer}</answer>?",
        f"It is not <answer>{answer}</answer>.",
        f"It can never be <answer>{answer}</answer>.",
        f"It is not <answer>zzz</answer> or <answer>{answer}</answer>.",
        f"It is neither <answer>zzz</answer> nor <answer>{answer}</answer>.",
        f"<answer>zzz</answer> is not wrong, <answer>{answer}</answer>",
        f"It is not <answer>{answer}</answer> but <answer>zzz</answer>.",
        f"<answer>{answer}</answer> is wrong.",
        f"<answer>{answer}</answer>\n\nNo, that is wrong; it is zzz.",
        f"So <answer>{answer}</answer>. Wait, this is a mistake.",
        f"Option 1: <answer>zzz</answer>\nOption 2: <answer>{answer}</answer>",
        f"If n is even it is <answer>zzz</answer>. If n is odd it is <answer>{answer}</answer>.",
        f"<answer>zzz</answer>\n\nAlternatively:\n\n<answer>{answer}</answer>",
        f"<answer>zzz</answer>\n<answer>{answer}</answer>",
        "",
    ):
        assert not verifier.verify(text, reference).correct, text


@pytest.mark.parametrize("name", ANSWERS)
def test_a_correction_is_paid_and_other_denials_are_not_the_answers(name: str):
    """Of 1,500 right real completions twelve have "not" shortly before the box."""
    verifier, reference, answer = ANSWERS[name]
    for text in (
        "<answer>zzz</answer>. Wait, I forgot one: <answer>{}</answer>",
        "<answer>zzz</answer> is wrong. The right one: <answer>{}</answer>",
        "<answer>zzz</answer> is what one gets first; but the correct answer is <answer>{}</answer>",
        "It's not <answer>zzz</answer> but <answer>{}</answer>.",
        "Not <answer>zzz</answer>, it is <answer>{}</answer>.",
        "<answer>zzz</answer> is wrong; <answer>{}</answer>",
        "The one that is not used is <answer>{}</answer>.",
        "It does not matter which. <answer>{}</answer>",
        "<answer>{0}</answer>\n\nAlternatively we get the same: <answer>{0}</answer>",
        "<answer>{}</answer>\n\nIt is often thought that zzz is right; that is a common mistake.",
        "<answer>{}</answer>. Some say zzz, but that is wrong.",
        "<answer>{}</answer>. This is not true for all other values.",
    ):
        verdict = verifier.verify(text.format(answer), reference)
        assert verdict.correct, (text, verdict)


def test_what_an_answer_carries():
    """Its text without wrappings, the prompt's text, and how it was marked."""
    task = Task("t", [{"role": "user", "content": "Where?"}])
    assert find_answer("So it is <answer>**Rome**</answer>", Form(), task) == Answer(
        "Rome", "Where?", "tag"
    )
    long = find_answer("<answer>" + "a" * 99 + "</answer>", Form(longest=10))
    assert (long.outcome, long.reason) == (Outcome.WRONG, "too-long")
    block = find_answer("```sql\nSELECT 'the answer is 5'\n```", Form(fences=frozenset(("sql",))))
    assert block == Answer("SELECT 'the answer is 5'", "", "fence")


def test_a_prompt_is_no_task():
    """One clear error for what is easily mistaken."""
    with pytest.raises(UsageError, match=r"the task is a str; give rlvr.Task"):
        QAVerifier().verify("5", "5", "What is 2 + 3?")
