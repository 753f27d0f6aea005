"""TRL: an environment as a reward function and a data set for `GRPOTrainer`, and TRL's reward functions as parts.

    reward = to_trl(rlvr.make("gsm8k-v1"))
    trainer = GRPOTrainer(model, reward_funcs=reward.reward_funcs, train_dataset=reward.dataset, args=…)

The convention: `f(prompts, completions, completion_ids, **columns) -> list[float | None]`, one column per column of the
data set; None takes a completion out of its group's statistics and gives it no advantage.  Checked with TRL 1.16.
"""

from __future__ import annotations

import inspect
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from rlvr.environment import Environment
from rlvr.errors import RewardError, Unscored, UsageError, brief
from rlvr.interop.adapter import TASK, Adapter, chat, finite_tasks, packed, scored, task_of
from rlvr.rewards import Bounds, Part
from rlvr.rows import as_dataset
from rlvr.scoring import MEMORY_MIB, WALL_S
from rlvr.types import Completion, Outcome, Score, Task, Verdict, plain
from rlvr.workers import usable_cores

__all__ = ["TRLPart", "TRLReward", "from_trl", "to_trl"]

# ------------------------------------------------------------------------------------------ to TRL


def to_trl(
    env: Environment,
    *,
    tasks: int | None = None,
    conversational: bool = False,
    group_size: int | None = None,
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
) -> TRLReward:
    """An environment for `GRPOTrainer`: `.reward_funcs` and `.dataset`.

    Args:
        env: a single-turn environment.
        tasks: how many tasks the data set has; None for all of a finite split.
        conversational: prompts as chat messages, which TRL puts through the model's chat template; prompts that are
            messages already stay so.
        group_size: `num_generations`, for a reward that compares the completions of a group.  Each process then needs
            whole groups: `per_device_train_batch_size` a multiple of it.
        workers, wall_s, memory_mib: see `rlvr.Scorer`.  By default one worker per core, shared out among the processes
            that `torchrun` or `accelerate` started on this machine.
    """
    if workers is None:
        workers = max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    settings = {"workers": workers, "wall_s": wall_s, "memory_mib": memory_mib}
    return TRLReward(env, tasks=tasks, conversational=conversational, group_size=group_size, **settings)


class TRLReward(Adapter):
    """A TRL reward function: the score's total, None for UNSCORED.  See `to_trl`.

    What the trainer logs beside its own `rewards/ID/mean`: `ID/parts/NAME`, the mean of each part of the reward, and
    `ID/outcomes/correct` … `unscored`, shares; in the table of completions the columns `outcome`, `why` and `answer`.
    """

    def __init__(
        self, env: Environment, *, tasks: int | None, conversational: bool, group_size: int | None, **settings: Any
    ) -> None:
        super().__init__(env, **settings)
        self.__name__ = env.id  # TRL's name for the metrics
        self._tasks, self._conversational, self._group_size = tasks, conversational, group_size

    @property
    def reward_funcs(self) -> list[TRLReward]:
        """What `GRPOTrainer` takes: one function, whose value is the whole reward."""
        return [self]

    @cached_property
    def dataset(self) -> Any:
        """A `datasets.Dataset` with the columns `prompt` and `rlvr_task`, which the reward function reads.

        A data set of your own does too, if the environment knows its columns (`question` and `answer` for
        `gsm8k-v1`), or if it has a column `reference`.
        """
        return as_dataset(
            {"prompt": chat(task.prompt) if self._conversational else task.prompt, TASK: packed(task)}
            for task in finite_tasks(self.env, self._tasks)
        )

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        *,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Score a batch.

        Args:
            prompts: texts or chat messages.
            completions: texts, or lists of messages of which the assistant's last counts.
            completion_ids: token ids; the length of each is what `Overlong` and its like read.
            columns: of the data set, one value per completion; what is no such column is ignored.
        """
        columns = {name: values for name, values in columns.items() if _is_column(values, len(completions))}
        tasks: dict[str, Task] = {}  # siblings share theirs
        work = []
        for i, completion in enumerate(completions):
            row = {"prompt": prompts[i]} | {name: values[i] for name, values in columns.items()}
            key = row.get(TASK)
            task = tasks.get(key) if isinstance(key, str) else None
            if task is None:
                task = task_of(self.env, row)
                if isinstance(key, str):
                    tasks[key] = task
            length = None if completion_ids is None else len(completion_ids[i])
            work.append((task, Completion(_text(completion), length_tokens=length)))
        scores = scored(self.scorer, work, group_size=self._group_size)
        if log_metric is not None and scores:
            for name, value in _metrics(scores).items():
                log_metric(f"{self.__name__}/{name}", value)
        if log_extra is not None:
            log_extra("outcome", [str(score.verdict.outcome) for score in scores])
            log_extra("why", [score.verdict.why for score in scores])
            log_extra("answer", [score.verdict.answer or "" for score in scores])
        return [score.total for score in scores]


def _is_column(values: object, count: int) -> bool:
    """`trainer_state` and the like travel among the columns."""
    return isinstance(values, (list, tuple)) and len(values) == count


def _text(completion: Any) -> str:
    """The assistant's last words."""
    if isinstance(completion, str):
        return completion
    said = [m.get("content") for m in completion if isinstance(m, Mapping) and m.get("role") == "assistant"]
    content = said[-1] if said else ""
    if isinstance(content, list):  # blocks, as multimodal templates have them
        content = "".join(block.get("text") or "" for block in content if isinstance(block, Mapping))
    return content or ""


