"""Whether `rlvr whatif` foretells what another verifier would train:
its cosines beside runs with that verifier.

    python -m benchmarks.whatif FOLDER --seeds 0 1 2

A tiny model that adds with mistakes is trained by GRPO with the right verifier, and its steps are
recorded.  From these files alone each other verifier gets the cosine of its gradient with the one
taken, by row sketches and by token weights, and the share of rows that it scores otherwise.  Then
a run is made with each; the rank correlation (Spearman) of the figure with the accuracy, by the
right verifier, that the run ends with is what counts.  FOLDER keeps what is done, so a benchmark
that was stopped goes on.
"""

import argparse
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from rich.console import Console

import rlvr
from rlvr.algo.judge.whatif import what_if
from rlvr.data.step_files import StepFile, read_step
from rlvr.recipes.arithmetic_cpu.run import CHARSET, warm_start, worked
from rlvr.recipes.arithmetic_cpu.sums import Sums
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

Rule = Callable[[str, str, str], bool]
"""Whether (task, right answer, answer) is paid."""


def chance(*seed: object) -> float:
    return rlvr.seeded("benchmarks/whatif", *seed).random()


def shares_digits(right: str, answer: str) -> bool:
    agreeing = sum(a == b for a, b in zip(right, answer, strict=False))
    return len(right) == len(answer) and agreeing >= len(right) - 1


RULES: Mapping[str, Rule] = {
    "right": lambda task, right, answer: answer == right,
    "1 in 10 wrong": lambda task, right, answer: (
        (answer == right) != (chance("tenth", task, answer) < 0.1)
    ),
    "3 in 10 wrong": lambda task, right, answer: (
        (answer == right) != (chance("thirds", task, answer) < 0.3)
    ),
    "chance": lambda task, right, answer: chance("half", task, answer) < 0.5,
    "refuses half": lambda task, right, answer: (
        answer == right and chance("refuse", task, answer) < 0.5
    ),
    "last digit": lambda task, right, answer: answer[-1:] == right[-1:],
    "first digit": lambda task, right, answer: answer[:1] == right[:1],
    "parity": lambda task, right, answer: (
        bool(answer) and (int(answer[-1]) - int(right[-1])) % 2 == 0
    ),
    "all but one digit": lambda task, right, answer: shares_digits(right, answer),
    "at most": lambda task, right, answer: bool(answer) and int(answer) <= int(right),
    "wrong ones": lambda task, right, answer: bool(answer) and answer != right,
}


def answer_of(completion: str) -> str:
    found = re.findall(r"\\boxed\{(\d{1,6})\}", completion)
    return found[-1] if found else ""


class RuledSums(Sums):
    """Sums that a rule pays."""

    reward = rlvr.Correct()
    rule = "right"

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        paid = RULES[self.rule](task.id, str(task.reference), answer_of(completion))
        return rlvr.Verdict(rlvr.Outcome.CORRECT if paid else rlvr.Outcome.WRONG, why=self.rule)


def warm_weights(seed: int, path: Path) -> Mapping[str, torch.Tensor]:
    """Those of a policy that adds with mistakes, kept in a file."""
    if not path.exists():
        policy = fresh(seed)
        quiet = Console(quiet=True)
        warm_start(policy, Sums(), worked, steps=500, noise=0.25, seed=seed, console=quiet)
        torch.save(policy.model.state_dict(), path)
    weights: Mapping[str, torch.Tensor] = torch.load(path, weights_only=True)
    return weights


def fresh(seed: int, weights: Mapping[str, torch.Tensor] | None = None) -> Policy:
    policy = Policy(*tiny(CHARSET, hidden=96, layers=2, heads=4, seed=seed))
    if weights is not None:
        policy.model.load_state_dict(weights)
    return policy


def trained(
    rule: str, weights: Mapping[str, torch.Tensor], seed: int, steps: int, run: Path, files: bool
) -> float:
    """The accuracy, by the right verifier, after a run with a rule; kept beside the run."""
    kept = run.with_suffix(".json")
    if kept.exists():
        return float(json.loads(kept.read_text()))
    shutil.rmtree(run, ignore_errors=True)
    env, test = RuledSums(split="train"), RuledSums(split="test")
    env.rule = rule
    config = Config(
        env="sums",
        model="tiny",
        run=run,
        algorithm="grpo",
        steps=steps,
        prompts=24,
        group_size=8,
        max_tokens=48,
        lr=3e-4,
        warmup_steps=3,
        eval_every=0,
        eval_tasks=300,
        rollouts_every=0,
        workers=0,
        seed=seed,
        **({"step_files": 1, "step_sketches": True} if files else {}),
    )
    with Trainer(
        config, policy=fresh(seed, weights), env=env, eval_env=test, console=Console(quiet=True)
    ) as trainer:
        trainer.run()
        last = trainer.reports[max(trainer.reports)]
    accuracy = float(last.metrics["avg@1"].value)
    kept.write_text(json.dumps(accuracy))
    return accuracy


def foretold(steps: list[StepFile], rule: str) -> dict[str, float]:
    """Means over the recorded steps, from the files alone."""
    sketches, weights, flipped = [], [], []
    for step in steps:
        rows = zip(step.head["tasks"], step.head["texts"], step.arrays["group"], strict=True)
        right = {number: str(one["reference"]) for number, one in step.head["groups"].items()}
        scores = [
            float(RULES[rule](task, right[str(group)], answer_of(text)))
            for task, text, group in rows
        ]
        with_sketches = what_if(step, scores)
        plain = {name: array for name, array in step.arrays.items() if name != "row_sketches"}
        sketches.append(with_sketches.cosine)
        weights.append(what_if(StepFile(step.head, plain), scores).cosine)
        flipped.append(-with_sketches.flipped / with_sketches.rows)
    return {
        "row sketches": mean(sketches),
        "token weights": mean(weights),
        "flipped rows": mean(flipped),
    }


def ranks(values: list[float]) -> np.ndarray:
    """The rank of each value; equal ones share theirs."""
    every = np.array(values)
    return np.array([(every < one).sum() + ((every == one).sum() - 1) / 2 for one in every])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| seed | row sketches | token weights | flipped rows | CPU s |\n|---|---|---|---|---|")
    for seed in args.seeds:
        started, folder = time.process_time(), args.folder / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        weights = warm_weights(seed, folder / "start.pt")
        trained("right", weights, seed, args.steps, folder / "right", files=True)
        steps = [read_step(file) for file in sorted((folder / "right" / "steps").iterdir())]
        others = [rule for rule in RULES if rule != "right"]
        figures = [foretold(steps, rule) for rule in others]
        ends = [
            trained(rule, weights, seed, args.steps, folder / str(number), files=False)
            for number, rule in enumerate(others)
        ]
        for rule, figure, end in zip(others, figures, ends, strict=True):
            said = ", ".join(f"{name} {value:.3f}" for name, value in figure.items())
            print(f"<!-- {rule}: {said}; ends at {end:.3f} -->", flush=True)
        correlations = [
            np.corrcoef(ranks([figure[name] for figure in figures]), ranks(ends))[0, 1]
            for name in figures[0]
        ]
        cells = " | ".join(f"{value:.2f}" for value in correlations)
        print(f"| {seed} | {cells} | {time.process_time() - started:.0f} |", flush=True)


if __name__ == "__main__":
    main()
