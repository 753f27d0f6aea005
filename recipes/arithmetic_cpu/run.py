"""A tiny model that was taught to add with mistakes learns by DAPO to add
right.  No GPU, no download.

Example: rlvr train arithmetic_cpu --steps 100 --seed 0
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import mkdtemp

import torch
import tyro
from rich.console import Console

import rlvr
from rlvr.console import PlainConsole
from rlvr.recipes.arithmetic_cpu.sums import Sums, added_by_columns
from rlvr.recipes.common import show_results
from rlvr.samplers.protocol import TokenRow
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

__all__ = ["CHARSET", "DEFAULTS", "DemoSettings", "main", "warm_model", "warm_start", "worked"]

CHARSET = "0123456789+= \\boxed{}"


@dataclass(frozen=True)
class DemoSettings:
    """Warm-start a tiny model on noisy sums, then train it by DAPO."""

    run: Path | None = None
    """Where the run goes; a temporary folder by default.  A run that was stopped goes on."""
    steps: int = 100
    """Training steps of DAPO."""
    warm_steps: int = 600
    """Steps of the warm start."""
    noise: float = 0.25
    """Share of the columns that are added wrong in the warm start's data."""
    lora_rank: int | None = None
    """Train a LoRA adapter of this rank, instead of all weights."""
    max_staleness: int = 0
    """Collect the next batch while training on this one."""
    seed: int = 0
    """Seed of weights, tasks and rollouts."""


DEFAULTS = DemoSettings()


def main(settings: DemoSettings = DEFAULTS) -> int:
    """Warm start, training and its results; returns the exit code.

    Args:
        settings: of warm start and training.
    """
    # torchrun gives every process its RANK; one of them prints.
    started, console = time.perf_counter(), PlainConsole(quiet=os.environ.get("RANK", "0") != "0")
    run = settings.run or Path(mkdtemp(prefix="arithmetic-"))
    first = str(Sums().task(0).prompt)
    console.print(f"{first}{worked(first, Random(0), noise=0.0)}")

    policy = warm_model(settings, console)
    warm_s = time.perf_counter() - started

    config = Config(
        env="sums",
        # no run without it
        model=f"tiny, warm start of {settings.warm_steps} steps with noise {settings.noise:g}",
        run=run,
        algorithm="dapo",
        steps=settings.steps,
        prompts=32,
        group_size=8,
        max_tokens=48,
        lr=3e-4 if settings.lora_rank is None else 3e-3,  # an adapter has fewer weights to move
        lora_rank=settings.lora_rank,
        max_staleness=settings.max_staleness,
        warmup_steps=4,
        eval_every=25,
        eval_tasks=300,
        rollouts_every=25,
        workers=1,
        seed=settings.seed,
    )
    with Trainer(
        config, policy=policy, env=Sums(), eval_env=Sums(split="test"), console=console
    ) as trainer:
        trainer.run()
    code = show_results(trainer, before="after the warm start")
    console.print(
        f"{warm_s:.0f} s of warm start, {time.perf_counter() - started:.0f} s in all",
    )
    return code


def warm_model(settings: DemoSettings = DEFAULTS, console: Console | None = None) -> Policy:
    """A tiny model that was taught to add with mistakes.

    Args:
        settings: of the warm start.
        console: shows the loss; None for one of its own.
    """
    policy = Policy(*tiny(CHARSET, hidden=96, layers=2, heads=4, seed=settings.seed))
    steps, noise, seed = settings.warm_steps, settings.noise, settings.seed
    output = console or PlainConsole()
    warm_start(policy, Sums(), worked, steps=steps, noise=noise, seed=seed, console=output)
    return policy


def worked(prompt: str, rng: Random, noise: float) -> str:
    """An answer with every column written out.

    Args:
        prompt, rng, noise: see `added_by_columns`.
    """
    columns, total = added_by_columns(prompt, rng, noise)
    return (
        " ".join(f"{x}+{y}{'+1' * carry}={column}" for x, y, carry, column in columns)
        + f" \\boxed{{{total}}}"
    )


def warm_start(
    policy: Policy,
    env: rlvr.Environment,
    worked: Callable[[str, Random, float], str],
    *,
    steps: int,
    noise: float,
    seed: int,
    console: Console,
) -> None:
    """Train on the next token of noisy answers: the policy learns how they are written, and their
    mistakes.

    Args:
        policy: is trained in place.
        env: its training tasks are answered.
        worked: makes an answer of a prompt, a generator and the noise.
        steps: number of updates, with 64 answers each.
        noise: share of the columns that are added wrong, from 0 to 1.
        seed: of the tasks and of the mistakes.
        console: shows the loss at every 50th step.
    """
    rng = Random(seed)
    optimizer = torch.optim.AdamW(policy.model.parameters(), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=steps, pct_start=0.1
    )
    for step in range(steps):
        prompts = [str(env.task(rng.randrange(10**6)).prompt) for _ in range(64)]
        answers = [
            policy.tokenizer(worked(prompt, rng, noise), add_special_tokens=False)
            for prompt in prompts
        ]
        rows = [
            TokenRow(
                policy.tokenization.encode(prompt),
                [*answer["input_ids"], policy.tokenizer.eos_token_id],
            )
            for prompt, answer in zip(prompts, answers, strict=True)
        ]
        # The mean over the answers' tokens, not over answers; prompts are not learned.
        loss = -policy.logprobs(rows).sum() / sum(len(row.completion_ids) for row in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 50 == 0:
            console.print(f"warm start {step + 1:>4}   loss {loss.item():.3f}")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(DemoSettings)))
