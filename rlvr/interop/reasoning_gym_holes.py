"""Families of reasoning-gym whose scorers have holes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["HOLES", "PARTIAL_HOLES"]

HOLES: Final[Mapping[str, tuple[str, ...]]] = {}
PARTIAL_HOLES: Final[Mapping[str, tuple[str, ...]]] = {}
