"""`rlvr doctor --report`: the machine as text to paste into an issue.

Every line is put together from a closed list of facts: numbers, versions, and names of our own
parts. Errors, remedies and ids of plugins are left out, as they may hold the names of users or
folders.
"""

from __future__ import annotations

import platform
import re
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr.cli.doctor import PartStatus

__all__ = ["report_lines"]

_FEATURES = {
    "security modules": "/sys/kernel/security/lsm",
    "most user namespaces": "/proc/sys/user/max_user_namespaces",
    "user namespaces for all users": "/proc/sys/kernel/unprivileged_userns_clone",
    "AppArmor restricts user namespaces": "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "seccomp actions": "/proc/sys/kernel/seccomp/actions_avail",
    "cgroup controllers": "/sys/fs/cgroup/cgroup.controllers",
}
_INSTRUCTIONS = ("avx", "avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")
_LIMITS = {
    "open files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "address space": resource.RLIMIT_AS,
    "file size": resource.RLIMIT_FSIZE,
    "CPU seconds": resource.RLIMIT_CPU,
}
_WORDS = re.compile(r"[\w ,.()@-]*")
_STATES = {True: "works", False: "MISSING", None: "absent"}


def report_lines(findings: Sequence[PartStatus]) -> Iterator[str]:
    """The report, line by line.

    Args:
        findings: of `rlvr.cli.doctor.examine`.
    """
    kernel = re.match(r"[\d.]*", platform.release())
    libc = " ".join(platform.libc_ver())
    yield f"python: {platform.python_version()} ({platform.python_implementation()}, {libc})"
    yield f"system: {platform.system()} {kernel[0] if kernel else ''} on {platform.machine()}"
    yield f"cpu: {_cpu()}"
    for finding in findings:
        if finding.group == "system" and finding.part != "python":
            yield f"{finding.part}: {finding.found}"
        elif finding.group in ("packages", "extras"):
            label = f"extra {finding.part}" if finding.group == "extras" else finding.part
            yield f"{label}: {finding.found}"
    for name, path in _FEATURES.items():
        yield f"kernel, {name}: {_read(path)}"
    for name, number in _LIMITS.items():
        soft, hard = (_limit(value) for value in resource.getrlimit(number))
        yield f"limit, {name}: {soft} (at most {hard})"
    for group in ("workers", "sandbox", "restricted", "languages"):
        for state, word in _STATES.items():
            parts = [
                finding.part
                for finding in findings
                if finding.group == group and finding.ok is state
            ]
            if parts:
                yield f"{group}, {word}: {', '.join(parts)}"
    loads = [finding.ok for finding in findings if finding.group == "environments"]
    yield f"environments: {loads.count(True)} load, {loads.count(False)} do not"


def _cpu() -> str:
    """Its model, and those of its instructions that kernels of torch choose by."""
    text = _content("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE)
    cpu_flags = set(flags[1].split()) if flags else set()
    instructions = " ".join(name for name in _INSTRUCTIONS if name in cpu_flags)
    return f"{model[1] if model else 'unknown'}; {instructions or 'instructions unknown'}"


def _limit(value: int) -> str:
    return "none" if value == resource.RLIM_INFINITY else f"{value:,}"


def _content(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _read(path: str) -> str:
    """The one line of a file of the kernel; what has other letters than words is not shown."""
    text = _content(path).strip()
    return text if text and _WORDS.fullmatch(text) else "unknown"
