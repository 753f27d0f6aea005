"""Is this commit ready to be released?  `make release` runs it; nothing is tagged or uploaded.

Checks the version, its heading and date in CHANGELOG.md, the tag and the work tree; builds both
archives into dist/; runs `twine check --strict` and `make test-installed`; prints the commands that
tag and upload.
"""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(version: str, changelog: str, tags: str, status: str) -> list[str]:
    """What stands against a release, one line each.

    Args:
        version: of pyproject.toml.
        changelog: text of CHANGELOG.md; its first section has to be
            `## VERSION, YYYY-MM-DD` with today's date (UTC).
        tags: output of `git tag`.
        status: output of `git status --porcelain`.
    """
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    first = re.search(r"^## (.*)$", changelog, re.MULTILINE)
    heading = first[1] if first else "nothing"
    found = []
    if heading != f"{version}, {today}":
        found.append(
            f"CHANGELOG.md begins with {heading!r}; "
            f"a release of today has '{version}, {today}' there"
        )
    if f"v{version}" in tags.split():
        found.append(f"there is a tag v{version}; raise the version in pyproject.toml")
    if status.strip():
        found.append(f"{len(status.splitlines())} files are not committed; commit them first")
    return found


def main() -> int:
    """Check, build, test, print; 0 if the commands that were printed can be run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    git = [
        subprocess.run(["git", *it], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for it in (["tag"], ["status", "--porcelain"])
    ]
    found = problems(project["version"], changelog, *git)
    for line in found:
        print(f"release: {line}")
    if found:
        return 1
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    here = {"cwd": ROOT, "check": True}
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT], **here
    )
    archives = sorted(map(str, dist.iterdir()))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *archives], **here)
    subprocess.run([sys.executable, ROOT / ".ci/test_installed.py"], **here)
    tag = f"v{project['version']}"
    print(
        f"ready; now:\n  git tag -a {tag} -m 'rlvr {project['version']}' && git push origin {tag}"
    )
    print(f"  {sys.executable} -m twine upload {' '.join(archives)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
