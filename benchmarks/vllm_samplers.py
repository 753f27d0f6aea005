r"""vLLM as the sampler: what a sync takes, what kills of servers change,
whether a run learns as with the local one.

    # wants an idle machine
    python -m benchmarks.vllm_samplers sync
    # two servers, one of them killed ten times
    python -m benchmarks.vllm_samplers kills
    # goes on where it was stopped; draws one plot
    python -m benchmarks.vllm_samplers learning --runs runs/vllm

Runs in the environment of `make test-vllm`: `.venv-vllm/bin/python -m benchmarks.vllm_samplers …`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import torch
from rich.console import Console

from rlvr.collect import Request, Sample, Sampler, Sampling
from rlvr.recipes.arithmetic_cpu.run import CHARSET, warm_start, worked
from rlvr.recipes.arithmetic_cpu.sums import Sums
from rlvr.samplers.servers import ServerSampler
from rlvr.samplers.servers_started import StartedServers
from rlvr.samplers.vllm_shared import model_sizes
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

SIZES = {"two layers": (64, 2, 2), "12 layers": (768, 12, 12)}
KILLS, PROMPTS, GROUP = 10, 16, 8
SAMPLERS = {"local": {}, "vllm": {"sampler": "vllm"}, "servers": {"serve_samplers": 2}}
TITLES = {"local": "local sampler", "vllm": "vLLM in the process", "servers": "two vLLM servers"}


def made(hidden: int, layers: int, heads: int) -> Policy:
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "max_length_tokens": 128}
    return Policy(*tiny(CHARSET, seed=0, family="llama", **sizes))


# ------------------------------------------------------------------------------------------ sync


def median_ms(work: Callable[[], object], times: int) -> float:
    """Median of the times of a call, in milliseconds, after one that does not count."""
    work()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return 1e3 * statistics.median(found)


def sync() -> None:
    """Time of a sync in this process, beside the time of copying the same bytes from one place to
    another."""
    print("| model | weights | sync, ms | copy of its bytes, ms | ratio |\n|---|---|---|---|---|")
    for name, sizes in SIZES.items():
        policy = made(*sizes)
        count = sum(parameter.numel() for parameter in policy.model.parameters())
        synced, copied = sync_and_copy_ms(policy, 20 if count < 1e6 else 7)
        print(
            f"| {name} | {count:,} | {synced:.1f} | {copied:.2f} | {synced / copied:.1f} |",
            flush=True,
        )


def sync_and_copy_ms(policy: Policy, times: int) -> tuple[float, float]:
    from rlvr.samplers.vllm import VLLMSampler

    weights = policy.model.state_dict()
    twin = {key: torch.empty_like(value) for key, value in weights.items()}
    with tempfile.TemporaryDirectory() as folder:
        policy.save_description(folder)
        with VLLMSampler(folder, policy.tokenization) as sampler:
            copied = median_ms(
                lambda: [twin[key].copy_(value) for key, value in weights.items()], times
            )
            return median_ms(lambda: sampler.sync([weights], 1), times), copied


# ------------------------------------------------------------------------------------------ kills


def submit(sampler: Sampler) -> None:
    for p in range(PROMPTS):
        ids = tuple(sampler.encode(f"{10 + p}+{90 - 3 * p}="))
        for g in range(GROUP):
            sampler.submit(
                Request((p, g), ids, Sampling(max_tokens=48), 1000 * p + g, 48, rollout=g)
            )


def collected(
    sampler: Sampler, during: Callable[[int], object] = lambda there: None
) -> dict[object, list[int]]:
    """Tokens of each rollout; `during` is called with the number of rollouts that are there."""
    found: dict[object, list[int]] = {}
    while len(found) < PROMPTS * GROUP:
        during(len(found))
        for name, sample in sampler.poll():
            assert isinstance(sample, Sample), sample
            found[name] = list(sample.completion_ids)
    return found


def kills() -> None:
    """Ten times: 128 rollouts over two servers, one of which is killed at a random moment,
    and started again."""
    random, policy = Random(0), made(*SIZES["two layers"])
    rollouts = lost = changed = moved = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy.save_description(folder / "model")
        with (
            StartedServers(
                folder / "model", 2, flags=["--max-rows", "16"], log=folder / "log"
            ) as servers,
            ServerSampler(
                servers.urls, policy.tokenization, model_sizes(policy.model.config), in_flight=16
            ) as sampler,
        ):
            sampler.sync(policy.weights(), 0)
            submit(sampler)
            expected = collected(sampler)
            for kill in range(KILLS):
                victim, after, before = (
                    random.randrange(2),
                    random.randrange(PROMPTS * GROUP),
                    sampler.moved,
                )
                struck_at = -1

                def strike(there: int, victim: int = victim, after: int = after) -> None:
                    nonlocal struck_at
                    if struck_at < 0 and there >= after:
                        servers.kill(victim)
                        struck_at = there

                submit(sampler)
                found = collected(sampler, strike)
                if struck_at < 0:  # the last ones came together
                    servers.kill(victim)
                    struck_at = len(found)
                rollouts += len(found)
                lost += len(expected.keys() - found.keys())
                changed += sum(found[key] != expected[key] for key in found)
                moved += sampler.moved - before
                print(
                    f"kill {kill + 1}: server {victim} with {struck_at} of {len(expected)} "
                    f"rollouts there, {sampler.moved - before} requests moved; "
                    f"so far {lost} rollouts lost, {changed} changed",
                    flush=True,
                )
                servers.start_again(victim)
                wait_for_both(sampler, servers.urls)
    print(f"{KILLS} kills: {rollouts} rollouts, {lost} lost, {changed} changed, {moved} moved")


def wait_for_both(sampler: ServerSampler, urls: Sequence[str]) -> None:
    """Wait until the server that was started again has the weights, as its probe says."""
    until = time.monotonic() + 1800
    while time.monotonic() < until:
        time.sleep(0.5)
        probes = sampler.probe([], sampler.encode("12+34="))
        if len(probes) == len(urls):
            assert {probe.version for probe in probes} == {0}
            return
    raise RuntimeError("a server that was started again is not used")


# ----------------------------------------------------------------------------------------- learning


def learn(kind: str, runs: Path, steps: int, every: int) -> None:
    """The small sums of `make demo` with a model whose heads vLLM has; from the same warm start,
    with the same seed."""
    warm = runs / "warm"
    config = Config(
        env="sums",
        model=str(warm),
        run=runs / kind,
        algorithm="dapo",
        steps=steps,
        prompts=16,
        group_size=8,
        max_tokens=48,
        lr=5e-4,
        warmup_steps=4,
        eval_every=every,
        eval_tasks=300,
        rollouts_every=0,
        checkpoint_every=5,
        workers=0,
        seed=0,
        **SAMPLERS[kind],
    )
    policy, test = Policy.load(warm), Sums(split="test")
    with Trainer(
        config, policy=policy, env=Sums(), eval_env=test, console=Console(stderr=True)
    ) as trainer:
        trainer.run()


def learning(runs: Path, steps: int, every: int, picture: Path) -> None:
    """One run per sampler, each in a process of its own, and one plot of all."""
    if not (runs / "warm").is_dir():
        policy = made(*SIZES["two layers"])
        warm_start(
            policy, Sums(), worked, steps=1200, noise=0.25, seed=0, console=Console(stderr=True)
        )
        policy.save(runs / "warm")
    for kind in SAMPLERS:
        command = [sys.executable, "-m", "benchmarks.vllm_samplers", "learning", "--only", kind]
        command += ["--runs", str(runs), "--steps", str(steps), "--every", str(every)]
        subprocess.run(command, check=True)
    draw(runs, picture)


def draw(runs: Path, picture: Path) -> None:
    """Evaluations with intervals of 95 %, side by side; prints them as well."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    print("| step | " + " | ".join(TITLES.values()) + " |\n|---|" + "---|" * len(TITLES))
    cells: dict[int, list[str]] = {}
    for number, (kind, title) in enumerate(TITLES.items()):
        rows = [row for row in read_metrics(runs / kind / "metrics.jsonl") if "eval/avg@1" in row]
        steps = [row["step"] for row in rows]
        values, low, high = (
            [row[f"eval/avg@1{end}"] for row in rows] for end in ("", "/low", "/high")
        )
        bars = [
            [v - a for v, a in zip(values, low, strict=True)],
            [b - v for v, b in zip(values, high, strict=True)],
        ]
        shifted = [
            step + 0.4 * (number - 1) for step in steps
        ]  # so that bars do not hide each other
        panel.errorbar(shifted, values, yerr=bars, marker="o", capsize=3, label=title)
        for step, value, a, b in zip(steps, values, low, high, strict=True):
            cells.setdefault(step, []).append(f"{value:.3f} [{a:.3f}, {b:.3f}]")
    for step, line in sorted(cells.items()):
        print(f"| {step} | " + " | ".join(line) + " |")
    panel.set_xlabel("training step")
    panel.set_ylabel("share of 300 sums that are right")
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(picture, dpi=110)
    print(picture)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["sync", "kills", "learning"])
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/vllm"), help="folder of the runs of `learning`"
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10, help="steps between evaluations")
    parser.add_argument("--picture", type=Path, default=Path("docs/images/vllm.png"))
    parser.add_argument("--only", choices=SAMPLERS, help="one run of `learning`, without a plot")
    given = parser.parse_args()
    if given.what == "sync":
        sync()
    elif given.what == "kills":
        kills()
    elif given.only:
        learn(given.only, given.runs, given.steps, given.every)
    else:
        learning(given.runs, given.steps, given.every, given.picture)


if __name__ == "__main__":
    main()
