"""Scored files and runs for the viewer to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient

from rlvr.viewer import Shown, viewer_app
from tests.json_lines import write_json_lines
from tests.processes import PATIENCE_S
from tests.viewer.made import record


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    """Twelve records of three tasks."""
    return write_json_lines(tmp_path / "scored.jsonl", [record(i) for i in range(12)])


@pytest.fixture
def browse() -> Iterator[Any]:
    """A function from paths to a client of a viewer of them, as a browser on this machine would have it."""
    with ExitStack() as stack:

        def client(*paths: Path, **options: Any) -> TestClient:
            sources = stack.enter_context(Shown(paths))
            app = viewer_app(sources, wait_s=PATIENCE_S, **options)
            return stack.enter_context(TestClient(app, base_url="http://localhost:8010"))

        yield client
