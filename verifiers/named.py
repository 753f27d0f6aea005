"""Verifiers by name, for `rlvr score --verifier NAME`, `rlvr verifiers` and `rows-v4`:
imported when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from rlvr.errors import UsageError
from rlvr.validate import nearest

__all__ = ["PLACES", "class_of", "make_verifier"]

PLACES: Final[Mapping[str, str]] = {
    "math": "math:MathVerifier",
    "gsm8k": "math:MathVerifier",
    "text": "math:MathVerifier",
    "code": "code:CodeVerifier",
    "science": "science:ScienceVerifier",
    "chemistry": "chemistry:ChemistryVerifier",
    "choice": "choices:ChoiceVerifier",
    "qa": "qa:QAVerifier",
    "json": "json_schema:JSONVerifier",
    "sql": "sql:SQLVerifier",
    "calls": "calls:CallsVerifier",
    "instructions": "instructions:InstructionVerifier",
    "roles": "logic:RolesVerifier",
    "grid": "logic:GridVerifier",
    "sudoku": "logic:SudokuVerifier",
    "expression": "logic:ExpressionVerifier",
    "list": "parts:ListVerifier",
    "parts": "parts:PartsVerifier",
    "pattern": "patterns:PatternVerifier",
    "judge": "judge:Judge",
}
"""The place of each name's class, below `rlvr.verifiers`.

`gsm8k` and `text` are `math` with other policies: numbers of word problems, and texts compared
letter by letter.
"""


def _gsm8k() -> dict[str, object]:
    return {"policy": importlib.import_module("rlvr.verifiers.math").GSM8K}


def _text() -> dict[str, object]:
    return {"policy": importlib.import_module("rlvr.verifiers.math").MathPolicy(references="text")}


_PRESETS: Final[Mapping[str, Callable[[], dict[str, object]]]] = {"gsm8k": _gsm8k, "text": _text}


def class_of(name: str) -> type[Any]:
    """The class of a named verifier.

    Args:
        name: one of `PLACES`.

    Raises:
        UsageError: there is no such name.
    """
    if name not in PLACES:
        raise UsageError(
            f"no verifier {name!r}; there is {', '.join(PLACES)}, or path/to/file.py:name of your "
            f"own"
            f"{nearest(name, PLACES)}"
        )
    module, _, cls = PLACES[name].partition(":")
    loaded: type[object] = getattr(importlib.import_module(f"rlvr.verifiers.{module}"), cls)
    return loaded


def make_verifier(name: str, settings: Mapping[str, object] | None = None) -> Any:
    """A verifier by name.

    Args:
        name: one of `PLACES`.
        settings: of its class, by name.

    Raises:
        UsageError: there is no such name or setting, or a value is out of range.
    """
    cls, values = class_of(name), {**_PRESETS.get(name, dict)(), **(settings or {})}
    names = {field.name for field in fields(cls) if field.init}
    for setting in values:
        if setting not in names:
            raise UsageError(
                f"the verifier {name} has no setting {setting!r}; it has "
                f"{', '.join(sorted(names)) or 'none'}"
                f"{nearest(setting, names)}"
            )
    try:
        return cls(**values)
    except TypeError as error:
        raise UsageError(f"the verifier {name}: {error}") from None
