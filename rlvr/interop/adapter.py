"""What the adapters share: a picklable scorer, tasks as JSON text, and the number
that stands for UNSCORED.

trainer's rows ─task_of─▶ (Task, Completion) × n ─score_batch─▶ Score × n
  ─reward_value─▶ numbers for the trainer
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rlvr.environment import Environment, require_environment, require_one_reply
from rlvr.errors import DataError, Unscored, UsageError, brief
from rlvr.rewards import Reward
from rlvr.scoring import MEMORY_MIB, WALL_S, Scorer
from rlvr.scoring.engines import engine_of
from rlvr.scoring.items import Item
from rlvr.types import Completion, JsonDict, Message, Prompt, Score, Task
from rlvr.validate import require_number, require_optional_whole
from rlvr.workers import ship
from rlvr.workers.closing import Closing

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = [
    "Adapter",
    "CountTokens",
    "TASK",
    "chat_messages",
    "completion_with_length",
    "finite_tasks",
    "refuse_group_reward",
    "require_unscored",
    "reward_value",
    "score_batch",
    "scorer_of",
    "task_as_json",
    "task_key",
    "task_of",
]

TASK: Final = "rlvr_task"
"""The column or field in which a task travels through a trainer, as JSON text."""

CountTokens: TypeAlias = Callable[[str], int]
"""From a completion's text to its number of tokens, for trainers that pass on the text alone."""


class Adapter(Closing):
    """An environment with a scorer of its own, behind a trainer's calling convention.

    Workers start with the first call, in the process that makes it: a pickled or forked copy has
    workers of its own. They end with `close`, with the `with` block, or with the program.

    Args:
        env: a single-turn environment.
        workers, wall_s, memory_mib: see `rlvr.Scorer`.
        scorer: addresses of services or of a Ray cluster, as the flag `--scorer` takes them, which
            score instead of workers here.  One that is not there for five minutes is
            `rlvr.errors.ServiceFailed`, never a reward.

    Raises:
        UsageError: `env` is no environment, or a setting cannot work.
    """

    def __init__(
        self,
        env: Environment,
        *,
        workers: int | None = None,
        wall_s: float = WALL_S,
        memory_mib: int | None = MEMORY_MIB,
        scorer: str | None = None,
    ) -> None:
        require_one_reply(
            env,
            "and a completion alone is no episode; use to_trl_environment or to_gymnasium, or "
            "rlvr's own trainer",
        )
        self._settings: JsonDict = {
            "workers": workers,
            "wall_s": wall_s,
            "memory_mib": memory_mib,
            "scorer": scorer,
        }
        self.scorer = scorer_of(env, **self._settings)  # starts nothing yet
        self.env = env

    def close(self) -> None:
        """End the workers; later calls are refused.  May be called again."""
        self.scorer.close()

    def __getstate__(self) -> dict[str, object]:
        """Uses cloudpickle, so that classes of a script or notebook, and lambdas, reach a spawned
        process."""
        left = ("scorer", "dataset")  # a trainer has its own copy of the data set
        return {
            "shipped": ship({name: value for name, value in vars(self).items() if name not in left})
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        import cloudpickle

        vars(self).update(cloudpickle.loads(state["shipped"]))
        self.scorer = scorer_of(self.env, **self._settings)


def scorer_of(env: Environment, *, scorer: str | None, **settings: Any) -> Scorer:
    """What scores an environment: workers here, or services.

    Args:
        env: the environment.
        scorer, settings: see `Adapter`.
    """
    return Scorer(env, **settings) if scorer is None else Scorer(env, engine=engine_of(scorer))


def score_batch(
    scorer: Scorer, work: Sequence[tuple[Task, Completion]], *, group_size: int | None = None
) -> list[Score]:
    """Score a batch; one score for each completion, in order.

    Args:
        scorer: the environment's scorer.
        work: pairs of task and completion.
        group_size: completions per group; needed if the reward compares the completions of a group.

    Raises:
        UsageError: the reward compares the completions of a group, and the batch is not made of
            whole groups.
    """
    if scorer.env.reward.group_level:
        by_index: dict[int, Score] = {}
        for members in _groups([task for task, _ in work], group_size, scorer.env.reward):
            scores = scorer.score_group(work[members[0]][0], [work[i][1] for i in members])
            by_index |= zip(members, scores, strict=True)
        return [by_index[i] for i in range(len(work))]
    if len(work) == 1:
        return [scorer.score(*work[0])]  # without a hop to another thread
    items = [Item(str(number), task, completion) for number, (task, completion) in enumerate(work)]
    return [scored.score for scored in scorer.stream(items)]


def _groups(tasks: Sequence[Task], size: int | None, reward: Reward) -> list[list[int]]:
    """Positions of the groups' members: `size` of one task each, in order.  A task drawn twice has
    two groups."""
    if size is None:
        raise UsageError(
            f"the reward {reward} compares the completions of a group: say how many it has, "
            f"group_size=…"
        )
    of_task: dict[str, list[int]] = {}
    for position, task in enumerate(tasks):
        of_task.setdefault(task_key(task), []).append(position)
    groups = [
        members[i : i + size] for members in of_task.values() for i in range(0, len(members), size)
    ]
    short = next((group for group in groups if len(group) != size), None)
    if short is not None:
        raise UsageError(
            f"the reward {reward} compares groups of {size}, and task {tasks[short[0]].id!r} came "
            f"with {len(short)} completions: give each process whole groups (batch size per device "
            "a multiple of the group's)"
        )
    return groups


def task_key(task: Task) -> str:
    """Text that differs between tasks: a user's rows may share id and prompt, as questions about
    images do.

    Args:
        task: the task.
    """
    return repr((task.id, task.prompt, task.reference, dict(task.meta)))


def refuse_group_reward(env: Environment, trainer: str) -> None:
    """Refuse a reward that compares the completions of a group, for a trainer that passes on one at
    a time.

    Args:
        env: the environment.
        trainer: name of the trainer, for the error.

    Raises:
        UsageError: the environment has such a reward.
    """
    if env.reward.group_level:
        raise UsageError(
            f"{trainer} scores one completion at a time, and the reward {env.reward} compares "
            "those of a group; leave that part out with env.with_reward(…)"
        )


def completion_with_length(
    env: Environment, text: str, count_tokens: CountTokens | None
) -> Completion:
    """A completion, with its length in tokens if the reward reads that.

    Args:
        env: the environment.
        text: the completion's text.
        count_tokens: from a text to its number of tokens.

    Raises:
        UsageError: the reward reads the length, and there is no `count_tokens`.
    """
    if not env.reward.needs_length:
        return Completion(text)
    if count_tokens is None:
        raise UsageError(
            f"the reward {env.reward} reads the length in tokens, and this trainer hands out text "
            "alone: give count_tokens=lambda text: len(tokenizer(text).input_ids)"
        )
    return Completion(text, length_tokens=count_tokens(text))


# ------------------------------------------------------------------------------------------ tasks


def finite_tasks(env: Environment, count: int | None) -> Iterator[Task]:
    """The first `count` tasks, or all of them.

    Args:
        env: a single-turn environment, or one with tools.
        count: number of tasks; None for all.

    Raises:
        UsageError: `count` is None and the environment generates tasks without end.
    """
    require_environment(env)
    if count is None and env.size is None:
        raise UsageError(f"{env.id} makes tasks without end: say how many, tasks=10_000")
    return islice(env.tasks(), require_optional_whole("tasks", count, 1, none="all"))


def task_as_json(task: Task) -> str:
    """A task as JSON text, with all that scoring needs, so that the scoring process needs no data
    set.

    Args:
        task: the task.

    Raises:
        DataError: its prompt, reference or meta would be read back as something else.
    """
    prompt = task.prompt if isinstance(task.prompt, str) else chat_messages(task.prompt)
    fields = {"id": task.id, "prompt": prompt, "reference": task.reference, "meta": dict(task.meta)}
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"task {task.id!r} cannot be sent as JSON: {error}") from error
    back = json.loads(text)
    for name, value in fields.items():
        if back[name] != value:
            raise DataError(
                f"task {task.id!r}: its {name}, {brief(value)}, comes back from JSON as another"
            )
    return text


