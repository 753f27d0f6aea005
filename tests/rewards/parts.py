"""What the tests of rewards share: parts whose values a test chooses, and the shortest ways to a value."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

import rlvr
from rlvr import Completion, GroupPart, Part, Reward, Task, UsageError, Verdict

CPU_S = (
    3.0  # for 1 MB, which takes half a second at most; whatever is quadratic in it takes minutes
)
TASK = Task("task-7", "prompt")
RIGHT, WRONG, OURS = (
    Verdict("correct", why="same"),
    Verdict("wrong", why="other"),
    Verdict("unscored", why="lost"),
)
TEXT = Completion("some text", length_tokens=3)


@dataclass(frozen=True)
class Given(Part):
    """A part whose value stands in the task, so that a test can choose it."""

    name: str
    low: float = 0.0
    high: float = 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        return self.low, self.high

    def value(self, task: Task, completion: Completion, verdict: Verdict) -> Any:
        return task.meta[self.name]


@dataclass(frozen=True)
class Column(GroupPart):
    """A group-level part whose values the test chooses."""

    column: tuple[Any, ...]
    name: str = "column"
    bounds: ClassVar = (0.0, 1.0)

    def values(
        self, completions: Sequence[Completion], verdicts: Sequence[Verdict]
    ) -> Sequence[Any]:
        return self.column


@dataclass(frozen=True)
class Tokens(Part):
    """A part that reads the length."""

    name: str = "tokens"
    bounds: ClassVar = (0.0, 100.0)
    needs_length: ClassVar[bool] = True

    def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
        return completion.length_tokens


A, B, C = Given("a"), Given("b"), Given("c", -2.0, 3.0)


def scored(
    reward: Reward, values: Mapping[str, Any] | None = None, verdict: Verdict = RIGHT
) -> rlvr.Score:
    """The whole way of one completion: observe, then combine."""
    task = replace(TASK, meta=values or {})
    [score] = reward.combine(task, [TEXT], [reward.observe(task, TEXT, verdict)])
    return score


def value(part: Part, text: str = "", tokens: int | None = None, verdict: Verdict = RIGHT) -> float:
    """What a part gives, through the checks of the composer."""
    return part.observe(TASK, Completion(text, tokens), verdict).values[part.name]


@contextmanager
def bounded(cpu_s: float = CPU_S) -> Iterator[None]:
    """CPU time of this process alone: what else the machine does is not the part's fault."""
    start = time.process_time()
    yield
    took_s = time.process_time() - start
    assert took_s < cpu_s, f"{took_s:.1f} s of CPU, and {cpu_s:g} s would be slow"


def refusal(build: Callable[[], Any], error: type[Exception] = UsageError) -> str:
    """What the error says."""
    with pytest.raises(error) as caught:
        build()
    return str(caught.value)
