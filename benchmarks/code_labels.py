"""Does the code judge agree with labels?  On real solutions with labels,
and on the data sets' own solutions.

    python -m benchmarks.code_labels DATA_DIR

DATA_DIR holds humaneval/ and mbpp/: the data sets (HumanEval.jsonl.gz, mbpp.jsonl), and
starcoder_results.jsonl, each row with a program in `solution`, its tests in `test`, and
`is_solved`.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.common import rows
from rlvr.envs.humaneval import HumanEval
from rlvr.envs.mbpp import MBPP
from rlvr.sandbox import TestSuite
from rlvr.verifiers.code import CodeVerifier, Judgement
from rlvr.verifiers.code.asserts import name_entry_point, split
from rlvr.workers import usable_cores

Row = Mapping[str, Any]

# Labels that say less about the program than about the run that they come from.
DISPUTED = {
    "MBPP/341": (
        "tuple(s) of a set: the tests expect an order, which depends on how the set was built"
    ),
    "MBPP/480": (
        "max(set(text), key=…): which of two equals comes first depends on the seed of the hashes"
    ),
}


class Judged(NamedTuple):
    """A program, what was said of it, and what we say."""

    name: str
    label: bool
    judgement: Judgement

    @property
    def agree(self) -> bool:
        return self.judgement.accepted == self.label


def programs(env: HumanEval | MBPP, some: Iterable[Row]) -> Iterator[tuple[str, bool, str, Any]]:
    """(name, label, program, reference) of rows that have labels; else their own solutions,
    which are right."""
    for row in some:
        task = env.task_from(row)
        if "is_solved" in row:
            yield task.id, row["is_solved"], row["solution"], task.reference
        else:
            yield task.id, True, task.meta["solution"], task.reference


def judged(verifier: CodeVerifier, work: Iterable[tuple[str, bool, str, Any]]) -> list[Judged]:
    def one(given: tuple[str, bool, str, Any]) -> Judged:
        name, label, program, reference = given
        return Judged(name, label, verifier.judge_program(program, reference))

    with ThreadPoolExecutor(usable_cores()) as threads:
        return list(threads.map(one, work))


def report(title: str, found: list[Judged], wall_s: float) -> bool:
    """Print a line, and one for each disagreement; True if all of them have a reason."""
    verdicts = dict(Counter(str(one.judgement.verdict) for one in found))
    solved, agree = sum(one.label for one in found), sum(one.agree for one in found)
    print(f"{title:<26} {len(found):>5} {solved:>7} {agree:>6} {wall_s:>6.1f} s  {verdicts}")
    differ = [one for one in found if not one.agree]
    for one in differ:
        label = "solved" if one.label else "unsolved"
        why = DISPUTED.get(one.name) or one.judgement.why
        print(f"    {one.name}: labelled {label}, judged {one.judgement.verdict} ({why})")
    return all(one.name in DISPUTED for one in differ)


def ways(env: HumanEval | MBPP, path: Path) -> None:
    """Print how many of a data set's references become calls, and what each of the two ways
    costs."""
    verifier = CodeVerifier(workers=1)
    took: dict[str, list[float]] = {"calls": [], "a process of tests": []}
    for name, _, program, reference in programs(env, rows(path)):
        suite = verifier.read(reference).cases
        assert isinstance(suite, TestSuite)
        way = "calls" if split(name_entry_point(suite)) is not None else "a process of tests"
        began = time.perf_counter()
        judgement = verifier.judge_program(program, reference)
        took[way].append(time.perf_counter() - began)
        if way != "calls":
            print(f"    {name}: {way}, {judgement.verdict}")
    for way, some in took.items():
        print(
            f"{type(env).__name__:<10} {way:<20} {len(some):>4}, "
            f"median {1e3 * median(some or [0]):.1f} ms"
        )


def main(data: Path) -> int:
    verifier = CodeVerifier(workers=usable_cores())
    humaneval, mbpp = HumanEval(), MBPP(challenge=True)
    ways(humaneval, data / "humaneval/HumanEval.jsonl.gz")
    ways(mbpp, data / "mbpp/mbpp.jsonl")
    good = True
    print(f"{'programs':<26} {'all':>5} {'solved':>7} {'agree':>6} {'wall':>8}  verdicts")
    for title, env, path in (
        ("HumanEval, own solutions", humaneval, data / "humaneval/HumanEval.jsonl.gz"),
        ("MBPP, own solutions", mbpp, data / "mbpp/mbpp.jsonl"),
        ("HumanEval, starcoder", humaneval, data / "humaneval/starcoder_results.jsonl"),
        ("MBPP, starcoder", mbpp, data / "mbpp/starcoder_results.jsonl"),
    ):
        start = time.monotonic()
        found = judged(verifier, programs(env, rows(path)))
        good &= report(title, found, time.monotonic() - start)
    return 0 if good else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
