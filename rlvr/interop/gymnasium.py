"""Gymnasium: an environment as `gymnasium.Env`, or many at once as `gymnasium.vector.VectorEnv`.

    env = to_gymnasium(rlvr.make("gsm8k-v4"))
    prompt, info = env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("… \\boxed{72}")

Needs the extra `gym`.  Single-turn environments are scored in worker processes.  Multi-turn
environments run in this process, since they hold the state of their episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final, Self, overload

import numpy as np

from rlvr.environment import Environment, require_environment
from rlvr.errors import MissingDependency, UsageError
from rlvr.interop.adapter import (
    Adapter,
    CountTokens,
    completion_with_length,
    refuse_group_reward,
    require_unscored,
    reward_value,
    score_batch,
)
from rlvr.scoring import MEMORY_MIB, WALL_S
from rlvr.types import JsonDict, Score, Task, plain
from rlvr.validate import require_whole

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise MissingDependency("gymnasium, whose environments these are,", "gym") from error

__all__ = ["GymEnv", "GymVectorEnv", "Texts", "to_gymnasium"]

_SEEDS: Final = 2**31


class Texts(gymnasium.Space[Any]):
    """All texts, of any length and in any script; with `chat`, lists of chat messages as well.

    Gymnasium's own `Text` has a fixed set of characters, and a model may write others.  A sample is
    up to 32 printable ASCII characters.

    Args:
        chat: lists of chat messages belong to the space too.
        seed: of the generator that samples are drawn from.
    """

    def __init__(self, *, chat: bool = False, seed: int | None = None) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)
        self.chat = chat

    def sample(self, mask: object = None, probability: object = None) -> str:
        """A short text.

        Args:
            mask, probability: of Gymnasium's interface; they must be None here.

        Raises:
            UsageError: one of them is given.
        """
        if mask is not None or probability is not None:
            raise UsageError("a space of all texts has no mask")
        return "".join(
            map(chr, self.np_random.integers(32, 127, size=int(self.np_random.integers(33))))
        )

    def contains(self, x: object) -> bool:
        if self.chat and isinstance(x, list):
            return len(x) > 0 and all(
                isinstance(m, dict) and {"role", "content"} <= m.keys() for m in x
            )
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        """False: texts have no greatest length."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Texts) and self.chat == other.chat

    __hash__ = None  # type: ignore[assignment]  # spaces have a state: their generator

    def __repr__(self) -> str:
        return f"Texts(chat={self.chat})"


