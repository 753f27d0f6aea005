"""A task folder of harbor (schema 1.4), read: what a policy finds, what is judged,
and what we do not offer.

    task.toml  instruction.md  environment/Dockerfile  solution/solve.sh  tests/test.sh

The Dockerfile may have FROM a plain Python, WORKDIR, ENV and COPY.  All else that a task would miss
here (networks, images, accelerators, other users, steps …) is refused, with file and line.  Written
against harbor 0.25.0.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn

from rlvr.errors import DataError, brief
from rlvr.types import JsonObject

__all__ = ["Artifact", "HarborFolder", "LOGS", "SCHEMA", "SOLUTION", "TESTS", "VALIDATION"]

SCHEMA: Final = (1, 4)
VALIDATION: Final = "validation.json"
LOGS, TESTS, SOLUTION = "/logs", "/tests", "/solution"

_MOST_BYTES: Final = 32 << 20
_MOST_FILES: Final = 2_000
_PYTHON: Final = re.compile(
    r"(docker\.io/)?(library/)?python:3(\.\d+){0,2}(-slim)?(-(bullseye|bookworm|trixie))?"
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_OWN_FOLDERS: Final = frozenset(
    "/bin /boot /box /dev /etc /lib /lib32 /lib64 /old /proc /run /sbin /sys /tmp /usr /var".split()
)
_FILES: Final = "Dockerfile docker-compose.yaml docker-compose.yml .dockerignore .harborignore"

# What a key may be; None for any value, as it says nothing about how the task runs.
_ROOT: Final = (
    "schema_version version source task metadata verifier agent environment solution artifacts"
)
_KEYS: Final[Mapping[str, str]] = {
    "agent": "timeout_sec network_mode",
    "verifier": "timeout_sec env environment_mode network_mode",
    "environment": (
        "build_timeout_sec docker_image os cpus memory_mb storage_mb gpus env workdir network_mode "
        "allow_internet"
    ),
    "solution": "env",
}


@dataclass(frozen=True, slots=True)
class Artifact:
    """What remains of a policy's session for a verifier of its own.

    Attributes:
        source: absolute path of a file or folder.
        exclude: patterns of names within it, as tar's `--exclude` takes them.
    """

    source: str
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class HarborFolder:
    """One task.

    Attributes:
        path: of the folder.
        name: "org/name", or the folder's.
        instruction: what the policy is told.
        files: what COPY puts where, by absolute path.
        env, verifier_env, solution_env: variables.
        workdir: where commands begin.
        tests, solution: files by path relative to /tests and /solution.
        separate: the tests run in an environment of their own, which gets the artifacts alone.
        artifacts: see there.
        agent_s, verifier_s: seconds.
        memory_mib, storage_mib: limits; None where the task names none.
        digest: of all files but `validation.json`.
    """

    path: Path
    name: str
    instruction: str
    files: Mapping[str, bytes]
    env: Mapping[str, str]
    workdir: str
    tests: Mapping[str, bytes]
    solution: Mapping[str, bytes]
    separate: bool
    artifacts: tuple[Artifact, ...]
    agent_s: float
    verifier_s: float
    verifier_env: Mapping[str, str]
    solution_env: Mapping[str, str]
    memory_mib: int | None
    storage_mib: int | None
    digest: str

    @property
    def folders(self) -> tuple[str, ...]:
        """The writable folders at the root that the task needs."""
        paths = [self.workdir, *self.files, *(artifact.source for artifact in self.artifacts)]
        roots = {f"/{path.split('/')[1]}" for path in paths}
        return tuple(sorted({*roots, LOGS, TESTS, SOLUTION} - {"/"}))

    @classmethod
    def read(cls, path: str | Path) -> HarborFolder:
        """Read a folder.

        Args:
            path: of the folder.

        Raises:
            DataError: it is none, or needs what is not offered here; names file and line.
        """
        root = Path(path)
        tree = _tree(root)
        config = _Config(root / "task.toml", _text(tree, root, "task.toml"))
        image = _Image(root / "environment", tree)
        dockerfile = tree.get("environment/Dockerfile")
        if dockerfile is not None:
            image.build(_decode(dockerfile, root / "environment/Dockerfile"))
        else:
            image.take_prebuilt(config)
        workdir = config.get("environment", "workdir", str) or image.workdir
        if not workdir.startswith("/") or ".." in workdir.split("/"):
            config.refuse("environment", "workdir", f"{workdir!r} is no absolute path")
        image.require_place(workdir, lambda why: config.refuse("environment", "workdir", why))
        tests, solution = _below(tree, "tests"), _below(tree, "solution")
        for name, files in (("tests/test.sh", tests), ("solution/solve.sh", solution)):
            if name.partition("/")[2] not in files:
                raise DataError(f"{root / name}: there is no such file")
        for name in _FILES.split()[:3]:
            if name in tests:
                raise DataError(f"{root / 'tests' / name}:1: tests have no image of their own here")
        separate = config.get("verifier", "environment_mode", str) == "separate"
        return cls(
            root,
            config.name or root.resolve().name,
            _text(tree, root, "instruction.md"),
            image.files,
            image.env | config.variables("environment"),
            _clean(workdir),
            tests,
            solution,
            separate,
            config.artifacts(image),
            config.get("agent", "timeout_sec", float) or 600.0,
            config.get("verifier", "timeout_sec", float) or 600.0,
            config.variables("verifier"),
            config.variables("solution"),
            config.get("environment", "memory_mb", int),
            config.get("environment", "storage_mb", int),
            _digest(tree),
        )


# ---------------------------------------------------------------------------------------- task.toml


class _Config:
    """`task.toml`: its tables, and the lines where their keys stand."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._lines = path, text.splitlines()
        try:
            self._tables: dict[str, object] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise DataError(f"{path}: it is no TOML: {error}") from None
        self._check_schema()
        for name in self._tables:
            if name not in _ROOT.split():
                self.refuse("", name, "it is not offered here")
        for table, keys in _KEYS.items():
            for name in self._table(table):
                if name not in keys.split():
                    self.refuse(table, name, "it is not offered here")
        self._check_network()
        self._check_machine()

    @property
    def name(self) -> str:
        """Of the task; "" if it has none."""
        return str(self._table("task").get("name", ""))

    def refuse(self, table: str, key: str, why: str) -> NoReturn:
        """Raise the error that names a key's line.

        Args:
            table, key: which; "" for the root.
            why: it cannot be.

        Raises:
            DataError: always.
        """
        name = f"[{table}] {key}" if table else key
        raise DataError(f"{self._path}:{self._line(table, key)}: {name}: {why}")

    def get(self, table: str, key: str, kind: type) -> Any:
        """A value; None if it is not there.

        Args:
            table, key: which.
            kind: str, int or float.

        Raises:
            DataError: it is of another type, or a number that is not positive.
        """
        value = self._table(table).get(key)
        if value is None:
            return None
        numbers = {int: (int,), float: (int, float), str: (str,)}[kind]
        right = isinstance(value, numbers) and not isinstance(value, bool)
        if not right or (kind is not str and not 0 < value < float("inf")):
            self.refuse(table, key, f"it is {brief(value)}")
        return kind(value)

    def variables(self, table: str) -> dict[str, str]:
        """The variables of a table.

        Args:
            table: which.

        Raises:
            DataError: one takes its value from harbor's host.
        """
        env = self._table(table).get("env", {})
        if not isinstance(env, Mapping):
            self.refuse(table, "env", f"it is {brief(env)}; give a table")
        for name, value in env.items():
            if not isinstance(value, str) or not _NAME.fullmatch(name):
                self.refuse(table, "env", f"{brief(name)} = {brief(value)} is no variable")
            if "${" in value:
                self.refuse(table, "env", f"{name} takes its value from the host's environment")
        return dict(env)

    def artifacts(self, image: _Image) -> tuple[Artifact, ...]:
        """What `artifacts` names, and harbor's own folder for them.

        Args:
            image: for the folders of which a task has none.

        Raises:
            DataError: an entry is none, or has `..`.
        """
        entries = self._tables.get("artifacts", [])
        if not isinstance(entries, list):
            self.refuse("", "artifacts", f"they are {brief(entries)}; give a list")
        read = [self._artifact(entry, image) for entry in entries]
        default_source = f"{LOGS}/artifacts"
        return (
            *read,
            *(
                []
                if any(artifact.source == default_source for artifact in read)
                else [Artifact(default_source)]
            ),
        )

    def _artifact(self, entry: Any, image: _Image) -> Artifact:
        table = {"source": entry} if isinstance(entry, str) else entry
        source = table.get("source") if isinstance(table, Mapping) else None
        if not isinstance(source, str) or not source.startswith("/"):
            self.refuse("", "artifacts", f"{brief(entry)} has no absolute source")
        if ".." in source.split("/") or ".." in str(table.get("destination", "")).split("/"):
            self.refuse("", "artifacts", f"{brief(entry)} has '..'")
        if table.get("service") not in (None, "main"):
            self.refuse("", "artifacts", f"{brief(entry)}: there are no services here")
        image.require_place(source, lambda why: self.refuse("", "artifacts", why))
        return Artifact(_clean(source), tuple(map(str, table.get("exclude", ()))))

    def _table(self, name: str) -> JsonObject:
        table = self._tables.get(name, {})
        if not isinstance(table, Mapping):
            self.refuse("", name, f"it is {brief(table)}; give a table")
        return table

    def _check_schema(self) -> None:
        key = "schema_version" if "schema_version" in self._tables else "version"
        version = str(self._tables.get(key, "1.4"))
        parts = re.fullmatch(r"(\d+)\.(\d+)", version)
        if not parts:
            self.refuse("", key, f"{version!r} is no version, such as '1.4'")
        if (int(parts[1]), int(parts[2])) > SCHEMA:
            newest = ".".join(map(str, SCHEMA))
            self.refuse("", key, f"{version} is newer than {newest}, the newest that is read here")

    def _check_network(self) -> None:
        for table in ("agent", "verifier", "environment"):
            mode = self._table(table).get("network_mode", "no-network")
            if mode != "no-network":
                self.refuse(table, "network_mode", f"{mode!r}: there is no network here")
        if self._table("environment").get("allow_internet"):
            self.refuse("environment", "allow_internet", "there is no network here")

    def _check_machine(self) -> None:
        environment = self._table("environment")
        if environment.get("gpus"):
            self.refuse("environment", "gpus", "there are none here")
        if str(environment.get("os", "linux")).lower() != "linux":
            self.refuse("environment", "os", "only linux is offered")
        mode = self._table("verifier").get("environment_mode", "shared")
        if mode not in ("shared", "separate"):
            self.refuse("verifier", "environment_mode", f"{mode!r} is neither shared nor separate")

    def _line(self, table: str, key: str) -> int:
        """The line of a key, or of its table; 1 if neither can be told."""
        current_table, line_of_table = "", 1
        start = re.compile(rf"\s*{re.escape(key)}\s*[=.]")
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
                current_table = header[1]
                if current_table in (key, f"{table}.{key}"):
                    return number
                if current_table == table:
                    line_of_table = number
            elif current_table == table and start.match(line):
                return number
        return line_of_table


