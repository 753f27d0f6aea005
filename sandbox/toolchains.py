"""The interpreters and compilers of this host, and the files of the host that a
slot must see to use them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlvr.errors import MissingDependency, UsageError
from rlvr.sandbox.languages import LANGUAGES, ProgramLanguage
from rlvr.sandbox.records import Program
from rlvr.workers.program import run_program

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import RootPlan

__all__ = [
    "GREETINGS",
    "Packages",
    "Python",
    "find_packages",
    "find_python",
    "missing",
    "program_variables",
    "root_plan",
    "search_path",
    "tool_path",
    "tool_version",
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
# links into /usr, or folders on older systems
_MERGED: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_OWN_NAMES: Final = ("/box", "/dev", "/etc", "/old", "/proc", "/tmp", "/var")
# Of the interpreters of programs: the guest's modules use `match`, new in 3.10.
_OLDEST: Final = (3, 10)
# A backstop for `--version`: a Java machine takes seconds where the machine is busy.
_ASK_S: Final = 60.0

GREETINGS: Final = tuple(Program(name, language.hello) for name, language in LANGUAGES.items())
"""A program for each language that says its version."""

_PYTHON_FACTS: Final = """
import json, os, sys
print(json.dumps({
    "version": list(sys.version_info[:3]), "executable": os.path.realpath(sys.executable),
    "prefix": sys.base_prefix, "path": [p for p in sys.path if os.path.exists(p)]}))
"""

_PACKAGE_FACTS: Final = """
import importlib.metadata as metadata, json, os, re, sys
names, found, versions, missing = list(sys.argv[1:]), {}, {}, []
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
    versions[canonical(name)] = distribution.version
    for file in distribution.files or []:
        top = file.parts[0]
        if top not in ("..", "__pycache__") and not os.path.isabs(top):
            found[top] = str(distribution.locate_file(top))
    for requirement in distribution.requires or []:
        if "extra ==" not in requirement:
            names.append(re.match(r"[\\w.-]+", requirement)[0])
print(json.dumps({"found": found, "versions": versions, "missing": missing}))
"""


_ENVIRONMENT_FACTS: Final = (
    "import json, sysconfig; "
    "print(json.dumps([sysconfig.get_path('purelib'), sysconfig.get_path('platlib')]))"
)


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter, as it describes itself.

    Attributes:
        version: such as (3, 11, 2).
        executable: its path, links resolved.
        prefix: `sys.base_prefix`.
        path: the folders of its standard library on `sys.path`.
    """

    version: tuple[int, ...]
    executable: str
    prefix: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Packages:
    """The installed packages that programs may import.

    Attributes:
        names: of the distributions that were asked for.
        versions: of these and of what they require, by name; of a virtual environment the digest of
            all of them.
        folders: top-level file or folder, of these and of what they require → its path on the host.
        environment: folders with all packages of a virtual environment; empty if only `names` may
            be imported.
    """

    names: tuple[str, ...]
    folders: Mapping[str, str]
    versions: Mapping[str, str]
    environment: tuple[str, ...] = ()

    @property
    def visible(self) -> tuple[str, ...]:
        """The paths on the host that a slot sees."""
        return self.environment or tuple(self.folders.values())

    @property
    def sites(self) -> tuple[str, ...]:
        """The folders from which programs import packages."""
        # The parent folders, as a package may be one file.
        return self.environment or tuple(sorted({str(Path(path).parent) for path in self.visible}))

    @property
    def preload(self) -> tuple[str, ...]:
        """Those that a zygote imports once for all its runs: distributions whose name is also a
        module's."""
        return tuple(name for name in self.names if name in self.folders)


@lru_cache
def find_python(executable: str | None = None) -> Python:
    """The interpreter behind a path; for a virtual environment, the one that it was made from.

    Args:
        executable: the path, or that of the folder of a virtual environment; None for this
            process's interpreter.

    Raises:
        UsageError: it does not run, or is too old for the guest's code.
    """
    interpreter = _interpreter(executable)
    facts = _ask_interpreter(
        # -I and -S: neither the environment nor a site's files may decide.
        [interpreter, "-I", "-S", "-c", _PYTHON_FACTS],
        f"python={interpreter!r}",
    )
    python = Python(
        tuple(facts["version"]), facts["executable"], facts["prefix"], tuple(facts["path"])
    )
    if python.version < _OLDEST:
        text = ".".join(map(str, python.version))
        raise UsageError(
            f"python={interpreter!r} is Python {text}; the sandbox needs 3.10 or newer to run "
            f"programs in"
        )
    return python


