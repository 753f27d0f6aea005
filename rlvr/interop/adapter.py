"""What the adapters share: a scorer that survives pickling, tasks that travel as text, and what UNSCORED becomes.

trainer's rows ──task_of──▶ (Task, Completion) × n ──scored──▶ Score × n ──settled──▶ numbers for the trainer
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Self, TypeAlias

from rlvr.environment import Environment, SingleTurnEnv
from rlvr.errors import DataError, Unscored, UsageError, brief
from rlvr.rewards import Reward
from rlvr.scoring import MEMORY_MIB, WALL_S, Scorer
from rlvr.scoring.items import Item
from rlvr.types import Completion, Message, Prompt, Score, Task
from rlvr.workers import shipped

__all__ = [
    "Adapter",
    "CountTokens",
    "TASK",
    "chat",
    "checked_group_size",
    "checked_unscored",
    "finite_tasks",
    "identity",
    "measured",
    "packed",
    "require_single",
    "scored",
    "settled",
    "task_of",
]

TASK: Final = "rlvr_task"
"""The column or field in which a task travels through a trainer, as JSON text."""

CountTokens: TypeAlias = Callable[[str], int]
"""Counts a completion's tokens where the trainer hands out its text alone."""


class Adapter:
    """An environment with a scorer of its own, behind a trainer's calling convention.

    Workers start with the first call, in whatever process that is: a copy that was pickled or forked has its own.
    They end with `close`, with the `with` block, or with the program.

    Args:
        env: a single-turn environment.
        workers, wall_s, memory_mib: see `rlvr.Scorer`.

    Raises:
        UsageError: no such environment, or a setting that cannot work.
    """

    def __init__(
        self,
        env: Environment,
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        memory_mib: int | None = MEMORY_MIB,
    ) -> None:
        self._settings: dict[str, Any] = {"workers": workers, "wall_s": wall_s, "memory_mib": memory_mib}
        self.scorer = Scorer(env, workers=workers, wall_s=wall_s, memory_mib=memory_mib)  # starts nothing yet
        self.env = env

    def close(self) -> None:
        """End the workers; later calls are refused.  Idempotent."""
        self.scorer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Cloudpickle inside, so that a class from a script or a notebook, or a lambda, reaches a spawned process."""
        left = ("scorer", "dataset")  # a trainer has its own copy of the data set
        return {"shipped": shipped({name: value for name, value in vars(self).items() if name not in left})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import cloudpickle

        vars(self).update(cloudpickle.loads(state["shipped"]))
        self.scorer = Scorer(self.env, **self._settings)


def scored(scorer: Scorer, work: Sequence[tuple[Task, Completion]], *, group_size: int | None = None) -> list[Score]:
    """Score a batch; one score each, in order.

    Args:
        work: task and completion.
        group_size: completions per group, for a reward that compares them.

    Raises:
        UsageError: such a reward, and the batch is not made of whole groups.
    """
    if scorer.env.reward.group_level:
        found: dict[int, Score] = {}
        for members in _groups([task for task, _ in work], group_size, scorer.env.reward):
            scores = scorer.score_group(work[members[0]][0], [work[i][1] for i in members])
            found |= zip(members, scores, strict=True)
        return [found[i] for i in range(len(work))]
    if len(work) == 1:
        return [scorer.score(*work[0])]  # without a hop to another thread
    items = [Item(str(number), task, completion) for number, (task, completion) in enumerate(work)]
    return [one.score for one in scorer.stream(items)]


def _groups(tasks: Sequence[Task], size: int | None, reward: Reward) -> list[list[int]]:
    """Positions of the groups: of each task so many, in order.  A task that was drawn twice has two groups."""
    if size is None:
        raise UsageError(f"the reward {reward} compares the completions of a group: say how many it has, group_size=…")
    of_task: dict[str, list[int]] = {}
    for position, task in enumerate(tasks):
        of_task.setdefault(identity(task), []).append(position)
    groups = [members[i : i + size] for members in of_task.values() for i in range(0, len(members), size)]
    short = next((group for group in groups if len(group) != size), None)
    if short is not None:
        raise UsageError(
            f"the reward {reward} compares groups of {size}, and task {tasks[short[0]].id!r} came with {len(short)} "
            "completions: give each process whole groups (batch size per device a multiple of the group's)"
        )
    return groups


def identity(task: Task) -> str:
    """What tells a task from others: rows of a user's own may share id and prompt, as questions about images do."""
    return repr((task.id, task.prompt, task.reference, dict(task.meta)))


