"""An episode with tools or a simulated user: its state, its thread, its budgets,
and the record of what was called.

Everything of an episode that the author wrote (`setup`, tools, `user`, `final`, the state's
`close`) runs in one thread of the episode's own, one after another.  So a connection that belongs
to a thread works, episodes do not wait for each other, and a call that hangs costs its own episode.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rlvr.environment.episode import (
    AWAITED_AT_ONCE,
    EpisodeFailed,
    EpisodeLimits,
    TurnLike,
    TurnsEpisode,
    is_cut,
    policy_turn,
)
from rlvr.environment.tools import Tool, by_name, clean, text_of, tools_of, unrecordable
from rlvr.episode import Ask, EpisodeRecord, EpisodeTurn, ToolCall, reply_message
from rlvr.errors import RlvrError, ToolError, Unscored, UsageError, brief, describe_error
from rlvr.types import Completion, Task, is_async
from rlvr.workers.thread import DaemonThread
from rlvr.workers.threads import settle

if TYPE_CHECKING:
    from rlvr.environment.base import Environment

__all__ = ["ToolEpisode", "each_member"]

_T = TypeVar("_T")

_GRACE_S: Final = 2.0  # after what a call works with was killed
_LEAST_WAIT_S: Final = 0.01
_OWN_S: Final = 60.0  # that `setup`, `user` and `final` may take, and twice what a call may
# For an author's `close`, which may delete a folder or stop a container; then the episode goes on
# without it.
_CLOSE_S: Final = 10.0
_LOST_MOST: Final = 256  # threads that hang in Python code, which cannot be ended
_LONGEST_ID: Final = 64  # characters of a call's id
_LATE: Final = "error: time limit"

_lost = itertools.count(1)


def _no_seconds() -> float:
    return 0.0


class _LateError(Exception):
    """Something took longer than it may."""


class _TooLong(EpisodeFailed):
    """A method of the environment took longer than it may."""


class _Thread:
    """A daemon thread that does one job after another; it begins with the first."""

    def __init__(self, name: str) -> None:
        self._name, self._jobs = name, SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]()
        self._thread: DaemonThread | None = None
        self.lost = False

    def submit(self, job: Callable[[], _T]) -> Future[_T]:
        """Do a job after those that were given before.

        Args:
            job: without arguments.
        """
        if self._thread is None:
            self._thread = DaemonThread(_serve, self._jobs, name=self._name, owner="episode")
        future: Future[_T] = Future()
        self._jobs.put((future, job))
        return future

    def end(self) -> None:
        """End after the jobs that were given."""
        self._jobs.put(None)


def _serve(jobs: SimpleQueue[tuple[Future[object], Callable[[], object]] | None]) -> None:
    runner = asyncio.Runner()  # its loop is made for the first coroutine
    try:
        while (work := jobs.get()) is not None:
            future, job = work
            # A job's exception is the caller's; the thread goes on.
            settle(future, partial(_contain, partial(_do, job, runner)))
            # The thread waits for the next job, and would hold these until then.
            del work, future, job
    finally:
        runner.close()


def _do(job: Callable[[], object], runner: asyncio.Runner) -> object:
    result = job()
    return runner.run(result) if inspect.iscoroutine(result) else result


def _contain(call: Callable[[], object]) -> object:
    """A call of an author's code, whose exceptions are all of `Exception`."""
    try:
        return call()
    except Exception:
        raise
    # exit(), a cancellation: no thread of ours is to end
    except BaseException as error:  # noqa: BLE001
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


@dataclasses.dataclass(frozen=True, slots=True)
class _Running:
    """Something that was begun; `ends` is when its time is over, by the monotonic clock, later by
    the seconds `apart_s()`, which have a limit of their own."""

    future: Future[Any]
    thread: _Thread
    ends: float
    apart_s: Callable[[], float] = _no_seconds

    @property
    def left_s(self) -> float:
        """Seconds until its time is over."""
        return self.ends + self.apart_s() - time.monotonic()


