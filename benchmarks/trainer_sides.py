"""The sides of `benchmarks.trainer_vs_trl`, each in a process of its own:
it makes a step whenever a line comes in.

A step lasts from the end of the previous step to its own end.  All but generation, scoring and the
forward pass for log-probabilities counts as "update and the rest".
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import sys
import tempfile
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlvr
from benchmarks.trainer_tasks import MAX_TOKENS, Noise, Sums, random_model
from rlvr.algo.papers import load_algorithm
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.policy import Policy

__all__ = ["WINDOW", "Enough", "Job", "Recorder", "main"]

CLIP_LOW, CLIP_HIGH, EPS = 0.2, 0.28, 1e-4
TRL_ROWS = {"skewed": 16, "uniform": 128}  # of a micro-batch: what was fastest for TRL
WINDOW = 10  # steps whose mean accuracy counts: of one alone it is as good as chance


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a process does.

    Attributes:
        side: "rlvr", "rlvr-dynamic" (with dynamic sampling, which TRL does not have),
            "trl" or "plain".
        scenario: "skewed" or "uniform".
        model: folder of the model; empty for the random one.
        until: stop when the mean accuracy of the last ten steps has reached it.
    """

    side: str
    scenario: str
    steps: int
    prompts: int
    group_size: int = 8
    lr: float = 1e-6
    seed: int = 0
    model: str = ""
    until: float | None = None

    def env(self) -> rlvr.Environment:
        return Sums() if self.scenario == "uniform" else Noise()

    def loaded(self) -> tuple[Any, Any]:
        if not self.model:
            return random_model()
        return AutoModelForCausalLM.from_pretrained(self.model), AutoTokenizer.from_pretrained(
            self.model
        )


class Enough(Exception):
    """The accuracy that was waited for."""


class Recorder:
    """Takes the time of steps and of the phases inside, and tells them one by one.

    Args:
        until: see `Job`.
        tell: what becomes of a step's numbers; the next one begins when it returns.
    """

    def __init__(self, until: float | None, tell: Callable[[dict[str, float]], None]) -> None:
        self._until, self._tell = until, tell
        self._phases: dict[str, float] = defaultdict(float)
        self._last: deque[dict[str, float]] = deque(maxlen=WINDOW)
        self._ended, self._cpu_s = perf_counter(), process_time()

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted as the phase's."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._phases[phase] += perf_counter() - start

        return call

    def saw(self, lengths: list[int], rewards: list[float]) -> None:
        """What was sampled in this step."""
        self._phases["tokens"] += sum(lengths)
        self._phases["rollouts"] += len(lengths)
        self._phases["right"] += sum(rewards)
        self._phases["longest"] = max([self._phases["longest"], *lengths])

    def step_ends(self, **phases: float) -> bool:
        """Is it enough?"""
        now = perf_counter()
        found = {**self._phases, **phases}
        known = found["generation"] + found["scoring"] + found["logprobs"]
        found |= {
            "step": now - self._ended,
            "rest": now - self._ended - known,
            "cpu": process_time() - self._cpu_s,
        }
        self._last.append(found)
        self._phases.clear()
        self._tell(found)
        self._ended, self._cpu_s = perf_counter(), process_time()
        accuracy = sum(step["right"] for step in self._last) / sum(
            step["rollouts"] for step in self._last
        )
        return self._until is not None and len(self._last) == WINDOW and accuracy >= self._until


def of_rlvr(job: Job, folder: Path, recorder: Recorder) -> None:
    """Our trainer, scoring in this process."""
    dapo = replace(
        load_algorithm("dapo"), dynamic_sampling=job.side == "rlvr-dynamic", overlong="keep"
    )
    config = Config(
        env="given",
        model="given",
        run=folder,
        algorithm=dapo,
        steps=job.steps,
        prompts=job.prompts,
        group_size=job.group_size,
        max_tokens=MAX_TOKENS[job.scenario],
        lr=job.lr,
        workers=0,
        eval_every=None,
        rollouts_every=0,
        checkpoint_every=10**6,
        device="cpu",
        seed=job.seed,
    )
    policy = Policy(*job.loaded())
    with Trainer(config, policy=policy, env=job.env(), console=Console(quiet=True)) as trainer:
        policy.logprobs = recorder.timed("logprobs", policy.logprobs)  # type: ignore[method-assign]
        one_step = trainer.step

        def step() -> dict[str, float]:
            numbers = one_step()
            right = numbers["accuracy"] * numbers["rollouts"]
            counts = {"tokens": numbers["tokens"], "rollouts": numbers["rollouts"], "right": right}
            phases = {"generation": numbers["generation_s"], "scoring": numbers["scoring_wait_s"]}
            if recorder.step_ends(**phases, **counts, longest=numbers["length_max"]):
                raise Enough
            return numbers

        trainer.step = step  # type: ignore[method-assign]
        trainer.run()


