r"""Critics and algorithms against each other, as the tables of docs/benchmarks/trainer.md.

    python -m benchmarks.algorithms chain                       # what the critic says of a chain with known values
    OMP_NUM_THREADS=1 python -m benchmarks.algorithms step      # a PPO step, and one of LoRA, over a GRPO step
    OMP_NUM_THREADS=1 python -m benchmarks.algorithms demo --seeds 5 [--only GRPO RFT]

`demo` trains one warm-started model on small sums with every algorithm.  A step of each has the same number of
rollouts, 64: of 64 tasks with a critic, of 8 tasks otherwise.  VinePPO samples continuations ("forks") besides.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time

import torch
from rich.console import Console

import rlvr
from benchmarks.trainer_tasks import Sums, warm_started
from benchmarks.trainer_vs_trl import about
from rlvr.algo.papers import load_algorithm
from rlvr.algo.papers.base import Algorithm
from rlvr.algo.parts import Critic
from rlvr.statistics import student_interval
from rlvr.train.config import Config
from rlvr.train.credit import collate, credit
from rlvr.train.critic import CriticLearner
from rlvr.train.learner import Learner
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

RIGHT, WRONG, STEPS = 4, 5, 5


def chain_rows(steps: torch.Tensor) -> list[rlvr.Rollout]:
    """Rollouts of the chain: 1 for a right step and 0 for a wrong one, shape [B, 5]; reward 1 if all are right."""
    task = rlvr.Task("chain", "?")
    rows = []
    for one in steps.tolist():
        won = all(one)
        verdict = rlvr.Verdict("correct" if won else "wrong", why="by its steps")
        rows.append(
            rlvr.Rollout(
                task=task,
                text="",
                prompt_ids=[1],
                completion_ids=[RIGHT if right else WRONG for right in one],
                completion_mask=[True] * STEPS,
                behaviour_logprobs=[-0.6931] * STEPS,
                weights_version=0,
                score=rlvr.Score(float(won), {"correct": float(won)}, verdict),
            )
        )
    return rows


def chain_error(*, updates: int, seed: int, rows: int = 256, lr: float = 5e-3) -> float:
    """Mean absolute error of the critic's values on the five states of the chain that can still win."""
    critic = Critic(lr=lr, value_clip=None, schedule="linear")
    algorithm = dataclasses.replace(load_algorithm("ppo"), kl=None, whiten=False, critic=critic)
    made = Policy(*tiny("0123456789", hidden=32, layers=2, heads=4, seed=seed))
    config = Config(
        env="chain",
        model="tiny",
        run=Path("unused"),
        algorithm=algorithm,
        eval_every=None,
        steps=updates,
        updates=1,  # by which the schedule of the learning rate ends at the last one
        prompts=rows,
    )
    learner, draw = Learner(made, config), torch.Generator().manual_seed(seed)
    critic = learner.part(CriticLearner)
    assert critic is not None
    for _ in range(updates):
        sampled = chain_rows(torch.randint(0, 2, (rows, STEPS), generator=draw))
        groups = [rlvr.Group(row.task, [row]) for row in sampled]
        batch = learner.prepared(collate(groups))
        batch = dataclasses.replace(batch, **credit(groups, batch, algorithm)._asdict())
        critic.clear()
        critic.backward(batch)
        critic.step()
    values, _ = critic.values(chain_rows(torch.ones(1, STEPS)))
    wanted = 2.0 ** -torch.arange(STEPS, 0, -1)
    return float((values[0] - wanted).abs().mean())


def chain(args: argparse.Namespace) -> None:
    """Print the error for each seed."""
    for seed in range(args.seeds):
        print(f"seed {seed}: mean absolute error {chain_error(updates=args.steps, seed=seed):.4f}")


def step(args: argparse.Namespace) -> None:
    """Print the seconds of an update of GRPO, of PPO and of GRPO on a LoRA adapter, in turns, on one batch."""
    rows, length = 32, 96
    draw = torch.Generator().manual_seed(0)
    learners = {}
    for name, lora in (("grpo", None), ("ppo", None), ("grpo, LoRA", 8)):
        policy = Policy(*tiny("0123456789abcdef", hidden=256, layers=4, heads=4))
        if lora is not None:
            policy.add_lora(rank=lora)
        changes = {
            "kl": load_algorithm("grpo").kl,
        }  # all with the same reference
        config = Config(
            env="e",
            model="tiny",
            run=Path("unused"),
            algorithm=dataclasses.replace(load_algorithm(name.split(",")[0]), **changes),
            group_size=8,
            prompts=rows // 8,
            max_tokens=length,
            lora_rank=lora,
            eval_every=None,
        )
        learners[name] = Learner(policy, config)
    task = rlvr.Task("t", "?")
    sampled = [
        rlvr.Rollout(
            task=task,
            text="",
            prompt_ids=[1, 2, 3, 4] * 8,
            completion_ids=torch.randint(4, 16, (length,), generator=draw).tolist(),
            completion_mask=[True] * length,
            behaviour_logprobs=[-2.5] * length,
            weights_version=0,
            score=rlvr.Score(
                float(i % 2),
                {"r": float(i % 2)},
                rlvr.Verdict("correct" if i % 2 else "wrong", why="-"),
            ),
        )
        for i in range(rows)
    ]
    groups = [rlvr.Group(task, sampled[i : i + 8]) for i in range(0, rows, 8)]
    times: dict[str, list[float]] = {name: [] for name in learners}
    for _ in range(args.steps):
        for name, learner in learners.items():
            started = perf_counter()
            batch = learner.prepared(collate(groups))
            batch = dataclasses.replace(batch, **credit(groups, batch, learner.algorithm)._asdict())
            learner.update(batch, [range(rows)], lambda mini: None)
            times[name].append(perf_counter() - started)
    for name, each in times.items():
        ratios = sorted(mine / full for mine, full in zip(each[1:], times["grpo"][1:], strict=True))
        shown = f"{median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) of GRPO's"
        print(
            f"{name}: {median(each[1:]):.3f} s per step, {shown}, median of {len(ratios)} in turns"
        )


