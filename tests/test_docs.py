"""Every code block of the README and the docs runs, in order, as a reader would run it."""

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "docs/writing/environments.md", "recipes/math_grpo/README.md"]
PAGES += [f"docs/reference/{name}.md" for name in ("math", "code", "sandbox")]
PAGES += [f"docs/using/{name}.md" for name in ("scoring", "serving", "training")]
PAGES += [f"docs/using/{name}.md" for name in ("trl", "verl", "openrlhf", "gymnasium", "reasoning_gym")]


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of each fenced block of a page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(language: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", code] if language == "python" else ["bash", "-c", code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        program, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_runs(page: str, tmp_path: Path):
    """A reader copies them; `rlvr score` ends with 1 where the page itself shows rows that need a look."""
    solution = {"is_correct": True, "solution": "It is 2.\nA: 2"}
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    row = {"question": "1 + 1?", "ground_truth": "Two.\nA: 2"} | dict.fromkeys(models, solution)
    (tmp_path / "example_model_solutions.jsonl").write_text(json.dumps(row) + "\n")  # for docs/using/scoring.md
    function = {"task_id": "A/0", "prompt": "def one():\n", "entry_point": "one"}
    function["test"] = "def check(candidate):\n    assert candidate() == 1\n"
    with gzip.open(tmp_path / "HumanEval.jsonl.gz", "wt") as file:  # and docs/reference/code.md
        file.write(json.dumps(function) + "\n")
    (tmp_path / "samples.jsonl").write_text(json.dumps({"task_id": "A/0", "completion": "    return 1"}) + "\n")
    found = blocks(page)
    assert found
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])  # for docs/using/serving.md: its own may be taken here
    try:
        for language, code in found:
            done = run(language, code.replace("8421", port), tmp_path)
            assert done.returncode == 0, f"{page}:\n{code}\n{done.stdout}\n{done.stderr}"
    finally:
        if (tmp_path / "serve.pid").exists():  # the page ends with stopping it, unless a block before fails
            with contextlib.suppress(ProcessLookupError):
                os.kill(int((tmp_path / "serve.pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_left_out(page: str):
    """A fence without a language would never be run."""
    fences = re.findall(r"^```(\w*)", (ROOT / page).read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))
    assert set(fences[::2]) <= {"python", "sh"}


@pytest.mark.parametrize("code", [code for language, code in blocks("README.md") if language == "python"])
def test_each_use_fits_25_lines(code: str):
    """The README's promise to each of the three users."""
    assert len(code.strip().splitlines()) <= 25


def test_the_demo_tells_scripted_kinds_apart(tmp_path: Path):
    """What was scripted right is correct, the rest is not, nothing is unscored."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    done = subprocess.run(
        [sys.executable, "-m", "recipes.score_arithmetic.run", "--completions", "120"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.stdout.splitlines() if "│" in line]
    correct, wrong, unparsed, unscored = (
        {row[0]: int(row[i] or 0) for row in rows if len(row) == 5} for i in range(1, 5)
    )
    assert set(correct) == {"right", "wrong", "malformed", "hostile"}
    assert correct["right"] > 30
    assert wrong["wrong"] > 20
    assert sum(correct.values()) == correct["right"]
    assert wrong["right"] + unparsed["right"] == 0
    assert wrong["hostile"] + unparsed["hostile"] > 0
    assert sum(unscored.values()) == 0


def test_the_training_demo_runs(tmp_path: Path):
    """Its whole path, with too few steps to learn anything: what `make demo` does in two minutes."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "recipes.arithmetic_cpu.run", "--steps", "2", "--warm-steps", "2"]
    done = subprocess.run([*command, "--run", str(run)], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "accuracy" in done.stdout
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
