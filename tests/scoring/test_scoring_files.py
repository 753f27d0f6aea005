"""What comes from files, tables and careless authors: each fault costs its own row, and says so."""

import threading
from pathlib import Path

import pytest

import rlvr
from rlvr.errors import DataError, UsageError, WorkerError
from rlvr.scoring.records import provenance, record
from tests.environments import PLACE, Siblings, Trials, right
from tests.json_lines import read_json_lines, write_json_lines

ENV = Trials()


class Careless(Trials):
    """Fails over some tasks as authors' code fails, and gives references of all kinds."""

    def task(self, index):
        task = super().task(index)
        if index == 1:
            raise ZeroDivisionError("no such split")
        if index == 2:
            return rlvr.Task(task.id, task.prompt, reference={2})
        if index == 3:
            return rlvr.Task(task.id, task.prompt, reference=3, meta={"lock": threading.Lock()})
        return task


@pytest.mark.parametrize("workers", [0, 1])
def test_a_task_that_raises_is_its_rows_fault(workers):
    """Whatever it raises; the others are scored."""
    told = {}
    scored = list(
        rlvr.score(Careless(), right(0, 1, 4), workers=workers, on_error=told.__setitem__)
    )
    assert [s.item.id for s in scored] == ["line:1", "line:3"]
    assert str(told[2]) == "ZeroDivisionError: no such split"


def test_an_item_that_cannot_be_shipped_costs_itself_alone():
    """A lock in its meta, in the middle of a chunk: told as a row's error, with the row's number."""
    told = {}
    scored = list(
        rlvr.score(Careless(), right(*range(10, 200), 3, 5), workers=1, on_error=told.__setitem__)
    )
    assert [s.outcome for s in scored] == ["correct"] * 191
    assert list(told) == [191]
    assert "cannot be sent to a worker process" in str(told[191])
    with pytest.raises(DataError, match=r"row 1: .*cannot be sent to a worker process"):
        list(rlvr.score(Careless(), right(3), workers=1))
    with (
        rlvr.Scorer(Careless(), workers=1) as scorer,
        pytest.raises(DataError, match="cannot be sent"),
    ):
        scorer.score(Careless().task(3), "3")


def test_a_task_that_is_no_json_is_left_out_of_a_file(score, tmp_path):
    """A set, a lock: found before they are scored, and the run goes on."""
    path = f"{Path(__file__)}:Careless"
    code, said, out = score(right(0, 1, 2, 3, 4), env=path)
    assert (code, [row["task"] for row in out]) == (1, ["Careless/train/0", "Careless/train/4"])
    assert "in.jsonl, line 2: ZeroDivisionError: no such split" in said
    assert "in.jsonl, line 3: row 'line:3' cannot be written as JSON: Object of type set" in said
    assert "in.jsonl, line 4: row 'line:4' cannot be written as JSON: Object of type lock" in said
    kept = read_json_lines(tmp_path / "out.jsonl.rejected.jsonl")
    assert [row["row"]["task"] for row in kept] == [1, 2, 3]


NAN = float("nan")


def test_a_column_of_whole_numbers_with_a_gap_is_one_of_floats():
    """As pandas and Parquet have it: 12.0 is 12, and NaN was never given."""
    row = {
        "task": 7.0,
        "completion": "7",
        "length_tokens": 12.0,
        "id": 3.0,
        "truncated": NAN,
        "reference": NAN,
    }
    gap = {
        "task": 7.0,
        "completion": "7",
        "length_tokens": NAN,
        "id": NAN,
        "prompt": NAN,
        "meta": NAN,
    }
    whole, missing = rlvr.score(ENV, [row, gap], workers=0)
    assert (whole.item.id, whole.item.completion) == (3, rlvr.Completion("7", 12))
    assert (missing.item.id, missing.item.completion) == ("line:2", rlvr.Completion("7"))
    with pytest.raises(DataError, match=r"length_tokens is 12\.5"):
        list(rlvr.score(ENV, [row | {"length_tokens": 12.5}], workers=0))


def test_a_row_without_an_id_meets_no_number():
    """The id "2" of the first row, and the second row, which has none."""
    scored = list(rlvr.score(ENV, [right(1)[0] | {"id": "2"}, *right(2)], workers=0))
    assert [s.item.id for s in scored] == ["2", "line:2"]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_under_way_comes_before_the_error(workers):
    """A hundred rows and a bad one: a hundred scores, then the error; an error of the source is no different."""

    def broken():
        yield from right(*range(100))
        raise OSError("the disk is gone")

    for rows, error in (([*right(*range(100)), "bad", *right(1)], DataError), (broken(), OSError)):
        scored = []
        with pytest.raises(error):
            scored.extend(
                rlvr.score(ENV, rows, workers=workers)
            )  # keeps what came before the error
        assert len(scored) == 100


def test_a_group_that_an_error_may_have_cut_is_not_scored():
    """The bad row may have been its third: "a" is whole, "b" is not known to be."""
    rows = [
        {"task": t, "reference": 7, "completion": "7", "length_tokens": n}
        for t in "ab"
        for n in (1, 2)
    ]
    scored = []
    with pytest.raises(DataError, match="row 5"):
        scored.extend(rlvr.score(Siblings(), [*rows, "bad"], workers=0))
    assert [s.item.task.id for s in scored] == ["a", "a"]


# --------------------------------------------------------------------------------- files and tables


def test_a_file_is_scored_and_replayed_by_its_path(tmp_path):
    """As a text or a Path; blank lines count as lines, and a bad one is told by its line."""
    path, out = tmp_path / "in.jsonl", tmp_path / "scored.jsonl"
    path.write_text('{"task": 1, "completion": "1"}\n\n{\n{"task": 2, "completion": "?"}\n')
    told = {}
    for source in (path, str(path)):
        scored = list(rlvr.score(ENV, source, workers=0, on_error=told.__setitem__, progress=True))
        assert [s.item.id for s in scored] == ["line:1", "line:4"]
        assert list(told) == [3]
    with pytest.raises(DataError, match="row 3: not a JSON object"):
        list(rlvr.score(ENV, path, workers=0))
    run = provenance(ENV, PLACE)
    write_json_lines(out, (record(s, run) for s in scored))
    for source in (out, str(out)):
        assert list(rlvr.replay(source, workers=0, allow=[PLACE])) == [[], []]


def test_what_is_no_sequence_of_rows_says_what_would_be():
    """Iterating over a DataFrame gives the names of its columns, over a mapping its keys."""
    table = type("DataFrame", (), {"__iter__": lambda self: iter(["completion"])})()
    with pytest.raises(
        UsageError, match=r'DataFrame is no sequence of rows; give \.to_dict\("records"\)'
    ):
        list(rlvr.score(ENV, table, workers=0))
    with pytest.raises(UsageError, match="rows is one mapping; give a list"):
        list(rlvr.score(ENV, right(1)[0], workers=0))


# -------------------------------------------------------------------------------- the scorer itself


@pytest.mark.parametrize("memory_mib", [3, 10, 16])
def test_memory_that_no_worker_can_start_with_says_so(memory_mib):
    """Not a bare MemoryError, nor the end of a process that had no room left for its traceback."""
    said = f"{memory_mib} MiB are not enough to start a worker; raise memory_mib"
    with pytest.raises(WorkerError, match=said):
        list(rlvr.score(ENV, right(1), workers=1, memory_mib=memory_mib))
