"""An environment whose tasks are worked on by an agent that owns its loop."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rlvr.agents.endpoint import AgentEndpoint, AgentEpisode
from rlvr.agents.programs import AgentCall, AgentFailed, AgentProgram
from rlvr.agents.tools import EpisodeTools
from rlvr.collect.background import BackgroundCalls
from rlvr.collect.scheduler import Play
from rlvr.environment import Environment, Episode, require_environment
from rlvr.episode import Ask, EpisodeRecord, PolicyTurn
from rlvr.errors import SandboxFailed, Unscored, UsageError, brief, describe_error, foreign_code
from rlvr.rewards import Observation, Reward
from rlvr.samplers.protocol import Sampler, Sampling
from rlvr.types import Completion, JsonDict, Outcome, Rollout, Score, Task, Verdict, is_async
from rlvr.validate import require_one_of, require_optional_whole
from rlvr.workers.loops import loop_thread
from rlvr.workers.thread import DaemonThread

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["AgentEnv"]

_LOOK_S: Final = 0.05  # how often the clock of an agent is looked at
_NOTHING: Final = EpisodeRecord(())
_END_S: Final = 2.0  # that a program gets to end once it is stopped


class AgentEnv(Environment):
    """Any environment, with an agent that owns its loop in place of our player.

    Every episode runs the program once, with the address and the key of an endpoint in front of the
    collector's sampler.  It gets the environment's tools by `AgentCall.call` and by MCP, under the
    environment's limits, and its answer is the last turn of the record, which is scored as any
    other.  Tokens and log-probabilities of all its requests are the rollout's, see
    `rlvr.agents.conversations`.

    The collector's settings are the agent's limits: `max_tokens` over all completions of an
    episode, `max_turns` completions, and `step_s` wall seconds of the agent's own between two
    completions, in which it waits neither for the policy nor for a tool.  An agent that is over one
    of the first two is told so by an error, and its answer is scored as truncated.  One that is
    over the third, or goes on asking, is stopped.

    Options:
        env: the environment, of any number of turns.
        program: the agent, see `rlvr.agents.programs`: a function of an `AgentCall`, a `Command`, a
            `SandboxAgent`.
        failure: the outcome where the program fails or is stopped after it got a completion, which
            may be why: "wrong", with the reward of an empty answer that is wrong; or "unscored".
            Before that, it is UNSCORED in any case.
        request_tokens: most tokens of one completion; None for all that the episode has left.
            Agents with parallel requests need it, see `AgentEndpoint.open`.
        host: address on which the endpoint listens; agents on other machines need one that they can
            reach.
    """

    env: Any = None
    program: Any = None
    failure: str = "wrong"
    request_tokens: int | None = None
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        require_environment(self.env)
        if not callable(self.program):
            raise UsageError(
                f"program is {brief(self.program)}; give a function of an AgentCall, or a Command"
            )
        require_one_of("failure", self.failure, ("wrong", "unscored"))
        require_optional_whole("request_tokens", self.request_tokens, 1, none="what is left")
        self._take(self.env)

    def _take(self, env: Environment) -> None:
        self.env = env
        self.id = f"agent/{env.id}"  # type: ignore[misc]
        self.split = env.split
        self.reward = env.reward  # type: ignore[misc]
        self.max_concurrent = env.max_concurrent  # type: ignore[misc]

    @property
    def config(self) -> JsonDict:
        """The options, as plain JSON; the environment as its id and options, the program as its
        description."""
        inner = {"id": self.env.id, **self.env.config}
        return {"env": inner, "program": brief(self.program), "failure": self.failure}

    def player(
        self,
        sampler: Sampler,
        background: BackgroundCalls,
        sampling: Sampling,
        *,
        max_turns: int,
        step_s: float,
    ) -> _AgentPlayer:
        """What plays the episodes, see `rlvr.collect.player.EpisodePlayer`."""
        return _AgentPlayer(self, sampler, background, sampling, max_turns, step_s)

    # ---------------------------------------------------------------- all else is the environment's

    def with_reward(self, reward: Reward) -> AgentEnv:
        copy = self._copy()
        copy._take(self.env.with_reward(reward))
        return copy

    @property
    def size(self) -> int | None:
        """Number of tasks; None if they are generated without end."""
        size: int | None = self.env.size
        return size

    def tasks(self) -> Iterable[Task]:
        tasks: Iterable[Task] = self.env.tasks()
        return tasks

    def task(self, index: int) -> Task:
        task: Task = self.env.task(index)
        return task

    def find(self, task: str | int) -> Task:
        task_record: Task = self.env.find(task)
        return task_record

    def task_of(self, row: Row) -> Task:
        task: Task = self.env.task_of(row)
        return task

    def read_task(self, task: Task) -> None:
        self.env.read_task(task)

    def open(self, task: Task) -> Episode:
        episode: Episode = self.env.open(task)
        return episode

    def example_episode(self, task: Task) -> Sequence[str | Ask | PolicyTurn] | None:
        example: Sequence[str | Ask | PolicyTurn] | None = self.env.example_episode(task)
        return example

    @property
    def is_async(self) -> bool:
        waits: bool = self.env.is_async
        return waits

    async def aobserve(self, task: Task, completion: Completion) -> Observation:
        observation: Observation = await self.env.aobserve(task, completion)
        return observation

    def without_tasks(self) -> Any:
        return self.env.without_tasks()  # workers need no program


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the program of an episode has ended.

    Attributes:
        answer: its last turn; None if there is none.
        why: what went wrong; "" for nothing.
        trace: where it did.
        ours: whether it is not the agent's or the policy's doing.
        record: of the episode.
    """

    answer: str | None
    why: str = ""
    trace: str = ""
    ours: bool = False
    record: EpisodeRecord = _NOTHING


