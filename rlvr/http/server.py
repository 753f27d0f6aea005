"""The listening process: on which addresses it may listen, how it stops, and
several of them on one port."""

from __future__ import annotations

import ctypes
import functools
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import uvicorn

from rlvr.errors import RlvrError, UsageError
from rlvr.http.application import Application
from rlvr.http.connections import Connection, Connections
from rlvr.http.memory import MIB
from rlvr.http.metrics import Metrics, are_shared, forget_process, share_in
from rlvr.validate import require_whole
from rlvr.workers.closing import Closing
from rlvr.workers.program import ForkedChild
from rlvr.workers.thread import DaemonThread

__all__ = ["ServerThread", "is_loopback", "listen", "run", "run_processes", "url_of"]

_CLOSE_S = 5  # for connections to close once every response is sent
_OTHER_FILES = 512  # descriptors beside those of connections: pipes of workers, files
_M_ARENA_MAX = -8  # of mallopt(3)
_LINES, _LINES_S = 10, 10.0  # log lines of one kind in so many seconds
# A process that cannot start would else be started again without a pause.
_RESTART_S = 1.0
_START_S = 30.0
_STOP_S = 5.0
# for which a thread keeps the interpreter from the event loop; by default it is ten times as long
_SWITCH_S = 0.0005


def listen(host: str, port: int, *, beyond_this_machine: bool = False) -> socket.socket:
    """A socket that listens on an address.

    Args:
        host: name or address.
        port: 0 takes a free one.
        beyond_this_machine: whether an address may be taken that other machines can reach.

    Raises:
        UsageError: other machines can reach the address and must not, or it cannot be listened on.
    """
    # some systems would take 65536 as 0
    require_whole("port", port, 0, 65535, hint="0 for any that is free")
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # Judged by the address that the name has, not by the name.
        if not beyond_this_machine and not ipaddress.ip_address(address[0]).is_loopback:
            raise UsageError(
                f"{host!r} can be reached from other machines and there is no API key; set "
                "RLVR_API_KEY, listen on 127.0.0.1, or pass --without-key to serve all that can "
                "reach it"
            )
        listening = socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host!r}, port {port}: {error}; choose another --host or --port"
        ) from error
    # Its connections inherit this.  asyncio sets it only where a socket's protocol is spelled out,
    # which this one's is not, and without it every answer in two parts waits 40 ms for the caller's
    # acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach a socket.

    Args:
        listening: from `listen`.
    """
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def url_of(listening: socket.socket) -> str:
    """The address of a socket, as callers write it.

    Args:
        listening: from `listen`.
    """
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def run(
    app: Application, listening: socket.socket, *, on_ready: Callable[[], None] | None = None
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then drain: refuse new requests with 503, finish those
    under way, return.

    Requests that are not finished `limits.drain_s` later are ended by the application's `on_abort`.
    A second signal does not wait for them.  From then on threads of this process share one arena of
    malloc's.

    Args:
        app: what to serve.
        listening: from `listen`.
        on_ready: called before the first request.
    """
    _allow_files(app.state.limits.connections + _OTHER_FILES)
    _share_freed_memory()
    with _few_log_lines(app.state.metrics):
        # Restored at the end: a test may serve in its own process.
        before_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        gc.collect()
        # what is there now stays: looking it through again and again takes 50 ms each time
        gc.freeze()
        try:
            if on_ready is not None:
                on_ready()
            _Server(app).run(sockets=[listening])
        finally:
            gc.unfreeze()
            sys.setswitchinterval(before_s)


class ServerThread(Closing):
    """A server in a thread of this process, which keeps its signals.  Close it, or use
    it as a context manager.

    Args:
        app: what to serve.
        listening: from `listen`.
        name: of the thread, which is called `rlvr-NAME`.

    Raises:
        RlvrError: it did not start.
    """

    def __init__(self, app: Application, listening: socket.socket, name: str) -> None:
        self._server = _ThreadServer(app)
        self._thread = DaemonThread(
            self._server.run, [listening], name=name, owner="http", kind="loop"
        )
        deadline = time.monotonic() + _START_S
        # It starts in the thread; an address that is in use would never become ready.
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RlvrError(f"the server {name} did not start; the log says why")
            time.sleep(0.005)

    def close(self) -> None:
        """Stop at once.  Idempotent."""
        self._server.should_exit = True
        self._thread.join(_STOP_S)


