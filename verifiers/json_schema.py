"""JSON texts, judged by a JSON Schema and by the values that the task asks for.

A schema alone would be satisfied by any text of its form, so a reference names values too.  Schemas
are checked by the package `jsonschema` (extra `json`).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from rlvr.errors import DataError, brief, import_optional
from rlvr.types import JsonObject, Outcome, Verdict
from rlvr.verifiers.answers import Answer, Form
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.patterns import read_pattern

__all__ = ["JSONVerifier", "bracket_depth", "read_strict_json", "same_json"]

# brackets; far below what Python's recursion takes, and more than answers have
_DEPTH: Final = 50


@dataclass(frozen=True)
class JSONVerifier(BaseVerifier[Answer, "_Asked"]):
    """Reads one JSON text, alone or in one fenced block; checks it by a schema and by values.

    The reference is a mapping:

        schema  a JSON Schema, draft 2020-12 unless its `$schema` says otherwise; references to
                other documents are refused, and so are patterns that cannot be matched in linear
                time, see `rlvr.verifiers.patterns`
        values  maps JSON pointers (RFC 6901) to the values that must stand there:
                {"/name": "Ada", "/tags/0": "x"}
        whole   instead of `values`: the whole document

    Equality is JSON's: 1 and 1.0 are one number, true and 1 are not, the order of keys does not
    count.  A key that stands twice in an object, NaN and infinities, and texts nested deeper than
    50 are no JSON here.
    """

    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(
        fences=frozenset(("json", "jsonc", "")),
        bare=True,
        begins=r"\s*[\[{\"]",
        lines=True,
        longest=100_000,
    )
    reference_form: ClassVar[str] = "a mapping of schema, and values or whole"
    reference_example: ClassVar[object] = {
        "schema": {"type": "object"},
        "whole": {"name": "Ada", "age": 36},
    }

    def read(self, reference: object) -> _Asked:
        """The schema's validator, and the asked values by pointer.

        Args:
            reference: see the class.

        Raises:
            DataError: the schema is none, or no value is asked for.
            MissingDependency: there is a schema, and the extra `json` is not installed.
        """
        requirement = _read_reference(reference)
        if requirement.schema is not None:
            breach = _first_breach(requirement.schema, requirement.values.get("", {}))
            if breach and "" in requirement.values:
                raise DataError(f"the document that is asked for breaks its schema: {breach}")
        return requirement

    def judge(self, answer: Answer, reference: _Asked) -> Verdict:
        """The verdict on a document.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        text_shown = answer.text[:200]
        try:
            document = _document(answer.text)
        except ValueError as error:
            return Verdict(Outcome.UNPARSED, why=f"no-json: {error}", answer=text_shown)
        if reference.schema is not None and (breach := _first_breach(reference.schema, document)):
            return Verdict(Outcome.WRONG, why=f"schema: {breach}", answer=text_shown)
        for pointer, expected in reference.values.items():
            try:
                actual = _at(document, pointer)
            except LookupError:
                return Verdict(
                    Outcome.WRONG, why=f"missing: nothing at {pointer!r}", answer=text_shown
                )
            if not same_json(actual, expected):
                return Verdict(Outcome.WRONG, why=f"other-value: at {pointer!r}", answer=text_shown)
        return Verdict(Outcome.CORRECT, why="as-asked", answer=text_shown)

    def example(self, reference: Any) -> str | None:
        """The document of `whole`; None where only some values are asked for.

        Args:
            reference: see the class.
        """
        values = self.read(reference).values
        return f"```json\n{json.dumps(values[''])}\n```" if "" in values else None


class _Asked(NamedTuple):
    """A reference that was read."""

    schema: str | None
    values: JsonObject


def _document(text: str) -> object:
    """The one document of a text, which may have prose around it.

    Raises:
        ValueError: there is none, or there are two.
    """
    try:
        return read_strict_json(text)
    except ValueError:
        start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=0)
        stop = max(text.rfind("}"), text.rfind("]")) + 1
        before, after = text[:start].rstrip(" \t"), text[stop:].lstrip(" \t")
        # apart: on lines of their own, or behind a colon or full stop
        is_apart = (not before or before[-1] in ":\n.!") and _ENDS.match(after) is not None
        if not start < stop or not is_apart or (start == 0 and stop == len(text)):
            raise  # "{…} or nothing" is a hedge, and "not {…}" none
        return read_strict_json(text[start:stop])


_ENDS: Final = re.compile(
    r"\Z|\n|(?!(?:or|alternatively|but|however|not|no|wait|actually|otherwise|else|unless)\b)[A-Z]",
    re.IGNORECASE,
)
"""What may stand behind a document: nothing, a new line, or a sentence of its own
that takes nothing back."""


