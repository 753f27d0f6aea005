"""The tests' side of a remote test: the program's names, as stand-ins that ask the program over a socket.

    remote = Remote(fd)
    remote.name("f")(1, 2)

Nothing that the program sends is executed or unpickled: it is a value or a handle.  The program sees nothing of the
tests but the arguments that they pass.

What tests cannot do here: derive from the program's classes, await its coroutines, share files, `input()` or patched
modules of the standard library with it, see changes that it makes to an argument after the call has returned, or block
in one thread inside the program until another thread of theirs calls it.  What it prints in a call is printed here
too, so `capsys` and `redirect_stdout` see it.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from typing import Any

from rlvr.sandbox.guest.channel import Channel, Closed
from rlvr.sandbox.guest.lending import Lender
from rlvr.sandbox.guest.program import CHANGED, EXPORTED, OPERATIONS, Server
from rlvr.sandbox.guest.proxies import Entry, Method, Proxy, RemoteType, members, stands_for
from rlvr.sandbox.guest.values import BadValue, decode, encode

__all__ = ["ProgramDied", "Remote", "STANDARD", "serve"]

STANDARD: frozenset[str] = sys.stdlib_module_names
"""Top-level modules of the standard library."""

_OBJECTS = 300_000  # of the program that the tests may hold
_CLASSES = 5_000
_OUTPUT = 8 << 20  # characters that the program may print through the tests
_TEXT = 10_000
_VALUES: dict[str, Any] = {k.__name__: k for k in (int, float, complex, str, bytes, tuple, frozenset)}
_READING = frozenset(f"__{name}__" for name in "eq ne hash str repr len bool lt le gt ge".split())
_NOT_STANDARD = frozenset({"unittest", "doctest", "bdb", "pdb", "test", "concurrent", "asyncio"})


def serve(namespace: dict[str, Any], fd: int) -> None:
    """The program's end: answer the tests until they close the socket.

    Args:
        namespace: the program's globals, after it ran.
        fd: the socket.
    """
    Server(namespace, fd).run()


class ProgramDied(BaseException):
    """The program is gone, or sent something malformed.  Not an Exception, so that no test passes by catching it."""


class Remote:
    """The program, as the tests see it.  Objects of the program are known by their handles, which are numbers.

    Args:
        fd: the tests' end of the socket.
        trusted: names of the modules in which the tests are.

    Attributes:
        asked: the tests have asked the program for something.
        comparing: how many comparisons of objects are under way, one inside the other.
    """

    def __init__(self, fd: int, trusted: tuple[str, ...] = ("tests",)) -> None:
        self.channel = Channel(fd, self._serve)
        self._lender = Lender(trusted)
        self._known: dict[int, Any] = {}
        self._made: dict[int, Any] = {}
        self._classes: dict[int, type] = {}
        self._learning = 0
        self._touching = True
        self._read_ahead: dict[int, tuple[deque[Any], bool]] = {}
        self._room = _OUTPUT
        self.asked = False
        self.comparing = 0
        self._pending: BaseException | None = None  # what ended a callback and may not be swallowed

    @property
    def died(self) -> str | None:
        """Why the program is gone; None while it is there."""
        return self.channel.closed

    # ------------------------------------------------------------------------------------------ asking

    def name(self, name: str) -> Any:
        """A global of the program.

        Args:
            name: the global's name.

        Raises:
            NameError: it has none of that name.
        """
        return self._own(self._ask({"do": "global", "name": name})["value"])

    def entry(self, name: str) -> Any:
        """A function or method of the program.

        Args:
            name: see `calls.resolve`.
        """
        reply = self._ask({"do": "entry", "name": name})
        return self._own(reply["value"])

    def set_name(self, name: str, value: Any) -> None:
        """Set a global of the program.

        Args:
            name, value: of the global.
        """
        self._ask({"do": "setglobal", "name": name, "value": self._tree(value)})

    def delete_name(self, name: str) -> None:
        """Delete a global of the program.

        Args:
            name: the global's name.
        """
        self._ask({"do": "delglobal", "name": name})

    def attribute(self, owner: Any, handle: int, name: str) -> Any:
        """An attribute of an object of the program.

        Args:
            owner: the stand-in of the object.
            handle: the object.
            name: of the attribute.
        """
        reply = self._ask({"do": "getattr", "on": handle, "name": name})
        return Method(self, owner, handle, name) if "method" in reply else self._own(reply.get("value"))

    def set_attribute(self, handle: int, name: str, value: Any) -> None:
        """Set an attribute of an object of the program.

        Args:
            handle: the object.
            name, value: of the attribute.
        """
        self._touch(handle)
        self._ask({"do": "setattr", "on": handle, "name": name, "value": self._tree(value)})

    def delete_attribute(self, handle: int, name: str) -> None:
        """Delete an attribute of an object of the program.

        Args:
            handle: the object.
            name: of the attribute.
        """
        self._ask({"do": "delattr", "on": handle, "name": name})

    def plain(self, handle: int) -> Any:
        """The real content of an instance of a subclass of a builtin.

        Args:
            handle: the object.
        """
        return self._own(self._ask({"do": "plain", "on": handle})["value"])

    def state(self, handle: int) -> Any:
        """The stored attributes of an object of the program.

        Args:
            handle: the object.
        """
        return self._own(self._ask({"do": "state", "on": handle})["value"])

    def compare(self, handle: int, other: int) -> bool:
        """Whether two objects of the program are equal by the `__eq__` of their class.

        Args:
            handle, other: the objects.
        """
        message = {"do": "call", "on": handle, "op": "__eq__", "method": None, "args": [{"yours": other}], "kwargs": {}}
        return self._own(self._ask(message).get("value")) is True

    def call(
        self,
        handle: int,
        operation: str,
        args: Any = (),
        kwargs: Any = None,
        *,
        method: str | None = None,
        made: bool = False,
    ) -> Any:
        """The result of an operation on an object of the program.  Arguments that it changed are changed here too.

        Args:
            handle: the object.
            operation: a name in `program.OPERATIONS`.
            args, kwargs: the arguments.
            method: the name of a method to call, instead of the object itself.
            made: the tests make an object: the operation is the call of a class.
        """
        kwargs = kwargs or {}
        self._touching = operation not in _READING or method is not None
        self._touch(handle)
        message = {
            "do": "call",
            "on": handle,
            "op": operation,
            "method": method,
            "args": [self._tree(arg) for arg in args],
            "kwargs": {name: self._tree(arg) for name, arg in kwargs.items()},
        }
        self._touching = True
        given = [arg for arg in (*args, *kwargs.values()) if type(arg) in CHANGED]
        tree = self._ask(message, given).get("value")
        return self._own(tree, (*args, *kwargs.values()) if made else None)

    def _touch(self, handle: int) -> None:
        if self._touching and handle in self._made:
            stands_for(self._made[handle]).fresh = False

    def next(self, handle: int) -> Any:
        """The next item of an iterator of the program.

        Args:
            handle: the iterator.

        Raises:
            StopIteration: it has no more.
        """
        ahead, ended = self._read_ahead.get(handle, (deque(), False))
        if not ahead and not ended:
            reply = self._ask({"do": "next", "on": handle})
            items, ended = reply.get("items"), reply.get("end") is True
            if type(items) is not list:
                raise self._garbled("malformed: no items")
            ahead = deque(items)
            self._read_ahead[handle] = ahead, ended
        if not ahead:
            self._read_ahead.pop(handle, None)
            raise StopIteration
        return self._own(ahead.popleft())

    def _ask(self, message: dict[str, Any], given: list[Any] | None = None) -> dict[str, Any]:
        self.asked = True
        try:
            reply = self.channel.ask(message)
        except Closed as closed:
            raise ProgramDied(f"the program is gone: {closed}") from None
        self._say(reply)
        if self._pending is not None:
            pending, self._pending = self._pending, None
            raise pending
        if "failed" in reply:
            raise RecursionError(str(reply["failed"])[:_TEXT])
        for i, tree in _listed(reply.get("changed")):
            self._change(given or [], i, tree)
        if "error" in reply:
            error = self._own(reply["error"])
            if not isinstance(error, BaseException):
                raise self._garbled("malformed: no exception")
            if _steers(type(error)):  # an exception of the tests that the program has kept
                error = _tame(type(error))()
            raise error
        if "value" not in reply and "items" not in reply and "method" not in reply:
            raise self._garbled("malformed: no answer")
        return reply

    def _garbled(self, why: str) -> ProgramDied:
        self.channel.close(why)
        return ProgramDied(f"the program is gone: {why}")

    def _say(self, message: dict[str, Any]) -> None:
        text = message.get("out")
        if type(text) is str and self._room > 0:
            sys.stdout.write(text[: self._room])
            self._room -= len(text)

    def _change(self, given: list[Any], i: Any, tree: Any) -> None:
        if type(i) is not int or not 0 <= i < len(given):
            raise self._garbled("malformed: no argument")
        mine, new = given[i], self._own(tree)
        if type(new) is not type(mine):
            raise self._garbled("malformed: an argument of another type")
        if isinstance(mine, (list, bytearray)):
            mine[:] = new
        else:
            mine.clear()
            (mine.extend if isinstance(mine, deque) else mine.update)(new)

    # --------------------------------------------------------------------------------- what we pass on

    def _tree(self, value: Any) -> Any:
        return encode(value, self._lend)

    def _lend(self, value: Any, plain: Any) -> Any:
        kind = type(value)
        if isinstance(value, Method):
            self._touch(value._rlvr.handle)
            return {"method": [value._rlvr.handle, value.__name__]}
        if isinstance(value, Proxy) or isinstance(kind, RemoteType) or isinstance(value, RemoteType):
            handle = stands_for(value).handle
            self._touch(handle)
            return {"yours": handle}
        if isinstance(value, BaseException):
            lent = self._lender.lend(value)
            args = [self._tree(arg) for arg in value.args]
            lent["mine"].update({"class": self._tree(kind), "args": args})
            return lent
        return self._lender.lend(value) if plain is None else None

    # ------------------------------------------------------------------------------ what we are told of

    def _own(self, tree: Any, made: tuple[Any, ...] | None = None) -> Any:
        """The value, or the stand-in for an object, that a tree of the program stands for.

        `made` are the arguments that the tests made the object with; None if they did not make it.
        """
        try:
            if made is not None and type(tree) is dict and "ref" in tree:
                return self._reference(*tree["ref"], made=made)
            return decode(tree, other=self._special)
        except (BadValue, ValueError, TypeError) as error:
            raise self._garbled(str(error)[:200]) from None

    def _special(self, tag: str, payload: Any) -> Any:
        if tag == "ref":
            return self._reference(*payload)
        if tag == "class":
            return self._class(payload)
        if tag == "builtin":
            if payload in EXPORTED:
                return getattr(builtins, payload)
            raise BadValue("malformed: no class")
        if tag == "yours":
            return self._lender.find(payload)
        if tag == "also":
            return self._value(*payload)
        if tag == "exception":
            return self._exception(*payload)
        raise BadValue("malformed: an unknown tag")

    def _remember(self, table: dict[int, Any], handle: Any, thing: Any) -> Any:
        if type(handle) is not int or len(table) >= _OBJECTS:
            raise BadValue("too many objects")
        table[handle] = thing
        return thing

    def _reference(self, handle: Any, kind: Any, *, made: tuple[Any, ...] | None = None) -> Any:
        if type(handle) is not int:
            raise BadValue("malformed: no handle")
        if handle in self._known:
            return self._known[handle]
        if made is not None and handle in self._made:
            return self._made[handle]
        cls = self._class(kind)
        if not issubclass(cls, Proxy):
            raise BadValue("malformed: no instance")
        proxy = object.__new__(cls)
        if cls._rlvr_constants:
            made = None
        vars(proxy)["_rlvr"] = Entry(self, handle, made)
        return self._remember(self._known if made is None else self._made, handle, proxy)

    def _value(self, handle: Any, kind: Any, tree: Any) -> Any:
        """An instance of a subclass of an immutable builtin becomes one here, with the same real value."""
        value, cls = self._own(tree), self._class(kind)
        base = next((base for base in _VALUES.values() if issubclass(cls, base)), None)
        if base is None or not isinstance(value, base) or not isinstance(cls, RemoteType):
            return value
        if handle in self._known:
            return self._known[handle]
        proxy = base.__new__(cls, value)
        vars(proxy)["_rlvr"] = Entry(self, handle)
        return self._remember(self._known, handle, proxy)

    def _class(self, handle: Any) -> Any:
        """The local class for one of the program."""
        if type(handle) is not int:
            raise BadValue("malformed: no class")
        if handle not in self._classes:
            if self._learning > 50 or len(self._classes) > _CLASSES:
                raise BadValue("too many classes")
            self._learning += 1
            try:
                told = self._ask({"do": "class", "on": handle}).get("class")
                self._classes[handle] = self._local(handle, **_told(told))
            finally:
                self._learning -= 1
        return self._classes[handle]

    def _local(
        self,
        handle: int,
        name: str,
        module: str,
        bases: Any,
        operations: Any,
        equality: bool,
        hashable: bool,
        value: Any,
        plain: bool,
        constants: bool,
    ) -> Any:
        known = _standard(module, name)
        if known is not None:
            return known
        local = [decode(base, other=self._special) for base in bases]
        errors = tuple(_tame(base) for base in local if issubclass(base, BaseException))
        names: dict[str, Any] = {"_rlvr": Entry(self, handle), "__module__": module, "__qualname__": name}
        if errors:
            names.update(__str__=_error_text, __getattr__=Proxy.__getattr__)
            return _derive(name, errors, (Exception,), names)
        names.update(members(frozenset(OPERATIONS) & set(operations)), _rlvr_equality=equality, _rlvr_plain=plain)
        names["_rlvr_constants"] = constants
        if not hashable:
            names["__hash__"] = None
        mirrored = tuple(base for base in local if issubclass(base, Proxy)) or (Proxy,)
        if value in _VALUES:
            names = {key: n for key, n in names.items() if not hasattr(_VALUES[value], key) or key[:2] != "__"}
            names["__module__"] = module
            if not issubclass(mirrored[0], _VALUES[value]):
                mirrored = (_VALUES[value], *mirrored)
        return _derive(name, mirrored, mirrored[:1] if value in _VALUES else (Proxy,), names)

    def _exception(self, kind: Any, args: Any, text: Any, attributes: Any, handle: Any) -> Any:
        cls = decode(kind, other=self._special)
        if not (isinstance(cls, type) and issubclass(cls, BaseException)) or type(text) is not str:
            raise BadValue("malformed: no exception")
        cls = _tame(cls)
        args = decode(args, other=self._special)
        state = decode(attributes, other=self._special)
        if type(args) is not list or type(state) is not dict or type(handle) is not int:
            raise BadValue("malformed: no exception")
        new: Any = cls.__new__
        if isinstance(cls, RemoteType):
            error = new(cls, *args)
            error.args = tuple(args)
            vars(error)["_rlvr"] = Entry(self, handle)
            vars(error)["_rlvr_text"] = text[:_TEXT]
            return error
        try:
            error = cls(*args)
        except Exception:  # noqa: BLE001  a class whose __init__ takes other arguments than it keeps
            error = new(cls, *args)
            error.args = tuple(args)
        for name, value in state.items():
            if type(name) is str and name.isidentifier() and not name.startswith("_"):
                vars(error)[name] = value
        return error

    # ------------------------------------------------------------------------------ what we are asked

    def _serve(self, message: dict[str, Any]) -> dict[str, Any]:
        self._say(message)
        try:
            return self._serve_call(message)
        except (BadValue, Closed):
            raise
        except StopIteration:
            return {"end": True}
        except BaseException as error:  # noqa: BLE001  it goes to the program, as in one process
            if _steers(type(error)):
                self._pending = error  # it ends the test, and the program must not swallow it
            return {"error": self._tree(error)}

    def _serve_call(self, message: dict[str, Any]) -> dict[str, Any]:
        do, handle = message.get("do"), message.get("on")
        if do == "getattr":
            return {"value": self._tree(self._lender.attribute(handle, message.get("name")))}
        if do == "setattr":
            value = decode(message.get("value"), other=self._special)
            self._lender.set_attribute(handle, message.get("name"), value)
            return {"value": None}
        args, kwargs = message.get("args"), message.get("kwargs")
        if do != "call" or type(args) is not list or type(kwargs) is not dict:
            raise BadValue("malformed: no question")
        operation = self._lender.operation(handle, message.get("op"))
        values = [decode(tree, other=self._special) for tree in args]
        named = {name: decode(tree, other=self._special) for name, tree in kwargs.items()}
        return {"value": self._tree(operation(self._lender.find(handle), *values, **named))}


def _listed(changed: Any) -> Any:
    good = type(changed) is list and all(type(pair) is list and len(pair) == 2 for pair in changed)
    return changed if good else []


def _told(told: Any) -> dict[str, Any]:
    """The program's description of a class, checked and cut to size."""
    kinds: dict[str, type] = {"name": str, "module": str, "bases": list, "operations": list}
    kinds.update(dict.fromkeys(("equality", "hashable", "plain", "constants"), bool))
    if type(told) is not dict or told.keys() != {*kinds, "value"}:
        raise BadValue("malformed: no class")
    if not all(type(told[key]) is kind for key, kind in kinds.items()) or len(told["bases"]) > 50:
        raise BadValue("malformed: no class")
    if not all(type(name) is str for name in told["operations"]):
        raise BadValue("malformed: no class")
    name = told["name"][:100].replace("\0", "?").encode("utf-8", "replace").decode()
    return {**told, "name": name, "module": told["module"][:100]}


