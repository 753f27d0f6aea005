"""The parts of `make real`: each goes through the command line as a user does,
and raises `Failed` where it fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import rows
from benchmarks.real.model import converted
from benchmarks.real.recipes import RUNS, curves, draw, gains, interval, train_all

__all__ = ["PARTS", "Failed", "Place"]

SUMS = "rlvr.recipes.smol_sums.sums:OneDigitSums"
FIVE = {  # with the options that a model of this size has a chance at
    "arithmetic-v1": ("difficulty=1", "operations=+"),
    "qa-v4": ("people=1", "credit=f1"),
    "json-v4": ("items=1",),
    "iftrain-v4": ("instructions=1",),
    "kk-v4": ("people=2",),
}
QUESTION = "What is the capital of France?"


class Failed(Exception):
    """A part does not hold; the text says what was seen."""


@dataclass(frozen=True)
class Place:
    """Where the parts work.

    Attributes:
        folder: of everything that is written.
        code_model: folder or hub id of a code model; None for none.
        code_data: HumanEval as a file; None for the hub.
    """

    folder: Path
    code_model: str | None = None
    code_data: str | None = None

    @property
    def model(self) -> Path:
        """Folder of SmolLM2-135M-Instruct."""
        return self.folder / "smollm2-135m-instruct"

    def fresh(self, name: str) -> Path:
        """A path in the folder at which nothing is.

        Args:
            name: of the file or folder.
        """
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        return path

    def rlvr(self, *words: object, launcher: Sequence[str] = ("-m", "rlvr")) -> str:
        """The output of a command of rlvr, stderr included; it is kept in a log.

        Args:
            words: the arguments.
            launcher: how Python starts it.
        """
        command = [sys.executable, "-W", "ignore", *launcher, *map(str, words)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        with (self.folder / "log.txt").open("a") as log:
            log.write(f"$ rlvr {' '.join(map(str, words))}\n{done.stdout}\n")
        if done.returncode:
            raise Failed(f"rlvr {words[0]} ended with {done.returncode}: {done.stdout[-500:]}")
        return done.stdout


def require(holds: bool, text: str) -> None:
    """Fail unless something holds.

    Args:
        holds: whether it does.
        text: what was seen.
    """
    if not holds:
        raise Failed(text)


# ------------------------------------------------------------------------------- the parts


def model(place: Place) -> str:
    """The conversion: chat template, end token, digits and weights survive it."""
    from transformers import AutoTokenizer

    folder = converted(place.model)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    end = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    require(tokenizer.decode([end]) == "<|im_end|>", f"the end token is {tokenizer.decode([end])}")
    split = {text: tokenizer.tokenize(text) for text in ("12", "x3")}
    apart = all(len(tokens) == 2 for tokens in split.values())
    require(apart, f"numbers are not split into digits: {split}")
    said = _generated(place, [QUESTION], 24)[0]
    require("Paris" in said, f"{QUESTION} {said!r}")
    return f"{QUESTION} {said!r}"


def dry(place: Place) -> str:
    """A dry run with the default settings takes at most 30 CPU seconds."""
    before_s = _children_cpu_s()
    text = place.rlvr(
        "train", "--dry-run", "--env", "arithmetic-v1", "--model", place.model,
        "--run", place.fresh("dry"),
    )  # fmt: skip
    spent_s = _children_cpu_s() - before_s
    found = re.search(r"forecast: (.*per step)", text)
    require(found is not None, "it printed no forecast")
    require(spent_s <= 30, f"it took {spent_s:.0f} CPU s")
    assert found is not None
    return f"{spent_s:.1f} CPU s; {found[1]}"


def _children_cpu_s() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def score(place: Place) -> str:
    """Five environments on the model's completions: all scored, some paid, the same scored
    again."""
    seen, paid = [], 0.0
    for env, options in FIVE.items():
        kept = place.fresh(f"{env}.jsonl")
        flags = [word for option in options for word in ("--option", option)]
        place.rlvr(
            "eval", env, *flags, "--model", place.model, "--limit", 8, "--max-tokens", 48,
            "--temperature", 0, "--rollouts", kept, "--overwrite",
        )  # fmt: skip
        records = list(rows(kept))
        require(len(records) == 8, f"{env}: {len(records)} of 8 completions")
        require(all(r["outcome"] != "unscored" for r in records), f"{env}: some are unscored")
        again = place.fresh(f"{env}.again.jsonl")
        place.rlvr("score", env, *flags, _columns(place, env, records), "-o", again, "--overwrite")
        totals = [r["total"] for r in records]
        require([r["total"] for r in rows(again)] == totals, f"{env}: scored again, others")
        place.rlvr("replay", again)
        seen.append(f"{env} {sum(totals):.3g} of 8")
        paid += sum(totals)
    require(0 < paid < 8 * len(FIVE), f"all the same: {', '.join(seen)}")
    return ", ".join(seen)


def _columns(place: Place, env: str, records: Sequence[dict[str, Any]]) -> Path:
    path = place.folder / f"{env}.rows.jsonl"
    lines = [json.dumps({name: r[name] for name in ("task", "completion")}) for r in records]
    path.write_text("\n".join(lines) + "\n")
    return path


def grpo(place: Place) -> str:
    """`rlvr train smol_sums` as it is shipped: held-out accuracy of at least 0.80."""
    run = place.fresh("smol_sums")
    place.rlvr("train", "smol_sums", "--model", place.model, "--run", run)
    before, *_, after = _evaluations(run)
    place.rlvr("plot", run, "-o", place.folder / "smol_sums.png")
    require(after["eval/avg@2"] >= 0.8, f"held out: {after['eval/avg@2']:.3f}")
    return f"held out {_interval(before)} → {_interval(after)} in {after['step']} steps"


def recipes(place: Place) -> str:
    """Recipes at few steps, those of RECIPES or all: a held-out gain whose intervals are apart."""
    names = os.environ.get("RECIPES", "").split() or list(RUNS)
    folder = place.fresh("recipes")
    folder.mkdir()
    train_all(place.model, folder, names)
    draw(folder, place.folder / "recipes.png")
    seen = []
    for name, [points] in curves(folder).items():
        first, last = points[0], points[-1]
        seen.append(f"{name} {interval(first)} → {interval(last)} in {last.step} steps")
        require(gains(points), seen[-1])
    return "; ".join(seen)


def evaluation(place: Place) -> str:
    """`rlvr eval` of the saved folder, inside the interval of the run's own last evaluation."""
    *_, own = _evaluations(place.folder / "smol_sums")
    report = place.folder / "smol_sums.eval.json"
    place.rlvr(
        "eval", SUMS, "--option", "split=test", "--model", place.folder / "smol_sums/model",
        "-n", 2, "--max-tokens", 16, "-o", report,
    )  # fmt: skip
    value = json.loads(report.read_text())["metrics"]["avg@2"]["value"]
    low, high = own["eval/avg@2/low"], own["eval/avg@2/high"]
    require(low <= value <= high, f"{value:.3f} is not in {low:.3f} to {high:.3f}")
    return f"{value:.3f}; the run's own {_interval(own)}"


