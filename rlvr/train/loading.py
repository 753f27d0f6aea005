"""Models and tokenizers from folders or the hub, with one clear error for each thing
that can be wrong with them."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from huggingface_hub import try_to_load_from_cache
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from rlvr.data.hub import at_once
from rlvr.data.tokens import load_fast_tokenizer
from rlvr.errors import UsageError, foreign_code
from rlvr.train.lora import base_of_adapter, load_adapter

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = [
    "empty_model",
    "load_model",
    "load_tokenizer",
    "model_of_config",
    "require_finite_weights",
    "without_bars",
    "write_index",
]


def load_model(
    name: str | Path, *, dtype: torch.dtype, device: torch.device | str, attention: str | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model on its device, and its tokenizer.

    Args:
        name: folder or hub id; the folder of a LoRA adapter gives its base with the adapter merged.
        dtype: type of the weights.
        device: where the model goes.
        attention: implementation of attention; None for the default.

    Raises:
        UsageError: there is no such model, it lacks its tokenizer or some of its weights, or it
            cannot have this attention.
    """
    path = Path(name)
    base = base_of_adapter(path) if path.is_dir() else None
    if base is not None:
        if Path(base).is_dir() and base_of_adapter(Path(base)) is not None:
            raise UsageError(
                f"the adapter in {path} belongs to {base}, which is an adapter too; merge that one "
                f"first"
            )
        model, tokenizer = load_model(base, dtype=torch.float32, device="cpu", attention=attention)
        model = load_adapter(model, path)  # in float32: bfloat16 would lose most of a small product
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
        return model.to(device), tokenizer
    if path.is_dir() and not (path / "config.json").is_file():
        raise UsageError(
            f"{path} has no config.json; give the folder of a saved transformers model, or a hub id"
        )
    with without_bars() if path.is_dir() else at_once():  # downloads keep their bars
        model = _model(name, dtype, {} if attention is None else {"attn_implementation": attention})
        tokenizer = load_tokenizer(name)
    return model.to(device), tokenizer


def _model(name: str | Path, dtype: torch.dtype, chosen: dict[str, str]) -> PreTrainedModel:
    try:
        # `ignore_mismatched_sizes`: those are listed, and refused below with name and shapes.
        model, loaded = AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **chosen
        )
    except OSError as error:  # the first of transformers' ten lines names what is missing
        why = "neither a folder here nor from the hub"
        if Path(name).is_dir():
            why = "a file of the folder is missing or damaged"
        raise UsageError(
            f"cannot load the model {str(name)!r}, {why}: {_first_line(error)}"
        ) from error
    except Exception as error:  # of transformers, torch, safetensors or the model's own code
        with_attention = f" with attention {chosen['attn_implementation']!r}" if chosen else ""
        raise UsageError(
            f"cannot load the model {str(name)!r}{with_attention}: {_first_line(error)}"
        ) from error
    # transformers fills in missing weights at random, with a warning alone.
    if loaded["missing_keys"]:
        raise UsageError(
            f"{name} lacks {len(loaded['missing_keys'])} of the model's weights, such as "
            f"{min(loaded['missing_keys'])}, which would be random; give a folder with all of them"
        )
    if loaded["mismatched_keys"]:
        weight, in_file, in_model = min(loaded["mismatched_keys"])
        raise UsageError(
            f"cannot load the model {str(name)!r}: {weight} has the shape {list(in_file)} in its "
            f"file and {list(in_model)} by config.json; give a folder in which they fit"
        )
    return model


def model_of_config(name: str | Path, **chosen: object) -> PreTrainedModel | None:
    """A causal language model without weights, on the meta device.

    Args:
        name: folder or hub id.
        chosen: type of the weights, implementation of attention.

    Returns:
        None where its configuration makes no model: loading it says why.
    """
    # Meta: shapes without memory, for forecasts.
    with foreign_code(), torch.device("meta"):  # transformers, the hub, the model's own code
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name), **chosen)
    return None


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, as transformers reads it.

    It warns where its tokens are others than those of the model's own `tokenizer.json`: for some
    types of models, qwen2 among them, transformers makes the rules itself, and a tokenizer with
    other rules loses spaces, for one.

    Args:
        name: folder or hub id.

    Raises:
        UsageError: it has none.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        plain_tokens = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
        # Where there are no files transformers makes up a tokenizer of special tokens.
        if all(token.startswith("<") and token.endswith(">") for token in plain_tokens):
            raise ValueError("it has no tokens")
    except Exception as error:  # its kind depends on the model
        raise UsageError(
            f"the model {str(name)!r} has no tokenizer that can be loaded ({_first_line(error)}); "
            "save one into its folder with `tokenizer.save_pretrained`"
        ) from error
    _warn_of_other_tokens(str(name), tokenizer)
    return tokenizer


