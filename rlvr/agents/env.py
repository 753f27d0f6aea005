"""An environment whose tasks are worked on by an agent that owns its loop."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from rlvr.agents.endpoint import AgentEndpoint, AgentEpisode
from rlvr.agents.programs import AgentCall, AgentFailed, AgentProgram
from rlvr.collect.background import BackgroundCalls
from rlvr.collect.scheduler import Play
from rlvr.environment import Environment, Episode
from rlvr.errors import RlvrError, SandboxFailed, Unscored, UsageError, brief, described
from rlvr.samplers.protocol import Sampler, Sampling
from rlvr.scoring import Scorer
from rlvr.types import Completion, Outcome, Rollout, Score, Task, Verdict
from rlvr.validate import require_one_of, require_optional_whole
from rlvr.workers.loops import loop_thread

__all__ = ["AgentEnv"]

_LOOK_S: Final = 0.05  # how often the clock of an agent is looked at
_END_S: Final = 2.0  # that a program gets to end once it is stopped


class AgentEnv(Environment):
    """The tasks, the verifier and the reward of an environment, with an agent in place of a single completion.

    Every episode runs the program once, with the address and the key of an endpoint in front of the collector's
    sampler.  What it answers is scored as a completion of the environment.  Tokens and log-probabilities of all its
    requests are the rollout's, see `rlvr.agents.conversations`.

    The collector's settings are the agent's limits: `max_tokens` over all completions of an episode, `max_turns`
    completions, and `step_s` wall seconds of the agent's own between two completions, in which it does not wait for
    the policy.  An agent that is over one of the first two is told so by an error, and its answer is scored as
    truncated.  One that is over the third, or goes on asking, is stopped.

    Options:
        env: the environment, with one turn; its reward must not compare the completions of a group.
        program: the agent, see `rlvr.agents.programs`: a function of an `AgentCall`, a `Command`, a `SandboxAgent`.
        failure: the outcome where the program fails or is stopped after it got a completion, which may be why: "wrong",
            with the reward of an empty answer that is wrong; or "unscored".  Before that, it is UNSCORED in any case.
        request_tokens: most tokens of one completion; None for all that the episode has left.  Agents with parallel
            requests need it, see `AgentEndpoint.open`.
        workers: processes that score the answers, see `rlvr.Scorer`; None for one per core.
        host: address on which the endpoint listens; agents on other machines need one that they can reach.
    """

    scores_itself: ClassVar[bool] = True
    env: Any = None
    program: Any = None
    failure: str = "wrong"
    request_tokens: int | None = None
    workers: int | None = None
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if not isinstance(self.env, Environment) or not self.env.single_turn:
            raise UsageError(
                f"an agent works on the tasks of an environment with one turn, not on {brief(self.env)}"
            )
        if self.env.reward.group_level:
            raise UsageError(
                f"the reward {self.env.reward} compares completions; agents are scored one by one"
            )
        if not callable(self.program):
            raise UsageError(
                f"program is {brief(self.program)}; give a function of an AgentCall, or a Command"
            )
        require_one_of("failure", self.failure, ("wrong", "unscored"))
        require_optional_whole("request_tokens", self.request_tokens, 1, none="what is left")
        self.id = f"agent/{self.env.id}"  # type: ignore[misc]
        self.split = self.env.split
        self.reward = self.env.reward  # type: ignore[misc]

    @property
    def config(self) -> dict[str, Any]:
        """The options, as plain JSON; the environment as its id and options, the program as its description."""
        inner = {"id": self.env.id, **self.env.config}
        return {"env": inner, "program": brief(self.program), "failure": self.failure}

    @property
    def size(self) -> int | None:
        """Number of tasks; None if they are generated without end."""
        size: int | None = self.env.size
        return size

    def task(self, index: int) -> Task:
        task: Task = self.env.task(index)
        return task

    def open(self, task: Task) -> Episode:
        """Refused: the loop is not the caller's.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{self.id} owns its loop and cannot be stepped; collect, train or evaluate it"
        )

    def without_tasks(self) -> Any:
        return self.env.without_tasks()  # workers need no program

    @property
    def player(self) -> type[_Agents]:
        """What plays the episodes, see `rlvr.collect.player`."""
        return _Agents


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the program of an episode has ended.

    Attributes:
        answer: the text to be scored; None if there is none.
        why: what went wrong; "" for nothing.
        detail: more about that.
        ours: whether it is not the agent's or the policy's doing.
    """

    answer: str | None
    why: str = ""
    detail: Mapping[str, Any] | None = None
    ours: bool = False


class _Agents:
    """Plays the episodes of an `AgentEnv`, see `rlvr.collect.player.Plays`.

    Between two collections no episode is open, and the sampler is the collector's own.
    """

    def __init__(
        self,
        env: AgentEnv,
        sampler: Sampler,
        background: BackgroundCalls,
        sampling: Sampling,
        *,
        max_turns: int,
        step_s: float,
        key: tuple[str | int, ...],
        limit_of: Callable[[Task], int],
    ) -> None:
        self._env, self._sampler, self._background, self._sampling = (
            env,
            sampler,
            background,
            sampling,
        )
        self._max_turns, self._step_s, self._key = max_turns, step_s, key
        self._scorer = Scorer(env.env, workers=env.workers)
        self._endpoint: AgentEndpoint | None = None
        self._playing = 0
        self._has_warned = False

    def close(self) -> None:
        """End the endpoint and the workers."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()
        self._scorer.close()

    def tasks(self, indices: Sequence[int]) -> list[Task | None]:
        """See `Plays.tasks`."""
        return [self._task(index) for index in indices]

    def _task(self, index: int) -> Task:
        env = self._env.env
        try:
            task: Task = env.task(index)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise RlvrError(
                f"{env.id} cannot make task {index} of split {env.split!r}: {said}"
            ) from error
        return task

    def plays(
        self, asked: Sequence[tuple[int, int]], size_of: Callable[[int], int], first: int = 0
    ) -> Iterator[Play[Rollout]]:
        """See `Plays.plays`."""
        for place, index in asked:
            task = self._task(index)
            for g in range(size_of(index)):
                yield self._play(task, place, g)

    def _play(self, task: Task, place: int, g: int) -> Play[Rollout]:
        if self._endpoint is None:
            self._endpoint = AgentEndpoint(self._sampler, host=self._env.host)
        endpoint = self._endpoint
        episode = endpoint.open(
            sampling=self._sampling,
            max_requests=self._max_turns,
            request_tokens=self._env.request_tokens,
            seed_key=(*self._key, task.id, place, g),
        )
        call = AgentCall(task.id, task.prompt, episode.base_url, episode.api_key)
        self._playing += 1
        try:
            ended: _Ended = yield self._background.submit(self._run, episode, call)
        finally:
            episode.close()
            call.stop()
            self._playing -= 1
            if not self._playing:
                endpoint.settle()
        if endpoint.error is not None:
            raise endpoint.error
        self._warn_of_ignored(episode)
        if (why := self._unscored(episode, ended)) is not None:
            lost = Verdict(Outcome.UNSCORED, why=why, detail=dict(ended.detail or {}))
            return episode.rollout(task, Score(None, {}, lost))
        if ended.why:
            completion = Completion("", episode.tokens, episode.truncated)
            verdict = Verdict(Outcome.WRONG, why=ended.why, detail=dict(ended.detail or {}))
            score = yield self._background.submit(
                _score_of, self._env.env, task, completion, verdict
            )
        else:
            answer = episode.answer if ended.answer is None else ended.answer
            completion = Completion(answer, episode.tokens, episode.truncated)
            score = yield self._background.submit(self._scorer.score, task, completion)
        return episode.rollout(task, score)

    def _unscored(self, episode: AgentEpisode, ended: _Ended) -> str | None:
        """Why an episode says nothing about the policy; None if it does."""
        if episode.failed is not None:
            return f"{episode.failed.reason}: {episode.failed}"
        if ended.ours:
            return ended.why
        if not episode.completions:
            return ended.why or "agent-failed: it asked for no completion, or kept none"
        return ended.why if ended.why and self._env.failure == "unscored" else None

    def _warn_of_ignored(self, episode: AgentEpisode) -> None:
        if episode.ignored and not self._has_warned:
            self._has_warned = True
            names = ", ".join(sorted(episode.ignored))
            warnings.warn(
                f"the agent sends {names}, which have no effect here: completions are sampled with the settings of "
                "the run, which training has to know. This warning comes once",
                RuntimeWarning,
                stacklevel=2,
            )

    def _run(self, episode: AgentEpisode, call: AgentCall) -> _Ended:
        """Run the program of an episode, until it ends or has to be stopped."""
        results: queue.SimpleQueue[_Ended] = queue.SimpleQueue()
        program: AgentProgram = self._env.program
        name = f"rlvr-agent-{call.task}"[:60]
        episode.start()
        threading.Thread(
            target=lambda: results.put(_outcome(program, call)), name=name, daemon=True
        ).start()
        while True:
            try:
                return results.get(timeout=_LOOK_S)
            except queue.Empty:
                pass
            why = ""
            if episode.own_s > self._step_s:
                why = f"time limit: the agent took more than {self._step_s:g} s without a request"
            elif episode.never_ends:
                why = f"the agent never ends: {episode.refused} requests beyond its limits"
            elif episode.closed or call.stopped.is_set():
                why = "stopped"
            if why:
                episode.close()
                call.stop()
                deadline = time.monotonic() + _END_S
                while results.empty() and time.monotonic() < deadline:
                    time.sleep(_LOOK_S)
                return _Ended(None, why)


def _score_of(env: Environment, task: Task, completion: Completion, verdict: Verdict) -> Score:
    """The score of a completion whose verdict is known."""

    async def score() -> Score:
        seen = await env.reward.aobserve(task, completion, verdict)
        return (await env.reward.acombine(task, [completion], [seen]))[0]

    return loop_thread("calls").call(score)


def _outcome(program: AgentProgram, call: AgentCall) -> _Ended:
    """Run a program, in a thread of its own."""
    try:
        answer = program(call)
        if answer is not None and not isinstance(answer, str):
            raise TypeError(
                f"the program gave {brief(answer)}; it must give its answer as a text, or None"
            )
    except (Unscored, UsageError, SandboxFailed, MemoryError) as error:
        return _Ended(None, f"{type(error).__name__}: {error}", ours=True)
    except AgentFailed as error:
        return _Ended(None, f"agent-failed: {error}")
    except BaseException as error:  # noqa: BLE001  the program's own, which the policy may have caused
        name, message, trace = described(error)
        return _Ended(None, f"agent-failed: {name}: {message}", {"traceback": trace})
    return _Ended(answer)
