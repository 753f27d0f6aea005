"""`rlvr view`: one page without a server, and what it refuses."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from rlvr.cli import main
from tests.json_lines import write_json_lines
from tests.processes import PATIENCE_S
from tests.viewer.made import record, run_folder


def test_one_page_needs_no_server(scored: Path, tmp_path: Path, capsys):
    """Curves, counts and some rows of each reason; nothing in it refers to anything outside of it."""
    page = tmp_path / "page.html"
    assert main(["view", str(scored), str(run_folder(tmp_path / "a")), "--export", str(page)]) == 0
    assert str(page) in capsys.readouterr().out.replace("\n", "")
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r'(?:href|src)="([^"]*)"', text)) == {"#s0", "#s1"}
    assert "<script" not in text
    assert "default-src 'none'" in text
    assert "different-number" in text
    assert "then \\boxed{<mark>3</mark>}" in text
    assert "<polyline" in text


def test_one_page_does_not_replace_a_file(scored: Path, tmp_path: Path, capsys):
    """Neither another page nor, even with --overwrite, what it shows."""
    page = write_json_lines(tmp_path / "page.html", [])
    assert main(["view", str(scored), "--export", str(page)]) == 2
    assert main(["view", str(scored), "--export", str(page), "--overwrite"]) == 0
    assert main(["view", str(scored), "--export", str(scored), "--overwrite"]) == 2
    assert "exists" in capsys.readouterr().err


def test_what_cannot_be_shown_is_one_line(tmp_path: Path, capsys):
    """No such file: exit code 2, and no traceback."""
    assert main(["view", str(tmp_path / "nowhere.jsonl")]) == 2
    assert "no such file or folder" in capsys.readouterr().err.replace("\n", " ")


def test_a_port_in_use_is_one_line(scored: Path, capsys):
    """Two viewers at once: the second names the port and the flag."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["view", str(scored), "--port", str(taken.getsockname()[1])]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "cannot listen on '127.0.0.1'" in said
    assert "choose another --host or --port" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_let_in_only_when_told(host: str, scored: Path, capsys, monkeypatch):
    """As with `rlvr serve`."""
    monkeypatch.delenv("RLVR_API_KEY", raising=False)
    assert main(["view", str(scored), "--host", host, "--port", "0"]) == 2
    assert re.search("RLVR_API_KEY|cannot listen", capsys.readouterr().err)


def test_other_machines_are_let_in_by_a_key_that_cannot_be_guessed(
    scored: Path, capsys, monkeypatch
):
    """A short one is refused, as `rlvr serve` refuses it."""
    monkeypatch.setenv("RLVR_API_KEY", "short")
    assert main(["view", str(scored), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "RLVR_API_KEY has 5 letters" in capsys.readouterr().err


def test_the_command_serves_until_it_is_stopped(scored: Path):
    """Prints its address, answers, and ends with 0 on Ctrl-C; its temporary files are gone."""
    command = [sys.executable, "-m", "rlvr", "view", str(scored), "--port", "0"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONUNBUFFERED": "1", "TMPDIR": str(scored.parent)},
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                assert b"scored.jsonl" in answer.read()  # its rows may still be being read
            assert list(scored.parent.glob("rlvr-view-*"))
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert not list(scored.parent.glob("rlvr-view-*"))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def test_a_record_of_every_kind_is_in_the_page(tmp_path: Path):
    """Five of each reason: a rare one is not lost among many."""
    rows = [record(i, outcome="correct", why="") for i in range(300)] + [
        record(300, outcome="unparsed", why="rare: x")
    ]
    assert (
        main(
            [
                "view",
                str(write_json_lines(tmp_path / "a.jsonl", rows)),
                "--export",
                str(tmp_path / "p.html"),
            ]
        )
        == 0
    )
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert text.count('<article class="side"') == 6
    assert "6 of 301 rows" in text
