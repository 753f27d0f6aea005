"""What only a GPU can show of the trainer, in one report; `make test-gpu` runs it.

    python -m benchmarks.gpu                      all checks, on the GPU
    python -m benchmarks.gpu --device cpu         those that a CPU can make, with smaller numbers
    python -m benchmarks.gpu --report gpu.json    the same numbers as JSON too

A check that cannot be made here is skipped with the reason.  The exit code is 1 if one has failed,
and 0 otherwise, also where there is no GPU and all are skipped.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from rlvr.algo.papers import NAMES, algorithm_class, load_algorithm
from rlvr.collect.background import BackgroundCalls
from rlvr.collect.scheduler import run
from rlvr.samplers.protocol import Request, Sampling, TokenRow
from rlvr.train.config import Config
from rlvr.train.conformance import gradient_apart
from rlvr.train.credit import Batch
from rlvr.train.learner import Learner
from rlvr.train.memory import forecast
from rlvr.train.policy import Policy
from rlvr.train.setup import autocast_dtype
from rlvr.train.tiny import tiny

CHARSET = "0123456789+-= abcxy"
# Dense bfloat16, in 1e12 operations a second, of the makers' data sheets.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121}


class CannotRun(Exception):
    """A check needs what is not here; the message says what."""


class Failed(Exception):
    """A number is out of its bound; the message says which."""


@dataclass(frozen=True)
class Place:
    """Where checks are made, and how large."""

    device: torch.device
    width: int
    layers: int
    rows: int
    tokens: int

    def policy(
        self, *, attention: str | None = None, dtype: torch.dtype = torch.float32, **options: Any
    ) -> Policy:
        """A model of this size with the weights of seed 0."""
        model, tokenizer = tiny(
            CHARSET,
            hidden=self.width,
            layers=self.layers,
            heads=max(2, self.width // 64),
            dtype=dtype,
            seed=0,
        )
        if attention is not None:
            model.set_attn_implementation(attention)
        return Policy(model.to(self.device), tokenizer, share_prompts=False, **options)

    def batch(self) -> Batch:
        """Rows of many lengths, each with an advantage."""
        draw = torch.Generator().manual_seed(0)
        lengths = torch.randint(
            self.tokens // 4, self.tokens + 1, (self.rows,), generator=draw
        ).tolist()
        lengths[0] = self.tokens
        ids = [torch.randint(4, 20, (n,), generator=draw).tolist() for n in lengths]
        mask = torch.arange(self.tokens)[None] < torch.tensor(lengths)[:, None]
        advantages = torch.where(mask, torch.randn(self.rows, 1, generator=draw), 0.0)
        rows: Any = [TokenRow([1, 5, 6], one) for one in ids]
        return Batch(rows, mask, torch.where(mask, -3.0, 0.0), advantages)


def config_of(place: Place, **settings: Any) -> Config:
    sizes = {
        "max_tokens": place.tokens,
        "prompts": place.rows // 4,
        "group_size": 4,
        "micro_tokens": 8 * place.tokens,
    }
    common = {
        "env": "e",
        "model": "m",
        "run": Path("r"),
        "eval_every": None,
        "algorithm": "dr_grpo",
        "lr": 1e-4,
    }
    return Config(**common | sizes | settings)


def gradients(place: Place, policy: Policy) -> dict[str, torch.Tensor]:
    learner, batch = Learner(policy, config_of(place)), place.batch()
    learner.backward(batch, learner.rows_with_gradient(batch))
    return {
        name: p.grad.double().cpu()
        for name, p in policy.model.named_parameters()
        if p.grad is not None
    }


def a_pass(place: Place, policy: Policy) -> Callable[[], None]:
    """Forward and backward of a batch, without the optimiser."""
    learner, batch = Learner(policy, config_of(place)), place.batch()
    rows = learner.rows_with_gradient(batch)
    return lambda: learner.backward(batch, rows)


def difference(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """The norm of the difference of all gradients, over their norm."""
    apart = sum(float((found[name] - g).square().sum()) for name, g in wanted.items())
    return (apart / sum(float(g.square().sum()) for g in wanted.values())) ** 0.5


def require(what: str, value: float, most: float) -> None:
    if not value <= most:
        raise Failed(f"{what} is {value:.3g}, and may be {most:.3g}")


def check_bf16(place: Place) -> dict[str, float]:
    """Gradients of an update computed in bfloat16 over float32 weights, against float32."""
    size = {"max_tokens": 8 * place.tokens}
    wanted = gradients(place, place.policy(**size))
    found = gradients(place, place.policy(autocast=torch.bfloat16, **size))
    numbers = {"gradient, relative to fp32": difference(found, wanted)}
    require(*next(iter(numbers.items())), most=0.1)
    return numbers


def check_packing(place: Place) -> dict[str, float]:
    """Gradients of packed rows against padded ones, and how much faster; on a GPU in bfloat16."""
    size = {"max_tokens": 8 * place.tokens}
    if place.device.type == "cpu":
        same = difference(
            gradients(place, place.policy(packing=True, **size)),
            gradients(place, place.policy(**size)),
        )
        require("gradient, relative to padding", same, 1e-5)
        return {"gradient, relative to padding": same}
    half = {"autocast": torch.bfloat16, "dtype": torch.float32, **size}
    padded, numbers = place.policy(attention="sdpa", **half), {}
    wanted, seconds = gradients(place, padded), timed(place, a_pass(place, padded))
    for name in ("sdpa", "flash_attention_2"):
        if name.startswith("flash") and importlib.util.find_spec("flash_attn") is None:
            continue
        packed = place.policy(attention=name, packing=True, **half)
        same = difference(gradients(place, packed), wanted)
        require(f"{name}: gradient, relative to padding", same, 0.05)
        numbers[f"{name}: gradient, relative to padding"] = same
        numbers[f"{name}: speed, × padding"] = seconds / timed(place, a_pass(place, packed))
    return numbers


def check_algorithms(place: Place) -> dict[str, float]:
    """The gradient of every algorithm with advantages on the GPU against the CPU, both in
    float64."""
    if place.device.type != "cuda":
        raise CannotRun("it compares a GPU with the CPU")
    apart = {
        name: gradient_apart(load_algorithm(name), place.device)
        for name in NAMES
        if algorithm_class(name).examples is None
    }
    worst = max(apart, key=lambda name: apart[name])
    require(f"{worst}: gradient, relative to the CPU", apart[worst], 1e-6)
    return {"algorithms": float(len(apart)), "worst gradient, relative": apart[worst]}


def check_speed(place: Place) -> dict[str, float]:
    """Forward and backward of a model of 0.5 B weights in bfloat16,
    and what share of the GPU's dense peak it is.

    Operations are counted as in Chowdhery et al. (2022, appendix B): 6 for each weight and token,
    and 12 · layers · width · length for attention.
    """
    if place.device.type != "cuda":
        raise CannotRun("a share of a GPU's peak")
    name = torch.cuda.get_device_name(place.device)
    peak = next((tera for kind, tera in PEAKS.items() if kind in name), None)
    large = replace(place, width=2048, layers=8, rows=32, tokens=1024)
    numbers = {}
    for what, options in (("padded", {}), ("packed", {"packing": True})):
        policy = large.policy(
            attention="sdpa", autocast=torch.bfloat16, max_tokens=8 * large.tokens, **options
        )
        seconds = timed(large, a_pass(large, policy))
        tokens = int(large.batch().completion_mask.sum()) + 3 * large.rows
        weights = sum(p.numel() for p in policy.model.parameters())
        per_token = 6 * weights + 12 * large.layers * large.width * large.tokens
        numbers[f"{what}, tokens/s"] = tokens / seconds
        if peak is not None:
            numbers[f"{what}, share of {peak} TFLOP/s"] = (
                per_token * tokens / seconds / (peak * 1e12)
            )
        del policy
        torch.cuda.empty_cache()
    return numbers


def check_steps(place: Place) -> dict[str, float]:
    """Memory of the GPU after 50 updates with samplings, against that after 10."""
    if place.device.type != "cuda":
        raise CannotRun("only a GPU counts its memory")
    policy = place.policy(autocast=torch.bfloat16, max_tokens=8 * place.tokens)
    learner, calls = Learner(policy, config_of(place)), BackgroundCalls(1)
    sampler = policy.sampler(max_rows=place.rows)
    after, syncs = {}, []
    for step in range(1, 51):
        learner.update(learner.prepared(place.batch()), [range(place.rows)], print)
        syncs.append(timed(place, lambda step=step: sampler.sync(policy.weights(), step)))

        def play(g: int) -> Any:
            sample = yield Request(
                g, (1, 5, 6), Sampling(max_tokens=16), g, place.tokens, rollout=g
            )
            return len(sample.completion_ids)

        list(run((play(g) for g in range(place.rows)), sampler, calls, "ready"))
        after[step] = torch.cuda.memory_allocated(place.device)
    numbers = {
        "memory after 50 / after 10": after[50] / after[10],
        "sync, s/GiB": min(syncs)
        / (sum(p.numel() * p.element_size() for p in policy.model.parameters()) / 2**30),
    }
    require("memory after 50 / after 10", after[50] / after[10], 1.02)
    return numbers


def check_resume(place: Place) -> dict[str, float]:
    """`rlvr train` for four steps, and for two and two more from its checkpoint: weights
    compared."""
    small = replace(place, width=min(place.width, 256), layers=2)
    with tempfile.TemporaryDirectory() as folder:
        small.policy().save(Path(folder) / "model")
        for run_, steps in (("whole", 4), ("parts", 2), ("parts", 4)):
            trained(folder, run_, steps, place.device.type)
        whole, parts = (weights_of(Path(folder) / run_ / "model") for run_ in ("whole", "parts"))
    apart = difference(parts, whole)
    require("weights, relative", apart, 1e-3)
    return {"weights after a resume, relative": apart}


def trained(folder: str, run_: str, steps: int, device: str, *launcher: str) -> None:
    flags = (
        f"--env arithmetic-v1 --model {folder}/model --run {folder}/{run_} --algorithm grpo "
        "--prompts 4"
    )
    flags += (
        " --group-size 4 --max-tokens 16 --eval-tasks 4 --workers 1 --checkpoint-every 1 --option "
        "difficulty=1"
    )
    command = [sys.executable, *launcher, "-m", *(["--"] if launcher else []), "rlvr", "train"]
    command += [*flags.split(), "--steps", str(steps), "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise Failed(f"{run_}, step {steps}: {done.stderr.strip().splitlines()[-1]}")


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor.double()
        for file in folder.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def check_memory(place: Place) -> dict[str, float]:
    """The greatest memory of two updates against the forecast, for each of some settings."""
    if place.device.type != "cuda":
        raise CannotRun("only a GPU counts its memory; on a CPU there is benchmarks.trainer_memory")
    numbers = {}
    for name, settings in {
        "fp32": {},
        "bf16": {"precision": "bf16"},
        "checkpointing": {"gradient_checkpointing": True},
        "LoRA": {"lora_rank": 16},
    }.items():
        config = config_of(place, **settings)
        policy = place.policy(
            autocast=autocast_dtype(config.precision),
            gradient_checkpointing=config.gradient_checkpointing,
            max_tokens=config.micro_tokens,
        )
        if config.lora_rank:
            policy.add_lora(rank=config.lora_rank)
        said = forecast(policy, config, prompt_tokens=3)
        torch.cuda.synchronize(place.device)
        torch.cuda.reset_peak_memory_stats(place.device)
        learner = Learner(policy, config)
        for _ in range(2):
            learner.update(learner.prepared(place.batch()), [range(place.rows)], print)
        taken = torch.cuda.max_memory_allocated(place.device)
        numbers[f"{name}: forecast / taken"] = (said.standing + said.update) / taken
        require(f"{name}: taken / forecast", taken / (said.standing + said.update), 1.15)
        del policy, learner
        torch.cuda.empty_cache()
    return numbers


def check_sampling(place: Place) -> dict[str, float]:
    """Tokens per second of the local sampler: rows that all run to their limit,
    in fp32 and in bf16."""
    numbers, calls = {}, BackgroundCalls(1)
    for name, dtype in (("fp32", None), ("bf16", torch.bfloat16)):
        policy = place.policy()
        sampler = policy.sampler(dtype=dtype, max_rows=place.rows)
        sampling = Sampling(max_tokens=place.tokens)

        def play(g: int, sampling: Sampling = sampling) -> Any:
            sample = yield Request(g, (1, 5, 6), sampling, g, place.tokens, rollout=g)
            return len(sample.completion_ids)

        def sample(sampler: Any = sampler) -> int:
            return sum(
                n for _, n in run((play(g) for g in range(4 * place.rows)), sampler, calls, "ready")
            )

        sample()
        started = time.perf_counter()
        tokens = sample()
        finish(place)
        numbers[f"{name}, tokens/s"] = tokens / (time.perf_counter() - started)
        require(f"{name}, seconds per token", 1 / numbers[f"{name}, tokens/s"], 1.0)
    return numbers


def check_ranks(place: Place) -> dict[str, float]:
    """A run of two steps on two devices, resumed for a third step."""
    count = torch.cuda.device_count() if place.device.type == "cuda" else os.cpu_count() or 1
    if count < 2:
        raise CannotRun(f"there is {count} {'GPU' if place.device.type == 'cuda' else 'core'}")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    small = replace(place, width=min(place.width, 256), layers=2)
    with tempfile.TemporaryDirectory() as folder:
        small.policy().save(Path(folder) / "model")
        for steps in (2, 3):
            trained(folder, "run", steps, place.device.type, *launcher)
    return {"steps on 2 ranks": 3.0}


def check_vllm(place: Place) -> dict[str, float]:
    """Weights given to vLLM between steps, and the memory that its sleep frees;
    on a CPU it frees none."""
    if importlib.util.find_spec("vllm") is None:
        raise CannotRun("vLLM is not installed in this environment; see docs/using/vllm.md")
    from rlvr.samplers.vllm import VLLMSampler

    policy, on_gpu = place.policy(), place.device.type == "cuda"
    row = TokenRow(policy.tokenization.encode("12+34="), policy.tokenization.encode("46 7+8")[1:])
    apart, times = 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        policy.save_description(folder)
        with VLLMSampler(
            folder, policy.tokenization, max_rows=place.rows, memory=0.3, sleeps=on_gpu
        ) as sampler:
            for version in range(5):
                with torch.no_grad():
                    for parameter in policy.model.parameters():
                        parameter.add_(0.01 * torch.randn_like(parameter))
                times.append(
                    timed(place, lambda version=version: sampler.sync(policy.weights(), version))
                )
                ours, theirs = policy.logprobs([row])[0].tolist(), sampler.logprobs([row])[0]
                apart = max(apart, *(abs(a - b) for a, b in zip(ours, theirs, strict=True)))
            awake = torch.cuda.mem_get_info()[0] if on_gpu else 0
            sampler.sleep()
            freed = (torch.cuda.mem_get_info()[0] if on_gpu else 0) - awake
            sampler.sync(policy.weights(), 5)
            theirs = sampler.logprobs([row])[0]
            apart = max(apart, *(abs(a - b) for a, b in zip(ours, theirs, strict=True)))
    require("difference of log-probabilities", apart, 1e-3)
    bytes_ = sum(p.numel() * p.element_size() for p in policy.model.parameters())
    return {
        "apart": apart,
        "sync s": min(times),
        "weights MiB": bytes_ / 2**20,
        "freed by sleep MiB": freed / 2**20,
    }


CHECKS: dict[str, Callable[[Place], dict[str, float]]] = {
    "bf16": check_bf16,
    "packing": check_packing,
    "algorithms": check_algorithms,
    "speed": check_speed,
    "steps": check_steps,
    "resume": check_resume,
    "memory": check_memory,
    "sampling": check_sampling,
    "ranks": check_ranks,
    "vllm": check_vllm,
}


def finish(place: Place) -> None:
    if place.device.type == "cuda":
        torch.cuda.synchronize(place.device)


def timed(place: Place, work: Callable[[], object]) -> float:
    """Seconds of the third call."""
    work()
    work()
    finish(place)
    started = time.perf_counter()
    work()
    finish(place)
    return time.perf_counter() - started


@contextmanager
def one_line(found: dict[str, Any]) -> Iterator[None]:
    """What became of a check."""
    try:
        yield
        found["result"] = "passed"
    except CannotRun as why:
        found |= {"result": "skipped", "why": str(why)}
    # A report names every check, also after one that broke down.
    except Exception as error:  # noqa: BLE001
        found |= {"result": "failed", "why": f"{type(error).__name__}: {error}"}


def report(
    device: str, only: list[str], ended: Callable[[dict[str, Any]], None] = lambda found: None
) -> dict[str, Any]:
    """Every check with its numbers and seconds, and what they were made with.

    Args:
        device: "cuda" or "cpu".
        only: names of checks.
        ended: gets the report after each check.
    """
    there = device == "cpu" or torch.cuda.is_available()
    large = Place(
        torch.device(device if there else "cpu"), width=1024, layers=12, rows=64, tokens=512
    )
    place = large if device != "cpu" else replace(large, width=64, layers=2, rows=8, tokens=24)
    name = (
        torch.cuda.get_device_name()
        if there and device == "cuda"
        else platform.processor() or platform.machine()
    )
    versions = {one: importlib.metadata.version(one) for one in ("torch", "transformers", "rlvr")}
    found: dict[str, Any] = {"device": name, **versions, "checks": {}}
    for check in only:
        one: dict[str, Any] = {"what": (CHECKS[check].__doc__ or "").strip(), "numbers": {}}
        started = time.perf_counter()
        with one_line(one):
            if not there:
                raise CannotRun("there is no GPU")
            one["numbers"] = CHECKS[check](place)
        one["seconds"] = round(time.perf_counter() - started, 1)
        found["checks"][check] = one
        ended(found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--report", type=Path)
    flags = parser.parse_args()

    def ended(found: dict[str, Any]) -> None:
        """Print the last check, and keep what was found so far: a check may not come back."""
        if len(found["checks"]) == 1:
            print(
                f"{found['device']}; torch {found['torch']}, transformers {found['transformers']}"
            )
        name, one = list(found["checks"].items())[-1]
        numbers = ", ".join(f"{what} {value:.3g}" for what, value in one["numbers"].items())
        said = f"{one.get('why') or numbers}  ({one['what']} {one['seconds']} s)"
        print(f"{one['result']:8} {name:10} {said}", flush=True)
        if flags.report is not None:
            flags.report.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    found = report(flags.device, flags.only, ended)
    return int(any(one["result"] == "failed" for one in found["checks"].values()))


if __name__ == "__main__":
    sys.exit(main())
