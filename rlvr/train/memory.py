"""How much memory a run will take, by part, before it begins; and a refusal where that cannot fit.

Sizes of weights, gradients and optimiser are counted.  What a token costs, in the update and in the
cache, is measured on the model itself: a few short rows go through it, with all settings that
matter (precision, attention, packing, checkpointing, LoRA), and the tensors that autograd keeps are
counted.  So it holds for any architecture.
"""

from __future__ import annotations

import math
import os
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from rlvr.collect import Groups
from rlvr.collect.cursor import Cursor
from rlvr.data.hub import at_once
from rlvr.errors import UsageError
from rlvr.samplers.decoding import evaluation_mode
from rlvr.samplers.preallocated_cache import cache_argument, cache_for_prompts
from rlvr.samplers.protocol import TokenRow
from rlvr.train.config import Config
from rlvr.train.loading import model_of_config
from rlvr.train.lora import base_of_adapter
from rlvr.train.policy import Policy
from rlvr.train.reward_head import IMPLICIT, implicit_run

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = [
    "Forecast",
    "TokenCosts",
    "capacity",
    "forecast",
    "in_units",
    "longest_prompt",
    "require_memory",
    "require_offload",
    "require_room",
    "require_room_for_weights",
    "token_costs",
]

_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_PROBE: Final = (32, 64, 128)  # tokens of the rows on which costs are measured
# of a block of logits: z, its probabilities, their gradient, and one in the making
_BLOCK_COPIES: Final = 4
# of what a layer keeps; measured 0.2 to 0.4, as much is let go while gradients are made
_LAYER_GRADIENTS: Final = 0.5
# of the last logits: the model's, float32, sorted, summed up, and their indices
_SAMPLING_COPIES: Final = 5
_PROMPTS: Final = 16  # prompts that are looked at
# as long as the weights: gradient, solution, residual, direction, product, step, start, sum
_REGION_VECTORS: Final = 8
_REGION_GRAPHS: Final = 2.4  # a product keeps the graph and that of its gradient; measured 2.3
_REGION_COPIES: Final = 6  # of a micro-batch's logits in the divergence and its derivatives
_ROOM: Final = 1.5  # the sampler's cache grows by half …
_LEAST_ROOM: Final = 64  # … and by so many tokens at least
_SIDE_BYTES: Final = 32  # of a token in it: its number, log-probability, random number and mask


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """Bytes per micro-batch of n tokens in each row: fixed + rows · (linear · n + square · n²).

    Attributes:
        fixed: whatever the tokens, such as copies of the weights in the type that is computed in.
        linear, square: of a row; the second is that of attention without a fused kernel, and of
            masks.
        layer_linear, layer_square: the same of one layer alone, with all that it keeps.
        cached: keys and values of a token.
    """

    fixed: float
    linear: float
    square: float
    layer_linear: float
    layer_square: float
    cached: float

    def activations(self, rows: int, tokens: int, *, recomputed: bool) -> float:
        """Bytes at the peak of a backward pass.

        What is kept, and the gradients in the layer that is being gone through; with checkpointing
        also that layer's own activations, which are made again.

        Args:
            rows: of the micro-batch.
            tokens: of each row.
            recomputed: with gradient checkpointing.
        """
        stored = self.fixed + rows * (self.linear * tokens + self.square * tokens**2)
        layer = rows * (self.layer_linear * tokens + self.layer_square * tokens**2)
        return stored + (_LAYER_GRADIENTS + recomputed) * layer


