"""Bodies of requests: read within their limits, and parsed so that the
event loop goes on meanwhile.

`json.loads` holds the interpreter until it returns.  So a large body is first scanned for how many
values it has, which bounds the time and the memory of parsing it, and then parsed row by row, in a
thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import orjson
from starlette.requests import ClientDisconnect

from rlvr.http.limits import HttpLimits
from rlvr.http.memory import MIB, MemoryShare
from rlvr.http.refused import Refused
from rlvr.http.request import HttpRequest
from rlvr.types import JsonDict
from rlvr.workers.threads import Threads

__all__ = ["Body", "BodyReader"]

# parsed in the event loop: it takes less than a hop to another thread and back
_AT_ONCE_BYTES = 1 << 14
# values after which other threads get the interpreter: they would wait 5 ms each time
_TURN_VALUES, _TURN_S = 256, 5e-5
# lists and objects in each other: Python itself cannot show, copy or send what is 1000 deep
_DEEPEST = 200
# what Python needs for a value beside its text, on average, in the worst of shapes
_VALUE_BYTES = 120
_WINDOW = 1 << 16  # bytes that are searched at once
_WIDE = re.compile(rb"\\u[dD][89abAB]|[\xf0-\xf7]")  # a letter of 4 bytes in Python
_SIGNS = (b",", b":", b"[", b"{")
_LONG_NUMBER = re.compile(rb"[0-9]{19}")  # beyond 64 bits
_SIGN = re.compile(rb'[\[\]{},"]')
# Also a text without an end: the search would else begin again at each quotation mark in it.
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # 1 deeper, 1 less deep
# All other bytes, which `translate` deletes: what is left are the steps.
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_TOO_DEEP = f"its lists and objects stand more than {_DEEPEST} deep in each other"


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request.

    Attributes:
        asked: the JSON object in it.
        digest: of its bytes.
    """

    asked: JsonDict
    digest: bytes


