"""A part of a reward: short texts earn more."""

from dataclasses import dataclass
from typing import ClassVar

import rlvr


@dataclass(frozen=True)
class Brief(rlvr.Part):
    """1 for no text at all, down to 0 at `limit` characters."""

    limit: int = 100
    name: str = "brief"
    bounds: ClassVar = (0.0, 1.0)

    def value(self, task, completion, verdict):
        return max(0.0, 1 - len(completion.text) / self.limit)
