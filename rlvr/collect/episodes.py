"""Episodes of a multi-turn environment: the policy's turns and the environment's replies in one token sequence.

    prompt │ turn 0 │ reply │ turn 1 │ reply │ … │ turn n        completion_mask is True on the policy's turns only

Each episode is a play of the scheduler.  A reply is encoded as a continuation of the tokens so far, and the next turn
continues these tokens.  So nothing is tokenised twice, and the trained tokens are the sampled ones.
"""

from __future__ import annotations

import copy
import math
import sys
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import Final

from rlvr.collect.background import BackgroundCalls, CallTimeout
from rlvr.collect.scheduler import Play
from rlvr.environment import MultiTurnEnv, seeded
from rlvr.errors import SamplingFailed, Unscored, UsageError, brief
from rlvr.samplers.protocol import Request, Sample, Sampler, Sampling, TokenIds, rollout_seed
from rlvr.types import Outcome, Prompt, Rollout, Score, Task, Turn, Verdict

__all__ = ["Episodes", "Playing", "begun", "most_positions", "unscored"]

_TASKS: Final = 10_000  # tasks that are kept, since it takes a reset to make one again


@dataclass(frozen=True, slots=True)
class _Step:
    """The environment's reply to a turn; `score` only where it decides the episode."""

    reply: Prompt
    reward: float | None
    ended: bool
    score: Score | None


@dataclass(slots=True)
class Playing:
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
        start = len(self.ids)
        self.ids += sample.completion_ids
        self.mask += [True] * len(sample.completion_ids)
        self.logprobs += sample.behaviour_logprobs(sampling)
        self.turns.append(Turn(start, len(self.ids)))
        self.texts.append(sample.text)
        self.versions += sample.token_versions or [sample.weights_version] * len(
            sample.completion_ids
        )
        self.truncated = sample.truncated

    def take_reply(self, reply: Prompt, ids: Sequence[int]) -> None:
        """Add a reply of the environment, which is not trained on."""
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.versions += self.versions[-1:] * len(ids)
        self.texts.append(_plain(reply))

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


class Episodes:
    """Plays episodes of a multi-turn environment.

    The episode of an index begins with `reset(seed=…, options={"index": index})`, where the seed is a hash of
    environment, split and index, so that the G episodes of a group begin alike.  Each runs on a deep copy of the
    environment, which shares the reward; an environment with much data should define `__deepcopy__`.

    An episode ends when the environment says so; it ends truncated after `max_turns`, when the policy has used up
    `max_tokens` over all its turns, and when it reaches the sampler's `positions`.  A turn that hits a limit is still
    given to the environment, as truncated completions are scored too.

    The score is the `Score` under "score" in the last step's `info`.  Without one, the total is the sum of the steps'
    rewards, and the outcome is CORRECT if the environment ended the episode and that sum is above 0, else WRONG.
    If a step raises, or a turn cannot be sampled, the rollout is UNSCORED.

    A `reset` that takes longer than `step_s` is our failure, and its rollout UNSCORED.  A `step` that does follows an
    action of the policy, which must not gain by it: the episode ends as WRONG, why "time limit", with the sum of the
    rewards so far, but at most 0.  Such a call goes on in its thread, as threads cannot be ended.

    Args:
        env: the environment; it is copied, not changed.
        sampler: generates the turns.
        background: runs the environment's calls.
        sampling: how turns are sampled; `max_tokens` holds for all turns of an episode together.
        max_turns: most turns of an episode.
        step_s: most wall seconds of `reset` and of each `step`.
        key: with the task, its place in the run and the number in the group, it seeds each episode.
    """

    def __init__(
        self,
        env: MultiTurnEnv,
        sampler: Sampler,
        background: BackgroundCalls,
        sampling: Sampling,
        *,
        max_turns: int,
        step_s: float,
        key: tuple[str | int, ...],
    ) -> None:
        self.env, self.sampler, self.background = env, sampler, background
        self.sampling, self.max_turns, self.step_s, self._key = sampling, max_turns, step_s, key
        self._tasks: OrderedDict[int, Task] = OrderedDict()

    def tasks(self, indices: Sequence[int]) -> list[Task | None]:
        """The tasks with which the episodes of these indices begin; None where `reset` took longer than `step_s`.

        Args:
            indices: of the tasks.
        """
        asked = {index: self._begin(index) for index in indices if index not in self._tasks}
        found: dict[int, Task | None] = {index: self._tasks.get(index) for index in indices}
        for index, future in asked.items():
            self.background.wait(future)
            with suppress(CallTimeout):
                found[index] = self._keep(index, future.result()[1])
        return [found[index] for index in indices]

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
            for g in range(group_size):
                yield self._play(p, g, place, index)

    def _play(self, p: int, g: int, place: int, index: int) -> Play[Rollout]:
        try:
            env, task = yield self._begin(index)
        except CallTimeout as timeout:
            return self._lost(index, timeout)
        if index in self._tasks and (self._tasks[index].id, self._tasks[index].prompt) != (
            task.id,
            task.prompt,
        ):
            raise UsageError(
                f"{self.env.id}: two resets with the same seed differ, the first prompt was "
                f"{brief(self._tasks[index].prompt)}; the seed must determine everything random in reset"
            )
        task = self._keep(index, task)
        episode, limit = (
            Playing(task, tuple(self.sampler.encode(task.prompt))),
            self.sampling.max_tokens,
        )
        while True:
            turn = len(episode.turns)
            seed = rollout_seed(*self._key, task.id, place, g, turn)
            try:
                sample = yield Request(
                    (p, g, turn), episode.context, self.sampling, seed, limit, rollout=g
                )
            except SamplingFailed as error:
                return episode.rollout(unscored(error), self.sampler.version)
            episode.take_turn(sample, self.sampling)
            try:
                step = yield self.background.submit(_stepped, env, sample.text, limit_s=self.step_s)
            except CallTimeout as timeout:
                step = _Step("", None, True, _too_slow(episode, timeout))
            if (score := self._ended(episode, step)) is not None:
                return episode.rollout(score, self.sampler.version)
            left = most_positions(self.sampler) - len(episode.context)
            limit = min(self.sampling.max_tokens - episode.own_tokens(), left)

    def _begin(self, index: int) -> Future[tuple[MultiTurnEnv, Task]]:
        return self.background.submit(begun, self.env, index, limit_s=self.step_s)

    def _keep(self, index: int, task: Task) -> Task:
        """Remember a task; the same object for all episodes of a group."""
        task = self._tasks.setdefault(index, task)
        self._tasks.move_to_end(index)
        if len(self._tasks) > _TASKS:
            self._tasks.popitem(last=False)
        return task

    def _lost(self, index: int, timeout: CallTimeout) -> Rollout:
        """An episode that has not begun: without a prompt, which another one of its group may know."""
        task = Task(f"{self.env.id}/{self.env.split}/{index}", "")
        verdict = Verdict(
            Outcome.UNSCORED, why=f"time limit: reset took more than {timeout.limit_s:g} s"
        )
        return Playing(task, ()).rollout(Score(None, {}, verdict), self.sampler.version)

    def _ended(self, episode: Playing, step: _Step) -> Score | None:
        """Add the environment's reply; the score if the episode is over."""
        last = episode.turns[-1]
        episode.turns[-1] = Turn(last.start, last.stop, step.reward)
        spent = episode.truncated or episode.own_tokens() >= self.sampling.max_tokens
        if step.ended or spent or len(episode.turns) == self.max_turns:
            episode.truncated = episode.truncated or not step.ended
            return step.score or _summed(episode, step.ended)
        reply = list(self.sampler.encode(step.reply, episode.context))
        if len(episode.context) + len(reply) >= most_positions(
            self.sampler
        ):  # no room is left for another turn
            episode.truncated = True
            return _summed(episode, ended=False)
        episode.take_reply(step.reply, reply)
        return None


