"""Samplers generate completions.

protocol                      the interface: `Sampler`, `Request`, `Sampling`, `Sample`
conformance                   what an engine of one's own does otherwise than the interface says
scripted                      completions from a list or a function; for tests
tokenization, chat, template  prompts to tokens and back; by the chat template or raw
local                         a transformers model in this process (torch)
decoding, token_sampling      one token per row and step, with refill; how it is drawn
preallocated_cache            keys and values of a batch whose rows come and go
banded_attention              attention of a decode step, in bands of rows
packed_attention              attention of packed rows, each over itself alone
vllm_client, vllm_shared      over vLLM, whatever the transport
vllm, servers, vllm_http      an engine in this process; servers that get weights; HTTP
vllm_server, servers_started  starts one server, and several that end with the run
vllm_worker, vllm_lora        what vLLM itself loads; adapters, swapped or merged
endpoint                      a model behind an OpenAI-compatible API; for evaluation

Contract: `protocol.Sampler`: `submit`, `poll`, `sync`, `logprobs`, `encode`, `decode`; a new engine
is one file, or two with a worker.
Sees `environment`, `data`, `workers` and the ground; `collect`, `train` and above see it.
Goes wrong: weights that did not arrive (the canary compares after each sync), rows whose neighbours
change their last bits, and log-probabilities at another temperature than the trainer's.
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
