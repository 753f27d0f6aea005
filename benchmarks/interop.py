"""One environment in every trainer: are the scores the same, and what does TRL gain?

    python benchmarks/interop.py --data example_model_solutions.jsonl

The file is GSM8K's (github.com/openai/grade-school-math).  Needs trl and torch beside rlvr.  Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

# This folder comes first on the path of its scripts, and holds a math_verify.py that is not the package.
sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]

import rlvr  # noqa: E402
from rlvr.interop import to_gymnasium, to_openrlhf, to_trl, to_verl  # noqa: E402

COMPLETIONS, ROUNDS, BATCH = 2000, 9, 64
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
TOWER = "\\boxed{9^{9^{9^{9^9}}}}"
PATIENCE_S = 20.0
Rows = list[dict[str, Any]]


def read(path: Path) -> Rows:
    """One row per completion, the four of one problem together."""
    rows: Rows = []
    with path.open() as file:
        for number, line in enumerate(file):
            problem = json.loads(line)
            for model in MODELS:
                answered = {"question": problem["question"], "answer": problem["ground_truth"]}
                rows.append({"id": f"{number}/{model}", **answered, "completion": problem[model]["solution"]})
                if len(rows) == COMPLETIONS:
                    return rows
    return rows


# ------------------------------------------------------------------------------------------ the same scores?


def by_python(env: Any, rows: Rows) -> list[float | None]:
    return [env.score(env.task_of(row), row["completion"]).total for row in rows]


def by_pool(env: Any, rows: Rows) -> list[float | None]:
    return [scored.score.total for scored in rlvr.score(env, rows, workers=2)]


def by_command(env: Any, rows: Rows) -> list[float | None]:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [sys.executable, "-m", "rlvr", "score", env.id, str(source), "-o", str(target), "--workers", "2"]
        subprocess.run(command, check=True, capture_output=True)
        return [json.loads(line)["total"] for line in target.read_text().splitlines()]


def by_trl(env: Any, rows: Rows) -> list[float | None]:
    totals: list[float | None] = []
    with to_trl(env, workers=2) as reward:
        for batch in batches(rows):
            totals += reward(
                prompts=[[{"role": "user", "content": row["question"]}] for row in batch],
                completions=[[{"role": "assistant", "content": row["completion"]}] for row in batch],
                completion_ids=[[0]] * len(batch),
                question=[row["question"] for row in batch],
                answer=[row["answer"] for row in batch],
            )
    return totals


def by_verl(env: Any, rows: Rows) -> list[float | None]:
    """From 16 threads, one completion each, as its reward manager calls it."""

    def one(row: dict[str, Any]) -> float:
        task = env.task_of(row)
        return float(reward(env.id, row["completion"], task.reference, {"index": 0})["score"])

    with to_verl(env, workers=2) as reward, ThreadPoolExecutor(16) as threads:
        return list(threads.map(one, rows))


def by_openrlhf(env: Any, rows: Rows) -> list[float | None]:
    totals: list[float | None] = []
    with to_openrlhf(env, workers=2) as reward:
        for batch in batches(rows):
            prompts = [f"<|im_start|>user\n{row['question']}<|im_end|>\n<|im_start|>assistant\n" for row in batch]
            queries = [f"{p}{row['completion']}<|im_end|>" for p, row in zip(prompts, batch, strict=True)]
            labels = [env.task_of(row).reference for row in batch]
            totals += reward(queries, prompts, labels)["rewards"].tolist()
    return totals


def by_gymnasium(env: Any, rows: Rows) -> list[float]:
    """An environment over the same problems, stepped with the completions in order."""
    tasks = [env.task_of(row) for row in rows]
    made = rlvr.Environment.from_rows(
        [{"prompt": task.prompt, "reference": task.reference} for task in tasks], reward=env.reward
    )
    totals = []
    gym = to_gymnasium(made, workers=2)
    for index, row in enumerate(rows):
        gym.reset(options={"index": index})
        totals.append(gym.step(row["completion"])[1])
    gym.close()
    return totals


def batches(rows: Rows) -> Iterator[Rows]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


WAYS: dict[str, Callable[[Any, Rows], Sequence[float | None]]] = {
    "Python, `env.score`": by_python,
    "Python, `rlvr.score`": by_pool,
    "the command, `rlvr score`": by_command,
    "TRL, `to_trl`": by_trl,
    "verl, `to_verl`": by_verl,
    "OpenRLHF, `to_openrlhf`": by_openrlhf,
    "Gymnasium, `to_gymnasium`": by_gymnasium,
}


def compare(rows: Rows) -> None:
    env = rlvr.make("gsm8k-v1")
    base: Sequence[float | None] = []
    print("| the way | completions | sum of totals | unscored | differ from `env.score` |\n|---|--:|--:|--:|--:|")
    for name, way in WAYS.items():
        totals = way(env, rows)
        base = base or totals
        differ = sum(a != b for a, b in zip(base, totals, strict=True))
        unscored = sum(total is None for total in totals)
        print(f"| {name} | {len(totals):,} | {sum(t or 0 for t in totals):g} | {unscored} | {differ} |", flush=True)


# ------------------------------------------------------------------------------------------ TRL with whose reward?


def boxed(row: dict[str, Any]) -> str:
    """What follows the last `A:` in a box, where TRL's own function looks."""
    text, mark, answer = row["completion"].rpartition("A:")
    return f"{text}\\boxed{{{answer.strip()}}}" if mark else str(row["completion"])


