"""`rlvr check`, `rlvr audit`, `rlvr filter`: what they write, what they say, and how they exit."""

import json
import sys
from pathlib import Path

import pytest

import rlvr
from rlvr.cli import main
from rlvr.data.rows import read_whole
from tests.commands import refusal_of
from tests.environments import PLACE, right
from tests.json_lines import write_json_lines

HOLED = '''
import rlvr


class Holed(rlvr.Environment):
    """Takes any text that has the answer in it."""

    upto: int = 9

    def tasks(self):
        for i in range(self.upto):
            yield rlvr.Task(f"t{i}", f"Say the number after {1000 + 7 * i}.", reference=str(1001 + 7 * i))

    def verify(self, task, completion):
        found = task.reference in completion
        return rlvr.Verdict("correct" if found else "wrong", why="found" if found else "absent")
'''


@pytest.fixture
def holed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "holed_env", raising=False)  # of another test's folder
    (tmp_path / "holed_env.py").write_text(HOLED)
    return f"{tmp_path / 'holed_env.py'}:Holed"


# ------------------------------------------------------------------------------------------ check


def test_check_names_the_holes_and_exits_with_1(say, holed):
    """Hole, count, the completion that went through, what it should have had."""
    code, said = say("check", holed, "--tasks", 3, "--only", "exploits", "--option", "upto=4")
    assert code == 1
    for words in (
        "hole",
        "hedge",
        "candidates",
        "substring",
        "thinking-only",
        "want not correct",
        "3 tasks",
    ):
        assert words in said


def test_check_gives_json(say, holed):
    """Nothing else on stdout, whatever the width of the terminal."""
    code, _ = say("check", holed, "--tasks", 2, "--only", "exploits", "--json")
    read = json.loads(say.out)
    assert code == 1
    assert read["clean"] is False
    assert "substring" in {it["hole"] for it in read["findings"]}


def test_check_exits_with_0_where_it_is_clean(say):
    """And says how much was tried."""
    code, said = say(
        "check", PLACE, "--tasks", 1, "--only", "references", "--skip", "reference-rejected"
    )
    assert (code, "0 holes, 0 warnings" in said) == (0, True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["gsm9k-v1"], "did you mean 'gsm8k-v4'"),
        (["gsm8k-v4", "--option", "data=none.jsonl"], "none.jsonl: no such file"),
        (["arithmetic-v1", "--every"], "generates tasks without end"),
        (["arithmetic-v1", "--only", "all"], "there is no check 'all'"),
        (["arithmetic-v1", "--tasks", "0"], "tasks is 0"),
    ],
)
def test_a_check_that_cannot_be_done_exits_with_2(say, flags: list[str], message: str):
    """One line says why; no data is not a hole."""
    assert message in refusal_of(*say("check", *flags))
    assert len(say.err.splitlines()) == 1


# ------------------------------------------------------------------------------------------ audit


def test_audit_says_what_is_false_and_writes_a_page(say, tmp_path):
    """1 of 3 wrong ones accepted; code 0, for false verdicts are what an audit is to find."""
    rows = [{**row, "is_right": row["task"] != 3, "by": "me"} for row in right(1, 2, 3)]
    rows += [{"task": i, "completion": "0", "is_right": False, "by": "you"} for i in (4, 5)]
    path = write_json_lines(tmp_path / "labelled.jsonl", rows)
    page, out = tmp_path / "a.html", tmp_path / "a.json"
    flags = ("--label", "is_right", "--by", "by", "--html", page, "-o", out, "--workers", 0)
    code, said = say("audit", PLACE, path, *flags)
    assert code == 0
    assert "false positives: 33.33% [6.15%, 79.23%], 1 of 3" in said
    assert "false positive line:3: compared: with 3" in said
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(out.read_text())["slices"]["by"]["you"]["true_negative"] == 2


def test_audit_compares_two_option_sets(say, tmp_path, holed):
    """With --against-option alone it is the same environment; JSON goes to stdout alone."""
    rows = [{"task": f"t{i}", "completion": "1001 1008", "label": True} for i in (0, 1)]
    path = write_json_lines(tmp_path / "labelled.jsonl", rows)
    code, _ = say("audit", holed, path, "--against-option", "upto=5", "--json", "--workers", 0)
    assert code == 0
    assert json.loads(say.out)["disagreement"]["both"] == 2


def test_audit_exits_with_1_where_something_is_missing(say, tmp_path):
    """A row without a label is left out by name; what we could not score is counted."""
    rows = [
        *right(1),
        {"task": 2, "completion": "2", "label": 1},
        {"task": 3, "completion": "3@raise", "label": 1},
    ]
    code, said = say("audit", PLACE, write_json_lines(tmp_path / "in.jsonl", rows), "--workers", 0)
    assert code == 1
    assert "unscored: 1; rows left out: 1" in said
    assert "left out: row line:1: no column 'label'" in said