def read_strict_json(text: str) -> object:
    """A JSON text as Python values, strictly: no NaN, no key twice, nested at most 50 deep.

    Args:
        text: the text.

    Raises:
        ValueError: it is none; says why.
    """
    # counted before it is read, since json.loads recurses
    if bracket_depth(text) > _DEPTH:
        raise ValueError(f"it is nested more than {_DEPTH} deep")
    # NaN and a key that stands twice are no JSON, though Python reads them: of two values either
    # might be meant
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)


def bracket_depth(text: str) -> int:
    """An upper bound of the depth of nested brackets and braces; those in strings count too.

    Args:
        text: any text.
    """
    depth = deepest = 0
    for sign in re.findall(r"[\[\]{}]", text):
        depth += 1 if sign in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def same_json(a: object, b: object) -> bool:
    """Equality of JSON values: 1 is 1.0, and True is not 1.

    Args:
        a, b: values as `read_strict_json` gives them.
    """
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_json(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_json, a, b))
    return bool(a == b)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return by_key


def _read_reference(reference: object) -> _Asked:
    if not isinstance(reference, Mapping):
        raise DataError(
            f"the reference is {brief(reference)}; it must be a mapping with schema, and values or "
            f"whole"
        )
    unknown = reference.keys() - {"schema", "values", "whole"}
    if unknown:
        raise DataError(
            f"the reference has {sorted(unknown)[0]!r}; it may have schema, values and whole"
        )
    values = reference.get("values")
    # a data set with one schema has what a row lacks as None
    if "whole" in reference and not (values and reference["whole"] is None):
        if values:
            raise DataError("the reference has values and whole; give one of them")
        values = {"": reference["whole"]}
    if not values or not isinstance(values, Mapping):
        raise DataError(
            "the reference asks for no values, so that an empty object would do; give values or "
            "whole"
        )
    try:
        # values from a Python program may hold what JSON has not, and no answer could equal it
        pointed: Any = read_strict_json(json.dumps(dict(values)))
    except (ValueError, TypeError) as error:
        raise DataError(f"the values that are asked for are no JSON: {error}") from None
    for pointer in pointed:
        if pointer and not pointer.startswith("/"):
            raise DataError(
                f"the reference asks for a value at {pointer!r}; a JSON pointer begins with /"
            )
    schema = reference.get("schema")
    return _Asked(None if schema is None else json.dumps(schema, sort_keys=True), pointed)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    jsonschema = import_optional("jsonschema", "json")
    registry = import_optional("referencing", "json").Registry()  # an empty one: nothing is fetched
    read = json.loads(schema)
    kind = jsonschema.validators.validator_for(read, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(read)
    except jsonschema.SchemaError as error:
        raise DataError(f"the schema is none: {error.message[:200]}") from None
    _require_usable(read, registry, kind)
    # checks of jsonschema that use Python's regular expressions, or compare all pairs of items,
    # take more than linear time
    checks = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique}
    checks |= {"additionalProperties": _additional} if _has_patterns(read) else {}
    counted = {
        name: _count_evaluations(checks.get(name, check), _COSTS.get(name, 1))
        for name, check in kind.VALIDATORS.items()
    }
    return jsonschema.validators.extend(kind, counted)(read, registry=registry)


# ------------------------------------------------------ keywords that take no more than linear time


class _TooMuch(Exception):
    """A document and a schema need more evaluations of keywords than are allowed."""


_EVALUATIONS: Final = 100_000  # of keywords, for one document: references multiply
# A reference is looked up each time, which takes as long as three of other keywords.
_COSTS: Final = {"$ref": 3, "$dynamicRef": 3, "$recursiveRef": 3}
# values: a schema that takes so many evaluations of a smaller document is to blame for it
_LARGE: Final = 200
_left = threading.local()


def _count_evaluations(check: Callable[..., Any], cost: int) -> Callable[..., Iterator[object]]:
    """A keyword's check that counts against the evaluations of the document."""

    def counted(validator: Any, value: Any, instance: object, schema: object) -> Iterator[object]:
        # each keyword is counted where it is evaluated: `$ref` may double the work at every level
        _left.count -= cost
        if _left.count < 0:
            raise _TooMuch
        yield from check(validator, value, instance, schema) or ()

    return counted


def _error(message: str) -> object:
    return import_optional("jsonschema", "json").ValidationError(message)


