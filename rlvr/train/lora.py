"""LoRA: the weights W stay as they are, and a product of two narrow
matrices beside each is trained.

y = W x + (alpha / rank) · B A x, with A of rank rows and B of rank columns (Hu et al. 2021,
arXiv:2106.09685, 4.1). B begins at 0, so the model with a new adapter computes what it computed
before, and the adapter switched off is the policy that the run began with: the reference costs no
memory.

The layers are peft's, put into the model in place; needs the extra `lora`.
"""

from __future__ import annotations

import copy
import json
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from rlvr.errors import MissingDependency, UsageError
from rlvr.types import JsonDict
from rlvr.validate import require_number, require_whole

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import PreTrainedModel

__all__ = ["Lora", "add_lora", "base_of_adapter", "has_lora", "load_adapter", "unwrap_model"]

_CONFIG: Final = "adapter_config.json"  # peft's name
_NOT_AT_THE_ENDS: Final = (
    "LoRA on {name}: embeddings and head are read as plain matrices here; "
    "leave them out of the targets"
)
_SAMPLE: Final = 4096  # numbers of each frozen tensor that its fingerprint covers


class Lora:
    """The adapter in a model.

    Args:
        model: a transformers model with LoRA layers of peft, and one adapter.

    Raises:
        UsageError: the adapter does what cannot be merged or computed here; the message says what.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._fingerprint: int | None = None
        self._layers = dict(_lora_layers(model))
        self.name = _only_adapter(self._layers)
        self._require_plain()
        for parameter in self.parameters.values():  # peft loads adapters frozen
            parameter.requires_grad_(True)

    def _require_plain(self) -> None:
        """Refuse what `rlvr.train.logprobs` and `merged` would compute wrongly, without an
        error."""
        trained_names = [
            name
            for name, p in self._model.named_parameters()
            if p.requires_grad and ".lora_" not in name
        ]
        if trained_names:
            raise UsageError(
                f"beside LoRA this model trains {trained_names[0]}; freeze it, or train all "
                f"weights without LoRA"
            )
        ends = {id(self._model.get_input_embeddings()), id(self._model.get_output_embeddings())}
        for name, layer in self._layers.items():
            if id(layer) in ends:
                raise UsageError(_NOT_AT_THE_ENDS.format(name=name))
            if getattr(layer, "use_dora", {}).get(self.name):
                raise UsageError(
                    f"LoRA on {name} is a DoRA, whose scale depends on the weights; use plain LoRA"
                )

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """What is trained, by name."""
        return {name: p for name, p in self._model.named_parameters() if ".lora_" in name}

    @property
    def config(self) -> JsonDict:
        """The settings of the adapter as peft keeps them in a file, as plain JSON."""
        fields: dict[str, object] = self._model.peft_config[self.name].to_dict()
        return {
            name: sorted(value) if isinstance(value, (set, frozenset)) else value
            # `inference_mode` in the file, as peft writes it; sets are no JSON.
            for name, value in {**fields, "inference_mode": True}.items()
        }

    @property
    def is_new(self) -> bool:
        """True while the adapter changes nothing: every B is 0."""
        return not any(bool(p.any()) for name, p in self.parameters.items() if ".lora_B." in name)

    @contextmanager
    def off(self) -> Iterator[None]:
        """Compute without the adapter; for use without gradients."""
        trained = list(self.parameters.values())
        for layer in self._layers.values():
            layer.enable_adapters(False)
        for parameter in trained:
            parameter.requires_grad_(True)  # peft has just frozen it, and FSDP2 would remember that
        try:
            yield
        finally:
            for layer in self._layers.values():
                layer.enable_adapters(True)

    @contextmanager
    def holding(self, state: Mapping[str, Tensor]) -> Iterator[None]:
        """Compute with these adapter weights; for use without gradients.

        Args:
            state: what `state_dict` returned at some time.
        """
        held_before = self.state_dict()
        self.load_state_dict(state)
        try:
            yield
        finally:
            self.load_state_dict(held_before)

    def state_dict(self) -> dict[str, Tensor]:
        """A copy of the adapter's weights."""
        return {name: p.detach().clone() for name, p in self.parameters.items()}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights.

        Args:
            state: what `state_dict` returned.

        Raises:
            UsageError: they are of an adapter with other targets or another rank.
        """
        own_parameters = self.parameters
        if own_parameters.keys() != state.keys() or any(
            own_parameters[name].shape != state[name].shape for name in own_parameters
        ):
            raise UsageError(
                "these are the weights of a LoRA adapter with other targets or another rank"
            )
        for name, parameter in own_parameters.items():
            parameter.copy_(state[name])

    def fingerprint(self) -> int:
        """A checksum over the frozen weights: the first numbers of each.  An adapter means nothing
        without them."""
        # they stay as they are, and shards of them would have another one
        if self._fingerprint is None:
            self._fingerprint = 0
            for name, parameter in self._model.named_parameters():
                if ".lora_" not in name:
                    head = parameter.detach().flatten()[:_SAMPLE].cpu().contiguous()
                    checksum = zlib.crc32(name.encode(), self._fingerprint)
                    self._fingerprint = zlib.crc32(head.view(torch.uint8).numpy(), checksum)
        return self._fingerprint

    def save(self, folder: str | Path, state: Mapping[str, Tensor | None] | None = None) -> None:
        """Write the adapter alone, as peft reads it.

        Args:
            folder: where it goes; it is made.
            state: its weights, as `state_dict` has them; None for those that it has.
        """
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        named = get_peft_model_state_dict(
            self._model,
            state_dict=self.state_dict() if state is None else dict(state),
            adapter_name=self.name,
            save_embedding_layers=False,
        )
        tensors = {
            # The prefix that peft's own files have.
            f"base_model.model.{name}": value.detach().cpu().contiguous()
            for name, value in named.items()
        }
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        config = copy.deepcopy(self._model.peft_config[self.name])
        config.inference_mode = True
        config.save_pretrained(str(folder))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def merge(self, bucket: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights W + (alpha / rank) · B A by their names without adapter, on the CPU and in
        float32 at least.

        Args:
            bucket: whole tensors of the model's state dict, each layer's with those of its adapter.
        """
        merged: dict[str, Tensor] = {}
        for name, value in bucket.items():
            if ".lora_" not in name:
                # bfloat16 weights are merged in float32, as the product is small beside them.
                wide = (
                    torch.promote_types(value.dtype, torch.float32)
                    if value.is_floating_point()
                    else value.dtype
                )
                # Names as in the model without adapter.
                merged[name.replace("base_layer.", "")] = value.to("cpu", wide, copy=True)
        for name, layer in self._layers.items():
            layer_values = {
                inner: bucket[f"{name}.{inner}"]
                for inner, _ in layer.named_parameters()
                # A bucket holds a layer's matrices together or not at all.
                if inner.startswith("lora_") and f"{name}.{inner}" in bucket
            }
            if layer_values:
                key = f"{name}.{getattr(layer, 'parameter_name', 'weight')}"
                with _holding_values(layer, layer_values):
                    delta = layer.get_delta_weight(self.name)
                weight = merged[key.replace("base_layer.", "")]
                weight += delta.to("cpu", weight.dtype)
        return merged


