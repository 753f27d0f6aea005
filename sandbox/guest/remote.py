"""The tests' side: the program's names, as stand-ins that ask the program over a
socket.  Only values cross.

    remote = Remote(fd)
    remote.name("f")(1, 2)

Nothing that the program sends is executed or unpickled.  A question and its answer are one value of
the codec each; an object of the program that is no value crosses as a number, and so stays where it
is.  Tests can call such an object, use its attributes and methods, pass it back, and ask for its
length, truth, text, number, items and the item of an index: answers that are worth no more than
return values.

They cannot do what would need more: compare such an object with a value, calculate with one or
search it, since the question would hold the value that is expected (two objects of the program can
be compared and added); derive from the program's classes, await its coroutines, see what it prints,
or pass objects of their own.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from rlvr.sandbox.guest.calls import CHANGED, OPERATIONS, PAIRED
from rlvr.sandbox.guest.reading import read
from rlvr.sandbox.guest.values import BYTES, BadValue, NotAValue, Opaque
from rlvr.sandbox.guest.writing import class_name, write
from rlvr.workers.framing import FrameTooLong, frame_payload, read_frame, write_all

__all__ = ["GIVEN_OBJECT", "NotJudged", "Object", "ProgramDied", "Remote", "STANDARD"]

STANDARD: frozenset[str] = sys.stdlib_module_names
"""Top-level modules of the standard library."""

GIVEN_OBJECT = "with an object that the program gave"
"""Begins `Remote.refused` where the tests did what works with a value: it is
the program that gave none."""

# Modules that run tests: an error class of theirs would steer them.
_NOT_STANDARD = frozenset(
    {"builtins", "unittest", "doctest", "bdb", "pdb", "test", "concurrent", "asyncio"}
)
_READING = frozenset(f"__{name}__" for name in "str repr len bool eq lt le gt ge".split())
# bytes that the program may send in all, since the tests may keep what they receive
_HEARD = 256 << 20
_OBJECTS = 100_000  # that the tests may know


class ProgramDied(BaseException):
    """The program is gone, or sent something malformed.  Not an Exception, so that no
    test passes by catching it."""


class NotJudged(BaseException):
    """The tests pass the program an object of their own, which is no value.  Says
    nothing about the program."""


class _OurObject(NotAValue):
    """An object of the tests in a question."""


class Remote:
    """The program, as the tests see it.  Any thread of theirs may ask.

    Args:
        fd: the tests' end of the socket.

    Attributes:
        asked: the tests have asked the program for something.
        died: why the program is gone; None while it is there.
        refused: what the tests asked for that only one process could do; None if nothing.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._count = 0
        self._heard = 0
        self._known: dict[int, object] = {}
        # Ids of stand-ins that the tests asked for by name; see `call`.
        self._named: set[int] = set()
        self.asked = False
        self.died: str | None = None
        self.refused: str | None = None

    def name(self, name: str) -> Any:
        """A global of the program.

        Args:
            name: the global's name.

        Raises:
            NameError: it has none of that name.
        """
        return self._as_named(self.ask("global", name))

    def entry(self, name: str) -> Any:
        """A function or method of the program.

        Args:
            name: see `calls.resolve`.
        """
        return self._as_named(self.ask("entry", name))

    def _as_named(self, value: object) -> object:
        """Note that the tests name an object; it is kept, so its id is its own."""
        if isinstance(value, Object):
            self._named.add(id(value))
        return value

    def call(
        self, owner: object, method: str | None, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        """Call an object of the program.  Arguments that it changes are changed here too.

        Args:
            owner: its stand-in.
            method: one of its methods, or of `OPERATIONS`; None for the object itself.
            args, kwargs: values, and objects of the program.
        """
        changeable = [arg for arg in (*args, *kwargs.values()) if type(arg) in CHANGED]
        try:
            return self.ask("call", owner, method, list(args), kwargs, given=changeable)
        # Only a direct call of what the tests name is theirs to answer for.
        except NotJudged:
            if method is not None or id(owner) not in self._named:
                self.refused = f"{GIVEN_OBJECT}: {self.refused}"
            raise

    def ask(self, *question: object, given: list[object] | None = None) -> Any:
        """Ask the program, and return its value or raise its error.

        Args:
            question: what `calls.serve_calls` is asked.
            given: the arguments that may come back changed.

        Raises:
            NotJudged: the question holds an object of the tests.
            ProgramDied: the program is gone.
        """
        try:
            text = write(list(question), _number)
        except _OurObject as error:
            self.refused = str(error)
            raise NotJudged(self.refused) from None
        except NotAValue as error:  # too large: it came from the program
            raise TypeError(str(error)) from None
        self.asked = True
        # One question at a time: threads of the tests share the socket, and replies carry numbers.
        with self._lock:
            reply = self._answer(text)
        match reply:
            case ["value", value]:
                return value
            case ["items", list(items)]:
                return _Items(items)
            case ["value" | "items" as kind, value, list(changed)]:
                # All or none: a malformed list of changes changes nothing.
                for k, new in changed if all(map(_is_change, changed)) else []:
                    self._change(given or [], k, new)
                return _Items(value) if kind == "items" and type(value) is list else value
            case ["error", str(name), str(message)]:
                raise RuntimeError(f"{name}: {message}")
            case ["error", str(name), str(message), kind, list(args), dict(attributes)]:
                raise _error(name, message, kind, args, attributes)
        raise self._gone("malformed: no answer")

    def _answer(self, text: bytes) -> list[object]:
        """The reply to a question, without its number."""
        if self.died is not None:
            raise self._gone(self.died)
        try:
            write_all(self._fd, frame_payload(text))
            # The limit is of one frame; the sum is limited below.
            frame = read_frame(self._fd, BYTES)
            if frame is None:
                raise self._gone("it has closed its socket")
            self._heard += len(frame)
            if self._heard > _HEARD:
                raise self._gone("it has sent too much")
            reply = read(frame, other=self._object)
        except (OSError, FrameTooLong, NotAValue, BadValue) as error:
            raise self._gone(str(error)) from None
        if (
            type(reply) is not list
            or not reply
            or type(reply[0]) is not int
            # A reply is to the question that was asked, never to an earlier or later one.
            or reply[0] != self._count
        ):
            raise self._gone("malformed: no answer")
        self._count += 1
        return reply[1:]

    def _gone(self, why: str) -> ProgramDied:
        # The first reason is kept: later ones follow from it.
        self.died = self.died or why
        return ProgramDied(f"the program is gone: {why}")

    def _object(self, tag: str, payload: object) -> object:
        """The stand-in for an object of the program, or for a class of errors."""
        if (
            tag not in ("object", "error")
            or type(payload) is not list
            or not payload
            or type(payload[0]) is not int
        ):
            raise BadValue("malformed: an unknown tag")
        number = payload[0]
        if number not in self._known:
            # The tests keep every stand-in, so their number is limited.
            if len(self._known) >= _OBJECTS:
                raise NotAValue("too many objects")
            self._known[number] = self._make_value(tag, payload)
        return self._known[number]

    def _make_value(self, tag: str, payload: list[Any]) -> Any:
        match tag, payload:
            case "object", [number, str(kind)]:
                return Object(self, number, kind[:100])
            case "error", [number, str(name), str(base), str(module)]:
                return _standard(module, name) or _error_class(name, base, (self, number))
        raise BadValue("malformed: no object")

    def _change(self, given: list[Any], k: int, new: Any) -> None:
        if not 0 <= k < len(given) or type(new) is not type(given[k]):
            raise self._gone("malformed: an argument of another type")
        # Changed in place: other references of the tests see it too, as they would in one process.
        mine = given[k]
        if isinstance(mine, (list, bytearray)):
            mine[:] = new
        else:
            mine.clear()
            (mine.extend if isinstance(mine, deque) else mine.update)(new)


class _Items:
    """An iterator of the program, whose items have been sent.

    Args:
        items: all of them.
    """

    def __init__(self, items: list[object]) -> None:
        self._rest = iter(items)

    def __iter__(self) -> Iterator[object]:
        return self._rest

    def __next__(self) -> object:
        return next(self._rest)


class Object:
    """An object of the program.

    Args:
        remote: the program.
        number: the object's.
        kind: the name of its class.
    """

    def __init__(self, remote: Remote, number: int, kind: str) -> None:
        # Through `vars`, as `__setattr__` asks the program.
        vars(self)["_rlvr"] = remote, number, kind

    _rlvr: tuple[Remote, int, str]

    def __call__(self, *args: object, **kwargs: object) -> object:
        value = _remote(self).call(self, None, args, kwargs)
        if (
            isinstance(value, Object)
            and self._rlvr[2] == "type"
            and "_rlvr_args" not in vars(value)
        ):
            vars(value)["_rlvr_args"] = [*args, *kwargs.values()]
            vars(value)["_rlvr_fresh"] = True
        return value

    def __getattr__(self, name: str) -> Any:
        # Dunder names are looked up by Python itself (copy, pickle, pytest); they must not ask.
        if name.startswith("__") and name not in ("__name__", "__dict__", "__doc__"):
            raise AttributeError(f"an object of the program has no attribute {name!r} for tests")
        return _remote(self).ask("get", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        _remote(self).ask("set", self, name, value)

    def __getitem__(self, at: object) -> object:
        if type(at) is slice:  # its bounds cross as values
            return _remote(self).call(self, "__slice__", (at.start, at.stop, at.step), {})
        return _remote(self).call(self, "__getitem__", (at,), {})

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, Object):
            return self is other or _equal(self, other)
        plain = _remote(self).ask("plain", self)
        return plain[0] == other if type(plain) is list and plain else NotImplemented

    # Defining `__eq__` takes the hash away; identity is what stands for the object here.
    __hash__ = object.__hash__

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Object) and _remote(self).ask("isinstance", value, self) is True


