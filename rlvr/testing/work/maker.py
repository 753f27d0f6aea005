"""What a maker of work is, and which maker serves an environment.

@rlvr.testing.work.serves(MyVerifier)
class MyWork(Maker):
    # completions that may be wrong, each with the operator that made it
    def wrong(self, task, rng): ...
    # evidence, found without the verifier, that one is wrong; None if there is none
    def witness(self, task, work): ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import Any, Final, TypeVar

from rlvr.environment import Environment
from rlvr.environment.episode import TurnLike
from rlvr.errors import RlvrError
from rlvr.types import Task

__all__ = ["Maker", "Untested", "Witness", "Work", "maker_for", "serves"]

_M = TypeVar("_M", bound="type[Maker]")


class Untested(RlvrError):
    """No work can be made for a task, or no witness be found: it has no reference
    solution, or one that fails."""


@dataclass(frozen=True, slots=True)
class Work:
    """A completion that a maker made, or that a model wrote.

    Attributes:
        text: the completion.
        operator: how it was made, such as "comparison"; "model" for a model's.
    """

    text: str
    operator: str


@dataclass(frozen=True, slots=True)
class Witness:
    """Evidence that work is wrong: an input on which it differs from the reference solution.

    Attributes:
        given: the input, for display; a clue that is broken, where there is no input.
        expected: what the reference solution gives.
        got: what the work gives.
        is_doubtful: the input may lie outside of what the task means; then the work does not count
            as wrong.
        is_slow: the work took so long that it was set aside; there is no other evidence.
        case: the input and the expected value, as `Maker.mend` takes them; None if no test can be
            made of it.
    """

    given: str
    expected: str = ""
    got: str = ""
    is_doubtful: bool = False
    is_slow: bool = False
    case: Any = None

    def shown(self, most: int) -> dict[str, str]:
        """The input and both values, for a report.

        Args:
            most: characters of each.
        """
        values = {"given": self.given, "expected": self.expected, "got": self.got}
        return {name: text[:most] for name, text in values.items()}


class Maker(ABC):
    """Makes wrong and right work for the tasks of an environment.

    Args:
        env: the environment; its examples are right work.
        workers: number of programs that may run at once.
    """

    def __init__(self, env: Environment, workers: int = 1) -> None:
        self.env, self.workers = env, workers

    @property
    def verifier(self) -> Any:
        """The verifier of the environment's reward; None if it has none."""
        primary = self.env.reward.primary
        return None if primary is None else primary.verifier

    @abstractmethod
    def wrong(self, task: Task, rng: Random) -> Iterator[Work]:
        """Completions that are likely to be wrong, in an order that the caller may cut off
        anywhere.

        Args:
            task: what they answer.
            rng: draws them.

        Raises:
            Untested: none can be made.
        """

    def right(self, task: Task, rng: Random) -> Iterator[Work]:
        """Completions that are right by construction: the example, and what equals it.

        Args:
            task, rng: see `wrong`.

        Raises:
            Untested: no right completion is known.
        """
        yield Work(self.example(task), "example")

    def turns(self, task: Task, work: Work) -> Sequence[TurnLike]:
        """The turns of an episode that the work stands for, where an
        episode is more than one reply.

        Args:
            task: what it answers.
            work: the work.
        """
        return [work.text]

    @abstractmethod
    def witness(self, task: Task, work: Work) -> Witness | None:
        """Evidence that work is wrong, found without the verifier; None where there is none.

        Args:
            task: what it answers.
            work: the completion.

        Raises:
            Untested: none can be found for any work of this task.
        """

    def dissent(self, task: Task, witness: Witness, works: Sequence[Work]) -> int:
        """How many of these works agree on another value than the reference's at a witness's input.

        Args:
            task: what they answer.
            witness: of one of them.
            works: that the verifier pays.
        """
        return 0

    def mend(self, task: Task, witnesses: Sequence[Witness]) -> Task | None:
        """The task with tests that refute the witnessed work too; None where its data cannot do
        that.

        Args:
            task: the task.
            witnesses: with a `case` each.
        """
        return None

    def example(self, task: Task) -> str:
        """A completion that is right.

        Args:
            task: what it answers.

        Raises:
            Untested: none is known.
        """
        text = self.env.example(task)
        if text is None:
            raise Untested("it has no reference solution")
        return text


_OURS: Final = {
    "Bash": "end_states",
    "Desk": "end_states",
    "SweLite": "patches",
    "CallsVerifier": "structures",
    "ChemistryVerifier": "answers",
    "ChoiceVerifier": "answers",
    "CodeVerifier": "programs",
    "ExpressionVerifier": "structures",
    "GridVerifier": "structures",
    "InstructionVerifier": "instructions",
    "JSONVerifier": "structures",
    "MathVerifier": "answers",
    "QAVerifier": "answers",
    "RolesVerifier": "structures",
    "SudokuVerifier": "structures",
    "SQLVerifier": "queries",
    "ScienceVerifier": "answers",
}
"""The module of the maker for each of our verifiers and environments, loaded when it is needed."""
_MAKERS: dict[type | str, type[Maker]] = {}


def serves(*kinds: type | str) -> Callable[[_M], _M]:
    """Register a maker for verifiers, or for environments that verify themselves.

    Args:
        kinds: classes of verifiers or of environments; for subclasses too.  "module.Class" for one
            that a maker cannot import.
    """

    def register(maker: _M) -> _M:
        _MAKERS.update(dict.fromkeys(kinds, maker))
        return maker

    return register


def maker_for(env: Environment, workers: int = 1) -> Maker | None:
    """The maker of work for an environment: that of its class, else that of its verifier; None if
    there is none.

    Args:
        env: the environment.
        workers: see `Maker`.
    """
    primary = env.reward.primary
    for owner in (env, None if primary is None else primary.verifier):
        # The environment's own class first, which may verify by itself.
        for kind in type(owner).__mro__:
            if kind not in _MAKERS and kind.__name__ in _OURS:
                import_module(f"rlvr.testing.work.{_OURS[kind.__name__]}")
            # By name for classes that a maker must not import.
            for key in (kind, f"{kind.__module__}.{kind.__qualname__}"):
                if key in _MAKERS:
                    return _MAKERS[key](env, workers)
    return None
