"""One environment in every trainer: are the scores the same, and what does TRL gain?

    python -m benchmarks.interop --data example_model_solutions.jsonl

The file is GSM8K's (github.com/openai/grade-school-math).  Needs trl and torch beside rlvr, and the
extras `gym` and `serve`.  Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import rlvr
from benchmarks.common import gsm8k_solutions
from rlvr.client import Client
from rlvr.envs.gsm8k import GSM8K
from rlvr.interop import to_gymnasium, to_openrlhf, to_trl, to_verl

COMPLETIONS, ROUNDS, BATCH = 2000, 9, 64
TOWER = "\\boxed{9^{9^{9^{9^9}}}}"
PATIENCE_S = 20.0
ROOT, PLACE = Path(__file__).resolve().parent.parent, "benchmarks.interop:Marked"
Rows = list[dict[str, Any]]


def read(path: Path) -> Rows:
    """One row per completion, the four of one problem together."""
    return [
        {
            "id": name,
            "question": problem["question"],
            "answer": problem["ground_truth"],
            "completion": said["solution"],
        }
        for name, problem, said in islice(gsm8k_solutions(path), COMPLETIONS)
    ]


# --------------------------------------------------------------------------------- the same scores?


class Marked(GSM8K):
    """GSM8K with a tenth of a point for ending in `A: …`,
    so that a total has parts that may differ."""

    id = "marked-v1"
    reward = GSM8K.reward + 0.1 * rlvr.Format("...A:...", name="marked")


Said: TypeAlias = tuple[float | None, Mapping[str, float] | None]
"""A completion's total, and its parts where they can be seen."""


def of(score: rlvr.Score) -> Said:
    return score.total, score.parts


def by_python(env: Any, rows: Rows) -> list[Said]:
    return [of(env.score(env.task_of(row), row["completion"])) for row in rows]


def by_pool(env: Any, rows: Rows) -> list[Said]:
    return [of(scored.score) for scored in rlvr.score(env, rows, workers=2)]


def by_command(env: Any, rows: Rows) -> list[Said]:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [
            sys.executable,
            "-m",
            "rlvr",
            "score",
            PLACE,
            str(source),
            "-o",
            str(target),
            "--workers",
            "2",
        ]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        records = [json.loads(line) for line in target.read_text().splitlines()]
    return [(one["total"], one["parts"]) for one in records]