def lora(place: Place) -> str:
    """A LoRA adapter learns, and the saved folder holds it merged."""
    run = place.fresh("lora")
    place.rlvr(
        "train", "smol_sums", "--model", place.model, "--run", run,
        "--lora-rank", 16, "--lr", 2e-4, "--steps", 10, "--eval-every", 0,
    )  # fmt: skip
    before, after = _evaluations(run)
    adapter = run / "model/adapter/adapter_config.json"
    require(adapter.is_file(), f"there is no {adapter}")
    require(after["eval/avg@2"] > before["eval/avg@2/high"], f"held out {_interval(after)}")
    return f"held out {_interval(before)} → {_interval(after)} in 10 steps"


def dpo(place: Place) -> str:
    """Pairs of the model's own completions, and DPO on them."""
    kept, pairs, run = (place.fresh(name) for name in ("dpo.jsonl", "pairs.jsonl", "dpo"))
    place.rlvr(
        "eval", SUMS, "--model", place.model, "-n", 8, "--max-tokens", 16, "--limit", 24,
        "--rollouts", kept, "--overwrite",
    )  # fmt: skip
    scored = place.fresh("dpo.scored.jsonl")
    place.rlvr("score", SUMS, _columns(place, "dpo", list(rows(kept))), "-o", scored)
    place.rlvr("pairs", scored, "-o", pairs, "--unparsed", "--overwrite")
    place.rlvr(
        "train", "--algorithm", "dpo", "--pairs", pairs, "--model", place.model, "--run", run,
        "--steps", 8, "--prompts", 8, "--lr", 5e-6, "--max-tokens", 512, "--eval-every", 0,
    )  # fmt: skip
    steps = [row for row in rows(run / "metrics.jsonl") if "loss" in row]
    first, last = steps[0]["loss"], steps[-1]["loss"]
    require(abs(first - 0.6931) < 1e-3, f"the first loss is {first:.4f}, not ln 2")
    require(last < first - 0.02, f"the loss went from {first:.3f} to {last:.3f}")
    return f"{sum(1 for _ in rows(pairs))} pairs, loss {first:.3f} → {last:.3f} in 8 steps"


