"""Settings of a run from a file: TOML with the names of `Config` and of an algorithm's
numbers, or a run's record.

Needs no torch.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import get_type_hints

from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.papers.numbers import Number, as_typed, from_record, number_of, paper_numbers
from rlvr.data.files import read_bounded
from rlvr.errors import UsageError
from rlvr.samplers.chat import require_chat_mode
from rlvr.train.config import Config
from rlvr.train.config.setting import defaults, unread
from rlvr.train.stage import read_stages
from rlvr.types import JsonDict
from rlvr.validate import nearest

__all__ = ["merge_numbers", "read_settings"]


def merge_numbers(
    algorithm: Algorithm, first: Mapping[str, object], then: Mapping[str, object]
) -> dict[str, object]:
    """The changes of an algorithm from two places, of which the second wins; see
    `rlvr.algo.papers.numbers.changed`.

    Args:
        algorithm: whose numbers.
        first: such as those of a file.
        then: such as those of flags.

    Raises:
        UsageError: the algorithm has no such number.
    """
    numbers_by_name = {name: number_of(algorithm, name) for name in [*first, *then]}
    # Whole parts that the second place replaces, and parts of which it gives single numbers.
    replaced_parts = {numbers_by_name[name].part for name in then if not numbers_by_name[name].name}
    inner = {numbers_by_name[name].part for name in then if numbers_by_name[name].name}
    kept_first = {
        name: value
        for name, value in first.items()
        if numbers_by_name[name].part is None
        or numbers_by_name[name].part
        not in (inner if not numbers_by_name[name].name else replaced_parts)
    }
    return {**kept_first, **then}


def read_settings(path: Path, default: str | Algorithm = "dapo") -> JsonDict:
    """The settings of a TOML file, or of a JSON file such as a run's `config.json`.

    `algorithm` is a name, or a table as runs record it; single numbers of the algorithm, such as
    `clip_high`, stand beside it.  A run's `config.json` says that its folder is the run.

    Args:
        path: the file; TOML unless its name ends with .json.
        default: the algorithm whose numbers the file has, if it names none.

    Returns:
        Names → values, each of its type.

    Raises:
        UsageError: it cannot be read, has an unknown name, or a value of another type.
    """
    try:
        text = read_bounded(path).decode()
        tree = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:  # both parsers' errors are ValueErrors
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"cannot read settings from {path}: {why}; give a TOML file, or a run's config.json"
        ) from None
    is_run = isinstance(tree, dict) and isinstance(tree.get("settings"), dict)
    if is_run:
        # Beside its settings a run's record has no folder: that is where the file lies.
        tree = {"run": str(path.parent), **tree["settings"]}
    if not isinstance(tree, dict):
        raise UsageError(f"{path} holds a {type(tree).__name__}; it must be a table of settings")
    hints = get_type_hints(Config)
    try:
        algorithm = _algorithm(tree.get("algorithm", default))
        values = {name: _setting(name, value, hints, algorithm) for name, value in tree.items()}
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return _keep_chosen(values, algorithm) if is_run else values


def _keep_chosen(values: Mapping[str, object], algorithm: Algorithm) -> dict[str, object]:
    """The settings of a run's record that are not as by default, and that something reads."""
    by_default = defaults(Config)
    # No `__init__`: the values are read as they are, and checked when the run is made.
    run = Config.__new__(Config)
    vars(run).update({**by_default, **values})
    dropped = unread(run, algorithm)
    return {
        name: value
        for name, value in values.items()
        if name not in dropped and (name not in by_default or value != by_default[name])
    }


def _setting(name: str, value: object, hints: Mapping[str, object], algorithm: Algorithm) -> object:
    if name == "algorithm":
        return value if isinstance(value, str) else algorithm
    if name == "chat" and isinstance(value, bool):  # of before there was "auto"
        return require_chat_mode(name, value)
    if name == "stage":  # texts, or tables
        return read_stages(name, value)
    if name in hints:
        return as_typed(name, value, hints[name])
    numbers: Mapping[str, Number] = paper_numbers(type(algorithm))
    if isinstance(value, Mapping) and (
        inner := [number_name for number_name in numbers if numbers[number_name].part == name]
    ):
        raise UsageError(
            f"there is no table {name!r}; write its numbers one by one, such as {inner[0]}"
        )
    if name not in numbers and (near := nearest(name, hints)):
        raise UsageError(f"there is no setting {name!r}{near}")
    return as_typed(name, value, number_of(algorithm, name).hint)


def _algorithm(value: object) -> Algorithm:
    """The algorithm of a file: by its name, or from what a run has recorded."""
    if isinstance(value, Algorithm):
        return value
    return load_algorithm(value) if isinstance(value, str) else from_record(value)
