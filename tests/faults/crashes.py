"""What a power cut may leave: every state of a folder that the file system may show after one.

`recorded` notes each sync, rename, link and removal while a program writes.  At each of these moments the machine may
stop.  Names are as they were when the folder was synced last, or with the first few of the changes since, or with one
of them alone, as file systems may write them in another order; a file holds what was synced last, or half or all of
what was written after that (Pillai and others, "All file systems are not created equal", OSDI 2014).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

__all__ = ["State", "Recorder", "recorded"]

State = dict[str, bytes]
"""Name → content, of the files in the folder."""


class Recorder:
    """Watches a folder.

    Attributes:
        states: what a power cut may leave, each once.

    Args:
        folder: what is watched; folders in it are not.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced: dict[int, bytes] = {}  # inode → content that is on the disk
        self._names: dict[str, int] = self._listed()  # as they are on the disk
        self._since: list[dict[str, int]] = []  # after each change of a name that is not
        self.states: list[State] = []
        for path in folder.iterdir():  # what was there before is on the disk
            if path.is_file():
                self._synced[path.stat().st_ino] = path.read_bytes()
        self.note()

    def _listed(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self._folder.iterdir() if path.is_file()}

    def note(self) -> None:
        """One moment: collect what may be left if the machine stops now."""
        now = self._listed()
        if now != (self._since[-1] if self._since else self._names):
            self._since.append(now)
        written = {inode: (self._folder / name).read_bytes() for name, inode in now.items()}
        alone = [
            _changed(self._names, *pair) for pair in itertools.pairwise([self._names, *self._since])
        ]
        for names in [self._names, *self._since, *alone]:
            contents = []
            for inode in names.values():
                safe, whole = (
                    self._synced.get(inode, b""),
                    written.get(inode, self._synced.get(inode, b"")),
                )
                contents.append({safe, whole, whole[: (len(safe) + len(whole)) // 2]})
            for chosen in itertools.product(*contents):
                state = dict(zip(names, chosen, strict=True))
                if state not in self.states:
                    self.states.append(state)

    def synced(self, descriptor: int) -> None:
        """A file or the folder is on the disk from now on."""
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            if found.st_ino == self._folder.stat().st_ino:
                self._names, self._since = self._listed(), []
            return
        for path in self._folder.iterdir():
            if path.is_file() and path.stat().st_ino == found.st_ino:
                self._synced[found.st_ino] = path.read_bytes()


def _changed(
    names: dict[str, int], before: dict[str, int], after: dict[str, int]
) -> dict[str, int]:
    """The names with the change from `before` to `after`, and no other."""
    kept = {name: inode for name, inode in names.items() if name in after or name not in before}
    return kept | {name: inode for name, inode in after.items() if before.get(name) != inode}


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[Recorder]:
    """Watch a folder while the block writes into it.

    Args:
        folder: it exists.
    """
    recorder = Recorder(folder)
    real = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "link", "unlink")}

    def changing(name: str):
        def call(*args, **options):
            recorder.note()
            result = real[name](*args, **options)
            recorder.note()
            return result

        return call

    def sync(descriptor: int) -> None:
        recorder.note()
        real["fsync"](descriptor)
        recorder.synced(descriptor)
        recorder.note()

    with contextlib.ExitStack() as patches:
        for name in ("replace", "rename", "link", "unlink"):
            patches.enter_context(mock.patch.object(os, name, changing(name)))
        patches.enter_context(mock.patch.object(os, "fsync", sync))
        yield recorder
    recorder.note()
