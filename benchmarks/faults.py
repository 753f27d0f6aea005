"""What faults do to results, as the Markdown table of docs/benchmarks/faults.md.

    python -m benchmarks.faults [--rounds 3] [--only forks]

Nothing outside this repository is read.  A line of the table counts the tries, and of each outcome
how often it came: `whole` (the result of an undisturbed run), `said` (an error or warning that
names the fault, and no wrong result), and `silent` (a result that differs, and nothing that says
so), which must be 0.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rlvr.data.rows import Journal, dump_row, read_whole
from rlvr.errors import DataError, Unscored, UsageError
from rlvr.workers import WorkerPool

WHOLE, SAID, SILENT = "whole", "said", "silent"


def _leave(way: str) -> Any:
    match way:
        case "return":
            return None
        case "exit":
            sys.exit(0)
        case "raise":
            raise ValueError("of a child")
        case _:
            os._exit(0)


def _forking(at: int, way: str) -> Callable[[int], Any]:
    def handle(item: int) -> Any:
        if item == at and not os.fork():
            return _leave(way)
        return item

    return handle


def forks(rng: random.Random) -> Iterator[str]:
    """200 runs of 2,000 items on two workers; at a random one the handler forks,
    and the child leaves in some way."""
    for number in range(200):
        setup = partial(
            _forking, rng.randrange(2000), ("return", "exit", "raise", "end")[number % 4]
        )
        with WorkerPool(setup, workers=2, spares=0) as pool:
            found: list[Any] = []
            for start in range(0, 2000, 64):
                found += pool.run(range(start, min(start + 64, 2000)), wall_s=60.0)
        wrong = [
            value
            for item, value in enumerate(found)
            if value != item and not isinstance(value, Unscored)
        ]
        lost = [value for value in found if isinstance(value, Unscored)]
        yield SILENT if wrong or len(found) != 2000 else SAID if lost else WHOLE


def records_flipped(rng: random.Random, name: str) -> Iterator[str]:
    """1,000 single bits of a file of 200 scores."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        scores = [
            {"id": f"row {n}", "total": n / 7, "parts": {"correct": n / 7}, "text": "ä" * n}
            for n in range(200)
        ]
        with Journal(path, checksums=True) as journal:
            for row in scores:
                journal.write(row)
            journal.finish()
        whole = path.read_bytes()
        for _ in range(1000):
            damaged = bytearray(whole)
            damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            try:
                yield WHOLE if list(read_whole(path)) == scores else SILENT
            except DataError:
                yield SAID


def checkpoints_flipped(rng: random.Random) -> Iterator[str]:
    """400 single bits of a checkpoint."""
    import torch

    from rlvr.train import checkpoint

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        state = {"step": 1, "w": {f"layer {n}": torch.randn(64, 64) for n in range(12)}}
        path = checkpoint.save(Path(folder), 1, state, keep=1)
        whole = path.read_bytes()
        for _ in range(400):
            damaged = bytearray(whole)
            damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            try:
                checkpoint.load_checkpoint(path)
                yield SILENT
            except (DataError, RuntimeWarning):
                yield SAID