@lru_cache
def find_packages(names: tuple[str, ...], executable: str | None = None) -> Packages:
    """Packages that are installed for an interpreter, with what they require.

    Args:
        names: of distributions.
        executable: see `find_python`; with a virtual environment's folder, all its packages may be
            imported.

    Raises:
        UsageError: one is not installed; the error names it.
    """
    folders: tuple[str, ...] = ()
    tool = _interpreter(executable)
    # A virtual environment as a whole: all its packages are visible.
    if executable and Path(executable).is_dir():
        paths = _ask_interpreter([tool, "-I", "-c", _ENVIRONMENT_FACTS], f"python={executable!r}")
        folders = tuple(sorted({path for path in paths if Path(path).is_dir()}))
    installed = sorted(path.name for folder in folders for path in Path(folder).glob("*.dist-info"))
    # The names alone, with versions: "numpy-2.1.0.dist-info".
    digest = hashlib.sha256(" ".join(installed).encode()).hexdigest()[:16]
    versions = {"packages of programs": digest} if folders else {}
    if not names:
        return Packages((), {}, versions, folders)
    facts = _ask_interpreter([tool, "-c", _PACKAGE_FACTS, *names], f"packages={names!r}")
    if facts["missing"]:
        raise UsageError(
            f"packages={names!r}: {', '.join(facts['missing'])} is not installed for {tool}; "
            f"install it there with pip"
        )
    versions |= {f"package {name} of programs": text for name, text in facts["versions"].items()}
    return Packages(names, facts["found"], versions, folders)