class _AgentPlayer:
    """Plays the episodes of an `AgentEnv`, see `rlvr.collect.player.EpisodePlayer`.

    Between two collections no episode is open, and the sampler is the collector's own.
    """

    def __init__(
        self,
        env: AgentEnv,
        sampler: Sampler,
        background: BackgroundCalls,
        sampling: Sampling,
        max_turns: int,
        step_s: float,
    ) -> None:
        self._env, self._sampler, self._background = env, sampler, background
        self._sampling, self._max_turns, self._step_s = sampling, max_turns, step_s
        self._endpoint: AgentEndpoint | None = None
        self._playing = 0
        self._has_warned = False

    def close(self) -> None:
        """End the endpoint."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()

    def play(self, task: Task, seed_key: tuple[str | int, ...], most_tokens: int) -> Play[Rollout]:
        """See `EpisodePlayer.play`."""
        if self._endpoint is None:
            self._endpoint = AgentEndpoint(self._sampler, host=self._env.host)
        endpoint = self._endpoint
        agent = endpoint.open(
            sampling=replace(self._sampling, max_tokens=most_tokens),
            max_requests=self._max_turns,
            request_tokens=self._env.request_tokens,
            seed_key=seed_key,
        )
        call = AgentCall(task.id, task.prompt, agent.base_url, agent.api_key)
        self._playing += 1
        try:
            ended: _Ended = yield self._background.submit(self._run, task, agent, call)
        finally:
            agent.close()
            call.stop()
            self._playing -= 1
            if not self._playing:
                endpoint.settle()
        if endpoint.error is not None:
            raise endpoint.error
        self._warn_of_ignored(agent)
        if (why := self._why_unscored(agent, ended)) is not None:
            detail = {"traceback": ended.trace} if ended.trace else {}
            lost = Verdict(Outcome.UNSCORED, why=why, detail=detail)
            return agent.rollout(task, Score(None, {}, lost))
        return replace(agent.rollout(task, None), episode=replace(ended.record, fault=ended.why))

    def _why_unscored(self, agent: AgentEpisode, ended: _Ended) -> str | None:
        """Why an episode says nothing about the policy; None if it does."""
        failed = agent.failed or (agent.tools and agent.tools.failed)
        if failed:
            return f"{failed.reason}: {failed}"
        if ended.ours:
            return ended.why
        if not agent.completions:
            return ended.why or "agent-failed: it asked for no completion, or kept none"
        return ended.why if ended.why and self._env.failure == "unscored" else None

    def _warn_of_ignored(self, agent: AgentEpisode) -> None:
        if agent.ignored and not self._has_warned:
            self._has_warned = True
            names = ", ".join(sorted(agent.ignored))
            warnings.warn(
                f"the agent sends {names}, which have no effect here: completions are sampled with "
                "the settings of the run, which training has to know, and no form of them is "
                "enforced. This warning comes once",
                RuntimeWarning,
                stacklevel=2,
            )

    def _run(self, task: Task, agent: AgentEpisode, call: AgentCall) -> _Ended:
        """Run the program of an episode, and take its answer."""
        try:
            with self._env.open(task) as episode:
                agent.tools = tools = EpisodeTools(episode)
                call.prompt = episode.prompt
                call.take_tools(tools)
                ended = self._run_program(agent, call)
                tools.close()
                if not ended.why:
                    answer = agent.answer if ended.answer is None else ended.answer
                    episode.reply(
                        PolicyTurn(answer), last="tokens" if agent.truncated else "answer"
                    )
                return replace(ended, record=episode.record)
        except Unscored as error:
            return _Ended(None, f"{error.reason}: {error}", getattr(error, "trace", ""), ours=True)

    def _run_program(self, agent: AgentEpisode, call: AgentCall) -> _Ended:
        """Run the program until it ends or has to be stopped."""
        results: queue.SimpleQueue[_Ended] = queue.SimpleQueue()

        def run() -> None:
            results.put(_outcome(self._env.program, call))

        agent.start()
        DaemonThread(run, name=f"agent-{call.task}", owner="agent")
        while True:
            try:
                return results.get(timeout=_LOOK_S)
            except queue.Empty:
                pass
            why = ""
            if agent.own_s > self._step_s:
                why = f"time limit: the agent took more than {self._step_s:g} s without a request"
            elif agent.never_ends:
                why = f"the agent never ends: {agent.refused} requests beyond its limits"
            elif agent.closed or call.stopped.is_set():
                why = "stopped"
            if why:
                agent.close()
                call.stop()
                deadline = time.monotonic() + _END_S
                while results.empty() and time.monotonic() < deadline:
                    time.sleep(_LOOK_S)
                return _Ended(None, why)


def _outcome(program: AgentProgram, call: AgentCall) -> _Ended:
    """Run a program, in a thread of its own."""
    with foreign_code(BaseException) as errors:
        answer = _run_in_loop(program, call) if is_async(program) else program(call)
        if answer is not None and not isinstance(answer, str):
            raise TypeError(
                f"the program gave {brief(answer)}; it must give its answer as a text, or None"
            )
        return _Ended(answer)
    error = errors[0]
    if isinstance(error, (Unscored, UsageError, SandboxFailed, MemoryError)):
        return _Ended(None, f"{type(error).__name__}: {error}", ours=True)
    if isinstance(error, AgentFailed):
        return _Ended(None, f"agent-failed: {error}")
    name, message, trace = describe_error(error)  # which the policy may have caused
    return _Ended(None, f"agent-failed: {name}: {message}", trace)


def _run_in_loop(program: AgentProgram, call: AgentCall) -> object:
    """Run a coroutine function in the loop that all programs share; it is cancelled when the
    episode is stopped."""
    running: Future[object] = loop_thread("agents").submit(program, call)  # type: ignore[arg-type]

    def stop() -> None:
        running.cancel()

    call.on_stop(stop)
    try:
        return running.result()
    except CancelledError:
        raise AgentFailed("it was stopped") from None
