"""Records hold all that is needed to reach the same score again, and replay says where it did not."""

import json

import pytest

import rlvr
from rlvr.data.formats import read_rows
from rlvr.data.rows import Journal, dump_row
from rlvr.errors import DataError, UnknownEnvironment, UsageError
from rlvr.scoring.identity import identity_of
from rlvr.scoring.records import is_record_of, provenance, record, replay
from tests.environments import PLACES, Configured, Siblings, Trials

PLACE = "tests.environments:Trials"
TEXTS = ["7", "8", "", "\ud800\x00", "json:", "ß" * 1000, "7@raise"]


def records(env: rlvr.Environment, place: str, rows: list[dict]) -> list[dict]:
    """As they are read back from a file."""
    run = provenance(env, place)
    return [
        json.loads(dump_row(record(scored, run))) for scored in rlvr.score(env, rows, workers=0)
    ]


@pytest.fixture
def recorded() -> list[dict]:
    rows = [
        {"task": 7, "completion": text, "id": f"row {i}", "mine": i} for i, text in enumerate(TEXTS)
    ]
    return records(Trials(), PLACE, rows)


def differences(rows: list[dict]) -> list[list[str]]:
    return [
        [str(difference) for difference in found] for found in replay(rows, workers=0, allow=PLACES)
    ]


# ------------------------------------------------------------------------------ what a record holds


def test_a_record_says_what_was_asked_what_came_of_it_and_who_said_so(recorded):
    """Field by field, by hand."""
    assert recorded[0].pop("identity") == identity_of(Trials()).digest
    assert recorded[0] == {
        "id": "row 0",
        "outcome": "correct",
        "total": 1.0,
        "parts": {"correct": 1.0},
        "value": 1.0,
        "why": "compared: with 7",
        "answer": "7",
        "detail": {},
        "completion": "7",
        "length_tokens": None,
        "truncated": False,
        "task": "Trials/train/7",
        "prompt": "Say 7.",
        "reference": 7,
        "meta": {},
        "env": PLACE,
        "config": {},
        "verifier": None,
        "reward": "correct",
        "row": {"mine": 0},
    }


def test_a_record_of_our_failure_has_the_traceback_and_no_total(recorded):
    """So that it can be mended, and not be averaged."""
    lost = recorded[-1]
    assert (lost["outcome"], lost["total"], lost["parts"]) == ("unscored", None, {})
    assert lost["why"] == "worker-error: RuntimeError: as asked"
    assert "RuntimeError: as asked" in lost["detail"]["traceback"]


def test_provenance_names_the_verifier_and_its_version():
    """Whose version goes up whenever a verdict could change."""

    class Exact:
        id = "exact-v3"

        def verify(self, completion, reference):
            return rlvr.Verdict(rlvr.Outcome.WRONG, why="no")

    env = rlvr.Environment.from_rows([], verifier=Exact())
    assert provenance(env.with_reward(rlvr.Correct(Exact()) + 0.5), "x")["verifier"] == "exact-v3"


def test_options_are_recorded_as_they_will_be_read_back():
    """A tuple comes back as a list; a run that is resumed must not take that for another one."""
    run = provenance(Configured(pair=(3, 4), word="milk"), "x")
    assert run["config"] == {"pair": [3, 4], "word": "milk"}
    assert json.loads(json.dumps(run)) == run


@pytest.mark.parametrize("value", [object(), float("nan"), {1}], ids=["object", "NaN", "set"])
def test_options_that_cannot_be_recorded_are_refused_before_the_run(value):
    """Not after its first completion."""

    class Open(Trials):
        anything: object = None

    with pytest.raises(UsageError, match=r"x: its options .* cannot be recorded as JSON"):
        provenance(Open(anything=value), "x")


def test_a_record_continues_a_run_only_if_nothing_else_was_asked(recorded):
    """Whatever came out: that is not known before. Each other field decides."""
    run = provenance(Trials(), PLACE)
    item = rlvr.Item("row 0", Trials().task(7), rlvr.Completion("7"), {"mine": 0})
    [record, *_] = recorded
    assert is_record_of(
        record | {"outcome": "wrong", "total": 0.0, "why": "x", "detail": {"a": 1}}, item, run
    )
    for name in (
        "id",
        "completion",
        "length_tokens",
        "truncated",
        "task",
        "prompt",
        "reference",
        "meta",
        "config",
    ):
        assert not is_record_of(record | {name: "another"}, item, run), name
    assert not is_record_of(record | {"row": {}}, item, run)


# ------------------------------------------------------------------------------------------ replay


def test_a_replay_finds_every_score_again(recorded):
    """One empty list per record that was scored; the UNSCORED one is passed over."""
    assert differences(recorded) == [[]] * (len(TEXTS) - 1)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_replay_is_exact_from_either_kind_of_file(tmp_path, recorded, ending):
    """Surrogates, NUL and a text that looks like our mark go through the file."""
    with Journal(tmp_path / f"out.{ending}") as out:
        for row in recorded:
            out.write(row)
        out.finish()
    rows = [line.row for line in read_rows(tmp_path / f"out.{ending}")]
    assert rows == recorded
    assert differences(rows) == [[]] * (len(TEXTS) - 1)


