"""Opens the sampler that the settings name: the trained model itself, vLLM in this
process, or vLLM servers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from rlvr.errors import UsageError
from rlvr.samplers.protocol import Sampler
from rlvr.samplers.servers import ServerSampler
from rlvr.samplers.servers_started import StartedServers
from rlvr.samplers.vllm_lora import AdapterSettings
from rlvr.samplers.vllm_shared import model_sizes
from rlvr.train.config import Config
from rlvr.train.policy import Policy
from rlvr.train.setup import local_sampler

if TYPE_CHECKING:
    from rlvr.samplers.vllm import VLLMSampler

__all__ = ["open_sampler", "server_devices"]


@contextmanager
def open_sampler(policy: Policy, config: Config, world: int = 1) -> Iterator[Sampler]:
    """The sampler of a run, until the block ends.  An engine has to be synced before it is used.

    Args:
        policy: the trained model, before it is sharded.
        config: settings of the run.
        world: processes over which the policy will be sharded.

    Raises:
        UsageError: the engine cannot be given this model's weights, cannot run it, or not on
            several ranks.
        MissingDependency: vLLM is not installed.
    """
    if config.engine == "local":
        yield local_sampler(policy, config, world)
        return
    if any(".experts." in name for name, _ in policy.model.named_parameters()):
        raise UsageError(
            f"{policy.model.config.model_type} is a mixture of experts, whose weights vLLM keeps "
            "in another form than the trainer; sample with --sampler local"
        )
    if config.engine == "vllm":
        if world > 1:
            raise UsageError(
                f"sampler is {config.sampler!r} in one of {world} processes of torchrun, whose "
                "groups vLLM's own would meet; sample from servers (--sampler http://…), which "
                "run beside them"
            )
        with (
            tempfile.TemporaryDirectory(prefix="rlvr-model-") as folder,
            _in_process(policy, config, folder) as engine,
        ):
            yield engine
        return
    with ExitStack() as stack:
        urls = config.sampler.split(",")
        if config.serve_samplers is not None:
            urls = stack.enter_context(_start_servers(policy, config)).urls
        yield stack.enter_context(
            ServerSampler(
                urls,
                policy.tokenization,
                model_sizes(policy.model.config),
                key_env=config.sampler_key_env,
                folder=config.sampler_folder,
                in_flight=config.max_rows,
                adapter=_adapter(policy, config),
            )
        )


def _in_process(policy: Policy, config: Config, folder: str) -> VLLMSampler:
    from rlvr.samplers.vllm import VLLMSampler

    policy.save_description(folder)
    # Without weights: they come with the first sync.
    return VLLMSampler(
        folder,
        policy.tokenization,
        dtype=_dtype(config),
        positions=config.sampler_positions,
        max_rows=config.max_rows,
        memory=config.sampler_memory,
        adapter=_adapter(policy, config),
        sleeps=config.sampler_sleep,
    )


@contextmanager
def _start_servers(policy: Policy, config: Config) -> Iterator[StartedServers]:
    """Servers on this machine, each on a GPU of its own where there are enough."""
    assert config.serve_samplers is not None
    flags = ["--dtype", _dtype(config), "--max-rows", str(config.max_rows)]
    adapter = _adapter(policy, config)
    if adapter is not None and adapter.swap:
        flags += ["--lora-rank", str(adapter.engine_rank)]
    if config.sampler_positions is not None:
        flags += ["--positions", str(config.sampler_positions)]
    devices = None
    if policy.device.type == "cuda":
        devices = server_devices(config.serve_samplers, os.environ, policy.device.index or 0)
    with tempfile.TemporaryDirectory(prefix="rlvr-model-") as folder:
        policy.save_description(folder)
        with StartedServers(
            Path(folder),
            config.serve_samplers,
            python=config.sampler_python,
            flags=flags,
            devices=devices,
            log=config.run / "samplers",
        ) as servers:
            yield servers


def server_devices(count: int, environment: Mapping[str, str], held: int) -> list[str]:
    """The GPU of each server, as CUDA_VISIBLE_DEVICES names it: visible ones that no rank of this
    machine holds.

    Args:
        count: number of servers.
        environment: of the first rank: its CUDA_VISIBLE_DEVICES, and torchrun's LOCAL_WORLD_SIZE.
        held: number of this process's GPU among the visible ones; a rank of several has that of its
            local number.

    Raises:
        UsageError: there are too few.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    everything = range(torch.cuda.device_count())
    # CUDA_VISIBLE_DEVICES may list more than there are, or be empty.
    visible = listed.split(",")[: len(everything)] if listed else list(map(str, everything))
    ranks = int(environment.get("LOCAL_WORLD_SIZE") or 1)
    # torchrun gives rank r of a machine its r-th GPU.
    held_numbers = set(range(ranks)) if ranks > 1 else {held}
    free = [name.strip() for number, name in enumerate(visible) if number not in held_numbers]
    if len(free) < count:
        raise UsageError(
            f"serve_samplers is {count}, and of {len(visible)} visible GPUs {len(free)} are held "
            "by no rank; give fewer servers or ranks, or sample in this process (--sampler vllm)"
        )
    # The last ones, far from those that ranks hold.
    return free[len(free) - count :]


def _dtype(config: Config) -> Literal["float32", "bfloat16"]:
    return "float32" if config.precision == "fp32" else "bfloat16"


def _adapter(policy: Policy, config: Config) -> AdapterSettings | None:
    if policy.lora is None:
        return None
    return AdapterSettings(policy.lora.config, swap=config.sampler_lora == "swapped")
