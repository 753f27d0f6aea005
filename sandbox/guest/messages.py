"""What the host tells its slots, by name.  For type checkers: no process of a slot imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypeAlias, TypedDict

__all__ = ["RootPlan", "RunLimits", "SlotConfig", "SlotMessage"]

SlotMessage: TypeAlias = dict[str, Any]
"""What goes over a socket between host and slot, as JSON or marshalled: a request, a reply, an
order, the header of a program."""


class RunLimits(TypedDict):
    """The limits of a run; see `Limits`.  In bytes where that has MiB."""

    cpu_s: float
    wall_s: float
    memory: int
    output: int
    processes: int
    disk: int
    files: int


class RootPlan(TypedDict):
    """The files of the host that a slot sees; see `toolchains.root_plan`.  Of a pair the first is
    the path on the host, but of a link the one inside."""

    binds: Sequence[tuple[str, str]]
    caches: Sequence[tuple[str, str]]
    links: Sequence[tuple[str, str]]
    packages: Sequence[tuple[str, str]]
    empty: Sequence[str]
    folders: Sequence[str]


class SlotConfig(TypedDict):
    """How the slots of a pool are set up; see `SlotPool`."""

    level: str
    scratch: str
    executable: str
    path: list[str]
    preload: list[str]
    packages: list[str]
    sites: list[str]
    root: NotRequired[RootPlan]  # a slot forgets it: it has paths of the host
    landlock: int
    filter: str  # BPF in hexadecimal, as `forks`
    forks: str
    outer_uid: int
    outer_gid: int
    stock: int
    own_processes: int
    cores: int
    sampled: bool
    disk: int
    files: int
