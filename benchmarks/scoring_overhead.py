r"""Time to score, beside TRL and verifiers, as the Markdown tables of docs/benchmarks/scoring.md.

    python -m benchmarks.scoring_overhead --data example_model_solutions.jsonl \
        --peers peers/bin/python

`--peers` is the interpreter of another virtual environment, with trl, math-verify and
verifiers==0.4.0, which are no dependencies of rlvr.  A peer that is missing is left out, and a line
says so; without `--data`, so is GSM8K.

Every measurement of every side runs in a new process with nothing else in it, and the sides take
turns, so that a slow minute of the machine falls on all of them.  What is timed was warmed up
before.
"""

import argparse
import asyncio
import datetime
import gc
import json
import operator
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

# This folder comes first on the path of its scripts, and holds a math_verify.py that is not the
# package.
sys.path[:] = [
    place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent
]

COMPLETIONS = 5000  # of the trivial kind
HEAVY = ("torch", "transformers", "datasets", "sympy")
IMPORTS = {
    "rlvr": ("import rlvr", "import rlvr; rlvr.make('gsm8k-v4')"),
    "trl": ("import trl", "from trl.rewards import accuracy_reward"),
    "verifiers": ("import verifiers", "import verifiers.v1"),
}
CHECKS = {  # how each side checks a completion of GSM8K
    ("rlvr", "0"): "rlvr, `env.score`",
    ("rlvr", "2"): "rlvr, `Scorer(env, workers=2).stream`",
    ("trl",): "TRL, `accuracy_reward`",
    ("verifiers",): "verifiers, `verify_boxed_math_answer`",
}
FORMS = {"raw": "`A: 18`, as in the file", "boxed": "`A: 18` made `\\boxed{18}`"}


def overhead_rlvr() -> dict[str, float]:
    """µs per completion: a score with its parts and its reason, from two checks."""
    import rlvr

    texts = [str(i) for i in range(COMPLETIONS)]
    reward = rlvr.Correct(operator.eq) + 0.1 * rlvr.Format(str.isdecimal)
    env = rlvr.Environment.from_rows(
        [{"prompt": f"Say {t}.", "reference": t} for t in texts], reward=reward
    )
    pairs = [(env.task(i), text) for i, text in enumerate(texts)]
    rows = [{"task": i, "completion": text} for i, text in enumerate(texts)]
    found = {
        "the two checks alone": per_item_us(
            lambda: [operator.eq(t, t) + 0.1 * str.isdecimal(t) for t in texts]
        ),
        "rlvr, `env.score`": per_item_us(
            lambda: [env.score(task, text).total for task, text in pairs]
        ),
    }
    for workers in (0, 1, 2):
        with rlvr.Scorer(env, workers=workers) as scorer:
            stream = per_item_us(lambda: [scored.score.total for scored in scorer.stream(rows)])
            found[f"rlvr, `Scorer(env, workers={workers}).stream`"] = stream
    return found


def per_item_us(work: Callable[[], list[float]]) -> float:
    work()
    gc.collect()
    start = perf_counter()
    totals = work()
    took = perf_counter() - start
    assert totals == [1.1] * COMPLETIONS
    return took / COMPLETIONS * 1e6


def overhead_verifiers() -> dict[str, float]:
    """The same as rewards of a `vf.Task`, scored as verifiers' `replay` does;
    traces are built as by its `validate`."""
    import verifiers.v1 as vf

    class Data(vf.TaskData):
        answer: str

    class Say(vf.Task[Data]):
        @vf.reward
        async def correct(self, trace: vf.Trace) -> float:
            return float(operator.eq(trace.last_reply, self.data.answer))

        @vf.reward(weight=0.1)
        async def format(self, trace: vf.Trace) -> float:
            return float(str.isdecimal(trace.last_reply))

    agent = vf.AgentConfig()
    tasks = [Say(Data(idx=i, prompt=f"Say {i}.", answer=str(i))) for i in range(COMPLETIONS)]

    async def run() -> dict[str, float]:
        score_s = both_s = 0.0
        for task in tasks:
            start = perf_counter()
            kind = vf.TraceTask(
                type=type(task).__name__, data=task.data, key=task.key, hash=task.hash
            )
            trace = vf.Trace(task=kind, agent=vf.AgentInfo(config=agent))
            trace.nodes.append(
                vf.MessageNode(message=vf.AssistantMessage(content=task.data.answer), sampled=True)
            )
            built = perf_counter()
            await task.score(trace)
            done = perf_counter()
            score_s, both_s = score_s + done - built, both_s + done - start
            assert trace.reward == 1.1
        us = 1e6 / COMPLETIONS
        return {
            "verifiers, `task.score(trace)`": score_s * us,
            "verifiers, that and building the trace": both_s * us,
        }

    asyncio.run(run())
    gc.collect()
    return asyncio.run(run())


