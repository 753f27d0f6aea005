"""Files of JSON lines, written and read as a whole."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_json_lines(path: Path, rows: Iterable[Any]) -> Path:
    """The path again, so that a test writes and names a file at once."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
