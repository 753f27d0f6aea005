"""The scores of a request as a response: one JSON object, or NDJSON line by line."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

from rlvr.http.refused import Refused
from rlvr.http.responses import PieceWriter, json_bytes, send_at_once, while_connected
from rlvr.http.serve.jobs import Job
from rlvr.http.serve.limits import ServiceLimits
from rlvr.http.serve.queue import EnvironmentQueue
from rlvr.http.serve.rewards import RewardLines
from rlvr.scoring.identity import IDENTITY_HEADER

__all__ = ["ScoresResponse"]

# An answer up to it is one write.
_PIECE_BYTES = 1 << 16
_WATCH_AFTER_S = 0.02  # most answers are there before it is worth watching whether the caller is
# Without a row for so long an empty line is sent: the client, and proxies between, see that work
# goes on, and a caller that has left is noticed.
_BEAT_S = 3.0


class ScoresResponse:
    """Sends the lines of a job, to one of its readers.

    Args:
        job: the rows of the request, with the lines that threads put in.
        queue: of the environment, whose identity goes into a header; None for a reward model.
        known: the identity that the caller has of this service; a stream says another one whole,
            before and after the scores, in a line of its own.  Empty for a caller without.
        limits: of the service.
        stream: True sends each line when it is there; False sends all of them in one object.
        shape: makes that object from the lines; by default `{"env": …, "scores": […]}`.
        beats: begin a stream at once, with an empty line every few seconds: a caller that hears
            nothing then knows that this machine is gone, however long its rows take.
        on_end: called when it was sent, or cannot be.
    """

    def __init__(
        self,
        job: Job | RewardLines,
        queue: EnvironmentQueue | None,
        limits: ServiceLimits,
        *,
        stream: bool = False,
        shape: Callable[[Sequence[bytes]], object] | None = None,
        beats: bool = False,
        known: str = "",
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._job, self._queue, self._limits, self._shape = job, queue, limits, shape
        self._stream, self._beats, self._on_end = stream, beats, on_end
        self._connection: Any = None
        self._known = known
        self.status = 499

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer.

        Raises:
            Refused: there is none, and nothing was sent yet.
            Left: the caller has disconnected, or does not read.
        """
        self._connection = scope.get("rlvr.connection")
        try:
            # Most answers are there within milliseconds: no task watches the caller then.
            if not self._stream and await self._is_soon():
                if self._job.refused is not None:
                    raise self._job.refused
                await self._send_whole(scope, send)
                return
            async with while_connected(receive):
                await self._send_in_time(scope, send)
        finally:
            self._on_end()

    def audit_fields(self) -> dict[str, Any]:
        """What the log of requests has of it: rows, outcomes, identity."""
        if self._queue is None:
            return {}
        outcomes = self._job.outcomes if isinstance(self._job, Job) else {}
        identity = self._queue.scorer.identity().whole
        return {
            "env": self._queue.name,
            "rows": self._job.count,
            "outcomes": outcomes,
            "identity": identity,
        }

    async def _is_soon(self) -> bool:
        """Wait a little for the answer, unless the caller leaves."""
        # Only a connection of ours tells when its caller leaves.
        if self._connection is None or not isinstance(self._job, Job):
            return await self._job.ends_within(_WATCH_AFTER_S)
        self._connection.when_lost = self._job.nudge
        try:
            return not self._connection.has_left and await self._job.ends_within(_WATCH_AFTER_S)
        finally:
            self._connection.when_lost = None

    async def _send_in_time(self, scope: Scope, send: Send) -> None:
        writer = PieceWriter(scope, send, self._limits.stall_s)
        try:
            try:
                if self._stream or not self._job.finished:
                    async with asyncio.timeout(self._limits.request_s):
                        await (self._send_stream(writer) if self._stream else self._job.wait())
                if self._job.refused is not None:
                    raise self._job.refused
            except TimeoutError:
                job, limit_s = self._job, self._limits.request_s
                message = (
                    f"{len(job.lines)} of {job.count} rows were scored within "
                    f"{limit_s:g} s; send fewer"
                )
                raise Refused(504, "too-long", message) from None
        except Refused as refused:
            if not writer.began:
                raise
            # The status is sent already: the error goes into a last line, which is no row's.
            last = {"stopped": str(refused), "status": refused.status}
            await writer.write(json_bytes(last) + b"\n", more=False)
            return
        if not self._stream:
            await self._send_whole(scope, send)

    def _headers(self, content_type: bytes) -> list[tuple[bytes, bytes]]:
        """With what the rows are scored by now; it is compared where several services score one
        file."""
        headers = [(b"content-type", content_type)]
        if self._queue is not None:
            headers.append((IDENTITY_HEADER, self._queue.scorer.identity().whole.encode()))
        return headers

    async def _send_whole(self, scope: Scope, send: Send) -> None:
        lines, headers = self._job.lines, self._headers(b"application/json")
        if self._shape is None:
            head = _head("" if self._queue is None else self._queue.name)
            parts = [head, *_joined(lines), b"]}"]
        else:
            body = json_bytes(self._shape(lines))
            parts = [body[i : i + _PIECE_BYTES] for i in range(0, len(body), _PIECE_BYTES)]
        size = sum(map(len, parts))
        # Small answers in one write, without chunks.
        if size <= _PIECE_BYTES:
            await send_at_once(scope, send, 200, headers, b"".join(parts))
            self.status = 200
            return
        pieces = _pieces(parts)
        writer = PieceWriter(scope, send, self._limits.stall_s)
        await self._begin(writer, *headers, (b"content-length", b"%d" % size))
        piece = next(pieces)
        for following in pieces:
            await writer.write(piece)
            piece = following
        await writer.write(piece, more=False)

    async def _send_stream(self, writer: PieceWriter) -> None:
        batches = _with_beats(self._job.read()) if self._beats else self._job.read()
        async for batch in batches:
            if not writer.began:
                await self._begin(writer, *self._headers(b"application/x-ndjson"))
                await self._say_identity(writer)
            for piece in _pieces(line + b"\n" for line in batch):
                await writer.write(piece)
        # Not one line came: the head is still to be sent.
        if not writer.began:
            await self._begin(writer, *self._headers(b"application/x-ndjson"))
        await self._say_identity(writer)
        await writer.write(b"", more=False)

    async def _say_identity(self, writer: PieceWriter) -> None:
        """Say by what rows are scored here, to a caller that knows it otherwise: behind one address
        there may be several services, and asked apart another one would answer."""
        if not self._known or self._queue is None:
            return
        identity = self._queue.scorer.identity()
        if identity.whole != self._known:
            self._known = identity.whole
            await writer.write(json_bytes({"identity": identity.as_dict()}) + b"\n")

    async def _begin(self, writer: PieceWriter, *headers: tuple[bytes, bytes]) -> None:
        await writer.begin(*headers)
        self.status = 200


async def _with_beats(batches: AsyncIterator[list[bytes]]) -> AsyncIterator[list[bytes]]:
    """The same batches, and one with an empty line at once and whenever no other came for some
    seconds."""
    # At once, so that the client sees the head before the first row is scored.
    yield [b""]
    coming: asyncio.Task[list[bytes] | None] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(_next(batches))
            done, _ = await asyncio.wait({coming}, timeout=_BEAT_S)
            if not done:
                yield [b""]
                continue
            batch, coming = coming.result(), None
            if batch is None:
                return
            yield batch
    # Cancelled in any case, or the generator would be left in a read.
    finally:
        if coming is not None:
            coming.cancel()


async def _next(batches: AsyncIterator[list[bytes]]) -> list[bytes] | None:
    return await anext(batches, None)


@functools.cache
def _head(name: str) -> bytes:
    """What stands before the scores of an environment."""
    return b'{"env":%s,"scores":[' % json_bytes(name)


def _joined(lines: Sequence[bytes]) -> list[bytes]:
    """Lines with commas between them."""
    parts = [b","] * (2 * len(lines) - 1)
    parts[::2] = lines
    return parts


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in pieces of some size."""
    piece: list[bytes] = []
    size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= _PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)
