"""A request whose head is there, and whose caller may ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from rlvr.http.memory import MemoryShare
from rlvr.http.refused import Refused

__all__ = ["HttpRequest", "read_typed"]

_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(slots=True)
class HttpRequest:
    """A request.

    Attributes:
        scope, receive: as ASGI gives them.
        headers: the first of each name.
        share: the memory of the request.
        caller: what the application's keys say of the caller; None where no key is wanted.
        path: what stands in the path for the names in braces.
    """

    scope: Scope
    receive: Receive
    headers: Mapping[bytes, bytes]
    share: MemoryShare
    caller: Any
    path: Mapping[str, str]

    def header(self, name: bytes) -> str:
        """The value of a header; empty if there is none.

        Args:
            name: in small letters.
        """
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def query(self) -> QueryParams:
        """What stands behind the ? of the address."""
        return QueryParams(self.scope["query_string"])


def read_typed(values: Mapping[str, object], body: type[_Body]) -> _Body:
    """A body as the type that its route documents.

    Args:
        values: the JSON object that came.
        body: the type.

    Raises:
        Refused: a value is not of its type; the first one is named.
    """
    try:
        return body.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "the body"
        what = "missing"
        if first["type"] != "missing":
            value = first["input"]
            is_kind = first["type"] == "list_type"
            what = f"a {type(value).__name__}" if is_kind else repr(str(value)[:60])
        field_info = body.model_fields.get(name)
        rule = (
            f"; send {field_info.description}"
            if field_info is not None and field_info.description
            else ""
        )
        raise Refused(422, f"bad-{name}", f"{name!r} is {what}{rule}") from None