# Spaces, digits, a quote, an empty line with indents,
# two other scripts: what tokenizers' rules differ in.
_PROBE: Final = "The sum of 12 + 3 isn't 16:\n\n    x = 15  # zwölf und drei, 十五"


def _warn_of_other_tokens(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Compare a tokenizer's tokens of one text with those of the file that it was read from."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return  # it is not made of that file
    path = Path(name, "tokenizer.json")
    cached = None if path.is_file() else try_to_load_from_cache(name, path.name)
    if not path.is_file() and not isinstance(cached, str):
        return  # of a kind without such a file
    saved = load_fast_tokenizer(str(cached or path))
    unknown = tokenizer.unk_token_id
    # Characters that the vocabulary lacks are left out: only rules are compared.
    probe = "".join(
        c for c in _PROBE if unknown not in saved.encode(c, add_special_tokens=False).ids
    )
    written = saved.encode(probe, add_special_tokens=False).tokens
    read = tokenizer.tokenize(probe, add_special_tokens=False)
    if read != written:
        warnings.warn(
            f"transformers ({type(tokenizer).__name__}) reads {probe!r} as {read}, the "
            f"tokenizer.json of {name} as {written}; if the model learned the latter, give its "
            "config a type whose tokenizer transformers reads as saved, such as llama, or pass "
            "Policy(model, PreTrainedTokenizerFast.from_pretrained(folder))",
            RuntimeWarning,
            stacklevel=3,
        )


@torch.no_grad()  # type: ignore[untyped-decorator]
def require_finite_weights(model: PreTrainedModel) -> None:
    """Refuse weights that are NaN or infinite: every number computed with them would be, too.

    Args:
        model: a torch module.

    Raises:
        UsageError: a weight is not finite; the message names its tensor.
    """
    for name, parameter in model.named_parameters():
        # A sum that is finite in float32 has no NaN or infinity
        # in it; if it overflows, the count below decides.
        if not parameter.is_floating_point() or parameter.sum(dtype=torch.float32).isfinite():
            continue  # one pass without a tensor of booleans
        if bad := int((~parameter.isfinite()).sum()):
            raise UsageError(
                f"the weights of {name} are not finite ({bad} of {parameter.numel()}): the file is "
                "damaged, or the model diverged when it was trained; give another one"
            )


def empty_model(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A model of the same kind on the meta device, without an adapter.

    Args:
        model: of transformers.
        dtype: type of its weights.
    """
    with torch.device("meta"):
        # A copy of the config: a module may keep it, and
        # a change there would reach the trained model.
        plain = type(model)(copy.deepcopy(model.config)).to(dtype)
    plain.generation_config = copy.deepcopy(model.generation_config)
    if hasattr(model, "_weight_conversions"):  # how its files name the weights
        plain._weight_conversions = model._weight_conversions
    return plain


def write_index(folder: Path, files: Sequence[Path]) -> None:
    """Give files of safetensors the names that transformers reads, and write their index.

    Args:
        folder: where they are.
        files: with each weight in one of them.
    """
    # By hand: several ranks have written a file each,
    # while transformers saves a whole model at once.
    places: dict[str, str] = {}
    size = 0
    for number, path in enumerate(files, 1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        with safe_open(path, framework="pt") as file:
            places |= dict.fromkeys(file.keys(), name)
        size += path.stat().st_size
        # Its number is known only when all ranks have written.
        path.rename(folder / name)
    index = {"metadata": {"total_size": size}, "weight_map": places}
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def _first_line(error: BaseException) -> str:
    """And the second, if the first one announces it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    announced = lines[1].strip() if lines[0].endswith(":") and len(lines) > 1 else ""
    return f"{lines[0]} {announced}".strip()[:300]


@contextmanager
def without_bars() -> Iterator[None]:
    """Without the progress bars that transformers shows for each file between the lines of a
    run."""
    were_on = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_on:
            transformers_logging.enable_progress_bar()
