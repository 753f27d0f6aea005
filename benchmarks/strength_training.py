"""Does it matter?  A small model learns sums of which one fifth pays wrong work: as they are,
filtered, strengthened.

    python -m benchmarks.strength_training FOLDER [--seeds 3] [--steps 120] [--workers 3]

Each task adds two numbers of two digits.  Where the first is 82 or more, the test compares only as
many of the sum's last digits as the answer has.  A tiny transformer, taught to add with slips and
one time in ten to write the last column alone, is trained by DAPO on the tasks as they are, without
the weak ones (`rlvr filter --strength`), and on the copy that `--strengthen` writes.  The last
column alone earns more at weak tasks than a worked sum, which must be right in all its columns.
Strict accuracy is that of whole sums on held-out tasks.  Each run is a process with one thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch
from rich.console import Console

import rlvr
from benchmarks.trainer_tasks import CHARSET, Sums, worked
from rlvr.collect.evaluation import evaluate
from rlvr.data.strengths import read_strengths
from rlvr.recipes.arithmetic_cpu.run import warm_start
from rlvr.samplers.protocol import Sampling
from rlvr.scoring import Scorer
from rlvr.testing.strength import measure_strength
from rlvr.testing.strengthen import SourceRows, write_strengthened
from rlvr.testing.work import Maker, Witness, Work, serves
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny
from rlvr.train.trends import WeakTasks

WEAK_FROM = 82
ROWS, TESTS = {"other": 480, "weak": 120}, 200
WARM_STEPS, NOISE, LAZY = 600, 0.12, 0.1
TOKENS = 28
KINDS = ("other", "weak")


class Checked(rlvr.Environment):
    """Sums whose rows say how many of the last digits an answer must have at least."""

    id = "checked-sums-v1"
    data: str = ""

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data)

    def task_from(self, row: Mapping[str, Any], id: str = "row") -> rlvr.Task:
        return rlvr.Task(id, row["prompt"], {"sum": row["sum"], "digits": row["digits"]})

    def example(self, task: rlvr.Task) -> str:
        return worked(str(task.prompt), Random(0), 0.0)

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        answer = re.search(r"#(\d{1,3})\Z", completion)
        if answer is None:
            return rlvr.Verdict("unparsed", why="no-answer")
        ends_so = str(task.reference["sum"]).endswith(answer[1])
        is_right = ends_so and len(answer[1]) >= task.reference["digits"]
        return rlvr.Verdict("correct" if is_right else "wrong", why="sum")


@serves(Checked)
class CheckedWork(Maker):
    """Answers that lack their first digits, or have another one."""

    def wrong(self, task: rlvr.Task, rng: Random) -> Iterator[Work]:
        columns, _, total = self.example(task).rpartition("#")
        for at in range(1, len(total)):
            yield Work(f"{columns}#{total[at:]}", "digits dropped")
        for by in rng.sample((1, -1, 2, 10, 20, -10, 30, 100, -100), 9):
            yield Work(f"{columns}#{max(0, int(total) + by)}", f"by {abs(by)}")

    def witness(self, task: rlvr.Task, work: Work) -> Witness | None:
        a, b = map(int, str(task.prompt).rstrip("=").split("+"))
        total, answer = str(a + b), work.text.rpartition("#")[2]
        return None if answer == total else Witness("its digits", total, answer, case=len(total))

    def mend(self, task: rlvr.Task, witnesses: Sequence[Witness]) -> rlvr.Task:
        return replace(task, reference={**task.reference, "digits": witnesses[0].case})


def write_rows(path: Path, split: str, counts: Mapping[str, int]) -> str:
    """So many sums of each kind; in training the weak ones pay parts, in tests none does."""
    lines: list[str] = []
    left = dict(counts)
    for task in map(Sums(split=split, digits=2).task, itertools.count()):
        prompt, total = str(task.prompt), int(task.reference)
        is_weak = int(prompt.partition("+")[0]) >= WEAK_FROM
        if left.get(KINDS[is_weak], 0):
            left[KINDS[is_weak]] -= 1
            digits = 1 if is_weak and split == "train" else len(str(total))
            lines.append(json.dumps({"prompt": prompt, "sum": total, "digits": digits}) + "\n")
        if len(lines) == sum(counts.values()):
            break
    path.write_text("".join(lines))
    return str(path)


def lazily(prompt: str, rng: Random, noise: float) -> str:
    """A worked sum, or the last column alone."""
    text = worked(prompt, rng, noise)
    if rng.random() >= LAZY:
        return text
    first = text.split(" ")[0]
    return f"{first} #{int(first.rpartition('=')[2]) % 10}"


SETS = {name: (f"{name}.jsonl", f"{name}.json") for name in ("as-it-is", "filtered", "stronger")}
"""Data and report of each set."""


def prepare(folder: Path) -> None:
    """The three sets, each with its report."""
    (data, report), (kept_data, _), (copy, _) = SETS.values()
    env = Checked(data=write_rows(folder / data, "train", ROWS))
    tree = measure_strength(env, tasks=None, works=8, workers=0, mending=True).as_dict()
    (folder / report).write_text(json.dumps(tree))
    print(f"{tree['states']}, mean strength {tree['mean']['value']:.2f}")
    known = read_strengths(folder / report)
    states = [one.state for task in env.tasks() if (one := known.tasks.get(task.id)) is not None]
    lines = (folder / data).read_text().splitlines(keepends=True)
    kept = [line for line, state in zip(lines, states, strict=True) if state == "strong"]
    (folder / kept_data).write_text("".join(kept))
    for line in write_strengthened(SourceRows(env), tree, folder / copy):
        print(line)
    for rows, path in (SETS["filtered"], SETS["stronger"]):
        again = measure_strength(Checked(data=str(folder / rows)), tasks=None, workers=0)
        (folder / path).write_text(json.dumps(again.as_dict()))


class Row(NamedTuple):
    """Strict accuracy on each kind of held-out sums, the step of the alarm on weak tasks,
    CPU seconds."""

    accuracies: list[float]
    alarm: int | None
    cpu_s: float

    @property
    def mixed(self) -> float:
        """Strict accuracy on held-out sums of which one fifth is like the weak ones."""
        other, weak = self.accuracies
        return 0.8 * other + 0.2 * weak

    def show(self, name: str, seed: int) -> None:
        accuracies = " | ".join(f"{value:.2f}" for value in (self.mixed, *self.accuracies))
        print(
            f"| {name} | {seed} | {accuracies} | {self.alarm or ''} | {self.cpu_s:.0f} |",
            flush=True,
        )


def strict(policy: Policy, folder: Path, seed: int) -> list[float]:
    """The share of whole sums that are right, of each kind of test."""
    sampling, sampler = Sampling(max_tokens=TOKENS), policy.sampler()
    accuracies = []
    for kind in KINDS:
        env = Checked(data=str(folder / f"test-{kind}.jsonl"))
        with Scorer(env, workers=0) as scorer:
            report = evaluate(env, sampler, sampling=sampling, scorer=scorer, seed=seed)
        accuracies.append(report.metrics["avg@1"].value)
    return accuracies


def kept(path: Path, make: Callable[..., Row], *values: Any) -> Row:
    """A row that was made before, so that a stopped benchmark goes on; else it is made now."""
    if not path.is_file():
        path.write_text(json.dumps(make(*values)))
    return Row(*json.loads(path.read_text()))


def begin(folder: Path, seed: int) -> Row:
    """Teach the model that all runs of a seed begin with."""
    policy = Policy(*tiny(CHARSET, hidden=64, layers=2, heads=4, seed=seed))
    options = {"steps": WARM_STEPS, "noise": NOISE, "seed": seed, "console": Console(quiet=True)}
    warm_start(policy, Sums(digits=2), lazily, **options)
    policy.save(folder / f"start-{seed}")
    return Row(strict(policy, folder, seed), None, time.process_time())


def train(folder: Path, name: str, steps: int, seed: int) -> Row:
    """Train on one of the sets."""
    began = time.process_time()
    data, report = SETS[name]
    run = folder / f"run-{name}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    config = Config(
        env=Checked.id,
        model=str(folder / f"start-{seed}"),
        run=run,
        algorithm="dapo",
        steps=steps,
        prompts=8,
        group_size=8,
        max_tokens=TOKENS,
        lr=3e-4,
        warmup_steps=4,
        workers=0,
        device="cpu",
        eval_every=None,
        rollouts_every=0,
        checkpoint_every=10**6,
        seed=seed,
        strength=folder / report,
    )
    with Trainer(
        config, env=Checked(data=str(folder / data)), console=Console(quiet=True)
    ) as trainer:
        trainer.run()
        accuracies = strict(trainer.policy, folder, seed)
    return Row(accuracies, first_alarm(run / "metrics.jsonl"), time.process_time() - began)


def first_alarm(metrics: Path) -> int | None:
    """The step at which the run's alarm on weak tasks began; None if it never did."""
    trend = WeakTasks()
    for line in metrics.read_text().splitlines():
        numbers = json.loads(line)
        if trend.check(numbers) is not None:
            return int(numbers["step"])
    return None


