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
from collections.abc import Mapping
from typing import Any, NoReturn

from rlvr.sandbox.guest import user
from rlvr.sandbox.guest.episode import Episode
from rlvr.sandbox.guest.exchange import Relay, Talk
from rlvr.sandbox.guest.linux import dumpable, task_clock
from rlvr.sandbox.guest.namespaces import Namespaces
from rlvr.sandbox.guest.replies import Buffer
from rlvr.sandbox.guest.restricted import Restricted
from rlvr.sandbox.guest.watch import Watch

__all__ = ["NOT_READY", "main", "prepare"]

NOT_READY = 3  # exit code: it could not be prepared, and took no request

_RUNS = (
    500  # of one box; then a new one takes its place, without whatever the runs may have left in it
)
_FDS = 8
_WATCHES: dict[str, type[Watch]] = {"": Watch, "episode": Episode, "talk": Talk, "relay": Relay}
_REQUEST_BYTES = 1 << 16


def prepare(config: Mapping[str, Any]) -> None:
    """Done once, in the keeper.

    Args:
        config: see `SlotPool`.
    """
    user.prepare(config)


def main(
    slot: socket.socket,
    serial: int,
    meters: list[int],
    config: Mapping[str, Any],
    level: Namespaces | Restricted,
) -> NoReturn:
    """Run one request after another.  Any exit code but 0 and `NOT_READY` ends the slot.

    Args:
        slot: the socket to the host.
        serial: the box's number.
        meters: descriptors of the cgroup's CPU time and of its memory events, -1 for those that it lacks.
        config: see `SlotPool`.
        level: sets the run apart from the host.
    """
    code = NOT_READY
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.disable()  # when the garbage of a program is collected must not depend on what the box did before
        score = _oom_score()
        level.enter_box(serial)
        if meters[0] < 0:
            meters = [-1, meters[1], task_clock()]
        buffer = Buffer()
        for _ in range(_RUNS):
            level.enter_run()
            random.seed()  # else every run would draw the same random numbers, the zygote's
            message, fds, _, _ = socket.recv_fds(slot, _REQUEST_BYTES, _FDS)
            if not message:
                os._exit(1)  # the host closed its end
            code = 1
            request = json.loads(message)
            run = _WATCHES[request.get("watch", "")](request, fds, meters, score, config, level)
            reply = buffer.filled(run.reply(buffer))
            clean = level.leave_run("partner_cpu_s" in request)
            slot.send(reply)
            buffer.wipe()
            if not clean:
                os._exit(1)  # its network, the slot's, is not as before
            if not (run.over and level.again()):
                break
            for fd in fds:
                os.close(fd)
            code = NOT_READY
        level.leave_box()
        code = 0
    except BaseException:  # noqa: BLE001  a failure of ours, for the keeper's stderr, which the host reads
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _oom_score() -> int:
    """A descriptor to set which process the kernel kills first for want of memory; -1 if it cannot be opened."""
    dumpable(True)  # or the file would belong to root
    try:
        return os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        dumpable(False)