@dataclass(frozen=True, slots=True)
class Forecast:
    """Bytes by part.  The update and sampling come one after the other, unless a
    batch is collected ahead.

    Attributes:
        device: where.
        capacity: of the device; None if it is not known.
        weights: of the policy.
        optimizer: AdamW's two means per trained weight, those of a second model included.
        second: weights of a critic with layers of its own, or of an implicit reward model; 0
            without one.
        reference: a frozen copy for the KL penalty, none with LoRA; and the teacher.
        sampler: the local sampler's own copy of the weights.
        reward_model: weights of a reward model in this process.
        gradients: in the update.
        activations: in the update, of the largest micro-batch.
        logits: in the update: blocks of logits, and the gradient of the head while it is made.
        keys_values: while sampling, of the rollouts sampled in parallel.
        sampled_logits: while sampling.
        overlap: sampling runs beside the update.
        checkpoint: of one file on the disk.
        offloaded: shares of weights, gradients and optimiser that rest in the machine's memory.
        micro_tokens, rows, row_tokens: what it was computed for.
    """

    device: str
    capacity: int | None
    weights: float
    optimizer: float
    second: float
    reference: float
    sampler: float
    reward_model: float
    gradients: float
    activations: float
    logits: float
    keys_values: float
    sampled_logits: float
    overlap: bool
    checkpoint: float
    offloaded: float
    micro_tokens: int
    rows: int
    row_tokens: int

    @property
    def standing(self) -> float:
        """What is there all the time."""
        return (
            self.weights
            + self.optimizer
            + self.second
            + self.reference
            + self.sampler
            + self.reward_model
        )

    @property
    def update(self) -> float:
        """What the update takes besides."""
        return self.gradients + self.activations + self.logits

    @property
    def sampling(self) -> float:
        """What sampling takes besides."""
        return self.keys_values + self.sampled_logits

    @property
    def peak(self) -> float:
        """The most at any time."""
        phases = (self.update, self.sampling)
        return self.standing + (sum(phases) if self.overlap else max(phases))

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "optimiser": self.optimizer,
            "critic or reward model": self.second,
            "reference": self.reference,
            "sampler's weights": self.sampler,
            "reward model": self.reward_model,
            "gradients": self.gradients,
            "activations": self.activations,
            "logits": self.logits,
            "keys and values": self.keys_values,
            "logits of sampling": self.sampled_logits,
        }
        listed = ", ".join(f"{name} {in_units(size)}" for name, size in parts.items() if size)
        of = "" if self.capacity is None else f" of {in_units(self.capacity)}"
        line = f"memory on {self.device}, forecast: {in_units(self.peak)}{of} ({listed})"
        if self.offloaded:
            line += f", and of each rank {in_units(self.offloaded)} in the machine's memory"
        return line


def in_units(size: float) -> str:
    """Bytes as text, such as "1.2 GiB".

    Args:
        size: bytes.
    """
    unit, name = next(((unit, name) for unit, name in _UNITS if size >= unit), _UNITS[-1])
    return f"{size / unit:.1f} {name}"


