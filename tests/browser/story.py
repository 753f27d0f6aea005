"""A made-up run in which something goes wrong, for the walk in docs/using/viewing.md.

Up to step 70 it learns.  From step 80 on it earns a part of the reward for long texts: it explains more, forgets the
box, and is cut off.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from rlvr.data.rollouts import write_rollouts

STEPS, KEPT, TASKS, SIBLINGS = 100, range(10, 101, 10), 12, 8


def story(run: Path, seed: int = 7) -> Path:
    """Write the run's folder.

    Args:
        run: the folder, which is made.
        seed: of what is drawn.
    """
    draw = random.Random(seed)
    (run / "rollouts").mkdir(parents=True)
    settings = {
        "env": "arithmetic-v1",
        "model": "tiny",
        "steps": STEPS,
        "lr": 1e-6,
        "group_size": SIBLINGS,
        "algorithm": {"name": "grpo"},
        "seed": seed,
    }
    (run / "config.json").write_text(
        json.dumps({"settings": settings, "versions": {"rlvr": "0.2.0"}})
    )
    lines = []
    for step in range(1, STEPS + 1):
        rows = [_rollout(draw, step, task, i) for task in range(TASKS) for i in range(SIBLINGS)]
        for begin in range(0, len(rows), SIBLINGS):
            group = rows[begin : begin + SIBLINGS]
            mean = sum(row["score"] for row in group) / SIBLINGS
            for row in group:
                row["advantage"] = row["score"] - mean
                row["advantages"] = [row["advantage"]] * len(row["tokens"])
        lines.append(_metrics(draw, step, rows) | _evaluation(step, rows))
        if step in KEPT:
            write_rollouts(run / "rollouts" / f"step-{step:08d}.parquet", rows)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def _rollout(draw: random.Random, step: int, task: int, number: int) -> dict[str, Any]:
    a, b = 17 + 3 * task, 5 + 7 * task
    skill = 0.25 + 0.006 * step if step < 75 else 0.45
    words = f"We add {a} and {b} . First the ones , then the tens .".split()
    rambles = step >= 75 and draw.random() < 0.45
    right = not rambles and draw.random() < skill - 0.03 * (task % 4)
    said = a + b + (0 if right else draw.choice((-10, -1, 1, 10)))
    tokens = [f"{word} " for word in words]
    if rambles:
        tokens += [
            f"{word} "
            for word in "Let us be thorough and check this once more , as it may matter .".split()
        ] * 4
    else:
        tokens += ["\\boxed{", str(said), "}"]
    outcome, why = (
        ("correct", "same integer")
        if right
        else ("wrong", f"different-number: {said} is not {a + b}")
    )
    if rambles:
        outcome, why = "unparsed", "no-box: there is no \\boxed{} in the completion"
    bonus = min(0.3, len(tokens) / 200)
    old = [-draw.choice((0.01, 0.05, 0.3, 1.2, 3.0)) for _ in tokens]
    return {
        "task": f"arithmetic-v1/train/{task}",
        "env": "arithmetic-v1",
        "rollout": number,
        "prompt": f"What is {a} + {b}? Put the answer in \\boxed{{}}.",
        "reference": str(a + b),
        "completion": "".join(tokens),
        "length_tokens": len(tokens),
        "truncated": rambles,
        "outcome": outcome,
        "why": why,
        "answer": None if rambles else str(said),
        "score": float(right) + bonus,
        "parts": {"correct": float(right), "explains": bonus},
        "dropped": "",
        "detail": "{}",
        "weights_version": step - 1,
        "tokens": tokens,
        "token_ids": list(range(len(tokens))),
        "completion_mask": [True] * len(tokens),
        "behaviour_logprobs": old,
        "logprobs": [value + draw.choice((-0.6, -0.1, 0.0, 0.1, 0.4)) for value in old],
    }


def _evaluation(step: int, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Every ten steps, from the step's own rollouts."""
    if step not in KEPT:
        return {}
    share = sum(row["outcome"] == "correct" for row in rows) / len(rows)
    return {"eval/avg@8": share, "eval/avg@8/low": share - 0.08, "eval/avg@8/high": share + 0.08}


def _metrics(draw: random.Random, step: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    outcomes = [row["outcome"] for row in rows]
    return {
        "step": step,
        "accuracy": outcomes.count("correct") / len(rows),
        "reward": mean([row["score"] for row in rows]),
        **{
            f"reward/{name}": mean([row["parts"][name] for row in rows])
            for name in ("correct", "explains")
        },
        **{
            f"outcome/{name}": outcomes.count(name) / len(rows)
            for name in ("correct", "wrong", "unparsed", "unscored")
        },
        "length": mean([row["length_tokens"] for row in rows]),
        "truncated": mean([row["truncated"] for row in rows]),
        "unscored": 0.0,
        "entropy": 1.1 - 0.006 * step + 0.02 * draw.random(),
        "kl": 0.002 * draw.random(),
        "clipped_low": 0.01 * draw.random(),
        "clipped_high": 0.02 * draw.random(),
        "grad_norm": 0.4 + 0.1 * draw.random(),
        "step_s": 12 + draw.random(),
    }
