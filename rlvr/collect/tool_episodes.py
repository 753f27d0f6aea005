"""Episodes of an environment with tools, in one token sequence; see `rlvr.collect.episodes`.

    prompt with tools │ turn 0 │ replies │ turn 1 │ … │ answer        completion_mask is True on the policy's turns only

The policy's turns are read with `Sampler.parse`, and the replies encoded as a continuation of the tokens so far.  The
scores come from a `Scorer`, as for one turn: `verify` is a pure function of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from rlvr.collect.background import BackgroundCalls
from rlvr.collect.episodes import Playing, most_positions, unscored
from rlvr.collect.scheduler import Play
from rlvr.environment import EpisodeFailed, RunningEpisode, ToolEnv
from rlvr.environment.call_formats import read_turn_of
from rlvr.episode import EpisodeRecord, PolicyTurn
from rlvr.errors import Unscored, UsageError, brief
from rlvr.samplers.protocol import (
    Request,
    Sample,
    Sampler,
    Sampling,
    TokenIds,
    beginning_of,
    rollout_seed,
)
from rlvr.types import Outcome, Rollout, Score, Task, Turn, Verdict
from rlvr.validate import is_number

__all__ = ["ToolEpisodes"]


class ToolEpisodes:
    """Plays episodes of a `ToolEnv`.

    An episode ends with a turn that makes no call, unless the simulated user answers it; after the environment's
    `turns`; when the policy has used up `max_tokens` over all its turns; and where a reply would reach the sampler's
    `positions`.
    Its rollout has the record as `episode`, and no score yet.  If the environment fails, or a turn cannot be
    sampled, it is UNSCORED.

    Args:
        env: the environment.
        sampler: generates the turns.
        background: runs the tools.
        sampling: how turns are sampled; `max_tokens` holds for all turns of an episode together.
        key: with the task, its place in the run and the number in the group, it seeds each episode.
        task: gives the task at an index.
    """

    def __init__(
        self,
        env: ToolEnv,
        sampler: Sampler,
        background: BackgroundCalls,
        sampling: Sampling,
        *,
        key: tuple[str | int, ...],
        task: Callable[[int], Task],
    ) -> None:
        self.env, self.sampler, self.background = env, sampler, background
        self.sampling, self._key, self._task = sampling, key, task

    def plays(
        self, asked: Sequence[tuple[int, int]], group_size: int, first: int = 0
    ) -> Iterator[Play[Rollout]]:
        """The episodes of each task, group after group.

        Args:
            asked: (place in the run, index of the task) of each group.
            group_size: episodes per task (G).
            first: number of the first group, in the ids of requests.
        """
        for p, (place, index) in enumerate(asked, first):
            task, prompts = self._task(index), list[TokenIds]()
            for g in range(group_size):
                yield self._play(p, g, place, task, prompts)

    def _play(
        self, p: int, g: int, place: int, task: Task, prompts: list[TokenIds]
    ) -> Play[Rollout]:
        begun = self.background.submit(self.env.begin, task)
        try:
            running: RunningEpisode = yield begun
        except Unscored as error:
            return self._lost(Playing(task, prompts[0] if prompts else ()), error)
        except GeneratorExit:
            begun.add_done_callback(_close)
            raise
        try:
            episode = Playing(task, self._prompt(task, running, prompts))
        except BaseException:
            running.close()
            raise
        try:
            yield from self._turns(running, episode, (p, g, place))
            yield self.background.submit(running.close)
            record = running.record
            episode.truncated = episode.truncated or record.end != "answer"
            rewards = yield self.background.submit(self._rewards, task, record)
        except Unscored as error:
            return self._lost(episode, error)
        finally:
            running.close()
        episode.turns = [
            Turn(turn.start, turn.stop, reward)
            for turn, reward in zip(episode.turns, rewards, strict=True)
        ]
        return replace(episode.rollout(None, self.sampler.version), episode=record)

    def _turns(
        self, running: RunningEpisode, episode: Playing, numbers: tuple[int, int, int]
    ) -> Play[None]:
        p, g, place = numbers
        tools, limit = running.schemas, self.sampling.max_tokens
        while True:
            turn = len(episode.turns)
            seed = rollout_seed(*self._key, episode.task.id, place, g, turn)
            sample: Sample = yield Request(
                (p, g, turn), episode.context, self.sampling, seed, limit, rollout=g
            )
            begun = beginning_of(self.sampler, episode.context)
            episode.take_turn(sample, self.sampling)
            said = self._read(sample, tools, begun)
            spent = episode.own_tokens() >= self.sampling.max_tokens
            last = "tokens" if sample.truncated or (spent and said.calls) else ""
            told = yield self.background.submit(partial(running.take, said, last=last))
            if told is None:
                return
            reply = list(self.sampler.encode(told, episode.context))
            left = most_positions(self.sampler) - len(episode.context) - len(reply)
            limit = min(self.sampling.max_tokens - episode.own_tokens(), left)
            if limit < 1:  # no room is left for another turn
                yield self.background.submit(
                    partial(running.finish, "positions" if not spent else "tokens")
                )
                return
            episode.take_reply(told, reply)

    def _prompt(self, task: Task, running: RunningEpisode, prompts: list[TokenIds]) -> TokenIds:
        """The tokens of the prompt with the tools; the same for all episodes of a group."""
        tools = running.schemas
        ids = tuple(
            self.sampler.encode(task.prompt, tools=tools)
            if tools
            else self.sampler.encode(task.prompt)
        )
        if prompts and prompts[0] != ids:
            raise UsageError(
                f"{self.env.id}: two episodes of task {task.id!r} have different tools; tools(state) "
                "must give the same names and schemas for the same task"
            )
        prompts[:] = [ids]
        return ids

    def _read(self, sample: Sample, tools: Sequence[Mapping[str, Any]], begun: str) -> PolicyTurn:
        parse = getattr(self.sampler, "parse", None)
        if parse is None or not tools:
            return read_turn_of("hermes", sample.text, tools) if tools else PolicyTurn(sample.text)
        said: PolicyTurn = parse(sample.completion_ids, tools)
        return replace(said, text=begun + said.text)

    def _rewards(self, task: Task, record: EpisodeRecord) -> Sequence[float | None]:
        """The rewards of the turns, in a thread."""
        count = len(record.turns)
        try:
            found = self.env.turn_rewards(task, record)
        except Exception as error:
            raise EpisodeFailed(
                f"turn_rewards of {self.env.id} raised {type(error).__name__}: {error}"
            ) from error
        if found is None:
            return [None] * count
        if len(found) != count or not all(one is None or is_number(one) for one in found):
            raise EpisodeFailed(
                f"turn_rewards of {self.env.id} gave {brief(found)} for {count} turns; it gives a finite number, or "
                "None, for each"
            )
        return [None if one is None else float(one) for one in found]

    def _lost(self, episode: Playing, error: Unscored) -> Rollout:
        score = unscored(error)
        if isinstance(error, EpisodeFailed) and error.trace:
            score = Score(
                None,
                {},
                Verdict(Outcome.UNSCORED, why=score.verdict.why, detail={"traceback": error.trace}),
            )
        return episode.rollout(score, self.sampler.version)


def _close(begun: Future[RunningEpisode]) -> None:
    """Close an episode that no play waits for any more."""
    with suppress(BaseException):
        begun.result().close()
