"""What must not change when code is moved: verdicts, help texts, trained weights, resumed runs,
import time.

    python -m benchmarks.frozen write FOLDER --data DATA_DIR     with the code as it was
    python -m benchmarks.frozen compare FOLDER --data DATA_DIR   with the code as it is

`write` records, one JSON line each: verdict, why and detail of every row of DATA_DIR (math_pairs/,
real_math/, gsm8k/, humaneval/, mbpp/; a line says what is missing and left out), the help of each
command, the weights after 20 seeded steps of each preset, and a run of 12 steps with the checkpoint
that it left at step 6.  `compare` does the same again, goes on from that old checkpoint, and prints
each difference; it exits with 1 if there is one.  Import time is printed only.  `--only verdicts
help weights resume` picks parts.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import rlvr
from benchmarks.common import gsm8k_solutions, rows

COMMANDS = (
    "score",
    "envs",
    "replay",
    "check",
    "audit",
    "filter",
    "train",
    "eval",
    "plot",
    "serve",
    "doctor",
)
STEPS = 20
SAMPLES = 8  # completions of each HumanEval problem, of a hundred
PARTS = ("verdicts", "help", "weights", "resume")


def math_rows(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each pair as a completion, and once more as the answer in a box."""
    for path in sorted([*data.glob("math_pairs/*.jsonl"), *data.glob("real_math/*.jsonl")]):
        for i, row in enumerate(rows(path)):
            texts = (
                [row["pred"]]
                if path.parent.name == "real_math"
                else [row["pred"], f"\\boxed{{{row['pred']}}}"]
            )
            for k, text in enumerate(texts):
                yield f"{path.stem}/{i}/{k}", {"reference": row["gold"], "completion": text}


