"""What the samplers over vLLM have in common: its version, its parameters, samples of its
answers, names of weights.

Needs no vLLM, as a trainer that samples from servers runs without it, and no torch, as a server's
first process does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rlvr.errors import UsageError
from rlvr.samplers.protocol import Begun, Request, Sample, cut_at_stop, rollout_seed
from rlvr.samplers.tokenization import Tokenization

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PretrainedConfig

__all__ = [
    "EXTENSION",
    "EngineAnswer",
    "TESTED",
    "begun_with",
    "checkpoint_weights",
    "differing_sizes",
    "is_tested",
    "model_sizes",
    "prompt_of",
    "require_all_names",
    "require_head_size",
    "require_positions",
    "sample_of",
    "sampling_parameters",
    "token_versions",
    "version_of_label",
]

TESTED: Final = "0.32"
"""The release series of vLLM that `make test-vllm` runs with; weights are
not sent to another one."""

EXTENSION: Final = "rlvr.samplers.vllm_worker.WorkerExtension"
"""What vLLM's workers load, so that weights can be sent to them."""

_HEAD: Final = "lm_head.weight"  # the name that vLLM gives the head of every text model
_COLDEST: Final = 0.01  # vLLM raises lower temperatures to this without an error
_SIZES: Final = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
    "rms_norm_eps",
)


class EngineAnswer(NamedTuple):
    """What an engine answered to a request, or has of it so far.  T = number of its tokens.

    Attributes:
        ids: of the tokens, shape [T].
        logprobs: of the distribution that each was sampled from, shape [T].
        versions: version of the weights that sampled each token, shape [T].
        finish: why it ended, as vLLM says: "stop", "length", or "abort";
            None for an unfinished one.
    """

    ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    versions: Sequence[int] = ()
    finish: str | None = None


def token_versions(spans: Iterable[tuple[str, int, int]]) -> list[int]:
    """The version of the weights of each token.

    Args:
        spans: (label of the weights, first token, end) as vLLM labels them.
    """
    return [version_of_label(label) for label, start, end in spans for _ in range(start, end)]


def is_tested(version: str) -> bool:
    """Whether this version of vLLM is of the series that was tested.

    Args:
        version: such as "0.32.0".
    """
    # "0.3" must not match "0.32".
    return re.match(rf"{re.escape(TESTED)}(\D|$)", version) is not None


def sampling_parameters(request: Request, tokenization: Tokenization) -> dict[str, object]:
    """The fields of vLLM's SamplingParams for a request.

    Every field that changes a distribution is given: what is left out, a server fills from the
    model's generation config.  Each completion is a request of its own with its own seed, since
    vLLM derives the seeds of several completions from one.

    Args:
        request: what is asked for.  One that was begun goes on with other random numbers than those
            of its tokens.
        tokenization: of the policy.

    Raises:
        UsageError: the temperature is one that vLLM changes.
    """
    sampling, done = (
        request.sampling,
        0 if request.begun is None else len(request.begun.completion_ids),
    )
    if 0 < sampling.temperature < _COLDEST:
        raise UsageError(
            f"temperature is {sampling.temperature}, and vLLM raises it to {_COLDEST}; use 0 or at "
            f"least {_COLDEST}"
        )
    return {
        "n": 1,
        # Tokens of before count for the limit.
        "max_tokens": request.limit - done,
        "min_tokens": 0,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        # Other numbers than those of the first tokens, which are drawn already.
        "seed": rollout_seed("go on", request.seed, done) if done else request.seed,
        "stop": list(sampling.stop),
        "stop_token_ids": sorted(tokenization.end_ids_with(sampling.stop)),
        "ignore_eos": False,
        "logprobs": 0,  # of the token that was sampled alone
        "skip_special_tokens": True,
        "spaces_between_special_tokens": False,
        "detokenize": bool(sampling.stop),  # stop texts are found in text
    }


def sample_of(request: Request, tokenization: Tokenization, answer: EngineAnswer) -> Sample:
    """A sample of what the engine answered.

    Args:
        request: what was asked for; the tokens with which it was begun are put before the others.
        tokenization: of the policy; the text is made here, as the policy's other samplers make it.
        answer: a finished one.
    """
    begun = begun_with(request, answer)
    tokens, stop = len(begun.completion_ids), request.sampling.stop
    truncated = answer.finish == "length"
    if request.begun is not None and stop:  # vLLM looks for stop texts in what it has added alone
        # From the first new token on: stop texts that were complete before have ended it already.
        for end in range(len(request.begun.completion_ids) + 1, tokens):
            text = tokenization.decode(begun.completion_ids[:end])
            if any(stop_text in text for stop_text in stop):
                tokens, truncated = end, False
                break
    versions = list(begun.versions[:tokens])
    text = cut_at_stop(tokenization.decode(begun.completion_ids[:tokens]), stop)
    return Sample(
        tokenization.beginning(request.context) + text,
        list(request.context),
        list(begun.completion_ids[:tokens]),
        list(begun.logprobs[:tokens]),
        truncated=truncated,
        weights_version=min(versions),
        token_versions=versions if len(set(versions)) > 1 else None,
    )


