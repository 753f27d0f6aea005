"""Checkpoints: complete or absent, with everything that the next step depends on.

step-00000007.pt           what is not in shards, and what the folder beside it has to hold;
                           written last
step-00000007-a1b2c3d4/    the shards of several ranks (torch.distributed.checkpoint);
                           opens on any number of them

A run that was killed at any moment and resumed gives the same weights as an uninterrupted one; on a
CPU, to the last bit.
"""

from __future__ import annotations

import errno
import os
import pickle
import random
import re
import secrets
import shutil
import signal
import struct
import threading
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.tensor import DTensor

from rlvr.data.files import Checksummed, sync_folder, whole_file
from rlvr.errors import DataError, UsageError
from rlvr.train.ranks import Ranks
from rlvr.types import JsonObject, StateDict
from rlvr.validate import require_whole

__all__ = [
    "crc32_of",
    "latest",
    "load_checkpoint",
    "newest",
    "path_of",
    "restore_rng",
    "rng_state",
    "save",
    "stop_requested",
]

_NAME: Final = re.compile(r"step-(\d{8})\.pt")


def save(
    folder: Path, step: int, state: Mapping[str, object], *, keep: int, ranks: Ranks | None = None
) -> Path:
    """Write `step-NNNNNNNN.pt` under another name, move it into place, and remove all but the
    `keep` newest.

    All ranks make this call; each writes its shards, and the first one the rest.

    Args:
        folder: of the checkpoints; it is made.
        step: number of steps done.
        state: tensors, numbers, strings, and dicts, lists and tuples of them, which load without
            running code; on ranks but the first only its shards are looked at.
        keep: how many checkpoints stay, at least 1.
        ranks: over which tensors are sharded; None for this process alone.

    Raises:
        UsageError: `keep` is below 1.
        OSError: the disk is full, or failed; the checkpoints before are as they were.
    """
    require_whole("keep", keep, 1)
    folder.mkdir(parents=True, exist_ok=True)
    path, ranks, shards = path_of(folder, step), ranks or Ranks(), list[_Shard]()
    # Before other ranks return: writing shards is a collective of all ranks.
    unsharded = _without_shards(dict(state), (), shards)
    shards_info = _write_shards(path, shards, ranks) if shards else {}
    if shards:
        unsharded[_SHARDS] = shards_info
    if not ranks.first:
        return path
    try:
        with whole_file(path) as file:
            checksummed = Checksummed(file)
            with _without_checksums_of_members():
                torch.save(unsharded, checksummed)
            _seal(file, checksummed)
    except (OSError, RuntimeError) as error:
        # torch may hide the disk's error behind one of its own; an error with a file name says all.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError) or cause.filename is not None:
            raise
        raise OSError(
            cause.errno, f"{cause.strerror}: the checkpoint of step {step}", str(path)
        ) from error
    for old in sorted(_found(folder))[:-keep]:  # now that the new name is on the disk too
        (folder / f"step-{old:08d}.pt").unlink(missing_ok=True)
    # Shards of checkpoints that went, and those that an interrupted save of this step left.
    written = shards_info["folder"] if shards else ""
    for place in folder.glob("step-*-*/"):
        is_kept = path_of(folder, int(place.name.split("-")[1])).exists()
        if not is_kept or (place.name.startswith(f"{path.stem}-") and place.name != written):
            shutil.rmtree(place, ignore_errors=True)
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


def newest(
    folder: Path, keys: Collection[str] = (), ranks: Ranks | None = None
) -> tuple[Path, dict[str, Any]] | None:
    """Path and state of the newest checkpoint that can be read; None if there is no checkpoint.

    All ranks make this call; the first one chooses.

    Args:
        folder: of the checkpoints.
        keys: what the state must have; one without them counts as damaged.
        ranks: over which what was sharded is sharded; None for whole tensors.

    Warns:
        RuntimeWarning: a newer one is damaged, so that the steps since are run again.

    Raises:
        DataError: all of them are damaged.
        UsageError: a rank does not see the first one's.
    """
    ranks = ranks or Ranks()
    # One rank chooses: files that differ in age on a
    # network disk must not make ranks open two steps.
    newest_here = _newest(folder, keys) if ranks.first else None
    path = ranks.from_first(None if newest_here is None else newest_here[0])
    if path is None:
        return None
    # `any` is a collective; a rank that raised alone would leave the others waiting.
    if ranks.any(not path.is_file()):
        raise UsageError(
            f"the ranks see other checkpoints in {folder}; it has to be on a shared disk"
        )
    state = _read(path) if newest_here is None else newest_here[1]
    return path, _with_shards(path, state, ranks)


def _newest(folder: Path, keys: Collection[str]) -> tuple[Path, dict[str, object]] | None:
    """The newest one that is as it was written; its shards are not read yet."""
    last: DataError | None = None
    for step in sorted(_found(folder), reverse=True):
        path = folder / f"step-{step:08d}.pt"
        try:
            state = _read(path)
            _require_shards(path, state)
            if missing := [key for key in keys if key not in state]:
                raise DataError(
                    f"{path} is no checkpoint of this version: it lacks {', '.join(missing)}"
                )
        # The newest damage is the one to report: it is what the user loses.
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