def require_single(env: Environment, trainer: str) -> None:
    """Refuse a reward that needs the whole group, for a trainer that shows one completion at a time."""
    if env.reward.group_level:
        raise UsageError(
            f"{trainer} scores one completion at a time, and the reward {env.reward} compares those of a group; leave "
            "that part out with env.with_reward(…)"
        )


def measured(env: Environment, text: str, count_tokens: CountTokens | None) -> Completion:
    """A completion with its length, if the reward asks for one.

    Raises:
        UsageError: it asks, and nobody counts.
    """
    if not env.reward.needs_length:
        return Completion(text)
    if count_tokens is None:
        raise UsageError(
            f"the reward {env.reward} reads the length in tokens, and this trainer hands out text alone: give "
            "count_tokens=lambda text: len(tokenizer(text).input_ids)"
        )
    return Completion(text, length_tokens=count_tokens(text))


# ------------------------------------------------------------------------------------------ tasks


def finite_tasks(env: Environment, count: int | None) -> Iterator[Task]:
    """The first `count` tasks, or all of them.

    Raises:
        UsageError: all, of a generator that never ends.
    """
    if not isinstance(env, SingleTurnEnv):
        raise UsageError(f"{type(env).__name__} has no tasks to make a data set of")
    if count is None and env.size is None:
        raise UsageError(f"{env.id} makes tasks without end: say how many, tasks=10_000")
    if count is not None and (not isinstance(count, int) or count < 1):
        raise UsageError(f"tasks is {count!r}; it must be a whole number of at least 1, or None for all")
    return islice(env.tasks(), count)


def packed(task: Task) -> str:
    """A task as JSON text: all that scoring it takes, so that the scoring process needs no data set.

    Raises:
        DataError: its prompt, reference or meta would not come back the same.
    """
    prompt = task.prompt if isinstance(task.prompt, str) else chat(task.prompt)
    whole = {"id": task.id, "prompt": prompt, "reference": task.reference, "meta": dict(task.meta)}
    try:
        text = json.dumps(whole, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"task {task.id!r} cannot travel as JSON: {error}") from error
    back = json.loads(text)
    for name, value in whole.items():
        if back[name] != value:
            raise DataError(f"task {task.id!r}: its {name}, {brief(value)}, comes back from JSON as another")
    return text


def task_of(env: Environment, row: Mapping[str, Any]) -> Task:
    """The task of a trainer's row: ours, packed, or whatever the environment makes of the row's own columns.

    Raises:
        DataError: there is no telling.
    """
    ours = row.get(TASK)
    if ours is not None:
        try:
            return Task(**json.loads(ours))
        except (TypeError, ValueError) as error:
            raise DataError(f"column {TASK!r} is {brief(ours)}; it must be what rlvr wrote there") from error
    try:
        return env.task_of(row)
    except DataError:
        raise
    except Exception as error:  # the author's code over somebody's row
        raise DataError(
            f"{env.id} cannot make a task of {brief(dict(row))}: {type(error).__name__}: {error}"
        ) from error


def chat(prompt: Prompt) -> list[Message]:
    """A prompt as chat messages: a text becomes the user's only one."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(message) for message in prompt]


# ------------------------------------------------------------------------------------------ scores


def settled(task: Task, score: Score, unscored: float | None) -> float:
    """The total as a number, for a trainer that cannot leave a completion out.

    Args:
        unscored: what to say for UNSCORED; None to raise.

    Raises:
        Unscored: we failed, and the caller named no number for that.
    """
    if score.total is not None:
        return score.total
    if unscored is None:
        raise Unscored(
            f"task {task.id!r} could not be scored ({score.verdict.why}), and this trainer cannot mask a completion; "
            "mend the cause, or choose what it is told: unscored=0.0"
        )
    return unscored


def checked_group_size(size: int | None) -> int | None:
    """Refuse what is no number of completions."""
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise UsageError(f"group_size is {size!r}; it must be a whole number of at least 1, or None")
    return size


def checked_unscored(unscored: float | None) -> float | None:
    """Refuse what would poison a batch."""
    if unscored is not None and not (isinstance(unscored, (int, float)) and math.isfinite(unscored)):
        raise UsageError(f"unscored is {unscored!r}; it must be a finite number, or None to raise")
    return unscored
