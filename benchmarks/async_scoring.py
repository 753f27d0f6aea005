r"""Time to score completions whose verdict waits,
as the Markdown table of docs/benchmarks/scoring.md.

    python -m benchmarks.async_scoring

Each verdict waits 0.5 s, as a judge behind an endpoint does.  One side waits with `time.sleep` in a
plain function, the other with `asyncio.sleep` in an async one.  The workers have been started
before.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

import rlvr

CALLS, WAIT_S, ROUNDS = 24, 0.5, 3


def blocking(completion: str, reference: str) -> bool:
    time.sleep(WAIT_S)
    return completion == reference


async def awaited(completion: str, reference: str) -> bool:
    await asyncio.sleep(WAIT_S)
    return completion == reference


def main() -> None:
    print(f"| {CALLS} calls of {WAIT_S} s | workers | s |\n|---|--:|--:|")
    for name, verifier, workers in (
        ("plain function", blocking, 2),
        ("async function", awaited, 2),
        ("async function", awaited, 1),
        ("async function", awaited, 0),
    ):
        took = [_seconds(verifier, workers) for _ in range(1 if verifier is blocking else ROUNDS)]
        print(
            f"| {name} | {workers} | {statistics.median(took):.2f} "
            f"({min(took):.2f}–{max(took):.2f}) |"
        )


def _seconds(verifier: Callable[[str, str], object], workers: int) -> float:
    rows = [{"prompt": f"Say {i}.", "reference": str(i)} for i in range(CALLS)]
    env = rlvr.Environment.from_rows(rows, verifier=verifier)
    with rlvr.Scorer(env, workers=workers) as scorer:
        if verifier is awaited:
            scorer.score(env.task(0), "0")  # the first worker is ready
        else:
            list(scorer.stream([{"task": i, "completion": str(i)} for i in range(workers)]))
        begun = time.perf_counter()
        scores = [
            one.score.total
            for one in scorer.stream([{"task": i, "completion": str(i)} for i in range(CALLS)])
        ]
        took_s = time.perf_counter() - begun
    assert scores == [1.0] * CALLS
    return took_s


if __name__ == "__main__":
    main()
