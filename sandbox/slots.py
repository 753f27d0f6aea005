"""The host's side: one keeper process, and the slots that requests are sent to.

    Sandbox ──▶ Keeper ══ start ══▶ zygote (a slot) ──forks──▶ boxes
       └────────────── Slot ══ request, descriptors ═══════════▶ a box ══ reply ══▶ Slot

Nothing is forked from this process: the keeper is started with exec, and it forks everything else.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlvr.errors import SandboxFailed
from rlvr.sandbox.cgroups import Cgroup
from rlvr.sandbox.guest.replies import unpack_reply
from rlvr.sandbox.outputs import Output, memfd
from rlvr.sandbox.toolchains import Python, program_variables
from rlvr.workers import framing
from rlvr.workers.framing import frame_payload, write_all
from rlvr.workers.program import StartedProgram

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotConfig, SlotMessage

__all__ = ["CannotIsolate", "Died", "Keeper", "NotTaken", "RunRequest", "Slot", "pack_program"]

# A backstop: an idle machine takes a fraction of a second, one under load far longer.
_START_S: Final = 60.0
# For the keeper to end its slots and remove their cgroups; killed earlier, it would leave the
# groups behind.
_CLOSING_S: Final = 15.0
# Of one message: a SEQPACKET socket cuts off what is longer.  What programs print is not in it,
# but in files whose descriptors were sent along.
_REPLY_BYTES: Final = 1 << 16
# Before the first look at a run, in seconds; each later one comes after twice the time so far, so
# that a run of a minute is looked at ten times and a short one never.
_LOOK_S: Final = 0.1
_FOLDERS: Final = [str(Path(module).parent) for module in (__file__, framing.__file__)]

# The packages are faked: a guest has a few modules of theirs, and their __init__.py is never run
# there.  Programs can read this command line, and the file names in the code that they are forked
# from: no path of the host is in them.
_BOOT: Final = """
import sys, types
for name, *folder in (("rlvr",), ("rlvr.sandbox", sys.argv[1]), ("rlvr.workers", sys.argv[2])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = folder
from rlvr.sandbox.guest.keeper import main
main(*map(int, sys.argv[3:]))
"""


class CannotIsolate(Exception):
    """The kernel does not let this user have what the level needs: namespaces, or Landlock."""


class Died(SandboxFailed):
    """A slot or the keeper was killed from outside, so the run is worth another attempt."""


class NotTaken(Died):
    """The slot was dead before it took a request."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What one box is asked to do.

    Attributes:
        message: JSON-able; its "id" is in the reply.
        fds: descriptors by the name under which the box knows them.
        more: descriptors of further runs; see `guest.box`.
    """

    message: SlotMessage
    fds: Mapping[str, int]
    more: Sequence[int] = ()


class Keeper:
    """The process that starts and ends the slots of a sandbox.  Thread-safe.

    Args:
        python: the interpreter that it runs, and the programs with it.
        config: what the keeper needs to know (`SlotPool`), JSON-able.
    """

    def __init__(self, python: Python, config: SlotConfig) -> None:
        self.config = config
        # Orders and answers come in pairs: one order at a time.
        self._lock = threading.Lock()
        self._control, keeper_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = memfd(b"", name="keeper")
        # The host's number, by which the keeper sees that it is gone.
        settings = memfd(json.dumps({**config, "host": os.getpid()}).encode())
        # O_PATH: the folders' own paths must not be on the command line.
        folders = [
            os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for folder in _FOLDERS
        ]
        # -S and -s: no site-packages, whose start-up files would run here.
        command = [python.executable, "-S", "-s", "-X", "utf8", "-c", _BOOT]
        command += [
            *(f"/proc/self/fd/{fd}" for fd in folders),
            str(keeper_end.fileno()),
            str(settings),
        ]
        try:
            self._process = StartedProgram(
                command,
                name="keeper",
                owner="sandbox",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # once, and not in each program's process
                env={**program_variables(), "LD_BIND_NOW": "1"},
                cwd="/",
                pass_fds=[keeper_end.fileno(), settings, *folders],
                group="session",  # Ctrl-C in a terminal is for us alone
                ends_itself=True,  # its socket ends; it removes the groups of its slots
            )
        # The keeper has them; ours would hide the end of its socket.
        finally:
            keeper_end.close()
            for fd in (settings, *folders):
                os.close(fd)
        self.pid = self._answer()["ready"]

    def start_slot(self, cgroup: Cgroup | None) -> Slot:
        """A new zygote.

        Args:
            cgroup: what its processes are counted in; None where this user may not make one.

        Raises:
            CannotIsolate: this user's rights do not suffice.
            SandboxFailed: for any other reason.
        """
        host_end, zygote_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = {
            "cgroups": cgroup.folders if cgroup else [],
            "procs": cgroup.procs if cgroup else [],
            "meters": cgroup.meters if cgroup else ["", ""],
        }
        # The lock is held until the answer, which would else be another order's.
        with zygote_end, self._lock:
            self._send({"start": order}, [zygote_end.fileno()])
            try:
                answer = self._answer()
            # The keeper may have died of it: our end must not stay open.
            except BaseException:
                host_end.close()
                raise
        return Slot(self, host_end, answer["pid"], cgroup)

    def kill(self, pid: int) -> None:
        """End a zygote; every process of its slot ends with it.

        Args:
            pid: the zygote's number.
        """
        with self._lock, contextlib.suppress(SandboxFailed):
            self._send({"kill": pid})

    def _send(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> None:
        try:
            # Descriptors go along as SCM_RIGHTS, so that no path is needed.
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        except OSError as error:
            raise NotTaken(f"the sandbox's keeper is gone: {error}. {self.said()}") from None

    def _answer(self) -> SlotMessage:
        poll = select.poll()  # unlike select.select, of descriptors above 1023 as well
        poll.register(self._control, select.POLLIN)
        ready = poll.poll(_START_S * 1000)
        try:
            message = self._control.recv(_REPLY_BYTES) if ready else b""
        except OSError:  # it was killed with an order that it had not read
            message = b""
        if not message:
            self.close()
            what = "ended" if ready else f"said nothing for {_START_S:.0f} s"
            raise NotTaken(f"the sandbox's keeper {what}. {self.said()}")
        answer: dict[str, object] = json.loads(message)
        # With an errno the kernel refused; without one, the zygote was killed.
        if "failed" in answer:
            if "errno" in answer:
                raise CannotIsolate(answer["failed"])
            raise Died(f"a slot was killed as it was started: {answer['failed']}")
        return answer

    @property
    def alive(self) -> bool:
        """True until the process has ended."""
        return self._process.poll() is None

    def said(self) -> str:
        """The end of its stderr, where tracebacks of our own code are."""
        with contextlib.suppress(OSError, ValueError):
            size = os.fstat(self._errors).st_size
            return (
                os.pread(self._errors, 2000, max(0, size - 2000)).decode(errors="replace").strip()
            )
        return ""

    def close(self) -> None:
        """End it and all its slots; returns when nothing is left."""
        # Its end makes the keeper end its slots and remove their cgroups.
        self._control.close()
        try:
            self._process.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            self._process.end()

    def disown(self) -> None:
        """In a forked child: let go of the parent's keeper, which goes on."""
        self._control.close()

    def __del__(self) -> None:
        # At the interpreter's end modules may be gone.
        with contextlib.suppress(OSError, AttributeError):
            self._control.close()
            os.close(self._errors)


class Slot:
    """One zygote and its boxes.  For one caller at a time.

    Args:
        keeper: whose it is.
        channel: our end of its socket.
        pid: the zygote's number.
        cgroup: what it is counted in; None for none.
    """

    def __init__(
        self, keeper: Keeper, channel: socket.socket, pid: int, cgroup: Cgroup | None
    ) -> None:
        self.keeper, self.pid, self.cgroup = keeper, pid, cgroup
        self._channel = channel
        # Re-entrant, as receiving asks whether something is ready.
        self._using = threading.RLock()  # of the channel: its number must not be another file's yet
        self._wanted: list[int] = []
        try:
            answer = self._receive(time.monotonic() + _START_S)
        except SandboxFailed:
            self.close()
            raise
        if "failed" in answer:
            self.close()
            raise SandboxFailed(
                f"a slot of the sandbox cannot be set up: {answer['failed']}. {keeper.said()}"
            )
        # After the first answer: the zygote is complete, so what it holds is the base.
        if cgroup:
            cgroup.settle()

    def send(self, requests: Sequence[RunRequest]) -> None:
        """Give the requests to the boxes.

        Args:
            requests: one for each box that is to work.

        Raises:
            NotTaken: the slot was dead, and none of this was begun.
        """
        try:
            # Requests of one slot go to whichever of its boxes reads first.
            for request in requests:
                message = {**request.message, "fds": list(request.fds)}
                fds = [*request.fds.values(), *request.more]
                with self._using:
                    socket.send_fds(self._channel, [json.dumps(message).encode()], fds)
        except OSError as error:
            raise NotTaken(f"a slot of the sandbox is gone: {error}") from None
        # Set only when all were sent; a reply to anything else is passed over.
        self._wanted = [request.message["id"] for request in requests]

    @property
    def asked(self) -> int:
        """How many requests were sent last."""
        return len(self._wanted)

    def replies(self, wall_s: float, look: Callable[[], None] | None = None) -> list[SlotMessage]:
        """The replies to the requests that were sent last.

        Args:
            wall_s: wall seconds to wait for them.
            look: called after 0.1 s, and again each time as long has passed as before.

        Raises:
            NotTaken: the slot was dead, and none of this was begun.
            SandboxFailed: the slot cannot be used any more; close it.
        """
        replies: dict[int, dict[str, object]] = {}
        began = time.monotonic()
        deadline, pause = began + wall_s, _LOOK_S
        while len(replies) < len(self._wanted):
            while look is not None and not self._ready(began + pause - time.monotonic()):
                if time.monotonic() > deadline:
                    break
                look()
                pause = 2 * (time.monotonic() - began)
            reply = self._receive(deadline)
            # else it is of an earlier run: a box that was killed as it was about to end
            if reply["id"] in self._wanted:
                replies.setdefault(reply["id"], reply)
        return [replies[number] for number in self._wanted]

    def _ready(self, seconds: float) -> bool:
        """Whether a message, or the end, has come within that time."""
        with self._using:
            if self._channel.fileno() < 0:
                raise Died("a slot of the sandbox was closed")
            poll = select.poll()
            poll.register(self._channel, select.POLLIN)
            return bool(poll.poll(max(0.0, seconds) * 1000))

    def _receive(self, deadline: float) -> dict[str, object]:
        with self._using:
            if not self._ready(deadline - time.monotonic()):
                raise SandboxFailed("a slot of the sandbox does not answer")
            try:
                message = self._channel.recv(_REPLY_BYTES)
            except (
                ConnectionResetError
            ) as error:  # the kernel's word for requests that the other end never read
                # No box has read the request, so nothing of the program has run.
                raise NotTaken(f"a slot of the sandbox is gone: {error}") from None
            except OSError as error:
                raise Died(f"a slot of the sandbox is gone: {error}") from None
        if not message:
            raise Died(f"a slot of the sandbox ended. {self.keeper.said()}")
        return unpack_reply(message)

    def close(self) -> None:
        """End the zygote, and with it everything in the slot; a thread that waits for a reply gets
        `Died`."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # it wakes those who wait, as closing does not
        # Once the thread that it has woken is done.
        with self._using:
            self._channel.close()
        self.keeper.kill(self.pid)
        if self.cgroup:
            self.cgroup.remove()

    def disown(self) -> None:
        """In a forked child: let go of the parent's slot, which goes on."""
        self._channel.close()


def pack_program(
    header: Mapping[str, object], files: Mapping[str, tuple[bytes | Output, int]]
) -> int:
    """A memfd with header and files, in the form in which a program's process unpacks them.

    Args:
        header: plain data; what to run and how.
        files: name → content and mode.
    """
    contents = [
        (name, Output(content) if isinstance(content, bytes) else content, mode)
        for name, (content, mode) in files.items()
    ]
    sizes = [[name, content.size, mode] for name, content, mode in contents]
    fd = memfd(b"")
    # JSON takes a program's process longer to read.  Every Python knows this version.
    write_all(fd, frame_payload(marshal.dumps({**header, "files": sizes}, 2)))
    for _, content, _ in contents:
        content.copy_to(fd)
    return fd
