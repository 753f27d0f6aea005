"""`CodeEnv`, the base of the environments for code: the judge's options, and rows that
name a task by `task_id`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rlvr
from rlvr.sandbox import Limits
from rlvr.types import JsonDict
from rlvr.verifiers.code import CodeVerifier

__all__ = ["CodeEnv"]


class CodeEnv(rlvr.Environment):
    """Completions are programs; a task's reference holds its tests, in the forms of
    `rlvr.verifiers.code.cases`.

    Options:
        partial: True: a wrong completion's value is the fraction of the tests that it passed.
        report: True: `detail["tests"]` of a verdict has an entry for each test; see `CodeVerifier`.
        cpu_s, memory_mib: limits of a completion's program.
        packages: distributions that programs may import.
        allow_missing: guarantees of the sandbox that may be missing on this host, by name.
        sandbox: "namespaces", or "restricted" for a host without them; see
            docs/reference/sandbox.md.
    """

    partial: bool = False
    report: bool = False
    cpu_s: float = 5.0
    memory_mib: int = 512
    packages: tuple[str, ...] = ()
    allow_missing: tuple[str, ...] = ()
    sandbox: str = "namespaces"
    reward = rlvr.Correct(CodeVerifier())

    def __post_init__(self) -> None:
        if type(self).reward is CodeEnv.reward:  # a subclass may bring its own
            # an instance may shadow it
            self.reward = rlvr.Correct(CodeVerifier(**self.judging()))  # type: ignore[misc]

    def judging(self) -> JsonDict:
        """The judge's settings, as `CodeVerifier` takes them."""
        return {
            # Twice the CPU time on the wall: a program that sleeps ends as well.
            "limits": Limits(cpu_s=self.cpu_s, wall_s=2 * self.cpu_s, memory_mib=self.memory_mib),
            "partial": self.partial,
            "report": self.report,
            "packages": self.packages,
            "allow_missing": self.allow_missing,
            "sandbox": self.sandbox,
        }

    def task_of(self, row: Mapping[str, object]) -> rlvr.Task:
        """As `Environment.task_of`; but a row with just a completion and a `task_id`, as files of
        samples often have them, names the task by its `task_id`.

        Args:
            row: the row's columns by name.
        """
        if row.keys() - {"id", "completion", "length_tokens", "truncated"} == {"task_id"}:
            return self.find(self.name_of(row["task_id"]))
        return super().task_of(row)

    def name_of(self, task_id: Any) -> str:
        """The id of the task that has this `task_id` in its data set.

        Args:
            task_id: as the data set has it.
        """
        return str(task_id)

    @staticmethod
    def domain_in(row: Mapping[str, object]) -> dict[str, str]:
        """What `rlvr strength` reads from a task's `meta`: which inputs a row means, as `def
        domain(…)` in Python.

        Args:
            row: a row, which may have the column `domain`.
        """
        domain = row.get("domain")
        return {"domain": domain} if isinstance(domain, str) and "def domain" in domain else {}

    def example(self, task: rlvr.Task) -> str | None:
        solution = task.meta.get("solution")
        return None if solution is None else f"```python\n{solution}\n```"