@contextmanager
def _holding_values(module: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """The module's parameters with other values, such as whole ones in the place of shares."""
    parameters_before = []
    for name, value in values.items():
        owner, _, last = name.rpartition(".")
        place = module.get_submodule(owner)._parameters
        parameters_before.append((place, last, place[last]))
        # A parameter's place in the module, so that peft's
        # own formula reads it; `requires_grad` is off.
        place[last] = nn.Parameter(value, requires_grad=False)
    try:
        yield
    finally:
        for place, last, parameter in parameters_before:
            place[last] = parameter


def add_lora(
    model: PreTrainedModel,
    *,
    rank: int,
    alpha: float | None = None,
    targets: Sequence[str] = (),
    seed: int = 0,
) -> Lora:
    """Freeze a model and put a new adapter into it, in place.

    Args:
        model: of transformers.
        rank: of the products B A, at least 1.
        alpha: the products are scaled by alpha / rank; None for twice the rank.
        targets: endings of the names of layers, such as "q_proj", or of parameters, such as
            "experts.gate_up_proj"; empty for all linear layers but the head.
        seed: fixes the first weights, and leaves torch's global generator as it was.

    Raises:
        UsageError: a target matches nothing, or a layer that cannot have an adapter.
        MissingDependency: peft is not installed.
    """
    try:
        from peft import LoraConfig
    except ImportError:
        raise MissingDependency("peft", "lora") from None
    require_whole("lora_rank", rank, 1)
    alpha = 2.0 * rank if alpha is None else require_number("lora_alpha", alpha, above=0)
    if has_lora(model):
        raise UsageError(
            "this model has an adapter already; merge it first (`merge_and_unload` of peft)"
        )
    modules, parameters = _matching(model, targets)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=modules if targets else "all-linear",
        target_parameters=parameters or None,
        task_type="CAUSAL_LM",
    )
    # The generator's state comes back: rollouts must not depend on whether an adapter was made.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        _ignore_warnings()
        # A is random, B is 0; the seed makes ranks alike.
        torch.manual_seed(seed)
        try:
            model.add_adapter(config)
        except (ValueError, NotImplementedError, TypeError) as error:
            why = str(error).strip().splitlines()[0]
            raise UsageError(
                f"no LoRA adapter can be put on {', '.join(targets) or 'this model'}: {why}"
            ) from error
    lora = Lora(model)
    for parameter in lora.parameters.values():  # those of a bfloat16 layer would lose small steps
        parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
    return lora


