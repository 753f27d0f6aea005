"""Checks for authors: does an environment keep the contract that everything else relies on?

def test_my_environment():
    rlvr.testing.check_environment(MyEnv())
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from rlvr.environment import Environment, MultiTurnEnv, SingleTurnEnv
from rlvr.errors import NonConforming, RlvrError
from rlvr.scoring import Item, Scorer
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


def check_environment(env: Environment, *, tasks: int = 5, seed: int = 0) -> None:
    """Raise if the environment breaks its contract; looks at its first few tasks.

    Checked: tasks are addressed by index, with unique ids, and come out the same again; `example` completions are
    CORRECT; junk never is, and never raises; scores are deterministic, inside the declared bounds, and the same in a
    worker process; reset and step answer as Gymnasium's do.

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
        sample: list[Task] = []
        yield from _task_breaches(env, tasks, sample)
        if sample:
            yield from _score_breaches(env, sample)
            yield from _gym_breaches(env, seed)
    else:
        yield f"{type(env).__name__} is neither a SingleTurnEnv nor a MultiTurnEnv"


def _task_breaches(env: SingleTurnEnv, count: int, sample: list[Task]) -> Iterator[str]:
    try:
        sample += islice(env.tasks(), count)
        again = list(islice(env.tasks(), count))
        by_index = [env.task(i) for i in range(len(sample))]
    except Exception as error:  # noqa: BLE001  whatever the author's code raises is the finding
        yield f"its tasks cannot be made: {type(error).__name__}: {error}"
        return
    if not sample:
        yield "it has no tasks"
    if again != sample:
        yield "its tasks come out differently the second time: draw from rlvr.seeded(self.id, self.split, index)"
    if by_index != sample:
        yield "task(index) and tasks() disagree"
    if len({task.id for task in sample}) != len(sample):
        yield f"task ids repeat: {[task.id for task in sample]}"
    try:
        json.dumps([[task.prompt, task.reference, dict(task.meta)] for task in sample])
    except (TypeError, ValueError) as error:
        yield f"tasks cannot be recorded as JSON: {error}"
    if env.size is None:
        other = type(env)(**(env.config | {"split": "test" if env.split == "train" else "train"}))
        shared = {str(task.prompt) for task in sample} & {
            str(task.prompt) for task in islice(other.tasks(), 10 * count)
        }
        if shared:
            yield f"splits {env.split!r} and {other.split!r} share tasks, such as {shared.pop()[:80]!r}"


def _score_breaches(env: SingleTurnEnv, sample: Sequence[Task]) -> Iterator[str]:
    work = [(task, name, text) for task in sample for name, text in _completions(env, task)]
    low, high = env.reward.bounds
    here: list[Score] = []
    for task, name, text in work:
        try:
            [score] = env.score_group(task, [_completion(text)])
        except Exception as error:  # noqa: BLE001  see above; also stops here, for the rest would say the same
            yield f"task {task.id!r}, {name}: it raises {type(error).__name__}: {error}; a bad completion is a verdict"
            return
        here.append(score)
        if (score.verdict.outcome is Outcome.CORRECT) != (name == "its example"):
            yield f"task {task.id!r}: {name} is {score.verdict.outcome} ({score.verdict.why})"
        if score.total is not None and not low <= score.total <= high:
            yield f"task {task.id!r}, {name}: {score.total} leaves the bounds [{low:g}, {high:g}]"
        if not score.verdict.why:
            yield f"task {task.id!r}, {name}: the verdict gives no reason; fill in why=…"
    items = [Item(str(i), task, _completion(text)) for i, (task, _, text) in enumerate(work)]
    try:
        with Scorer(env, workers=1) as scorer:
            there = [scored.score for scored in scorer.stream(items)] if not env.reward.group_level else here
    except RlvrError as error:
        yield f"it cannot be scored in a worker process: {error}"
        return
    for (task, name, _), first, second in zip(work, here, there, strict=True):
        if (first.total, first.verdict.why) != (second.total, second.verdict.why):
            yield f"task {task.id!r}, {name}: {first.verdict.why!r} here, {second.verdict.why!r} in a worker"


def _completions(env: SingleTurnEnv, task: Task) -> Iterator[tuple[str, str]]:
    example = env.example(task)
    if example is not None:
        yield "its example", example
    yield from JUNK.items()


def _completion(text: str) -> Completion:
    return Completion(text, length_tokens=len(text) // 4)


def _gym_breaches(env: SingleTurnEnv, seed: int) -> Iterator[str]:
    if env.reward.group_level or env.reward.needs_length:
        return  # such a reward needs more than an action's text
    first, second = env.reset(seed=seed), env.reset(seed=seed)
    if first != second:
        yield "reset with the same seed gives another task"
    yield from _step_breaches(env.step("nonsense"), must_end=True)


def _episode_breaches(env: MultiTurnEnv, seed: int) -> Iterator[str]:
    def play() -> list[Any]:
        trace: list[Any] = [env.reset(seed=seed)]
        for turn in range(100):
            trace.append(env.step(f"move {turn}"))
            if trace[-1][2] or trace[-1][3]:
                break
        return trace

    try:
        trace = play()
        again = play()
    except Exception as error:  # noqa: BLE001  see above
        yield f"an episode raises {type(error).__name__}: {error}; a bad action is answered, not raised"
        return
    if not (isinstance(trace[0], tuple) and len(trace[0]) == 2 and isinstance(trace[0][1], dict)):
        yield f"reset returned {trace[0]!r}; it must be (observation, info)"
    for step in trace[1:]:
        yield from _step_breaches(step)
    if [t[:2] for t in trace[1:]] != [t[:2] for t in again[1:]] or trace[0][0] != again[0][0]:
        yield "the same seed and actions give another episode"
    if not (trace[-1][2] or trace[-1][3]):
        yield "an episode of 100 turns has no end: set terminated, or truncated at a limit"
    elif not isinstance(trace[-1][4].get("score"), Score):
        yield "the last step's info has no Score under 'score'"


def _step_breaches(step: Any, *, must_end: bool = False) -> Iterator[str]:
    if not (isinstance(step, tuple) and len(step) == 5):
        yield f"step returned {step!r}; it must be (observation, reward, terminated, truncated, info)"
        return
    _, reward, terminated, truncated, info = step
    if not isinstance(reward, (int, float)) or reward != reward or abs(reward) == float("inf"):
        yield f"step gave the reward {reward!r}; it must be a finite number"
    if not (isinstance(terminated, bool) and isinstance(truncated, bool) and isinstance(info, dict)):
        yield "step must return booleans for terminated and truncated, and a dict for info"
    elif must_end and not terminated:
        yield "a single-turn episode ends with its first step"