def _derive(name: str, bases: tuple[type, ...], plainer: tuple[type, ...], names: dict[str, Any]) -> Any:
    try:
        return type.__new__(RemoteType, name, bases, names)
    except TypeError:  # bases that do not go together here
        return type.__new__(RemoteType, name, plainer, names)


def _standard(module: str, name: str) -> Any:
    """The class of the standard library for an exception of the program, if the tests have loaded it; else None.

    None also for exceptions that steer a test run: a program that raises SkipTest has failed.
    """
    top = module.partition(".")[0]
    if top in _NOT_STANDARD or top not in STANDARD:
        return None
    kind = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


def _steers(kind: type) -> bool:
    """Whether an exception of this class does more than let a test fail: it skips or ends a test, or ends a loop."""
    if not issubclass(kind, (Exception, SystemExit)) or issubclass(kind, (StopIteration, StopAsyncIteration)):
        return True
    return any(base.__module__.partition(".")[0] in _NOT_STANDARD for base in kind.__mro__)


_tamed: dict[type, type] = {}


def _tame(kind: type) -> type:
    """The exception class itself, or one of the same name in place of a class that steers (`_steers`).

    StopIteration would end a loop of the tests as if it were done; KeyboardInterrupt and GeneratorExit would end the
    tests.
    """
    if not _steers(kind):
        return kind
    if kind not in _tamed:
        _tamed[kind] = type(kind.__name__, (RuntimeError,), {})
    return _tamed[kind]


def _error_text(self: Any) -> str:
    text = vars(self).get("_rlvr_text")
    return BaseException.__str__(self) if text is None else text
