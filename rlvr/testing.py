"""Checks for authors: does an environment keep the contract that everything else relies on?

def test_my_environment():
    rlvr.testing.check_environment(MyEnv())
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from numbers import Real
from typing import Any

from rlvr.environment import Environment, MultiTurnEnv, SingleTurnEnv
from rlvr.errors import NonConforming, UsageError, brief
from rlvr.scoring import Scorer
from rlvr.types import Completion, Outcome, Score, Task

__all__ = ["JUNK", "breaches", "check_environment"]

JUNK = {
    "empty": "",
    "blank": " \n\t ",
    "words": "I am not sure, but let me think about it.",
    "an empty box": "\\boxed{}",
    "an open box": "\\boxed{",
    "brackets": "\\boxed{" + "{" * 5000,
    "a tower of powers": "\\boxed{9^{9^{9^{9^9}}}}",
    "code": "__import__('os').system('true')",
    "a NUL byte": "\x00",
    "a lone surrogate": "\ud800",
    "1 MB": "a" * 1_000_000,
}
"""Completions that answer nothing, by name: none may be CORRECT, none may raise."""

_WALL_S = 5.0  # per completion
_TURNS = 100


def check_environment(env: Environment, *, tasks: int = 5, seed: int = 0) -> None:
    """Raise if the environment breaks its contract; looks at its first few tasks.

    Checked: tasks are addressed by index, with unique ids, come out the same again and can be recorded; `example`
    completions are CORRECT; junk never is, and neither raises nor hangs; scores are inside the declared bounds, and the
    same here and in a worker process; reset and step answer as Gymnasium's do.

    Raises:
        NonConforming: lists every breach.
    """
    found = list(breaches(env, tasks=tasks, seed=seed))
    if found:
        raise NonConforming(f"{env.id} breaks its contract:\n  - " + "\n  - ".join(found))


def breaches(env: Environment, *, tasks: int = 5, seed: int = 0) -> Iterator[str]:
    """Every breach found, one line each."""
    if isinstance(env, MultiTurnEnv):
        yield from _episode_breaches(env, seed)
    elif isinstance(env, SingleTurnEnv):
        try:
            first = list(islice(env.tasks(), tasks))
            by_index = [env.task(i) for i in range(len(first))]
        except Exception as error:  # noqa: BLE001  whatever the author's code raises is the finding
            yield f"its tasks cannot be made: {_said(error)}"
            return
        strange = [task for task in (*first, *by_index) if not isinstance(task, Task)]
        if strange:
            yield f"among its tasks is {brief(strange[0])}; each must be a Task(id, prompt, …)"
        elif not first:
            yield "it has no tasks"
        else:
            yield from _task_breaches(env, first, by_index)
            yield from _score_breaches(env, first)
            yield from _gym_breaches(env, seed)
    else:
        yield f"{type(env).__name__} is neither a SingleTurnEnv nor a MultiTurnEnv"


def _task_breaches(env: SingleTurnEnv, tasks: Sequence[Task], by_index: Sequence[Task]) -> Iterator[str]:
    try:
        again = list(islice(env.tasks(), len(tasks)))
        size = env.size
    except Exception as error:  # noqa: BLE001  see above
        yield f"its tasks cannot be made again: {_said(error)}"
        return
    if len({task.id for task in tasks}) != len(tasks):
        yield f"task ids repeat: {[task.id for task in tasks]}"
    try:
        recorded = json.dumps([[task.reference, task.prompt, dict(task.meta)] for task in tasks], allow_nan=False)
        for task, (reference, _, _) in zip(tasks, json.loads(recorded), strict=True):
            if reference != task.reference:
                yield f"task {task.id!r}: its reference {task.reference!r} is read back from a record as {reference!r}"
    except (TypeError, ValueError) as error:
        yield f"tasks cannot be recorded as JSON: {error}"
        return  # nor compared, for all we know: numpy's arrays are neither equal nor different
    if again != tasks:
        yield "its tasks come out differently the second time: draw from rlvr.seeded(self.id, self.split, index)"
    if by_index != tasks:
        yield "task(index) and tasks() disagree"
    if size is None:
        yield from _split_breaches(env, tasks)


def _split_breaches(env: SingleTurnEnv, tasks: Sequence[Task]) -> Iterator[str]:
    split = "test" if env.split == "train" else "train"
    try:
        other = type(env)(**(env.config | {"split": split}))
        theirs = {str(task.prompt) for task in islice(other.tasks(), 10 * len(tasks))}
    except UsageError:
        return  # it has no such split
    except Exception as error:  # noqa: BLE001  see above
        yield f"split {split!r} cannot be made: {_said(error)}; refuse a split with rlvr.UsageError"
        return
    shared = [str(task.prompt) for task in tasks if str(task.prompt) in theirs]
    if shared:
        yield f"splits {env.split!r} and {split!r} share tasks, such as {shared[0][:80]!r}"


def _score_breaches(env: SingleTurnEnv, tasks: Sequence[Task]) -> Iterator[str]:
    try:
        work = [(task, name, _completion(text)) for task in tasks for name, text in _completions(env, task)]
    except Exception as error:  # noqa: BLE001  see above
        yield f"example raises {_said(error)}; return None where no completion can be written down"
        return
    there: list[Score] = []
    try:
        with Scorer(env, workers=1, wall_s=_WALL_S) as scorer:  # first, for there a hang can be ended
            for task, name, completion in work:
                [score] = scorer.score_group(task, [completion])
                there.append(score)
                if score.verdict.outcome is Outcome.UNSCORED:
                    yield f"task {task.id!r}, {name}: no verdict ({score.verdict.why}); a bad completion is a verdict"
                    return  # the rest would say the same
    except Exception as error:  # noqa: BLE001  see above
        yield f"it cannot be scored in a worker process: {_said(error)}"
        return
    low, high = env.reward.bounds
    for (task, name, completion), second in zip(work, there, strict=True):
        try:
            [first] = env.score_group(task, [completion])
        except Exception as error:  # noqa: BLE001  see above
            yield f"task {task.id!r}, {name}: it raises {_said(error)} here, though not in a worker"
            return
        if (first.verdict.outcome is Outcome.CORRECT) != (name == "its example"):
            yield f"task {task.id!r}: {name} is {first.verdict.outcome} ({first.verdict.why})"
        if first.total is not None and not low <= first.total <= high:
            yield f"task {task.id!r}, {name}: {first.total} leaves the bounds [{low:g}, {high:g}]"
        if not first.verdict.why:
            yield f"task {task.id!r}, {name}: the verdict gives no reason; fill in why=…"
        if (first.total, first.verdict.why) != (second.total, second.verdict.why):
            yield (
                f"task {task.id!r}, {name}: {first.total} ({first.verdict.why}) here, "
                f"{second.total} ({second.verdict.why}) in a worker"
            )


def _completions(env: SingleTurnEnv, task: Task) -> Iterator[tuple[str, str]]:
    example = env.example(task)
    if example is not None:
        yield "its example", example
    yield from JUNK.items()


def _completion(text: str) -> Completion:
    return Completion(text, length_tokens=len(text) // 4)


def _gym_breaches(env: SingleTurnEnv, seed: int) -> Iterator[str]:
    if env.reward.group_level:
        return  # such a reward needs the whole group, and a step has one completion
    action = _completion("nonsense") if env.reward.needs_length else "nonsense"
    try:
        first, second = env.reset(seed=seed), env.reset(seed=seed)
        step = env.step(action)
    except Exception as error:  # noqa: BLE001  see above
        yield f"reset and step raise {_said(error)}"
        return
    if first != second:
        yield "reset with the same seed gives another task"
    yield from _step_breaches(step, must_end=True)


def _episode_breaches(env: MultiTurnEnv, seed: int) -> Iterator[str]:
    def play(actions: Iterable[str]) -> list[Any]:
        trace: list[Any] = [env.reset(seed=seed)]
        for action in actions:
            trace.append(env.step(action))
            if any(_step_breaches(trace[-1])) or trace[-1][2] or trace[-1][3]:
                break
        return trace

    moves = [f"move {turn}" for turn in range(_TURNS)]
    try:
        trace, again = play(moves), play(moves)
        for junk in JUNK.values():
            play([junk])
    except Exception as error:  # noqa: BLE001  see above
        yield f"an episode raises {_said(error)}; a bad action is answered, not raised"
        return
    if not (isinstance(trace[0], tuple) and len(trace[0]) == 2 and isinstance(trace[0][1], dict)):
        yield f"reset returned {trace[0]!r}; it must be (observation, info)"
        return
    last = list(_step_breaches(trace[-1]))
    if last:
        yield from last
        return
    if [t[:4] for t in trace[1:]] != [t[:4] for t in again[1:]] or trace[0][0] != again[0][0]:
        yield "the same seed and actions give another episode"
    if not (trace[-1][2] or trace[-1][3]):
        yield f"an episode of {_TURNS} turns has no end: set terminated, or truncated at a limit"
    elif not isinstance(trace[-1][4].get("score"), Score):
        yield "the last step's info has no Score under 'score'"


def _step_breaches(step: Any, *, must_end: bool = False) -> Iterator[str]:
    if not (isinstance(step, tuple) and len(step) == 5):
        yield f"step returned {step!r}; it must be (observation, reward, terminated, truncated, info)"
        return
    _, reward, terminated, truncated, info = step
    if not isinstance(reward, Real) or not math.isfinite(reward):
        yield f"step gave the reward {reward!r}; it must be a finite number"
    if not (isinstance(terminated, bool) and isinstance(truncated, bool) and isinstance(info, dict)):
        yield "step must return booleans for terminated and truncated, and a dict for info"
    elif must_end and not terminated:
        yield "a single-turn episode ends with its first step"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