_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
LAUNCHERS = {1: ("-m", "rlvr"), 2: (*_TORCHRUN, "-m", "--", "rlvr")}


def ranks(place: Place) -> str:
    """Two gloo ranks take the step that one process takes."""
    runs = [place.fresh("one_rank"), place.fresh("two_ranks")]
    for run, launcher in zip(runs, LAUNCHERS.values(), strict=True):
        place.rlvr(
            "train", "smol_sums", "--model", place.model, "--run", run, "--steps", 1,
            "--eval-every", "None", "--prompts", 4, launcher=launcher,
        )  # fmt: skip
    one, two = (next(rows(run / "metrics.jsonl")) for run in runs)
    require(one["tokens"] == two["tokens"], f"{one['tokens']} and {two['tokens']} tokens")
    require(one["reward"] == two["reward"], f"rewards {one['reward']} and {two['reward']}")
    ratio = two["grad_norm"] / one["grad_norm"]
    require(abs(ratio - 1) < 1e-3, f"gradients of norm {one['grad_norm']}, {two['grad_norm']}")
    return f"norm of the gradient {one['grad_norm']:.5f} with one, {two['grad_norm']:.5f} with two"


def ways(place: Place) -> str:
    """The sums are learnt on one and two ranks, in turns and one step off."""
    seen = []
    for world, launcher in LAUNCHERS.items():
        for staleness in (0, 1):
            run = place.fresh(f"ways_{world}_{staleness}")
            place.rlvr(
                "train", "smol_sums", "--model", place.model, "--run", run, "--lora-rank", 16,
                "--lr", 2e-4, "--steps", 8, "--eval-every", 0, "--max-staleness", staleness,
                launcher=launcher,
            )  # fmt: skip
            before, after = _evaluations(run)
            told = f"{world} × {staleness}: {_interval(before)} → {_interval(after)}"
            require(after["eval/avg@2"] > before["eval/avg@2/high"], told)
            seen.append(told)
    return "ranks × staleness, " + "; ".join(seen)


def turns(place: Place) -> str:
    """A conversation of several turns, sampled and trained on."""
    kept, run = place.fresh("guess.jsonl"), place.fresh("guess")
    place.rlvr(
        "eval", "guess-v1", "--model", place.model, "--limit", 4, "-n", 4, "--max-tokens", 64,
        "--temperature", 0.7, "--rollouts", kept, "--overwrite",
    )  # fmt: skip
    records = list(rows(kept))
    counts = [len(record["episode"]["turns"]) for record in records]
    require(all(r["outcome"] != "unscored" for r in records), "some are unscored")
    require(max(counts) > 1, "no episode has a second turn")
    place.rlvr(
        "train", "--env", "guess-v1", "--model", place.model, "--run", run, "--algorithm", "grpo",
        "--steps", 1, "--prompts", 2, "--group-size", 4, "--max-tokens", 64,
        "--eval-every", "None", "--micro-tokens", 2048,
    )  # fmt: skip
    trained = next(rows(run / "metrics.jsonl"))
    require(trained["updates"] == 1, f"{trained['updates']} updates")
    require(trained["canary"] < 1e-3, f"log-probabilities differ by {trained['canary']}")
    return f"{sum(counts) / len(counts):.1f} turns on average, one update"


def others(place: Place) -> str:
    """The same model through transformers.pipeline, TRL's trainer and our service."""
    kept = place.fresh("greedy.jsonl")
    place.rlvr(
        "eval", SUMS, "--option", "split=test", "--model", place.model, "--limit", 16,
        "--max-tokens", 8, "--temperature", 0, "--rollouts", kept, "--overwrite",
    )  # fmt: skip
    ours = list(rows(kept))
    piped = _generated(place, [record["prompt"] for record in ours], 8)
    texts = [record["completion"] for record in ours]
    require(piped == texts, f"pipeline: {_first_other(piped, texts)}")
    totals = [record["total"] for record in ours]
    require(_served(texts, ours) == totals, "the service gives other scores")
    in_trl = _in_trl(place, 8)
    for prompt, text, reward in in_trl:
        [own] = [r for r in ours if r["prompt"] == prompt]
        require(text == own["completion"], f"TRL: {text!r} instead of {own['completion']!r}")
        require(reward == own["total"], f"TRL: reward {reward} instead of {own['total']}")
    return (
        f"{len(texts)} greedy completions the same as the pipeline's, {len(in_trl)} as TRL's; "
        f"scores the same in TRL and over HTTP ({sum(totals):g} right)"
    )


