"""Score a few hundred scripted completions of the arithmetic environment and show
the outcomes of each kind.

python -m recipes.score_arithmetic.run --completions 400 --workers 2
"""

import time
from collections import Counter
from dataclasses import dataclass
from random import Random

import tyro
from rich.table import Table

import rlvr
from rlvr.console import PlainConsole
from rlvr.scoring.tally import Tally
from rlvr.verifiers.math import BOXED

__all__ = ["HOSTILE", "ScriptSettings", "answer", "kinds", "main"]

HOSTILE = (
    "\\boxed{9^{9^{9^{9^{9}}}}}",
    "\\boxed{((((10!)!)!)!)!}",
    "\\boxed{\\sum_{k=1}^{10^{9}} \\frac{1}{k}}",
    "\\boxed{" + "(" * 20_000 + "1" + ")" * 20_000 + "}",
    "\\boxed{" + "7" * 200_000 + "}",
    "\\boxed{__import__('os').system('true')}",
    "\\boxed{" * 5_000,
    "\x00\ud800\\boxed{\x00\ud800}",
)


@dataclass(frozen=True)
class ScriptSettings:
    """Score scripted completions."""

    completions: int = 400
    """Number of completions."""
    difficulty: int = 3
    """Difficulty of the tasks, an option of `arithmetic-v1`."""
    workers: int = 2
    """Number of worker processes."""
    seed: int = 0
    """Seed of the scripted completions."""


def main(settings: ScriptSettings) -> None:
    """Generate tasks, answer them by script, score the answers through the pool, and print three
    tables.

    Args:
        settings: how many, how difficult, and where they are scored.
    """
    console = PlainConsole()
    env = rlvr.make("arithmetic-v1", difficulty=settings.difficulty, operations="+-*/")
    env = env.with_reward(
        env.reward + 0.1 * rlvr.Format(BOXED) + 0.5 * rlvr.Overlong(max_tokens=512, cache=128)
    )
    console.print(f"environment {env.id}, reward {env.reward}, bounds {env.reward.bounds}")
    console.print(f"a task: {env.task(0).prompt}")

    items = [
        answer(env, index, Random(f"{settings.seed}/{index}"))
        for index in range(settings.completions)
    ]
    tally, by_kind = Tally(), Counter[tuple[str, rlvr.Outcome]]()
    with rlvr.Scorer(env, workers=settings.workers) as scorer:
        start = time.perf_counter()
        for scored in scorer.stream(items):
            tally.add(scored)
            by_kind[str(scored.item.row["kind"]), scored.outcome] += 1
        took_s = time.perf_counter() - start

    tally.show(console)
    console.print(kinds(by_kind))
    console.print(
        f"{settings.completions} completions in {took_s:.2f} s on {settings.workers} workers, "
        f"hostile ones included"
    )


def answer(env: rlvr.Environment, index: int, rng: Random) -> rlvr.Item:
    """A scripted policy: mostly right or wrong, sometimes without a box, now and then hostile.

    Args:
        env: makes the task.
        index: of the task, and the item's id.
        rng: draws the kind of completion.
    """
    task = env.task(index)
    kind = rng.choices(["right", "wrong", "malformed", "hostile"], weights=[50, 30, 15, 5])[0]
    text = {
        "right": f"Step by step … so the answer is \\boxed{{{task.reference}}}.",
        "wrong": (
            "Step by step … so the answer is "
            f"\\boxed{{{task.reference + rng.choice([-10, -1, 1, 2])}}}."
        ),
        "malformed": rng.choice(
            [f"It is {task.reference}, I think.", "\\boxed{}", "", "Let me see, carry the one, and"]
        ),
        "hostile": rng.choice(HOSTILE),
    }[kind]
    completion = rlvr.Completion(text, length_tokens=rng.randint(1, 540))
    return rlvr.Item(str(index), task, completion, {"kind": kind})


def kinds(by_kind: Counter[tuple[str, rlvr.Outcome]]) -> Table:
    """A table of outcomes by kind of completion.

    Args:
        by_kind: number of completions by kind and outcome.
    """
    table = Table("scripted as")
    for outcome in rlvr.Outcome:
        table.add_column(outcome, justify="right")
    for kind in sorted({kind for kind, _ in by_kind}):
        table.add_row(kind, *(str(by_kind[kind, outcome] or "") for outcome in rlvr.Outcome))
    return table


if __name__ == "__main__":
    main(tyro.cli(ScriptSettings))
