"""The levels of isolation, as data: what each promise rests on, and which
promises a level does not make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rlvr.sandbox.guest.linux import landlock_abi
from rlvr.sandbox.guest.restricted import ABI

__all__ = ["LEVELS", "Level", "landlock_version", "level_here"]

_NEWEST = ABI  # that is used; tests leave newer rights out


@dataclass(frozen=True, slots=True)
class Level:
    """A level of isolation.

    Attributes:
        name: as `Sandbox(level=...)` takes it.
        rests_on: promise → mechanism.
        missing: promise that the level does not make → what holds instead.  Who asks for the level
            waives them.
    """

    name: str
    rests_on: Mapping[str, str]
    missing: Mapping[str, str]


_WATCHED: Final = "pid 1 of the run, which looks every 10 ms"
_BOX: Final = "the run's parent, which looks every 10 ms"

_UNSCOPED: Final = {
    "processes-untouched": (
        "Landlock: no tracing; seccomp: each signal is asked of the run's parent"
    ),
    "tree": (
        "signals to all descendants, from a parent that is asked for new ones, adopts and reaps"
    ),
}

LEVELS: Final[Mapping[str, Level]] = {
    "namespaces": Level(
        "namespaces",
        rests_on={
            "files": "mount namespace: a root of its own, made of a few read-only mounts",
            "names-unseen": "mount namespace: a root of its own",
            "writes": "mount namespace: all of it read-only",
            "environment": (
                "a process started by exec with an environment and descriptors of our own"
            ),
            "network": "network namespace without interfaces; seccomp: Unix sockets only",
            "processes-unseen": "pid namespace, /proc of the run's own",
            "processes-untouched": "pid and ipc namespaces",
            "privileges": "user namespace, no_new_privs, empty capability sets",
            "system-calls": "seccomp allow-list",
            "cpu": "clocks of all processes, read by pid 1 of the run",
            "wall": "pid 1 of the run",
            "memory": _WATCHED,
            "processes": "RLIMIT_NPROC in a user namespace of its own",
            "output": "memfds under RLIMIT_FSIZE",
            "disk": "tmpfs with a size and a number of inodes",
            "fresh": "tmpfs for each run, mounted afresh",
            "tree": "pid namespace whose pid 1 kills and reaps all before it replies",
        },
        missing={},
    ),
    "restricted": Level(
        "restricted",
        rests_on={
            "files": (
                "Landlock: the interpreter's and the system's libraries can be opened for reading"
            ),
            "writes": "Landlock: the scratch folder; seccomp: no change of modes, owners and times",
            "environment": (
                "a process started by exec with an environment and descriptors of our own"
            ),
            "network": "seccomp: no sockets but the two ends of a pair",
            "processes-untouched": "Landlock: a scope for signals and tracing; seccomp",
            "privileges": "no_new_privs, empty capability sets",
            "system-calls": "seccomp allow-list",
            "cpu": "clocks of all processes, read by the run's parent",
            "wall": "the run's parent",
            "memory": _BOX,
            "processes": (
                "seccomp: each new process and thread is asked of the run's parent, which counts"
            ),
            "output": "memfds under RLIMIT_FSIZE",
            "fresh": "the scratch folder is emptied after each run",
            "tree": (
                "a signal to all of a Landlock scope, "
                "from a parent that adopts orphans and reaps all"
            ),
        },
        missing={
            "names-unseen": (
                "whether a file exists, its size and times can be asked for; "
                "so can the name of the host"
            ),
            "processes-unseen": "whether a process number is in use can be asked",
            "disk": f"more than the limits ends the run, but only {_BOX}, sees it",
        },
    ),
}
"""By name."""


def landlock_version() -> int:
    """The version of Landlock whose rights are used here; 0 where the kernel has none."""
    return min(landlock_abi(), _NEWEST)


def level_here(name: str) -> Level:
    """A level as it is on this kernel.

    Args:
        name: a key of `LEVELS`.
    """
    level = LEVELS[name]
    if name != "restricted" or landlock_version() >= ABI:
        return level
    return replace(level, rests_on={**level.rests_on, **_UNSCOPED})
