"""`Sandbox`: runs untrusted programs, thousands of them, for a calling process of any size."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import math
import os
import re
import resource
import signal as signals
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from rlvr.errors import IsolationUnavailable, SandboxFailed, UsageError, brief
from rlvr.sandbox import probe
from rlvr.sandbox.compiling import Compiler, Files, files_of
from rlvr.sandbox.guest import calls as guest_calls
from rlvr.sandbox.guest.replies import RECORD, unpack_reply
from rlvr.sandbox.guest.values import NotAValue
from rlvr.sandbox.interaction import Interaction, Talk
from rlvr.sandbox.levels import LEVELS, level_here
from rlvr.sandbox.outputs import Lent, Output, Readable, memfd
from rlvr.sandbox.pool import MIB, SlotPool
from rlvr.sandbox.records import (
    CallRun,
    Ending,
    Guarantee,
    Isolation,
    Limits,
    Program,
    ProgramCall,
    Run,
    TestRun,
    TestSuite,
    holding,
)
from rlvr.sandbox.sessions import Session
from rlvr.sandbox.slots import RunRequest, pack_program
from rlvr.sandbox.toolchains import find_packages, find_python
from rlvr.validate import require_one_of, require_optional_whole, require_processes
from rlvr.workers import usable_cores
from rlvr.workers.threads import Threads

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import SlotMessage

__all__ = ["SHORTEST_S", "Sandbox"]

_T = TypeVar("_T")

SHORTEST_S: Final = 0.05
"""Seconds; what is left of a total is not worth a run below that."""
# Limits of the host's own: what they stop says nothing about the program.
_OF_THE_HOST: Final[Mapping[int, tuple[Literal["memory", "disk"], str]]] = {
    resource.RLIMIT_DATA: ("memory", "d"),
    resource.RLIMIT_AS: ("memory", "v"),
    resource.RLIMIT_FSIZE: ("disk", "f"),
}
_CASES: Final = 32  # of one request
# Of the cases of one request; a first case that is larger goes alone.
_INPUT_BYTES: Final = 4 << 20
# Of the values that a program's functions return, all of a run together: as long as a worker's
# reply may be (`workers.pool.REPLY_MIB`).
_ANSWERS_MIB: Final = 64
# a program that gets no core has up to so many times its wall seconds (guest/box.py)
_STARVED: Final = 2
# a program whose functions are called is a module; its __main__ part does not run
_SOLUTION: Final = "solution.py"


class Sandbox:
    """Runs untrusted programs.  Safe to use from threads and asyncio; pickles as its settings.

        with Sandbox() as sandbox:
            run = sandbox.run(Program("python", "print(int(input()) + 1)"), stdin="41")
            run.ending, run.text                     # Ending.OK, "42\\n"

    Args:
        limits: of runs that are given none of their own; None for the defaults of `Limits`.
        workers: how many programs may run at once; "auto" for one more than there are usable cores,
            so that the cores stay busy while this process prepares a run.
        python: path of an interpreter for Python programs, or of the folder of a virtual
            environment, all of whose packages they may then import; None for the interpreter of
            this process.
        packages: distributions that programs may import beside the standard library: ("numpy",).
        allow_missing: names of guarantees that may be missing (docs/reference/sandbox.md); they are
            then in `run.isolation.waived`.
        sessions: how many sessions may be open at once; None for any number.
        sessions_memory_mib: MiB that all open sessions together may take, by their limits; None for
            no such limit.
        level: "namespaces", or "restricted" for a host that has none (Linux 5.13 or newer):
            Landlock, seccomp and sampling, and fewer guarantees (docs/reference/sandbox.md).
        folders: writable folders at the root, such as ("/app", "/logs").  They are folders of the
            working directory too, `app` and `logs`; only the level "namespaces" has them.

    Raises:
        UsageError: a setting that cannot work.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        workers: int | str = "auto",
        *,
        python: str | None = None,
        packages: Sequence[str] = (),
        allow_missing: Iterable[str] = (),
        level: str = "namespaces",
        sessions: int | None = None,
        sessions_memory_mib: int | None = None,
        folders: Sequence[str] = (),
    ) -> None:
        # A text is a sequence of letters, so this slip would pass unseen.
        if isinstance(packages, str) or isinstance(allow_missing, str):
            raise UsageError(
                "packages and allow_missing take several names: ('numpy',), not 'numpy'"
            )
        if limits is not None and not isinstance(limits, Limits):
            raise UsageError(
                f"limits is {brief(limits)}; it must be a Limits, such as Limits(cpu_s=2)"
            )
        self.limits = limits or Limits()
        self.workers = (
            usable_cores() + 1
            if workers == "auto"
            else require_processes("workers", workers, 1, hint="or 'auto'")
        )
        self.python, self.packages = python, tuple(packages)
        self.allow_missing = frozenset(allow_missing)
        for name in self.allow_missing:
            require_one_of("a name in allow_missing", name, probe.PROMISES)
        require_one_of("level", level, LEVELS)
        self.level = level
        self.folders = _checked_folders(folders, level)
        self.sessions = require_optional_whole("sessions", sessions, 1, none="no limit")
        self.sessions_memory_mib = require_optional_whole(
            "sessions_memory_mib", sessions_memory_mib, 1, none="no limit"
        )
        # Weak: a session that is forgotten must not be kept open by its sandbox.
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._opening = threading.Lock()
        interpreter, installed = find_python(python), find_packages(self.packages, python)
        number = ".".join(map(str, interpreter.version))
        versions = {"python of programs": number, **installed.versions}
        # The compiler runs in the same boxes, so it is given the method.
        self._compiler = Compiler(self._execute, level, versions)
        self._pool = SlotPool(
            interpreter,
            installed,
            self._compiler.caches,
            self.limits,
            self.workers,
            level,
            self.folders,
        )
        self._numbers = itertools.count(1)
        self._checking = threading.Lock()
        self._isolation: Isolation | None = None
        self._threads: Threads | None = None
        # Bound to the pool and not to us: else this object would never be collected.
        weakref.finalize(self, self._pool.close)

    def __reduce__(self) -> Any:
        settings: dict[str, object] = {
            "python": self.python,
            "packages": self.packages,
            "allow_missing": self.allow_missing,
        }
        settings |= {
            "level": self.level,
            "folders": self.folders,
            "sessions": self.sessions,
            "sessions_memory_mib": self.sessions_memory_mib,
        }
        return _again, (self.limits, self.workers, settings)

    def __enter__(self) -> Sandbox:
        return self.warm()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def warm(self) -> Sandbox:
        """Start one slot now and find out what it isolates.

        Raises:
            IsolationUnavailable: this host cannot keep a promise that was not waived.
            SandboxFailed: no process can be started.
        """
        self.isolation()
        return self

    def close(self) -> None:
        """End every process; runs that are under way end IE.  Idempotent; a later run starts new
        processes."""
        self._pool.close()
        self._threads = None  # they end after the calls that wait for them

    def check(self, full: bool = False) -> list[Guarantee]:
        """Attack each guarantee; returns them with the mechanism that keeps them, None where the
        attack succeeded.

        Args:
            full: try every attack that we know, which takes some seconds; `Guarantee.weak` then
                names those that got past a limit which holds against the others.
        """
        return probe.probe_guarantees(
            self._execute, level_here(self.level), self._pool.memory, full
        )

    def isolation(self) -> Isolation:
        """What runs are isolated by; the first call finds it out with `check`.

        Raises:
            IsolationUnavailable, SandboxFailed: see `warm`.
        """
        # Two threads that begin at once must not both run the attacks.
        with self._checking:
            if self._isolation is None:
                guarantees = self.check()
                waived, accepted = set(), self.allow_missing | set(LEVELS[self.level].missing)
                for guarantee in guarantees:
                    if guarantee.mechanism is None:
                        # where nothing holds, nothing can run
                        some = any(g.mechanism for g in guarantees)
                        if guarantee.name not in accepted or not some:
                            # Nothing may run in a sandbox that keeps too few promises.
                            self._pool.close()
                            raise IsolationUnavailable(
                                guarantee.name, guarantee.found, guarantee.remedy, waivable=some
                            )
                        waived.add(guarantee.name)
                mechanisms = {g.name: g.mechanism for g in guarantees if g.mechanism is not None}
                self._isolation = Isolation(mechanisms, frozenset(waived), self.level)
            return self._isolation

    def run(
        self,
        program: Program,
        stdin: bytes | str = b"",
        *,
        limits: Limits | None = None,
        judging: bool = False,
    ) -> Run:
        """Run a program to its end.

        Args:
            program: what to run.
            stdin: its standard input; a text is sent as UTF-8.
            limits: instead of the sandbox's own.
            judging: the exit code is a verdict, so an uncaught exception of Python gives 103 and
                not 1.

        Raises:
            IsolationUnavailable: see `warm`.  Any other failure of ours is a run that ended IE.
        """
        header, files, built = self._compile(program)
        # After a CE there is nothing to run, and the compilation stands for the run.
        if built.ending is not Ending.OK:
            return built
        return self._execute({**header, "judging": judging}, files, stdin, limits or self.limits)

    def run_cases(
        self,
        program: Program,
        stdins: Sequence[bytes | str],
        *,
        limits: Limits | None = None,
        stop: bool = True,
        total_cpu_s: float = math.inf,
        total_wall_s: float = math.inf,
    ) -> list[Run]:
        """Run a program on one standard input after the other, each time in a new process with an
        empty scratch.

        The runs are those of as many calls of `run`, with half the work in this process.

        Args:
            program: what to run.
            stdins: see `run`.
            limits: of each run, instead of the sandbox's own.
            stop: end with the first run that does not end OK.
            total_cpu_s, total_wall_s: seconds for all runs together; those without a core are not
                counted.

        Returns:
            The runs on the first inputs, at least one.  There are fewer than inputs where a run
            failed, a total is used up, or what was written is too much to be kept with more: ask
            for the others then.

        Raises:
            IsolationUnavailable: see `warm`.
        """
        header, files, built = self._compile(program)
        if built.ending is not Ending.OK:
            return [built]
        left_s = total_cpu_s, total_wall_s
        limits = (limits or self.limits).within(*left_s)
        # No more at once than one message has room for.
        stdins = _together(stdins)
        options = {"stop": stop, "left": [*left_s, SHORTEST_S]}
        return self._execute_cases(header, files, stdins, limits, options)

    def compile(
        self, program: Program, *, cpu_s: float = math.inf, wall_s: float = math.inf
    ) -> Run:
        """Compile a program now, so that its runs need not.

        Args:
            program: what to compile.
            cpu_s, wall_s: seconds that it may take, if that is less than the language's own limits.

        Returns:
            A run that ended OK, with the time that compiling took, or CE or IE.  A language without
            a compiler, and a program that was compiled before, give OK with all times 0.
        """
        return self._compile(program, cpu_s, wall_s)[2]

    def _compile(
        self, program: Program, cpu_s: float = math.inf, wall_s: float = math.inf
    ) -> tuple[dict[str, object], Files, Run]:
        """See `Compiler.compiled`; the sandbox is warm then."""
        isolation = self.isolation()
        header, files, built = self._compiler.compiled(program, cpu_s, wall_s)
        return header, files, dataclasses.replace(built, isolation=isolation)

    def call(
        self,
        program: Program,
        calls: Sequence[ProgramCall],
        *,
        limits: Limits | None = None,
        case_cpu_s: float | None = None,
        look: Callable[[Readable], bool] | None = None,
    ) -> CallRun:
        """Load a Python program as a module and call its functions, one after the other, in one
        process.

        Return values come back as plain data, which is read when it is asked for.  Expected values
        are never sent to the program.

        Args:
            program: in Python.
            calls: what to call, in order.
            limits: of all the calls together, instead of the sandbox's own.
            case_cpu_s: CPU seconds for each call, within `limits` for all of them; None for no such
                limit.
            look: called now and then, from 0.1 s on, with what has been written so far, for the
                reader (`read_aside`); once it returns True the run is stopped, and its ending says
                nothing.

        Raises:
            UsageError: the program is not in Python, or an argument is no plain value.
        """
        self.isolation()
        try:
            request = guest_calls.requests(
                [(call.name, call.args, dict(call.kwargs), call.then) for call in calls]
            )
        except NotAValue as error:
            raise UsageError(
                f"an argument of a call is {error}; only plain data can be passed"
            ) from None
        # Files in memory: the program reads its orders, and writes its results.
        orders, results = memfd(request), memfd(b"")
        fds = {"channel": orders, "results": results}
        look_now = None
        if look is not None:
            # One byte, which `look` sets when what was answered is enough.
            fds["halt"] = memfd(bytes(1))
            look_now = partial(_look, look, results, fds["halt"])
        try:
            header, files = _module(program, "calls")
            options: SlotMessage = {"fds": fds, "case_cpu_s": case_cpu_s, "look": look_now}
            run = self._execute(header, files, b"", limits or self.limits, **options)
            # From here on the output owns the descriptor.
            written = Output.take(fds.pop("results"), _ANSWERS_MIB * MIB)
        finally:
            _close(list(fds.values()))
        return CallRun(run, written, len(calls))

    def test(self, program: Program, suite: TestSuite, *, limits: Limits | None = None) -> TestRun:
        """Run tests against a Python program.  Tests and program have processes that cannot see
        each other.

        The tests' process asks the program's for calls and gets values; expected values never leave
        it.

        Args:
            program: in Python.
            suite: the tests.
            limits: of the program and of the tests, each; instead of the sandbox's own.

        Raises:
            UsageError: the program is not in Python.
        """
        self.isolation()
        results = memfd(b"")
        try:
            with _Streams(b"") as our_streams, _Streams(b"") as their_streams:
                pair = self._pair(
                    program, suite, limits or self.limits, our_streams, their_streams, results
                )
        except BaseException:
            # Taken over by `Output.take` only if all went well.
            os.close(results)
            raise
        return TestRun(*pair, Output.take(results, _ANSWERS_MIB * MIB))

    def _pair(
        self,
        program: Program,
        suite: TestSuite,
        limits: Limits,
        ours: _Streams,
        theirs: _Streams,
        results: int,
    ) -> tuple[Run, Run]:
        """The program's run and the tests', in two boxes of one slot, joined by a socket."""
        header, files = _module(program, "serve")
        tests = {
            "kind": "suite",
            "suite": {
                **dataclasses.asdict(suite),
                "module": list(suite.modules),
                "folder": _modules_of(program),
            },
        }
        descriptors: list[int] = []
        sides: list[tuple[_Streams, int, dict[str, int]]] = [
            # The program's side first: it waits for questions.
            (theirs, theirs.bundle(header, files), {}),
            (ours, ours.bundle(tests, {}), {"results": results}),
        ]
        shared = {"clocks": memfd(bytes(16))}  # of each box, how long its program waited for a core

        def build() -> list[list[RunRequest]]:
            # Called again for a second attempt: the ends of the first one are useless.
            _close(descriptors)
            descriptors[:] = (end.detach() for end in socket.socketpair())
            os.pwrite(shared["clocks"], bytes(16), 0)
            # What the first attempt wrote would stand before the second's.
            _empty(results)
            requests = []
            for side, (streams, bundle, extra) in enumerate(sides):
                streams.rewind()
                # Two programs in one cgroup: each side's clock also counts the other's time.
                message = {**self._message(limits), "partner_cpu_s": limits.cpu_s, "clock": side}
                fds = {
                    **streams.fds,
                    "bundle": bundle,
                    "channel": descriptors[side],
                    **shared,
                    **extra,
                }
                requests.append(RunRequest(message, fds))
            return [requests]

        try:
            [(replies, counts)] = self._pool.run(
                build, [limits], _STARVED * limits.wall, sent=lambda: _close(descriptors)
            )
        except SandboxFailed as error:
            # Neither says anything about the program.
            return self._failed_run(error), self._failed_run(error)
        finally:
            _close([*descriptors, *shared.values()])
        run, tested = (
            self._run_of(reply, counts, streams, limits)
            for reply, streams in zip(replies, (theirs, ours), strict=True)
        )
        return run, tested

    def interact(
        self,
        program: Program,
        interactor: Program,
        *,
        limits: Limits | None = None,
        interactor_limits: Limits | None = None,
        accepts: int = 0,
    ) -> Interaction:
        """Run a program together with an interactor: what each writes, the other reads.  They
        cannot see each other.

        Args:
            program: untrusted.
            interactor: trusted, with its files, such as the test's input.
            limits: of the program, instead of the sandbox's own; `output_mib` also bounds what it
                says.
            interactor_limits: of the interactor, instead of the sandbox's own.
            accepts: the interactor's exit code after which the program may come to its end; after
                any other it is stopped.

        Raises:
            IsolationUnavailable: see `warm`.
        """
        limits, own_limits = limits or self.limits, interactor_limits or self.limits
        header, files, built = self._compile(program)
        header_, files_, built_ = self._compile(interactor)
        # Only if both compile can they talk.
        if built.ending != Ending.OK or built_.ending != Ending.OK:
            return Interaction(built, built_)
        talk = Talk(
            {**self._message(limits), "watch": "talk"},
            {**self._message(own_limits), "watch": "relay"},
        )
        talk.prepare(limits, own_limits, accepts)
        with talk, _Streams(b"") as program_streams, _Streams(b"") as interactor_streams:
            sides = program_streams, interactor_streams
            bundles = (
                program_streams.bundle(header, files),
                # An interactor that raises ends with a code of its own (`user.FAILED`).
                interactor_streams.bundle({**header_, "judging": True}, files_),
            )

            def build() -> list[list[RunRequest]]:
                fds = []
                for streams, bundle in zip(sides, bundles, strict=True):
                    streams.rewind()
                    fds.append({**streams.fds, "bundle": bundle})
                return [[request] for request in talk.requests(*fds)]

            try:
                # Two slots: one box watches one program.
                replies = self._pool.run(
                    build, (limits, own_limits), talk.patience_s, sent=talk.sent
                )
            except SandboxFailed as error:
                return Interaction(self._failed_run(error), self._failed_run(error))
            runs = [
                self._run_of(reply, counts, streams, run_limits)
                for ([reply], counts), streams, run_limits in zip(
                    replies, sides, (limits, own_limits), strict=True
                )
            ]
            return talk.outcome(runs[0], runs[1], limits)

    def _execute(
        self,
        header: Mapping[str, object],
        files: Files,
        stdin: bytes | str,
        limits: Limits,
        *,
        fds: Mapping[str, int] | None = None,
        case_cpu_s: float | None = None,
        look: Callable[[], None] | None = None,
    ) -> Run:
        """One run.  `fds` are memfds that it writes to or reads; `look` is called now and then."""
        message = {"case_cpu_s": case_cpu_s, "collect": header.get("collect")}
        [run] = self._execute_cases(header, files, [stdin], limits, message, fds, look)
        return run

    def _execute_cases(
        self,
        header: Mapping[str, object],
        files: Files,
        stdins: Sequence[bytes | str],
        limits: Limits,
        more: SlotMessage,
        fds: Mapping[str, int] | None = None,
        look: Callable[[], None] | None = None,
    ) -> list[Run]:
        """The first runs on these inputs, in one box; `more` is of the message to it."""
        # What a whole problem has left, if its caller said so.
        left_s = more.get("left", (math.inf, math.inf))[:2]
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(_Streams(_encode_stdin(stdin))) for stdin in stdins]
            replies: list[int] = []
            # Replies of all but the last case come through this file.
            if len(stdins) > 1:
                replies = [memfd(b"")]
                stack.callback(os.close, replies[0])
            message = {**self._message(limits), "cases": len(stdins), **more}
            build = _builder(header, files, streams, message, fds or {}, replies)
            # Each case may take its wall limit, twice where it gets no core.
            wall_s = len(stdins) * _STARVED * limits.wall
            try:
                [([last], counts)] = self._pool.run(build, [limits], wall_s, look=look)
            except SandboxFailed as error:
                return [self._failed_run(error)]
            if "died" in last:  # the box too, so it is not known in which run
                # Only the first is repeated, alone: the others are asked for afterwards.
                if len(stdins) > 1:
                    return self._execute_cases(header, files, stdins[:1], limits, more)
                return [self._run_of(last, counts, streams[0], limits)]
            noted = [
                # Records have one size, so each case's has its place.
                unpack_reply(os.pread(replies[0], RECORD, case * RECORD))
                for case in range(last["case"])
            ]
            runs = self._runs_of([*noted, last], counts, streams, limits, left_s)
        # A run that was over its memory may have met what the run before had not given back yet
        # Left out here, it is run again by itself.
        return runs[:-1] if len(runs) > 1 and runs[-1].ending is Ending.MLE else runs

    def _failed_run(self, error: SandboxFailed) -> Run:
        return Run(Ending.IE, why=str(error), isolation=self._isolation)

    def _runs_of(
        self,
        replies: Sequence[SlotMessage],
        counts: SlotMessage,
        streams: Sequence[_Streams],
        limits: Limits,
        left_s: Sequence[float],
    ) -> list[Run]:
        """The runs that a box's replies describe, each with the limits that it had: what was left
        of the totals."""
        runs: list[Run] = []
        cpu_s, wall_s = left_s
        for reply, stream in zip(replies, streams, strict=False):
            last = len(runs) + 1 == len(replies)
            # The cgroup counts the box's runs together: only of the last one is a kill to be told.
            run_counts = counts
            if len(replies) > 1:
                run_counts = {"kills": counts["kills"] if last else 0, "peak": None}
            runs.append(self._run_of(reply, run_counts, stream, limits.within(cpu_s, wall_s)))
            # Seconds without a core are given back, as the box itself does.
            cpu_s, wall_s = cpu_s - reply["cpu_s"], wall_s - (reply["wall_s"] - reply["starved_s"])
        return runs

    def _run_of(
        self,
        reply: SlotMessage,
        counts: SlotMessage,
        streams: _Streams,
        limits: Limits,
    ) -> Run:
        """The run that a box's reply describes."""
        # Which run it was is known only where there was one; `_execute_cases` sees to that.
        if "died" in reply:  # with the box, the kernel killed what used the memory
            ending, why = Ending.MLE, f"over {limits.memory_mib} MiB"
            memory_mib = float(limits.memory_mib)
            return Run(ending, why, memory_mib=memory_mib, isolation=self._isolation)
        cap = int(limits.output_mib * MIB)
        # Taken out of `fds`, as the outputs own these descriptors from here on.
        outputs = [streams.fds.pop(name) for name in ("stdout", "stderr")]
        flooded = any(os.fstat(fd).st_size > cap for fd in outputs)
        stdout, stderr = (Output.take(fd, cap) for fd in outputs)
        code = os.waitstatus_to_exitcode(reply["status"])
        ending, why = _ending(reply, counts["kills"], flooded, code, limits)
        return Run(
            ending,
            why,
            # A negative code is a signal (waitstatus_to_exitcode).
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            **{name: reply[name] for name in ("cpu_s", "wall_s", "starved_s")},
            # The kernel's peak of one process, or of the whole cgroup where that is counted.
            memory_mib=max(reply["rss_kib"] * 1024, counts["peak"] or 0) / MIB,
            output=stdout,
            errors=stderr,
            isolation=self._isolation,
        )

    def _message(self, limits: Limits) -> dict[str, object]:
        settings = limits.message()
        for which, (name, flag) in _OF_THE_HOST.items():
            hard = resource.getrlimit(which)[1]
            if hard != resource.RLIM_INFINITY and hard < settings[name]:
                # A right program would fail here, and elsewhere not.
                fault = (
                    f"`ulimit -H{flag}` stands for {hard:,} bytes, and a run has {settings[name]:,}"
                )
                raise IsolationUnavailable(name, fault, "Raise it", waivable=False)
        return {"id": next(self._numbers), "limits": settings}

    def session(
        self,
        language: str = "python",
        *,
        limits: Limits | None = None,
        total_cpu_s: float = 60.0,
        total_wall_s: float = 3600.0,
    ) -> Session:
        """Open a session: a process whose state and files live until it is closed, for an episode
        with a tool.

            with sandbox.session("python") as session:
                session.run("x = 20")
                session.run("x + 1").text            # "21\n"

        Any number may be open; they are none of the `workers`.

        Args:
            language: "python" or "bash".
            limits: CPU and wall seconds and output of each call; memory, processes and files of the
                whole session. None for the sandbox's own.
            total_cpu_s: CPU seconds of all calls together, and of what wakes up between them.
            total_wall_s: wall seconds for which the session may be open.

        Raises:
            UsageError: an argument that cannot work, or too many sessions are open.
            IsolationUnavailable, SandboxFailed: see `warm`.
        """
        isolation, limits = self.isolation(), limits or self.limits
        numbers = partial(next, self._numbers)
        bounded = self.sessions is not None or self.sessions_memory_mib is not None
        # Counted and opened under one lock: two threads would both find the last place free.
        with self._opening if bounded else contextlib.nullcontext():
            if bounded:
                self._require_room(limits)
            session = Session(
                self._pool, isolation, language, limits, numbers, total_cpu_s, total_wall_s
            )
            session.sandbox = self
            self._sessions.add(session)
        return session

    def _require_room(self, limits: Limits) -> None:
        """Refuse a session beyond what all of them together may have."""
        opened = [session for session in self._sessions if session.open]
        if self.sessions is not None and len(opened) >= self.sessions:
            raise UsageError(
                f"{len(opened)} sessions are open, and this sandbox has sessions={self.sessions}; "
                f"close one"
            )
        memory_mib = sum(session.limits.memory_mib for session in opened) + limits.memory_mib
        if self.sessions_memory_mib is not None and memory_mib > self.sessions_memory_mib:
            raise UsageError(
                f"with this session all of them may take {memory_mib} MiB, and this sandbox has "
                f"sessions_memory_mib={self.sessions_memory_mib}; close one, or give limits with "
                f"less memory_mib"
            )

    def run_many(
        self, jobs: Iterable[tuple[Program, bytes | str]], *, limits: Limits | None = None
    ) -> Iterator[Run]:
        """Run many programs, `workers` at once; the runs come in the order of the jobs.

        Args:
            jobs: (program, stdin) pairs.  They are taken as they are needed, so this may be an
                endless generator.
            limits: of each run, instead of the sandbox's own.
        """
        # The threads only wait: the runs are processes.
        pool = self._executor()
        waiting: deque[Future[Run]] = deque()
        try:
            for program, stdin in jobs:
                waiting.append(pool.submit(partial(self.run, program, stdin, limits=limits)))
                # So many are under way that no worker waits; more would hold their outputs in
                # memory.
                if len(waiting) >= 2 * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # The caller has stopped: runs that have not begun are not made.
            for future in waiting:
                future.cancel()

    async def arun(self, program: Program, stdin: bytes | str = b"", **options: object) -> Run:
        """`run` without blocking the event loop.

        Args:
            program, stdin: see `run`.
            options: the other arguments of `run`.
        """
        return await self._aside(self.run, program, stdin, **options)

    async def acall(
        self, program: Program, calls: Sequence[ProgramCall], **options: object
    ) -> CallRun:
        """`call` without blocking the event loop.

        Args:
            program, calls: see `call`.
            options: the other arguments of `call`.
        """
        return await self._aside(self.call, program, calls, **options)

    async def atest(self, program: Program, suite: TestSuite, **options: object) -> TestRun:
        """`test` without blocking the event loop.

        Args:
            program, suite: see `test`.
            options: the other arguments of `test`.
        """
        return await self._aside(self.test, program, suite, **options)

    async def ainteract(
        self, program: Program, interactor: Program, **options: object
    ) -> Interaction:
        """`interact` without blocking the event loop.

        Args:
            program, interactor: see `interact`.
            options: the other arguments of `interact`.
        """
        return await self._aside(self.interact, program, interactor, **options)

    async def _aside(self, work: Callable[..., _T], *args: object, **options: object) -> _T:
        call = partial(work, *args, **options)
        return await asyncio.wrap_future(self._executor().submit(call))

    def _executor(self) -> Threads:
        # Two threads must not make two pools.
        with self._checking:
            if self._threads is None:
                self._threads = Threads(self.workers, "sandbox")
            return self._threads


