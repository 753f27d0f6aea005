"""Async environments and handlers that misbehave on demand, for the tests of everything that awaits them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import rlvr


class Awaited(rlvr.Environment):
    """The answer is the task's index.  A completion may end in `@action …`: what awaiting its verdict shall do."""

    max_concurrent: ClassVar[int] = 8

    def task(self, index: int) -> rlvr.Task:
        return rlvr.Task(f"{self.id}/{self.split}/{index}", f"Say {index}.", reference=index)

    async def verify(self, task: rlvr.Task, completion: str) -> rlvr.Verdict:
        return await judged(task, completion)


async def judged(task: rlvr.Task, completion: str) -> rlvr.Verdict:
    answer, _, action = completion.partition("@")
    await asyncio.sleep(0)
    if action:
        await act(*action.split(" "))
    outcome = rlvr.Outcome.CORRECT if answer == str(task.reference) else rlvr.Outcome.WRONG
    detail = {"x": float("nan")} if action == "not-json" else {}
    return rlvr.Verdict(
        outcome, why=f"compared: with {task.reference}", answer=answer, detail=detail
    )


async def act(action: str, *args: str) -> None:
    match action, args:
        case "together", (
            log,
            count,
        ):  # waits until so many calls have begun, and notes its own beginning and end
            note(log, "+")
            await until(lambda: Path(log).read_text().count("+") >= int(count))
            await asyncio.sleep(0.01)  # whatever more would begin begins now
            note(log, "-")
        case "after", (log, mark):
            await until(lambda: mark in Path(log).read_text())
        case "note", (log, mark):
            note(log, mark)
        case "pid", (log,):
            note(log, f"{os.getpid()} ")
        case "forever", ():
            await asyncio.Event().wait()
        case "stubborn", ():
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    continue
        case "cleans-up", (log,):
            note(log, "b")
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                note(log, "c")
        case "block", (seconds,):
            time.sleep(float(seconds))
        case "creep", ():  # holds the loop again and again, but never for long
            while True:
                time.sleep(0.05)
                await asyncio.sleep(0)
        case "exit", ():
            os._exit(7)
        case "kill", ():
            os.kill(os.getpid(), signal.SIGKILL)
        case "fork", ():
            if os.fork() == 0:
                await asyncio.sleep(0.05)  # and goes on as if it were the worker
        case "raise", (name,):
            raise {
                "ValueError": ValueError("no"),
                "SystemExit": SystemExit(3),
                "KeyboardInterrupt": KeyboardInterrupt(),
                "CancelledError": asyncio.CancelledError(),
                "StopAsyncIteration": StopAsyncIteration(),
                "GeneratorExit": GeneratorExit(),
            }[name]
        case "cancels-itself", ():
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        case "subtask", ():
            await asyncio.create_task(leave())
        case "memory", ():
            bytearray(1 << 40)
        case "run", ():
            coroutine = asyncio.sleep(0)
            try:
                asyncio.run(coroutine)
            finally:
                coroutine.close()


async def leave() -> None:
    sys.exit(3)


async def until(holds) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def note(log: str, mark: str) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, mark.encode())
    os.close(fd)


def most_at_once(log: Path) -> int:
    depth = most = 0
    for mark in log.read_text():
        depth += {"+": 1, "-": -1}.get(mark, 0)
        most = max(most, depth)
    return most


@dataclass(frozen=True)
class Judge:
    """The same as a verifier of its own."""

    id: ClassVar[str] = "judge-v1"

    async def verify(
        self, completion: str, reference: object, task: rlvr.Task | None = None
    ) -> rlvr.Verdict:
        return await judged(rlvr.Task("t", "", reference), completion)


@dataclass(frozen=True)
class Polite(rlvr.Part):
    """An async part of one completion."""

    name: str = "polite"
    bounds: ClassVar = (0.0, 1.0)

    async def value(self, task, completion, verdict):
        await asyncio.sleep(0)
        return float("please" in completion.text)


@dataclass(frozen=True)
class Ranked(rlvr.GroupPart):
    """An async part that compares: the share of the group that is no longer; an action is done once for the group."""

    name: str = "ranked"
    bounds: ClassVar = (0.0, 1.0)

    async def values(self, completions, verdicts):
        for action in {c.text.partition("@")[2] for c in completions}:
            if action.startswith(("together", "forever", "raise")):
                await act(*action.split(" "))
        return [
            sum(len(o.text) <= len(c.text) for o in completions) / len(completions)
            for c in completions
        ]
