"""Bodies of requests: read within their limits, and parsed so that the event loop goes on meanwhile.

`json.loads` holds the interpreter until it returns.  So a large body is first scanned for how many values it has, which
bounds the time and the memory of parsing it, and then parsed row by row, in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from rlvr.serve.limits import ServiceLimits
from rlvr.serve.memory import MIB, MemoryShare
from rlvr.serve.refused import Refused

__all__ = ["Asked", "Body", "BodyReader"]

_AT_ONCE_BYTES = 1 << 14  # parsed in the event loop: it takes less than a hop to another thread and back
_TURN_VALUES, _TURN_S = (
    256,
    5e-5,
)  # values after which other threads get the interpreter: they would wait 5 ms each time
_VALUE_BYTES = 120  # what Python needs for a value beside its text, on average, in the worst of shapes
_SIGNS = (b",", b":", b"[", b"{")
_LONG_NUMBER = re.compile(rb"[0-9]{19}")  # beyond 64 bits
_SIGN = re.compile(rb'[\[\]{},"]')


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose head is there.

    Attributes:
        scope, receive: as ASGI gives them.
        headers: the first of each name.
        share: the memory of the request.
        caller: the name of the key; empty for the key without a name.
    """

    scope: Scope
    receive: Receive
    headers: Mapping[bytes, bytes]
    share: MemoryShare
    caller: str

    def header(self, name: bytes) -> str:
        """The value of a header; empty if there is none.

        Args:
            name: in small letters.
        """
        return self.headers.get(name, b"").decode("latin-1")


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request.

    Attributes:
        asked: the JSON object in it.
        digest: of its bytes.
    """

    asked: dict[str, Any]
    digest: bytes


class BodyReader:
    """Reads and parses the bodies of a service's requests.

    Args:
        limits: of the service.
    """

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, "rlvr-bodies")  # one: two would take the interpreter from each other

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def read(self, asked: Asked) -> Body:
        """The body of a request; what its values take of memory is held by its share then.

        Args:
            asked: with a body that was not read yet.

        Raises:
            Refused: it is too large, too slow, or no JSON object.
            ClientDisconnect: the caller has left.
        """
        kind = asked.header(b"content-type").partition(";")[0].strip().lower()
        if kind != "application/json" or asked.header(b"content-encoding") not in ("", "identity"):
            # A web page can send other types to this machine without a CORS request, but never JSON.
            named = kind[:60] or "of no stated type"
            raise Refused(415, "not-json", f"the body is {named}; send application/json, uncompressed")
        share = asked.share
        connection = asked.scope.get("rlvr.connection")
        if connection is not None and connection.has_body:
            parts = [connection.take_body()]
            size = len(parts[0])
            if size > self._limits.body_mib * MIB:
                raise _too_large(int(self._limits.body_mib * MIB))
            if size > _AT_ONCE_BYTES:
                share.add(size)
        else:
            try:
                async with asyncio.timeout(self._limits.body_s):
                    parts, size = await self._parts(asked)
            except TimeoutError:
                message = f"the body was not there within {self._limits.body_s:g} s; send it faster, or less of it"
                raise Refused(408, "too-slow", message) from None
        if size <= _AT_ONCE_BYTES:
            return self._parsed(parts, share)
        body = await asyncio.get_running_loop().run_in_executor(self._thread, self._parsed, parts, share, connection)
        if connection is not None and connection.has_left:
            raise ClientDisconnect
        return body

    async def _parts(self, asked: Asked) -> tuple[list[bytes], int]:
        most = int(self._limits.body_mib * MIB)
        declared = asked.header(b"content-length")
        if declared.isdecimal() and int(declared[:20]) > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await asked.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size > most:
                raise _too_large(most)
            asked.share.add(len(part))
            parts.append(part)
        return parts, size

    def _parsed(self, parts: list[bytes], share: MemoryShare, connection: Any = None) -> Body:
        """Called in a thread, unless the body is small."""
        if connection is not None and connection.has_left:
            raise ClientDisconnect
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        try:
            if len(body) <= _AT_ONCE_BYTES:
                share.set(len(body) * _width(body) + _VALUE_BYTES * sum(map(body.count, _SIGNS)))
                asked = _loaded(body)
            else:
                values, places = _scanned(body, self._limits.body_values)
                share.set(len(body) * (1 + _width(body)) + _VALUE_BYTES * values)
                asked = _loaded_by_rows(body, places) if places else _loaded(body)
        except (ValueError, RecursionError) as error:
            message = f"the body is not JSON: {str(error)[:200]}; send one JSON object"
            raise Refused(400, "not-json", message) from None
        if not isinstance(asked, dict):
            raise Refused(422, "not-an-object", f"the body is a {type(asked).__name__}; send one JSON object")
        digest = hashlib.blake2b(body, digest_size=16).digest() if "request_id" in asked else b""
        if len(body) > _AT_ONCE_BYTES:
            share.add(-len(body))  # the bytes are gone, the values stay
        return Body(asked, digest)


def _too_large(most: int) -> Refused:
    return Refused(413, "too-large", f"the body has more than {most} bytes; send fewer rows at once")


def _width(body: bytes) -> int:
    """Bytes that a letter of the body's texts may take in Python, for each byte that it has here."""
    if body.isascii() and (b"\\" not in body or b"\\u" not in body):
        return 1
    return 4 if re.search(rb"\\u[dD][89abAB]|[\xf0-\xf7]", body) else 2


