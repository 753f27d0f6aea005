"""TRL: an environment as a reward function and a data set for its trainers, and TRL's
reward functions as parts.

    reward = to_trl(rlvr.make("gsm8k-v4")) trainer = GRPOTrainer(model,
    reward_funcs=reward.reward_funcs, train_dataset=reward.dataset, args=…)

The convention: `f(prompts, completions, completion_ids, **columns) -> list[float | None]`, with the
columns of the data set.  From TRL 1.6 on, GRPO and RLOO leave a completion with None out of its
group's statistics and give it no advantage; earlier versions counted None as 0.  Checked with TRL
1.16.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from rlvr.data.rows import as_dataset
from rlvr.environment import Environment
from rlvr.errors import DataError, RewardError, Unscored, UsageError, brief
from rlvr.interop.adapter import (
    TASK,
    Adapter,
    chat_messages,
    finite_tasks,
    require_unscored,
    reward_value,
    score_batch,
    task_as_json,
    task_of,
)
from rlvr.rewards import Bounds, Part
from rlvr.scoring import MEMORY_MIB, WALL_S
from rlvr.types import (
    Completion,
    JsonDict,
    Outcome,
    Score,
    Task,
    Verdict,
    describe_returned,
    is_async,
    plain,
)
from rlvr.validate import require_one_of, require_optional_whole
from rlvr.workers import usable_cores
from rlvr.workers.loops import finish

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["FailureOutcome", "TRLPart", "TRLReward", "from_trl", "to_trl"]

_MASKS_NONE: Final = (1, 6)  # before this version TRL summed None as 0

FailureOutcome: TypeAlias = Literal["wrong", "unscored"]
"""The outcome of a completion at which a TRL reward function raises."""

# beside the columns
_GIVEN: Final = ("prompts", "completions", "trainer_state", "log_extra", "log_metric")

# ------------------------------------------------------------------------------------------ to TRL


def to_trl(
    env: Environment,
    *,
    tasks: int | None = None,
    conversational: bool = False,
    group_size: int | None = None,
    unscored: float | None = None,
    beginning: str = "",
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    scorer: str | None = None,
) -> TRLReward:
    """An environment for `GRPOTrainer` or `RLOOTrainer`: `.reward_funcs` and `.dataset`.

    Args:
        env: a single-turn environment.
        tasks: number of tasks in the data set; None for all of a finite split.
        conversational: True: prompts are chat messages, to which TRL applies the model's chat
            template; prompts that are messages already stay so.
        group_size: TRL's `num_generations`, for a reward that compares the completions of a group.
            Each process then needs whole groups: `per_device_train_batch_size` has to be a multiple
            of it.
        unscored: the reward for UNSCORED completions; by default None, which TRL masks.  With a TRL
            before 1.6, which counts None as 0, the default raises `rlvr.Unscored`.
        beginning: the text with which the model's chat template begins every reply, such as
            `"<think>\\n"`.  TRL counts it to the prompt; with it given, the reward sees each
            completion whole.
        workers, wall_s, memory_mib: see `rlvr.Scorer`.  By default one worker per core, divided
            among the processes that `torchrun` or `accelerate` started on this machine.
        scorer: services that score instead of workers here, such as `"http://10.0.0.7:8000"`,
            as `--scorer` takes them.

    Raises:
        UsageError: `env` is no environment, or a setting cannot work.
    """
    if workers is None:
        workers = max(1, usable_cores() // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    settings: dict[str, object] = {"workers": workers, "wall_s": wall_s, "memory_mib": memory_mib}
    settings["scorer"] = scorer
    return TRLReward(
        env,
        tasks=tasks,
        conversational=conversational,
        group_size=group_size,
        unscored=unscored,
        beginning=beginning,
        **settings,
    )


class TRLReward(Adapter):
    """A TRL reward function: the score's total, None for UNSCORED.  Made by `to_trl`.

    The trainer logs, beside its own `rewards/ID/mean`: `ID/parts/NAME`, the mean of each part of
    the reward; `ID/outcomes/correct` … `unscored`, shares of the outcomes; and in its table of
    completions the columns `outcome`, `why` and `answer`.

    Args:
        env, tasks, conversational, group_size, unscored, beginning, settings: see `to_trl`; its
            other arguments are the settings.
    """

    def __init__(
        self,
        env: Environment,
        *,
        tasks: int | None,
        conversational: bool,
        group_size: int | None,
        unscored: float | None,
        beginning: str,
        **settings: Any,
    ) -> None:
        super().__init__(env, **settings)
        if not isinstance(beginning, str):
            raise UsageError(
                f"beginning is {brief(beginning)}; give the text, such as '<think>\\n'"
            )
        self._beginning = beginning
        self.__name__ = env.id  # TRL's name for the metrics
        self._tasks, self._conversational = tasks, conversational
        self._group_size, self._unscored = (
            require_optional_whole("group_size", group_size, 1),
            require_unscored(unscored),
        )

    @property
    def reward_funcs(self) -> list[TRLReward]:
        """The trainer's `reward_funcs`: one function, whose value is the whole reward."""
        return [self]

    @cached_property
    def dataset(self) -> Dataset:
        """A `datasets.Dataset` with the columns `prompt` and `rlvr_task`, which the reward function
        reads.

        A data set of your own can be used instead, if the environment knows its columns (`question`
        and `answer` for `gsm8k-v4`), or if it has a column `reference`.
        """
        return as_dataset(
            {
                "prompt": chat_messages(task.prompt) if self._conversational else task.prompt,
                TASK: task_as_json(task),
            }
            for task in finite_tasks(self.env, self._tasks)
        )

    def __call__(
        self,
        prompts: Sequence[object],
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
            completions: texts, or lists of messages, of which the assistant's last counts.
            completion_ids: token ids; parts such as `Overlong` read the number of them.
            log_extra: the trainer's function that adds a column to its table of completions.
            log_metric: the trainer's function that logs a number.
            columns: of the data set, lists or arrays of one value per completion; other values are
                ignored.

        Raises:
            DataError: lists of different lengths, or a row that is no task.
            Unscored: a completion is UNSCORED, and this TRL would count None as 0.
        """
        columns = {name: values for name, values in columns.items() if _is_column(values)}
        batch_columns = {"prompts": prompts, "completion_ids": completion_ids} | columns
        for name, values in batch_columns.items():
            if values is not None and len(values) != len(completions):
                raise DataError(
                    f"{name!r} has {len(values)} entries for {len(completions)} completions; one "
                    f"for each"
                )
        tasks: dict[str, Task] = {}  # siblings share theirs
        work = []
        for i, completion in enumerate(completions):
            row = {"prompt": prompts[i]} | {
                name: plain(values[i]) for name, values in columns.items()
            }
            key = row.get(TASK)
            task = tasks.get(key) if isinstance(key, str) else None
            if task is None:
                task = task_of(self.env, row)
                if isinstance(key, str):
                    tasks[key] = task
            length = None if completion_ids is None else len(completion_ids[i])
            text = self._beginning + _text(completion)
            work.append((task, Completion(text, length_tokens=length)))
        scores = score_batch(self.scorer, work, group_size=self._group_size)
        if log_metric is not None and scores:
            for name, value in _metrics(scores).items():
                log_metric(f"{self.__name__}/{name}", value)
        if log_extra is not None:
            log_extra("outcome", [str(score.verdict.outcome) for score in scores])
            log_extra("why", [score.verdict.why for score in scores])
            log_extra("answer", [score.verdict.answer or "" for score in scores])
        return [self._reward(task, score) for (task, _), score in zip(work, scores, strict=True)]

    def _reward(self, task: Task, score: Score) -> float | None:
        if score.total is None and self._unscored is None:
            _require_mask(task, score)
            return None
        return reward_value(task, score, self._unscored)


def _require_mask(task: Task, score: Score) -> None:
    """Refuse None if the installed TRL counts it as 0.  Other trainers with TRL's convention may
    work without TRL."""
    try:
        installed = version("trl")
    except PackageNotFoundError:
        return
    if tuple(map(int, re.findall(r"\d+", installed)[:2])) < _MASKS_NONE:
        raise Unscored(
            f"task {task.id!r} could not be scored ({score.verdict.why}), and TRL {installed} "
            f"counts that as 0; "
            "pip install 'trl>=1.6', which masks it, or choose a reward for it: unscored=0.0"
        )


def _is_column(values: object) -> bool:
    """True for columns; `trainer_state` and other arguments of TRL's come among them."""
    if isinstance(values, Sequence):  # a `datasets.Column` is one
        return not isinstance(values, (str, bytes))
    return bool(getattr(values, "shape", ()))


def _text(completion: Any) -> str:
    """The text of a completion; of messages, the assistant's last."""
    if isinstance(completion, str):
        return completion
    replies = [
        m.get("content")
        for m in completion
        if isinstance(m, Mapping) and m.get("role") == "assistant"
    ]
    content = replies[-1] if replies else ""
    if isinstance(content, list):  # blocks, as multimodal templates have them
        content = "".join(
            block.get("text") or "" for block in content if isinstance(block, Mapping)
        )
    return content or ""


def _metrics(scores: Sequence[Score]) -> dict[str, float]:
    outcomes = Counter(score.verdict.outcome for score in scores)
    metrics = {f"outcomes/{outcome}": outcomes[outcome] / len(scores) for outcome in Outcome}
    rated = [score.parts for score in scores if score.total is not None]
    for name in rated[0] if rated else ():
        metrics[f"parts/{name}"] = fmean(parts[name] for parts in rated)
    return metrics


# ----------------------------------------------------------------------------------------- from TRL


def from_trl(
    reward_func: Callable[..., object],
    *,
    bounds: Bounds = (0.0, 1.0),
    reference: str = "solution",
    conversational: bool = True,
    name: str | None = None,
    failure: FailureOutcome | None = None,
) -> TRLPart:
    """A TRL reward function as a part of a reward, or as the verifier of a `Correct`.

        reward = rlvr.Correct(from_trl(accuracy_reward)) + 0.2 * from_trl(think_format_reward)

    It is called with one completion.  As a verifier, its upper bound is CORRECT, and a smaller
    value is WRONG with credit in proportion.  None means that it has no opinion of this task:
    UNSCORED in a `Scorer`.  So is a value out of bounds, since the bounds have to hold for any
    text.  The `Scorer` kills a function that hangs: UNSCORED as well.

    Args:
        reward_func: `f(prompts, completions, **columns) -> [float | None]`; an async one is
            awaited, see `Environment.max_concurrent`.
        bounds: the least and the greatest value that it can return.
        reference: the column in which it expects the task's reference; the task's `meta` gives the
            others.
        conversational: True: it takes completions as lists of messages, as TRL's own functions do;
            False: as texts.
        name: of the part; by default the function's name.
        failure: "wrong": a completion at which it raises or returns NaN or an infinity is worth the
            lower bound, with the reason `crash` or `odd-score`, so that a policy gains nothing by
            it; "unscored": it is our failure.  By default "wrong", and "unscored" for an async
            function, which raises where its endpoint fails.

    Raises:
        UsageError: it cannot be called as TRL does, or needs the token ids, which rlvr does not
            keep.
    """
    if not callable(reward_func):
        raise UsageError(f"from_trl got {brief(reward_func)}; give a reward function")
    parameters = _parameters(reward_func)
    ids = parameters.get("completion_ids")
    if ids is not None and ids.default is inspect.Parameter.empty:
        raise UsageError(
            f"{_name(reward_func)} reads completion_ids, and rlvr keeps lengths alone; "
            "rlvr.Overlong, Length and Repetition do what TRL's functions of this kind do"
        )
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()) and set(
        _GIVEN
    ) - set(parameters):
        raise UsageError(
            f"{_name(reward_func)} has no **kwargs; TRL's functions do, for {', '.join(_GIVEN)} "
            f"and columns"
        )
    if reference in (*_GIVEN, "completion_ids"):
        raise UsageError(
            f"reference is {reference!r}, which is an argument of its own; name a column"
        )
    failure = failure or ("unscored" if is_async(reward_func) else "wrong")
    require_one_of("failure", failure, ("wrong", "unscored"))
    named = name or _name(reward_func)
    return TRLPart(reward_func, _bounds(bounds), reference, conversational, named, failure)


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:  # a built-in
        raise UsageError(
            f"{_name(function)} does not say what it takes; wrap it in a function (completions, "
            f"**_)"
        ) from error