# --------------------------------------------------------------------------------------- Dockerfile


class _Image:
    """What the Dockerfile makes of a plain Python image."""

    def __init__(self, folder: Path, tree: Mapping[str, bytes]) -> None:
        self._folder = folder
        self._context = _below(tree, "environment")
        self.files: dict[str, bytes] = {}
        self.env: dict[str, str] = {}
        self.workdir = "/"
        for name in _FILES.split()[1:]:
            if name in self._context:
                raise DataError(f"{folder / name}:1: {name} is not offered here")
        if ".harborignore" in tree:
            raise DataError(f"{folder.parent / '.harborignore'}:1: it is not offered here")

    def build(self, text: str) -> None:
        """Follow the instructions.

        Args:
            text: of the Dockerfile.

        Raises:
            DataError: an instruction that is not offered, with its line.
        """
        begun = False
        for self._number, line in _instructions(text):
            name, _, arguments = line.partition(" ")
            name, arguments = name.upper(), arguments.strip()
            if not begun and name != "FROM":
                self._refuse("an image begins with FROM")
            step = {"WORKDIR": self._enter, "ENV": self._set, "COPY": self._copy}.get(name)
            if name == "FROM":
                self._begin(arguments, begun)
                begun = True
            elif step is None:
                self._refuse(f"{name} is not offered; FROM, WORKDIR, ENV and COPY are")
            elif "<<" in arguments or ("$" in arguments):
                self._refuse(f"{name} with variables or text of its own is not offered")
            else:
                step(arguments)
        if not begun:
            raise DataError(f"{self._folder / 'Dockerfile'}:1: there is no FROM")

    def take_prebuilt(self, config: _Config) -> None:
        """A plain image without a Dockerfile: harbor puts the folder's files where commands begin.

        Args:
            config: which names it.

        Raises:
            DataError: it names none, or one that is no plain Python.
        """
        image = config.get("environment", "docker_image", str)
        if image is None:
            raise DataError(f"{self._folder / 'Dockerfile'}: there is no such file")
        if not _PYTHON.fullmatch(image):
            config.refuse("environment", "docker_image", f"{image!r} is no plain python:3")
        workdir = config.get("environment", "workdir", str) or "/"
        if self._context and workdir == "/":
            config.refuse("environment", "docker_image", "files of environment/ need a workdir")
        self.files = {f"{_clean(workdir)}/{name}": data for name, data in self._context.items()}

    def require_place(self, path: str, refuse: Any) -> None:
        """Refuse a path in a folder that is the system's.

        Args:
            path: absolute.
            refuse: is told why.
        """
        top = "/" + path.removeprefix("/").partition("/")[0]
        if top in _OWN_FOLDERS:
            refuse(f"{path!r} is in {top}, which cannot be written to here")

    def _refuse(self, why: str) -> NoReturn:
        raise DataError(f"{self._folder / 'Dockerfile'}:{self._number}: {why}")

    def _begin(self, rest: str, begun: bool) -> None:
        image = rest.split()[0] if rest else ""
        if begun or rest != image:
            self._refuse("one FROM, without a stage or platform, is offered")
        if not _PYTHON.fullmatch(image):
            self._refuse(
                f"FROM {image}: only a plain python:3 is offered, such as python:3.11-slim"
            )

    def _enter(self, rest: str) -> None:
        path = rest.strip("\"'")
        self.workdir = _clean(str(PurePosixPath(self.workdir) / path))
        if ".." in path.split("/") or not path:
            self._refuse(f"WORKDIR {rest}: give a path without '..'")
        self.require_place(self.workdir, self._refuse)

    def _set(self, rest: str) -> None:
        words = self._words(rest)
        pairs = [word.partition("=")[::2] for word in words]
        if words and "=" not in words[0]:  # the older form: ENV NAME value
            pairs = [(words[0], rest.partition(" ")[2].strip())]
        for name, value in pairs:
            if not _NAME.fullmatch(name):
                self._refuse(f"ENV {rest}: {name!r} is no name")
            self.env[name] = value

    def _copy(self, rest: str) -> None:
        words = self._words(rest)
        if rest.startswith("["):
            try:
                words = json.loads(rest)
            except ValueError:
                self._refuse(f"COPY {rest}: it is no list")
        if len(words) < 2 or any(not isinstance(word, str) for word in words):
            self._refuse(f"COPY {rest}: give sources and a target")
        if words[0].startswith("--"):
            self._refuse(f"COPY {words[0]}: options are not offered")
        *sources, target = words
        folder = target.endswith("/") or target in (".", "./") or len(sources) > 1
        place = _clean(str(PurePosixPath(self.workdir) / target))
        if ".." in target.split("/"):
            self._refuse(f"COPY {rest}: the target has '..'")
        self.require_place(place, self._refuse)
        for source in sources:
            self._copy_one(source, place, folder)

    def _copy_one(self, source: str, place: str, folder: bool) -> None:
        parts = [part for part in source.split("/") if part not in ("", ".")]
        if ".." in parts:
            self._refuse(f"COPY {source}: it has '..'")
        if any(char in source for char in "*?["):
            self._refuse(f"COPY {source}: patterns are not offered")
        path = "/".join(parts)
        if path in self._context:
            self._put(f"{place}/{parts[-1]}" if folder else place, self._context[path])
            return
        prefix = f"{path}/" if path else ""
        below = {name: data for name, data in self._context.items() if name.startswith(prefix)}
        if not below:
            self._refuse(
                f"COPY {source}: there is no such file or folder with files in environment/"
            )
        for name, data in below.items():
            self._put(f"{place}/{name.removeprefix(prefix)}", data)

    def _put(self, path: str, data: bytes) -> None:
        path = _clean(path)
        if path.count("/") < 2:
            self._refuse(f"COPY to {path}: a file at the root is not offered; use a folder")
        self.files[path] = data

    def _words(self, rest: str) -> list[str]:
        try:
            return shlex.split(rest)
        except ValueError as error:
            self._refuse(f"{rest}: {error}")


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """The instructions with their lines: comments are left out, continued lines joined."""
    begun, joined = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if plain.startswith("#") or (not plain and not joined):
            continue
        begun = begun or number
        if plain.endswith("\\"):
            joined += plain[:-1] + " "
            continue
        if joined + plain:
            yield begun, (joined + plain).strip().replace("\t", " ")
        begun, joined = 0, ""
    if joined:
        yield begun, joined.strip()