def _loaded(text: bytes) -> Any:
    # orjson is ten times as fast; but it makes floats of long numbers, and half of a surrogate pair is no JSON to it.
    if len(text) <= _AT_ONCE_BYTES and not _LONG_NUMBER.search(text):
        try:
            return orjson.loads(text)
        except ValueError:  # what is wrong is said below, if anything is
            pass
    return _decode(text.decode("utf-8", "surrogatepass"))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _scanned(body: bytes, most: int) -> tuple[int, Sequence[tuple[int, int]]]:
    """(number of values, where the objects in the list `rows` are); no places if they are not plain to see.

    A step of the loop is a text or a bracket; other threads have their turn in between.

    Raises:
        Refused: there are more than `most` values.
    """
    values = depth = begin = end = 0
    places: list[tuple[int, int]] = []
    in_rows = seen_rows = False
    last = b""  # the text at depth 1 that came just before
    while (found := _SIGN.search(body, end)) is not None:
        at, sign = found.start(), found.group()
        end = at + 1
        if sign in b"]}":
            depth -= 1
            if in_rows and depth == 2 and sign == b"}":
                places.append((begin, end))
            elif depth == 1:
                in_rows = False
            continue
        values += 1
        if values > most:
            message = f"the body has more than {most} values; send fewer rows at once, or fewer columns"
            raise Refused(413, "too-many-values", message)
        if values % _TURN_VALUES == 0:
            time.sleep(_TURN_S)
        if sign == b'"':
            end = _end_of_text(body, end)
            if depth == 1:
                last = body[at:end] if end - at < 10 else b""
        elif sign == b",":
            if depth == 1:
                last = b""
        else:
            if depth == 2 and in_rows:
                begin = at
            if depth == 1 and sign == b"[" and last == b'"rows"':
                if seen_rows:
                    return values + len(body) // 2, ()  # twice: it is not for us to decide which counts
                in_rows = seen_rows = True
            depth += 1
    return values, places


def _end_of_text(body: bytes, at: int) -> int:
    """The place behind the quotation mark that ends a text.

    Args:
        at: the place behind the one that begins it.
    """
    while (end := body.find(b'"', at)) >= 0:
        text = body[at:end]
        if (len(text) - len(text.rstrip(b"\\"))) % 2 == 0:
            return end + 1
        at = end + 1
    return len(body)


def _loaded_by_rows(body: bytes, places: Sequence[tuple[int, int]]) -> Any:
    """The same as `_loaded`, in as many steps as there are rows.

    Raises:
        ValueError: it is not JSON.
    """
    (start, _), (_, end) = places[0], places[-1]
    between = zip((stop for _, stop in places), (begin for begin, _ in places[1:]), strict=False)
    try:
        asked = _loaded(body[:start] + body[end:])  # with an empty list
    except ValueError:
        asked = None
    if not isinstance(asked, dict) or asked.get("rows") != [] or any(body[a:b].strip() != b"," for a, b in between):
        return _loaded(body)  # rows that are no objects, or an error, which is found once more
    rows = []
    for number, (begin, stop) in enumerate(places, 1):
        try:
            rows.append(_loaded(body[begin:stop]))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from None
    return asked | {"rows": rows}
