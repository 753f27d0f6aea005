"""JSON texts, judged by a JSON Schema and by the values that the task asks for.

A schema alone would be satisfied by any text of its form, so a reference names values too.  Schemas are checked by the
package `jsonschema` (extra `json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from rlvr.errors import DataError, brief, import_optional
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.blocks import sole_answer

__all__ = ["JSONVerifier", "read_json", "same_json"]

_DEPTH: Final = 50
_LONGEST: Final = 100_000


@dataclass(frozen=True)
class JSONVerifier:
    """Reads one JSON text, alone or in one fenced block; checks it by a schema and by values.

    The reference is a mapping:

        schema  a JSON Schema, draft 2020-12 unless its `$schema` says otherwise; references to other documents are
                refused
        values  maps JSON pointers (RFC 6901) to the values that must stand there: {"/name": "Ada", "/tags/0": "x"}
        whole   instead of `values`: the whole document

    Equality is JSON's: 1 and 1.0 are one number, true and 1 are not, the order of keys does not count.  A key that
    stands twice in an object, NaN and infinities, and texts nested deeper than 50 are no JSON here.
    """

    id: str = "json-verifier-v1"

    def verify(self, completion: str, reference: Any) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: its text.
            reference: see the class.

        Raises:
            DataError: the reference cannot be used.
        """
        schema, values = _read_reference(reference)
        text = sole_answer(completion, {"json", "jsonc", ""}, most=_LONGEST)
        if isinstance(text, Verdict):
            return text
        try:
            found = read_json(text)
        except ValueError as error:
            return Verdict(Outcome.UNPARSED, why=f"no-json: {error}", answer=text[:200])
        shown = text[:200]
        if schema is not None and (broken := _first_breach(schema, found)):
            return Verdict(Outcome.WRONG, why=f"schema: {broken}", answer=shown)
        for pointer, wanted in values.items():
            try:
                there = _at(found, pointer)
            except LookupError:
                return Verdict(Outcome.WRONG, why=f"missing: nothing at {pointer!r}", answer=shown)
            if not same_json(there, wanted):
                return Verdict(Outcome.WRONG, why=f"other-value: at {pointer!r}", answer=shown)
        return Verdict(Outcome.CORRECT, why="as-asked", answer=shown)

    def check(self, reference: Any) -> None:
        """Refuse a reference that cannot be used.

        Args:
            reference: see the class.

        Raises:
            DataError: the schema is none, or no value is asked for.
        """
        schema, _ = _read_reference(reference)
        if schema is not None:
            _first_breach(schema, None)


def read_json(text: str) -> Any:
    """A JSON text as Python values, strictly: no NaN, no key twice, nested at most 50 deep.

    Args:
        text: the text.

    Raises:
        ValueError: it is none; says why.
    """
    depth = deepest = 0
    for char in text:  # brackets in strings count too; 50 of them open is no JSON of a task
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    if deepest > _DEPTH:
        raise ValueError(f"it is nested more than {_DEPTH} deep")
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)


def same_json(a: Any, b: Any) -> bool:
    """Equality of JSON values: 1 is 1.0, and True is not 1.

    Args:
        a, b: values as `read_json` gives them.
    """
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_json(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_json, a, b))
    return bool(a == b)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


def _read_reference(reference: Any) -> tuple[str | None, Mapping[str, Any]]:
    if not isinstance(reference, Mapping):
        raise DataError(
            f"the reference is {brief(reference)}; it must be a mapping with schema, and values or whole"
        )
    unknown = reference.keys() - {"schema", "values", "whole"}
    if unknown:
        raise DataError(
            f"the reference has {sorted(unknown)[0]!r}; it may have schema, values and whole"
        )
    values = {"": reference["whole"]} if "whole" in reference else reference.get("values")
    if not values or not isinstance(values, Mapping):
        raise DataError(
            "the reference asks for no values, so that an empty object would do; give values or whole"
        )
    for pointer in values:
        if pointer and not str(pointer).startswith("/"):
            raise DataError(
                f"the reference asks for a value at {pointer!r}; a JSON pointer begins with /"
            )
    schema = reference.get("schema")
    return None if schema is None else json.dumps(schema, sort_keys=True, default=dict), values


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    jsonschema = import_optional("jsonschema", "json")
    registry = import_optional("referencing", "json").Registry()  # an empty one: nothing is fetched
    read = json.loads(schema)
    kind = jsonschema.validators.validator_for(read, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(read)
    except jsonschema.SchemaError as error:
        raise DataError(f"the schema is none: {error.message}") from None
    return kind(read, registry=registry)


def _first_breach(schema: str, found: Any) -> str:
    """What breaks the schema; empty if nothing does."""
    unresolvable = import_optional("referencing.exceptions", "json").Unresolvable
    try:
        breaches = [
            (list(map(str, e.absolute_path)), e.message)
            for e in _validator(schema).iter_errors(found)
        ]
    except unresolvable as error:
        raise DataError(f"the schema refers to {error}, which is not in it") from None
    if not breaches:
        return ""
    path, message = min(breaches)
    return f"/{'/'.join(path)}: {message[:200]}"


def _at(value: Any, pointer: str) -> Any:
    """What stands at a JSON pointer.

    Raises:
        LookupError: nothing.
    """
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            if not (part.isascii() and part.isdecimal() and len(part) < 9):
                raise LookupError(part)
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value[part]
        else:
            raise LookupError(part)
    return value
