"""HumanEval: complete a function from its docstring (Chen et al., arXiv:2107.03374)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

import rlvr
from rlvr.envs.code import CodeEnv

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["HumanEval"]


@rlvr.register("humaneval-v3")
class HumanEval(CodeEnv):
    """164 functions to complete; the reference is the data set's own `check(candidate)`.

    A completion may be the rest of the function, as base models continue the prompt, or hold the
    whole function or its body in a fenced block.  Tasks are found by index, or by their `task_id`,
    such as "HumanEval/0".

    Options:
        data: hub id, or a local .jsonl or .parquet file (or a folder with one per split) with
            columns `prompt`, `test` and `entry_point`; HumanEval+ has the same.
        instruction: what precedes the function in the prompt; "" for a model that continues the
            prompt.
        cpu_s, memory_mib: limits of a completion's program, for all its tests together.
        partial, report, packages, allow_missing: see `CodeEnv`.
    """

    domain = "programs"
    split: str = "test"
    data: str = "openai/openai_humaneval"
    instruction: str = (
        "Complete this function. Answer with the whole function in a ```python block."
    )
    cpu_s: float = 3.0

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data)

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        name = str(row.get("task_id", id))
        for column in ("prompt", "test", "entry_point"):
            if not isinstance(row.get(column), str):
                raise rlvr.DataError(
                    f"{name}: no text in column {column!r}; it has {', '.join(map(repr, row))}"
                )
        prompt, test, entry_point = row["prompt"], row["test"], row["entry_point"]
        reference = {"test": test, "style": "check", "entry_point": entry_point, "prompt": prompt}
        if setup := _setup(prompt, test, entry_point):
            reference["setup"] = setup
        shown_prompt = (
            f"{self.instruction}\n\n```python\n{prompt.rstrip()}\n```"
            if self.instruction
            else prompt
        )
        solution = row.get("canonical_solution")
        meta = {"entry_point": entry_point} | (
            {"solution": prompt + solution} if isinstance(solution, str) else {}
        )
        meta |= self.domain_in(row)
        try:
            return rlvr.Task(name, shown_prompt, self.reference_of(reference), meta)
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{name}: {error}") from None


def _setup(prompt: str, test: str, entry_point: str) -> str:
    """Trusted code that the tests need.

    First, what the prompt defines beside the function, if the tests use any of it: those of
    `find_zero` call the prompt's `poly`, and must not call one that the program defines.  Second, a
    seed for tests that draw random numbers, so that the same completion gets the same verdict.
    """
    try:
        body = [
            node for node in ast.parse(prompt).body if getattr(node, "name", None) != entry_point
        ]
        tests = list(ast.walk(ast.parse(test)))
    except SyntaxError:
        return ""  # the tests will report it
    used = {node.id for node in tests if isinstance(node, ast.Name)}
    modules = {alias.name for node in tests if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in tests if isinstance(node, ast.ImportFrom)}
    helpers = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    parts = ["import random\nrandom.seed(0)"] if "random" in modules else []
    return "\n".join(parts + (list(map(ast.unparse, body)) if helpers & used else []))