@overload
def to_gymnasium(
    env: Environment,
    *,
    num_envs: None = None,
    unscored: float | None = None,
    count_tokens: CountTokens | None = None,
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    scorer: str | None = None,
) -> GymEnv: ...
@overload
def to_gymnasium(
    env: Environment,
    *,
    num_envs: int,
    unscored: float | None = None,
    count_tokens: CountTokens | None = None,
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    scorer: str | None = None,
) -> VectorEnv[object, object, object]: ...
def to_gymnasium(
    env: Environment,
    *,
    num_envs: int | None = None,
    unscored: float | None = None,
    count_tokens: CountTokens | None = None,
    workers: int | None = None,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    scorer: str | None = None,
) -> GymEnv | VectorEnv[Any, object, Any]:
    """An environment as Gymnasium's; with `num_envs`, a vector environment.

    A vector of single-turn environments is scored as one batch; multi-turn environments are stepped
    one after another. Either resets an environment in the step that ends its episode
    (`AutoresetMode.SAME_STEP`), so that a reset takes no step of its own.  All options but
    `num_envs` are for single-turn environments, and refused for others.

    Args:
        env: a single-turn or multi-turn environment whose reward does not compare the completions
            of a group.
        num_envs: number of environments in the vector; None for a single environment.
        unscored: the reward for UNSCORED completions; None to raise `rlvr.Unscored`.
        count_tokens: from a completion's text to its number of tokens, for a reward that reads the
            length.
        workers: see `rlvr.Scorer`; by default one for a single environment, one per core for a
            vector.
        wall_s, memory_mib: see `rlvr.Scorer`.
        scorer: services that score instead of workers here, such as `"http://10.0.0.7:8000"`,
            as `--scorer` takes them.

    Raises:
        UsageError: `env` is no environment, or a setting cannot work.
    """
    if num_envs is not None:
        num_envs = require_whole("num_envs", num_envs, 1)
    require_environment(env)
    if env.single_turn:
        refuse_group_reward(env, "Gymnasium")
        count = (1 if num_envs is None else None) if workers is None else workers
        judge = _Judge(
            env,
            unscored=unscored,
            count_tokens=count_tokens,
            workers=count,
            wall_s=wall_s,
            memory_mib=memory_mib,
            scorer=scorer,
        )
        return GymEnv(env, judge) if num_envs is None else GymVectorEnv(env, judge, num_envs)
    settings = (unscored, count_tokens, workers, wall_s, memory_mib, scorer)
    if settings != (None, None, None, WALL_S, MEMORY_MIB, None):
        raise UsageError(
            f"{env.id} has several turns, which the environment itself scores in this process: "
            f"unscored, "
            "count_tokens, workers, wall_s, memory_mib and scorer have no meaning there; leave "
            "them out"
        )
    if num_envs is None:
        return GymEnv(env, None)
    return SyncVectorEnv(
        [lambda: GymEnv(env, None)] * num_envs,
        observation_mode="same",
        autoreset_mode=AutoresetMode.SAME_STEP,
    )


class _Judge(Adapter):
    """Scores a batch of actions."""

    def __init__(
        self,
        env: Environment,
        *,
        unscored: float | None,
        count_tokens: CountTokens | None,
        **settings: Any,
    ) -> None:
        super().__init__(env, **settings)
        self._unscored, self._count_tokens = require_unscored(unscored), count_tokens

    def judge(self, tasks: list[Task], actions: list[str]) -> tuple[list[float], list[JsonDict]]:
        """The rewards, and an `info` for each."""
        work = [
            (t, completion_with_length(self.env, a, self._count_tokens))
            for t, a in zip(tasks, actions, strict=True)
        ]
        scores = score_batch(self.scorer, work)
        rewards = [reward_value(t, s, self._unscored) for t, s in zip(tasks, scores, strict=True)]
        return rewards, [_info(t, s) for t, s in zip(tasks, scores, strict=True)]


def _info(task: Task, score: Score) -> dict[str, object]:
    verdict = score.verdict
    return {
        "task": task.id,
        "outcome": str(verdict.outcome),
        "why": verdict.why,
        "parts": dict(score.parts),
        "score": score,
    }


