"""`rlvr compare` on files: what pairs, what is refused, and what is written."""

import json
from pathlib import Path

import pytest

from rlvr.cli import main
from rlvr.samplers.protocol import Sampling
from rlvr.scoring.identity import Identity, identity_path
from rlvr.types import Outcome, Score, Verdict
from tests.json_lines import write_json_lines

WAY = {
    "env": "rows-v4",
    "config": {},
    "verifier": "math-v4",
    "reward": "Correct()",
    "identity": "1",
}


def _row(task, number, right, **given):
    outcome = "correct" if right else "wrong"
    row = {"id": f"{task}#{number}", "task": task, "prompt": f"What is {task}?", "reference": "4"}
    row |= {"completion": "4" if right else "3", "length_tokens": 5 + number, "truncated": False}
    row |= {"outcome": outcome, "total": float(right), "why": "" if right else "3 is not 4: no"}
    return row | {"answer": "4" if right else "3"} | WAY | given


def _scored(path, rates, n=4, **given):
    """A file in which the first `rate` of a task's n completions are right."""
    rows = [_row(task, i, i < rate, **given) for task, rate in rates.items() for i in range(n)]
    return str(write_json_lines(path, rows))


@pytest.fixture
def two(tmp_path):
    """24 tasks; the second is right once more in each third of them."""
    first = {f"t{i}": i % 4 for i in range(24)}
    second = {name: rate + (i % 3 == 0) for i, (name, rate) in enumerate(first.items())}
    return _scored(tmp_path / "old.jsonl", first), _scored(tmp_path / "new.jsonl", second)


