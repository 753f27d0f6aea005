"""The tests' side: stand-ins for the program's objects and classes.

What the program says about its own objects is trusted no more than what its functions return.  So it is not asked
where its answer alone would decide a test:

- Equality.  A stand-in never equals a value of the tests, whatever its `__eq__` says; only an instance of a list, dict
  or set subclass does, by its real content.  Two stand-ins are equal if they stand for one object, or for two of one
  class that has an `__eq__` and the same stored attributes.  If the tests made one of them, by calling the class, its
  arguments must be among these attributes; else objects of a class that stores nothing would all be equal.  The class
  itself is asked only about two objects that the tests made and have not used since.
- `x in y`, arithmetic and ordering with a value of the tests.  The question would contain the value, which may be the
  expected one.  So only an object that the tests made is asked; another one is searched here, or raises TypeError.
- Leaving a `with` block by an exception that the tests did not raise themselves.

The program is asked for truth, length, text, items, attributes and numbers of its objects: these answers are worth no
more than return values.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator
from itertools import islice
from opcode import opmap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.sandbox.guest.remote import Remote

__all__ = ["Entry", "Method", "Proxy", "RemoteType", "members", "stands_for"]

_FORWARDED = frozenset("__name__ __qualname__ __wrapped__ __annotations__ __defaults__ __dict__".split())
_ARITHMETIC = frozenset(
    f"__{prefix}{name}__"
    for prefix in ("", "r", "i")
    for name in "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor divmod".split()
)
_ORDER = frozenset({"__lt__", "__le__", "__gt__", "__ge__"})
_OWN = frozenset(
    f"__{name}__" for name in "eq ne hash str repr bool next contains exit copy deepcopy".split()
)  # written out below


_RAISE = opmap["RAISE_VARARGS"]
_NESTED = 20  # objects within objects that are compared
_ATOMS = 1000


class Entry:
    """What a stand-in stands for.

    Attributes:
        remote: the program that the object belongs to.
        handle: the object's number.
        args: the arguments that the tests made it with; empty if they did not make it.
        made: the tests made it, by calling its class.
        fresh: the tests made it and have not used it since.
    """

    __slots__ = ("args", "fresh", "handle", "made", "remote")

    def __init__(self, remote: Remote, handle: int, args: tuple[Any, ...] | None = None) -> None:
        self.remote, self.handle = remote, handle
        self.made = self.fresh = args is not None
        self.args = args or ()


class RemoteType(type):
    """The type of local classes that stand for classes of the program."""

    def __new__(mcs, name: str, bases: Any, namespace: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{name}: tests cannot derive from a class of the program")

    def __init__(cls, *args: Any) -> None:
        pass

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        entry = stands_for(cls)
        return entry.remote.call(entry.handle, "__call__", args, kwargs, made=True)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name not in _FORWARDED:
            raise AttributeError(name)
        return _attribute(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        entry = stands_for(cls)
        entry.remote.set_attribute(entry.handle, name, value)

    def __iter__(cls) -> Any:
        return iter(_ask(cls, "__iter__"))

    def __len__(cls) -> Any:
        return _ask(cls, "__len__")

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return _ask(cls, "__getitem__", key)


class Proxy:
    """An object of the program.  Classes derived from it have the special methods that the program's class has."""

    _rlvr_equality = False
    _rlvr_plain = False
    _rlvr_constants = False  # calling the class gives instances that existed before, as with an Enum

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _FORWARDED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        entry = stands_for(self)
        entry.remote.set_attribute(entry.handle, name, value)

    def __delattr__(self, name: str) -> None:
        entry = stands_for(self)
        entry.remote.delete_attribute(entry.handle, name)

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, Proxy) and _same(self, other):
            return True
        if type(self)._rlvr_plain:
            return _plain(self) == (_plain(other) if isinstance(other, Proxy) and type(other)._rlvr_plain else other)
        return False if isinstance(other, Proxy) else NotImplemented  # so that mock.ANY, of the tests, is asked

    def __hash__(self) -> int:
        return hash(type(self)) if type(self)._rlvr_equality else hash((Proxy, stands_for(self).handle))

    def __str__(self) -> str:
        return _text(self, "__str__")

    def __repr__(self) -> str:
        return _text(self, "__repr__")

    def __copy__(self) -> Any:
        return _ask(self, "__copy__")

    def __deepcopy__(self, memo: Any) -> Any:
        return _ask(self, "__deepcopy__")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an object of the program cannot be pickled by the tests")


