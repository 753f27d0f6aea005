"""Rows that cannot stop a run: left out, counted by reason, and never quietly many."""

import json

import pytest

import rlvr
from rlvr.errors import DataError, DataWarning
from rlvr.testing import check
from rlvr.train.run_dir import claim_run_dir
from rlvr.verifiers.qa import QAVerifier

GOOD = {"question": "2 + 2?", "options": ["4", "5"], "answer": "A"}


def environment(tmp_path, lines, **options):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return rlvr.make("mcq-v4", data=str(path), **options)


def test_a_row_that_cannot_be_used_is_left_out_and_the_others_keep_their_numbers(tmp_path):
    """`mcq` stopped at MMLU-Pro's row 421; a broken line of the file is left out too."""
    rows = [GOOD] * 20 + [{**GOOD, "answer": "7"}] + [GOOD] * 30 + ["{broken"] + [GOOD]
    env = environment(tmp_path, rows)
    with pytest.warns(DataWarning, match="2 of 53 rows .* were left out: row 20: .*; row 51: "):
        assert env.size == 51
    assert [env.task(index).id.rpartition("/")[2] for index in (19, 20, 49, 50)] == [
        "19",
        "21",
        "50",
        "52",
    ]


def test_what_was_left_out_is_counted_in_reports_and_runs(tmp_path):
    """One property of every environment, a mixture's too, for all that write down what they read."""
    env = environment(tmp_path, [GOOD] * 30 + [{}])
    with pytest.warns(DataWarning):
        [(why, count)] = env.rows_left_out.items()
    mixed = rlvr.make("mixture-v1", envs=[env]).rows_left_out
    assert count == 1
    assert why.startswith("row 30: ")
    assert mixed == {f"{env.id}: {why}": 1}
    assert check(env, tasks=2, only=["references"], workers=1).as_dict()["rows_left_out"] == {
        why: 1
    }
    with claim_run_dir(tmp_path / "run", {"settings": {}}, print, [env, None]):
        kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["rows_left_out"] == {env.split: {why: 1}}


def test_slices_count_the_rows_before(tmp_path):
    """Else `train[:100]` and `train[100:]` would share or lose rows."""
    env = environment(tmp_path, [GOOD] * 20 + ["{"] + [GOOD] * 30, split="test[20:]")
    with pytest.warns(DataWarning, match="1 of 31 rows"):
        assert env.size == 30


@pytest.mark.parametrize("rows", [[GOOD] * 10 + [{}], [{}], [{"question": 5}] * 3])
def test_more_than_one_in_twenty_is_an_error(tmp_path, rows):
    """A data set of another form must not become one of a few rows."""
    with pytest.raises(DataError, match="more than one in twenty"):
        _ = environment(tmp_path, rows).size


def test_strict_rows_stop_at_the_first(tmp_path):
    """For those who want to mend their data: `--strict`."""
    env = environment(tmp_path, [GOOD] * 30 + [{}] + [GOOD] * 30)
    env.strict_rows = True
    with pytest.raises(DataError, match="row 30"):
        _ = env.size


def test_a_reference_that_the_verifier_cannot_read_is_left_out_before_a_task_is_drawn():
    """It cost a completion each time, and each was UNSCORED."""
    rows = [{"prompt": "?", "reference": "a"}] * 30 + [{"prompt": "?", "reference": {"a": 1}}]
    env = rlvr.Environment.from_rows(rows, verifier=QAVerifier())
    with pytest.warns(DataWarning, match="1 of 31 rows"):
        assert env.size == 30


def test_options_that_differ_in_case_differ(tmp_path):
    """Genotypes in MMLU-Pro: BB, Bb, bb; and equal wrong options are harmless."""
    asked = {"question": "?", "options": ["BB", "Bb", "bb", "x", "x"], "answer": "B"}
    env = environment(tmp_path, [asked], shuffle=False)
    task = env.task(0)
    assert task.reference["answer"] == "Bb"
    for text, right in (("\\boxed{B}", True), ("\\boxed{Bb}", True), ("\\boxed{bb}", False)):
        assert env.score(task, text).verdict.correct is right, text
