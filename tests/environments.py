"""Environments and handlers that misbehave on demand, for the tests of everything that contains them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import rlvr

PLACE = "tests.environments:Trials"
PLACES = [
    f"tests.environments:{name}" for name in ("Trials", "Configured", "Siblings", "Gone", "Desk")
]
"""What records of tests name, for `replay`."""


class Trials(rlvr.Environment):
    """The answer is the task's index.  A completion may end in `@action PATH`: what verifying it shall do."""

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(f"{self.id}/{self.split}/{index}", f"Say {index}.", reference=index)

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        answer, _, action = completion.partition("@")
        if action:
            act(*action.split(" "))
        answer = answer.strip()
        if not answer:
            return rlvr.Verdict(
                rlvr.Outcome.UNPARSED, why="silent: there is nothing but white space"
            )
        outcome = rlvr.Outcome.CORRECT if answer == str(task.reference) else rlvr.Outcome.WRONG
        return rlvr.Verdict(outcome, why=f"compared: with {task.reference}", answer=answer[:80])


class Digits(Trials):
    """The same tasks, and half a point for digits and nothing else."""

    reward = rlvr.Correct() + 0.5 * rlvr.Format(str.isdecimal)


def right(*indices: int) -> list[dict]:
    """Rows with the right answers to these tasks."""
    return [{"task": i, "completion": f"{i}"} for i in indices]


class Torchless(Trials):
    """Right is every completion that is verified in a process without torch."""

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        return rlvr.Verdict(
            "wrong" if "torch" in sys.modules else "correct", why="by what is loaded"
        )


class Siblings(Trials):
    """The same, under a reward that compares the completions of a task."""

    reward = rlvr.Correct() + rlvr.RelativeLength()


class Measured(Trials):
    """The same, under a reward that reads the length in tokens."""

    reward = rlvr.Correct() + rlvr.Overlong(max_tokens=10, cache=5)


class Configured(Trials):
    """An option of every kind: a text, a number, a tuple, and one that may be left open."""

    word: str = "tea"
    size: int = 1
    pair: tuple[int, ...] = (1, 2)
    data: str | None = None

    def __post_init__(self) -> None:
        self.pair = tuple(self.pair)


class Columns(rlvr.Environment):
    """Over a data set with columns of its own, read as carelessly as authors do."""

    def tasks(self):
        yield self.task_from({"question": "What?", "solution": "x"})

    def task_from(self, row):
        return rlvr.Task("row", row["question"].strip(), reference=row["solution"])

    def verify(self, task, completion):
        return rlvr.Verdict(
            rlvr.Outcome.CORRECT if completion == task.reference else rlvr.Outcome.WRONG, why="same"
        )


def acting():
    """A worker's set-up: its handler does what a text says, and gives back every item."""
    return _handle


def _handle(item):
    if isinstance(item, str) and item.startswith("@"):
        said = act(*item[1:].split(" "))
        return item if said is None else said
    return item


def act(action: str, path: str = ""):
    """Leave `PID ACTION` in the file (or FIFO) at `path`, then do it."""
    before = _leave(path, action)
    if action == "pid":
        return os.getpid()
    if action == "hang":
        while True:
            pass
    elif action == "freeze":
        10**10**9  # minutes in C, the interpreter locked
    elif action == "pause" or (action == "gate" and not Path(f"{path}.open").exists()):
        signal.pause()
    elif action == "await":
        while not Path(f"{path}.open").exists():
            time.sleep(0.01)
    elif action == "nap":
        time.sleep(0.25)
    elif action == "hoard":
        bytearray(10 << 30)
    elif action == "hoard-little-by-little":
        chain = ()
        while True:
            chain = (chain,)
    elif action == "kill" or (action == "flaky" and "flaky" not in before):
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "exit":
        sys.exit(3)
    elif action == "raise":
        raise RuntimeError("as asked")
    elif action == "start":
        return subprocess.Popen(["sleep", "600"]).pid
    elif action == "start-and-die":
        _leave(path, f"started {subprocess.Popen(['sleep', '600']).pid}")
        os._exit(3)
    elif action == "close":
        os.closerange(3, 4096)
        time.sleep(60)
    elif action == "forge":
        for fd in range(3, 1024):
            try:
                os.write(fd, b"\x05\x00\x00\x00noise")
            except OSError:
                continue
    return None


def _leave(path: str, action: str) -> str:
    """What was there before; nothing of a FIFO."""
    if not path.startswith("/"):  # none, or a drawn text that looks like an action
        return ""
    before = Path(path).read_text() if Path(path).is_file() else ""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{os.getpid()} {action}\n".encode())
    os.close(fd)
    return before


class Words(rlvr.Environment):
    """A finite set; the environment's own verify."""

    count: int = 3
    loud: bool = False

    def tasks(self) -> Iterable[rlvr.Task]:
        for i in range(self.count):
            word = f"{self.split}-{i}"
            yield rlvr.Task(
                f"words/{word}", f"Say {word}.", reference=word.upper() if self.loud else word
            )

    def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        if not completion.strip():
            return rlvr.Verdict("unparsed", why="silence")
        right = completion == task.reference
        return rlvr.Verdict(
            "correct" if right else "wrong", why="same" if right else "other", answer=completion
        )


class Sums(rlvr.Environment):
    """A generator; the verifier of its reward."""

    terms: int = 2
    reward = rlvr.Correct(lambda completion, reference: completion == str(reference))

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded(self.id, self.split, index)
        numbers = [rng.randint(1, 999) for _ in range(self.terms)]
        return rlvr.Task(
            f"{self.id}/{self.split}/{index}", " + ".join(map(str, numbers)), reference=sum(numbers)
        )


def call(name: str, **arguments: object) -> str:
    """A call of a tool, as Hermes writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Desk(rlvr.Environment):
    """Say the sum; a tool adds."""

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(
            f"{self.id}/{self.split}/{index}", f"Add {index} and 1.", reference=index + 1
        )

    def setup(self, task: rlvr.Task) -> object:
        return {"n": 0}

    @rlvr.tool
    def add(self, state, x: int, y: int = 0) -> str:
        """Add two numbers.

        Args:
            x: the first.
            y: the second.
        """
        if x < 0:
            raise rlvr.ToolError("only numbers from 0")
        if isinstance(state, dict):
            state["n"] += 1
        return str(x + y)

    def final(self, task: rlvr.Task, state: object) -> object:
        return state if isinstance(state, dict) and "n" in state else None

    def verify(self, task: rlvr.Task, episode: rlvr.EpisodeRecord) -> rlvr.Verdict:
        right = episode.answer.strip() == str(task.reference)
        return rlvr.Verdict(
            "correct" if right else "wrong", why="compared", answer=episode.answer[:80]
        )

    def example_episode(self, task: rlvr.Task) -> list:
        return [rlvr.Ask("add", {"x": task.reference - 1, "y": 1}), str(task.reference)]
