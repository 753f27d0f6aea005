"""Finds the tasks of swe-lite-v1, and writes them to `swe/tasks.jsonl`:
python -m rlvr.envs.swe_finder

A slip in a project, or a function that is left out, becomes a task if a case that may be shown
fails, hidden ones too, and others pass; if no other slip has the same effect; and if all of that is
the same in interpreters with three hash seeds.  All code that runs here is ours: projects and
mutants of them, within CPU time and memory.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from rlvr.environment import seeded
from rlvr.envs.swe_projects import (
    SPLITS,
    TABLE,
    VISIBLE,
    Edits,
    Found,
    Variant,
    loader,
    names_of_projects,
    observe,
    unittest_file,
    variant_of,
    variants_of,
)
from rlvr.errors import SandboxFailed
from rlvr.sandbox import Box, Sandbox
from rlvr.verifiers.code.operators import deletions, mutants, mutants_across
from rlvr.workers.program import run_program
from rlvr.workers.threads import Threads

__all__ = ["HASH_SEEDS", "find_tasks", "main", "run_jobs"]

HASH_SEEDS: Final = (0, 1, 2)

_MOST: Final = {"bugs": 60, "features": 12, "pairs": 15, "triples": 5}
"""Tasks of each kind for a project, at most."""

_CPU_S: Final = 0.5  # of all cases of a candidate; a usual one takes a hundredth
_KILLED_S: Final = 3  # seconds after which one that computes without end in C is killed
_MEMORY_BYTES: Final = 4 << 30
_CRASHES: Final = frozenset("TypeError AttributeError NameError UnboundLocalError".split())
_MACHINES: Final = ("MemoryError", "RecursionError")  # how much there is of both is the machine's
_FAILING, _PASSING = 2, 5  # hidden cases that a task needs at least of each
_TRIES: Final = 2  # candidates that are looked at in variants, for each that is wanted

_Job: TypeAlias = "tuple[str, int, Edits]"
"""A project, a variant, and what is changed."""

_Outcomes: TypeAlias = "list[tuple[str, bool]] | None"
"""A digest of what each case comes to, visible ones first, and whether it
crashed; None: over its time."""

_Look: TypeAlias = "Callable[[Sequence[_Job]], list[_Outcomes]]"


@dataclass(frozen=True)
class _Candidate:
    """What may become a task: a part of `Found`."""

    edits: Edits
    operators: tuple[str, ...]
    feature: Sequence[str] | None = None


class _LateError(BaseException):
    """Over its CPU time; no Exception, which a mutant might catch."""


# ------------------------------------------------------------------------------- looking at mutants


def run_jobs(jobs: Sequence[_Job]) -> list[_Outcomes]:
    """What the cases of changed projects come to in this process, whose hash seed may matter.

    Args:
        jobs: see `_Job`.
    """
    # The timer counts this process's CPU time in user mode.
    signal.signal(signal.SIGVTALRM, _stop)
    return [_look_at(*job) for job in jobs]


def _look_at(project: str, number: int, edits: Edits) -> _Outcomes:
    variant = variant_of(project, number)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _CPU_S, 0.05)
        try:
            outcomes = _outcomes(variant, edits)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except (_LateError, SyntaxError):  # the timer may fire again before it is stopped
        return None
    if any(outcome[0] == "raises" and outcome[1] in _MACHINES for outcome in outcomes):
        return None
    try:
        return [_digest(outcome) for outcome in outcomes]
    except ValueError:  # a number with too many digits
        return None


def _outcomes(variant: Variant, edits: Edits) -> list[list[object]]:
    own_import = loader(variant.name, variant.changed(edits))
    return [observe(own_import, case) for case in (*variant.visible, *variant.hidden)]


def _digest(outcome: Sequence[object]) -> tuple[str, bool]:
    digest = hashlib.sha256(repr(outcome).encode()).hexdigest()[:12]
    return digest, outcome[0] == "raises" and outcome[1] in _CRASHES


def _stop(*_: object) -> None:
    raise _LateError


def _look_aside(jobs: Sequence[_Job], hash_seed: int) -> list[_Outcomes]:
    """`run_jobs` in interpreters with a hash seed; a job that the kernel has to end is over its
    time."""
    results: list[_Outcomes] = []
    while len(results) < len(jobs):
        child = run_program(
            [sys.executable, "-m", "rlvr.envs.swe_finder", "--look"],
            name="look at candidates",
            owner="swe_finder",
            limit_s=None,
            group="caller",  # Ctrl-C ends it too
            # Behind the job at which the last one ended.
            stdin=json.dumps(jobs[len(results) :]).encode(),
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            stderr=None,
        )
        rows = [json.loads(line) for line in child.stdout.split("\n")[:-1]]
        results += [row and [(digest, crashed) for digest, crashed in row] for row in rows]
        # The kernel ended it for its CPU time: a mutant that computes in C without end.
        if child.returncode == -signal.SIGXCPU:
            results.append(None)
        elif child.returncode:
            raise SandboxFailed(
                f"the process that looks at candidates ended with {child.returncode}"
            )
    return results


def _answer() -> None:
    """Look at the jobs of standard input, and write a line for each."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    for job in json.load(sys.stdin):
        used_s = int(time.process_time())
        # Counted from what the process has used so far.
        resource.setrlimit(resource.RLIMIT_CPU, (used_s + _KILLED_S, hard))
        [row] = run_jobs([job])
        sys.stdout.write(f"{json.dumps(row)}\n")
        sys.stdout.flush()


