"""Plays the episodes of an environment: all that was said in one token sequence.

    prompt with tools │ turn 0 │ reply │ turn 1 │ reply │ … │ turn n      completion_mask is True on the policy's turns

Each episode is a play of the scheduler.  A reply is encoded as a continuation of the tokens so far, and the next turn
continues these tokens.  So nothing is tokenised twice, and the trained tokens are the sampled ones.  A completion of
an environment with a single turn is an episode of one reply.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from rlvr.collect.background import BackgroundCalls, CallTimeout
from rlvr.collect.scheduler import Play
from rlvr.environment import Environment, Episode, EpisodeFailed
from rlvr.environment.call_formats import read_turn_of
from rlvr.environment.episode import is_cut
from rlvr.environment.tools import tools_of
from rlvr.episode import PolicyTurn
from rlvr.errors import RlvrError, Unscored, UsageError, brief
from rlvr.samplers.protocol import (
    Request,
    Sample,
    Sampler,
    Sampling,
    TokenIds,
    beginning_of,
    rollout_seed,
)
from rlvr.types import Outcome, Prompt, Rollout, Score, Task, Turn, Verdict
from rlvr.validate import is_number

__all__ = ["Player", "Plays", "most_positions", "prompt_tokens", "unscored"]

_T = TypeVar("_T")
_TASKS: Final = 10_000  # that are kept, where it takes a reset to make one again


class Plays(Protocol):
    """What plays the episodes of an environment: a `Player`, or an environment's own, such as that of an agent."""

    def tasks(self, indices: Sequence[int]) -> list[Task | None]:
        """The tasks of these indices; None where one could not be had in time."""

    def plays(
        self, asked: Sequence[tuple[int, int]], size_of: Callable[[int], int], first: int = 0
    ) -> Iterator[Play[Rollout]]:
        """The episodes of each task (place in the run, index), group after group from number `first`."""

    def close(self) -> None:
        """End what is open."""


class _Numbers(NamedTuple):
    """Number of the group, of the rollout in it, and place of the group in the run."""

    p: int
    g: int
    place: int


@dataclass(slots=True)
class _Tokens:
    """The tokens of an episode that is being played, see `Rollout`."""

    task: Task
    prompt_ids: TokenIds
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    versions: list[int] = field(
        default_factory=list
    )  # for each token; a reply has that of the turn before
    truncated: bool = False

    @property
    def context(self) -> TokenIds:
        """All tokens so far."""
        return (*self.prompt_ids, *self.ids)

    def own_tokens(self) -> int:
        """Number of tokens that the policy generated."""
        return sum(turn.stop - turn.start for turn in self.turns)

    def take_turn(self, sample: Sample, sampling: Sampling) -> None:
        """Add a turn of the policy."""
        start, ids = len(self.ids), sample.completion_ids
        self.ids += ids
        self.mask += [True] * len(ids)
        self.logprobs += sample.behaviour_logprobs(sampling)
        self.turns.append(Turn(start, len(self.ids)))
        self.texts.append(sample.text)
        self.versions += sample.token_versions or [sample.weights_version] * len(ids)
        self.truncated = sample.truncated

    def take_reply(self, reply: Prompt, ids: Sequence[int]) -> None:
        """Add a reply of the environment, which is not trained on."""
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.versions += self.versions[-1:] * len(ids)
        self.texts.append(_plain(reply))

    def take_rewards(self, rewards: Sequence[float | None]) -> None:
        """Give the turns their rewards."""
        self.turns = [
            Turn(turn.start, turn.stop, reward)
            for turn, reward in zip(self.turns, rewards, strict=True)
        ]

    def rollout(self, score: Score | None, version: int) -> Rollout:
        """All of it; `version` of the weights if there is no turn."""
        return Rollout(
            task=self.task,
            text="".join(self.texts),
            prompt_ids=list(self.prompt_ids),
            completion_ids=self.ids,
            completion_mask=self.mask,
            behaviour_logprobs=self.logprobs,
            weights_version=min(self.versions, default=version),
            truncated=self.truncated,
            score=score,
            turns=tuple(self.turns),
            token_versions=tuple(self.versions) if len(set(self.versions)) > 1 else (),
        )


