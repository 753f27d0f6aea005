"""Replies to calls and results of tests, as the reader reads them and as the caller gets them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from rlvr.sandbox.guest import calls, suite
from rlvr.sandbox.guest.reading import read
from rlvr.sandbox.guest.values import NotAValue, Opaque
from rlvr.sandbox.guest.writing import write
from rlvr.sandbox.outputs import Lent, Output, Readable
from rlvr.sandbox.reader import read_aside, read_each

__all__ = ["bytes_of", "call_replies", "load_value", "read_suite", "results", "rewrite"]

_BYTES: Final = 1 << 20  # of all values that are rebuilt in the caller
# Counted on the text, before anything is built.
# Also by number: a MiB of `[],[],…` makes some 350,000 objects of 56 bytes and more.
_VALUES: Final = 20_000
_BUILD_S: Final = 0.02  # of the reader's CPU time, for one of them: keys whose hashes collide
_OPENS: Final = b",[{"


def bytes_of(readable: Readable) -> bytes:
    """The bytes, in the reader.

    Args:
        readable: from `Output.lent`.
    """
    return readable.read() if isinstance(readable, Lent) else readable


def load_value(line: Output) -> object:
    """The value in a line of replies, here.

    Args:
        line: one line.

    Raises:
        ValueError: it is none.
    """
    return read(line.read(), arrays=False)[2]


# ------------------------------------------------------------------------------------ in the reader


def rewrite(results: Readable, n: int, first: int) -> Iterator[object]:
    """For each reply: its value as our own text, None where that is large, with the place of its
    line; or its error.

    Args:
        results: what the program wrote.
        n: how many calls there were.
        first: the reply to begin with.
    """
    # What is left of both budgets, over all replies of a run.
    bytes_left, values_left, at = _BYTES, _VALUES, 0
    for i, line in enumerate(calls.reply_lines(bytes_of(results), n)):
        # A line's end is a byte too, so places in the file stay right.
        begin, at = at, at + len(line) + 1
        # Those before `first` were read by an earlier child.
        if i < first:
            continue
        reply = calls.read_reply(line, i)
        if reply is None:
            return
        if reply.error is not None:
            yield ["error", ": ".join(filter(None, reply.error))]
            continue
        text = b""
        # A line longer than the budget needs no try.
        if len(line) <= bytes_left:
            text = _cheap(reply.value, bytes_left, values_left)
        bytes_left -= len(text)
        values_left -= _count(text)
        yield ["value", reply.listed, text.decode("ascii"), begin, len(line)]


def _cheap(value: object, most_bytes: int, most_values: int) -> bytes:
    """The text of a value that is rebuilt in no time; b"" for any other."""
    try:
        text = write(value, _opaque)
    except NotAValue:  # a number that `read` takes and `write` does not
        return b""
    if len(text) > most_bytes or _count(text) > most_values:
        return b""
    began = time.thread_time()
    # Tried here, where it may take long, before the caller has to do it.
    read(text, arrays=False)
    return text if time.thread_time() - began <= _BUILD_S else b""


def _opaque(value: object, plain: object) -> object:
    # Objects that the program named stay names.
    return {"opaque": value.type_name} if type(value) is Opaque else None


def _count(text: bytes) -> int:
    # Counts what opens a value or follows another: an upper bound of the values.
    return sum(map(text.count, (_OPENS[i : i + 1] for i in range(len(_OPENS)))))


def results(written: Readable) -> Iterator[object]:
    """The results of a suite: its cases, and how it ended.

    Args:
        written: what the tests' process wrote.
    """
    suite_results = suite.read_suite_cases(bytes_of(written))
    for case in suite_results.cases:
        yield list(case)
    yield [suite_results.done, suite_results.died, suite_results.ours, suite_results.error]


# ------------------------------------------------------------------------------------ in the caller


def call_replies(
    written: Output, n: int
) -> list[tuple[object, str | None, bool, Output | None] | None]:
    """Value, error, whether it is listed, and the line where the value is large; None for calls
    without a reply.

    Args:
        written: what the program wrote.
        n: how many calls there were.

    Raises:
        SandboxFailed: see `read_aside`.
    """
    replies: list[tuple[object, str | None, bool, Output | None] | None] = []
    for record in read_each(rewrite, n, written.lent(), n).records:
        match record:
            # The reader was lost at this one: what the program returned cannot be read.
            case str(lost):
                replies.append((None, f"NotAValue: {lost}", False, None))
            case ["error", error]:
                replies.append((None, error, False, None))
            # An empty text stands for a large value; its line is kept, unread.
            case [_, listed, "", begin, size]:
                replies.append((None, None, listed, written.part(begin, size)))
            case [_, listed, text, _, _]:
                replies.append((read(text.encode("ascii"), arrays=False), None, listed, None))
    # Missing replies are those before which the program ended.
    return [*replies, *[None] * (n - len(replies))]


def read_suite(written: Output) -> suite.SuiteResults:
    """The results that a suite wrote.

    Args:
        written: what its process wrote.

    Raises:
        SandboxFailed: see `read_aside`.
    """
    reading = read_aside(results, written.lent())
    if reading.lost:  # no suite that runs in a box writes so much
        return suite.SuiteResults()
    *cases, (done, died, own_fault, error) = reading.records
    return suite.SuiteResults(
        tuple(suite.Case(*case) for case in cases), done, died, own_fault, error
    )
