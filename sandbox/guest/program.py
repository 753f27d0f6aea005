"""The program's side of a remote test: it answers the tests' questions about its objects.

The tests' side (`remote`) trusts nothing here.  Values are sent as values; any other object stays in this process and
gets a number, its *handle*.  The tests' own objects come the same way, as stand-ins made by `_borrowed`.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import enum
import io
import operator
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from rlvr.sandbox.guest.calls import resolve
from rlvr.sandbox.guest.channel import Channel, Closed
from rlvr.sandbox.guest.values import BadValue, NotAValue, decode, dumps, encode, mro, name_of

__all__ = ["CHANGED", "EXPORTED", "OPERATIONS", "Server", "operations"]

globals().update(__builtins__=dict(vars(builtins)))  # our own copy: the program may change `builtins`

_OUTPUT = 1 << 20  # characters of output carried by one message
_TEXT = 10_000  # characters of a repr or of an exception's text
_EAGERLY: tuple[Any, ...] = ([], (), "", {}, vars(builtins).values(), vars(builtins).items(), set(), range(1), b"")
_EAGER = frozenset(type(iter(made)) for made in _EAGERLY)
_BATCH = 256


def _swapped(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda b, a: operation(a, b)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "__call__": lambda f, *args, **kwargs: f(*args, **kwargs),
    "__len__": len,
    "__bool__": bool,
    "__iter__": iter,
    "__next__": next,
    "__reversed__": reversed,
    "__contains__": operator.contains,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__enter__": lambda manager: type(manager).__enter__(manager),
    "__exit__": lambda manager, *error: type(manager).__exit__(manager, *error),
    "__str__": lambda value: str(value)[:_TEXT],
    "__repr__": lambda value: repr(value)[:_TEXT],
    "__format__": lambda value, spec: format(value, spec)[:_TEXT],
    "__bytes__": bytes,
    "__hash__": hash,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": operator.index,
    "__round__": round,
    **{
        f"__{name}__": getattr(operator, f"__{name}__")
        for name in """abs neg pos invert add sub mul matmul truediv floordiv mod pow lshift rshift and or xor
        iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor
        eq lt le gt ge""".split()
    },
    **{
        f"__r{name}__": _swapped(getattr(operator, f"__{name}__"))
        for name in "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor".split()
    },
    "__divmod__": divmod,
    "__copy__": copy.copy,
    "__deepcopy__": copy.deepcopy,
    "__ne__": operator.ne,
}
"""What one side may do to an object of the other, by the name of the special method."""

CHANGED = (list, dict, set, bytearray, deque, Counter, OrderedDict, defaultdict)
"""Types whose instances, given as arguments, may come back changed."""

_VIEWS: Any = (type(vars(builtins).keys()), type(vars(builtins).items()))  # they compare as sets
_VALUES = (int, float, complex, str, bytes, tuple, frozenset)
EXPORTED = frozenset(
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and not name.startswith("_") and kind.__name__ == name
)
"""Builtin classes, which are the same on both sides."""


def operations(kind: type) -> list[str]:
    """The names in `OPERATIONS` that instances of a class support.

    Args:
        kind: the class.
    """
    members: dict[str, Any] = {}
    for base in reversed(mro(kind)):
        members.update(type.__dict__["__dict__"].__get__(base))
    return [name for name in OPERATIONS if members.get(name) is not None]


class _Told(io.TextIOWrapper):
    """Standard output that also keeps its text, since tests may check what a call prints."""

    told: list[str]
    room = _OUTPUT

    def write(self, text: str) -> int:
        n = super().write(text)
        if self.room > 0:
            self.told.append(text[: self.room])
            self.room -= len(text)
        return n


class Server:
    """Answers the tests: a message {"do": "x", …} is passed to `do_x`, which returns the answer.

    Args:
        namespace: the program's globals, after it ran.
        fd: the socket to the tests.
    """

    def __init__(self, namespace: dict[str, Any], fd: int) -> None:
        self.namespace = namespace
        self.channel = Channel(fd, self.answer)
        self.objects: list[Any] = []
        self.handles: dict[int, int] = {}
        self.borrowed: dict[int, Any] = {}
        self.theirs: dict[int, int] = {}  # of what is borrowed, by id
        self.told: Any = None

    def run(self) -> None:
        """Answer the tests until they close the socket."""
        sys.stdout = self.output(sys.stdout)
        self.channel.run()

    def output(self, stdout: Any) -> Any:
        """What replaces `sys.stdout`: `_Told` on the same file, or `stdout` itself if that is not possible."""
        self.stdout = stdout  # kept, since the file is closed when it is deleted
        try:
            self.told = _Told(
                stdout.buffer, encoding=stdout.encoding, errors=stdout.errors, line_buffering=stdout.line_buffering
            )
        except (AttributeError, ValueError):  # the program has put something else there
            return stdout
        self.told.told = []
        return self.told

    def spoken(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message, with the text that was printed since the last one."""
        if self.told is not None and self.told.told:
            self.told.flush()
            message["out"] = "".join(self.told.told)
            self.told.told.clear()
            self.told.room = _OUTPUT
            message["out"] = message["out"].encode("utf-8", "replace").decode()
        return message

    # ------------------------------------------------------------------------------- what the tests ask

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer one question: `do_…` of this name does."""
        try:
            return self.spoken(getattr(self, "do_" + message["do"])(message))
        except (Closed, BadValue):
            raise
        except BaseException as error:  # noqa: BLE001  SystemExit too is the result of the call
            return self.spoken({"error": self.tree(error)})

    def do_global(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["name"] not in self.namespace:
            raise NameError(f"name {message['name']!r} is not defined")
        return self.value(self.namespace[message["name"]])

    def do_entry(self, message: dict[str, Any]) -> dict[str, Any]:
        return self.value(resolve(self.namespace, message["name"]))

    def do_setglobal(self, message: dict[str, Any]) -> dict[str, Any]:
        self.namespace[message["name"]] = self.own(message["value"])
        return {"value": None}

    def do_delglobal(self, message: dict[str, Any]) -> dict[str, Any]:
        del self.namespace[message["name"]]
        return {"value": None}

    def do_getattr(self, message: dict[str, Any]) -> dict[str, Any]:
        owner = self.objects[message["on"]]
        value = getattr(owner, message["name"])
        bound = type(value) in (types.MethodType, types.BuiltinMethodType) and value.__self__ is owner
        if bound and getattr(value, "__name__", None) == message["name"]:
            return {"method": message["name"]}
        return self.value(value)

    def do_setattr(self, message: dict[str, Any]) -> dict[str, Any]:
        setattr(self.objects[message["on"]], message["name"], self.own(message["value"]))
        return {"value": None}

    def do_delattr(self, message: dict[str, Any]) -> dict[str, Any]:
        delattr(self.objects[message["on"]], message["name"])
        return {"value": None}

    def do_call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Call an operation or a method.  Arguments that it changes are sent back."""
        owner = self.objects[message["on"]]
        args = [self.own(tree) for tree in message["args"]]
        kwargs = {name: self.own(tree) for name, tree in message["kwargs"].items()}
        given = [arg for arg in (*args, *kwargs.values()) if type(arg) in CHANGED]
        before = [dumps(self.tree(arg)) for arg in given]
        try:
            if message.get("method") is not None:
                reply = self.value(getattr(owner, message["method"])(*args, **kwargs))
            else:
                reply = self.value(OPERATIONS[message["op"]](owner, *args, **kwargs))
        except (Closed, BadValue):
            raise
        except BaseException as error:  # noqa: BLE001  see `answer`
            reply = {"error": self.tree(error)}
        after = [self.tree(arg) for arg in given]
        changed = [[i, tree] for i, tree in enumerate(after) if dumps(tree) != before[i]]
        return {**reply, "changed": changed} if changed else reply

    def do_next(self, message: dict[str, Any]) -> dict[str, Any]:
        """The next item, or several where it makes no difference that they are taken early."""
        iterator = self.objects[message["on"]]
        items: list[Any] = []
        for _ in range(_BATCH if type(iterator) in _EAGER else 1):
            try:
                items.append(self.tree(next(iterator)))
            except StopIteration:
                return {"items": items, "end": True}
        return {"items": items, "end": False}

    def do_class(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the tests need to know to make a local class that stands for it."""
        kind = self.objects[message["on"]]
        bases = [self.tree(base) for base in kind.__bases__ if base is not object]
        value = next((base.__name__ for base in mro(kind) if base in _VALUES), None)
        told = {
            "name": name_of(kind),
            "module": str(getattr(kind, "__module__", "")),
            "bases": bases,
            "operations": operations(kind),
            "constants": issubclass(kind, enum.Enum),
            "equality": getattr(kind, "__eq__", None) is not object.__eq__,
            "hashable": getattr(kind, "__hash__", None) is not None,
            "value": value,
            "plain": issubclass(kind, (*CHANGED, *_VIEWS)),
        }
        return {"value": None, "class": told}

    def do_plain(self, message: dict[str, Any]) -> dict[str, Any]:
        """The real value of an instance of a subclass of a mutable builtin, or of a dict view."""
        owner: Any = self.objects[message["on"]]
        if isinstance(owner, _VIEWS):
            return self.value(set(owner))
        return {"value": encode(owner, lambda value, plain: None if value is owner else self.export(value, plain))}

    def do_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """The stored attributes of an object."""
        owner = self.objects[message["on"]]
        state: dict[str, Any] = {}
        for base in reversed(mro(type(owner))):
            for name, member in type.__dict__["__dict__"].__get__(base).items():
                if type(member) is types.MemberDescriptorType:
                    with contextlib.suppress(AttributeError):
                        state[name] = member.__get__(owner)
                elif name == "__dict__" and type(member) is types.GetSetDescriptorType:
                    state.update(member.__get__(owner))
        return self.value(state)

    # ------------------------------------------------------------------------------- objects and values

    def value(self, value: Any) -> dict[str, Any]:
        """An answer that consists of a value or an object."""
        return {"value": self.tree(value)}

    def tree(self, value: Any) -> Any:
        """The tree of a value, or of the handle of an object."""
        try:
            return encode(value, self.export)
        except NotAValue:
            return self.reference(value)

    def export(self, value: Any, plain: Callable[[], Any] | None) -> Any:
        """The tree of an object that is no value, or not only a value; see `encoding.encode`."""
        if id(value) in self.theirs:
            return {"yours": self.theirs[id(value)]}
        if isinstance(value, type) and value.__name__ in EXPORTED and getattr(builtins, value.__name__) is value:
            return {"builtin": value.__name__}
        if isinstance(value, BaseException):
            return self.error(value)
        if plain is None:
            return self.reference(value)
        kind = type(value)
        if issubclass(kind, _VALUES):
            return {"also": [self.handle(value), self.handle(kind), plain()]}
        return self.reference(value) if issubclass(kind, CHANGED) else None

    def error(self, error: BaseException) -> Any:
        """The tree of an exception: class, arguments, text, attributes and handle."""
        try:
            text = str.__str__(str(error))[:_TEXT]
        except BaseException:  # noqa: BLE001  its __str__ is the program's
            text = ""
        try:
            args = encode(list(error.args), self.export)
        except NotAValue:
            args = [text]
        state = {name: value for name, value in vars(error).items() if name.isidentifier() and name[0] != "_"}
        try:
            attributes = encode(state, self.export)
        except NotAValue:
            attributes = {"dict": []}
        return {"exception": [self.tree(type(error)), args, text, attributes, self.handle(error)]}

    def reference(self, value: Any) -> Any:
        """The tree of the handle of an object or class."""
        if isinstance(value, type):
            return {"class": self.handle(value)}
        return {"ref": [self.handle(value), self.handle(type(value))]}

    def handle(self, value: Any) -> int:
        """The number of an object, a new one at the first time."""
        handle = self.handles.get(id(value))
        if handle is None:
            handle = self.handles[id(value)] = len(self.objects)
            self.objects.append(value)  # kept for good, so that no other object gets its id
        return handle

    def own(self, tree: Any) -> Any:
        """The value or object that a tree of the tests stands for."""
        return decode(tree, other=self.special)

    def special(self, tag: str, payload: Any) -> Any:
        """What a tag stands for that is no value's; see `values.decode`."""
        if tag == "yours":
            return self.objects[payload]
        if tag == "method":
            return getattr(self.objects[payload[0]], payload[1])
        if tag == "builtin":
            return getattr(builtins, payload)
        if tag == "make":
            return self.own(payload[0])(*[self.own(arg) for arg in payload[1]])
        if tag == "mine":
            handle = payload["handle"]
            if handle not in self.borrowed:
                self.borrowed[handle] = _borrowed(self, payload)
                self.theirs[id(self.borrowed[handle])] = handle
            return self.borrowed[handle]
        raise BadValue("malformed: an unknown tag")

    def ask(self, message: dict[str, Any]) -> Any:
        """Ask the tests about one of their objects; returns the answer, or raises what they raised."""
        reply = self.channel.ask(self.spoken(message))
        if "failed" in reply:
            raise RecursionError(reply["failed"])
        if "error" in reply:
            raise self.own(reply["error"])
        if reply.get("end"):
            raise StopIteration
        return self.own(reply["value"])

    def call(self, handle: int, name: str, args: Any, kwargs: Any) -> Any:
        """Have the tests call one of their objects, by the operation `name`."""
        trees = [self.tree(arg) for arg in args]
        named = {key: self.tree(arg) for key, arg in kwargs.items()}
        return self.ask({"do": "call", "on": handle, "op": name, "args": trees, "kwargs": named})


# ------------------------------------------------------------------------------------ the tests' objects


class _Borrowed:
    """Stands in for an object of the tests."""

    def __setattr__(self, name: str, value: Any) -> None:
        _server(self).ask({"do": "setattr", "on": _handle(self), "name": name, "value": _server(self).tree(value)})


_kinds: dict[tuple[str, ...], type] = {}


def _server(borrowed: Any) -> Server:
    return vars(borrowed)["_of"][0]  # type: ignore[no-any-return]


def _handle(borrowed: Any) -> int:
    return vars(borrowed)["_of"][1]  # type: ignore[no-any-return]


def _borrowed(server: Server, payload: dict[str, Any]) -> Any:
    """A stand-in: a real function for a function; for other objects an instance that passes questions on."""
    handle = payload["handle"]
    if payload["kind"] == "function":

        def function(*args: Any, **kwargs: Any) -> Any:
            return server.call(handle, "__call__", args, kwargs)

        function.__name__ = function.__qualname__ = payload["name"]
        function.__doc__ = payload["doc"]
        return function
    if payload["kind"] == "exception class":
        bases = tuple(server.own(base) for base in payload["bases"])
        return type(payload["name"], bases, {})
    if payload["kind"] == "exception":
        kind = server.own(payload["class"])
        return kind.__new__(kind, *[server.own(arg) for arg in payload["args"]])
    names = tuple(payload["operations"])
    if names not in _kinds:
        members = {name: _operation(name) for name in names}
        if "__eq__" in names:
            members["__hash__"] = lambda self: hash(_handle(self))
        if payload["kind"] == "object":
            members["__getattr__"] = _attribute
        _kinds[names] = type("TestObject", (_Borrowed,), members)
    borrowed: Any = object.__new__(_kinds[names])
    vars(borrowed)["_of"] = server, handle
    return borrowed


def _operation(name: str) -> Any:
    return lambda self, *args, **kwargs: _server(self).call(_handle(self), name, args, kwargs)


def _attribute(self: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _server(self).ask({"do": "getattr", "on": _handle(self), "name": name})