# -------------------------------------------------------------------------------------------- files


def _tree(root: Path) -> dict[str, bytes]:
    """All files of a folder by relative path.

    Raises:
        DataError: a link, a file of another kind, or too much.
    """
    if not root.is_dir() or root.is_symlink():
        raise DataError(f"{root}: it is no folder of a task")
    tree: dict[str, bytes] = {}
    size = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
        for name in sorted([*folders, *names]):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                raise DataError(f"{path}: a link; a task's folder has regular files alone")
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise DataError(f"{path}: it is no regular file")
            size += path.stat().st_size
            if size > _MOST_BYTES or len(tree) >= _MOST_FILES:
                raise DataError(
                    f"{path}: a task's folder has at most {_MOST_BYTES >> 20} MiB in "
                    f"{_MOST_FILES:,} files here"
                )
            tree[path.relative_to(root).as_posix()] = path.read_bytes()
    return tree


def _text(tree: Mapping[str, bytes], root: Path, name: str) -> str:
    if name not in tree:
        raise DataError(f"{root / name}: there is no such file")
    return _decode(tree[name], root / name)


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: it is no UTF-8: {error}") from None


def _below(tree: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    prefix = folder + "/"
    return {
        name.removeprefix(prefix): data for name, data in tree.items() if name.startswith(prefix)
    }


def _digest(tree: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(tree.items()):
        if name != VALIDATION:
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _clean(path: str) -> str:
    """An absolute path in its shortest form."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