def of_trl(job: Job, folder: Path, recorder: Recorder) -> None:
    """TRL's, in float32 as ours, and without gradient checkpointing, its default,
    which costs a forward pass."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    env, rollouts, rows = job.env(), job.prompts * job.group_size, TRL_ROWS[job.scenario]
    tasks = [env.task(i) for i in range(job.prompts * (job.steps + 1))]

    def reward(
        prompts: Any, completions: Any, completion_ids: Any, index: Any, **_: Any
    ) -> list[float]:
        scores = [
            env.score(tasks[i], text).total for i, text in zip(index, completions, strict=True)
        ]
        recorder.saw([len(ids) for ids in completion_ids], scores)
        return scores

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop |= recorder.step_ends()

    model, tokenizer = job.loaded()
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=job.steps,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=rollouts // rows,
        num_generations=job.group_size,
        max_completion_length=MAX_TOKENS[job.scenario],
        learning_rate=job.lr,
        lr_scheduler_type="constant",
        loss_type="dapo",
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=job.seed,
    )
    data = [{"prompt": task.prompt, "index": i} for i, task in enumerate(tasks)]
    trainer = GRPOTrainer(
        model,
        reward,
        config,
        train_dataset=Dataset.from_list(data),
        processing_class=tokenizer,
        callbacks=[Stop()],
    )
    for phase, name in {
        "generation": "_generate",
        "scoring": "_calculate_rewards",
        "logprobs": "_get_per_token_logps_and_entropies",
    }.items():
        setattr(trainer, name, recorder.timed(phase, getattr(trainer, name)))
    trainer.train()


def of_plain(job: Job, folder: Path, recorder: Recorder) -> None:
    """The least that such a step can be written as: no library around the model, nothing logged,
    nothing checked.

    Prompts of one length, all rows to the end; the ratio is 1 at the only update,
    so no logprobs are kept.
    """
    model, tokenizer = job.loaded()
    env, eos = job.env(), tokenizer.eos_token_id
    optimizer = torch.optim.AdamW(model.parameters(), job.lr, weight_decay=0.0, fused=True)
    generate, score, logprobs = (
        recorder.timed(phase, function)
        for phase, function in {
            "generation": _generated,
            "scoring": _scored,
            "logprobs": _logprobs,
        }.items()
    )
    torch.manual_seed(job.seed)
    for tasks in islice(_batches(env, job.prompts), job.steps):
        prompts = torch.tensor(
            [tokenizer(task.prompt)["input_ids"] for task in tasks]
        ).repeat_interleave(8, dim=0)
        ids = generate(
            model, prompts, eos, MAX_TOKENS[job.scenario]
        ).clone()  # autograd takes no inference tensors
        width = prompts.shape[1]
        drawn = ids[:, width:]
        mask = (drawn == eos).cumsum(dim=1) - (drawn == eos).long() == 0
        scores = score(env, tasks, tokenizer, drawn, mask, recorder)
        advantages = (
            (scores - scores.mean(1, True)) / (scores.std(1, keepdim=True) + EPS)
        ).reshape(-1, 1)
        new = logprobs(model, ids, width)
        ratio = (new - new.detach()).exp()
        losses = -torch.min(
            ratio * advantages, ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * advantages
        )
        ((losses * mask).sum() / mask.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recorder.step_ends()


def _batches(env: rlvr.Environment, size: int) -> Iterator[list[rlvr.Task]]:
    index = 0
    while True:
        yield [env.task(i) for i in range(index, index + size)]
        index += size


@torch.inference_mode()
def _generated(model: Any, ids: torch.Tensor, eos: int, most: int) -> torch.Tensor:
    cache, token = None, ids
    ended = torch.zeros(len(ids), dtype=torch.bool)
    for _ in range(most):
        out = model(input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        token = torch.multinomial(out.logits[:, -1].softmax(dim=-1), 1)
        ids = torch.cat([ids, token], dim=1)
        ended |= token[:, 0] == eos
        if ended.all():
            break
    return ids


def _scored(
    env: rlvr.Environment,
    tasks: list[rlvr.Task],
    tokenizer: Any,
    drawn: torch.Tensor,
    mask: torch.Tensor,
    recorder: Recorder,
) -> torch.Tensor:
    texts = tokenizer.batch_decode(
        [ids[kept].tolist() for ids, kept in zip(drawn, mask, strict=True)],
        skip_special_tokens=True,
    )
    scores = [env.score(tasks[i // 8], text).total for i, text in enumerate(texts)]
    recorder.saw(mask.sum(dim=1).tolist(), scores)
    return torch.tensor(scores).view(len(tasks), -1)


def _logprobs(model: Any, ids: torch.Tensor, width: int) -> torch.Tensor:
    logits = model(input_ids=ids, use_cache=False).logits[:, width - 1 : -1]
    return logits.log_softmax(dim=-1).gather(2, ids[:, width:, None]).squeeze(2)


def main(job: Job) -> None:
    """One side on one core: JSON of each step, then of the whole;
    before each it waits for a line on standard input."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # TRL prints what it logs

    def tell(numbers: dict[str, float]) -> None:
        print(json.dumps(numbers), file=answers, flush=True)
        sys.stdin.readline()

    sys.stdin.readline()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Enough):
        {"trl": of_trl, "plain": of_plain}.get(job.side, of_rlvr)(
            job, Path(folder), Recorder(job.until, tell)
        )
    print(
        json.dumps({"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}),
        file=answers,
        flush=True,
    )


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
