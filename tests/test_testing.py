"""What `check_environment` finds: each breach by name in an environment built to commit it, and none in honest ones."""

import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest

import rlvr
import rlvr.testing
from rlvr import Correct, Environment, MultiTurnEnv, Score, SingleTurnEnv, Task, Verdict, seeded
from rlvr.testing import JUNK, breaches, check_environment

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # else each worker imports pytest to find these classes


class Double(SingleTurnEnv):
    """An honest generator: twice a number, in a box."""

    def task(self, index: int) -> Task:
        number = seeded(self.id, self.split, index).randint(0, 10**9)
        return Task(f"{self.id}/{self.split}/{index}", f"Twice {number}?", reference=2 * number)

    def verify(self, task: Task, completion: str) -> Verdict:
        right = completion == f"\\boxed{{{task.reference}}}"
        return Verdict("correct" if right else "wrong", why="same" if right else "other")


class Colours(SingleTurnEnv):
    """An honest finite set."""

    def tasks(self) -> list[Task]:
        return [Task(f"colours/{name}", f"Say {name}.", reference=name) for name in ("red", "green", "blue")]

    def verify(self, task: Task, completion: str) -> Verdict:
        return Verdict("correct" if completion == task.reference else "wrong", why="compared")

    def example(self, task: Task) -> str:
        return task.reference


class Guess(MultiTurnEnv):
    """An honest game of several turns."""

    turns: int = 7

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict]:
        self._secret, self._turn = seeded(self.id, self.split, seed or 0).randint(1, 100), 0
        return "Guess my number, 1 to 100.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict]:
        self._turn += 1
        found, over = action == str(self._secret), self._turn == self.turns
        if not found and not over:
            return "No.", 0.0, False, False, {}
        verdict = Verdict("correct" if found else "wrong", why="found" if found else "out-of-turns")
        return (
            "",
            verdict.value,
            found,
            over and not found,
            {"score": Score(verdict.value, {"correct": verdict.value}, verdict)},
        )


def changed(honest: type[Environment], **members: Any) -> Environment:
    """An honest environment with something else in the place of some of its methods."""
    return type("Broken", (honest,), members)()


def found(env: Environment) -> str:
    """The breaches, one a line."""
    return "\n".join(breaches(env))


# ------------------------------------------------------------------------------------------ honest ones


def boxed(completion: str, reference: Any) -> bool:
    """A plain function as verifier."""
    return completion == f"\\boxed{{{reference}}}"


@pytest.mark.parametrize(
    "env",
    [
        Double(),
        Double(split="test"),
        Double().with_reward(2 * Correct() - 1 + 0.5 * rlvr.Overlong(max_tokens=1000, cache=100)),
        Double().with_reward(Correct() + rlvr.RelativeLength()),
        Colours(),
        Guess(),
        Guess(turns=1),
        Environment.from_rows([{"prompt": "1 + 1?", "reference": 2}], verifier=boxed),
    ],
    ids=["generator", "split", "lengths", "group", "finite", "turns", "one turn", "rows"],
)
def test_an_honest_environment_passes(env: Environment):
    """Whatever its kind and its reward."""
    check_environment(env, tasks=2)


def test_a_generator_may_refuse_a_split():
    """With a UsageError, as the bundled ones do; then there is nothing to be shared."""

    def refuse(self: Double) -> None:
        if self.split != "train":
            raise rlvr.UsageError(f"split is {self.split!r}; there is only train")

    assert found(changed(Double, __post_init__=refuse)) == ""


def test_all_breaches_are_listed():
    """One run, one list; the error is ours."""
    env = changed(Colours, id="colours-v9", verify=lambda self, task, completion: Verdict("correct"))
    with pytest.raises(rlvr.NonConforming) as caught:
        check_environment(env, tasks=1)
    lines = str(caught.value).splitlines()
    assert lines[0] == "colours-v9 breaks its contract:"
    assert all(line.startswith("  - task 'colours/red'") for line in lines[1:])
    assert len(lines) == 1 + len(JUNK) + len(JUNK) + 1  # each junk is correct, each verdict lacks its reason
    assert isinstance(caught.value, rlvr.UsageError)


# ------------------------------------------------------------------------------------------ tasks


class Calls:
    """A number that goes up with every call, whoever calls."""

    made = 0

    def __call__(self) -> int:
        self.made += 1
        return self.made


def task(id: str = "t", prompt: Any = "p", reference: Any = "r") -> Task:
    return Task(id, prompt, reference)


calls = Calls()

