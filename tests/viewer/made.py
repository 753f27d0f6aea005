"""Scored records and runs as rlvr writes them, for tests of the viewer and for benchmarks/view_files.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlvr.data.rollouts import write_rollouts
from tests.json_lines import write_json_lines


def record(number: int, **changes: Any) -> dict[str, Any]:
    """A record as `rlvr score` writes it; every fourth is wrong."""
    right = number % 4 != 3
    return {
        "id": number,
        "outcome": "correct" if right else "wrong",
        "total": float(right),
        "parts": {"correct": float(right), "format": -0.1 * (number % 2)},
        "value": float(right),
        "why": "" if right else f"different-number: {number} is not {number + 1}",
        "answer": str(number),
        "detail": {},
        "completion": f"First {number}.5, then \\boxed{{{number}}}. That is all.",
        "length_tokens": 10 + number,
        "truncated": number % 5 == 4,
        "task": f"sums/{number // 4}",
        "prompt": "What is it?",
        "reference": str(number),
        "meta": {},
        "env": "even" if number % 2 == 0 else "odd",
        "config": {},
        **changes,
    }


def rollouts(step: int) -> list[dict[str, Any]]:
    """Rows as `rlvr.train.rollout_log.log_rollouts` writes them: four of one task, the last of a dropped group."""
    return [
        {
            "task": "sums/0",
            "rollout": i,
            "prompt": "What is it?",
            "completion": f"\\boxed{{{i}}} at step {step}",
            "length_tokens": 10 * step + i,
            "truncated": i == 1,
            "outcome": "correct" if i < step else "wrong",
            "why": "" if i < step else "different-number",
            "answer": str(i),
            "score": float(i < step),
            "detail": "{}",
            "dropped": "all-wrong" if i == 3 else "",
            "parts": {"correct": float(i < step)},
            "advantage": i - 1.5,
            "weights_version": step,
            "tokens": [f"\\boxed{{{i}}}", " at <b>", ""],
            "token_ids": [7, 8, 9],
            "completion_mask": [True, True, False],
            "behaviour_logprobs": [-0.01, -3.0, 0.0],
            "logprobs": [-0.02, -1.0, 0.0],
            "advantages": [i - 1.5, i - 1.5, 0.0],
        }
        for i in range(4)
    ]


def run_folder(folder: Path, *, lr: float = 1e-3, steps: int = 3) -> Path:
    """A run of three steps that kept the rollouts of the first and the last."""
    (folder / "rollouts").mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"settings": {"lr": lr, "clip": {"low": 0.2}}, "versions": {"rlvr": "9"}})
    )
    lines = [
        {"step": i, "accuracy": i / 4, "reward": i / 4, "reward/correct": i / 4, "kl": None}
        for i in range(steps + 1)
    ]
    write_json_lines(folder / "metrics.jsonl", lines)
    for step in (1, 3):
        write_rollouts(folder / "rollouts" / f"step-{step:08d}.parquet", rollouts(step))
    return folder
