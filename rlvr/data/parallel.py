"""A function over many texts in several processes: the same results in the same
order, however many there are."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from rlvr.validate import require_processes
from rlvr.workers import Handler, Threads, WorkerPool, usable_cores

__all__ = ["in_chunks", "map_chunks"]

_T = TypeVar("_T", bound="str | tuple[str, ...]")

_Chunk: TypeAlias = list[Any]

_TEXTS: Final = 1000  # of a chunk, at most
_LETTERS: Final = 1_000_000  # the same; a single text may have more
# chunks that are worked on in this process before others are started, which takes as long
_HERE: Final = 5
_AHEAD: Final = 3  # chunks under way for each process
_WALL_S: Final = 3600.0  # a chunk takes a second; this ends a process that hangs


def in_chunks(texts: Iterable[_T]) -> Iterator[list[_T]]:
    """Texts in lists, each of about a second's work.

    Args:
        texts: texts, or tuples of texts.
    """
    chunk: list[_T] = []
    letters = 0
    for text in texts:
        chunk.append(text)
        letters += len(text) if isinstance(text, str) else sum(map(len, text))
        # By letters as well: some texts are a thousand times as long as others.
        if len(chunk) >= _TEXTS or letters >= _LETTERS:
            yield chunk
            chunk, letters = [], 0
    if chunk:
        yield chunk


def map_chunks(
    function: Callable[[_Chunk], object], chunks: Iterable[_Chunk], processes: int | None = None
) -> Iterator[tuple[_Chunk, Any]]:
    """Each chunk with what a function makes of it, in order; a bounded number of chunks is under
    way.

    The processes are those of a `WorkerPool`: the calling process does not fork, and no `if
    __name__ == "__main__"` is needed.

    Args:
        function: of a chunk; cloudpickle can send it, and its value is JSON-able.
        chunks: lists of what cloudpickle can send.
        processes: number of processes; None for one per core, 0 for this one.  A few chunks are
            worked on here anyway.

    Raises:
        UsageError: `processes` is no whole number, or a chunk cannot be sent.
    """
    count = (
        usable_cores()
        if processes is None
        else require_processes("processes", processes, 0, hint="0 for this one")
    )
    chunks = iter(chunks)
    for chunk in chunks if count == 0 else itertools.islice(chunks, _HERE):
        yield chunk, function(chunk)
    first = next(chunks, None)
    if first is None:
        return
    with ExitStack() as stack:
        pool = stack.enter_context(WorkerPool(partial(_handler, function), workers=count))
        threads = Threads(count, "map over texts")
        stack.callback(threads.close)
        window: deque[tuple[_Chunk, Future[object]]] = deque()
        for chunk in itertools.chain([first], chunks):
            window.append((chunk, threads.submit(partial(pool.call, chunk, wall_s=_WALL_S))))
            if len(window) >= _AHEAD * count:
                done, value = window.popleft()
                yield done, value.result()
        for done, value in window:
            yield done, value.result()


def _handler(function: Callable[[_Chunk], object]) -> Handler:
    return function
