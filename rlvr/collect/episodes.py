"""Episodes of a multi-turn environment: the policy's turns and the environment's replies in one token sequence.

    prompt │ turn 0 │ reply │ turn 1 │ reply │ … │ turn n        completion_mask is True on the policy's turns only

All unfinished episodes take a turn in one call of `generate`, and each environment steps in a thread as soon as its
turn is finished.  A reply is encoded as a continuation of the tokens so far, and the next turn continues these tokens.
So nothing is tokenised twice, and the trained tokens are the sampled ones.
"""

from __future__ import annotations

import copy
import math
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from numbers import Real

from rlvr.collect.background import BackgroundCalls
from rlvr.environment import MultiTurnEnv, seeded
from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import Sample, Sampler, Sampling, generate_checked, rollout_seed
from rlvr.types import Group, Outcome, Prompt, Rollout, Score, Task, Turn, Verdict

__all__ = ["Episodes"]


@dataclass(frozen=True, slots=True)
class _Step:
    """The environment's reply to a turn."""

    reply: Prompt
    reward: float | None
    ended: bool
    score: Score | None


@dataclass(slots=True)
class _Episode:
    """An episode that is being played."""

    env: MultiTurnEnv
    task: Task
    number: tuple[int, int]
    seed: tuple[str | int, ...]
    prompt_ids: Sequence[int] = ()
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    version: int = 0
    truncated: bool = False
    score: Score | None = None

    def own_tokens(self) -> int:
        return sum(turn.stop - turn.start for turn in self.turns)


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
    If a step raises, the rollout is UNSCORED.

    Args:
        env: the environment; it is copied, not changed.
        sampler: generates the turns.
        background: runs the environment's steps.
        sampling: how turns are sampled; `max_tokens` holds for all turns of an episode together.
        max_turns: most turns of an episode.
        key: with the task, its place in the run and the number in the group, it seeds each episode.
    """

    def __init__(
        self,
        env: MultiTurnEnv,
        sampler: Sampler,
        background: BackgroundCalls,
        sampling: Sampling,
        max_turns: int,
        key: tuple[str | int, ...],
    ) -> None:
        self.env, self.sampler, self.background = env, sampler, background
        self.sampling, self.max_turns, self._key = sampling, max_turns, key
        self._positions: int = getattr(sampler, "positions", None) or sys.maxsize

    def task(self, index: int) -> Task:
        """The task with which the episode of an index begins.

        Args:
            index: of the task.
        """
        return self._begun(index)[1]

    def play(self, asked: Sequence[tuple[int, int]], group_size: int) -> list[Group]:
        """Play a group of episodes for each task, in the order of `asked`.

        Args:
            asked: (place in the run, index of the task) of each group.
            group_size: episodes per task (G).

        Raises:
            UsageError: the environment cannot be copied, or resets with one seed differ.
        """
        groups = [self._group(p, place, index, group_size) for p, (place, index) in enumerate(asked)]
        going = [episode for group in groups for episode in group]
        turn = 0
        while going:
            going, turn = self._turn(going, groups, turn), turn + 1
        return [Group(group[0].task, [_rollout(episode) for episode in group]) for group in groups]

    def _group(self, p: int, place: int, index: int, group_size: int) -> list[_Episode]:
        begun = [self._begun(index) for _ in range(group_size)]
        task = begun[0][1]
        if any((other.id, other.prompt) != (task.id, task.prompt) for _, other in begun):
            raise UsageError(
                f"{self.env.id}: two resets with the same seed differ, the first prompt was {brief(task.prompt)}; the "
                "seed must determine everything random in reset"
            )
        return [_Episode(env, task, (p, g), (*self._key, task.id, place, g)) for g, (env, _) in enumerate(begun)]

    def _begun(self, index: int) -> tuple[MultiTurnEnv, Task]:
        try:
            env = copy.deepcopy(self.env, {id(self.env.reward): self.env.reward})
        except Exception as error:  # any attribute may refuse to be copied, with any exception
            raise UsageError(
                f"{self.env.id} cannot be copied for parallel episodes ({type(error).__name__}: {error}); define "
                "__deepcopy__, or make in reset what an episode changes"
            ) from error
        seed = seeded("episode", env.id, env.split, index).getrandbits(32)  # NumPy's legacy generators take 32 bits
        prompt, info = env.reset(seed=seed, options={"index": index})
        name = info.get("task")
        return env, Task(name if isinstance(name, str) else f"{env.id}/{env.split}/{index}", prompt)

    def _turn(self, going: list[_Episode], groups: list[list[_Episode]], turn: int) -> list[_Episode]:
        """Play one turn of every episode, and return the unfinished ones."""
        stepped: dict[tuple[int, int], Future[_Step]] = {}
        with self.background.generating():
            if turn == 0:
                prompts = [group[0].task.prompt for group in groups]
                seeds = [[rollout_seed(*episode.seed, turn) for episode in group] for group in groups]
                for p, g, sample in generate_checked(self.sampler, prompts, len(groups[0]), self.sampling, seeds):
                    self._take(stepped, groups[p][g], sample)
            else:
                contexts = [(*episode.prompt_ids, *episode.ids) for episode in going]
                seeds = [[rollout_seed(*episode.seed, turn)] for episode in going]
                limits = [
                    min(self.sampling.max_tokens - episode.own_tokens(), self._positions - len(context))
                    for episode, context in zip(going, contexts, strict=True)
                ]
                for i, _, sample in generate_checked(self.sampler, contexts, 1, self.sampling, seeds, limits):
                    self._take(stepped, going[i], sample)
        with self.background.waiting():
            steps = [stepped[episode.number].result() for episode in going]
        return [episode for episode, step in zip(going, steps, strict=True) if self._goes_on(episode, step)]

    def _take(self, stepped: dict[tuple[int, int], Future[_Step]], episode: _Episode, sample: Sample) -> None:
        """Append a turn and have the environment step."""
        if not episode.turns:
            episode.prompt_ids, episode.version = sample.prompt_ids, sample.weights_version
        start = len(episode.ids)
        episode.ids += sample.completion_ids
        episode.mask += [True] * len(sample.completion_ids)
        episode.logprobs += sample.behaviour_logprobs(self.sampling)
        episode.turns.append(Turn(start, len(episode.ids)))
        episode.texts.append(sample.text)
        episode.version = min(episode.version, sample.weights_version)
        episode.truncated = sample.truncated
        stepped[episode.number] = self.background.submit(_stepped, episode.env, sample.text)

    def _goes_on(self, episode: _Episode, step: _Step) -> bool:
        last = episode.turns[-1]
        episode.turns[-1] = Turn(last.start, last.stop, step.reward)
        spent = episode.truncated or episode.own_tokens() >= self.sampling.max_tokens
        if step.ended or spent or len(episode.turns) == self.max_turns:
            episode.truncated = episode.truncated or not step.ended
            episode.score = step.score or _summed(episode, step.ended)
            return False
        before = (*episode.prompt_ids, *episode.ids)
        reply = list(self.sampler.encode(step.reply, before))
        if len(before) + len(reply) >= self._positions:  # no room is left for another turn
            episode.truncated, episode.score = True, _summed(episode, ended=False)
            return False
        episode.ids += reply
        episode.mask += [False] * len(reply)
        episode.logprobs += [0.0] * len(reply)
        episode.texts.append(_plain(step.reply))
        return True


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


def _summed(episode: _Episode, ended: bool) -> Score:
    """The score of an episode whose environment gave none."""
    total = math.fsum(turn.reward or 0.0 for turn in episode.turns)
    outcome = Outcome.CORRECT if ended and total > 0 else Outcome.WRONG
    why = "summed: rewards of the steps" if ended else f"truncated: not over after {len(episode.turns)} turns"
    return Score(total, {"return": total}, Verdict(outcome, why=why))


def _rollout(episode: _Episode) -> Rollout:
    return Rollout(
        task=episode.task,
        text="".join(episode.texts),
        prompt_ids=episode.prompt_ids,
        completion_ids=episode.ids,
        completion_mask=episode.mask,
        behaviour_logprobs=episode.logprobs,
        weights_version=episode.version,
        truncated=episode.truncated,
        score=episode.score,
        turns=tuple(episode.turns),
    )


def _plain(reply: Prompt) -> str:
    """A reply as it appears in the rollout's text."""
    if isinstance(reply, str):
        return reply
    return "".join(f"\n{message['role']}: {message['content']}\n" for message in reply)
