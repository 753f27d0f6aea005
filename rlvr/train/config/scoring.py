"""Settings of scoring: by whom, reward models, teachers, rewards of steps, and what ends a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from rlvr.errors import UsageError, brief
from rlvr.scoring.identity import require_acceptable
from rlvr.train.config.readers import PLAYS, SAMPLES, given
from rlvr.train.config.setting import (
    ONE,
    OPTIONAL_ZERO,
    Reader,
    Settings,
    one_of,
    or_none,
    setting,
    texts,
    two_numbers,
)
from rlvr.validate import require_number

if TYPE_CHECKING:  # it has these settings
    from rlvr.train.config.run import ResolvedConfig

__all__ = ["ScoringSettings"]

_OnAlarm = Literal["warn", "stop"]


def _require_accepted(name: str, value: object) -> tuple[str, ...]:
    accepted = texts(name, value)
    require_acceptable(accepted)
    return accepted


def _require_delimiter(name: str, value: object) -> object:
    if value == "":
        raise UsageError(f"{name} is an empty text, which ends no step; give one such as '\\n\\n'")
    return value


def _require_address(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(
            f"{name} is {brief(value)}; it must be a text, such as 'http://10.0.0.7:8000'"
        )
    if "@" in value and "://" in value:
        raise UsageError(
            f"the {name} has a key in it, which the run would record; set RLVR_API_KEY instead"
        )
    return value


_TEACHER: Final = Reader(
    "algorithms of distillation, such as distill", lambda _, own: own.needs_teacher
)
_STEPS: Final = Reader(
    "algorithms with rewards of steps, such as grpo_process and ppo", lambda _, own: own.takes_steps
)
_STEP_REWARD: Final = given("step_reward", "rewards of steps (--step-reward)")
_REWARDS: Final = Reader(
    "algorithms that learn from rewards, such as grpo", lambda _, own: own.examples is None
)
_REWARD_MODEL: Final = given("reward_model", "a reward model (--reward-model)")


@dataclass(frozen=True, kw_only=True)
class ScoringSettings(Settings):
    """What completions are worth, and by whom they are scored.

    Attributes:
        strict: Stop at the first row of the environment that cannot be used, instead of leaving it
            out.
        workers: Processes that score completions.  None: one per core.  0: score in this process.
        scorer: Score on other machines: http://HOST:PORT of rlvr serve (several with commas),
            ray://auto or ray://HOST:PORT.  None: on this one.
        accept: Parts of the identity (`code`, `inputs`) in which the continued run may differ from
            how it began.
        reward_model: Add what a reward model says of completions to the reward: RUN/model of a run
            with the algorithm reward_model, computed in this process, http://HOST:PORT of rlvr
            serve --reward-model (several with commas), or implicit:RUN of a run of dpo.
            Evaluations stay the verifier's.
        reward_model_weight: What the reward model's score, in [0, 1], is multiplied by; above 0.
            None: 0.2.
        reward_model_bounds: The score is limited to these two numbers first: what a guess can be
            worth has a limit. None: 0 and 1.
        reward_range: Map the reward's bounds to these two numbers, such as -1 and 1 as in DAPO.
            None: as it is.
        teacher: Model that distill and gkd learn from: a local folder, or an id on the hub; with
            the same vocabulary as the model.
        step_reward: What rewards the steps of a completion, for grpo_process, ppo, a2c and
            reinforce_pp: RUN/model of a process reward model, http://HOST:PORT of rlvr serve that
            has one, implicit:RUN of a run of dpo, FILE.py:FUNCTION of a rule (task, steps), which
            returns a number for each step, or forks (how much likelier a right answer is after the
            step).  None: the environment's turns.
        step_delimiter: Text that ends a step.  None: a line's end.
        bad_steps: How many in a row end the run: mini-batches whose loss or gradient is not finite,
            or steps in which no rollout could be scored.
        on_alarm: What an alarm of a step does: warn (print a line) or stop (end the run, with its
            last step saved).
        strength: Report of `rlvr strength` on the training tasks: the reward at weak, strong and
            untested ones is logged, and an alarm says when it rises faster at weak ones.
    """

    about = "who scores, reward models, teachers"

    strict: bool = False
    workers: int | None = setting(None, OPTIONAL_ZERO, reader=PLAYS, may_change=True)
    scorer: str | None = setting(None, _require_address, reader=PLAYS, may_change=True)
    accept: tuple[str, ...] = setting((), _require_accepted, may_change=True)
    reward_model: str | None = setting(None, _require_address, reader=_REWARDS, may_change=True)
    reward_model_weight: float | None = setting(
        None,
        or_none(partial(require_number, above=0, hint="or leave reward_model out")),
        reader=_REWARD_MODEL,
        stands_for=0.2,
    )
    reward_model_bounds: tuple[float, float] | None = setting(
        None,
        or_none(two_numbers("(0, 0.8)", least=0, most=1)),
        reader=_REWARD_MODEL,
        stands_for=(0.0, 1.0),
    )
    reward_range: tuple[float, float] | None = setting(
        None, or_none(two_numbers("(-1, 1)")), reader=_REWARDS
    )
    teacher: str | None = setting(None, or_none(lambda name, value: str(value)), reader=_TEACHER)
    step_reward: str | None = setting(None, reader=_STEPS)
    step_delimiter: str | None = setting(
        None, _require_delimiter, reader=_STEP_REWARD, stands_for="\n"
    )
    bad_steps: int = setting(3, ONE, may_change=True)
    on_alarm: _OnAlarm = setting("warn", one_of(_OnAlarm), may_change=True)
    strength: Path | None = setting(None, reader=SAMPLES, may_change=True)

    @staticmethod
    def require(config: ResolvedConfig) -> None:
        """Refuse distillation without a teacher.

        Args:
            config: all settings of the run.

        Raises:
            UsageError: it is missing.
        """
        if config.algorithm.needs_teacher and config.teacher is None:
            raise UsageError(
                f"{config.algorithm.label} learns from a teacher; give --teacher, a folder or an "
                "id on the hub of a model with the same vocabulary"
            )
