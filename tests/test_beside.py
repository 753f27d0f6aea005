"""Threads, programs, forks and executors are started in `rlvr.workers`, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STARTERS = {
    *("Popen", "Thread", "Timer", "start_new_thread", "Process", "fork", "forkpty", "posix_spawn"),
    *("posix_spawnp", "system", "popen", "create_subprocess_exec", "create_subprocess_shell"),
    *("ThreadPoolExecutor", "ProcessPoolExecutor", "run_in_executor", "subprocess.run"),
    *("subprocess.call", "subprocess.check_call", "subprocess.check_output"),
}
# the supervisor; and what runs on the guest's side of the sandbox
LEFT_OUT = ("rlvr/workers/", "sandbox/guest/")
REASONS = {
    ("rlvr/display.py", "Timer"): "of the ground, below the workers; ends after five seconds",
}


def test_work_beside_the_caller_is_started_in_one_room():
    """What is started elsewhere is in no table, and decides by itself how it ends."""
    places = {
        (path.relative_to(ROOT).as_posix(), name)
        for top in ("rlvr", "envs", "verifiers", "sandbox", "recipes")
        for path in (ROOT / top).rglob("*.py")
        if not path.relative_to(ROOT).as_posix().startswith(LEFT_OUT)
        for name in started(path.read_text(encoding="utf-8"))
    }
    assert places - REASONS.keys() == set(), "start it by rlvr.workers"
    assert REASONS.keys() - places == set(), "no longer in the code"


def test_each_way_to_start_something_is_seen():
    """By call, by subclass, under a module's name or its own; not `to_thread`, which is the loop's,
    nor a method of the same name."""
    code = """
threading.Thread(target=f).start()
class Watcher(Thread): pass
subprocess.run(["x"])
os.fork()
fork()
with ThreadPoolExecutor(1): pass
await loop.run_in_executor(None, f)
asyncio.to_thread(f)
sandbox.run(f)
env.system()
"""
    names = ["Thread", "Thread", "subprocess.run", "fork", "fork", "ThreadPoolExecutor"]
    assert sorted(started(code)) == sorted([*names, "run_in_executor"])


LAST_NAMES = {starter.rpartition(".")[2] for starter in STARTERS}
MODULES = {"os", "threading", "subprocess", "asyncio", "multiprocessing", "concurrent", "_thread"}


def started(code: str) -> Iterator[str]:
    """The names by which something is started."""
    if not any(starter in code for starter in STARTERS):
        return  # parsing takes most of the time
    for node in ast.walk(ast.parse(code)):
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        bases = [base.value if isinstance(base, ast.Subscript) else base for base in bases]
        for named in [node.func] if isinstance(node, ast.Call) else bases:
            if getattr(named, "attr", getattr(named, "id", "")) not in LAST_NAMES:
                continue
            *places, name = ast.unparse(named).split(".")
            is_method = bool(places) and places[0] not in MODULES and name != "run_in_executor"
            if not is_method and (name in STARTERS or ".".join([*places, name]) in STARTERS):
                yield name if name in STARTERS else ".".join([*places, name])
