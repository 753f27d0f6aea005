"""What docs/adding.md says: nine kinds of things, each added by one file of a package outside of rlvr."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.json_lines import read_json_lines
from tests.processes import run_python

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "adding.md"


@pytest.fixture(scope="module")
def outside(tmp_path_factory) -> Path:
    """A folder with the files and, as an installed package has it, the entry points that the page prints."""
    folder = tmp_path_factory.mktemp("outside")
    for file in HERE.glob("*.py"):
        if not file.name.startswith(("test_", "__")):
            shutil.copy(file, folder)
    info = folder / "added-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    declared = re.search(r"```toml\n(.+?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert declared is not None
    points = declared[1].replace("[project.entry-points.", "[").replace('"', "")
    (info / "entry_points.txt").write_text(points)
    return folder


def said(folder: Path, code: str) -> str:
    """What a process prints that has the package on its path."""
    done = run_python(
        f"from rlvr.cli import main\n{code}",
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_command(outside):
    """It is listed with its package, has its flags, and a wrong name is led to it."""
    long = "word " * 60  # longer than the terminal is wide
    code = f'main(["--help"]); assert main(["shout", "[b]{long}", "-n", "2"]) == 0'
    out = said(outside, code)
    assert re.search(r"shout +Of the package added\.", out)
    assert out.endswith(f"[B]{long.upper()}\n" * 2)
    helped = said(
        outside, 'with __import__("contextlib").suppress(SystemExit): main(["shout", "-h"])'
    )
    assert "Attributes" not in helped
    assert re.search(r"-n INT, --times INT +How often\.", helped)
    code = "import contextlib, sys; contextlib.redirect_stderr(sys.stdout).__enter__()\n"
    assert "shout" in said(outside, f'{code}assert main(["shoot"]) == 2')


def test_a_command_that_cannot_be_loaded_is_one_line(outside):
    """Another package's fault is said with its place."""
    info = outside / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    points = "[rlvr.commands]\nlost = nowhere:Lost\nscore = nowhere:Score\nnone = json:loads\n"
    (info / "entry_points.txt").write_text(points)
    code = """if True:
        import contextlib, sys
        with contextlib.redirect_stderr(sys.stdout):
            print(main(["lost"]), main(["none"]))
        from rlvr.cli.commands import COMMANDS, every_command
        print(every_command()["score"] is COMMANDS["score"])
    """
    lines = " ".join(said(outside, code).split())
    shutil.rmtree(info)
    assert (
        "'lost' leads to nowhere:Lost, which cannot be loaded: No module named 'nowhere'" in lines
    )
    assert "it must be a class with run(out, err)" in lines
    assert lines.endswith("2 2 True")


@pytest.mark.slow  # `rlvr check` repeats itself in new processes
def test_a_verifier_and_a_part_of_a_reward(outside):
    """Both by their places; `rlvr check` tries the properties of the verifier."""
    rows = [{"id": n, "prompt": f"{n}?", "reference": n, "completion": f"{n}.2"} for n in range(3)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (outside / "rows.jsonl").write_text(lines)
    flags = '"--verifier", "near.py:Near", "--reward", "2*correct + brief.py:Brief(limit=10)"'
    code = f"""if True:
        assert main(["score", "rows.jsonl", {flags}, "-o", "scored.jsonl"]) == 0
        assert main(["check", "near.py:Near", "--data", "rows.jsonl", "--skip", "long-text"]) == 0
    """
    said(outside, code)
    scored = read_json_lines(outside / "scored.jsonl")
    assert [row["total"] for row in scored] == [pytest.approx(2.7)] * 3


@pytest.mark.slow
def test_an_environment_with_a_tool_and_a_sampler(outside):
    """The id is found by the entry point; an engine of one file plays its episodes."""
    code = """if True:
        import rlvr
        from constant import Constant
        from rlvr.collect import Sampling
        from rlvr.collect.evaluation import evaluate
        env = rlvr.make("doubles-v1")
        right = Constant(env.task(0).reference)
        report = evaluate(env, right, sampling=Sampling(max_tokens=20), limit=2, n=1)
        print([task.scored for task in report.tasks], report.metrics["avg@1"].value)
        assert main(["envs", "doubles-v1"]) == 0
        assert main(["check", "doubles-v1", "--tasks", "1", "--skip", "repeats"]) == 0
    """
    out = said(outside, code)
    assert out.startswith("[1, 1] 0.5")
    assert "Double numbers; a tool knows how." in out


def test_an_algorithm(outside):
    """Its page has its number; `--check` is tried in the trainer's own tests."""
    pytest.importorskip("torch")
    out = said(outside, 'assert main(["algorithms", "plain.py:Plain"]) == 0')
    assert "least" in out


@pytest.mark.skipif(shutil.which("perl") is None, reason="no perl")
def test_a_language(outside):
    """Programs in it are judged from their fence."""
    code = """if True:
        from rlvr.sandbox.languages import register
        register("perl", "perl.py")
        from rlvr.verifiers.code import CodeVerifier
        case = {"inputs": ["2\\n"], "outputs": ["4\\n"]}
        answer = "```perl\\nprint 2 * <STDIN>;\\n```"
        print(CodeVerifier(language="perl").verify(answer, case).outcome)
    """
    assert said(outside, code) == "correct\n"


def test_a_page_of_the_viewer(outside):
    """A report of a kind of one's own; a wrong one is said with the line of the page's file."""
    pytest.importorskip("jinja2")
    (outside / "lengths.json").write_text('{"report": "lengths", "lengths": {"abc": 3}}')
    (outside / "other.json").write_text('{"report": "length"}')
    (outside / "lacks.json").write_text('{"report": "lengths"}')
    code = """if True:
        from pathlib import Path
        from rlvr.errors import DataError
        from rlvr.viewer.reports import read_report, report_page
        print(read_report(Path("lengths.json")).tables[0].rows)
        assert b"characters" in report_page({"report": "lengths", "lengths": {"abc": 3}})
        for name in ("lacks.json", "other.json"):
            try:
                read_report(Path(name))
            except DataError as error:
                print(error)
    """
    assert said(outside, code).splitlines() == [
        "[('abc', 3)]",
        "lacks.json looks like a report, and lacks something: KeyError('lengths'), in lengths.py, line 8",
        "no page reads reports of the kind 'length'; installed packages read 'lengths' (docs/adding.md); "
        "did you mean 'lengths'?",
    ]
