"""SQL, JSON, function calls and short answers: what is right is paid, and what fools other checkers is not."""

import itertools
import json
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlvr
from rlvr.types import Outcome
from rlvr.verifiers.calls import CallsVerifier
from rlvr.verifiers.json_schema import JSONVerifier
from rlvr.verifiers.qa import QAVerifier, f1
from rlvr.verifiers.short_answers import normal_form
from rlvr.verifiers.sql import SQLVerifier
from tests.rewards.parts import refusal

# ------------------------------------------------------------------------------------------ SQL

PETS = {
    "schema": "CREATE TABLE pets (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, age REAL);",
    "fillings": [
        {"pets": [[1, "Rex", "dog", 3.5], [2, "Tom", "cat", 1.0], [3, "Rex", "dog", 2.0]]},
        {"pets": [[1, "Ann", "dog", 9.0], [2, "Zoe", "dog", 1.5]]},
        {"pets": [[1, "Tom", "cat", 4.0]]},
    ],
    "query": "SELECT name FROM pets WHERE kind = 'dog'",
}
LONG_CELLS = ", ".join(["printf('%.*c', 4900, 'x')"] * 40)
ORDERED = {**PETS, "query": "SELECT name FROM pets ORDER BY id DESC"}


def sql(text: str, reference=PETS) -> rlvr.Verdict:
    return SQLVerifier().verify(text, reference)


@pytest.mark.parametrize(
    "query",
    [
        "select name from pets where kind='dog'",
        "```sql\nSELECT p.name AS n FROM pets p WHERE p.kind LIKE 'dog' ORDER BY age;\n```",
        "<think>```sql\nselect 1\n```</think>\nHere:\n```sql\nSELECT name FROM pets WHERE kind <> 'cat'\n```",
        "WITH d AS (SELECT * FROM pets WHERE kind = 'dog') SELECT name FROM d -- done",
    ],
)
def test_a_query_with_the_same_rows_is_right(query):
    """In any order, under any column name; duplicates count."""
    assert sql(query).correct, sql(query)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT DISTINCT name FROM pets WHERE kind = 'dog'", "other-rows"),
        ("SELECT 1 WHERE 0", "other-rows"),
        ("SELECT 'Rex' UNION ALL SELECT 'Rex'", "other-rows"),
        ("SELECT name, kind FROM pets WHERE kind = 'dog'", "other-rows"),
        ("INSERT INTO pets VALUES (9, 'x', 'dog', 1)", "refused"),
        ("ATTACH '/tmp/x.db' AS x", "refused"),
        ("PRAGMA query_only = OFF", "refused"),
        ("SELECT sql FROM sqlite_master", "refused"),
        ("SELECT name FROM pets WHERE random() > 0", "refused"),
        ("SELECT load_extension('x')", "refused"),
        ("SELECT 1; DROP TABLE pets", "error"),
        ("SELECT absent FROM pets", "error"),
        ("SELECT zeroblob(1000000000)", "refused"),
        ("SELECT printf('%.400000000c', 'x') FROM pets", "error"),
        ("SELECT printf('%.' || '*c', 400000000, 'x') FROM pets", "error"),
        ("SELECT hex(hex(hex(printf('%4000d', 1)))) FROM pets", "error"),
        (
            "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n FROM t",
            "too-many-rows",
        ),
        (
            "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
            "budget",
        ),
        (
            f"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT {LONG_CELLS} FROM t",
            "too-large",
        ),
        (
            "```sql\nSELECT name FROM pets\n```\n```sql\nSELECT name FROM pets WHERE kind = 'dog'\n```",
            "hedged",
        ),
        ("BEGIN", "refused"),
        ("\x00", "error"),
        ("SELECT '\ud800'", "error"),
    ],
)
def test_a_query_that_is_right_by_chance_or_does_more_than_read_is_wrong(query, reason):
    """Constants, other multiplicities, writes, the catalogue, chance, and queries without end."""
    verdict = sql(query)
    assert (verdict.outcome, verdict.reason) == (Outcome.WRONG, reason), verdict


