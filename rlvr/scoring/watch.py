"""What judging code reads beside its arguments: files that it opens, variables, modules
that it imports by name.

Python reports every opened file to an audit hook; variables are noticed where `os.environ` is read.
Only digests are kept, never what stood there.  What native code reads by itself (other than
SQLite's databases) is not noticed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rlvr.scoring.code_files import digest, is_installed, is_library, module_version
from rlvr.scoring.held_values import vars_of

__all__ = ["Noticed", "ReadsWatch", "watch_of_process"]

Noticed = dict[str, dict[str, str]]
"""{"code": {module: digest}, "inputs": {file or $VARIABLE: digest}}: two of the parts of an
identity; and "written": files that judging wrote itself, which are no inputs."""

_WHOLE_BYTES: Final = 64 << 20  # of a larger file, pieces from end to end are read
# Long enough that a disk reads it in one go; 64 of them find any change but one that keeps the
# size and lies between two pieces.
_PIECE_BYTES: Final = 1 << 20
_SYSTEM: Final = (
    "/proc/",
    "/sys/",
    "/dev/",
    "/etc/",
    "/usr/bin/",
    "/usr/lib",
    "/bin/",
    "/usr/share/zoneinfo",
    "/lib",
)
_OF_A_LOGIN: Final = frozenset(
    "COLUMNS CUDA_VISIBLE_DEVICES DISPLAY EDITOR HOME HOSTNAME LANG LINES LOGNAME MAIL OLDPWD "
    "OMP_NUM_THREADS PATH PS1 PWD PYTHONHASHSEED PYTHONPATH SHELL SHLVL TERM TMPDIR TZ USER "
    "VIRTUAL_ENV _".split()
)
"""Variables that say where, and as whom, a process runs; they may differ between machines."""

_PROGRAM_EVENTS: Final = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
_EVENTS: Final = (
    *("open", "sqlite3.connect", "ctypes.dlopen", "rlvr.toolchain"),
    *_PROGRAM_EVENTS,
)
_IMPORTING: Final = "<frozen importlib._bootstrap_external>"
_ENVIRON_CODE: Final = (
    *("<frozen os>", "<frozen _collections_abc>", "<frozen posixpath>"),
    *(os.__file__, os.path.__file__),
)
_LOOKUPS: Final = frozenset(("get", "getenv", "__contains__", "setdefault", "pop", "expandvars"))


class ReadsWatch:
    """What was read in this process while it was on.  There is one, since an
    audit hook stays for ever."""

    def __init__(self) -> None:
        self._on = 0
        self._new: Noticed = {}
        self._states: dict[str, tuple[int, ...]] = {}
        self._variables: dict[str, str] = {}
        self._toolchains: dict[str, str] = {}
        self._written: set[str] = set()  # here, and what other workers have listed
        self._list: int | None = None
        self._read = 0  # bytes of the list
        self._since = time.time()
        self._modules: set[str] = set()
        self._imports: dict[str, str] = {}  # files of code that was loaded → names of its modules
        self._local = threading.local()
        self._lock = threading.Lock()
        self._is_installed = False

    def start(self, since: float | None = None, written: int | None = None) -> None:
        """Begin to look, for good: in a worker process.

        Args:
            since: when the run began; temporary files that have changed since are its own.
            written: descriptor of a file, open for appending, in which all workers list what they
                write.
        """
        with self._lock:
            self._list = written
            if written is not None:
                os.set_inheritable(written, False)  # not for programs that a verifier may start
            self._since = self._since if since is None else since
            self._on += 1
            if not self._is_installed:
                self._is_installed = True
                # Loaded before: part of the interpreter, not of the judging.
                self._modules = set(sys.modules)
                # An audit hook cannot be taken out again.
                sys.addaudithook(self._hear)
                _notice_lookups(self._look_up)

    def __enter__(self) -> ReadsWatch:
        """Look meanwhile: in the process of a caller."""
        self.start()
        if len(sys.modules) != len(self._modules):
            self._modules = set(sys.modules)  # what others have loaded is not ours
        return self

    def __exit__(self, *exc: object) -> None:
        self._on -= 1

    def forget(self) -> None:
        """Begin a run in the process of a caller: what an earlier one has read is news for it."""
        self._states.clear()
        self._variables.clear()
        self._toolchains.clear()

    def take(self) -> Noticed:
        """What was noticed since the last call; empty if nothing was."""
        # By their number: this is asked after every item.
        if len(sys.modules) != len(self._modules):
            self._look_at_modules()
        if self._imports:
            self._look_at_imports()
        if not self._new:
            return self._new
        with self._lock:
            noticed, self._new = self._new, {}
        return noticed

    def _look_at_modules(self) -> None:
        loaded = set(sys.modules)
        self._local.busy = True  # with reading files itself
        try:
            versions = [module_version(name) for name in sorted(loaded - self._modules)]
        finally:
            self._local.busy = False
        for version in versions:
            if version is not None:
                self._note("code", *version)
        self._modules = loaded

    def _look_at_imports(self) -> None:
        """A module that was loaded from a path, and is not kept under its name, is an input."""
        imports, self._imports = self._imports, {}
        self._local.busy = True  # as above
        try:
            for path, name in imports.items():
                if vars_of(name).get("__file__") != path:
                    self._opened(path, os.O_RDONLY)
        finally:
            self._local.busy = False

    def _note(self, part: str, name: str, value: str) -> None:
        with self._lock:
            self._new.setdefault(part, {})[name] = value

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        # The cheapest test first: Python reports every opened file.
        if not self._on or event not in _EVENTS or getattr(self._local, "busy", False):
            return
        # What the hook itself opens must not call it again.
        self._local.busy = True
        try:
            if event == "rlvr.toolchain":
                self._note_toolchain(*args)
            elif event in _PROGRAM_EVENTS:
                if _is_own_code(_caller_of_library(sys._getframe(1))):
                    self._note_program(args)
            elif event == "ctypes.dlopen" and os.sep not in os.fsdecode(args[0]):
                pass  # a library of the system
            elif (opener := sys._getframe(1)).f_code.co_filename != _IMPORTING:
                self._opened(args[0], args[2] if event == "open" else os.O_RDONLY)
            elif opener.f_code.co_name == "get_data":
                self._read_by_loader(args[0], opener.f_back)
        except (OSError, ValueError, TypeError):  # a path that is none: the caller gets the error
            pass
        finally:
            self._local.busy = False

    def _read_by_loader(self, path: Any, caller: FrameType | None) -> None:
        """Modules are looked at by name, so that the file of one is no input; what stands beside it
        is one."""
        if caller is None or caller.f_code.co_filename != _IMPORTING:
            self._opened(path, os.O_RDONLY)  # by `pkgutil.get_data`
        # importlib reads a module's source or its cached bytecode.
        elif caller.f_code.co_name == "get_code":
            source = caller.f_locals.get("source_path") or os.fsdecode(path)
            self._imports[source] = caller.f_locals["fullname"]

    def _note_toolchain(self, name: str, ask: Callable[[], str]) -> None:
        version = ask()
        if self._toolchains.get(name) != version:
            self._toolchains[name] = version
            self._note("code", name, version)

    def _note_program(self, args: tuple[Any, ...]) -> None:
        """Note a program of one's own, and the script that an interpreter runs."""
        words = args[1] if len(args) > 1 else args[0]
        if isinstance(words, (str, bytes)):
            words = shlex.split(os.fsdecode(words))
        words = [os.fsdecode(word) for word in words]
        if words[1:2] == ["-c"]:  # by a shell
            words = shlex.split(" ".join(words[2:]))
        folder = args[2] if len(args) > 2 and isinstance(args[2], (str, Path)) else "."
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        program = shutil.which(words[0]) or words[0] if words else ""
        for name in (program, script):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                self._opened(path, os.O_RDONLY)

    def _opened(self, given: Any, flags: int) -> None:
        if isinstance(given, int):
            return
        path = os.path.abspath(os.fsdecode(given))
        if path.startswith(_SYSTEM) or is_installed(path):
            return
        # Opened to be written: it is no input, whatever is read of it later.
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._list_written(path)
            return
        if path in self._written:
            return
        try:
            status = os.stat(path)
        except FileNotFoundError:
            self._note("inputs", _name_of(path), "absent")
            return
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        is_new = path not in self._states and status.st_mtime > self._since
        if (
            # Made by this run, in the folder for such files.
            (is_new and path.startswith(_scratch()))
            or not stat.S_ISREG(status.st_mode)
            or self._states.get(path) == state
        ):
            return
        self._states[path] = state
        file_digest = _digest_of_file(path, status.st_size)
        # Another worker may have written it meanwhile.
        self._read_list()
        if path not in self._written:
            self._note("inputs", _name_of(path), file_digest)

    def _list_written(self, path: str) -> None:
        """Note a file of its own, such as a cache, before it is there, so that no worker takes it
        for an input."""
        if path in self._written:
            return
        self._written.add(path)
        self._note("written", _name_of(path), "")
        if self._list is not None:
            os.write(self._list, os.fsencode(path) + b"\0")

    def _read_list(self) -> None:
        if self._list is None:
            return
        listed = os.pread(self._list, os.fstat(self._list).st_size - self._read, self._read)
        # The last path may still be being written.
        ended = listed[: listed.rfind(b"\0") + 1]
        self._read += len(ended)
        self._written.update(map(os.fsdecode, ended.split(b"\0")[:-1]))

    def _look_up(self, name: str, value: str | None) -> None:
        if not self._on or name in _OF_A_LOGIN or name.startswith(("LC_", "SSH_", "XDG_")):
            return
        value_digest = (
            "unset" if value is None else digest(value.encode("utf-8", "surrogateescape"))
        )
        if self._variables.get(name) != value_digest:
            self._variables[name] = value_digest
            self._note("inputs", f"${name}", value_digest)


