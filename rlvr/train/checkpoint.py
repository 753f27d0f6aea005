"""Checkpoints: one file each, complete or absent, with everything that the next step depends on.

A run that was killed at any moment and resumed gives the same weights as an uninterrupted one; on a CPU, to the last
bit.
"""

from __future__ import annotations

import os
import random
import re
import signal
import struct
import threading
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import torch

from rlvr.data.files import Checksummed, whole_file
from rlvr.errors import DataError
from rlvr.validate import require_whole

__all__ = [
    "latest",
    "load",
    "newest",
    "path_of",
    "restore_rng",
    "rng_state",
    "save",
    "stop_requested",
]

_NAME: Final = re.compile(r"step-(\d{8})\.pt")


def save(folder: Path, step: int, state: Mapping[str, Any], *, keep: int) -> Path:
    """Write `step-NNNNNNNN.pt` under another name, move it into place, and remove all but the `keep` newest.

    Args:
        folder: of the checkpoints; it is made.
        step: number of steps done.
        state: tensors, numbers, strings, and dicts, lists and tuples of them, which load without running code.
        keep: how many checkpoints stay, at least 1.

    Raises:
        UsageError: `keep` is below 1.
        OSError: the disk is full, or failed; the checkpoints before are as they were.
    """
    require_whole("keep", keep, 1)
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, step)
    try:
        with whole_file(path) as file:
            checksummed = Checksummed(file)
            with _without_checksums_of_members():
                torch.save(dict(state), checksummed)
            _seal(file, checksummed)
    except (OSError, RuntimeError) as error:
        said = (
            error if isinstance(error, OSError) else error.__context__
        )  # torch hides it behind an error of its own
        if not isinstance(said, OSError) or said.filename is not None:
            raise
        raise OSError(
            said.errno, f"{said.strerror}: the checkpoint of step {step}", str(path)
        ) from error
    for old in sorted(_found(folder))[:-keep]:  # now that the new name is on the disk too
        (folder / f"step-{old:08d}.pt").unlink(missing_ok=True)
    return path


def path_of(folder: Path, step: int) -> Path:
    """The path of a step's checkpoint.

    Args:
        folder: of the checkpoints.
        step: number of steps done.
    """
    return folder / f"step-{step:08d}.pt"


def latest(folder: Path) -> Path | None:
    """Path of the newest checkpoint; None if there is none.

    Args:
        folder: of the checkpoints.
    """
    steps = _found(folder)
    return folder / f"step-{max(steps):08d}.pt" if steps else None


def newest(folder: Path, keys: Collection[str] = ()) -> tuple[Path, dict[str, Any]] | None:
    """Path and state of the newest checkpoint that can be read; None if there is no checkpoint.

    Args:
        folder: of the checkpoints.
        keys: what the state must have; one without them counts as damaged.

    Warns:
        RuntimeWarning: a newer one is damaged, so that the steps since are run again.

    Raises:
        DataError: all of them are damaged.
    """
    last: DataError | None = None
    for step in sorted(_found(folder), reverse=True):
        path = folder / f"step-{step:08d}.pt"
        try:
            state = load(path)
            if missing := [key for key in keys if key not in state]:
                raise DataError(
                    f"{path} is no checkpoint of this version: it lacks {', '.join(missing)}"
                )
        except DataError as error:
            last = last or error
            continue
        if last is not None:
            warnings.warn(
                f"{last}; going on from the one before, {path.name}", RuntimeWarning, stacklevel=2
            )
        return path, state
    if last is not None:
        raise DataError(
            f"{last}; none of {folder} can be read, so the run cannot go on: give a new folder"
        )
    return None


