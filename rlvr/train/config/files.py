"""Settings of files: what a run reads examples from, and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlvr.errors import UsageError
from rlvr.train.config.readers import SAMPLES
from rlvr.train.config.setting import ONE, ZERO, Reader, Settings, setting

if TYPE_CHECKING:  # it has these settings
    from rlvr.train.config.run import ResolvedConfig

__all__ = ["FilesSettings"]


_STEP_FILES: Final = Reader(
    "files of steps (--step-files 10)", lambda config, _: config.step_files > 0
)
_EXAMPLES: Final = Reader(
    "algorithms of pairs, labels or texts, such as dpo", lambda _, own: own.examples is not None
)


@dataclass(frozen=True, kw_only=True)
class FilesSettings(Settings):
    """The files that a run reads and writes.

    Attributes:
        pairs: File of pairs, labels or completions to train on instead of sampling, as `rlvr pairs`
            writes it or TRL takes it; for dpo, ipo, kto, rft, sft and reward models.
        checkpoint_every: Steps between checkpoints.  One is always written at the end and on
            SIGTERM or Ctrl-C.
        keep: Newest checkpoints that are kept.
        rollouts_every: Steps after which rollouts are written to RUN/rollouts again.  0: never.
        show_rollouts: Completions of each step that are printed as a table.  0: none.
        step_files: Steps after which a training step is written to RUN/steps again, for `rlvr step
            verify`; where its rollouts are written too, they have their tokens.  0: never.
            Updates that are not finite are written always.
        step_sketches: Write a sketch of each row's gradient into these files too, for `rlvr
            whatif`: a backward pass for each row of such a step, on one rank alone.
        verify_every: Steps after which a step is judged in float64, and its first update computed
            again in another layout; what departs is an alarm, and the step is written to RUN/steps.
            0: never.
        track: Package that logs the metrics too: wandb, or one with the same interface.
    """

    about = "checkpoints, logs, preferences from a file"

    pairs: Path | None = setting(None, reader=_EXAMPLES)
    checkpoint_every: int = setting(50, ONE, may_change=True)
    keep: int = setting(2, ONE, may_change=True)
    rollouts_every: int = setting(10, ZERO, reader=SAMPLES, may_change=True)
    show_rollouts: int = setting(0, ZERO, reader=SAMPLES, may_change=True)
    step_files: int = setting(0, ZERO, may_change=True)
    step_sketches: bool = setting(False, reader=_STEP_FILES, may_change=True)
    verify_every: int = setting(200, ZERO, may_change=True)
    track: str | None = setting(None, may_change=True)

    @staticmethod
    def require(config: ResolvedConfig) -> None:
        """Refuse algorithms of files without one, and a reference that moves on a file.

        Args:
            config: all settings of the run.

        Raises:
            UsageError: two contradict each other.
        """
        algorithm = config.algorithm
        if "file" in algorithm.needs and config.pairs is None:
            raise UsageError(
                f"{algorithm.label} is trained on a file; give pairs, such as `rlvr pairs` writes"
            )
        if algorithm.mixing is not None and config.pairs is not None:
            raise UsageError(
                "mixing with pairs: training on a file has a fixed reference; leave mixing or "
                "pairs out"
            )
