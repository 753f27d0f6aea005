"""What a verdict rests on, for people: both sides of a formula as they were read, the
case that a program failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlvr.errors import DataError
from rlvr.viewer.texts import as_text, excerpt

__all__ = ["failed_case", "readings_of_row"]

_CASE: Final = re.compile(r"[A-Z]{2,3}: case (\d{1,6})\b:? ?(.*)", re.DOTALL)
_LONGEST: Final = 2000  # characters of an input or output
_READ: Final = 500  # and of a formula


def readings_of_row(row: Mapping[str, object]) -> dict[str, object] | None:
    """Answer and reference as the mathematics reads them, and a point at which they differ.

    Args:
        row: a record.

    Returns:
        `answer`, `reference` in words, and `difference`, a
        `rlvr.verifiers.math.differing.DifferingPoint` or None; None for a row of another verifier.
    """
    answer, reference = row.get("answer"), row.get("reference")
    if not str(row.get("verifier")).startswith("math") or not isinstance(answer, str):
        return None
    from rlvr.verifiers.math.differing import differing_point

    right = as_text(reference)
    differs = row.get("outcome") == "wrong"
    return {
        "answer": _reading(answer),
        "reference": _reading(right),
        "difference": differing_point(answer, right) if differs else None,
    }


def _reading(text: str) -> str:
    from rlvr.verifiers.math import parse

    try:
        return parse(text).reading[:_READ]
    except DataError as error:
        return str(error)[:_READ]


def failed_case(row: Mapping[str, object]) -> dict[str, object] | None:
    """The first case that a program failed, with what is recorded of it; None if none is.

    Args:
        row: a record.

    Returns:
        `name`, `why`, and those of `input`, `expected`, `got` that are known.
    """
    match = _CASE.match(as_text(row.get("why")))
    if match is None or not str(row.get("verifier")).startswith("code"):
        return None
    place = int(match[1]) - 1
    reference, detail = row.get("reference"), row.get("detail")
    tests = detail.get("tests") if isinstance(detail, Mapping) else None
    test = _at(tests, place)
    fields: Mapping[str, object] = test if isinstance(test, Mapping) else {}
    columns: Mapping[str, object] = reference if isinstance(reference, Mapping) else {}
    values = {
        "input": _at(columns.get("inputs"), place),
        "expected": fields.get("expected", _at(columns.get("outputs"), place)),
        "got": fields.get("got"),
    }
    excerpts = {
        name: excerpt(as_text(value), _LONGEST)
        for name, value in values.items()
        if value is not None
    }
    return {"name": f"case {place + 1}", "why": match[2][:_LONGEST], **excerpts}


def _at(values: Any, place: int) -> object:
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    return values[place] if is_list and 0 <= place < len(values) else None
