"""Layers that several ranks compute together: transformers' own tensor plan, beside the
shards of `Ranks.shard`.

Each rank of a tensor group has some heads and some of the MLP's columns; the plan's layers add up
what the group computes.  A weight without a place in the plan is on all of them.  So every weight
lies on one mesh, (data, tensor), and norms, AdamW and checkpoints know no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import transformers
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, distribute_tensor

from rlvr.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


__all__ = ["Head", "require_tensor_plan", "split_layers", "whole_head"]

_LEAST_VERSION: Final = 5, 19  # of transformers, whose function takes a plan from then on
_SUMMED: Final = "replicated_with_grad_allreduce"  # a norm of heads: each rank sees its own
_STYLES: Final = {"colwise", "rowwise", "colwise_gather_output", "embedding_rowwise", _SUMMED}
_DIVIDED: Final = ("num_attention_heads", "num_key_value_heads", "intermediate_size")


def require_tensor_plan(model: PreTrainedModel, size: int) -> None:
    """Refuse a model whose layers so many ranks cannot compute together.

    Args:
        model: of transformers.
        size: ranks of a tensor group; 1 for none.

    Raises:
        UsageError: transformers is too old; the model's type has no plan, or one with styles that
            are not tried; its heads or its MLP cannot be shared out evenly.
    """
    if size == 1:
        return
    installed = transformers.__version__
    if tuple(map(int, installed.split(".")[:2])) < _LEAST_VERSION:
        required = ".".join(map(str, _LEAST_VERSION))
        raise UsageError(
            f"tensor_parallel is {size}, which needs transformers {required} or later, and "
            f"{installed} is installed; leave it out, or run pip install 'transformers>={required}'"
        )
    kind, config = model.config.model_type, model.config.get_text_config()
    plan: Mapping[str, str] = model.tp_plan or {}
    untried_styles = sorted(set(plan.values()) - _STYLES)
    if untried_styles or not plan:
        why = (
            f"one with {', '.join(untried_styles)}, which rlvr has not tried"
            if untried_styles
            else "none"
        )
        raise UsageError(
            f"tensor_parallel is {size}, and of tensor plans transformers has {why} for the model "
            f"type {kind!r}; leave tensor_parallel out, or take a model such as llama or qwen3"
        )
    for name in _DIVIDED:
        count = getattr(config, name, None)
        if count is not None and count % size:
            raise UsageError(
                f"tensor_parallel is {size}, which does not divide the model's {count} "
                f"({name}); give a divisor of it"
            )


def split_layers(root: nn.Module, model: PreTrainedModel, mesh: DeviceMesh) -> None:
    """Give each rank of a tensor group its part of the layers, in place.

    Args:
        root: the module that micro-batches go through.
        model: the causal language model in it.
        mesh: of the group.

    Raises:
        UsageError: see `require_tensor_plan`.
    """
    require_tensor_plan(model, mesh.size())
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    # Wildcards of layers' numbers become names.
    plan: dict[str, str] = model._expand_parallel_plan(model.tp_plan)
    summed = {id(m) for name, m in model.named_modules() if plan.get(name) == _SUMMED}
    # Of tied weights the first has its place.
    module_names = {name for name, _ in [*model.named_modules(), *model.named_parameters()]}
    planned = {n: style for n, style in plan.items() if style != _SUMMED and n in module_names}
    apply_tensor_parallelism(model, mesh, planned)
    # Splitting makes new parameters: tied ones have to be the same again.
    model.tie_weights()
    for module in root.modules():
        plain = {n: p for n, p in module._parameters.items() if isinstance(p, Tensor)}
        plain = {name: p for name, p in plain.items() if not isinstance(p, DTensor)}
        for name, p in plain.items():
            # Copied without a message: every rank holds the same.
            copied = distribute_tensor(p.detach(), mesh, [Replicate()], src_data_rank=None)
            module._parameters[name] = nn.Parameter(copied, requires_grad=p.requires_grad)
        if plain:
            _compute_locally(
                module, list(plain), Partial() if id(module) in summed else Replicate()
            )


def _compute_locally(module: nn.Module, names: list[str], gradient: Placement) -> None:
    """Have a module compute with this rank's copy of its weights.

    Args:
        module: changed in place.
        names: of its weights, which all ranks have.
        gradient: how those of the ranks belong together: they are the same, or add up.
    """
    forward = module.forward

    def with_local_weights(*args: object, **options: object) -> object:
        held: dict[str, Any] = {name: module._parameters[name] for name in names}
        for name, p in held.items():
            # Its gradient: the same on all ranks, or a part that is summed up.
            module._parameters[name] = p.to_local(grad_placements=[gradient])
        try:
            return forward(*args, **options)
        finally:
            # Put back even if the pass fails: the optimiser holds these.
            module._parameters.update(held)

    module.forward = with_local_weights


class Head(NamedTuple):
    """What makes logits of hidden states.

    Attributes:
        weight: [V, H].
        bias: [V]; None for none.
    """

    weight: Tensor
    bias: Tensor | None


def whole_head(model: PreTrainedModel) -> Head:
    """A model's head, gathered from the tensor group where it is split.

    Args:
        model: a causal language model of transformers.
    """
    head = model.get_output_embeddings()
    tensors = head.weight, getattr(head, "bias", None)
    return Head(*(p.full_tensor() if isinstance(p, DTensor) else p for p in tensors))
