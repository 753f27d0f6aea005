"""The keeper: the one process that the host starts, and the parent of every slot.

It never sees a program.  It forks a zygote when the host asks for one, maps its user and puts it
into its cgroups. When the host has ended, for whatever reason, it kills the zygotes and removes
their cgroups.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from rlvr.sandbox.guest import zygote
from rlvr.sandbox.guest.linux import remove_cgroup
from rlvr.sandbox.guest.namespaces import Namespaces
from rlvr.sandbox.guest.restricted import Restricted

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotConfig, SlotMessage

__all__ = ["main"]

# how often we check that the host is still there: forks of it may hold our socket open
_TICK_MS = 500
_STACK_BYTES = 1 << 30  # the room below the stack is laid out at exec; deep recursion needs it
# An order names folders of cgroups alone; nothing comes near it.
_MESSAGE_BYTES = 1 << 20
_LEVELS: Mapping[str, type[Namespaces | Restricted]] = {
    "namespaces": Namespaces,
    "restricted": Restricted,
}


def main(control_fd: int, config_fd: int) -> None:
    """Serve until the host closes the control socket or ends.

    Args:
        control_fd: the socket to the host.
        config_fd: a file with `SlotPool`'s settings and the host's process number as JSON.
    """
    _make_room()
    # Set by the host for this start only; programs must not inherit it.
    del os.environ["LD_BIND_NOW"]
    control = socket.socket(fileno=control_fd)
    with open(config_fd, "rb", closefd=True) as file:
        config = json.load(file)
    host_pid = config.pop("host")
    # The terminal sends SIGINT to the whole group; the host closes the socket when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to act on
    sys.path[:] = config["path"]
    before = set(sys.modules)
    for module in config["preload"]:
        try:
            __import__(module)
        # A package that was asked for must be there; modules that only save time need not.
        except ImportError as error:
            if module in config["packages"]:
                _tell(control, {"failed": f"import {module}: {error}"})
                return
    _forget_hidden(
        set(sys.modules) - before,
        config["sites"],
        [source for source, _ in config["root"]["packages"]],
    )
    zygote.prepare_zygote(config)
    try:
        keeper = _Keeper(control, config)
    except OSError as error:
        _tell(control, {"failed": str(error), "errno": error.errno})
        return
    try:
        _tell(control, {"ready": os.getpid()})
        # The parent changes when the host is killed, even while a fork of it holds the socket open.
        while os.getppid() == host_pid and keeper.turn():
            pass
    finally:
        keeper.close()


def _forget_hidden(imported: Set[str], sites: Sequence[str], visible: Sequence[str]) -> None:
    """Take out modules that programs may not import, since all packages of the host can be imported
    here.

    A package may import others where they are installed: hypothesis does so by entry points.

    Args:
        imported: names of modules.
        sites: folders with packages.
        visible: what of these programs see.
    """
    hidden = []
    for name in imported:
        module = sys.modules[name]
        where = str(
            getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
        )
        if _within(where, sites) and not _within(where, visible):
            hidden.append(name)
    for name in (
        hidden
    ):  # only now: a folder without __init__.py finds its path by the package that it lies in
        del sys.modules[name]


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _make_room() -> None:
    """Execute this program again with a high stack limit, since the memory layout is decided at
    exec.

    Stacks of threads are set back to 8 MiB later (`user.prepare_user`).
    """
    for which in (resource.RLIMIT_DATA, resource.RLIMIT_AS):  # a worker's are for itself
        _, hard = resource.getrlimit(which)
        # A soft limit can be raised to the hard one without privileges.
        resource.setrlimit(which, (hard, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    size = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
    if soft != resource.RLIM_INFINITY and soft < size:
        resource.setrlimit(resource.RLIMIT_STACK, (size, hard))
        # With the same arguments; the limit is high enough then, so this happens once.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class _Keeper:
    def __init__(self, control: socket.socket, config: SlotConfig) -> None:
        self.control, self.config = control, config
        self.level = _LEVELS[config["level"]](config)
        self.level.begin()
        self.zygotes: dict[int, list[str]] = {}  # pid → its cgroups
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)

    def turn(self) -> bool:
        """One message or one tick.  False when the host hung up."""
        if self.poll.poll(_TICK_MS):
            message, fds, _, _ = socket.recv_fds(self.control, _MESSAGE_BYTES, 1)
            if not message:
                return False
            order = json.loads(message)
            if "start" in order:
                self.start(order["start"], fds[0])
            else:
                self.kill(order["kill"])
        self.reap()
        return True

    def start(self, order: SlotMessage, fd: int) -> None:
        """Fork a zygote that answers the host over `fd`; tell the host its pid, or why there is
        none."""
        # `go`: the zygote waits until its user is mapped. `ready`: the keeper, until it has
        # mounted.
        go, ready = os.pipe(), os.pipe()
        # Opened here, where the host's /sys can be seen; the slot's root has none.
        meters = [os.open(path, os.O_RDONLY) if path else -1 for path in order["meters"]]
        try:
            pid = self.level.start_slot()
            if pid == 0:
                os.close(go[1])
                os.close(ready[0])
                # a program can find objects in its memory: none may hold a path of the host
                self.zygotes.clear()
                order.clear()
                zygote.main(fd, go[0], ready[1], meters, self.config, self.level)
        except OSError as error:
            _tell(self.control, {"failed": str(error), "errno": error.errno})
            return
        finally:
            for descriptor in (fd, go[0], ready[1], *meters):
                if descriptor >= 0:
                    os.close(descriptor)
        self.zygotes[pid] = order["cgroups"]
        try:
            # Before it goes on: its memory counts from the beginning.
            for procs in order["procs"]:
                with open(procs, "w") as file:
                    file.write(str(pid))
            self.level.admit(pid)
            os.write(go[1], b"k")
            # it has mounted what it needs; its own errors go to the host over its socket
            os.read(ready[0], 1)
            _tell(self.control, {"pid": pid})
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            # the zygote was, from outside
            killed = error.errno in (errno.EPIPE, errno.ESRCH, errno.ENOENT)
            _tell(
                self.control, {"failed": str(error), **({} if killed else {"errno": error.errno})}
            )
        # Closed in any case: a zygote that waits for `go` then reads an end and ends.
        finally:
            os.close(go[1])
            os.close(ready[0])

    def kill(self, pid: int) -> None:
        if pid in self.zygotes:
            self.level.end_slot(pid)

    def reap(self) -> None:
        while self.zygotes:
            # Orphans of a slot that was killed can come here too; they have no entry.
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self.zygotes:
                self.level.ended(pid)
            _remove(self.zygotes.pop(pid, []))

    def close(self) -> None:
        for pid in self.zygotes:
            self.level.end_slot(pid)
        self.level.end()
        for pid, cgroups in self.zygotes.items():
            with contextlib.suppress(ChildProcessError):
                # A cgroup with a process in it cannot be removed, so each is waited for.
                os.waitpid(pid, 0)
            _remove(cgroups)


def _remove(cgroups: list[str]) -> None:
    for folder in cgroups:
        remove_cgroup(folder)


def _tell(control: socket.socket, message: Mapping[str, object]) -> None:
    with contextlib.suppress(OSError):
        control.send(json.dumps(message).encode())
