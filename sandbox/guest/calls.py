"""The program's side: its functions are called, and what they return is sent.

Two ways in, one answer.  `main` makes calls that are all known beforehand; `serve_calls` answers
the questions of a process of tests (`remote`), one at a time.  The program shares this process and
may write answers itself, but only values, which its functions may return anyway.  Expected values
are never in this process.

    calls:    [name, [argument], {name: argument}, [function]], a line each; `THEN` has the
              functions
    replies:  [0, "value", v], a line each, numbered as the calls; [0, "items", [v]] for an
              iterator, which equals no list; [0, "error", type, message]
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import operator
import os
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rlvr.sandbox.guest.reading import read
from rlvr.sandbox.guest.values import BadValue, NotAValue, Opaque
from rlvr.sandbox.guest.writing import class_name, mro, write
from rlvr.workers.framing import frame_payload, read_frame, write_all

__all__ = [
    "CHANGED",
    "CallReply",
    "OPERATIONS",
    "PAIRED",
    "THEN",
    "main",
    "read_replies",
    "read_reply",
    "reply_lines",
    "requests",
    "resolve",
    "serve_calls",
]

# our own copy: the program may change `builtins`
globals().update(__builtins__=dict(vars(builtins)))

_ITEMS = 1_000_000  # of an iterator that is returned
_TEXT = 500  # characters of an error's message

_DICTS: tuple[Any, ...] = ({}, OrderedDict())
# Views have no public names: their types are taken from instances.
_VIEWS = tuple(type(view) for made in _DICTS for view in (made.keys(), made.values(), made.items()))

CHANGED = (list, dict, set, bytearray, deque, Counter, OrderedDict, defaultdict)
"""Types whose instances, given as arguments, may come back changed."""

OPERATIONS: dict[str, Callable[..., object]] = {
    **{
        f"__{name}__": getattr(builtins, name)
        for name in "len bool iter str repr int float abs".split()
    },
    **{f"__{name}__": getattr(operator, name) for name in "getitem setitem delitem neg".split()},
    # A list of one item or none: StopIteration cannot cross as an error.
    "__next__": lambda value: list(itertools.islice(value, 1)),
    "__slice__": lambda value, *bounds: value[slice(*bounds)],
}
"""What tests may ask of an object: what needs no value of theirs but an index, or an
item that they put there."""

PAIRED: dict[str, Callable[[Any, Any], object]] = {
    f"__{name}__": getattr(operator, f"__{name}__")
    for name in (
        "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor eq lt le gt ge"
    ).split()
}
"""What tests may ask of two objects, both of the program."""

_MADE: tuple[Any, ...] = (
    [],
    (),
    "",
    {},
    vars(builtins).values(),
    vars(builtins).items(),
    set(),
    range(1),
    b"",
)
# Types of iterators of builtin containers, found in the same way.
_EAGER = frozenset(type(iter(made)) for made in _MADE)


THEN: dict[str, Callable[[Any], object]] = {
    name: getattr(builtins, name)
    for name in (
        "abs bool dict float frozenset int len list max min round set sorted str sum tuple"
    ).split()
}
"""What may be done to a result before it is sent; it is worth no more than a return value."""


class CallReply(NamedTuple):
    """The result of one call: a value (of an iterator, the list of its items), or an
    error's type and message."""

    value: Any = None
    error: tuple[str, str] | None = None
    listed: bool = False


# ------------------------------------------------------------------------------- beside the program


def main(namespace: dict[str, object], calls_fd: int, results_fd: int) -> None:
    """Make the calls in order, and send each reply as soon as the call has returned.

    Args:
        namespace: the program's globals, after it ran.
        calls_fd: where the calls are read, as `requests` wrote them.
        results_fd: where the replies are written.
    """
    with os.fdopen(calls_fd, "rb") as file:
        lines = file.read().split(b"\n")
    # The text ends with a newline, so behind the last one there is nothing.
    for i, line in enumerate(lines[:-1]):
        write_all(results_fd, _reply(i, partial(_call_line, namespace, line), None) + b"\n")


def _call_line(namespace: dict[str, object], line: bytes) -> object:
    name, args, kwargs, functions = read(line, other=partial(_make_object, namespace))
    value = resolve(namespace, name)(*args, **kwargs)
    for function in functions:
        value = THEN[function](value)
    return value


def _make_object(namespace: dict[str, Any], tag: str, new: list[Any]) -> object:
    """The object that an argument asks for."""
    name, args, kwargs, attributes = new
    instance = namespace[name](*args, **kwargs)
    for attribute, value in attributes.items():
        setattr(instance, attribute, value)
    return instance


