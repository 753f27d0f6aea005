"""The judge: every algorithm's formulas in float64, row by row, in numpy alone; it
recomputes recorded steps.

step file ─rows─▶ rows ─advantages─▶ [T] of each ─losses─▶ loss, ∂loss/∂log-probability of each
                             │                       │        token
                             └───────────────────────┴─ compared with what is recorded: verify
"""

from __future__ import annotations

from rlvr.algo.judge.conventions import Conventions
from rlvr.algo.judge.rows import Setting

__all__ = ["Conventions", "Setting"]