def _remote(value: Object) -> Remote:
    remote: Remote = vars(value)["_rlvr"][0]
    return remote


def _equal(one: Object, other: Object) -> bool:
    """Whether two objects of the program are equal.

    If the tests made both and have not used them since, their class is asked.  Otherwise both must
    store the same, and the arguments that a fresh one was made with must be among that: else
    objects of a class that stores nothing, or always the same, would all be equal.
    """
    remote = _remote(one)
    fresh = [x for x in (one, other) if vars(x).get("_rlvr_fresh")]
    try:
        if len(fresh) == 2:
            # Both are as the tests made them, so the program cannot know which comparison this is.
            return _read_only(one, "__eq__", other) is True
        # A class may answer True to everything: where it could know more, its word is not taken.
        if "_rlvr_args" not in {**vars(one), **vars(other)} or one._rlvr[2] != other._rlvr[2]:
            return False
        state = remote.ask("state", one)
        stored = list(state.values()) if type(state) is dict else []
        arguments = [arg for x in fresh for arg in vars(x)["_rlvr_args"]]
        return (
            bool(stored)
            and state == remote.ask("state", other)
            and all(arg in stored for arg in arguments)
        )
    finally:
        for x in fresh:  # being compared is no use
            vars(x)["_rlvr_fresh"] = True