def gsm8k_rows(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, problem, said in gsm8k_solutions(data / "gsm8k/example_model_solutions.jsonl"):
        reference = problem["ground_truth"].rpartition("A:")[2].strip()
        yield f"gsm8k/{name}", {"reference": reference, "completion": said["solution"]}


def code_rows(data: Path, env: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Real programs with labels, the data sets' own solutions,
    and samples of CodeGen for HumanEval."""
    fenced = "```python\n{}\n```".format
    for i, row in enumerate(rows(data / env / "starcoder_results.jsonl")):
        columns = {name: row[name] for name in ("prompt", "test", "entry_point")}
        yield f"{env}/starcoder/{i}", {**columns, "completion": fenced(row["solution"])}
    if env == "mbpp":
        for i, row in enumerate(rows(data / "mbpp/mbpp.jsonl")):
            columns = {name: row[name] for name in ("text", "test_list", "test_setup_code")}
            yield f"mbpp/own/{i}", {**columns, "completion": fenced(row["code"])}
        return
    samples = {
        row["prompt"]: row["samples"]
        for row in rows(data / "humaneval/codegen16B_100samples.jsonl")
    }
    for i, row in enumerate(rows(data / "humaneval/HumanEval.jsonl.gz")):
        columns = {name: row[name] for name in ("task_id", "prompt", "test", "entry_point")}
        yield f"humaneval/own/{i}", {**columns, "completion": row["canonical_solution"]}
        for k, text in enumerate(samples.get(row["prompt"], [])[:SAMPLES]):
            yield f"humaneval/codegen/{i}/{k}", {**columns, "completion": text}


def verdicts(data: Path) -> Iterator[dict[str, Any]]:
    sources = {
        "math-v4": [("math_pairs", math_rows(data))],
        "gsm8k-v4": [("gsm8k/example_model_solutions.jsonl", gsm8k_rows(data))],
        "humaneval-v3": [("humaneval", code_rows(data, "humaneval"))],
        "mbpp-v3": [("mbpp", code_rows(data, "mbpp"))],
    }
    for env, parts in sources.items():
        for needed, found in parts:
            if not (data / needed).exists():
                print(f"left out, not there: {data / needed}")
                continue
            items = [row | {"id": name} for name, row in found]
            refused: list[tuple[int, rlvr.DataError]] = []
            for scored in rlvr.score(
                rlvr.make(env), items, workers=2, on_error=partial(_kept, refused)
            ):
                verdict = scored.score.verdict
                detail = {k: v for k, v in verdict.detail.items() if not k.endswith(("_s", "_mib"))}
                yield {
                    "of": f"{env} {scored.item.id}",
                    "outcome": verdict.outcome,
                    "value": verdict.value,
                    "why": verdict.why,
                    "answer": verdict.answer,
                    "detail": detail,
                    "total": scored.score.total,
                    "parts": dict(scored.score.parts),
                }
            yield {"of": f"{env} refused", "rows": [f"{i}: {why}" for i, why in refused]}


def _kept(into: list[tuple[int, rlvr.DataError]], number: int, error: rlvr.DataError) -> None:
    into.append((number, error))


def helps() -> Iterator[dict[str, Any]]:
    for arguments in ([], *([name] for name in COMMANDS), ["train", "math_dapo"]):
        run = subprocess.run(
            [sys.executable, "-m", "rlvr", *arguments, "--help"],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "COLUMNS": "100"},
            check=True,
        )
        yield {"of": f"help {' '.join(arguments)}", "text": run.stdout}


def run_of(folder: Path, algorithm: str, steps: int, **settings: Any) -> Any:
    """A seeded run of a tiny model on sums, as far as `steps` says."""
    import torch

    from rlvr.recipes.arithmetic_cpu.sums import Sums
    from rlvr.train.config import Config
    from rlvr.train.loop import Trainer
    from rlvr.train.policy import Policy
    from rlvr.train.tiny import tiny

    torch.set_num_threads(1)
    policy = Policy(*tiny("0123456789+=\\boxed{} ", hidden=32, layers=2, heads=2, seed=1))
    config = Config(
        env="sums",
        model="tiny",
        run=folder,
        algorithm=algorithm,
        steps=steps,
        prompts=3,
        group_size=4,
        max_tokens=12,
        lr=1e-2,
        eval_every=5,
        eval_tasks=4,
        checkpoint_every=6,
        keep=9,
        workers=0,
        rollouts_every=0,
        **({"vine_k": 2} if algorithm == "vineppo" else {}),
        seed=5,
        device="cpu",
        **settings,
    )
    with Trainer(
        config, env=Sums().with_reward(digits()), eval_env=Sums(split="test"), policy=policy
    ) as trainer:
        trainer.run()
    return policy


def contains_reference(completion: str, reference: object) -> bool:
    """By name: a lambda goes into the record of a run with its line,
    which would not survive an edit of this file."""
    return str(reference) in completion


def digits() -> rlvr.Reward:
    """A reward that a model with random weights can earn,
    so that every preset has something to learn."""

    @dataclasses.dataclass(frozen=True)
    class Digits(rlvr.Part):
        name: str = "digits"
        bounds = (0.0, 1.0)

        def value(
            self, task: rlvr.Task, completion: rlvr.Completion, verdict: rlvr.Verdict
        ) -> float:
            return sum(map(str.isdigit, completion.text)) / max(1, len(completion.text))

    return rlvr.Correct(contains_reference) + Digits()


def digest(policy: Any) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(policy.model.state_dict().items()):
        found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def weights() -> Iterator[dict[str, Any]]:
    for name in PRESETS:
        with tempfile.TemporaryDirectory() as folder:
            yield {
                "of": f"weights {name}",
                "sha256": digest(run_of(Path(folder) / "run", name, STEPS)),
            }


PRESETS = ("grpo", "dapo", "prorl", "dr_grpo", "rloo", "reinforce_pp", "magistral", "vineppo")
RESUMED = "prorl"


def whole_run(folder: Path) -> Iterator[dict[str, Any]]:
    yield {"of": f"resume {RESUMED}", "sha256": digest(run_of(folder / "run", RESUMED, 12))}


def resumed_run(folder: Path) -> Iterator[dict[str, Any]]:
    """The old run as it stood at step 6, gone on with."""
    with tempfile.TemporaryDirectory() as copy:
        run = Path(copy) / "run"
        shutil.copytree(folder / "run", run)
        (run / "checkpoints/step-00000012.pt").unlink()
        yield {"of": f"resume {RESUMED}", "sha256": digest(run_of(run, RESUMED, 12))}


def import_s() -> float:
    code = "import time; t = time.perf_counter(); import rlvr; print(time.perf_counter() - t)"
    return min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
        for _ in range(15)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    flags = parser.parse_args()
    writing = flags.what == "write"
    flags.folder.mkdir(parents=True, exist_ok=True)
    makers = {
        "verdicts": lambda: verdicts(flags.data),
        "help": helps,
        "weights": weights,
        "resume": lambda: (whole_run if writing else resumed_run)(flags.folder),
    }
    differ = 0
    for part in flags.only:
        started, path = time.perf_counter(), flags.folder / f"{part}.jsonl"
        found = [json.dumps(row, sort_keys=True, default=str) for row in makers[part]()]
        if writing:
            path.write_text("".join(line + "\n" for line in found), encoding="utf-8")
            print(f"{part}: {len(found)} written in {time.perf_counter() - started:.0f} s")
            continue
        old = {
            json.loads(line)["of"]: line for line in path.read_text(encoding="utf-8").splitlines()
        }
        new = {json.loads(line)["of"]: line for line in found}
        off = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        for name in off[:20]:
            print(f"{name}\n  was {old.get(name)}\n  is  {new.get(name)}")
        print(
            f"{part}: {len(new)} compared, {len(off)} differ, "
            f"in {time.perf_counter() - started:.0f} s"
        )
        differ += len(off)
    print(f"import rlvr: {import_s() * 1000:.1f} ms, the best of 15")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