def humaneval(place: Place) -> str:
    """HumanEval of a code model that the user names."""
    if place.code_model is None:
        return "not run: name a model with make real MODEL=FOLDER [DATA=FILE]"
    report = place.folder / "humaneval.json"
    data = () if place.code_data is None else ("--option", f"data={place.code_data}")
    place.rlvr(
        "eval", "humaneval-v3", "--model", place.code_model, "--max-tokens", 512,
        "--temperature", 0, "-o", report, *data,
    )  # fmt: skip
    found = json.loads(report.read_text())
    metric = found["metrics"]["avg@1"]
    require(found["unscored"] == 0, f"{found['unscored']} are unscored")
    require(metric["value"] > 0, "no task is solved")
    return (
        f"{place.code_model}: {metric['value']:.3f} ({metric['low']:.3f} to {metric['high']:.3f}), "
        f"{found['truncated']:.1%} truncated"
    )


# ------------------------------------------------------------------------------- what they share


def _evaluations(run: Path) -> list[dict[str, Any]]:
    return [row for row in rows(run / "metrics.jsonl") if "eval/avg@2" in row]


def _interval(row: dict[str, Any]) -> str:
    low, high = row["eval/avg@2/low"], row["eval/avg@2/high"]
    return f"{row['eval/avg@2']:.3f} ({low:.3f} to {high:.3f})"


def _first_other(found: Sequence[str], wanted: Sequence[str]) -> str:
    pairs = zip(found, wanted, strict=True)
    return next((f"{a!r} instead of {b!r}" for a, b in pairs if a != b), "the same")


def _generated(place: Place, prompts: Sequence[Any], tokens: int) -> list[str]:
    """Greedy replies of transformers' own pipeline."""
    import torch
    from transformers import pipeline

    made = pipeline("text-generation", model=str(place.model), dtype=torch.float32, device="cpu")
    replies = []
    for prompt in prompts:
        chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        [reply] = made(chat, max_new_tokens=tokens, do_sample=False, return_full_text=False)
        replies.append(reply["generated_text"])
    return replies


def _served(texts: Sequence[str], records: Sequence[dict[str, Any]]) -> list[float]:
    """Totals of the same completions from `rlvr serve`."""
    import httpx

    rows_ = [{"task": r["task"], "completion": t} for r, t in zip(records, texts, strict=True)]
    with _service() as url:
        answer = httpx.post(f"{url}/score", json={"rows": rows_}, timeout=60).raise_for_status()
    return [entry["total"] for entry in answer.json()["scores"]]


@contextmanager
def _service() -> Iterator[str]:
    """The address of a service of the recipe's environment, which ends with the block."""
    import httpx

    port = 18429
    command = [sys.executable, "-m", "rlvr", "serve", SUMS, "--option", "split=test"]
    service = subprocess.Popen(
        [*command, "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.25)
        yield url
    finally:
        service.terminate()
        service.wait()


def _in_trl(place: Place, tasks: int) -> list[tuple[Any, str, float]]:
    """(prompt, completion, reward) of one step of TRL's GRPO, which samples greedily here."""
    from trl import GRPOConfig, GRPOTrainer

    import rlvr
    from rlvr.interop import to_trl

    seen: list[tuple[Any, str, float]] = []
    env = rlvr.make(SUMS, split="test")
    with to_trl(env, workers=1) as reward:
        [own] = reward.reward_funcs

        def watched(prompts: Any, completions: Any, **columns: Any) -> Any:
            totals = own(prompts=prompts, completions=completions, **columns)
            texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
            seen.extend(zip(prompts, texts, totals, strict=True))
            return totals

        arguments = GRPOConfig(
            output_dir=str(place.fresh("trl")),
            max_steps=1,
            num_generations=2,
            per_device_train_batch_size=2 * tasks,
            max_completion_length=8,
            top_k=1,
            shuffle_dataset=False,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
        )
        trainer = GRPOTrainer(
            model=str(place.model),
            reward_funcs=[watched],
            train_dataset=reward.dataset.select(range(tasks)),
            args=arguments,
        )
        trainer.train()
    return seen


PARTS: dict[str, Callable[[Place], str]] = {
    "model": model,
    "dry": dry,
    "score": score,
    "grpo": grpo,
    "recipes": recipes,
    "eval": evaluation,
    "lora": lora,
    "dpo": dpo,
    "ranks": ranks,
    "ways": ways,
    "turns": turns,
    "others": others,
    "humaneval": humaneval,
}
"""The parts in the order in which they run; `eval` needs the run of `grpo`."""

os.environ.setdefault("HF_HUB_OFFLINE", "1" if not os.environ.get("MODEL") else "0")
