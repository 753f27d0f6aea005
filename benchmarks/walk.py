"""How many files and functions of rlvr a small job passes: what a reader of that path has to open.

    python -m benchmarks.walk

Three jobs: scoring an integer completion, `rlvr score` of three rows, a step of GRPO.  Each runs
once before it is counted, so that imports and caches do not count.  Counted are names in files of
the folder rlvr, in this thread and in those that begin meanwhile.
"""

from __future__ import annotations

import argparse
import io
import json
import string
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

import rlvr
from rlvr.cli import main as command
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

ROOT, ENV = rlvr.__file__.removesuffix("__init__.py"), "arithmetic-v1"


def count(job: Callable[[], object]) -> list[tuple[str, str]]:
    """The (file, function) pairs of rlvr that a job passes, in their order.

    Args:
        job: what is run; once before, uncounted.
    """
    job()
    passed: dict[tuple[str, str], None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            passed[code.co_filename.removeprefix(ROOT), code.co_qualname] = None

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        job()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(passed)


def score(folder: Path) -> None:
    """`rlvr score` of the rows in the folder, to a new file."""
    rows, out = folder / "rows.jsonl", folder / "scores.jsonl"
    out.unlink(missing_ok=True)
    sys.argv = ["rlvr", "score", ENV, str(rows), "-o", str(out), "--workers", "0"]
    with suppress(SystemExit), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        command()
    assert len(out.read_text().splitlines()) == 3


def walks() -> dict[str, list[tuple[str, str]]]:
    """The pairs of each of the three jobs, by its title."""
    env = rlvr.make(ENV)
    tasks = [env.task(index) for index in range(3)]
    replies = [f"So it is \\boxed{{{task.reference}}}." for task in tasks]
    with tempfile.TemporaryDirectory() as name, rlvr.Scorer(env, workers=0) as scorer:
        folder = Path(name)
        rows = [{"task": index, "completion": reply} for index, reply in enumerate(replies)]
        (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        policy = Policy(*tiny(string.printable, hidden=32, layers=1, heads=2))
        config = Config(env=ENV, model="tiny", run=folder / "run", algorithm="grpo", steps=2,
                        prompts=2, group_size=4, max_tokens=8, eval_every=None, workers=0,
                        device="cpu", checkpoint_every=100)  # fmt: skip
        with Trainer(config, policy=policy, console=Console(file=io.StringIO())) as trainer:
            jobs: dict[str, Callable[[], object]] = {
                "an integer completion": lambda: scorer.score(tasks[0], replies[0]),
                "`rlvr score`, three rows": lambda: score(folder),
                "a GRPO step": trainer.step,
            }
            return {title: count(job) for title, job in jobs.items()}


def length(pairs: list[tuple[str, str]]) -> str:
    """How many files, and how many functions."""
    return f"{len({file for file, _ in pairs})} · {len(pairs)}"


def main() -> None:
    """Print the table, or with --list the functions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the functions")
    options = parser.parse_args()
    print("| job | files · functions |\n|---|---|")
    for title, pairs in walks().items():
        print(f"| {title} | {length(pairs)} |")
        for file, function in pairs if options.list else ():
            print(f"    {file}: {function}")


if __name__ == "__main__":
    main()
