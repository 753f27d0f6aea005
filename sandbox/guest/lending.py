"""The tests' side: what the program may do with an object of the tests that it was given as an argument.

Less than in one process, for there it could walk from any object to all that the tests know.  A function may be
called and no more.  An instance of a class that the tests define has its public attributes.  Of all else the program
has a token, which it can hand back.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from typing import Any

from rlvr.sandbox.guest.encoding import mro, name_of
from rlvr.sandbox.guest.program import OPERATIONS, operations
from rlvr.sandbox.guest.trees import BadValue

__all__ = ["Lender"]

_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    type,
    functools.partial,
)
_FUNCTION = frozenset({"__call__"})
_ITERATOR = frozenset({"__iter__", "__next__"})
_STREAMS = ("StringIO", "BytesIO")


class Lender:
    """The objects that the program has handles of.

    Args:
        trusted: names of the modules whose classes are the tests' own.
    """

    def __init__(self, trusted: tuple[str, ...]) -> None:
        self.trusted = trusted
        self.objects: list[Any] = []
        self._handles: dict[int, int] = {}
        self._allowed: list[tuple[str, frozenset[str]]] = []

    def lend(self, value: Any) -> Any:
        """The tree by which the program knows it."""
        name = getattr(value, "__name__", None)
        if isinstance(name, str) and getattr(builtins, name, None) is value:
            return {"builtin": name}
        handle = self._handles.get(id(value))
        if handle is None:
            handle = self._handles[id(value)] = len(self.objects)
            self.objects.append(value)
            self._allowed.append(self._kind(value))
        kind, operations = self._allowed[handle]
        told = {"handle": handle, "kind": kind, "operations": sorted(operations)}
        if kind == "function":
            doc = getattr(value, "__doc__", None)
            told.update(name=name if isinstance(name, str) else name_of(type(value)), doc=doc)
        elif kind == "exception class":
            bases = [base for base in value.__bases__ if issubclass(base, BaseException)]
            told.update(name=name, bases=[self.lend(base) for base in bases])
        return {"mine": told}

    def _kind(self, value: Any) -> tuple[str, frozenset[str]]:
        kind = type(value)
        if isinstance(value, type) and issubclass(value, BaseException):
            return "exception class", frozenset()
        if isinstance(value, BaseException):
            return "exception", frozenset()
        if self._is_public(kind):
            return "object", frozenset(operations(kind))
        if isinstance(value, _FUNCTIONS) or callable(value):
            return "function", _FUNCTION
        if hasattr(kind, "__next__"):
            return "iterator", _ITERATOR
        return "token", frozenset()

    def _is_public(self, kind: type) -> bool:
        if kind.__module__ in self.trusted:
            return True
        return any(kind is getattr(sys.modules.get("_io"), name, None) for name in _STREAMS) or self._is_mock(kind)

    @staticmethod
    def _is_mock(kind: type) -> bool:
        mock = getattr(sys.modules.get("unittest.mock"), "NonCallableMock", None)
        return mock is not None and mock in mro(kind)

    def operation(self, handle: Any, name: Any) -> Any:
        """The function that does what the program asks for, to be called with the object and the arguments."""
        owner = self.find(handle)
        if name not in self._allowed[handle][1]:
            raise TypeError(f"a {name_of(type(owner))} of the tests does not take {name}")
        return OPERATIONS[name]

    def attribute(self, handle: Any, name: Any) -> Any:
        """A public attribute."""
        owner = self._open(handle, name)
        return getattr(owner, name)

    def set_attribute(self, handle: Any, name: Any, value: Any) -> None:
        """Set public data.  What the class provides stays as it is, above all the assertions of a Mock."""
        owner = self._open(handle, name)
        provided = getattr(type(owner), name, None)
        if callable(provided) or hasattr(type(provided), "__set__"):
            raise AttributeError(f"{name!r} of an object of the tests cannot be set")
        setattr(owner, name, value)

    def _open(self, handle: Any, name: Any) -> Any:
        owner = self.find(handle)
        public = type(name) is str and name.isidentifier() and not name.startswith("_")
        if not public or self._allowed[handle][0] != "object":
            raise AttributeError(f"an object of the tests has no attribute {str(name)[:100]!r} for the program")
        if self._is_mock(type(owner)) and hasattr(sys.modules["unittest.mock"].Mock, name):
            raise AttributeError(f"{name!r} of a mock is the tests' own")
        return owner

    def find(self, handle: Any) -> Any:
        """The object itself."""
        if type(handle) is not int or not 0 <= handle < len(self.objects):
            raise BadValue("malformed: no such object")
        return self.objects[handle]