@cache
def watch_of_process() -> ReadsWatch:
    """The watch of this process."""
    return ReadsWatch()


def _notice_lookups(note: Callable[[str, str | None], None]) -> None:
    """Have each variable noted that own code asks for by name; copies of all of them are not
    noted."""
    kind = type(os.environ)
    read, list_names = kind.__getitem__, kind.keys
    copying: list[tuple[int, int]] = [(0, 0)]  # where the names were last asked for

    def noticing(self: Any, key: Any) -> Any:
        try:
            value = read(self, key)
        except KeyError:
            value = None
            raise
        finally:
            frame = sys._getframe(1)
            is_copy = copying[0] == (id(frame), frame.f_lasti)
            if isinstance(key, (str, bytes)) and not is_copy and _is_read_by_own_code(frame):
                note(os.fsdecode(key), None if value is None else os.fsdecode(value))
        return value

    def names(self: Any) -> Any:
        frame = sys._getframe(1)
        copying[0] = (id(frame), frame.f_lasti)
        return list_names(self)

    kind.__getitem__ = noticing  # type: ignore[method-assign]
    # On the class: `os.environ` itself is bound in many modules.
    kind.keys = names  # type: ignore[method-assign]


def _is_read_by_own_code(frame: FrameType | None) -> bool:
    """Whether code that is neither Python's, a package's nor rlvr's asks for one variable."""
    while frame is not None and frame.f_code.co_filename in _ENVIRON_CODE:
        if frame.f_code.co_name not in _LOOKUPS:
            return False
        frame = frame.f_back
    return _is_own_code(frame)