def _checked_folders(folders: Sequence[str], level: str) -> tuple[str, ...]:
    if isinstance(folders, str):
        raise UsageError("folders takes several names: ('/app',), not '/app'")
    for folder in folders:
        if not isinstance(folder, str) or not re.fullmatch(r"/[\w-][\w.-]{0,99}", folder):
            raise UsageError(
                f"folders: {brief(folder)} is no name of a folder at the root, such as '/app'"
            )
        if level != "namespaces":
            raise UsageError(
                f"folders: {folder!r} cannot be had at the level {level!r}, which has no root of "
                f"its own; "
                "use level='namespaces'"
            )
    # Each once, in the order given.
    return tuple(dict.fromkeys(folders))


def _again(limits: Limits, workers: int, settings: Mapping[str, Any]) -> Sandbox:
    return Sandbox(limits, workers, **settings)


class _Streams:
    """The memfds of one run: standard input, output and error, and what the box unpacks."""

    def __init__(self, stdin: bytes) -> None:
        self.fds = {"stdin": memfd(stdin), "stdout": memfd(b""), "stderr": memfd(b"")}
        self._bundle: int | None = None

    def bundle(self, header: Mapping[str, object], files: Files) -> int:
        if self._bundle is None:
            self._bundle = pack_program(header, files)
        return self._bundle

    def rewind(self) -> None:
        """Undo what a run wrote and read, for another attempt."""
        # All offsets: a descriptor that a program read shares its position with ours.
        for name, fd in self.fds.items():
            os.lseek(fd, 0, os.SEEK_SET)
            if name != "stdin":
                os.ftruncate(fd, 0)

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *exc: object) -> None:
        for fd in (*self.fds.values(), *([self._bundle] if self._bundle is not None else [])):
            os.close(fd)


