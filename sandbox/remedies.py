"""What to change on a host that lacks what a level needs: the line that is to
blame, where it can be told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["of_landlock", "of_namespaces"]

# A file, what it says where namespaces are closed, and what opens them
_CLOSED: Final = (
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sysctl kernel.unprivileged_userns_clone=1",
    ),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
)
_CONTAINER: Final = (
    "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined"
)
_UNKNOWN: Final = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container: --security-opt "
    "seccomp=unconfined, "
    "and for root --cap-add SYS_ADMIN)"
)
_INSTEAD: Final = (
    'or run with fewer guarantees, by Landlock, with Sandbox(level="restricted") or --sandbox '
    'restricted; or score on another host with "rlvr serve" (docs/using/serving.md)'
)
_LANDLOCK: Final = (
    "use Linux 5.13 or newer with Landlock (CONFIG_SECURITY_LANDLOCK, and landlock in the kernel's "
    "lsm= list), in a container whose seccomp profile lets landlock_create_ruleset through; "
    'or score on another host with "rlvr serve" '
    "(docs/using/serving.md)"
)


def of_namespaces() -> str:
    """Where no namespace can be made."""
    root = os.geteuid() == 0
    lines = [line for path, closed, line in _CLOSED if _says(path) == closed]
    if root:  # whom the first two do not concern
        lines = lines[-1:] if _says(_CLOSED[-1][0]) == "0" else []
    if _is_filtered():
        lines.append(_CONTAINER)
    remedy = "; ".join(lines) or _UNKNOWN
    return f"{remedy}{'' if root else ', or run as root'}; {_INSTEAD}"


def of_landlock() -> str:
    """Where Landlock is missing or too old."""
    return _LANDLOCK


def _says(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _is_filtered() -> bool:
    """Whether this process is under a seccomp filter, as in a container."""
    return "\nSeccomp:\t2" in _says("/proc/self/status")
