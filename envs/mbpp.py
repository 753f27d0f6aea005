"""MBPP: small Python functions from one sentence and a few asserts (Austin
et al., arXiv:2108.07732)."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import rlvr
from rlvr.envs.code import CodeEnv
from rlvr.validate import require_whole

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["MBPP"]


@rlvr.register("mbpp-v3")
class MBPP(CodeEnv):
    """Small functions to write; the reference is the data set's own asserts.

    Tasks are found by index, or by name, such as "MBPP/11".

    Options:
        data: hub id, or a local .jsonl or .parquet file (or a folder with one per split) with
            columns `text` (or `prompt`) and `test_list`; or with `test` and `entry_point`, as
            HumanEval has them.
        subset: the hub data set's configuration, "full" or "sanitized".
        instruction: what precedes the task's sentence in the prompt.
        shown: number of asserts in the prompt, from which a model learns the function's name.  The
            paper shows all three; but a model can write a program for just the asserts that it
            sees.
        challenge: completions have to pass the challenge tests too.
        cpu_s, memory_mib: limits of a completion's program, for all its tests together.
        partial, report, packages, allow_missing: see `CodeEnv`.
    """

    domain = "programs"
    split: str = "test"
    data: str = "google-research-datasets/mbpp"
    subset: str = "full"
    instruction: str = "Answer with the whole function in a ```python block."
    shown: int = 1
    challenge: bool = False

    def __post_init__(self) -> None:
        require_whole("shown", self.shown, 0)
        super().__post_init__()

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data, name=self.subset)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        name = id if row.get("task_id") is None else self.name_of(row["task_id"])
        text = row.get("text", row.get("prompt"))
        if text is not None and not isinstance(text, str):
            raise rlvr.DataError(
                f"{name}: column 'text' (or 'prompt') is {text!r}; it must be a text"
            )
        reference, tests = self._tests(row, name)
        examples = "\n".join(tests[: self.shown])
        parts = (
            self.instruction,
            text,
            examples and f"It has to pass this:\n\n```python\n{examples}\n```",
        )
        code = row.get("code")
        # The data set's lines end in \r\n.
        meta = {"solution": code.replace("\r\n", "\n")} if isinstance(code, str) else {}
        meta |= self.domain_in(row)
        try:
            return rlvr.Task(
                name, "\n\n".join(filter(None, parts)), self.reference_of(reference), meta
            )
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{name}: {error}") from None

    def name_of(self, task_id: object) -> str:
        return task_id if isinstance(task_id, str) else f"MBPP/{task_id}"

    def _tests(self, row: Row, id: str) -> tuple[dict[str, str], list[str]]:
        """The reference, and the asserts that the prompt may show."""
        if isinstance(row.get("test"), str) and isinstance(row.get("entry_point"), str):
            # No assert of a `check` function is shown.
            return {"test": row["test"], "style": "check", "entry_point": row["entry_point"]}, []
        tests = _texts(row, "test_list", id)
        if not tests:
            raise rlvr.DataError(
                f"{id}: no tests in column 'test_list'; it has {', '.join(map(repr, row))}"
            )
        every = tests + (_texts(row, "challenge_test_list", id) if self.challenge else [])
        setup = [*_texts(row, "test_imports", id), *_texts(row, "test_setup_code", id)]
        reference = {"test": "\n".join(every), "style": "asserts"}
        try:
            setup = [*_imports(reference["test"], "\n".join(setup)), *setup]
            name = _entry_point(every, row.get("code"))
        except SyntaxError as error:
            raise rlvr.DataError(f"{id}: its tests cannot be read: {error}") from None
        if name:
            reference["entry_point"] = name
        if any(part.strip() for part in setup):
            reference["setup"] = "\n".join(setup)
        return reference, tests


def _texts(row: Mapping[str, object], column: str, id: str) -> list[str]:
    """A list of texts, or one text; [] where the column is absent."""
    value = row.get(column)
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, Iterable) or not all(isinstance(text, str) for text in texts):
        raise rlvr.DataError(f"{id}: column {column!r} is {value!r}; it must be a list of texts")
    return [text.replace("\r\n", "\n") for text in texts]


def _imports(test: str, setup: str) -> list[str]:
    """Imports of the standard modules that the tests use without importing them.

    They must not come from the program, which could define a `sys` of its own for an assert about
    `sys.getsizeof(…)`.
    """
    # What the setup imports or defines needs no import.
    bound = {name for node in ast.parse(setup).body for name in _bound(node)}
    used = {
        node.value.id
        for node in ast.walk(ast.parse(test))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return [f"import {name}" for name in sorted((used - bound) & sys.stdlib_module_names)]


def _entry_point(tests: list[str], code: object) -> str | None:
    """The function that the tests call most: one that the reference solution defines, or else one
    not built in.

    Classes do not count: tests make their instances to pass them.
    """
    called = [
        node.func.id
        for test in tests
        for node in ast.walk(ast.parse(test))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    try:
        body = ast.parse(code).body if isinstance(code, str) else []
        defined = {
            name for node in body if not isinstance(node, ast.ClassDef) for name in _bound(node)
        }
    except SyntaxError:
        defined = set()
    candidates = [name for name in called if name in defined] or [
        name for name in called if not hasattr(builtins, name)
    ]
    return max(candidates, key=candidates.count, default=None)


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return [
        name.id
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
