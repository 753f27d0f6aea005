"""The stages of a run: which have begun, and the settings that follow.  Needs no torch.

Optimiser, steps and the place in the data go on where a stage begins.  The settings of a step are a
function of the run's settings and of which stages have begun, which checkpoints keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from statistics import fmean
from typing import Final, get_type_hints

from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import as_typed, changed, number_of
from rlvr.errors import UsageError
from rlvr.train.config import Config, ResolvedConfig
from rlvr.train.schedule import NumberSchedule
from rlvr.train.stage import Stage, stage_of
from rlvr.types import JsonDict, JsonObject, StateDict
from rlvr.validate import nearest

__all__ = ["Stages", "collects_otherwise"]

_COLLECTED: Final = frozenset(
    (
        "env env_options prompts group_size max_tokens max_turns max_tries overlong overlong_cache"
    ).split()
)
"""Settings of which the collector is made."""
_LEARNED: Final = frozenset("updates lr schedule warmup_steps grad_clip temperature".split())
_MADE_ONCE: Final = ("critic", "implicit", "replay", "trust_region", "texts")
"""Parts of algorithms that are made when a run begins, with their own optimisers and files."""
_WINDOW: Final = 10
"""Steps whose mean share of truncated completions decides."""
_HINTS: Final = get_type_hints(Config)


class Stages:
    """Which stages of a run have begun, and the settings that follow from it.

    Args:
        config: settings of the run, as they were given.

    Attributes:
        stages: in their order.
        begun: number of each that has begun, with its step and the values from which its schedules
            go.

    Raises:
        UsageError: a stage changes what cannot change, begins too late, or to settings that cannot
            work.
    """

    def __init__(self, config: Config) -> None:
        self._first = config.resolve()
        self.stages = [stage_of(text) for text in config.stage]
        self.begun: list[tuple[int, int, dict[str, float]]] = []
        self._followed: dict[str, float] = {}
        self._truncated: list[float] = []
        self._step = 0
        self._require_possible()
        if self.stages and self.stages[0].step == 0:
            self._begin(0, 0)

    def __bool__(self) -> bool:
        return bool(self.stages)

    # ------------------------------------------------------------------------------ when

    def end_step(self, step: int, metrics: Mapping[str, float], stalled: int) -> list[Stage]:
        """See the end of a step; returns the stages that begin now, behind it.

        Args:
            step: steps done, with this one.
            metrics: of the step.
            stalled: validations in a row without a new best.
        """
        self._step = step
        if not self.stages:
            return []
        for name, (schedule, start, _) in self._moving().items():
            if schedule.shape == "towards":
                current = self._followed.get(name, start)
                self._followed[name] = schedule.follow(current, start, metrics)
        # The last ten: one step's share is noisy.
        if "truncated" in metrics:
            self._truncated = [*self._truncated, metrics["truncated"]][-_WINDOW:]
        due = [number for number in self._waiting if self._is_due(number, stalled)]
        for number in due:
            self._begin(number, step)
        return [self.stages[number] for number in due]

    @property
    def _waiting(self) -> list[int]:
        # By number: the same text may stand twice.
        begun = {number for number, *_ in self.begun}
        return [number for number in range(len(self.stages)) if number not in begun]

    def _is_due(self, number: int, stalled: int) -> bool:
        stage = self.stages[number]
        if stage.step is not None:
            return stage.step == self._step
        earlier = [
            waiting
            for waiting in self._waiting
            if waiting < number and self.stages[waiting].is_conditional
        ]
        if earlier:  # conditions are met one after another
            return False
        if stage.stalled is not None:
            return stalled >= stage.stalled
        is_full = len(self._truncated) == _WINDOW
        assert stage.truncated is not None
        return is_full and fmean(self._truncated) >= stage.truncated

    def _begin(self, number: int, step: int) -> None:
        stage, settings = self.stages[number], self.settings
        # From where the schedules go: the values at this step, before the stage is in force.
        starts = {name: self._value_now(name, settings) for name in stage.schedules}
        self.begun.append((number, step, starts))
        # A number that a stage sets anew no longer follows its metric.
        for name in (*stage.values, *stage.schedules):
            self._followed.pop(name, None)
        # The next condition is of steps under this stage's settings.
        if stage.is_conditional:
            self._truncated = []

    def next_step(self, after: int) -> int | None:
        """The step behind which the next stage begins whose step is known; None if there is none.

        Args:
            after: a step.
        """
        steps = [stage.step for stage in self.stages]
        return min((step for step in steps if step is not None and step > after), default=None)

    # ------------------------------------------------------------------------------ what

    @property
    def beyond(self) -> list[Stage]:
        """The stages behind the run's last step, which never begin: a recipe's, in a shorter
        run."""
        last = self._first.steps
        return [stage for stage in self.stages if stage.step is not None and stage.step >= last]

    def lines(self) -> list[str]:
        """A line for each stage, which says so if it does not begin."""
        late = f"; it lies behind the last step, {self._first.steps}, and does not begin"
        return [
            f"stage: {stage.text}{late if stage in self.beyond else ''}" for stage in self.stages
        ]

    def begun_at(self, step: int) -> list[Stage]:
        """The stages that have begun behind a step.

        Args:
            step: steps done.
        """
        return [self.stages[number] for number, since, _ in self.begun if since == step]

    @property
    def settings(self) -> ResolvedConfig:
        """The settings of the next step."""
        return self._settings_at(self._step)

    @property
    def moving(self) -> dict[str, float]:
        """The numbers of the next step that follow a schedule, by name."""
        return self._move_numbers(self._step)

    def _settings_at(self, step: int) -> ResolvedConfig:
        if not self.begun:
            return self._first
        values: JsonDict = {}
        options: dict[str, object] | None = None
        for number, *_ in self.begun:
            stage = self.stages[number]
            values |= stage.values
            if "env" in stage.values:
                options = dict(stage.options)
            elif stage.options:
                env_options = self._first.env_options if options is None else options
                options = {**env_options, **stage.options}
        values |= self._move_numbers(step)
        return self._resolve(values, options)

    def _resolve(self, values: JsonObject, options: JsonObject | None) -> ResolvedConfig:
        """The settings of the run with these changes."""
        first = self._first
        written = dict(first.as_written)
        fixed = ["prompts", "group_size", "updates", "temperature"]
        if first.eval_every is not None or first.eval_env or first.validation_tasks:
            fixed.append("eval_temperature")
        for name in fixed:
            written[name] = getattr(first, name)  # these do not follow from what a stage changes
        algorithm_written = written["algorithm"]
        algorithm = (
            algorithm_written
            if isinstance(algorithm_written, Algorithm)
            else load_algorithm(algorithm_written)
        )
        written |= {
            name: as_typed(name, value, _HINTS[name])
            for name, value in values.items()
            if name in _HINTS
        }
        numbers = {name: value for name, value in values.items() if name not in _HINTS}
        written["algorithm"] = changed(algorithm, numbers)
        # Stages are of the run; settings of a step have none.
        written["stage"] = ()
        if options is not None:
            written["env_options"] = options
        return Config(**written).resolve()

    def _moving(self) -> dict[str, tuple[NumberSchedule, float, int]]:
        """The schedules that are in force: name → (schedule, where it began, at which step)."""
        moving: dict[str, tuple[NumberSchedule, float, int]] = {}
        for number, step, starts in self.begun:
            stage = self.stages[number]
            for name in stage.values:
                moving.pop(name, None)
            moving |= {
                name: (schedule, starts[name], step) for name, schedule in stage.schedules.items()
            }
        return moving

    def _move_numbers(self, step: int) -> dict[str, float]:
        values = {}
        for name, (schedule, start, since) in self._moving().items():
            if schedule.shape == "towards":
                values[name] = self._followed.get(name, start)
            else:
                # Up to the last step, which is one before the number of steps.
                steps_left = self._first.steps - 1 - since
                values[name] = schedule.value(start, step - since, steps_left)
        return values

    def _value_now(self, name: str, settings: ResolvedConfig) -> float:
        if name == "temperature":
            return settings.temperature
        number = number_of(settings.algorithm, name)
        holder: object = settings.algorithm
        if number.part is not None:
            holder = getattr(holder, number.part)
        value = None if holder is None else getattr(holder, number.name)
        if value is None:
            raise UsageError(f"{name} has no value here from which it could move; set it before")
        return float(value)

    # ------------------------------------------------------------------------------ what can be

    def _require_possible(self) -> None:
        """Begin all stages on a copy, so that what cannot work is refused before the run begins."""
        for stage in self.stages:
            try:
                self._require_fitting(stage)
            except UsageError as error:
                raise UsageError(f"stage {stage.text!r}: {error}") from None
        rehearsal = deepcopy(self)
        for number, stage in enumerate(rehearsal.stages):
            try:
                rehearsal._step = max(rehearsal._step, stage.step or 0)
                rehearsal._begin(number, rehearsal._step)
                # At its beginning and at the end, where schedules have their last values.
                for step in (rehearsal._step, self._first.steps):
                    rehearsal._settings_at(step)
            except UsageError as error:
                raise UsageError(f"stage {stage.text!r}: {error}") from None

    def _require_fitting(self, stage: Stage) -> None:
        first, algorithm = self._first, self._first.algorithm
        if first.pairs is not None:
            raise UsageError("pairs trains on a file without stages; leave stages or pairs out")
        if stage.step == 0 and (stage.values or stage.options or stage.reset):
            raise UsageError(
                "at is 0, where only schedules begin; give the other settings to the run itself"
            )
        if stage.stalled is not None and not first.validation_tasks:
            raise UsageError(
                "validations decide, and validation_tasks is 0; give --validation-tasks"
            )
        allowed = {*_COLLECTED - {"env_options"}, *_LEARNED}
        for name in (*stage.values, *stage.schedules):
            if name in allowed:
                continue
            if name in _HINTS:
                raise UsageError(
                    f"{name} is the same in all of a run{nearest(name, sorted(allowed))}"
                )
            number = number_of(algorithm, name)
            if (number.part or number.name) in _MADE_ONCE:
                raise UsageError(f"{name} is of a part that is made when the run begins")
        for name in stage.schedules:
            self._require_number(name)
        if "temperature" in {*stage.values, *stage.schedules} and algorithm.replay is not None:
            raise UsageError("temperature changes, and replay trains on completions of another one")
        if "temperature" in stage.schedules and first.max_staleness:
            raise UsageError(
                "temperature moves from step to step, and with max_staleness "
                f"{first.max_staleness} a batch is sampled before; leave one out"
            )
        if stage.reset in ("reference", "all") and not algorithm.has_reference:
            raise UsageError(
                f"reset is {stage.reset!r}, and {algorithm.label} has no reference; give "
                f"reset=optimizer"
            )

    def _require_number(self, name: str) -> None:
        """Refuse a schedule of what is no number, or moves by itself."""
        if name == "temperature":
            return
        if name in _HINTS:
            way = "; --schedule is the learning rate's" if name == "lr" else ""
            raise UsageError(f"{name} takes no schedule{way}; give a value")
        number = number_of(self._first.algorithm, name)
        if number.hint is not float:
            raise UsageError(f"{name} is no number that can move; give a value")
        part = None if number.part is None else getattr(self._first.algorithm, number.part)
        if getattr(part, "rule", "fixed") != "fixed" and number.name == "coefficient":
            raise UsageError(f"{name} moves by its rule already; set {number.part}_rule to fixed")
        if name == "entropy" and self._first.algorithm.entropy_target is not None:
            raise UsageError("entropy moves towards entropy_target already; leave one out")

    @cached_property
    def longest(self) -> ResolvedConfig:
        """The settings of the stage that needs most memory: the greatest lengths and batches of
        all."""
        rehearsal = deepcopy(self)
        every = [self._first]
        for number, stage in enumerate(rehearsal.stages):
            if stage in self.beyond:
                continue
            rehearsal._step = max(rehearsal._step, stage.step or 0)
            rehearsal._begin(number, rehearsal._step)
            every.append(rehearsal.settings)
        return max(every, key=lambda one: (one.max_tokens, one.prompts * one.group_size))

    # ------------------------------------------------------------------------------ checkpoints

    def state_dict(self) -> StateDict:
        """For a checkpoint, and for the other ranks: plain JSON."""
        return {
            "step": self._step,
            "begun": [[self.stages[n].text, n, step, starts] for n, step, starts in self.begun],
            "followed": dict(self._followed),
            "truncated": list(self._truncated),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: what it returned.

        Raises:
            UsageError: a stage that has begun is another one here.
        """
        texts = [stage.text for stage in self.stages]
        begun = []
        for text, number, step, starts in state["begun"]:
            if number >= len(texts) or texts[number] != text:
                raise UsageError(
                    f"the stage {text!r} began at step {step}, and is not here; only stages that "
                    f"lie ahead may change"
                )
            begun.append((number, step, dict(starts)))
        self.begun, self._step = begun, state["step"]
        self._followed = dict(state["followed"])
        self._truncated = list(state["truncated"])

    def continue_from(self, state: Mapping[str, object] | None, done: int) -> None:
        """Continue from a checkpoint.

        Args:
            state: what `state_dict` returned; None where the run had no stages.
            done: steps that the run has done.

        Raises:
            UsageError: a stage that has begun is another one here, or one should have begun before.
        """
        nothing = {"step": done, "begun": [], "followed": {}, "truncated": []}
        self.load_state_dict(nothing if state is None else state)
        for number in self._waiting:
            stage = self.stages[number]
            if stage.step is not None and stage.step <= done:
                raise UsageError(
                    f"the stage {stage.text!r} lies in the past: the run has done {done} steps; "
                    f"give a later one"
                )
        self._step = done


def collects_otherwise(before: ResolvedConfig, now: ResolvedConfig) -> bool:
    """Whether a collector of other settings is another one.

    Args:
        before, now: settings.
    """
    if any(getattr(before, name) != getattr(now, name) for name in _COLLECTED):
        return True
    names = ("dynamic_sampling", "refill", "overlong_share")
    return any(getattr(before.algorithm, name) != getattr(now.algorithm, name) for name in names)
