"""A box: pid 1 of a pid namespace, for one run after another.  It runs our code, and
outlives every process of a run.

It waits on the slot's socket, so that a request finds everything mounted.  Signals from inside do
not reach it: the kernel drops those that pid 1 does not handle, SIGKILL and SIGSTOP among them.

A run finds nothing of the run before: all its processes are gone before its reply is sent, the
scratch is a new one, and process numbers begin at 2 again.  What was sent for it was never in the
memory that the next program is forked from: a program's own process reads its files.  A box ends,
and its namespaces with it, after a run that it had to kill or that left processes behind.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from rlvr.sandbox.guest import user
from rlvr.sandbox.guest.episode import SessionWatch
from rlvr.sandbox.guest.exchange import Relay, TalkWatch
from rlvr.sandbox.guest.linux import task_clock
from rlvr.sandbox.guest.namespaces import Namespaces
from rlvr.sandbox.guest.replies import Buffer
from rlvr.sandbox.guest.restricted import Restricted
from rlvr.sandbox.guest.watch import Watch

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import RunLimits, SlotConfig, SlotMessage

__all__ = ["NOT_READY", "TAKEN", "main", "prepare"]

NOT_READY = 3  # exit code: it could not be prepared, and took no request
TAKEN = b"\0"  # to the zygote, among the numbers of signals: a request came that is no session's

# of one box; then a new one takes its place, without whatever the runs may have left in it
_RUNS = 500
_FDS = 250  # Linux sends 253 at most
_HELD_BYTES = 1 << 20  # of outputs of a request's earlier cases: they count in the slot's memory
_WATCHES: dict[str, type[Watch]] = {
    "": Watch,
    "episode": SessionWatch,
    "talk": TalkWatch,
    "relay": Relay,
}
# As `slots._REPLY_BYTES`: no message of the host is longer.
_REQUEST_BYTES = 1 << 16


def prepare(config: SlotConfig) -> None:
    """Done once, in the keeper.

    Args:
        config: see `SlotPool`.
    """
    user.prepare_user(config)


def main(
    slot: socket.socket,
    zygote: int,
    serial: int,
    meters: list[int],
    config: SlotConfig,
    level: Namespaces | Restricted,
) -> NoReturn:
    """Run one request after another.  Any exit code but 0 and `NOT_READY` ends the slot.

    Args:
        slot: the socket to the host.
        zygote: a pipe to the zygote; no program gets it.
        serial: the box's number.
        meters: descriptors of the cgroup's CPU time and of its memory events, -1 for those that it
            lacks.
        config: see `SlotPool`.
        level: sets the run apart from the host.
    """
    code = NOT_READY
    try:
        # Blocked, so that an end is read from a descriptor and interrupts no system call.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # when the garbage of a program is collected must not depend on what the box did before
        gc.disable()
        # No cgroup counts CPU time: a perf clock of this process does, if the kernel allows it.
        if meters[0] < 0:
            # Opened before the first fork, since it counts only what descends from here afterwards.
            meters = [-1, meters[1], task_clock()]

        def program(limits: RunLimits, fds: Mapping[str, int], tell: int) -> NoReturn:
            user.main(limits, fds, tell, config, level)

        level.enter_box(serial, user.harden, program)
        buffer = Buffer()
        runs, clean, again = 0, True, True
        while runs < _RUNS and again:
            level.enter_run()
            # A run's descriptors come with its request, so that nothing of it lies in this process
            # before.
            message, fds, _, _ = socket.recv_fds(slot, _REQUEST_BYTES, _FDS)
            if not message:
                os._exit(1)  # the host closed its end
            code = 1
            request = json.loads(message)
            # Said once: the zygote can start to prepare the next box.
            if not runs:
                # A session's box ends with it, so no other is prepared while it may last for an
                # hour.
                if request.get("watch") != "episode":
                    os.write(zygote, TAKEN)
                os.close(zygote)
            cases = _Cases(request, fds)
            for case, case_request, case_fds in cases:
                if case:
                    level.enter_run()
                run = _WATCHES[request.get("watch", "")](
                    case_request, case_fds, meters, config, level
                )
                figures = {**run.reply(buffer), "case": case}
                reply = buffer.filled(figures)
                clean = level.leave_run("partner_cpu_s" in request)
                again = clean and run.over and level.again()
                runs += 1
                # A run that has to be told of ends the request: the host decides about the cases
                # that follow.
                if not again or cases.ends(figures, case_fds, run, buffer):
                    break
                cases.note(reply)
                # The next program is forked from this memory, and must find nothing of this reply
                # in it.
                buffer.wipe()
            slot.send(reply)
            buffer.wipe()
            if not clean:
                os._exit(1)  # its network, the slot's, is not as before
            for fd in fds:
                os.close(fd)
            code = NOT_READY
        # From here on the end is a planned one: the zygote forks the next box.
        level.leave_box()
        code = 0
    # a failure of ours, for the keeper's stderr, which the host reads
    except BaseException:  # noqa: BLE001
        import traceback

        traceback.print_exc()
    finally:
        level.end_box(code)


class _Cases:
    """The runs that a request asks for: of one program, on one standard input after the other.

    How the earlier ones ended goes to a file of the host's, since programs are forked from this
    process.

    Args:
        request: what the host sent: "fds" names the first run's descriptors; "cases" says how many
            runs there are, "stop" whether the first that fails is the last, "left" the CPU and wall
            seconds for all of them and how many a run needs at least.
        fds: the first run's descriptors; then three streams of each other run; then the file for
            replies.
    """

    def __init__(self, request: SlotMessage, fds: list[int]) -> None:
        self._request, self._fds = request, fds
        self._count, self._named = request.get("cases", 1), len(request["fds"])
        self._held = 0

    def __iter__(self) -> Iterator[tuple[int, dict[str, object], list[int]]]:
        """The number of each run, its request and its descriptors."""
        # The first three are the first case's standard streams; those behind them are all cases'.
        first, shared = self._fds[: self._named], self._fds[3 : self._named]
        self._left = list(self._request.get("left", ()))
        yield 0, dict(self._request), first
        for case in range(1, self._count):
            limits = dict(self._request["limits"])
            for at, name in enumerate(("cpu_s", "wall_s")):
                # A case gets what its predecessors have left of the time for all.
                limits[name] = min(limits[name], self._left[at])
            begin = self._named + 3 * (case - 1)
            yield case, {**self._request, "limits": limits}, self._fds[begin : begin + 3] + shared

    def ends(self, found: SlotMessage, fds: list[int], run: Watch, buffer: Buffer) -> bool:
        """Whether the host has to know before there is another run.

        Args:
            found: how the run ended.
            fds: its descriptors; the second and third are its output.
            run, buffer: of the run.
        """
        if found["case"] + 1 == self._count:
            return True
        # Output and stderr: they stay in memory until the host reads them.
        self._held += sum(os.fstat(fd).st_size for fd in fds[1:3])
        cpu_s, wall_s, least_s = self._left
        # Seconds without a core are the host's, so they are given back.
        self._left[:2] = cpu_s - found["cpu_s"], wall_s - (found["wall_s"] - found["starved_s"])
        failed = found["status"] != 0 or found["killed"] != ""
        return (
            (failed and self._request["stop"])
            or not buffer.silent
            or self._held > _HELD_BYTES
            or min(self._left[:2]) < least_s
            or run.out_of_memory()
        )

    def note(self, reply: memoryview) -> None:
        """Keep the reply of a run that is not the last.

        Args:
            reply: of the run; nothing was told.
        """
        # The last descriptor is the host's file for replies.
        os.write(self._fds[-1], reply)
