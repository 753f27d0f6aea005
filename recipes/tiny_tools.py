"""What the recipes with tools share: a tiny model that was shown episodes, and learns when to call by DAPO."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Final

import torch
from rich.console import Console

import rlvr
from rlvr.console import PlainConsole
from rlvr.recipes.common import show_results
from rlvr.samplers.protocol import TokenRow
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

__all__ = ["Settings", "train_tools"]

_TEMPLATE: Final = """
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'tool' %}>{{ message.content }}
{%- elif message.role == 'assistant' %}{{ message.content }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>
{%- endfor %}{{ eos_token }}
{%- else %}{% if tools %}({{ tools[0].function.name }}) {% endif %}{{ message.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}:{% endif %}"""
"""Shows the tool by its name alone: the schemas would be most of what the tiny model reads."""

_CHARSET: Final = "".join(map(chr, range(32, 127))) + "\n"

_SHOWN: Final = 500  # episodes of the warm start; with a tool, each opens a session


@dataclass(frozen=True)
class Settings:
    """Show a tiny model episodes with and without the tool, then train it by DAPO."""

    run: Path | None = None
    """Where the run goes; a temporary folder by default.  A run that was stopped goes on."""
    steps: int = 30
    """Training steps of DAPO."""
    warm_steps: int = 400
    """Steps of the warm start."""
    guesses: float = 0.5
    """Share of the episodes shown in the warm start that guess, without a call of the tool."""
    seed: int = 0
    """Seed of weights, tasks and rollouts."""


def train_tools(
    settings: Settings,
    env: rlvr.Environment,
    eval_env: rlvr.Environment,
    *,
    words: Sequence[str],
    guess: str,
    max_tokens: int,
) -> int:
    """Warm start, training and its results; returns the exit code.

    Args:
        settings: of warm start and training.
        env, eval_env: to train and to evaluate on; their `example_episode` is shown in the warm
            start.
        words: what the model writes around its own characters, as one token each.
        guess: the answer of the episodes without a call in the warm start; one, so that nothing is
            learned of it.
        max_tokens: of an episode.
    """
    started, console = time.perf_counter(), PlainConsole(quiet=os.environ.get("RANK", "0") != "0")
    run = settings.run or Path(mkdtemp(prefix="tools-"))
    model, tokenizer = tiny(_CHARSET, words=words, hidden=96, heads=4, seed=settings.seed)
    tokenizer.chat_template = _TEMPLATE
    policy = Policy(model, tokenizer)
    _warm_start(policy, env, settings, guess, console)
    warm_s = time.perf_counter() - started
    config = Config(
        env=env.id,
        model=f"tiny, warm start of {settings.warm_steps} steps with {settings.guesses:g} guesses",
        run=run,
        algorithm="dapo",
        steps=settings.steps,
        prompts=16,
        group_size=8,
        max_tokens=max_tokens,
        lr=3e-4,
        warmup_steps=4,
        eval_every=max(1, settings.steps // 3),
        eval_tasks=64,
        workers=1,
        seed=settings.seed,
    )
    with Trainer(config, policy=policy, env=env, eval_env=eval_env, console=console) as trainer:
        trainer.run()
    code = show_results(trainer, before="after the warm start")
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "tools/used" in row]
    if rows:
        for row in (rows[0], rows[-1]):
            console.print(
                f"step {row['step']}: episodes with a call {row['tools/used']:.2f}, calls that "
                f"were wrong "
                f"{row.get('tools/errors') or 0:.2f}",
            )
    console.print(
        f"{warm_s:.0f} s of warm start, {time.perf_counter() - started:.0f} s in all",
    )
    return code


def _warm_start(
    policy: Policy, env: rlvr.Environment, settings: Settings, guess: str, console: Console
) -> None:
    """Train on the next token of episodes: right ones with the tool, and guesses without it."""
    rng = Random(settings.seed)
    tasks = [env.task(rng.randrange(env.size or 10**6)) for _ in range(_SHOWN)]
    right = [_rows_of_turns(policy, env, task, env.example_episode(task) or ()) for task in tasks]
    guessed = [_rows_of_turns(policy, env, task, [guess]) for task in tasks]
    optimizer = torch.optim.AdamW(policy.model.parameters(), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=settings.warm_steps, pct_start=0.1
    )
    for step in range(settings.warm_steps):
        episodes = [
            rng.choice(guessed if rng.random() < settings.guesses else right) for _ in range(24)
        ]
        rows = [row for episode in episodes for row in episode]
        loss = -policy.logprobs(rows).sum() / sum(len(row.completion_ids) for row in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 50 == 0:
            console.print(f"warm start {step + 1:>4}   loss {loss.item():.3f}")


def _rows_of_turns(
    policy: Policy,
    env: rlvr.Environment,
    task: rlvr.Task,
    turns: Sequence[str | rlvr.Ask | rlvr.PolicyTurn],
) -> list[TokenRow]:
    """The turns of an episode, each after what the policy would have read before it."""
    rows: list[TokenRow] = []
    with env.open(task) as running:
        context = policy.tokenization.encode(task.prompt, tools=running.schemas)
        for turn in turns:
            text = turn if isinstance(turn, str) else _write_call(turn)
            ids = [
                *policy.tokenizer(text, add_special_tokens=False)["input_ids"],
                policy.tokenizer.eos_token_id,
            ]
            rows.append(TokenRow(context, ids))
            messages = running.reply(turn)
            if messages is None:
                break
            context = [*context, *ids]
            context += policy.tokenization.encode(messages, context)
    return rows


def _write_call(turn: rlvr.Ask | rlvr.PolicyTurn) -> str:
    """A call as the template writes it."""
    assert isinstance(turn, rlvr.Ask)
    return f"<tool_call>{json.dumps({'name': turn.name, 'arguments': dict(turn.arguments)})}</tool_call>"
