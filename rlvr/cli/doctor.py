"""What this machine has, what is missing, and how to get it."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from rlvr.environment.registry import environment_ids, load
from rlvr.errors import RlvrError, WorkerError, WorkerTimeout
from rlvr.workers import Handler, WorkerPool, usable_cores

__all__ = ["Finding", "examine"]

_CORE = ("cloudpickle", "datasets", "math-verify", "numpy", "rich", "sympy", "tyro")
_EXTRAS = {
    "train": ("torch", "transformers", "safetensors", "tensorboard"),
    "vllm": ("vllm",),
    "serve": ("fastapi", "uvicorn"),
    "puzzles": ("reasoning-gym",),
    "ray": ("ray",),
    "gym": ("gymnasium",),
    "language": ("py3langid",),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.  `ok` is None for an optional part that is absent."""

    what: str
    ok: bool | None
    detail: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Look at versions, then try what matters: starting, killing and limiting a worker, and every environment."""
    yield Finding("python", True, f"{platform.python_version()} on {platform.system()} {platform.release()}")
    yield Finding("cores", True, f"{usable_cores()} of {os.cpu_count()} usable")
    yield Finding("memory", True, f"{_memory_mib()} MiB")
    for package in ("rlvr", *_CORE):
        found = _version(package)
        yield Finding(package, found is not None, found or "missing", "" if found else "pip install rlvr")
    for extra, packages in _EXTRAS.items():
        for package in packages:
            found = _version(package)
            remedy = "" if found else f"pip install 'rlvr[{extra}]'"
            yield Finding(f"{package} ({extra})", True if found else None, found or "not installed", remedy)
    yield from _workers()
    yield from _sandbox()
    for name in environment_ids():
        try:
            load(name)
            yield Finding(f"environment {name}", True, "loads")
        except Exception as error:  # noqa: BLE001  a plugin may raise anything; the report goes on
            yield Finding(
                f"environment {name}", False, f"{type(error).__name__}: {error}", "mend or uninstall its package"
            )


def _workers() -> Iterator[Finding]:
    """The guarantees of `rlvr.workers`, each found by trying."""
    with WorkerPool(_trial, memory_mib=512, quiet=True) as pool:
        try:
            pool.warm()
        except RlvrError as error:
            yield Finding(
                "workers start", False, str(error), "see the error; workers run this Python with this sys.path"
            )
            return
        yield Finding("workers start", True, "ready")
        [hang] = pool.run(["hang"], wall_s=10.0, cpu_s=0.2)
        by = "CPU time" if "CPU" in str(hang) else "wall time alone, so a loaded machine may cut items short"
        killed = isinstance(hang, WorkerTimeout)
        yield Finding("a hang is killed", killed, f"by {by}" if killed else str(hang))
        [hoard] = pool.run(["hoard"], wall_s=10.0)
        if isinstance(hoard, WorkerError) and hoard.kind == "MemoryError":
            yield Finding("memory is limited", True, "1 GiB refused under a limit of 512 MiB")
        else:
            yield Finding(
                "memory is limited", None, "not on this system", "use Linux; elsewhere an item may fill memory"
            )


def _sandbox() -> Iterator[Finding]:
    """What the sandbox promises here, found by trying to break out; and which languages run in it, by running them."""
    from rlvr.sandbox import Ending, Limits, Sandbox
    from rlvr.sandbox.toolchains import GREETINGS, missing, tool

    with contextlib.closing(Sandbox(workers=1, limits=Limits(memory_mib=1024))) as sandbox:
        guarantees = sandbox.check()
        for g in guarantees:
            found = g.mechanism or f"MISSING: {g.found}"
            yield Finding(f"sandbox: {g.name}", g.mechanism is not None, found, "" if g.mechanism else g.remedy)
        if not all(g.mechanism for g in guarantees):
            return
        for program in GREETINGS:
            language = program.language
            if language != "python" and tool(language) is None:
                yield Finding(f"sandbox runs {language}", None, "no", missing(language))
                continue
            run = sandbox.run(program)
            ok = run.ending is Ending.OK
            yield Finding(
                f"sandbox runs {language}",
                ok,
                run.text.strip() if ok else f"{run.ending} {run.why} {run.stderr[-200:].decode(errors='replace')}",
                "" if ok else "see docs/reference/sandbox.md, 'What the host needs'",
            )


def _trial() -> Handler:
    def act(what: str) -> int:
        while what == "hang":
            pass
        return len(bytearray(1 << 30))

    return act


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