DEMO: dict[str, Algorithm] = {
    "PPO with critic": dataclasses.replace(
        load_algorithm("ppo"), kl=None, critic=Critic(lr=1e-3, warmup=3)
    ),
    "A2C": dataclasses.replace(
        load_algorithm("a2c"), critic=Critic(lr=1e-3, value_clip=None, warmup=3)
    ),
    "GRPO": dataclasses.replace(load_algorithm("grpo"), kl=None),
    "VinePPO": dataclasses.replace(load_algorithm("vineppo"), kl=None, temperature=1.0),
    "online DPO": dataclasses.replace(load_algorithm("dpo"), dynamic_sampling=False),
    "RFT": load_algorithm("rft"),
}
"""With the published numbers, but without KL penalties, and without sampling other groups instead of uniform ones."""


def demo(args: argparse.Namespace) -> None:
    """Train every algorithm with every seed and print the table.

    Seed by seed, so that a run that is stopped has whole seeds.  With `--runs`, finished runs are only read.
    """
    print(about("torch", "transformers"))
    first = warm_started(args.models, seed=0, steps=args.warm_steps)
    names = [name for name in DEMO if not args.only or name in args.only]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seeds):
            for name in names:
                run = (args.runs or Path(folder)) / f"{name.replace(' ', '-')}-{seed}"
                found[name].append(
                    trained(name, first, run, seed=seed, steps=args.steps, lr=args.lr)
                )
                print(f"seed {seed}, {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    print(
        f"\n{args.seeds} seeds, {args.steps} steps, learning rate {args.lr:g}; means, with 0.95 intervals over seeds\n"
    )
    print("| | held out, before | held out, after | rollouts | forks | updates | CPU s per step |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, runs in found.items():
        after = [run["after"] for run in runs]
        low, high = student_interval(after)
        shown = " | ".join(
            f"{fmean(run[column] for run in runs):,.0f}"
            for column in ("rollouts", "forks", "updates")
        )
        before, cpu_s = (fmean(run[column] for run in runs) for column in ("before", "cpu_s"))
        print(
            f"| {name} | {before:.3f} | {fmean(after):.3f} ({low:.3f}–{high:.3f}) | {shown} | {cpu_s:.2f} |"
        )


def trained(
    name: str, first: Path, run: Path, *, seed: int, steps: int, lr: float
) -> dict[str, float]:
    """What a run gave: held-out accuracy before and after it, its rollouts, forks, updates and seconds."""
    algorithm, done = DEMO[name], run / "demo.json"
    if done.is_file():
        found: dict[str, float] = json.loads(done.read_text())
        return found
    group = 1 if algorithm.critic is not None else 8
    config = Config(
        env="sums",
        model=str(first),
        run=run,
        algorithm=algorithm,
        steps=steps,
        prompts=64 // group,
        group_size=group,
        max_tokens=40,
        lr=lr,
        warmup_steps=4,
        vine_k=3 if name == "VinePPO" else None,
        eval_every=0,
        eval_tasks=300,
        workers=0,
        rollouts_every=0,
        checkpoint_every=10**6,
        device="cpu",
        seed=seed,
    )
    with Trainer(
        config, env=Sums(), eval_env=Sums(split="test"), console=Console(quiet=True)
    ) as trainer:
        started = process_time()
        trainer.run()
        cpu_s = process_time() - started
    rows = read_metrics(run / "metrics.jsonl")
    found = {
        "before": rows[0]["eval/avg@1"],
        "after": rows[-1]["eval/avg@1"],
        "cpu_s": cpu_s / steps,
        **{
            column: sum(row.get(column, 0) for row in rows)
            for column in ("rollouts", "forks", "updates")
        },
    }
    done.write_text(json.dumps(found))
    return found


def main() -> None:
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=("chain", "step", "demo"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--steps", type=int, help="updates of the chain (200), steps timed (9) or trained (30)"
    )
    parser.add_argument("--only", nargs="*", choices=tuple(DEMO), help="algorithms of the demo")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate of the demo")
    parser.add_argument(
        "--runs", type=Path, help="folder that keeps the demo's runs; by default they are temporary"
    )
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "rlvr-benchmark-models",
                        help="folder for the warm-started model, which is made once and kept")  # fmt: skip
    parser.add_argument("--warm-steps", type=int, default=700, help="of the warm start")
    args = parser.parse_args()
    args.steps = args.steps or {"chain": 200, "step": 9, "demo": 30}[args.which]
    {"chain": chain, "step": step, "demo": demo}[args.which](args)


if __name__ == "__main__":
    main()