def test_no_single_step_of_a_query_takes_seconds():
    """A precision of 400,000,000 letters took 3 s in one step, of which 100 run between two looks at the budget."""
    started = time.process_time()
    sql(f"SELECT {', '.join(['printf(name || $%.400000000c$)'] * 20)} FROM pets".replace("$", "'"))
    assert time.process_time() - started < 1
    assert sql("SELECT printf('%s', name) FROM pets WHERE kind = 'dog'").correct


def test_no_query_is_no_answer():
    assert (
        sql("").outcome
        is sql("<think>SELECT").outcome
        is sql("```sql\n```").outcome
        is Outcome.UNPARSED
    )
    assert {sql(text).outcome for text in ("ok", "x", "SELECT", "?")} == {Outcome.UNPARSED}


def test_order_counts_where_the_reference_asks_for_it():
    """Not for an ORDER BY in brackets or in a text; an explicit `ordered` decides."""
    right, wrong = "SELECT name FROM pets ORDER BY id DESC", "SELECT name FROM pets"
    assert sql(right, ORDERED).correct
    assert sql(wrong, ORDERED).reason == "other-order"
    assert sql(wrong, {**ORDERED, "ordered": False}).correct
    inner = {
        **PETS,
        "query": "SELECT name FROM (SELECT * FROM pets ORDER BY id DESC) WHERE name <> 'order by'",
    }
    assert sql(wrong, inner).correct


def test_numbers_are_equal_within_rounding():
    """A sum in another order differs in its last bits; 3 is 3.0, and not '3'."""
    reference = {**PETS, "query": "SELECT SUM(age) FROM pets"}
    assert sql("SELECT SUM(age) * 1.0000000001 FROM pets", reference).correct
    assert not sql("SELECT SUM(age) * 1.00001 FROM pets", reference).correct
    assert sql(
        "SELECT COUNT(*) * 1.0 FROM pets", {**PETS, "query": "SELECT COUNT(*) FROM pets"}
    ).correct
    assert not sql(
        "SELECT CAST(COUNT(*) AS TEXT) FROM pets", {**PETS, "query": "SELECT COUNT(*) FROM pets"}
    ).correct


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "CREATE TABEL pets (id)"}, "the database cannot be made"),
        ({"fillings": [{"pets": [[1]]}]}, "the database cannot be made"),
        ({"fillings": [{"pets": "x"}]}, "the rows of table 'pets' are str 'x'"),
        ({"fillings": {"pets": []}}, "fillings is dict"),
        ({"ordered": "no"}, "ordered is str 'no'"),
        (
            {"query": "SELECT x FROM pets"},
            "the reference query str 'SELECT x FROM pets' cannot be run: error",
        ),
        (
            {"query": "SELECT 1"},
            "the reference query str 'SELECT 1' gives the same rows on every filling",
        ),
        ({"query": ""}, "the reference has no 'query'"),
    ],
)
def test_a_reference_that_cannot_be_used_is_an_error(change, said):
    """Of the row, not of the completion; a constant must not be right."""
    assert refusal(lambda: SQLVerifier().read({**PETS, **change})).startswith(said)


def test_a_single_filling_gets_a_second_one():
    """With every other row, so that a constant fails."""
    one = {**PETS, "fillings": PETS["fillings"][:1], "query": "SELECT COUNT(*) FROM pets"}
    assert sql("SELECT COUNT(id) FROM pets", one).correct
    assert not sql("SELECT 3", one).correct


# ------------------------------------------------------------------------------------------ JSON

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array"},
    },
    "required": ["name"],
}
ASKED = {"schema": SCHEMA, "values": {"/name": "Ada", "/tags/1": {"a/b": True}}}
GOOD = '{"name": "Ada", "age": 3.0, "tags": ["x", {"a/b": true}]}'


def test_a_text_of_the_schema_with_the_asked_values_is_right():
    """Keys in any order, other keys where the schema lets them, in a block or alone."""
    verify = JSONVerifier().verify
    assert verify(GOOD, ASKED).correct
    assert verify(f"Here it is:\n```json\n{GOOD}\n```\nDone.", ASKED).correct
    assert verify('{"x~": 1}', {"values": {"/x~0": 1.0}}).correct
    assert verify("[1, 2]", {"whole": [1, 2]}).correct


LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "1", 1.0, 0.5])
DOCUMENTS = st.dictionaries(
    st.sampled_from(["a", "b", "a/b", "m~n", ""]),
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2), max_leaves=4),
    min_size=1,
    max_size=3,
)  # fmt: skip


def tagged(value: object) -> object:
    """A value that equals another one exactly where JSON's values are equal."""
    if isinstance(value, dict):
        return {name: tagged(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [tagged(inner) for inner in value]
    return ("bool", value) if isinstance(value, bool) else ("other", value)


TWINS = [(1, True), (0, False), (1, 1.0), ("1", 1), (None, False), ("", None), ([], {}), (2, 2)]
"""Values that some languages take for one another."""


@settings(max_examples=30)
@given(
    DOCUMENTS,
    st.sampled_from(TWINS),
    st.sampled_from([None, 2]),
    st.sampled_from(["{}", "```json\n{}\n```", "Here it is:\n{}"]),
)
def test_a_document_is_right_if_its_values_are(document, twins, indent, place):
    """Keys in any order, any white space, 1 for 1.0; true is not 1, and an empty list is no object."""
    asked, said = ({**document, "in": [twin]} for twin in twins)
    said = dict(reversed(said.items()))
    text = place.format(json.dumps(said, indent=indent))
    verdict = JSONVerifier().verify(text, {"whole": asked})
    assert verdict.correct == (tagged(said) == tagged(asked)), text


@given(DOCUMENTS, st.sampled_from(["a", "b", "a/b", "m~n", ""]), LEAVES)
def test_a_pointer_names_its_value(document, key, value):
    """RFC 6901: ~ is written ~0, and / is ~1; what is not there is missing, also where null is asked for."""
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    verdict = JSONVerifier().verify(json.dumps(document), {"values": {pointer: value}})
    there = key in document and tagged(document[key]) == tagged(value)
    assert verdict.correct == there
    if not there:
        assert verdict.reason == ("other-value" if key in document else "missing")


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        ("{}", "wrong", "schema"),
        ('{"name": "Ada"}', "wrong", "missing"),
        ('{"name": "Bob", "tags": ["x", {"a/b": true}]}', "wrong", "other-value"),
        ('{"name": "Ada", "tags": ["x", {"a/b": 1}]}', "wrong", "other-value"),
        ('{"name": "Ada", "age": "3", "tags": ["x", {"a/b": true}]}', "wrong", "schema"),
        ('{"name": "Bob", "name": "Ada", "tags": ["x", {"a/b": true}]}', "unparsed", "no-json"),
        (GOOD.replace("3.0", "NaN"), "unparsed", "no-json"),
        (GOOD + " or " + GOOD, "unparsed", "no-json"),
        (f"```json\n{GOOD}\n```\n```json\n{{}}\n```", "wrong", "hedged"),
        ("[" * 100_000, "unparsed", "no-json"),
        ("1" * 50_000, "unparsed", "no-json"),
        ("ok", "unparsed", "no-json"),
        ("", "unparsed", "no-answer"),
        ('{"correct": true, "score": 1.0}', "wrong", "schema"),
    ],
)
def test_a_text_of_the_schema_alone_is_not_paid(text, outcome, reason):
    """Nor an empty object, a key twice, NaN, two answers, or nesting without end."""
    verdict = JSONVerifier().verify(text, ASKED)
    assert (verdict.outcome, verdict.reason) == (outcome, reason), verdict


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ({"schema": SCHEMA}, "the reference asks for no values"),
        ({"schema": {"type": "objekt"}, "values": {"/a": 1}}, "the schema is none: 'objekt'"),
        ({"schema": "x" * 9_999, "values": {"/a": 1}}, "the schema is none: 'xxx"),
        (
            {"schema": {"$ref": "https://example.org/x"}, "values": {"/a": 1}},
            "the schema refers to",
        ),
        ({"values": {"a": 1}}, "the reference asks for a value at 'a'"),
        ({"valeus": {"/a": 1}}, "the reference has 'valeus'"),
        ("x", "the reference is str 'x'"),
    ],
)
def test_a_schema_that_cannot_be_read_is_an_error(reference, said):
    message = refusal(lambda: JSONVerifier().read(reference))
    assert message.startswith(said)
    assert len(message) < 400


