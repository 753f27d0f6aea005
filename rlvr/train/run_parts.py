"""What a run does beside learning: evaluations, resets, stages, alarms."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr.collect import Sampling
from rlvr.collect.evaluation import EvaluationReport
from rlvr.train.alarm import AlarmRaised, Alarms, OpinionAlarm, ScoringAlarm, lr_alarm
from rlvr.train.costs import step_costs
from rlvr.train.evaluations import Evaluated, eval_sets
from rlvr.train.metrics import evaluation_metrics, keep_evaluation, read_metrics
from rlvr.train.rollout_batch import RolloutBatch
from rlvr.train.run_part import RunPart
from rlvr.train.task_strength import TaskStrengths
from rlvr.train.teacher import Reference
from rlvr.train.validation import Standing

if TYPE_CHECKING:  # it calls the parts
    from rlvr.train.loop import Trainer

__all__ = [
    "AlarmLines",
    "Costs",
    "EndWithoutScores",
    "FurtherEvaluations",
    "Opinions",
    "RewardsByStrength",
    "StageChanges",
    "TestEvaluation",
    "ValidationEvaluation",
    "run_parts_of",
]


class EndWithoutScores(RunPart):
    """Ends a run in which nothing is scored."""

    def __init__(self, run: Trainer) -> None:
        super().__init__(run)
        self._alarm = ScoringAlarm(run.settings.bad_steps)

    def see(self, sampled: RolloutBatch) -> Mapping[str, float]:
        self._alarm.check(sampled)
        return {}


class Opinions(RunPart):
    """The second opinion on a share of the rollouts."""

    name = "opinion"

    def __init__(self, run: Trainer) -> None:
        super().__init__(run)
        assert run.second_opinion is not None
        path = run.settings.run / "disagreements.jsonl"
        self._alarm = OpinionAlarm(run.second_opinion, path, run.settings.seed)

    @classmethod
    def is_wanted(cls, run: Trainer) -> bool:
        return run.second_opinion is not None

    def see(self, sampled: RolloutBatch) -> Mapping[str, float]:
        return self._alarm.check(sampled.groups, self.run.steps_done + 1)

    def state(self) -> Any:
        return self._alarm.state_dict()

    def load(self, state: Any) -> None:
        self._alarm.load_state_dict(state or ())


class RewardsByStrength(RunPart):
    """Rewards at weak and at strong tasks."""

    def __init__(self, run: Trainer) -> None:
        super().__init__(run)
        assert run.settings.strength is not None
        self._strengths = TaskStrengths(run.settings.strength, run.source.env)

    @classmethod
    def is_wanted(cls, run: Trainer) -> bool:
        return run.settings.strength is not None

    def see(self, sampled: RolloutBatch) -> Mapping[str, float]:
        # Dynamic sampling drops a weak task that every rollout hacks: dropped groups count here.
        dropped = [one.group for one in sampled.dropped if one.group is not None]
        return self._strengths.metrics([*sampled.groups, *dropped])


class _Evaluation(RunPart):
    """Evaluates now and then."""

    def _is_due(self, every: int | None, first: bool) -> bool:
        """Whether an evaluation is due: `every` is in steps, 0 for first
        and last, None for never."""
        return every is not None and (first or self.run.is_due(every))

    def _report(self, kind: str) -> EvaluationReport:
        """The report of the run's own evaluation on one of its environments, `kind`."""
        settings, source = self.run.settings, self.run.source
        sampling = Sampling(
            max_tokens=settings.max_tokens,
            temperature=settings.eval_temperature,
            top_p=settings.eval_top_p,
            stop=settings.stop,
        )
        limit = settings.eval_tasks if kind == "evaluation" else settings.validation_tasks
        return source.evaluate(kind, sampling=sampling, n=settings.eval_n, limit=limit)


class TestEvaluation(_Evaluation):
    """The evaluation on the test split, which only reports."""

    __test__ = False  # pytest takes the name for a test's

    @classmethod
    def is_wanted(cls, run: Trainer) -> bool:
        return run.source.evaluates

    def evaluate(self, first: bool) -> Mapping[str, float]:
        run = self.run
        if not self._is_due(run.settings.eval_every, first) or not run.ranks.first:
            return {}
        report = run.reports[run.steps_done] = self._report("evaluation")
        keep_evaluation(run.settings.run, run.steps_done, report)
        return evaluation_metrics(report)


