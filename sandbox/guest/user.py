"""The program's own process: gives up every privilege, then runs Python code or
executes another program.

It has nothing of the host's: its environment was made by us, its descriptors are the run's own, and
the memory it was forked from contains the standard library and this package.
"""

from __future__ import annotations

import _io
import _random

# signal's own functions look each number up in an enumeration
import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import contextlib
import errno
import gc
import io
import marshal
import math
import os
import random
import resource
import signal
import sys
import threading
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from rlvr.sandbox.guest.linux import (
    bound_capabilities,
    drop_capabilities,
    dumpable,
    no_new_privileges,
    system_call_filter,
)
from rlvr.sandbox.guest.namespaces import LENT, Namespaces
from rlvr.sandbox.guest.restricted import Restricted

if TYPE_CHECKING:
    from rlvr.sandbox.guest.messages import RunLimits, SlotConfig, SlotMessage

__all__ = ["FAILED", "FULL", "give_up", "harden", "main", "prepare_user"]

FULL = b"full"  # what the box is told if the program's files do not fit into its scratch

FAILED = 103
"""Exit codes of an interactor in Python that raises: because what it read is no word that
it can use, or otherwise."""

# What threads have outside.  glibc would give each of them RLIMIT_STACK, which is 1 GiB below.
_THREAD_STACK = 8 << 20
# Limits of every run beside those that it is given.  Locked pages, queued signals and messages
# are memory of the kernel; a higher priority would take time from other runs.
_ALWAYS = {
    resource.RLIMIT_CORE: 1,  # 0 stops a file, 1 stops a pipe to the host's crash handler too
    resource.RLIMIT_NOFILE: 256,
    resource.RLIMIT_MEMLOCK: 0,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_SIGPENDING: 4096,
    resource.RLIMIT_NICE: 0,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_STACK: 1 << 30,
}
# Descriptors that a program of calls or tests has beside its three streams.
_CHANNEL, _RESULTS = 3, 4
# Of the header's length, with which the bundle of a program's files begins.
_LENGTH_BYTES = 4
_AFTER: dict[
    str, Callable[..., object]
] = {}  # kind of run → what is called after the program's own code
_FILTER: list[Callable[[], None]] = []
_HARD_LIMITS: dict[int, float] = {}
# From the kernel: each run is a copy of this memory, so all would draw the same numbers.
_reseed = partial(_random.Random.seed, random._inst)  # random.seed() without its detours


def prepare_user(config: SlotConfig) -> None:
    """Done once, in the keeper: later, the files of this package cannot be read any more.

    What need not be done in each run is done here or in `give_up`.  A run shares its memory with
    the zygote, and each page that it changes costs a microsecond.

    Args:
        config: see `SlotPool`.
    """
    import _sitebuiltins
    import builtins

    from rlvr.sandbox.guest import calls, repl, suite

    # Bound here: the modules' files cannot be read in the slot.
    _AFTER.update(
        calls=calls.main, serve=calls.serve_calls, suite=suite.main, session=repl.serve_code
    )
    for name in ("exit", "quit"):
        # `site` is not imported in the slot, so these are missing otherwise.
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    builtins.help = _sitebuiltins._Helper()
    # else each thread would reserve what the main one may grow to
    threading.stack_size(_THREAD_STACK)
    _FILTER.append(system_call_filter(bytes.fromhex(config["filter"])))
    _open_streams()
    _look_up(main, _unpack_bundle, _arrange, _limit, _set_limit, _compile_program, _exit, _let_go)


def _look_up(*functions: Callable[..., object]) -> None:
    """Look up what these functions do.  Else each run would, and write it
    down in a page of its own."""
    for function in functions:
        # Each attribute that is looked up once fills the type's cache, in memory that all share.
        for name in function.__code__.co_names:
            for holder in (sys, sys.path, sys.modules, sys.stdout, "", b"", 0):
                getattr(holder, name, None)


def give_up() -> None:
    """Give up, once in the zygote, what its boxes do not need either; programs inherit that."""
    for which in (
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_CPU,
        resource.RLIMIT_NPROC,
        resource.RLIMIT_DATA,
        *_ALWAYS,
    ):
        hard = resource.getrlimit(which)[1]
        # The host's hard limit, which no run may pass.
        _HARD_LIMITS[which] = math.inf if hard == resource.RLIM_INFINITY else hard
    for which, value in _ALWAYS.items():
        _set_limit(which, value)
    no_new_privileges()
    bound_capabilities()
    # signals that pid 1 of a run does not handle cannot reach it
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Their functions stay alive through what refers to them; only the names go.
    for name in [name for name in sys.modules if name.partition(".")[0] == "rlvr"]:
        del sys.modules[name]  # no program finds them


def harden() -> None:
    """Give up the rest: the last that only our own code may do."""
    # The box has SIGCHLD blocked, and a mask is inherited across exec.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    dumpable(True)  # or a program could not open its own /dev/stdin
    drop_capabilities()
    _FILTER[0]()