def _allow_files(wanted: int) -> None:
    """Raise the limit of open files to what the connections need, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # No more than the hard limit: beyond it only root may go.
        target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def _share_freed_memory() -> None:
    """Let threads that start later allocate what others have freed.

    Else each has an arena of its own: rows that one has parsed, and lines that another makes of
    them, would take the greatest size of both.
    """
    with suppress(OSError, AttributeError):  # another library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


class _Server(uvicorn.Server):
    """uvicorn stops listening at the first signal; this keeps responding with 503 until
    all requests are answered."""

    log_level = "warning"

    def __init__(self, app: Application) -> None:
        self._app, self._state = app, app.state
        self._connections = Connections(app.state.limits, app.state.metrics)
        config = uvicorn.Config(
            app,
            http=functools.partial(  # type: ignore[arg-type]  # makes a protocol
                Connection, connections=self._connections
            ),
            interface="asgi3",
            loop="uvloop",
            ws="none" if app.websockets is None else "websockets-sansio",
            ws_max_size=int(app.state.limits.body_mib * MIB),
            # No start and end are announced: nothing is made with them.
            lifespan="off",
            log_level=self.log_level,
            access_log=False,
            # A header of a proxy could name any caller.
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_CLOSE_S,
        )
        super().__init__(config)
        self._until = 0.0
        self._parent = os.getppid()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGHUP too: it comes when a terminal is closed, unless nohup has it ignored."""
        with super().capture_signals():
            # nohup: the caller wants it to live on.
            if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
                yield
                return
            before = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The second signal is impatience: what is under way is ended.
        if self._state.draining:
            self.should_exit = True
            self.force_exit = sig == signal.SIGINT
        self._state.draining = True
        self._until = time.monotonic() + self._state.limits.drain_s

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        self._state.open = self._connections.open
        if are_shared():  # with other processes, which cannot ask for them
            self._app.update_metrics()
            self._state.update_metrics()
            # The parent has gone, and with it the one that would stop us.
            if os.getppid() != self._parent and not self._state.draining:
                self.handle_exit(signal.SIGTERM, None)
        if self._state.draining and not self.should_exit:
            late = time.monotonic() > self._until
            if late:
                self._app.on_abort()
            self.should_exit = late or not self._state.under_way
        return await super().on_tick(counter)


class _ThreadServer(_Server):
    """A server beside other work: signals are the program's own."""

    log_level = "error"

    def __init__(self, app: Application) -> None:
        super().__init__(app)
        self.config.timeout_graceful_shutdown = 1

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _FewLines(logging.Filter):
    """Lets through so many lines of a kind in a while, and counts the others."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics
        self._since: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is logged."""
        kind, logged_at = str(record.msg)[:100], time.monotonic()
        since, lines = self._since.get(kind, (0.0, 0))
        if logged_at - since > _LINES_S:
            since, lines = logged_at, 0
        # A message with changing text makes a kind each time.
        if len(self._since) > 1000:
            self._since.clear()
        self._since[kind] = since, lines + 1
        if lines >= _LINES:
            self._metrics.count("rlvr_log_lines_dropped_total")
        return lines < _LINES


@contextmanager
def _few_log_lines(metrics: Metrics) -> Iterator[None]:
    """What one caller can cause again and again must not fill the log."""
    few = _FewLines(metrics)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "rlvr.http", "asyncio")]
    for logger in loggers:
        logger.addFilter(few)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(few)


# -------------------------------------------------------------------------------- several processes


def run_processes(
    serve: Callable[[Callable[[], None]], None], count: int, *, on_ready: Callable[[], None]
) -> None:
    """Serve with several processes that take the connections of one socket.

    A process that ends is replaced.  The signals of `run` stop all of them.

    Args:
        serve: called in each process with what to call when it is ready; serves until it is
            stopped.
        count: number of processes.
        on_ready: called when all are ready.

    Raises:
        RlvrError: a process did not start; it has printed why.
    """
    with tempfile.TemporaryDirectory(prefix="rlvr-metrics-") as folder:
        share_in(folder)
        _Processes(serve, count, on_ready).run()


class _Processes:
    """The parent of the processes of a service, which serves nothing itself."""

    def __init__(
        self,
        serve: Callable[[Callable[[], None]], None],
        count: int,
        on_ready: Callable[[], None],
    ) -> None:
        self._serve, self._count, self._on_ready = serve, count, on_ready
        self._children: dict[int, ForkedChild] = {}
        self._stopping: int | None = None

    def run(self) -> None:
        before = {
            sig: signal.signal(sig, self._stop)
            for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        try:
            ready = [self._start() for _ in range(self._count)]
            for reader in ready:
                # Ready, or the end of the pipe if it could not start.
                signal_byte = os.read(reader, 1)
                os.close(reader)
                if not signal_byte and self._stopping is None:
                    self._stop(signal.SIGTERM, None)
                    self._wait()
                    raise RlvrError("a process of the service did not start; the reason is above")
            if self._stopping is None:
                self._on_ready()
            self._wait()
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    def _start(self) -> int:
        """Fork a process; gives what it writes to when it is ready."""
        reader, writer = os.pipe()
        # What is buffered would be written by each child once more.
        sys.stdout.flush()

        def serve() -> None:
            os.setpgid(0, 0)  # Ctrl-C comes through the parent, once
            os.close(reader)
            for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                # The child's own server sets its handlers.
                signal.signal(sig, signal.SIG_DFL)
            try:
                self._serve(lambda: _say_ready(writer))
            except RlvrError as error:
                with suppress(OSError):
                    os.write(2, f"rlvr: {error}\n".encode())
                raise

        child = ForkedChild(serve, name="server", owner="http")
        os.close(writer)
        self._children[child.pid] = child
        return reader

    def _wait(self) -> None:
        """Until all have ended; one that ends by itself is replaced."""
        while self._children:
            pid, _ = os.wait()
            self._children.pop(pid, None)
            # Its gauges are no longer true; its counters go on.
            forget_process(pid)
            if self._stopping is None:
                time.sleep(_RESTART_S)
                os.close(self._start())

    def _stop(self, sig: int, frame: FrameType | None) -> None:
        self._stopping = sig
        # To each alone: they have groups of their own.
        for pid in list(self._children):
            with suppress(ProcessLookupError):
                os.kill(pid, sig)


def _say_ready(writer: int) -> None:
    os.write(writer, b"1")
    os.close(writer)