def _result(capsys, *argv):
    assert main(["compare", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_verdicts_that_were_judged_are_parts(two, tmp_path, capsys):
    """Tasks with a verdict that was called wrong, those whose were all right, and the rest."""
    marks = [("t0", True), ("t3", True), ("t3", False), ("t6", True)]
    rows = [
        _row(task, i, True, label=right, verdict_is_right=right)
        for i, (task, right) in enumerate(marks)
    ]
    path = write_json_lines(tmp_path / "labels.jsonl", rows)
    found = _result(capsys, *two, "--labels", str(path))
    parts = {it["part"]: it["value"] for it in found["results"]["slices"]}
    judged = {name: value for name, value in parts.items() if name.startswith("verdicts")}
    assert judged == {
        "verdicts judged right": pytest.approx(1 / 4),  # t0 and t6 gained
        "verdicts not judged": pytest.approx(5 / 21 / 4),
    }
    assert main(["compare", *two, "--labels", two[0]]) == 2
    assert "verdict_is_right is" in capsys.readouterr().err


def test_two_files_by_hand(two, capsys):
    """1/4 more in 8 of 24 tasks is 1/12; the mean of the first is 1.5 / 4, and eight tasks
    gained."""
    found = _result(capsys, *two)
    [pair] = found["results"]["pairs"]["avg@4"]
    assert pair["value"] == pytest.approx(1 / 12)
    assert found["results"]["metrics"]["avg@4"][0]["value"] == pytest.approx(1.5 / 4)
    assert pair["p"] == pytest.approx(2 / 2**8, abs=0.004)  # 2^24 signs are drawn, 8 of them count
    assert len(found["results"]["flipped"]) == 8
    assert found["lines"][0].startswith("new.jsonl is better than old.jsonl by 0.083 in avg@4")
    assert set(found["results"]["metrics"]) == {"avg@4", "pass@4", "maj@4"}


def test_tables_and_files_say_the_same(two, tmp_path, capsys):
    """Terminal, Markdown, page and JSON have the verdict; the JSON opens in the viewer."""
    reports = pytest.importorskip("rlvr.viewer.reports")
    for name in ("out.md", "out.html", "out.json"):
        assert main(["compare", *two, "-o", str(tmp_path / name)]) == 0
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "is better than" in text, name
    assert "is better than" in capsys.readouterr().out
    report = reports.read_report(tmp_path / "out.json")
    assert report.title == "Comparison of old.jsonl, new.jsonl"
    assert "| avg@4 | 0.3750 | 0.4583 | +0.083" in (tmp_path / "out.md").read_text()


def test_what_cannot_be_paired_is_counted_with_its_reason(tmp_path, capsys):
    """One task is in one file alone, one has another reference, one was never scored, one id stands
    for two."""
    rates = {f"t{i}": i % 3 for i in range(6)}
    old = _scored(tmp_path / "old.jsonl", rates)
    new = _scored(tmp_path / "new.jsonl", {name: 1 for name in rates if name != "t0"})
    text = Path(new).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in text]
    for row in rows:
        row["reference"] = "5" if row["task"] == "t1" else row["reference"]
        if row["task"] == "t2":
            row |= {"outcome": "unscored", "total": None}
    rows.append(rows[-1] | {"reference": "6"})
    write_json_lines(Path(new), rows)
    left_out = _result(capsys, old, new)["results"]["unpaired"]
    assert left_out == {
        "not in all files but in old.jsonl": ["t0", "t5"],
        "with another reference in another file": ["t1"],
        "without a scored completion in new.jsonl": ["t2"],
        "with several references in new.jsonl": ["t5"],
    }


def test_rows_that_name_no_task_are_told_by_their_prompt(tmp_path, capsys):
    """`rlvr score` calls the task of such a row by the row's id, or "row"."""
    paths = []
    for name, right in (("a", 1), ("b", 2)):
        rows = [
            _row(f"q{i}", j, j < right) | {"task": f"q{i}#{j}" if name == "a" else "row"}
            for i in range(6)
            for j in range(2)
        ]
        paths.append(tmp_path / f"{name}.jsonl")
        write_json_lines(paths[-1], rows)
    assert _result(capsys, *map(str, paths))["results"]["tasks"] == 6


def test_reports_and_runs_pair_with_files(two, tmp_path, capsys):
    """A report has no references, so ids alone pair it; of a run its last evaluation is read."""
    tasks = [
        {"index": i, "task": f"t{i}", "correct": [True, False], "answers": ["4", "3"],
         "unscored": 0, "truncated": 0, "reward": 0.5, "length": 5.0}
        for i in range(24)
    ]  # fmt: skip
    report = {"env": "rows-v4", "config": {}, "n": 2, "metrics": {}, "tasks": tasks}
    folder = tmp_path / "run" / "evaluations"
    folder.mkdir(parents=True)
    (folder / "step-9.json").write_text("{}", encoding="utf-8")
    (folder / "step-10.json").write_text(json.dumps(report), encoding="utf-8")
    found = _result(capsys, two[0], str(tmp_path / "run"))
    assert found["results"]["tasks"] == 24
    assert found["results"]["metrics"]["avg"][1]["value"] == 0.5
    shorter = tmp_path / "shorter" / "evaluations"
    shorter.mkdir(parents=True)
    (shorter / "step-4.json").write_text(json.dumps(report), encoding="utf-8")
    lines = _result(capsys, str(tmp_path / "run"), str(tmp_path / "shorter"))["lines"]
    assert any("run at step 10, shorter at step 4" in line for line in lines)


def test_three_files_are_a_leaderboard(two, tmp_path, capsys):
    """The best one is told from the worst; ranks say what is not sure."""
    best = _scored(tmp_path / "best.jsonl", {f"t{i}": 4 for i in range(24)})
    found = _result(capsys, *two, best)
    assert found["results"]["ranks"][2] == [1, 1]
    assert [row[1] for row in found["tables"][0]["rows"]] == [
        "best.jsonl",
        "new.jsonl",
        "old.jsonl",
    ]
    same = _scored(tmp_path / "same.jsonl", {f"t{i}": 4 for i in range(24)})
    lines = _result(capsys, two[0], best, same)["lines"]
    assert lines[1] == "Not told apart: best.jsonl and same.jsonl."


def test_files_of_one_name_are_seeds(two, tmp_path, capsys):
    """Two seeds each: no line says that there was one; NAME=PATTERN takes all that fit."""
    third = _scored(tmp_path / "other.jsonl", {f"t{i}": 4 for i in range(24)})
    found = _result(capsys, f"a={tmp_path}/[on]*w.jsonl", f"a={two[0]}", f"b={third}")
    assert found["results"]["seeds"] == [2, 1]
    assert not any("One result of each" in line for line in found["lines"])


def test_clusters_widen_the_interval(tmp_path, capsys):
    """Eight variants of each of three sources that agree are three observations."""
    paths = []
    for name, gain in (("a", 0), ("b", 1)):
        rows = [
            _row(f"t{i}", j, j < 1 + gain * (i % 3)) | {"row": {"source": i % 3}}
            for i in range(24)
            for j in range(4)
        ]
        paths.append(str(tmp_path / f"{name}.jsonl"))
        write_json_lines(Path(paths[-1]), rows)
    [alone] = _result(capsys, *paths)["results"]["pairs"]["avg@4"]
    [clustered] = _result(capsys, *paths, "--cluster", "source")["results"]["pairs"]["avg@4"]
    assert alone["p"] < 0.05 < clustered["p"]
    assert clustered["high"] - clustered["low"] > alone["high"] - alone["low"]


# ---------------------------------------------------------------------------------------- bad input


def _refusal(capsys, *argv):
    assert main(["compare", *map(str, argv)]) == 2
    return capsys.readouterr().err


def test_scores_that_were_decided_differently_are_refused_unless_told(two, tmp_path, capsys):
    """Another verifier is another score; what is accepted stands in the result."""
    rates = {f"t{i}": 2 for i in range(24)}
    other = _scored(tmp_path / "other.jsonl", rates, verifier="qa-v4", identity="2")
    line = _refusal(capsys, two[0], other)
    assert 'verifier is "qa-v4" there and "math-v4" here' in line
    assert "pass --accept code settings" in line
    assert "pass --accept code" in _refusal(capsys, two[0], other, "--accept", "settings")
    found = _result(capsys, two[0], other, "--accept", "settings", "code")
    assert any("Accepted" in line and "qa-v4" in line for line in found["lines"])
    elsewhere = _scored(tmp_path / "elsewhere.jsonl", rates, env="math-v4")
    line = _refusal(capsys, two[0], elsewhere, "--accept", "code")
    assert 'env is "math-v4" there and "rows-v4" here' in line


def test_the_identity_beside_a_file_is_what_counts(two, capsys):
    """It names what differs; the rows of the input are no difference, as other completions stand in them."""
    for path, rows in zip(two, ("ab" * 8, "cd" * 8), strict=True):
        known = Identity({"env": "rows-v4"}, {"rlvr.text": "ef" * 8}, data={"file 1": rows})
        identity_path(Path(path)).write_text(json.dumps(known.as_dict()), encoding="utf-8")
    assert _result(capsys, *two)["results"]["tasks"] == 24
    known.code["rlvr.text"] = "09" * 8
    identity_path(Path(two[1])).write_text(json.dumps(known.as_dict()), encoding="utf-8")
    assert "in code: rlvr.text has another content" in _refusal(capsys, *two)


def test_each_file_is_compared_with_all_before_it(two, tmp_path, capsys):
    """The first has opened no file, and the others two contents of one: all three were compared."""
    third = _scored(tmp_path / "third.jsonl", {f"t{i}": 2 for i in range(24)})
    inputs = ({}, {"words.txt": "ab" * 8}, {"words.txt": "cd" * 8})
    for path, one in zip((*two, third), inputs, strict=True):
        known = Identity({"env": "rows-v4"}, inputs=one)
        identity_path(Path(path)).write_text(json.dumps(known.as_dict()), encoding="utf-8")
    said = _refusal(capsys, *two, third)
    assert "in inputs: words.txt has another content" in said
    _result(capsys, *two, third, "--accept", "inputs")


def test_a_file_that_has_lost_its_identity_is_compared_by_its_digest(two, capsys):
    """Code of two kinds was compared, as no name of it stands in both."""
    known = Identity({"env": "rows-v4"}, {"rlvr.text": "ef" * 8}, digest="1")
    beside = identity_path(Path(two[0]))
    beside.write_text(json.dumps(known.as_dict()), encoding="utf-8")
    assert _result(capsys, *two)["results"]["tasks"] == 24
    known.digest = "2"
    beside.write_text(json.dumps(known.as_dict()), encoding="utf-8")
    assert 'in code: identity is "1" there and "2" here' in _refusal(capsys, *two)


def test_a_run_keeps_evaluations_that_compare(two, tmp_path, capsys):
    """`keep_evaluation` writes what `read_results` reads."""
    keep = pytest.importorskip("rlvr.train.metrics").keep_evaluation
    evaluation = pytest.importorskip("rlvr.collect.evaluation")
    scores = [Score(1.0, {"correct": 1.0}, Verdict(Outcome.CORRECT, answer="4")), None]
    tasks = [
        evaluation.result_of_scores(i, f"t{i}", scores, [False, True], [3, 9]) for i in range(24)
    ]
    report = evaluation.EvaluationReport(
        "rows-v4", {}, 2, Sampling(max_tokens=9), 0, 5, 0.95, {}, tasks
    )
    keep(tmp_path / "run", 5, report)
    found = _result(capsys, two[0], str(tmp_path / "run"))
    assert found["results"]["metrics"]["avg"][1]["value"] == 1.0


def test_options_that_choose_tasks_are_no_difference(two, tmp_path, capsys):
    """Another split or file of data pairs fewer tasks, and scores them in the same way."""
    config = {"data": "elsewhere.jsonl", "split": "test"}
    other = _scored(tmp_path / "other.jsonl", {f"t{i}": 2 for i in range(9)}, config=config)
    assert _result(capsys, two[0], other)["results"]["tasks"] == 9


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"task": "z"}, "0 tasks can be paired"),
        ({"total": float("nan")}, "must be a finite number"),
        ({"total": 1e308}, "is 1e+308; it must be a finite number up to 1e+100"),
        ({"outcome": "unscored", "total": None}, "all 96 are UNSCORED"),
        ({"outcome": "good"}, "outcome is 'good'; it is one of correct"),
        ({"outcome": []}, "outcome is []; it is one of correct"),
        ({"total": 10**400}, "must be a finite number"),
        ({"task": "row", "prompt": 5}, "row 1: the prompt is int 5; it must be a text, or a list"),
        ({"task": "row", "prompt": [[1]]}, "row 1: the prompt is list [[1]]; it must be a text"),
        ({"config": "{}"}, "config is '{}'; it must be an object"),
        ({"length_tokens": "many"}, "the length_tokens of row 1 is 'many'; it must be a finite"),
    ],
)
def test_rows_that_cannot_be_compared(two, capsys, edit, says):
    """Each is one line with the value and what to give instead; never a p-value from nothing."""
    rows = [json.loads(line) | edit for line in Path(two[1]).read_text("utf-8").splitlines()]
    write_json_lines(Path(two[1]), rows)
    line = _refusal(capsys, *two)
    assert says in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"reward": None}, "the counts of task 't1' do not fit each other"),
        ({"unscored": 10**400}, "the counts of task 't1' do not fit each other"),
        ({"truncated": -1}, "the counts of task 't1' do not fit each other"),
        ({"correct": [], "answers": [], "reward": None}, "the counts of task 't1' do not fit"),
        ({"truncated": float("inf")}, "cannot convert float infinity"),
        ({"length": "nan"}, "the length t1 is 'nan'; it must be a finite number"),
    ],
)
def test_reports_that_cannot_be_compared(two, tmp_path, capsys, edit, says):
    """Numbers that do not fit each other ended in a traceback."""
    task = {"task": "t1", "correct": [True], "answers": ["1"], "reward": 1.0, "length": 3.0}
    task |= {"truncated": 0, "unscored": 0} | edit
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"env": "rows-v4", "metrics": {}, "tasks": [task]}))
    line = _refusal(capsys, two[0], report)
    assert says in line
    assert line.count("\n") == 1


