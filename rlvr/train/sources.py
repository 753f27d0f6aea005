"""Which rows a run trains on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr.collect import Sampler
from rlvr.environment import Environment
from rlvr.errors import UsageError
from rlvr.train.file_rows import FileRows
from rlvr.train.row_source import RowSource
from rlvr.train.sampled_rows import SampledRows

if TYPE_CHECKING:  # it has one
    from rlvr.train.loop import Trainer

__all__ = ["source_of"]


def source_of(
    run: Trainer, env: Environment | None, eval_env: Environment | None, sampler: Sampler | None
) -> RowSource:
    """Where the rows of a run come from.

    Args:
        run: with settings and ranks.
        env, eval_env, sampler: see `Trainer`.

    Raises:
        UsageError: a setting cannot work.
        DataError: the file cannot be read.
    """
    if run.settings.pairs is None:
        return SampledRows(run, env, eval_env, sampler)
    if env is not None or sampler is not None or run.second_opinion is not None:
        raise UsageError(
            "pairs trains on a file without sampling; leave env, sampler and second_opinion out"
        )
    return FileRows(run, eval_env)
