"""Two programs that talk to each other, in two slots: each is watched by a box of its own.

    program ── its output ──▶ pipe ──▶ lane ──▶ pipe ──▶ interactor
            ◀── pipe ◀──────────────── lane ◀── pipe ◀── its output

The interactor's box carries what is said, and counts it.  Each box writes on a board, a file in
memory that both have and no program, what its own program is doing; the interactor's box can so see
that both wait for each other.

What the program says, and its end, reach the interactor only once that waits for it.  So an
interactor that fails before has failed by itself, and one that decides without waiting for more
does not depend on how the program ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rlvr.sandbox.guest.replies import Buffer
from rlvr.sandbox.guest.stillness import BUSY, DROWSY, QUIET, Stillness, look
from rlvr.sandbox.guest.watch import Watch

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotMessage

__all__ = [
    "BOARD",
    "FLOOD",
    "OUTCOME",
    "OUTCOME_AT",
    "Relay",
    "STOP",
    "STUCK",
    "STUCK_HERE",
    "TalkWatch",
]

BOARD: Final = 256
"""Bytes of the board."""

OUTCOME: Final = struct.Struct("<BBBBBQQd")
"""At the end of the board: order, whether the interactor asked, whether it was told of the
program's end, whether both were idle when last seen, whether words were left that the interactor
had not read, bytes that the program said and heard, CPU seconds of the interactor since it got a
word."""

STOP, FLOOD, STUCK, STUCK_HERE = 1, 2, 3, 4
"""Orders to the program's box: to stop it, as the interactor has decided; as it said too much; as
both are stuck, through the program's fault or the interactor's."""

_ENTRY = struct.Struct("<BQq")  # state, number of looks, mark
_PLACE = 64  # of an entry
# Behind the entries of the two sides.
OUTCOME_AT = 128
# What a pipe of Linux holds by default.
_CHUNK = 1 << 16
# FIONREAD of asm-generic/ioctls.h; each library that is loaded makes every fork dearer
_UNREAD = 0x541B
_SHOWN = 2000  # bytes of the transcript
# Shortest and longest pause.  Between them it is a tenth of the time so far: a short talk ends
# without delay, a long one is not looked at all the time.
_LOOK_S = 0.002, 0.05


class TalkWatch(Watch):
    """A run whose standard input and output are pipes to another box; see `Watch`."""

    side = 0
    lent = "stdin", "stdout"
    """Descriptors of the pipes.  With copies of them here the programs would
    not see each other's end."""

    def _start(self, fds: Mapping[str, int]) -> int:
        self.still: Stillness | None = None
        self.looks, self.looked = 0, time.monotonic()
        self.pipe = os.fstat(fds["stdin"]).st_ino
        notice = super()._start(fds)
        # Copies here would keep the pipes open: neither program would read an end of file.
        none = os.memfd_create("none")
        for name in self.lent:
            os.dup2(none, self.fds[name])  # not closed: `box` does that
        os.close(none)
        return notice

    def _pause(self) -> float:
        shortest, longest = _LOOK_S
        return min(
            super()._pause(), max(shortest, min(longest, (time.monotonic() - self.started) / 10))
        )

    def _exceeded(self) -> str:
        self._note()
        # The other side's box wrote the order; one byte, so it is never read by halves.
        order = os.pread(self.fds["board"], 1, OUTCOME_AT)[0]
        if order:
            # A flood is the program's own fault; every other order ends it for its partner's sake.
            return "output" if order == FLOOD and self.side == 0 else "partner"
        return super()._exceeded()

    def _note(self) -> None:
        """Look at the program, write down what it does, and let its wall clock stand still while it
        has to wait."""
        before, noted_at = self.still, time.monotonic()
        self.still = look(self.level.living(), self.pipe)
        self.looks += 1
        state, mark = (self.still.state, self.still.mark) if self.still else (BUSY, 0)
        os.pwrite(self.fds["board"], _ENTRY.pack(state, self.looks, mark), self.side * _PLACE)
        # Where /proc does not tell, up to `blind_s` counts as waiting.
        if self.still is None:
            self.idle = min(noted_at - self.started, self.request.get("blind_s", 0.0))
        # Two looks in a row: a state that is seen once may have lasted no time at all.
        elif before and before.state != BUSY != state and self._must_wait():
            self.idle += noted_at - self.looked
        self.looked = noted_at

    def _must_wait(self) -> bool:
        """While both are idle the program's clock runs on."""
        return self._other()[0] == BUSY

    def _other(self) -> tuple[int, int, int]:
        state, looks, mark = _ENTRY.unpack(
            os.pread(self.fds["board"], _ENTRY.size, (1 - self.side) * _PLACE)
        )
        return state, looks, mark


