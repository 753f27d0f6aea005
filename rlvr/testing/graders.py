"""Graders of mathematics by name, each called as its own documentation calls it, for
`rlvr audit --yardstick`.

A grader takes a completion, the reference and the task's text (None where the rows have none), and
says whether the completion is right.  It is made in the worker process in which it runs.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from rlvr.errors import UsageError, brief
from rlvr.types import Outcome, Task, Verdict

__all__ = ["GRADERS", "Grade", "Grader", "grader", "require_grader"]

Grade: TypeAlias = tuple[bool, str]
"""Whether a completion is accepted, and the grader's reason; empty if it gives none."""

Grader: TypeAlias = Callable[[str, str, "str | None"], Grade]
"""Takes the completion, the reference and the task."""


def grader(name: str) -> Grader:
    """A grader, ready to use; its packages are imported here.

    Args:
        name: a key of `GRADERS`, or `path/to/file.py:NAME` or `module:NAME` of a function or
            verifier.  A function takes (completion, reference), and also `task` if it has an
            argument of that name: the `Task` whose prompt is the question, or None.  It gives true
            or false, a score (above 1/2 is accepted) or a `Verdict`. A class is called without
            arguments; `verify` is used where there is one.

    Raises:
        UsageError: there is no such grader, or a package of it is not installed.
    """
    require_grader(name)
    return GRADERS[name][0]() if name in GRADERS else _adapt(_import_object(name))


def require_grader(name: str) -> None:
    """Refuse a grader that does not exist, before a worker is started for it.

    Args:
        name: see `grader`.

    Raises:
        UsageError: see `grader`.
    """
    if name not in GRADERS:
        if ":" not in name:
            raise UsageError(
                f"there is no grader {name!r}; choose of {', '.join(GRADERS)}, or write "
                f"file.py:function"
            )
        _adapt(_import_object(name))
        return
    for package, pip in GRADERS[name][1].items():
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"the grader {name} needs the package {pip}, which is not installed; pip install "
                f"{pip}"
            )


def _rlvr() -> Grader:
    from rlvr.verifiers.math import MathVerifier, symbolic

    symbolic.warm()
    return _adapt(MathVerifier())


def _math_verify() -> Grader:
    """As in its README: parse both, verify; the reference in dollars, the completion as it is."""
    package = importlib.import_module("math_verify")

    # In dollars, as its parser reads LaTeX only in an environment of mathematics.
    def grade(completion: str, reference: str, task: str | None) -> Grade:
        return bool(package.verify(package.parse(f"${reference}$"), package.parse(completion))), ""

    return grade


def _trl() -> Grader:
    """As its trainer calls a reward.  A score of None means that it could not read the reference:
    nothing is paid."""
    rewards = importlib.import_module("trl.rewards")

    def grade(completion: str, reference: str, task: str | None) -> Grade:
        [score] = rewards.accuracy_reward(
            [[{"role": "assistant", "content": completion}]], [f"${reference}$"]
        )
        return score == 1.0, "reference-skipped" if score is None else ""

    return grade


def _inspect_ai() -> Grader:
    """Its scorer `math()` is a coroutine: one event loop for all rows, as in an evaluation."""
    model, solver = (
        importlib.import_module("inspect_ai.model"),
        importlib.import_module("inspect_ai.solver"),
    )
    target = importlib.import_module("inspect_ai.scorer").Target
    score, loop = (
        importlib.import_module("inspect_ai.scorer._math").math(),
        asyncio.new_event_loop(),
    )

    def grade(completion: str, reference: str, task: str | None) -> Grade:
        output = model.ModelOutput.from_content("none/none", completion)
        state = solver.TaskState(model.ModelName("none/none"), 0, 0, task or "", [], output=output)
        result = loop.run_until_complete(score(state, target(reference)))
        return result.value == "C", str((result.metadata or {}).get("math_scorer_status", ""))

    return grade


GRADERS: Final[dict[str, tuple[Callable[[], Grader], dict[str, str]]]] = {
    "rlvr": (_rlvr, {}),
    "math-verify": (_math_verify, {"math_verify": "math-verify"}),
    "trl": (_trl, {"trl": "trl", "math_verify": "math-verify"}),
    "inspect_ai": (
        _inspect_ai,
        {"inspect_ai": "inspect-ai", "latex2sympy2_extended": "latex2sympy2_extended"},
    ),
}
"""Name → what makes the grader, and the packages it needs with the names by
which pip installs them."""


def _adapt(found: object) -> Grader:
    """A user's function or verifier as a grader.

    Raises:
        UsageError: it cannot be called.
    """
    if isinstance(found, type):
        found = found()
    call = getattr(found, "verify", found)
    if not callable(call):
        raise UsageError(
            f"{brief(found)} is no function of (completion, reference), and has no method `verify`"
        )
    asks = _takes_task(call)

    def grade(completion: str, reference: str, task: str | None) -> Grade:
        if not asks:
            return _grade(call(completion, reference))
        prompt_task = None if task is None else Task("yardstick", task, reference=reference)
        return _grade(call(completion, reference, task=prompt_task))

    return grade


def _takes_task(call: Callable[..., object]) -> bool:
    try:
        return "task" in inspect.signature(call).parameters
    except (TypeError, ValueError):  # some functions in C have no signature
        return False


def _grade(said: Any) -> Grade:
    """What a user's grader said, as a grade.

    Raises:
        TypeError: it is no truth value, number or verdict.
        ValueError: it is a number that is not finite.
    """
    if isinstance(said, Verdict):
        if said.outcome is Outcome.UNSCORED:
            raise ValueError(f"the verdict is UNSCORED: {said.why}")
        return said.correct, said.reason
    if said is None or isinstance(said, bool):
        return bool(said), ""
    try:
        # `bool` went before, as True is a number too.
        score = float(said)  # numpy's and torch's scalars too
    except (TypeError, ValueError):
        raise TypeError(
            f"a grader gives true or false, a score or a Verdict, not {type(said).__name__} "
            f"{brief(said)}"
        ) from None
    if not math.isfinite(score):
        raise ValueError(f"the score is {score}")
    # A score of 1/2 is no acceptance.
    return score > 0.5, ""


def _import_object(name: str) -> object:
    """The object at `path/to/file.py:NAME` or `module:NAME`.

    Raises:
        UsageError: there is none.
    """
    place, _, attribute = name.rpartition(":")
    try:
        if not place.endswith(".py"):
            return getattr(importlib.import_module(place), attribute)
        path = Path(place).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        if str(path.parent) not in sys.path:  # its neighbours may be imported, in workers too
            sys.path.insert(0, str(path.parent))
        module = importlib.import_module(path.stem)
        # Another module of that name was imported before, such as one of an installed package.
        if Path(getattr(module, "__file__", None) or "").resolve() != path:
            raise ImportError(
                f"the name {path.stem!r} is taken by {getattr(module, '__file__', module)}"
            )
        return getattr(module, attribute)
    except (ImportError, FileNotFoundError, AttributeError, ValueError) as error:
        raise UsageError(
            f"no grader at {name!r}: {error}; write module:NAME or path/to/file.py:NAME"
        ) from error
