"""Trees: values as JSON, one line of ASCII each.

None, bool, int, float, str and list stand for themselves.  Any other value is an object with one key, its tag:
{"tuple": [1, 2]}, {"dict": [k, v, k, v]}, {"float": "nan"}, {"opaque": "Stack"}.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any, Final

__all__ = ["BYTES", "BadValue", "DEPTH", "NODES", "NotAValue", "Opaque", "dumps", "loads"]

DEPTH: Final = 100  # containers within containers: both ends recurse, and the host may be deep in its own stack
NODES: Final = 2_000_000  # values within one value: about 250 MB at worst
BYTES: Final = 32 << 20  # of one message

_JSON_DEPTH = 3 * DEPTH


class BadValue(ValueError):
    """A tree that `encode` never makes."""


class NotAValue(ValueError):
    """A value that cannot be sent: it is cyclic, too deep or too large."""


class Opaque:
    """Stands for an object that is not a value.  It equals nothing but itself.

    Args:
        type_name: of the object.
    """

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<{self.type_name} object>"


_NUMBER = re.compile(rb"[0-9]{4000}")  # int() of more than 4300 digits raises, or where that is switched off, is slow
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.S)  # an open one runs to the end: linear on any bytes
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_LEVEL = [0] * 256
for _bracket in b"[{":
    _LEVEL[_bracket] = 1
for _bracket in b"]}":
    _LEVEL[_bracket] = -1


def _no_constant(name: str) -> Any:
    raise BadValue(f"{name} is not JSON")


_from_json = json.JSONDecoder(parse_constant=_no_constant).decode
_scan_json = (
    json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # C code that looks nothing up while it runs
        None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False
    )
    if getattr(json.encoder, "c_make_encoder", None)
    else lambda tree, _: json.JSONEncoder(separators=(",", ":"), allow_nan=False).iterencode(tree)
)


def dumps(tree: Any) -> bytes:
    """A tree as one line of ASCII.

    Args:
        tree: as `encode` returned it.
    """
    return "".join(_scan_json(tree, 0)).encode("ascii")


def loads(data: bytes, limit: int = BYTES) -> Any:
    """The tree that `dumps` wrote.  Takes time linear in the length of `data`, whatever it contains.

    Args:
        data: one line.
        limit: bytes that it may have.

    Raises:
        BadValue: it is no such line, or too large.
    """
    if len(data) > limit:
        raise BadValue("too long")
    if data.count(b"[") + data.count(b"{") > DEPTH or data.count(b",") > NODES or _NUMBER.search(data):
        bare = _STRINGS.sub(b'""', data)
        if bare.count(b",") > NODES or _NUMBER.search(bare):
            raise BadValue("too large")
        brackets = bare.translate(None, _NOT_BRACKETS)
        if len(brackets) > 2 * NODES or max(accumulate(map(_LEVEL.__getitem__, brackets)), default=0) > _JSON_DEPTH:
            raise BadValue("too large or too deep")
    try:
        return _from_json(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise BadValue(f"not JSON: {error}") from None
