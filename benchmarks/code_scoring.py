r"""Time to score real completions of HumanEval, and a bare subprocess for each:
the table of docs/benchmarks/code.md.

    python -m benchmarks.code_scoring DATA_DIR --samples 20 --workers 2

DATA_DIR/humaneval holds HumanEval.jsonl.gz and codegen16B_100samples.jsonl.  A bare subprocess runs
prompt, completion and tests in one file without any isolation, is judged by its exit code, and is
killed after 3 wall seconds.  Ours has a limit of 3 CPU seconds.  The two take turns in one process,
each with the same number of workers.
"""

import argparse
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import rlvr
from benchmarks.common import rows

LIMIT_S = 3.0


def completions(folder: Path, samples: int) -> Iterator[dict[str, Any]]:
    """The data set's own columns and a completion; matched by place,
    and held to the function's name."""
    tasks = sorted(
        rows(folder / "HumanEval.jsonl.gz"), key=lambda task: task["task_id"].split("/")[1]
    )
    sampled = rows(folder / "codegen16B_100samples.jsonl")  # in this order
    for task, found in zip(tasks, sampled, strict=True):
        if re.findall(r"def (\w+)\(", found["prompt"])[-1] != task["entry_point"]:
            raise SystemExit(f"{task['task_id']} does not stand where it is looked for")
        for number, text in enumerate(found["samples"][:samples]):
            yield {**task, "id": f"{task['task_id']}/{number}", "completion": text}


def bare(row: dict[str, Any], flags: list[str]) -> str:
    """What an exit code says."""
    program = f"{row['prompt']}{row['completion']}\n{row['test']}\ncheck({row['entry_point']})\n"
    try:
        done = subprocess.run(
            [sys.executable, *flags, "-c", program],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    return "passed" if done.returncode == 0 else "failed"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    work = list(completions(options.data / "humaneval", options.samples))
    print(f"{platform.platform()}, Python {platform.python_version()}")
    print(f"{len(work)} completions, {options.workers} workers\n")
    print("| | wall s | per second | said |\n|---|---|---|---|")
    env = rlvr.make("humaneval-v3", cpu_s=LIMIT_S)
    start = perf_counter()
    with rlvr.Scorer(env, workers=options.workers) as scorer:
        ours = [(scored.item.id, scored.score.verdict) for scored in scorer.stream(work)]
    report(
        "rlvr, start-up included",
        perf_counter() - start,
        Counter(v.why.partition(":")[0] for _, v in ours),
    )
    for name, flags in (
        ("bare `python -I -S`", ["-I", "-S"]),
        ("bare `python`, this environment", []),
    ):
        start = perf_counter()
        with ThreadPoolExecutor(options.workers) as threads:
            said = list(threads.map(lambda row, flags=flags: bare(row, flags), work))
        report(name, perf_counter() - start, Counter(said))
    differ = [
        (i, v.why, s) for (i, v), s in zip(ours, said, strict=True) if v.correct != (s == "passed")
    ]
    print(f"\nverdicts that differ from the exit code: {len(differ)}")
    for name, why, exit_code in differ[:20]:
        print(f"    {name}: {why[:80]!r}, and by exit code {exit_code}")


def report(name: str, wall_s: float, said: Counter[str]) -> None:
    counts = ", ".join(f"{what} {count}" for what, count in said.most_common())
    print(f"| {name} | {wall_s:.1f} | {sum(said.values()) / wall_s:.0f} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
