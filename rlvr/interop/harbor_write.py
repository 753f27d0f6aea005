"""Our environments as task folders of harbor, schema 1.4, whose tests run apart from the policy.

    environment/Dockerfile    a plain Python, with the files that the task begins with in /app
    solution/solve.sh         the environment's own example
    tests/test.sh             grade.py, with what of rlvr the verdict needs in rlvr.zip: nothing is
                              installed

`[verifier] environment_mode = "separate"` and `artifacts` say that the tests see a copy of /app and
nothing else of the policy's container.  They read files as data, and import none of them.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import re
import shlex
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rlvr.environment import Environment
from rlvr.episode import Ask
from rlvr.errors import DataError, UsageError
from rlvr.interop.adapter import finite_tasks, task_as_json
from rlvr.interop.harbor_validation import validate_harbor
from rlvr.text import prompt_text
from rlvr.types import Task

__all__ = ["to_harbor"]

_APP: Final = "/app"
_REPLY: Final = "reply.txt"
_ROOMS: Final = (
    "rlvr rlvr.data rlvr.environment rlvr.rewards rlvr.scoring rlvr.workers "
    "rlvr.environment.ready_tools rlvr.envs rlvr.sandbox rlvr.sandbox.guest rlvr.sandbox.languages "
    "rlvr.verifiers rlvr.verifiers.code rlvr.verifiers.instructions rlvr.verifiers.math "
    "rlvr.verifiers.math.latex docstring_parser"
).split()
_ASK: Final = f"\n\nWrite your reply to {_APP}/{_REPLY}, and nothing else: that file is judged.\n"

_TOML: Final = """schema_version = "1.4"
artifacts = [{artifacts}]

[task]
name = "rlvr/{name}"
description = {description}

[agent]
timeout_sec = {seconds}
network_mode = "no-network"

[verifier]
timeout_sec = 120.0
environment_mode = "separate"
network_mode = "no-network"

[environment]
network_mode = "no-network"
"""

_TEST: Final = """#!/bin/bash
# -I: no file, variable or start-up code of anybody else is read by this interpreter
python3 -I /tests/grade.py
"""

_GRADE: Final = '''"""Judge what was left in /app by the task's own environment.

Files are read and never imported.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, "/tests/rlvr.zip")
from rlvr.types import Completion, Task  # noqa: E402
from rlvr.episode import EpisodeRecord  # noqa: E402

APP, MOST = Path("/app"), 16 << 20
TESTS = Path(__file__).resolve().parent


class Files:
    """What a session or a box gives: the regular files below /app, without links."""

    def __init__(self):
        paths = [p for p in sorted(APP.rglob("*")) if p.is_file() and not p.is_symlink()]
        sizes = [p.stat().st_size for p in paths]
        self.files = {} if sum(sizes) > MOST else {
            p.relative_to(APP).as_posix(): p.read_bytes() for p in paths
        }

    def read(self, path):
        return self.files.get(path)

    def text(self, path):
        try:
            return self.files[path].decode()
        except (KeyError, UnicodeDecodeError):
            return None


def main():
    made = json.loads((TESTS / "task.json").read_text())
    env = getattr(import_module(made["module"]), made["name"])(**made["config"])
    task = Task(**made["task"])
    files = Files()
    if made["reads_end"]:
        final = getattr(env, made["reads_end"])(task, files)
        completion = env.completion_of(EpisodeRecord((), "answer", json.loads(json.dumps(final))))
    else:
        completion = Completion(files.text(made["reply"]) or "")
    score = env.score(task, completion)
    if score.total is None:
        # no reward is written: an error, never 0
        raise SystemExit(f"unscored: {score.verdict.why}")
    print(score.verdict.outcome.value, score.verdict.why)
    Path("/logs/verifier/reward.json").write_text(json.dumps({"reward": score.total}))