def _wait_for(future: Future[Any], seconds: float) -> None:
    """Wait until it is done; `concurrent.futures.wait` takes twice as long for a short call."""
    with suppress(FutureTimeout):
        future.exception(timeout=seconds)


class ToolEpisode(TurnsEpisode):
    """An episode with tools, a simulated user, or a state.

        with env.open(task) as episode:
            replies = episode.reply('<tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call>')
            episode.reply("The answer is 1.")     # None: it is over
            record = episode.record

    Args:
        env: the environment.
        task: of the episode.

    Raises:
        EpisodeFailed: `setup` raised or took too long.
        UsageError: its tools cannot be used, such as two with one name.
    """

    @classmethod
    def add_options(cls, kind: type[Environment]) -> None:
        """Make the fields of `EpisodeLimits` options of an environment, unless it has them."""
        # Only the default is raised; what the author set stays.
        if kind.max_concurrent == AWAITED_AT_ONCE:
            kind.max_concurrent = 128  # they mostly wait for a model
        bases = [getattr(base, "__dataclass_fields__", {}) for base in kind.__mro__[1:]]
        present = set(inspect.get_annotations(kind)).union(*bases)
        added = [limit for limit in dataclasses.fields(EpisodeLimits) if limit.name not in present]
        for limit in added:
            setattr(kind, limit.name, kind.__dict__.get(limit.name, limit.default))
        kind.__annotations__ = inspect.get_annotations(kind) | {
            limit.name: type(limit.default) for limit in added
        }

    def __init__(self, env: Environment, task: Task) -> None:
        super().__init__(env, task)
        self.limits = env.limits
        self._turns: list[EpisodeTurn] = []
        self._ids: set[str] = set()
        self._calls = 0
        self._seconds = 0.0
        self._final: object = None
        self._outputs: dict[str, str] = {}
        self._fault = ""
        self._over = ""  # why no call can be made any more
        self._closed = False
        self._thread = _Thread(f"episode-{task.id}")
        self._busy: list[Future[object]] = []
        self._state: Any = None
        try:
            self._state = self._call_own("setup", partial(env.setup, task))
            self.tools = by_name(self._call_own("tools", lambda: list(_tools(env, self._state))))
        except BaseException:
            # The state may be open already.
            self.close()
            raise

    @property
    def record(self) -> EpisodeRecord:
        end = self.end or "turns"
        return EpisodeRecord(tuple(self._turns), end, self._final, self._outputs, self._fault)

    def completion(self, length_tokens: int | None = None) -> Completion:
        record = self.record
        return Completion(record.answer, length_tokens, is_cut(record.end), record)

    def reply(self, turn: TurnLike, *, last: str = "") -> list[dict[str, object]] | None:
        """Take a turn of the policy: make its calls, or let the simulated user answer.

        Args:
            turn, last: see `Episode.reply`.
        """
        self._require_open()
        reply = policy_turn(turn)
        index = len(self._turns)
        self._turns.append(EpisodeTurn(reply.text))
        asks = [
            # Ids that are the same each time, so that a replay has them too.
            (ask, self._own_id(ask.id, f"c{index:04d}{number:04d}"))
            for number, ask in enumerate(reply.calls)
        ]
        for _, together in itertools.groupby(asks, self._companions()):
            calls = self._make(list(together))
            before = self._turns[index]
            self._turns[index] = EpisodeTurn(before.text, (*before.calls, *calls))
        # After the last turn nothing is said any more, so no user is asked.
        is_last = bool(last) or index + 1 >= (self.limits.turns or math.inf)
        if not reply.calls and not is_last and (user := self._user()) is not None:
            return [user]
        if not reply.calls or is_last:
            self.finish(last or ("turns" if reply.calls else "answer"))
            return None
        return [reply_message(call) for call in self._turns[index].calls]

    def _user(self) -> dict[str, object] | None:
        """The simulated user's message; None at the end.  One that takes too long follows a turn of
        the policy, which must not gain by it: the episode is WRONG."""
        try:
            user = self._call_own("user", partial(self.env.user, self.task, self.record.messages))
        except _TooLong as late:
            self._fault = f"time limit: {late}"
            return None
        if user is None:
            return None
        if not isinstance(user, str):
            raise EpisodeFailed(
                f"user gave {brief(user)}; it must give a text, or None to end the episode"
            )
        self._turns[-1] = dataclasses.replace(self._turns[-1], user=clean(user))
        return {"role": "user", "content": clean(user)}

    def _require_open(self) -> None:
        if self.end or self._closed:
            raise UsageError(f"the episode of task {self.task.id!r} is over; open another one")

    def call(self, name: str, arguments: Mapping[str, object], *, id: str = "") -> ToolCall:
        """Make one call outside of a turn's text, for callers that read calls themselves.  It is
        one turn of the record.

        Args:
            name: of the tool.
            arguments: by name.
            id: of the call; "" for a number.

        Raises:
            EpisodeFailed: the environment failed.
        """
        self._require_open()
        own_id = self._own_id(id, f"c{len(self._turns):04d}0000")
        [call] = self._make([(Ask(name, arguments, id=id), own_id)])
        self._turns.append(EpisodeTurn("", (call,)))
        return call

    def finish(self, end: str = "answer") -> None:
        """End the episode: read what `verify` needs of the state.  Idempotent.

        Args:
            end: how it ended, see `EpisodeRecord`.

        Raises:
            EpisodeFailed: `final` raised, took too long, or gave what JSON cannot hold.
        """
        if self.end:
            return
        self.end = end
        # The state is gone: `final` could only read what is left.
        if self._over:
            self._lose_end(self._over)
            return
        # Frozen first: what still runs must not change what is graded.
        each_member(self._state, "freeze")
        self._final = self._read_end()

    def _as_json(
        self, what: str, read: Callable[[], object], apart_s: Callable[[], float] = _no_seconds
    ) -> object:
        """What a method of the environment gives, as a record holds it; `apart_s` as in
        `_Running`."""
        value = self._call_own(what, read, apart_s)
        try:
            # Through JSON, so that live and replayed episodes give `verify` the same.
            return json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise EpisodeFailed(
                f"{what} gave {brief(value)}, which JSON cannot hold: {error}"
            ) from error

    def _read_end(self) -> object:
        """What `verify` needs of the state."""
        return self._as_json("final", partial(self.env.final, self.task, self._state))

    def _lose_end(self, why: str) -> None:
        """The state is gone, by the policy's own call."""

    def files(self) -> dict[str, bytes]:
        """See `Episode.files`."""
        session = self._session()
        files: dict[str, bytes] = {} if session is None else session.outputs(("**",))
        return files

    def _session(self) -> Any:
        """What of the state leaves files."""
        return next(
            (member for member in _members(self._state) if hasattr(member, "outputs")), None
        )

    def close(self) -> None:
        """Close the state and end the thread.  Does not wait for what hangs.  Idempotent."""
        if self._closed:
            return
        self._closed = True
        state, self._state = self._state, None
        # A call hangs: what it works with is killed, or closing would wait for it.
        if any(not future.done() for future in self._busy):
            each_member(state, "kill")
            if state is None:  # `setup` hangs, and may still give one
                self._busy[0].add_done_callback(_closed_late)
        # its `close` may wait for the same lock, so it gets a thread of its own
        if self._thread.lost:
            self._thread.end()
            self._thread = _Thread("episode-close")
        if state is not None:
            closing = self._thread.submit(partial(_close, state))
            with suppress(FutureTimeout):
                closing.exception(timeout=_CLOSE_S)
        self._thread.end()

    # ---------------------------------------------------------------------------------------- calls

    def _own_id(self, asked: str, own: str) -> str:
        """The id of a call: the policy's, unless it is long or another call of the episode has
        it."""
        asked = clean(asked)
        call_id = own if not asked or asked in self._ids or len(asked) > _LONGEST_ID else asked
        self._ids.add(call_id)
        return call_id

    def _companions(self) -> Callable[[tuple[Ask, str]], object]:
        """The key by which calls that run side by side are grouped; any other call is alone."""
        numbers = itertools.count()

        def key(asked: tuple[Ask, str]) -> Any:
            tool = self.tools.get(asked[0].name)
            return next(numbers) if tool is None or not tool.parallel else str(tool.is_async)

        return key

    def _make(self, asks: Sequence[tuple[Ask, str]]) -> list[ToolCall]:
        """Make calls side by side, each with its id, or say what is wrong with them; in their
        order."""
        calls: list[ToolCall] = []
        accepted: list[int] = []
        for ask, own_id in asks:
            # Before anything is called: what cannot be recorded cannot be replayed.
            if not ask.fault and (fault := unrecordable(ask.arguments)):
                ask = dataclasses.replace(ask, fault=fault)
            arguments = clean(dict(ask.arguments)) if not ask.fault else {}
            name = clean(ask.name)[:200]
            refused = self._why_refused(ask, name, arguments)
            reply = self._cut(f"error: {refused}") if refused else ""
            if not refused:
                self._calls += 1
                accepted.append(len(calls))
            calls.append(ToolCall(name, arguments, reply, True, own_id))
        began = time.monotonic()
        # At least a twentieth of a second, so that the last call has a chance.
        limit_s = min(
            self.limits.call_seconds,
            max(0.05, self.limits.episode_seconds - self._seconds),
        )
        tools = [self.tools[calls[at].name] for at in accepted]
        functions = [
            partial(tool.function, **calls[at].arguments)
            for at, tool in zip(accepted, tools, strict=True)
        ]
        under_way = self._start_all(functions, limit_s)
        for at, tool, running in zip(accepted, tools, under_way, strict=True):
            reply, error = self._reply(tool, running)
            took_s = round(time.monotonic() - began, 4)
            text = self._cut(clean(reply))
            calls[at] = dataclasses.replace(calls[at], reply=text, error=error, seconds=took_s)
        # Wall time of all together: they ran side by side.
        if accepted:
            self._seconds += time.monotonic() - began
        return calls

    def _why_refused(self, ask: Ask, name: str, arguments: dict[str, object]) -> str:
        """Why a call is not made; "" if it is.  A call that is refused counts too, so that refusals
        end."""
        names = ", ".join(self.tools) or "none"
        if self._calls >= self.limits.calls:
            return f"no calls are left, all {self.limits.calls} are used; answer now"
        if ask.fault or name not in self.tools:
            self._calls += 1
            return ask.fault or f"there is no tool {name[:50]!r}; there is {names}"
        if fault := self.tools[name].fault(arguments) if self.tools[name].checked else "":
            self._calls += 1
            return fault
        if self._over:
            return self._over
        if self._seconds >= self.limits.episode_seconds:
            return (
                f"no time is left, all {self.limits.episode_seconds:g} seconds of calls are used; "
                "answer now"
            )
        return ""

    def _reply(self, tool: Tool, running: _Running) -> tuple[str, bool]:
        try:
            return text_of(self._wait(running, kills=True)), False
        # The policy's own call was too slow: it is told so.
        except _LateError:
            return _LATE, True
        except ToolError as fault:
            return f"error: {fault}", True
        except Unscored:
            raise
        except Exception as raised:  # the author's code may raise anything
            raise _failure_of(f"the tool {tool.name!r}", raised) from raised

    def _cut(self, reply: str) -> str:
        """A reply within `reply_chars`: its beginning and its end."""
        limit = self.limits.reply_chars
        if len(reply) <= limit:
            return reply
        mark = f"\n… {len(reply) - limit} characters left out …\n"
        # Two thirds from the beginning, one from the end, where results stand.
        head = max(0, (limit - len(mark)) * 2 // 3)
        tail = max(0, limit - len(mark) - head)
        return (reply[:head] + mark + reply[len(reply) - tail :])[:limit] if tail else reply[:limit]

    # ------------------------------------------------------------------------ the author's own code

    def _call_own(
        self, what: str, function: Callable[[], object], apart_s: Callable[[], float] = _no_seconds
    ) -> Any:
        """A method of the environment, whose failure is ours."""
        limit_s = max(_OWN_S, 2 * self.limits.call_seconds)
        try:
            return self._call_limited(function, limit_s, kills=what != "setup", apart_s=apart_s)
        except _LateError:
            raise _TooLong(f"{what} of {self.env.id} took more than {limit_s:g} s") from None
        except RlvrError:
            raise
        except Exception as raised:  # the author's code may raise anything
            raise _failure_of(f"{what} of {self.env.id}", raised) from raised

    def _call_limited(
        self,
        function: Callable[[], object],
        limit_s: float,
        *,
        kills: bool,
        apart_s: Callable[[], float] = _no_seconds,
    ) -> object:
        """Run something in the episode's thread; at its limit, a coroutine is cancelled, and the
        state killed.

        Raises:
            _LateError: it took longer.
        """
        started = self._start(function, limit_s, self._thread)
        running = dataclasses.replace(started, apart_s=apart_s)
        self._busy = [running.future]
        return self._wait(running, kills=kills)

    def _start_all(
        self, functions: Sequence[Callable[[], object]], limit_s: float
    ) -> list[_Running]:
        """Begin calls side by side: async ones in the episode's loop, others in threads of their
        own."""
        # One call needs no thread of its own.
        if len(functions) < 2:
            started = [self._start(function, limit_s, self._thread) for function in functions]
        elif is_async(functions[0]):
            futures: list[Future[object]] = [Future() for _ in functions]
            ends = time.monotonic() + limit_s + _GRACE_S
            together = partial(_all_awaited, functions, futures, limit_s)
            # The batch has more time than each call: a call that is late has its own error.
            batch = self._start(together, limit_s + 2 * _GRACE_S, self._thread)
            started = [dataclasses.replace(batch, future=future, ends=ends) for future in futures]
        else:
            threads = [_Thread("episode-call") for _ in functions]
            started = [
                self._start(function, limit_s, thread)
                for function, thread in zip(functions, threads, strict=True)
            ]
            # They end after their one call.
            for thread in threads:
                thread.end()
        self._busy = [running.future for running in started]
        return started

    def _start(self, function: Callable[[], object], limit_s: float, thread: _Thread) -> _Running:
        """Begin something in a thread."""

        def job() -> Any:
            result = function()
            return _await_result(result, limit_s) if inspect.isawaitable(result) else result

        # A coroutine is cancelled in time; the rest is for what does not obey.
        patience_s = limit_s + (_GRACE_S if is_async(function) else 0)
        future: Future[object] = Future()
        # Its thread hangs: nothing more can be run there.
        if thread.lost:
            future.set_exception(_LateError())
        else:
            future = thread.submit(job)
        return _Running(future, thread, time.monotonic() + patience_s)

    def _wait(self, running: _Running, *, kills: bool) -> object:
        """What something gives, see `_limited`."""
        future = running.future
        _wait_for(future, max(0.0, running.left_s))
        while not future.done() and running.left_s > 0:  # some of the time did not count
            _wait_for(future, max(_LEAST_WAIT_S, running.left_s))
        if future.done():
            return future.result()
        # What the tool works with ends, so the call comes back.
        if kills and each_member(self._state, "kill"):
            self._over = "an earlier call was over its time limit, and what it worked with is gone"
        _wait_for(future, _GRACE_S)
        if not future.done():
            running.thread.lost = True
            self._over = "an earlier call was over its time limit and has not ended"
            # Python has no way to end a thread, and each holds memory.
            if next(_lost) > _LOST_MOST:
                raise RlvrError(
                    f"{_LOST_MOST} calls of tools hang in this process, the last in {self.env.id}: "
                    "Python code cannot be ended from outside; let tools work in a sandbox "
                    "session, or bound them"
                )
        raise _LateError


async def _await_result(found: Any, limit_s: float) -> object:
    task = asyncio.ensure_future(found)
    done, _ = await asyncio.wait([task], timeout=limit_s)
    if not done:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            # It may catch its cancellation.
            await asyncio.wait([task], timeout=_GRACE_S / 2)
        raise _LateError
    return task.result()


async def _all_awaited(
    functions: Sequence[Callable[[], object]], futures: Sequence[Future[object]], limit_s: float
) -> None:
    """Await all, each of which has a future of its own."""

    async def await_one(function: Callable[[], object]) -> object:
        return await _await_result(function(), limit_s)

    def give(future: Future[object], task: asyncio.Task[object]) -> None:
        settle(future, partial(_contain, task.result))

    tasks = [asyncio.ensure_future(await_one(function)) for function in functions]
    for task, future in zip(tasks, futures, strict=True):
        task.add_done_callback(partial(give, future))
    # Each future has the exception of its own call, so none is raised here.
    await asyncio.gather(*tasks, return_exceptions=True)


def _tools(env: Environment, state: object) -> Sequence[Tool]:
    """The tools of an episode; where `tools` is an option, the methods that are marked as such."""
    return env.tools(state) if callable(env.tools) else tools_of(env, state)


def _failure_of(where: str, raised: Exception) -> EpisodeFailed:
    kind, message, trace = describe_error(raised)
    return EpisodeFailed(f"{where} raised {kind}: {message}", trace)


def _members(state: object) -> Iterator[Any]:
    """A state, and what it consists of: the items of a tuple, list or mapping, the fields of a
    dataclass."""
    yield state
    if isinstance(state, (tuple, list)):
        yield from state
    elif isinstance(state, Mapping):
        yield from state.values()
    elif dataclasses.is_dataclass(state) and not isinstance(state, type):
        yield from (getattr(state, field.name, None) for field in dataclasses.fields(state))


def each_member(state: object, method: str) -> int:
    """Call a method without arguments on all of a state that have it.  What they raise is dropped.

    Args:
        state: of an episode.
        method: name of the method.

    Returns:
        How many have it.
    """
    count = 0
    for member in _members(state):
        method_of_member = getattr(member, method, None)
        # Bound methods of instances only; a coroutine would have to be awaited.
        if (
            callable(method_of_member)
            and not isinstance(member, type)
            and not inspect.iscoroutinefunction(method_of_member)
        ):
            count += 1
            with suppress(Exception):
                method_of_member()
    return count


def _close(state: object) -> object:
    """Close a state; what its `close` raises is dropped, as the episode is over.  Gives what is to
    be awaited."""
    waiting = []
    # In reverse: what was made last may use what was made before.
    for member in reversed(list(_members(state))):
        close = getattr(member, "close", None) or getattr(member, "aclose", None)
        if callable(close) and not isinstance(member, type):
            with suppress(Exception):
                done = close()
                if inspect.isawaitable(done):
                    waiting.append(done)
    return _all(waiting) if waiting else None


async def _all(waiting: list[Any]) -> None:
    await asyncio.gather(*waiting, return_exceptions=True)


def _closed_late(opened: Future[object]) -> None:
    """Close a state that `setup` gave after its time."""
    if opened.exception() is None and inspect.iscoroutine(left := _close(opened.result())):
        # There is no loop any more that could await it.
        left.close()
