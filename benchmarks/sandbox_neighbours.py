r"""What a program that hangs costs the programs beside it, as docs/benchmarks/sandbox.md reports.

    python -m benchmarks.sandbox_neighbours --seconds 60

Four judges share a sandbox of four workers.  Three of them judge short programs, one after the
other; the fourth judges `sleep(1000)` again and again, or nothing.  The two take turns, so that a
slow minute falls on both.
"""

import argparse
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rlvr.sandbox import Limits, Program, Sandbox
from rlvr.verifiers.code.cases import StdioCase
from rlvr.verifiers.code.judge import judge

SHORT = Program("python", "print(sum(range(int(input()))))")
HANGS = Program("python", "import time; time.sleep(1000)")
CASE = [StdioCase("10", "45")]
NEIGHBOURS = 3
TURN_S = 7.0  # more than a whole hang, with a wall limit of 6 s
LIMITS = Limits(cpu_s=2.0, wall_s=6.0)


def turn(sandbox: Sandbox, seconds: float, hanging: bool) -> list[float]:
    """Seconds of each judgement of a neighbour."""
    over = threading.Event()

    def neighbour(_: int) -> list[float]:
        took = []
        while not over.is_set():
            started = time.perf_counter()
            assert judge(SHORT, CASE, sandbox=sandbox, limits=LIMITS).accepted
            took.append(time.perf_counter() - started)
        return took

    with ThreadPoolExecutor(NEIGHBOURS + 1) as threads:
        found = [threads.submit(neighbour, n) for n in range(NEIGHBOURS)]
        hung = (
            threads.submit(judge, HANGS, CASE, sandbox=sandbox, limits=LIMITS) if hanging else None
        )
        time.sleep(seconds)
        over.set()
        assert hung is None or hung.result().verdict == "TLE"
        return [one for future in found for one in future.result()]


def percentile(values: list[float], per_cent: int) -> float:
    """In milliseconds."""
    return 1000 * statistics.quantiles(values, n=100)[per_cent - 1]


def main() -> None:
    """Print one line for each side, and the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of both sides together")
    turns = max(1, round(parser.parse_args().seconds / (2 * TURN_S)))
    found: dict[bool, list[float]] = {False: [], True: []}
    with Sandbox(workers=NEIGHBOURS + 1, limits=LIMITS) as sandbox:
        turn(sandbox, 1.0, hanging=False)  # slots are started
        for _ in range(turns):
            for hanging in (False, True):
                found[hanging] += turn(sandbox, TURN_S, hanging)
    for hanging, took in found.items():
        name = "one of four hangs" if hanging else "none hangs"
        print(
            f"{name}: {len(took)} runs, p50 {percentile(took, 50):.1f} ms, "
            f"p99 {percentile(took, 99):.1f} ms"
        )
    ratio = percentile(found[True], 99) / percentile(found[False], 99)
    print(f"p99 with one that hangs: {ratio:.2f} x without")


if __name__ == "__main__":
    main()
