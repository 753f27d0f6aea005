"""Files as this version writes them, kept for the versions to come: `python -m tests.frozen.write`.

From 0.2.0 on they are written once a release, into a folder of that release, and never again: a later version has to
read them, and to give every recorded completion the score that it had.

    records.jsonl    two completions, or episodes, of every bundled environment that needs no extra
    scored.jsonl     what `rlvr score` wrote, with its identity; scored.parquet is the same
    *.json           reports of `rlvr check`, `strength`, `audit` and `compare`
    run/             a run of GRPO of two steps on a tiny model, with checkpoints, rollouts and step files
"""

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rlvr
from rlvr.cli import main
from rlvr.records import provenance, record
from rlvr.testing.plays import play
from tests.json_lines import write_json_lines
from tests.testing.test_check_ours import OURS, TOOLS

VERSION = version("rlvr")
FOLDER = Path(__file__).parent / VERSION
TAGGED: tuple[str, ...] = ()  # releases, whose folders stay as they are
WRONG = "I cannot say, so I guess: \\boxed{-17}"


def records() -> Iterator[dict[str, Any]]:
    """Of each environment its own example and a wrong answer."""
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted({*OURS, *TOOLS}):
            rows, options = OURS.get(name, (None, {}))
            source = Path(folder) / f"{name}.jsonl"
            write_json_lines(source, rows or ())
            env = rlvr.make(name, **options)
            asks = rlvr.make(name, **options, data=str(source)) if rows else env
            task = asks.task(1 if rows and len(rows) > 1 else 0)
            if name in TOOLS:
                plays = (env.example_episode(task), ["Done."])
                completions = [env.completion_of(play(env, task, turns).record) for turns in plays]
            else:
                completions = [rlvr.Completion(text) for text in (asks.example(task), WRONG)]
            items = [rlvr.Item(f"{name}/{i}", task, it) for i, it in enumerate(completions)]
            with rlvr.Scorer(env, workers=1) as scorer:
                run = provenance(env, name, scorer.identity())
                found = [record(scored, run) for scored in scorer.stream(items)]
            assert [it["outcome"] == "correct" for it in found] == [True, False], found
            yield from found


def command(*words: object) -> None:
    """A command of rlvr, which has to end well."""
    code = main([str(word) for word in words])
    assert code in (0, None), (words, code)


def small_run(folder: Path, steps: int) -> None:
    """Make a run of a tiny model, or go on with it: the same call for both."""
    from rlvr.train.config import Config
    from rlvr.train.loop import Trainer
    from rlvr.train.policy import Policy
    from rlvr.train.tiny import tiny

    policy = Policy(*tiny("0123456789+-*() =\\boxed{}", hidden=8, layers=1, heads=2, seed=1))
    config = Config(
        env="arithmetic-v1", model="tiny", run=folder, algorithm="grpo", steps=steps, prompts=4, group_size=4,
        max_tokens=6, eval_every=0, eval_tasks=4, checkpoint_every=1, keep=1, workers=0, seed=5, device="cpu",
        step_files=1, env_options={"reward": "correct + length(max_tokens=6)"},
        accept=("code", "inputs"),  # a run of another version goes on with this one's
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Trainer(config, policy=policy) as trainer:
            trainer.run()


def write() -> None:
    """Write all of it anew, for a version that is not released yet."""
    if VERSION in TAGGED:
        raise SystemExit(f"{VERSION} is released: what it wrote stays; raise the version")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in records()]
    (FOLDER / "records.jsonl").write_text("".join(lines), encoding="utf-8")
    source = FOLDER / "completions.jsonl"
    pairs = [
        ("What is 6/8?", "3/4", "\\boxed{\\frac34}"),
        ("What is 1 + 1?", "2", "\\boxed{3}"),
        ("What is 2 * 3?", "6", "I cannot say."),
    ]
    names = ("prompt", "reference", "completion", "label")
    rows = [dict(zip(names, (*it, i == 0), strict=True)) for i, it in enumerate(pairs)]
    write_json_lines(source, rows)
    for ending in ("jsonl", "parquet"):
        command("score", "math-v4", source, "-o", FOLDER / f"scored.{ending}", "--workers", 1)
    command("check", "arithmetic-v1", "--tasks", 3, "-o", FOLDER / "check.json")
    command("strength", "code-drills-v1", "--tasks", 3, "-o", FOLDER / "strength.json")
    command("audit", "math-v4", source, "-o", FOLDER / "audit.json")
    sides = [f"{ending}={FOLDER}/scored.{ending}" for ending in ("jsonl", "parquet")]
    command("compare", *sides, "-o", FOLDER / "compare.json")
    small_run(FOLDER / "run", 2)
    shutil.rmtree(FOLDER / "run/tensorboard")  # its files carry the machine's name
    (FOLDER / "run/.lock").unlink()


if __name__ == "__main__":
    write()