def _pattern(validator: object, pattern: str, instance: object, schema: object) -> Iterator[object]:
    if isinstance(instance, str) and not read_pattern(pattern).search(instance):
        yield _error(f"{brief(instance)} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, properties: Mapping[str, object], instance: Any, schema: object
) -> Iterator[object]:
    for pattern, subschema in properties.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if read_pattern(pattern).search(name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional(
    validator: Any, additional: object, instance: object, schema: Any
) -> Iterator[object]:
    if not isinstance(instance, dict):
        return
    patterns = [read_pattern(pattern) for pattern in schema.get("patternProperties", {})]
    for name, value in instance.items():
        if name in schema.get("properties", {}) or any(
            pattern.search(name) for pattern in patterns
        ):
            continue
        if additional is False:
            yield _error(f"{name!r} is not allowed")
        elif isinstance(additional, dict):
            yield from validator.descend(value, additional, path=name)


def _unique(
    validator: object, wanted: object, instance: object, schema: object
) -> Iterator[object]:
    if not wanted or not isinstance(instance, list):
        return
    # as text, so that a set finds equal ones; 1 and 1.0 are the same number
    if len({json.dumps(_plain(item), sort_keys=True) for item in instance}) < len(instance):
        yield _error("two items are equal")


def _plain(value: object) -> object:
    """Equal JSON values as values that are written equally: 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _parts_of(schema: object) -> Iterator[dict[str, object]]:
    """A schema and all objects in it."""
    if isinstance(schema, dict):
        yield schema
    for part in (
        schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    ):
        yield from _parts_of(part)


def _has_patterns(schema: object) -> bool:
    return any("patternProperties" in part for part in _parts_of(schema))


def _require_usable(schema: object, registry: Any, kind: object) -> None:
    """Refuse what would fail only while an answer is judged: patterns and references that lead
    nowhere.

    Raises:
        DataError: there is such a thing; names it.
    """
    for part in _parts_of(schema):
        patterns = part.get("patternProperties")
        pattern_texts = [*patterns] if isinstance(patterns, dict) else []
        if isinstance(part.get("pattern"), str):
            pattern_texts.append(part["pattern"])
        for pattern in pattern_texts:
            read_pattern(pattern)
        # jsonschema looks for patterns in unevaluatedProperties with Python's own engine
        if (
            pattern_texts
            and _has_patterns(schema)
            and "unevaluatedProperties" in json.dumps(schema)
        ):
            raise DataError("the schema has patternProperties and unevaluatedProperties: give one")
    if not isinstance(schema, dict) or any("$id" in part for part in _parts_of(schema)):
        return  # references are relative to what has an id
    referencing = import_optional("referencing", "json")
    specification = import_optional("referencing.jsonschema", "json")
    root = referencing.Resource.from_contents(
        schema, default_specification=specification.DRAFT202012
    )
    resolver = registry.with_resource("", root).resolver()
    for part in _parts_of(schema):
        if isinstance(part.get("$ref"), str):
            try:
                resolver.lookup(part["$ref"])
            except referencing.exceptions.Unresolvable:
                raise DataError(
                    f"the schema refers to {brief(part['$ref'])}, which is not in it"
                ) from None


def _first_breach(schema: str, found: object) -> str:
    """What breaks the schema; empty if nothing does.

    Raises:
        DataError: the schema refers to what is not in it, or multiplies, so that no answer can be
            judged by it.
    """
    unresolvable = import_optional("referencing.exceptions", "json").Unresolvable
    _left.count = _EVALUATIONS
    try:
        breaches = [
            (list(map(str, e.absolute_path)), e.message)
            for e in _validator(schema).iter_errors(found)
        ]
    except unresolvable as error:
        raise DataError(f"the schema refers to {error}, which is not in it") from None
    except _TooMuch:
        # to blame is the schema where the document is small, and the answer where it is large
        count = _count(found)
        why = (
            f"{count:,} values take more than {_EVALUATIONS:,} evaluations of the schema's keywords"
        )
        if count < _LARGE:
            raise DataError(f"{why}; write a schema whose references do not multiply") from None
        return why
    except OverflowError:
        return "a number beyond 1e308"
    if not breaches:
        return ""
    # the first one by its path: the same one each time
    path, message = min(breaches)
    return f"/{'/'.join(path)}: {message[:200]}"


def _count(value: object) -> int:
    """Number of values in a document."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, parts))


def _at(value: object, pointer: str) -> object:
    """What stands at a JSON pointer.

    Raises:
        LookupError: nothing.
    """
    for part in pointer.split("/")[1:]:
        # in this order: "~01" is "~1", and not "/"
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            # "-1" is Python's last item, and none in a JSON pointer
            if not (part.isascii() and part.isdecimal() and len(part) < 9):
                raise LookupError(part)
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value[part]
        else:
            raise LookupError(part)
    return value
