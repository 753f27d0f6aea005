"""The client of `rlvr serve`: scores over HTTP, with retries.

    with Client("http://127.0.0.1:8000") as client:
        for served in client.score("gsm8k-v2", rows):
            print(served.id, served.score.total if served.score else served.error)

It needs the standard library alone: a trainer's machine installs no HTTP library for it.  A request keeps its id when
it is sent again, so that the service does not score it twice.
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
from urllib.parse import SplitResult, unquote, urlsplit

from rlvr.data.lines import Row
from rlvr.errors import DataError, ServiceFailed, UsageError, brief
from rlvr.scoring.records import score_from
from rlvr.types import Score, plain
from rlvr.validate import require_number, require_whole

__all__ = ["Client", "ServedScore"]

_BATCH_BYTES = 4 << 20  # greatest size of a request's rows, which long completions reach before `batch` rows
_READ_BYTES = 1 << 16
_MOST_LINE_BYTES = 64 << 20  # as much as a worker's reply may have
_MOST_ID_LETTERS = 200  # of an id that the service repeats
_MOST_ERROR_LETTERS = 1000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LONGEST_RETRY_AFTER_S = 0.25, 10.0, 60.0
_RETRYABLE = (429, 502, 503)  # a full queue, a proxy that finds no service, a service that is being replaced


@dataclass(frozen=True, slots=True)
class ServedScore:
    """The score of one row, or why it has none.

    Attributes:
        id: the row's own, or `line:7`.
        score: as `Scorer` would give it, with total None if UNSCORED; None for a row that cannot be used.
        error: why the row cannot be used; else empty.
    """

    id: str
    score: Score | None
    error: str = ""


class Client:
    """Asks a service for scores.  Safe from any thread; connections are kept and used again.

    Args:
        url: of the service, such as http://127.0.0.1:8000.  The password of http://any:KEY@host is taken as the key.
        api_key: None for the key in the URL, or else the value of the variable RLVR_API_KEY, if it is set.
        timeout_s: seconds without a byte from the service after which a request is sent again.
        retries: how often a request is sent again.  Pauses double up to ten seconds, or are what the service asks.
        batch: greatest number of rows per request.

    Raises:
        UsageError: the URL is malformed or has a query, no header can carry the key, or a number is out of range.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout_s: float = 660.0, retries: int = 8, batch: int = 512
    ) -> None:
        parts, port = _split(url)
        require_number("timeout_s", timeout_s, 0.001)
        require_whole("retries", retries, 0)
        require_whole("batch", batch, 1)
        self.retries, self.batch, self.timeout_s = retries, batch, timeout_s
        assert parts.hostname is not None
        self._host, self._port, self._path = parts.hostname, port, f"{parts.path.rstrip('/')}/score"
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path}"  # without a key
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        key = unquote(parts.password) if api_key is None and parts.password else api_key
        key = os.environ.get("RLVR_API_KEY", "").strip() if key is None else key
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError("the API key has spaces, line ends or letters beyond ASCII; use letters and digits")
        self._key = key
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        # For a client that is dropped without being closed.
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def score(self, env: str | None, rows: Iterable[Row]) -> list[ServedScore]:
        """One `ServedScore` per row, in order.

        Args:
            env, rows: see `stream`, which also says what is raised.
        """
        return list(self.stream(env, rows))

    async def ascore(self, env: str | None, rows: Iterable[Row]) -> list[ServedScore]:
        """The same as `score`, without blocking the event loop.

        Args:
            env, rows: see `stream`.
        """
        return await asyncio.to_thread(self.score, env, rows)

    def stream(self, env: str | None, rows: Iterable[Row]) -> Iterator[ServedScore]:
        """Scores in the order of the rows, each as soon as it is there.

        The rows are sent in requests of `batch` rows; neighbours that name the same `task` stay together, for rewards
        that compare the completions of a task.

        Args:
            env: the name of one of the service's environments; None for its only one.
            rows: mappings, as `Scorer.stream` takes them.

        Raises:
            UsageError: the service refuses the request, such as for its key or its environment.
            DataError: a row cannot be sent as JSON.
            ServiceFailed: the service cannot be reached or fails, after all retries.
        """
        for ids, batch in _batches(rows, self.batch):
            asked = {"request_id": uuid.uuid4().hex} | ({} if env is None else {"env": env})
            body = b'%s, "rows": [%s]}' % (json.dumps(asked)[:-1].encode(), b", ".join(batch))
            for place, line in enumerate(self._lines(body, len(batch))):
                yield _served(ids[place], f"line:{place + 1}", line)

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            _close_all(self._idle)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _lines(self, body: bytes, count: int) -> Iterator[bytes]:
        """The lines of a request's response, each of them once, over all attempts."""
        had, pause_s = 0, _FIRST_PAUSE_S
        for left in range(self.retries, -1, -1):
            retry_after_s = 0.0
            try:
                for number, line in enumerate(self._sent(body)):
                    if number == count:
                        raise ServiceFailed(
                            f"{self.url}: its response has more lines than the {count} rows of a request"
                        )
                    if number == had:
                        had += 1
                        yield line
                if had == count:
                    return
                problem = f"its response had {had} lines for {count} rows"
            except _RetryableError as error:
                problem, retry_after_s = str(error), error.retry_after_s
            except (OSError, http.client.HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
            if left:
                time.sleep(
                    max(retry_after_s, pause_s * random.uniform(0.5, 1))
                )  # random, so that callers that failed together do not come back together
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise ServiceFailed(f"{self.url}, asked {self.retries + 1} times: {problem}")

    def _sent(self, body: bytes) -> Iterator[bytes]:
        """The lines of one attempt.  Closing this generator closes the connection, and the service stops scoring."""
        connection, response = self._response(body)
        whole = False
        try:
            if response.status != 200:
                self._raise_for(response.status, response.read(_READ_BYTES), response.getheader("Retry-After", ""))
            # Until Python 3.12 read1 does not notice the end of a body with a Content-Length.
            read = response.read1 if response.chunked else response.read
            for line in _split_lines(iter(lambda: read(_READ_BYTES), b"")):
                if line.startswith(_STOPPED):
                    self._raise_for(0, line, "")
                yield line
            whole = not response.will_close
        finally:
            if whole:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _raise_for(self, status: int, body: bytes, retry_after: str) -> None:
        """Raise what a status other than 200 means, or the last line of a stream that was stopped."""
        try:
            refusal = json.loads(body)
            message = str(refusal.get("error") or refusal["stopped"])
            status = status or int(refusal["status"])
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
            # It is from a proxy, not from rlvr serve.
            message = f"status {status}: {body[:200].decode('utf-8', 'replace')}"
        message = message[:_MOST_ERROR_LETTERS]
        if self._key:
            message = message.replace(self._key, "…")
        if status in _RETRYABLE:
            retry_after_s = min(float(retry_after), _LONGEST_RETRY_AFTER_S) if retry_after.isdecimal() else 0.0
            raise _RetryableError(message, retry_after_s)
        if 400 <= status < 500:
            raise UsageError(message)
        raise ServiceFailed(message)

    def _response(self, body: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            connection = kept or self._kind(self._host, self._port, timeout=self.timeout_s)
            try:
                with suppress(
                    BrokenPipeError
                ):  # the service responded before it had read all, and that response can be read
                    connection.request("POST", self._path, body, self._headers)
                return connection, connection.getresponse()
            except BaseException as error:
                connection.close()
                if kept is None or not isinstance(error, ConnectionError):
                    raise  # an idle connection may have been closed by the service; then the next one is tried


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


_STOPPED = b'{"stopped":'


class _RetryableError(Exception):
    """The service refuses the request now and may accept it later."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def _split(url: str) -> tuple[SplitResult, int | None]:
    """The parts of a URL and its port.  No error shows the URL: it may hold a key.

    Raises:
        UsageError: it is malformed, or has a query or a fragment.
    """
    example = "write one such as http://127.0.0.1:8000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except (ValueError, AttributeError) as error:
        raise UsageError(f"the url cannot be read: {_without_digits(error)}; {example}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"the url has no scheme http or https, or no host; {example}")
    if parts.query or parts.fragment:
        raise UsageError(
            f"the url has a query or a fragment, which are not sent; {example}, and give the key as api_key"
        )
    if port == 0 or not (parts.hostname + parts.path).isprintable() or " " in parts.hostname + parts.path:
        raise UsageError(f"the url has port 0, a space or a line end; {example}")
    return parts, port


def _without_digits(error: Exception) -> str:
    """Why a port is none, without what was given for it, which may be a part of a key."""
    return "its port is no number from 1 to 65535" if "ort" in str(error) else "its host is malformed"


def _split_lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The whole lines of a text that comes in parts.

    Raises:
        ServiceFailed: a line is too long.
    """
    begun: list[bytes] = []
    size = 0
    for part in parts:
        first, *others = part.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > _MOST_LINE_BYTES:
            raise ServiceFailed(f"a line of the response has more than {_MOST_LINE_BYTES >> 20} MiB")
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun, size = [others[-1]], len(others[-1])


def _batches(rows: Iterable[Row], most: int) -> Iterator[tuple[list[str], list[bytes]]]:
    """(ids, rows as JSON) of each request."""
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
        ids.append(_id_of(row, number))
        batch.append(encoded)
        size, last = size + len(encoded), task
    if batch:
        yield ids, batch


def _id_of(row: Row, number: int) -> str:
    """The id of a row as the service repeats it: whole floats are ints, as pandas makes them of ints with a gap."""
    given = row.get("id")
    if given is None or given != given:
        return f"line:{number}"
    if not isinstance(given, str):
        given = json.loads(json.dumps(given, default=plain))
    return str(int(given)) if isinstance(given, float) and given.is_integer() else str(given)


def _encoded(row: Row, number: int) -> bytes:
    """A row as JSON, without NaN, which pandas writes for missing values."""
    known = {name: value for name, value in row.items() if not (isinstance(value, float) and value != value)}
    try:
        return json.dumps(known, default=plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"row {number} cannot be sent as JSON: {error}") from error


def _served(id: str, place: str, line: bytes) -> ServedScore:
    """The score in a line, if it is that of the row that is due.

    Args:
        id: of the row, or `line:7` where it has none.
        place: the id that the service gives to a row without one.
        line: of the response.
    """
    try:
        row = json.loads(line)
        given = str(row["id"])
        if given not in (id[:_MOST_ID_LETTERS], place if id.startswith("line:") else id):
            raise ServiceFailed(f"the response has the row {given[:60]!r} where {id[:60]!r} was due")
        return ServedScore(id, None, row["error"]) if "error" in row else ServedScore(id, score_from(row))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ServiceFailed(f"the response is not that of rlvr serve: {error!r} in {line[:200]!r}") from error
