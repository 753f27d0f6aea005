"""What the scorer makes of rows: which task each answers, what is wrong with it, and whom it is compared to."""

import asyncio
import itertools

import pytest

import rlvr
from rlvr.errors import DataError, UsageError
from rlvr.rewards import GroupPart
from rlvr.scoring.scorer import _AHEAD
from tests.environments import Columns, Measured, Siblings, Trials

ENV = Trials()
TASK = ENV.task(7)


# ------------------------------------------------------------------------------------------ rows


def rows(*completions: str, **columns) -> list[dict]:
    return [{"task": 7, "completion": text, **columns} for text in completions]


def test_a_row_names_its_task_in_one_of_four_ways(scorer):
    """An index, an id, a reference of its own, or the data set's columns; what is not used is passed through."""
    given = [
        {"task": 7, "completion": "7", "model": "m"},
        {"task": "Trials/train/7", "completion": "7", "id": "by id"},
        {
            "reference": 7,
            "completion": "7",
            "prompt": [{"role": "user", "content": "?"}],
            "meta": {"a": 1},
        },
        {
            "reference": 7,
            "task": "mine",
            "completion": "7",
            "length_tokens": 3,
            "truncated": True,
            "id": 4.5,
        },
    ]
    scored = list(scorer.stream(given))
    assert [s.outcome for s in scored] == ["correct"] * 4
    assert [s.item.id for s in scored] == ["line:1", "by id", "line:3", "4.5"]
    assert [s.item.task.id for s in scored] == ["Trials/train/7", "Trials/train/7", "row", "mine"]
    assert [s.item.row for s in scored] == [{"model": "m"}, {}, {}, {}]
    assert scored[2].item.task.prompt == [{"role": "user", "content": "?"}]
    assert scored[3].item.completion == rlvr.Completion("7", 3, truncated=True)
    [own] = rlvr.score(
        Columns(), [{"question": "?", "solution": "x", "completion": "x"}], workers=0
    )
    assert (own.outcome, own.item.row) == ("correct", {"question": "?", "solution": "x"})


def test_long_rows_are_not_read_far_ahead(scorer):
    """120 rows of 8 MiB, each within its limit, took 1.5 GiB; short ones are taken in thousands."""
    taken = []

    def long_rows():
        for number in range(40):
            taken.append(number)
            yield {"task": number, "completion": "x" * (4 << 20)}

    stream = scorer.stream(long_rows())
    next(stream)
    assert len(taken) <= 6
    assert len(list(stream)) == 39


def test_what_parquet_fills_with_none_was_never_given(scorer):
    """A column that one row has and another has not."""
    row = {
        "task": 7,
        "completion": "7",
        "id": None,
        "prompt": None,
        "meta": None,
        "truncated": None,
        "reference": None,
    }
    [scored] = scorer.stream([row | {"length_tokens": None, "mine": None}])
    assert (scored.outcome, scored.item.id, scored.item.row) == (
        "correct",
        "line:1",
        {"mine": None},
    )


BAD_ROWS = [
    ("a text", "a str, not a mapping of columns"),
    (None, "a NoneType, not a mapping of columns"),
    ({}, "no column 'completion'; it has none"),
    ({"task": 7, "text": "7"}, "no column 'completion'; it has 'task', 'text'"),
    ({"task": 7, "completion": None}, "no column 'completion'; it has 'task'"),
    ({"task": 7, "completion": 7}, "the completion is int 7; it must be a string"),
    ({"task": 7, "completion": ["7"]}, r"the completion is list \['7'\]; it must be a string"),
    ({"completion": "7"}, "neither 'task' nor 'reference'"),
    ({"completion": "7", "gold": 7}, "; 'gold' may be the reference"),
    ({"completion": "7", "tests": 7}, "; call the reference's column 'reference'"),
    (
        {"task": "Trials/test/7", "completion": "7"},
        "Trials, split 'train', has no task 'Trials/test/7'",
    ),
    ({"task": "seven", "completion": "7"}, "has no task 'seven'"),
    ({"task": [7], "completion": "7"}, "list"),
    ({"task": 7.5, "completion": "7"}, r"7\.5"),
    (
        {"task": 7, "completion": "7", "length_tokens": -1},
        "length_tokens is -1; it must be a whole number",
    ),
    (
        {"task": 7, "completion": "7", "length_tokens": "3"},
        "length_tokens is '3'; it must be a whole number",
    ),
    (
        {"task": 7, "completion": "7", "truncated": "no"},
        "truncated is 'no'; it must be True or False",
    ),
    ({"reference": 7, "completion": "7", "prompt": 5}, "prompt is int 5; it must be a string"),
    ({"reference": 7, "completion": "7", "meta": [1]}, r"meta is list \[1\]; it must be a mapping"),
    (
        {"task": 7, "completion": "7", "id": "first"},
        "the id 'first' was there before; ids must be unique",
    ),
]


