"""A LoRA adapter of the policy in vLLM: swapped while the engine runs, or merged into the
weights that it is given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from torch import Tensor

from rlvr.errors import UsageError
from rlvr.types import JsonObject
from rlvr.validate import require_number

__all__ = ["AdapterFiles", "AdapterSettings", "WrittenAdapter"]

_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM can be started for
# transformers' names of the head and of the embedding.
_ENDS: Final = ("lm_head", "embed_tokens")


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """What vLLM has to know of a policy's adapter.

    Args:
        config: that of peft, as plain JSON.
        swap: True gives vLLM the adapter alone at each sync, which is small; its layers compute W x
            + (alpha / rank) · B A x then.  False merges it into the weights, which are all sent.

    Attributes:
        scale: alpha / rank, with which the products are multiplied.

    Raises:
        UsageError: vLLM has no such adapters.
    """

    config: JsonObject
    swap: bool = False

    def __post_init__(self) -> None:
        for name in (
            "use_rslora",
            "use_dora",
            "alpha_pattern",
            "rank_pattern",
            "target_parameters",
        ):
            if self.config.get(name):
                raise UsageError(
                    f"the LoRA adapter has {name}, which vLLM cannot be given here; use a plain one"
                )
        require_number("lora_alpha", self.config["lora_alpha"], above=0)
        targets = self.config.get("target_modules") or ()
        if self.swap and any(name.rpartition(".")[2] in _ENDS for name in targets):
            raise UsageError(
                "the LoRA adapter is on the head or the embedding, which cannot be swapped; set "
                "sampler_lora to merged"
            )
        if self.swap and self.rank > _RANKS[-1]:
            raise UsageError(
                f"lora_rank is {self.rank}, and vLLM takes at most {_RANKS[-1]}; send merged "
                f"weights"
            )

    @property
    def rank(self) -> int:
        """Of the products."""
        return int(self.config["r"])

    @property
    def scale(self) -> float:
        """See above."""
        return float(self.config["lora_alpha"]) / self.rank

    @property
    def engine_rank(self) -> int:
        """The least rank that vLLM can be started for and that has room for the adapter."""
        return next(rank for rank in _RANKS if rank >= self.rank)


class WrittenAdapter(NamedTuple):
    """A version of an adapter that engines can read.

    Attributes:
        name, number: which no other one has had.
        folder: of its files.
    """

    name: str
    number: int
    folder: Path


class AdapterFiles:
    """Writes each version of an adapter to a folder of its own, which vLLM reads.

    Args:
        folder: for the folders.
        settings: of the adapter.
    """

    def __init__(self, folder: Path, settings: AdapterSettings) -> None:
        self.folder, self.settings = folder, settings
        self._count, self._last = 0, folder

    def write(self, weights: Mapping[str, Tensor], version: int) -> WrittenAdapter:
        """Write this version; the one before it is deleted.

        Each call has a number that no other has had: under a number that it knows, vLLM would go on
        with what it has.

        Args:
            weights: a state dict of the trainer's model.
            version: of the weights.

        Raises:
            UsageError: there is no adapter in them.
        """
        from safetensors.torch import save_file

        adapter_weights = {name: value for name, value in weights.items() if ".lora_" in name}
        parts = {
            _peft_name(name): value.detach().cpu().contiguous()
            for name, value in adapter_weights.items()
        }
        if not parts:
            raise UsageError(
                "these weights have no LoRA adapter; give those of the policy with the adapter"
            )
        if self._count:
            # vLLM has read it at the sync before.
            shutil.rmtree(self._last, ignore_errors=True)
        self._count += 1
        self._last = self.folder / f"adapter-{self._count}"
        self._last.mkdir(parents=True)
        save_file(parts, self._last / "adapter_model.safetensors", metadata={"format": "pt"})
        text = json.dumps(dict(self.settings.config))
        (self._last / "adapter_config.json").write_text(text, encoding="utf-8")
        return WrittenAdapter(f"rlvr-{self._count}-v{version}", self._count, self._last)


def _peft_name(name: str) -> str:
    """The name in a peft file: with the prefix of its wrapper, and without the adapter's own name.

    Args:
        name: such as "model.layers.0.mlp.up_proj.lora_A.default.weight".
    """
    # "default", peft's name of the adapter, stands before the last part.
    *path, _, last = name.split(".")
    return ".".join(["base_model", "model", *path, last])