def side(name: str) -> Callable[[list[str], list[str]], list[float | None]]:
    """A reward function of (texts, solutions) as GRPOTrainer would call it."""
    if name == "trl":
        from trl.rewards import accuracy_reward

        return lambda texts, solutions: list(accuracy_reward([said(text) for text in texts], solutions))
    reward = to_trl(rlvr.make("gsm8k-v1"), workers=int(name.removeprefix("rlvr-")))

    def ours(texts: list[str], solutions: list[str]) -> list[float | None]:
        return reward(prompts=[""] * len(texts), completions=[said(text) for text in texts], reference=list(solutions))

    return ours


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def measure(name: str, rows: Rows) -> None:
    """In a process of its own: all rows in batches, and then the hostile one, in a thread as trainers score."""
    function = side(name)
    texts, solutions = [boxed(row) for row in rows], [row["answer"].rpartition("A:")[2].strip() for row in rows]
    warm = [str(number) for number in range(100_000, 100_100)]
    function([f"\\boxed{{{number}}}" for number in warm], warm)
    start = time.perf_counter()
    totals: list[float | None] = []
    for i in range(0, len(rows), BATCH):
        totals += function(texts[i : i + BATCH], solutions[i : i + BATCH])
    print(json.dumps([time.perf_counter() - start, sum(t or 0 for t in totals)]), flush=True)
    start = time.perf_counter()
    thread = threading.Thread(target=function, args=([TOWER], ["7"]))
    thread.start()
    thread.join()
    print(json.dumps(time.perf_counter() - start), flush=True)


def measured(name: str, data: Path, *, hostile: bool) -> tuple[float, float, float]:
    """Seconds, how many were called right, and seconds for the hostile one, 0 if not asked, our patience at most."""
    command = [sys.executable, __file__, "--data", str(data), "--side", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seconds, right = json.loads(process.stdout.readline())
        if not hostile:
            process.kill()
            return seconds, right, 0.0
        try:
            said, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()  # from outside: it holds the interpreter's lock
            return seconds, right, PATIENCE_S
    return seconds, right, float(said)


def race(data: Path) -> None:
    labels = {
        "trl": "its own `accuracy_reward`",
        "rlvr-1": "`to_trl(env, workers=1)`",
        "rlvr-2": "`to_trl(env, workers=2)`",
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in labels}
    for number in range(ROUNDS):
        for name in labels:
            found[name].append(measured(name, data, hostile=number == 0))
    print("\n| TRL with | s for 2,000 | completions/s | faster | called right | a tower of powers, in a thread |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, label in labels.items():
        seconds = [one[0] for one in found[name]]
        middle = statistics.median(seconds)
        ratio = statistics.median(theirs[0] / ours[0] for theirs, ours in zip(found["trl"], found[name], strict=True))
        took = found[name][0][2]
        worst = f"{took:.2f} s" if took < PATIENCE_S else f"killed after {PATIENCE_S:g} s"
        print(
            f"| {label} | {middle:.3f} ({min(seconds):.3f}–{max(seconds):.3f}) | {COMPLETIONS / middle:,.0f} "
            f"| {ratio:.1f}× | {found[name][0][1]:g} | {worst} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--side")
    args = parser.parse_args()
    rows = read(args.data)
    if args.side:
        measure(args.side, rows)
        return
    named = ", ".join(f"{name} {version(name)}" for name in ("rlvr", "trl", "math-verify", "gymnasium"))
    print(f"{named}; Python {platform.python_version()}\n")
    compare(rows)
    race(args.data)


if __name__ == "__main__":
    main()
