"""`rlvr strength`: counts of wrong work that is paid, the report, and the command."""

import json

import pytest

import rlvr
from rlvr.cli.entry import main
from rlvr.testing.strength import WrittenWork, measure_strength, strength_summary
from rlvr.testing.work import Maker, Untested, Witness, Work, serves
from tests.json_lines import write_json_lines


class Above(rlvr.Environment):
    """A number above the reference; weak at even indices, where any number is paid."""

    id = "above-v1"

    def tasks(self):
        return [rlvr.Task(f"above/{n}", f"A number above {n}?", n) for n in range(4)]

    def example(self, task):
        return str(task.reference + 1)

    def verify(self, task, completion):
        is_right = task.reference % 2 == 0 or int(completion) > task.reference
        return rlvr.Verdict("correct" if is_right else "wrong", why="number")


@serves(Above)
class AboveWork(Maker):
    """Numbers below, one above (no witness), one that is doubtful, one that is slow; task 3 has no solution."""

    def wrong(self, task, rng):
        if task.reference == 3:
            raise Untested("its solution is lost")
        for below in range(5):
            yield Work(str(task.reference - below), "below" if below else "equal")
        yield Work(str(task.reference + 1), "above")
        yield Work("-100", "doubtful")
        yield Work("-200", "slow")

    def witness(self, task, work):
        number = int(work.text)
        if number > task.reference:
            return None
        return Witness(
            work.text, "more", work.text, is_doubtful=number == -100, is_slow=number == -200
        )


def test_the_numbers_of_each_task_by_hand():
    """Five wrong works a task; at even tasks all are paid, the doubtful one is listed and not counted."""
    report = measure_strength(Above(), tasks=None, workers=0)
    by_task = {one["task"]: one for one in report.tasks}
    weak = by_task["above/0"]
    assert {name: weak[name] for name in ("made", "wrong", "paid", "open", "doubtful", "slow")} == {
        "made": 8, "wrong": 5, "paid": 5, "open": 1, "doubtful": 1, "slow": 1,
    }  # fmt: skip
    assert weak["strength"] == 0
    assert weak["operators"] == {"below": [4, 4], "equal": [1, 1]}
    assert by_task["above/1"]["state"] == "strong"
    assert by_task["above/1"]["unproven"] == 1
    assert by_task["above/1"]["interval"] == pytest.approx([0.5655, 1.0], abs=1e-4)
    assert by_task["above/3"]["why"] == "its solution is lost"
    assert [one["state"] for one in report.tasks] == ["weak", "weak", "strong", "untested"]
    tree = report.as_dict()
    assert tree["mean"]["value"] == pytest.approx(1 / 3)
    assert tree["counts"]["paid"] == report.holes == 10
    assert not report.clean
    assert strength_summary(tree)[-1] == "untested (1): its solution is lost"


def test_a_task_whose_reference_cannot_be_read_is_untested():
    """Its example would be refused, which says nothing of the verifier."""
    from rlvr.verifiers.math import MathVerifier

    class Sums(rlvr.Environment):
        reward = rlvr.Correct(MathVerifier())

        def tasks(self):
            return [rlvr.Task(f"t{i}", f"{i}?", ref) for i, ref in enumerate((True, {"a": 3}))]

    report = measure_strength(Sums(), tasks=None, workers=0)
    assert [one["why"][:28] for one in report.tasks] == ["its reference cannot be read"] * 2
    assert not any(one["right_refused"] for one in report.tasks)


def test_completions_of_models_are_tried_too():
    """A paid one with a witness is a hole, under the operator "model"."""
    report = measure_strength(
        Above(), tasks=None, works=1, completions=[WrittenWork("above/2", "1")], workers=0
    )
    [task] = [one for one in report.tasks if one["task"] == "above/2"]
    assert task["operators"]["model"] == [1, 1]


