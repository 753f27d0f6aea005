"""`Session`: a program that lives for an episode and is given one piece of code after another.

    Session ══ call, interrupt ══▶ guest/episode (pid 1) ──▶ guest/repl: the code
            ◀══ how it ended ═════

A session has a slot of its own, which is no worker's: any number may be open.  The ending and the
figures of a call come from pid 1 of the session, never from the code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import select
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rlvr.errors import SandboxFailed, ToolError, UsageError, brief
from rlvr.sandbox.grading import Box
from rlvr.sandbox.guest.repl import BASH, COMPILE
from rlvr.sandbox.outputs import memfd
from rlvr.sandbox.pool import MIB, SlotPool
from rlvr.sandbox.records import Ending, Isolation, Limits, holding
from rlvr.sandbox.slots import NotTaken, RunRequest, Slot, pack_program
from rlvr.sandbox.toolchains import missing, tool_path
from rlvr.validate import require_number, require_one_of
from rlvr.workers.framing import write_all

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotMessage
    from rlvr.sandbox.sandbox import Sandbox

__all__ = ["SESSION_LANGUAGES", "Session", "SessionReply"]

SESSION_LANGUAGES: Final = ("python", "bash")

_GRACE_S: Final = 20.0  # beyond a call's wall limits, until pid 1 of the session is taken for dead
# A backstop: a session starts in milliseconds where a slot is free.
_START_S: Final = 30.0
# Of a reply to a call, whose text is in a file.
_MESSAGE_BYTES: Final = 1 << 14
# Linux takes 4095; pid 1 of the session lists no longer ones than this.
_PATH_BYTES: Final = 1 << 10
_FILES: Final = 10_000  # of a session, where they are listed


@dataclass(frozen=True, slots=True)
class SessionReply:
    """How one call of a session went.

    Attributes:
        text: what was written to standard output and standard error, in order, cut at the limit;
            bytes that are not UTF-8 become U+FFFD.  In Python also the value of a last line that is
            an expression, as at its prompt.
        ending: as of a `Run`.  RE: an exception, or an exit code other than 0.  IE: we failed.
        why: more about that in words.
        open: the session goes on, with its state.  False: every further call has this ending, and
            no text.
        cpu_s: CPU seconds of all processes of the session during the call.
        wall_s: wall seconds of the call.
        starved_s: how many of them the code could have run and had no core; they do not count
            towards the wall limit.
        memory_mib: peak MiB of the session so far: of all of it where a cgroup counts, else of its
            largest process.
    """

    text: str
    ending: Ending
    why: str = ""
    open: bool = True
    cpu_s: float = 0.0
    wall_s: float = 0.0
    starved_s: float = 0.0
    memory_mib: float = 0.0


class Session:
    """A Python or bash process in the sandbox whose state and files live until it is
    closed; see `Sandbox.session`.

    For one caller at a time: further threads and tasks wait for their turn.  A session that is
    dropped is closed.

    Attributes:
        isolation: what it is isolated by.
        limits: of each call (CPU and wall seconds, output) and of the session (the others).
        over: why the session is over; "" while it is open.
        sandbox: that opened it.
    """

    sandbox: Sandbox

    def __init__(
        self,
        pool: SlotPool,
        isolation: Isolation,
        language: str,
        limits: Limits,
        numbers: Callable[[], int],
        total_cpu_s: float,
        total_wall_s: float,
    ) -> None:
        require_one_of("the language of a session", language, SESSION_LANGUAGES)
        total_cpu_s = require_number("total_cpu_s", total_cpu_s, above=0)
        total_wall_s = require_number("total_wall_s", total_wall_s, above=0)
        self.isolation, self.limits, self.over = isolation, limits, ""
        self._totals = f"{total_cpu_s:g} CPU seconds", f"{total_wall_s:g} wall seconds"
        self._ending = Ending.IE
        # Callers take turns: within the sandbox there is one program.
        self._turn = threading.Lock()
        self._calls = 0
        header: dict[str, object] = {"kind": "session"}
        if language == "bash":
            # The slot's programs are the host's, so a path that is found here holds there.
            bash = tool_path("bash")
            if bash is None:
                raise SandboxFailed(str(missing("bash")))
            header = {
                "kind": "exec",
                # No profile or rc file: HOME is the scratch, where the code may write one.
                "argv": [bash, "--norc", "--noprofile", "-c", BASH],
                "env": {},
            }
        # CPU and wall seconds of `limits` are those of a call; the box counts the whole session's.
        of_all = {**limits.message(), "cpu_s": total_cpu_s, "wall_s": total_wall_s}
        self._numbered = language == "python"
        self._closed = self._frozen = False
        self._line = _Line(
            pool,
            limits,
            lambda: {"id": numbers(), "watch": "episode", "limits": of_all},
            header,
        )
        # The finalizer has the line and not us, or this object would never be collected.
        self._drop = weakref.finalize(self, self._line.drop)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, code: str) -> SessionReply:
        """Run one piece of code in the session, and wait for its end.

        Args:
            code: Python statements or a bash script.

        Returns:
            How it went.  Nothing that the code does makes this raise.

        Raises:
            UsageError: the session was closed here, was frozen, or belongs to a parent process.
        """
        self._require_runs()
        # Taken here and released in `_calling`: `_begin` may raise.
        self._turn.acquire()
        with self._calling():
            if self._begin(code):
                self._end(self._line.wait(self._patience_s))
            return self._reply()

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """A caller's turn, which it has."""
        try:
            yield
        # The call was refused, or is over: the session goes on.
        except (UsageError, SandboxFailed):
            raise
        except BaseException:  # Ctrl-C: a call is not left to itself
            self.kill()
            raise
        finally:
            self._done()

    async def arun(self, code: str) -> SessionReply:
        """`run` without blocking the event loop.  A task that is cancelled meanwhile takes the
        session with it.

        Args:
            code: see `run`.

        Raises:
            UsageError: the session was closed here, was frozen, or belongs to a parent process.
        """
        self._require_runs()
        # A lock of threads, as `run` and `arun` may both be called; the loop must not stand still
        # for it.
        # A short pause, since a thread that holds the lock wakes no task.
        while not self._turn.acquire(blocking=False):
            await asyncio.sleep(0.001)
        with self._calling():
            if self._begin(code):
                self._end(await self._line.heard(self._patience_s))
            return self._reply()

    def read(self, path: str) -> bytes | None:
        """A file of the session's working directory, read by pid 1 of the session and not by the
        program.

        So it is what the file holds, whatever the program has made of its commands.

        Args:
            path: relative to the working directory that the session began in, or within one of the
                sandbox's `folders`.

        Returns:
            Its bytes; None if there is no such regular file (links are not followed), if it is
            larger than `output_mib`, or if the session is over.

        Raises:
            UsageError: the session was closed here, or the path is not of this form.
        """
        parts = _parts(path, self.sandbox.folders)
        self._require_ours()
        with self._turn:
            if not self._takes(path):
                return None
            # As much as a reply may have; pid 1 sends no larger file.
            self._line.send({"read": parts, "most": int(self.limits.output_mib * MIB)})
            data, size = bytearray(), -1
            while True:
                message = self._hear()
                if message is None:
                    return None
                size = message.get("size", size)
                # In hexadecimal: bytes are not JSON.
                data += bytes.fromhex(message.get("part", ""))
                # The first part names the size; -1, as there is no such file, is reached at once.
                if len(data) >= size:
                    return None if size < 0 else bytes(data)

    def outputs(self, patterns: Sequence[str]) -> dict[str, bytes]:
        """The regular files that a pattern matches, read by pid 1 of the session while all its
        processes are stopped.

        No link is followed, and no code of the session runs.

        Args:
            patterns: of paths within the working directory, as in `Path.match`: `*` within a name,
                `**` for folders. Those of the sandbox's folder "/app" begin with "app/".

        Raises:
            ToolError: there are too many files or bytes, or the session is over; says which.
            UsageError: the session was closed here.
        """
        matches = [re.compile(_as_regex(pattern)) for pattern in patterns]
        sizes, most = self._names(), int(self.limits.output_mib * MIB)
        # Sorted: the order of a folder is the file system's.
        paths = sorted(
            path for path in sizes if any(pattern_read.fullmatch(path) for pattern_read in matches)
        )
        # Before anything is read, and of all together: each alone may be small enough.
        if sum(sizes[path] for path in paths) > most:
            raise ToolError(f"they have more than {self.limits.output_mib:g} MiB")
        # One message after another; nothing of the session runs between two.
        outputs = {path: self.read(path) for path in paths}
        if self.over:
            raise ToolError(f"the session is over: {self.over}")
        # None: a file that went away between listing and reading, or that cannot be read.
        return {path: data for path, data in outputs.items() if data is not None}

    def _names(self) -> dict[str, int]:
        """The sizes of all regular files by path."""
        self._require_ours()
        sizes: dict[str, int] = {}
        with self._turn:
            if self.over:
                raise ToolError(f"the session is over: {self.over}")
            self._line.send({"list": _FILES})
            # One message a name, and a last one with their number.
            while True:
                message = self._hear()
                if message is None:
                    raise ToolError(f"the session is over: {self.over}")
                if "names" in message:
                    break
                sizes[message["name"]] = message["bytes"]
        if message["names"] > _FILES:
            raise ToolError(f"the working directory has more than {_FILES:,} files")
        return sizes

    def freeze(self) -> None:
        """From here on no code runs in the session; its files can be read."""
        self._frozen = True

    def write(self, path: str, data: bytes | str) -> bool:
        """Write a file in the session's working directory, by pid 1 of the session and not by the
        program.

        Folders of the path are made; what the file held is replaced.

        Args:
            path: relative to the working directory that the session began in, or within one of the
                sandbox's `folders`.
            data: its content; a text is written as UTF-8.

        Returns:
            False if a part of the path is a link or no folder, if the file is none, if the disk
            limit does not allow it, or if the session is over.

        Raises:
            UsageError: the session was closed here or belongs to a parent process, or an argument
                is not of this form.
        """
        parts = _parts(path, self.sandbox.folders)
        if not isinstance(data, bytes | str):
            raise UsageError(f"the data is {brief(data)}; give bytes or a text")
        # Lone surrogates of a model's text are kept as bytes.
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        self._require_ours()
        with self._turn:
            if not self._takes(path) or len(content) > self.limits.disk_mib * MIB:
                return False
            self._line.write(content)
            self._line.send({"write": parts, "size": len(content)})
            message = self._hear()
            return message is not None and bool(message["written"])

    def _hear(self) -> SlotMessage | None:
        """What pid 1 of the session answers; None if the session is over."""
        message = self._line.wait(self._patience_s)
        if message is None or "over" in message:
            self._end(message)
            return None
        return message

    def box(self, files: Mapping[str, bytes]) -> Box:
        """A fresh box beside the session, with nothing of it but these files.

        Args:
            files: by path, such as `outputs` gave.
        """
        return Box(self.sandbox, files)

    def _takes(self, path: str) -> bool:
        if self._closed:
            raise UsageError("this session was closed; open another one with Sandbox.session")
        return not self.over and len(path.encode("utf-8", "surrogatepass")) <= _PATH_BYTES

    def _require_runs(self) -> None:
        self._require_ours()
        if self._frozen:
            raise UsageError(
                "the episode is over, and no code runs in its session any more, since what runs "
                "there can be bought: declare outputs and define grade(task, box), which gets a "
                "fresh box"
            )

    def _require_ours(self) -> None:
        """Refuse a forked child: what it would send and hear is its parent's."""
        if not self._line.ours:
            raise UsageError(
                "this session belongs to the process that opened it, and this one was forked from "
                "it; "
                "open another one with Sandbox.session"
            )

    @property
    def open(self) -> bool:
        """False once the session is over or closed."""
        return not (self.over or self._closed)

    def interrupt(self) -> None:
        """Interrupt the call that another thread or task waits for, as Ctrl-C does; its reply ends
        RE.

        The state is kept if the code comes back within 0.25 CPU seconds and a second; else the
        session is over.
        """
        self._require_ours()
        self._line.send({"interrupt": True})

    def kill(self) -> None:
        """End the session and everything in it at once; a call that is under way has the ending
        IE."""
        self._require_ours()
        # The first reason is kept.
        self.over = self.over or "the session was killed here"
        self._line.hang_up()

    def close(self) -> None:
        """End the session and everything in it, and return its slot.  Idempotent; a call under way
        ends IE."""
        if not self._line.ours:
            return
        self._closed = True
        self.kill()
        # A call under way: the thread whose turn it is releases the session.
        if self._turn.acquire(blocking=False):
            self._done()

    def _done(self) -> None:
        """End a caller's turn.  A session that was closed meanwhile is released by the caller whose
        turn it was."""
        if self._closed or self.over:
            # The slot goes back here, and must not be dropped a second time when the object goes.
            self._drop.detach()
            self._line.release()
        self._turn.release()

    @property
    def _patience_s(self) -> float:
        # Twice, as time without a core extends the wall limit; then pid 1 has had its time.
        return 2 * self.limits.wall + _GRACE_S

    def _begin(self, code: str) -> bool:
        """Send a call; False if the session is over."""
        if not isinstance(code, str):
            raise UsageError(f"the code is {brief(code)}; it must be a text")
        if self._closed:
            raise UsageError("this session was closed; open another one with Sandbox.session")
        self._figures: SlotMessage = {}
        if self.over:
            return False
        self._calls += 1
        limits = self.limits
        order = {"call": self._calls, "cpu_s": limits.cpu_s, "wall_s": limits.wall}
        # Bash reads the code from its file as it is; only Python's loop looks for a number.
        text = f"{self._calls}\n{code}" if self._numbered else code
        self._line.write(text.encode("utf-8", "surrogatepass"))
        self._line.send({**order, "output": int(limits.output_mib * MIB)})
        return True

    def _end(self, figures: dict[str, object] | None) -> None:
        """Take in how a call went; None: pid 1 of the session is gone."""
        if figures is not None:
            self._figures = figures
            if figures.get("over"):
                self._ending, self.over = self._last(figures)
        elif self._line.kills():
            self._ending, self.over = Ending.MLE, f"over {self.limits.memory_mib} MiB"
        else:
            # Pid 1 said nothing, and nothing was killed for memory.
            self.over = self.over or "its slot was killed from outside"

    def _last(self, figures: SlotMessage) -> tuple[Ending, str]:
        """The ending of the session."""
        limits, killed = self.limits, figures["killed"]
        if figures["told"].startswith("setup"):
            return (
                Ending.IE,
                f"the process could not be set up: {figures['told'].removeprefix('setup: ')}",
            )
        # The status is waitpid's, of the program itself.
        code = os.waitstatus_to_exitcode(figures["ended"])
        if killed == "channel":
            return Ending.RE, "it closed the descriptors of its session"
        # It passed a limit and ended at the interrupt: the limit is named.
        if not killed and figures.get("over_call"):
            ending, why = self._over_call(figures["over_call"])
            return ending, f"{why}, and it ended itself"
        if not killed:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return (Ending.RE if code else Ending.OK), f"it ended itself ({how})"
        endings = {
            "total-cpu": (Ending.TLE, f"over {self._totals[0]} for the whole session"),
            "total-wall": (Ending.TLE, f"over {self._totals[1]} for the whole session"),
        }
        if killed in endings:
            return endings[killed]
        if held := holding(killed, limits):
            return held
        ending, why = self._over_call(killed)
        return ending, f"{why}, and it did not come back when it was interrupted"

    def _over_call(self, which: str) -> tuple[Ending, str]:
        match which:
            case "cpu":
                return Ending.TLE, f"over {self.limits.cpu_s:g} CPU seconds"
            case "wall":
                return Ending.TLE, f"over {self.limits.wall:g} wall seconds"
            case "output":
                return Ending.OLE, f"over {self.limits.output_mib:g} MiB of output"
        return Ending.RE, "interrupted"

    def _reply(self) -> SessionReply:
        figures = self._figures
        status = figures.get("status")
        if self.over:
            ending, why = self._ending, self.over
        elif figures["over_call"]:
            ending, why = self._over_call(figures["over_call"])
        elif status == COMPILE:
            ending, why = Ending.CE, "it does not compile"
        else:
            ending, why = (Ending.RE, f"exit code {status}") if status else (Ending.OK, "")
        if not figures:
            return SessionReply("", ending, why, open=False)
        # Of one process, or of the cgroup: the larger is closer to the truth.
        peak = max(figures.get("rss_kib", 0) / 1024, self._line.peak() / MIB)
        seconds = {name: float(figures.get(name, 0.0)) for name in ("cpu_s", "wall_s", "starved_s")}
        text = self._line.text(int(self.limits.output_mib * MIB))
        return SessionReply(text, ending, why, open=not self.over, memory_mib=peak, **seconds)