@pytest.mark.parametrize(("row", "why"), BAD_ROWS, ids=[why for _, why in BAD_ROWS])
def test_a_row_that_cannot_be_used_says_why(row, why):
    """Its number, the value and the rule; and `on_error` keeps the others."""
    good = {"task": 7, "completion": "7"}
    given = [good | {"id": "first"}, row, good]
    with pytest.raises(DataError, match=f"^row 2: .*{why}"):
        list(rlvr.score(ENV, given, workers=0))
    errors = []
    scored = list(
        rlvr.score(
            ENV,
            given,
            workers=0,
            on_error=lambda number, error: errors.append((number, str(error))),
        )
    )
    assert [s.item.id for s in scored] == ["first", "line:3"]
    assert [number for number, _ in errors] == [2]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"solution": "x"}, "KeyError: 'question'"),
        ({"question": 5, "solution": "x"}, "AttributeError: 'int' object"),
    ],
)
def test_what_an_author_did_not_think_of_is_that_rows_fault(row, why):
    """`row["question"].strip()` is how data sets are read; a bad row in it must not stop the run."""
    errors = []
    given = [row | {"completion": "x"}, {"question": "?", "solution": "x", "completion": "x"}]
    scored = list(
        rlvr.score(
            Columns(), given, workers=0, on_error=lambda number, error: errors.append(str(error))
        )
    )
    assert len(scored) == 1
    assert errors[0].startswith(why)


def test_items_may_be_given_instead_of_rows(scorer):
    """By callers who have tasks in hand; their ids must be unique as well."""
    item = rlvr.Item("a", TASK, rlvr.Completion("7"))
    assert [s.item for s in scorer.stream([item])] == [item]
    with pytest.raises(DataError, match="row 2: the id 'a' was there before"):
        list(scorer.stream([item, item]))


def test_no_rows_give_no_scores(scorer):
    """And no error either: a filter upstream may have taken them all."""
    assert list(scorer.stream([])) == []
    assert scorer.score_group(TASK, []) == []


def test_an_endless_source_is_read_only_a_little_ahead(scorer):
    """At most `_AHEAD` chunks of 64 per worker, where one of them waits for a core, and the 64 that
    have just been given out."""
    taken = 0

    def endless():
        nonlocal taken
        for taken in itertools.count(1):
            yield {"task": taken, "completion": f"{taken}"}

    stream = scorer.stream(endless())
    for wanted in (5, 2000):
        assert {s.outcome for s in itertools.islice(stream, wanted)} == {"correct"}
    stream.close()
    assert 2005 <= taken <= 2005 + 2 * _AHEAD * 64 + 64


def test_one_that_takes_long_holds_no_other_worker_up():
    """Scores come in the order of the rows; what follows a slow one is scored meanwhile, and waits its turn."""
    taken = 0

    def endless():
        nonlocal taken
        yield {"task": 0, "completion": "0@pause"}
        for taken in itertools.count(1):
            yield {"task": taken, "completion": f"{taken}"}

    with rlvr.Scorer(ENV, workers=2, wall_s=3.0) as scorer:
        stream = scorer.stream(endless())
        assert next(stream).outcome == "unscored"
        ahead = taken
        stream.close()
    assert 2 * 3 * 64 < ahead <= 2 * 100 * 64


def test_a_score_is_handed_out_when_it_is_there(fifo):
    """The next completion may take long, or be the last one that comes for a while."""
    with rlvr.Scorer(ENV, workers=1) as scorer:
        stream = scorer.stream(rows("7", f"7@freeze {fifo.path}"))
        assert next(stream).score.total == 1.0
        assert fifo.line().endswith("freeze")


def test_an_error_of_the_source_comes_through(scorer):
    """It is the caller's own."""

    def broken():
        yield {"task": 7, "completion": "7"}
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(scorer.stream(broken()))
    assert scorer.score(TASK, "7").total == 1.0


# ------------------------------------------------------------------------------- groups and lengths


def measured(task: str, length: int, text: str = "7", **columns) -> dict:
    return {"task": task, "reference": 7, "completion": text, "length_tokens": length, **columns}


