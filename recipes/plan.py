"""What a size of a recipe takes on its devices, which need not be here:
commands, and memory per device.

Nothing is loaded: the model is its shape, without weights, and what a token costs is measured on
models of the same kind that are 16 times narrower and one and three layers deep.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from rlvr.console import Plainly
from rlvr.recipes.recipe import Machine
from rlvr.train.config import Config
from rlvr.train.dry_run import settings_table
from rlvr.train.memory import (
    Forecast,
    TokenCosts,
    forecast,
    require_memory,
    require_offload,
    token_costs,
)
from rlvr.train.policy import Policy
from rlvr.train.stages import Stages
from rlvr.train.tiny import character_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "NODE",
    "SHAPES",
    "Shape",
    "commands",
    "forecast_of",
    "nodes_of",
    "require_fit",
    "server_command",
    "show_plan",
    "training_command",
]

_NARROWER: Final = 16
_MEASURED_LAYERS: Final = (1, 3)
_PROMPT_TOKENS: Final = 1024
NODE: Final = 8
"""Devices of a node."""
_KINDS: Final = {
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
}


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, as its config.json has them.

    Attributes:
        kind: its architecture, a name of `_KINDS`.
        hidden, inner: widths of the residual stream and of the MLP.
        layers: number of them.
        heads, kv_heads: of attention.
        vocabulary: tokens.
        tied: whether embedding and head are one matrix.
        head_width: of a head.
    """

    kind: str
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool = False
    head_width: int = 128

    def model(self, *, narrower: int = 1, layers: int | None = None) -> Any:
        """A model of the shape, without weights unless it is made narrower.

        Args:
            narrower: by how much, with as many heads and few tokens.
            layers: number of them; None for those of the shape.
        """
        config = _KINDS[self.kind](
            vocab_size=self.vocabulary if narrower == 1 else 256,
            hidden_size=self.hidden // narrower,
            intermediate_size=self.inner // narrower,
            num_hidden_layers=layers or self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_width // narrower,
            tie_word_embeddings=self.tied,
            max_position_embeddings=131072,
        )
        with torch.device("meta" if narrower == 1 else "cpu"):
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


SHAPES: Final[Mapping[str, Shape]] = {
    "deepseek-ai/deepseek-math-7b-instruct": Shape("llama", 4096, 11008, 30, 32, 32, 102400),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": Shape("qwen2", 1536, 8960, 28, 12, 2, 151936),
    "mistralai/Mistral-7B-Instruct-v0.3": Shape("mistral", 4096, 14336, 32, 32, 8, 32768),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape("qwen2", 1536, 8960, 28, 12, 2, 151936, True),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": Shape("qwen2", 1536, 8960, 28, 12, 2, 151936, True),
    "Qwen/Qwen2.5-Math-1.5B": Shape("qwen2", 1536, 8960, 28, 12, 2, 151936, True),
    "Qwen/Qwen2.5-3B": Shape("qwen2", 2048, 11008, 36, 16, 2, 151936, True),
    "Qwen/Qwen2.5-7B": Shape("qwen2", 3584, 18944, 28, 28, 4, 152064),
    "Qwen/Qwen2.5-Math-7B": Shape("qwen2", 3584, 18944, 28, 28, 4, 152064),
    "Qwen/Qwen2.5-32B": Shape("qwen2", 5120, 27648, 64, 40, 8, 152064),
    "Qwen/Qwen3-1.7B": Shape("qwen3", 2048, 6144, 28, 16, 8, 151936, True),
    "Qwen/Qwen3-4B": Shape("qwen3", 2560, 9728, 36, 32, 8, 151936, True),
    "Qwen/Qwen3-8B": Shape("qwen3", 4096, 12288, 36, 32, 8, 151936),
}
"""The models of the recipes, by id."""