class Player:
    """Plays episodes with a sampler.

    An episode ends when the environment says so; after its turns; when the policy has used up its tokens over all
    turns; and where a reply would reach the sampler's `positions`.  Its rollout has no score yet, unless the episode
    computes its own.  If the environment fails, or a turn cannot be sampled, it is UNSCORED.

    Where the turns are those of the run, an environment is Gymnasium's, whose calls have a limit of wall seconds: one
    that opens too slowly is our failure; a reply that does follows a turn of the policy, which must not gain by it, and
    the episode ends as WRONG.

    Args:
        env: the environment.
        sampler: generates the turns.
        background: runs the environment's calls.
        sampling: how turns are sampled.
        limit_of: most tokens of an episode of a task, over all its turns.
        max_turns: most turns, where the environment has no limit of its own.
        step_s: most wall seconds of a call, see above.
        key: with the task, its place in the run and the number in the group, it seeds each episode.
    """

    def __init__(
        self,
        env: Environment,
        sampler: Sampler,
        background: BackgroundCalls,
        sampling: Sampling,
        *,
        limit_of: Callable[[Task], int],
        max_turns: int = 8,
        step_s: float,
        key: tuple[str | int, ...],
    ) -> None:
        self.env, self.sampler, self.background = env, sampler, background
        self.sampling, self._limit_of, self._key = sampling, limit_of, key
        self._max_turns, self._step_s = max_turns, step_s
        self._tasks: OrderedDict[str, Task] = OrderedDict()

    def close(self) -> None:
        """Nothing is open between two plays."""

    # ------------------------------------------------------------------------------------------ tasks

    def tasks(self, indices: Sequence[int]) -> list[Task | None]:
        """The tasks of these indices; None where an environment of Gymnasium's kind took longer than `step_s`.

        Args:
            indices: of the tasks.

        Raises:
            RlvrError: the environment's `task` raised.
        """
        futures = {
            index: self.background.submit(self.env.task, index, limit_s=self._step_s)
            for index in indices
            if self.env.member_at(index)[0].scores_itself
        }
        return [self._task(index, futures.get(index)) for index in indices]

    def _task(self, index: int, resetting: Future[Task] | None) -> Task | None:
        if resetting is None:
            return self._made(self.env.task, index)
        self.background.wait(resetting)
        with suppress(CallTimeout):
            return self._keep(self.env.stub(index).id, resetting.result())
        return None

    def _made(self, make: Callable[[int], Task], index: int) -> Task:
        try:
            return make(index)
        except Exception as error:
            env, said = self.env, f"{type(error).__name__}: {error}"
            raise RlvrError(
                f"{env.id} cannot make task {index} of split {env.split!r}: {said}"
            ) from error

    def _keep(self, stub: str, task: Task) -> Task:
        """Remember a task that `reset` made; the same object for all episodes of a group."""
        known = self._tasks.setdefault(stub, task)
        if (known.id, known.prompt) != (task.id, task.prompt):
            raise UsageError(
                f"{self.env.id}: two resets with the same seed differ, the first prompt was "
                f"{brief(known.prompt)}; the seed must determine everything random in reset"
            )
        self._tasks.move_to_end(stub)
        if len(self._tasks) > _TASKS:
            self._tasks.popitem(last=False)
        return known

    def _call_s(self, env: Environment) -> float | None:
        """Most wall seconds of a call; None where the episode bounds them itself."""
        return self._step_s if env.scores_itself else None

    # ------------------------------------------------------------------------------------------ plays

    def plays(
        self, asked: Sequence[tuple[int, int]], size_of: Callable[[int], int], first: int = 0
    ) -> Iterator[Play[Rollout]]:
        """The episodes of each task, group after group.

        Args:
            asked: (place in the run, index of the task) of each group.
            size_of: number of episodes of the task at an index.
            first: number of the first group, in the ids of requests.
        """
        for p, (place, index) in enumerate(asked, first):
            task, prompts = self._made(self.env.stub, index), list[TokenIds]()
            for g in range(size_of(index)):
                yield self._play(_Numbers(p, g, place), task, prompts)

    def play(self, task: Task) -> Play[Rollout]:
        """One episode of a task.

        Args:
            task: of the environment.
        """
        return self._play(_Numbers(0, 0, 0), task, [])

    def _play(self, numbers: _Numbers, stub: Task, prompts: list[TokenIds]) -> Play[Rollout]:
        env, inner = self.env.route(stub)
        try:
            episode = yield from self._opened(env, inner)
        except Unscored as error:
            return self._lost(_Tokens(stub, prompts[0] if prompts else ()), error)
        except CallTimeout as timeout:
            why = f"time limit: reset took more than {timeout.limit_s:g} s"
            lost = Score(None, {}, Verdict(Outcome.UNSCORED, why=why))
            return _Tokens(stub, ()).rollout(lost, self.sampler.version)
        with episode:
            task = stub
            if episode.task is not inner:
                name = stub.id.removesuffix(inner.id) + episode.task.id
                task = self._keep(stub.id, replace(episode.task, id=name))
            tokens = _Tokens(task, self._prompt(episode, prompts))
            try:
                yield from self._turns(env, episode, tokens, numbers)
                if env.single_turn:
                    return replace(tokens.rollout(None, self.sampler.version), turns=())
                yield self.background.submit(episode.close)
                tokens.truncated = tokens.truncated or is_cut(episode.end)
                tokens.take_rewards((yield self.background.submit(_rewards, episode)))
            except Unscored as error:
                return self._lost(tokens, error)
        rollout = tokens.rollout(episode.score, self.sampler.version)
        return rollout if episode.score else replace(rollout, episode=episode.record)

    def _opened(self, env: Environment, task: Task) -> Generator[Any, Any, Episode]:
        if env.single_turn:
            return env.open(task)
        opening = self.background.submit(env.open, task, limit_s=self._call_s(env))
        try:
            episode: Episode = yield opening
        except GeneratorExit:
            opening.add_done_callback(_close)
            raise
        return episode

    def _turns(
        self, env: Environment, episode: Episode, tokens: _Tokens, numbers: _Numbers
    ) -> Play[None]:
        most_tokens, most_turns = self._limit_of(tokens.task), episode.limits.turns
        limit = most_tokens
        while True:
            sample = yield self._request(env, tokens, numbers, limit)
            begun = beginning_of(self.sampler, tokens.context) if episode.tools else ""
            tokens.take_turn(sample, self.sampling)
            said = self._read(sample, episode, begun)
            spent = tokens.own_tokens() >= most_tokens
            last = "tokens" if sample.truncated or (spent and said.calls) else ""
            told = yield from self._replied(env, episode, said, last)
            if told is None:
                return
            if len(tokens.turns) == (most_turns or self._max_turns):
                episode.finish("turns")
                return
            reply = list(self.sampler.encode(told, tokens.context))
            left = most_positions(self.sampler) - len(tokens.context) - len(reply)
            limit = min(most_tokens - tokens.own_tokens(), left)
            if limit < 1:  # no room is left for another turn
                end = "tokens" if spent else "positions"
                yield self.background.submit(episode.finish, end)
                return
            tokens.take_reply(told, reply)

    def _request(self, env: Environment, tokens: _Tokens, numbers: _Numbers, limit: int) -> Request:
        p, g, place = numbers
        turn = () if env.single_turn else (len(tokens.turns),)
        seed = rollout_seed(*self._key, tokens.task.id, place, g, *turn)
        return Request((p, g, *turn), tokens.context, self.sampling, seed, limit, rollout=g)

    def _replied(
        self, env: Environment, episode: Episode, said: PolicyTurn, last: str
    ) -> Generator[Any, Any, Prompt | None]:
        if env.single_turn:
            return episode.reply(said, last=last)
        call = self.background.submit(
            lambda: episode.reply(said, last=last), limit_s=self._call_s(env)
        )
        try:
            told: Prompt | None = yield call
        except CallTimeout:
            episode.finish("time")
            return None
        return told

    def _prompt(self, episode: Episode, prompts: list[TokenIds]) -> TokenIds:
        """The tokens of the prompt with the tools; the same for all episodes of a group."""
        if prompts and not episode.tools:
            return prompts[0]
        ids = tuple(_encoded(self.sampler, episode.prompt, episode.schemas))
        if prompts and prompts[0] != ids:
            raise UsageError(
                f"{self.env.id}: two episodes of task {episode.task.id!r} have different tools; tools(state) "
                "must give the same names and schemas for the same task"
            )
        prompts[:] = [ids]
        return ids

    def _read(self, sample: Sample, episode: Episode, begun: str) -> PolicyTurn:
        if not episode.tools:
            return PolicyTurn(sample.text)
        parse, tools = getattr(self.sampler, "parse", None), episode.schemas
        if parse is None:
            return read_turn_of("hermes", sample.text, tools)
        said: PolicyTurn = parse(sample.completion_ids, tools)
        return replace(said, text=begun + said.text)

    def _lost(self, tokens: _Tokens, error: Unscored) -> Rollout:
        score = unscored(error)
        if isinstance(error, EpisodeFailed) and error.trace:
            verdict = replace(score.verdict, detail={"traceback": error.trace})
            score = Score(None, {}, verdict)
        return tokens.rollout(score, self.sampler.version)