def serve_calls(namespace: dict[str, object], fd: int) -> None:
    """Answer questions until the tests close the socket.

    Args:
        namespace: the program's globals, after it ran.
        fd: the socket to the tests.
    """
    server = _Server(namespace)
    for i in itertools.count():
        question = read_frame(fd)
        if question is None:
            return
        write_all(fd, frame_payload(server.answer(i, question)))


def _reply(
    i: int, call: Callable[[], object], other: Any, more: Callable[[], object] | None = None
) -> bytes:
    """The reply to call `i`; with `more`, what that returns after the call stands at its end."""
    try:
        value = call()
        listed = (
            # `main` sends every iterator as its items; `serve_calls` only those that hold what
            # exists already: a generator of the program's is asked item by item.
            _list_items(value)
            if other is None or type(value) in _EAGER or type(value) in _VIEWS
            else value
        )
        kind = "value" if listed is value else "items"
        return write([i, kind, listed, *(() if more is None else [more()])], other)
    except NotAValue as error:
        return write([i, "error", "NotAValue", str(error)])
    except BaseException as error:  # noqa: BLE001  SystemExit too is that call's error
        fields: list[object] = [i, "error", class_name(type(error)), _message(error)]
        if other is not None:
            # The class itself, as the tests may compare it with one that they know by name.
            fields += [type(error), list(error.args), dict(vars(error))]
        return write(fields, other)


class _Server:
    """The objects that the tests know by number, and the answers to their questions.

    Args:
        namespace: the program's globals.
    """

    def __init__(self, namespace: dict[str, object]) -> None:
        self.namespace = namespace
        self.objects: list[object] = []
        self.numbers: dict[int, int] = {}

    def answer(self, i: int, question: bytes) -> bytes:
        changeable: list[object] = []
        what, *arguments = read(question, other=lambda tag, number: self.objects[number])
        if what != "call":
            return _reply(i, lambda: getattr(self, "do_" + what)(*arguments), self.tree)
        owner, method, args, kwargs = arguments
        # Only these are compared before and after: other values cannot change, or are objects.
        changeable = [arg for arg in (*args, *kwargs.values()) if type(arg) in CHANGED]
        before = [write(arg, self.tree) for arg in changeable]

        def changed() -> list[Any]:
            # Sent by position: the tests have their own object at that place.
            return [
                [k, arg] for k, arg in enumerate(changeable) if write(arg, self.tree) != before[k]
            ]

        return _reply(i, lambda: self.called(owner, method, args, kwargs), self.tree, changed)

    def called(
        self, owner: Any, method: str | None, args: list[object], kwargs: dict[str, object]
    ) -> object:
        if method in OPERATIONS:
            return OPERATIONS[method](owner, *args)
        if method in PAIRED:
            return PAIRED[method](owner, *args)
        value = (owner if method is None else getattr(owner, method))(*args, **kwargs)
        # An exact type: a subclass's `__new__` may return anything, which then crosses as it is.
        if isinstance(owner, type) and method is None and type(value) is owner:
            # the tests made it: it has methods, even if its class derives from list
            return _Made(value)
        return value

    def do_global(self, name: str) -> object:
        module, _, attribute = name.rpartition(".")
        if module:
            return _of_module(module, attribute)
        if name not in self.namespace:
            raise NameError(f"name {name!r} is not defined")
        return self.namespace[name]

    def do_entry(self, name: str) -> object:
        return resolve(self.namespace, name)

    def do_set(self, owner: object, name: str, value: object) -> None:
        module, _, attribute = name.rpartition(".")
        if owner is None and module:
            setattr(importlib.import_module(module), attribute, value)
        elif owner is None:
            self.namespace[name] = value
        else:
            setattr(owner, name, value)

    def do_get(self, owner: object, name: str) -> object:
        return getattr(owner, name)

    def do_plain(self, owner: object) -> list[object]:
        """The real content of an instance of a subclass of a builtin type; nothing for any
        other."""
        # Written and read again, as `write` looks behind overridden methods.
        real = read(write(owner))
        return [] if type(real) is Opaque else [real]

    def do_state(self, owner: object) -> object:
        """What an object stores."""
        return dict(vars(owner))

    def do_isinstance(self, value: Any, kind: Any) -> bool:
        return isinstance(value, kind)

    def tree(self, value: Any, plain: object) -> object:
        """What stands for an object that is no value: its number; for a class of errors also its
        name and base."""
        if type(value) is _Made:
            value = value.value
        elif plain is not None and not isinstance(value, type):
            return None
        number = self.numbers.get(id(value))
        # The list keeps the object alive, so its id is not given to another.
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        if isinstance(value, type) and issubclass(value, BaseException):
            base = next(
                (b for b in mro(value) if getattr(builtins, class_name(b), None) is b), Exception
            )
            # By way of `type`, since a class of the program may define `__dict__` and `__module__`
            # itself.
            module = type.__dict__["__dict__"].__get__(value).get("__module__")
            return {
                "error": [
                    number,
                    class_name(value),
                    class_name(base),
                    module if type(module) is str else "",
                ]
            }
        return {"object": [number, class_name(type(value))]}


