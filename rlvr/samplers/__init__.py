"""Samplers generate completions.

protocol      the interface: `Sampler`, `Request`, `Sampling`, `Sample`
scripted      completions from a list or a function; for tests
local         a transformers model in this process (torch), with decoding, token_sampling, preallocated_cache and
              banded_attention
vllm_client   over vLLM (vllm_shared, vllm_lora and, inside of vLLM, vllm_worker), by one of two transports:
vllm          an engine in this process
servers       servers that are given the policy's weights (vllm_http); vllm_server starts one, servers_started several
endpoint      a model behind an OpenAI-compatible API (openai); for evaluation
tokenization  prompts to tokens, and completions to text
"""

from rlvr.samplers.protocol import (
    Request,
    Sample,
    Sampler,
    Sampling,
    TokenIds,
    Tokenized,
    TokenRow,
    rollout_seed,
)
from rlvr.samplers.scripted import END, Script, ScriptedSampler
from rlvr.samplers.tokenization import HERMES_TEMPLATE

__all__ = [
    "END",
    "HERMES_TEMPLATE",
    "Request",
    "Sample",
    "Sampler",
    "Sampling",
    "Script",
    "ScriptedSampler",
    "TokenIds",
    "TokenRow",
    "Tokenized",
    "rollout_seed",
]
