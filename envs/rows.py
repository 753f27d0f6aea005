"""Rows with references, and a verifier by name: what `rlvr score
--verifier math FILE` scores with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import rlvr
from rlvr.data.columns import Columns
from rlvr.data.formats import read_rows
from rlvr.environment.registry import object_at
from rlvr.verifiers.named import make_verifier

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Rows"]


@rlvr.register("rows-v4")
class Rows(rlvr.Environment):
    """Any rows that have a reference, checked by a verifier that is named.

    Options:
        verifier: a name that `rlvr verifiers` lists, or the place of your own,
            `path/to/file.py:name`: a verifier, its class, or a function of a completion and a
            reference.
        settings: of the verifier, by name.
        data: where tasks come from, for training and evaluation: a file, or a hub id; scoring needs
            none.
        prompt, reference: the columns of the data, as dotted paths.
        sandbox: the level of the sandbox for "code", see `rlvr.sandbox.Sandbox`.
    """

    domain = "any"
    verifier: str = "math"
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    prompt: str = "prompt"
    reference: str = "reference"
    sandbox: str = "namespaces"

    def __post_init__(self) -> None:
        verifier = _make_verifier(self.verifier, self.settings, self.sandbox)
        # an instance may shadow it
        self.reward = rlvr.Correct(verifier)  # type: ignore[misc]

    def tasks(self) -> Iterator[rlvr.Task]:
        if not self.data:
            raise rlvr.UsageError(
                "rows-v4 has no tasks of its own: say where they are by --option data=FILE"
            )
        columns = Columns(prompt=self.prompt, reference=self.reference, completion=None)
        return self.tasks_in(columns.rows(read_rows(self.data)), make=_row_task)


def _row_task(row: Row, id: str) -> rlvr.Task:
    meta = {name: value for name, value in row.items() if name not in ("id", "prompt", "reference")}
    # Lines are counted from 1.
    number = int(id.rpartition("/")[2]) + 1
    return rlvr.Task(str(row.get("id", f"line:{number}")), row["prompt"], row["reference"], meta)


def _make_verifier(verifier: str, settings: Mapping[str, object], sandbox: str) -> Any:
    if ":" not in verifier:
        # Only the judge of code runs programs, and has a level.
        level = {"sandbox": sandbox} if verifier == "code" and sandbox != "namespaces" else {}
        return make_verifier(verifier, {**settings, **level})
    verifier_object = object_at(verifier, what="verifier")
    if isinstance(verifier_object, type) and hasattr(verifier_object, "verify"):
        return verifier_object(**settings)
    # An instance has its settings already.
    if settings:
        raise rlvr.UsageError(f"{verifier} is as it is and has no settings; name a class for that")
    return verifier_object
