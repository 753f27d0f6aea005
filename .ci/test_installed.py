"""Does rlvr work where it is installed from its wheel or source archive?  `make test-installed`.

    python .ci/test_installed.py [--few] [--only PATTERN] [--report FOLDER]

Builds both, then for each Python of this machine, each set of extras, and the newest and the lowest
versions that pyproject.toml permits: makes an environment, installs, and runs
`.ci/installed_checks.py` there, in an empty folder and without PYTHONPATH.  `newest` is
constraints.txt; `lowest` is uv's `--resolution lowest-direct`.  --few is what CI runs: plain on
every Python, and on the oldest of them all extras, and plain with the lowest versions.  Writes
installed.json and installed.md after each environment, which is then removed; exit code 1 if any
failed.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "installed"
UV = Path(sys.executable).with_name("uv")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("", "serve", "view", "endpoint", "train", "dev")
MINORS = (11, 12, 13)
WITHOUT_CUDA = re.compile(r"^ ?\+ (nvidia|cuda)[-_]", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """An environment: Python 3.`minor`, what is installed, of which file, with which versions."""

    minor: int
    extra: str
    versions: str = "newest"
    archive: str = "whl"

    @property
    def name(self) -> str:
        """As the report and --only have it."""
        kind = "wheel" if self.archive == "whl" else "sdist"
        return f"3.{self.minor} {self.extra or 'plain'} {self.versions} {kind}"


@dataclass
class Outcome:
    """What became of a case: `passed`, `failed` or `not tried`."""

    case: str
    outcome: str
    why: str = ""
    install_s: float = 0.0
    checks_s: float = 0.0
    help_s: float | None = None
    took_s: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def pythons() -> dict[int, Path]:
    """Minor version → interpreter, of those in PATH, in pyenv's folder and of uv,
    that run and can load `ssl`."""
    found: dict[int, Path] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in MINORS:
        inside = [folder / f"bin/python3.{minor}" for folder in sorted(pyenv.glob(f"3.{minor}.*"))]
        by_uv = said(str(UV), "python", "find", "--no-python-downloads", f"3.{minor}", or_else="")
        in_path = [
            sys.executable,
            shutil.which(f"python3.{minor}"),
            *map(str, inside),
            by_uv.strip(),
        ]
        check = (
            f"import ssl, sys; assert sys.version_info[:2] == (3, {minor}); print(sys.executable)"
        )
        for path in in_path:
            real = path and said(path, "-c", check, or_else="").strip()
            if real:
                found[minor] = Path(real)
                break
    return found


def said(*command: str, or_else: str | None = None, env: dict[str, str] | None = None) -> str:
    """What a command prints; of one that fails `or_else`, and without that an error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    except OSError:
        if or_else is None:
            raise
        return or_else
    if done.returncode == 0:
        return done.stdout
    if or_else is None:
        raise RuntimeError(
            f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return or_else


def uv_settings() -> dict[str, str]:
    """The indexes that pip is configured with, for uv, which does not read pip's settings."""
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
        "cert": "SSL_CERT_FILE",
    }
    settings = {}
    for line in said(sys.executable, "-m", "pip", "config", "list", or_else="").splitlines():
        key, _, value = line.partition("=")
        name = names.get(key.rpartition(".")[2])
        if name:
            # A folder of wheels that is not there is no error to pip, and one to uv.
            places = [
                it
                for it in value.strip("'").split()
                if not it.startswith("file:") or Path(it[7:]).is_dir()
            ]
            settings[name] = " ".join(places)
    return settings


def installed_extras(extra: str) -> list[str]:
    """The extra, and those that it names; of `dev` many."""
    todo, found = [extra] if extra else [], set[str]()
    while todo:
        one = todo.pop()
        found.add(one)
        for need in PROJECT["optional-dependencies"][one]:
            inner = re.fullmatch(r"rlvr\[([\w,-]+)\]", need)
            todo += [it for it in inner[1].split(",") if it not in found] if inner else []
    return sorted(found)


