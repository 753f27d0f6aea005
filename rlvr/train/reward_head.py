"""The file of a reward model's head, and the version that it gives the model.  Needs no torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final, Literal

from rlvr.errors import UsageError

__all__ = ["HEAD", "Reads", "reads_of", "require_reads", "version_of"]

Reads = Literal["completions", "steps"]
"""What a head was trained to judge: a completion after its last token, or each step after its end."""

HEAD: Final = "reward_head.safetensors"
"""Lies beside the weights of the model."""


def version_of(folder: str | Path) -> str:
    """The beginning of a digest of the head, which changes whenever the model is trained.

    Args:
        folder: RUN/model of a run.

    Raises:
        UsageError: the folder holds no reward model.
    """
    head = Path(folder) / HEAD
    if not head.is_file():
        raise UsageError(
            f"{folder} has no {HEAD}, so it is no reward model; train one with --algorithm reward_model"
        )
    return hashlib.sha256(head.read_bytes()).hexdigest()[:12]


def reads_of(folder: str | Path) -> str:
    """What the head judges, see `Reads`; empty for one of before this was recorded.

    Args:
        folder: RUN/model of a run, with a head.
    """
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
    found = reads_of(folder)
    if found not in ("", reads):
        kinds = {"completions": "reward_model", "steps": "process_reward_model"}
        raise UsageError(
            f"{folder} was trained with --algorithm {kinds[found]} and judges {found}, not {reads}; train one with "
            f"--algorithm {kinds[reads]}"
        )
