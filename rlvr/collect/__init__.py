"""Collects groups of scored rollouts from an environment, a sampler and a scorer.

cursor ─▶ tasks ─▶ scheduler, Sampler ─▶ Scorer, in the background ─▶ G rollouts = Group ─▶ filters, refill ─▶ Collected
"""

from rlvr.collect.background import Timings
from rlvr.collect.collector import Collected, Collector
from rlvr.collect.groups import Groups
from rlvr.collect.prefixes import PrefixValues, prefix_values, step_boundaries
from rlvr.collect.stats import Dropped, own_tokens
from rlvr.samplers.protocol import Request, Sample, Sampler, Sampling, TokenIds, rollout_seed
from rlvr.samplers.scripted import END, Script, ScriptedSampler

__all__ = [
    "Collected",
    "Collector",
    "Dropped",
    "END",
    "Groups",
    "PrefixValues",
    "Request",
    "Sample",
    "Sampler",
    "Sampling",
    "Script",
    "ScriptedSampler",
    "Timings",
    "TokenIds",
    "own_tokens",
    "prefix_values",
    "rollout_seed",
    "step_boundaries",
]
