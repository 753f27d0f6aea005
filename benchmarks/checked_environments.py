"""Checks every bundled environment, and writes what `rlvr envs` shows of it:
rlvr/testing/checked.json.

    python -m benchmarks.checked_environments [NAME…] [--tasks 20]

Environments over rows are checked with the rows of the tests.  Without names all are checked,
in a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import rlvr
from rlvr.testing import Severity, check
from tests.testing.test_check_ours import OURS, TOOLS

RECORD = Path(__file__).parents[1] / "rlvr" / "testing" / "checked.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tasks", type=int, default=20)
    given = parser.parse_args()
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in given.names or (*OURS, *TOOLS):
        rows, options = OURS.get(name, (None, {}))
        with TemporaryDirectory() as folder:
            if rows is not None:
                path = Path(folder) / "rows.jsonl"
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
                options = options | {"data": str(path)}
            report = check(rlvr.make(name, **options), tasks=given.tasks)
        count = {
            severity: sum(it.severity is severity for it in report.findings)
            for severity in Severity
        }
        known[name] = {
            "holes": count[Severity.HOLE],
            "warnings": count[Severity.WARNING],
            "tasks": report.tasks,
            "completions": report.completions,
            "median_ms": round(report.median_ms, 2),
        }
        print(name, known[name], flush=True)
        for finding in report.findings:
            if finding.severity is not Severity.NOTE:
                print(f"  {finding}", flush=True)
        RECORD.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