def _read_only(self: Object, name: str, *args: object) -> object:
    """Ask for an operation that changes no object."""
    fresh = [x for x in (self, *args) if vars(x).get("_rlvr_fresh")]
    try:
        return _remote(self).call(self, name, args, {})
    finally:
        for x in fresh:
            vars(x)["_rlvr_fresh"] = True


def _forward(name: str) -> object:
    def ask(self: Object, *args: object) -> object:
        value = (
            _read_only(self, name, *args)
            if name in _READING
            else _remote(self).call(self, name, args, {})
        )
        if name in ("__str__", "__repr__") and type(value) is not str:
            raise TypeError(f"{name} returned no str")
        if name == "__next__":
            if type(value) is not list or len(value) != 1:
                raise StopIteration
            return value[0]
        return value

    return ask


def _pair_operator(name: str) -> object:
    def ask(self: Object, other: object) -> Any:
        if not isinstance(other, Object):
            return NotImplemented
        return (
            _read_only(self, name, other)
            if name in _READING
            else _remote(self).call(self, name, (other,), {})
        )

    return ask


# These two are defined above, as they take more than one argument or a slice.
for _name in OPERATIONS.keys() - {"__getitem__", "__slice__"}:
    setattr(Object, _name, _forward(_name))
for _name in PAIRED.keys() - {"__eq__"}:
    setattr(Object, _name, _pair_operator(_name))