def most_positions(sampler: Sampler) -> int:
    """The most tokens of prompt and completion together; no limit where the sampler has none.

    Args:
        sampler: generates the turns.
    """
    return getattr(sampler, "positions", None) or sys.maxsize


def unscored(error: Unscored) -> Score:
    """The score of a rollout that could not be had.

    Args:
        error: why.
    """
    return Score(None, {}, Verdict(Outcome.UNSCORED, why=f"{error.reason}: {error}"))


def begun(template: MultiTurnEnv, index: int) -> tuple[MultiTurnEnv, Task]:
    """A copy of an environment at the beginning of an episode.

    Args:
        template: the environment; it is copied, not changed.
        index: of the task.

    Raises:
        UsageError: it cannot be copied.
    """
    try:
        env = copy.deepcopy(template, {id(template.reward): template.reward})
    except Exception as error:  # any attribute may refuse to be copied, with any exception
        raise UsageError(
            f"{template.id} cannot be copied for parallel episodes ({type(error).__name__}: {error}); define "
            "__deepcopy__, or make in reset what an episode changes"
        ) from error
    seed = seeded("episode", env.id, env.split, index).getrandbits(
        32
    )  # NumPy's legacy generators take 32 bits
    prompt, info = env.reset(seed=seed, options={"index": index})
    name = info.get("task")
    return env, Task(name if isinstance(name, str) else f"{env.id}/{env.split}/{index}", prompt)


def _stepped(env: MultiTurnEnv, action: str) -> _Step:
    """Step an environment, in a thread.  If it raises, or breaks its contract, the rollout is UNSCORED."""
    try:
        reply, reward, terminated, truncated, info = env.step(action)
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise TypeError(f"step gave the reward {brief(reward)}; it must be a finite number")
        ended, score = bool(terminated or truncated), info.get("score")
        if ended and score is not None and not isinstance(score, Score):
            raise TypeError(f"step's info has the score {brief(score)}; it must be a Score")
        if not ended and not isinstance(reply, str):
            Task("reply", reply)  # raises where it is no prompt
        return _Step(reply, float(reward), ended, score if ended else None)
    except Exception as error:  # noqa: BLE001  see above
        why = f"environment-error: {type(error).__name__}: {error}"
        lost = Verdict(Outcome.UNSCORED, why=why, detail={"traceback": traceback.format_exc()})
        return _Step("", None, True, Score(None, {}, lost))


def _summed(episode: Playing, ended: bool) -> Score:
    """The score of an episode whose environment gave none."""
    total = math.fsum(turn.reward or 0.0 for turn in episode.turns)
    outcome = Outcome.CORRECT if ended and total > 0 else Outcome.WRONG
    why = (
        "summed: rewards of the steps"
        if ended
        else f"truncated: not over after {len(episode.turns)} turns"
    )
    return Score(total, {"return": total}, Verdict(outcome, why=why))


def _too_slow(episode: Playing, timeout: CallTimeout) -> Score:
    """The score of an episode whose last step took too long."""
    total = min(0.0, math.fsum(turn.reward or 0.0 for turn in episode.turns))
    verdict = Verdict(Outcome.WRONG, why="time limit", detail={"limit_s": timeout.limit_s})
    return Score(total, {"return": total}, verdict)


def _plain(reply: Prompt) -> str:
    """A reply as it appears in the rollout's text."""
    if isinstance(reply, str):
        return reply
    return "".join(f"\n{message['role']}: {message['content']}\n" for message in reply)