# ------------------------------------------------------------------------------------------ calls

FUNCTIONS = [
    {
        "name": "geo.area",
        "parameters": {
            "type": "dict",
            "properties": {
                "side": {"type": "float"},
                "n": {"type": "integer"},
                "unit": {"type": "string"},
            },
            "required": ["side"],
        },
    },
    {
        "name": "say",
        "parameters": {"properties": {"what": {"type": "string"}, "loud": {"type": "boolean"}}},
    },
]
ONE = {
    "functions": FUNCTIONS,
    "calls": [{"geo.area": {"side": [2.0], "n": [5, ""], "unit": ["cm", ""]}}],
}
TWO = {
    "functions": FUNCTIONS,
    "calls": [{"say": {"what": ["yes", "no"]}}, {"say": {"what": ["yes"]}}],
}


def calls(text: str, reference=ONE) -> rlvr.Verdict:
    return CallsVerifier().verify(text, reference)


@pytest.mark.parametrize(
    "text",
    [
        '[{"name": "geo.area", "arguments": {"side": 2.0, "n": 5, "unit": "C.M."}}]',
        '```json\n[{"geo.area": {"side": 2}}]\n```',
        '<think>geo.area()</think><tool_call>\n{"name": "geo.area", "arguments": {"side": 2}}\n</tool_call>',
    ],
)
def test_a_call_in_any_of_the_forms_is_read(text):
    """JSON, BFCL's own mapping, Python, tags; a whole number for a float; an optional argument left out."""
    assert calls(text).correct, calls(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("geo.area(side=2, color='red')", "extra-argument"),
        ("geo.Area(side=2)", "other-function"),
        ("[geo.area(side=2), geo.area(side=2)]", "other-count"),
        ("[geo.area(side=2), say(what='yes')]", "other-count"),
    ],
)
def test_another_call_is_wrong(text, reason):
    """BFCL's rules: types as the schema names them, no call and no argument too many."""
    assert (calls(text).outcome, calls(text).reason) == (Outcome.WRONG, reason)


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "side": st.sampled_from([2, 2.0, 3, "2", True]),
        "n": st.sampled_from([5, 5.0, True, 6]),
        "unit": st.sampled_from(["cm", "C.M.", "m", 1]),
    },
)


@given(ARGUMENTS, st.sampled_from(["json", "python", "mapping", "tags"]))
def test_a_call_is_judged_by_its_arguments_in_any_form(arguments, form):
    """BFCL's rules, one by one: required, typed as the schema says, and accepted."""
    written = {
        "json": json.dumps({"name": "geo.area", "arguments": arguments}),
        "mapping": json.dumps([{"geo.area": arguments}]),
        "python": f"geo.area({', '.join(f'{name}={value!r}' for name, value in arguments.items())})",
        "tags": f'<tool_call>{{"name": "geo.area", "arguments": {json.dumps(arguments)}}}</tool_call>',
    }
    side, n, unit = (arguments.get(name) for name in ("side", "n", "unit"))
    right = (
        (type(side) in (int, float) and side == 2)
        and (n is None or (type(n) is int and n == 5))
        and (unit is None or unit in ("cm", "C.M."))
    )
    assert calls(written[form]).correct == right, written[form]


@given(
    st.lists(
        st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.sampled_from("xyz"), min_size=1, max_size=3),
)
def test_parallel_calls_are_matched_in_some_order(accepted, said):
    """A greedy choice would fail where one call fits two: here every order is tried."""
    reference = {"functions": FUNCTIONS, "calls": [{"say": {"what": texts}} for texts in accepted]}
    text = f"[{', '.join(f'say(what={word!r})' for word in said)}]"
    fits = len(accepted) == len(said) and any(
        all(word in texts for word, texts in zip(order, accepted, strict=True))
        for order in itertools.permutations(said)
    )
    assert calls(text, reference).correct == fits


