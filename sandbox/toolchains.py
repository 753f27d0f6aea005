"""What this host has to run programs with, and what of the host a slot has to see for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from rlvr.errors import UsageError
from rlvr.sandbox.records import Program

__all__ = [
    "GREETINGS",
    "Packages",
    "Python",
    "environment",
    "find_packages",
    "find_python",
    "missing",
    "root_plan",
    "search_path",
    "tool",
]

_SYSTEM: Final = (
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/include",
    "/usr/share/nodejs",
    "/usr/share/zoneinfo",
    "/etc/alternatives",
    "/etc/ld.so.cache",
)
_MERGED: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")  # links into /usr, or folders on older systems
_OLDEST: Final = (3, 10)
_TOOLS: Final = {"cpp": "g++", "javascript": "node", "bash": "bash"}
_ASK_S: Final = 60.0

GREETINGS: Final = (
    Program("python", "import platform\nprint(platform.python_version())"),
    Program("cpp", '#include <bits/stdc++.h>\nint main() { std::cout << "g++ " << __VERSION__ << std::endl; }'),
    Program("javascript", "console.log(`node ${process.version}`)"),
    Program("bash", 'echo "bash $BASH_VERSION"'),
)
"""A program for each language that says its version."""

_PYTHON_FACTS: Final = """
import json, os, sys
print(json.dumps({
    "version": list(sys.version_info[:3]), "executable": os.path.realpath(sys.executable),
    "prefix": sys.base_prefix, "path": [p for p in sys.path if os.path.exists(p)]}))
"""

_PACKAGE_FACTS: Final = """
import importlib.metadata as metadata, json, os, re, sys
names, found, missing = list(sys.argv[1:]), {}, []
seen = set()
canonical = lambda name: re.sub(r"[-_.]+", "-", name).lower()
while names:
    name = names.pop()
    if canonical(name) in seen:
        continue
    seen.add(canonical(name))
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        owners = metadata.packages_distributions().get(name, [])
        if owners and canonical(owners[0]) not in seen:
            names.append(owners[0])
        elif name in sys.argv[1:] and not owners:
            missing.append(name)
        continue
    for file in distribution.files or []:
        top = file.parts[0]
        if top not in ("..", "__pycache__") and not os.path.isabs(top):
            found[top] = str(distribution.locate_file(top))
    for requirement in distribution.requires or []:
        if "extra ==" not in requirement:
            names.append(re.match(r"[\\w.-]+", requirement)[0])
print(json.dumps({"found": found, "missing": missing}))
"""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter: facts that it told about itself."""

    version: tuple[int, ...]
    executable: str
    prefix: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Packages:
    """The site-packages that programs may import: name → where it lies."""

    names: tuple[str, ...]
    folders: Mapping[str, str]

    @property
    def preload(self) -> tuple[str, ...]:
        """Those that a zygote loads once for all its runs: what can be imported under its own name."""
        return tuple(name for name in self.names if name in self.folders)


@lru_cache
def find_python(executable: str | None = None) -> Python:
    """The interpreter behind a path, or behind this process: a virtual environment leads to the one it was made from.

    Raises:
        UsageError: it does not run, or is older than the guest's code.
    """
    asked = executable or sys.executable
    facts = _asked([asked, "-I", "-S", "-c", _PYTHON_FACTS], f"python={asked!r}")
    found = Python(tuple(facts["version"]), facts["executable"], facts["prefix"], tuple(facts["path"]))
    if found.version < _OLDEST:
        text = ".".join(map(str, found.version))
        raise UsageError(f"python={asked!r} is Python {text}; the sandbox needs 3.10 or newer to run programs in")
    return found


@lru_cache
def find_packages(names: tuple[str, ...], executable: str | None = None) -> Packages:
    """Packages that are installed beside an interpreter, with what they require.

    Raises:
        UsageError: one is not installed; names it.
    """
    if not names:
        return Packages((), {})
    asked = executable or sys.executable
    facts = _asked([asked, "-c", _PACKAGE_FACTS, *names], f"packages={names!r}")
    if facts["missing"]:
        raise UsageError(
            f"packages={names!r}: {', '.join(facts['missing'])} is not installed for {asked}; install it there with pip"
        )
    return Packages(names, facts["found"])


def _asked(command: Sequence[str], what: str) -> dict[str, Any]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, stdin=subprocess.DEVNULL)
        answer: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        said = getattr(error, "stderr", None) or (done.stderr[-300:] if isinstance(error, ValueError) else error)
        raise UsageError(f"{what}: the interpreter does not answer: {said}") from None
    return answer


@lru_cache
def tool(language: str) -> str | None:
    """The program that runs or compiles a language, as a path inside a slot; None if this host has none."""
    found = shutil.which(_TOOLS[language], path=os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin:/bin")
    return found and os.path.realpath(found)


def missing(language: str) -> str:
    """Why a language cannot run here, with the remedy."""
    package = {"cpp": "g++", "javascript": "nodejs", "bash": "bash"}[language]
    return f"no {_TOOLS[language]} on this host, so no {language} runs; install it (apt-get install {package})"


def root_plan(python: Python, packages: Packages, caches: Mapping[str, str]) -> dict[str, Any]:
    """What a slot sees.

    `binds` and `packages` of (host path, path inside); the latter come after the folders that are shown `empty`, for
    they may lie in one; and `links`.  A package keeps its path: the zygote has loaded it from there.
    """
    binds = {path: path for path in _SYSTEM if Path(path).exists()}
    links = {}
    for path in _MERGED:
        if Path(path).is_symlink():
            links[path] = str(Path(path).readlink())
        elif Path(path).is_dir():
            binds[path] = path
    wanted = [f"{python.prefix}/lib", python.executable, *(tool(language) or "" for language in _TOOLS)]
    for path in wanted:
        if path and Path(path).exists() and not any(Path(path).is_relative_to(bound) for bound in binds):
            binds[path] = path
    if not any(Path("/usr/local/bin").is_relative_to(bound) for bound in binds):
        links |= {f"/usr/local/bin/{name}": python.executable for name in ("python", "python3")}
    binds |= {folder: name for name, folder in caches.items()}
    empty = [f"{folder}/{name}" for folder in _libraries(python) for name in ("site-packages", "dist-packages")]
    allowed = [(folder, folder) for folder in packages.folders.values()]
    return {"binds": list(binds.items()), "links": list(links.items()), "empty": empty, "packages": allowed}


def _libraries(python: Python) -> set[str]:
    """Folders in which other people's packages lie, or may."""
    inside = {"/usr/lib/python3", *(p for p in python.path if Path(p).is_dir())}
    return inside | {str(p) for lib in ("/usr/lib", f"{python.prefix}/lib") for p in Path(lib).glob("python3*")}


def environment() -> dict[str, str]:
    """All that a program finds in os.environ: nothing of the host's."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",  # the same program prints its sets in the same order each time
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def search_path(python: Python, packages: Packages) -> list[str]:
    """`sys.path` inside: the standard library, and the packages that are allowed."""
    return [*python.path, *sorted({str(Path(folder).parent) for folder in packages.folders.values()})]
