"""The client of `rlvr serve`: scores over HTTP from one service or several, with patience.

    with Client("http://127.0.0.1:8000") as client:
        for served in client.score("gsm8k-v4", rows):
            print(served.id, served.score.total if served.score else served.error)

A request goes to the least loaded service.  One that fails is left out for a while and tried again;
its requests go to the others.  A request keeps its id when it is sent again, so that a service does
not score it twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import threading
import time
import uuid
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import httpx

from rlvr.data.lines import Row
from rlvr.errors import DataError, ServiceFailed, UsageError, brief
from rlvr.scoring.engines.balance import Balance
from rlvr.scoring.engines.patience import PATIENCE_S, Patience, require_patience
from rlvr.scoring.identity import IDENTITY_HEADER, Identity, require_acceptable
from rlvr.scoring.records import score_from
from rlvr.types import Score, plain
from rlvr.validate import require_number, require_whole
from rlvr.workers.closing import Closing

__all__ = [
    "Address",
    "Client",
    "PatienceSpent",
    "RequestTooLarge",
    "ServedIdentity",
    "ServedScore",
    "ServiceConnections",
]

# greatest size of a request's rows, which long completions reach before `batch` rows
_BATCH_BYTES = 4 << 20
# Of a refusal's body, of which only the message is shown: what answers may be no service of ours.
_REFUSAL_BYTES = 1 << 16
# A service that is up accepts at once, so this is apart from the time of an answer.
_CONNECT_S = 10.0
_MOST_LINE_BYTES = 64 << 20  # as much as a worker's reply may have
_MOST_ID_LETTERS = 200  # of an id that the service repeats
_MOST_ERROR_LETTERS = 1000
# How long to be patient is the scorer's setting; a proxy may not set hours.
_LONGEST_RETRY_AFTER_S = 60.0
# a full queue, a proxy that finds no service, a service that is being replaced
_RETRYABLE = (429, 502, 503)


@dataclass(frozen=True, slots=True)
class ServedScore:
    """The score of one row, or why it has none.

    Attributes:
        id: the row's own, or `line:7`.
        score: as `Scorer` would give it, with total None if UNSCORED; None for a row that cannot be
            used.
        error: why the row cannot be used; else empty.
    """

    id: str
    score: Score | None
    error: str = ""


class Client(Closing):
    """Asks services for scores.  Safe from any thread; connections are kept and used again.

    Args:
        url: of the service, such as http://127.0.0.1:8000, or of several that serve the same.  The
            password of http://any:KEY@host is taken as the key.
        api_key: None for the key in the URL, or else the value of the variable RLVR_API_KEY, if it
            is set.
        timeout_s: seconds without a byte from the service after which a request is sent again.
        patience_s: seconds for which a request is sent again while no service answers it; they
            begin anew with each row that comes.  Pauses double up to ten seconds, or are what a
            service asks.  0: it is sent once.
        batch: greatest number of rows per request.
        accept: parts of the identity in which the services may differ, or change: "code", "inputs".

    Raises:
        UsageError: the URL is malformed or has a query, no header can carry the key, or a number is
            out of range.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        api_key: str | None = None,
        *,
        timeout_s: float = 660.0,
        patience_s: float = PATIENCE_S,
        batch: int = 512,
        accept: Collection[str] = (),
    ) -> None:
        require_whole("batch", batch, 1)
        self.batch, self._accept = batch, accept
        require_acceptable(accept)
        self._identities: dict[str | None, ServedIdentity] = {}
        self._connections = ServiceConnections(
            url, api_key, timeout_s=timeout_s, patience_s=patience_s
        )
        self.url = self._connections.name

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

        The rows are sent in requests of `batch` rows; neighbours that name the same `task` stay
        together, for rewards that compare the completions of a task.

        Args:
            env: the name of one of the service's environments; None for its only one.
            rows: mappings, as `Scorer.stream` takes them.

        Raises:
            UsageError: the service refuses the request, such as for its key or its environment; or
                it scores by other code or settings than another one, or than before.
            DataError: a row cannot be sent as JSON.
            ServiceFailed: the service fails, or none was reached in `patience_s`.
        """
        for ids, batch in _batches(rows, self.batch):
            # Put together by hand: rows are encoded already.
            head = {"request_id": uuid.uuid4().hex} | ({} if env is None else {"env": env})
            body = b'%s, "rows": [%s]}' % (json.dumps(head)[:-1].encode(), b", ".join(batch))
            served = self._identities.setdefault(
                env, ServedIdentity(self._connections, self._accept)
            )
            lines = self._connections.lines("score", body, len(batch), served)
            for place, line in enumerate(lines):
                yield _read_served(ids[place], f"line:{place + 1}", line)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is.

    Attributes:
        url: without a key, such as http://127.0.0.1:8000; errors name it.
        key: the API key; "" for none.
    """

    url: str
    key: str

    @classmethod
    def read(cls, url: str, api_key: str | None) -> Address:
        """The address in a URL.

        Args:
            url, api_key: see `Client`.

        Raises:
            UsageError: see `Client`.
        """
        parts, port = _split(url)
        assert parts.hostname is not None
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        key = unquote(parts.password) if api_key is None and parts.password else api_key
        key = os.environ.get("RLVR_API_KEY", "").strip() if key is None else key
        # A line end in a header would begin another header.
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(
                "the API key has spaces, line ends or letters beyond ASCII; use letters and digits"
            )
        return cls(
            f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}",
            key,
        )


