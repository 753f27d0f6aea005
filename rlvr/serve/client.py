"""The caller's side of `rlvr serve`: scores over HTTP, asked for again until they are there.

    with Client("http://127.0.0.1:8000") as client:
        for reply in client.score("gsm8k-v1", rows):
            print(reply.id, reply.score.total if reply.score else reply.error)

It needs the standard library alone.  A request keeps its id when it is sent again, so that the service does not score
it twice.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rlvr.data.rows import Row
from rlvr.errors import DataError, ServiceFailed, UsageError, brief
from rlvr.scoring.records import score_from
from rlvr.types import Score, plain

__all__ = ["Client", "Reply"]

_BATCH_BYTES = 4 << 20  # of rows in a request, beside their number: where completions are long
_READ_BYTES = 1 << 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LONGEST_WISH_S = 0.25, 10.0, 60.0
_MAY_PASS = (429, 502, 503)  # a full queue, a proxy that finds nobody, a service that is being replaced


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a row.

    Attributes:
        id: the row's own, or `line:7`.
        score: as `Scorer` would have given it, total None where it is UNSCORED; None for a row that cannot be used.
        error: why it cannot be used; empty for all others.
    """

    id: str
    score: Score | None
    error: str = ""


class Client:
    """Asks a service for scores.  Safe from any thread; connections are kept and used again.

    Args:
        url: such as http://127.0.0.1:8000.
        api_key: None for what RLVR_API_KEY says, if it is there.
        timeout_s: seconds without a byte from the service after which a request is sent again.
        retries: how often it is, after pauses that double up to ten seconds, or as long as the service says.
        batch: rows per request at most.

    Raises:
        UsageError: no such URL, or a number that cannot work.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout_s: float = 660.0, retries: int = 8, batch: int = 512
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"url is {url!r}; write one such as http://127.0.0.1:8000")
        for name, value, least in (("timeout_s", timeout_s, 0.001), ("retries", retries, 0), ("batch", batch, 1)):
            if not value >= least:  # true for NaN
                raise UsageError(f"{name} is {value!r}; it must be a number of at least {least}")
        self.url, self.retries, self.batch, self.timeout_s = url, retries, batch, timeout_s
        self._host, self._port, self._path = parts.hostname, parts.port, f"{parts.path.rstrip('/')}/score"
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        key = os.environ.get("RLVR_API_KEY", "").strip() if api_key is None else api_key
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        weakref.finalize(
            self, _close_all, self._idle
        ).atexit = False  # for a client that is dropped without being closed

    def score(self, env: str | None, rows: Iterable[Row]) -> list[Reply]:
        """One reply per row, in order; see `stream`."""
        return list(self.stream(env, rows))

    async def ascore(self, env: str | None, rows: Iterable[Row]) -> list[Reply]:
        """The same without blocking the event loop."""
        return await asyncio.to_thread(self.score, env, rows)

    def stream(self, env: str | None, rows: Iterable[Row]) -> Iterator[Reply]:
        """Replies in the order of the rows, each as soon as it is there.

        Rows are what `Scorer.stream` takes, as mappings.  They are sent in requests of `batch` rows; neighbours that
        name the same `task` stay together, for rewards that compare the completions of a task.

        Args:
            env: which of the service's environments; None for its only one.

        Raises:
            UsageError: the service refuses the request, for its key or its environment.
            DataError: a row that is no JSON.
            ServiceFailed: it cannot be reached, or gives up, after all retries.
        """
        for ids, batch in _batches(rows, self.batch):
            asked = {"request_id": uuid.uuid4().hex} | ({} if env is None else {"env": env})
            body = b'%s, "rows": [%s]}' % (json.dumps(asked)[:-1].encode(), b", ".join(batch))
            for name, line in zip(ids, self._lines(body, len(batch)), strict=True):
                yield _reply(name, line)

    def close(self) -> None:
        """Close the connections that rest."""
        with self._lock:
            _close_all(self._idle)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _lines(self, body: bytes, count: int) -> Iterator[bytes]:
        """The lines of a request's answer, each of them once, however often it takes to get them all."""
        had, pause_s = 0, _FIRST_PAUSE_S
        for left in range(self.retries, -1, -1):
            wish_s = 0.0
            try:
                for number, line in enumerate(self._sent(body)):
                    if number == had:
                        had += 1
                        yield line
                if had == count:
                    return
                problem = f"its answer had {had} lines for {count} rows"
            except _MayPass as error:
                problem, wish_s = str(error), error.wish_s
            except (OSError, http.client.HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
            if left:
                time.sleep(max(wish_s, pause_s * random.uniform(0.5, 1)))  # callers that failed together part
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise ServiceFailed(f"{self.url}, asked {self.retries + 1} times: {problem}")

    def _sent(self, body: bytes) -> Iterator[bytes]:
        """The lines of one attempt.  Who stops reading closes the connection, and the service stops scoring."""
        connection, response = self._response(body)
        whole = False
        try:
            if response.status != 200:
                _raise_for(response.status, response.read(_READ_BYTES), response.getheader("Retry-After", ""))
            rest = b""
            # Until Python 3.12 read1 does not notice the end of a body whose length was told.
            read = response.read1 if response.chunked else response.read
            while part := read(_READ_BYTES):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line.startswith(_STOPPED):
                        _raise_for(json.loads(line)["status"], line, "")
                    yield line
            whole = not response.will_close
        finally:
            if whole:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _response(self, body: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            connection = kept or self._kind(self._host, self._port, timeout=self.timeout_s)
            try:
                with suppress(BrokenPipeError):  # it answered before it had all, and that answer can be read
                    connection.request("POST", self._path, body, self._headers)
                return connection, connection.getresponse()
            except BaseException as error:
                connection.close()
                if kept is None or not isinstance(error, ConnectionError):
                    raise  # a connection that rested may have been closed at the other end; the next one tells


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


_STOPPED = b'{"stopped":'


class _MayPass(Exception):
    """The service says no, and that it may be otherwise later."""

    def __init__(self, message: str, wish_s: float) -> None:
        super().__init__(message)
        self.wish_s = wish_s


def _raise_for(status: int, body: bytes, retry_after: str) -> None:
    """What a refusal means to the caller."""
    try:
        said = json.loads(body)
        message = str(said.get("error") or said["stopped"])
    except (ValueError, LookupError, AttributeError):  # not ours: a proxy's
        message = f"status {status}: {body[:200].decode('utf-8', 'replace')}"
    if status in _MAY_PASS:
        raise _MayPass(message, min(float(retry_after), _LONGEST_WISH_S) if retry_after.isdecimal() else 0.0)
    if 400 <= status < 500:
        raise UsageError(message)
    raise ServiceFailed(message)


def _batches(rows: Iterable[Row], most: int) -> Iterator[tuple[list[str], list[bytes]]]:
    """(ids, rows as JSON) of one request after another."""
    if isinstance(rows, (str, Path, Mapping)) or type(rows).__name__ == "DataFrame":
        raise UsageError(f"rows is {brief(rows)}; give a list of mappings, one for each completion")
    ids, batch, size, last = list[str](), list[bytes](), 0, None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is {brief(row)}; it must be a mapping of columns")
        encoded, task = _encoded(row, number), row.get("task")
        full = len(batch) >= most or size + len(encoded) > _BATCH_BYTES
        if batch and full and (task is None or task != last):
            yield ids, batch
            ids, batch, size = [], [], 0
        ids.append(f"line:{number}" if row.get("id") is None else str(row["id"]))
        batch.append(encoded)
        size, last = size + len(encoded), task
    if batch:
        yield ids, batch


def _encoded(row: Row, number: int) -> bytes:
    """As JSON; a NaN is pandas's way to say that there is nothing."""
    known = {name: value for name, value in row.items() if not (isinstance(value, float) and value != value)}
    try:
        return json.dumps(known, default=plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"row {number} cannot be sent as JSON: {error}") from error


def _reply(id: str, line: bytes) -> Reply:
    try:
        said = json.loads(line)
        return Reply(id, None, said["error"]) if "error" in said else Reply(id, score_from(said))
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceFailed(f"an answer cannot be read, is that rlvr serve? {error!r} in {line[:200]!r}") from error