TASKS = {
    "they raise": (
        changed(Colours, tasks=lambda self: [1 / 0]),
        "its tasks cannot be made: ZeroDivisionError: division by zero",
    ),
    "there are none": (changed(Colours, tasks=lambda self: []), "it has no tasks"),
    "they are rows": (
        changed(Double, task=lambda self, index: {"prompt": index}),
        "among its tasks is dict {'prompt': 0}; each must be a Task(id, prompt, …)",
    ),
    "one is a row": (
        changed(Colours, tasks=lambda self: [task(), "p"]),
        "its tasks cannot be made: UsageError: Broken.tasks() gave 'p' at 1",
    ),
    "they come out differently": (
        changed(Colours, tasks=lambda self: [task(reference=calls())]),
        "its tasks come out differently the second time: draw from rlvr.seeded(self.id, self.split, index)",
    ),
    "two ways disagree": (
        changed(Double, tasks=lambda self: iter([self.task(1), self.task(0)])),
        "task(index) and tasks() disagree",
    ),
    "ids repeat in a set": (
        changed(Colours, tasks=lambda self: [task(prompt="1"), task(prompt="2")]),
        "its tasks cannot be made: UsageError: Broken: two tasks have the id 't'; ids must be unique",
    ),
    "ids repeat in a generator": (
        changed(Double, task=lambda self, index: task(prompt=f"{self.split} {index}", reference=index)),
        "task ids repeat: ['t', 't', 't']",
    ),
    "references are no JSON": (
        changed(Colours, tasks=lambda self: [task(reference={1, 2})]),
        "tasks cannot be recorded as JSON: Object of type set is not JSON serializable",
    ),
    "references are arrays": (
        changed(Colours, tasks=lambda self: [task(reference=np.arange(3))]),
        "tasks cannot be recorded as JSON: Object of type ndarray is not JSON serializable",
    ),
    "references are NaN": (
        changed(Colours, tasks=lambda self: [task(reference=float("nan"))]),
        "tasks cannot be recorded as JSON: Out of range float values are not JSON compliant",
    ),
    "references come back as something else": (
        changed(Colours, tasks=lambda self: [task(reference=(1, 2))]),
        "task 't': its reference (1, 2) is read back from a record as [1, 2]",
    ),
    "splits overlap": (
        changed(Double, task=lambda self, index: task(f"{self.split}/{index}", f"Twice {index}?", 2 * index)),
        "splits 'train' and 'test' share tasks, such as 'Twice 0?'",
    ),
    "the other split cannot be made": (
        changed(Double, __post_init__=lambda self: {"train": 0}[self.split]),
        "split 'test' cannot be made: KeyError: 'test'; refuse a split with rlvr.UsageError",
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_breach_of_its_tasks_is_found(name: str):
    """Before anything is scored, and with what to do about it."""
    env, message = TASKS[name]
    lines = list(breaches(env, tasks=3))
    assert any(line.startswith(message) for line in lines), lines


# ------------------------------------------------------------------------------------------ scores


def verifying(verify: Callable[[Task, str], Verdict], **members: Any) -> Environment:
    return changed(Colours, verify=lambda self, task, completion: verify(task, completion), **members)


def same(task: Task, completion: str) -> Verdict:
    return Verdict("correct" if completion == task.reference else "wrong", why="compared")


def integer(task: Task, completion: str) -> Verdict:
    return same(task, completion) if completion == task.reference else Verdict("wrong", why=f"got {int(completion)}")


def utf8(task: Task, completion: str) -> Verdict:
    return same(task, completion.encode().decode())


def endless(task: Task, completion: str) -> Verdict:
    while completion == JUNK["brackets"]:
        pass
    return same(task, completion)


def crashing(task: Task, completion: str) -> Verdict:
    if completion == JUNK["code"]:
        os._exit(7)
    return same(task, completion)


def hoarding(task: Task, completion: str) -> Verdict:
    if completion == JUNK["1 MB"]:
        raise MemoryError("too much")
    return same(task, completion)


class Beyond(Colours):
    """Its totals are not what its reward makes of them."""

    def score_group(self, task: Task, completions: Any) -> list[Score]:
        return [Score(5.0, {"correct": 5.0}, score.verdict) for score in super().score_group(task, completions)]


SCORES = {
    "its example is wrong": (
        changed(Colours, example=lambda self, task: "black"),
        "task 'colours/red': its example is wrong (compared)",
    ),
    "its example is not text": (
        changed(Colours, example=lambda self, task: 5),
        "example raises TypeError: object of type 'int' has no len(); return None where",
    ),
    "it has no example": (
        changed(Colours, example=lambda self, task: task.missing),
        "example raises AttributeError: 'Task' object has no attribute 'missing'",
    ),
    "junk is correct": (
        verifying(lambda task, completion: Verdict("correct" if completion in task.prompt else "wrong", why="found")),
        "task 'colours/red': empty is correct (found)",
    ),
    "an empty box is correct": (
        verifying(lambda task, completion: same(task, completion.replace("\\boxed{}", task.reference))),
        "task 'colours/red': an empty box is correct (compared)",
    ),
    "it raises": (
        verifying(integer),
        "task 'colours/red', empty: no verdict (worker-error: ValueError: invalid literal for int()",
    ),
    "it raises on a lone surrogate": (
        verifying(utf8),
        "task 'colours/red', a lone surrogate: no verdict (worker-error: UnicodeEncodeError",
    ),
    "it ends its process": (verifying(crashing), "task 'colours/red', code: no verdict (worker-died: "),
    "it runs out of memory": (verifying(hoarding), "task 'colours/red', 1 MB: no verdict (worker-error: MemoryError"),
    "it says it cannot tell": (
        verifying(lambda task, completion: Verdict("unscored", why="no-idea")),
        "task 'colours/red', its example: no verdict (no-idea); a bad completion is a verdict",
    ),
    "it gives no reason": (
        verifying(lambda task, completion: Verdict(same(task, completion).outcome)),
        "task 'colours/red', its example: the verdict gives no reason; fill in why=…",
    ),
    "it leaves the bounds": (Beyond(), "task 'colours/red', its example: 5.0 leaves the bounds [0, 1]"),
    "it depends on the process": (
        verifying(lambda task, completion: Verdict(same(task, completion).outcome, why=f"pid {os.getpid()}")),
        "task 'colours/red', its example: 1.0 (pid ",
    ),
    "it depends on chance": (
        verifying(lambda task, completion: Verdict(same(task, completion).outcome, random.random(), why="?")),
        "task 'colours/red', its example: 0.",
    ),
    "it cannot be shipped": (
        changed(Colours, lock=threading.Lock()),
        "it cannot be scored in a worker process: UsageError: ",
    ),
    "it raises here alone": (
        verifying(lambda task, said: same(task, said) if os.getpid() != HERE else 1 / 0),
        "task 'colours/red', its example: it raises ZeroDivisionError: division by zero here, though not in a worker",
    ),
}  # fmt: skip
HERE = os.getpid()


@pytest.mark.parametrize("name", SCORES)
def test_a_breach_of_its_scores_is_found(name: str):
    """The task, the completion by name, what came of it."""
    env, message = SCORES[name]
    lines = list(breaches(env, tasks=1))
    assert any(line.startswith(message) for line in lines), lines


def test_a_hang_is_ended(monkeypatch: pytest.MonkeyPatch):
    """What would never end here is scored in a worker first; the rest of the list is not waited for."""
    monkeypatch.setattr(rlvr.testing, "_WALL_S", 0.5)
    [line] = breaches(verifying(endless), tasks=3)
    assert line.startswith("task 'colours/red', brackets: no verdict (worker-timeout: ")


# ------------------------------------------------------------------------------------------ reset and step


def answering(step: Any) -> Environment:
    return changed(Colours, step=lambda self, action: step)


GYM = {
    "reset forgets the seed": (
        changed(Colours, reset=lambda self, **_: SingleTurnEnv.reset(self, options={"index": calls() % 3})),
        "reset with the same seed gives another task",
    ),
    "reset raises": (changed(Colours, reset=lambda self, **_: 1 / 0), "reset and step raise ZeroDivisionError"),
    "reset takes no seed": (changed(Colours, reset=lambda self: ("p", {})), "reset and step raise TypeError"),
    "step raises": (changed(Colours, step=lambda self, action: 1 / 0), "reset and step raise ZeroDivisionError"),
    "step returns four": (answering(("", 0.0, True, {})), "step returned ('', 0.0, True, {}); it must be (obs"),
    "step returns nothing": (answering(None), "step returned None; it must be (observation,"),
    "its reward is NaN": (
        answering(("", float("nan"), True, False, {})),
        "step gave the reward nan; it must be a finite number",
    ),
    "its reward is none": (answering(("", None, True, False, {})), "step gave the reward None"),
    "its flags are numbers": (answering(("", 0.0, 1, 0, {})), "step must return booleans for terminated and truncated"),
    "its info is a list": (answering(("", 0.0, True, False, [])), "step must return booleans for terminated and trunc"),
    "step takes no length": (
        changed(Double, step=lambda self, action: SingleTurnEnv.step(self, str(action))).with_reward(
            Correct() + rlvr.Overlong(100, 10)
        ),
        "reset and step raise RewardError: part 'overlong' of task",
    ),
    "it does not end": (answering(("", 0.0, False, False, {})), "a single-turn episode ends with its first step"),
}


@pytest.mark.parametrize("name", GYM)
def test_a_breach_of_reset_and_step_is_found(name: str, monkeypatch: pytest.MonkeyPatch):
    """Gymnasium's own signatures.  Their scores are fine, and starting a worker for each takes its time."""
    monkeypatch.setattr(rlvr.testing, "_score_breaches", lambda env, tasks: [])
    env, message = GYM[name]
    lines = list(breaches(env, tasks=1))
    assert len(lines) == 1
    assert lines[0].startswith(message)


# ------------------------------------------------------------------------------------------ several turns


def turning(step: Callable[[Guess, str], Any], **members: Any) -> Environment:
    return changed(Guess, step=step, **members)


def lost(total: float) -> dict[str, Score]:
    return {"score": Score(total, {"correct": total}, Verdict("wrong", why="over"))}


EPISODES = {
    "it raises on junk": (
        turning(lambda self, action: Guess.step(self, action) if action.startswith("move") else int(action)),
        "an episode raises ValueError: invalid literal for int()",
    ),
    "it raises on a move": (
        turning(lambda self, action: int(action)),
        "an episode raises ValueError: invalid literal for int() with base 10: 'move 0'; a bad action is answered",
    ),
    "reset returns the observation alone": (
        changed(Guess, reset=lambda self, **_: Guess.reset(self)[0]),
        "reset returned 'Guess my number, 1 to 100.'; it must be (observation, info)",
    ),
    "reset returns nothing": (
        changed(Guess, reset=lambda self, **_: Guess.reset(self) and None),
        "reset returned None; it must be (observation, info)",
    ),
    "step returns four": (turning(lambda self, action: ("", 0.0, True, {})), "step returned ('', 0.0, True, {})"),
    "step returns nothing": (turning(lambda self, action: None), "step returned None"),
    "its reward is infinite": (
        turning(lambda self, action: ("", float("inf"), True, False, lost(0))),
        "step gave the reward inf",
    ),
    "its flags are numbers": (turning(lambda self, action: ("", 0.0, 0, 1, lost(0))), "step must return booleans"),
    "its info is none": (turning(lambda self, action: ("", 0.0, True, False, None)), "step must return booleans"),
    "it never ends": (
        turning(lambda self, action: ("Go on.", 0.0, False, False, {})),
        "an episode of 100 turns has no end: set terminated, or truncated at a limit",
    ),
    "it ends without a score": (
        turning(lambda self, action: ("", 0.0, True, False, {})),
        "the last step's info has no Score under 'score'",
    ),
    "its score is a number": (
        turning(lambda self, action: ("", 0.0, True, False, {"score": 0.0})),
        "the last step's info has no Score under 'score'",
    ),
    "its observations depend on chance": (
        turning(lambda self, action: (str(calls()), 0.0, True, False, lost(0))),
        "the same seed and actions give another episode",
    ),
    "its end depends on chance": (
        turning(lambda self, action: ("", 0.0, True, calls() % 2 == 0, lost(0))),
        "the same seed and actions give another episode",
    ),
    "its first observation depends on chance": (
        changed(Guess, reset=lambda self, **_: (Guess.reset(self) and str(calls()), {})),
        "the same seed and actions give another episode",
    ),
}


@pytest.mark.parametrize("name", EPISODES)
def test_a_breach_of_an_episode_is_found(name: str):
    """By what comes back, never by an error out of the check itself."""
    env, message = EPISODES[name]
    lines = list(breaches(env))
    assert len(lines) == 1
    assert lines[0].startswith(message)


def test_an_environment_is_of_one_kind_or_the_other():
    """The checks for neither would say nothing."""

    class Neither(Environment):
        def reset(self, **_: Any) -> None: ...

        def step(self, action: str) -> None: ...

    assert found(Neither()) == "Neither is neither a SingleTurnEnv nor a MultiTurnEnv"


# ------------------------------------------------------------------------------------------ the junk itself


def test_the_junk_is_junk():
    """Each is a text, and none is another's twin."""
    assert all(isinstance(text, str) for text in JUNK.values())
    assert len(set(JUNK.values())) == len(JUNK)
    assert len(JUNK["1 MB"]) == 1_000_000


@pytest.fixture(autouse=True)
def same_chance() -> None:
    """Tests that speak of chance see the same one in every run."""
    random.seed(7)
