"""Settings of evaluations, which only report, and of validations, by which a run decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from rlvr.algo.papers.base import Algorithm
from rlvr.errors import UsageError
from rlvr.train.config.readers import SAMPLES, evaluates
from rlvr.train.config.setting import (
    ONE,
    OPTIONAL_ONE,
    OPTIONAL_ZERO,
    Options,
    Reader,
    Repeated,
    Settings,
    or_none,
    setting,
)
from rlvr.train.evaluations import read_eval_sets
from rlvr.validate import require_number

if TYPE_CHECKING:  # it has these settings
    from rlvr.train.config.run import Config, ResolvedConfig

__all__ = ["EvaluationSettings"]


def _measures(config: Config, algorithm: Algorithm) -> bool:
    return evaluates(config, algorithm) or config.held_out(algorithm) > 0


_EVALUATES: Final = Reader("evaluations (--eval-every, --eval-env)", evaluates)
_MEASURES: Final = Reader("evaluations and validations", _measures)
_VALIDATION: Final = Reader(
    "a validation split (--validation-tasks)", lambda config, own: config.held_out(own) > 0
)


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(Settings):
    """What the policy is measured on, and when.

    Attributes:
        eval_every: Steps between evaluations.  0: only before the first and after the last step.
            None: never.
        eval_split: Split of the evaluation tasks.  They only report: nothing in a run depends on
            them.
        eval_tasks: Number of evaluation tasks; all tasks of the split if it has fewer.
        eval_n: Completions per evaluation task.
        eval_temperature: Sampling temperature of evaluations.  None: that of training.
        eval_top_p: Top-p of evaluations.  1 keeps all tokens.
        eval_env: A further evaluation, such as
            math-v4:data=aime2024,n=32,temperature=1,top_p=0.7,rows=all; may be repeated.  The
            environment's options, and n, k, temperature, top_p, max_tokens, rows (a sample, or
            all), every (steps) and name; each is that of the other evaluations where it is left
            out.
        eval_options: Options that differ in evaluation, such as {"data": "test.jsonl"}.
        validation_tasks: Training tasks that are held out, by which resets on a stall and RUN/best,
            the best model of the run, are decided; of generated tasks, this many of a split of
            their own.  None: 100, but at most a tenth of the tasks, if the algorithm resets on a
            stall, or else 0.
        validation_every: Steps between validations; others come before the first and after the last
            step. None: 25.
    """

    about = "evaluation and validation"

    eval_every: int | None = setting(0, OPTIONAL_ZERO, usual=True)
    eval_split: str = setting("test", reader=_EVALUATES)
    eval_tasks: int = setting(100, ONE, reader=_EVALUATES, usual=True)
    eval_n: int = setting(1, ONE, reader=_MEASURES)
    eval_temperature: float | None = setting(
        None, or_none(partial(require_number, least=0)), reader=_MEASURES
    )
    eval_top_p: float = setting(1.0, partial(require_number, above=0, most=1), reader=_MEASURES)
    eval_env: Repeated = setting((), read_eval_sets)
    eval_options: Options = field(default_factory=dict)
    validation_tasks: int | None = setting(None, OPTIONAL_ZERO, reader=SAMPLES, usual=True)
    validation_every: int | None = setting(None, OPTIONAL_ONE, reader=_VALIDATION, stands_for=25)

    def held_out(self, algorithm: Algorithm) -> int:
        """Tasks of the validation split, at most.

        Args:
            algorithm: of the run.
        """
        stalls = algorithm.reset is not None and algorithm.reset.stall_validations is not None
        return (100 if stalls else 0) if self.validation_tasks is None else self.validation_tasks

    @staticmethod
    def require(config: ResolvedConfig) -> None:
        """Refuse evaluations and resets that lack what they measure on.

        Args:
            config: all settings of the run.

        Raises:
            UsageError: two contradict each other.
        """
        if config.pairs is not None and config.eval_env:
            raise UsageError(
                "pairs with eval_env: a run on a file evaluates on env alone; leave one out, or "
                "use rlvr eval"
            )
        reset = config.algorithm.reset
        stalls = reset is not None and reset.stall_validations is not None
        if stalls and not config.validation_tasks:
            raise UsageError(
                f"validation_tasks is 0, and {config.algorithm.label} resets when the score on "
                "held-out tasks stalls; leave it out, or have no such reset, by --reset none"
            )