def _as_regex(pattern: str) -> str:
    """A pattern of paths: `**` matches any text, `*` and `?` none with a slash."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    # Split with the wildcards kept, so that all else can be escaped.
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return "".join(parts.get(piece) or re.escape(piece) for piece in pieces)


def _parts(path: str, folders: Sequence[str] = ()) -> list[str]:
    """The names in a path within the working directory.

    Args:
        path: relative to it, or absolute within one of the folders.
        folders: see `Sandbox`.

    Raises:
        UsageError: it is none.
    """
    parts = path.split("/") if isinstance(path, str) else []
    # The leading empty part of an absolute path.
    if len(parts) > 2 and f"/{parts[1]}" in folders and not parts[0]:
        parts = parts[1:]
    # No "..": pid 1 follows the names one by one and must stay inside.
    if not parts or not all(p and p not in (".", "..") and "\0" not in p for p in parts):
        raise UsageError(
            f"the path is {brief(path)}; give one within the working directory, such as 'a/b.txt'"
        )
    return parts


class _Line:
    """The slot of a session and the socket to its pid 1.

    It knows nothing of the `Session`, so that one that is dropped can be collected while this ends
    its slot.

    Args:
        pool: where the slot comes from.
        limits: see `Session`.
        message: makes the request, with a new number.
        header: what the session's process runs.
    """

    def __init__(
        self,
        pool: SlotPool,
        limits: Limits,
        message: Callable[[], dict[str, object]],
        header: Mapping[str, object],
    ) -> None:
        self._pool, self._owner, self._released = pool, os.getpid(), False
        self._control: socket.socket | None = None
        self._text, self._code = memfd(b""), memfd(b"")
        nothing, bundle = memfd(b""), pack_program(header, {})
        # Opened anew with O_APPEND: stdout and stderr must not write over each other.
        appended = os.open(f"/proc/self/fd/{self._text}", os.O_RDWR | os.O_APPEND)
        fds = {
            "stdin": nothing,
            "stdout": appended,
            "stderr": appended,
            "bundle": bundle,
            "code": self._code,
        }

        # Called again for a second attempt in another slot.
        def begin(slot: Slot) -> None:
            if self._control:
                self._control.close()
            # SEQPACKET keeps messages apart and has an end of its own, as a stream has.
            self._control, box_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control.setblocking(False)
            # The box has its own copy then; ours would keep the socket open after its end.
            with box_end:
                slot.send([RunRequest(message(), {**fds, "control": box_end.fileno()})])
            # Its first message says that the program is ready for calls.
            if not self.wait(_START_S):
                raise NotTaken("a slot of the sandbox did not begin the session")

        try:
            self._slot = pool.lend(begin, limits)
        except BaseException:
            if self._control:
                self._control.close()
            # Only when no slot was lent: else `drop` closes them.
            os.close(self._text)
            os.close(self._code)
            raise
        finally:
            for fd in (nothing, bundle, appended):
                os.close(fd)

    @property
    def ours(self) -> bool:
        """False in a process that was forked from the one that opened the session."""
        return os.getpid() == self._owner

    def write(self, data: bytes) -> None:
        """Put the code of the next call, or the content of a file, where the session reads it."""
        os.ftruncate(self._code, 0)
        os.lseek(self._code, 0, os.SEEK_SET)
        write_all(self._code, data)

    def send(self, message: Mapping[str, object]) -> None:
        """Tell pid 1 of the session; one that is gone is noticed by `wait`."""
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(message).encode())

    # A poll and not a timeout of the socket, which is non-blocking for `heard`.
    def wait(self, seconds: float) -> SlotMessage | None:
        """The next message of pid 1; None if it is gone."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.poll(seconds * 1000)
        return self._message(self._receive_line())

    async def heard(self, seconds: float) -> dict[str, object] | None:
        """`wait` for asyncio."""
        try:
            async with asyncio.timeout(seconds):
                return self._message(
                    await asyncio.get_running_loop().sock_recv(self._socket, _MESSAGE_BYTES)
                )
        except (OSError, TimeoutError):
            # Gone and late are one to the caller: the session is over.
            return None

    def _receive_line(self) -> bytes:
        try:
            return self._socket.recv(_MESSAGE_BYTES)
        except OSError:
            return b""

    def _message(self, message: bytes) -> dict[str, object] | None:
        decoded: dict[str, object] | None = json.loads(message) if message else None
        return decoded

    @property
    def _socket(self) -> socket.socket:
        assert self._control is not None
        return self._control

    def text(self, length: int) -> str:
        """What the call wrote."""
        return os.pread(self._text, length, 0).decode("utf-8", "replace")

    def kills(self) -> int:
        """How often the kernel killed a process of the session for lack of memory."""
        return self._slot.cgroup.kills() if self._slot.cgroup else 0

    def peak(self) -> int:
        """Peak bytes of the session where a cgroup counts them, else 0."""
        return (self._slot.cgroup and self._slot.cgroup.peak()) or 0

    def hang_up(self) -> None:
        """Let pid 1 end everything; wakes a caller that waits."""
        if os.getpid() == self._owner and not self._released:
            with contextlib.suppress(OSError):
                # Shut down and not closed: a thread may be waiting in `wait`.
                self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Return the slot once the session has ended.  Idempotent."""
        if not self._released:
            self.drop(wait=True)

    def drop(self, wait: bool = False) -> None:
        """Return the slot; without waiting, as the garbage collector may call this anywhere, under
        any lock."""
        self._released = True
        self._socket.close()
        os.close(self._text)
        os.close(self._code)
        if os.getpid() == self._owner:
            self._pool.take_back(self._slot, wait)