class Relay(TalkWatch):
    """The interactor's side, which carries what both say."""

    side = 1
    lent = "from_program", "to_program"

    def reply(self, buffer: Buffer) -> SlotMessage:
        """See `Watch`; the box ends afterwards, as it has seen what was said."""
        facts = super().reply(buffer)
        idle = self._other()[0] != BUSY and self.still is not None and self.still.state != BUSY
        figures = (
            self.asked,
            self.told,
            idle,
            self.unread,
            self.words.total,
            self.answers.total,
            self.since_s,
        )
        os.pwrite(self.fds["board"], OUTCOME.pack(self.order, *figures), OUTCOME_AT)
        os.pwrite(self.fds["stdout"], bytes(self.transcript), 0)
        self.over = False
        return facts

    def _start(self, fds: Mapping[str, int]) -> int:
        self.asked = self.closed = self.told = self.unread = False
        self.order = 0
        self.stuck: tuple[tuple[int, ...], int] = (), 0
        self.heard, self.heard_cpu_s, self.since_s = 0, 0.0, 0.0
        self.transcript, self.speaker = bytearray(), b""
        # Duplicates: the numbers in `fds` are replaced in `_start`, these stay.
        from_program, to_program = (os.dup(fds[name]) for name in self.lent)
        stdin, words = os.pipe()
        answers, stdout = os.pipe()
        notice = super()._start({**fds, "stdin": stdin, "stdout": stdout})
        # The programs have them now; here they would hide the programs' ends.
        os.close(stdin)
        os.close(stdout)
        self._listen_too()
        self.words = _Lane(self, b"> ", from_program, words)
        self.answers = _Lane(self, b"< ", answers, to_program, ending=True)
        self.answers.listen()
        return notice

    def _wait(self) -> int:
        lanes = (self.words, self.answers)
        looks_at = 0.0
        while True:
            if (current_time := time.monotonic()) >= looks_at:
                self.killed = self._exceeded()
                if self.killed:
                    # Before the order, which makes the other side go.
                    self.unread = self.words.unread()
                    self._command(STOP)
                    return self._end_all()
                looks_at = current_time + self._pause()
            ready = self._poll_ready(max(0.0, looks_at - current_time))
            for lane in lanes:
                lane.carry(ready)
            if not ready.keys().isdisjoint(self.level.ends):
                self.level.hear()
                status = self._own_end()
                if status is not None:
                    self._conclude(status)
                    return status

    def _exceeded(self) -> str:
        if self.words.total > self.request["words"]:
            self._command(FLOOD)
        elif self.answers.total > self.limits["output"]:
            return "output"
        limit_name = super()._exceeded()
        cpu = self._cpu()
        if self.words.total != self.heard:
            # Counted from the last word of the program; `OUTCOME` tells it to the host.
            self.heard, self.heard_cpu_s = self.words.total, cpu
        self.since_s = cpu - self.heard_cpu_s
        return limit_name

    def _note(self) -> None:
        super()._note()
        still, (state, looks, mark) = self.still, self._other()
        if still is None or still.asks:
            self._ask()
        if self.words.ended and not self.words.pending and not self.closed:
            # The end of the program's output is passed on only to an interactor that waits for it.
            if still is None or still.state != BUSY:
                self.closed, self.told = True, still is None or still.asks
                self.words.hang_up()
        # Both wait, nothing moved, and neither has run since: no word will ever come.
        elif still is not None and still.state == state == QUIET:
            moved = (
                still.mark,
                mark,
                *(figure for lane in (self.words, self.answers) for figure in lane.figures),
            )
            if self.stuck[0] != moved:
                self.stuck = moved, looks
            elif looks > self.stuck[1] + 1:  # neither has run since the other was seen to wait
                self._command(STUCK if still.talks else STUCK_HERE)

    def _must_wait(self) -> bool:
        return not self.closed

    def _ask(self) -> None:
        if not self.asked:
            self.asked = True
            self.words.listen()

    def _command(self, order: int) -> None:
        if not self.order:
            self.order = order
            os.pwrite(self.fds["board"], bytes([order]), OUTCOME_AT)

    def _conclude(self, status: int) -> None:
        """The interactor has ended: what it said last is delivered, and a program that is right
        comes to its end."""
        self._end_all()
        # Anything but acceptance decides at once, whatever the program would still say.
        if os.waitstatus_to_exitcode(status) != self.request["accepts"]:
            self._command(STOP)
            return
        # A program that waits for words must see its clock run on: none will come.
        os.pwrite(self.fds["board"], _ENTRY.pack(DROWSY, self.looks + 1, 0), self.side * _PLACE)
        self.words.hang_up()
        self.words.listen()
        while not self.words.ended and not self.order:
            ready = self._poll_ready(_LOOK_S[1])
            for lane in (self.words, self.answers):
                lane.carry(ready)
            if self.words.total > self.request["words"]:
                self._command(FLOOD)

    def show(self, speaker: bytes, said: bytes) -> None:
        """Keep the beginning of what is said.

        Args:
            speaker: what stands before it.
            said: the bytes.
        """
        if len(self.transcript) < _SHOWN:
            if self.speaker != speaker:
                self.transcript += (
                    b"\n" if self.transcript and self.transcript[-1:] != b"\n" else b""
                ) + speaker
                self.speaker = speaker
            self.transcript += said[: _SHOWN - len(self.transcript)]


