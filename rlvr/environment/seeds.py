"""The seed of a task: a hash of what identifies it."""

from __future__ import annotations

import hashlib
import random
from numbers import Integral

from rlvr.errors import UsageError, brief

__all__ = ["seeded"]


def seeded(*key: str | int) -> random.Random:
    """A random generator for one task, seeded with a hash of (id, split, index).

    Seeding with seed + index would give neighbouring seeds the same tasks, and splits would
    overlap.

    Args:
        key: strings and whole numbers that identify the task.

    Raises:
        UsageError: a part of the key is of another type.
    """
    for part in key:
        # the repr of other types may differ between processes
        if not isinstance(part, (str, Integral)):
            raise UsageError(
                f"seeded({brief(part)}): give strings and whole numbers, str(…) of anything else"
            )
    # The repr of numpy's integers differs from that of Python's, and both must lead to the same
    # task.
    plain = tuple(str(part) if isinstance(part, str) else int(part) for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return random.Random(int.from_bytes(digest[:16], "big"))