def test_consecutive_rows_of_a_task_are_compared():
    """Kimi's penalty, 0.5 - (L - min) / (max - min): lengths 10, 20, 30 give 1/2, 0, -1/2; a group of one gives 0; a
    wrong completion never gains by being short; and the first task's return is a group of its own."""
    given = [measured("a", 10), measured("a", 20), measured("a", 30), measured("b", 99)]
    given += [measured("a", 10, "wrong"), measured("a", 30)]
    scored = list(rlvr.score(Siblings(), given, workers=1))
    assert [s.score.parts["relative_length"] for s in scored] == [0.5, 0.0, -0.5, 0.0, 0.0, -0.5]
    assert [s.score.total for s in scored] == [1.5, 1.0, 0.5, 1.0, 0.0, 0.5]


def test_groups_longer_than_a_chunk_are_compared_whole():
    """200 lengths, 0 to 199, among many small groups: the first gets +1/2, the last -1/2."""
    given = [measured(f"small {i}", 5) for i in range(100)] + [
        measured("large", i) for i in range(200)
    ]
    scored = list(rlvr.score(Siblings(), given, workers=2))
    large = [s.score.parts["relative_length"] for s in scored if s.item.task.id == "large"]
    assert large == [0.5 - i / 199 for i in range(200)]


def test_an_unscored_sibling_is_not_compared():
    """Without the longest, which we failed at, 20 is the maximum."""
    given = [measured("a", 10), measured("a", 1000, "7@raise"), measured("a", 20)]
    scores = [s.score for s in rlvr.score(Siblings(), given, workers=1)]
    assert [score.total for score in scores] == [1.5, None, 0.5]


def test_tasks_without_a_name_of_their_own_are_told_apart_by_their_prompts():
    """Environments over a data set may call every row's task "row"."""
    env = Columns().with_reward(rlvr.Correct() + rlvr.RelativeLength())
    given = [
        {"question": question, "solution": "x", "completion": "x", "length_tokens": length}
        for question, length in (("a?", 1), ("a?", 3), ("b?", 7), ("b?", 8))
    ]

    class Prompted(Columns):
        reward = env.reward

        def task_from(self, row):
            return rlvr.Task("row", row["question"], reference=row["solution"])

    scored = list(rlvr.score(Prompted(), given, workers=0))
    assert [s.score.parts["relative_length"] for s in scored] == [0.5, -0.5, 0.5, -0.5]


def test_a_reward_that_compares_needs_to_know_the_task():
    """A reference alone does not say which completions belong together; guessing would compare strangers."""
    row = {"reference": 7, "completion": "7", "length_tokens": 1}
    with pytest.raises(
        DataError, match="no column 'task', and the reward correct \\+ relative_length compares"
    ):
        list(rlvr.score(Siblings(), [row], workers=0))
    with rlvr.Scorer(Siblings(), workers=0) as scorer:
        with pytest.raises(UsageError, match="use score_group"):
            scorer.score(TASK, rlvr.Completion("7", 1))
        with pytest.raises(UsageError, match="use score_group"):
            asyncio.run(scorer.ascore(TASK, rlvr.Completion("7", 1)))


class Fussy(GroupPart):
    """Fails as authors' code fails."""

    name = "fussy"
    bounds = (0.0, 1.0)

    def values(self, completions, verdicts):
        return [1.0 / len(c.text.removeprefix("7")) for c in completions]


def test_a_group_part_that_raises_costs_its_group():
    """It runs outside of the workers, at the same border: the group is UNSCORED, the next one is not harmed."""
    env = ENV.with_reward(rlvr.Correct() + Fussy())
    given = [
        {"task": t, "reference": 7, "completion": c}
        for t, c in (("a", "7"), ("a", "7 "), ("b", "7 "))
    ]
    scores = [s.score for s in rlvr.score(env, given, workers=0)]
    assert [score.total for score in scores] == [None, None, 2.0]
    assert scores[0].verdict.reason == "worker-error"
    assert "ZeroDivisionError" in scores[0].verdict.why


def test_a_reward_that_reads_the_length_needs_it():
    """A missing length is the caller's mistake, never an UNSCORED completion."""
    given = [{"task": 7, "completion": "7"}, {"task": 7, "completion": "7", "length_tokens": 10}]
    errors = []
    scored = list(
        rlvr.score(
            Measured(), given, workers=0, on_error=lambda number, error: errors.append(number)
        )
    )
    assert [s.score.total for s in scored] == [
        0.0
    ]  # DAPO's eq. 13: -1 at 10 of 10 tokens, and 1 for being right
    assert errors == [1]
    with (
        rlvr.Scorer(Measured(), workers=0) as scorer,
        pytest.raises(UsageError, match="reads length_tokens: give"),
    ):
        scorer.score(TASK, "7")


def test_a_group_is_a_list():
    """A text would be taken for a list of letters."""
    with (
        rlvr.Scorer(ENV, workers=0) as scorer,
        pytest.raises(UsageError, match="give it a list of completions"),
    ):
        scorer.score_group(TASK, "777")