def _is_change(pair: object) -> bool:
    return type(pair) is list and len(pair) == 2 and type(pair[0]) is int


def _number(value: object, plain: object) -> Any:
    """What stands for an object of the program in a question.  An object of the tests is no
    value."""
    number = vars(value).get("_rlvr") if isinstance(value, (Object, type)) else None
    if number is not None:
        if isinstance(value, Object):
            vars(value)["_rlvr_fresh"] = False
        return {"object": number[1]}
    if type(value) is Opaque:
        return {"opaque": value.type_name}
    if type(value) is _Items:
        raise NotAValue("not a value: an iterator")
    if plain is None:
        raise _OurObject(
            f"the tests pass the program a {class_name(type(value))}, which is no value"
        )
    return None


def _standard(module: str, name: str) -> type[Exception] | None:
    """The class of the standard library for an error of the program, if the tests have loaded it.

    None for errors that steer a test run: a program that raises SkipTest has failed.
    """
    top = module.partition(".")[0]
    # Only modules that the tests have loaded: an import for the program's sake would run code.
    if top in _NOT_STANDARD or top not in STANDARD or module not in sys.modules:
        return None
    kind = vars(sys.modules[module]).get(name)
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


def _error_class(
    name: str, base: str, number: tuple[Remote, int] | None = None
) -> type[BaseException]:
    """The local class for a class of errors of the program.

    Python's own class where it is one.  One that does more than let a test fail, by ending a loop
    or the tests, becomes a RuntimeError of the same name.
    """
    error_base = getattr(builtins, base, None)
    # A name of builtins that is no error, such as "print".
    if not isinstance(error_base, type) or not issubclass(error_base, BaseException):
        error_base = Exception
    if not issubclass(error_base, (Exception, SystemExit)) or issubclass(
        # StopIteration would end a loop of the tests quietly instead of failing it.
        error_base,
        (StopIteration, StopAsyncIteration),
    ):
        error_base, number = RuntimeError, number or None
        name = name or "RuntimeError"
    elif name == base and number is None:
        return error_base
    # "solution" as in a traceback of the program; its text is the program's own.
    names: dict[str, object] = {"__module__": "solution", "__str__": _error_text}
    if number is not None:
        names["_rlvr"] = (*number, "type")
    return type(
        # A class name may hold no null byte and no lone surrogate.
        name[:100].replace("\0", "?").encode("utf-8", "replace").decode(),
        (error_base,),
        names,
    )


def _error_text(self: Any) -> str:
    text = vars(self).get("_rlvr_text")
    return BaseException.__str__(self) if text is None else str(text)


def _error(
    name: str, message: str, kind: object, args: list[object], attributes: dict[object, object]
) -> BaseException:
    """The error that the program raised."""
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        kind = Exception
    elif kind.__module__ == "builtins":  # which may steer the tests
        kind = _error_class(name, kind.__name__)
    make: Any = kind
    try:
        error: BaseException = make(*args)
    except Exception:  # noqa: BLE001  a class whose __init__ takes other arguments than it keeps
        # Without __init__: the object is only compared and shown.
        error = make.__new__(make, *args)
        error.args = tuple(args)
    for key, value in attributes.items():
        # Names with an underscore could be ours or Python's.
        if type(key) is str and key.isidentifier() and not key.startswith("_"):
            vars(error)[key] = value
    vars(error)["_rlvr_text"] = message
    return error