def load(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, with tensors on the CPU.

    Args:
        path: the file.

    Warns:
        RuntimeWarning: it has no checksum, since an older rlvr wrote it.

    Raises:
        DataError: it is not a checkpoint, or is damaged.
    """
    sealed = _is_sealed(path)
    if sealed is False:
        raise DataError(f"{path} was damaged since it was written: its checksum does not fit")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  whatever a damaged file makes torch raise
        why = (str(error).splitlines() or [""])[0]  # the first of torch's lines names what is wrong
        raise DataError(
            f"{path} cannot be read as a checkpoint: {type(error).__name__}: {why[:200]}"
        ) from None
    if not isinstance(state, dict):
        raise DataError(f"{path} cannot be read as a checkpoint: it holds a {type(state).__name__}")
    if sealed is None:
        warnings.warn(
            f"{path} has no checksum: damage to it would pass unnoticed",
            RuntimeWarning,
            stacklevel=2,
        )
    return state


# torch writes a zip file and does not look at its checksums when it reads it.  The whole file's checksum stands in the
# zip's comment, so that the file stays one that torch.load takes: two bytes, the comment's length, then the comment.
_SEAL: Final = re.compile(rb"rlvr crc32 ([0-9a-f]{8})")
_SEAL_BYTES: Final = len(b"rlvr crc32 00000000")
_NO_COMMENT: Final = b"\0\0"


@contextmanager
def _without_checksums_of_members() -> Iterator[None]:
    """torch never reads those that it writes, and they cost as much time as the one that is checked."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


def _seal(file: IO[bytes], written: Checksummed) -> None:
    """Add the checksum of what was written so far."""
    file.seek(-len(_NO_COMMENT), os.SEEK_END)
    file.write(struct.pack("<H", _SEAL_BYTES) + b"rlvr crc32 %08x" % written.crc32)


def _is_sealed(path: Path) -> bool | None:
    """Whether the file is as it was written; None if it has no checksum."""
    size = path.stat().st_size - _SEAL_BYTES - len(_NO_COMMENT)
    if size < 0:
        return None
    with path.open("rb") as file:
        crc32, rest = 0, size
        while rest and (block := file.read(min(rest, 1 << 20))):
            crc32, rest = zlib.crc32(block, crc32), rest - len(block)
        length, seal = file.read(len(_NO_COMMENT)), file.read()
    found = _SEAL.fullmatch(seal)
    if found is None:
        return None
    return length == struct.pack("<H", _SEAL_BYTES) and int(found[1], 16) == zlib.crc32(
        _NO_COMMENT, crc32
    )


def rng_state(device: torch.device | None = None) -> dict[str, Any]:
    """The states of the global random generators of Python and torch; numpy's is left out.

    Args:
        device: whose generator is included, if it is a GPU.
    """
    version, words, gauss = random.getstate()
    state = {"python": [version, list(words), gauss], "torch": torch.get_rng_state()}
    if device is not None and device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_rng(state: Mapping[str, Any], device: torch.device | None = None) -> None:
    """Set the generators to the states of `rng_state`.

    Args:
        state: what `rng_state` returned.
        device: whose generator is set, if it is a GPU and `state` has it.
    """
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"])
    if device is not None and device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


@contextmanager
def stop_requested(say: Callable[[str], None] = lambda line: None) -> Iterator[Callable[[], bool]]:
    """Yields a function that is True once SIGTERM or SIGINT has arrived.

    The first signal is caught; a second one has its usual effect.  A SIGINT that is ignored at the start, as `nohup`
    and the `&` of a script have it, stays ignored; SIGTERM is still caught.  Outside the main thread, where Python does
    not let signals be handled, none is caught.

    Args:
        say: called with a line of text at the first signal.
    """
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came.is_set
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if before[signal.SIGINT] is signal.SIG_IGN:
        del before[signal.SIGINT]

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: object) -> None:
        came.set()
        restore()
        say(
            f"{signal.Signals(number).name}: this step is finished and saved first; a second one interrupts it"
        )

    for number in before:
        signal.signal(number, note)
    try:
        yield came.is_set
    finally:
        restore()


def _found(folder: Path) -> list[int]:
    return [
        int(name[1]) for path in folder.glob("step-*.pt") if (name := _NAME.fullmatch(path.name))
    ]
