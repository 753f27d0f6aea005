"""What wrong answers the rewards of other libraries pay: the works of `rlvr strength`,
each with its evidence.

    python -m benchmarks.strength_peers DATA [--tasks 150] [--peer NAME=PYTHON ...] [-o holes.jsonl]

DATA holds math500/test.jsonl and gsm8k/test.jsonl.  Each peer runs in an interpreter in which it is
installed (this file alone is run there), by default this one.  A hole is a completion that is paid
although a digit, a point or a letter shows it to be wrong, or its making (two answers, a list of
candidates), or a text that three tasks pay whose answers differ.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

BOXED, HASHES = ("\\boxed{", "}"), ("#### ", "")
OWN_FORMS = ("verl", "inspect_ai")  # have a reward of their own for GSM8K's form; others get boxes
WORKS = 8
CATALOGUE = (
    "permuted",
    "not-a-number",
    "hedge",
    "several-boxes",
    "candidates",
    "substring",
    "look-alike",
)
"""Completions of `rlvr check` that deserve nothing, three of each kind at a task."""
FAMILIES = (
    *(
        "gcd",
        "lcm",
        "chain_sum",
        "basic_arithmetic",
        "count_bits",
        "leg_counting",
        "letter_counting",
    ),
    *("number_sorting", "word_sorting", "spell_backward", "caesar_cipher", "base_conversion"),
)
"""Of reasoning-gym, with one right answer each."""

# -------------------------------------------------------------------- in the peer's own interpreter


def _trl() -> tuple[Callable[[str, Any], float], list[str]]:
    from trl.rewards import accuracy_reward

    def grade(completion: str, reference: Any) -> float:
        message = [{"role": "assistant", "content": completion}]
        return accuracy_reward([message], [f"${reference}$"])[0] or 0.0

    return grade, ["trl.rewards.accuracy_rewards"]


def _math_verify() -> tuple[Callable[[str, Any], float], list[str]]:
    from math_verify import parse, verify

    return lambda completion, reference: float(
        verify(parse(f"${reference}$"), parse(completion))
    ), [
        "math_verify.parser",
        "math_verify.grader",
    ]


def _inspect_ai() -> tuple[Callable[[str, Any], float], list[str]]:
    import asyncio

    from inspect_ai.model import ModelName, ModelOutput
    from inspect_ai.scorer import Target, match
    from inspect_ai.scorer._math import math
    from inspect_ai.solver import TaskState

    loop, scorers = asyncio.new_event_loop(), {True: match(numeric=True), False: math()}

    def grade(completion: str, reference: Any) -> float:
        output, name = ModelOutput.from_content("none/none", completion), ModelName("none/none")
        state = TaskState(name, 0, 0, "", [], output=output)
        scorer = scorers[completion.startswith("####")]  # GSM8K's task asks for `match`
        return float(loop.run_until_complete(scorer(state, Target(str(reference)))).value == "C")

    return grade, ["inspect_ai.scorer._math", "inspect_ai.scorer._common"]


def _verl() -> tuple[Callable[[str, Any], float], list[str]]:
    """Its files alone: the package imports ray."""
    folder = Path(
        str(importlib.metadata.distribution("verl").locate_file("verl/utils/reward_score"))
    )

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"verl_{name}", folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    gsm8k, math = load("gsm8k"), load("math_reward")

    def grade(completion: str, reference: Any) -> float:
        module = gsm8k if completion.startswith("####") else math
        return float(module.compute_score(completion, str(reference)))

    return grade, [str(folder / f"{name}.py") for name in ("gsm8k", "math_reward")]


def _reasoning_gym() -> tuple[Callable[[str, Any], float], list[str]]:
    import reasoning_gym

    sets = {family: reasoning_gym.create_dataset(family, size=1, seed=0) for family in FAMILIES}

    def grade(completion: str, reference: Any) -> float:
        return float(sets[reference["family"]].score_answer(completion, reference["entry"]))

    return grade, [type(one).__module__ for one in sets.values()]


def _rlvr() -> tuple[Callable[[str, Any], float], list[str]]:
    from rlvr.verifiers.math import MathVerifier

    verifier = MathVerifier()
    return lambda completion, reference: verifier.verify(completion, str(reference)).value, []


PEERS = {
    "rlvr": _rlvr,
    "trl": _trl,
    "verl": _verl,
    "math-verify": _math_verify,
    "inspect_ai": _inspect_ai,
    "reasoning-gym": _reasoning_gym,
}
PACKAGES = {"inspect_ai": "inspect-ai"}


def serve(name: str) -> None:
    """Grade (completion, reference) pairs, a line each; first say which constants the code has."""
    del sys.path[0]  # this folder, which has a math_verify of its own
    replies, sys.stdout = sys.stdout, sys.stderr  # some graders print
    grade, modules = PEERS[name]()
    about = {"version": importlib.metadata.version(PACKAGES.get(name, name))}
    print(
        json.dumps(about | {"constants": sorted(set(_constants(modules)))}),
        file=replies,
        flush=True,
    )
    for line in sys.stdin:
        completion, reference = json.loads(line)
        try:
            paid = grade(completion, reference)
        except Exception:  # noqa: BLE001  whatever a grader raises, it pays nothing
            paid = 0.0
        print(json.dumps([paid, time.process_time()]), file=replies, flush=True)


def _constants(modules: Sequence[str]) -> Iterator[str]:
    """Texts in the grader's own code, as `rlvr check` takes them from a user's."""
    for name in modules:
        path: str | None = name
        if not name.endswith(".py"):
            path = importlib.util.find_spec(name).origin  # type: ignore[union-attr]
        for node in ast.walk(ast.parse(Path(str(path)).read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and len(node.value) < 300
            ):
                yield node.value


# ------------------------------------------------------------------------- in ours


class Peer:
    """A peer's grader in its own process."""

    def __init__(self, name: str, python: str) -> None:
        command = [python, "-W", "ignore", __file__, "--serve", name]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        about = json.loads(self._line())
        self.name, self.version, self.constants = name, about["version"], about["constants"]
        self.cpu_s = 0.0

    def pay(self, completion: str, reference: Any) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([completion, reference]) + "\n")
        self.process.stdin.flush()
        paid, self.cpu_s = json.loads(self._line())
        return float(paid)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def _answers(data: Path, count: int, peer: str) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """(question, answer, form) of both sets."""
    from benchmarks.common import rows

    for row in list(rows(data / "math500/test.jsonl"))[:count]:
        yield row["problem"], row["answer"], BOXED
    for row in list(rows(data / "gsm8k/test.jsonl"))[:count]:
        answer = row["answer"].rpartition("####")[2].strip().replace(",", "")
        yield row["question"], answer, HASHES if peer in OWN_FORMS else BOXED


