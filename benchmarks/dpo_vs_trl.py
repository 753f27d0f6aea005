r"""DPO over pairs from a file: rlvr beside TRL's DPOTrainer, as a Markdown table.

    OMP_NUM_THREADS=1 python -m benchmarks.dpo_vs_trl --pairs 2000

The interpreter has rlvr[train] and trl.  Both sides have the same small Llama in float32, the same
pairs in the same order (lengths of completions 20 to 400 tokens, their logarithms uniform), β,
AdamW, learning rate and batch; each runs in a process of its own, with the model made before the
clock starts.  The time is that of all steps, with the reference policy's passes; CPU seconds say
more than seconds where the machine has other work.  The losses of all steps are compared; the
command fails if two differ by more than 1e-5.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

CHARSET = "0123456789abcdefghijklmnopqrstuvwxyz +-*/=.,()"
BATCH, BETA, LR, TOLERANCE = 16, 0.1, 1e-4, 1e-5


def pairs(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Texts of random characters; one character is one token."""
    draw = random.Random(seed)

    def text(length: int) -> str:
        return "".join(draw.choices(CHARSET, k=length))

    for _ in range(count):
        chosen, rejected = (
            text(round(math.exp(draw.uniform(math.log(20), math.log(400))))) for _ in range(2)
        )
        yield {"prompt": text(24), "chosen": chosen, "rejected": rejected}


def model(hidden: int, layers: int) -> tuple[Any, Any]:
    from rlvr.train.tiny import tiny

    return tiny(
        CHARSET, hidden=hidden, heads=4, layers=layers, family="llama", max_length_tokens=512
    )


def ours(path: Path, hidden: int, layers: int) -> dict[str, Any]:
    from rlvr.algo.papers import load_algorithm
    from rlvr.train.config import Config
    from rlvr.train.learner import Learner
    from rlvr.train.policy import Policy
    from rlvr.train.preferences import examples_of_file

    policy = Policy(*model(hidden, layers))
    config = Config(
        model="", run=path.parent / "run", pairs=path, algorithm="dpo", lr=LR, max_tokens=512
    )
    examples, _ = examples_of_file(path, load_algorithm("dpo"), policy.tokenization, max_tokens=512)
    learner = Learner(policy, config)
    losses, started, cpu = [], time.perf_counter(), time.process_time()
    for first in range(0, len(examples.rows), BATCH):
        part = examples.part(range(first, min(first + BATCH, len(examples.rows))))
        losses.append(learner.learn(part, first // BATCH)["loss"])
    return {
        "seconds": time.perf_counter() - started,
        "cpu_s": time.process_time() - cpu,
        "losses": losses,
    }


def theirs(path: Path, hidden: int, layers: int) -> dict[str, Any]:
    from datasets import Dataset
    from torch.utils.data import SequentialSampler
    from transformers import TrainerCallback
    from trl import DPOConfig, DPOTrainer

    class InOrder(DPOTrainer):  # type: ignore[misc]
        def _get_train_sampler(self, dataset: Any = None) -> SequentialSampler:
            return SequentialSampler(self.train_dataset)

    class Losses(TrainerCallback):  # type: ignore[misc]
        losses: list[float] = []  # noqa: RUF012
        started = 0.0
        seconds = 0.0
        cpu = 0.0

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            self.started, self.cpu = time.perf_counter(), time.process_time()

        def on_train_end(self, *args: Any, **kwargs: Any) -> None:
            self.seconds, self.cpu = (
                time.perf_counter() - self.started,
                time.process_time() - self.cpu,
            )

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
        ) -> None:
            if logs and "loss" in logs:
                self.losses.append(logs["loss"])

    class Exact(InOrder):
        """Its log rounds losses to four digits; this keeps what was computed."""

        kept: list[float] = []  # noqa: RUF012

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            found = super().compute_loss(*args, **kwargs)
            self.kept.append(float((found[0] if isinstance(found, tuple) else found).detach()))
            return found

    policy, tokenizer = model(hidden, layers)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    arguments = DPOConfig(
        output_dir=str(path.parent / "trl"),
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        beta=BETA,
        learning_rate=LR,
        lr_scheduler_type="constant",
        warmup_steps=0,
        max_grad_norm=1.0,
        weight_decay=0.0,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        logging_steps=10**6,
        save_strategy="no",
        disable_tqdm=True,
        max_length=512,
        dataloader_drop_last=False,
    )
    watch = Losses()
    reference = model(hidden, layers)[0]
    trainer = Exact(
        policy,
        ref_model=reference,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[watch],
    )
    policy.train()
    trainer.train()
    return {"seconds": watch.seconds, "cpu_s": watch.cpu, "losses": trainer.kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--side", choices=("rlvr", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.side:
        found = (ours if flags.side == "rlvr" else theirs)(flags.file, flags.hidden, flags.layers)
        print("\n" + json.dumps(found))
        return
    sides = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.jsonl"
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in pairs(flags.pairs)), encoding="utf-8"
        )
        for side in ("rlvr", "trl"):
            command = [
                sys.executable,
                "-m",
                "benchmarks.dpo_vs_trl",
                *sys.argv[1:],
                "--side",
                side,
                "--file",
                str(path),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            sides[side] = json.loads(done.stdout.splitlines()[-1])
    a, b = sides["rlvr"]["losses"], sides["trl"]["losses"]
    apart = max(abs(x - y) for x, y in zip(a, b, strict=True))
    print("| side | seconds | CPU s | pairs per CPU s | last loss |\n|---|--:|--:|--:|--:|")
    for side, found in sides.items():
        seconds, cpu_s = found["seconds"], found["cpu_s"]
        print(
            f"| {side} | {seconds:.1f} | {cpu_s:.1f} | {flags.pairs / cpu_s:.1f} | "
            f"{found['losses'][-1]:.6f} |"
        )
    print(f"\n{len(a)} steps of {BATCH} pairs; losses differ by at most {apart:.1e}")
    if apart > TOLERANCE:
        sys.exit(f"the losses differ by more than {TOLERANCE:g}")


if __name__ == "__main__":
    main()
