"""The file of a reward model's head, and the version that it gives the model.  Needs no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from rlvr.errors import UsageError

__all__ = ["HEAD", "version_of"]

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