def test_files_that_cannot_be_compared(two, tmp_path, capsys):
    """One file, one file twice, one task, a run without evaluations, no file, too great a k,
    another ending."""
    one = _scored(tmp_path / "one.jsonl", {"t1": 1})
    empty = tmp_path / "run"
    empty.mkdir()
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"prompt": "a", "completion": "b"}\n', encoding="utf-8")
    for argv, says in (
        ((two[0],), "name at least two"),
        ((two[0], two[0]), "is given twice"),
        ((two[0], one), "1 task can be paired"),
        ((two[0], empty), "has no evaluation"),
        ((two[0], tmp_path / "none.jsonl"), "no such file"),
        ((two[0], plain), "no column 'task'"),
        ((*two, "-k", "9"), "give a smaller -k"),
        ((*two, "-o", "out.txt"), "must end in .json, .md, .html"),
        ((*two, "--level", "1"), "between 0 and 1"),
        ((*two, "--cluster", "nothing"), "has no column 'nothing'"),
    ):
        assert says in _refusal(capsys, *argv), argv


def test_one_completion_against_several_is_compared_by_their_means(two, tmp_path, capsys):
    """Both are unbiased for the same rate; there is no pass@k that both have."""
    one = _scored(tmp_path / "one.jsonl", {f"t{i}": 1 for i in range(24)}, n=1)
    assert list(_result(capsys, two[0], one)["results"]["metrics"]) == ["avg"]


