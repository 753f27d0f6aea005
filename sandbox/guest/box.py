"""A box: pid 1 of a pid namespace, for one run after another.  It runs our code, and outlives every process of a run.

It waits on the slot's socket, so that a request finds everything mounted.  Signals from inside do not reach it: the
kernel drops those that pid 1 does not handle, SIGKILL and SIGSTOP among them.

A run finds nothing of the run before: all its processes are gone before its reply is sent, the scratch is a new one,
and process numbers begin at 2 again.  What was sent for it was never in the box's memory, which the next program is
forked from: a program's own process reads its files.  A box ends, and its namespaces with it, after a run that it had
to kill or that left processes behind.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from rlvr.sandbox.guest import user
from rlvr.sandbox.guest.episode import Episode
from rlvr.sandbox.guest.exchange import Relay, Talk
from rlvr.sandbox.guest.linux import (
    CLONE_NEWNS,
    CLONE_NEWPID,
    MS_RDONLY,
    detach,
    dumpable,
    task_clock,
)
from rlvr.sandbox.guest.replies import Buffer
from rlvr.sandbox.guest.root import BOX, WORK, fresh_scratch, mount_proc
from rlvr.sandbox.guest.watch import SOCKETS, Watch

__all__ = ["HUNG_UP", "NAMESPACES", "TAKEN", "main", "prepare"]

NAMESPACES = CLONE_NEWPID | CLONE_NEWNS
TAKEN = struct.Struct("<ii")  # what the zygote is told: serial number of the box, id of the request
HUNG_UP = 3  # exit code: the host closed its end, or the slot cannot be used any more

_RUNS = 500  # of one box; then a new one takes its place, without whatever the runs may have left in it
_FDS = 8
_WATCHES: dict[str, type[Watch]] = {"": Watch, "episode": Episode, "talk": Talk, "relay": Relay}
_REQUEST_BYTES = 1 << 16
_RINGS_MS = 100  # for the kernel's collector of rings of sockets, which works on its own time


def prepare(config: Mapping[str, Any]) -> None:
    """Done once, in the keeper.

    Args:
        config: see `SlotPool`.
    """
    user.prepare(config)


def main(
    slot: socket.socket, note: int, serial: int, numbers: int, meters: list[int], config: Mapping[str, Any]
) -> NoReturn:
    """Run one request after another.  An exception ends the box with code 1, and the zygote tells the host.

    Args:
        slot: the socket to the host.
        note: a pipe to the zygote, which is told of each request that a box takes.
        serial: the box's number.
        numbers: descriptor of ns_last_pid, -1 where there is none.
        meters: descriptors of the cgroup's CPU time and of its memory events, -1 for those that it lacks.
        config: see `SlotPool`.
    """
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.disable()  # when the garbage of a program is collected must not depend on what the box did before
        score = _oom_score()
        mount_proc(MS_RDONLY)  # or a program could lower its own oom_score_adj
        if meters[0] < 0:
            meters = [-1, meters[1], task_clock()]
        sockets = os.open(SOCKETS, os.O_RDONLY | os.O_CLOEXEC)
        buffer = Buffer()
        for _ in range(_RUNS):
            fresh_scratch(config["disk"], config["files"])
            os.chdir(WORK)
            random.seed()  # else every run would draw the same random numbers, the zygote's
            message, fds, _, _ = socket.recv_fds(slot, _REQUEST_BYTES, _FDS)
            if not message:
                os._exit(HUNG_UP)
            request = json.loads(message)
            os.write(note, TAKEN.pack(serial, request["id"]))
            run = _WATCHES[request.get("watch", "")](request, fds, meters, score, config)
            reply = buffer.filled(run.reply(buffer))
            os.chdir("/")
            detach(BOX)  # before the reply: it is memory, and the next run may begin at once
            clean = _sockets_gone(sockets, "partner_cpu_s" in request)
            slot.send(reply)
            buffer.wipe()
            if not clean:
                os._exit(HUNG_UP)  # and the slot with it: its network namespace is not as before
            if not (run.over and _renumbered(numbers)):
                break
            for fd in fds:
                os.close(fd)
        code = 0
    except BaseException:  # noqa: BLE001  a failure of ours: the zygote tells the host
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _renumbered(numbers: int) -> bool:
    """Let process numbers begin at 2 again, or a run could tell how many processes the run before had.

    False where the kernel does not allow it.
    """
    try:
        return numbers >= 0 and os.pwrite(numbers, b"1", 0) == 1
    except OSError:
        return False


def _sockets_gone(table: int, partner: bool) -> bool:
    """Have the kernel free the run's sockets; False if some stay.

    Sockets that were sent through one another outlive their processes, with the files and locks that were sent along,
    until the kernel looks for such rings.  It does when a socket is closed.  With a partner, which may still be using
    sockets, they are not counted.
    """
    for _ in range(_RINGS_MS):
        if os.pread(table, 4096, 0).count(b"\n") == 1:  # the table's heading; the host's sockets are in its namespace
            return True
        socket.socket(socket.AF_UNIX).close()
        if partner:
            return True
        time.sleep(0.001)
    return False


def _oom_score() -> int:
    """A descriptor to set which process the kernel kills first for want of memory; -1 if it cannot be opened."""
    dumpable(True)  # or the file would belong to root
    try:
        return os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        dumpable(False)