def _caller_of_library(frame: FrameType | None) -> FrameType | None:
    """The frame that called Python's library."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _is_own_code(frame: FrameType | None) -> bool:
    """Whether a frame is of code that is neither Python's, a package's nor rlvr's."""
    if frame is None or frame.f_globals.get("__name__", "").startswith("rlvr."):
        return False
    path = frame.f_code.co_filename
    return not (path.startswith("<frozen") or is_installed(path))


@cache
def _scratch() -> str:
    return os.path.abspath(tempfile.gettempdir()) + os.sep


def _name_of(path: str) -> str:
    """A name of a file that is the same in another copy of the folder that it belongs to."""
    import rlvr

    for package in ("rlvr", "rlvr.envs", "rlvr.verifiers", "rlvr.sandbox"):
        for folder in getattr(sys.modules.get(package, rlvr), "__path__", ()):
            if path.startswith(folder + os.sep):
                return f"{package}/{path[len(folder) + 1 :]}"
    roots = [
        os.path.abspath(root) for root in (*sys.path, os.getcwd()) if os.path.isdir(root or ".")
    ]
    # The longest root: it is the nearest folder of the user's.
    inside = [root for root in roots if path.startswith(root + os.sep)]
    return os.path.relpath(path, max(inside, key=len)) if inside else path


def _digest_of_file(path: str, size: int) -> str:
    with open(path, "rb", buffering=0) as file:
        if size <= _WHOLE_BYTES:
            return digest(file.read())
        step = size // (_WHOLE_BYTES // _PIECE_BYTES)
        pieces = []
        for start in range(0, size, step):
            file.seek(start)
            pieces.append(file.read(_PIECE_BYTES))
        # With the size, or a longer file could have the same pieces.
        return digest(b"%d:%b" % (size, b"".join(pieces)))