class FurtherEvaluations(_Evaluation):
    """The evaluations of `eval_env`; each keeps its tasks' results in a folder of its own."""

    def __init__(self, run: Trainer) -> None:
        super().__init__(run)
        env = run.source.env
        self._sets = [] if env is None else eval_sets(run.settings, env)
        for one in self._sets:
            run.say(one.line)

    @classmethod
    def is_wanted(cls, run: Trainer) -> bool:
        return bool(run.settings.eval_env)

    def evaluate(self, first: bool) -> Mapping[str, float]:
        numbers: dict[str, float] = {}
        for one in self._sets:
            if self._is_due(one.every, first):
                numbers |= self._evaluate_on(one)
        return numbers

    def _evaluate_on(self, one: Evaluated) -> dict[str, float]:
        run = self.run
        sampling = Sampling(
            max_tokens=one.max_tokens or run.settings.max_tokens,
            temperature=one.temperature,
            top_p=one.top_p,
            stop=run.settings.stop,
        )
        report = run.source.evaluate_once(
            one.env, sampling=sampling, n=one.n, k=one.ks, rows=one.rows
        )
        keep_evaluation(run.settings.run, run.steps_done, report, one.name)
        run.say(f"step {run.steps_done}, {one.name}: {report}")
        return evaluation_metrics(report, f"eval/{one.name}")


