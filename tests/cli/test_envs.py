"""`rlvr envs`: the list, and one environment with its options."""

from pathlib import Path

import pytest

from rlvr.cli import main
from rlvr.environment.registry import environment_ids, load

MINE = '''"""Mine."""
import rlvr

class Twos(rlvr.Environment):
    """Say two."""
    id = "twos-v1"
    word: str = "two"

    def task(self, index):
        return rlvr.Task(f"twos/{index}", "Say it.", reference=self.word)

    def verify(self, task, completion):
        return rlvr.Verdict(rlvr.Outcome.CORRECT if completion == task.reference else rlvr.Outcome.WRONG)
'''


def test_all_are_listed(capsys):
    assert main(["envs"]) == 0
    said = capsys.readouterr().out
    assert [name for name in environment_ids() if name not in said] == []


@pytest.mark.parametrize("name", ["arithmetic-v1", "gsm8k-v4", "bash-v1"])
def test_one_is_shown_with_its_options(name: str, capsys):
    assert main(["envs", name]) == 0
    said = capsys.readouterr().out
    assert [option for option in load(name).options() if option not in said] == []


def test_one_of_a_file_is_shown(tmp_path: Path, capsys):
    (tmp_path / "twos_to_show.py").write_text(MINE, encoding="utf-8")
    assert main(["envs", f"{tmp_path / 'twos_to_show.py'}:Twos"]) == 0
    said = capsys.readouterr().out
    assert "Say two." in said
    assert "'two'" in said


def test_an_unknown_one_is_an_error(capsys):
    assert main(["envs", "gsm8k-v99"]) == 2
    assert "gsm8k-v4" in capsys.readouterr().err
