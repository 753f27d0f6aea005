"""The zygote: pid 1 of a slot's namespaces, with the standard library loaded,
and parent of its boxes.

It keeps boxes ready: each is a process in a pid and mount namespace of its own that has its scratch
mounted and waits on the slot's socket.  A request from the host goes straight to a box; the zygote
only forks another box when one ends.  It never reads a request, so it never sees a program.

What is said of namespaces, here and in `box`, is so at the level of that name; `restricted` says
what stands for them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlvr.sandbox.guest import box, user
from rlvr.sandbox.guest.linux import dumpable
from rlvr.sandbox.guest.namespaces import Namespaces
from rlvr.sandbox.guest.restricted import Restricted

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotConfig

__all__ = ["main", "prepare_zygote"]

# A box that cannot be prepared would otherwise be forked for ever.
_FAILURES = 3  # boxes in a row that could not be prepared, until the slot gives up


def prepare_zygote(config: SlotConfig) -> None:
    """What every box inherits; done once, in the keeper.

    Args:
        config: see `SlotPool`.
    """
    box.prepare(config)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page


def main(
    fd: int,
    go: int,
    ready: int,
    meters: list[int],
    config: SlotConfig,
    level: Namespaces | Restricted,
) -> None:
    """Set up the slot and keep boxes in it.  Never returns.

    Args:
        fd: the socket to the host.
        go: a pipe on which the keeper says that the users are mapped.
        ready: a pipe on which the keeper is told that everything is mounted.
        meters: see `box.main`.
        config: see `SlotPool`.
        level: sets the slot apart from the host.
    """
    try:
        # First of all: a slot may keep nothing of what the keeper has open.
        _close_all_but([fd, go, ready, *(meter for meter in meters if meter >= 0)])
        slot = socket.socket(fileno=fd)
        try:
            # An end of file: the keeper gave up, or it is gone.
            if os.read(go, 1) != b"k":
                os._exit(1)
            level.enter_slot()
            user.give_up()
            level.guard()
            dumpable(False)
            del config["root"]  # it has paths of the host
            # The keeper waits for it before it says to the host that the slot is there.
            os.write(ready, b"r")
            os.close(go)
            os.close(ready)
            slot.send(b'{"ready": true}')
        except Exception as error:
            slot.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
            raise
        _serve(slot, meters, config, level)
    except BaseException:  # noqa: BLE001  for the keeper's stderr, which the host reads
        traceback.print_exc()
    finally:
        os._exit(1)


def _close_all_but(keep: list[int]) -> None:
    start = 3
    for fd in sorted(keep):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, 1 << 16)


def _serve(
    slot: socket.socket,
    meters: list[int],
    config: SlotConfig,
    level: Namespaces | Restricted,
) -> None:
    """Keep boxes ready until one of them ends with its work undone; then the slot ends too.

    Of a box that was killed it cannot be told whether it had a request, or had just been woken for
    one that no other box will now see.  The host sees the slot's end at once, and asks another.

    There is one box until it takes a request that may want a second: a session has its slot alone.
    """
    ended, wake = os.pipe()
    # A signal must never wait at a full pipe, and reading must not wait at an empty one.
    for fd in (ended, wake):
        os.set_blocking(fd, False)
    # A handler is needed: an ignored or default signal writes nothing to the pipe.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    boxes: set[int] = set()
    serial = failures = 0
    stock = 1
    while True:
        while len(boxes) < stock:
            serial += 1
            try:
                pid = level.start_box()
            except OSError:
                if not boxes:
                    raise
                break  # a program uses up the slot's limits; we are woken when its box ends
            if pid == 0:
                # Before anything else: a signal here would write into the zygote's pipe.
                signal.set_wakeup_fd(-1)
                os.close(ended)
                box.main(slot, wake, serial, meters, config, level)
            boxes.add(pid)
        poll.poll()
        with contextlib.suppress(BlockingIOError):
            # A byte per signal, and that of a box that was taken.
            if box.TAKEN in os.read(ended, 4096):
                stock = config["stock"]
        for pid, code in _reap_all():
            if pid not in boxes:  # an orphan of a box
                continue
            boxes.remove(pid)
            if code == box.NOT_READY:
                # It took no request, so nothing is lost.
                failures += 1
            elif code != 0:
                level.end_boxes()
                os._exit(0)
            else:
                failures = 0
            if failures == _FAILURES:
                raise OSError(f"{failures} boxes in a row could not be prepared")


def _reap_all() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)
