"""Programs that read standard input, or functions, in the convention of APPS, TACO and CodeContests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import rlvr
from rlvr.data.rows import load_dataset
from rlvr.envs.code import CodeEnv
from rlvr.errors import brief

__all__ = ["CodeStdio"]

_QUESTIONS = ("question", "problem", "prompt", "description")
_TESTS = ("public_tests", "private_tests", "generated_tests")
_PYTHON3 = 3  # CodeContests numbers its languages


@rlvr.register("code-stdio-v2")
class CodeStdio(CodeEnv):
    """Programming contests; the reference is a list of inputs and one of outputs, and perhaps a function's name.

    Rows have a question (`question`, `problem`, `prompt` or `description`), and their tests in one of these:
    `input_output`, an object or its JSON with `inputs`, `outputs` and perhaps `fn_name` (APPS, TACO); `inputs` and
    `outputs` themselves; `public_tests`, `private_tests`, `generated_tests`, each with `input` and `output`
    (CodeContests).  Rows without any test are left out.

    Options:
        data: hub id, or a local .jsonl or .parquet file (or a folder with one per split).
        instruction: what follows the question in the prompt.
        language: the language of the programs.
        compare: how standard output is compared: a name of `rlvr.verifiers.code.COMPARATORS`.
        cpu_s, memory_mib: limits of a program, for each case.
        partial, packages, allow_missing: see `CodeEnv`.
    """

    data: str = "deepmind/code_contests"
    instruction: str = "Answer with a whole program in a ```{language} block."
    language: str = "python"
    compare: str = "lines"

    def judging(self) -> dict[str, Any]:
        return {**super().judging(), "language": self.language, "compare": self.compare}

    def tasks(self) -> Iterator[rlvr.Task]:
        for index, row in enumerate(load_dataset(self.data, self.split)):
            if _tests(row, f"row {index}")["inputs"]:
                yield self.task_from(row, id=f"{self.id}/{self.split}/{index}")

    def task_from(self, row: Mapping[str, Any], id: str = "row") -> rlvr.Task:
        question = next((row[name] for name in _QUESTIONS if row.get(name) is not None), None)
        if question is not None and not isinstance(question, str):
            raise rlvr.DataError(f"{id}: the question is {question!r}; it must be a text")
        reference = _tests(row, id)
        starter = row.get("starter_code") or None
        parts = (
            question,
            starter and f"Begin with this:\n\n```python\n{starter}\n```",
            reference.get("fn_name") and f"The function is called {reference['fn_name']}.",
            self.instruction.replace("{language}", self.language),
        )
        solution = _solution(row) if self.language == "python" else None
        meta = {name: row[name] for name in ("difficulty", "source", "name") if isinstance(row.get(name), (str, int))}
        meta |= {} if solution is None else {"solution": solution}
        try:
            return rlvr.Task(id, "\n\n".join(filter(None, parts)), self.reference_of(reference), meta)
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None


def _tests(row: Mapping[str, Any], id: str) -> dict[str, Any]:
    """Inputs, outputs and perhaps fn_name, from whichever columns hold them."""
    given = row.get("input_output")
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else {}
        except (ValueError, RecursionError) as error:
            raise rlvr.DataError(f"{id}: column 'input_output' is no JSON: {error}") from None
    some = [row[name] for name in _TESTS if isinstance(row.get(name), Mapping)]
    if given is None and some:
        given = {
            "inputs": [text for tests in some for text in _listed(tests, "input", id)],
            "outputs": [text for tests in some for text in _listed(tests, "output", id)],
        }
    if given is None and "inputs" in row and "outputs" in row:
        given = row
    if given is None and any(name in row and row[name] is None for name in ("input_output", *_TESTS)):
        given = {}  # a row without tests
    if not isinstance(given, Mapping):
        raise rlvr.DataError(f"{id}: no tests among its columns {', '.join(map(repr, row))}")
    tests: dict[str, Any] = {name: _listed(given, name, id) for name in ("inputs", "outputs")}
    return tests | ({"fn_name": given["fn_name"]} if given.get("fn_name") else {})


def _listed(tests: Mapping[str, Any], name: str, id: str) -> list[Any]:
    """The list in this column; a text is refused, as it would be read as a list of characters."""
    value = tests.get(name)
    if value is not None and (isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable)):
        raise rlvr.DataError(f"{id}: {name!r} is {brief(value)}; it must be a list, with an item for each case")
    return [] if value is None else list(value)


def _solution(row: Mapping[str, Any]) -> str | None:
    """The row's first solution in Python; None if it has none."""
    given = row.get("solutions")
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else []
        except ValueError:
            return None
    if isinstance(given, Mapping):  # CodeContests: languages and texts, side by side
        pairs = zip(given.get("language") or (), given.get("solution") or (), strict=False)
        given = [text for language, text in pairs if language == _PYTHON3]
    return next((text for text in given or () if isinstance(text, str)), None)