class ValidationEvaluation(_Evaluation):
    """The validation split: the best policy on it is kept in RUN/best, and resets follow a stall.

    Attributes:
        standing: how the policy stands there.
        stalled: validations in a row without a new best, before a reset of this step.
    """

    name = "standing"

    def __init__(self, run: Trainer) -> None:
        super().__init__(run)
        self.standing, self.stalled = Standing(), 0

    def evaluate(self, first: bool) -> Mapping[str, float]:
        settings, ranks = self.run.settings, self.run.ranks
        if not settings.validation_tasks or not self._is_due(settings.validation_every, first):
            return {}
        numbers, is_best = dict[str, float](), False
        if ranks.first:
            report = self._report("validation")
            numbers = evaluation_metrics(report, "validation")
            is_best = self.standing.take(report) and not first
        if ranks.from_first(is_best if ranks.first else None):
            self._keep_best()
        return numbers

    def _keep_best(self) -> None:
        """Write the policy to RUN/best, with the step and the score that it has there."""
        run = self.run
        with run.folder("best") as folder:
            run.learner.save(folder)
            if run.ranks.first:
                score = {f"avg@{run.settings.eval_n}": self.standing.top}
                record = {"step": run.steps_done, **score}
                (folder / "validation.json").write_text(json.dumps(record), encoding="utf-8")
        run.say(f"step {run.steps_done}: the best on the validation split so far, kept in RUN/best")

    def end_step(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        ranks = self.run.ranks
        # Before a reset sets it to 0: stages that wait for a stall are asked after this part.
        self.stalled = self.standing.stalled
        # Only the first rank has evaluated; all have to reset in the same step.
        if not ranks.from_first(self._wants_reset(numbers) if ranks.first else None):
            return {}
        self.run.learner.reset()
        self.standing.reset()
        return {"reset": 1.0}

    def _wants_reset(self, numbers: Mapping[str, float]) -> bool:
        reset = self.run.settings.algorithm.reset
        if reset is None:
            return False
        patience, every = reset.stall_validations, reset.every_steps
        stalled = patience is not None and self.standing.stalled >= patience
        held = reset.kl_share is not None and numbers.get("kl_share", 0.0) > reset.kl_share
        return stalled or held or (every is not None and self.run.steps_done % every == 0)

    def state(self) -> Any:
        return self.standing.state_dict()

    def load(self, state: Any) -> None:
        if state is not None:
            self.standing.load_state_dict(state)


class StageChanges(RunPart):
    """Lets stages begin, and schedules move, behind a step."""

    name = "stages"

    def begin_at(self, step: int) -> None:
        self._take_settings()  # of a stage that begins with the run

    def end_step(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        run, stages = self.run, self.run.stages
        if not stages:
            return {}
        validation = run.part(ValidationEvaluation)
        if run.ranks.first:
            stages.end_step(run.steps_done, numbers, validation.stalled)
        # All ranks follow the first, which alone has every metric.
        stages.load_state_dict(run.ranks.from_first(stages.state_dict()))
        self._take_settings()
        begun = stages.begun_at(run.steps_done)
        for stage in begun:
            # A stage that does not name the warm-up goes on with the one that there was.
            warmup = run.settings.warmup_steps if "warmup_steps" in stage.changes else None
            run.learner.begin_schedule(
                run.settings.steps - run.steps_done,
                schedule="schedule" in stage.changes,
                warmup=warmup,
            )
            self._restart(stage.reset)
            # Scores under the stage's settings are no continuation of those before.
            validation.standing.reset()
            run.say(f"step {run.steps_done}: a stage begins, {stage.text}")
        logged = {f"stage/{name}": value for name, value in stages.moving.items()}
        if begun:
            logged["stage"] = float(1 + max(map(stages.stages.index, begun)))
        return logged

    def _restart(self, what: str) -> None:
        """Let the reference, the optimizer, all or nothing ("") start afresh."""
        learner = self.run.learner
        if what == "all":
            learner.reset()
        elif what == "reference" and (reference := learner.part(Reference)) is not None:
            reference.reset()
        if what in ("optimizer", "all"):
            # `reset` of parts starts the optimiser afresh only where the algorithm asks for it.
            learner.optimizer = learner.fresh_optimizer()

    def _take_settings(self) -> None:
        """Go on with the settings of the next step."""
        run, before, now = self.run, self.run.settings, self.run.stages.settings
        if now == before:
            return
        run.settings = now
        run.learner.change(now)
        if run.source.change(before, now):
            run.part(
                ValidationEvaluation
            ).standing = Standing()  # the best on other tasks is none on these

    def state(self) -> Any:
        return self.run.stages.state_dict() if self.run.stages else None

    def load(self, state: Any) -> None:
        self.run.stages.continue_from(state, self.run.steps_done)
        self._take_settings()


class Costs(RunPart):
    """Seconds, tokens a second and memory of a step."""

    @classmethod
    def is_wanted(cls, run: Trainer) -> bool:
        return run.ranks.first

    def end_step(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        # Tokens of forks were sampled in the step as well.
        tokens = numbers["tokens"] + numbers.get("fork_tokens", 0.0)
        step_s = time.perf_counter() - self.run.step_began
        return step_costs(self.run.policy.device, tokens, step_s)


class AlarmLines(RunPart):
    """Says what goes wrong silently, and ends the run at it where `on_alarm` is stop."""

    def __init__(self, run: Trainer) -> None:
        super().__init__(run)
        self._alarms = Alarms(run.settings.bad_steps)

    @classmethod
    def is_wanted(cls, run: Trainer) -> bool:
        return run.ranks.first

    def begin_at(self, step: int) -> None:
        run = self.run
        settings = run.settings
        prompts, clips = run.policy.tokenization.format, settings.algorithm.clip is not None
        # Made again with the model's chat format, which was not known before it was loaded.
        self._alarms = Alarms(settings.bad_steps, prompts, clips=clips)
        if (line := lr_alarm(run.learner.parameters, settings.lr)) is not None:
            run.say(line)
            if settings.on_alarm == "stop":
                raise AlarmRaised("on_alarm is 'stop', and lr is too high; see the line above")
        log = settings.run / "metrics.jsonl"
        # Alarms that were given before the run stopped are not given again.
        if step and log.is_file():
            self._alarms.read_again(read_metrics(log), step)

    def end_step(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        for line in self._alarms.check(numbers):
            self.run.say(line)
        return {}

    @property
    def ends_run(self) -> bool:  # type: ignore[override]  # it is asked after each step
        return self.run.settings.on_alarm == "stop" and bool(self._alarms.raised)

    def finish(self) -> None:
        if self.ends_run:
            self._alarms.end_run(self.run.steps_done)


_PARTS: tuple[type[RunPart], ...] = (
    EndWithoutScores,
    Opinions,
    RewardsByStrength,
    TestEvaluation,
    FurtherEvaluations,
    ValidationEvaluation,
    StageChanges,
    Costs,
    AlarmLines,
)
"""All parts, in the order in which they are called."""


def run_parts_of(run: Trainer) -> Sequence[RunPart]:
    """The parts that a run's settings ask for, in their order.

    Args:
        run: before its model is loaded.
    """
    return [kind(run) for kind in _PARTS if kind.is_wanted(run)]
