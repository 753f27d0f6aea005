"""Rows with references, and a verifier by name: what `rlvr score --verifier math FILE` scores with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import rlvr
from rlvr.data.columns import Columns
from rlvr.data.formats import read_rows
from rlvr.environment.registry import object_at
from rlvr.validate import nearest

__all__ = ["Rows", "VERIFIERS"]


def _math(policy: str) -> Any:
    math = importlib.import_module("rlvr.verifiers.math")
    return math.MathVerifier(getattr(math, policy))


def _text() -> Any:
    math = importlib.import_module("rlvr.verifiers.math")
    return math.MathVerifier(math.MathPolicy(references="text"))


def _code(sandbox: str) -> Any:
    return importlib.import_module("rlvr.verifiers.code").CodeVerifier(sandbox=sandbox)


VERIFIERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "math": lambda _: _math("COMPETITION"),
    "gsm8k": lambda _: _math("GSM8K"),
    "text": lambda _: _text(),
    "code": _code,
}
"""Verifiers that `rows-v1` knows by name, made for a level of the sandbox.

`text` compares what the completion puts into a box letter by letter.
"""


@rlvr.register("rows-v1")
class Rows(rlvr.SingleTurnEnv):
    """Any rows that have a reference, checked by a verifier that is named.

    Options:
        verifier: "math", "gsm8k", "text" or "code", or the place of your own, `path/to/file.py:name`: a verifier, or a
            function of a completion and a reference.
        data: where tasks come from, for training and evaluation: a file, or a hub id; scoring needs none.
        prompt, reference: the columns of the data, as dotted paths.
        sandbox: the level of the sandbox for "code", see `rlvr.sandbox.Sandbox`.
    """

    domain = "any"
    verifier: str = "math"
    data: str = ""
    prompt: str = "prompt"
    reference: str = "reference"
    sandbox: str = "namespaces"

    def __post_init__(self) -> None:
        self.reward = rlvr.Correct(_named(self.verifier, self.sandbox))  # type: ignore[misc]  # an instance may shadow it

    def tasks(self) -> Iterator[rlvr.Task]:
        if not self.data:
            raise rlvr.UsageError(
                "rows-v1 has no tasks of its own: say where they are by --option data=FILE"
            )
        columns = Columns(prompt=self.prompt, reference=self.reference, completion=None)
        for line in columns.rows(read_rows(self.data)):
            if line.row is None:
                raise rlvr.DataError(f"{self.data}, line {line.number}: {line.error}")
            row = line.row
            meta = {
                name: value
                for name, value in row.items()
                if name not in ("id", "prompt", "reference")
            }
            yield rlvr.Task(
                str(row.get("id", f"line:{line.number}")), row["prompt"], row["reference"], meta
            )


def _named(verifier: str, sandbox: str) -> Any:
    if verifier in VERIFIERS:
        return VERIFIERS[verifier](sandbox)
    if ":" not in verifier:
        raise rlvr.UsageError(
            f"no verifier {verifier!r}; there is {', '.join(VERIFIERS)}, or path/to/file.py:name of your own"
            f"{nearest(verifier, VERIFIERS)}"
        )
    return object_at(verifier, what="verifier")