def second_writers(rng: random.Random, name: str) -> Iterator[str]:
    """100 runs; a second one, with flags drawn at random, starts at a random moment of the
    first."""
    for _ in range(100):
        with tempfile.TemporaryDirectory() as folder:
            path, ends = Path(folder) / name, Counter[str]()
            flags = rng.choice([{}, {"resume": True}, {"overwrite": True}])
            after_s = rng.random() * 0.03

            def run(
                who: str, wait_s: float, flags: dict[str, bool], path: Path = path, ends: Any = ends
            ) -> None:
                time.sleep(wait_s)
                try:
                    with Journal(path, checksums=True, **flags) as journal:
                        if journal.done:
                            ends["mixed"] += 1
                        for n in range(300):
                            journal.write({"id": f"{who}/{n}"})
                        journal.finish()
                    ends[who] += 1
                except UsageError:
                    ends["refused"] += 1
                except Exception:  # noqa: BLE001  nothing else may come of it
                    ends["mixed"] += 1

            threads = [
                threading.Thread(target=run, args=one)
                for one in (("a", 0.0, {}), ("b", after_s, flags))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ids = [str(row["id"]) for row in read_whole(path)]
            last = ids[0][0]
            rows_are_ones = ids == [f"{last}/{n}" for n in range(300)]
            replaced = ends["a"] and ends["b"] and not flags.get("overwrite")
            one_too_many = ends["a"] and not ends["b"] and last != "a"
            good = rows_are_ones and ends[last] and not (replaced or one_too_many or ends["mixed"])
            yield SILENT if not good else SAID if ends["refused"] else WHOLE


def partial_changed(rng: random.Random, name: str) -> Iterator[str]:
    """100 runs whose `.partial` is replaced, cut or added to by another program,
    or whose output appears meanwhile."""
    for _ in range(100):
        with tempfile.TemporaryDirectory() as folder:
            path, how, at = (
                Path(folder) / name,
                rng.choice(["replace", "cut", "add", "output"]),
                rng.randrange(1, 50),
            )
            try:
                with Journal(path, checksums=True) as journal:
                    for n in range(50):
                        if n == at:
                            _disturb(journal, how)
                        journal.write({"id": str(n)})
                    journal.finish()
            except UsageError:
                yield SAID if how == "output" or not path.exists() else SILENT
            else:
                yield (
                    WHOLE
                    if [row["id"] for row in read_whole(path)] == [str(n) for n in range(50)]
                    else SILENT
                )


def _disturb(journal: Journal, how: str) -> None:
    if how == "replace":
        other = journal.partial.with_name("other")
        other.write_bytes(dump_row({"id": "other"}))
        other.replace(journal.partial)
    elif how == "cut":
        os.truncate(journal.partial, max(journal.partial.stat().st_size - 7, 0))
    elif how == "add":
        with journal.partial.open("ab") as file:
            file.write(dump_row({"id": "other"}))
    else:
        journal.path.write_bytes(dump_row({"id": "other"}))


def power_cuts(rng: random.Random, name: str) -> Iterator[str]:
    """Every state that a power cut may leave while a file of scores is written;
    see tests/faults/crashes.py."""
    from tests.faults.crashes import recorded

    scores = [{"id": f"row {n}", "text": "x" * rng.randrange(500)} for n in range(30)]
    with tempfile.TemporaryDirectory() as folder:
        run, left = Path(folder) / "run", Path(folder) / "left"
        run.mkdir()
        with recorded(run) as seen, Journal(run / name, checksums=True) as journal:
            for row in scores:
                journal.write(row)
            journal.finish()
        for state in seen.states:
            shutil.rmtree(left, ignore_errors=True)
            left.mkdir()
            for file, content in state.items():
                (left / file).write_bytes(content)
            if name in state:
                yield WHOLE if list(read_whole(left / name)) == scores else SILENT
                continue
            with Journal(left / name, resume=True, checksums=True) as journal:
                done = list(journal.rows())
                yield WHOLE if done == scores[: len(done)] else SILENT


def full_disks(rng: random.Random) -> Iterator[str]:
    """100 runs in which a random write fails; then the run is resumed."""
    for _ in range(100):
        at = rng.randrange(50)
        with tempfile.TemporaryDirectory() as folder:
            path, said = Path(folder) / "out.jsonl", False
            try:
                with Journal(path, checksums=True) as journal:
                    for n in range(50):
                        if n == at:
                            journal._file.close()
                            journal._file = open("/dev/full", "ab")  # noqa: PTH123, SIM115
                        journal.write({"id": str(n)})
                    journal.finish()
            except OSError as error:
                said = str(journal.partial) in str(error)
            with Journal(path, resume=True, checksums=True) as journal:
                for n in range(journal.done, 50):
                    journal.write({"id": str(n)})
                journal.finish()
            whole = [row["id"] for row in read_whole(path)] == [str(n) for n in range(50)]
            yield SAID if whole and said else SILENT


def kills(rng: random.Random, name: str) -> Iterator[str]:
    """20 scoring runs that are killed at random moments until one comes to its end;
    each is started with --resume."""
    with tempfile.TemporaryDirectory() as folder:
        rows, path, whole = (Path(folder) / file for file in ("in.jsonl", name, f"whole-{name}"))
        rows.write_text(
            "".join(dump_row({"task": n % 50, "completion": f"{n}"}).decode() for n in range(3000))
        )
        score = [
            sys.executable,
            "-m",
            "rlvr",
            "score",
            "arithmetic-v1",
            str(rows),
            "--workers",
            "2",
            "-o",
        ]
        subprocess.run([*score, str(whole)], check=False, capture_output=True)
        for _ in range(20):
            path.unlink(missing_ok=True)
            said = False
            for _ in range(4):
                argv = [
                    *score,
                    str(path),
                    *(["--resume"] if path.with_name(name + ".partial").exists() else []),
                ]
                with subprocess.Popen(
                    argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                ) as run:
                    time.sleep(rng.uniform(0.3, 2.0))
                    run.kill()
                said = said or run.returncode == -signal.SIGKILL
                if path.exists():
                    break
            if not path.exists():
                subprocess.run([*score, str(path), "--resume"], check=False, capture_output=True)
            equal = list(read_whole(path)) == list(read_whole(whole))
            yield SILENT if not equal else SAID if said else WHOLE


def costs() -> Iterator[tuple[str, float, float]]:
    """What the protection costs: (what, seconds with it, seconds without), medians of 5."""
    rows = [{"id": f"row {n}", "total": 1.0, "completion": "x" * 200} for n in range(100_000)]

    def written(checksums: bool) -> float:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            with Journal(Path(folder) / "out.jsonl", checksums=checksums) as journal:
                for row in rows:
                    journal.write(row)
                journal.finish()
            return time.perf_counter() - started

    pairs = [(written(True), written(False)) for _ in range(5)]
    yield "100,000 rows written", *map(statistics.median, zip(*pairs, strict=True))
    import rlvr

    env = rlvr.make("arithmetic-v1")
    given = [{"task": n % 1000, "completion": "\\boxed{1}", "id": str(n)} for n in range(20_000)]

    def scored(checksums: bool) -> float:
        from rlvr.records import provenance, record

        run = provenance(env, "arithmetic-v1")
        with (
            tempfile.TemporaryDirectory() as folder,
            rlvr.Scorer(env, workers=2) as scorer,
            Journal(Path(folder) / "out.jsonl", checksums=checksums) as journal,
        ):
            started = time.perf_counter()
            for one in scorer.stream(given):
                journal.write(record(one, run))
            journal.finish()
            return time.perf_counter() - started

    pairs = [(scored(True), scored(False)) for _ in range(5)]
    yield "20,000 trivial rows scored", *map(statistics.median, zip(*pairs, strict=True))
    import torch

    from rlvr.train import checkpoint

    state = {f"layer {n}": torch.randn(1000, 1250) for n in range(20)}

    def saved(ours: bool) -> float:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            if ours:
                checkpoint.save(Path(folder), 1, state, keep=1)
            else:
                with (Path(folder) / "plain.pt").open("wb") as file:
                    torch.save(state, file)
                    file.flush()
                    os.fsync(file.fileno())
            return time.perf_counter() - started

    pairs = [(saved(True), saved(False)) for _ in range(5)]
    yield "a checkpoint of 100 MB", *map(statistics.median, zip(*pairs, strict=True))


FAULTS: dict[str, tuple[str, Callable[[random.Random], Iterator[str]]]] = {
    "forks": ("a verifier forks at a random one of 2,000 rows", forks),
    "records": ("one bit flipped in scores, JSONL", lambda rng: records_flipped(rng, "out.jsonl")),
    "parquet": (
        "one bit flipped in scores, Parquet",
        lambda rng: records_flipped(rng, "out.parquet"),
    ),
    "checkpoints": ("one bit flipped in a checkpoint", checkpoints_flipped),
    "writers": (
        "a second run on the same output, JSONL",
        lambda rng: second_writers(rng, "out.jsonl"),
    ),
    "writers-parquet": (
        "a second run on the same output, Parquet",
        lambda rng: second_writers(rng, "out.parquet"),
    ),
    "partial": (
        "the partial file or the output changed meanwhile",
        lambda rng: partial_changed(rng, "out.jsonl"),
    ),
    "power": (
        "a power cut while scores are written, JSONL",
        lambda rng: power_cuts(rng, "out.jsonl"),
    ),
    "power-parquet": (
        "a power cut while scores are written, Parquet",
        lambda rng: power_cuts(rng, "out.parquet"),
    ),
    "kills": (
        "SIGKILL at random moments of a scoring run, then --resume, JSONL",
        lambda rng: kills(rng, "out.jsonl"),
    ),
    "kills-parquet": (
        "SIGKILL at random moments, then --resume, Parquet",
        lambda rng: kills(rng, "out.parquet"),
    ),
    "full": ("the disk is full at a random row, then --resume", full_disks),
}


def main() -> None:
    """Print the tables; exit code 1 if anything went wrong in silence."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each fault is tried, with another seed"
    )
    parser.add_argument("--only", choices=[*FAULTS, "costs"], help="one line of the tables")
    args = parser.parse_args()
    silent = 0
    print("| fault | tries | the undisturbed result | said | silent |\n|---|--:|--:|--:|--:|")
    for name, (what, tried) in FAULTS.items():
        if args.only in (None, name):
            found = Counter(
                one for k in range(args.rounds) for one in tried(random.Random(f"{name}/{k}"))
            )
            silent += found[SILENT]
            print(
                f"| {what} | {found.total():,} | {found[WHOLE]:,} | "
                f"{found[SAID]:,} | {found[SILENT]} |",
                flush=True,
            )
    if args.only in (None, "costs"):
        print("\n| | s, with protection | without | cost |\n|---|--:|--:|--:|")
        for what, with_s, without_s in costs():
            print(
                f"| {what} | {with_s:.3f} | {without_s:.3f} | {with_s / without_s - 1:+.1%} |",
                flush=True,
            )
    sys.exit(bool(silent))


if __name__ == "__main__":
    main()