def _ignore_warnings() -> None:
    """Of peft, where it does what is right all the same."""
    # It asks for another rank in fused experts, and does not find them under that name.
    warnings.filterwarnings(
        "ignore", message="The following (rank|alpha)_pattern keys did not match"
    )
    # peft then sets it to True itself.
    warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
    warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")


def _matching(model: PreTrainedModel, targets: Sequence[str]) -> tuple[list[str], list[str]]:
    """The targets that name modules, and those that name parameters.

    Raises:
        UsageError: one names neither; peft would leave it out without a word if another one
            matches.
    """
    modules = [name for name, _ in model.named_modules() if name]
    parameters = [name for name, _ in model.named_parameters()]

    # A whole name or a whole ending: "proj" must not match "q_proj".
    def found(target: str, names: Sequence[str]) -> bool:
        return any(name == target or name.endswith(f".{target}") for name in names)

    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    for target in targets:
        for name, module in model.named_modules():
            if module in ends and found(target, [name]):
                raise UsageError(_NOT_AT_THE_ENDS.format(name=name))
        if not found(target, modules) and not found(target, parameters):
            linear = {
                name.rpartition(".")[2]
                for name, module in model.named_modules()
                if isinstance(module, nn.Linear)
            }
            head = {
                name.rpartition(".")[2]
                for name, module in model.named_modules()
                if module is model.get_output_embeddings()
            }
            raise UsageError(
                f"lora_targets has {target!r}, which no layer of {type(model).__name__} is called; "
                f"it has {', '.join(sorted(linear - head)) or 'no linear layers'}; give none for "
                "all linear layers"
            )
    return [t for t in targets if found(t, modules)], [t for t in targets if not found(t, modules)]


def unwrap_model(model: PreTrainedModel) -> PreTrainedModel:
    """The transformers model inside of one that peft has wrapped; any other as it is.

    Args:
        model: a transformers model, or a `PeftModel`.

    Raises:
        UsageError: it is wrapped for something else than LoRA.
    """
    if not hasattr(model, "get_base_model"):
        return model
    inner = model.get_base_model()
    if not has_lora(inner):
        raise UsageError(
            f"this {type(model).__name__} has no LoRA layers; of peft's methods LoRA alone is "
            f"supported: give it merged"
        )
    return inner


def has_lora(model: PreTrainedModel) -> bool:
    """True if the model has LoRA layers of peft.

    Args:
        model: a torch module.
    """
    return next(_lora_layers(model), None) is not None


def base_of_adapter(folder: Path) -> str | None:
    """The model that the adapter in a folder belongs to; None if the folder holds no adapter.

    Args:
        folder: what may be an adapter's folder.

    Raises:
        UsageError: the adapter does not say.
    """
    path = folder / _CONFIG
    if not path.is_file():
        return None
    try:
        base = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (ValueError, AttributeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}); give the folder of an adapter that peft wrote"
        ) from None
    if not base:
        raise UsageError(
            f"{path} does not say which model the adapter belongs to; write "
            "base_model_name_or_path there"
        )
    return str(base)


def load_adapter(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """A model with the adapter of a folder merged into its weights.

    Args:
        model: the adapter's base; changed in place.
        folder: an adapter that peft or `Lora.save` wrote.

    Raises:
        UsageError: the adapter does not fit the model.
        MissingDependency: peft is not installed.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingDependency("peft", "lora") from None
    try:
        with warnings.catch_warnings():
            # As an error: peft would go on with new matrices.
            warnings.filterwarnings("error", message="Found missing adapter keys")
            _ignore_warnings()
            merged = PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except (ValueError, RuntimeError, KeyError, OSError, UserWarning) as error:
        why = str(error).strip().splitlines()[0]
        raise UsageError(f"the adapter in {folder} does not fit its model: {why[:300]}") from error
    merged._hf_peft_config_loaded = False  # or the whole model would be saved as an adapter
    return merged.requires_grad_(True)


def _lora_layers(model: PreTrainedModel) -> Iterator[tuple[str, Module]]:
    """LoRA layers by name.  peft need not be installed where there are none."""
    for name, module in model.named_modules():
        if any(
            kind.__module__.startswith("peft.") and kind.__name__ == "LoraLayer"
            for kind in type(module).__mro__
        ):
            yield name, module


def _only_adapter(layers: Mapping[str, Any]) -> str:
    # Adapters of linear layers and of embeddings have separate tables.
    names = {name for layer in layers.values() for name in (*layer.lora_A, *layer.lora_embedding_A)}
    if len(names) != 1:
        raise UsageError(
            f"this model has {len(names)} adapters ({', '.join(sorted(names))}); delete all but one"
        )
    only_name: str = next(iter(names))
    return only_name
