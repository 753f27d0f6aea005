"""A process as in a container: no namespaces can be made, and Docker's default system calls and capabilities.

    python -m tests.sandbox.container COMMAND ARGUMENT ...          as root, on x86_64

What it does: a mount namespace whose root is a copy of ours, entered by chroot, in which the kernel makes no user
namespace; cgroups are read-only; a seccomp filter refuses what Docker's default profile refuses.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

from rlvr.sandbox.guest.linux import (
    CLONE_NEWNS,
    MS_BIND,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
    system_call_filter,
    unshare,
)

# moby/profiles/seccomp/default.json: numbers on x86_64 of what a container without capabilities may not call
_REFUSED = """
    acct 163 add_key 248 bpf 321 clock_adjtime 305 clock_settime 227 delete_module 176 finit_module 313 fsconfig 431
    fsmount 432 fsopen 430 fspick 433 get_mempolicy 239 init_module 175 io_uring_enter 426 io_uring_register 427
    io_uring_setup 425 ioperm 173 iopl 172 kcmp 312 kexec_file_load 320 kexec_load 246 keyctl 250 lookup_dcookie 212
    mbind 237 mount 165 mount_setattr 442 move_mount 429 move_pages 279 open_by_handle_at 304 open_tree 428
    perf_event_open 298 pivot_root 155 process_vm_readv 310 process_vm_writev 311 quotactl 179 reboot 169
    request_key 249 set_mempolicy 238 setns 308 settimeofday 164 swapoff 168 swapon 167 sysfs 139 umount2 166
    unshare 272 userfaultfd 323 vhangup 153
"""
_CLONE, _CLONE3, _NAMESPACES = 56, 435, 0x7E02_0000
_KEPT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
"""Capabilities that Docker leaves: chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service
net_raw sys_chroot mknod audit_write setfcap."""
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NR, _FLAGS = 0, 16  # offsets in struct seccomp_data
_PR_CAPBSET_DROP = 24


def available() -> bool:
    """Whether this process can make itself one."""
    return os.geteuid() == 0 and platform.machine() == "x86_64" and sys.platform == "linux"


def enter() -> None:
    """Become such a process; its children are too."""
    folder = Path.cwd()
    _enter_copy()
    os.chdir(folder)
    system_call_filter(_filter())()
    libc = ctypes.CDLL(None)
    for capability in set(range(64)) - {*_KEPT}:
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def _enter_copy() -> None:
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    root = "/mnt"  # nothing of this is seen outside
    mount("/", root, None, MS_BIND | MS_REC)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4]
        if point.startswith(root) and right.startswith("cgroup"):
            mount("none", point, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
    os.chroot(root)


def _filter() -> bytes:
    refused, missing = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    code = [(_LOAD, 0, 0, _NR)]
    for number in map(int, _REFUSED.split()[1::2]):
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refused)]
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, missing)]
    code += [(_EQUAL, 0, 3, _CLONE), (_LOAD, 0, 0, _FLAGS), (_ANY_BIT, 0, 1, _NAMESPACES)]
    code += [(_RETURN, 0, 0, refused), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("<HBBI", *one) for one in code)


if __name__ == "__main__":
    if not available():
        raise SystemExit("only root on x86_64 Linux can make a container of this process")
    enter()
    os.execvp(sys.argv[1], sys.argv[1:])