def readme() -> dict[str, str]:
    """The first block of shell and of Python in the README, each with the text after it."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    after = {}
    for (language, code), (kind, text) in itertools.pairwise(blocks):
        if kind == "text" and language not in after:
            after[language] = (code, text)
    (shell, shell_prints), (python, python_prints) = after["sh"], after["python"]
    return {
        "shell": shell,
        "shell_prints": shell_prints,
        "python": python,
        "python_prints": python_prints,
    }


def cases(found: dict[int, Path], few: bool) -> list[Case]:
    """The environments, the cheapest first."""
    first = min(found)
    if few:
        return [
            *(Case(minor, "") for minor in found),
            Case(first, "", archive="tar.gz"),
            Case(first, "", "lowest"),
            *(Case(first, extra) for extra in EXTRAS[1:]),
        ]
    return [
        *(Case(minor, "", archive="tar.gz") for minor in found),
        *(Case(m, extra, how) for extra in EXTRAS for m in found for how in ("newest", "lowest")),
    ]


def try_out(case: Case, python: Path, archives: dict[str, Path], env: dict[str, str]) -> Outcome:
    """Install and run the checks; the environment is removed afterwards."""
    folder = WORK / case.name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    home, empty = folder / "home", folder / "empty"
    for one in (home, empty):
        one.mkdir(parents=True)
    venv, result = folder / "venv", folder / "result.json"
    started = time.perf_counter()
    what = f"{archives[case.archive]}[{case.extra}]" if case.extra else str(archives[case.archive])
    torch = re.search(
        r"^torch==.*$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    pin = folder / "torch.txt"
    pin.write_text(torch[0] if torch else "", encoding="utf-8")
    versions = (
        ["-c", str(ROOT / "constraints.txt")]
        if case.versions == "newest"
        # Of torch no lower version is at hand without 3 GB of CUDA.
        else ["--resolution", "lowest-direct", "-c", str(pin)]
    )
    install = [
        str(UV),
        "pip",
        "install",
        "--python",
        str(venv / "bin/python"),
        "--index-strategy",
        "unsafe-best-match",
        *versions,
        what,
    ]
    try:
        said(str(UV), "venv", "-q", "--python", str(python), str(venv), env=env)
        plan = subprocess.run(
            [*install, "--dry-run"], capture_output=True, text=True, env=env, check=False
        )
        if WITHOUT_CUDA.search(plan.stderr):
            return Outcome(
                case.name, "not tried", "the only torch for this Python here brings 3 GB of CUDA"
            )
        said(*install, "-q", env=env)
        listed = json.loads(
            said(
                str(UV),
                "pip",
                "list",
                "--format",
                "json",
                "--python",
                str(venv / "bin/python"),
                env=env,
            )
        )
    except RuntimeError as error:
        return Outcome(case.name, "failed", f"install: {error}", time.perf_counter() - started)
    install_s = time.perf_counter() - started
    expected = folder / "expected.json"
    facts = {
        "version": PROJECT["version"],
        "extras": installed_extras(case.extra),
        "checkout": str(ROOT) + "/rlvr",
    }
    expected.write_text(json.dumps(facts | readme()), encoding="utf-8")
    shutil.copy(ROOT / ".ci/installed_checks.py", folder / "checks.py")
    clean = {
        "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    started = time.perf_counter()
    done = subprocess.run(
        [venv / "bin/python", "-I", folder / "checks.py", expected, result],
        cwd=empty, env=clean, capture_output=True, text=True, check=False,
    )  # fmt: skip
    checks_s = time.perf_counter() - started
    report: dict[str, Any] = (
        json.loads(result.read_text(encoding="utf-8"))
        if result.is_file()
        else {"failed": {"all": done.stderr}, "took_s": {}, "help_s": None}
    )
    why = "\n".join(f"{name}: {text}" for name, text in report["failed"].items())
    outcome = Outcome(
        case.name,
        "failed" if why or done.returncode else "passed",
        why,
        round(install_s, 1),
        round(checks_s, 1),
        report["help_s"],
        report["took_s"],
        {it["name"]: it["version"] for it in listed},
    )
    shutil.rmtree(folder, ignore_errors=True)
    return outcome


def write_report(outcomes: list[Outcome], folder: Path, command: str) -> None:
    """installed.json with everything, installed.md with a table."""
    folder.mkdir(parents=True, exist_ok=True)
    head = {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "load": [round(it, 1) for it in os.getloadavg()],
    }
    (folder / "installed.json").write_text(
        json.dumps(head | {"environments": [asdict(it) for it in outcomes]}, indent=1),
        encoding="utf-8",
    )
    count = {
        kind: sum(it.outcome == kind for it in outcomes)
        for kind in ("passed", "failed", "not tried")
    }
    lines = [
        "# Installed",
        "",
        (
            "Wheel and source archive in fresh environments: "
            "every `--help`, `rlvr doctor`, the README's first use,"
        ),
        (
            "all modules, a service, an endpoint, training. "
            "`newest` is constraints.txt, `lowest` the lower"
        ),
        "bounds of pyproject.toml (torch at its constraint). "
        + ", ".join(f"{n} {kind}" for kind, n in count.items())
        + ".",
        "",
        f"`{command}`, {head['date']}, {head['machine']}, load {head['load'][0]}:",
        "",
        "| extra | versions | from | outcome by Python |",
        "|---|---|---|---|",
    ]
    by_kind: dict[str, list[str]] = {}
    for it in outcomes:
        shown = (
            it.outcome
            if it.outcome != "failed"
            else f"failed: {it.why.strip().splitlines()[-1][:80]}"
        )
        python, kind = it.case.split(maxsplit=1)
        by_kind.setdefault(kind, []).append(f"{python} {shown}".replace("|", "\\|"))
    for kind, shown_cases in by_kind.items():
        lines.append("| " + " | ".join([*kind.split(), ", ".join(shown_cases)]) + " |")
    reasons = dict.fromkeys(it.why for it in outcomes if it.outcome == "not tried")
    lines += ["", *(f"Not tried: {why}." for why in reasons)]
    (folder / "installed.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def main() -> int:
    """Build, try every case, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", action="store_true", help="the environments that CI tries")
    parser.add_argument(
        "--only", default="", help="those whose name has this pattern: '3.12 plain'"
    )
    parser.add_argument("--report", type=Path, default=WORK / "report", help="folder of the report")
    asked = parser.parse_args()
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    env |= uv_settings()
    shutil.rmtree(WORK / "dist", ignore_errors=True)
    said(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(WORK / "dist"),
        str(ROOT),
        env=env,
    )
    archives = {kind: next((WORK / "dist").glob(f"*.{kind}")) for kind in ("whl", "tar.gz")}
    found = pythons()
    print("Pythons:", ", ".join(f"3.{minor} ({path})" for minor, path in found.items()), flush=True)
    outcomes = []
    for case in cases(found, asked.few):
        if not re.search(asked.only, case.name):
            continue
        outcome = try_out(case, found[case.minor], archives, env)
        outcomes.append(outcome)
        took = f"{outcome.install_s:.0f} s install, {outcome.checks_s:.0f} s checks"
        print(f"{case.name}: {outcome.outcome} ({took})", flush=True)
        if outcome.why:
            print(outcome.why, flush=True)
        write_report(
            outcomes, asked.report, " ".join(["python .ci/test_installed.py", *sys.argv[1:]])
        )
    failed = sum(it.outcome == "failed" for it in outcomes)
    tried = sum(it.outcome != "not tried" for it in outcomes)
    print(f"{tried - failed} passed, {failed} failed, {len(outcomes) - tried} skipped")
    return int(bool(failed) or not tried)


if __name__ == "__main__":
    sys.exit(main())