def main(
    limits: RunLimits,
    fds: Mapping[str, int],
    tell: int,
    config: SlotConfig,
    level: Namespaces | Restricted,
) -> NoReturn:
    """Run one program.  Never returns.

    Args:
        limits: of the run; see `Sandbox`.
        fds: the run's descriptors by name.
        tell: a pipe to the box for failures; closed before the program's first instruction.
        config: see `SlotPool`.
        level: sets the run apart from the host.
    """
    try:
        header, source = _unpack_bundle(fds["bundle"], tell)
        # "exec" is another program; every other kind runs in this interpreter.
        python = header["kind"] != "exec"
        # After the files are written: the level may forbid that.
        level.confine()
        # From here on only the streams and the channels are open.
        tell = _arrange(fds, tell)
        _limit(limits, config, python, level.processes(limits))
        # A session of its own: no terminal, and its group's signals reach no process of ours.
        os.setsid()
        if not level.FORKS_ASIDE:
            harden()
        if python:
            # Python sets its handler at its start alone, and the keeper has replaced it since.
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        else:  # Python ignores the first two, and all would stay ignored
            for number in (_signal.SIGXFSZ, _signal.SIGPIPE, _signal.SIGINT):
                _signal.signal(number, _signal.SIG_DFL)
            # It closes with exec: its end says that the program runs.
            os.set_inheritable(tell, False)
            _execute(header["argv"], {**os.environ, **header["env"]})
        _reseed()  # else every run would draw the same random numbers
        # The first collection comes when it would in a fresh interpreter.
        gc.freeze()  # its counters begin at 0
        gc.enable()
        run = _compile_program(source, header, tell)
    except BaseException as error:  # noqa: BLE001  ours: the box tells the host
        os.write(tell, f"setup: {type(error).__name__}: {error}".encode()[:4000])
        os._exit(1)
    # Closed: the program is compiled, and whatever comes now is its own.
    os.close(tell)
    _exit(_ending(run, header.get("judging", False)))


def _execute(argv: list[str], env: Mapping[str, str]) -> NoReturn:
    try:
        os.execve(argv[0], argv, env)
    except OSError as error:
        # a tool of the host, which has to work; a binary of the program's need not
        if os.path.isabs(argv[0]):
            raise
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(126)


def _unpack_bundle(bundle: int, tell: int) -> tuple[SlotMessage, bytes]:
    """Write the program's files to the scratch folder; returns the header and the main file's
    content."""
    length = int.from_bytes(os.pread(bundle, _LENGTH_BYTES, 0), "little")
    # marshal is faster than JSON, and the header is the host's own.
    header: SlotMessage = marshal.loads(os.pread(bundle, length, _LENGTH_BYTES))
    at, source = _LENGTH_BYTES + length, b""
    try:
        for name, size, mode in header["files"]:
            if "/" in name:
                os.makedirs(os.path.dirname(name), exist_ok=True)
            # O_EXCL: a name that came twice would be a fault of ours.
            fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
            if name == header.get("main"):
                source = os.pread(bundle, size, at)
            end = at + size
            # A MiB at a time, so that a large file takes no memory of its size.
            while at < end:
                at += os.write(fd, os.pread(bundle, min(end - at, 1 << 20), at))
            os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.write(tell, FULL)
        os._exit(1)
    return header, source


def _arrange(fds: Mapping[str, int], tell: int) -> int:
    """Put the streams at 0, 1 and 2, then channel and results, and last `tell`, whose new number is
    returned.

    All other descriptors are closed.
    """
    target = 0
    for name in LENT:
        if name in fds and name != "bundle":
            os.dup2(fds[name], target)  # the box has others of its own so low
            target += 1
    # The last one to be placed: its old number may be among the targets of the others.
    os.dup2(tell, target)
    # Up to 65,536, beyond which no descriptor of a slot can be.
    os.closerange(target + 1, 1 << 16)
    return target


def _limit(limits: RunLimits, config: SlotConfig, python: bool, processes: int | None) -> None:
    # One more than the limit: the file shows then that it was exceeded.
    _set_limit(resource.RLIMIT_FSIZE, max(limits["output"] + 1, limits["disk"]))
    # of one process; the box counts them all together
    # Whole seconds are all that the kernel takes; two more leave the decision to the box.
    _set_limit(resource.RLIMIT_CPU, int(limits["cpu_s"]) + 2)
    if processes is not None:
        _set_limit(resource.RLIMIT_NPROC, processes)
    if config["sampled"] and python:
        # A second limit behind the samples.  Others have none: each thread of node's reserves a
        # stack of 1 GiB, and where it gets none node waits for ever.
        _set_limit(resource.RLIMIT_DATA, 2 * limits["memory"] + (1 << 30))


def _set_limit(which: int, value: int) -> None:
    # The host's hard limit stays: it cannot be raised without privileges.
    value = min(value, int(_HARD_LIMITS[which])) if _HARD_LIMITS[which] < math.inf else value
    resource.setrlimit(which, (value, value))


