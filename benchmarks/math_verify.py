r"""How often and how fast graders of mathematics are right,
as the Markdown tables of docs/benchmarks/math.md.

    python -m benchmarks.math_verify --data DATA --peers peers/bin/python --peers inspect/bin/python

`--data` is a folder with gsm8k/, math500/, math_pairs/ and real_math/ (docs/benchmarks/math.md
names their sources); more labelled pairs may be added with `--pairs FILE`.  `--peers` is the
interpreter of another virtual environment, with math-verify, trl or inspect_ai in it: none of them
is needed to use rlvr.  A package that is missing is left out, and a line says so.

One process against one process (rlvr's symbolic engine has a second one, and only one of the two
works at a time).  Each repeat starts a new one for each side, so nothing is remembered from the
last; what is timed comes after a few unrelated pairs have warmed it up.  References are new too: a
trainer, which grades a group against each, will see rlvr's cache of references at work and get
better figures than these.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import random
import re
import select
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.math_cases import PUBLIC, Row, pairs, row, yardstick
from benchmarks.math_generated import generated
from benchmarks.math_hostile import REFERENCE, hostile

SIDES = {"rlvr": "rlvr", "math-verify": "math-verify", "trl": "TRL", "inspect_ai": "inspect_ai"}
PACKAGES = {"rlvr": "rlvr", "math-verify": "math-verify", "trl": "trl", "inspect_ai": "inspect-ai"}
KILL_S = 20.0  # a row that takes longer is stopped from outside and its process started anew
FAMILIES = ("pairs", "real outputs", "restated", "yardstick")
"""Sets whose errors are printed by family have one of these in their names."""
Result = dict[str, Any]


def run(
    python: str, side: str, rows: list[Row], mode: str = "main"
) -> tuple[list[Result], list[int]]:
    """One result per row, in order, and the peak memory of the process and of its largest child,
    in MiB."""
    results: list[Result] = []
    peak = [0, 0]
    while len(results) < len(rows):
        done, found = _run_until_stuck(python, side, rows[len(results) :], mode)
        peak = [max(pair) for pair in zip(peak, found, strict=True)]
        results += done
        if len(results) < len(rows):
            results.append(
                {"id": rows[len(results)]["id"], "right": None, "why": "killed", "s": KILL_S}
            )
    return results, peak


def _run_until_stuck(
    python: str, side: str, rows: list[Row], mode: str
) -> tuple[list[Result], list[int]]:
    command = [python, "-P", str(Path(__file__).with_name("math_sides.py")), side, mode]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as asked:
        asked.writelines(json.dumps(r) + "\n" for r in rows)
        asked.seek(0)
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, stdin=asked, stdout=subprocess.PIPE, stderr=said, env=env
        )
        results, peak, ready = [], [0, 0], False
        patience = KILL_S if mode == "main" else 600.0
        for line in _lines(process, patience):
            if "ready" in line:
                ready = True
            elif "peak_mib" in line:
                peak = line["peak_mib"] or peak
            else:
                results.append(line)
        process.kill()
        process.wait()
        if not ready:
            said.seek(0)
            raise SystemExit(f"{' '.join(command)} did not start:\n{said.read()[-2000:]}")
        return results, peak


def _lines(process: subprocess.Popen[bytes], patience_s: float) -> Iterator[Result]:
    """Its lines, until it ends or says nothing for too long; while it loads,
    it may take five times as long."""
    assert process.stdout is not None
    buffer, wait_s = b"", 5 * patience_s
    while select.select([process.stdout], [], [], wait_s)[0]:
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        if not chunk:
            return
        *whole, buffer = (buffer + chunk).split(b"\n")
        for line in whole:
            wait_s = patience_s
            yield json.loads(line)


# ---------------------------------------------------------------------------------------- measuring


def measure(
    pythons: dict[str, str], rows: list[Row], repeats: int
) -> dict[str, list[list[Result]]]:
    """Side → its runs; the sides take turns."""
    runs: dict[str, list[list[Result]]] = defaultdict(list)
    for _ in range(repeats):
        for side, python in pythons.items():
            runs[side].append(run(python, side, rows)[0])
    return runs


def accuracy(rows: list[Row], results: list[Result]) -> dict[str, Any]:
    """Where a grader raised, it did not say "right"; a trainer that catches that scores 0."""
    wrong = [
        (r, x) for r, x in zip(rows, results, strict=True) if bool(x["right"]) is not r["right"]
    ]
    return {
        "accuracy": 1 - len(wrong) / len(rows),
        "fp": sum(not r["right"] for r, _ in wrong),
        "fn": sum(r["right"] for r, _ in wrong),
        "raised": sum(x["right"] is None for x in results),
        "wrong": wrong,
    }


def times(runs: list[list[Result]]) -> dict[str, float]:
    """ms per pair: the middle one of the repeats' means, of their medians,
    and of their 99th percentiles."""
    by_run = [sorted(x["s"] * 1e3 for x in results) for results in runs]
    return {
        "mean": statistics.median(statistics.fmean(s) for s in by_run),
        "median": statistics.median(statistics.median(s) for s in by_run),
        "p99": statistics.median(s[int(0.99 * (len(s) - 1))] for s in by_run),
        "max": statistics.median(s[-1] for s in by_run),
    }


# ----------------------------------------------------------------------------------------- printing


def print_set(name: str, rows: list[Row], runs: dict[str, list[list[Result]]]) -> None:
    counts = Counter(r["right"] for r in rows)
    print(f"\n**{name}**: {len(rows)} pairs, {counts[True]} right, {counts[False]} wrong\n")
    print(
        "| | accuracy, % | accepted though wrong | rejected though right | raised | ms, "
        "mean | median | 99th % | most ",
        end="",
    )
    print("| mean, × rlvr | same in every run |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    ours = times(runs["rlvr"])["mean"] if "rlvr" in runs else float("nan")
    for side, of_side in runs.items():
        a, t = accuracy(rows, of_side[0]), times(of_side)
        same = all(
            [x["right"] for x in results] == [x["right"] for x in of_side[0]] for results in of_side
        )
        print(
            f"| {SIDES[side]} | {100 * a['accuracy']:.2f} | {a['fp']} | {a['fn']} | {a['raised']} ",
            end="",
        )
        print(f"| {t['mean']:.3g} | {t['median']:.3g} | {t['p99']:.3g} | {t['max']:.3g} ", end="")
        slower, repeated = t["mean"] / ours, ("yes" if same else "no") if len(of_side) > 1 else "–"
        print(
            f"| {slower:,.0f} | {repeated} |" if slower >= 100 else f"| {slower:.3g} | {repeated} |"
        )


def print_disagreements(name: str, rows: list[Row], results: list[Result]) -> None:
    wrong = accuracy(rows, results)["wrong"]
    if wrong:
        print(
            f"\nrlvr on {name}: where it differs from the label\n\n| id | kind | label "
            "| why |\n|---|---|---|---|"
        )
        for r, x in wrong:
            print(
                f"| {r['id']} | {r['kind']} | {'right' if r['right'] else 'wrong'} | "
                f"{x['why'].partition(':')[0]} |"
            )


def print_families(rows: list[Row], runs: dict[str, list[list[Result]]]) -> None:
    print("\nErrors by family, accepted though wrong + rejected though right:\n")
    print(
        f"| family | pairs | {' | '.join(SIDES[side] for side in runs)} |\n"
        f"|---|--:|{'--:|' * len(runs)}"
    )
    for kind in dict.fromkeys(r["kind"] for r in rows):
        where = [i for i, r in enumerate(rows) if r["kind"] == kind]
        found = [
            accuracy([rows[i] for i in where], [of_side[0][i] for i in where])
            for of_side in runs.values()
        ]
        print(f"| {kind} | {len(where)} | {' | '.join('{fp} + {fn}'.format(**a) for a in found)} |")


def print_hostile(pythons: dict[str, str], repeats: int) -> None:
    """Each side once, and rlvr as often as everything else,
    to see that its verdicts do not depend on the day."""
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "executed"
        texts = enumerate(hostile(str(canary)))
        rows = [
            row(f"h{i:02}", kind, REFERENCE, text, False, watch=True) for i, (kind, text) in texts
        ]
        print(f"\n**Hostile answers**: {len(rows)}, none of them right\n")
        print("| | accepted | raised | killed at 20 s | over 1.1 s | s, worst | s, total ", end="")
        print("| MiB, process | MiB, its worker | same in every run | executed |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|---|")
        for side, python in pythons.items():
            runs = [run(python, side, rows) for _ in range(repeats if side == "rlvr" else 1)]
            results = runs[0][0]
            worst = [max(some[i]["s"] for some, _ in runs) for i in range(len(rows))]
            verdicts, reasons = (
                {tuple(x[what] for x in some) for some, _ in runs} for what in ("right", "why")
            )
            peak = [max(mib) for mib in zip(*(mib for _, mib in runs), strict=True)]
            killed = sum(x["why"] == "killed" for x in results)
            raised = sum(x["right"] is None for x in results) - killed
            print(
                f"| {SIDES[side]} | "
                f"{sum(bool(x['right']) for x in results)} | {raised} | {killed} ",
                end="",
            )
            print(
                f"| {sum(s > 1.1 for s in worst)} | {max(worst):.3g} | "
                f"{sum(x['s'] for x in results):.3g} ",
                end="",
            )
            same = (
                "verdict and reason"
                if len(reasons) == 1
                else "verdict"
                if len(verdicts) == 1
                else "no"
            )
            print(f"| {peak[0]} | {peak[1] or '–'} | {same if len(runs) > 1 else '–'} ", end="")
            print(f"| {'yes' if canary.exists() else 'no'} |")
            canary.unlink(missing_ok=True)
            slow = [
                f"{r['id']} ({r['kind']}) {s:.2f} s"
                for r, s in zip(rows, worst, strict=True)
                if s > 1.1
            ]
            if side == "rlvr" and slow:
                print(f"\nrlvr over 1.1 s: {', '.join(slow)}\n")


def print_threads(pythons: dict[str, str], rows: list[Row]) -> None:
    print(
        f"\n**Threads**: {len(rows)} pairs in the main thread, in 32 threads, "
        "and under asyncio (`to_thread`)\n"
    )
    print(
        "| | verdicts that change in threads | raised there | under asyncio | raised "
        "there |\n|---|--:|--:|--:|--:|"
    )
    for side, python in pythons.items():
        main, _ = run(python, side, rows)
        print(f"| {SIDES[side]} ", end="")
        for mode in ("threads", "asyncio"):
            there, _ = run(python, side, rows, mode)
            changed = sum(a["right"] != b["right"] for a, b in zip(main, there, strict=True))
            print(f"| {changed} | {sum(x['right'] is None for x in there)} ", end="")
        print("|")


GOALS: tuple[tuple[str, str, str], ...] = (
    ("red team pairs, any form", "errors", "≤ 1 %, ≤ 8 %"),
    ("MATH-500, restated", "errors", "≤ 0.5 %"),
    ("real outputs", "errors", "no new rejection without an argument"),
    ("GSM8K, as written", "accuracy", "100 %"),
    ("hard pairs", "errors", "no more wrong ones; ≤ 15 rejected"),
    ("adversarial pairs", "accuracy", "100 %"),
    ("MATH-500, own solutions", "accuracy", "100 %"),
    ("MATH-500, rewritten", "accuracy", "≥ 99.5 %"),
    ("MATH-500, another's answer", "errors", "0"),
    ("yardstick", "errors", ""),
    ("real outputs", "mean", "≥ 20 ×"),
    ("GSM8K, as written", "median", "≤ 50 µs"),
    ("MATH-500, own solutions", "median", "≤ 50 µs"),
    ("hard pairs", "mean", "≥ 15 ×"),
)
"""Set, what is counted (`errors`: accepted though wrong, rejected though right), and the goal."""


def print_goals(measured: dict[str, tuple[list[Row], dict[str, list[list[Result]]]]]) -> None:
    """One line for each goal whose set was measured."""
    sides = list(dict.fromkeys(side for _, runs in measured.values() for side in runs))
    print(f"\n**Goals**\n\n| | goal | {' | '.join(SIDES[side] for side in sides)} |")
    print(f"|---|---|{'---|' * len(sides)}")
    for name, what, goal in GOALS:
        if name in measured:
            rows, runs = measured[name]
            cells = [_cell(what, rows, runs[side], runs.get("rlvr")) for side in sides]
            print(f"| {name}: {what} | {goal} | {' | '.join(cells)} |")


def _cell(
    what: str, rows: list[Row], runs: list[list[Result]], ours: list[list[Result]] | None
) -> str:
    a, t = accuracy(rows, runs[0]), times(runs)
    if what == "accuracy":
        return f"{100 * a['accuracy']:.2f} %"
    if what == "errors":
        right = sum(r["right"] for r in rows)
        parts = [f"{a['fp']} of {len(rows) - right}"] * (right < len(rows)) + [
            f"{a['fn']} of {right}"
        ] * (right > 0)
        return " · ".join(parts)
    slower = f" ({t[what] / times(ours)[what]:.3g} ×)" if ours else ""
    return f"{t[what]:.3g} ms{slower}"


# --------------------------------------------------------------------------------------------- main


def sample(rows: list[Row], most: int) -> list[Row]:
    """As many at most, in their order and the same every time."""
    return [
        rows[i]
        for i in sorted(random.Random("sample").sample(range(len(rows)), min(most, len(rows))))
    ]


def versions(python: str) -> dict[str, str]:
    code = "import json, importlib.metadata as m; "
    code += "print(json.dumps({d.name.replace('_', '-'): d.version for d in m.distributions()}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"--peers {python}: it does not run:\n{done.stderr[-500:]}")
    return dict(json.loads(done.stdout))


def interpreters(peers: list[str]) -> tuple[dict[str, str], list[str]]:
    """Side → the first interpreter that has it; and the versions of all that takes part."""
    pythons, said = {"rlvr": sys.executable}, [f"rlvr {importlib.metadata.version('rlvr')}"]
    for python in peers:
        has = versions(python)
        for side, package in PACKAGES.items():
            if side not in pythons and package in has:
                pythons[side] = python
                said.append(f"{package} {has[package]}")
        said += [
            f"{p} {has[p]}"
            for p in ("sympy", "antlr4-python3-runtime")
            if p in has and f"{p} {has[p]}" not in said
        ]
    return {side: pythons[side] for side in SIDES if side in pythons}, said


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the public files")
    parser.add_argument(
        "--pairs", type=Path, action="append", default=[], help="a file of labelled pairs more"
    )
    parser.add_argument(
        "--peers", action="append", default=[], metavar="PYTHON", help="may be given several times"
    )
    parser.add_argument("--repeats", type=int, default=3, choices=range(1, 21), metavar="N")
    parser.add_argument(
        "--only", action="append", help="names of sets, 'hostile' or 'threads'; default: all"
    )
    parser.add_argument("--most", type=int, help="take at most so many rows of each set")
    args = parser.parse_args()
    pythons, said = interpreters([*args.peers, sys.executable])
    cpu = re.search("model name\t: (.*)", Path("/proc/cpuinfo").read_text())
    print(
        f"{datetime.date.today()}: {', '.join(said)}; Python {platform.python_version()}; "
        f"{os.cpu_count()} cores",
        end="",
    )
    print(f" of {cpu[1] if cpu else 'an unnamed CPU'}; the middle one of {args.repeats} runs.")
    for side in [side for side in SIDES if side not in pythons]:
        print(f"{SIDES[side]} is left out: no interpreter that --peers names has it.")

    sets = {name: read(args.data) for name, read in PUBLIC.items() if args.data}
    sets |= {path.stem: pairs(path) for path in args.pairs}
    sets |= {"generated pairs": generated(), "yardstick": yardstick()}
    chosen = args.only or [*sets, "hostile", "threads"]
    if unknown := set(chosen) - {*sets, "hostile", "threads"}:
        parser.error(
            f"--only {', '.join(sorted(unknown))}: no such set; "
            f"there are {', '.join(sets)}, hostile, threads"
        )
    measured = {}
    for name, rows in sets.items():
        if name in chosen:
            rows = sample(rows, args.most or len(rows))
            measured[name] = rows, measure(pythons, rows, args.repeats)
            runs = measured[name][1]
            print_set(name, rows, runs)
            if len({r["kind"] for r in rows}) > 1 and any(part in name for part in FAMILIES):
                print_families(rows, runs)
            print_disagreements(name, rows, runs["rlvr"][0])
    print_goals(measured)
    if "hostile" in chosen:
        print_hostile(pythons, args.repeats)
    if "threads" in chosen:
        print_threads(pythons, [r for rows in sets.values() for r in sample(rows, 60)])


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
