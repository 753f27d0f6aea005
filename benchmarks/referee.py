"""What `rlvr referee` finds in releases of other trainers,
as a Markdown table for docs/benchmarks/referee.md.

python -m benchmarks.referee --python VENV/bin/python --folder FOLDER trl==1.16.0 verl==0.9.1
"""

import argparse
import subprocess
from pathlib import Path

from rlvr.errors import UsageError
from rlvr.interop.referee import Ruling, referee


def folder_of(release: str, parent: Path, python: Path) -> Path:
    """The release alone, without what it depends on, in a folder of its own."""
    folder = parent / release.replace("==", "-")
    if not folder.is_dir():
        command = [python, "-m", "pip", "install", "-qq", "--no-deps", "--target", folder, release]
        subprocess.run(list(map(str, command)), check=True)
    return folder


def rows(answers: list[Ruling]) -> list[str]:
    """A line for each case that departs, without its release."""
    lines = []
    for answer in answers:
        if answer.status != "departs":
            continue
        first = answer.departs[0]
        ratios = ", ".join(f"{one.ratio:.4g}" for one in answer.departs if one.ratio is not None)
        explained = "; ".join(first.explained) or "–"
        quantity = f"{first.quantity}, row {first.row}, token {first.token}"
        lines.append(f"{answer.case} | {quantity} | {ratios} | {explained} |")
    return lines


def main() -> int:
    """A release whose driver does not run is a line too, and then the exit code is 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("releases", nargs="+")
    args = parser.parse_args()
    releases: dict[str, list[str]] = {}
    failed = 0
    for release in args.releases:
        package = release.partition("==")[0].replace("-", "_")
        name = {"trinity_rft": "trinity"}.get(package, package)
        source = folder_of(release, args.folder, args.python)
        try:
            lines = rows(referee(name, args.python, source))
        except UsageError as error:
            failed, lines = 1, [f"{error} | | | |"]
        for row in lines:
            releases.setdefault(row, []).append(release)
    print("| releases | case | departs first | norms' ratios | explained if |")
    print("|---|---|---|---|---|")
    for row, names in releases.items():
        print(f"| {', '.join(names)} | {row}")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
