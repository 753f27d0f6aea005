"""Collects groups of scored rollouts from an environment, a sampler and a scorer.

cursor ─▶ tasks ─▶ scheduler, Sampler ─▶ Scorer, in the background
  ─▶ G rollouts = Group ─▶ filters, refill ─▶ Collected

collector        `Collector`: as many groups open as a batch is expected to need
cursor, mixing   the order of tasks, also of a mixture, as numbers from which a run resumes
scheduler        requests of many rollouts to one sampler, replies back to each
groups           what the rollouts of a group ask for, and how they are scored
player           plays an episode: all that was said in one token sequence
flight           groups under way, which may stay unfinished while the weights change
background       scoring and the environment's calls in threads while the sampler works
prefixes         Monte-Carlo values at step boundaries (VinePPO)
stats            the metrics of one `Collector.collect`
serialization    groups as plain JSON, for checkpoints
evaluation       avg@n, pass@k and maj@k of a sampler on an environment
rollout_records  rollouts of an evaluation on disk
process_labels   labels of steps from completions that continue there

Contract: `rlvr.samplers.Sampler` below, `Group` above; whatever plays rollouts has `plays`,
`score`.
Sees `samplers`, `scoring`, `environment` and below, not `algo`; `train` and above see it.
Goes wrong: order.  A batch is the first useful groups in the order of tasks, never those that end
first; a resumed run must ask the same requests with the same seeds.
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