def begun_with(request: Request, answer: EngineAnswer) -> Begun:
    """The tokens of a completion so far: those with which it was begun, and those that were added.

    Args:
        request: what was asked for.
        answer: what was added.
    """
    before = request.begun or Begun((), (), None, ())
    return Begun(
        [*before.completion_ids, *answer.ids],
        [*before.logprobs, *answer.logprobs],
        None,
        [*before.versions, *answer.versions],
    )


def prompt_of(request: Request) -> list[int]:
    """The tokens that the engine continues.

    Args:
        request: what is asked for.
    """
    return [*request.context, *(() if request.begun is None else request.begun.completion_ids)]


def version_of_label(label: str) -> int:
    """The weights' version from the label that the engine has for it; -1 for weights that were not
    sent by rlvr.

    Args:
        label: such as "7"; an engine begins with "default".
    """
    # `isdecimal` and ASCII: int() also takes other scripts' digits.
    return int(label) if label.isascii() and label.isdecimal() else -1


def require_positions(request: Request, positions: int) -> None:
    """Refuse a request that is longer than what the engine was started for.

    Args:
        request: what is asked for.
        positions: most tokens of prompt and completion together.

    Raises:
        UsageError: it is.
    """
    length, limit = len(request.context), request.limit
    if limit < 1 or not length:
        raise UsageError(
            f"request {request.id} has {length} tokens and limit {limit}; each must be at least 1"
        )
    if length + limit > positions:
        raise UsageError(
            f"request {request.id} has {length} tokens and may get {limit} more, and the engine "
            f"was started for "
            f"{positions}; lower max_tokens, shorten the prompt, or start it with more "
            f"(max_model_len)"
        )


def require_head_size(config: PretrainedConfig, supported: Sequence[int]) -> None:
    """Refuse a model with attention heads of a width that the engine's attention does not have.

    The CPU backend says so with the first token, after minutes of start.

    Args:
        config: of the model, as transformers has it.
        supported: widths that the backend has.

    Raises:
        UsageError: its heads have another width.
    """
    text = config.get_text_config()
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    if width not in supported:
        raise UsageError(
            f"the model's attention heads are {width} wide, and vLLM's attention on a CPU has only "
            f"{', '.join(map(str, supported))}; sample with --sampler local, or choose a model "
            f"with such heads"
        )


def model_sizes(config: PretrainedConfig) -> dict[str, object]:
    """What tells one architecture from another, as plain JSON.

    Args:
        config: of the model, as transformers has it.
    """
    text = config.get_text_config()
    return {name: value for name in _SIZES if (value := getattr(text, name, None)) is not None}


def differing_sizes(ours: Mapping[str, object], theirs: Mapping[str, object]) -> str:
    """Where two architectures differ, in words; empty if they do not.

    Args:
        ours, theirs: of `model_sizes`.
    """
    shared = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    return ", ".join(f"{name} {theirs[name]} instead of {ours[name]}" for name in shared)


def checkpoint_weights(
    weights: Mapping[str, Tensor], *, tied: bool, lora_scale: float | None = None
) -> dict[str, Tensor]:
    """The weights of a state dict by their names in a checkpoint, without those that are there
    twice.

    Those of a LoRA adapter are merged: W + scale · B A (Hu et al. 2021, arXiv:2106.09685, 4.1), in
    float32 at least.

    Args:
        weights: a state dict of the trainer's model.
        tied: whether the head shares the embedding's matrix.
        lora_scale: alpha / rank; None leaves the adapter out.

    Raises:
        UsageError: an adapter on something else than linear layers.
    """
    checkpoint = {}
    for name, value in weights.items():
        # A tied head is the embedding, which is sent already.
        if ".lora_" in name or (tied and name == _HEAD):
            continue
        checkpoint[name.replace(".base_layer.", ".")] = value.detach()
    for name, down in weights.items() if lora_scale is not None else ():
        layer, is_adapter, suffix = name.partition(".lora_A.")
        if not is_adapter:
            continue
        up, base = weights[f"{layer}.lora_B.{suffix}"], checkpoint.get(f"{layer}.weight")
        # A fused or convolutional layer has another shape.
        if base is None or base.shape != (up.shape[0], down.shape[-1]):
            raise UsageError(
                f"the LoRA adapter on {layer} is not on a linear layer; vLLM cannot be given it"
            )
        # In float32: a product of bfloat16 would lose what the adapter has learned.
        wide = up.detach().float() @ down.detach().float()
        checkpoint[f"{layer}.weight"] = base.float() + lora_scale * wide
    return checkpoint


def require_all_names(names: Iterable[str], expected: Iterable[str]) -> None:
    """Refuse weights that are not all of those that the engine has: it would take a part of them
    without a word.

    Args:
        names: of the weights that are about to be loaded.
        expected: the names of the engine's own checkpoint format.

    Raises:
        UsageError: names are missing, or unknown.
    """
    names, expected = set(names), set(expected)
    if missing := sorted(expected - names):
        raise UsageError(
            f"the weights lack {len(missing)} of the {len(expected)} that the engine has, such as "
            f"{missing[0]}; it would keep the old ones, so give the whole state dict"
        )
    if unknown := sorted(names - expected):
        raise UsageError(
            f"the weights have {len(unknown)} names that the engine does not know, such as "
            f"{unknown[0]}: its model is another one, or is kept in another form than the "
            "trainer's, as mixtures of experts are"
        )
