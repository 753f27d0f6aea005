"""What vLLM's workers load by `--worker-extension-cls`, so that the policy's
weights can be put into them.

The methods are called by name, in this process or through a server's `/collective_rpc`.  Runs
inside vLLM, so it is kept small and needs nothing of rlvr but `vllm_shared`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.samplers.vllm_shared import model_sizes, require_all_names

if TYPE_CHECKING:
    from torch.nn import Module
    from vllm.config import VllmConfig

__all__ = ["WorkerExtension", "checkpoint_names", "pack_tied_head", "unwrap_head"]


class WorkerExtension:
    """Methods that vLLM adds to its worker.

    Attributes:
        model_runner, vllm_config: the worker's own.
    """

    model_runner: Any
    vllm_config: VllmConfig

    def rlvr_describe(self, note: str | None = None) -> dict[str, object]:
        """What the engine runs, as plain JSON.

        Args:
            note: a file in the folder for weights; the result has its text, which shows that the
                folder is seen.
        """
        import vllm

        path = Path(note) if note is not None else None
        config = self.vllm_config.model_config
        return {
            "note": path.read_text(encoding="utf-8")
            if path is not None and path.is_file()
            else None,
            "vllm": vllm.__version__,
            "names": sorted(checkpoint_names(self.model_runner.get_model())),
            "sizes": model_sizes(config.hf_config),
            "tied": bool(getattr(config.hf_config.get_text_config(), "tie_word_embeddings", False)),
            "positions": config.max_model_len,
            "logprobs": str(config.logprobs_mode),
            "dtype": str(config.dtype).removeprefix("torch."),
            "max_lora_rank": self.vllm_config.lora_config
            and self.vllm_config.lora_config.max_lora_rank,
            "prefix_block": self.vllm_config.cache_config.block_size,
        }

    def rlvr_load(self, weights: Mapping[str, object] | str) -> list[str]:
        """Put new weights in the place of all old ones; returns the names that the engine has
        taken.

        `reload_weights` leaves three things that the caller has to mend: a tied head on a CPU keeps
        its own packed copy of the embedding, which is packed anew here; a part of the weights is
        taken without a word, so names are compared first; and keys and values that were computed
        with the old weights stay in the prefix cache, which the engine (not its worker) clears.

        Args:
            weights: name → tensor by the names of a checkpoint, or a folder of safetensors with
                them.

        Raises:
            UsageError: names are missing, or unknown.
        """
        model = self.model_runner.get_model()
        # While prompts' log-probabilities are computed
        # there must be no layer of adapters on the head.
        unwrap_head(model)
        expected, names = checkpoint_names(model), []

        def noted(pairs: Iterator[tuple[str, object]]) -> Iterator[tuple[str, object]]:
            for name, tensor in pairs:
                # What the loader has really asked for, and not what was offered.
                names.append(name)
                yield name, tensor

        if isinstance(weights, str):
            from safetensors import safe_open

            with ExitStack() as stack:
                paths = sorted(Path(weights).glob("*.safetensors"))
                files = [stack.enter_context(safe_open(path, framework="pt")) for path in paths]
                require_all_names(
                    [name for file in files for name in file.keys()],  # noqa: SIM118
                    expected,
                )
                pairs = (
                    (name, file.get_tensor(name))
                    for file in files
                    for name in file.keys()  # noqa: SIM118
                )
                self.model_runner.reload_weights(weights_iterator=noted(pairs))
        else:
            require_all_names(weights, expected)
            self.model_runner.reload_weights(weights_iterator=noted(iter(weights.items())))
        pack_tied_head(model)
        return names


def checkpoint_names(model: Module) -> set[str]:
    """The names of an engine's parameters in a checkpoint: fused ones are there in parts.

    Args:
        model: vLLM's.
    """
    packed: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", None) or {}
    names: set[str] = set()
    for name, _ in model.named_parameters():
        if ".lora_" in name:
            continue
        *path, module, last = name.replace(".base_layer.", ".").rsplit(".", 2)
        # A fused matrix is in a checkpoint as its parts, such as q_proj, k_proj and v_proj.
        names.update(".".join([*path, part, last]) for part in packed.get(module, [module]))
    return names


def pack_tied_head(model: Module) -> None:
    """Pack a tied head's matrix anew, from the embedding that it shares.

    Args:
        model: vLLM's; without effect where the head keeps no packed copy, as on a GPU.
    """
    head: Any = getattr(model, "lm_head", None)
    head = getattr(head, "base_layer", head)  # an adapter's layer is around it
    if hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def unwrap_head(model: Module) -> None:
    """Take away vLLM's layer for LoRA adapters on the head, with which prompts' logprobs end the
    engine.

    The layer knows the adapters of the rows that are sampled, and then gets a row for each token of
    a prompt.  Adapters on the head are refused by `AdapterSettings`.

    Args:
        model: vLLM's; without effect where there is no such layer.
    """
    from vllm.lora.layers import LogitsProcessorWithLoRA

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LogitsProcessorWithLoRA):
                setattr(parent, name, child.base_layer)
