"""Plays the episodes of an environment: all that was said in one token sequence.

    prompt with tools │ turn 0 │ reply │ turn 1 │ reply │ … │ turn n

    completion_mask is True on the policy's turns

Each episode is a play of the scheduler.  A reply is encoded as a continuation of the tokens so far,
and the next turn continues these tokens.  So nothing is tokenised twice, and the trained tokens are
the sampled ones.  A completion of an environment with a single turn is an episode of one reply.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from rlvr.collect.background import BackgroundCalls
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

__all__ = ["EpisodePlayer", "Player", "most_positions", "prompt_tokens", "unscored_score"]

_T = TypeVar("_T")


class EpisodePlayer(Protocol):
    """What plays the episodes of one environment in its own way, such as
    the program of an agent."""

    def play(self, task: Task, seed_key: tuple[str | int, ...], most_tokens: int) -> Play[Rollout]:
        """One episode of a task of that environment, which may take so many tokens over all its
        turns."""

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
    # for each token; a reply has that of the turn before
    versions: list[int] = field(default_factory=list)
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
        # An engine says versions of each token where weights changed on the way.
        self.versions += sample.token_versions or [sample.weights_version] * len(ids)
        self.truncated = sample.truncated

    def take_reply(self, reply: Prompt, ids: Sequence[int]) -> None:
        """Add a reply of the environment, which is not trained on."""
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)
        # A reply has the version of the turn that it follows, as no weights made it.
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
            # The oldest: staleness is of the oldest token.
            weights_version=min(self.versions, default=version),
            truncated=self.truncated,
            score=score,
            turns=tuple(self.turns),
            token_versions=tuple(self.versions) if len(set(self.versions)) > 1 else (),
        )


class Player:
    """Plays episodes with a sampler.

    An episode ends when the environment says so; after its turns; when the policy has used up its
    tokens over all turns; and where a reply would reach the sampler's `positions`.  Its rollout has
    no score yet.  If the environment fails, or a turn cannot be sampled, it is UNSCORED.

    An environment that has a `player` of its own, as an agent's has, is played by that one.

    Args:
        env: the environment.
        sampler: generates the turns.
        background: runs the environment's calls.
        sampling: how turns are sampled.
        limit_of: most tokens of an episode of a task, over all its turns.
        max_turns: most turns, where the environment has no limit of its own.
        step_s: most wall seconds of an agent's own between two completions.
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
        self._own: dict[int, EpisodePlayer | None] = {}

    def close(self) -> None:
        """End what players of environments hold open."""
        for player in self._own.values():
            if player is not None:
                player.close()
        self._own.clear()

    def sample_with(self, sampling: Sampling) -> None:
        """Sample otherwise from here on.

        Args:
            sampling: how.
        """
        # Players of environments hold the old sampling.
        self.close()
        self.sampling = sampling

    def task(self, index: int) -> Task:
        """The task at an index.

        Args:
            index: of the task.

        Raises:
            RlvrError: the environment's `task` raised.
        """
        try:
            return self.env.find(index)
        except Exception as error:
            env, reason = self.env, f"{type(error).__name__}: {error}"
            raise RlvrError(
                f"{env.id} cannot make task {index} of split {env.split!r}: {reason}"
            ) from error

    # ---------------------------------------------------------------------------------------- plays

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
            # Prompts are encoded once for the episodes of a group.
            task, prompts = self.task(index), list[TokenIds]()
            for g in range(size_of(index)):
                yield self._play(_Numbers(p, g, place), task, prompts)

    def play(self, task: Task) -> Play[Rollout]:
        """One episode of a task.

        Args:
            task: of the environment.
        """
        return self._play(_Numbers(0, 0, 0), task, [])

    def _play(self, numbers: _Numbers, task: Task, prompts: list[TokenIds]) -> Play[Rollout]:
        env, inner = self.env.route(task)
        if (own_player := self._player_of(env)) is not None:
            key = (*self._key, inner.id, numbers.place, numbers.g)
            return replace(
                (yield from own_player.play(inner, key, self._limit_of(task))), task=task
            )
        try:
            episode = yield from self._opened(env, inner)
        except Unscored as error:
            return self._lost(_Tokens(task, prompts[0] if prompts else ()), error)
        with episode:
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
        return replace(tokens.rollout(None, self.sampler.version), episode=episode.record)

    def _player_of(self, env: Environment) -> EpisodePlayer | None:
        """What plays an environment instead of this object; None for nothing."""
        # By identity: members of a mixture may have the same id.
        if id(env) not in self._own:
            make = getattr(env, "player", None)
            limits = {"max_turns": self._max_turns, "step_s": self._step_s}
            self._own[id(env)] = make and make(
                self.sampler, self.background, self.sampling, **limits
            )
        return self._own[id(env)]

    def _opened(self, env: Environment, task: Task) -> Generator[Any, Any, Episode]:
        if env.single_turn:
            return env.open(task)
        opening = self.background.submit(env.open, task)
        try:
            episode: Episode = yield opening
        # The play was closed while the episode opened: it is closed by the thread that opens it.
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
            request = self._request(env, tokens, numbers, limit)
            sample = yield request
            begun = beginning_of(self.sampler, request.context) if episode.tools else ""
            tokens.take_turn(sample, self.sampling)
            turn = self._read(sample, episode, begun)
            spent = tokens.own_tokens() >= most_tokens
            # Once the tokens are used up no call is made; a text without a call is a whole answer.
            last = "tokens" if sample.truncated or (spent and turn.calls) else ""
            messages = yield from self._reply_to(env, episode, turn, last)
            if messages is None:
                return
            if len(tokens.turns) == (most_turns or self._max_turns):
                episode.finish("turns")
                return
            context = tokens.context
            reply = list(self.sampler.encode(messages, context))
            # Room for prompt, episode so far and this reply; what is left is for the next turn.
            left = most_positions(self.sampler) - len(context) - len(reply)
            limit = min(most_tokens - tokens.own_tokens(), left)
            if limit < 1:  # no room is left for another turn
                end = "tokens" if spent else "positions"
                yield self.background.submit(episode.finish, end)
                return
            tokens.take_reply(messages, reply)

    def _request(self, env: Environment, tokens: _Tokens, numbers: _Numbers, limit: int) -> Request:
        p, g, place = numbers
        # Of a single turn the id has no number, and its seed is that of the rollout.
        turn = () if env.single_turn else (len(tokens.turns),)
        seed = rollout_seed(*self._key, tokens.task.id, place, g, *turn)
        return Request((p, g, *turn), tokens.context, self.sampling, seed, limit, rollout=g)

    def _reply_to(
        self, env: Environment, episode: Episode, said: PolicyTurn, last: str
    ) -> Generator[Any, Any, Prompt | None]:
        if env.single_turn:
            return episode.reply(said, last=last)
        messages: Prompt | None = yield self.background.submit(
            lambda: episode.reply(said, last=last)
        )
        return messages

    def _prompt(self, episode: Episode, prompts: list[TokenIds]) -> TokenIds:
        """The tokens of the prompt with the tools; the same for all episodes of a group."""
        # Tools may depend on an episode's state, so with
        # tools the prompt is encoded each time and compared.
        if prompts and not episode.tools:
            return prompts[0]
        ids = tuple(_encode(self.sampler, episode.prompt, episode.schemas))
        if prompts and prompts[0] != ids:
            raise UsageError(
                f"{self.env.id}: two episodes of task {episode.task.id!r} have different tools; "
                f"tools(state) "
                "must give the same names and schemas for the same task"
            )
        prompts[:] = [ids]
        return ids

    def _read(self, sample: Sample, episode: Episode, begun: str) -> PolicyTurn:
        if not episode.tools:
            return PolicyTurn(sample.text)
        parse, tools = getattr(self.sampler, "parse", None), episode.schemas
        if parse is None:
            # A sampler without a template: calls are read in a common form.
            return read_turn_of("hermes", sample.text, tools)
        turn: PolicyTurn = parse(sample.completion_ids, tools)
        # What the template has begun for the model is part of what it said.
        return replace(turn, text=begun + turn.text)

    def _lost(self, tokens: _Tokens, error: Unscored) -> Rollout:
        score = unscored_score(error)
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
    return _encode(sampler, task.prompt, tools)


