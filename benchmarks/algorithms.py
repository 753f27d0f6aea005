r"""Critics and algorithms against each other, as the tables of docs/benchmarks/trainer.md.

    # what the critic says of a chain with known values
    python -m benchmarks.algorithms chain
    # a PPO step, and one of LoRA, over a GRPO step
    OMP_NUM_THREADS=1 python -m benchmarks.algorithms step
    OMP_NUM_THREADS=1 python -m benchmarks.algorithms names [--only grpo rft]

`names` trains one warm-started model on small sums with every name, each at its own defaults:
batches, updates and parts.  Distillation begins with a model that was taught half as long as its
teacher.  With `--to FILE` rows are added to the file, and names that it has are left out, so that
the table can be made in parts.
"""

import argparse
import dataclasses
import json
import random
import tempfile
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time
from typing import Any

import torch
from rich.console import Console

import rlvr
from benchmarks.trainer_tasks import Sums, warm_started, worked
from benchmarks.trainer_vs_trl import about
from rlvr.algo.papers import NAMES, load_algorithm
from rlvr.algo.parts import Critic
from rlvr.train.config import Config
from rlvr.train.credit import collate, credit
from rlvr.train.critic import CriticLearner
from rlvr.train.learner import Learner
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

RIGHT, WRONG, STEPS = 4, 5, 5
TASKS = "benchmarks.trainer_tasks"
SUMS = f"{TASKS}:Sums"


def chain_rows(steps: torch.Tensor) -> list[rlvr.Rollout]:
    """Rollouts of the chain: 1 for a right step and 0 for a wrong one, shape [B, 5];
    reward 1 if all are right."""
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
    """Mean absolute error of the critic's values on the five states of the chain that can still
    win."""
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
    """Print the seconds of an update of GRPO, of PPO and of GRPO on a LoRA adapter, in turns,
    on one batch."""
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


def names(args: argparse.Namespace) -> None:
    """Train each name at its defaults, and print its row of the table as soon as it is there."""
    print(about("torch", "transformers"))
    print(f"{args.steps} steps, learning rate {args.lr:g}, seed {args.seed}\n")
    print("| | ratio, greatest | clipped, % | held out | CPU s per step |")
    print("|---|--:|--:|--:|--:|", flush=True)
    teacher = warm_started(args.models, seed=0, steps=args.warm_steps)
    rows = args.to.read_text().splitlines() if args.to and args.to.is_file() else []
    done = {row.split("`")[1] for row in rows}
    for name in args.only or NAMES:
        if name in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = trained(name, teacher, Path(folder), args)
        print(row, flush=True)
        if args.to:
            with args.to.open("a") as file:
                file.write(f"{row}\n")


def trained(name: str, teacher: Path, folder: Path, args: argparse.Namespace) -> str:
    """The row of a run: how far ratios went, and what it learned."""
    algorithm = load_algorithm(name)
    settings: dict[str, Any] = {
        "env": SUMS,
        "eval_every": 0,
        "eval_tasks": args.eval_tasks,
        "workers": 0,
    }
    if "file" in algorithm.needs:
        settings["pairs"] = write_examples(folder / "examples.jsonl", algorithm.examples)
    else:
        settings["rollouts_every"] = 0
    if "head" in algorithm.needs:  # which says no text
        settings = {"pairs": settings["pairs"], "eval_every": None}
    if "step_rewards" in algorithm.reads:
        settings |= {"step_reward": f"{TASKS}:right_columns", "step_delimiter": " "}
    first = teacher
    if algorithm.needs_teacher:
        settings["teacher"] = str(teacher)
        first = warm_started(args.models, seed=0, steps=args.warm_steps // 2)
    config = Config(
        model=str(first),
        run=folder / "run",
        algorithm=name,
        steps=args.steps,
        max_tokens=40,
        lr=args.lr,
        checkpoint_every=10**6,
        device="cpu",
        seed=args.seed,
        **settings,
    )
    with Trainer(config, console=Console(quiet=True)) as trainer:
        started = process_time()
        trainer.run()
        cpu_s = process_time() - started
    rows = read_metrics(config.run / "metrics.jsonl")
    ratios = [row["ratio_max"] for row in rows if "ratio_max" in row]
    clipped = [row["clipped_low"] + row["clipped_high"] for row in rows if "clipped_low" in row]
    held_out = [row["eval/avg@1"] for row in rows if "eval/avg@1" in row]
    cells = [
        f"`{name}`",
        f"{max(ratios):.3f}" if ratios else "–",
        f"{100 * fmean(clipped):.2f}" if clipped else "–",
        f"{held_out[0]:.3f} → {held_out[-1]:.3f}" if held_out else "–",
        f"{cpu_s / args.steps:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def write_examples(path: Path, kind: str | None) -> Path:
    """A file of worked sums: each once right, and once with a wrong last digit."""
    env, draw, lines = Sums(), random.Random(0), []
    for index in range(512):
        prompt = env.task(index).prompt
        right = worked(prompt, draw, 0.0)
        wrong = right[:-1] + str((int(right[-1]) + 1) % 10)
        if kind == "pairs":
            rows = [{"prompt": prompt, "chosen": right, "rejected": wrong}]
        elif kind == "steps":
            steps = [[part + " " for part in text.split()] for text in (right, wrong)]
            labels = [[True] * len(steps[0]), [True] * (len(steps[1]) - 1) + [False]]
            rows = [
                {"prompt": prompt, "completions": parts, "labels": label}
                for parts, label in zip(steps, labels, strict=True)
            ]
        else:
            rows = [
                {"prompt": prompt, "completion": text, "label": text == right}
                for text in ((right,) if kind == "right" else (right, wrong))
            ]
        lines += [json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=("chain", "step", "names"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--steps", type=int, help="updates of the chain (200), steps timed (9) or trained (10)"
    )
    parser.add_argument("--only", nargs="*", choices=NAMES, help="some of the names")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate of the names")
    parser.add_argument("--seed", type=int, default=0, help="of the names")
    parser.add_argument(
        "--models",
        type=Path,
        default=Path(tempfile.gettempdir()) / "rlvr-benchmark-models",
        help="folder for the warm-started model, which is made once and kept",
    )
    parser.add_argument("--warm-steps", type=int, default=700, help="of the warm start")
    parser.add_argument("--eval-tasks", type=int, default=300, help="held out, of the names")
    parser.add_argument("--to", type=Path, help="file of rows, for a table that is made in parts")
    args = parser.parse_args()
    args.steps = args.steps or {"chain": 200, "step": 9, "names": 10}[args.which]
    {"chain": chain, "step": step, "names": names}[args.which](args)


if __name__ == "__main__":
    main()