class ServiceConnections:
    """HTTP to one service or several: requests are sent again until one of them has answered whole.

    Args:
        url, api_key, timeout_s, patience_s: see `Client`.

    Raises:
        UsageError: see `Client`; or there is no address, or one twice.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        api_key: str | None = None,
        *,
        timeout_s: float,
        patience_s: float,
    ) -> None:
        require_number("timeout_s", timeout_s, 0.001)
        self.patience_s = require_patience(patience_s)
        self.addresses = [
            Address.read(address, api_key) for address in ([url] if isinstance(url, str) else url)
        ]
        urls = [address.url for address in self.addresses]
        if not urls:
            raise UsageError("there is no url; give at least one, such as http://127.0.0.1:8000")
        if twice := next((address for address in urls if urls.count(address) > 1), None):
            raise UsageError(f"{twice} is named twice; name each service once")
        self.name = ", ".join(urls)
        self.balance = Balance(len(urls))
        # No proxies and no .netrc: services are machines of one's own.
        secure: ssl.SSLContext | bool = (
            ssl.create_default_context() if "https:" in self.name else False
        )
        self._http = httpx.Client(
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
            # No limit: the number of requests is the scorer's to choose.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            # Lines are read raw as they come, so nothing may be compressed.
            headers={"User-Agent": "rlvr", "Accept-Encoding": "identity"},
            verify=secure,
            trust_env=False,
        )
        weakref.finalize(
            self, self._http.close
        ).atexit = False  # of a client that is dropped without being closed

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, place: int, path: str) -> Any:
        """The JSON that one service has at a path, asked once.

        Args:
            place: of the service.
            path: such as "envs".

        Raises:
            ServiceFailed: it cannot be reached, or fails.
            UsageError: it refuses.
        """
        address = self.addresses[place]
        try:
            with self._sent("GET", address, path, None) as response:
                return json.loads(response.read())
        except UsageError:  # which is a ValueError too
            raise
        except (httpx.HTTPError, _RetryableError, ValueError) as error:
            raise ServiceFailed(f"{address.url}: {_describe_error(error)}") from None

    def lines(
        self, path: str, body: bytes, count: int, served: ServedIdentity | None = None
    ) -> Iterator[bytes]:
        """The lines of a request's response, each of them once, over all attempts and services.

        Args:
            path: such as "score".
            body: JSON.
            count: how many lines there must be.
            served: compares by what the services score; None where nothing is compared.

        Raises:
            UsageError: a service refuses the request.
            PatienceSpent: no service could be reached or answered.
            ServiceFailed: a service answers that it failed.
        """
        had = 0
        patience = Patience(self.patience_s, [address.url for address in self.addresses])
        while True:
            slot = self.balance.take()
            is_lost, retry_after_s = True, 0.0
            try:
                if slot.wait_s:
                    time.sleep(min(slot.wait_s, patience.left_s))
                for number, line in enumerate(self._read(slot.place, path, body, served)):
                    if number == count:
                        raise ServiceFailed(
                            f"{self.addresses[slot.place].url}: its response has more lines than "
                            f"the {count} rows asked"
                        )
                    # Lines before it were given out after an earlier attempt.
                    if number == had:
                        had += 1
                        # Something came: the service works, so patience begins anew.
                        patience.succeeded()
                        yield line
                # Fewer lines than rows: the connection broke, or the service ended.
                is_lost = had != count
                if is_lost:
                    patience.failed(slot.place, f"its response had {had} lines for {count} rows")
            except _RetryableError as error:
                patience.failed(slot.place, str(error))
                retry_after_s = error.retry_after_s
            except httpx.HTTPError as error:
                patience.failed(slot.place, _describe_error(error))
            # The caller's fault, or its own end: the service is not to blame.
            except (UsageError, GeneratorExit):
                is_lost = False  # it answers
                raise
            finally:
                self.balance.give_back(slot, is_lost=is_lost, at_least_s=retry_after_s)
            if not is_lost:
                return
            if patience.is_spent:
                raise PatienceSpent(str(patience))

    def _read(
        self, place: int, path: str, body: bytes, served: ServedIdentity | None
    ) -> Iterator[bytes]:
        """The lines of one attempt.  Closing this generator closes the connection, and the service
        stops scoring."""
        address = self.addresses[place]
        known = "" if served is None else served.known(place)
        with self._sent("POST", address, path, body, known) as response:
            # A reward model says none.
            is_other = response.headers.get(IDENTITY_HEADER.decode(), "none") != (known or "none")
            for line in _split_lines(response.iter_raw()):
                if line.startswith(_STOPPED):
                    _raise_for(address, 0, line, "")
                if served is not None and line.startswith(_IDENTITY):
                    served.hear(place, line)
                    is_other = False
                elif line:  # an empty one only says that the service is there
                    # Before the first row: those of another judge are not taken.
                    if served is not None and is_other:
                        raise _says_nothing(address.url)
                    yield line

    @contextmanager
    def _sent(
        self, method: str, address: Address, path: str, body: bytes | None, known: str = ""
    ) -> Iterator[httpx.Response]:
        headers = {"Accept": "application/x-ndjson" if body is not None else "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if known:
            headers[IDENTITY_HEADER.decode()] = known
        if address.key:
            headers["Authorization"] = f"Bearer {address.key}"
        try:
            with self._http.stream(
                method, f"{address.url}/{path}", content=body, headers=headers
            ) as response:
                if response.status_code != 200:
                    refusal = b"".join(_first(response.iter_raw(), _REFUSAL_BYTES))
                    _raise_for(
                        address,
                        response.status_code,
                        refusal,
                        response.headers.get("Retry-After", ""),
                    )
                yield response
        except RuntimeError as error:  # httpx's own for this
            if self._http.is_closed:
                raise UsageError("this client is closed; open a new one") from None
            raise error


class ServedIdentity:
    """By what several services score one environment; they must be the same, whenever they answer,
    and so must those that stand behind one address.

    Attributes:
        identity: of all of them, as far as it is known; None before the first has answered.
        names: of the environment at the services, by their places.

    Args:
        connections: to the services.
        accept: parts of the identity in which services may differ.
        identity: that they must have; None for that of the first to answer.
    """

    def __init__(
        self,
        connections: ServiceConnections,
        accept: Collection[str],
        identity: Identity | None = None,
    ) -> None:
        self.identity, self._first = identity, "this machine"
        self.names: dict[int, str] = {}
        self._connections, self._accept = connections, accept
        self._digests: dict[int, str] = {}
        self._lock = threading.Lock()

    def known(self, place: int) -> str:
        """The digest of what a service has said of its identity; "none" before it has.

        Args:
            place: of the service.
        """
        return self._digests.get(place, "none")

    def hear(self, place: int, line: bytes) -> None:
        """Compare what an answer says of its service's identity with all others.

        Args:
            place: of the service.
            line: of the answer.

        Raises:
            UsageError: it scores by another one, or the line says none.
        """
        try:
            self._add(place, Identity.from_dict(json.loads(line)["identity"]))
        except (ValueError, RecursionError) as error:
            if isinstance(error, UsageError):
                raise
            raise _says_nothing(self._connections.addresses[place].url) from None

    def ask(self, place: int) -> None:
        """Ask a service by what it scores, and compare it with the others.

        Args:
            place: of the service.

        Raises:
            UsageError: it scores by another one.
            ServiceFailed: it cannot be reached.
        """
        served = self._connections.get(place, "envs")
        try:
            what = served[self.names[place]]["identity"]
        except (KeyError, TypeError):
            raise _says_nothing(self._connections.addresses[place].url) from None
        self._add(place, Identity.from_dict(what))

    def _add(self, place: int, identity: Identity) -> None:
        url, digest = self._connections.addresses[place].url, identity.whole
        with self._lock:
            # The first that answers is the measure for all others.
            if self.identity is None:
                self.identity, self._first = identity, url
            here, there = self._first, url
            if here == there:
                # Started anew, edited, or one of several.
                here = f"an earlier answer (identity {self.known(place)})"
                there = f"an answer of {url} (identity {digest})"
            self.identity.add(identity, there, self._accept, here=here)
            self._digests[place] = digest


def _says_nothing(url: str) -> UsageError:
    return UsageError(
        f"{url} does not say by what it scores; is it rlvr serve, of the version here?"
    )


def _raise_for(address: Address, status: int, body: bytes, retry_after: str) -> None:
    """Raise what a status other than 200 means, or the last line of a stream that was stopped."""
    try:
        refusal = json.loads(body)
        message = str(refusal.get("error") or refusal["stopped"])
        status = status or int(refusal["status"])
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        # It is from a proxy, not from rlvr serve.
        message = f"status {status}: {body[:200].decode('utf-8', 'replace')}"
    message = message[:_MOST_ERROR_LETTERS]
    if address.key:
        # A proxy may repeat the request's head in its page.
        message = message.replace(address.key, "…")
    if status in _RETRYABLE:
        retry_after_s = (
            min(float(retry_after), _LONGEST_RETRY_AFTER_S) if retry_after.isdecimal() else 0.0
        )
        raise _RetryableError(message, retry_after_s)
    # The caller splits the request; nothing is wrong with the service.
    if status == 413:
        raise RequestTooLarge(message)
    if 400 <= status < 500:
        raise UsageError(message)
    raise ServiceFailed(message)


def _first(parts: Iterator[bytes], most: int) -> Iterator[bytes]:
    for part in parts:
        yield part
        most -= len(part)
        if most <= 0:
            return


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


_STOPPED = b'{"stopped":'
_IDENTITY = b'{"identity":'


class RequestTooLarge(UsageError):
    """A request has more bytes, rows or values than the service takes at once."""


class PatienceSpent(ServiceFailed):
    """No service could be reached or answered within the patience."""


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
        # The URL's error would quote a part of it, perhaps the key.
        raise UsageError(f"the url cannot be read: {_without_digits(error)}; {example}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"the url has no scheme http or https, or no host; {example}")
    if parts.query or parts.fragment:
        raise UsageError(
            f"the url has a query or a fragment, which are not sent; {example}, and give the key "
            f"as api_key"
        )
    if (
        port == 0
        or not (parts.hostname + parts.path).isprintable()
        or " " in parts.hostname + parts.path
    ):
        raise UsageError(f"the url has port 0, a space or a line end; {example}")
    return parts, port


def _without_digits(error: Exception) -> str:
    """Why a port is none, without what was given for it, which may be a part of a key."""
    return (
        "its port is no number from 1 to 65535" if "ort" in str(error) else "its host is malformed"
    )


def _split_lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The whole lines of a text that comes in parts.

    Raises:
        ServiceFailed: a line is too long.
    """
    begun: list[bytes] = []
    size = 0
    for part in parts:
        first, *ended = part.split(b"\n")
        begun.append(first)
        size += len(first)
        # A line without end would take all memory.
        if size > _MOST_LINE_BYTES:
            raise ServiceFailed(
                f"a line of the response has more than {_MOST_LINE_BYTES >> 20} MiB"
            )
        if ended:
            yield b"".join(begun)
            yield from ended[:-1]
            begun, size = [ended[-1]], len(ended[-1])


