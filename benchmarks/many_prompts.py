r"""Time and memory to find near-duplicates among many generated prompts,
as a line of docs/benchmarks/scoring.md.

    python -m benchmarks.many_prompts --prompts 1000000 --processes 2

A tenth of the prompts are others with one word changed, a twentieth are copies, and all end in one
instruction.  Memory is what this process has for itself (RssAnon), looked at every 50 ms: pages of
its temporary files can be taken back.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rlvr.data.overlap import near_duplicates

WORDS = [
    f"{a}{b}" for a in ("ka", "lo", "mi", "ter", "son", "vel", "dra", "qui") for b in range(2500)
]


def prompts(count: int) -> Iterator[str]:
    rng = random.Random(7)
    recent: list[list[str]] = []
    for _ in range(count):
        kind = rng.random()
        if kind < 0.1 and recent:
            words = list(rng.choice(recent))
            words[rng.randrange(len(words))] = "other"
        elif kind < 0.15 and recent:
            words = rng.choice(recent)
        else:
            words = [
                WORDS[min(int(rng.paretovariate(0.6)), len(WORDS) - 1)]
                for _ in range(rng.randint(20, 60))
            ]
        if len(recent) < 2000:
            recent.append(words)
        else:
            recent[rng.randrange(2000)] = words
        yield " ".join(words) + " Put the answer in a box at the end."


def watch(peak_kib: list[int]) -> None:
    while True:
        [kib] = re.findall(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
        peak_kib[0] = max(peak_kib[0], int(kib))
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    peak_kib = [0]
    threading.Thread(target=watch, args=(peak_kib,), daemon=True).start()
    begun, count, digest = time.perf_counter(), 0, hashlib.sha256()
    for pair in near_duplicates(prompts(options.prompts), processes=options.processes):
        count += 1
        digest.update(b"%d %d\n" % pair)
    took_s = time.perf_counter() - begun
    print(
        "| prompts | processes | pairs | SHA-256 of the pairs | s | peak MiB |\n"
        "|--:|--:|--:|---|--:|--:|"
    )
    print(
        f"| {options.prompts:,} | {options.processes} | {count:,} | `{digest.hexdigest()[:12]}` | "
        f"{took_s:.0f} | {peak_kib[0] / 1024:.0f} |"
    )


if __name__ == "__main__":
    main()