def _compile_program(source: bytes, header: SlotMessage, tell: int) -> Callable[[], Any]:
    """The run as a function.  If the program does not compile, the box is told and the process ends
    here."""
    kind, work = header["kind"], os.getcwd()
    if kind == "suite":
        sys.path.insert(0, work)
        # The suite's own code is trusted; it imports no file of the program by itself.
        return lambda: _AFTER[kind](header["suite"], _CHANNEL, _RESULTS)
    module = types.ModuleType(header.get("module", "__main__"))
    namespace = module.__dict__
    # As `exec` would set it, but shared with all modules.
    namespace["__builtins__"] = sys.modules["builtins"]
    if kind == "session":
        sys.path.insert(0, work)
        sys.modules[module.__name__] = module
        sys.argv = [""]
        return lambda: _AFTER[kind](namespace, _CHANNEL, _RESULTS)
    module.__file__ = f"{work}/{header['main']}"
    try:
        code = compile(source, module.__file__, "exec", dont_inherit=True)
    # SyntaxError, ValueError, MemoryError, RecursionError, SystemError …
    except Exception as error:  # noqa: BLE001
        import traceback

        sys.stderr.write("".join(traceback.format_exception_only(type(error), error)))
        sys.stderr.flush()
        os.write(tell, b"compile")
        os._exit(1)
    # not before: the source's "coding" line imports a module, and could import its own
    sys.path.insert(0, work)
    sys.modules[module.__name__] = module
    sys.argv = [header["main"], *header["args"]]

    def run() -> None:
        exec(code, namespace)  # noqa: S102  the program, where it belongs
        if kind == "calls":
            _AFTER[kind](namespace, _CHANNEL, _RESULTS)
        elif kind == "serve":
            _AFTER[kind](namespace, _CHANNEL)
            # the tests are over; threads that the program left behind are not waited for
            os._exit(0)

    return run


def _open_streams() -> None:
    """Make sys.stdin, stdout and stderr as a fresh interpreter has them; `_arrange` puts the
    program's files there."""
    for name, fd, mode, newline, errors in (
        ("stdin", 0, "r", None, "strict"),
        ("stdout", 1, "w", "\n", "strict"),
        ("stderr", 2, "w", "\n", "backslashreplace"),
    ):
        raw = io.FileIO(fd, mode, closefd=False)
        raw.name = f"<{name}>"
        buffer: Any = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        # As a pipe or file is opened by Python, but for the error stream, which goes by lines.
        text = io.TextIOWrapper(buffer, "utf-8", errors, newline, line_buffering=fd == 2)
        text.mode = mode  # type: ignore[misc]
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _ending(run: Callable[[], object], judging: bool) -> int:
    """Run it; returns the exit code that Python's own main would give, or that of a judge which
    failed."""
    try:
        run()
    except SystemExit as stop:
        code = stop.code
        if code is None:
            return 0
        if isinstance(code, int):
            # As wide as C's long; any other number makes Python exit with -1, that is 255.
            return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF
        print(code, file=sys.stderr)  # noqa: T201
        return 1
    except BaseException as error:  # noqa: BLE001  the program's: shown as Python shows it
        trace = error.__traceback__
        for _ in range(2):  # our own frames
            trace = trace.tb_next if trace else None
        with contextlib.suppress(BaseException):
            # The program's own hook, if it set one; it may raise.
            sys.excepthook(type(error), error.with_traceback(trace), trace)
        return FAILED if judging else 1
    return 0


def _exit(code: int) -> NoReturn:
    """End as an interpreter does: wait for threads, run atexit functions, flush, drop what
    `__main__` holds."""
    if not _works(_wait_for_threads):
        # Its own code is kept: 1 says only that the end failed.
        code = code or 1
    for stream in (sys.stdout, sys.stderr):
        if not _works(_flush, stream):
            code = code or 120  # as Python's own main
    _works(_let_go)
    os._exit(code)


def _works(step: Callable[..., None], *args: object) -> bool:
    """Run what may run the program's own code; objects of contextlib would be pages of their
    own."""
    try:
        step(*args)
    except BaseException:  # noqa: BLE001  the program's
        return False
    return True


def _wait_for_threads() -> None:
    threads: Any = threading
    # Only if there are threads or hooks: the call itself costs pages.
    if _thread._count() or threads._threading_atexits:
        threads._shutdown()  # what the interpreter itself calls
    atexit._run_exitfuncs()


def _flush(stream: Any) -> None:
    if stream is not None and not getattr(stream, "closed", False):
        stream.flush()


def _let_go() -> None:
    """Flush open files and finalize objects among the globals.  Objects further down are not looked
    for: too slow."""
    namespace = sys.modules["__main__"].__dict__
    for name in list(namespace):
        _works(_release, namespace, name)
    if sys.__stdout__ is not None:
        # The original stream: the program may have exchanged sys.stdout.
        sys.__stdout__.flush()


def _release(namespace: dict[str, Any], name: str) -> None:
    # Not io.IOBase, an abstract class, which is searched.
    if isinstance(namespace[name], _io._IOBase):
        namespace[name].flush()
    elif hasattr(type(namespace[name]), "__del__"):
        # The last reference may be this one: then its finalizer runs now.
        namespace[name] = None
