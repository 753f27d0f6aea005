r"""One grader in one process, for `math_verify.py`: rows come in on stdin,
one JSON line per row goes out.

    # -P: or math_verify.py would hide math-verify
    python -P benchmarks/math_sides.py SIDE MODE < rows.jsonl

A row has `id`, `reference`, `completion` and maybe `task`, `marker` or `any_form`; a line has `id`,
`right` (null: it raised), `why`, `s`.  Every side is called as its own documentation calls it.  The
last line says how much memory the run took.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

Row = dict[str, Any]
Grader = Callable[[Row], tuple[bool, str]]

THREADS = 32
WARM = [  # nothing of any set, and something for every part of a grader
    {"reference": r"\frac{17}{19}+x", "completion": r"So it is \boxed{x+\frac{34}{38}}."},
    {"reference": "9876543.25", "completion": r"\boxed{9876543.5}"},
    {"reference": r"(-\infty, 77.5)", "completion": r"\boxed{t < 77.5}"},
    {"reference": r"\{41, 43, 47.5\}", "completion": r"\boxed{41, 43}"},
]


def rlvr() -> Grader:
    """As the environments math-v4 and gsm8k-v4 do: with the task where the set has questions."""
    from rlvr.types import Task
    from rlvr.verifiers.math import GSM8K, MathPolicy, MathVerifier, symbolic

    symbolic.warm()
    plain, marked = MathVerifier(), MathVerifier(GSM8K, markers=("A:",))
    any_form = MathVerifier(MathPolicy(form="any"))

    def grade(row: Row) -> tuple[bool, str]:
        verifier = marked if row.get("marker") else any_form if row.get("any_form") else plain
        task = Task(row["id"], row["task"], reference=row["reference"]) if row.get("task") else None
        verdict = verifier.verify(row["completion"], row["reference"], task=task)
        return verdict.correct, verdict.reason

    return grade


def math_verify() -> Grader:
    """As in its README: parse both, verify."""
    from math_verify import parse, verify

    return lambda row: (bool(verify(parse(f"${row['reference']}$"), parse(row["completion"]))), "")


def trl() -> Grader:
    """As in a GRPOTrainer; it scores nothing where it cannot read the reference."""
    from trl.rewards import accuracy_reward

    def grade(row: Row) -> tuple[bool, str]:
        [score] = accuracy_reward(
            [[{"role": "assistant", "content": row["completion"]}]], [f"${row['reference']}$"]
        )
        return score == 1.0, "reference-skipped" if score is None else ""

    return grade


def inspect_ai() -> Grader:
    """Its scorer is a coroutine; one event loop for all rows of a thread, as in an evaluation."""
    from inspect_ai.model import ModelName, ModelOutput
    from inspect_ai.scorer import Target
    from inspect_ai.scorer._math import math
    from inspect_ai.solver import TaskState

    score, here = math(), threading.local()

    def grade(row: Row) -> tuple[bool, str]:
        output = ModelOutput.from_content("none/none", row["completion"])
        state = TaskState(ModelName("none/none"), 0, 0, "", [], output=output)
        if not hasattr(here, "loop"):
            here.loop = asyncio.new_event_loop()
        found = here.loop.run_until_complete(score(state, Target(row["reference"])))
        return found.value == "C", (found.metadata or {}).get("math_scorer_status", "")

    return grade


SIDES = {"rlvr": rlvr, "math-verify": math_verify, "trl": trl, "inspect_ai": inspect_ai}


def timed(grade: Grader, row: Row) -> Row:
    """A grader that raises has not graded: that is neither right nor wrong."""
    start = perf_counter()
    try:
        right, why = grade(row)
    # What a grader raises on a model's text is what we are here to see.
    except Exception as error:  # noqa: BLE001
        right, why = None, f"{type(error).__name__}: {error}"[:200]
    return {"id": row.get("id"), "right": right, "why": why, "s": perf_counter() - start}


def in_main(grade: Grader, rows: list[Row]) -> None:
    for row in rows:
        print(json.dumps(timed(grade, row)), flush=True)


def in_threads(grade: Grader, rows: list[Row]) -> None:
    with ThreadPoolExecutor(THREADS) as threads:
        for done in threads.map(lambda row: timed(grade, row), rows):
            print(json.dumps(done))


def in_asyncio(grade: Grader, rows: list[Row]) -> None:
    """`to_thread`, since none of them may block a trainer's event loop."""

    async def gather() -> list[Row]:
        return await asyncio.gather(*(asyncio.to_thread(timed, grade, row) for row in rows))

    for done in asyncio.run(gather()):
        print(json.dumps(done))


MODES = {"main": in_main, "threads": in_threads, "asyncio": in_asyncio}


class PeakMemory:
    """KiB at the peak of this process, and of the largest of its descendants,
    which may have been killed meanwhile."""

    def __init__(self) -> None:
        self.own = self.child = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.look()
            threading.Event().wait(0.005)

    def look(self) -> None:
        self.own = max(self.own, _peak_kib(os.getpid()))
        self.child = max([self.child, *map(_peak_kib, _descendants(os.getpid()))])


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in children:
            yield child
            yield from _descendants(child)


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has ended
        return 0
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) if "VmHWM:" in status else 0


def main() -> None:
    side, mode = sys.argv[1:]
    # Not "backslashreplace": a lone surrogate is one of the things that a grader may have to look
    # at.
    rows = [json.loads(line) for line in sys.stdin]
    logging.disable(logging.CRITICAL)  # they quote the hostile texts
    grade = SIDES[side]()
    for row in WARM:
        timed(grade, row)
    memory = (
        PeakMemory()
        if sys.platform == "linux" and mode == "main" and rows and rows[0].get("watch")
        else None
    )
    gc.collect()
    print(json.dumps({"ready": True}), flush=True)
    MODES[mode](grade, rows)
    if memory:
        memory.look()
    print(
        json.dumps({"peak_mib": [memory.own >> 10, memory.child >> 10] if memory else None}),
        flush=True,
    )
    os._exit(0)  # inspect_ai's abandoned threads would keep the process alive


if __name__ == "__main__":
    main()
