"""Function-call mode: the program's functions are called with the cases' arguments, and their return values are sent.

Requests and replies are on descriptors of their own.  The program shares this process and may write replies itself,
but only values, which its functions may return anyway.  Expected values are never in this process.

    calls:    [{"name": "f" | "Class.method" | "method", "args": [tree], "kwargs": {"k": tree}}]
    replies:  {"i": 0, "value": tree} or {"i": 0, "error": {"type": "ValueError", "message": "…"}}, a line each;
              {"i": 0, "items": tree} for an iterator, which equals no list; a test may still ask for its items
"""

from __future__ import annotations

import builtins
import itertools
import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from rlvr.sandbox.guest.values import BYTES, BadValue, Budget, NotAValue, decode, dumps, encode, loads, mro, name_of
from rlvr.workers.framing import write_all

__all__ = ["CallReply", "main", "read_replies", "requests", "resolve"]

globals().update(__builtins__=dict(vars(builtins)))  # our own copy: the program may change `builtins`

_ITEMS = 1_000_000  # of an iterator that is returned
_TEXT = 500  # characters of an error's message

_DICTS: tuple[Any, ...] = ({}, OrderedDict())
_VIEWS = tuple(type(view) for made in _DICTS for view in (made.keys(), made.values(), made.items()))


class CallReply(NamedTuple):
    """The result of one call: a value (of an iterator, the list of its items), or an error's type and message."""

    value: Any = None
    error: tuple[str, str] | None = None
    listed: bool = False


# --------------------------------------------------------------------------------------- beside the program


def main(namespace: dict[str, Any], calls_fd: int, results_fd: int) -> None:
    """Make the calls in order, and send each reply as soon as the call has returned.

    Args:
        namespace: the program's globals, after it ran.
        calls_fd: where the calls are read, as `requests` wrote them.
        results_fd: where the replies are written.
    """
    with os.fdopen(calls_fd, "rb") as file:
        calls = json.loads(file.read())  # from the host
    for i, call in enumerate(calls):
        _send(results_fd, {"i": i, **_answer(namespace, call)})


def _answer(namespace: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    try:
        function = resolve(namespace, call["name"])
        args = [decode(tree) for tree in call["args"]]
        kwargs = {name: decode(tree) for name, tree in call["kwargs"].items()}
        value = function(*args, **kwargs)
        listed = _listed(value)
        return {"value" if listed is value else "items": encode(listed)}
    except NotAValue as error:
        return {"error": {"type": "NotAValue", "message": str(error)}}
    except BaseException as error:  # noqa: BLE001  SystemExit too is that call's error
        return {"error": {"type": name_of(type(error)), "message": _message(error)}}


def _send(fd: int, reply: dict[str, Any]) -> None:
    line = dumps(reply)
    if len(line) >= BYTES:
        line = dumps({"i": reply["i"], "error": {"type": "NotAValue", "message": "not a value: too large"}})
    write_all(fd, line + b"\n")


def resolve(namespace: dict[str, Any], name: str) -> Any:
    """The function that a test means by `name`.

    Args:
        namespace: the program's globals, after it ran.
        name: of a global; or of a method of a new `Solution`, as on LeetCode; or "Class.method" or "Class().method",
            for a method of a new `Class`.

    Raises:
        NameError: the program defines no such function.
    """
    owner, _, method = name.replace("()", "").rpartition(".")
    if not owner and method in namespace:
        return namespace[method]
    owner = owner or "Solution"
    if owner not in namespace or not hasattr(namespace[owner], method):
        raise NameError(f"the program defines no {name!r}")
    return getattr(namespace[owner](), method)


def _listed(value: Any) -> Any:
    """Python's own iterators and dict views as the list of their items; any other value as it is."""
    kind = type(value)
    own = kind.__module__ in ("builtins", "itertools") and any("__next__" in vars(base) for base in mro(kind))
    if not own and kind not in _VIEWS:
        return value
    items = list(itertools.islice(value, _ITEMS + 1))
    if len(items) > _ITEMS:
        raise NotAValue(f"not a value: an iterator of more than {_ITEMS} items")
    return items


def _message(error: BaseException) -> str:
    try:
        return str.__str__(str(error))[:_TEXT]
    except BaseException:  # noqa: BLE001  its __str__ is the program's
        return ""


# --------------------------------------------------------------------------------------------- on the host


def requests(calls: Sequence[tuple[str, Sequence[Any], dict[str, Any]]]) -> bytes:
    """The text that `main` reads.

    Args:
        calls: (name, args, kwargs) of each.

    Raises:
        NotAValue: an argument is no plain value.
    """
    return json.dumps(
        [
            {"name": name, "args": [_given(a) for a in args], "kwargs": {k: _given(v) for k, v in kwargs.items()}}
            for name, args, kwargs in calls
        ]
    ).encode("ascii")


def _given(value: Any) -> Any:
    return encode(value, _refuse)


def _refuse(value: Any, plain: Any) -> None:
    if plain is None:
        raise NotAValue(f"not a value: a {name_of(type(value))}")


def read_replies(data: bytes, n: int) -> list[CallReply | None]:
    """The replies to `n` calls, None for those without.

    Line k must answer call k and be well-formed.  Reading ends at the first line that is not, or that is incomplete.
    So the only effect of a program that writes here is that it loses cases.  One budget pays for all the lines.

    Args:
        data: what was written.
        n: how many calls there were.
    """
    replies: list[CallReply | None] = []
    budget = Budget()
    for line in data.split(b"\n", n)[:n]:
        try:
            replies.append(_read(line, len(replies), budget))
        except NotAValue as error:
            replies.append(CallReply(error=("NotAValue", str(error))))
        except BadValue:
            break
    if len(replies) == data.count(b"\n") + 1:  # the last line has no end yet
        replies.pop()
    return replies + [None] * (n - len(replies))


def _read(line: bytes, i: int, budget: Budget) -> CallReply:
    tree = loads(line, budget)
    if type(tree) is not dict or len(tree) != 2 or type(tree.get("i")) is not int or tree["i"] != i:
        raise BadValue("malformed: no reply")
    if "value" in tree:
        return CallReply(decode(tree["value"], budget, arrays=False))
    if type(tree.get("items")) is list:
        return CallReply(decode(tree["items"], budget, arrays=False), listed=True)
    error = tree.get("error")
    if type(error) is not dict or error.keys() != {"type", "message"}:
        raise BadValue("malformed: no error")
    kind, message = error["type"], error["message"]
    if type(kind) is not str or type(message) is not str:
        raise BadValue("malformed: no error")
    return CallReply(error=(kind[:100], message[:_TEXT]))
