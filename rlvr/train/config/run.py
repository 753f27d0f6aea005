"""All settings of a run: as written (`Config`),
and with every None replaced by its value (`ResolvedConfig`)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from tyro.conf import arg

from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import as_record
from rlvr.algo.parts import Correction, OverlongHandling
from rlvr.errors import UsageError, brief
from rlvr.train.config.engine import EngineSettings
from rlvr.train.config.evaluation import EvaluationSettings
from rlvr.train.config.files import FilesSettings
from rlvr.train.config.optimiser import OptimiserSettings
from rlvr.train.config.readers import SAMPLES
from rlvr.train.config.sampling import SamplingSettings
from rlvr.train.config.scoring import ScoringSettings
from rlvr.train.config.setting import (
    ONE,
    OPTIONAL_ONE,
    Options,
    Settings,
    default_hint,
    require_read,
    rule,
    setting,
)
from rlvr.train.update_sizes import LEAST_GROUPS, LEAST_ROWS, updates_of
from rlvr.types import JsonObject
from rlvr.validate import require_whole

__all__ = ["Config", "GROUPS", "ResolvedConfig", "TrainingSettings"]

_SEED: Final = partial(require_whole, least=0, most=2**64 - 1)  # what torch's generators take


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """What is trained on what, how long.

    Attributes:
        env: Id of the environment; `rlvr envs` lists them.  With `pairs` it only evaluates, and may
            be left out.
        model: Model id on the hub, or a local folder.
        run: Folder for all files of the run.  An empty folder starts a run; one that holds a run
            with the same settings continues it.
        env_options: Options of the environment, such as {"difficulty": 3}.
        algorithm: Name of a published algorithm, or FILE.py:CLASS or PACKAGE.MODULE:CLASS of your
            own.  In Python also an `Algorithm`, such as `load_algorithm("dapo", clip_high=0.3)`.
        steps: Training steps.  Each one collects a batch of rollouts and trains on it.
        prompts: Prompts per step, each with a group of completions.  With `pairs`: examples of the
            file per step. None: 16, or as many as make 64 completions an update, for two updates
            where the paper has several: with groups of one 64, or 128.
        group_size: Completions per prompt (G).  None: the algorithm's number, or 8 if it has none.
        updates: Optimiser steps per batch and epoch, in equal parts of whole groups, each with at
            least 8 groups and 64 completions; a smaller batch makes fewer.  None: the paper's.
        seed: Seed of tasks, rollouts and mini-batches.
    """

    env: str = setting("", usual=True)
    model: str = setting(dataclasses.MISSING, usual=True)
    run: Path = setting(dataclasses.MISSING, usual=True)
    env_options: Options = field(default_factory=dict)
    algorithm: Annotated[
        str | Algorithm, arg(constructor=str, metavar="NAME", help_behavior_hint=default_hint)
    ] = setting("dapo", usual=True)
    steps: int = setting(100, ONE, usual=True)
    prompts: int | None = setting(None, OPTIONAL_ONE, usual=True)
    group_size: int | None = setting(None, OPTIONAL_ONE, reader=SAMPLES, usual=True)
    updates: int | None = setting(None, OPTIONAL_ONE, usual=True)
    seed: int = setting(0, _SEED, usual=True)

    @staticmethod
    def require(config: ResolvedConfig) -> None:
        """Refuse a run without an environment, and sizes that the algorithm cannot have.

        Args:
            config: all settings of the run.

        Raises:
            UsageError: two contradict each other.
        """
        algorithm = config.algorithm
        if not config.env and config.pairs is None:
            raise UsageError("env is missing; give the id of an environment, such as gsm8k-v4")
        if config.group_size == 1 and "siblings" in algorithm.needs:
            raise UsageError(
                f"group_size is 1, and {algorithm.label} compares the completions of a prompt: "
                "every advantage would be 0; give at least 2, or choose 'reinforce_pp'"
            )
        if config.group_size == 1 and config.pairs is None and algorithm.examples == "pairs":
            raise UsageError(
                "group_size is 1, and a pair has a right and a wrong completion of one prompt; "
                "give at least 2, or a file of pairs"
            )
        if "once" in algorithm.needs and config.updates > 1:
            raise UsageError(
                f"updates is {config.updates}, and {algorithm.label} has no ratio to the policy "
                "that sampled, so only the first step on a batch is right; leave updates out, or "
                "choose one with a ratio, such as grpo"
            )
        if algorithm.subset is not None and algorithm.subset.size >= config.group_size:
            raise UsageError(
                f"subset.size is {algorithm.subset.size} of a group_size of {config.group_size}; "
                "it is less than that"
            )


GROUPS: Final[tuple[type[Settings], ...]] = (
    TrainingSettings,
    SamplingSettings,
    ScoringSettings,
    OptimiserSettings,
    EngineSettings,
    EvaluationSettings,
    FilesSettings,
)
"""What the settings of a run are of."""


@dataclass(frozen=True, kw_only=True)
class Config(
    FilesSettings,
    EvaluationSettings,
    EngineSettings,
    OptimiserSettings,
    ScoringSettings,
    SamplingSettings,
    TrainingSettings,
):
    """Settings of a run, each of the object that reads it.  The same settings give the same run.

    Raises:
        UsageError: a setting is out of its range, nothing reads it, or settings contradict each
            other.
    """

    def __post_init__(self) -> None:
        for config_field in dataclasses.fields(self):
            # `check` makes plain numbers of numpy's, which can be recorded.
            if (check := rule(config_field).check) is not None:
                object.__setattr__(
                    self,
                    config_field.name,
                    check(config_field.name, getattr(self, config_field.name)),
                )
        # Only to raise here, where the settings are written.
        self.resolve()

    def resolve(self) -> ResolvedConfig:
        """These settings with the algorithm itself, and with a value for each None that stands for
        a default.

        Raises:
            UsageError: there is no such algorithm, or it cannot be trained with these settings.
        """
        algorithm = self._algorithm()
        # Before any number is filled in: a default that stands for None must not count as given.
        require_read(self, algorithm)
        if self.overlong is not None:
            algorithm = algorithm.copy_with(overlong=self.overlong)
        fields = {
            config_field.name: rule(config_field).stands_for
            for config_field in dataclasses.fields(Config)
        }
        written = {name: getattr(self, name) for name in fields}
        values = {
            name: stands_for if written[name] is None else written[name]
            for name, stands_for in fields.items()
        }
        group_size = self.group_size or algorithm.group_size or 8
        updates = self.updates or algorithm.updates
        # Two updates of the least size: with one, the ratio is 1 everywhere and no clip acts.
        prompts = self.prompts or 2 * LEAST_GROUPS
        if self.prompts is None and self.pairs is None:
            # Enough completions for two updates of `LEAST_ROWS`; more is the user's choice.
            prompts = max(prompts, math.ceil(min(updates, 2) * LEAST_ROWS / group_size))
        if self.temperature is None:
            values["temperature"] = algorithm.temperature
        if self.eval_temperature is None:
            values["eval_temperature"] = values["temperature"]
        if self.canary is None:
            # float32 engines differ by the order of sums alone; in
            # bf16 each rounds in its own places, layer after layer.
            values["canary"] = 1e-3 if self.precision == "fp32" else 0.5
        values |= {
            "algorithm": algorithm,
            "prompts": prompts,
            "group_size": group_size,
            "updates": updates,
            "validation_tasks": self.held_out(algorithm),
            "overlong": algorithm.overlong,
            # A fifth, as in DAPO; at least 1, as the punishment is divided by it.
            "overlong_cache": self.overlong_cache or max(1, self.max_tokens // 5),
        }
        return ResolvedConfig(**values, written=written)

    def _algorithm(self) -> Algorithm:
        """The algorithm, with the correction that other weights, or an engine whose numbers differ
        by rounding, need."""
        algorithm = self.algorithm
        if not isinstance(algorithm, str | Algorithm):
            raise UsageError(
                f"algorithm is {brief(algorithm)}; it must be the name of an algorithm, or an "
                "Algorithm"
            )
        if isinstance(algorithm, str):
            algorithm = load_algorithm(algorithm)
        # Weights that sampled and weights that are trained differ: older
        # ones, rows of earlier steps, or an engine with kernels of its own.
        differ = self.max_staleness or algorithm.replay or self.engine != "local"
        corrects_itself = algorithm.off_policy or algorithm.examples is not None
        if differ and not algorithm.correction and not corrects_itself:
            return algorithm.copy_with(correction=(Correction(),))
        return algorithm


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig(Config):
    """The settings that a run uses; made by `Config.resolve`.
    No None is left that stands for a default.

    Attributes:
        algorithm: The algorithm itself, with `overlong` and with the correction that
            `max_staleness` and `replay` need.
        prompts, group_size, updates, temperature, overlong, overlong_cache, max_tries, vine_k,
            step_delimiter, validation_tasks, validation_every, reward_model_weight,
            reward_model_bounds, eval_temperature, canary: See `Config`; never None.
        written: The settings as they were written.
    """

    algorithm: Algorithm
    prompts: int
    group_size: int
    updates: int
    max_tries: int
    vine_k: int
    step_delimiter: str
    validation_tasks: int
    validation_every: int
    reward_model_weight: float
    reward_model_bounds: tuple[float, float]
    temperature: float
    overlong: OverlongHandling
    overlong_cache: int
    eval_temperature: float
    canary: float
    # so that `dataclasses.replace` refuses: change the Config instead
    written: dataclasses.InitVar[Mapping[str, Any]]
    _written: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self, written: Mapping[str, object]) -> None:
        object.__setattr__(self, "_written", written)
        for group in reversed(GROUPS):  # a file that is missing is said first
            group.require(self)

    def resolve(self) -> ResolvedConfig:
        """Itself."""
        return self

    @property
    def as_written(self) -> JsonObject:
        """The settings as they were written, by name."""
        return self._written

    @property
    def validation_by_default(self) -> bool:
        """Whether `validation_tasks` was not given, so that it may be fewer."""
        return self._written["validation_tasks"] is None

    @property
    def updates_per_batch(self) -> int:
        """Optimiser steps of a full batch in each epoch."""
        if self.algorithm.examples is not None:
            # Examples count as groups here; `LEAST_ROWS` is not asked of them.
            return max(1, min(self.updates, self.prompts // LEAST_GROUPS))
        # Groups of earlier steps count: the batch that is split into updates has them too.
        replayed = 0 if self.algorithm.replay is None else self.algorithm.replay.groups
        return updates_of(self.prompts + replayed, self.group_size, self.updates)

    @property
    def total_updates(self) -> int:
        """Optimiser steps of the whole run, if every batch is full."""
        return self.steps * self.algorithm.epochs * self.updates_per_batch

    @property
    def updates_line(self) -> str:
        """What an update of this run is, beside the paper's, for the first line of a run."""
        algorithm, count = self.algorithm, self.updates_per_batch
        printed = algorithm.printed
        groups = f"{self.prompts // count} groups × {self.group_size}"
        line = f"{algorithm.label}: {count} update{'s' * (count > 1)} of {groups}"
        if algorithm.epochs > 1:
            line += f", {algorithm.epochs} times"
        if printed.updates is None:
            if type(algorithm).__module__.startswith("rlvr."):
                return f"{line}; the number is ours, the paper prints none"
            if count == self.updates:
                return line
            least = f"each has at least {LEAST_GROUPS} groups and {LEAST_ROWS} completions"
            return f"{line}, not {self.updates}: {least}"
        if printed.prompts is None:
            return f"{line}; the paper: {printed.updates}"
        of = f" × {printed.group_size}" if printed.group_size else ""
        return f"{line}; the paper: {printed.updates} of {printed.prompts // printed.updates}{of}"

    @property
    def recorded(self) -> dict[str, object]:
        """The settings as written, with the algorithm's numbers and without `run`, as plain JSON.

        They are kept in the run's folder, and compared when the run is continued.
        """
        settings = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in self._written.items()
            if name != "run"
        }
        settings["algorithm"] = as_record(self.algorithm)
        # Tuples become lists, so that two records can be compared.
        plain: dict[str, object] = json.loads(json.dumps(settings, default=dict))
        return plain