def _bounds(bounds: Any) -> Bounds:
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:  # true for NaN
        raise UsageError(
            f"bounds are {brief(bounds)}; they must be two finite numbers, the lower one first"
        )
    return low, high


@dataclass(frozen=True)
class TRLPart(Part):
    """A TRL reward function as a part of a reward and as a verifier; see `from_trl`.

    Attributes:
        function: the reward function.
        bounds, reference, conversational, name, failure: see `from_trl`.
    """

    function: Callable[..., Any]
    bounds: Bounds = (0.0, 1.0)
    reference: str = "solution"
    conversational: bool = True
    name: str = "trl"
    failure: FailureOutcome = "wrong"

    @property
    def id(self) -> str:
        """Id of the verifier, always with version 0, since the function has no version of its
        own."""
        return f"trl:{self.name}-v0"

    @cached_property
    def is_async(self) -> bool:
        return is_async(self.function)

    def value(
        self, task: Task, completion: Completion, verdict: Verdict
    ) -> float | Coroutine[Any, Any, float]:
        value = self._value(task, completion)
        return value if self.is_async else finish(value)

    async def _value(self, task: Task, completion: Completion) -> float:
        value, why = await self._call_function(
            task.prompt, completion.text, {**task.meta, self.reference: task.reference}
        )
        if value is None:
            raise Unscored(why)
        return value

    def verify(self, completion: str, reference: object) -> Verdict | Coroutine[Any, Any, Verdict]:
        """CORRECT at the upper bound, else WRONG with credit in proportion.

        Args:
            completion: the model's text.
            reference: the task's reference.
        """
        verdict = self._verdict(completion, reference)
        return verdict if self.is_async else finish(verdict)

    async def _verdict(self, completion: str, reference: object) -> Verdict:
        value, why = await self._call_function("", completion, {self.reference: reference})
        if value is None:
            return Verdict(Outcome.UNSCORED, why=why)
        low, high = self.bounds
        outcome = Outcome.CORRECT if value == high else Outcome.WRONG
        return Verdict(outcome, value=(value - low) / (high - low), why=why)

    async def _call_function(
        self, prompt: Any, text: str, columns: Mapping[str, object]
    ) -> tuple[float | None, str]:
        """The function's value for one completion, None if it returned that; and the reason."""
        completion = [{"role": "assistant", "content": text}] if self.conversational else text
        prompt_value = chat_messages(prompt) if self.conversational else prompt
        arguments = self._arguments([prompt_value], [completion], columns)
        try:
            result = (
                await self.function(**arguments) if self.is_async else self.function(**arguments)
            )
        except Unscored:
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # the completion's fault, unless the caller says otherwise
            if self.failure == "unscored":
                raise
            return self.bounds[0], f"crash: {self.name}: {type(error).__name__}: {error}"[:300]
        return self._read(result)

    def _arguments(
        self, prompts: list[Any], completions: list[object], columns: Mapping[str, object]
    ) -> JsonDict:
        """The arguments that TRL would pass.  A call that cannot work is a UsageError here, no
        completion's fault."""
        if reserved := columns.keys() & {*_GIVEN, "completion_ids"}:
            raise UsageError(
                f"the task's meta has {min(reserved)!r}, which TRL passes to {self.name} itself; "
                f"rename it"
            )
        arguments = dict(zip(_GIVEN, (prompts, completions, None, _nothing, _nothing), strict=True))
        arguments |= {name: [value] for name, value in columns.items()}
        try:
            inspect.signature(self.function).bind(**arguments)
        except TypeError as error:
            raise UsageError(
                f"{self.name} cannot be called with the columns {[*columns]}: {error}"
            ) from error
        return arguments

    def _read(self, given: Any) -> tuple[float | None, str]:
        try:
            [value] = map(plain, given)
        except (TypeError, ValueError):
            raise RewardError(
                f"{self.name} gave {describe_returned(given)}; it must be a list of one value for "
                f"each completion"
            ) from None
        if value is None:
            return None, f"no-opinion: {self.name} gave None"
        low, high = self.bounds
        if isinstance(value, float) and not math.isfinite(value) and self.failure == "wrong":
            return low, f"odd-score: {self.name} gave {value}"
        if not isinstance(value, (int, float)) or not low <= value <= high:  # false for NaN
            raise RewardError(
                f"{self.name} gave {brief(value)}, which is no number in [{low:g}, {high:g}]; "
                f"declare its bounds=…"
            )
        return float(value), f"{self.name}: {value:g}"


def _nothing(*_: object) -> None:
    """Stands for the trainer's functions that log."""


def _name(function: Callable[..., object]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
