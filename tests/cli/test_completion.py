"""`rlvr --print-completion`: the scripts by which a shell completes commands and flags."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rlvr.cli import main


def script(shell: str, capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    assert not ended.value.code
    return str(capsys.readouterr().out)


def test_bash_completes_commands_and_flags(tmp_path: Path, capsys):
    """In a real bash, by the function that the script registers."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    path = tmp_path / "rlvr.bash"
    path.write_text(script("bash", capsys))
    ask = (
        f"source {path}; run=$(complete -p rlvr | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
        "COMP_WORDS=(rlvr scor); COMP_CWORD=1; $run; echo ${COMPREPLY[@]}; "
        "COMP_WORDS=(rlvr compare --lev); COMP_CWORD=2; $run; echo ${COMPREPLY[@]}"
    )
    told = subprocess.run([bash, "-c", ask], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["score", "--level"]


@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef rlvr"), ("fish", "# ")])
def test_other_shells_have_scripts_with_the_commands(shell: str, begins: str, capsys):
    """They are made from the same parsers."""
    found = script(shell, capsys)
    assert found.startswith(begins)
    assert "compare" in found
    assert "--level" in found


def test_another_shell_is_one_line(capsys):
    """Which shells there are."""
    assert main(["--print-completion", "tcsh"]) == 2
    assert "takes one of bash, zsh, fish" in " ".join(capsys.readouterr().err.split())
