"""References and rows of strangers, changed at random for some minutes:
what each verifier and data set makes of them.

    python -m benchmarks.reference_fuzz --minutes 10
    python -m benchmarks.reference_fuzz --minutes 1 --seed 3 json-v4 sql

The tests in tests/verifiers/test_hostile_references.py and tests/data/test_fuzzed_rows.py try the
same kinds in a fixed order.  Counted are CPU seconds beyond 2, errors that are no DataError, right
answers that a changed reference makes UNSCORED, and files that appear in the folder in which it
runs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import rlvr
from rlvr.errors import DataError
from rlvr.scoring.items import task_of_row
from rlvr.types import Outcome
from rlvr.verifiers.named import PLACES, class_of, make_verifier
from tests.data.test_fuzzed_rows import ROWS
from tests.mutated import mutated

MOST_CPU_S = 2.0
ROUND = 50  # examples between two looks at the clock
_PROGRAMS = ("code", "judge")  # run programs, or ask another model


def _try_reference(name: str) -> Callable[[Any], None]:
    verifier, good = make_verifier(name), class_of(name).reference_example
    example = verifier.example(good) or "\\boxed{1}"

    def judge(reference: Any) -> None:
        for completion in (example, "", "```json\n{}\n```", "\\boxed{" + "1" * 400 + "}"):
            verdict = verifier.verify(completion, reference)
            if verdict.outcome is Outcome.UNSCORED:
                raise ValueError(f"UNSCORED: {verdict.why}")

    return judge


def _try_row(name: str) -> Callable[[Any], None]:
    env = rlvr.make(name, data="none.jsonl")
    return lambda row: None if not isinstance(row, dict) else _ignore(task_of_row(env, row))


def _ignore(task: rlvr.Task) -> None:
    """The task is not judged here."""


def _subjects() -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    for name in PLACES:
        if name not in _PROGRAMS:
            yield name, class_of(name).reference_example, _try_reference(name)
    for name, row in ROWS.items():
        yield name, row, _try_row(name)


def _round(good: Any, act: Callable[[Any], None], number: int, counts: Counter[str]) -> None:
    @seed(number)
    @settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(value=mutated(good) | st.just(good))
    def one(value: Any) -> None:
        began = time.process_time()
        counts["tried"] += 1
        try:
            act(value)
        except DataError:
            counts["refused"] += 1
        except Exception as error:  # noqa: BLE001  that is what is looked for
            counts["other errors"] += 1
            print(f"  {type(error).__name__}: {error!s:.200}: {value!r:.300}", flush=True)
        took = time.process_time() - began
        if took > MOST_CPU_S:
            counts["slow"] += 1
            print(f"  {took:.1f} CPU s: {value!r:.300}", flush=True)

    one()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="of verifiers and environments; all by default")
    parser.add_argument("--minutes", type=float, default=10.0, help="of CPU time, in all")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    subjects = [one for one in _subjects() if not args.names or one[0] in args.names]
    totals = Counter[str]()
    print("| verifier or data set | tried | refused | over 2 CPU s | other errors |")
    print("|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, good, act in subjects:
            counts, number = Counter[str](), args.seed * 1_000_000
            until = time.process_time() + args.minutes * 60 / len(subjects)
            while time.process_time() < until:
                _round(good, act, number, counts)
                number += 1
            totals += counts
            cells = [f"{counts[key]:,}" for key in ("tried", "refused", "slow", "other errors")]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        files = sum(path.is_file() for path in Path(folder).rglob("*"))
        os.chdir("/")
    cells = [f"{totals[key]:,}" for key in ("tried", "refused", "slow", "other errors")]
    print(f"| all | {' | '.join(cells)} |\n\n{files} files were written.")


if __name__ == "__main__":
    main()
