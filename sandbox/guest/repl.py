"""The program's side of a session: takes one piece of code after another and
runs it in one namespace.

    box ── "7" ──▶ channel ──▶ this loop: reads the code, runs it ──▶ channel ── "7 0" ──▶ box

The code and its number are in a file that the host writes before each call.  What the loop says
decides between OK, RE and CE alone, as an exit code does; the clocks and limits are the box's
(`episode`).  The code may do all that a program may, so it can also break this loop, which ends its
own session.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import linecache
import os
import signal
import sys
import traceback
from typing import Any, Final, NoReturn

__all__ = ["BASH", "COMPILE", "serve_code"]

COMPILE: Final = 1000  # the status of code that does not compile; exit codes are below 256
globals().update(__builtins__=dict(vars(builtins)))  # our own copy: the code may change `builtins`

_HIGH_FD: Final = 250  # away from the numbers that programs count on
# 128 + SIGINT, as shells report it.
_INTERRUPTED: Final = 130
# More than any order has: pread stops at the end of the file.
_CODE_BYTES: Final = 1 << 30

BASH: Final = """
exec 253<&3- 254<&4-
while :; do
  trap 'return 130 2>/dev/null' INT
  IFS= read -r -u 253 RLVR_CALL || { [ $? -gt 128 ] && continue; exit 0; }
  . /dev/fd/254
  printf '%s %s\\n' "$RLVR_CALL" "$?" >&253
done
"""
"""The same loop for bash.  A signal returns from the sourced file, as
Ctrl-C returns to the prompt."""


def serve_code(namespace: dict[str, object], channel: int, code: int) -> NoReturn:
    """Answer the box until it closes the channel.

    Args:
        namespace: of `__main__`, where all the code runs.
        channel: the socket to the box.
        code: a file with the number of a call on its first line, and then the call's code.
    """
    channel, code = _aside(channel), _aside(code)
    os_read, os_write = os.read, os.write  # the code may change `os`
    call_number = done = reported = status = 0
    while True:
        try:
            while True:  # within the try: a jump back to the try itself is not protected by it
                if reported != done:
                    # again, if an interrupt struck in it: the next call gets nothing of this one
                    _flush()
                    os_write(channel, b"%d %d\n" % (done, status))
                    reported = done
                if call_number == done:
                    # The last number: earlier ones belong to calls that were interrupted.
                    call_number = int(os_read(channel, 64).split()[-1])
                    continue
                source = _order(code)[1]
                done, status = call_number, _INTERRUPTED
                status = _run(source, f"<call {call_number}>", namespace)
        except KeyboardInterrupt:  # wherever it strikes, no order, report or text is lost
            call_number = _order(code)[0]
        except (OSError, IndexError):  # the box closed the channel, or the code did
            os._exit(1)


def _aside(fd: int) -> int:
    """Give a descriptor a high number, without which it does not reach the programs that the code
    starts."""
    import fcntl

    # Close-on-exec, as programs that the code starts must not speak to the box.
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
    os.close(fd)
    return high


def _order(code: int) -> tuple[int, bytes]:
    number, _, source = os.pread(code, _CODE_BYTES, 0).partition(b"\n")
    return int(number or b"0"), source


def _run(source: bytes, name: str, namespace: dict[str, object]) -> int:
    """Run it; returns the exit code that a script would have."""
    try:
        lines = source.decode("utf-8", "replace").splitlines(True)
        # Tracebacks then show lines of the call, as of a file.
        linecache.cache[name] = (len(source), None, lines, name)
        body, last = _compile_source(source, name)
    except Exception as error:  # noqa: BLE001  SyntaxError, ValueError, RecursionError …
        with contextlib.suppress(Exception):
            sys.stderr.write("".join(traceback.format_exception_only(type(error), error)))
        return COMPILE
    return _ending(body, last, namespace)


def _flush() -> None:
    for name, fd in (("stdout", 1), ("stderr", 2)):
        with contextlib.suppress(Exception):  # the code may have put anything there
            stream = getattr(sys, name)
            try:
                stream.flush()
            except OSError:  # the call's file is full: the next call would say what is left
                _drop_text(stream, fd)


# A full file would raise again at each flush, and the text would appear in the next call.
def _drop_text(stream: Any, fd: int) -> None:
    """Forget what a stream holds and its file does not take."""
    saved, nowhere = os.dup(fd), os.open(os.devnull, os.O_WRONLY)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # or the file is lost
    try:
        os.dup2(nowhere, fd)
        stream.flush()
    finally:
        os.dup2(saved, fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(saved)
        os.close(nowhere)


def _compile_source(source: bytes, name: str) -> tuple[object, object]:
    """The statements, and the last one apart if it is an expression, whose value is shown."""
    tree = ast.parse(source, name)
    last = None
    match tree.body:
        case [*before, ast.Expr(value)]:
            tree.body, last = before, ast.Expression(value)
    return compile(tree, name, "exec", dont_inherit=True), last and compile(
        last, name, "eval", dont_inherit=True
    )


def _ending(body: Any, last: Any, namespace: dict[str, Any]) -> int:
    try:
        exec(body, namespace)  # noqa: S102  the program, where it belongs
        # None is not shown, as at the prompt.
        if last is not None and (value := eval(last, namespace)) is not None:  # noqa: S307
            print(repr(value))  # noqa: T201
    except SystemExit as stop:  # ends the call and not the session
        if isinstance(stop.code, int):
            # as Python's own main
            # As wide as C's long; a larger number makes Python exit with -1, that is 255.
            return stop.code & 0xFF if -(1 << 63) <= stop.code < 1 << 63 else 0xFF
        if stop.code is not None:
            print(stop.code, file=sys.stderr)  # noqa: T201
        return int(stop.code is not None)
    # the code's own, KeyboardInterrupt too: shown as Python shows it
    except BaseException as error:  # noqa: BLE001
        with contextlib.suppress(Exception):
            # In order: what was printed before the error stands before it.
            sys.stdout.flush()
        trace = error.__traceback__ and error.__traceback__.tb_next  # without this function's frame
        with contextlib.suppress(Exception):  # its streams may be closed, its exception of any kind
            traceback.print_exception(type(error), error.with_traceback(trace), trace)
        return 1
    return 0
