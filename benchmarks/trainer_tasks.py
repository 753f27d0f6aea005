"""What the trainer's benchmarks train on: two tasks, and the model that each begins with.

`Sums` ends its completions by itself, all after about as many tokens: the model was taught so.  `Noise` ends by chance:
its model has random weights, so that each of 44 tokens, the end token among them, is about as likely as any other, and
lengths are geometric.  Nobody forces a length on either side, and what both execute is the model.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import torch

import rlvr
from rlvr.samplers.protocol import TokenRow
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

__all__ = ["CHARSET", "MAX_TOKENS", "NOISE", "Noise", "Sums", "random_model", "warm_started"]

CHARSET = "0123456789+= #"
NOISE = "abcdefghijklmnopqrstuvwxyz0123456789+-=#"  # 40, and four special tokens: a completion has 44 tokens on average
MAX_TOKENS = {"skewed": 192, "uniform": 56}
SPLITS = {"train": range(9), "test": range(9, 10)}  # tenths of all pairs


class Sums(rlvr.SingleTurnEnv):
    """Add two numbers of three digits, column by column; the answer follows the #.  No pair is in both splits."""

    reward = rlvr.Correct(lambda completion, reference: completion.rpartition("#")[2] == str(reference))

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded("benchmarks/sums", self.split, index)
        while True:
            a, b = rng.randint(100, 999), rng.randint(100, 999)
            if rlvr.seeded("benchmarks/sums", min(a, b), max(a, b)).randrange(10) in SPLITS[self.split]:
                return rlvr.Task(f"sums/{self.split}/{index}", f"{a}+{b}=", reference=a + b)


class Noise(rlvr.SingleTurnEnv):
    """Begin with a letter of the first half; a random model is right about every third time."""

    reward = rlvr.Correct(lambda completion, reference: completion[:1] in tuple("abcdefghijklm"))

    def task(self, index: int) -> rlvr.Task:
        rng = rlvr.seeded("benchmarks/noise", self.split, index)
        return rlvr.Task(f"noise/{self.split}/{index}", "".join(rng.choices(NOISE, k=11)), reference="")


def random_model(seed: int = 0) -> tuple[Any, Any]:
    """A Qwen2 of a million weights for `Noise`, and its tokenizer.  Untied: a tied one likes to repeat itself."""
    return tiny(NOISE, hidden=128, layers=4, heads=4, tied=False, seed=seed)


def warm_started(folder: Path, *, seed: int, steps: int, noise: float = 0.08) -> Path:
    """The same model taught on worked `Sums`, a share of whose columns is wrong; made once, then kept."""
    kept = folder / f"sums-{seed}-{steps}-{noise:g}"
    if (kept / "config.json").is_file():
        return kept
    policy = Policy(*tiny(CHARSET, hidden=128, layers=4, heads=4, seed=seed))
    rng, env = Random(seed), Sums()
    optimizer = torch.optim.AdamW(policy.model.parameters(), weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        prompts = [str(env.task(rng.randrange(10**6)).prompt) for _ in range(64)]
        answers = [policy.tokenizer(worked(p, rng, noise), add_special_tokens=False)["input_ids"] for p in prompts]
        rows = [
            TokenRow(policy.tokenization.encode(prompt), [*answer, policy.tokenizer.eos_token_id])
            for prompt, answer in zip(prompts, answers, strict=True)
        ]
        loss = -policy.logprobs(rows).sum() / sum(len(row.completion_ids) for row in rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    policy.save(kept)
    return kept


def worked(prompt: str, rng: Random, noise: float) -> str:
    """An answer column by column; each column goes wrong with the chance `noise`."""
    a, b = prompt.rstrip("=").split("+")
    carry, digits, said = 0, "", []
    for x, y in zip(reversed(a), reversed(b), strict=True):
        total = int(x) + int(y) + carry
        if rng.random() < noise:
            total = max(0, total + rng.choice([-2, -1, 1, 2]))
        said.append(f"{x}+{y}+{carry}={total:02}")
        carry, digits = int(total > 9), str(total % 10) + digits
    return " ".join(said) + " #" + "1" * carry + digits