def _look_everywhere(jobs: Sequence[_Job]) -> list[_Outcomes]:
    """`run_jobs` with each hash seed; None where they do not agree."""
    with Threads(len(HASH_SEEDS), "finder of tasks") as threads:
        runs = threads.map(lambda hash_seed: _look_aside(jobs, hash_seed), HASH_SEEDS)
        rows = zip(*runs, strict=True)
        return [row[0] if all(outcome == row[0] for outcome in row) else None for row in rows]


# ------------------------------------------------------------------------------------------ finding


def find_tasks(
    project: str, most: Mapping[str, int] = _MOST, *, look_in: _Look = _look_everywhere
) -> list[Found]:
    """The tasks of a project.

    Args:
        project: its name.
        most: see `_MOST`.
        look_in: looks at candidates, in several interpreters.
    """
    rng = seeded("swe", "find", project)
    numbers = [n for n in range(variants_of(project)) if n % 3 != 1 or n < 6]
    variants = [n for n in numbers if _is_right(variant_of(project, n))]
    # Each effect once, however it was reached.
    distinct = _distinct(project, _candidates(project), look_in)
    bugs = [candidate for candidate in distinct if candidate.feature is None]
    features = [candidate for candidate in distinct if candidate.feature is not None]
    tasks = _validate(project, _balance(bugs, rng), variants, most["bugs"], rng, look_in)
    for size, kind in ((2, "pairs"), (3, "triples")):
        together = _combine([_candidate(task) for task in tasks if task.bugs == 1], size, rng)
        some = list(itertools.islice(together, _TRIES * most[kind]))
        tasks += _validate(project, some, variants, most[kind], rng, look_in)
    rng.shuffle(features)
    tasks += _validate(project, features, variants, most["features"], rng, look_in)
    # The first task with these edits stays.
    return list({repr(task.edits): task for task in reversed(tasks)}.values())[::-1]


def _candidate(task: Found) -> _Candidate:
    return _Candidate(task.edits, tuple(task.operators), task.feature)


def _candidates(project: str) -> Iterator[_Candidate]:
    """All slips in the project's own files, and all functions left out."""
    files = variant_of(project, 0).files
    for path, text in files.items():
        for mutant in mutants(text):
            yield _Candidate(_edits(files, {path: mutant.source}), (mutant.operator,))
        for gone in deletions(text):
            feature = (gone.name, gone.head, gone.docstring)
            yield _Candidate(_edits(files, {path: gone.source}), ("deleted",), feature)
    for spread in mutants_across(files):
        yield _Candidate(_edits(files, spread.sources), (spread.operator,))


def _edits(files: Mapping[str, str], sources: Mapping[str, str]) -> list[list[object]]:
    """What leads from files to others.  The files are as `ast.unparse` writes them, or all lines
    would differ."""
    edits: list[list[object]] = []
    for path, source in sources.items():
        old, new = files[path].split("\n"), f"{source}\n".split("\n")
        # `autojunk` would pass over lines that occur often.
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for kind, first, last, start, end in matcher.get_opcodes():
            if kind != "equal":
                edits.append([path, first, last - first, new[start:end]])
    return edits


def _distinct(project: str, candidates: Iterator[_Candidate], look_in: _Look) -> list[_Candidate]:
    """Those that change something, each effect once."""
    candidate_list = list(candidates)
    [right, *outcomes] = look_in(
        [(project, 0, edits) for edits in [[], *(c.edits for c in candidate_list)]]
    )
    effects: set[str] = set()
    distinct = []
    for candidate, row in zip(candidate_list, outcomes, strict=True):
        effect = repr(row)
        if effect not in effects and _failures(right, row, candidate) is not None:
            effects.add(effect)
            distinct.append(candidate)
    return distinct


def _failures(
    right: _Outcomes, row: _Outcomes, candidate: _Candidate
) -> tuple[list[int], list[int]] | None:
    """The numbers of visible and hidden cases that fail; None if that makes no task.

    What only crashes is found by its traceback; so a bug has to show in a wrong value too.
    """
    if right is None or row is None:
        return None
    failing = [at for at in range(len(row)) if row[at] != right[at]]
    visible = [at for at in failing if at < VISIBLE and (candidate.feature or not row[at][1])]
    quiet = [at for at in failing if at >= VISIBLE and (candidate.feature or not row[at][1])]
    hidden = [at - VISIBLE for at in failing if at >= VISIBLE]
    passing = len(row) - VISIBLE - len(hidden)
    if not visible or not quiet or len(hidden) < _FAILING or passing < _PASSING:
        return None
    # Those that show a wrong value first.
    return [*visible, *(at for at in failing if at < VISIBLE and at not in visible)], hidden


