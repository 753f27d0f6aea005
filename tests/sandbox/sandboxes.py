"""Sandboxes for tests, as this user and as an ordinary one, and the canaries of the host that attacks are after.

An ordinary user may not look into the folders that hold root's interpreter, so its server gets a mount namespace in
which the few paths it needs stand in plain sight.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import rlvr
from rlvr.sandbox import Limits, Program, Run, Sandbox
from rlvr.sandbox.outputs import Output

__all__ = [
    "ORDINARY",
    "SMALL",
    "USERS",
    "Canaries",
    "Host",
    "Ordinary",
    "SessionHost",
    "descendants",
    "keeper_of",
    "sandbox_as",
]

ORDINARY = 65534
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
"""Who runs the sandbox: root has cgroups, an ordinary user has what pid 1 of the run sees."""

SMALL = Limits(
    cpu_s=0.5, wall_s=3.0, memory_mib=96, output_mib=1.0, processes=16, disk_mib=8.0, files=200
)
_REPO = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def sandbox_as(
    user: str, limits: Limits = SMALL, workers: int = 2, level: str = "namespaces"
) -> Iterator[Any]:
    """A sandbox of this process, or one that an ordinary user's process serves."""
    settings = {"limits": limits, "workers": workers, "level": level}
    with (
        Ordinary(settings)
        if user == "ordinary" and os.geteuid() == 0
        else Sandbox(**settings) as sandbox
    ):
        yield sandbox