def measure(peer: Peer, data: Path, count: int) -> Iterator[dict[str, Any]]:
    """The holes of a peer; the last item has the numbers."""
    import rlvr
    from rlvr.testing.exploits import Known, attempts
    from rlvr.testing.searched import search_texts
    from rlvr.testing.work import Untested, maker_for
    from rlvr.verifiers.math import MathVerifier

    if peer.name == "reasoning-gym":
        tasks = [
            (entry["question"], entry["answer"], ("", ""), {"family": family, "entry": entry})
            for family in FAMILIES
            for entry in _entries(family, max(3, count // 6))
        ]
    else:
        tasks = [
            (question, answer, form, answer)
            for question, answer, form in _answers(data, count, peer.name)
        ]
    made, tries = 0, Counter[tuple[str, str]]()
    for question, answer, (before, after), reference in tasks:
        row = [{"prompt": question, "reference": answer}]
        env = rlvr.Environment.from_rows(
            row, verifier=MathVerifier(), example=lambda task: f"\\boxed{{{task.reference}}}"
        )
        maker, task = maker_for(env), env.task(0)
        assert maker is not None
        try:
            works = list(maker.wrong(task, rlvr.seeded("peers", question)))[:WORKS]
        except Untested:
            continue
        for work in works:
            witness = maker.witness(task, work)
            if witness is None or peer.pay(f"{before}{answer}{after}", reference) < 1:
                continue
            made += 1
            wrong = work.text.removeprefix("\\boxed{").removesuffix("}")
            if peer.pay(f"{before}{wrong}{after}", reference) >= 1:
                yield {
                    "cause": work.operator,
                    "right": answer,
                    "paid": wrong,
                    "evidence": witness.given,
                }
        example = f"{before}{answer}{after}"
        for attempt in attempts(Known(task, example, answer), [], rlvr.seeded("tries", question)):
            if attempt.hole not in CATALOGUE or attempt.lucky or tries[attempt.hole, question] == 3:
                continue
            tries[attempt.hole, question] += 1
            made += 1
            if peer.pay(attempt.text, reference) >= 1:
                yield {
                    "cause": attempt.hole,
                    "right": answer,
                    "paid": attempt.text,
                    "evidence": "it deserves nothing by its making",
                }
    yield from _searched(peer, tasks, search_texts)
    yield {"made": made}


def _searched(peer: Peer, tasks: Sequence[Any], search_texts: Any) -> Iterator[dict[str, Any]]:
    import rlvr

    by_kind: dict[Any, dict[str, Any]] = {}
    for _, answer, form, reference in tasks:
        kind = reference["family"] if isinstance(reference, dict) else form
        by_kind.setdefault(kind, {}).setdefault(answer, (reference, form))
    for kind, answers in by_kind.items():
        three = dict(list(answers.items())[:3])
        if len(three) < 3:
            continue
        asked = [rlvr.Task(answer, "", reference) for answer, (reference, _) in three.items()]

        def are_correct(task: Any, texts: Sequence[str]) -> list[bool]:
            return [peer.pay(text, task.reference) >= 1 for text in texts]

        form = next(iter(three.values()))[1]
        text = search_texts(
            peer.constants, asked, form, are_correct, rlvr.seeded("search", str(kind))
        )
        if text is not None:
            yield {"cause": "searched", "right": list(three), "paid": text, "evidence": str(kind)}


def _entries(family: str, count: int) -> list[Any]:
    import reasoning_gym

    entries = list(reasoning_gym.create_dataset(family, size=count, seed=1))
    return [json.loads(json.dumps(entry, default=str)) for entry in entries]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--tasks", type=int, default=150)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--serve", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    flags = parser.parse_args()
    if flags.serve:
        serve(flags.serve)
        return
    lines = []
    print("| | version | wrong answers paid | texts | CPU s | holes per CPU hour | causes |")
    print("|---|---|--:|--:|--:|--:|---|")
    for given in flags.peer or PEERS:
        name, _, python = given.partition("=")
        started = resource.getrusage(resource.RUSAGE_SELF)
        peer = Peer(name, python or sys.executable)
        *holes, numbers = measure(peer, flags.data, flags.tasks)
        ended = resource.getrusage(resource.RUSAGE_SELF)
        own_s = ended.ru_utime + ended.ru_stime - started.ru_utime - started.ru_stime
        causes = Counter(hole["cause"] for hole in holes)
        texts, cpu_s = causes.pop("searched", 0), own_s + peer.cpu_s
        told = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        rate = round(3600 * len(holes) / cpu_s)
        print(
            f"| {name} | {peer.version} | {sum(causes.values())} of {numbers['made']} | {texts} | "
            f"{cpu_s:.0f} | {rate} | {told} |",
            flush=True,
        )
        lines += [json.dumps({"peer": name} | hole) for hole in holes]
        peer.process.kill()
    if flags.output:
        flags.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