main()
'''


def to_harbor(
    env: Environment,
    path: str | Path,
    *,
    tasks: int | None = None,
    seconds: float = 600.0,
    validate: bool = True,
) -> list[Path]:
    """Write tasks as folders that harbor, and whatever reads its folders, can run.

    Args:
        env: of one reply, which the policy then writes to a file; or with a bash session whose
            files are judged, by `final` or by a `grade` that reads them.
        path: a new or empty folder.
        tasks: number of tasks; None for all of a finite split.
        seconds: that a policy may take.
        validate: run each folder's solution and an empty hand here, see `validate_harbor`.

    Returns:
        The folders, one for each task.

    Raises:
        UsageError: the environment is none of these, or the folder has files.
        DataError: a folder that was written does not earn 1 by its solution and 0 by doing nothing.
    """
    root = Path(path)
    if root.exists() and any(root.iterdir()):
        raise UsageError(f"{root} has files; give a new folder")
    parts = _archive(env)
    written: list[Path] = []
    for number, task in enumerate(finite_tasks(env, tasks)):
        slug = re.sub(r"[^a-z0-9]+", "-", task.id.lower()).strip("-")[:60] or "task"
        folder = root / f"{number:04d}-{slug}"
        _write(folder, {**_files(env, task, seconds, folder.name), "tests/rlvr.zip": parts})
        written.append(folder)
    if validate:
        _require_valid(root)
    return written


def _files(env: Environment, task: Task, seconds: float, name: str) -> dict[str, str | bytes]:
    """The folder's files but the archive."""
    left = _folder_left(env, task) if env.plays.reads_end else _reply_left(env, task)
    copied = {f"environment/app/{place}": data for place, data in left.begun.items()}
    image = [f"FROM python:{sys.version_info[0]}.{sys.version_info[1]}-slim", f"WORKDIR {_APP}"]
    image += [f"COPY app/ {_APP}/"] if copied else []
    module, kind = _class_of(env)
    task_file = {
        "module": module,
        "name": kind,
        "config": _config(env),
        "task": json.loads(task_as_json(task)),
        "reply": _REPLY,
        "reads_end": env.plays.reads_end,
    }
    prompt = prompt_text(task.prompt)
    toml = _TOML.format(
        artifacts=json.dumps(left.artifacts),
        name=name,
        description=json.dumps(f"{task.id} of {env.id}"),
        seconds=float(seconds),
    )
    return {
        "task.toml": toml,
        "instruction.md": prompt + left.ask,
        "environment/Dockerfile": "\n".join([*image, ""]),
        **copied,
        "solution/solve.sh": "#!/bin/bash\n" + left.solution,
        "tests/test.sh": _TEST,
        "tests/grade.py": _GRADE,
        "tests/task.json": json.dumps(task_file, ensure_ascii=False, indent=1),
    }


@dataclass(frozen=True)
class _Left:
    """What a policy begins with and leaves.

    Attributes:
        artifacts: where it is, for harbor.
        ask: what the instruction says of it.
        solution: commands that leave what the environment's example would.
        begun: files that are there as it begins.
    """

    artifacts: str
    ask: str
    solution: str
    begun: Mapping[str, bytes] = field(default_factory=dict)


def _reply_left(env: Environment, task: Task) -> _Left:
    """One reply, in a file."""
    reply = env.example(task)
    if reply is None:
        raise UsageError(f"{env.id} has no example reply to {task.id!r}; define example(task)")
    return _Left(f"{_APP}/{_REPLY}", _ASK, f"printf %s {shlex.quote(reply)} > {_APP}/{_REPLY}\n")


def _folder_left(env: Environment, task: Task) -> _Left:
    """The files of a session."""
    with env.open(task) as episode:
        if set(episode.tools) != {"bash"}:
            raise UsageError(
                f"{env.id} cannot be such a folder: it needs one reply, or a bash session alone, "
                f"and has the tools "
                f"{', '.join(episode.tools) or 'none'}"
            )
        begun = episode.files()
    _require_reads(env, task, begun)
    turns = env.example_episode(task)
    if turns is None:
        raise UsageError(f"{env.id} has no example of {task.id!r}; define example_episode(task)")
    commands = [turn.arguments.get("command") for turn in turns if isinstance(turn, Ask)]
    if not all(isinstance(command, str) for command in commands):
        raise UsageError(f"the example of {task.id!r} calls a tool without a command")
    solution = "".join(f"cd {_APP}\n{command}\n" for command in commands)
    return _Left(_APP, f"\n\nThe folder is {_APP}.\n", solution, begun)


class _OnlyFiles:
    """A session or a box as a container of harbor's has it: files, and
    no sandbox to run them in."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def text(self, path: str) -> str | None:
        return self.files[path].decode("utf-8", "replace") if path in self.files else None


def _require_reads(env: Environment, task: Task, files: Mapping[str, bytes]) -> None:
    """Refuse a judgement that runs code, for which it would need our sandbox within a container."""
    try:
        getattr(env, env.plays.reads_end)(task, _OnlyFiles(files))
    except AttributeError as error:
        raise UsageError(
            f"{env.id} cannot be such a folder: its {env.plays.reads_end} runs code ({error}), "
            "and a container of harbor's offers files alone"
        ) from None


def _class_of(env: Environment) -> tuple[str, str]:
    """Where the class of an environment is, for an interpreter that has the archive."""
    kind = type(env)
    if "<locals>" in kind.__qualname__:
        raise UsageError(f"{kind.__name__} is defined in a function; define it in a module")
    is_bundled = kind.__module__.startswith("rlvr.envs")
    return (kind.__module__ if is_bundled else "rlvr_task_env"), kind.__qualname__


def _config(env: Environment) -> Mapping[str, object]:
    try:
        json.dumps(env.config)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{env.id}: its options cannot be written as JSON: {error}") from None
    return env.config


def _archive(env: Environment) -> bytes:
    """What of rlvr a verdict may need, and the environment's own module."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for room in _ROOMS:  # one without __init__.py is found by an entry of its own
            archive.writestr(zipfile.ZipInfo(room.replace(".", "/") + "/"), b"")
        for path, name in sorted(set(_sources())):
            entry = zipfile.ZipInfo(name)  # without a time: the same task gives the same bytes
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
        if _class_of(env)[0] == "rlvr_task_env":
            source = inspect.getsourcefile(type(env))
            if source is None or not Path(source).is_file():
                raise UsageError(f"{type(env).__name__} has no source file; define it in a module")
            archive.writestr(zipfile.ZipInfo("rlvr_task_env.py"), Path(source).read_bytes())
    return buffer.getvalue()


def _sources() -> Iterator[tuple[Path, str]]:
    """The Python files of the rooms, and the names that they have in the archive."""
    for room in _ROOMS:
        inside = room.replace(".", "/")
        for folder in _places(room):
            for path in sorted(Path(folder).glob("*.py")):
                yield path, f"{inside}/{path.name}"
            for path in sorted(Path(folder).glob("*.json")):
                yield path, f"{inside}/{path.name}"


def _places(room: str) -> Iterable[str]:
    module = importlib.import_module(room)
    if module.__file__ is not None:
        return (str(Path(module.__file__).parent),)
    return tuple(module.__path__)


def _write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        if name.endswith(".sh"):
            path.chmod(0o755)


def _require_valid(root: Path) -> None:
    faults: Sequence[str] = [why for why in validate_harbor(root).values() if why]
    if faults:
        raise DataError(f"{len(faults)} folders do not validate: {'; '.join(faults[:3])}")