class Ordinary:
    """A `Sandbox` in a process of an ordinary user: `run` and the other methods go over a pipe."""

    def __init__(self, settings: dict[str, Any]) -> None:
        cache = _REPO / "build" / "ordinary"  # kept, as precompiling a header takes seconds
        cache.mkdir(parents=True, exist_ok=True)
        os.chown(cache, ORDINARY, ORDINARY)
        env = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(_REPO)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sandbox.sandboxes", "enter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_REPO,
            env=env,
        )
        self.limits, self.workers, self.level = (
            settings["limits"],
            settings["workers"],
            settings["level"],
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._send(settings)
        self._reader.start()

    def __enter__(self) -> Ordinary:
        self.ask("warm")
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._reader.join()
        self._process.stdout.close()

    def run(self, program: Program, stdin: bytes | str = b"", **options: Any) -> Run:
        """As `Sandbox.run`."""
        return self.ask("run", program, stdin, **options)

    def run_cases(self, program: Program, stdins: list[str], **options: Any) -> list[Run]:
        """As `Sandbox.run_cases`."""
        return self.ask("run_cases", program, stdins, **options)

    def call(self, program: Program, calls: Any) -> Any:
        """As `Sandbox.call`."""
        return self.ask("call", program, calls)

    def test(self, program: Program, suite: Any) -> Any:
        """As `Sandbox.test`."""
        return self.ask("test", program, suite)

    def check(self) -> Any:
        """As `Sandbox.check`."""
        return self.ask("check")

    def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Any method of the sandbox, or of `_Server`."""
        future: Future[Any] = Future()
        with self._lock:
            self._waiting[id(future)] = future
            self._send((id(future), method, args, kwargs))
        return future.result(120)

    def _send(self, message: Any) -> None:
        pickle.dump(message, self._process.stdin)
        self._process.stdin.flush()

    def _read(self) -> None:
        with contextlib.suppress(EOFError):
            while True:
                number, good, value = pickle.load(self._process.stdout)
                future = self._waiting.pop(number)
                future.set_result(value) if good else future.set_exception(value)
        for future in self._waiting.values():
            future.set_exception(EOFError("the ordinary user's process ended"))


def keeper_of(sandbox: Any) -> int:
    """The pid of the process under which everything of a sandbox runs."""
    return sandbox.ask("keeper") if isinstance(sandbox, Ordinary) else sandbox._pool._keeper.pid


class _Server:
    """The other end of `Ordinary`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def keeper(self) -> int:
        return keeper_of(self.sandbox)

    def episode(self, language: str, code: str, limits: Limits) -> Run:
        return episode(self.sandbox, language, code, limits)

    def said(self) -> str:
        return self.sandbox._pool._keeper.said()

    def serve(self, out: Any) -> None:
        lock = threading.Lock()

        def answer(number: int, method: str, args: Any, kwargs: Any) -> None:
            try:
                mine = getattr(self, method, None) or getattr(self.sandbox, method)
                value, good = mine(*args, **kwargs), True
                value = None if value is self.sandbox else value
            except Exception as error:  # noqa: BLE001  it is raised on the other side
                value, good = error, False
            with lock:
                pickle.dump((number, good, value), out)
                out.flush()

        with ThreadPoolExecutor(16) as pool, contextlib.suppress(EOFError):
            while True:
                pool.submit(answer, *pickle.load(sys.stdin.buffer))


def _enter() -> None:
    """Become the ordinary user, where its interpreter and this repository can be reached."""
    from rlvr.sandbox.guest import linux

    hidden: dict[str, list[str]] = {}
    for path in sorted(
        {sys.base_prefix, sys.prefix, str(_REPO)}
    ):  # a folder before those inside it
        for folder in reversed(Path(path).parents):
            if not folder.stat().st_mode & 1:
                hidden.setdefault(str(folder), []).append(path)
                break
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    for folder, paths in hidden.items():
        sources = [os.open(path, os.O_PATH) for path in paths]
        linux.mount("tests", folder, "tmpfs", 0, "mode=755")
        for path, source in zip(paths, sources, strict=True):
            Path(path).mkdir(parents=True, exist_ok=True)
            linux.mount(f"/proc/self/fd/{source}", path, None, linux.MS_BIND)
    os.setgroups([])
    os.setresgid(ORDINARY, ORDINARY, ORDINARY)
    os.setresuid(ORDINARY, ORDINARY, ORDINARY)
    os.execv(sys.executable, [sys.executable, "-m", "tests.sandbox.sandboxes", "serve"])


def _serve() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not print among the answers
    sandbox = Sandbox(**pickle.load(sys.stdin.buffer))
    try:
        _Server(sandbox).serve(out)
    finally:
        sandbox.close()


class Canaries:
    """What attacks are after.  `facts` goes into their source; `intact` says whether all of it is as it was."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="rlvr-canary-"))
        self.folder.chmod(0o777)  # open to all, so that only the sandbox is in the way
        self.file, self.shm = self.folder / "secret", Path("/dev/shm", self.folder.name)
        for path in (self.file, self.shm):
            path.write_text(self.secret)
            path.chmod(0o666)
        self.name = self.folder.name.upper().replace("-", "_")
        os.environ[self.name] = self.secret
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.abstract, self.unix = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.name)
        self.unix.bind(str(self.folder / "socket"))
        (self.folder / "socket").chmod(0o777)
        for one in (self.abstract, self.unix):
            one.listen()
        for one in (self.tcp, self.udp, self.abstract, self.unix):
            one.setblocking(False)
        # a process of the user that programs are outside, so that only their namespaces are in the way
        who = {"user": ORDINARY, "group": ORDINARY, "extra_groups": []} if os.geteuid() == 0 else {}
        self.process = subprocess.Popen(["/bin/sleep", "3600"], cwd="/", **who)
        self.hostname = socket.gethostname()
        self.facts = {
            "folder": str(self.folder),
            "file": str(self.file),
            "shm": str(self.shm),
            "variable": self.name,
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "socket": str(self.folder / "socket"),
            "pid": self.process.pid,
            "host_pid": os.getpid(),
        }

    def intact(self) -> None:
        """Nothing was changed, made, killed or reached."""
        assert sorted(path.name for path in self.folder.iterdir()) == ["secret", "socket"]
        for path in (self.file, self.shm):
            assert path.read_text() == self.secret
            assert path.stat().st_mode & 0o7777 == 0o666
        assert self.process.poll() is None
        assert Path(f"/proc/{self.process.pid}/stat").read_text().split()[2] == "S"
        for listener in (self.tcp, self.abstract, self.unix):
            with contextlib.suppress(BlockingIOError):
                listener.accept()
                raise AssertionError("a connection was accepted")
        with contextlib.suppress(BlockingIOError):
            self.udp.recv(1)
            raise AssertionError("a datagram came")
        assert socket.gethostname() == self.hostname
        assert os.environ[self.name] == self.secret

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for one in (self.tcp, self.udp, self.abstract, self.unix):
            one.close()
        shutil.rmtree(self.folder)
        self.shm.unlink()
        del os.environ[self.name]


class Host:
    """Runs attacks, and holds the host to what it was before.

    Attributes:
        sandbox: see `sandbox_as`.
        counted: whether a cgroup counts memory and CPU time.
    """

    def __init__(self, sandbox: Any, canaries: Canaries, counted: bool) -> None:
        self.sandbox, self.canaries, self.counted = sandbox, canaries, counted

    def run(
        self,
        source: str | bytes,
        stdin: bytes | str = b"",
        *,
        language: str = "python",
        limits: Limits = SMALL,
    ) -> Run:
        """Run an attack; a Python one finds the canaries in `CANARY`.  It never makes us fail, and it ends in time."""
        if language == "python" and isinstance(source, str):
            source = f"CANARY = {self.canaries.facts!r}\n{source}"
        program = Program(language, source)
        started = time.monotonic()
        run = self._run(program, stdin, limits)
        took = time.monotonic() - started - run.starved_s
        assert run.ending != "IE", run
        # what runs on past its limits does so for a minute or for ever; time without a core is the machine's
        assert language == "cpp" or run.wall_s - run.starved_s < limits.wall + 10.0, run
        assert language == "cpp" or took < limits.wall + 20.0, f"{took:.1f} s: {run}"
        assert self.canaries.secret.encode() not in run.stdout + run.stderr
        return run

    def _run(self, program: Program, stdin: bytes | str, limits: Limits) -> Run:
        return self.sandbox.run(program, stdin, limits=limits)

    def settled(self) -> None:
        """No process is left, the next run is clean, the canaries are alive."""
        self.canaries.intact()
        run = self.sandbox.run(Program("python", _NEXT[self.sandbox.level]), "41")
        assert (run.ending, run.text) == ("OK", "42 ['main.py'] [] []\n"), run
        keeper = keeper_of(self.sandbox)
        deadline = time.monotonic() + 30.0
        # Of each slot: the zygote and two boxes in stock, with namespaces each with its forker
        each = 5 if self.sandbox.level == "namespaces" else 3
        while len(left := descendants(keeper)) > each * children(keeper):
            assert time.monotonic() < deadline, f"processes are left: {left}"
            time.sleep(0.02)


class SessionHost(Host):
    """Runs each attack in a session, between two calls of it; the sessions have the slots of the ones before."""

    def _run(self, program: Program, stdin: bytes | str, limits: Limits) -> Run:
        [source] = program.contents().values()
        if stdin or program.language not in ("python", "bash") or b"\0" in source:
            return super()._run(program, stdin, limits)
        try:
            code = source.decode()
        except UnicodeDecodeError:
            return super()._run(program, stdin, limits)
        if isinstance(self.sandbox, Ordinary):
            return self.sandbox.ask("episode", program.language, code, limits)
        return episode(self.sandbox, program.language, code, limits)


def episode(sandbox: Sandbox, language: str, code: str, limits: Limits) -> Run:
    """An attack between two calls, as a `Run`.  A session that is over says nothing more."""
    with sandbox.session(language, limits=limits, total_cpu_s=3 * limits.cpu_s) as session:
        session.run("a=6")
        reply = session.run(code)
        after = session.run("print(a*7)" if language == "python" else "echo $((a*7))")
    assert reply.open or not after.text
    exit_code = int(reply.why.split()[-1]) if reply.why.startswith("exit code ") else None
    signal = int(reply.why.rpartition(" ")[2].rstrip(")")) if "(signal " in reply.why else None
    figures = reply.cpu_s, reply.wall_s, reply.starved_s, reply.memory_mib
    return Run(reply.ending, reply.why, exit_code, signal, *figures, Output(reply.text.encode()))


_NEXT = {
    "namespaces": "import os\nprint(int(input()) + 1, *(os.listdir(f) for f in ('.', '/tmp', '/dev/shm')))",
    "restricted": "import os\nprint(int(input()) + 1, *(os.listdir(f) for f in ('.', '../tmp', os.environ['TMPDIR'])))",
}


def descendants(pid: int) -> dict[int, str]:
    """Living descendants of a process: pid → command."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, tail = path.read_text(errors="replace").rpartition(")")
            number, name = head.split(" (", 1)
            state, parent = tail.split()[:2]
            if state not in "ZX":
                parents[int(number)], names[int(number)] = int(parent), name
    found: dict[int, str] = {}
    newest = {pid}
    while newest:
        newest = {child for child, parent in parents.items() if parent in newest} - found.keys()
        found |= {child: names[child] for child in newest}
    return found


def children(pid: int) -> int:
    """How many children a process has."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return len(path.read_text().split())


if __name__ == "__main__":
    assert rlvr
    try:
        {"enter": _enter, "serve": _serve}[sys.argv[1]]()
    except Exception:  # noqa: BLE001  whatever it is, this process must not go on as another
        traceback.print_exc()
        os._exit(1)