def _interpreter(executable: str | None) -> str:
    """The path of an interpreter; a virtual environment's own for its folder."""
    place = executable or sys.executable
    return str(Path(place, "bin", "python")) if Path(place).is_dir() else place


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a tool that says something of itself.

    Raises:
        OSError, TimeoutExpired: see `run_program`.
    """
    return run_program(command, name="tool", owner="sandbox", limit_s=_ASK_S)


def _ask_interpreter(command: Sequence[str], what: str) -> Any:
    try:
        done = _ask(command)
        answer = json.loads(done.stdout)
    # Named as the caller gave it: the fault is in that setting.
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "stderr", None) or (
            done.stderr[-300:] if isinstance(error, ValueError) else error
        )
        raise UsageError(f"{what}: the interpreter does not answer: {reason}") from None
    return answer


@lru_cache
def tool_path(language: str) -> str | None:
    """The path, inside a slot, of the program that runs or compiles a language; None if this host
    has none.

    Args:
        language: a key of `LANGUAGES`, but not "python".
    """
    row = LANGUAGES[language]
    program = _found(row)
    # A wrapper in PATH would start the tool outside of the slot's folders.
    if program and (folder := _folder_of(row, program)):  # what is in PATH may only start the tool
        own_program = Path(folder, "bin", row.tool)
        return str(own_program.resolve()) if own_program.exists() else os.path.realpath(program)
    return program and os.path.realpath(program)


def tool_version(language: str) -> str:
    """What the tool of a language says of its version; "unknown" if it says nothing.

    Args:
        language: a key of `LANGUAGES`, but not "python".
    """
    command = tool_path(language)
    if command is None:
        return "unknown"
    try:
        there = Path(command).stat()
    except OSError:
        return "unknown"
    return _version_at(command, there.st_ino, there.st_size, there.st_mtime_ns)


@lru_cache
def _version_at(command: str, *_stamp: int) -> str:
    """The version of a file: another one under the same name, after an upgrade, is asked again."""
    # Go has no flag for it.
    for flag in ("--version", "version"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = _ask([command, flag])
            if done.returncode == 0 and done.stdout.strip():
                return done.stdout.strip().splitlines()[0]
    return "unknown"


def _found(row: ProgramLanguage) -> str | None:
    # PATH of a service may be empty; these are the folders of distributions.
    path = os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin:/bin"
    return shutil.which(row.tool, path=path)


def _folder_of(row: ProgramLanguage, command: str) -> str:
    """The folder of a tool's files, as it says itself; "" where they are all in the system's
    folders."""
    if not row.where:
        return ""
    argv = [word.replace("{tool}", command) for word in row.where]
    try:
        done = _ask(argv)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    folder = done.stdout.strip()
    return folder if done.returncode == 0 and Path(folder).is_dir() else ""


def _tool_files(language: str) -> list[str]:
    """What a slot must see of the host for a language: its tool, its folder, and what links in that
    point to."""
    command = tool_path(language)
    if command is None:
        return []
    row = LANGUAGES[language]
    folder = _folder_of(row, _found(row) or command)
    # Folders above the system's would show all of it.
    if not folder or any(Path(path).is_relative_to(folder) for path in _SYSTEM):
        return [command]  # Debian's tools say /usr, of which a program sees no more than `_SYSTEM`
    parts = [Path(folder, part) for part in row.parts] or [
        Path(folder),
        *(path for path in Path(folder).iterdir() if path.is_symlink()),
    ]
    return [*map(str, parts), *map(os.path.realpath, parts), command]


def missing(language: str) -> MissingDependency | None:
    """The error for a language whose tool this host lacks; None if it is there.

    Args:
        language: a key of `LANGUAGES`.
    """
    row = LANGUAGES[language]
    if not row.tool or tool_path(language) is not None:
        return None
    return MissingDependency(
        f"{row.tool}, for programs in {language},", "", f"apt-get install {row.package}"
    )


def root_plan(
    python: Python,
    packages: Packages,
    caches: Mapping[str, str],
    folders: Sequence[str] = (),
) -> RootPlan:
    """The files of the host that a slot sees.

    Args:
        python: the interpreter of the programs.
        packages: what they may import.
        caches: folder inside a slot → folder of the host.
        folders: writable ones at the root, such as "/app".

    Returns:
        `binds`, pairs of a path on the host and a path inside; `caches`, the same, but no program
        is shown the path on the host; `links`, pairs of a path inside and its target; `empty`,
        folders that are hidden; `folders`; and `packages`, more binds.  These come last, since they
        may lie in a hidden folder; each keeps its path, from which the zygote has already loaded
        it.

    Raises:
        UsageError: the root has something else at the name of a folder.
    """
    binds = {path: path for path in _SYSTEM if Path(path).exists()}
    links = {}
    for path in _MERGED:
        if Path(path).is_symlink():
            links[path] = str(Path(path).readlink())
        elif Path(path).is_dir():
            binds[path] = path
    paths = [
        f"{python.prefix}/lib",
        python.executable,
        *(path for name, row in LANGUAGES.items() if row.tool for path in _tool_files(name)),
    ]
    paths += map(str, Path("/etc").glob("java-*"))  # Debian's Java has its settings there
    for path in paths:
        if (
            path
            and Path(path).exists()
            # What is below a folder that is bound already needs no mount of its own.
            and not any(Path(path).is_relative_to(bound) for bound in binds)
        ):
            binds[path] = path
    # Programs that ask for /usr/bin/env python3 find the slot's own.
    if not any(Path("/usr/local/bin").is_relative_to(bound) for bound in binds):
        links |= {f"/usr/local/bin/{name}": python.executable for name in ("python", "python3")}
    shared = [(folder, name) for name, folder in caches.items()]
    # Packages of the host are hidden; those that are allowed are mounted over them.
    empty = [
        f"{folder}/{name}"
        for folder in _libraries(python)
        for name in ("site-packages", "dist-packages")
    ]
    allowed = [(folder, folder) for folder in packages.visible]
    used_names = {f"/{path.split('/')[1]}" for path in (*binds, *links, *_OWN_NAMES, *caches)}
    used_names |= {f"/{path.split('/')[1]}" for path in packages.visible}
    for folder in folders:
        # A folder of that name would hide what programs need.
        if folder in used_names:
            raise UsageError(
                f"folders: the sandbox has files of its own in {folder!r}; choose another name, "
                f"such as '/app'"
            )
    return {
        "binds": list(binds.items()),
        "caches": shared,
        "links": list(links.items()),
        "packages": allowed,
        "empty": empty,
        "folders": list(folders),
    }


def _libraries(python: Python) -> set[str]:
    """Folders in which packages of the host may lie."""
    inside = {"/usr/lib/python3", *(p for p in python.path if Path(p).is_dir())}
    return inside | {
        str(p) for lib in ("/usr/lib", f"{python.prefix}/lib") for p in Path(lib).glob("python3*")
    }


def program_variables() -> dict[str, str]:
    """All variables that a program finds in os.environ; none is the host's."""
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
    """`sys.path` inside: the standard library, and the packages that are allowed.

    Args:
        python: the interpreter of the programs.
        packages: what they may import.
    """
    return [*python.path, *packages.sites]