class GymEnv(gymnasium.Env[Any, str]):
    """One environment as Gymnasium's; made by `to_gymnasium`.

    `reset(seed=…)` gives the same episode as the environment's own; further ones are drawn from
    Gymnasium's generator. `reset(options={"index": 7})` chooses a task.  The last step's `info` has
    the whole `Score` under "score".

    Args:
        env: a single-turn or multi-turn environment.
        judge: scores the completions of a single-turn environment; None for a multi-turn one, which
            scores itself.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, env: Environment, judge: _Judge | None) -> None:
        self._env = deepcopy(env)  # a copy, with an episode of its own
        self._judge = judge
        self._task: Task | None = None
        self.observation_space = Texts(chat=True)
        self.action_space = Texts()

    def reset(
        self, *, seed: int | None = None, options: JsonDict | None = None
    ) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        drawn_seed = int(self.np_random.integers(_SEEDS)) if seed is None else seed
        observation, info = self._env.reset(seed=drawn_seed, options=options)
        if self._judge is not None:
            self._task = self._env.task(info["index"])
        return _copy_observation(observation), dict(info)

    def step(self, action: str) -> tuple[Any, float, bool, bool, JsonDict]:
        if self._judge is None:
            observation, reward, terminated, truncated, info = self._env.step(action)
            return _copy_observation(observation), float(reward), terminated, truncated, dict(info)
        rewards, infos = self._judge.judge([self.under_way()], [action])
        self._task = None  # only now: what was not scored may be tried again
        return "", rewards[0], True, False, infos[0]

    def under_way(self) -> Task:
        """The task of this episode.

        Raises:
            UsageError: no episode has begun.
        """
        if self._task is None:
            raise UsageError(
                f"{self._env.id}: step before reset; an episode has one step, call reset() for the "
                f"next"
            )
        return self._task

    def close(self) -> None:
        """End the worker, and an episode with tools.  May be called again."""
        if self._judge is not None:
            self._judge.close()
        self._env.close()


class GymVectorEnv(VectorEnv[Any, Any, Any]):
    """Single-turn episodes side by side; one step scores them all as a batch
    and gives the next prompts.

    The info of the episodes that ended is in `info["final_info"]`, as in Gymnasium's own vectors:
    arrays of shape [num_envs], and `final_info["parts"]` a dict of such arrays.

    Args:
        env: a single-turn environment.
        judge: scores the completions of all of them.
        num_envs: number of environments.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, env: Environment, judge: _Judge, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Texts(chat=True), Texts()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._envs = [GymEnv(env, judge) for _ in range(num_envs)]
        self._judge = judge

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, object] | None = None,
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Begin every episode.

        Args:
            seed: one seed for each environment; or a number, which gives `seed`, `seed + 1` … as in
                Gymnasium's own.
            options: see `GymEnv`.

        Raises:
            UsageError: the number of seeds is not that of the environments.
        """
        seed = plain(seed)
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            seeds = [*map(plain, seed)]
        if len(seeds) != self.num_envs:
            raise UsageError(
                f"{len(seeds)} seeds for {self.num_envs} environments; give one for each, or one "
                f"number"
            )
        observations, infos = zip(
            *(
                env.reset(seed=env_seed, options=options)
                for env, env_seed in zip(self._envs, seeds, strict=True)
            ),
            strict=True,
        )
        return observations, self._join_infos(infos)

    def step(self, actions: Any) -> tuple[tuple[Any, ...], Any, Any, Any, JsonDict]:
        """Score every action and begin the next episodes; if scoring raises, the current episodes
        go on.

        Args:
            actions: one completion for each environment.

        Raises:
            UsageError: not a list of one text for each environment, or no episode has begun.
        """
        if isinstance(actions, str):
            raise UsageError(
                f"the actions are the text {actions[:60]!r}; give a list of {self.num_envs} texts"
            )
        texts = list(actions)
        if len(texts) != self.num_envs:
            raise UsageError(
                f"{len(texts)} actions for {self.num_envs} environments; give one for each"
            )
        tasks = [env.under_way() for env in self._envs]
        rewards, finals = self._judge.judge(tasks, texts)
        observations, infos = zip(*(env.reset() for env in self._envs), strict=True)
        info = self._join_infos(
            [
                new | {"final_obs": "", "final_info": final}
                for new, final in zip(infos, finals, strict=True)
            ]
        )
        ended = np.ones(self.num_envs, dtype=np.bool_)
        return observations, np.array(rewards, dtype=np.float64), ended, np.zeros_like(ended), info

    def _join_infos(self, infos: Any) -> dict[str, object]:
        joined: dict[str, object] = {}
        for i, info in enumerate(infos):
            joined = self._add_info(joined, info, i)
        return joined

    def close_extras(self, **kwargs: object) -> None:
        """End the workers; Gymnasium's `close` calls this once."""
        self._judge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _copy_observation(observation: Any) -> object:
    """A copy of chat messages, which the caller may change without changing the environment's
    own."""
    return observation if isinstance(observation, str) else deepcopy(list(observation))
