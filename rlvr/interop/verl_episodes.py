"""verl's agent loop: environments with tools, or of several turns, in verl's own trainer.

    # agents.yaml, named in actor_rollout_ref.rollout.agent.agent_loop_config_path
    - name: rlvr
      _target_: rlvr.interop.verl_agent.EpisodeLoop
      env: bash-v1

    to_verl_episodes(rlvr.make("bash-v1"), "train.parquet", tasks=1000)       # data.train_files

An episode is played as in rlvr's own trainer: the same prompt with its tools, the same reading of
calls, the same replies and limits, and no token is encoded twice.  verl's server generates, and
verl's trainer gets the tokens, their mask and log-probabilities, and the total as `reward_score`,
so that its reward managers have no part in it.

Here is what needs no verl; `rlvr.interop.verl_agent` has the class that verl calls.  Written
against verl 0.9.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from rlvr.collect.background import BackgroundCalls
from rlvr.collect.player import Player
from rlvr.collect.scheduler import Play
from rlvr.data.rows import as_dataset
from rlvr.environment import Environment
from rlvr.errors import SamplingFailed, Unscored, UsageError, foreign_code
from rlvr.interop.adapter import (
    TASK,
    chat_messages,
    finite_tasks,
    refuse_group_reward,
    task_as_json,
    task_of,
)
from rlvr.samplers.protocol import Request, Sample, Sampling
from rlvr.samplers.tokenization import Tokenization
from rlvr.scoring import Scorer
from rlvr.types import Prompt, Rollout
from rlvr.validate import require_optional_whole, require_whole

__all__ = ["Generated", "VerlEpisodes", "to_verl_episodes"]

_THREADS: Final = 128  # calls of environments at a time, in each of verl's workers
_STEP_S: Final = 60.0  # that an agent may work between two completions


def to_verl_episodes(
    env: Environment, path: str | Path, *, tasks: int | None = None, agent: str = "rlvr"
) -> Path:
    """Write an environment's tasks as a Parquet file for `data.train_files`; returns its path.

    Each row names the agent loop, so that a run may mix such rows with others.

    Args:
        env: an environment of any number of turns.
        path: of the file.
        tasks: number of tasks; None for all of a finite split.
        agent: name of the loop in verl's file of agent loops.

    Raises:
        UsageError: it makes tasks without end and `tasks` is None.
    """
    refuse_group_reward(env, "verl's agent loop")
    rows = []
    for index, (task, extra_fields) in enumerate(_tasks(env, tasks)):
        rows.append(
            {
                "data_source": env.id,
                "agent_name": agent,
                "prompt": chat_messages(task.prompt),
                "ability": env.id.partition("-v")[0],
                "reward_model": {"style": "rule", "ground_truth": ""},
                "extra_info": {"index": index, "split": env.split, **extra_fields},
            }
        )
    as_dataset(iter(rows)).to_parquet(str(path))
    return Path(path)


def _tasks(env: Environment, count: int | None) -> Any:
    yield from ((task, {TASK: task_as_json(task)}) for task in finite_tasks(env, count))


class Generated(Protocol):
    """What verl's server gives for a prompt, its `TokenOutput`."""

    token_ids: Sequence[int]
    log_probs: Sequence[float] | None
    stop_reason: str | None


