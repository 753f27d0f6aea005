"""Samplers generate completions: the protocol, a scripted one for tests, and one over a local transformers model."""

from rlvr.samplers.protocol import (
    Context,
    Sample,
    Sampler,
    Sampling,
    TokenIds,
    Tokenized,
    TokenRow,
    is_token_ids,
    rollout_seed,
)
from rlvr.samplers.scripted import END, Script, ScriptedSampler

__all__ = [
    "Context",
    "END",
    "Sample",
    "Sampler",
    "Sampling",
    "Script",
    "ScriptedSampler",
    "TokenIds",
    "TokenRow",
    "Tokenized",
    "is_token_ids",
    "rollout_seed",
]
