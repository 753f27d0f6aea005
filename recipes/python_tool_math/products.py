"""The environment of the recipe: products, with a Python session."""

from typing import Any

import rlvr
from rlvr.environment.ready_tools import python, sandbox
from rlvr.sandbox import Limits
from rlvr.verifiers.math import MathVerifier

__all__ = ["Products"]


class Products(rlvr.Environment):
    """Products of two numbers of two digits: `python-tool-math-v4` in small."""

    domain = "tools"
    reward = rlvr.Correct(MathVerifier())
    turns: int = 3
    calls: int = 2
    call_seconds: float = 30.0

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        return rlvr.Task(f"{self.id}/{self.split}/{index}", f"{a}*{b}", a * b)

    def setup(self, task: rlvr.Task) -> Any:
        return sandbox(Limits(cpu_s=1.0, memory_mib=256)).session("python")

    def tools(self, state: Any) -> list[rlvr.Tool]:
        return [python(state)]

    def example_episode(self, task: rlvr.Task) -> list[str | rlvr.Ask]:
        return [rlvr.Ask("python", {"code": str(task.prompt)}), f"\\boxed{{{task.reference}}}"]
