"""Every code block of the README and the docs runs, in order, as a reader would run it."""

import contextlib
import functools
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

from tests.forked import run_forked
from tests.json_lines import write_json_lines
from tests.processes import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
ALL = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
ALL += sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/*/README.md")])
RUN = ("python", "sh")
TRAINING = "docs/using/training.md"
HEAVY = (
    TRAINING,
    "docs/algorithms.md",
    "docs/guide.md",
    "docs/reference/code.md",
    "docs/reference/math.md",
    "docs/reference/records.md",
    "docs/reference/sandbox.md",
    "docs/reference/step_files.md",
    "docs/using/agents.md",
    "docs/using/coming_from_math_verify.md",
    "docs/using/command_line.md",
    "docs/using/gymnasium.md",
    "docs/using/harbor.md",
    "docs/using/openrlhf.md",
    "docs/using/reasoning_gym.md",
    "docs/using/scoring.md",
    "docs/using/serving.md",
    "docs/using/trl.md",
    "docs/using/verl.md",
    "docs/using/viewing.md",
    "docs/writing/checking.md",
    "docs/writing/environments.md",
    "docs/writing/examples.md",
    "docs/writing/tools.md",
    "docs/writing/verifiers.md",
)
"""Pages that train, load torch, or start compilers, services, TRL, math-verify, checks: 1 to 25 CPU seconds each;
the README stands for them in `make test`."""

PEERS = {
    "docs/using/inspect_ai.md": "inspect_ai",
    "docs/using/openenv.md": "openenv.core",
    "docs/using/verifiers.md": "verifiers.v1",
}
"""Pages about libraries that no extra brings, which run where these are installed."""


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, content) of each fenced block of a page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


PAGES = [
    name
    for name in (page.relative_to(ROOT).as_posix() for page in ALL)
    if not name.startswith("docs/benchmarks/")  # their commands take hours and other people's data
    and any(language in RUN for language, _ in blocks(name))
]


def run(language: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A block as a process of its own, started in this folder."""
    program = [sys.executable, "-c", code] if language == "python" else ["bash", "-c", code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        program,
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )


def missing(shown: str, printed: str) -> list[str]:
    """Lines of a `text` block that the block before it did not print, in this order; `…` stands for anything."""
    rest, lost = printed.splitlines(), []
    for line in filter(str.strip, shown.splitlines()):
        pattern = re.compile(".*".join(map(re.escape, line.rstrip().split("…"))))
        at = next((i for i, real in enumerate(rest) if pattern.fullmatch(real.rstrip())), None)
        if at is None:
            lost.append(line)
        else:
            rest = rest[at + 1 :]
    return lost


@pytest.mark.docs
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page in HEAVY)) for page in PAGES]
)
def test_every_block_of_the_page_runs(page: str, tmp_path: Path):
    """A reader copies them; a block of `text` is output of the block before it."""
    if page in PEERS:
        pytest.importorskip(PEERS[page], reason=f"{PEERS[page]} is not installed")
    function = {"task_id": "A/0", "prompt": "def one():\n", "entry_point": "one"}
    function["test"] = "def check(candidate):\n    assert candidate() == 1\n"
    with gzip.open(tmp_path / "HumanEval.jsonl.gz", "wt") as file:  # for docs/reference/code.md
        file.write(json.dumps(function) + "\n")
    write_json_lines(tmp_path / "samples.jsonl", [{"task_id": "A/0", "completion": "    return 1"}])
    found = blocks(page)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])  # for docs/using/serving.md: its own may be taken here
    try:
        printed = ""
        for language, code in found:
            if language == "text":
                assert not missing(code, printed), (
                    f"{page} shows\n{code}\nand printed was\n{printed}"
                )
                continue
            done = (run_forked if page == TRAINING else run)(
                language, code.replace("8421", port), tmp_path
            )
            assert done.returncode == 0, f"{page}:\n{code}\n{done.stdout}\n{done.stderr}"
            printed = done.stdout
    finally:
        if (
            tmp_path / "serve.pid"
        ).exists():  # the page ends with stopping it, unless a block before fails
            with contextlib.suppress(ProcessLookupError):
                os.kill(int((tmp_path / "serve.pid").read_text()), signal.SIGKILL)


def test_no_block_is_left_out():
    """A fence without a language would never be run."""
    for page in PAGES:
        fences = re.findall(r"^```(\w*)", (ROOT / page).read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(page)), page
        assert set(fences[::2]) <= {*RUN, "text"}, page


@functools.cache
def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings: lower case, without punctuation, hyphens for spaces."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(
        r"(?:\A|\n\n)#+ (.+)$", text, re.MULTILINE
    )  # after a line of a table it is a row
    headings = [heading.lower() for heading in found]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere():
    """To a file of the checkout, and to a heading of it where there is an anchor."""
    for page in ALL:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page}: {link}"
            assert not anchor or anchor in anchors(target), f"{page}: {link}"


def test_the_contents_list_every_page():
    """A page that docs/README.md does not name would not be found."""
    contents = ROOT / "docs" / "README.md"
    links = re.findall(r"\]\(([^)#\s]+)", contents.read_text())
    listed = {(contents.parent / link).resolve() for link in links if not link.startswith("http")}
    assert set(ROOT.glob("docs/**/*.md")) - {contents} - listed == set()


def test_pages_that_the_code_names_are_there():
    """Errors, help texts and docstrings say `docs/….md`; a page that moves takes them along."""
    folders = ("rlvr", "envs", "verifiers", "sandbox", "recipes", "benchmarks", "tests")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"docs/[\w/]+\.md", path.read_text())}
    assert named
    assert {name for name in named if not (ROOT / name).is_file()} == set()


@pytest.mark.parametrize(
    "code", [code for language, code in blocks("README.md") if language == "python"]
)
def test_each_use_fits_25_lines(code: str):
    """The README's promise to each of the three users."""
    assert len(code.strip().splitlines()) <= 25


@pytest.mark.parametrize("code", [code for _, code in blocks("docs/writing/examples.md")])
def test_an_authors_environment_fits_40_lines(code: str):
    """The goal for what an author has to write, use included."""
    assert len(code.splitlines()) <= 40


@pytest.mark.docs
def test_the_demo_tells_scripted_kinds_apart(tmp_path: Path):
    """What was scripted right is correct, the rest is not, nothing is unscored."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    done = subprocess.run(
        [sys.executable, "-m", "recipes.score_arithmetic.run", "--completions", "120"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in done.stdout.splitlines()
        if "│" in line
    ]
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


@pytest.mark.docs
@pytest.mark.slow
def test_the_training_demo_runs(tmp_path: Path):
    """Its whole path, in too few steps to learn anything: what `make demo` does in two minutes."""
    run = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "recipes.arithmetic_cpu.run",
        "--steps",
        "2",
        "--warm-steps",
        "2",
    ]
    done = subprocess.run(
        [*command, "--run", str(run)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "accuracy" in done.stdout
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
