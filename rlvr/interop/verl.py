"""verl: environments as `compute_score` of a `custom_reward_function`, and its Parquet files.

    # reward.py, named in reward.custom_reward_function.path
    import rlvr
    from rlvr.interop import to_verl
    compute_score = to_verl(rlvr.make("gsm8k-v4"))

For an environment that waits, such as one with a judge, `compute_score =
to_verl(env).acompute_score` is awaited in verl's event loop; verl calls a plain function in a few
threads.

The convention: `f(data_source, solution_str, ground_truth, extra_info) -> {"score": float, …}`.
verl makes arrays of the other values, so every reply has the same keys.  Written against verl
0.9.1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlvr.data.lines import Row
from rlvr.data.rows import as_dataset
from rlvr.environment import Environment
from rlvr.errors import DataError, UsageError
from rlvr.interop.adapter import (
    TASK,
    Adapter,
    CountTokens,
    chat_messages,
    completion_with_length,
    finite_tasks,
    require_unscored,
    reward_value,
    score_batch,
    task_as_json,
    task_of,
)
from rlvr.scoring import MEMORY_MIB, WALL_S
from rlvr.types import Completion, JsonDict, JsonObject, Outcome, Score, Task
from rlvr.validate import require_optional_whole
from rlvr.workers import ship
from rlvr.workers.closing import Closing

__all__ = ["VerlReward", "VerlStopped", "to_verl"]


def to_verl(
    env: Environment,
    *more: Environment,
    unscored: float | None = None,
    count_tokens: CountTokens | None = None,
    group_size: int | None = None,
    workers: int | None = 2,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    scorer: str | None = None,
) -> VerlReward:
    """One or more environments as verl's `compute_score`.

    Args:
        env, more: single-turn environments.  If there are several, a row's `data_source` is the id
            of its environment.
        unscored: the score for UNSCORED completions.  verl has no way to leave a completion out,
            and NaN would spoil the whole batch, so None raises, which stops the step; under the
            reward manager `limited`, which makes 0 of an exception, it raises `VerlStopped`.  A
            number is a reward like any other, and `unscored` in the reply is 1.
        count_tokens: from a completion's text to its number of tokens, for a reward that reads the
            length; verl passes on the text alone.
        group_size: verl's `rollout.n`, for a reward that compares the completions of a group; only
            `batch` can score such a reward.
        workers, wall_s, memory_mib: see `rlvr.Scorer`.  Few workers by default, since each
            environment has workers of its own in each of verl's `reward.num_workers` processes.
        scorer: services that score instead of workers here, such as `"http://10.0.0.7:8000"`,
            as `--scorer` takes them.

    Raises:
        UsageError: two environments share an id, or a setting cannot work.
    """
    return VerlReward(
        (env, *more),
        unscored=require_unscored(unscored),
        count_tokens=count_tokens,
        group_size=require_optional_whole("group_size", group_size, 1),
        settings={
            "workers": workers,
            "wall_s": wall_s,
            "memory_mib": memory_mib,
            "scorer": scorer,
        },
    )


class VerlStopped(BaseException):
    """An error that verl's reward manager `limited` would have made a reward of 0.

    It is no `Exception`, because that manager takes each of these for 0.
    """


@contextmanager
def _heard() -> Iterator[None]:
    """Let no error become a reward: `limited` catches every `Exception` and gives 0."""
    try:
        yield
    except Exception as error:
        module = sys.modules.get("verl.experimental.reward_loop.reward_manager.limited")
        manager = getattr(module, "RateLimitedRewardManager", None)
        if getattr(manager, "_class_initialized", False):  # one was made in this process
            raise VerlStopped(
                f"{type(error).__name__}: {error} (verl's reward manager 'limited' makes 0 of an "
                "error, so this one ends the step; use the manager 'naive', or choose a reward: "
                "unscored=0.0)"
            ) from error
        raise


class VerlReward(Closing):
    """verl's `compute_score`; made by `to_verl`.  Picklable.

    Every reply has the same keys, and all but the last two are numbers: `score`, the total; `acc`,
    1 for CORRECT, for group filters; `unparsed` and `unscored`, 0 or 1; `part/NAME` for each part
    of any of the environments, 0 where it has no such part; `pred`, the answer, which verl takes
    its majority votes from; `why`, the reason.

    Args:
        envs, unscored, count_tokens, group_size: see `to_verl`.
        settings: `workers`, `wall_s`, `memory_mib` and `scorer`.
    """

    def __init__(
        self,
        envs: Sequence[Environment],
        *,
        unscored: float | None,
        count_tokens: CountTokens | None,
        group_size: int | None,
        settings: JsonObject,
    ) -> None:
        self._adapters = {env.id: Adapter(env, **settings) for env in envs}
        if len(self._adapters) < len(envs):
            raise UsageError(f"two environments share an id: {', '.join(env.id for env in envs)}")
        self._names = tuple(dict.fromkeys(name for env in envs for name in env.reward.names))
        self._unscored, self._count_tokens, self._group_size = unscored, count_tokens, group_size
        self.__name__ = "compute_score"

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: object,
        extra_info: Row | None = None,
        **_: object,
    ) -> dict[str, object]:
        """Score one completion; blocks, from any thread.

        Args:
            data_source: id of the environment; any text if there is only one.
            solution_str: the completion.
            ground_truth: the reference; not used if `extra_info` holds the task, as `rows` writes
                it.
            extra_info: the row's column of that name.

        Raises:
            DataError, UsageError, Unscored: see `batch`.
        """
        with _heard():
            return self.batch([data_source], [solution_str], [ground_truth], [extra_info])[0]

    async def acompute_score(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: object,
        extra_info: Row | None = None,
        **_: object,
    ) -> dict[str, object]:
        """Score one completion without blocking the event loop; verl recognises it as async and
        awaits it.

        Args:
            data_source, solution_str, ground_truth, extra_info: see `__call__`.

        Raises:
            DataError, UsageError, Unscored: see `batch`.
        """
        with _heard():
            [(adapter, _members)] = self._by_environment([data_source])
            task, completion = self._work(adapter.env, solution_str, ground_truth, extra_info)
            return self._reply(task, await adapter.scorer.ascore(task, completion))

    def batch(
        self,
        data_sources: Sequence[str],
        solution_strs: Sequence[str],
        ground_truths: Sequence[object],
        extra_infos: Sequence[Row | None],
        **_: object,
    ) -> list[JsonDict]:
        """Score a batch, as the reward manager `batch` of older versions of verl asks; a group
        shares its task.

        Args:
            data_sources, solution_strs, ground_truths, extra_infos: see `__call__`; lists of one
                length.

        Raises:
            DataError: lists of different lengths, or a row that is no task.
            UsageError: a data source is the id of no environment here, or the batch is not made of
                whole groups.
            Unscored: a completion is UNSCORED, and `unscored` is None.
        """
        batch_columns = {
            "data_sources": data_sources,
            "ground_truths": ground_truths,
            "extra_infos": extra_infos,
        }
        for name, values in batch_columns.items():
            if len(values) != len(solution_strs):
                raise DataError(
                    f"{len(values)} {name} for {len(solution_strs)} solution_strs; one of each"
                )
        replies: dict[int, dict[str, object]] = {}
        for adapter, members in self._by_environment(data_sources):
            work = [
                self._work(adapter.env, solution_strs[i], ground_truths[i], extra_infos[i])
                for i in members
            ]
            scores = score_batch(adapter.scorer, work, group_size=self._group_size)
            for i, (task, _completion), score in zip(members, work, scores, strict=True):
                replies[i] = self._reply(task, score)
        return [replies[i] for i in range(len(solution_strs))]

    def _by_environment(self, sources: Sequence[str]) -> Iterator[tuple[Adapter, list[int]]]:
        if len(self._adapters) == 1:  # then `data_source` may be the name of a user's own data set
            yield next(iter(self._adapters.values())), list(range(len(sources)))
            return
        members: dict[str, list[int]] = {}
        for i, source in enumerate(sources):
            members.setdefault(str(source), []).append(i)
        for source, indices in members.items():
            if source not in self._adapters:
                raise UsageError(
                    f"data_source is {source!r}; with several environments it must be the id of "
                    f"one: "
                    f"{', '.join(self._adapters)}"
                )
            yield self._adapters[source], indices

    def _work(
        self, env: Environment, text: str, reference: object, extra: Row | None
    ) -> tuple[Task, Completion]:
        task_json = (extra or {}).get(TASK)
        row = {"reference": reference} if task_json is None else {TASK: task_json}
        return task_of(env, row), completion_with_length(env, text, self._count_tokens)

    def _reply(self, task: Task, score: Score) -> JsonDict:
        outcome = score.verdict.outcome
        return {
            "score": reward_value(task, score, self._unscored),
            "acc": float(outcome is Outcome.CORRECT),
            "unparsed": float(outcome is Outcome.UNPARSED),
            "unscored": float(outcome is Outcome.UNSCORED),
            **{f"part/{name}": score.parts.get(name, 0.0) for name in self._names},
            "pred": score.verdict.answer or "",
            "why": score.verdict.why,
        }

    def rows(self, *, tasks: int | None = None) -> Iterator[JsonDict]:
        """The rows of verl's data set: `data_source`, `prompt`, `ability`, `reward_model`,
        `extra_info`.

        Args:
            tasks: number of tasks of each environment; None for all of a finite split.
        """
        for adapter in self._adapters.values():
            env = adapter.env
            for index, task in enumerate(finite_tasks(env, tasks)):
                reference, text = task.reference, task_as_json(task)
                plain = (
                    reference
                    if isinstance(reference, str)
                    else json.dumps(reference, ensure_ascii=False)
                )
                yield {
                    "data_source": env.id,
                    "prompt": chat_messages(task.prompt),
                    "ability": env.id.partition("-v")[0],
                    "reward_model": {"style": "rule", "ground_truth": plain},
                    "extra_info": {"index": index, "split": env.split, TASK: text},
                }

    def to_parquet(self, path: str | Path, *, tasks: int | None = None) -> Path:
        """Write `rows` as a Parquet file for `data.train_files` or `data.val_files`; returns its
        path.

        Args:
            path: of the file.
            tasks: see `rows`.
        """
        as_dataset(self.rows(tasks=tasks)).to_parquet(str(path))
        return Path(path)

    def close(self) -> None:
        """End the workers.  May be called again."""
        for adapter in self._adapters.values():
            adapter.close()

    def __getstate__(self) -> dict[str, object]:
        """Uses cloudpickle, as `Adapter` does: `count_tokens` may be a lambda."""
        return {"shipped": ship(vars(self))}

    def __setstate__(self, state: dict[str, object]) -> None:
        import cloudpickle

        vars(self).update(cloudpickle.loads(state["shipped"]))