def _encode(
    sampler: Sampler, prompt: Prompt, tools: Sequence[Mapping[str, object]]
) -> Sequence[int]:
    return sampler.encode(prompt, tools=tools) if tools else sampler.encode(prompt)


def unscored_score(error: Unscored) -> Score:
    """The score of a rollout that could not be had.

    Args:
        error: why.
    """
    return Score(None, {}, Verdict(Outcome.UNSCORED, why=f"{error.reason}: {error}"))


def _rewards(episode: Episode) -> Sequence[float | None]:
    """The rewards of an episode's turns, in a thread."""
    count, env = len(episode.record.turns), episode.env
    try:
        rewards = env.turn_rewards(episode.task, episode.record)
    except Exception as error:
        raise EpisodeFailed(
            f"turn_rewards of {env.id} raised {type(error).__name__}: {error}"
        ) from error
    if rewards is None:
        return [None] * count
    if len(rewards) != count or not all(reward is None or is_number(reward) for reward in rewards):
        raise EpisodeFailed(
            f"turn_rewards of {env.id} gave {brief(rewards)} for {count} turns; it gives a finite "
            "number, or None, for each"
        )
    return [None if reward is None else float(reward) for reward in rewards]


def _plain(reply: Prompt) -> str:
    """A reply as it appears in the rollout's text."""
    if isinstance(reply, str):
        return reply
    return "".join(f"\n{message['role']}: {message['content']}\n" for message in reply)


def _close(opening: Future[Episode]) -> None:
    """Close an episode that no play waits for any more."""
    # Its opening may have failed, or its closing; no play waits for either.
    with suppress(BaseException):
        opening.result().close()
