"""Collects groups of scored rollouts from an environment, a sampler and a scorer.

cursor ─▶ tasks ─▶ Sampler.generate ─▶ Scorer, in the background ─▶ G rollouts = Group ─▶ filters, refill ─▶ Collected
"""

from rlvr.collect.background import Timings
from rlvr.collect.collector import Collected, Collector
from rlvr.collect.groups import Groups
from rlvr.collect.prefixes import PrefixValues, prefix_values, step_boundaries
from rlvr.collect.stats import Dropped, own_tokens
from rlvr.samplers.protocol import Context, Sample, Sampler, Sampling, TokenIds, is_token_ids, rollout_seed
from rlvr.samplers.scripted import END, Script, ScriptedSampler

__all__ = [
    "Collected",
    "Collector",
    "Context",
    "Dropped",
    "END",
    "Groups",
    "PrefixValues",
    "Sample",
    "Sampler",
    "Sampling",
    "Script",
    "ScriptedSampler",
    "Timings",
    "TokenIds",
    "is_token_ids",
    "own_tokens",
    "prefix_values",
    "rollout_seed",
    "step_boundaries",
]