class _Server:
    """verl's server as the sampler of one episode.

    Args:
        tokenization: of the policy.
        prompt_length, response_length: see `VerlEpisodes`.
    """

    version = 0

    def __init__(
        self, tokenization: Tokenization, prompt_length: int, response_length: int
    ) -> None:
        self._tokenization, self._prompt_length, self._length = (
            tokenization,
            prompt_length,
            response_length,
        )
        self.positions: int | None = None
        self.decode, self.parse = tokenization.decode, tokenization.parse

    def encode(
        self,
        prompt: Prompt,
        after: Sequence[int] = (),
        *,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> Sequence[int]:
        """See `Sampler.encode`.  With the first prompt it is known how long the episode may
        become."""
        ids = self._tokenization.encode(prompt, after, tools=tools)
        if not after:
            if len(ids) > self._prompt_length:
                raise UsageError(
                    f"a prompt has {len(ids)} tokens with its tools, and rollout.prompt_length is "
                    f"{self._prompt_length}; verl would cut off its beginning, so raise that"
                )
            self.positions = len(ids) + self._length
        return ids


class VerlEpisodes:
    """Plays episodes for verl: one for each row that verl samples.

    If an episode is UNSCORED it is played again, `retries` times; then it raises, which stops
    verl's step.  It is never given a reward: verl has no way to leave a rollout out.

    Args:
        env: an environment of any number of turns, whose reward does not compare the completions
            of a group.
        tokenizer: of the policy, with a chat template.
        end_ids: tokens that end a turn.
        prompt_length: verl's `rollout.prompt_length`, in tokens.
        response_length: verl's `rollout.response_length`: most tokens of an episode after the
            prompt.
        retries: how often an episode that is UNSCORED is played again.
        max_turns: most turns of an environment that has no limit of its own.
        workers: processes that score, see `rlvr.Scorer`.

    Raises:
        UsageError: a number is out of range.
    """

    def __init__(
        self,
        env: Environment,
        tokenizer: object,
        end_ids: Sequence[int],
        *,
        prompt_length: int,
        response_length: int,
        retries: int = 2,
        max_turns: int = 8,
        workers: int | None = 1,
    ) -> None:
        refuse_group_reward(env, "verl's agent loop")
        self.env: Any = env
        self.tokenization = Tokenization(tokenizer, end_ids, chat="on")
        self.prompt_length = require_whole("prompt_length", prompt_length, 1)
        self.response_length = require_whole("response_length", response_length, 1)
        self.retries, self.max_turns = (
            require_whole("retries", retries, 0),
            require_whole("max_turns", max_turns, 1),
        )
        require_optional_whole("workers", workers, 0, none="one per core")
        self.scorer = Scorer(env, workers=workers)
        self.background = BackgroundCalls(_THREADS)

    async def play(
        self,
        extra: Mapping[str, object],
        generate: Callable[[list[int], int], Awaitable[Generated]],
    ) -> Rollout:
        """Play one episode; gives a rollout with a score that is not UNSCORED.

        Args:
            extra: the row's `extra_info`.
            generate: gives a completion of the tokens so far, of at most so many tokens.

        Raises:
            DataError: the row has no task.
            Unscored: the episode could not be scored, and playing it again did not help.
        """
        why = ""
        for _ in range(self.retries + 1):
            rollout = await self._drive(self._episode(extra), generate)
            score = rollout.score or await self.scorer.ascore(rollout.task, rollout.completion)
            if score.total is not None:
                return replace(rollout, score=score)
            why = score.verdict.why
        raise Unscored(
            f"task {rollout.task.id!r} was played {self.retries + 1} times and not scored ({why}); "
            "verl has no way to leave a rollout out, and 0 would be a reward, so the step stops; "
            "mend the cause"
        )

    def close(self) -> None:
        """End threads and workers.  May be called again."""
        self.background.close()
        self.scorer.close()

    def _episode(self, extra: Mapping[str, object]) -> Play[Rollout]:
        sampler: Any = _Server(self.tokenization, self.prompt_length, self.response_length)
        sampling = Sampling(max_tokens=self.response_length)
        task = task_of(self.env, extra)
        player = Player(
            self.env,
            sampler,
            self.background,
            sampling,
            limit_of=lambda _: self.response_length,
            max_turns=self.max_turns,
            step_s=_STEP_S,
            key=("verl",),
        )
        return player.play(task)

    async def _drive(
        self, play: Play[Rollout], generate: Callable[[list[int], int], Awaitable[Generated]]
    ) -> Rollout:
        """Give a play what it asks for, until it returns."""
        try:
            needs = play.send(None)
            while True:
                with foreign_code() as errors:  # verl's; they belong to the play
                    sent = await (
                        self._sample(needs, generate)
                        if isinstance(needs, Request)
                        else asyncio.wrap_future(needs)
                    )
                needs = play.throw(errors[0]) if errors else play.send(sent)
        except StopIteration as end:
            rollout: Rollout = end.value
            return rollout
        finally:
            play.close()

    async def _sample(
        self, request: Request, generate: Callable[[list[int], int], Awaitable[Generated]]
    ) -> Sample:
        generated = await generate(list(request.context), request.limit)
        ids = list(generated.token_ids)
        if generated.stop_reason == "aborted" or not ids:
            raise SamplingFailed(
                f"verl's server gave {len(ids)} tokens and the reason {generated.stop_reason!r}"
            )
        logprobs = list(generated.log_probs) if generated.log_probs else [0.0] * len(ids)
        ended = ids[-1] in self.tokenization.end_ids
        text = self.tokenization.beginning(request.context) + self.tokenization.decode(ids)
        return Sample(
            text, list(request.context), ids, logprobs, not ended and len(ids) >= request.limit, 0
        )