def gsm8k(data: str, form: str, side: str, workers: str = "0") -> dict[str, float]:
    """Warmed on numbers that the file does not have, then timed over the file, once."""
    completions, references, labels = [], [], []
    for row in map(json.loads, Path(data).read_text(encoding="utf-8").splitlines()):
        for said in [
            column for column in row.values() if isinstance(column, dict)
        ]:  # one of the four models
            completions.append(in_form(form, said["solution"]))
            references.append(row["ground_truth"].rpartition("A:")[2].strip())
            labels.append(said["is_correct"])
    check = checker(side, int(workers))
    unseen = [f"{10**9 + i}.125" for i in range(100)]
    check([in_form(form, f"It is\nA: {number}") for number in unseen], unseen)
    gc.collect()
    start = perf_counter()
    pairs = list(zip(check(completions, references), labels, strict=True))
    took = perf_counter() - start
    errors = {"missed": pairs.count((False, True)), "fooled": pairs.count((True, False))}
    return {
        "per_s": len(pairs) / took,
        "right": labels.count(True),
        "wrong": labels.count(False),
    } | errors


def in_form(form: str, completion: str) -> str:
    before, marker, answer = completion.rpartition("A:")
    return f"{before}\\boxed{{{answer.strip()}}}" if form == "boxed" and marker else completion


def checker(side: str, workers: int) -> Callable[[list[str], list[str]], list[bool]]:
    """A function of (completions, references) that says which are right,
    called as the side's own docs call it."""
    if side == "trl":
        from trl.rewards import accuracy_reward

        return lambda cs, rs: [
            x == 1.0
            for x in accuracy_reward([[{"role": "assistant", "content": c}] for c in cs], rs)
        ]
    if side == "verifiers":
        from verifiers.v1 import verify_boxed_math_answer

        return lambda cs, rs: [
            verify_boxed_math_answer(c, r) == 1.0 for c, r in zip(cs, rs, strict=True)
        ]
    import rlvr

    env = rlvr.make("gsm8k-v4")
    scorer = rlvr.Scorer(env, workers=workers)

    def check(completions: list[str], references: list[str]) -> list[bool]:
        rows = [
            {"completion": c, "reference": r} for c, r in zip(completions, references, strict=True)
        ]
        if workers:
            return [scored.score.verdict.correct for scored in scorer.stream(rows)]
        return [env.score(env.task_of(row), row["completion"]).verdict.correct for row in rows]

    return check


