"""The file system that a slot sees: some folders of the host, read-only, on an empty tmpfs.

/usr/lib, /usr/bin, the interpreter …  bound read-only, as the host's plan says
/box/{home,tmp,shm}                    mounted afresh by each box; /tmp and /dev/shm lead there
/app, /logs …                          folders of /box/home that were asked for at these names,
                                       writable
/dev                                   null zero full random urandom
/proc                                  of the run's own processes
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlvr.sandbox.guest.linux import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    detach,
    mount,
    pivot_root,
    read_only,
)

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import RootPlan

__all__ = [
    "BOX",
    "SHM",
    "TMP",
    "WORK",
    "build",
    "fresh_scratch",
    "limit_scratch",
    "mount_proc",
    "remove_scratch",
    "sources_of",
]

BOX, WORK, TMP, SHM = "/box", "/box/home", "/box/tmp", "/box/shm"
_FOLDERS = (WORK, TMP, SHM)

_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/shm": SHM,
    "/tmp": TMP,
    "/var/tmp": TMP,
}
_ETC = {
    "passwd": "box:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "box:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def sources_of(plan: RootPlan) -> dict[str, int]:
    """Open the folders and files to be bound, while this process may still pass the folders above
    them.

    Args:
        plan: see `toolchains.root_plan`.

    Returns:
        Path inside → descriptor.
    """
    plans = (*plan["binds"], *plan["caches"], *plan["packages"])
    return {target: os.open(source, os.O_PATH) for source, target in plans}


def build(plan: RootPlan, sources: Mapping[str, int]) -> None:
    """Make the root and enter it.

    Args:
        plan: see `toolchains.root_plan`.
        sources: see `sources_of`; they are closed.
    """
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    devices = {name: os.open("/dev/" + name, os.O_PATH) for name in _DEVICES}
    # Any folder that exists: the new root is mounted over it in this namespace alone.
    root = next(d for d in ("/tmp", "/mnt", "/var", "/usr") if os.path.isdir(d))
    # 1 MiB is enough for folders, links and four small files.
    mount("rlvr", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for _, target in sorted(plan["binds"]):
        _bind(sources[target], root + target)
    for _, target in plan["caches"]:
        _overlay(sources[target], root + target, root + BOX)
    hidden = [root + target for target in plan["empty"] if os.path.isdir(root + target)]
    for target in hidden:  # packages of the host lie there
        mount("rlvr", target, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for _, target in sorted(plan["packages"]):  # those that are allowed
        _bind(sources[target], root + target)
    for target in hidden:
        read_only(target)
    for folder in ("/dev", "/etc", "/proc", "/var", "/old", BOX, *plan["folders"]):
        os.makedirs(root + folder, exist_ok=True)
    for name, fd in devices.items():
        _touch(f"{root}/dev/{name}")
        # A bind of the device: mknod is not allowed in a user namespace.
        mount(f"/proc/self/fd/{fd}", f"{root}/dev/{name}", None, MS_BIND)
    for name, text in _ETC.items():
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(text)
    for link, target in {**_LINKS, **dict(plan["links"])}.items():
        if not os.path.lexists(root + link):
            os.makedirs(os.path.dirname(root + link), exist_ok=True)
            os.symlink(target, root + link)
    for fd in (*sources.values(), *devices.values()):
        os.close(fd)
    # Unlike after chroot, the old root can then be unmounted.
    pivot_root(root, root + "/old")
    os.chdir("/")
    mount_proc()  # while the host's is still mounted: else the kernel refuses to mount one
    detach("/old")
    os.rmdir("/old")
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _bind(fd: int, target: str) -> None:
    source = f"/proc/self/fd/{fd}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _touch(target)
    mount(source, target, None, MS_BIND | MS_REC)
    # A bind has its source's flags until it is remounted.
    read_only(target)


def _overlay(fd: int, target: str, empty: str) -> None:
    """Mount a folder of the host in a way that does not show its path there in
    /proc/self/mountinfo."""
    os.makedirs(target, exist_ok=True)
    os.makedirs(empty, exist_ok=True)  # an overlay without a writable layer needs two folders
    try:
        mount(
            "cache",
            target,
            "overlay",
            MS_RDONLY | MS_NOSUID | MS_NODEV,
            f"lowerdir=/proc/self/fd/{fd}:{empty}",
        )
    # a kernel without overlays; the path is no secret, though a program need not know it
    except OSError:
        _bind(fd, target)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def mount_proc(flags: int = 0) -> None:
    """Mount /proc with the processes of our pid namespace; before Linux 5.8, also with figures of
    the machine.

    Args:
        flags: more MS_ flags.
    """
    flags |= MS_NOSUID | MS_NODEV | MS_NOEXEC
    try:
        # Without /proc/meminfo, /proc/sys and the like.
        mount("proc", "/proc", "proc", flags, "subset=pid")
    except OSError:
        mount("proc", "/proc", "proc", flags)


def fresh_scratch(size: int, files: int, folders: Sequence[str] = ()) -> None:
    """Mount an empty /box.  Needs a mount namespace of the box's own.

    Args:
        size: bytes that it can hold.
        files: files and folders that it can hold.
        folders: of the working directory, by the absolute names at which they are found too.
    """
    mount("box", BOX, "tmpfs", MS_NOSUID | MS_NODEV, _scratch(size, files + len(folders)))
    for folder in _FOLDERS:
        os.mkdir(folder)
    for folder in folders:
        os.mkdir(WORK + folder)
        # Bound to its second name, so that limits of the scratch hold for it as well.
        mount(WORK + folder, folder, None, MS_BIND)


def remove_scratch(folders: Sequence[str]) -> None:
    """Unmount /box: it is memory.

    Args:
        folders: see `fresh_scratch`.
    """
    for folder in folders:
        detach(folder)
    detach(BOX)


def limit_scratch(size: int, files: int, folders: Sequence[str] = ()) -> None:
    """Change the limits of a scratch that is mounted.

    Args:
        size, files, folders: see `fresh_scratch`.
    """
    options = _scratch(size, files + len(folders))
    mount("box", BOX, None, MS_REMOUNT | MS_NOSUID | MS_NODEV, options)


def _scratch(size: int, files: int) -> str:
    """The options of its tmpfs.  A size of 0 would mean no limit."""
    # The mount's root and each of the folders take an inode.
    return f"size={max(1, size)},nr_inodes={files + 1 + len(_FOLDERS)},mode=755"