class _Lane:
    """Carries bytes from one pipe to another, at most so many at once.

    Args:
        relay: whose it is.
        speaker: what stands before its bytes in the transcript.
        source, sink: the pipes.
        ending: the sink is closed when the source has come to its end.

    Attributes:
        total: bytes so far.
        pending: bytes that were read and not yet written.
        ended: the source has come to its end.
    """

    def __init__(
        self, relay: Relay, speaker: bytes, source: int, sink: int, ending: bool = False
    ) -> None:
        self.relay, self.speaker, self.source, self.sink, self.ending = (
            relay,
            speaker,
            source,
            sink,
            ending,
        )
        self.total, self.pending, self.ended = 0, b"", False
        self.listening = 0  # the descriptor that is polled
        for fd in (source, sink):
            # Non-blocking: one lane that is full must not stop the other.
            os.set_blocking(fd, False)

    @property
    def figures(self) -> tuple[int, int, bool]:
        """What changes when anything moves."""
        return self.total, len(self.pending), self.ended

    def unread(self) -> bool:
        """Whether something is on its way."""
        for fd in (self.source, self.sink):
            with contextlib.suppress(OSError):  # it may be closed
                # Bytes in the pipe, which neither side has read.
                if any(fcntl.ioctl(fd, _UNREAD, bytes(4))):
                    return True
        return bool(self.pending)

    def listen(self) -> None:
        """Begin to carry."""
        if not self.ended:
            self._poll(self.source)

    def _poll(self, fd: int) -> None:
        if fd == self.listening:
            return
        if self.listening:
            self.relay.poll.unregister(self.listening)
        if fd:
            # A full sink is waited for before more is read, so that at most one chunk is held.
            self.relay.poll.register(fd, select.POLLOUT if fd == self.sink else select.POLLIN)
        self.listening = fd

    def carry(self, ready: Mapping[int, int]) -> None:
        """Read and write what can be.

        Args:
            ready: descriptors that poll() has found.
        """
        if not self.listening or self.listening not in ready:
            return
        if not self.pending:
            try:
                self.pending = os.read(self.source, _CHUNK)
            except BlockingIOError:
                return
            if not self.pending:
                self._poll(0)
                os.close(self.source)
                # Its end is passed on now, or, for the program's words, once the interactor waits.
                self.ended = True
                if self.ending:
                    self.hang_up()
                return
            self.total += len(self.pending)
            self.relay.show(self.speaker, self.pending)
        try:
            self.pending = self.pending[os.write(self.sink, self.pending) :] if self.sink else b""
        except BlockingIOError:
            pass
        except BrokenPipeError:  # the other has closed its input: it is not told what is said
            self.pending = b""
        self._poll(self.sink if self.pending else self.source)

    def hang_up(self) -> None:
        """Let the other side read the end; what comes later is counted, and goes nowhere."""
        if self.sink:
            if self.listening == self.sink:
                self._poll(0 if self.ended else self.source)
            os.close(self.sink)
            self.sink, self.pending = 0, b""
