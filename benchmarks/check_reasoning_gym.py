"""`rlvr check` over every family of reasoning-gym, as a table.

    python -m benchmarks.check_reasoning_gym > findings.md

It needs reasoning-gym (extra `puzzles`).  Each family is asked for its answer in <answer> tags, as
its own `extract_answer` reads it, and scored by its own `score_answer`: 1.0 is CORRECT, less is
WRONG with that credit.  Tasks are seeded by a hash, so that a family is not blamed for splits that
overlap.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS
from reasoning_gym.utils import extract_answer

import rlvr
from rlvr.testing import CheckReport, Severity, check

NEEDS_CONFIGURATION = {"composite"}
# The last tag counts, wherever it stands: so does `extract_answer`, for every family alike.
OF_THE_EXTRACTION = ("thinking-only", "several-boxes")


@lru_cache(maxsize=256)
def made(family: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """A data set of one entry, and the entry."""
    dataset = reasoning_gym.create_dataset(family, size=1, seed=seed)
    return dataset, dataset[0]


class Family(rlvr.Environment):
    """One family of puzzles, scored by its own code."""

    family: str = "leg_counting"

    def task(self, index: int) -> rlvr.Task:
        seed = rlvr.seeded(self.family, self.split, index).randrange(2**31)
        _, entry = made(self.family, seed)
        prompt = f"{entry['question']}\n\nPut the answer into <answer></answer>."
        answer = entry["answer"]
        return rlvr.Task(
            f"{self.family}/{self.split}/{index}",
            prompt,
            None if answer is None else str(answer),
            {"seed": seed},
        )

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        dataset, entry = made(self.family, task.meta["seed"])
        answer = extract_answer(completion)
        if answer is None:
            return rlvr.Verdict("unparsed", why="no-answer")
        score = dataset.score_answer(answer, entry)
        if score == 1:
            return rlvr.Verdict("correct", why="scored", answer=answer)
        return rlvr.Verdict("wrong", float(score), why="scored", answer=answer)

    def example(self, task: rlvr.Task) -> str | None:
        return None if task.reference is None else f"<answer>{task.reference}</answer>"


def checked(family: str, tasks: int, budget_s: float) -> CheckReport:
    env = Family(family=family)
    return check(
        env,
        tasks=tasks,
        budget_s=budget_s,
        wall_s=10.0,
        skip=("tasks", "repeats", "episodes", *OF_THE_EXTRACTION),
    )


def named(report: CheckReport, severity: Severity) -> str:
    """Holes with how often they were gone through; `12/12` is every time."""
    found = [it for it in report.findings if it.severity is severity]
    return ", ".join(
        f"{it.hole} {it.count}/{it.tried}" if it.tried > 1 else it.hole for it in found
    )


def row(family: str, tasks: int, budget_s: float) -> tuple[str, bool]:
    """A line of the table, and whether the family has a hole."""
    try:
        report = checked(family, tasks, budget_s)
    except Exception as error:  # noqa: BLE001  one family that cannot be made must not end the run
        return f"| {family} | not checked: {type(error).__name__}: {str(error)[:80]} | |", False
    said = named(report, Severity.HOLE).replace("|", "\\|")
    left_out = "; ".join(
        f"not-checked: {it.what}" for it in report.findings if it.hole == "not-checked"
    )
    cells = filter(None, (said, left_out.replace("|", "\\|")))
    return f"| {family} | {'; '.join(cells)} | {named(report, Severity.WARNING)} |", bool(said)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--budget-s", type=float, default=10.0, help="wall seconds for one family")
    parser.add_argument("--families", nargs="*", help="all unless given")
    given = parser.parse_args(argv)
    families = given.families or sorted(set(DATASETS) - NEEDS_CONFIGURATION)
    started, holed = time.monotonic(), 0
    print("| family | holes | warnings |\n|---|---|---|", flush=True)
    for family in families:
        line, hole = row(family, given.tasks, given.budget_s)
        holed += hole
        print(line, flush=True)
    took_s = time.monotonic() - started
    print(
        f"\nreasoning-gym {version('reasoning-gym')}, Python {sys.version.split()[0]}: "
        f"{holed} of {len(families)} families with holes; {given.tasks} tasks each, {took_s:.0f} s"
    )


if __name__ == "__main__":
    from benchmarks import check_reasoning_gym  # by this name workers can import it too

    check_reasoning_gym.main()
