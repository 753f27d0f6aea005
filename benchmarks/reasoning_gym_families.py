"""Which families of reasoning-gym can a policy be trained on?  Tries every family's scorer with
wrong answers.

    python -m benchmarks.reasoning_gym_families [--tasks 8] [--only gcd lcm | --write]

Prints a table of the families with holes.  `--write` writes it into
rlvr/interop/reasoning_gym_holes.json, which `from_reasoning_gym` reads and `make docs` shows.  Each
family has a process of its own and at most a minute.  Some scorers run the answer as Python; the
programs that are given to them here are harmless.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasoning_gym.factory import DATASETS

from rlvr.interop.reasoning_gym import RUNS_ANSWERS, ReasoningGym, _make_puzzle

ROOT = Path(__file__).resolve().parent.parent
HOLES_FILE = ROOT / "rlvr/interop/reasoning_gym_holes.json"
COMMAND = "python -m benchmarks.reasoning_gym_families --write"
HEAD = "| family | with full marks needed | with partial credit, of full marks |\n|---|---|---|"
FORCED = "run-model-code"
JUNK = (
    ".",
    "0",
    "1",
    "-1",
    "[]",
    "{}",
    "None",
    "True",
    "yes",
    "no",
    "I don't know",
    "\\boxed{}",
    "a" * 1000,
    "1 " * 500,
)
LONGEST_S = 60.0
MARK = "rlvr_ran_this"
RUNS = f"__import__('builtins').__dict__.__setitem__('{MARK}', 1)"
PROGRAMS = (
    RUNS,
    f"[{RUNS}]",
    f"[{RUNS}, 1]",
    f"[[{RUNS}, 1], [1, 1]]",
    f"({RUNS} or 1)",
    f"x + ({RUNS} or 1)",
)


def looked_at(family: str, tasks: int) -> dict[str, Any]:
    """What one family's scorer gives to answers that are none: {"tasks": …, "holes": […],
    "partial": […], …}."""
    env = ReasoningGym(family=family, force=FORCED)
    entries = []
    for index in range(tasks):
        task = env.task(index)
        entries.append((task, *_make_puzzle(family, "{}", task.meta["seed"])))
    given: Counter[str] = Counter()
    most: dict[str, float] = {}
    crashes = Counter[str]()

    def try_(what: str, dataset: Any, entry: Any, answer: str) -> float:
        try:
            marks = float(dataset.score_answer(answer, deepcopy(entry)))
        except Exception:  # noqa: BLE001  scorers may raise anything at a wrong answer
            crashes[what] += 1
            return 0.0
        most[what] = max(most.get(what, 0.0), marks)
        given[what] += marks == 1
        return marks

    right, least = 0, 1.0
    for k, (task, dataset, entry) in enumerate(entries):
        reference = task.reference
        others = [t.reference for t, _, _ in entries if t.reference not in (None, reference)]
        if reference is not None:
            marks = try_("reference", dataset, entry, str(reference))
            right, least = right + (marks == 1), min(least, marks)
        for junk in JUNK:
            if not same(junk, str(reference)):
                try_("junk", dataset, entry, junk)
        if entry["question"].strip() != reference:
            try_("echo", dataset, entry, entry["question"])
        for program in PROGRAMS:
            try_("program", dataset, entry, program)
        if reference is None:
            continue
        for denied in (f"not {reference}", f"It is not {reference}", f"anything but {reference}"):
            try_("negation", dataset, entry, denied)
        for around in (f"9{reference}9", f"x{reference}x"):
            try_("substring", dataset, entry, around)
        if not others:
            continue
        other = others[k % len(others)]
        for another in others:
            try_("another's", dataset, entry, another)
        for hedge in (
            f"{reference} or maybe {other}",
            f"{other} or maybe {reference}",
            f"{reference} or {other}",
        ):
            try_("hedge", dataset, entry, hedge)
        try_("list", dataset, entry, ", ".join([reference, *others]))
    return {
        "texts": [[task.prompt, task.reference] for task, _, _ in entries],
        "referenced": sum(task.reference is not None for task, _, _ in entries),
        "right": right,
        "least": least,
        "full": dict(given),
        "most": most,
        "crashes": sum(crashes.values()),
        "ran": hasattr(builtins, MARK),
    }


def runs(family: str) -> bool:
    """Whether the scorer runs a program; for families that die of something else."""
    env = ReasoningGym(family=family, force=FORCED)
    dataset, entry = _make_puzzle(family, "{}", env.task(0).meta["seed"])
    for program in PROGRAMS:
        with contextlib.suppress(Exception):
            dataset.score_answer(program, deepcopy(entry))
    return hasattr(builtins, MARK)


def same(junk: str, reference: str) -> bool:
    """Then it is no junk: another case, or another way to write the number."""
    try:
        return float(junk) == float(reference)
    except ValueError:
        return junk.casefold() == reference.casefold()


def each(families: list[str], look: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
    """What `look` finds at each family, in a forked child of its own;
    a text where it found nothing."""
    for family in families:
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(ours)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # some families print, one from C
            try:
                found = look(family)
            except Exception as error:  # noqa: BLE001  a family that cannot be tried is a finding
                found = type(error).__name__
            with os.fdopen(theirs, "w") as pipe:
                json.dump(found, pipe)
            os._exit(0)
        os.close(theirs)
        timer = threading.Timer(LONGEST_S, os.kill, (pid, signal.SIGKILL))
        timer.start()
        with os.fdopen(ours) as pipe:
            said = pipe.read()
        os.waitpid(pid, 0)
        timer.cancel()
        yield family, json.loads(said) if said else f"it died, or took more than {LONGEST_S:g} s"


def texts(family: str, tasks: int) -> list[list[str]]:
    """The puzzles, to be compared with those of another process."""
    env = ReasoningGym(family=family, force=FORCED)
    return [[task.prompt, task.reference] for task in map(env.task, range(tasks))]


def holes(
    found: dict[str, Any] | str, ran: bool | str, again: list[list[str]] | str, tasks: int
) -> tuple[list[str], list[str]]:
    """What a policy would find with full marks needed, and what more with partial credit.

    Args:
        found: what `looked_at` found.
        ran: what `runs` found, where that found nothing.
        again: `texts` under another hash seed.
        tasks: how many puzzles were tried.
    """
    if isinstance(found, str):
        return [RUNS_ANSWERS] if ran is True else [f"it cannot be tried: {found}"], []
    always, partial = [], []
    if found["ran"]:
        always.append(RUNS_ANSWERS)
    if found["referenced"] < tasks:
        always.append("it has no reference to check the scorer with")
    elif found["right"] < tasks:
        always.append(f"its own reference gets full marks in {found['right']} of {tasks} puzzles")
    if again != found["texts"]:
        always.append("its puzzles depend on Python's hash seed or on chance")
    full = found["full"]
    for what, says in (
        ("junk", "junk gets full marks"),
        ("echo", "the question itself gets full marks"),
        ("another's", "another puzzle's answer gets full marks"),
        ("hedge", "'right or maybe wrong' gets full marks"),
        ("list", "a list of candidates gets full marks"),
        ("negation", "'not right' gets full marks"),
        ("substring", "the right answer inside other characters gets full marks"),
    ):
        if full.get(what):
            always.append(says)
        elif found["most"].get(what, 0.0) >= 0.1 and what != "another's":
            partial.append(f"{says.replace('full marks', '')}{found['most'][what]:.2f}")
    return always, partial


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--texts", action="store_true", help="print the puzzles as JSON and do nothing else"
    )
    args = parser.parse_args()
    if args.only and args.write:
        parser.error("--write is for all families: with --only it would forget the others")
    warnings.simplefilter("ignore")
    families = sorted(args.only or DATASETS)
    if args.texts:
        print(json.dumps(dict(each(families, lambda family: texts(family, args.tasks)))))
        return
    command = [sys.executable, __file__, "--texts", "--tasks", str(args.tasks), "--only", *families]
    elsewhere = os.environ | {"PYTHONHASHSEED": "1"}
    again = json.loads(
        subprocess.run(command, env=elsewhere, check=True, capture_output=True, text=True).stdout
    )
    always: dict[str, list[str]] = {}
    partial: dict[str, list[str]] = {}
    crashing = []
    print(HEAD)
    for family, found in each(families, lambda family: looked_at(family, args.tasks)):
        ran = next(each([family], runs))[1] if isinstance(found, str) else False
        always[family], partial[family] = holes(found, ran, again[family], args.tasks)
        if not isinstance(found, str) and found["crashes"]:
            crashing.append(f"{family} ({found['crashes']})")
        if always[family] or partial[family]:
            line = f"| {family} | {'; '.join(always[family])} | {'; '.join(partial[family])} |"
            print(line, flush=True)
    refused, paid = (sum(map(bool, found.values())) for found in (always, partial))
    print(
        f"\n{len(always)} families, {refused} refused, {paid} more or less so with partial credit."
    )
    print(f"Scorers that raise at an answer: {', '.join(crashing)}")
    if args.write:
        write(args.tasks, always, partial)


def write(tasks: int, holes: dict[str, list[str]], partial: dict[str, list[str]]) -> None:
    """The file that `from_reasoning_gym` reads, with a line for each family."""
    head = {"reasoning_gym": version("reasoning-gym"), "command": COMMAND, "tasks": tasks}
    rows = {
        family: {"holes": holes[family], "partial_holes": partial[family]}
        for family in sorted(holes)
    }
    families = ",\n".join(
        f"    {json.dumps(family)}: {json.dumps(row)}" for family, row in rows.items()
    )
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    HOLES_FILE.write_text("\n".join(["{", *lines, '  "families": {', families, "  }", "}", ""]))


if __name__ == "__main__":
    main()