def _metrics(scores: Sequence[Score]) -> dict[str, float]:
    outcomes = Counter(score.verdict.outcome for score in scores)
    metrics = {f"outcomes/{outcome}": outcomes[outcome] / len(scores) for outcome in Outcome}
    rated = [score.parts for score in scores if score.total is not None]
    for name in rated[0] if rated else ():
        metrics[f"parts/{name}"] = fmean(parts[name] for parts in rated)
    return metrics


# ------------------------------------------------------------------------------------------ from TRL


def from_trl(
    reward_func: Callable[..., Any],
    *,
    bounds: Bounds = (0.0, 1.0),
    reference: str = "solution",
    conversational: bool = True,
    name: str | None = None,
) -> TRLPart:
    """A TRL reward function as a part of a reward, or as the verifier of a `Correct`.

        reward = rlvr.Correct(from_trl(accuracy_reward)) + 0.2 * from_trl(think_format_reward)

    It is called with one completion.  As a verifier its upper bound is CORRECT, and what is less WRONG with credit in
    proportion.  None, an exception, NaN and a value out of bounds are our failure, hence UNSCORED in a `Scorer`.

    Args:
        reward_func: `f(prompts, completions, **columns) -> [float | None]`, importable or picklable, not async.
        bounds: the least and the greatest value it can give.
        reference: the column in which it looks for the task's reference; the task's `meta` gives the others.
        conversational: it wants completions as lists of messages, as TRL's own functions do, not as texts.
        name: of the part; by default the function's.

    Raises:
        UsageError: it is async, or needs the token ids, which rlvr does not keep.
    """
    if not callable(reward_func):
        raise UsageError(f"from_trl got {brief(reward_func)}; give a reward function")
    if inspect.iscoroutinefunction(reward_func) or inspect.iscoroutinefunction(type(reward_func).__call__):
        raise UsageError(f"{_name(reward_func)} is async; rlvr scores in worker processes, so make it a plain function")
    ids = inspect.signature(reward_func).parameters.get("completion_ids")
    if ids is not None and ids.default is inspect.Parameter.empty:
        raise UsageError(
            f"{_name(reward_func)} reads completion_ids, and rlvr keeps lengths alone; rlvr.Overlong, Length and "
            "Repetition do what TRL's functions of this kind do"
        )
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"bounds are {bounds!r}; they must be two finite numbers, the lower one first")
    return TRLPart(reward_func, (float(low), float(high)), reference, conversational, name or _name(reward_func))


@dataclass(frozen=True)
class TRLPart(Part):
    """What `from_trl` makes: a part, and a verifier as well."""

    function: Callable[..., Any]
    bounds: Bounds = (0.0, 1.0)
    reference: str = "solution"
    conversational: bool = True
    name: str = "trl"

    @property
    def id(self) -> str:
        """The function has no version of its own."""
        return f"trl:{self.name}-v0"

    def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
        return self._called(task.prompt, completion.text, {**task.meta, self.reference: task.reference})

    def verify(self, completion: str, reference: Any) -> Verdict:
        """CORRECT at the upper bound, else WRONG with credit in proportion."""
        value = self._called("", completion, {self.reference: reference})
        low, high = self.bounds
        outcome = Outcome.CORRECT if value == high else Outcome.WRONG
        return Verdict(outcome, value=(value - low) / (high - low), why=f"{self.name}: {value:g}")

    def _called(self, prompt: Any, text: str, columns: Mapping[str, Any]) -> float:
        said = [{"role": "assistant", "content": text}] if self.conversational else text
        asked = chat(prompt) if self.conversational else prompt
        given = self.function(
            prompts=[asked],
            completions=[said],
            trainer_state=None,
            log_extra=_nothing,
            log_metric=_nothing,
            **{name: [value] for name, value in columns.items()},
        )
        values = given if isinstance(given, (list, tuple)) else [*given]
        if len(values) != 1:
            raise RewardError(f"{self.name} gave {len(values)} values for one completion")
        value = plain(values[0])
        if value is None:
            raise Unscored(f"{self.name} gave None: it has no opinion of this task")
        low, high = self.bounds
        if not isinstance(value, (int, float)) or not low <= value <= high:  # false for NaN
            raise RewardError(f"{self.name} gave {brief(value)}, which is no number in its bounds [{low:g}, {high:g}]")
        return float(value)


def _nothing(*_: Any) -> None:
    """Where a trainer would log."""


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