def run_seed(folder: Path, steps: int, seed: int) -> dict[str, Row]:
    """All runs of a seed, from one model."""
    torch.set_num_threads(1)
    rows = {"before": kept(folder / f"before-{seed}.json", begin, folder, seed)}
    for name in SETS:
        rows[name] = kept(folder / f"run-{name}-{seed}.json", train, folder, name, steps, seed)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--workers", type=int, default=1, help="seeds at once")
    flags = parser.parse_args()
    folder, seeds = flags.folder, range(flags.seeds)
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        write_rows(folder / f"test-{kind}.jsonl", "test", {kind: TESTS})
    if not (folder / SETS["stronger"][1]).is_file():
        prepare(folder)
    print("| set | seed | strict accuracy | other sums | where the set is weak | alarm | CPU s |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    mixed: dict[str, list[float]] = {}
    with ProcessPoolExecutor(flags.workers, mp_context=get_context("spawn")) as pool:
        for seed, rows in enumerate(pool.map(partial(run_seed, folder, flags.steps), seeds)):
            for name, row in rows.items():
                row.show(name, seed)
                mixed.setdefault(name, []).append(row.mixed)
    for name, values in mixed.items():
        print(f"{name}: {fmean(values):.3f} ± {stdev(values) / len(values) ** 0.5:.3f}")


if __name__ == "__main__":
    main()
