"""What the benchmarks share: rows of JSON Lines files, and the public GSM8K solutions among
them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["gsm8k_solutions", "rows"]


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a .jsonl or .jsonl.gz file."""
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as lines
    ):
        yield from map(json.loads, lines)


def gsm8k_solutions(path: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The solutions of example_model_solutions.jsonl (github.com/openai/grade-school-math),
    a problem's together.

    Each comes as its name, `NUMBER/MODEL`; its problem, with `question` and `ground_truth`; and the
    solution itself, with `solution` and `is_correct`.
    """
    for number, problem in enumerate(rows(path)):
        for model, said in problem.items():
            if isinstance(said, dict):
                yield f"{number}/{model}", problem, said