def most_positions(sampler: Sampler) -> int:
    """The most tokens of prompt and completion together; no limit where the sampler has none.

    Args:
        sampler: generates the turns.
    """
    return getattr(sampler, "positions", None) or sys.maxsize


def prompt_tokens(env: Environment, sampler: Sampler, task: Task) -> Sequence[int]:
    """The tokens of a task's prompt with its tools, as far as they are known before an episode.

    Args:
        env: the environment.
        sampler: generates the turns.
        task: of the environment.
    """
    env, _ = env.route(task)
    tools = [] if env.single_turn else [tool.schema for tool in tools_of(env, None)]
    return _encoded(sampler, task.prompt, tools)


def _encoded(sampler: Sampler, prompt: Prompt, tools: Sequence[Mapping[str, Any]]) -> Sequence[int]:
    return sampler.encode(prompt, tools=tools) if tools else sampler.encode(prompt)


def unscored(error: Unscored) -> Score:
    """The score of a rollout that could not be had.

    Args:
        error: why.
    """
    return Score(None, {}, Verdict(Outcome.UNSCORED, why=f"{error.reason}: {error}"))


def _rewards(episode: Episode) -> Sequence[float | None]:
    """The rewards of an episode's turns, in a thread."""
    count, env = len(episode.record.turns), episode.env
    try:
        found = episode.turn_rewards()
    except Exception as error:
        raise EpisodeFailed(
            f"turn_rewards of {env.id} raised {type(error).__name__}: {error}"
        ) from error
    if found is None:
        return [None] * count
    if len(found) != count or not all(one is None or is_number(one) for one in found):
        raise EpisodeFailed(
            f"turn_rewards of {env.id} gave {brief(found)} for {count} turns; it gives a finite number, or "
            "None, for each"
        )
    return [None if one is None else float(one) for one in found]


def _plain(reply: Prompt) -> str:
    """A reply as it appears in the rollout's text."""
    if isinstance(reply, str):
        return reply
    return "".join(f"\n{message['role']}: {message['content']}\n" for message in reply)


def _close(opening: Future[Episode]) -> None:
    """Close an episode that no play waits for any more."""
    with suppress(BaseException):
        opening.result().close()