def capacity(device: torch.device) -> int | None:
    """Memory of a device in bytes, used or not; None if that is not known.

    Args:
        device: a GPU, or the CPU: then the machine's memory, or what the control group allows.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    if device.type != "cpu":
        return None
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    # The limit of the container, by control groups of
    # version 2 and of version 1; "max" is no number.
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no control groups, or no limit
            continue
    return min(limits)


def token_costs(policy: Policy) -> TokenCosts:
    """Measure what tokens cost in this policy.

    Args:
        policy: with all settings of the run; its gradients and weights stay as they are.
    """
    position_limit = (
        getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
        or _PROBE[-1]
    )
    longest = min(position_limit, _PROBE[-1])
    # Three points on distinct lengths need some room; a
    # model of so few positions costs nothing worth counting.
    if longest < 2 * len(_PROBE):
        return TokenCosts(0, 0, 0, 0, 0, 0)
    # In the proportions of the probe, for models that read fewer tokens.
    sizes = [longest * size // _PROBE[-1] for size in _PROBE]
    fixed, linear, square = _parabola(sizes, [_count_kept(policy, size) for size in sizes])
    whole_linear, whole_square = linear, square
    if policy.model.training:
        with evaluation_mode(policy.model):  # in which nothing is recomputed
            _, whole_linear, whole_square = _parabola(
                sizes, [_count_kept(policy, size) for size in sizes]
            )
    layers = max(1, policy.model.config.get_text_config().num_hidden_layers)
    # A difference of two lengths, so that what a cache holds at any length does not count.
    cached = (_count_cached(policy, sizes[-1]) - _count_cached(policy, sizes[0])) / (
        sizes[-1] - sizes[0]
    )
    return TokenCosts(fixed, linear, square, whole_linear / layers, whole_square / layers, cached)


def _parabola(at: list[int], values: list[int]) -> tuple[float, float, float]:
    """Coefficients a, b, c of the parabola a + b·x + c·x² through three points; none below 0."""
    (x, y, z), (u, v, w) = at, values
    first, second = (v - u) / (y - x), (w - v) / (z - y)
    # The second divided difference is the curvature; noise must not make it negative.
    c = max(0.0, (second - first) / (z - x))
    b = max(0.0, first - c * (x + y))
    return max(0.0, u - b * x - c * x * x), b, c


def _rows(policy: Policy, tokens: int) -> list[TokenRow]:
    """One row of so many tokens; in two parts where rows are packed, which has masks of its own."""
    # Token 1 where there is one: a vocabulary may be of one token.
    vocabulary = policy.model.config.get_text_config().vocab_size
    parts = [tokens // 2, tokens - tokens // 2] if policy.packing else [tokens]
    return [TokenRow([1 % vocabulary], [i % vocabulary for i in range(n)]) for n in parts]


@torch.enable_grad()  # type: ignore[untyped-decorator]
def _count_kept(policy: Policy, tokens: int) -> int:
    """Bytes that autograd keeps for the backward pass of a micro-batch, without the parameters."""
    parameter_storages = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameter_storages:
            # By storage: several views of one tensor are one piece of memory.
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        # its graph keeps the tensors, so that no address comes twice
        outputs = policy.logprobs(_rows(policy, tokens))
    del outputs
    return sum(storages.values())


@torch.no_grad()  # type: ignore[untyped-decorator]
def _count_cached(policy: Policy, tokens: int) -> int:
    """Bytes of keys and values of a row, or of whatever state the model keeps instead."""
    model, cache = policy.model, cache_for_prompts(policy.model.config)
    ids = torch.ones(1, tokens, dtype=torch.int64, device=policy.device).remainder_(
        model.config.get_text_config().vocab_size
    )
    enabled = policy.autocast is not None
    with (
        evaluation_mode(model),
        torch.autocast(policy.device.type, policy.autocast, enabled=enabled),
    ):
        base = model.base_model
        base(input_ids=ids, use_cache=True, **{cache_argument(base): cache})
    # Any tensor of a layer: recurrent models keep other states than keys and values.
    tensors = [
        value
        for layer in cache.layers
        for value in vars(layer).values()
        if isinstance(value, Tensor)
    ]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def forecast(
    policy: Policy,
    config: Config,
    *,
    prompt_tokens: int,
    costs: TokenCosts | None = None,
    world: int = 1,
) -> Forecast:
    """The memory of a run; with several ranks that of the first one, which samples.

    Args:
        policy: loaded, with all settings of the run.
        config: settings of the run.
        prompt_tokens: of a long prompt.
        costs: what `token_costs` measured; None to measure it.
        world: ranks over which weights, gradients and optimiser are sharded.
    """
    # Sizes are of whole weights; those of a rank are divided below.
    policy = policy.whole()
    is_offloaded = config.offload is not None
    on_device = not is_offloaded  # what the shares take there
    settings, costs = config.resolve(), costs or token_costs(policy)
    every = list(policy.model.parameters())
    weights, numbers = sum(p.nbytes for p in every), sum(p.numel() for p in every)
    trained = sum(p.numel() * p.element_size() for p in every if p.requires_grad)
    second = trained / world if settings.algorithm.trains_two else 0  # a critic's head is small
    # With an adapter the reference is the same model with the adapter off.
    copies = 0 if not settings.algorithm.has_reference or policy.lora is not None else weights
    text = policy.model.config.get_text_config()
    position_limit = getattr(text, "max_position_embeddings", None) or math.inf
    row = int(min(prompt_tokens + settings.max_tokens, position_limit))
    rollouts = settings.prompts * settings.group_size
    is_region = settings.algorithm.trust_region is not None
    shares = 1 if is_region else world  # a trust region is of whole weights on each rank
    # A layer is whole while it is computed.
    layer = weights / max(1, text.num_hidden_layers) if shares > 1 else 0.0
    layer /= settings.tensor_parallel
    per_update = math.ceil(rollouts / settings.updates_per_batch)
    # A micro-batch holds as many of the longest rows as fit, and one in any case.
    per_batch = min(per_update, max(1, policy.max_tokens // row))
    shape = (1, per_batch * row) if policy.packing else (per_batch, row)
    together = settings.context_parallel
    # Ranks of a context group divide a pack's tokens.
    shape = (1, math.ceil(per_batch * row / together)) if together > 1 else shape
    tokens = shape[0] * shape[1]
    head = policy.model.get_output_embeddings().weight
    # Keys and values of the other ranks' tokens, for each head.
    of_others = 0.0
    if together > 1:
        # Keys and values: two numbers for each head's width, in the mean size of a weight.
        of_others = 2.0 * (together - 1) * tokens * _width_of_heads(text) * weights / numbers
        # With checkpointing only the layer that is made
        # again has them; else each layer keeps its own.
        of_others *= 1 if policy.model.training else text.num_hidden_layers
    # As in `rlvr.train.logprobs`: width of a block of logits.
    width = max(1024, 2**21 // max(1, tokens))
    # Its steps have distributions whole, and second derivatives.
    vectors, graphs = (_REGION_VECTORS, _REGION_GRAPHS) if is_region else (1, 1)
    block = tokens * min(width, len(head)) * max(4, head.element_size()) * _BLOCK_COPIES
    rows = min(settings.max_rows, rollouts)
    # Rows side by side, with the room that the cache grows by,
    # or what `max_tokens_in_flight` allows if that is less.
    held = min(rows * max(_ROOM * row, row + _LEAST_ROOM), max(row, settings.max_tokens_in_flight))
    # of a layer whose buffers grow the old ones live on
    moved = 1 / (_ROOM * getattr(text, "num_hidden_layers", 1))
    reached = held * (costs.cached * (1 + moved) + _SIDE_BYTES)
    # prompts go through a layer at once
    read = min(rows, settings.prompts) * prompt_tokens * costs.layer_linear
    is_local = settings.engine == "local"  # vLLM keeps to its own share of memory
    # AdamW keeps two numbers for each trained one.
    optimizer = 2 * (0 if is_region else trained / world) + 2 * second
    reference = copies / shares + _size_of_model(settings.teacher) / world
    gradients = vectors * trained / shares + second
    offloaded = weights / shares + optimizer + second + reference + gradients
    return Forecast(
        device=str(policy.device),
        capacity=capacity(policy.device),
        weights=on_device * weights / shares + layer,
        optimizer=on_device * optimizer,
        second=on_device * second,
        reference=on_device * reference,
        # A copy of whole weights: while the policy is
        # updated, or because the policy itself is in shards.
        sampler=weights if is_local and (settings.max_staleness or world > 1) else 0,
        reward_model=_size_of_model(settings.reward_model),
        gradients=on_device * gradients + layer,
        # A trust region's product needs the graph of a gradient too.
        activations=graphs * costs.activations(*shape, recomputed=policy.model.training)
        + of_others,
        logits=block
        + is_region * (rollouts * settings.max_tokens + _REGION_COPIES * tokens) * len(head) * 4
        + (head.numel() * head.element_size() if head.requires_grad else 0),
        keys_values=is_local * (reached + read),
        # float32 logits of one token for each row.
        sampled_logits=is_local * rows * len(head) * 4 * _SAMPLING_COPIES,
        overlap=is_local and settings.max_staleness > 0,
        # Weights and the two means of AdamW.
        checkpoint=3 * (trained + second * world)
        + (copies if policy.lora is None else trained if settings.algorithm.reset else 0),
        offloaded=is_offloaded * offloaded,
        micro_tokens=tokens,
        rows=rows,
        row_tokens=row,
    )


def _width_of_heads(config: PretrainedConfig) -> int:
    """Numbers that all heads of a layer have for a token; of the widest, where layers differ."""
    widths = []
    for layer in getattr(config, "per_layer_config", None) or [config]:
        heads = getattr(layer, "num_attention_heads", None) or 1
        head_width = getattr(layer, "head_dim", None) or layer.hidden_size // heads
        widths.append(heads * head_width)
    return int(max(widths))


def _size_of_model(place: str | None) -> float:
    """Bytes of the weights in a folder, which are loaded as they are; 0 for none, or for a model
    behind HTTP."""
    if place is None or "://" in place:
        return 0.0
    if place.startswith(IMPLICIT):
        # The trained model and the one it began with.
        return 2 * _size_of_model(str(implicit_run(place)[0]))
    return float(sum(file.stat().st_size for file in Path(place).glob("*.safetensors")))


def longest_prompt(groups: Groups) -> int:
    """Tokens of the longest of the first prompts.

    Args:
        groups: of the run's environment and sampler.
    """
    first = Cursor(groups.env, seed=0, shuffle=False)  # starts again if there are fewer tasks
    return max(
        len(groups.sampler.encode(groups.task(first.index(place)).prompt))
        for place in range(_PROMPTS)
    )


def require_memory(found: Forecast, config: Config) -> None:
    """Refuse a run that cannot fit into the device's memory.

    Args:
        found: the forecast.
        config: settings of the run.

    Raises:
        UsageError: it cannot fit; the message says what would.
    """
    if found.capacity is not None and found.peak > found.capacity:
        raise UsageError(f"{found}: it cannot fit.  {_remedy(found, config)}")


def require_room(found: Forecast, config: Config) -> None:
    """Refuse a run that cannot fit into the device's memory, or whose checkpoints cannot fit on the
    disk.

    Args:
        found: the forecast.
        config: settings of the run.

    Raises:
        UsageError: it cannot fit; the message says what would.
    """
    require_memory(found, config)
    folder = config.run / "checkpoints"
    present = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    # One more than `keep`: the old one goes after the new one is written.
    written = min(config.keep + 1, math.ceil(config.steps / config.checkpoint_every))
    needed = written * found.checkpoint + found.weights - present
    # The nearest folder that exists, as the run's is not made yet.
    free = shutil.disk_usage(
        next(path for path in (config.run, *config.run.absolute().parents) if path.is_dir())
    ).free
    if needed > free:
        raise UsageError(
            f"the disk of {config.run} has {in_units(free)} free, and the run needs "
            f"{in_units(needed)} there: {written} checkpoints of {in_units(found.checkpoint)} and "
            f"a model of {in_units(found.weights)}; free some of it, choose another folder, or "
            "lower keep"
        )


def _remedy(found: Forecast, config: Config) -> str:
    """What would make it fit; the settings that cost least first."""
    assert found.capacity is not None
    room = found.capacity - found.standing
    if (
        found.overlap
        and found.standing - found.sampler + max(found.update, found.sampling) <= found.capacity
    ):
        return (
            "Set max_staleness to 0: "
            "then sampling and update take turns, and no second copy of the weights is kept"
        )
    if found.update >= found.sampling and room > found.gradients + found.logits:
        per_token = found.activations / found.micro_tokens
        # Of a pack that ranks read together, each has so many tokens.
        fitting = config.context_parallel * int((room - found.gradients - found.logits) / per_token)
        if fitting >= found.row_tokens:
            return f"Lower micro_tokens to {fitting} or less"
        if not config.gradient_checkpointing:
            return "Switch gradient_checkpointing on: one completion alone is too long without"
    if found.sampling > found.update and room > 0:
        fitting = int(found.rows * room / found.sampling)
        if fitting:
            return f"Lower max_rows to {fitting} or less"
    if config.lora_rank is None:
        return (
            "Train a LoRA adapter (lora_rank=16), for which gradients and optimiser are small, "
            "or a smaller model"
        )
    return "Lower max_tokens, or take a smaller model"


def require_offload(config: Config, device: str, world: int) -> None:
    """Refuse to offload shards where that frees nothing.

    Args:
        config: settings of the run.
        device: kind of the device that trains, such as "cuda".
        world: processes over which the model is sharded.

    Raises:
        UsageError: there are no shards, or they are in the machine's memory anyway.
    """
    if config.offload is not None and (world == 1 or device == "cpu"):
        where = "one process without shards" if world == 1 else "processes on a CPU"
        raise UsageError(
            f"offload is {config.offload!r} in {where}, where it frees nothing: it moves shards "
            "from GPUs; start several processes on GPUs with torchrun --nproc-per-node N -m -- "
            "rlvr train …, or leave it out"
        )


def require_room_for_weights(config: Config, device: torch.device, world: int = 1) -> None:
    """Refuse, before the model is loaded, one whose weights, gradients and optimiser cannot fit.

    Nothing is said of a model that cannot be found; loading it says what is wrong.

    Args:
        config: settings of the run.
        device: where it will train.
        world: ranks over which it is sharded.

    Raises:
        UsageError: they cannot fit; the message says what would.
    """
    is_offloaded = config.offload is not None
    if is_offloaded:
        device = torch.device("cpu")
    available = capacity(device)
    base = base_of_adapter(Path(config.model)) if Path(config.model).is_dir() else None
    name = base or config.model
    # From shapes alone, on the meta device: weights that cannot fit are not read.
    with nullcontext() if Path(name).is_dir() else at_once():
        model = model_of_config(name)
    if model is None:
        return
    numbers = sum(p.numel() for p in model.parameters())
    lora, algorithm = config.lora_rank is not None, config.resolve().algorithm
    shares = 1 if algorithm.trust_region is not None else world
    # A frozen base is loaded in bfloat16; trained weights are float32.
    weight_bytes = (2 if lora and config.precision == "bf16" else 4) * numbers
    parts = {"weights": weight_bytes // shares}
    if not lora:
        # float32: 4 bytes of a gradient, twice 4 of AdamW's means.
        parts |= {"gradients": 4 * numbers // shares, "optimiser": 8 * numbers // world}
        if algorithm.has_reference:
            parts["reference"] = 4 * numbers // shares
        if algorithm.trains_two:  # weights, gradients, optimiser
            parts["critic or reward model"] = 16 * numbers // world
    if is_offloaded:  # all ranks of a machine have its memory together
        ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
        parts = {name: size * ranks_here for name, size in parts.items()}
    elif config.engine == "local" and (config.max_staleness or world > 1):
        # Undivided: the sampler has whole weights.
        parts["sampler's weights"] = weight_bytes
    if available is None or sum(parts.values()) <= available:
        return
    listed = ", ".join(f"{name} {in_units(size)}" for name, size in parts.items())
    adapter = (
        f"train a LoRA adapter (lora_rank=16; {in_units(2 * numbers)} of weights in bf16), or "
        if not lora
        else ""
    )
    raise UsageError(
        f"{config.model} has {numbers / 1e9:.1f} billion weights: {in_units(sum(parts.values()))} "
        f"({listed}), and {device} has {in_units(available)}: {'' if lora else adapter}take a "
        "smaller model or a larger device"
    )