def _builder(
    header: Mapping[str, object],
    files: Files,
    streams: Sequence[_Streams],
    message: dict[str, object],
    fds: Mapping[str, int],
    replies: list[int],
) -> Callable[[], list[list[RunRequest]]]:
    """What makes the request to one box, for each attempt anew."""
    first, *later_streams = streams
    named = {**first.fds, "bundle": first.bundle(header, files), **fds}
    extra = [fd for stream in later_streams for fd in stream.fds.values()]

    def build() -> list[list[RunRequest]]:
        # An attempt that failed may have written half a reply.
        for stream in streams:
            stream.rewind()
        for fd in replies:
            _empty(fd)
        for name, fd in fds.items():
            # Only what the run writes is emptied; orders are read again.
            if name in ("results", "artifact"):
                os.ftruncate(fd, 0)
            with contextlib.suppress(OSError):  # a pipe has no start to go to
                os.lseek(fd, 0, os.SEEK_SET)
        return [[RunRequest(message, named, [*extra, *replies])]]

    return build


def _look(look: Callable[[Readable], bool], results: int, halt: int) -> None:
    """Tell the box to stop the run if what it has written so far is enough."""
    # A slice of the file: what is written later is not looked at.
    if look(Lent(os.getpid(), results, min(os.fstat(results).st_size, _ANSWERS_MIB * MIB))):
        os.pwrite(halt, b"1", 0)