def _of_module(module: str, name: str) -> object:
    """A global of one of the program's other files."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise NameError(f"module {module!r} has no {name!r}") from None


class _Made:
    """An object that the tests made by calling its class.

    Args:
        value: the object.
    """

    def __init__(self, value: object) -> None:
        self.value = value


def resolve(namespace: dict[str, Any], name: str) -> Any:
    """The function that a test means by `name`.

    Args:
        namespace: the program's globals, after it ran.
        name: of a global; or of a method of a new `Solution`, as on LeetCode; or "Class.method" or
            "Class().method", for a method of a new `Class`.

    Raises:
        NameError: the program defines no such function.
    """
    owner, _, method = name.replace("()", "").rpartition(".")
    if not owner and method in namespace:
        return namespace[method]
    # LeetCode's convention: a method of a class Solution, made anew for each call.
    owner = owner or "Solution"
    if owner not in namespace or not hasattr(namespace[owner], method):
        raise NameError(f"the program defines no {name!r}")
    return getattr(namespace[owner](), method)


def _list_items(value: Any) -> Any:
    """Python's own iterators and dict views as the list of their items; any other value as it
    is."""
    kind = type(value)
    is_iterator = kind.__module__ in ("builtins", "itertools") and any(
        "__next__" in vars(base) for base in mro(kind)
    )
    if not is_iterator and kind not in _VIEWS:
        return value
    # One more than allowed tells a long iterator from one that just fits.
    items = list(itertools.islice(value, _ITEMS + 1))
    if len(items) > _ITEMS:
        raise NotAValue(f"not a value: an iterator of more than {_ITEMS} items")
    return items


def _message(error: BaseException) -> str:
    try:
        return str.__str__(str(error))[:_TEXT]
    except BaseException:  # noqa: BLE001  its __str__ is the program's
        return ""


# ------------------------------------------------------------------- on the host, and in its reader


def requests(
    calls: Sequence[tuple[str, Sequence[object], dict[str, object], Sequence[str]]],
) -> bytes:
    """The text that `main` reads.

    Args:
        calls: (name, args, kwargs, then) of each.

    Raises:
        NotAValue: an argument is no plain value.
    """
    return b"".join(
        write([name, list(args), dict(kwargs), list(functions)], _refuse) + b"\n"
        for name, args, kwargs, functions in calls
    )


def _refuse(value: object, plain: object) -> None:
    if plain is None:
        raise NotAValue(f"not a value: a {class_name(type(value))}")


def reply_lines(data: bytes, n: int) -> list[bytes]:
    """The lines that may be replies to `n` calls, in order; a last one without an end is none.

    Args:
        data: what was written.
        n: how many calls there were.
    """
    # Split at most n times: what follows the last reply is never looked at.
    lines = data.split(b"\n", n)
    return lines[:n] if len(lines) > n else lines[:-1]


def read_reply(line: bytes, i: int) -> CallReply | None:
    """The reply to call `i`; None if the line is none, and then later lines do not count either.

    So the only effect of a program that writes here is that it loses cases.  In the reader
    (`sandbox.reader`).

    Args:
        line: from `reply_lines`.
        i: which call it must answer.
    """
    try:
        # Arrays come as lists: the reader must not import what the program asked for.
        reply = read(line, arrays=False)
    except NotAValue as error:
        return CallReply(error=("NotAValue", str(error)))
    except BadValue:
        return None
    # A reply out of order would give one case's result to another.
    if type(reply) is not list or not reply or type(reply[0]) is not int or reply[0] != i:
        return None
    match reply[1:]:
        case ["value", value]:
            return CallReply(value)
        case ["items", list(items)]:
            return CallReply(items, listed=True)
        case ["error", str(kind), str(message)]:
            return CallReply(error=(kind[:100], message[:_TEXT]))
    return None


def read_replies(data: bytes, n: int) -> list[CallReply | None]:
    """The replies to `n` calls, None for those without.  In the reader.

    Args:
        data: what was written.
        n: how many calls there were.
    """
    replies: list[CallReply | None] = []
    for line in reply_lines(data, n):
        reply = read_reply(line, len(replies))
        if reply is None:
            break
        replies.append(reply)
    return replies + [None] * (n - len(replies))