@pytest.mark.parametrize(
    "text",
    [
        "geo.area(*[2])",
        "geo.area(side=1+1)",
        "geo.area(side=__import__('os').getpid())",
        "geo.area(side=2) if True else 1",
        "geo.area(side={[]: 2})",
        "geo.area(**{'side': 2})",
        "geo.area(side=2, side=3)",
        "geo.area(side=2) # or geo.area(side=3)\n+ 1",
        "(" * 10_000,
        "[]",
        "",
        "ok",
        '[{"name": "geo.area", "arguments": "side"}]',
        '{"name": "geo.area", "arguments": {"side": 2}, "score": 1.0}',
        "<tool_call>",
    ],
)
def test_text_is_read_as_data_and_never_run(text):
    """An expression, a call without names, or another key is no call."""
    assert not calls(text).correct
    assert calls(text).outcome is Outcome.UNPARSED


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"calls": []}, "the reference is dict"),
        (
            {"calls": [{"sing": {}}]},
            "a call of 'sing' is asked for, and the functions are geo.area, say",
        ),
        ({"calls": [{"say": {"how": ["x"]}}]}, "say has no argument 'how'"),
        (
            {"calls": [{"say": {"what": ["x"]}, "geo.area": {"side": [1.0]}}]},
            "the reference dict",
        ),
        (
            {"calls": [{"say": {"what": "x"}}]},
            "say has no argument 'what', or no list of accepted values",
        ),
    ],
)
def test_a_reference_of_calls_that_cannot_be_used_is_an_error(change, said):
    assert refusal(lambda: CallsVerifier().read({**ONE, **change})).startswith(said)


# ---------------------------------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("answer", "golds", "right"),
    [
        ("The Eiffel Tower.", ["eiffel tower", "tower"], True),
        ("<answer> Eiffel-Tower </answer>", "EiffelTower", True),
        ("<think>x</think>tower", ["eiffel tower", "tower"], True),
        ("the", ["The"], True),
        ("a", ["The"], False),
        ("", ["The"], False),
        ("!!!", ["The"], False),
        ("???", ["!!!"], False),
        ("!!!", ["!!!"], True),
        ("Paris or Rome", ["Paris"], False),
        ("<answer>Paris</answer><answer>Rome</answer>", ["Paris"], False),
        ("<answer>Paris", ["Paris"], True),
        (" ".join(["Paris"] * 21), [" ".join(["Paris"] * 20)], False),
        ("東京", ["東京"], True),
        ("ok", ["Paris"], False),
    ],
)
def test_exact_match_has_no_empty_form(answer, golds, right):
    """Search-R1 and verl pay an empty answer to "The"; here an answer that is nothing equals nothing."""
    assert QAVerifier().verify(answer, golds).correct is right


def test_partial_credit_is_f1_and_never_right():
    """2 of 3 words said, 2 of 2 asked: F1 = 2 · 2 / (3 + 2) = 0.8."""
    verdict = QAVerifier(credit="f1").verify("big Eiffel tower", ["Eiffel tower", "x"])
    assert (verdict.outcome, verdict.value) == (Outcome.WRONG, 0.8)
    assert QAVerifier().verify("big Eiffel tower", "Eiffel tower").value == 0
    assert normal_form("The  A") == "the a"


WORDS = st.lists(st.sampled_from(["red", "blue", "two", "x"]), min_size=1, max_size=5)


@given(WORDS, WORDS)
def test_f1_counts_each_word_once(answer, gold):
    """Words taken one by one out of the other text; the same from either side, and 1 for the same words."""
    left, shared = list(gold), 0
    for word in answer:
        if word in left:
            left.remove(word)
            shared += 1
    expected = 2 * shared / (len(answer) + len(gold))
    assert f1(" ".join(answer), " ".join(gold)) == pytest.approx(expected)
    assert f1(" ".join(gold), " ".join(answer)) == pytest.approx(expected)
    assert (expected == 1) == (Counter(answer) == Counter(gold))


@pytest.mark.parametrize("reference", [[], "", ["x", ""], 3, [3], None])
def test_a_question_without_an_answer_is_an_error(reference):
    assert refusal(lambda: QAVerifier().verify("x", reference)).startswith("the reference is")


# ------------------------------------------------------------------------------------- environments


