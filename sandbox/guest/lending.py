"""The tests' side: what the program may do with an object of the tests that it was given as an argument.

In one process the program could reach everything that the tests know from any of their objects.  Here it can do less:
a function may only be called; of an instance of a class that the tests define, the public attributes may be used; any
other object is a token that the program can only pass back.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from typing import Any

from rlvr.sandbox.guest.program import OPERATIONS, operations
from rlvr.sandbox.guest.values import BadValue, mro, name_of

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
    """The objects of the tests for which the program has handles.

    Args:
        trusted: names of the modules whose classes are the tests' own.
    """

    def __init__(self, trusted: tuple[str, ...]) -> None:
        self.trusted = trusted
        self.objects: list[Any] = []
        self._handles: dict[int, int] = {}
        self._allowed: list[tuple[str, frozenset[str]]] = []

    def lend(self, value: Any) -> Any:
        """The tree that stands for an object; it contains the object's handle.

        Args:
            value: an object of the tests.
        """
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
        """The function of an operation, to be called with the object and the arguments.

        Args:
            handle, name: as the program sent them; anything.

        Raises:
            TypeError: the program may not do that with this object.
            BadValue: there is no such object.
        """
        owner = self.find(handle)
        if name not in self._allowed[handle][1]:
            raise TypeError(f"a {name_of(type(owner))} of the tests does not take {name}")
        return OPERATIONS[name]

    def attribute(self, handle: Any, name: Any) -> Any:
        """A public attribute of an object.

        Args:
            handle, name: as the program sent them; anything.

        Raises:
            AttributeError: there is none of that name that the program may use.
            BadValue: there is no such object.
        """
        owner = self._open(handle, name)
        return getattr(owner, name)

    def set_attribute(self, handle: Any, name: Any, value: Any) -> None:
        """Set a public attribute.  What the class defines cannot be set, above all the assertions of a Mock.

        Args:
            handle, name: as the program sent them; anything.
            value: the new value.

        Raises:
            AttributeError, BadValue: see `attribute`.
        """
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
        """The object itself.

        Args:
            handle: as the program sent it; anything.

        Raises:
            BadValue: there is no such object.
        """
        if type(handle) is not int or not 0 <= handle < len(self.objects):
            raise BadValue("malformed: no such object")
        return self.objects[handle]