def test_audit_counts_rows_left_out_by_reason(say, tmp_path):
    """Forty alike are one line on the terminal; the page lists them folded, the JSON as they are."""
    rows = [
        {"task": 1, "completion": "1", "label": 1},
        *({"task": n, "completion": "1"} for n in range(40)),
    ]
    page, report = tmp_path / "page.html", tmp_path / "report.json"
    flags = ("--workers", 0, "--html", page, "-o", report)
    code, said = say("audit", PLACE, write_json_lines(tmp_path / "in.jsonl", rows), *flags)
    assert code == 1
    assert "rows left out: 40" in said
    assert said.count("no column 'label'") == 1
    assert "left out: row line:2: no column 'label'" in said
    assert "(and 39 more for this reason)" in said
    assert len(json.loads(report.read_text())["left_out"]) == 40
    assert page.read_text().count("no column &#39;label&#39;") == 41
    assert "<summary>40 rows</summary>" in page.read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-o", "in.jsonl"], "is an input and would be overwritten"),
        (["--html", "link.html"], "is an input and would be overwritten"),
        (["--html", "none/a.html"], "there is no folder"),
        (["--html", "old.html"], "exists; name another output, or pass --overwrite"),
        (["--html", "new", "-o", "new"], "is another output and would be overwritten"),
        (["--html", "folder", "--overwrite"], "folder is a folder; name a file to write"),
    ],
)
def test_an_audit_refuses_an_output_before_it_scores(
    say, tmp_path, monkeypatch, flags: list[str], message: str
):
    """What was read is never written over, and an hour of scoring is not lost to a missing folder."""
    rows = write_json_lines(tmp_path / "in.jsonl", [{**right(1)[0], "label": True}])
    (tmp_path / "link.html").symlink_to(rows)
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "folder").mkdir()
    before = rows.read_bytes()
    monkeypatch.chdir(tmp_path)
    code, said = say("audit", PLACE, "in.jsonl", "--workers", 0, *flags)
    assert (code, rows.read_bytes(), (tmp_path / "old.html").read_text()) == (2, before, "old")
    assert message in said
    assert (
        say("audit", PLACE, "in.jsonl", "--workers", 0, "--html", "old.html", "--overwrite")[0] == 0
    )
    assert (tmp_path / "old.html").read_text().startswith("<!doctype html>")


# ------------------------------------------------------------------------------------------ filter


def test_filter_keeps_what_can_be_trained_on(say, score, tmp_path):
    """From completions to a data set that from_rows reads, in both formats; what went says why."""
    rows = [{"task": i, "completion": str(i if k < i else 99)} for i in (0, 2, 4) for k in range(4)]
    score(rows)
    tests = write_json_lines(tmp_path / "tests.jsonl", [{"prompt": "say 2"}])
    for ending in ("jsonl", "parquet"):
        out = tmp_path / f"tasks.{ending}"
        flags = ("--min-rate", 0.1, "--max-rate", 1.0, "--min-n", 4, "--tests", tests)
        code, said = say("filter", tmp_path / "out.jsonl", "-o", out, *flags)
        assert code == 0
        assert [
            task.reference for task in rlvr.Environment.from_rows(out, verifier=str.__eq__).tasks()
        ] == [4]
        dropped = list(read_whole(tmp_path / f"tasks.{ending}.dropped.jsonl"))
        assert [row["why"].partition(":")[0] for row in dropped] == ["too-hard", "contaminated"]
        for words in ("kept", "too-hard", "contaminated"):
            assert words in said


def test_filter_exits_with_1_where_nothing_is_left(say, score, tmp_path):
    """No empty data set is written; the reasons are."""
    score(right(1, 2))
    code, said = say(
        "filter", tmp_path / "out.jsonl", "-o", tmp_path / "tasks.jsonl", "--max-rate", 0.5
    )
    assert (code, (tmp_path / "tasks.jsonl").exists()) == (1, False)
    assert "too-easy" in said
    assert len(list(read_whole(tmp_path / "tasks.jsonl.dropped.jsonl"))) == 2


def test_filter_refuses_to_write_over_what_it_reads(say, tmp_path):
    """Also where the second output would be the test set; and an output that exists takes --overwrite."""
    path = write_json_lines(tmp_path / "in.jsonl", [{"prompt": "1?", "reference": 1}])
    tests = write_json_lines(tmp_path / "o.jsonl.dropped.jsonl", [{"prompt": "2?"}])
    before = tests.read_bytes()
    for flags in (["--tests", tests, "--overwrite"], []):
        assert say("filter", path, "-o", tmp_path / "o.jsonl", *flags)[0] == 2
    assert say("filter", path, "-o", tests, "--tests", tests, "--overwrite")[0] == 2
    assert tests.read_bytes() == before