def by_http(env: Any, rows: Rows) -> list[Said]:
    """`rlvr serve` in a process of its own on a free port, asked by `rlvr.client`."""
    command = [sys.executable, "-m", "rlvr", "serve", PLACE, "--port", "0", "--workers", "2"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = next(
                found[0]
                for line in process.stdout
                if (found := re.search(r"http://[\d.]+:\d+", line))
            )
            threading.Thread(
                target=process.stdout.read, daemon=True
            ).start()  # or a full pipe would stop it
            with Client(url) as client:
                return [of(reply.score) for reply in client.score(None, rows) if reply.score]
        finally:
            process.terminate()


def by_trl(env: Any, rows: Rows) -> list[Said]:
    """The trainer gets parts as means alone."""
    totals: list[float | None] = []
    with to_trl(env, workers=2) as reward:
        for batch in batches(rows):
            totals += reward(
                prompts=[[{"role": "user", "content": row["question"]}] for row in batch],
                completions=[
                    [{"role": "assistant", "content": row["completion"]}] for row in batch
                ],
                completion_ids=[[0]] * len(batch),
                question=[row["question"] for row in batch],
                answer=[row["answer"] for row in batch],
            )
    return [(total, None) for total in totals]


def by_verl(env: Any, rows: Rows) -> list[Said]:
    """From 16 threads, one completion each, as its reward manager calls it."""

    def one(row: dict[str, Any]) -> Said:
        task = env.task_of(row)
        reply = reward(env.id, row["completion"], task.reference, {"index": 0})
        return reply["score"], {name: reply[f"part/{name}"] for name in env.reward.names}

    with to_verl(env, workers=2) as reward, ThreadPoolExecutor(16) as threads:
        return list(threads.map(one, rows))


def by_openrlhf(env: Any, rows: Rows) -> list[Said]:
    told: list[Said] = []
    with to_openrlhf(env, workers=2) as reward:
        for batch in batches(rows):
            prompts = [
                f"<|im_start|>user\n{row['question']}<|im_end|>\n<|im_start|>assistant\n"
                for row in batch
            ]
            queries = [
                f"{p}{row['completion']}<|im_end|>" for p, row in zip(prompts, batch, strict=True)
            ]
            labels = [env.task_of(row).reference for row in batch]
            reply = reward(queries, prompts, labels)
            parts = {
                name: reply["extra_logs"][f"part/{name}"].tolist() for name in env.reward.names
            }
            told += [
                (total, {name: values[i] for name, values in parts.items()})
                for i, total in enumerate(reply["rewards"].tolist())
            ]
    return told


def by_gymnasium(env: Any, rows: Rows) -> list[Said]:
    """An environment over the same problems, stepped with the completions in order."""
    tasks = [env.task_of(row) for row in rows]
    made = rlvr.Environment.from_rows(
        [{"prompt": task.prompt, "reference": task.reference} for task in tasks], reward=env.reward
    )
    told: list[Said] = []
    gym = to_gymnasium(made, workers=2)
    for index, row in enumerate(rows):
        gym.reset(options={"index": index})
        _, reward, *_, info = gym.step(row["completion"])
        told.append((reward, info["parts"]))
    gym.close()
    return told


def batches(rows: Rows) -> Iterator[Rows]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


WAYS: dict[str, Callable[[Any, Rows], list[Said]]] = {
    "Python, `env.score`": by_python,
    "Python, `rlvr.score`": by_pool,
    "the command, `rlvr score`": by_command,
    "HTTP, `rlvr serve`": by_http,
    "TRL, `to_trl`": by_trl,
    "verl, `to_verl`": by_verl,
    "OpenRLHF, `to_openrlhf`": by_openrlhf,
    "Gymnasium, `to_gymnasium`": by_gymnasium,
}


def compare(rows: Rows) -> None:
    """Totals and parts have to be equal to the last bit."""
    env = Marked()
    base: list[Said] = []
    print(
        "| the way | completions | sum of totals | unscored | totals that differ | parts that "
        "differ |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for name, way in WAYS.items():
        told = way(env, rows)
        base = base or told
        totals = [total for total, _ in told]
        differ = sum(a != b for (a, _), (b, _) in zip(base, told, strict=True))
        seen = all(parts is not None for _, parts in told)
        apart = (
            sum(a != b for (_, a), (_, b) in zip(base, told, strict=True)) if seen else "not shown"
        )
        unscored = sum(total is None for total in totals)
        whole = math.fsum(total or 0 for total in totals)
        print(
            f"| {name} | {len(told):,} | {whole:g} | {unscored} | {differ} | {apart} |", flush=True
        )


# --------------------------------------------------------------------------- TRL with whose reward?


def boxed(row: dict[str, Any]) -> str:
    """What follows the last `A:` in a box, where TRL's own function looks."""
    text, mark, answer = row["completion"].rpartition("A:")
    return f"{text}\\boxed{{{answer.strip()}}}" if mark else str(row["completion"])


def side(name: str) -> Callable[[list[str], list[str]], list[float | None]]:
    """A reward function of (texts, solutions) as GRPOTrainer would call it."""
    if name == "trl":
        from trl.rewards import accuracy_reward

        return lambda texts, solutions: list(
            accuracy_reward([said(text) for text in texts], solutions)
        )
    reward = to_trl(rlvr.make("gsm8k-v4"), workers=int(name.removeprefix("rlvr-")))

    def ours(texts: list[str], solutions: list[str]) -> list[float | None]:
        return reward(
            prompts=[""] * len(texts),
            completions=[said(text) for text in texts],
            reference=list(solutions),
        )

    return ours


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def measure(name: str, rows: Rows) -> None:
    """In a process of its own: all rows in batches, and then the hostile one,
    in a thread as trainers score."""
    function = side(name)
    texts, solutions = (
        [boxed(row) for row in rows],
        [row["answer"].rpartition("A:")[2].strip() for row in rows],
    )
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
    """Seconds, how many were called right, and seconds for the hostile one, 0 if not asked,
    our patience at most."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.interop",
        "--data",
        str(data.resolve()),
        "--side",
        name,
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
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
    print(
        "\n| TRL with | s for 2,000 | completions/s | faster | called right | a tower of powers, "
        "in a thread |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for name, label in labels.items():
        seconds = [one[0] for one in found[name]]
        middle = statistics.median(seconds)
        ratio = statistics.median(
            theirs[0] / ours[0] for theirs, ours in zip(found["trl"], found[name], strict=True)
        )
        took = found[name][0][2]
        worst = f"{took:.2f} s" if took < PATIENCE_S else f"killed after {PATIENCE_S:g} s"
        print(
            f"| {label} | {middle:.3f} ({min(seconds):.3f}–{max(seconds):.3f}) | "
            f"{COMPLETIONS / middle:,.0f} | {ratio:.1f}× | {found[name][0][1]:g} | {worst} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--side")
    args = parser.parse_args()
    rows = read(args.data)
    if args.side:
        measure(args.side, rows)
        return
    named = ", ".join(
        f"{name} {version(name)}" for name in ("rlvr", "trl", "math-verify", "gymnasium")
    )
    print(f"{named}; Python {platform.python_version()}\n")
    compare(rows)
    race(args.data)


if __name__ == "__main__":
    main()