def nodes_of(devices: int) -> int:
    """Nodes of so many devices.

    Args:
        devices: number of them.
    """
    return -(-devices // NODE)


def training_command(
    name: str,
    size: str,
    machine: Machine,
    given: Sequence[str] = (),
    *,
    first: str = "FIRST_NODE",
    samplers: str = "http://HOST:8000,…",
    folder: str = "FOLDER_OF_ALL",
) -> str:
    """The command that trains a size, on each node of its trainers.

    Args:
        name: of the recipe.
        size: see `rlvr.recipes.recipe.SIZES`.
        machine: of that size.
        given: further flags of the run.
        first, samplers, folder: for the shell: the address of the first node, the addresses of the
            servers, and a folder that all see.
    """
    flags = ["--size", size, "--model", machine.model, *given]
    train = f"rlvr train {name} {shlex.join(flags)}"
    if machine.samplers and not _names_sampler(given):
        train += f" --sampler {samplers} --sampler-folder {folder}"
    nodes = nodes_of(machine.trainers)
    if machine.trainers == 1:
        return train
    several = f"--nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint {first}:29500 "
    processes = f"--nproc-per-node {machine.trainers // nodes}"
    return f"torchrun {several if nodes > 1 else ''}{processes} -m -- {train}"


def server_command(machine: Machine, port: str = "8000") -> str:
    """The command that serves the model on one device.

    Args:
        machine: whose model.
        port: for the shell.
    """
    return (
        f"python -m rlvr.samplers.vllm_server {machine.model} --host 0.0.0.0 --port {port} "
        "--dtype bfloat16"
    )


def commands(name: str, size: str, machine: Machine, given: Sequence[str] = ()) -> list[str]:
    """The commands that run a size on its devices.

    Args:
        name, size, machine, given: see `training_command`.
    """
    train = training_command(name, size, machine, given)
    if not machine.samplers or _names_sampler(given):
        return [train]
    return [
        f"{server_command(machine)}    # on each of {machine.samplers} devices",
        f"{train}    # all servers' addresses, and where weights go to them",
    ]


def _names_sampler(given: Sequence[str]) -> bool:
    return any(re.match("--(serve-)?samplers?(=|$)", word.replace("_", "-")) for word in given)


def forecast_of(config: Config, machine: Machine, shape: Shape | None = None) -> Forecast:
    """The memory of one device.

    Args:
        config: settings of the run.
        machine: the devices; its model has a shape.
        shape: of the model; None for that of `SHAPES`.
    """
    shape = shape or SHAPES[machine.model]
    if machine.samplers and config.engine == "local":
        # Any address will do: that there is one tells the forecast
        # that nothing is sampled on the trainer's device.
        config = dataclasses.replace(config, sampler="http://sampler:8000")
    autocast = torch.bfloat16 if config.precision == "bf16" else None
    policy, few, many = _measure(
        shape, autocast, config.gradient_checkpointing, config.packing, config.micro_tokens
    )
    alone = machine.trainers == 1
    costs = _scale(few, many, shape, copied=_bytes_of_copies(policy) if alone else 0.0)
    memory = forecast(
        policy, config, prompt_tokens=_PROMPT_TOKENS, costs=costs, world=machine.trainers
    )
    teacher = SHAPES.get(config.teacher or "")
    if teacher is not None:
        # 4 bytes a parameter: a teacher has the policy's
        # type, float32 where whole weights are trained.
        weights = 4 * sum(p.numel() for p in teacher.model().parameters())
        memory = dataclasses.replace(
            memory, reference=memory.reference + weights / machine.trainers
        )
    device = f"each of {machine.trainers} devices" if machine.trainers > 1 else "one device"
    return dataclasses.replace(memory, device=device, capacity=int(machine.device_gib * 2**30))


def require_fit(config: Config, machine: Machine) -> Forecast:
    """The memory of one device, which has it.

    Args:
        config: settings of the run.
        machine: the devices; its model has a shape.

    Raises:
        UsageError: it does not fit; the message says what would.
    """
    require_offload(config, "cuda", machine.trainers)
    memory = forecast_of(config, machine)
    require_memory(memory, config)
    return memory


def show_plan(
    name: str,
    size: str,
    machine: Machine,
    given: Sequence[str],
    config: Config,
    places: Mapping[str, str],
    out: Console,
) -> None:
    """Print the settings, the devices, the commands and the forecast.

    Args:
        name, size: of the recipe.
        machine: of that size.
        given: further flags of the run.
        config: settings of the run.
        places: where settings come from.
        out: where to print.

    Raises:
        UsageError: it does not fit; the message says what would.
    """
    out.print(settings_table(config.resolve(), places))
    sampling = f", {machine.samplers} sample" if machine.samplers else ""
    lines = [
        *Stages(config).lines(),
        f"devices: {machine.trainers} train{sampling}, of {machine.device_gib:g} GiB each",
        *commands(name, size, machine, given),
    ]
    memory = require_fit(config, machine)
    fits = next((gib for gib in (24, 40, 48, 80) if memory.peak <= gib * 2**30), None)
    lines.append(str(memory) + (f"; {fits} GiB would do" if fits else ""))
    lines.append(
        f"a plan for devices that are not here, with prompts of {_PROMPT_TOKENS} tokens: neither "
        "model nor data were looked at; with a --model in a folder, --dry-run samples a group"
    )
    for line in lines:
        out.print(Plainly(line), soft_wrap=True)


@lru_cache(maxsize=16)
def _measure(
    shape: Shape,
    autocast: torch.dtype | None,
    checkpointing: bool,
    packing: bool,
    micro_tokens: int,
) -> tuple[Policy, TokenCosts, TokenCosts]:
    """The policy without weights, and what tokens cost in the narrow
    models of `_MEASURED_LAYERS`."""

    def policy(model: PreTrainedModel, twin: PreTrainedModel | None = None) -> Policy:
        return Policy(
            model,
            character_tokenizer("0"),
            autocast=autocast,
            gradient_checkpointing=checkpointing,
            packing=packing,
            share_prompts=False,
            max_tokens=micro_tokens,
            twin=twin,
        )

    narrow = [policy(shape.model(narrower=_NARROWER, layers=layers)) for layers in _MEASURED_LAYERS]
    few, many = map(token_costs, narrow)
    return policy(shape.model(), twin=narrow[0].model), few, many


def _scale(few: TokenCosts, more: TokenCosts, shape: Shape, copied: float) -> TokenCosts:
    """What tokens cost in the whole model.

    Widths are in proportion; what grows with the square of the tokens has the heads that it has.

    Args:
        few, more: measured on the narrow models of `_MEASURED_LAYERS`.
        shape: of the whole model.
        copied: bytes of copies of the weights.
    """
    added = _MEASURED_LAYERS[1] - _MEASURED_LAYERS[0]

    def deep(small: float, large: float) -> float:
        # Cost of a layer: what the deeper narrow model takes more, by the layers that it has more.
        layer = (large - small) / added
        return max(0.0, small + (shape.layers - _MEASURED_LAYERS[0]) * layer)

    return TokenCosts(
        fixed=copied,
        linear=_NARROWER * deep(few.linear, more.linear),
        square=deep(few.square, more.square),
        layer_linear=_NARROWER * more.layer_linear,
        layer_square=more.layer_square,
        cached=_NARROWER * deep(few.cached, more.cached),
    )


def _bytes_of_copies(policy: Policy) -> float:
    """Of the weights in the type that is computed in, which one device keeps beside the weights."""
    return (
        0.0 if policy.autocast is None else 2.0 * sum(p.numel() for p in policy.model.parameters())
    )