def _batches(rows: Iterable[Row], most: int) -> Iterator[tuple[list[str], list[bytes]]]:
    """(ids, rows as JSON) of each request."""
    if isinstance(rows, (str, Path, Mapping)) or type(rows).__name__ == "DataFrame":
        raise UsageError(f"rows is {brief(rows)}; give a list of mappings, one for each completion")
    ids, batch, size, last = list[str](), list[bytes](), 0, None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is {brief(row)}; it must be a mapping of columns")
        encoded, task = _encode_row(row, number), row.get("task")
        full = len(batch) >= most or size + len(encoded) > _BATCH_BYTES
        # Neighbours of one task stay together, however many they are.
        if batch and full and (task is None or task != last):
            yield ids, batch
            ids, batch, size = [], [], 0
        ids.append(_id_of(row, number))
        batch.append(encoded)
        size, last = size + len(encoded), task
    if batch:
        yield ids, batch


def _id_of(row: Row, number: int) -> str:
    """The id of a row as the service repeats it: whole floats are ints, as pandas makes them of
    ints with a gap."""
    row_id = row.get("id")
    # NaN is the only value that differs from itself.
    if row_id is None or row_id != row_id:
        return f"line:{number}"
    if not isinstance(row_id, str):
        row_id = json.loads(json.dumps(row_id, default=plain))
    return str(int(row_id)) if isinstance(row_id, float) and row_id.is_integer() else str(row_id)


def _encode_row(row: Row, number: int) -> bytes:
    """A row as JSON, without NaN, which pandas writes for missing values."""
    columns = {
        name: value
        for name, value in row.items()
        if not (isinstance(value, float) and value != value)
    }
    try:
        return json.dumps(columns, default=plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"row {number} cannot be sent as JSON: {error}") from error


def _read_served(id: str, place: str, line: bytes) -> ServedScore:
    """The score in a line, if it is that of the row that is due.

    Args:
        id: of the row, or `line:7` where it has none.
        place: the id that the service gives to a row without one.
        line: of the response.
    """
    try:
        row = json.loads(line)
        answered_id = str(row["id"])
        # The service cuts ids, or numbers rows of this request.
        if answered_id not in (id[:_MOST_ID_LETTERS], place if id.startswith("line:") else id):
            raise ServiceFailed(
                f"the response has the row {answered_id[:60]!r} where {id[:60]!r} was due"
            )
        return (
            ServedScore(id, None, row["error"])
            if "error" in row
            else ServedScore(id, score_from(row))
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ServiceFailed(
            f"the response is not that of rlvr serve: {error!r} in {line[:200]!r}"
        ) from error