def _together(stdins: Sequence[bytes | str]) -> Sequence[bytes | str]:
    """The first inputs that one request may have: so many, and of so many bytes."""
    size = 0
    for at, stdin in enumerate(stdins[:_CASES]):
        size += len(stdin)
        # A first input that is larger alone goes alone.
        if at and size > _INPUT_BYTES:
            return stdins[:at]
    return stdins[:_CASES]


def _encode_stdin(stdin: bytes | str) -> bytes:
    return stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin


def _empty(fd: int) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    os.ftruncate(fd, 0)


def _close(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _module(program: Program, kind: str) -> tuple[dict[str, object], Files]:
    """Header and files for a program whose functions are called."""
    if program.language != "python":
        raise UsageError(
            f"functions of a {program.language} program cannot be called; only Python's can"
        )
    files = files_of(program)
    files[_SOLUTION] = files.pop(program.main)
    return {
        "kind": kind,
        "main": _SOLUTION,
        "module": "solution",
        "args": list(program.args),
    }, files


def _modules_of(program: Program) -> list[str]:
    """The dotted names of a program's files beside its main one, with the folders that they are
    in."""
    names: set[str] = set()
    for path in program.files:
        parts = path.removesuffix(".py").split("/")
        if (
            path == program.main
            or not path.endswith(".py")
            or not all(map(str.isidentifier, parts))
            # Such a file cannot be imported, so it needs no name.
        ):
            continue
        # A package is imported by its folder's name.
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        names.update(".".join(parts[: i + 1]) for i in range(len(parts)))
    return sorted(names)


def _ending(
    reply: SlotMessage, kills: int, flooded: bool, code: int, limits: Limits
) -> tuple[Ending, str]:
    notice, killed = reply["told"], reply["killed"]
    # Ours first: a process that was not set up is no fault of the program.
    if notice.startswith("setup"):
        return (
            Ending.IE,
            f"the program's process could not be set up: {notice.removeprefix('setup: ')}",
        )
    if notice == "compile":
        return Ending.CE, "it does not compile"
    # A run that filled its scratch has filled memory too: the disk limit is named.
    if held := holding("memory" if kills and killed != "disk" else killed, limits):
        return held
    # The kernel's own limit on one process, behind the box's clock.
    if killed == "cpu" or code == -signals.SIGXCPU:
        return Ending.TLE, f"over {limits.cpu_s:g} CPU seconds"
    if killed == "wall":
        waited = (
            f", and {reply['starved_s']:.2f} s more without a core"
            if reply["starved_s"] >= 0.01
            else ""
        )
        return (
            Ending.TLE,
            f"over {limits.wall:g} wall seconds, of which {reply['cpu_s']:.2f} s at work{waited}",
        )
    # The file may be full without a kill: RLIMIT_FSIZE makes the write fail.
    if killed == "output" or flooded:
        return Ending.OLE, f"over {limits.output_mib:g} MiB of output"
    if code == -signals.SIGXFSZ:
        return Ending.RE, f"a file over the disk limit of {limits.disk_mib:g} MiB (SIGXFSZ)"
    if code < 0:
        return Ending.RE, f"ended by signal {_signal_name(-code)}"
    return (Ending.OK, "") if code == 0 else (Ending.RE, f"exit code {code}")


def _signal_name(number: int) -> str:
    # Real-time signals have no names.
    with contextlib.suppress(ValueError):
        return signals.Signals(number).name
    return str(number)
