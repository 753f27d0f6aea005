"""Programs that read standard input, or functions, from the rows of public data sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import rlvr
from rlvr.envs.code import CodeEnv
from rlvr.envs.code_dialects import DIALECTS, CodeProblem, RowNotJudged, dialect_of
from rlvr.sandbox.languages import LANGUAGES
from rlvr.types import JsonDict
from rlvr.validate import require_number, require_one_of

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["CodeStdio"]

# What an interpreter needs beside a contest's limit, which is set for compiled programs.
_INTERPRETER_MIB = 32


@rlvr.register("code-stdio-v3")
class CodeStdio(CodeEnv):
    """Programming contests; the reference is a list of inputs and one of outputs, and
    perhaps a function's name.

    Rows are in one of the dialects of `rlvr.envs.code_dialects`.  Rows on which no program can be
    judged are left out: those without tests, interactive ones without an interactor, and those that
    want files by name.

    Options:
        data: hub id, or a local .jsonl or .parquet file (or a folder with one per split).
        dialect: "auto", or how rows store a problem: "plain", "apps", "taco", "codecontests",
            "livecodebench", "codeforces".
        instruction: what follows the question in the prompt.
        language: the language of the programs.
        compare: how standard output is compared, where a row brings no checker: a name of
            `rlvr.verifiers.code.COMPARATORS`.
        cpu_s, memory_mib: limits of a program for each case, where the row has none.
        row_limits: False: the rows' own limits do not count.
        time_factor: the seconds of a contest's limit are multiplied by it; 0 for the language's
            own: 1 with C++, C and Rust, 1.5 with Go, 3 with others.  (Rows in the "plain" dialect
            have limits that hold as they are.)
        partial, report, packages, allow_missing: see `CodeEnv`.
    """

    domain = "programs"
    data: str = "deepmind/code_contests"
    instruction: str = "Answer with a whole program in a ```{language} block."
    language: str = "python"
    compare: str = "lines"
    dialect: str = "auto"
    row_limits: bool = True
    time_factor: float = 0.0

    def __post_init__(self) -> None:
        require_one_of("dialect", self.dialect, ("auto", *DIALECTS))
        require_number("time_factor", self.time_factor, 0)
        super().__post_init__()

    def judging(self) -> dict[str, object]:
        return {**super().judging(), "language": self.language, "compare": self.compare}

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data, make=self._judged_task)

    def example(self, task: rlvr.Task) -> str | None:
        solution = task.meta.get("solution")
        fence = LANGUAGES[self.language].fences[0]
        return None if solution is None else f"```{fence}\n{solution}\n```"

    @property
    def _family(self) -> str:
        """The language, whatever its standard or interpreter."""
        # python and pypy, cpp17 and cpp20 are one language to the solutions of rows.
        return "python" if LANGUAGES[self.language].calls else self.language.rstrip("0123456789")

    def _judged_task(self, row: Mapping[str, object], id: str) -> rlvr.Task | None:
        """None for a problem whose answers cannot be judged, or that has no tests."""
        try:
            problem = self._problem(row, id)
        except RowNotJudged:
            return None
        # Rows without tests are left out of a data set; alone they are refused.
        return self._task(problem, row, id) if problem.inputs else None

    def task_from(self, row: Row, id: str = "row") -> rlvr.Task:
        try:
            return self._task(self._problem(row, id), row, id)
        except RowNotJudged as error:
            raise rlvr.DataError(f"{id}: no program can be judged on it: {error}") from None

    def _problem(self, row: Mapping[str, object], id: str) -> CodeProblem:
        name = dialect_of(row) if self.dialect == "auto" else self.dialect
        try:
            return DIALECTS[name](row)
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None
        except (LookupError, TypeError, AttributeError) as error:
            raise rlvr.DataError(f"{id}: it is no row of the dialect {name!r}: {error!r}") from None

    def _task(self, problem: CodeProblem, row: Mapping[str, object], id: str) -> rlvr.Task:
        if problem.question is not None and not isinstance(problem.question, str):
            raise rlvr.DataError(f"{id}: the question is {problem.question!r}; it must be a text")
        parts = (
            problem.question,
            problem.starter and f"Begin with this:\n\n```python\n{problem.starter}\n```",
            problem.fn_name and f"The function is called {problem.fn_name}.",
            self.instruction.replace("{language}", self.language),
        )
        meta = {
            # Of the row's columns only those that say what the problem is like.
            name: row[name]
            for name in ("difficulty", "source", "name")
            if isinstance(row.get(name), (str, int))
        }
        if solutions := problem.solutions.get(self._family):
            meta["solution"] = solutions[0]
        try:
            reference = self.reference_of(self._reference(problem))
            return rlvr.Task(id, "\n\n".join(filter(None, parts)), reference, meta)
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None

    def _reference(self, problem: CodeProblem) -> JsonDict:
        reference: dict[str, object] = {"inputs": problem.inputs, "outputs": problem.outputs}
        if problem.fn_name:
            reference["fn_name"] = problem.fn_name
        if problem.interactor:
            reference["interactor"] = problem.interactor
            # An interactor reads the output itself, so that empty outputs say nothing.
            if not any(problem.outputs):
                del reference["outputs"]
        if problem.checker:
            reference["checker"] = dict(problem.checker)
        if self.row_limits:
            reference |= self._limits(problem)
        return reference

    def _limits(self, problem: CodeProblem) -> JsonDict:
        """The row's limits; a contest's are made to fit the language."""
        row_limits = {"cpu_s": problem.cpu_s, "memory_mib": problem.memory_mib}
        limits = {name: value for name, value in row_limits.items() if value is not None}
        if problem.contest:
            factor = self.time_factor or LANGUAGES[self.language].time_factor
            if "cpu_s" in limits:
                limits["cpu_s"] = round(limits["cpu_s"] * factor, 3)
            if "memory_mib" in limits:
                # Rounded up, as a contest's megabytes may be parts.
                limits["memory_mib"] = math.ceil(limits["memory_mib"]) + _INTERPRETER_MIB
        return limits
