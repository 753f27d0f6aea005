"""What the sandbox leaves behind after thousands of runs, and whether load causes TLE,
as Markdown tables.

    python -m benchmarks.sandbox_soak --runs 20000 --loaded 1000

The runs are a mixture: most of them honest, the others killed for time, memory, output or crashes,
with daemons and full disks among them.  Everything is counted after the first 200 and after the
last.
"""

import argparse
import os
import re
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlvr.sandbox import Limits, Program, Sandbox

LIMITS = Limits(cpu_s=0.1, wall_s=1.0, memory_mib=96, output_mib=1.0, processes=16, disk_mib=8.0)
HOSTILE = [
    Program("python", "while True: pass"),
    Program("python", "a = []\nwhile True: a.append(bytearray(1 << 20))"),
    Program("python", "while True: print('x' * 9999)"),
    Program(
        "python",
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0: os.setsid(); time.sleep(60)",
    ),
    Program("python", "import os\nos.kill(os.getpid(), 11)"),
    Program("python", "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))"),
    Program(
        "python", "import os\nfor i in range(999): os.mkdir(f'd{i}'); os.symlink('/', f'd{i}/l')"
    ),
    Program(
        "python",
        (
            "import socket\na, b = socket.socketpair()\nsocket.send_fds(a, [b'x'], "
            "[a.fileno(), b.fileno()])"
        ),
    ),
    Program("bash", "sleep 60 & yes | head -100; echo x > /dev/shm/y"),
]
HONEST = Program("python", "print(int(input()) + 1)")
BURN = Program("python", "import time\nwhile time.process_time() < 0.25: pass\nprint('done')")
EVERY = 10  # one of so many is hostile


def parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            found[int(path.parent.name)] = int(fields[1])
    return found


def processes() -> int:
    """Ours and all that descend from us."""
    of, family = parents(), {os.getpid()}
    while new := {pid for pid, parent in of.items() if parent in family} - family:
        family |= new
    return len(family)


def cgroups() -> int:
    return sum(
        bool(re.search(rf"/rlvr-{os.getpid()}-\d+$", folder))
        for folder, _, _ in os.walk("/sys/fs/cgroup")
    )


def kib(path: str, name: str) -> int:
    return int(re.search(rf"^{name}:\s+(\d+)", Path(path).read_text(), re.MULTILINE)[1])


def census(workers: int) -> dict[str, float]:
    """Counts at rest: each slot a zygote and two boxes in stock, each with its forker."""
    deadline = time.monotonic() + 10
    while processes() > 2 + 5 * workers and time.monotonic() < deadline:
        time.sleep(0.05)
    return {
        "processes": processes(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "cgroups": cgroups(),
        "files in /tmp and /dev/shm": sum(
            len(list(Path(folder).glob("*"))) for folder in ("/tmp", "/dev/shm")
        ),
        "our own memory, MiB": kib("/proc/self/status", "VmRSS") / 1024,
        "shared memory of the machine, MiB": kib("/proc/meminfo", "Shmem") / 1024,
        "kernel memory of the machine that stays, MiB": kib("/proc/meminfo", "SUnreclaim") / 1024,
    }


def soak(runs: int, workers: int) -> bool:
    """A table of counts before and after; whether all that must be equal is."""
    endings: Counter[str] = Counter()
    wrong = 0

    def run(number: int) -> None:
        nonlocal wrong
        hostile = number % EVERY == 0
        found = sandbox.run(
            HOSTILE[number // EVERY % len(HOSTILE)] if hostile else HONEST, str(number)
        )
        endings[found.ending] += 1
        wrong += not hostile and found.text != f"{number + 1}\n"

    def several(first: int, last: int) -> None:  # without a list of them, which would be memory too
        list(
            pool.map(
                lambda start: [None for n in range(start, last, workers) if run(n)],
                range(first, first + workers),
            )
        )

    with Sandbox(limits=LIMITS, workers=workers) as sandbox, ThreadPoolExecutor(workers) as pool:
        several(0, 200)
        before, started = census(workers), time.monotonic()
        several(200, runs)
        took = time.monotonic() - started
        after = census(workers)
    print(
        f"\n{runs} runs, {workers} at once, {(runs - 200) / took:.0f} runs/s: "
        f"{dict(endings.most_common())}; ",
        end="",
    )
    print(f"honest programs that got no right answer: {wrong}\n")
    print("| | after 200 runs | after all |\n|---|---:|---:|")
    for name in before:
        print(f"| {name} | {before[name]:.0f} | {after[name]:.0f} |")
    counts = [name for name in before if "memory" not in name and "files" not in name]
    return wrong == 0 and all(before[name] == after[name] for name in counts)


def loaded(runs: int, flight: int) -> bool:
    """Programs that need half of their CPU limit, many in flight on few cores."""
    limits = Limits(cpu_s=0.5, wall_s=120.0, memory_mib=96)
    with Sandbox(limits=limits, workers=flight) as sandbox, ThreadPoolExecutor(flight) as pool:
        found = list(pool.map(lambda _: sandbox.run(BURN), range(runs)))
    endings = Counter(run.ending for run in found)
    worst_cpu, worst_wall = max(run.cpu_s for run in found), max(run.wall_s for run in found)
    print(
        f"\n{runs} runs that need 0.25 of 0.5 CPU seconds, {flight} in flight: {dict(endings)}, ",
        end="",
    )
    print(f"most CPU {worst_cpu:.3f} s, longest {worst_wall:.2f} s on the wall")
    return set(endings) == {"OK"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--loaded", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--flight", type=int, default=16)
    options = parser.parse_args()
    good = soak(options.runs, options.workers) and loaded(options.loaded, options.flight)
    print(
        f"\n{'nothing is left, no false TLE' if good else 'NOT GOOD'}; largest process "
        f"{resource.getrusage(0).ru_maxrss >> 10} MiB"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