class Method:
    """A method of an object of the program.

    Args:
        remote: the program.
        owner: the stand-in of the object.
        handle: the object's number.
        name: of the method.
    """

    def __init__(self, remote: Remote, owner: Any, handle: int, name: str) -> None:
        self._rlvr = Entry(remote, handle)
        self.__self__ = owner
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._rlvr.remote.call(self._rlvr.handle, "__call__", args, kwargs, method=self.__name__)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Method) and hash(self) == hash(other)

    def __hash__(self) -> int:
        return hash((self._rlvr.handle, self.__name__))

    def __repr__(self) -> str:
        return f"<method {self.__name__} of an object of the program>"


def stands_for(proxy: Any) -> Entry:
    """The entry of a stand-in, or of a class.

    Args:
        proxy: a `Proxy`, an exception of the program, or a `RemoteType`.
    """
    return (type.__getattribute__(proxy, "__dict__") if isinstance(proxy, type) else vars(proxy))["_rlvr"]  # type: ignore[no-any-return]


def members(operations: frozenset[str]) -> dict[str, Any]:
    """The special methods of a local class.

    Args:
        operations: the special methods that the program's class has.
    """
    names = {name: _operation(name) for name in operations - _OWN}
    if operations & {"__bool__", "__len__"}:
        names["__bool__"] = lambda self: _ask(self, "__bool__") is True
    if operations & {"__contains__", "__iter__", "__getitem__"}:
        names["__contains__"] = _contains
    if "__next__" in operations:
        names["__next__"] = _next
    if "__exit__" in operations:
        names["__exit__"] = _leave
    names["__doc__"] = property(lambda self: _attribute(self, "__doc__"))
    return names


def _ask(proxy: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    entry = stands_for(proxy)
    return entry.remote.call(entry.handle, name, args, kwargs)


def _attribute(proxy: Any, name: str) -> Any:
    entry = stands_for(proxy)
    return entry.remote.attribute(proxy, entry.handle, name)


def _plain(proxy: Any) -> Any:
    entry = stands_for(proxy)
    return entry.remote.plain(entry.handle)


def _text(proxy: Any, name: str) -> str:
    text = _ask(proxy, name)
    if type(text) is not str:
        raise TypeError(f"{name} returned no str")
    return text


def _same(one: Proxy, other: Proxy) -> bool:
    """Whether two stand-ins are equal; see the top of this module."""
    mine, theirs = stands_for(one), stands_for(other)
    if mine.handle == theirs.handle:
        return True
    if type(one) is not type(other) or not type(one)._rlvr_equality:
        return False
    remote = mine.remote
    if mine.fresh and theirs.fresh:
        return remote.compare(mine.handle, theirs.handle)
    if remote.comparing == _NESTED:
        return False
    remote.comparing += 1
    try:
        state = remote.state(mine.handle)
        made = [entry.args for entry in (mine, theirs) if entry.made]
        stored = not made or any(_is_of(state, args) for args in made)
        return stored and bool(state == remote.state(theirs.handle))
    finally:
        remote.comparing -= 1


def _is_of(state: Any, args: Any) -> bool:
    """Whether every plain value in `args` is also in `state`."""
    atoms = list(islice(_atoms(state), _ATOMS))
    return all(any(arg is atom or arg == atom for atom in atoms) for arg in islice(_atoms(args), _ATOMS))


def _atoms(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset, deque)) and not isinstance(value, Proxy):
        for item in value:
            yield from _atoms(item)
    else:
        yield value


def _operation(name: str) -> Any:
    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name in _ARITHMETIC or name in _ORDER:
            made = stands_for(self).made and name not in _ORDER
            if not made and not all(isinstance(arg, Proxy) for arg in args):
                return NotImplemented
        result = _ask(self, name, *args, **kwargs)
        same = isinstance(result, Proxy) and stands_for(result).handle == stands_for(self).handle
        return self if same and name != "__call__" else result

    operation.__name__ = name
    return operation


def _contains(self: Any, item: Any) -> bool:
    if stands_for(self).made or isinstance(item, Proxy):
        return _ask(self, "__contains__", item) is True
    return any(item is mine or item == mine for mine in self)


def _next(self: Any) -> Any:
    entry = stands_for(self)
    return entry.remote.next(entry.handle)


def _leave(self: Any, kind: Any, error: Any, trace: Any) -> bool:
    """`__exit__`.  It may swallow what the tests raise with a `raise` statement; no failed assertion, no other error.

    Otherwise a program could make any test pass by causing an error in the middle of the block.
    """
    swallowed = _ask(self, "__exit__", kind, error, None)
    return bool(swallowed) and isinstance(error, Exception) and not isinstance(error, AssertionError) and _raised(trace)


def _raised(trace: types.TracebackType | None) -> bool:
    """Whether a `raise` statement directly in the block is where it comes from."""
    if trace is None or trace.tb_next is not None:
        return False
    code = trace.tb_frame.f_code
    return code.co_code[trace.tb_lasti] == _RAISE
