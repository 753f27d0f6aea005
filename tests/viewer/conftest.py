"""Scored files and runs for the viewer to show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient

from rlvr.viewer import Shown, app_of
from tests.processes import PATIENCE_S


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


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    """Twelve records of three tasks."""
    return write(tmp_path / "scored.jsonl", [record(i) for i in range(12)])


@pytest.fixture
def browse() -> Iterator[Any]:
    """A function from paths to a client of a viewer of them, as a browser on this machine would have it."""
    with ExitStack() as stack:

        def client(*paths: Path, **options: Any) -> TestClient:
            sources = stack.enter_context(Shown(paths))
            app = app_of(sources, wait_s=PATIENCE_S, **options)
            return stack.enter_context(TestClient(app, base_url="http://localhost:8010"))

        yield client
