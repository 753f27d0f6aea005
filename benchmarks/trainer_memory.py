"""The forecast of memory against what processes take, and a step with LoRA against a full one,
on a CPU.

    python -m benchmarks.trainer_memory                   all settings, one process each
    python -m benchmarks.trainer_memory --only full lora

Each process makes a model of 5 million weights, builds a learner, and makes two updates of full
rows in two micro-batches each.  Memory is the growth of the process's greatest resident set since
the same was done with a model of a few thousand weights; the forecast is that of
`rlvr.train.memory`, of weights, optimiser, reference, gradients, activations and logits.  The time
is that of the second update.

glibc is told to give freed blocks back to the system (MALLOC_MMAP_THRESHOLD_): by itself it keeps
many for later, and the resident set is then what lived at any place at any time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, KL reference": {"algorithm": "grpo"},
    "full, checkpointing": {"gradient_checkpointing": True},
    "full, bf16": {"precision": "bf16"},
    "lora": {"lora_rank": 16},
    "lora, KL reference": {"lora_rank": 16, "algorithm": "grpo"},
    "lora, checkpointing": {"lora_rank": 16, "gradient_checkpointing": True},
    # One conjugate gradient: more of them take no more memory.
    "trpo": {"algorithm": "trpo", "group_size": 1, "prompts": 8, "micro_tokens": 512},
}
TOKENS, PROMPT, ROWS = 120, 8, 32
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}


def one(settings: dict[str, Any]) -> dict[str, float]:
    """A process's own numbers."""
    import torch

    import rlvr
    from rlvr.algo.papers import load_algorithm
    from rlvr.algo.parts import TrustRegion
    from rlvr.train.config import Config
    from rlvr.train.credit import collate
    from rlvr.train.learner import Learner
    from rlvr.train.memory import forecast
    from rlvr.train.policy import Policy
    from rlvr.train.setup import autocast_dtype
    from rlvr.train.tiny import tiny

    torch.set_num_threads(1)
    common = {
        "env": "e",
        "model": "m",
        "run": Path("r"),
        "eval_every": None,
        "algorithm": "dr_grpo",
        "lr": 1e-3,
    }
    sizes = {
        "max_tokens": TOKENS,
        "prompts": ROWS // 4,
        "group_size": 4,
        "micro_tokens": ROWS // 2 * (TOKENS + PROMPT),
    }
    config = Config(**common | sizes | settings)
    if config.resolve().algorithm.trust_region is not None:
        quick = dataclasses.replace(load_algorithm("trpo"), trust_region=TrustRegion(cg_steps=1))
        config = dataclasses.replace(config, algorithm=quick)

    def learner_of(width: int) -> Learner:
        policy = Policy(
            *tiny("0123456789+-= abcxy", hidden=width, layers=5, heads=4),
            autocast=autocast_dtype(config.precision),
            gradient_checkpointing=config.gradient_checkpointing,
            max_tokens=config.micro_tokens,
            share_prompts=False,
        )
        if config.lora_rank:
            policy.add_lora(rank=config.lora_rank)
        return Learner(policy, config)

    draw, rollouts = torch.Generator().manual_seed(0), []
    for _ in range(config.prompts * config.resolve().group_size):
        ids = torch.randint(4, 20, (TOKENS,), generator=draw).tolist()
        score = rlvr.Score(1.0, {"correct": 1.0}, rlvr.Verdict("correct", why="given"))
        rollouts.append(
            rlvr.Rollout(
                task=rlvr.Task("t", "?"),
                text="",
                prompt_ids=[1] * PROMPT,
                completion_ids=ids,
                completion_mask=[True] * TOKENS,
                behaviour_logprobs=[-3.0] * TOKENS,
                weights_version=0,
                truncated=False,
                score=score,
            )
        )
    batch = collate([rlvr.Group(rollouts[0].task, rollouts)])
    advantages = torch.randn(len(rollouts), 1, generator=draw).expand(-1, TOKENS)
    for width in (8, 256):  # the first loads all code
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        learner = learner_of(width)
        for _ in range(2):
            started = time.process_time()
            given = dataclasses.replace(
                learner.prepared(batch), advantages=advantages, returns=advantages
            )
            learner.update(given, [range(len(rollouts))], print)
            seconds = time.process_time() - started
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    found = forecast(learner.policy, config, prompt_tokens=PROMPT)
    return {"taken": taken, "forecast": found.standing + found.update, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.one is not None:
        print(json.dumps(one(json.loads(flags.one))))
        return
    print(
        "| settings | taken, MiB | forecast, "
        "MiB | forecast / taken | CPU s per update |\n|---|--:|--:|--:|--:|"
    )
    for name in flags.only:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "benchmarks.trainer_memory",
            "--one",
            json.dumps(SETTINGS[name]),
        ]
        found = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True, env=ENV).stdout
        )
        taken, said = (found[key] / 2**20 for key in ("taken", "forecast"))
        print(
            f"| {name} | {taken:.0f} | {said:.0f} | {said / taken:.2f} | {found['seconds']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
