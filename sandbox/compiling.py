"""From a program to what a box executes; what must be compiled is, in a box of its
own, once for each source."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

from rlvr.sandbox.languages import LANGUAGES, PRECOMPILED, PROGRAM
from rlvr.sandbox.outputs import Output, memfd
from rlvr.sandbox.records import Ending, Limits, Program, Run
from rlvr.sandbox.toolchains import missing, tool_path, tool_version

__all__ = ["Compiler", "Files", "files_of"]

Files: TypeAlias = dict[str, tuple[bytes | Output, int]]
"""name → content and mode."""

_HEADER: Final = "#include <bits/stdc++.h>\n"
# An ending OK: what is interpreted cannot fail to compile.
_NOTHING: Final = Run(Ending.OK)  # to compile
_KEPT_MIB: Final = 256  # of binaries; the least recently used one goes first
_COMPILE: Final = Limits(
    cpu_s=10.0, wall_s=20.0, memory_mib=1024, output_mib=1.0, processes=32, disk_mib=256.0
)
_BROKEN_S: Final = 30.0  # for which a compiler counts as broken; then it is tried again
_SHOWN: Final = 8192  # bytes of what the compiler says


class Compiler:
    """Makes programs ready to execute.  Thread-safe.

    Args:
        execute: runs a header and files in a box; `Sandbox` gives its own method.
        level: a key of `LEVELS`.  Without mounts the caches keep their paths on the host.
        versions: of the interpreter that Python's programs run in, and of packages there.

    Attributes:
        caches: folder inside a slot → folder of the host, for files that compilations share.
    """

    def __init__(
        self,
        execute: Callable[..., Run],
        level: str = "namespaces",
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self._execute, self._versions = execute, dict(versions or {})
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        self._binaries: OrderedDict[str, bytes] = OrderedDict()
        # language → what is wrong with its compiler, and how long that is believed
        self._flaws: dict[str, tuple[str, float]] = {}
        self.caches: Mapping[str, str] = {PRECOMPILED: str(_cache())} if tool_path("cpp") else {}
        # With namespaces a box finds the header at one fixed place; without, at the host's path.
        self._precompiled = (
            # A run without it still works: the compiler passes over a folder that is not there.
            PRECOMPILED if level == "namespaces" else self.caches.get(PRECOMPILED, PRECOMPILED)
        )

    def compiled(
        self, program: Program, cpu_s: float = math.inf, wall_s: float = math.inf
    ) -> tuple[dict[str, object], Files, Run]:
        """Header and files for a box, and the compilation as a run: after CE or IE there is nothing
        to run.

        Args:
            program: in any language.
            cpu_s, wall_s: seconds that compiling may take, if that is less than the language's own
                limits.
        """
        language = program.language
        if language == "python":
            for name, version in self._versions.items():
                sys.audit("rlvr.toolchain", name, lambda version=version: version)
            return (
                {"kind": "script", "main": program.main, "args": list(program.args)},
                files_of(program),
                _NOTHING,
            )
        command = tool_path(language)
        if command is None:
            return {}, {}, Run(Ending.IE, why=str(missing(language)))
        # For who wants to know by what a program was judged, see `rlvr.scoring.watch`.
        tools = [language, "javascript"] if "node" in LANGUAGES[language].run else [language]
        for name in tools:
            sys.audit("rlvr.toolchain", f"toolchain {name}", partial(tool_version, name))
        files, built = files_of(program), _NOTHING
        if LANGUAGES[language].compile:
            binary, built = self._binary(program, files, command, (cpu_s, wall_s))
            files[PROGRAM] = binary, 0o755
        argv = [*self._fill_command(LANGUAGES[language].run, command, program), *program.args]
        return {"kind": "exec", "argv": argv, "env": dict(LANGUAGES[language].env)}, files, built

    def _binary(
        self, program: Program, files: Files, command: str, most_s: tuple[float, float]
    ) -> tuple[bytes, Run]:
        main = _sources(program)
        argv = self._fill_command(LANGUAGES[program.language].compile, command, program)
        # What the command line names is read when it runs: a checker is compiled once, not for each
        # output.
        read = {
            name: file for name, file in files.items() if name not in program.args or name in main
        }
        key = _digest(argv, {name: content for name, (content, _) in read.items()})
        # A lock per source: other sources compile meanwhile.
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:  # the cases of a problem come together, and one compilation suffices
            with self._guard:
                # Asked again under the lock: another thread may have compiled it meanwhile.
                if (binary := self._binaries.get(key)) is not None:
                    self._binaries.move_to_end(key)
                    return binary, _NOTHING
            if any("bits/stdc++.h" in str(program.files[name]) for name in main):
                self._precompile(command)
            # The caller's remaining time limits the compiler too, so a case cannot outlast its
            # problem.
            compiled, built = self._compile(program.language, argv, read, PROGRAM, most_s)
            if built.ending is Ending.OK:
                self._keep(key, compiled)
            # A compiler that is broken refuses right programs too: that is our fault, not a CE.
            elif built.ending is Ending.CE and (
                broken := self._why_broken(program.language, command)
            ):
                built = Run(Ending.IE, why=broken)
        # Threads that wait hold the lock itself; a later caller finds the binary, or compiles anew.
        with self._guard:
            self._locks.pop(key, None)
        return compiled, built

    def _fill_command(self, words: tuple[str, ...], command: str, program: Program) -> list[str]:
        """A command line of the table of languages, with its places filled."""
        standard = LANGUAGES[program.language].standard
        places = {
            "{tool}": command,
            "{main}": program.main,
            "{entry}": program.entry,
            PRECOMPILED: self._precompiled,
        }
        folder = command.rpartition("/")[0]
        line: list[str] = []
        for word in words:
            if word == "{sources}":
                line += [f"./{name}" for name in _sources(program)]  # "-o.cpp" would be an option
            else:
                word = word.replace("{folder}", folder).replace("{standard}", standard)
                line.append(places.get(word, word))
        return line

    def _why_broken(self, language: str, command: str) -> str:
        """What is wrong with the compiler if it cannot compile even the smallest program; "" if
        nothing is."""
        flaw, until = self._flaws.get(language, ("", 0.0))
        if monotonic() < until:
            return flaw
        smallest = Program(language, LANGUAGES[language].least)
        argv = self._fill_command(LANGUAGES[language].compile, command, smallest)
        built = self._compile(language, argv, files_of(smallest), PROGRAM)[1]
        if built.ending is Ending.IE:
            return built.why  # a passing failure of ours, not the compiler's
        # It compiles here, so this is believed for the life of the process.
        if built.ending is Ending.OK:
            self._flaws[language] = "", math.inf
            return ""
        message = built.stderr.decode("utf-8", "replace").strip() or built.why
        flaw = f"{command} compiles nothing here: {message}"
        self._flaws[language] = flaw, monotonic() + _BROKEN_S
        return flaw

    def _compile(
        self,
        language: str,
        argv: list[str],
        files: Files,
        result: str,
        most_s: tuple[float, float] = (math.inf, math.inf),
    ) -> tuple[bytes, Run]:
        limits = dataclasses.replace(_COMPILE, **LANGUAGES[language].limits)
        limits = limits.within(*most_s)
        cpu_s, wall_s = limits.cpu_s, limits.wall
        # The compiler's result comes out through a memfd, since a box has no folder of the host's.
        artifact = memfd(b"")
        try:
            env = dict(LANGUAGES[language].env)
            header = {"kind": "exec", "argv": argv, "env": env, "collect": result}
            run = self._execute(header, files, b"", limits, fds={"artifact": artifact})
            size = os.fstat(artifact).st_size
            if run.ending is Ending.OK and size:
                return os.pread(artifact, size, 0), run
        finally:
            os.close(artifact)
        if run.ending is Ending.IE:
            return b"", run
        # A source can make a compiler sleep: gcc reads its own pipe at #include "/proc/self/fd/1".
        if run.ending is Ending.TLE and run.cpu_s < cpu_s / 2 and run.starved_s >= wall_s:
            return b"", Run(Ending.IE, why="this machine was too busy to compile it in time")
        why = (
            "it does not compile"
            if run.ending is Ending.RE
            else f"its compilation ended {run.ending}"
        )
        return b"", Run(
            Ending.CE,
            why=why,
            errors=Output(run.errors.head(_SHOWN)),
            cpu_s=run.cpu_s,
            wall_s=run.wall_s,
        )

    def _keep(self, key: str, binary: bytes) -> None:
        with self._guard:
            self._binaries[key] = binary
            # Summed anew only after a compilation, which takes far longer.
            while sum(map(len, self._binaries.values())) > _KEPT_MIB << 20:
                self._binaries.popitem(last=False)

    def _precompile(self, command: str) -> None:
        """<bits/stdc++.h> once for this compiler: 2 seconds of each compilation otherwise."""
        done = _cache() / "bits" / "stdc++.h.gch"
        with _precompiling:
            if done.exists():
                return
            # GCC takes a precompiled header only where the flags agree with those of the
            # compilation.
            argv = [command, *_flags(), "-x", "c++-header", "-o", "made.gch", "all.h"]
            header, built = self._compile(
                "cpp", argv, {"all.h": (_HEADER.encode(), 0o644)}, "made.gch"
            )
            if built.ending is Ending.OK:  # else compilations are slow, no more
                # Written beside and renamed: another process never finds half a header.
                done.parent.mkdir(exist_ok=True)
                part = done.with_suffix(f".{os.getpid()}")
                part.write_bytes(header)
                part.chmod(0o644)
                part.replace(done)


_precompiling = threading.Lock()


def _sources(program: Program) -> list[str]:
    """The files that are compiled."""
    return sorted(
        name for name in program.files if name.endswith(LANGUAGES[program.language].sources)
    )


def _flags() -> list[str]:
    """What a header must be compiled with to fit."""
    row = LANGUAGES["cpp"]
    words = [word.replace("{standard}", row.standard) for word in row.compile]
    return [word for word in words if word.startswith(("-std", "-O", "-pipe", "-f"))]


def files_of(program: Program) -> Files:
    """The files of a program, with the mode in which a box writes them.

    Args:
        program: in any language.
    """
    return {name: (content, 0o644) for name, content in program.contents().items()}


def _digest(argv: list[str], files: Mapping[str, bytes | Output]) -> str:
    digest = hashlib.sha256(repr(argv).encode())
    for name, content in sorted(files.items()):
        # An `Output` is a memfd of the host's, which is read only here.
        content = content if isinstance(content, bytes) else content.read()
        digest.update(repr((name, len(content))).encode() + content)
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _cache() -> Path:
    """A folder for this compiler that belongs to this user: no other user may put a header
    there."""
    command = tool_path("cpp") or ""
    # Another version of the compiler passes over this one's header, so the version is in the key.
    key = _digest([command, *_flags()], {"version": tool_version("cpp").encode()})[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        folder = base / "rlvr" / f"cpp-{key}"
        folder.mkdir(parents=True, exist_ok=True)
        # The owner of the folder decides what every C++ program includes.
        if folder.stat().st_uid != os.geteuid():
            raise PermissionError
    except (OSError, RuntimeError):
        folder = Path(tempfile.mkdtemp(prefix="rlvr-cpp-"))
    folder.chmod(0o755)  # the slot's own user has to look into it
    return folder