def plan(
    pythons: dict[str, str], data: str | None, fresh: str
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """What is measured, and the command that prints it as JSON."""
    for side, python in pythons.items():
        ask = [python, __file__, "--measure"]
        if side != "trl":  # which has no frame around its checks
            yield ("overhead", side), [*ask, f"overhead_{side}"]
        for i, statement in enumerate(IMPORTS[side]):
            code = (
                f"import sys, time; t = time.perf_counter(); {statement}; "
                "s = time.perf_counter() - t; import json; "
            )
            code += (
                f"print(json.dumps({{'s': s, 'loads': [m for m in {HEAVY} if m in sys.modules]}}))"
            )
            yield ("import", statement), [python, "-c", code]
            # No bytecode is there: every module is compiled, as after an install by uv.
            yield (
                ("first", statement),
                [python, "-X", f"pycache_prefix={fresh}/{side}{i}", "-c", code],
            )
        for form, check in [
            (form, check) for form in FORMS for check in CHECKS if data and check[0] == side
        ]:
            yield ("gsm8k", form, *check), [*ask, "gsm8k", str(data), form, *check]


def output(*command: str) -> Any:
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def spread(runs: list[dict[str, Any]], name: str) -> str:
    shown = (f(run[name] for run in runs) for f in (statistics.median, min, max))
    return "{} ({}–{})".format(
        *(f"{float(f'{x:.3g}'):,.0f}" if x >= 100 else f"{x:.3g}" for x in shown)
    )


def ratio(
    runs: list[dict[str, Any]], name: str, base: list[dict[str, Any]], base_name: str
) -> float:
    """The median over rounds, for what the two took in one round they took in the same minute."""
    return statistics.median(
        run[name] / other[base_name] for run, other in zip(runs, base, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="example_model_solutions.jsonl of openai/grade-school-math")
    parser.add_argument(
        "--peers", default=sys.executable, help="Python interpreter that has the peers"
    )
    parser.add_argument("--repeats", type=int, default=5, choices=range(1, 21), metavar="N")
    args = parser.parse_args()
    if not shutil.which(args.peers):
        parser.error(f"--peers {args.peers}: no such program; give a Python interpreter")
    if args.data and not Path(args.data).is_file():
        parser.error(
            f"--data {args.data}: no such file; docs/benchmarks/scoring.md says where it comes from"
        )
    code = (
        "import json, importlib.metadata as m; "
        "print(json.dumps({d.name: d.version for d in m.distributions()}))"
    )
    has = output(args.peers, "-c", code) | {"rlvr": output(sys.executable, "-c", code)["rlvr"]}
    pythons = {side: args.peers for side in IMPORTS if side in has} | {"rlvr": sys.executable}
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for _ in range(args.repeats):
        with tempfile.TemporaryDirectory() as fresh:
            for key, command in plan(pythons, args.data, fresh):
                runs[key].append(output(*command))

    cpu = re.search("model name\t: (.*)", Path("/proc/cpuinfo").read_text())
    named = ", ".join(f"{name} {has[name]}" for name in (*IMPORTS, "math-verify") if name in has)
    print(
        f"{datetime.date.today()}; {named}; Python {platform.python_version()}; "
        f"{os.cpu_count()} cores of",
        end=" ",
    )
    print(
        f"{cpu[1] if cpu else platform.machine()}; "
        f"median (least–greatest) of {args.repeats} rounds."
    )
    print(
        *(
            f"\nLeft out: {side}; the interpreter of --peers does not have it."
            for side in IMPORTS
            if side not in has
        )
    )
    print("" if args.data else "\nLeft out: GSM8K; there is no --data.\n")
    print("| Two trivial checks | µs per completion | time, × `env.score` |\n|---|--:|--:|")
    for found in [runs[key] for key in runs if key[0] == "overhead"]:
        for name in found[0]:
            slower = ratio(found, name, runs["overhead", "rlvr"], "rlvr, `env.score`")
            print(f"| {name} | {spread(found, name)} | {slower:.2g} |")

    print(
        "\n| Import | s | s, nothing compiled | which of the heavy four it loads |\n"
        "|---|--:|--:|---|"
    )
    for statement in [key[1] for key in runs if key[0] == "import"]:
        found, loads = runs["import", statement], ", ".join(runs["import", statement][0]["loads"])
        print(
            f"| `{statement}` | {spread(found, 's')} | "
            f"{spread(runs['first', statement], 's')} | {loads or 'none'} |"
        )
    if not args.data:
        return
    print(
        "\n| GSM8K | it saw | completions/s | time, × `env.score` | right, "
        "scored 0 | wrong, scored 1 |"
    )
    print("|---|---|--:|--:|--:|--:|")
    for form, check in [
        (form, check) for form in FORMS for check in CHECKS if ("gsm8k", form, *check) in runs
    ]:
        found = runs["gsm8k", form, *check]
        slower = ratio(runs["gsm8k", form, "rlvr", "0"], "per_s", found, "per_s")
        print(
            f"| {CHECKS[check]} | {FORMS[form]} | {spread(found, 'per_s')} | {slower:.2g} |",
            end=" ",
        )
        print("{missed} of {right} | {fooled} of {wrong} |".format(**found[0]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:  # a process of `plan`
        print(json.dumps(globals()[sys.argv[2]](*sys.argv[3:])))
    else:
        main()
