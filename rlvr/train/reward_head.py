"""Where a reward model lies, what it judges, and its version, which its head
gives it.  Needs no torch."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Final, Literal

from rlvr.errors import UsageError

__all__ = ["HEAD", "IMPLICIT", "Reads", "implicit_run", "reads_of", "require_reads", "version_of"]

Reads = Literal["completions", "steps"]
"""What a head was trained to judge: a completion after its last token, or
each step after its end."""

HEAD: Final = "reward_head.safetensors"
"""Lies beside the weights of the model."""

IMPLICIT: Final = "implicit:"
"""implicit:RUN is the model of a run of preferences, whose rewards are β log π /
π_ref; it judges either."""

# Those whose loss compares policy and reference by β.
_COMPARING: Final = ("dpo", "ipo", "slic", "kto")


def version_of(folder: str | Path) -> str:
    """The beginning of a digest of the head, which changes whenever the model is trained.

    Args:
        folder: RUN/model of a run; or implicit:RUN, whose weights are digested.

    Raises:
        UsageError: the folder holds no reward model.
    """
    if str(folder).startswith(IMPLICIT):
        return _digest_of(implicit_run(folder))
    head = Path(folder) / HEAD
    if not head.is_file():
        raise UsageError(
            f"{folder} has no {HEAD}, so it is no reward model; train one with --algorithm "
            f"reward_model"
        )
    return hashlib.sha256(head.read_bytes()).hexdigest()[:12]


def reads_of(folder: str | Path) -> str:
    """What the head judges, see `Reads`; empty for either, and for one of before this was recorded.

    Args:
        folder: RUN/model of a run, with a head; or implicit:RUN.
    """
    if str(folder).startswith(IMPLICIT):
        return ""
    with (Path(folder) / HEAD).open("rb") as file:  # its header is JSON behind its length
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return str(header.get("__metadata__", {}).get("reads", ""))


def require_reads(folder: str | Path, reads: Reads) -> None:
    """Refuse a model of the other kind: its head was never trained where it would be read.

    Args:
        folder: RUN/model of a run, with a head.
        reads: what is to be judged.

    Raises:
        UsageError: it judges the other.
    """
    trained = reads_of(folder)
    if trained not in ("", reads):
        kinds = {"completions": "reward_model", "steps": "process_reward_model"}
        raise UsageError(
            f"{folder} was trained with --algorithm {kinds[trained]} and judges {trained}, not "
            f"{reads}; train one with --algorithm {kinds[reads]}"
        )


def implicit_run(source: str | Path) -> tuple[Path, str, float]:
    """Of implicit:RUN the trained model's folder, the model that the run began with, and β.

    Args:
        source: implicit:RUN.

    Raises:
        UsageError: RUN is no finished run of preferences over a reference.
    """
    run = Path(str(source).removeprefix(IMPLICIT))
    try:
        settings = json.loads((run / "config.json").read_bytes())["settings"]
        reference, algorithm = settings["model"], settings["algorithm"]
        beta = float(algorithm["beta"]) if algorithm["name"] in _COMPARING else None
    except (OSError, ValueError, KeyError, TypeError):
        beta = None
    # Weights are written last of all, at the end of a run.
    if beta is None or not any((run / "model").glob("*.safetensors")):
        raise UsageError(
            f"{source}: {run} is no finished run of {', '.join(_COMPARING)}, whose model's gain "
            "over the model that it began with is a reward; give the folder of one"
        )
    return run / "model", reference, beta


def _digest_of(source: tuple[Path, str, float]) -> str:
    folder, reference, beta = source
    files = sorted(folder.glob("*.safetensors"))
    digests = [_digest_of_file(file, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((digests, reference, beta)).encode()).hexdigest()[:12]


@cache
def _digest_of_file(file: Path, written_ns: int) -> str:
    """Read once for all parts of a process; `written_ns` keeps a file that was trained again
    apart."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