@pytest.mark.parametrize("name", ["sql-v4", "json-v4", "function-call-v4", "qa-v4"])
def test_examples_are_right_and_vacuous_answers_are_not(name):
    """Thirty tasks each; references can be written as JSON; the other split has other tasks."""
    env = rlvr.make(name)
    prompts = set()
    for index in range(30):
        task = env.task(index)
        prompts.add(str(task.prompt))
        env.reference_of(json.loads(json.dumps(task.reference)))
        assert env.score(task, env.example(task)).verdict.correct
        for text in ("", "ok", "x", "[]", "{}", "SELECT 1", "null", str(task.prompt)):
            assert env.score(task, text).total == 0, (text, task)
    assert len(prompts) > 12
    assert not prompts & {str(rlvr.make(name, split="test").task(i).prompt) for i in range(30)}


@pytest.mark.parametrize(
    ("right", "twin"),
    [
        ('I will call:\n[f(city="Lagos")]', 'I will call:\n[f(city="Turin")]'),
        ('```python\nf(city="Lagos")\n```', '```python\nf(city="Lagos")\nf(city="Lagos")\n```'),
        ('f("Lagos")', 'f("Lagos", "Turin")'),
        (
            '{"type": "function", "function": {"name": "f", "arguments": "{\\"city\\": \\"Lagos\\"}"}}',
            '{"type": "function", "function": {"name": "f", "arguments": "city"}}',
        ),
        (
            '[TOOL_CALLS] [{"name": "f", "arguments": {"city": "Lagos"}}]</s>',
            '[TOOL_CALLS] [{"name": "f", "arguments": {"city": "Lagos"}}] or',
        ),
        ('functools[{"name": "f", "arguments": {"city": "Lagos"}}]', 'functools["f", "Lagos"]'),
        (
            '<function_call>{"f": {"city": "Lagos"}}</function_call>',
            '<function_call>{"f": {"city": "Lagos"}}<function_call>',
        ),
        (
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"city": "Lagos"}<｜tool▁call▁end｜>',
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{"city": "Lagos"}<｜tool▁call▁end｜>',
        ),
        ('```tool_code\nprint(f(city="Lagos"))\n```', '```tool_code\nprint("f", "Lagos")\n```'),
        (
            'Here is the call:\n\n`f(city="Lagos")`',
            'Here is the call:\n\n`f(city="Lagos")` or `g()`',
        ),
        (
            '{"name": "f", "arguments": {"city": "Lagos"}}\n\nThis asks for Lagos.',
            '{"name": "f", "arguments": {"city": "Lagos"}}\n\nNo, Turin.',
        ),
        ('{"name": "f", "input": {"city": "Lagos"}}', '{"name": "f", "input": {"town": "Lagos"}}'),
        (
            '{"tool_calls": [{"name": "f", "arguments": {"city": "Lagos"}}]}',
            '{"tool_calls": [{"name": "f", "arguments": {"city": "Lagos"}, "args": {}}]}',
        ),
    ],
)
def test_calls_are_read_as_people_and_apis_write_them(right: str, twin: str):
    """After prose, on lines, by place, in the words of chat APIs; each with a wrong twin."""
    reference = CallsVerifier.reference_example
    assert CallsVerifier().verify(right, reference).correct
    assert not CallsVerifier().verify(twin, reference).correct


def test_empty_lines_behind_a_call_take_linear_time():
    """A look behind each of 6,000 line ends took 2.7 s."""
    started = time.process_time()
    assert not calls("[geo.area(side=2)" + "\n" * 9_000 + "say(what=)").correct
    assert time.process_time() - started < 0.5


def test_json_is_read_after_prose_and_two_documents_are_not():
    """ "Here it is: {…}" has one document, "{…} or {…}" has none that counts."""
    asked = {"whole": {"a": 1}}
    assert JSONVerifier().verify('Here it is: {"a": 1}', asked).correct
    assert JSONVerifier().verify('{"a": 1}\n\nI hope this helps.', asked).correct
    for text in ('{"a": 2} or {"a": 1}', 'Here: {"a": 1} {"a": 1}', "Here: {a: 1}", 'Not {"a": 2}'):
        assert not JSONVerifier().verify(text, asked).correct, text
    for text in ('{"a": 1} or nothing', 'Not {"a": 1}', '{"a": 1}, maybe'):
        assert not JSONVerifier().verify(text, asked).correct, text