def _balance(candidates: Sequence[_Candidate], rng: random.Random) -> list[_Candidate]:
    """In an order in which each operator comes as often as another, as far as it has any."""
    by_operator: dict[str, list[_Candidate]] = {}
    for candidate in candidates:
        by_operator.setdefault(candidate.operators[0], []).append(candidate)
    for of_operator in by_operator.values():
        rng.shuffle(of_operator)
    # One of each operator in turn, in the order of their names.
    turns = itertools.zip_longest(*(by_operator[name] for name in sorted(by_operator)))
    return [bug for turn in turns for bug in turn if bug is not None]


def _combine(bugs: Sequence[_Candidate], size: int, rng: random.Random) -> Iterator[_Candidate]:
    """Several bugs at places of their own, without end where there are enough."""
    for _ in range(1000 if len(bugs) >= size else 0):
        parts = rng.sample(bugs, size)
        edits = sorted(
            (edit for part in parts for edit in part.edits),
            key=lambda edit: (str(edit[0]), int(edit[1])),
        )
        apart = all(
            # At least a line between two edits of a file.
            edit[0] != following[0] or edit[1] + edit[2] + 1 < following[1]
            for edit, following in itertools.pairwise(edits)
        )
        if apart:
            yield _Candidate(edits, tuple(part.operators[0] for part in parts))


def _validate(
    project: str,
    candidates: Sequence[_Candidate],
    variants: Sequence[int],
    most: int,
    rng: random.Random,
    look_in: _Look,
) -> list[Found]:
    """The candidates that make tasks, each in a variant of its own."""
    # Twice as many as are wanted, since some make no task in their variant.
    tries = [(candidate, rng.choice(variants)) for candidate in candidates[: _TRIES * most]]
    jobs: list[_Job] = [(project, number, []) for number in variants]
    jobs += [(project, number, candidate.edits) for candidate, number in tries]
    outcomes = look_in(jobs)
    rights = dict(zip(variants, outcomes, strict=False))
    tasks: list[Found] = []
    for (candidate, number), row in zip(tries, outcomes[len(variants) :], strict=True):
        failures = _failures(rights[number], row, candidate)
        if failures is not None and len(tasks) < most:
            tasks.append(_task(project, number, candidate, *failures))
    return tasks


def _task(
    project: str, number: int, one: _Candidate, shown: list[int], decides: list[int]
) -> Found:
    variant = variant_of(project, number)
    # The shortest of the first three is the symptom that is shown.
    shown = [min(shown[:3], key=lambda at: len(variant.visible[at])), *shown]
    paths = sorted({edit[0] for edit in one.edits})
    away = _distances(variant, variant.visible[shown[0]])
    return Found(
        project,
        number,
        one.edits,
        one.operators,
        len(one.operators),
        len(paths),
        # The file that lies furthest from what the symptom names.
        max(away.get(variant.compose(path), 0) for path in paths),
        list(dict.fromkeys(shown)),
        decides,
        one.feature,
    )


def _distances(variant: Variant, case: str) -> dict[str, int]:
    """How many imports lie between the modules that a case names and each file."""
    package = re.escape(variant.name)
    names = re.findall(rf"from {package}\.(\w+) import", case)
    for listed in re.findall(rf"from {package} import (.+)", case):
        names += listed.split(", ")
    away = {f"{name}.py": 0 for name in names}
    queue = list(away)
    while queue:
        path = queue.pop(0)
        for name in re.findall(r"from \.(\w+) import", variant.files.get(path, "")):
            if f"{name}.py" not in away:
                away[f"{name}.py"] = away[path] + 1
                queue.append(f"{name}.py")
    return away


@lru_cache(maxsize=1)
def _sandbox() -> Sandbox:
    return Sandbox()


def _is_right(variant: Variant) -> bool:
    """Whether a variant passes its hidden cases where they are graded."""
    own_import = loader(variant.name, variant.files)
    cases = dict(enumerate(variant.hidden))
    outcomes = {number: observe(own_import, case) for number, case in cases.items()}
    files = {f"{variant.name}/{path}": text.encode() for path, text in variant.files.items()}
    results = Box(_sandbox(), files).test(unittest_file(cases, outcomes, ""))
    return len(results) == len(cases) and set(results.values()) == {"pass"}


# -------------------------------------------------------------------------------------- the command


def main(arguments: Sequence[str]) -> None:
    """Write the table, and say what it took.

    Args:
        arguments: none; or "--look" in a process that looks at candidates.
    """
    if arguments:
        _answer()
        return
    names = [name for split in SPLITS for name in names_of_projects(split)]
    tasks = [task for name in names for task in find_tasks(name)]
    TABLE.write_text("".join(f"{task.as_line()}\n" for task in tasks))
    _sandbox().close()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in used)
    sys.stdout.write(f"{len(tasks)} tasks in {cpu_s:.0f} CPU seconds\n")


if __name__ == "__main__":
    main(sys.argv[1:])