@pytest.mark.parametrize(
    ("field", "planted", "text"),
    [
        ("outcome", "wrong", "row 0: outcome was 'wrong', is now 'correct'"),
        ("value", 0.9999999999999999, "row 0: value was 0.9999999999999999, is now 1.0"),
        ("why", "because", "row 0: why was 'because', is now 'compared: with 7'"),
        ("answer", None, "row 0: answer was None, is now '7'"),
        ("total", 0.5, "row 0: total was 0.5, is now 1.0"),
        ("parts", {"correct": 0.5}, "row 0: parts was {'correct': 0.5}, is now {'correct': 1.0}"),
        ("reward", "correct + 1", "row 0: reward was 'correct + 1', is now 'correct'"),
        ("verifier", "math-v1", "row 0: verifier was 'math-v1', is now None"),
    ],
)
def test_a_planted_difference_is_reported(recorded, field, planted, text):
    """To the last bit, and in its record alone."""
    recorded[0][field] = planted
    found = differences(recorded)
    assert found[0] == [text]
    assert not any(found[1:])


def test_a_changed_completion_is_another_answer(recorded):
    """What is replayed is the record's own completion against its own reference."""
    recorded[1]["completion"] = "7"
    assert [difference.partition(" was ")[0] for difference in differences(recorded)[1]] == [
        "row 1: outcome",
        "row 1: value",
        "row 1: answer",
        "row 1: total",
        "row 1: parts",
    ]


def test_a_replay_looks_at_the_identity_of_each_record(recorded):
    """Two scored files in one: that of the first record was compared alone, and was the one here."""
    rows = [*recorded, {**recorded[0], "identity": "fedcba"}]
    with pytest.warns(RuntimeWarning, match="the records have the identity fedcba"):
        assert not any(replay(rows, workers=0, allow=PLACES))


def test_a_replay_compares_a_record_that_is_not_of_the_file_beside_it(recorded):
    """The file beside two runs in one says what decided one of them."""
    rows = [*recorded, {**recorded[0], "identity": "fedcba"}]
    here = identity_of(Trials())
    with pytest.warns(RuntimeWarning, match="no file beside them says it"):
        assert not any(replay(rows, workers=0, allow=PLACES, identity=here))


@pytest.mark.parametrize("strange", [[1], {"a": 1}, 5])
def test_an_identity_that_is_no_text_is_another(recorded, strange):
    """A record is a stranger's file."""
    with pytest.warns(RuntimeWarning, match="the records have the identity "):
        assert not any(replay([{**recorded[0], "identity": strange}], workers=0, allow=PLACES))


def test_a_replay_makes_the_environment_with_its_options():
    """Records of several configurations may stand in one file, also with the same ids."""
    row = {"task": 0, "completion": "0", "id": "same"}
    a = records(Configured(word="milk"), "tests.environments:Configured", [row])
    b = records(Configured(pair=(3, 4)), "tests.environments:Configured", [row])
    assert list(replay([*a, *b, *b, *a], workers=0, allow=PLACES)) == [[]] * 4


def test_a_replay_compares_the_same_siblings():
    """The UNSCORED one was not compared then and is not now: 10 and 20 give 1/2 and -1/2."""
    rows = [
        {"task": "a", "reference": 7, "completion": text, "length_tokens": length}
        for text, length in (("7", 10), ("7@raise", 99), ("7", 20))
    ]
    recorded = records(Siblings(), "tests.environments:Siblings", rows)
    assert [row["total"] for row in recorded] == [1.5, None, 0.5]
    assert differences(recorded) == [[], []]


def test_nothing_gives_nothing():
    assert differences([]) == []


def test_records_that_are_none_are_refused_by_name(recorded):
    """A user's own file, or one that was edited."""
    with pytest.raises(
        DataError,
        match="record 'x' is not one that `rlvr score` wrote: it lacks answer, completion,",
    ):
        differences([{"id": "x"}])
    for name, value, why in [
        ("completion", None, "record 'row 0': the completion is NoneType None"),
        ("task", "", "record 'row 0': Task.id is ''"),
        ("length_tokens", -3, "record 'row 0': length_tokens is -3"),
        ("config", None, "record 'row 0': env .* or config None is not what `rlvr score` wrote"),
        ("env", 5, "record 'row 0': env 5 or config"),
    ]:
        with pytest.raises(DataError, match=why):
            differences([recorded[0] | {name: value}])


def test_a_replay_needs_the_environment(recorded):
    """Under the name it was recorded with, and with the options it had."""
    with pytest.raises(UnknownEnvironment, match=r"no environment at 'tests\.environments:Gone'"):
        differences([recorded[0] | {"env": "tests.environments:Gone"}])
    with pytest.raises(UsageError, match="has no option 'gone'"):
        differences([recorded[0] | {"config": {"gone": 1}}])