def test_where_most_programs_agree_against_the_reference_it_is_disputed(tmp_path):
    """The solution forgets the 31st day; five programs do not, one calls every day right: only that one is wrong."""
    row = {
        "task_id": "Own/0",
        "prompt": 'def is_day(n: int):\n    """Whether n is a day of January."""\n',
        "canonical_solution": "    return 0 < n < 31\n",
        "test": "def check(candidate):\n    assert candidate(30)\n    assert candidate(1)\n"
        "    assert not candidate(45)\n",
        "entry_point": "is_day",
    }
    path = write_json_lines(tmp_path / "rows.jsonl", [row])
    right = [f"def is_day(n):\n    return n in range(1, 32) and {n} > 0" for n in range(1, 6)]
    texts = [
        f"```python\n{text}\n```"
        for text in (*right, "def is_day(n):\n    return n < 45 and n != 31")
    ]
    written = [WrittenWork("Own/0", text) for text in texts]
    env = rlvr.make("humaneval-v3", data=str(path))
    [task] = measure_strength(env, tasks=1, works=1, workers=0, completions=written).tasks
    assert task["doubtful"] == 5
    assert task["operators"]["model"] == [1, 1]


def test_any_number_of_workers_and_a_resumed_run_give_one_report(tmp_path):
    """Tasks are independent, and the journal of a stopped run holds whole records."""
    journal = tmp_path / "part"
    first = measure_strength(Above(), tasks=None, workers=2, journal=journal).as_dict()
    lines = journal.read_text().splitlines()
    assert len(lines) == 5
    journal.write_text("\n".join(lines[:3]) + '\n{"task": "abo')  # killed while it wrote
    assert measure_strength(Above(), tasks=None, workers=0, journal=journal).as_dict() == first
    assert measure_strength(Above(), tasks=None, workers=0).as_dict() == first


def test_a_journal_of_another_run_is_refused(tmp_path):
    """Other works are another run."""
    journal = tmp_path / "part"
    measure_strength(Above(), tasks=None, workers=0, journal=journal)
    with pytest.raises(rlvr.DataError, match="of another run"):
        measure_strength(Above(), tasks=None, works=3, workers=0, journal=journal)


def test_an_environment_without_a_maker_is_refused():
    """A user's verifier is a function of any kind."""
    rows = [{"prompt": "1?", "reference": "1"}]
    env = rlvr.Environment.from_rows(rows, verifier=lambda completion, reference: True)
    with pytest.raises(rlvr.UsageError, match="no maker of work serves rows-v0"):
        measure_strength(env, tasks=1)


def test_episodes_are_played():
    """Work is a list of turns; a report of errands has the numbers of any other."""
    report = measure_strength(rlvr.make("desk-v2", world="files"), tasks=2, works=4, workers=0)
    assert report.clean
    assert sum(task["wrong"] for task in report.tasks) >= 4
    with pytest.raises(rlvr.UsageError, match="several turns"):
        measure_strength(rlvr.make("desk-v2"), tasks=1, mending=True)


def test_the_command_writes_report_and_page(tmp_path, capsys):
    """A task whose tests have no item at the limit pays >= for >: exit code 1, a report, a page with the diff."""
    row = {
        "task_id": "Own/0",
        "prompt": 'def above(items: list, limit: int):\n    """How many items are above the limit."""\n',
        "canonical_solution": "    return sum(1 for item in items if item > limit)\n",
        "test": "def check(candidate):\n    assert candidate([1, 5, 9], 3) == 2\n"
        "    assert candidate([4, 8], 2) == 2\n    assert candidate([7, 7, 1], 2) == 2\n",
        "entry_point": "above",
    }
    data, written = tmp_path / "rows.jsonl", tmp_path / "written.jsonl"
    write_json_lines(data, [row])
    slip = (
        "```python\ndef above(items, limit):\n    return sum(item >= limit for item in items)\n```"
    )
    written.write_text(json.dumps({"task_id": "Own/0", "completion": slip}) + "\n{}\n")
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    args = ["strength", "humaneval-v3", "--option", f"data={data}", "--every", "--works", "4"]
    args += [
        "--workers",
        "0",
        "-o",
        str(report),
        "--html",
        str(page),
        "--completions",
        str(written),
    ]
    assert main(args) == 1
    tree = json.loads(report.read_text())
    assert tree["tasks"][0]["operators"]["model"] == [1, 1]
    assert "item &gt;= limit" in page.read_text()
    assert not (tmp_path / "report.json.part").exists()
    told = capsys.readouterr()
    assert "1 weak, 0 strong" in told.out
    assert "row 2" in told.err
