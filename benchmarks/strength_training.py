"""Does it matter?  A small model learns sums of which one fifth pays wrong work: as they are, filtered, strengthened.

    python -m benchmarks.strength_training FOLDER [--seeds 3] [--steps 80]

Each task adds two numbers of three digits and names the modulus up to which its answer is checked: 10,000, or 10 where
the first number is 820 or more, so that the last digit decides.  A model that was taught to add, with slips, and one
time in ten to write the last column alone, is trained by DAPO on the tasks as they are, without the weak ones
(`rlvr filter --strength`), and on the copy that `--strengthen` writes.  Strict accuracy is that of whole sums on other
tasks.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

import rlvr
from benchmarks.trainer_tasks import CHARSET, Sums, worked
from rlvr.collect.evaluation import evaluate
from rlvr.data.strengths import read_strengths
from rlvr.recipes.arithmetic_cpu.run import warm_start
from rlvr.samplers.protocol import Sampling
from rlvr.testing.strength import measure_strength
from rlvr.testing.strengthen import SourceRows, write_strengthened
from rlvr.testing.work import Maker, Witness, Work, serves
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

WEAK_FROM = 820
ROWS, TESTS = 600, 200
WARM_STEPS, NOISE, LAZY = 400, 0.12, 0.1
TOKENS = 56
KINDS = ("other", "weak")


class Checked(rlvr.Environment):
    """Sums whose rows say up to which modulus an answer is checked."""

    id = "checked-sums-v1"
    data: str = ""

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data)

    def task_from(self, row: Mapping[str, Any], id: str = "row") -> rlvr.Task:
        return rlvr.Task(id, row["prompt"], {"sum": row["sum"], "modulus": row["modulus"]})

    def example(self, task: rlvr.Task) -> str:
        return worked(str(task.prompt), Random(0), 0.0)

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        answer = re.search(r"#(\d{1,4})\Z", completion)
        if answer is None:
            return rlvr.Verdict("unparsed", why="no-answer")
        off = int(answer[1]) - task.reference["sum"]
        return rlvr.Verdict("wrong" if off % task.reference["modulus"] else "correct", why="sum")


@serves(Checked)
class CheckedWork(Maker):
    """Answers with another digit."""

    def wrong(self, task: rlvr.Task, rng: Random) -> Iterator[Work]:
        right = self.example(task)
        for by in rng.sample((1, -1, 2, 10, 20, -10, 100, -100, 300), 9):
            answer = f"#{max(0, task.reference['sum'] + by)}"
            yield Work(right.rpartition("#")[0] + answer, f"by {abs(by)}")

    def witness(self, task: rlvr.Task, work: Work) -> Witness | None:
        a, b = map(int, str(task.prompt).rstrip("=").split("+"))
        answer = work.text.rpartition("#")[2]
        return (
            None if answer == str(a + b) else Witness("its digits", str(a + b), answer, case=10_000)
        )

    def mend(self, task: rlvr.Task, witnesses: Sequence[Witness]) -> rlvr.Task:
        return replace(task, reference={**task.reference, "modulus": witnesses[0].case})


def write_rows(path: Path, split: str, count: int, weak: int, kind: str = "all") -> str:
    lines = []
    for number in range(count):
        rng = rlvr.seeded("benchmarks/strength", split, kind, number)
        low, high = {"all": (100, 999), "other": (100, WEAK_FROM - 1), "weak": (WEAK_FROM, 999)}[
            kind
        ]
        a, b = rng.randint(low, high), rng.randint(100, 999)
        modulus = weak if a >= WEAK_FROM else 10_000
        lines.append(json.dumps({"prompt": f"{a}+{b}=", "sum": a + b, "modulus": modulus}) + "\n")
    path.write_text("".join(lines))
    return str(path)


def lazily(prompt: str, rng: Random, noise: float) -> str:
    """A worked sum, or the last column alone."""
    text = worked(prompt, rng, noise)
    if rng.random() >= LAZY:
        return text
    first = text.split(" ")[0]
    return f"{first} #{int(first.rpartition('=')[2]) % 10}"


def prepare(folder: Path) -> dict[str, tuple[str, Path]]:
    """The three sets, each with its report."""
    data = write_rows(folder / "sums.jsonl", "train", ROWS, 10)
    env = Checked(data=data)
    reports: dict[str, tuple[str, Path]] = {}
    report = measure_strength(env, tasks=None, works=8, workers=1, mending=True).as_dict()
    path = folder / "strength.json"
    path.write_text(json.dumps(report))
    print(f"{report['states']}, mean strength {report['mean']['value']:.2f}")
    reports["as it is"] = data, path
    known = read_strengths(path)
    states = [one.state for task in env.tasks() if (one := known.tasks.get(task.id)) is not None]
    lines = Path(data).read_text().splitlines(keepends=True)
    kept = [line for line, state in zip(lines, states, strict=True) if state == "strong"]
    (folder / "filtered.jsonl").write_text("".join(kept))
    for line in write_strengthened(SourceRows(env), report, folder / "stronger.jsonl"):
        print(line)
    for name in ("filtered", "stronger"):
        again = measure_strength(Checked(data=str(folder / f"{name}.jsonl")), tasks=None, workers=1)
        path = folder / f"{name}.json"
        path.write_text(json.dumps(again.as_dict()))
        reports[name] = str(folder / f"{name}.jsonl"), path
    return reports


def strict(policy: Policy, tests: str, seed: int) -> float:
    """The share of whole sums that are right."""
    sampling = Sampling(max_tokens=TOKENS)
    report = evaluate(Checked(data=tests), policy.sampler(), sampling=sampling, seed=seed)
    return report.metrics["avg@1"].value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80)
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True, exist_ok=True)
    sets = prepare(flags.folder)
    tests = [
        write_rows(flags.folder / f"test-{kind}.jsonl", "test", TESTS, 10_000, kind)
        for kind in KINDS
    ]
    quiet = Console(quiet=True)
    print("| set | seed | strict accuracy, other sums | where the set is weak | alarm |")
    print("|---|--:|--:|--:|---|")
    for seed in range(flags.seeds):
        start = flags.folder / f"start-{seed}"
        policy = Policy(*tiny(CHARSET, hidden=96, layers=2, heads=4, seed=seed))
        options = {"steps": WARM_STEPS, "noise": NOISE, "seed": seed, "console": quiet}
        warm_start(policy, Sums(), lazily, **options)
        policy.save(start)
        scores = [strict(policy, path, seed) for path in tests]
        print(f"| before | {seed} | {scores[0]:.2f} | {scores[1]:.2f} | |", flush=True)
        for name, (data, report) in sets.items():
            run = flags.folder / f"run-{name.replace(' ', '-')}-{seed}"
            config = Config(
                env=Checked.id, model=str(start), run=run, algorithm="dapo", steps=flags.steps, prompts=8,
                group_size=8, max_tokens=TOKENS, lr=3e-4, warmup_steps=4, workers=1, seed=seed, strength=report,
            )  # fmt: skip
            told = Console(file=StringIO())
            with Trainer(config, env=Checked(data=data), console=told) as trainer:
                trainer.run()
                scores = [strict(trainer.policy, path, seed) for path in tests]
            alarm = "weak tasks" in told.file.getvalue()
            print(
                f"| {name} | {seed} | {scores[0]:.2f} | {scores[1]:.2f} | {'yes' if alarm else 'no'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
