"""The models of size tiny: two layers that were shown a task, with
mistakes, for a minute or two."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import torch

import rlvr
from rlvr.console import PlainConsole
from rlvr.recipes.arithmetic_cpu.run import DemoSettings, warm_model
from rlvr.recipes.python_tool_math.products import Products
from rlvr.recipes.search_qa.facts import Ages
from rlvr.samplers.protocol import TokenRow
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

__all__ = ["drills", "products", "search_model", "sums", "teach"]

_TEMPLATE: Final = """
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'tool' %}>{{ message.content }}
{%- elif message.role == 'assistant' %}{{ message.content }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\
</tool_call>
{%- endfor %}{{ eos_token }}
{%- else %}{% if tools %}({{ tools[0].function.name }}) {% endif %}{{ message.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}:{% endif %}"""
"""Shows the tool by its name alone: the schemas would be most of what the tiny model reads."""

_CHARSET: Final = "".join(map(chr, range(32, 127))) + "\n"

_GUESSES: Final = 0.5  # of the episodes that are shown, which have no call
_SHOWN: Final = 500  # episodes of the warm start; with a tool, each opens a session


def sums(**settings: Any) -> Policy:
    """A model that adds two numbers, with mistakes.

    Args:
        settings: of `arithmetic_cpu`.
    """
    return warm_model(DemoSettings(**settings))


def drills(steps: int = 1200) -> Policy:
    """A model that writes functions of one line, or one that returns its argument.

    Args:
        steps: of its training.
    """
    env = rlvr.make("code-drills-v1", shown=0, instruction="")
    words = ("Write a Python function `f(", "` that takes ", " and returns ", "```python\ndef f(")
    return _teach_once(env, words, "```python\ndef f(n):\n    return n\n```", steps)


def search_model(steps: int = 400) -> Policy:
    """A model that searches for a person's age, or says 50.

    Args:
        steps: of its training.
    """
    call = '<tool_call>{"name": "search", "arguments": {"query": "'
    words = (call, '"}}</tool_call>', "<answer>", "</answer>")
    return _teach_once(Ages(), words, "<answer>50</answer>", steps)


def products(steps: int = 400) -> Policy:
    """A model that lets Python multiply, or says 2500.

    Args:
        steps: of its training.
    """
    call = '<tool_call>{"name": "python", "arguments": {"code": "'
    words = (call, '"}}</tool_call>', "\\boxed{")
    return _teach_once(Products(), words, "\\boxed{2500}", steps)


def _teach_once(env: rlvr.Environment, words: Sequence[str], guess: str, steps: int) -> Policy:
    """A tiny model that was taught, see `teach`.

    Args:
        env, guess, steps: see `teach`.
        words: what the model writes around its own characters, as one token each.
    """
    # transformers reads the tokenizer of a qwen2 folder by its own rules, which drop spaces.
    model, tokenizer = tiny(_CHARSET, words=words, hidden=96, heads=4, family="llama")
    tokenizer.chat_template = _TEMPLATE
    policy = Policy(model, tokenizer)
    teach(policy, env, guess, steps=steps)
    return policy


def teach(
    policy: Policy,
    env: rlvr.Environment,
    guess: str,
    *,
    steps: int,
    lr: float = 3e-3,
    episodes: int = 24,
    shown: int = _SHOWN,
) -> None:
    """Train on right episodes, and on as many that say one answer, of which nothing is learned.

    Args:
        policy: is trained in place.
        env: has the examples.
        guess: the answer of the other episodes.
        steps: of its training.
        lr: the highest learning rate.
        episodes: of each step.
        shown: right episodes to draw from.
    """
    rng, console = Random(0), PlainConsole()
    tasks = [env.task(rng.randrange(env.size or 10**6)) for _ in range(shown)]
    # Tokens are made once, before the steps: with a tool each episode opens a session.
    right = [_rows_of_turns(policy, env, task, _example(env, task)) for task in tasks]
    guessed = [_rows_of_turns(policy, env, task, [guess]) for task in tasks]
    optimizer = torch.optim.AdamW(policy.model.parameters(), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        sampled = [
            rng.choice(guessed if rng.random() < _GUESSES else right) for _ in range(episodes)
        ]
        rows = [row for episode in sampled for row in episode]
        # The mean over what the policy writes; what tools
        # answer is in the contexts and is not learned.
        loss = -policy.logprobs(rows).sum() / sum(len(row.completion_ids) for row in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 50 == 0:
            console.print(f"warm start {step + 1:>4}   loss {loss.item():.3f}")


def _example(env: rlvr.Environment, task: rlvr.Task) -> Sequence[str | rlvr.Ask | rlvr.PolicyTurn]:
    """A right episode of a task."""
    return env.example_episode(task) or [str(env.example(task))]


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
    call = json.dumps({"name": turn.name, "arguments": dict(turn.arguments)})
    return f"<tool_call>{call}</tool_call>"
