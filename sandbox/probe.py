"""What does a run rest on here?  Found by canary attacks, never by what should be so."""
from __future__ import annotations
from collections.abc import Callable
from rlvr.sandbox.records import Guarantee
PROMISES = {"files":"x"}
def examine(execute: Callable[..., object], memory: str) -> list[Guarantee]:
    return []
