"""Where the rows of each step come from: completions that are sampled, or a
file.  Both evaluate alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from rlvr.collect import Sampler
from rlvr.collect.evaluation import EvaluationReport, evaluate
from rlvr.environment import Environment
from rlvr.scoring import Scorer
from rlvr.scoring.engines import engine_of
from rlvr.train.config import ResolvedConfig
from rlvr.types import JsonDict, JsonObject, StateDict

if TYPE_CHECKING:  # it has one
    from rlvr.train.loop import Trainer

__all__ = ["RowSource"]


class RowSource:
    """What a run trains on, and what it samples with.  Environments and sampler are
    on the first rank alone.

    Args:
        run: before its model is loaded.

    Attributes:
        env: the training environment; None of a file.
        eval_env, validation_env: of its evaluations; None for none.
        sampler: what samples; None where nothing does.
    """

    sampler: Sampler

    def __init__(self, run: Trainer) -> None:
        self.run = run
        self.env: Environment | None = None
        self.eval_env: Environment | None = None
        self.validation_env: Environment | None = None
        self._scorers: dict[str, Scorer] = {}

    @property
    def description(self) -> JsonDict:
        """What the record of a run says of its rows, beside the settings."""
        raise NotImplementedError

    @property
    def evaluates(self) -> bool:
        """Whether there is an environment to evaluate on."""
        return self.eval_env is not None

    def open(self, opened: ExitStack) -> None:
        """Open what is needed, with the whole model and before it is sharded; on the first rank.

        Args:
            opened: closes it.
        """
        raise NotImplementedError

    def rows(self, step: int) -> AbstractContextManager[tuple[Any, dict[str, float]]]:
        """What a step trains on, and its metrics; nothing on ranks but the first.

        Args:
            step: steps done.
        """
        raise NotImplementedError

    def sync(self, step: int) -> Mapping[str, float]:
        """Give the sampler the policy's weights; all ranks make this call.

        Args:
            step: steps done: the version of the weights.
        """
        raise NotImplementedError

    def begin_at(self, step: int) -> None:
        """Know where a run begins, or continues; all ranks make this call.

        Args:
            step: steps done.
        """

    def change(self, before: ResolvedConfig, now: ResolvedConfig) -> bool:
        """Go on with other settings; returns whether the tasks are others.

        Args:
            before, now: settings.
        """
        return False

    def state(self) -> StateDict:
        """What the next step depends on; on the first rank."""
        return {}

    def load(self, state: Mapping[str, object]) -> None:
        """Continue from what `state` returned.

        Args:
            state: what it returned.
        """

    # ------------------------------------------------------------------------------ evaluation

    def scorer(self, kind: str, opened: ExitStack) -> Scorer:
        """A new scorer of an environment, which scores as the settings say.

        Args:
            kind: "training", "evaluation" or "validation".
            opened: closes it.
        """
        envs = {"training": self.env, "evaluation": self.eval_env}
        env = envs.get(kind, self.validation_env)
        assert env is not None
        self._scorers[kind] = self._scorer_of(env, opened)
        return self._scorers[kind]

    def _scorer_of(self, env: Environment, opened: ExitStack) -> Scorer:
        settings = self.run.settings
        engine = None if settings.scorer is None else engine_of(settings.scorer)
        # Environments of training and evaluation may differ, so each has its own.
        scorer = Scorer(env, workers=settings.workers, engine=engine, accept=settings.accept)
        return opened.enter_context(scorer)

    def take_identities(self, kinds: Sequence[str] = ()) -> None:
        """Note by what was scored so far.

        Args:
            kinds: whose scorers are closed next; empty for none.
        """
        for kind, scorer in list(self._scorers.items()):
            if not kinds or kind in kinds:
                self.run.note_scorer(scorer)
            if kind in kinds:
                del self._scorers[kind]

    def evaluate(self, kind: str, **options: Any) -> EvaluationReport:
        """Evaluate on an environment of the run; on the first rank.

        Args:
            kind: "evaluation" or "validation".
            options: those of `evaluate`.
        """
        env = self.eval_env if kind == "evaluation" else self.validation_env
        assert env is not None
        return self._evaluate(env, self._scorers[kind], options)

    def evaluate_once(self, env: Environment, **options: Any) -> EvaluationReport:
        """Evaluate on another environment, with a scorer for this time.

        Args:
            env: the environment.
            options: those of `evaluate`.
        """
        with ExitStack() as opened:
            scorer = self._scorer_of(env, opened)
            report = self._evaluate(env, scorer, options)
            self.run.note_scorer(scorer)
        return report

    def _evaluate(self, env: Environment, scorer: Scorer, options: JsonObject) -> EvaluationReport:
        settings = self.run.settings
        return evaluate(
            env,
            self.sampler,
            scorer=scorer,
            seed=settings.seed,
            max_turns=settings.max_turns,
            step_s=settings.step_s,
            schedule=settings.turn_schedule,
            progress=self.run.activity,
            **options,
        )