def load_checkpoint(path: Path) -> dict[str, object]:
    """The state in a checkpoint, with tensors on the CPU.

    Args:
        path: the file.

    Warns:
        RuntimeWarning: it has no checksum, since an older rlvr wrote it.

    Raises:
        DataError: it is not a checkpoint, or is damaged.
    """
    state = _read(path)
    _require_shards(path, state)
    return _with_shards(path, state, Ranks())


def _read(path: Path) -> dict[str, Any]:
    """What a checkpoint's file holds."""
    sealed = _is_sealed(path)
    if sealed is False:
        raise DataError(f"{path} was damaged since it was written: its checksum does not fit")
    try:
        # `weights_only`: a checkpoint may come from a stranger, and a pickle is a program.
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


_SHARDS: Final = "shards"
_Shard = tuple[tuple[Any, ...], DTensor]  # the keys that lead to it, and its share of this rank


def _without_shards(tree: object, keys: tuple[object, ...], shards: list[_Shard]) -> Any:
    """The tree with None in the place of each sharded tensor, which is added to `shards`."""
    if isinstance(tree, DTensor):
        shards.append((keys, tree.detach()))
        return None
    if isinstance(tree, Mapping):
        return {key: _without_shards(item, (*keys, key), shards) for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        items = [_without_shards(item, (*keys, i), shards) for i, item in enumerate(tree)]
        return items if isinstance(tree, list) else tuple(items)
    return tree


def _write_shards(path: Path, shards: Sequence[_Shard], ranks: Ranks) -> dict[str, object]:
    """Write this rank's shards into a new folder; returns what the checkpoint's file says of all of
    them."""
    folder = path.with_name(
        # A name of its own for each attempt: a save that
        # was killed and is made again must not mix files.
        ranks.from_first(f"{path.stem}-{secrets.token_hex(4)}" if ranks.first else None)
    )
    # Numbers for names: the keys that lead to a tensor need not be texts.
    named = {str(number): tensor for number, (_, tensor) in enumerate(shards)}
    try:
        dcp.save(named, storage_writer=dcp.FileSystemWriter(folder))
    except CheckpointException as error:  # of all ranks, with the error of each that failed
        # The lowest rank's, so that every rank raises the same error.
        rank, failure = min(error.failures.items())
        if ranks.first:
            shutil.rmtree(folder, ignore_errors=True)
        raise OSError(
            getattr(failure[0], "errno", None) or errno.EIO,
            f"rank {rank} cannot write its shards: {failure[0]}",
            str(folder),
        ) from error
    # Before the checksums are sent: the checkpoint's file may only name what is on the disk.
    sync_folder(folder)
    # torch's names for the files of one rank: `__RANK_…`. Each rank sums up its own, in parallel.
    own_files = [p for p in folder.iterdir() if p.name.startswith(f"__{ranks.rank}_")]
    files = ranks.from_all({p.name: crc32_of(p) for p in [*own_files, folder / _METADATA]})
    return {
        "folder": folder.name,
        "files": {name: crc32 for rank_files in files for name, crc32 in rank_files.items()},
        "tensors": [
            [list(keys), list(tensor.shape), str(tensor.dtype).removeprefix("torch.")]
            for keys, tensor in shards
        ],
    }


def _require_shards(path: Path, state: StateDict) -> None:
    """Refuse a checkpoint whose shards are not all there as they were written."""
    shards_info: JsonObject = state.get(_SHARDS) or {"files": {}}
    for name, crc32 in shards_info["files"].items():
        file = path.with_name(shards_info["folder"]) / name
        if not file.is_file() or crc32_of(file) != crc32:
            raise DataError(
                f"{path} was damaged since it was written: {file} is gone, or its checksum does "
                f"not fit"
            )


def _with_shards(path: Path, state: dict[str, Any], ranks: Ranks) -> dict[str, object]:
    """The state with its shards in their places: whole tensors, or shards over these ranks."""
    shards_info = state.pop(_SHARDS, None)
    if shards_info is None:
        return state
    named = {
        str(number): ranks.empty(shape, getattr(torch, dtype))
        for number, (_, shape, dtype) in enumerate(shards_info["tensors"])
    }
    folder = path.with_name(shards_info["folder"])
    _require_plain_metadata(folder / _METADATA)
    reader = _ShardReader(folder)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            # `no_dist`: whole tensors in one process, whatever number of ranks has written them.
            dcp.load(named, storage_reader=reader, no_dist=ranks.world == 1)
    except CheckpointException as error:
        rank, failure = min(error.failures.items())
        raise DataError(f"rank {rank} cannot read its shards of {path}: {failure[0]}") from error
    for number, (keys, _, _) in enumerate(shards_info["tensors"]):
        place: Any = state
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = named[str(number)]
    return state


_METADATA: Final = ".metadata"
# Classes that a metadata file of torch names; unpickling any other one is refused.
_OF_METADATA: Final = frozenset(
    {
        "pathlib.PosixPath",
        "pathlib._local.PosixPath",  # its name in Python 3.13
        "torch.Size",
        "torch.serialization._get_layout",
        "torch.distributed.checkpoint.filesystem._StorageInfo",
        *(
            f"torch.distributed.checkpoint.metadata.{name}"
            for name in (
                *("Metadata", "MetadataIndex", "StorageMeta", "ChunkStorageMetadata"),
                *("TensorProperties", "TensorStorageMetadata", "BytesStorageMetadata"),
                "_MEM_FORMAT_ENCODING",
            )
        ),
    }
)


# What the unpickler raises for damaged bytes, or for bytes that are no pickle.
_OF_A_PICKLE: Final = (
    *(pickle.UnpicklingError, EOFError, MemoryError, RecursionError),
    *(AttributeError, ImportError, LookupError, TypeError, ValueError),
)


class _ShardReader(dcp.FileSystemReader):  # type: ignore[misc]  # torch has no types here
    """Of a folder that may be a stranger's."""

    def read_metadata(self) -> Metadata:
        """As torch does; but where that fails, torch would unpickle a file of this rank, too, if
        this took more arguments."""
        return super().read_metadata()


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" in _OF_METADATA:
            return super().find_class(module, name)
        dtype = getattr(torch, name, None) if module == "torch" else None
        if isinstance(dtype, torch.dtype):
            return dtype
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _require_plain_metadata(path: Path) -> None:
    """Refuse what torch would unpickle, and so run, if it is more than sizes and places of tensors.

    Raises:
        DataError: it is.
    """
    try:
        with path.open("rb") as file:
            metadata = _MetadataUnpickler(file).load()
        if not isinstance(metadata, Metadata):
            raise pickle.UnpicklingError(f"it holds a {type(metadata).__name__}")
    except (*_OF_A_PICKLE, OSError) as error:
        raise DataError(f"{path} does not describe shards: {error}") from None


def crc32_of(path: Path) -> int:
    """The checksum of a file.

    Args:
        path: the file.
    """
    crc32 = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc32 = zlib.crc32(block, crc32)
    return crc32


# torch writes a zip file and does not look at its checksums when it reads it.  The whole file's
# checksum stands in the zip's comment, so that the file stays one that torch.load takes: two bytes,
# the comment's length, then the comment.
_SEAL: Final = re.compile(rb"rlvr crc32 ([0-9a-f]{8})")
_SEAL_BYTES: Final = len(b"rlvr crc32 00000000")
_NO_COMMENT: Final = b"\0\0"


@contextmanager
def _without_checksums_of_members() -> Iterator[None]:
    """torch never reads those that it writes, and they cost as much time as the one that is
    checked."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


def _seal(file: IO[bytes], written: Checksummed) -> None:
    """Add the checksum of what was written so far."""
    # The zip ends with the length of an empty comment, two zero bytes; they are overwritten.
    file.seek(-len(_NO_COMMENT), os.SEEK_END)
    file.write(struct.pack("<H", _SEAL_BYTES) + b"rlvr crc32 %08x" % written.crc32)


def _is_sealed(path: Path) -> bool | None:
    """Whether the file is as it was written; None if it has no checksum."""
    size = path.stat().st_size - _SEAL_BYTES - len(_NO_COMMENT)
    if size < 0:
        return None
    with path.open("rb") as file:
        crc32, unread = 0, size
        while unread and (block := file.read(min(unread, 1 << 20))):
            crc32, unread = zlib.crc32(block, crc32), unread - len(block)
        length, seal = file.read(len(_NO_COMMENT)), file.read()
    match = _SEAL.fullmatch(seal)
    if match is None:
        return None
    # The sum was taken over the file with its empty comment, which the seal has replaced.
    return length == struct.pack("<H", _SEAL_BYTES) and int(match[1], 16) == zlib.crc32(
        _NO_COMMENT, crc32
    )


def rng_state(device: torch.device | None = None) -> dict[str, object]:
    """The states of the global random generators of Python and torch; numpy's is left out.

    Args:
        device: whose generator is included, if it is a GPU.
    """
    version, words, gauss = random.getstate()
    state = {"python": [version, list(words), gauss], "torch": torch.get_rng_state()}
    if device is not None and device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_rng(state: StateDict, device: torch.device | None = None) -> None:
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

    The first signal is caught; a second one has its usual effect.  A SIGINT that is ignored at the
    start, as `nohup` and the `&` of a script have it, stays ignored; SIGTERM is still caught.
    Outside the main thread, where Python does not let signals be handled, none is caught.

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
        # First of all: if `say` fails or hangs, a second signal still ends the process.
        restore()
        say(
            f"{signal.Signals(number).name}: this step is finished and saved first; a second one "
            f"interrupts it"
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