def test_nothing_is_left_of_an_old_output_if_nothing_is_kept(say, tmp_path):
    """The old tasks would be taken for those that were kept."""
    path, out = (
        write_json_lines(tmp_path / "in.jsonl", [{"prompt": "1?", "reference": 1}]),
        tmp_path / "o.jsonl",
    )
    assert say("filter", path, "-o", out)[0] == 0
    code, said = say("filter", path, "-o", out, "--tests", path, "--overwrite")
    assert (code, out.exists()) == (1, False)
    assert "nothing is left: removed the old" in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--min-rate", "2"], "give 0 <= min_rate <= max_rate <= 1"),
        (["--tests", "none.jsonl"], "none.jsonl: no such file"),
        (["--test-column", "question", "--tests", "SELF"], "no text in column 'question'"),
    ],
)
def test_a_filter_that_cannot_be_done_exits_with_2(say, tmp_path, flags: list[str], message: str):
    """And leaves no trace."""
    path = write_json_lines(tmp_path / "in.jsonl", [{"prompt": "1?", "reference": 1}])
    assert message in refusal_of(
        *say(
            "filter",
            path,
            "-o",
            tmp_path / "o.jsonl",
            *(path if flag == "SELF" else flag for flag in flags),
        )
    )
    assert [it.name for it in tmp_path.iterdir()] == ["in.jsonl"]
    assert say("filter", path, "-o", path)[0] == 2


def test_check_takes_a_verifier_and_rows(say, tmp_path: Path):
    """By name or place; without rows the name is no environment."""
    rows = [{"prompt": "Capital of France?", "reference": "Paris"}]
    data = write_json_lines(
        tmp_path / "rows.jsonl", [*rows, {"prompt": "Of Peru?", "reference": "Lima"}]
    )
    code, said = say("check", "qa", "--data", data, "--only", "verifier", "--option", "words=5")
    assert (code, "0 holes" in said) == (0, True)
    (tmp_path / "own.py").write_text("def yes(completion, reference):\n    return True\n")
    code, said = say("check", f"{tmp_path / 'own.py'}:yes", "--data", data, "--only", "exploits")
    assert (code, "prompt-echo" in said) == (1, True)


@pytest.mark.filterwarnings("default::rlvr.errors.DataWarning")
def test_strict_stops_at_the_first_bad_row(say, tmp_path: Path):
    """Without it one row of many is left out."""
    rows = [{"prompt": f"{i}?", "reference": "Paris"} for i in range(30)]
    data = write_json_lines(tmp_path / "rows.jsonl", [*rows, {"prompt": "?", "reference": []}])
    code, said = say("check", "qa", "--data", data, "--only", "verifier", "--tasks", 1)
    assert (code, "1 of 31 rows" in said) == (0, True)
    assert "row 30: the reference is list []" in refusal_of(
        *say("check", "qa", "--data", data, "--only", "verifier", "--strict")
    )


@pytest.mark.filterwarnings("default::rlvr.errors.DataWarning")
def test_workers_do_not_say_again_which_rows_are_left_out(tmp_path: Path, capfd):
    """Each that makes the tasks anew would: it is once for what is checked, once for the other split."""
    rows = [{"question": f"{i} + 0?", "answer": f"#### {i}"} for i in range(30)]
    data = write_json_lines(tmp_path / "rows.jsonl", [*rows, {"question": "?"}])
    main(["check", "gsm8k-v4", "--tasks", "1", "--option", f"data={data}", "--only", "tasks"])
    assert capfd.readouterr().err.count("1 of 31 rows") == 2


def test_labelled_completions_are_cases(tmp_path, capsys):
    """What a person called wrong and is CORRECT is a hole, the other way round a warning; the rest is clean."""
    rows = [
        ("\\boxed{8}", True),
        ("\\boxed{9}", False),
        ("\\boxed{8}", False),
        ("\\boxed{9}", True),
    ]
    path = tmp_path / "labels.jsonl"
    lines = [
        json.dumps({"prompt": "5 + 3 =", "reference": "8", "completion": text, "label": right})
        for text, right in rows
    ]
    command = ["check", "arithmetic-v1", "--only", "labels", "--labels", str(path), "--json"]
    for count, names in ((2, set()), (4, {"labelled-wrong", "labelled-right"})):
        path.write_text("\n".join(lines[:count]) + "\n", encoding="utf-8")
        assert main([*command, "--workers", "1"]) == int(bool(names))
        report = json.loads(capsys.readouterr().out)
        assert {it["hole"] for it in report["findings"]} == names
        assert report["completions"] == count
        assert {(it["count"], it["tried"]) for it in report["findings"]} <= {(1, 2)}