def test_a_task_that_is_told_by_its_prompt_is_cut_in_tables(tmp_path, capsys):
    """A prompt of thousands of letters is not a cell; the JSON has all of it."""
    rates = {"t" * 5000 + str(i): i % 3 for i in range(9)}
    old = _scored(tmp_path / "a.jsonl", rates)
    found = _result(capsys, old, _scored(tmp_path / "b.jsonl", dict.fromkeys(rates, 3)))
    assert max(len(row[0]) for row in found["tables"][-1]["rows"]) == 101
    assert len(found["results"]["flipped"][0][0]) == 5001


def test_names_cannot_write_to_the_terminal(two, tmp_path, capsys):
    """Task ids come from strangers: no escape reaches the terminal, no bar breaks a table of
    Markdown."""
    rates = {f"t\x1b[31m|{i}": i % 3 for i in range(9)}
    old = _scored(tmp_path / "a.jsonl", rates)
    new = _scored(tmp_path / "b.jsonl", dict.fromkeys(rates, 3))
    assert main(["compare", old, new, "-o", str(tmp_path / "out.md")]) == 0
    assert "\x1b" not in capsys.readouterr().out
    lines = (tmp_path / "out.md").read_text("utf-8").splitlines()
    assert {line.replace("\\|", "").count("|") for line in lines if "31m" in line} == {4}