def task_of(env: Environment, row: Row) -> Task:
    """The task of a trainer's row: from `task_as_json`, or else made by the environment from the
    row's columns.

    Args:
        env: the environment.
        row: the row's columns by name; `TASK` is used if it is there.

    Raises:
        DataError: no task can be made of the row.
    """
    task_text = row.get(TASK)
    if task_text is not None:
        try:
            return Task(**json.loads(task_text))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"column {TASK!r} is {brief(task_text)}; it must be what rlvr wrote there"
            ) from error
    try:
        return env.task_of(row)
    except DataError:
        raise
    except Exception as error:  # the author's code, on a row that it may not expect
        raise DataError(
            f"{env.id} cannot make a task of {brief(dict(row))}: {type(error).__name__}: {error}"
        ) from error


def chat_messages(prompt: Prompt) -> list[Message]:
    """A prompt as chat messages; a text becomes one message of the user.

    Args:
        prompt: a text or chat messages.
    """
    return (
        [{"role": "user", "content": prompt}]
        if isinstance(prompt, str)
        else [dict(message) for message in prompt]
    )


# ------------------------------------------------------------------------------------------ scores


def reward_value(task: Task, score: Score, unscored: float | None) -> float:
    """The score's total as a number, for a trainer that cannot leave a completion out.

    Args:
        task: the task, for the error.
        score: its score.
        unscored: the number for UNSCORED; None to raise.

    Raises:
        Unscored: the score is UNSCORED and `unscored` is None.
    """
    if score.total is not None:
        return score.total
    if unscored is None:
        raise Unscored(
            f"task {task.id!r} could not be scored ({score.verdict.why}), and this trainer cannot "
            f"mask a completion; "
            "fix the cause, or choose a reward for it: unscored=0.0"
        )
    return unscored


def require_unscored(unscored: float | None) -> float | None:
    """The number for UNSCORED as it is; NaN or an infinity would spoil a whole batch.

    Args:
        unscored: the number, or None to raise.

    Raises:
        UsageError: it is neither None nor a finite number.
    """
    return (
        None if unscored is None else require_number("unscored", unscored, hint="or None to raise")
    )