class BodyReader:
    """Reads and parses the bodies of an application's requests.

    Args:
        limits: of the application.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        # one: two would take the interpreter from each other
        self._thread = Threads(1, "request bodies")

    def close(self) -> None:
        """End the thread."""
        self._thread.close(cancel=True)

    async def read(self, request: HttpRequest) -> Body:
        """The body of a request; what its values take of memory is held by its share then.

        Args:
            request: with a body that was not read yet.

        Raises:
            Refused: it is too large, too slow, or no JSON object.
            ClientDisconnect: the caller has left.
        """
        # Parameters such as a charset do not count: JSON is UTF-8.
        kind = request.header(b"content-type").partition(";")[0].strip().lower()
        if kind != "application/json" or request.header(b"content-encoding") not in (
            "",
            "identity",
        ):
            # A web page can send other types to this machine without a CORS request, but never
            # JSON.
            named = kind[:60] or "of no stated type"
            raise Refused(
                415, "not-json", f"the body is {named}; send application/json, uncompressed"
            )
        share = request.share
        connection = request.scope.get("rlvr.connection")
        # A body that has come with its head is taken over without a copy.
        if connection is not None and connection.has_body:
            body = connection.take_body()
            if len(body) > self._limits.body_mib * MIB:
                raise _too_large(int(self._limits.body_mib * MIB))
            # Small ones are not counted: their values are, in `_parse_body`.
            if len(body) > _AT_ONCE_BYTES:
                share.add(len(body))
        else:
            try:
                async with asyncio.timeout(self._limits.body_s):
                    body = await self._receive(request)
            except TimeoutError:
                message = (
                    f"the body was not there within {self._limits.body_s:g} s; "
                    "send it faster, or less of it"
                )
                raise Refused(408, "too-slow", message) from None
        if len(body) <= _AT_ONCE_BYTES:
            return self._parse_body(body, share)
        # No local for the future: with the refusal that it has, and this frame, it would be a cycle
        # that holds the body until the garbage collector comes.
        parsed = await asyncio.wrap_future(
            self._thread.submit(self._parse_body, body, share, connection)
        )
        if connection is not None and connection.has_left:
            raise ClientDisconnect
        return parsed

    async def _receive(self, request: HttpRequest) -> bytearray:
        limit = int(self._limits.body_mib * MIB)
        declared = request.header(b"content-length")
        # Refused before a byte of it is read; twenty digits are more than any size.
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        # it grows without a copy, where joining parts would stop all threads
        body, has_more = bytearray(), True
        while has_more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part, has_more = message.get("body", b""), message.get("more_body", False)
            if len(body) + len(part) > limit:
                raise _too_large(limit)
            # Counted before it is kept, so that the limit holds at each moment.
            request.share.add(len(part))
            body += part
        return body

    def _parse_body(self, body: bytearray, share: MemoryShare, connection: Any = None) -> Body:
        """Called in a thread, unless the body is small."""
        # The caller may have left while the body waited for the thread.
        if connection is not None and connection.has_left:
            raise ClientDisconnect
        try:
            if len(body) <= _AT_ONCE_BYTES:
                # Width and signs bound what the values take; nothing is parsed before.
                share.set(len(body) * _width(body) + _VALUE_BYTES * sum(map(body.count, _SIGNS)))
                _require_flat(body)
                parsed = _loaded(body, plain=not _LONG_NUMBER.search(body))
            else:
                values, places, plain = _scanned(body, self._limits.body_values)
                share.set(len(body) * (1 + _width(body)) + _VALUE_BYTES * values)
                parsed = (
                    _loaded_by_rows(body, places, plain=plain)
                    if places
                    else _loaded(body, plain=plain)
                )
        except (ValueError, RecursionError) as error:
            message = f"the body is not JSON: {str(error)[:200]}; send one JSON object"
            raise Refused(400, "not-json", message) from None
        if not isinstance(parsed, dict):
            raise Refused(
                422, "not-an-object", f"the body is a {type(parsed).__name__}; send one JSON object"
            )
        # Only a request with an id can come again, with the same body or another one.
        digest = hashlib.blake2b(body, digest_size=16).digest() if "request_id" in parsed else b""
        if len(body) > _AT_ONCE_BYTES:
            share.add(-len(body))  # the bytes are gone, the values stay
        return Body(parsed, digest)


def _too_large(most: int) -> Refused:
    return Refused(
        413, "too-large", f"the body has more than {most} bytes; send fewer rows at once"
    )


def _require_flat(body: bytes | bytearray) -> None:
    """Refuse a small body that is too deep; `_scanned` does it for the others.

    Raises:
        ValueError: it is.
    """
    if body.count(b"[") + body.count(b"{") > _DEEPEST:
        # Texts are removed first: brackets in them are no steps.
        steps = memoryview(_TEXT.sub(b"", body).translate(_STEPS, _NO_BRACKETS)).cast("b")
        if max(accumulate(steps), default=0) > _DEEPEST:
            raise ValueError(_TOO_DEEP)


def _width(body: bytes | bytearray) -> int:
    """Bytes that a letter of the body's texts may take in Python, for each byte that it has here.

    Window by window: a search holds the interpreter until it returns.
    """
    width = 1
    for at in range(0, len(body), _WINDOW):
        # Six bytes are the longest: an escape, or a letter of four bytes.
        window = body[at : at + _WINDOW + 5]  # a letter may begin in one and end in the next
        # one letter is found far more quickly
        # ASCII without escapes has one byte a letter in Python.
        if not window.isascii() or (b"\\" in window and b"\\u" in window):
            if _WIDE.search(window):
                return 4
            width = 2
    return width


def _loaded(text: bytes | bytearray, *, plain: bool) -> object:
    """The JSON in a text.

    Args:
        text: the text.
        plain: whether no number in it is long: orjson, which is ten times as fast, makes floats of
            those.

    Raises:
        ValueError: it is not JSON.
    """
    if plain:
        # orjson is faster; it knows neither longer integers nor half pairs.
        try:
            return orjson.loads(text)
        # such as half of a surrogate pair; if anything else is wrong, that is said below
        except ValueError:
            pass
    # Half of a surrogate pair is kept, as Python's own parser keeps it.
    return _decode(text.decode("utf-8", "surrogatepass"))


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _scanned(body: bytes | bytearray, most: int) -> tuple[int, Sequence[tuple[int, int]], bool]:
    """Look through a body without parsing it.

    A step of the loop is a text or a bracket; other threads have their turn in between.

    Returns:
        The number of values; where the objects in the list `rows` are, none if they are not plain
        to see; and whether no number is longer than 64 bits.

    Raises:
        Refused: there are more than `most` values.
        ValueError: they are too deep, or there is a window of white space, or of a number, and of
            no value.
    """
    values = depth = begin = end = 0
    places: list[tuple[int, int]] = []
    in_rows = seen_rows = twice = False
    plain = True
    last: bytes | bytearray = b""  # the text at depth 1 that came just before
    while True:
        # A window of text without any sign is no JSON of ours, and bounds the search.
        match = _SIGN.search(body, end, end + _WINDOW)
        if match is None:
            if end + _WINDOW < len(body):
                raise ValueError(f"{_WINDOW} bytes from byte {end} on have no value")
            return values, () if twice else places, plain
        at, sign = match.start(), match.group()
        # With more than 18 digits before the next sign, orjson may make a float of them.
        if at - end >= 19 and _LONG_NUMBER.search(body, end, at):
            plain = False
        end = at + 1
        if sign in b"]}":
            depth -= 1
            # A row is an object right below the list of "rows".
            if in_rows and depth == 2 and sign == b"}":
                places.append((begin, end))
            elif depth == 1:
                in_rows = False
            continue
        values += 1
        if values > most:
            message = (
                f"the body has more than {most} values; send fewer rows at once, or fewer columns"
            )
            raise Refused(413, "too-many-values", message)
        if values % _TURN_VALUES == 0:
            # The interpreter is handed over: the event loop goes on with other requests.
            time.sleep(_TURN_S)
        if sign == b'"':
            end = _end_of_text(body, end)
            if depth == 1:
                # A longer text is not that key.
                last = body[at:end] if end - at < 10 else b""
        elif sign == b",":
            if depth == 1:
                last = b""
        else:
            if depth == 2 and in_rows:
                begin = at
            if depth == 1 and sign == b"[" and last == b'"rows"':
                # A second list "rows": parsed as a whole, the last one counts, as in Python.
                twice = seen_rows  # it is not for us to decide which counts
                in_rows = seen_rows = True
            depth += 1
            if depth > _DEEPEST:
                raise ValueError(_TOO_DEEP)


def _end_of_text(body: bytes | bytearray, at: int) -> int:
    """The place behind the quotation mark that ends a text.

    Args:
        at: the place behind the one that begins it.
    """
    while (end := body.find(b'"', at)) >= 0:
        text = body[at:end]
        # An even number of backslashes before it: the quotation mark is no escape.
        if (len(text) - len(text.rstrip(b"\\"))) % 2 == 0:
            return end + 1
        at = end + 1
    return len(body)


def _loaded_by_rows(
    body: bytes | bytearray, places: Sequence[tuple[int, int]], *, plain: bool
) -> object:
    """The same as `_loaded`, in as many steps as there are rows.

    Raises:
        ValueError: it is not JSON.
    """
    (start, _), (_, end) = places[0], places[-1]
    between = zip((stop for _, stop in places), (begin for begin, _ in places[1:]), strict=False)
    try:
        # All but the rows, so that the frame is checked as JSON.
        parsed = _loaded(body[:start] + body[end:], plain=plain)  # with an empty list
    except ValueError:
        parsed = None
    if (
        not isinstance(parsed, dict)
        or parsed.get("rows") != []
        # Between two rows only a comma may stand; anything else is read as a whole.
        or any(body[a:b].strip() != b"," for a, b in between)
    ):
        # rows that are no objects, or an error, which is found once more
        return _loaded(body, plain=plain)
    rows = []
    for number, (begin, stop) in enumerate(places, 1):
        try:
            rows.append(_loaded(body[begin:stop], plain=plain))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from None
    return parsed | {"rows": rows}
