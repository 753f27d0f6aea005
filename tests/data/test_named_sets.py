"""Sets that papers report on: one name, one revision, and rows of their columns are read."""

import re

import pytest

import rlvr
from rlvr.data import rows as data_rows
from rlvr.data.named_sets import NAMED_SETS
from rlvr.errors import UsageError

ROWS = {
    "aime-2024": {"problem": "1+1?", "solution": "So it is \\boxed{2}."},
    "aime-2025": {"problem": "1+1?", "answer": "2", "id": "0"},
    "amc-2023": {"question": "1+1?", "answer": 2.0, "url": ""},
    "math-500": {"problem": "1+1?", "answer": "2", "solution": "", "level": 1},
    "minerva": {"question": "1+1?", "answer": "2"},
    "olympiadbench": {"question": "1+1?", "final_answer": ["2"], "solution": ["so"]},
    "gpqa-diamond": {
        "Question": "1+1?",
        "Correct Answer": "2",
        "Incorrect Answer 1": "3",
        "Incorrect Answer 2": "4",
        "Incorrect Answer 3": "5",
    },
    "humaneval": {
        "task_id": "x/0",
        "prompt": "def two():\n",
        "canonical_solution": "    return 2\n",
        "test": "def check(candidate):\n    assert candidate() == 2\n",
        "entry_point": "two",
    },
    "gsm8k": {"question": "1+1?", "answer": "So.\n#### 2"},
}


@pytest.mark.parametrize("name", NAMED_SETS)
def test_rows_of_its_columns_are_read(name: str, monkeypatch):
    """As the hub would give them; the part of a split that is asked for is one of the set's own split."""
    asked = []

    def hub_rows(source, split, *, name=None, revision=None):
        asked.append((source, split, name, revision))
        return [ROWS[key] for key in (current,)]

    current, known = name, NAMED_SETS[name]
    monkeypatch.setattr(data_rows, "hub_rows", hub_rows)
    env = rlvr.make(known.env, data=name, split="test[:5]")
    [task] = list(env.tasks())
    assert asked[0] == (known.hub, f"{known.split}[:5]", known.config or None, known.revision)
    assert "two" in str(task.prompt) or "1+1?" in str(task.prompt)
    assert env.verify(task, "\\boxed{2}").correct or name in ("gpqa-diamond", "humaneval")


def test_revisions_are_commits():
    """A branch would change under a name."""
    assert all(re.fullmatch(r"[0-9a-f]{40}", it.revision) for it in NAMED_SETS.values())
    assert set(ROWS) == set(NAMED_SETS)


def test_a_set_that_runs_code_is_refused_by_name():
    with pytest.raises(
        UsageError, match=r"livecodebench is not read: its hidden tests are pickles"
    ):
        list(rlvr.make("code-stdio-v3", data="livecodebench").tasks())


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aime-2025").mkdir()
    (tmp_path / "aime-2025" / "test.jsonl").write_text('{"problem": "2+2?", "answer": "4"}\n')
    [task] = list(rlvr.make("math-v4", data="aime-2025").tasks())
    assert task.reference == "4"
