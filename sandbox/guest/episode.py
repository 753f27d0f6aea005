"""A session, seen from pid 1 of its pid namespace: one program that is given one
piece of code after another.

The host sends a call over `control`; this process starts the program's clocks, tells the program
over a socket of their own (`repl`), and answers the host when the program says that the call is
over, or when a limit was passed. Between two calls all processes of the session are stopped.

A call over its own limits is interrupted (SIGINT), which keeps the state where the program comes
back in time. Otherwise, and over a limit of the session, everything is killed and the session is
over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import time
from typing import TYPE_CHECKING

from rlvr.sandbox.guest.replies import Buffer
from rlvr.sandbox.guest.watch import Watch

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotMessage

__all__ = ["SessionWatch"]

_GRACE_CPU_S, _GRACE_WALL_S = 0.25, 1.0  # after an interrupt
_DYING_S = 0.2  # between the end of a process's descriptors and its own
_IDLE_S = 1.0  # how often a session without a call is looked at
# how often a call is looked at, at least: with a cgroup, and without
_LOOK_S = {False: 0.1, True: 0.01}
# Of the host's calls and of the program's words; neither carries data, which is in files.
_MESSAGE_BYTES = 4096
# Copied at once, so that a file of hundreds of MiB needs no memory of its size.
_WRITE_BYTES = 1 << 20
_PART_BYTES = 4096  # of a file, in a message
_PATH_BYTES = 1024  # of a path that is listed
_WORDS_BYTES = 64  # of what the program may say at once


class SessionWatch(Watch):
    """One session; see `Watch` for the arguments.  `limits` are those of the session as a whole."""

    def reply(self, buffer: Buffer) -> SlotMessage:
        """Answer calls until the session is over; returns the reply to the request that began
        it."""
        self.control = socket.socket(fileno=os.dup(self.fds["control"]))
        self.program, program_end = socket.socketpair()
        self.program.setblocking(False)
        notice = self._start(
            {**self.fds, "channel": program_end.fileno(), "results": self.fds["code"]}
        )
        program_end.close()
        self.text = self.fds["stdout"]
        self.words, self.before = b"", 0.0
        self.status: int | None = None  # of the program, once it has ended
        self._listen()
        self._tell({"ready": True})
        figures: dict[str, object] = {}  # of the last call
        while not self.killed and self.status is None:
            call = self._next_call()
            if call is None:
                break
            figures = self._serve(call)
        over = bool(self.killed) or self.status is not None
        ended = self._end_all()
        # The end of the program closed the channel; why it ended, the kernel's counter says.
        if self.killed in ("", "channel") and self._kills() != self.kills_before:
            self.killed = "memory"  # what the kernel killed was the program's own process
        # Only now: the last processes have been waited for, and count.
        figures["cpu_s"] = max(0.0, self._reaped_cpu() - self.before)  # now of all its processes
        if over:
            self._listen_to(notice, buffer)
            last = {"over": True, "killed": self.killed, "told": buffer.text()}
            self._tell({**figures, **last, "ended": ended if self.status is None else self.status})
        self.control.close()
        self.program.close()
        self.over = False  # the box ends, and its namespaces with it
        # `last` has said the rest
        ended_well = {"status": 0, "killed": "", "rss_kib": 0, "cpu_s": 0.0, "wall_s": 0.0}
        return {"id": self.request["id"], **ended_well}

    def _listen(self) -> None:
        """Be woken when a process ends, from here on, when there is a program to be told of."""
        self._listen_too(self.control.fileno(), self.program.fileno())

    def _tell(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self.control.send(json.dumps(message).encode())

    def _next_call(self) -> dict[str, object] | None:
        """Wait for a call, with everything stopped; None if the host hung up or the session is
        over.

        A timer can wake what was stopped.  It is stopped again, and what it used counts for the
        session.
        """
        # Between calls it may not compute: the policy thinks meanwhile, and the clocks stand still.
        self._signal(signal.SIGSTOP)
        while True:
            ready = self._poll_ready(_IDLE_S)
            # One message a turn: the policy's files are read while nothing of the session runs.
            if self.control.fileno() in ready:
                message = self._heard()
                if message is None or "call" in message:
                    return message
                if "read" in message:
                    self._send_file(message["read"], message["most"])
                if "list" in message:
                    self._send_names(message["list"])
                if "write" in message:
                    self._tell({"written": self._write_file(message["write"], message["size"])})
            self._reap()
            self._hear_status(-1)
            if self.status is None and not ready:
                self._signal(signal.SIGSTOP)
                self.killed = self._over_total()
            if self.status is not None or self.killed:
                return None

    def _send_file(self, path: list[str], most: int) -> None:
        """Send a file of the scratch folder over `control`, which the program does not have;
        nothing of another kind.

        No link is followed, at the end of the path or within it.
        """
        # where we are: the program may have moved the folder
        descriptors = [os.open(".", os.O_RDONLY | os.O_DIRECTORY)]
        size = -1
        with contextlib.suppress(OSError):
            # Folder by folder, each relative to the one before: the path is never resolved again.
            for name in path[:-1]:
                descriptors.append(
                    os.open(
                        name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptors[-1]
                    )
                )
            descriptors.append(
                # O_NONBLOCK: a FIFO without a writer would keep us waiting for ever.
                os.open(
                    path[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptors[-1]
                )
            )
            status = os.fstat(descriptors[-1])
            if stat.S_ISREG(status.st_mode) and status.st_size <= most:
                size = status.st_size
        self._tell({"size": size})
        while size > 0:
            part = os.pread(descriptors[-1], min(size, _PART_BYTES), status.st_size - size)
            # The size has been announced, so as many bytes must follow.
            part += bytes(min(size, _PART_BYTES) - len(part))  # it was cut meanwhile
            self._tell({"part": part.hex()})
            size -= len(part)
        for fd in descriptors:
            os.close(fd)

    def _send_names(self, most: int) -> None:
        """Send name and size of each regular file of the scratch folder; all processes are stopped
        meanwhile."""
        count = 0
        for folder, _, names in os.walk("."):
            for name in names:
                path = os.path.join(folder, name)[2:]
                with contextlib.suppress(OSError, UnicodeError):
                    status = os.lstat(path)
                    if not stat.S_ISREG(status.st_mode) or len(path.encode()) > _PATH_BYTES:
                        continue
                    # Beyond the limit they are counted only: the host says how many it left out.
                    if count < most:
                        self._tell({"name": path, "bytes": status.st_size})
                    count += 1
        self._tell({"names": count})

    def _write_file(self, path: list[str], size: int) -> bool:
        """Write a file of the scratch folder from where calls come in; False if that cannot be
        done.

        No link is followed.  All processes of the session are stopped meanwhile.
        """
        folders = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        descriptors = [os.open(".", os.O_RDONLY | os.O_DIRECTORY)]
        written = 0
        try:
            for name in path[:-1]:
                # A link of that name is refused by O_NOFOLLOW below.
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptors[-1])
                descriptors.append(os.open(name, folders, dir_fd=descriptors[-1]))
            # Opening a FIFO without a reader fails at once instead of waiting.
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptors.append(os.open(path[-1], flags, 0o644, dir_fd=descriptors[-1]))
            if not stat.S_ISREG(os.fstat(descriptors[-1]).st_mode):
                return False
            os.ftruncate(descriptors[-1], 0)
            while written < size:
                part = os.pread(self.fds["code"], min(size - written, _WRITE_BYTES), written)
                done = os.write(descriptors[-1], part)
                # Nothing was read: the file has become shorter than its size said.
                if not done:
                    return False
                written += done
        except OSError:  # a link, no folder, no room
            return False
        finally:
            for fd in descriptors:
                os.close(fd)
        return True

    def _heard(self) -> SlotMessage | None:
        try:
            message = self.control.recv(_MESSAGE_BYTES)
        except OSError:
            return None
        return json.loads(message) if message else None

    def _serve(self, call: SlotMessage) -> dict[str, object]:
        """One call; returns its figures, which the host gets unless the session is over with it."""
        # The file of the previous call's output is used again.
        os.ftruncate(self.text, 0)
        before = self.before = self._cpu()
        waited = self._count_starved()
        began = time.monotonic()
        over = interrupted = ""
        grace = 0.0, 0.0
        status: int | None = None
        # Before it goes on: it may have written the number of this call in advance.
        self._drain()
        self._signal(signal.SIGCONT)
        with contextlib.suppress(OSError):
            self.program.send(b"%d\n" % call["call"])
        looked = began
        while status is None:
            # A tenth of the time so far: short calls end without delay, long ones cost few looks.
            pause_s = min(max(0.002, (time.monotonic() - began) / 10), _LOOK_S[self._often])
            ready = self._poll_ready(pause_s)
            if not ready.keys().isdisjoint(self.level.ends):
                self._reap()
            if self.program.fileno() in ready:
                status = self._hear_status(call["call"])
            if self.control.fileno() in ready:
                message = self._heard()
                if message is None:
                    self.killed = "host"
                elif "interrupt" in message and not interrupted:
                    interrupted = over = "host"
                    grace = self._interrupt()
            if self.status is not None or self.killed or status is not None:
                break
            # a program that says much is watched all the same
            if ready and time.monotonic() < looked + 0.005:
                continue
            looked = time.monotonic()
            self.killed = self._over_total()
            if self.killed:
                break
            if interrupted:
                if (
                    # In the grace after an interrupt both clocks count; seconds without a core do
                    # not.
                    self._cpu() > grace[0]
                    or time.monotonic() - self._seconds_unserved(waited) > grace[1]
                ):
                    self.killed = over
            elif over := self._over_call(call, began, before, waited):
                interrupted = over
                grace = self._interrupt()
        figures = {
            "call": call["call"],
            "status": status,
            "over_call": over,
            "cpu_s": max(0.0, self._cpu() - before),
        }
        figures |= self._figures(began, waited)
        if self.killed:
            return figures
        if self.status is None:
            self._signal(signal.SIGSTOP)
        if not over:  # what was over between two looks, and may be why the program has ended
            figures["over_call"] = self._over_call(call, began, before, waited)
        # A level that only samples looks at the scratch once more before the call counts as over.
        self.killed = self.level.overfull()
        if not self.killed and self.status is None:
            self._tell(figures)
        return figures

    def _figures(self, began: float, waited: float) -> dict[str, object]:
        self.rss_kib = max(self.rss_kib, _peak_kib(self.pid))
        wall_s = time.monotonic() - began
        return {
            "wall_s": wall_s,
            "starved_s": min(wall_s, self._seconds_unserved(waited)),
            "rss_kib": self.rss_kib,
        }

    def _signal(self, number: int) -> None:
        """Every process but this one; those that are being forked get it too."""
        self.level.signal_all(number)

    def _interrupt(self) -> tuple[float, float]:
        """As Ctrl-C on a terminal; returns the clocks at which patience ends."""
        self._signal(signal.SIGINT)
        return self._cpu() + _GRACE_CPU_S, time.monotonic() + _GRACE_WALL_S

    def _drain(self) -> None:
        """Drop what the program said before the call, of which it may know the number."""
        with contextlib.suppress(BlockingIOError):
            while self.program.recv(_MESSAGE_BYTES):
                pass
        self.words = b""

    def _hear_status(self, number: int) -> int | None:
        """The status of the call of this number, if the program says it; all else that it says is
        dropped."""
        try:
            received = self.program.recv(_MESSAGE_BYTES)
        except OSError:
            return None
        if not received:  # it cannot answer any more: it has ended, or it closed its end
            deadline = time.monotonic() + _DYING_S
            while self.status is None and time.monotonic() < deadline:
                time.sleep(0.001)
                self._reap()
            self.killed = "" if self.status is not None else "channel"
            return None
        lines = (self.words + received).split(b"\n")
        # Half a word is kept for its rest, but no more than a word can have.
        self.words = lines.pop()[-_WORDS_BYTES:]
        for line in lines:
            match line[:_WORDS_BYTES].split():
                # Another number is an answer to a call that is over, or a forged one.
                case [who, status] if who == b"%d" % number and status.isdigit():
                    return int(status)
        return None

    def _reap(self) -> None:
        self.level.hear()
        status = self._own_end()
        self.status = self.status if status is None else status

    def _over_call(self, call: SlotMessage, began: float, before: float, waited: float) -> str:
        if self._cpu() - before > call["cpu_s"]:
            return "cpu"
        if os.fstat(self.text).st_size > call["output"]:
            return "output"
        past = time.monotonic() - began
        # Time without a core extends the wall limit, to twice its length at most.
        if past > call["wall_s"] and past > call["wall_s"] + min(
            self._seconds_unserved(waited), call["wall_s"]
        ):
            return "wall"
        return ""

    def _seconds_unserved(self, waited: float) -> float:
        """Seconds without a core since the clock said `waited`."""
        self.waited = self._count_starved()
        return max(0.0, self.waited - waited)

    def _over_total(self) -> str:
        if over := self.level.crowded() or self._out_of_bounds():
            return over
        if self._cpu() > self.limits["cpu_s"]:
            return "total-cpu"
        if time.monotonic() - self.started > self.limits["wall_s"]:
            return "total-wall"
        return ""


def _peak_kib(pid: int) -> int:
    """The most memory that a process had at once; 0 if it is gone."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as file:
        # VmHWM and not ru_maxrss: the process has not ended.
        return next((int(line.split()[1]) for line in file if line.startswith(b"VmHWM:")), 0)
    return 0
