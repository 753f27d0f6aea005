"""ms-swift's function of advantages (`swift.rl_core.advantage`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from step_io import Step, TrainerConventions, main, module_of, trainer_name

__all__ = ["CONVENTIONS", "run"]

CONVENTIONS = {"std": "sample", "eps": 1e-4}  # rl_core/advantage.py: std, and + 1e-4
_KINDS = {"dr_grpo": "none", "grpo": "group"}


def _function() -> Callable[..., torch.Tensor]:
    """By its file, with what it imports."""
    folder = Path(sys.argv[3] or str(distribution("ms-swift").locate_file("")))
    package, utils = ModuleType("swift"), ModuleType("swift.utils")
    utils.nanstd = lambda *args, **more: None  # type: ignore[attr-defined]  # not called for "none"
    package.utils = utils  # type: ignore[attr-defined]
    sys.modules |= {"swift": package, "swift.utils": utils}
    return module_of(folder / "swift" / "rl_core" / "advantage.py").compute_advantages


def run(step: Step) -> tuple[str, TrainerConventions]:
    """Compute the advantages of a case.

    Args:
        step: the case.
    """
    if step.numbers["name"] != "dr_grpo" or not step.arrays["mask"].all():
        raise NotImplementedError(
            "its advantages without std alone, of rows that are all trained on"
        )
    scores = np.where(step.arrays["scored"], step.arrays["score"], np.nan)
    size = step.case["siblings"]
    advantages = _function()(
        torch.tensor(scores).float()[:, None], torch.ones(1), size, scale_rewards="none"
    )[0]
    per_token = np.broadcast_to(advantages.reshape(-1, 1).numpy(), step.pad("mask").shape)
    step.arrays["advantages"] = step.flat(per_token)
    return trainer_name("ms-swift"), CONVENTIONS


if __name__ == "__main__":
    main(run)
