"""What a training step took: seconds, tokens a second, and memory."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

import torch

__all__ = ["step_costs"]


def step_costs(device: torch.device, tokens: float, step_s: float) -> dict[str, float]:
    """The metrics of a step's costs.

    Args:
        device: of the policy, whose memory is meant; that of this process if it is the CPU.
        tokens: sampled or trained in the step.
        step_s: seconds of the step.
    """
    numbers = {"step_s": step_s, "tokens_per_s": tokens / step_s}
    if device.type == "cuda":
        numbers["memory_mib"] = torch.cuda.max_memory_allocated(device) / 2**20
        numbers["held_mib"] = torch.cuda.memory_allocated(device) / 2**20
        return numbers
    # The process's peak so far; Linux counts ru_maxrss in KiB.
    numbers["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with suppress(OSError):  # only Linux says what is held now
        # The second number is resident pages.
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        numbers["held_mib"] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return numbers
